// SPDX-License-Identifier: Apache-2.0
// The guard against peers that write ZMTP by hand: what a hostile kernel may do.

#include "test_jupyter.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "guard_priv.h"
#include "jupyter.h"
#include "virtual_clock.h"
#include "zmtp_priv.h"

enum { CHUNK = 64 * 1024, QUIET_TURNS = 100, MAX_LARGES = 8 };
enum { LARGE_BODY = 9 * 1024 * 1024, LARGE_BOUND = 10 * 1024 * 1024 };

static const char greeting[64] = {'\xff', 0, 0, 0, 0, 0, 0, 0, 1, '\x7f', 3, 1, 'N', 'U', 'L', 'L'};
static const char ready_pub[] = "\x04\x19\x05READY\x0bSocket-Type\0\0\0\3PUB";
static const char ready_router[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\6ROUTER";

// A kernel that publishes one message of LARGE_BODY, as fast as it may, up to `limit` bytes of it.
struct large {
    struct fixture *f;
    struct guard *guard;
    int peer_fd, inner_fd;
    struct loop_fd *peer_watch, *inner_watch;
    const char *data; // what it sends; NULL: zeros
    size_t sent, limit, read;
    char last; // byte that was read
    bool taken;
};

// A peer repeats `tail` for as long as somebody takes it.
struct fixture {
    struct loop *loop;
    struct event *deadline; // of the whole test, by the machine's clock
    struct loop_timer *turn;
    int quiet_turns; // of the loop, since bytes last arrived at `inner_fd`
    bool timed_out;
    char dir[32];
    struct jupyter_channels *channels;

    int peer_fd;
    struct loop_fd *peer_watch;
    size_t peer_read;
    struct buf tail;
    size_t tail_sent;

    struct guard *guard;
    int inner_fd;
    struct loop_fd *inner_watch;
    size_t inner_read;

    struct large larges[MAX_LARGES];
    size_t n_larges;
    size_t most_held; // in messages of `larges` that were not taken

    size_t messages, bad_messages, lost;
    uint64_t cut_bytes; // of the last message
    struct kg_error last_error;
};

static void
on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct fixture *f = arg;
    (void)fd;
    (void)what;
    f->timed_out = true;
    loop_stop(f->loop);
}

static void
run(struct fixture *f)
{
    if (!f->timed_out)
        loop_run(f->loop);
    assert_false(f->timed_out);
}

static void
on_message(enum jupyter_channel channel, struct jupyter_message *message, void *arg)
{
    struct fixture *f = arg;
    (void)channel;
    f->messages++;
    f->cut_bytes = message->cut_bytes;
}

static void
on_bad_message(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    (void)channel;
    (void)err;
    f->bad_messages++;
}

static void
on_lost(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    (void)channel;
    f->lost++;
    f->last_error = *err;
    loop_stop(f->loop);
}

static void
on_guard_end(const struct kg_error *reason, void *arg)
{
    on_lost(JUPYTER_SHELL, reason, arg);
}

// Stops the loop when nothing has moved for many turns of it.
static void
on_turn(void *arg)
{
    struct fixture *f = arg;
    if (++f->quiet_turns == QUIET_TURNS)
        loop_stop(f->loop);
    else
        loop_timer_start(f->turn, 0);
}

// What happens after some time.
static void
run_on(struct fixture *f)
{
    loop_turn(f->loop); // libzmq's thread has its part
    virtual_clock_advance(f->loop, 20);
    assert_false(f->timed_out);
}

static int
setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct kg_error err;

    f->loop = loop_new();
    f->deadline = event_new(loop_event_base(f->loop), -1, 0, on_deadline, f);
    event_add(f->deadline, &(const struct timeval){.tv_sec = PATIENCE_MS / 1000});
    f->turn = loop_timer_new(f->loop, on_turn, f);
    f->peer_fd = f->inner_fd = -1;
    strcpy(f->dir, "/tmp/kg-guard-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    const struct jupyter_channels_settings settings = {.dir = f->dir, .key = "key"};
    const struct jupyter_channels_events events = {
        .on_message = on_message, .on_bad_message = on_bad_message, .on_lost = on_lost};
    f->channels = jupyter_channels_new(f->loop, &settings, &events, f, &err);
    assert_non_null(f->channels);
    *state = f;
    return 0;
}

static void
large_fini(struct large *large)
{
    guard_free(large->guard);
    loop_fd_free(large->peer_watch);
    loop_fd_free(large->inner_watch);
    close(large->peer_fd);
    close(large->inner_fd);
}

// Also after a test that failed: the slots are the process's.
static int
teardown(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < f->n_larges; i++)
        large_fini(&f->larges[i]);
    jupyter_channels_free(f->channels);
    guard_free(f->guard);
    loop_fd_free(f->peer_watch);
    loop_fd_free(f->inner_watch);
    kg_fd_auto_(&f->peer_fd);
    kg_fd_auto_(&f->inner_fd);
    buf_fini(&f->tail);
    event_free(f->deadline);
    loop_timer_free(f->turn);
    loop_free(f->loop);
    int removed = rmdir(f->dir); // nothing is left in it
    free(f);
    return removed;
}

// ---- The peer -------------------------------------------------------------------------------

// libzmq takes messages only once both READY have passed: first waits for its.
static void
on_peer(int fd, int events, void *arg)
{
    struct fixture *f = arg;
    char reply[256];

    if ((events & LOOP_READ) != 0) {
        ssize_t n = recv(fd, reply, sizeof(reply), MSG_DONTWAIT);
        f->peer_read += n > 0 ? (size_t)n : 0;
        if (f->peer_read < sizeof(greeting) + sizeof(ready_pub) - 1)
            return;
        loop_fd_set(f->peer_watch, f->tail.len > 0 ? LOOP_WRITE : 0);
        if (f->tail.len == 0)
            loop_stop(f->loop);
        return;
    }
    ssize_t n = send(fd, f->tail.data + f->tail_sent, f->tail.len - f->tail_sent,
                     MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0)
        f->tail_sent = (f->tail_sent + (size_t)n) % f->tail.len;
    else if (errno != EAGAIN)
        loop_fd_set(f->peer_watch, 0);
}

static void
say(struct fixture *f, const char *bytes, size_t len)
{
    assert_int_equal(send(f->peer_fd, bytes, len, MSG_NOSIGNAL), len);
}

static int
make_pair(int *ret_near)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    *ret_near = pair[1];
    return pair[0];
}

static void
set_tail(struct fixture *f, const char *tail, size_t len)
{
    while (f->tail.len + len <= CHUNK)
        buf_append(&f->tail, tail, len);
}

static void
attach(struct fixture *f, enum jupyter_channel channel)
{
    struct kg_error err;
    int link = make_pair(&f->peer_fd);

    say(f, greeting, sizeof(greeting));
    if (channel == JUPYTER_IOPUB)
        say(f, ready_pub, sizeof(ready_pub) - 1);
    else
        say(f, ready_router, sizeof(ready_router) - 1);
    f->peer_watch = loop_fd_new(f->loop, f->peer_fd, LOOP_READ, on_peer, f);
    assert_int_equal(jupyter_channels_attach(f->channels, channel, link, &err), 0);
}

// ---- Tests ----------------------------------------------------------------------------------

static void
test_endless_frames_are_cut(void **state)
{
    struct fixture *f = *state;
    set_tail(f, "\x01\x04more", 6);
    attach(f, JUPYTER_IOPUB);
    run(f);
    assert_string_equal(f->last_error.message, "message of more than 64 frames");
    assert_int_equal(f->messages + f->bad_messages, 0);
}

static void
test_huge_length_is_cut(void **state)
{
    struct fixture *f = *state;
    set_tail(f, "\x00\x01x\x02\x00\x00\x00\x00\x40\x00\x00\x01", 12);
    attach(f, JUPYTER_IOPUB);
    run(f);
    assert_string_equal(f->last_error.message, "frame of 1073741825 bytes");
    assert_int_equal(f->bad_messages, 1); // the one before it came through
}

// A message where READY should be passes the follower, but not libzmq.
static void
test_a_peer_that_zeromq_refuses_is_lost(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    int link = make_pair(&f->peer_fd);

    say(f, greeting, sizeof(greeting));
    say(f, "\x00\x05hello", 7);
    assert_int_equal(jupyter_channels_attach(f->channels, JUPYTER_SHELL, link, &err), 0);
    run(f);
    assert_string_equal(f->last_error.message, "ZeroMQ refused the peer");
}

static void
test_a_peer_that_reads_nothing_is_not_sent_more(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    size_t sent = 0;
    KG_AUTO_FREE char *code = kg_calloc(1, 1024 * 1024 + 1);

    memset(code, 'x', 1024 * 1024);
    attach(f, JUPYTER_SHELL);
    run(f);
    while (sent < 200 && jupyter_channels_send(f->channels, JUPYTER_SHELL, "x",
                                               json_pack("{s:s}", "code", code), NULL, &err) == 0)
        sent++;
    assert_true(sent >= 8 && sent < 200);
    assert_int_equal(err.code, KG_PROVISIONER_UNAVAILABLE);
}

static void
on_inner(int fd, int events, void *arg)
{
    struct fixture *f = arg;
    static char bytes[CHUNK];
    (void)events;

    ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    assert_true(n > 0);
    f->inner_read += (size_t)n;
    f->quiet_turns = 0;
}

static void
run_until_quiet(struct fixture *f)
{
    f->quiet_turns = 0;
    loop_timer_start(f->turn, 0);
    run(f);
}

// Whoever reads from libzmq, not the speed of the kernel, decides how much is inside of it.
static void
test_no_more_goes_in_than_is_taken(void **state)
{
    struct fixture *f = *state;
    enum { BODY = 1024, WINDOW = 1024 * 1024, SLACK = 256 * 1024 };
    static const char message[1 + 8 + BODY] = {2, 0, 0, 0, 0, 0, 0, BODY >> 8, 0};
    int link = make_pair(&f->peer_fd), inner = make_pair(&f->inner_fd);

    f->guard = guard_new(f->loop, link, inner, 64 * 1024 * 1024, on_guard_end, f);
    say(f, greeting, sizeof(greeting));
    set_tail(f, message, sizeof(message));
    f->peer_watch = loop_fd_new(f->loop, f->peer_fd, LOOP_WRITE, on_peer, f);
    f->inner_watch = loop_fd_new(f->loop, f->inner_fd, LOOP_READ, on_inner, f);

    run_until_quiet(f);
    size_t first = f->inner_read;
    assert_true(first > WINDOW / 2 && first < WINDOW + SLACK);
    guard_taken(f->guard, WINDOW / 2);
    run_until_quiet(f);
    assert_true(f->inner_read > first + WINDOW / 4 && f->inner_read < first + WINDOW / 2 + SLACK);
    assert_int_equal(f->lost, 0);
}

// ---- Messages that are sifted ---------------------------------------------------------------

static size_t n_sifted;

static size_t
sift_busy(char *bytes, size_t len, void *arg)
{
    (void)arg;
    bool is_busy = len == 6 && memcmp(bytes, "\0\4busy", 6) == 0;
    n_sifted += is_busy;
    return is_busy ? 0 : len;
}

static void
run_until_read(struct fixture *f, size_t n)
{
    while (f->inner_read < n) // or the deadline passes
        run_on(f);
}

// What is sifted neither goes inward nor counts as something that the reader has to take. In the
// middle of a message nothing is sifted.
static void
test_a_sifted_message_is_left_out(void **state)
{
    struct fixture *f = *state;
    int link = make_pair(&f->peer_fd), inner = make_pair(&f->inner_fd);
    n_sifted = 0;
    f->guard = guard_new(f->loop, link, inner, LARGE_BOUND, on_guard_end, f);
    guard_set_sift(f->guard, sift_busy);
    f->inner_watch = loop_fd_new(f->loop, f->inner_fd, LOOP_READ, on_inner, f);
    say(f, greeting, sizeof(greeting));
    run_until_read(f, sizeof(greeting));

    say(f, "\0\4busy", 6);
    while (n_sifted == 0)
        run_on(f);
    run_until_quiet(f);
    assert_int_equal(f->inner_read, sizeof(greeting));
    assert_false(guard_is_receiving(f->guard));

    say(f, "\0\6", 2);
    run_until_read(f, sizeof(greeting) + 2);
    say(f, "\0\4busy", 6);
    run_until_read(f, sizeof(greeting) + 8);
    assert_true(guard_has_untaken(f->guard));
    assert_int_equal(n_sifted, 1);
}

// ---- Slots for large messages ---------------------------------------------------------------

enum { N_SLOTS = 4 }; // fast and slow ones, of all guards
static const char large_head[] = "\x02\0\0\0\0\0\x90\0\0";

static void
large_on_peer(int fd, int events, void *arg)
{
    struct large *large = arg;
    static const char bytes[CHUNK];
    (void)events;
    size_t left = large->limit - large->sent;
    const char *from = large->data != NULL ? large->data + large->sent : bytes;
    ssize_t n = send(fd, from, left < CHUNK ? left : CHUNK, MSG_NOSIGNAL | MSG_DONTWAIT);
    large->sent += n > 0 ? (size_t)n : 0;
    if (large->sent == large->limit)
        loop_fd_set(large->peer_watch, 0);
}

static bool
large_is_complete(const struct large *large)
{
    return large->read > LARGE_BODY;
}

static size_t
held(const struct fixture *f)
{
    size_t bytes = 0;
    for (size_t i = 0; i < f->n_larges; i++)
        bytes += f->larges[i].taken ? 0 : f->larges[i].read;
    return bytes;
}

static void
large_on_inner(int fd, int events, void *arg)
{
    struct large *large = arg;
    static char bytes[CHUNK];
    (void)events;
    ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n <= 0)
        return;
    large->read += (size_t)n;
    large->last = bytes[n - 1];
    large->f->quiet_turns = 0;
    if (held(large->f) > large->f->most_held)
        large->f->most_held = held(large->f);
}

static struct large *
large_new(struct fixture *f, size_t limit)
{
    assert_true(f->n_larges < MAX_LARGES);
    struct large *large = &f->larges[f->n_larges++];
    int link = make_pair(&large->peer_fd), inner = make_pair(&large->inner_fd);
    large->f = f;
    large->limit = limit;
    large->guard = guard_new(f->loop, link, inner, LARGE_BOUND, on_guard_end, f);
    large->peer_watch = loop_fd_new(f->loop, large->peer_fd, LOOP_WRITE, large_on_peer, large);
    large->inner_watch = loop_fd_new(f->loop, large->inner_fd, LOOP_READ, large_on_inner, large);
    assert_int_equal(send(large->peer_fd, greeting, sizeof(greeting), MSG_NOSIGNAL), 64);
    assert_int_equal(send(large->peer_fd, large_head, 9, MSG_NOSIGNAL), 9);
    return large;
}

static void
large_take(struct large *large)
{
    large->taken = true;
    guard_taken(large->guard, zmtp_frame_cost(LARGE_BODY));
}

static void
large_continue(struct large *large)
{
    large->limit = LARGE_BODY;
    loop_fd_set(large->peer_watch, LOOP_WRITE);
}

static size_t
count_complete(const struct fixture *f)
{
    size_t complete = 0;
    for (size_t i = 0; i < f->n_larges; i++)
        complete += large_is_complete(&f->larges[i]);
    return complete;
}

// However many kernels publish large messages at once, few of them are in memory: one, or as many
// as there are slots, where this process gets so little time that kernels look slow.
static void
test_few_large_messages_come_in_at_a_time(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < MAX_LARGES; i++)
        (void)large_new(f, LARGE_BODY);
    for (size_t n_taken = 0; n_taken < MAX_LARGES;) {
        run_until_quiet(f);
        assert_in_range(count_complete(f) - n_taken, 1, N_SLOTS);
        n_taken = count_complete(f);
        for (size_t i = 0; i < MAX_LARGES; i++) // what is there is taken
            if (large_is_complete(&f->larges[i]) && !f->larges[i].taken)
                large_take(&f->larges[i]);
    }
}

// One that publishes large messages without a pause has the slot for one of them at a time.
static void
test_large_messages_take_turns(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_BUF stream = {0};
    static char body[LARGE_BODY];
    for (int i = 0; i < 3; i++) { // the first head is sent by large_new()
        buf_append(&stream, body, sizeof(body));
        buf_append(&stream, large_head, 9);
    }
    struct large *first = large_new(f, stream.len);
    first->data = stream.data;
    run_until_quiet(f); // it waits in front of its second message
    assert_in_range(first->read, LARGE_BODY, LARGE_BODY + 2 * CHUNK);
    struct large *second = large_new(f, LARGE_BODY);
    run_until_quiet(f);
    assert_true(second->read < LARGE_BODY);
    guard_taken(first->guard, zmtp_frame_cost(LARGE_BODY));
    run_until_quiet(f);
    assert_true(second->read > LARGE_BODY); // not the other one's second
    assert_true(first->read < LARGE_BODY + LARGE_BODY / 2);
    guard_taken(second->guard, zmtp_frame_cost(LARGE_BODY));
    run_until_quiet(f);
    assert_true(first->read > 2 * LARGE_BODY);
}

// What was not read while this process did not run is not the peer's fault.
static void
test_a_guard_that_was_not_run_does_not_judge(void **state)
{
    struct fixture *f = *state;
    struct large *first = large_new(f, 0);
    (void)large_new(f, LARGE_BODY);
    run_until_quiet(f); // the first has the fast slot
    large_continue(first);
    virtual_clock_move(200);
    run_until_quiet(f);
    assert_true(large_is_complete(first));
    assert_int_equal(count_complete(f), 1);
}

// Peers that stop in the middle of a message do not keep the others from theirs, and a message that
// continues comes as it is.
static void
test_a_stalled_message_keeps_nobody_waiting(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_BUF body = {0};
    memset(buf_reserve(&body, LARGE_BODY), 'x', LARGE_BODY);
    struct large *stalled = large_new(f, LARGE_BODY / 2);
    stalled->data = body.data;
    struct large *other = large_new(f, LARGE_BODY);
    while (!large_is_complete(other)) // or the deadline passes
        run_on(f);
    large_take(other);
    large_continue(stalled);
    run_until_quiet(f);
    assert_true(large_is_complete(stalled));
    assert_int_equal(stalled->last, 'x');
}

// However many peers stop in the middle of a message, a fixed number of messages is held: the
// others are completed with NUL bytes, and so is each of them after a while.
static void
test_stalled_messages_are_bounded_together(void **state)
{
    struct fixture *f = *state;
    static const size_t bound = (size_t)N_SLOTS * LARGE_BOUND;
    for (size_t i = 0; i < MAX_LARGES; i++)
        (void)large_new(f, LARGE_BODY - CHUNK);
    while (count_complete(f) < MAX_LARGES) { // or the deadline passes
        for (size_t i = 0; i < MAX_LARGES; i++)
            if (large_is_complete(&f->larges[i]) && !f->larges[i].taken)
                large_take(&f->larges[i]);
        run_on(f);
    }
    assert_in_range(f->most_held, LARGE_BODY, bound);
    for (size_t i = 0; i < MAX_LARGES; i++) {
        assert_int_equal(f->larges[i].read, sizeof(greeting) + 9 + LARGE_BODY);
        assert_int_equal(f->larges[i].last, '\0');
    }
    large_continue(&f->larges[0]); // the rest is left out, and what follows is seen
    run_until_quiet(f);
    assert_int_equal(f->larges[0].sent, LARGE_BODY);
    assert_int_equal(f->larges[0].read, sizeof(greeting) + 9 + LARGE_BODY);
    assert_int_equal(send(f->larges[0].peer_fd, "\0\4next", 6, MSG_NOSIGNAL), 6);
    run_until_quiet(f);
    assert_int_equal(f->larges[0].read, sizeof(greeting) + 9 + LARGE_BODY + 6);
    assert_int_equal(f->lost, 0);
}

// A message whose end does not come is reported, like one that is too large.
static void
test_a_message_without_an_end_is_cut(void **state)
{
    struct fixture *f = *state;
    static const char head[] = "\x01\x09<IDS|MSG>\x01\x00\x01\x15{\"msg_type\":\"stream\"}"
                               "\x01\x02{}\x01\x02{}";
    static const char half[1 << 20];
    size_t sent = 0;
    attach(f, JUPYTER_IOPUB);
    run(f); // until both sides have said READY
    say(f, head, sizeof(head) - 1);
    say(f, large_head, 9);
    while (f->messages + f->bad_messages == 0) { // or the deadline passes
        ssize_t n = sent == sizeof(half) ? 0
                                         : send(f->peer_fd, half + sent, sizeof(half) - sent,
                                                MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += n > 0 ? (size_t)n : 0;
        run_on(f);
    }
    assert_int_equal(f->messages, 1);
    assert_int_equal(f->cut_bytes, LARGE_BODY);
    assert_int_equal(f->lost, 0);
}

int
test_jupyter_guard(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_endless_frames_are_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_huge_length_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_peer_that_zeromq_refuses_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_peer_that_reads_nothing_is_not_sent_more, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_no_more_goes_in_than_is_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_sifted_message_is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(test_few_large_messages_come_in_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_messages_take_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_guard_that_was_not_run_does_not_judge, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_stalled_message_keeps_nobody_waiting, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_stalled_messages_are_bounded_together, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_message_without_an_end_is_cut, setup, teardown),
    };
    return cmocka_run_group_tests_name("jupyter guard", tests, NULL, NULL);
}
