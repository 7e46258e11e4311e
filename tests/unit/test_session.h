// SPDX-License-Identifier: Apache-2.0
// The parts of test_session, and what they share: a registry over fake sandboxes, and those who
// open its sessions.
#pragma once

#include "fake_sandbox.h"
#include "kernel.h"
#include "packages_priv.h"
#include "session.h"
#include "sessions.h"

// Runs its tests and returns how many failed.
int test_session_commands(void);
int test_session_end(void);
int test_session_kernels(void);
int test_session_pool(void);
int test_session_requests(void);
int test_session_tools(void);

enum { DEADLINE_MS = 40 * 1000, MAX_SESSIONS = 3, N_SPECS = 33, MAX_TOOL_RESULT = 64 << 10 };

struct fixture {
    struct loop *loop;
    int64_t give_up_ms; // by the machine's clock
    char dir[32];
    struct kernelspecs *specs; // k0 to k16; k0 alone takes variables and a folder
    struct sandbox_context sandboxes;
    struct kernel_context kernels;
    struct sessions_settings settings;
    struct sessions *sessions;
    struct packages packages; // after give_packages()
    int ended, restarted;
    struct kg_error restart_err;
};

// From now on sessions take packages, by pip: no folder is shared.
void give_packages(struct fixture *f);

// Somebody who opens a session.
struct opener {
    struct fixture *f;
    struct session_open *open;
    struct session *session;
    struct kernel *kernel;
    struct kg_error err;
    int answers;
    const char *code; // to run at once
    struct execution *execution;
    struct opener *then;    // opens when this one is answered
    struct opener *cancels; // another open, when this one is answered
    bool ends;              // the session, when this one is answered
};

// cmocka's. The pool has no place of its own, or two, or one and two bare sandboxes and starts one
// kernel at a time; or idle sessions are evicted.
int session_setup(void **state);
int session_setup_evicting(void **state);
int session_setup_with_pool(void **state);
int session_setup_with_bare(void **state);
int session_teardown(void **state);
// One turn of the loop; fails where the test has taken too long.
void session_turn(struct fixture *f);
#define RUN_UNTIL(f, condition)                                                                    \
    while (!(condition))                                                                           \
    session_turn(f)

void on_ended(void *arg); // counts in f->ended
// A request for k0 in the session `id` (NULL: a new one), by "me".
struct session_request named(struct fixture *f, const char *id);
void start(struct fixture *f, struct opener *opener, const struct session_request *request);
// Opens and waits for the answer.
void open_request(struct fixture *f, struct opener *opener, const struct session_request *request);
void open_named(struct fixture *f, struct opener *opener, const char *id);
struct execution *execute(struct opener *opener, const char *code, const json_t *variables,
                          struct kg_error *err);
