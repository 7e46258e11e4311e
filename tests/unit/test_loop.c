// SPDX-License-Identifier: Apache-2.0
// Timers, descriptors, files, signals, child processes, work off the loop, by the machine's clock.

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file_watch.h"
#include "loop.h"

struct fixture {
    struct loop *loop;
    struct loop_timer *timer;
    struct loop_file_watch *file_watch;
    int fired;
    int turns;
    struct loop_process_result result;
    char output[256];
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
on_last(void *arg)
{
    struct fixture *f = arg;
    f->fired++;
    loop_stop(f->loop);
}

static void
test_later(void **state)
{
    struct fixture *f = *state;
    loop_later(f->loop, 2, on_last, f);
    loop_later(f->loop, 1, on_last, f);
    assert_int_equal(f->fired, 0);
    loop_run(f->loop);
    loop_run(f->loop);
    assert_int_equal(f->fired, 2);
    loop_later(f->loop, 0, on_last, f); // is freed with the loop, without a call
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
on_turn(void *arg)
{
    struct fixture *f = arg;
    f->turns++;
}

static void
fires_another(void *arg)
{
    struct fixture *f = arg;
    f->fired++;
    loop_timer_fire(f->timer);
}

static void
on_fired(void *arg)
{
    struct fixture *f = arg;
    assert_int_equal(f->fired, 1);
    assert_int_equal(f->turns, 0); // that of the callback that fired it has not ended
    assert_false(loop_timer_active(f->timer));
    loop_stop(f->loop);
}

static void
test_a_timer_fires_in_the_same_turn(void **state)
{
    struct fixture *f = *state;
    struct loop_timer *first = loop_timer_new(f->loop, fires_another, f);
    f->timer = loop_timer_new(f->loop, on_fired, f);
    loop_set_turn(f->loop, on_turn, f);
    loop_timer_start(f->timer, 60 * 1000); // which does not count any more
    loop_timer_start(first, 0);
    loop_run(f->loop);
    loop_timer_free(first);
    loop_timer_free(f->timer);
}

static void
test_turns_are_counted_until_the_loop_is_stopped(void **state)
{
    struct fixture *f = *state;
    f->timer = loop_timer_new(f->loop, on_third, f);
    loop_set_turn(f->loop, on_turn, f);
    loop_timer_start(f->timer, 0);
    loop_run(f->loop);
    assert_int_equal(f->turns, 3); // one for each time it fired
    f->fired = 2;
    loop_set_turn(f->loop, NULL, NULL);
    loop_timer_start(f->timer, 0);
    loop_run(f->loop); // and can be run again
    assert_int_equal(f->fired, 3);
    assert_int_equal(f->turns, 3);
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
on_file_change(void *arg)
{
    struct fixture *f = arg;
    if (++f->fired == 3)
        loop_file_watch_free(KG_STEAL(f->file_watch));
    loop_stop(f->loop);
}

// Of the ways to a file test_auth.c has more.
static void
test_a_file_is_watched_until_its_watch_is_freed(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    char folder[] = "/tmp/kg-test-loop-XXXXXX";
    assert_non_null(mkdtemp(folder));
    KG_AUTO_FREE char *path = kg_asprintf("%s/file", folder);
    f->file_watch = loop_file_watch_new(f->loop, path, on_file_change, f);
    assert_int_equal(file_write_atomic(path, "a", 1, 0600, &err), 0); // it is made
    loop_run(f->loop);
    assert_int_equal(f->fired, 1);
    KG_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(fd, "b", 1), 1);
    close(KG_STEAL_FD(fd)); // it is written
    loop_run(f->loop);
    assert_int_equal(f->fired, 2);
    assert_int_equal(unlink(path), 0);
    loop_run(f->loop);
    assert_int_equal(f->fired, 3);
    assert_null(f->file_watch);
    assert_int_equal(path_remove_tree(folder, &err), 0);
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
run_shell(struct fixture *f, const char *command)
{
    const char *const argv[] = {"sh", "-c", command, NULL};
    const struct loop_process_spec spec = {.argv = argv, .output_max = 16};
    struct kg_error err = {0};
    assert_non_null(loop_process_start(f->loop, &spec, on_process, f, &err));
    assert_int_equal(f->fired, 0);
    loop_run(f->loop);
    assert_int_equal(f->fired, 1);
}

static void
test_process_exit_code_and_last_output(void **state)
{
    run_shell(*state, "seq 1 1000; echo end >&2; exit 3");
    struct fixture *f = *state;
    assert_int_equal(f->result.exit_code, 3);
    assert_int_equal(f->result.signal, 0);
    assert_string_equal(f->output, "998\n999\n1000\nend\n" + 1);
}

// Not a file of the machine: some runtimes give their standard streams to another user.
static void
test_process_stdin_is_an_empty_pipe(void **state)
{
    run_shell(*state, "case $(readlink /proc/self/fd/0) in pipe:*) exit $(wc -c);; esac; exit 9");
    struct fixture *f = *state;
    assert_int_equal(f->result.exit_code, 0);
}

static void
test_process_that_does_not_exist(void **state)
{
    struct fixture *f = *state;
    const char *const argv[] = {"/nonexistent/program", NULL};
    const struct loop_process_spec spec = {.argv = argv};
    struct kg_error err = {0};
    assert_null(loop_process_start(f->loop, &spec, on_process, f, &err));
    assert_non_null(strstr(err.message, "cannot run /nonexistent/program: No such file"));
}

// Neither our descriptors, nor our signals, nor our folder.
static void
test_process_inherits_nothing(void **state)
{
    struct fixture *f = *state;
    static const char look[] =
        "ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status; pwd";
    const char *const argv[] = {"sh", "-c", look, NULL};
    const struct loop_process_spec spec = {.argv = argv, .cwd = "/usr"};
    struct kg_error err = {0};
    sigset_t blocked, before;
    KG_AUTO_FD leak = fcntl(STDERR_FILENO, F_DUPFD, 50); // without FD_CLOEXEC
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    signal(SIGPIPE, SIG_IGN);
    assert_non_null(loop_process_start(f->loop, &spec, on_process, f, &err));
    loop_run(f->loop);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    static const char start[] = "0 1 2 3 SigBlk:\t0000000000000000\nSigIgn:\t"; // 3 is ls's own
    assert_memory_equal(f->output, start, sizeof start - 1);
    char *end;
    unsigned long long ignored = strtoull(f->output + sizeof start - 1, &end, 16);
    assert_int_equal(ignored & 0x7fffffff, 0); // glibc ignores the two signals of its own
    assert_string_equal(end, "\n/usr\n");
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

// ---- Work off the loop ----------------------------------------------------------------------

// A job: where it ran and what became of it. It says `begun`, and `gate` holds it up.
struct job {
    struct fixture *f;
    pthread_t thread;
    int runs;
    int done;
    int discarded;
    sem_t *begun;
    sem_t *gate;
};

static void
job_run(void *arg)
{
    struct job *job = arg;
    if (job->begun)
        sem_post(job->begun);
    if (job->gate)
        sem_wait(job->gate);
    job->thread = pthread_self();
    job->runs++;
}

static void
job_on_done(void *arg)
{
    struct job *job = arg;
    job->done = ++job->f->fired;
    loop_stop(job->f->loop);
}

static void
job_on_discard(void *arg)
{
    struct job *job = arg;
    job->discarded = ++job->f->fired;
    loop_stop(job->f->loop);
}

static void
test_work_runs_elsewhere_and_is_done_here(void **state)
{
    struct fixture *f = *state;
    struct job jobs[50] = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(jobs); i++) {
        jobs[i].f = f;
        assert_non_null(
            loop_work_start(f->loop, LOOP_LANE_GATEWAY, job_run, job_on_done, &jobs[i]));
        assert_int_equal(jobs[i].done, 0);
    }
    while (f->fired < (int)KG_ARRAY_LEN(jobs))
        loop_run(f->loop);
    for (size_t i = 0; i < KG_ARRAY_LEN(jobs); i++) {
        assert_int_equal(jobs[i].runs, 1);
        assert_false(pthread_equal(jobs[i].thread, pthread_self()));
    }
}

// Two that run fill the workers, so that a third waits in the queue.
static void
test_work_is_cancelled_in_each_state(void **state)
{
    struct fixture *f = *state;
    sem_t gate, begun;
    sem_init(&gate, 0, 0);
    sem_init(&begun, 0, 0);
    struct job running[2] = {{.f = f, .begun = &begun, .gate = &gate},
                             {.f = f, .begun = &begun, .gate = &gate}};
    struct job queued = {.f = f}, run = {.f = f, .begun = &begun};
    struct loop_work *works[2];
    for (size_t i = 0; i < KG_ARRAY_LEN(running); i++)
        works[i] = loop_work_start(f->loop, LOOP_LANE_GATEWAY, job_run, job_on_done, &running[i]);
    for (size_t i = 0; i < KG_ARRAY_LEN(running); i++)
        sem_wait(&begun);
    struct loop_work *work =
        loop_work_start(f->loop, LOOP_LANE_GATEWAY, job_run, job_on_done, &queued);

    loop_work_cancel(work, job_on_discard);
    assert_int_equal(queued.discarded, 1);
    assert_int_equal(queued.runs, 0);
    loop_work_cancel(works[0], job_on_discard);
    sem_post(&gate);
    sem_post(&gate);
    while (f->fired < 3)
        loop_run(f->loop);
    assert_int_equal(running[0].done, 0);
    assert_true(running[0].discarded > 0);
    assert_true(running[1].done > 0);

    work = loop_work_start(f->loop, LOOP_LANE_GATEWAY, job_run, job_on_done, &run);
    sem_wait(&begun); // it runs, or has run and its result waits
    loop_work_cancel(work, NULL);
    loop_work_cancel(NULL, NULL);
    loop_timer_start(f->timer = loop_timer_new(f->loop, on_third, f), 100);
    f->fired = 2;
    loop_run(f->loop);
    loop_timer_free(f->timer);
    assert_int_equal(run.done, 0);
    sem_destroy(&gate);
    sem_destroy(&begun);
}

// One client's work does not keep another's waiting.
static void
test_lanes_take_turns(void **state)
{
    struct fixture *f = *state;
    sem_t gate, begun;
    sem_init(&gate, 0, 0);
    sem_init(&begun, 0, 0);
    struct job holding[2] = {{.f = f, .begun = &begun, .gate = &gate},
                             {.f = f, .begun = &begun, .gate = &gate}};
    struct job many[20] = {0}, other = {.f = f};
    for (size_t i = 0; i < KG_ARRAY_LEN(holding); i++) // both workers
        loop_work_start(f->loop, loop_lane_of("alice"), job_run, job_on_done, &holding[i]);
    for (size_t i = 0; i < KG_ARRAY_LEN(holding); i++)
        sem_wait(&begun);
    for (size_t i = 0; i < KG_ARRAY_LEN(many); i++) {
        many[i].f = f;
        loop_work_start(f->loop, loop_lane_of("alice"), job_run, job_on_done, &many[i]);
    }
    loop_work_start(f->loop, loop_lane_of("bob"), job_run, job_on_done, &other);
    sem_post(&gate); // one worker, so that the order in which jobs end is that of their beginning
    while (f->fired < 22)
        loop_run(f->loop);
    assert_in_range(other.done, 1, 3); // behind what ran, not behind the twenty
    sem_post(&gate);
    while (f->fired < 23)
        loop_run(f->loop);
    sem_destroy(&gate);
    sem_destroy(&begun);
}

static void
job_run_freeing(void *arg)
{
    free(arg);
}

static void
test_work_that_nobody_waits_for_ends_with_the_loop(void **state)
{
    struct fixture *f = *state;
    sem_t gate;
    sem_init(&gate, 0, 0);
    struct job running[2] = {{.f = f, .gate = &gate}, {.f = f, .gate = &gate}};
    for (size_t i = 0; i < KG_ARRAY_LEN(running); i++)
        loop_work_cancel(loop_work_start(f->loop, LOOP_LANE_GATEWAY, job_run, NULL, &running[i]),
                         NULL);
    for (int i = 0; i < 100; i++) // a leak, where they are not run
        loop_work_start(f->loop, LOOP_LANE_GATEWAY, job_run_freeing, NULL, kg_strdup("job"));
    sem_post(&gate);
    sem_post(&gate);
    loop_free(f->loop);
    f->loop = loop_new();
    sem_destroy(&gate);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_later),
        TEST(test_timer_restarts_from_its_callback),
        TEST(test_a_timer_fires_in_the_same_turn),
        TEST(test_turns_are_counted_until_the_loop_is_stopped),
        TEST(test_signal),
        TEST(test_descriptor_pauses_and_resumes),
        TEST(test_a_file_is_watched_until_its_watch_is_freed),
        TEST(test_process_exit_code_and_last_output),
        TEST(test_process_stdin_is_an_empty_pipe),
        TEST(test_process_that_does_not_exist),
        TEST(test_process_inherits_nothing),
        TEST(test_cancel_and_pid_watch),
        TEST(test_work_runs_elsewhere_and_is_done_here),
        TEST(test_work_is_cancelled_in_each_state),
        TEST(test_lanes_take_turns),
        TEST(test_work_that_nobody_waits_for_ends_with_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
