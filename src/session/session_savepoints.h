// SPDX-License-Identifier: Apache-2.0
// The savepoints of a session, and its branches. A savepoint is a fork of a kernel that waits; a
// branch is a further kernel (session_kernels.h) whose process is forked from a savepoint. All on
// the loop's thread.
//
// A session keeps max_savepoints of sessions_settings: a new one takes the place of the oldest that
// has no name. A savepoint outlives its kernel, and is known to the next gateway. Where the sandbox
// has no memory left, Linux ends savepoints first.
#pragma once

#include <jansson.h>

#include "base.h"

struct kernel;
struct session;

enum { SAVEPOINT_NAME_MAX = 64 }; // bytes of a name that a client gives

// A call under way; `fn` fires once, never before the call has returned, and then the handle is
// gone. `savepoint` describes it, borrowed; NULL where there is nothing to describe, and with
// `err`.
struct savepoint_call;
typedef void (*savepoint_call_fn)(const json_t *savepoint, const struct kg_error *err, void *arg);
// `fn` is not called any more; what is under way goes on. NULL is fine.
void savepoint_call_cancel(struct savepoint_call *call);

// Makes a savepoint of a kernel of the session. `name` is a client's, or NULL; `files`: with what
// /mnt/data has. Errors: those of
// kernel_make_savepoint(); KG_INVALID (the name), KG_NAME_EXISTS (a savepoint has it, or is being
// made with it), KG_TOO_MANY_SAVEPOINTS (all have names), KG_SESSION_BUSY (the session is still
// being created or taken up).
KG_MUST_CHECK struct savepoint_call *session_savepoint_make(struct session *session,
                                                            struct kernel *kernel, const char *name,
                                                            bool files, savepoint_call_fn fn,
                                                            void *arg, struct kg_error *err);
// Brings the savepoint's kernel back to it, and /mnt/data if it has kept that. Errors: KG_NOT_FOUND
// (the savepoint, or its kernel), KG_SESSION_BUSY (the kernel is being restarted), KG_DISK_FULL (no
// room for its files; nothing has changed), KG_SAVEPOINT_FAILED.
KG_MUST_CHECK struct savepoint_call *session_savepoint_restore(struct session *session,
                                                               const char *id, savepoint_call_fn fn,
                                                               void *arg, struct kg_error *err);
KG_MUST_CHECK struct savepoint_call *session_savepoint_drop(struct session *session, const char *id,
                                                            savepoint_call_fn fn, void *arg,
                                                            struct kg_error *err);
// Starts a branch: a further kernel of that name from a savepoint, or (`id` NULL) from `kernel` as
// it is now. `savepoint` of `fn` is NULL. Errors: those of session_kernel_open() and of the above.
KG_MUST_CHECK struct savepoint_call *session_branch_open(struct session *session, const char *name,
                                                         const char *id, struct kernel *kernel,
                                                         savepoint_call_fn fn, void *arg,
                                                         struct kg_error *err);
// Makes a branch the default kernel of its kernelspec, which loses what it has; the branch is gone
// then. Errors as above; KG_KERNEL_BUSY: the branch runs code.
KG_MUST_CHECK struct savepoint_call *session_branch_promote(struct session *session,
                                                            const char *name, savepoint_call_fn fn,
                                                            void *arg, struct kg_error *err);
// {"savepoints": […], "dropped": […]}, a new reference.
json_t *session_savepoints_describe(const struct session *session);
