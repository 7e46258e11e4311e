// SPDX-License-Identifier: Apache-2.0
// Timers, descriptors, signals, child processes.

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loop.h"

struct fixture {
    struct loop *loop;
    struct loop_timer *timer;
    int fired;
    struct loop_process_result result;
    char output[64];
};

static int
setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    f->loop = loop_new();
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    loop_free(f->loop);
    free(f);
    return 0;
}

static void
on_third(void *arg)
{
    struct fixture *f = arg;
    if (++f->fired < 3)
        loop_timer_start(f->timer, 1);
    else
        loop_stop(f->loop);
}

static void
test_timer_restarts_from_its_callback(void **state)
{
    struct fixture *f = *state;
    f->timer = loop_timer_new(f->loop, on_third, f);
    assert_false(loop_timer_active(f->timer));
    loop_timer_start(f->timer, 0);
    assert_int_equal(f->fired, 0);
    assert_true(loop_timer_active(f->timer));
    loop_run(f->loop);
    assert_int_equal(f->fired, 3);
    loop_timer_free(f->timer);
}

static void
on_signal(int signum, void *arg)
{
    struct fixture *f = arg;
    f->fired = signum;
    loop_stop(f->loop);
}

static void
test_signal(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(loop_signal) watch = loop_signal_new(f->loop, SIGUSR1, on_signal, f);
    raise(SIGUSR1);
    loop_run(f->loop);
    assert_int_equal(f->fired, SIGUSR1);
}

static void
on_readable(int fd, int events, void *arg)
{
    struct fixture *f = arg;
    assert_int_equal(events, LOOP_READ);
    assert_int_equal(read(fd, f->output, sizeof f->output), 2);
    loop_stop(f->loop);
}

static void
test_descriptor_pauses_and_resumes(void **state)
{
    struct fixture *f = *state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    KG_AUTO(loop_fd) watch = loop_fd_new(f->loop, fds[0], 0, on_readable, f);
    assert_int_equal(write(fds[1], "hi", 2), 2);
    loop_fd_set(watch, LOOP_READ);
    loop_run(f->loop);
    assert_memory_equal(f->output, "hi", 2);
    close(fds[0]);
    close(fds[1]);
}

static void
on_process(const struct loop_process_result *result, void *arg)
{
    struct fixture *f = arg;
    f->fired++;
    f->result = *result;
    snprintf(f->output, sizeof f->output, "%s", result->output);
    loop_stop(f->loop);
}

static void
run_shell(struct fixture *f, const char *command, int64_t timeout_ms)
{
    const char *const argv[] = {"sh", "-c", command, NULL};
    const struct loop_process_spec spec = {
        .argv = argv, .timeout_ms = timeout_ms, .output_max = 16};
    struct kg_error err = {0};
    assert_non_null(loop_process_start(f->loop, &spec, on_process, f, &err));
    assert_int_equal(f->fired, 0);
    loop_run(f->loop);
    assert_int_equal(f->fired, 1);
}

static void
test_process_exit_code_and_last_output(void **state)
{
    run_shell(*state, "seq 1 1000; echo end >&2; exit 3", 0);
    struct fixture *f = *state;
    assert_int_equal(f->result.exit_code, 3);
    assert_int_equal(f->result.signal, 0);
    assert_string_equal(f->output, "998\n999\n1000\nend\n" + 1);
}

static void
test_process_timeout(void **state)
{
    run_shell(*state, "exec sleep 60", 50);
    struct fixture *f = *state;
    assert_true(f->result.timed_out);
    assert_int_equal(f->result.signal, SIGKILL);
}

static void
test_process_that_leaves_its_pipe_to_a_daemon(void **state)
{
    run_shell(*state, "sleep 5 & echo $!", 0);
    struct fixture *f = *state;
    assert_int_equal(f->result.exit_code, 0);
    kill((pid_t)strtol(f->output, NULL, 10), SIGKILL);
}

static void
test_process_that_does_not_exist(void **state)
{
    struct fixture *f = *state;
    const char *const argv[] = {"/nonexistent/program", NULL};
    const struct loop_process_spec spec = {.argv = argv};
    struct kg_error err = {0};
    assert_non_null(loop_process_start(f->loop, &spec, on_process, f, &err));
    loop_run(f->loop);
    assert_int_equal(f->result.exit_code, 127);
}

static void
on_pid_end(void *arg)
{
    struct fixture *f = arg;
    f->fired++;
    loop_stop(f->loop);
}

static void
test_cancel_and_pid_watch(void **state)
{
    struct fixture *f = *state;
    const char *const argv[] = {"sleep", "60", NULL};
    const struct loop_process_spec spec = {.argv = argv};
    struct kg_error err = {0};
    struct loop_process *process = loop_process_start(f->loop, &spec, on_process, f, &err);
    assert_non_null(process);
    loop_process_cancel(process);

    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    KG_AUTO(loop_pid_watch) watch = loop_pid_watch_new(f->loop, pid, on_pid_end, f, &err);
    assert_non_null(watch);
    loop_run(f->loop);
    assert_int_equal(f->fired, 1);
    assert_null(loop_pid_watch_new(f->loop, 0x3fffff, on_pid_end, f, &err));
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_timer_restarts_from_its_callback),
        TEST(test_signal),
        TEST(test_descriptor_pauses_and_resumes),
        TEST(test_process_exit_code_and_last_output),
        TEST(test_process_timeout),
        TEST(test_process_that_leaves_its_pipe_to_a_daemon),
        TEST(test_process_that_does_not_exist),
        TEST(test_cancel_and_pid_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
