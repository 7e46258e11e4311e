// SPDX-License-Identifier: Apache-2.0
// The parts of test_kernel, and what they share: one kernel in a fake sandbox.
#pragma once

#include <jansson.h>

#include "fake_sandbox.h"
#include "kernel_priv.h"

// Each runs its tests and returns how many failed.
int test_kernel_log(void);
int test_kernel_output(void);
int test_kernel_start(void);
int test_kernel_run(void);
int test_kernel_stop(void);
int test_kernel_artifacts(void);
int test_kernel_tap(void);
int test_kernel_tap_runs(void);
int test_kernel_tools(void);

// ---- Lines ----------------------------------------------------------------------------------

// The next line of a reader; NULL where there is none.
json_t *take_line(struct subscription *reader);
// All lines that the log has. To be freed.
json_t *all_lines(struct execution *execution);
// Of the last line, which must be `done`.
void assert_done(struct execution *execution, const char *status, bool restarted);
// Asserts that an error line stands right before the `done` line.
void assert_last_error(struct execution *execution, const char *ename, const char *evalue_part);

// ---- A kernel -------------------------------------------------------------------------------

enum { DEADLINE_MS = 40 * 1000, TOOL_CALL_MS = 60 * 1000, TOOL_CALLS_MAX = 300 };

struct fixture {
    struct loop *loop;
    int64_t give_up_ms; // by the machine's clock
    json_t *env;        // of every kernel
    struct kernel_context context;
    struct kernelspec spec;
    struct sandbox *sandbox;
    struct kernel *kernel;
    int started, done, restarted, broken;
    struct kg_error start_err, restart_err; // the last one
};

// cmocka's: loop, sandbox and kernelspec, and no kernel yet.
int fixture_setup(void **state);
int fixture_teardown(void **state);
// One turn of the loop; fails where the test has taken too long.
void fixture_turn(struct fixture *f);
#define RUN_UNTIL(f, condition)                                                                    \
    while (!(condition))                                                                           \
    fixture_turn(f)

// Makes the fixture's sandbox; the test has freed the one before.
void make_sandbox(struct fixture *f, struct kg_error *err);
void start_kernel(struct fixture *f);
void start_ready_kernel(struct fixture *f);
// Adopts a process that an earlier gateway has started, and that answers nothing. What it may still
// be doing may take `timeout_ms`.
void adopt_busy_kernel(struct fixture *f, int64_t timeout_ms);
void run_until_done(struct fixture *f, struct execution *execution);
// Runs code; it must be taken. The reference is the caller's.
struct execution *execute(struct fixture *f, const char *code);
struct execution *execute_for(struct fixture *f, const char *code, int64_t timeout_ms);
struct execution *execute_with(struct fixture *f, const char *code, const json_t *variables,
                               const json_t *env, struct kg_error *err);
// kernel_restart(), counted in f->restarted.
int restart(struct fixture *f, struct kg_error *err);
