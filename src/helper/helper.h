// SPDX-License-Identifier: Apache-2.0
// The gateway's side of its helper: the process with root's rights that makes sandboxes and forks
// kernels into them, while this one has none (helper_packet.h). If the helper ends, all calls fail,
// and another one comes from the starter (starter.h). All on the loop's thread.
#pragma once

#include "helper_packet.h"
#include "loop.h"

// The two sockets of starter_start(), which has waited for the first HELPER_STARTED.
struct helper_link {
    int helper;
    int starter;
    struct helper_reply started;
};

struct helper;
// Owns the sockets of `link`.
struct helper *helper_new(struct loop *loop, const struct helper_link *link);
// Calls that were not cancelled fail; the helper ends, with the zygotes that it has. Waits for
// that, which takes milliseconds unless something is still being made. NULL is fine.
void helper_free(struct helper *helper);
KG_DEFINE_AUTO(helper, helper_free)
// What the helper said when it started, first or last.
const struct helper_reply *helper_started(const struct helper *helper);
// Fails while there is no helper.
KG_MUST_CHECK int helper_check(const struct helper *helper, struct kg_error *err);

// Whether there is one, or a starter that starts another one.
KG_MUST_CHECK bool helper_can_come_back(const struct helper *helper);

// Each packet that answers the call, the last of which is HELPER_DONE, which comes from here if the
// helper is lost. `fd` is the callback's, or -1.
typedef void (*helper_reply_fn)(const struct helper_reply *reply, int fd, void *arg);
struct helper_call;
// NULL with `err` while there is no helper. The handle is invalid once HELPER_DONE has been given.
// `request` is copied; its `serial` is set here.
KG_MUST_CHECK struct helper_call *helper_ask(struct helper *helper,
                                             const struct helper_request *request,
                                             helper_reply_fn fn, void *arg, struct kg_error *err);
// The callback will not fire, and descriptors that come are closed. NULL is fine.
void helper_call_cancel(struct helper_call *call);

// Calls `fn` for each packet of this kind that answers no call, and for HELPER_LOST and
// HELPER_BACK. A descriptor is that of the first who listens.
void helper_on(struct helper *helper, enum helper_event event, helper_reply_fn fn, void *arg);
// Ends all of these that have this `arg`.
void helper_off(struct helper *helper, const void *arg);
