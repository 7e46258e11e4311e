// SPDX-License-Identifier: Apache-2.0
// The two processes beside a gateway, whose place the test takes.
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "starter.h"
#include "test_helper.h"

static int
confine_nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void
say_started(int fd)
{
    struct helper_reply started = {
        .event = HELPER_STARTED, .serial = (uint32_t)getppid(), .number = getpid()};
    if (helper_send(fd, &started, sizeof started, -1, 0) < 0)
        exit(2);
}

// A helper that says its process id and its starter's, and waits for the gateway's end.
static int
serve_until_the_end(int fd, void *arg)
{
    struct helper_reply stray;
    int received;
    (void)arg;
    say_started(fd);
    while (helper_receive(fd, &stray, sizeof stray, 0, &received) > 0)
        ;
    close(fd);
    return 0;
}

static int
serve_for_ever(int fd, void *arg)
{
    (void)arg;
    say_started(fd);
    while (getppid() > 0)
        pause();
    return 0;
}

static struct helper_link
start(int (*serve)(int fd, void *arg))
{
    const struct starter_settings settings = {.confine = confine_nothing, .serve = serve};
    struct helper_link link;
    struct kg_error err;
    if (starter_start(&settings, &link, &err) < 0)
        fail_msg("%s", err.message);
    return link;
}

static pid_t
helper_of(const struct helper_reply *started)
{
    return (pid_t)started->number;
}

static pid_t
starter_of(const struct helper_reply *started)
{
    return (pid_t)started->serial;
}

// The starter is this process's child. It ends after the helper, which is its own.
static void
assert_both_end(const struct helper_reply *started)
{
    int status = 0;
    UNTIL_(waitpid(starter_of(started), &status, WNOHANG) == starter_of(started), usleep(1000));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(kill(helper_of(started), 0), -1);
}

void
test_a_killed_helper_is_replaced(void **state)
{
    (void)state;
    struct helper_link link = start(serve_until_the_end);
    for (int i = 0; i < 3; i++) {
        struct helper_reply next;
        struct pollfd ends = {.fd = link.helper, .events = POLLIN};
        int fd;
        assert_int_equal(kill(helper_of(&link.started), SIGKILL), 0);
        assert_int_equal(poll(&ends, 1, PATIENCE_MS), 1);
        assert_int_equal(helper_receive(link.helper, &next, sizeof next, 0, &fd), 0);
        ends.fd = link.starter;
        assert_int_equal(poll(&ends, 1, PATIENCE_MS), 1);
        assert_int_equal(helper_receive(link.starter, &next, sizeof next, 0, &fd), sizeof next);
        assert_int_equal(next.event, HELPER_STARTED);
        assert_true(fd >= 0);
        assert_int_not_equal(next.number, link.started.number);
        assert_int_equal(next.serial, link.started.serial);
        close(link.helper);
        link.helper = fd;
        link.started = next;
    }
    close(link.starter);
    close(link.helper);
    assert_both_end(&link.started);
}

void
test_both_end_with_the_gateway(void **state)
{
    (void)state;
    struct helper_link link = start(serve_until_the_end);
    close(link.starter);
    close(link.helper);
    assert_both_end(&link.started);
}

void
test_a_hanging_helper_is_killed(void **state)
{
    (void)state;
    struct helper_link link = start(serve_for_ever);
    close(link.starter);
    close(link.helper);
    assert_both_end(&link.started);
}

void
test_the_lock_is_held_until_both_have_ended(void **state)
{
    (void)state;
    char path[] = "/tmp/kglockXXXXXX";
    int lock = mkstemp(path);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    struct helper_link link = start(serve_until_the_end);
    KG_AUTO_FD next = open(path, O_RDWR | O_CLOEXEC);
    close(lock); // as if this process had ended
    assert_int_equal(flock(next, LOCK_EX | LOCK_NB), -1);
    kill(starter_of(&link.started), SIGSTOP); // the starter alone would hold it
    kill(helper_of(&link.started), SIGKILL);
    assert_int_equal(flock(next, LOCK_EX | LOCK_NB), -1);
    close(link.starter);
    close(link.helper);
    kill(starter_of(&link.started), SIGCONT);
    assert_both_end(&link.started);
    assert_int_equal(flock(next, LOCK_EX | LOCK_NB), 0);
    unlink(path);
}

static int
confine_fails(void *arg)
{
    (void)arg;
    return -1;
}

void
test_a_helper_that_never_starts(void **state)
{
    (void)state;
    const struct starter_settings settings = {.confine = confine_fails,
                                              .serve = serve_until_the_end};
    struct helper_link link;
    struct kg_error err;
    int status;
    assert_int_equal(starter_start(&settings, &link, &err), -1);
    assert_int_equal(err.code, KG_INTERNAL);
    assert_int_equal(link.helper, -1);
    assert_int_equal(link.starter, -1);
    assert_true(wait(&status) > 0);
}
