// SPDX-License-Identifier: Apache-2.0
// The kernels of one session, by name. The default kernel of a kernelspec has the kernelspec's
// name; session_open_start() starts it when somebody wants it. A further kernel has another name,
// and is started here. Kernels share the sandbox: its files, its memory, its processes; not their
// variables. All on the loop's thread.
//
// A session whose last kernel was removed lives on, with its files and commands.
#pragma once

#include <stddef.h>

#include "base.h"

struct kernel;
struct kernelspec;
struct session;

struct session_kernel_request {
    const struct kernelspec *spec;
    // kernel_name_valid(), and no name or alias of a kernelspec; NULL: a random one of 12 of
    // a-z2-7.
    const char *name;
    // The folder in which its processes start, an absolute path; it must exist. NULL: the session's
    // session_home(), or /mnt/data.
    const char *cwd;
    const char *savepoint; // kernel_settings; NULL: none
};

// A call under way. `fn` fires once, never before the call has returned; then the handle is gone.
// `kernel` is borrowed; NULL after session_kernel_remove(), and with `err`. `err` is
// KG_SESSION_NOT_FOUND if the session has ended meanwhile.
struct session_kernel_call;
typedef void (*session_kernel_fn)(struct kernel *kernel, const struct kg_error *err, void *arg);
// `fn` is not called any more. A kernel that was being opened is removed; a restart and a removal
// go on. NULL is fine.
void session_kernel_call_cancel(struct session_kernel_call *call);

// Starts a further kernel, and records it for the next gateway; `fn` fires when it is ready.
// Errors: KG_INVALID (a bad name or folder, or the session has SESSION_MAX_KERNELS already),
// KG_NAME_EXISTS (it has a kernel of that name), KG_SESSION_BUSY (the session is still being
// created, or all sessions have too many kernels), KG_NOT_FOUND (there is no such folder),
// KG_KERNEL_START_TIMEOUT.
KG_MUST_CHECK struct session_kernel_call *
session_kernel_open(struct session *session, const struct session_kernel_request *request,
                    session_kernel_fn fn, void *arg, struct kg_error *err);
// Restarts one kernel, as kernel_restart() does, in its folder. Errors: KG_NOT_FOUND,
// KG_SESSION_BUSY (it is being restarted already).
KG_MUST_CHECK struct session_kernel_call *session_kernel_restart(struct session *session,
                                                                 const char *name,
                                                                 session_kernel_fn fn, void *arg,
                                                                 struct kg_error *err);
// Ends one kernel: its executions end as `died`, its taps end, its process and what that left
// behind are killed. From now on the session does not show it. A kernel that is being started ends
// when it has started. A default kernel can be opened again at once. Errors: KG_NOT_FOUND.
KG_MUST_CHECK struct session_kernel_call *session_kernel_remove(struct session *session,
                                                                const char *name,
                                                                session_kernel_fn fn, void *arg,
                                                                struct kg_error *err);
// Interrupts one kernel by kernel_interrupt(); what that returns goes to `ret_busy`, which may be
// NULL. Errors: KG_NOT_FOUND.
KG_MUST_CHECK int session_kernel_interrupt(struct session *session, const char *name,
                                           bool *ret_busy, struct kg_error *err);

// KG_SESSION_BUSY while a session that the gateway before had is asked what runs in it: further
// kernels and savepoints are not known yet.
KG_MUST_CHECK int session_taken_up_check(const struct session *session, struct kg_error *err);
// Borrowed; valid until the loop runs again. NULL with KG_NOT_FOUND, or KG_SESSION_BUSY by
// session_taken_up_check(). It may still be starting:
// kernel_has_started().
struct kernel *session_kernel_find(const struct session *session, const char *name,
                                   struct kg_error *err);
// The kernels, those included that are being started: the `index`th, or NULL after the last one.
// The order is that in which they came. kernel_name(), kernel_spec(), kernel_folder() and
// kernel_state() say more.
struct kernel *session_kernel_at(const struct session *session, size_t index);
// Whether it is the default kernel of its kernelspec.
bool session_kernel_is_default(const struct kernel *kernel);
// The bytes that it shares with no other process, as the sandbox last reported; -1 where that has
// not been, since it is young, has no forks beside it, or Linux does not tell.
int64_t session_kernel_memory(const struct session *session, const struct kernel *kernel);
// The folder in which its processes start: its own, session_home(), or /mnt/data. Borrowed.
const char *session_kernel_cwd(const struct session *session, const struct kernel *kernel);
