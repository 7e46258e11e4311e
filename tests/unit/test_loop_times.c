// SPDX-License-Identifier: Apache-2.0
// What the loop does at its time, with a clock that the test moves; and that clock itself.

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loop_wait.h"
#include "virtual_clock.h"

struct fixture {
    struct loop *loop;
    struct loop_timer *timers[4];
    int64_t began_ms;
    struct buf log; // of what has fired: "b@20 " is timers[1] after 20 ms
    bool again;     // a timer starts itself again
    int ended;      // a process
    struct loop_process_result result;
    char output[32];
};

static int
setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    f->loop = loop_new();
    f->began_ms = clock_mono_ms();
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < KG_ARRAY_LEN(f->timers); i++)
        loop_timer_free(f->timers[i]);
    loop_free(f->loop);
    buf_fini(&f->log);
    free(f);
    return 0;
}

static void
note(struct fixture *f, char name)
{
    buf_printf(&f->log, "%c@%d ", name, (int)(clock_mono_ms() - f->began_ms));
}

static void
assert_log(struct fixture *f, const char *expected)
{
    buf_append(&f->log, "", 0);
    assert_string_equal(f->log.data ? f->log.data : "", expected);
}

static void
on_a(void *arg)
{
    struct fixture *f = arg;
    note(f, 'a');
    if (f->again)
        loop_timer_start(f->timers[0], 10);
}

static void
on_b(void *arg)
{
    note(arg, 'b');
}

static void
on_c(void *arg)
{
    note(arg, 'c');
}

static void
make_timers(struct fixture *f)
{
    static const loop_fn fns[] = {on_a, on_b, on_c};
    for (size_t i = 0; i < KG_ARRAY_LEN(fns); i++)
        f->timers[i] = loop_timer_new(f->loop, fns[i], f);
}

// ---- The clock ------------------------------------------------------------------------------

static void
test_time_stands_still(void **state)
{
    struct fixture *f = *state;
    make_timers(f);
    int64_t wall_ms = clock_wall_ms(), mono_us = clock_mono_us();
    loop_timer_start(f->timers[0], 1);
    for (int i = 0; i < 5; i++)
        loop_turn(f->loop); // which takes a millisecond of the machine's
    assert_log(f, "");
    assert_int_equal(clock_mono_us(), mono_us);
    virtual_clock_advance(f->loop, 24 * 3600 * 1000);
    assert_log(f, "a@1 ");
    assert_int_equal(clock_mono_us(), mono_us + 24 * 3600 * INT64_C(1000000));
    assert_int_equal(clock_wall_ms(), wall_ms + 24 * 3600 * 1000);
}

static void
test_timers_fire_in_the_order_of_their_times(void **state)
{
    struct fixture *f = *state;
    make_timers(f);
    f->again = true;
    loop_timer_start(f->timers[1], 25);
    loop_timer_start(f->timers[2], 20);
    loop_timer_start(f->timers[0], 10);
    loop_later(f->loop, 20, on_b, f);
    loop_later(f->loop, 100, on_b, f); // is freed with the loop, without a call
    virtual_clock_advance(f->loop, 9);
    assert_log(f, "");
    virtual_clock_advance(f->loop, 21);
    assert_log(f, "a@10 c@20 b@20 a@20 b@25 a@30 ");
    assert_int_equal(virtual_clock_next_ms(f->loop), 10);
}

static void
test_a_timer_is_stopped_and_started_anew(void **state)
{
    struct fixture *f = *state;
    make_timers(f);
    loop_timer_start(f->timers[0], 10);
    loop_timer_start(f->timers[1], 10);
    loop_timer_start(f->timers[2], 10);
    loop_timer_start(f->timers[1], 30);
    loop_timer_stop(f->timers[2]);
    assert_true(loop_timer_active(f->timers[1]));
    assert_false(loop_timer_active(f->timers[2]));
    assert_false(virtual_clock_step(f->loop, 9));
    assert_true(virtual_clock_step(f->loop, 10));
    assert_log(f, "a@10 ");
    loop_timer_free(KG_STEAL(f->timers[1]));
    virtual_clock_advance(f->loop, 100);
    assert_log(f, "a@10 ");
    assert_int_equal(virtual_clock_next_ms(f->loop), -1);
}

static void
fires_c(void *arg)
{
    struct fixture *f = arg;
    note(f, 'd');
    loop_timer_start(f->timers[0], 0); // in the next turn
    loop_timer_fire(f->timers[2]);
    loop_timer_stop(f->timers[1]); // which is due as well
    assert_true(loop_timer_active(f->timers[2]));
}

static void
test_a_timer_fires_in_the_same_turn(void **state)
{
    struct fixture *f = *state;
    make_timers(f);
    f->timers[3] = loop_timer_new(f->loop, fires_c, f);
    loop_timer_start(f->timers[3], 5);
    loop_timer_start(f->timers[1], 5);
    loop_later(f->loop, 5, on_b, f);
    loop_timer_start(f->timers[2], 60 * 1000); // which does not count any more
    virtual_clock_advance(f->loop, 5);
    assert_log(f, "d@5 b@5 c@5 a@5 ");
    assert_false(loop_timer_active(f->timers[2]));
}

static void
stops(void *arg)
{
    struct fixture *f = arg;
    note(f, 's');
    loop_stop(f->loop);
}

// As in programs that run the loop until something has happened.
static void
test_due_timers_fire_while_the_loop_runs(void **state)
{
    struct fixture *f = *state;
    make_timers(f);
    loop_timer_start(f->timers[0], 0);
    loop_timer_start(f->timers[1], 7);
    loop_later(f->loop, 7, stops, f);
    virtual_clock_move(8);
    assert_log(f, "");
    loop_run(f->loop);
    assert_log(f, "a@8 b@8 s@8 ");
}

static void
on_readable(int fd, int events, void *arg)
{
    char byte;
    assert_int_equal(events, LOOP_READ);
    if (read(fd, &byte, 1) == 1)
        note(arg, byte);
}

// Descriptors that are ready are before timers that are due only later.
static void
test_descriptors_are_served_before_time_moves(void **state)
{
    struct fixture *f = *state;
    make_timers(f);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    struct loop_fd *watch = loop_fd_new(f->loop, fds[0], LOOP_READ, on_readable, f);
    assert_int_equal(write(fds[1], "xyz", 3), 3);
    loop_timer_start(f->timers[0], 1);
    virtual_clock_advance(f->loop, 1);
    assert_log(f, "x@0 y@0 z@0 a@1 ");
    loop_fd_free(watch);
    close(fds[0]);
    close(fds[1]);
}

// ---- Processes ------------------------------------------------------------------------------

static void
on_process(const struct loop_process_result *result, void *arg)
{
    struct fixture *f = arg;
    f->ended++;
    f->result = *result;
    snprintf(f->output, sizeof f->output, "%s", result->output);
}

static void
start_shell(struct fixture *f, const char *command, int64_t timeout_ms)
{
    const char *const argv[] = {"sh", "-c", command, NULL};
    const struct loop_process_spec spec = {.argv = argv, .timeout_ms = timeout_ms};
    struct kg_error err = {0};
    assert_non_null(loop_process_start(f->loop, &spec, on_process, f, &err));
}

static void
test_a_process_is_killed_when_its_time_is_over(void **state)
{
    struct fixture *f = *state;
    start_shell(f, "exec sleep 600", 5000);
    virtual_clock_advance(f->loop, 4999);
    loop_turn(f->loop);
    assert_int_equal(f->ended, 0);
    virtual_clock_advance(f->loop, 1);
    WAIT_FOR(f, f->ended);
    assert_true(f->result.timed_out);
    assert_int_equal(f->result.signal, SIGKILL);
}

static void
test_a_process_that_leaves_its_pipe_to_a_daemon(void **state)
{
    struct fixture *f = *state;
    start_shell(f, "sleep 600 & echo $!", 60 * 1000);
    WAIT_FOR(f, virtual_clock_next_ms(f->loop) == 200); // it has ended
    virtual_clock_advance(f->loop, 199);
    assert_int_equal(f->ended, 0);
    virtual_clock_advance(f->loop, 1);
    assert_int_equal(f->ended, 1);
    assert_int_equal(f->result.exit_code, 0);
    kill((pid_t)strtol(f->output, NULL, 10), SIGKILL);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_time_stands_still),
        TEST(test_timers_fire_in_the_order_of_their_times),
        TEST(test_a_timer_is_stopped_and_started_anew),
        TEST(test_a_timer_fires_in_the_same_turn),
        TEST(test_due_timers_fire_while_the_loop_runs),
        TEST(test_descriptors_are_served_before_time_moves),
        TEST(test_a_process_is_killed_when_its_time_is_over),
        TEST(test_a_process_that_leaves_its_pipe_to_a_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
