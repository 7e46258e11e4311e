// SPDX-License-Identifier: Apache-2.0
// What the gateway and its helper say to each other: packets of a fixed size on a Unix socket
// (SOCK_SEQPACKET), some with one descriptor (SCM_RIGHTS). The two are forks of one program, so a
// packet is the struct itself. The helper has root's rights and the gateway is not trusted: a
// request names things by id and by number only.
#pragma once

#include "base.h"

enum { HELPER_ID_MAX = 16, HELPER_FORK_LEN = 8 };

enum helper_verb {
    HELPER_CREATE = 1, // `id`; `number`: seconds without a link after which the agent exits;
                       // `flag`: with a way out. Answers DOOR, then DONE
    HELPER_DESTROY,    // `id`. DONE
    HELPER_LIST,       // FOUND for each living sandbox, with its door if `flag` is 1, then DONE
    HELPER_LIMIT,      // `id`; `number`: MiB of memory of its processes. DONE
    HELPER_FORK,       // a kernel into the sandbox `id`; `number`: of the zygote; `fork`: the
                       // name under which the agent expects it. DONE with the process id inside
    HELPER_WARM,       // start the zygotes. DONE once each is ready or has failed
    HELPER_COOL,       // end the zygotes. DONE once they are gone
    HELPER_DIAL,       // the agent of the sandbox `id`, where agents listen. DONE with a socket;
                       // `number`: the epoch (link_hello.h)
    HELPER_SERVER,     // the program of an MCP server; `number`: of the server in the operator's
                       // file. DONE with a socket, whose end is the program's
};

struct helper_request {
    uint32_t verb;
    uint32_t serial; // returned with each answer
    uint32_t flag;   // 0 or 1
    char id[HELPER_ID_MAX + 4];
    char fork[HELPER_FORK_LEN + 4];
    int64_t number;
};

enum helper_event {
    HELPER_STARTED = 1, // the first packet: `code`, and if that is KG_OK the traits of the engine:
                        // `number`: bytes of memory of all sandboxes; `flag`: kernels can be
                        // forked
    HELPER_DONE,        // ends the answer to `serial`: `code`
    HELPER_DOOR,        // the listening socket that the agent of `id` dials; `serial`: asked for by
    HELPER_FOUND,       // the living sandbox `id`; answers HELPER_LIST
    HELPER_EXITED,      // the container of the sandbox `id` has ended by itself
    HELPER_ZYGOTE,      // zygote `number` is ready, or is not: `code`
    HELPER_FILE,        // file `number` of the settings has changed: a descriptor, or `code`
    HELPER_LOST,        // never sent: the connection has ended
    HELPER_BACK,        // never sent: there is another helper, which knows what HELPER_STARTED said
    HELPER_EVENTS,
};

struct helper_reply {
    uint32_t event;
    uint32_t serial;
    uint32_t flag;
    uint32_t code; // enum kg_code
    int32_t sys_errno;
    char id[HELPER_ID_MAX + 4];
    int64_t number;
    char message[240];
};

// Whether a packet from the gateway is one: its length, its verb, and every byte of every member
// that the verb uses; members that it does not use must be zero.
KG_MUST_CHECK bool helper_request_is_valid(const void *packet, size_t len);
// The same of a packet from the helper.
KG_MUST_CHECK bool helper_reply_is_valid(const void *packet, size_t len);
void helper_reply_set_error(struct helper_reply *reply, const struct kg_error *err);
// False: there is none. `ret` may be NULL.
bool helper_reply_error(const struct helper_reply *reply, struct kg_error *ret);

// Sends one packet, with a descriptor unless `fd` is -1. `flags` as those of sendmsg(2). -1 with
// errno.
KG_MUST_CHECK int helper_send(int socket, const void *packet, size_t len, int fd, int flags);
// Receives one packet of at most `max` bytes. Returns its length, 0 at the end, or -1 with errno. A
// packet with more than one descriptor, or a longer one, has length `max` + 1. `ret_fd` is -1 if
// there is none, and otherwise the caller's.
KG_MUST_CHECK ssize_t helper_receive(int socket, void *packet, size_t max, int flags, int *ret_fd);
