// SPDX-License-Identifier: Apache-2.0
// Frames over a socket: in any pieces, in order, bounded, and all of them before the end.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "rpc.h"

struct fixture {
    struct loop *loop;
    struct wire *wire; // the gateway's side
    int peer;          // the agent's
    char seen[256];    // a letter for each frame's kind, and its content
    int n_ends;
    bool malformed;
    bool pauses; // on each frame
    bool frees;  // on the first frame
};

static void
on_frame(const struct frame *frame, void *arg)
{
    struct fixture *f = arg;
    size_t len = strlen(f->seen);
    assert_true(len + 1 + frame->len < sizeof f->seen);
    f->seen[len] = "?QDHRE"[frame->kind];
    memcpy(f->seen + len + 1, frame->data, frame->len);
    if (f->pauses)
        wire_pause(f->wire, true);
    if (f->frees)
        wire_free(KG_STEAL(f->wire));
}

static void
on_end(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->n_ends++;
    f->malformed = err != NULL;
    loop_stop(f->loop);
}

static int
setup(void **state)
{
    static const struct wire_events events = {.on_frame = on_frame, .on_end = on_end};
    struct fixture *f = KG_NEW(struct fixture);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    f->loop = loop_new();
    f->wire = wire_new(f->loop, fds[0], RPC_GATEWAY, &events, f);
    f->peer = fds[1];
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    wire_free(f->wire);
    if (f->peer >= 0)
        close(f->peer);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void
put(struct buf *buf, enum frame_kind kind, const char *content)
{
    unsigned char header[FRAME_HEADER_LEN];
    frame_header(kind, strlen(content), header);
    buf_append(buf, header, sizeof header);
    buf_append_str(buf, content);
}

static void
peer_sends(struct fixture *f, const void *data, size_t len)
{
    assert_int_equal(send(f->peer, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void
peer_closes(struct fixture *f)
{
    close(f->peer);
    f->peer = -1;
}

static void
on_turn(void *loop)
{
    loop_stop(loop);
}

static void
turn(struct fixture *f)
{
    struct loop_timer *timer = loop_timer_new(f->loop, on_turn, f->loop);
    loop_timer_start(timer, 0);
    loop_run(f->loop);
    loop_timer_free(timer);
}

static void
test_frames_come_in_any_pieces(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_BUF bytes = {0};
    put(&bytes, FRAME_HEAD, "{}");
    put(&bytes, FRAME_DATA, "abc");
    put(&bytes, FRAME_DATA, "");
    put(&bytes, FRAME_RESULT, "{}");
    for (size_t i = 0; i < bytes.len; i++) {
        peer_sends(f, bytes.data + i, 1);
        turn(f);
    }
    assert_string_equal(f->seen, "H{}DabcDR{}");
    assert_true(wire_is_quiet(f->wire));
    peer_closes(f);
    loop_run(f->loop);
    assert_int_equal(f->n_ends, 1);
    assert_false(f->malformed);
}

// The bytes are with the wire and the end is with the socket when the pause ends.
static void
test_what_a_pause_kept_comes_before_the_end(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_BUF bytes = {0};
    put(&bytes, FRAME_DATA, "1");
    put(&bytes, FRAME_DATA, "2");
    put(&bytes, FRAME_RESULT, "{}");
    peer_sends(f, bytes.data, bytes.len);
    peer_closes(f);
    f->pauses = true;
    while (!*f->seen)
        turn(f);
    assert_string_equal(f->seen, "D1");
    wire_pause(f->wire, false);
    turn(f);
    assert_string_equal(f->seen, "D1D2");
    assert_int_equal(f->n_ends, 0);
    f->pauses = false;
    wire_pause(f->wire, false);
    loop_run(f->loop);
    assert_string_equal(f->seen, "D1D2R{}");
    assert_int_equal(f->n_ends, 1);
}

static void
test_malformed_frames_end_the_link(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"\0\0\0\0", 4},
        {"\x06\0\0\0", 4},
        {"\x01\0\0\0", 4},     // no kind; the gateway's own
        {"\x02\x02\0\x01", 4}, // DATA above 128 KiB
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        void *place = NULL;
        assert_int_equal(setup(&place), 0);
        struct fixture *f = place;
        peer_sends(f, bad[i].bytes, bad[i].len);
        loop_run(f->loop);
        assert_int_equal(f->n_ends, 1);
        assert_true(f->malformed);
        assert_string_equal(f->seen, "");
        assert_int_equal(teardown(&place), 0);
    }
    (void)state;
}

static void
test_freed_from_inside_a_frame(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_BUF bytes = {0};
    put(&bytes, FRAME_DATA, "1");
    put(&bytes, FRAME_DATA, "2");
    peer_sends(f, bytes.data, bytes.len);
    f->frees = true;
    while (f->wire)
        turn(f);
    assert_string_equal(f->seen, "D1");
    assert_int_equal(f->n_ends, 0);
}

int
main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_frames_come_in_any_pieces),
        TEST(test_what_a_pause_kept_comes_before_the_end),
        cmocka_unit_test(test_malformed_frames_end_the_link),
        TEST(test_freed_from_inside_a_frame),
    };
    return cmocka_run_group_tests_name("rpc", tests, NULL, NULL);
}
