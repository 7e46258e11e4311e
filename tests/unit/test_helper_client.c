// SPDX-License-Identifier: Apache-2.0
// The gateway's calls to its helper, and kernels that it forks.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "forks.h"
#include "test_helper_client.h"

// ---- Packets ----------------------------------------------------------------------------------

static void
test_packets_with_descriptors(void **state)
{
    (void)state;
    int a, b, fd;
    char packet[8], got[8];
    pair(&a, &b);
    size_t before = count_files();
    KG_AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
    memcpy(packet, "a packet", sizeof packet);
    assert_int_equal(helper_send(a, packet, sizeof packet, -1, 0), 0);
    assert_int_equal(helper_send(a, packet, sizeof packet, null, 0), 0);
    assert_int_equal(helper_send(a, packet, 3, null, 0), 0);
    assert_int_equal(helper_receive(b, got, sizeof got, 0, &fd), sizeof got);
    assert_int_equal(fd, -1);
    assert_memory_equal(got, packet, sizeof got);
    assert_int_equal(helper_receive(b, got, sizeof got, 0, &fd), sizeof got);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    assert_int_equal(helper_receive(b, got, sizeof got, 0, &fd), 3);
    close(fd);
    assert_int_equal(count_files(), before + 1);
    assert_int_equal(helper_receive(b, got, sizeof got, MSG_DONTWAIT, &fd), -1);
    close(a);
    assert_int_equal(helper_receive(b, got, sizeof got, 0, &fd), 0);
    assert_int_equal(helper_send(b, packet, sizeof packet, -1, 0), -1); // without a signal
    close(b);
}

static void
test_packets_that_are_too_long(void **state)
{
    (void)state;
    int a, b, fd;
    char packet[8] = {0}, got[4];
    pair(&a, &b);
    KG_AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(helper_send(a, packet, sizeof packet, null, 0), 0);
    assert_int_equal(helper_receive(b, got, sizeof got, 0, &fd), sizeof got + 1);
    assert_true(fd >= 0);
    close(fd);
    close(a);
    close(b);
}

static void
test_replies_carry_errors(void **state)
{
    (void)state;
    struct kg_error err, got;
    struct helper_reply reply = {.event = HELPER_DONE};
    assert_false(helper_reply_error(&reply, &got));
    (void)kg_error_set(&err, KG_NOT_FOUND, ENOENT, "no such thing");
    helper_reply_set_error(&reply, &err);
    assert_true(helper_reply_is_valid(&reply, sizeof reply));
    assert_true(helper_reply_error(&reply, &got));
    assert_int_equal(got.code, KG_NOT_FOUND);
    assert_int_equal(got.sys_errno, ENOENT);
    assert_string_equal(got.message, err.message);
    memset(reply.message, 'x', sizeof reply.message);
    assert_false(helper_reply_is_valid(&reply, sizeof reply));
    reply = (struct helper_reply){.event = HELPER_LOST}; // is never sent
    assert_false(helper_reply_is_valid(&reply, sizeof reply));
    reply = (struct helper_reply){.event = HELPER_DONE, .code = KG_N_CODES};
    assert_false(helper_reply_is_valid(&reply, sizeof reply));
    reply = (struct helper_reply){.event = HELPER_DONE, .id = "../a"};
    assert_false(helper_reply_is_valid(&reply, sizeof reply));
    reply.id[0] = '\0';
    assert_false(helper_reply_is_valid(&reply, sizeof reply - 1));
}

static void
test_replies_carry_nothing_else(void **state)
{
    (void)state;
    static const char zeros[sizeof((struct helper_reply *)0)->message];
    struct kg_error err;
    struct helper_reply reply;
    memset(&err, 'x', sizeof err);
    err.code = KG_INVALID;
    memcpy(err.message, "short", sizeof "short");
    memset(&reply, 'x', sizeof reply);
    helper_reply_set_error(&reply, &err);
    assert_string_equal(reply.message, "short");
    assert_memory_equal(reply.message + 5, zeros, sizeof zeros - 5);
    memset(err.message, 'y', sizeof err.message);
    helper_reply_set_error(&reply, &err);
    assert_int_equal(strlen(reply.message), sizeof zeros - 1);
}

// ---- Calls ------------------------------------------------------------------------------------

static void
on_reply(const struct helper_reply *reply, int fd, void *arg)
{
    struct fixture *f = arg;
    assert_true(f->n_seen < SEEN_MAX);
    f->seen[f->n_seen++] = *reply;
    if (fd >= 0)
        f->last_fd = fd;
}

static void
on_never(const struct helper_reply *reply, int fd, void *arg)
{
    (void)reply, (void)fd, (void)arg;
    fail_msg("a cancelled call was answered");
}

static struct helper_call *
ask_list(struct fixture *f, helper_reply_fn fn)
{
    const struct helper_request request = {.verb = HELPER_LIST};
    struct kg_error err;
    struct helper_call *call = helper_ask(f->helper, &request, fn, f, &err);
    assert_non_null(call);
    return call;
}

static void
test_answers_find_their_calls(void **state)
{
    struct fixture *f = *state;
    ask_list(f, on_reply);
    ask_list(f, on_reply);
    struct helper_request first = asked(f), second = asked(f);
    assert_int_not_equal(first.serial, 0);
    assert_int_not_equal(first.serial, second.serial);
    answer_done(f, &second, KG_OK, 2);
    answer_found(f, &first, "a");
    answer_done(f, &first, KG_NOT_FOUND, 1);
    answer_done(f, &first, KG_OK, 3); // nobody waits for it any more
    WAIT_FOR(f, f->n_seen == 3);
    loop_turn(f->loop);
    assert_int_equal(f->n_seen, 3);
    assert_int_equal(f->seen[0].number, 2);
    assert_string_equal(f->seen[1].id, "a");
    assert_int_equal(f->seen[2].code, KG_NOT_FOUND);
}

// More than the socket takes are sent when it takes them, in their order.
static void
test_many_calls_wait_for_the_socket(void **state)
{
    enum { N = 3000 };
    struct fixture *f = *state;
    uint32_t last = 0;
    for (int i = 0; i < N; i++)
        helper_call_cancel(ask_list(f, on_never));
    for (int i = 0; i < N; i++) {
        struct helper_request request = asked(f);
        assert_true(request.serial > last);
        last = request.serial;
        answer_done(f, &request, KG_OK, 0);
        if (i % 64 == 0)
            loop_turn(f->loop);
    }
}

static void
test_a_cancelled_call_keeps_no_descriptor(void **state)
{
    struct fixture *f = *state;
    helper_call_cancel(ask_list(f, on_never));
    struct helper_request request = asked(f);
    size_t before = count_files();
    answer(f, (struct helper_reply){.event = HELPER_FOUND, .serial = request.serial}, f->fd);
    answer(f, (struct helper_reply){.event = HELPER_FILE}, f->fd); // nobody listens
    answer_done(f, &request, KG_OK, 0);
    ask_list(f, on_reply);
    request = asked(f);
    answer_done(f, &request, KG_OK, 0);
    WAIT_FOR(f, f->n_seen == 1);
    assert_int_equal(count_files(), before);
}

static void
test_calls_fail_when_the_helper_is_lost(void **state)
{
    struct fixture *f = *state;
    const struct helper_request request = {.verb = HELPER_LIST};
    const struct helper_reply started = {.event = HELPER_STARTED, .number = 17};
    struct kg_error err = {0};
    helper_on(f->helper, HELPER_LOST, on_reply, f);
    helper_on(f->helper, HELPER_BACK, on_reply, f);
    ask_list(f, on_reply);
    helper_call_cancel(ask_list(f, on_never));
    asked(f);
    helper_dies(f);
    WAIT_FOR(f, f->n_seen == 2);
    assert_int_equal(f->seen[0].event, HELPER_DONE);
    assert_int_equal(f->seen[0].code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(f->seen[1].event, HELPER_LOST);
    assert_int_equal(helper_check(f->helper, &err), -1);
    assert_int_equal(err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_null(helper_ask(f->helper, &request, on_never, f, &err));

    helper_comes(f, &started);
    WAIT_FOR(f, f->n_seen == 3);
    assert_int_equal(f->seen[2].event, HELPER_BACK);
    assert_int_equal(f->seen[2].number, 17);
    assert_int_equal(helper_started(f->helper)->number, 17);
    ask_list(f, on_reply);
    struct helper_request asked_again = asked(f);
    answer_done(f, &asked_again, KG_OK, 0);
    WAIT_FOR(f, f->n_seen == 4);
    helper_off(f->helper, f);
}

// A gateway that was stopped, or busy, sees the next helper before the end of this one.
static void
test_the_next_helper_comes_first(void **state)
{
    struct fixture *f = *state;
    const struct helper_reply started = {.event = HELPER_STARTED, .number = 17};
    int old = f->fd;
    helper_on(f->helper, HELPER_LOST, on_reply, f);
    helper_on(f->helper, HELPER_BACK, on_reply, f);
    ask_list(f, on_reply);
    helper_comes(f, &started);
    WAIT_FOR(f, f->n_seen == 3);
    assert_int_equal(f->seen[0].code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(f->seen[1].event, HELPER_LOST);
    assert_int_equal(f->seen[2].event, HELPER_BACK);
    close(old);
    ask_list(f, on_reply);
    struct helper_request request = asked(f);
    answer_done(f, &request, KG_OK, 0);
    WAIT_FOR(f, f->n_seen == 4);
    assert_int_equal(f->seen[3].code, KG_OK);
    helper_off(f->helper, f);
}

// A helper that breaks the protocol is as good as lost.
static void
test_a_packet_that_is_none(void **state)
{
    struct fixture *f = *state;
    struct helper_reply reply = {.event = HELPER_EVENTS};
    ask_list(f, on_reply);
    asked(f);
    assert_int_equal(helper_send(f->fd, &reply, sizeof reply, f->fd, 0), 0);
    WAIT_FOR(f, f->n_seen == 1);
    assert_int_equal(f->seen[0].code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(helper_check(f->helper, NULL), -1);
}

// What the starter passes is no helper without a packet that is one.
static void
test_a_starter_that_passes_nothing(void **state)
{
    struct fixture *f = *state;
    const struct helper_reply started = {.event = HELPER_STARTED};
    const struct helper_reply hostile = {.event = HELPER_STARTED, .id = "/"};
    helper_dies(f);
    WAIT_FOR(f, helper_check(f->helper, NULL) < 0);
    assert_int_equal(helper_send(f->starter, &started, sizeof started, -1, 0), 0);
    helper_comes(f, &hostile);
    WAIT_FOR(f, is_readable(f->fd)); // it was closed
    assert_int_equal(helper_check(f->helper, NULL), -1);
    helper_dies(f);
    helper_comes(f, &started);
    WAIT_FOR(f, helper_check(f->helper, NULL) == 0);
}

// ---- Forks ------------------------------------------------------------------------------------

static void
on_settled(void *arg)
{
    struct fixture *f = arg;
    f->n_settled++;
}

static void
on_forked(int pid, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->pid = pid;
    client_on_done(err, f);
}

static struct forks *
make_forks(struct fixture *f)
{
    const char *const kernels[] = {"javascript", "python"};
    struct forks *forks = forks_new(f->loop, f->helper, kernels, KG_ARRAY_LEN(kernels));
    assert_true(forks_have(forks, "python"));
    assert_false(forks_have(forks, "ruby"));
    assert_false(forks_have(NULL, "python"));
    return forks;
}

// The zygote of python is ready, and the other one has failed.
static void
answer_warm(struct fixture *f)
{
    struct helper_request warm = asked_for(f, HELPER_WARM, "");
    struct helper_reply failed = {
        .event = HELPER_ZYGOTE, .code = KG_PROVISIONER_UNAVAILABLE, .message = "no such program"};
    answer(f, failed, -1);
    answer(f, (struct helper_reply){.event = HELPER_ZYGOTE, .number = 1}, -1);
    answer(f, (struct helper_reply){.event = HELPER_ZYGOTE, .number = 2}, -1); // there is none
    answer(f, (struct helper_reply){.event = HELPER_ZYGOTE, .number = -1}, -1);
    answer_done(f, &warm, KG_OK, 0);
}

static struct kernel_fork *
start_fork(struct fixture *f, struct forks *forks)
{
    struct kg_error err;
    struct kernel_fork *fork = forks_ask(forks, "python", "a", "abcdefgh", on_forked, f, &err);
    assert_non_null(fork);
    return fork;
}

static void
answer_fork(struct fixture *f, int64_t pid)
{
    struct helper_request request = asked_for(f, HELPER_FORK, "a");
    assert_string_equal(request.fork, "abcdefgh");
    assert_int_equal(request.number, 1);
    answer_done(f, &request, KG_OK, pid);
}

static void
test_forks(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    struct forks *forks = make_forks(f);
    assert_int_equal(forks_ready(forks, "python", &err), -1);
    forks_start(forks, on_settled, f);
    answer_warm(f);
    WAIT_FOR(f, f->n_settled == 1);
    assert_int_equal(forks_ready(forks, "python", &err), 0);
    assert_int_equal(forks_ready(forks, "javascript", &err), -1);
    assert_string_equal(err.message, "no such program");
    start_fork(f, forks);
    answer_fork(f, 42);
    WAIT_FOR(f, f->n_done == 1);
    assert_int_equal(f->pid, 42);
    const int64_t hostile[] = {0, 1, -1, INT64_C(1) << 32};
    for (size_t i = 0; i < KG_ARRAY_LEN(hostile); i++) {
        start_fork(f, forks);
        answer_fork(f, hostile[i]);
        WAIT_FOR(f, f->n_failed == i + 1);
        assert_int_equal(f->pid, 0);
    }
    kernel_fork_cancel(start_fork(f, forks));
    answer_fork(f, 43);
    forks_stop(forks);
    assert_int_equal(forks_ready(forks, "python", &err), -1);
    assert_true(forks_are_stopping(forks));
    struct helper_request cool = asked_for(f, HELPER_COOL, "");
    answer_done(f, &cool, KG_OK, 0);
    WAIT_FOR(f, !forks_are_stopping(forks));
    assert_int_equal(f->n_done, 1 + KG_ARRAY_LEN(hostile));
    forks_free(forks);
}

static void
test_forks_of_another_helper(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    struct forks *forks = make_forks(f);
    forks_start(forks, on_settled, f);
    answer_warm(f);
    WAIT_FOR(f, f->n_settled == 1);
    start_fork(f, forks);
    asked_for(f, HELPER_FORK, "a");
    helper_is_replaced(f);
    assert_int_equal(f->n_failed, 1);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(forks_ready(forks, "python", &err), -1);
    answer_warm(f);
    WAIT_FOR(f, forks_ready(forks, "python", &err) == 0);
    assert_int_equal(f->n_settled, 1); // once only
    helper_is_replaced(f);
    asked_for(f, HELPER_WARM, "");
    helper_is_replaced(f); // while they are warmed
    answer_warm(f);
    WAIT_FOR(f, forks_ready(forks, "python", &err) == 0);
    forks_free(forks);
}

static void
test_forks_without_a_helper(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    struct forks *forks = make_forks(f);
    helper_dies(f);
    WAIT_FOR(f, helper_check(f->helper, NULL) < 0);
    forks_start(forks, on_settled, f);
    PASS_TIME_UNTIL(f, f->n_settled == 1);
    assert_int_equal(forks_ready(forks, "python", &err), -1);
    assert_int_equal(err.code, KG_PROVISIONER_UNAVAILABLE);
    forks_stop(forks);
    assert_false(forks_are_stopping(forks));
    forks_free(forks);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, client_set_up, client_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packets_with_descriptors),
        cmocka_unit_test(test_packets_that_are_too_long),
        cmocka_unit_test(test_replies_carry_errors),
        cmocka_unit_test(test_replies_carry_nothing_else),
        TEST(test_answers_find_their_calls),
        TEST(test_many_calls_wait_for_the_socket),
        TEST(test_a_cancelled_call_keeps_no_descriptor),
        TEST(test_calls_fail_when_the_helper_is_lost),
        TEST(test_the_next_helper_comes_first),
        TEST(test_a_packet_that_is_none),
        TEST(test_a_starter_that_passes_nothing),
        TEST(test_a_sandbox_of_the_helper),
        TEST(test_a_create_that_the_helper_refuses),
        TEST(test_a_create_without_a_helper),
        TEST(test_a_create_in_the_middle_of_which_the_helper_is_lost),
        TEST(test_destroys_wait_for_the_next_helper),
        TEST(test_destroys_do_not_wait_for_ever),
        TEST(test_another_helper_is_compared),
        TEST(test_another_helper_that_is_lost_while_it_lists),
        TEST(test_another_helper_that_makes_no_sandboxes),
        TEST(test_recovery),
        TEST(test_a_recovery_that_fails_removes_nothing),
        TEST(test_forks),
        TEST(test_forks_of_another_helper),
        TEST(test_forks_without_a_helper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
