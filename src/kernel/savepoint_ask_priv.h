// SPDX-License-Identifier: Apache-2.0
// Asks a savepoint, over a link to the sandbox: one JSON object in a line, and one in a line as the
// answer (kernelspec/python/kernelgate_savepoints.py). What answers may be anything that runs in
// the sandbox.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

struct sandbox;

struct savepoint_ask;
// `answer` is an object, borrowed and untrusted; NULL with `err`.
typedef void (*savepoint_ask_fn)(const json_t *answer, const struct kg_error *err, void *arg);
// Tries again while nothing listens, for `timeout_ms` in all. `fn` fires once, later, unless the
// call is cancelled. `request` is borrowed until this returns.
struct savepoint_ask *savepoint_ask_new(struct loop *loop, struct sandbox *sandbox,
                                        const char *savepoint, const json_t *request,
                                        int64_t timeout_ms, savepoint_ask_fn fn, void *arg);
// NULL is fine.
void savepoint_ask_cancel(struct savepoint_ask *ask);
// The process id in an answer; 0: there is none that can be a process of a sandbox.
int savepoint_answer_pid(const json_t *answer);
