// SPDX-License-Identifier: Apache-2.0
// Streams of events and their replay, the bridge's parser of events, lines.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bridge_priv.h"
#include "test_mcp.h"

// ---- Replay ---------------------------------------------------------------------------------

static size_t
events_of(const struct sse *sse)
{
    size_t n = 0;
    const struct event *event;
    TAILQ_FOREACH(event, &sse->events, link)
        n++;
    return n;
}

static void
send_text(struct sse *sse, const char *text)
{
    sse_send(sse, payload_take(kg_strdup(text), strlen(text)));
}

static void
test_replay_is_bounded(void **state)
{
    struct mcp_fixture *f = *state;
    struct sse *first = sse_new(f->mcp, f->session, true);
    struct sse *second = sse_new(f->mcp, f->session, true);
    char text[500] = {0};
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 3; i++)
        send_text(first, text);
    assert_int_equal(events_of(first), 3);
    for (int i = 0; i < 2; i++)
        send_text(second, text); // 627 bytes each, with the overhead of an event
    assert_int_equal(events_of(first), 1);
    assert_int_equal(events_of(second), 2);
    assert_true(f->session->replay.held <= 2000);
    // An event above the limit is kept until the next one.
    KG_AUTO_FREE char *large = kg_calloc(1, 10000);
    memset(large, 'y', 9999);
    send_text(second, large);
    assert_int_equal(events_of(first), 0);
    assert_int_equal(events_of(second), 1);
    send_text(first, text);
    assert_int_equal(events_of(second), 0);
    assert_int_equal(f->session->replay.held, 499 + 128);
    assert_int_equal(f->mcp->replay.held, 499 + 128);
}

static struct sse *
stream_of_new_session(struct mcp_fixture *f, const char *owner)
{
    struct mcp_session *session = mcp_session_new(f->mcp, owner, "");
    struct kg_error err = {0};
    assert_int_equal(mcp_session_register(session, &err), 0);
    return sse_new(f->mcp, session, true);
}

// One owner keeps at most half. If the total is reached, the owner that keeps most loses events.
static void
test_replay_has_shares_of_owners(void **state)
{
    enum { EVENT_BYTES = 4 << 20 };
    struct mcp_fixture *f = *state;
    f->mcp->max_replay_bytes = SIZE_MAX;
    KG_AUTO_FREE char *text = kg_calloc(1, EVENT_BYTES - 128 + 1);
    memset(text, 'x', EVENT_BYTES - 128);
    struct sse *bob = stream_of_new_session(f, "bob");
    for (int i = 0; i < 3; i++)
        send_text(bob, text);
    struct sse *alice[2] = {stream_of_new_session(f, "alice"), stream_of_new_session(f, "alice")};
    for (int i = 0; i < 10; i++)
        send_text(alice[i % 2], text);
    assert_int_equal(events_of(bob), 3);
    assert_int_equal(events_of(alice[0]) + events_of(alice[1]), 4);
    assert_int_equal(alice[0]->session->replay.share->held, MCP_REPLAY_OWNER_MAX);
    struct sse *carol = stream_of_new_session(f, "carol");
    for (int i = 0; i < 2; i++)
        send_text(carol, text);
    assert_int_equal(events_of(carol), 2);
    assert_int_equal(events_of(bob), 3);
    assert_int_equal(events_of(alice[0]) + events_of(alice[1]), 3);
    assert_int_equal(f->mcp->replay.held, MCP_REPLAY_TOTAL_MAX);
}

static void
test_ended_streams_go_with_their_last_event(void **state)
{
    struct mcp_fixture *f = *state;
    struct sse *empty = sse_new(f->mcp, f->session, true);
    sse_end(empty);
    assert_null(sse_find(f->session, 0));
    struct sse *ended = sse_new(f->mcp, f->session, true);
    send_text(ended, "{}");
    sse_end(ended);
    assert_ptr_equal(sse_find(f->session, 1), ended);
    struct sse *other = sse_new(f->mcp, f->session, true);
    char text[1990] = {0};
    memset(text, 'x', sizeof text - 1);
    send_text(other, text);
    assert_null(sse_find(f->session, 1));
}

// ---- Events read ----------------------------------------------------------------------------

static void
collect(const char *data, size_t len, void *arg)
{
    struct buf *got = arg;
    buf_append(got, "[", 1);
    buf_append(got, data, len);
    buf_append(got, "]", 1);
}

static void
test_events_however_they_are_cut(void **state)
{
    (void)state;
    static const char text[] = ": comment\n\nid: 1-1\nretry: 5\ndata: \n\n"
                               "event: message\r\nid: 1-2\r\ndata: {\"a\":1}\r\n\r\n"
                               "data:one\ndata: two\nnonsense\n\nid: 1-3\n\ndata: cut";
    for (size_t cut = 1; cut < sizeof text; cut++) {
        struct event_reader reader = {0};
        KG_AUTO_BUF got = {0};
        for (size_t at = 0; at < sizeof text - 1; at += cut) {
            size_t n = sizeof text - 1 - at < cut ? sizeof text - 1 - at : cut;
            assert_true(event_reader_take(&reader, text + at, n, collect, &got));
        }
        assert_string_equal(got.data, "[{\"a\":1}][one\ntwo]");
        assert_string_equal(reader.id, "1-3");
        event_reader_fini(&reader);
    }
}

// The id counts only with the complete event, which else would be lost when the stream is resumed.
static void
test_half_an_event_comes_again(void **state)
{
    (void)state;
    static const char first[] = "id: 1-1\ndata: one\n\nid: 1-2\ndata: a\ndata: hal";
    static const char again[] = "id: 1-2\ndata: whole\n\n";
    struct event_reader reader = {0};
    KG_AUTO_BUF got = {0};
    assert_true(event_reader_take(&reader, first, sizeof first - 1, collect, &got));
    assert_string_equal(reader.id, "1-1");
    event_reader_rewind(&reader);
    assert_true(event_reader_take(&reader, again, sizeof again - 1, collect, &got));
    assert_string_equal(got.data, "[one][whole]");
    assert_string_equal(reader.id, "1-2");
    event_reader_fini(&reader);
}

// ---- Lines ----------------------------------------------------------------------------------

struct lines {
    struct loop *loop;
    struct buf got;
    int ends;
    struct line_io *pauses; // after each line; or NULL
};

static void
on_line(const char *line, size_t len, void *arg)
{
    struct lines *lines = arg;
    collect(line ? line : "too long", line ? len : 8, &lines->got);
    if (lines->pauses)
        line_io_pause(lines->pauses);
}

static void
on_end(void *arg)
{
    struct lines *lines = arg;
    lines->ends++;
    loop_stop(lines->loop);
}

static void
test_lines_of_a_pipe_and_of_a_file(void **state)
{
    struct mcp_fixture *f = *state;
    static const char text[] = "one\r\n\n\ntwo\nlast";
    for (int file = 0; file < 2; file++) {
        int in[2];
        int out[2];
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        if (file) {
            close(in[0]);
            close(in[1]);
            in[0] = memfd_create("lines", MFD_CLOEXEC);
            in[1] = dup(in[0]);
        }
        assert_int_equal(write(in[1], text, sizeof text - 1), sizeof text - 1);
        close(in[1]);
        if (file)
            lseek(in[0], 0, SEEK_SET);
        struct lines lines = {.loop = f->loop};
        struct kg_error err;
        struct line_io *io = line_io_new(f->loop, in[0], out[1], on_line, on_end, &lines, &err);
        assert_non_null(io);
        loop_run(f->loop);
        assert_int_equal(lines.ends, 1);
        assert_string_equal(lines.got.data, "[one][two][last]");
        line_io_write(io, "answer", 6);
        char answer[16] = {0};
        assert_int_equal(read(out[0], answer, sizeof answer), 7);
        assert_string_equal(answer, "answer\n");
        line_io_free(io);
        buf_fini(&lines.got);
        close(in[0]);
        close(out[0]);
        close(out[1]);
    }
}

// Neither the next line nor the end is reported before the current line is done.
static void
test_lines_wait_while_one_is_read(void **state)
{
    struct mcp_fixture *f = *state;
    static const char *const expected[] = {"[one]", "[one][two]", "[one][two][last]"};
    for (int file = 0; file < 2; file++) {
        int in[2];
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (file) {
            close(in[0]);
            close(in[1]);
            in[0] = memfd_create("lines", MFD_CLOEXEC);
            in[1] = dup(in[0]);
        }
        assert_int_equal(write(in[1], "one\ntwo\nlast", 12), 12);
        close(in[1]);
        if (file)
            lseek(in[0], 0, SEEK_SET);
        struct lines lines = {.loop = f->loop};
        struct kg_error err;
        struct line_io *io = line_io_new(f->loop, in[0], out, on_line, on_end, &lines, &err);
        lines.pauses = io;
        for (size_t i = 0; i < 3; i++) {
            for (int n = 0; n < 5; n++)
                turn(f);
            assert_string_equal(lines.got.data, expected[i]);
            assert_int_equal(lines.ends, 0);
            line_io_resume(io);
        }
        loop_run(f->loop);
        assert_int_equal(lines.ends, 1);
        line_io_free(io);
        buf_fini(&lines.got);
        close(in[0]);
        close(out);
    }
}

static void
test_a_reader_that_has_gone_is_the_end(void **state)
{
    struct mcp_fixture *f = *state;
    int in[2];
    int out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct lines lines = {.loop = f->loop};
    struct kg_error err;
    struct line_io *io = line_io_new(f->loop, in[0], out[1], on_line, on_end, &lines, &err);
    assert_non_null(io);
    // What does not fit into the pipe waits.
    KG_AUTO_FREE char *large = kg_calloc(1, 1 << 20);
    memset(large, 'x', (1 << 20) - 1);
    line_io_write(io, large, (1 << 20) - 1);
    assert_true(line_io_backlog(io) > 0);
    close(out[0]);
    loop_run(f->loop);
    assert_int_equal(lines.ends, 1);
    assert_int_equal(line_io_backlog(io), 0);
    line_io_free(io);
    close(in[0]);
    close(in[1]);
    close(out[1]);
}

// Also the bytes after a NUL.
static void
test_all_bytes_of_a_line_are_written(void **state)
{
    struct mcp_fixture *f = *state;
    int in[2];
    int out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct lines lines = {.loop = f->loop};
    struct kg_error err;
    struct line_io *io = line_io_new(f->loop, in[0], out[1], on_line, on_end, &lines, &err);
    assert_non_null(io);
    line_io_write(io, "a\0b", 3);
    char got[8];
    assert_int_equal(read(out[0], got, sizeof got), 4);
    assert_memory_equal(got, "a\0b\n", 4);
    line_io_free(io);
    for (int i = 0; i < 2; i++) {
        close(in[i]);
        close(out[i]);
    }
}

static void
on_stdio_end(void *arg)
{
    loop_stop(arg);
}

// A worker reads the large line.
static void
test_a_large_line_with_a_nul_is_refused(void **state)
{
    enum { LARGE = 70000 };
    static const char ping[] = "\n{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n";
    struct mcp_fixture *f = *state;
    int out[2];
    int in = memfd_create("lines", MFD_CLOEXEC);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    KG_AUTO_FREE char *line = kg_calloc(1, LARGE);
    memset(line + 1, 'x', LARGE - 1);
    assert_int_equal(write(in, line, LARGE), LARGE);
    assert_int_equal(write(in, ping, sizeof ping - 1), sizeof ping - 1);
    lseek(in, 0, SEEK_SET);
    struct kg_error err;
    struct mcp_stdio *stdio =
        mcp_stdio_new(f->mcp, in, out[1], "alice", "", on_stdio_end, f->loop, &err);
    assert_non_null(stdio);
    loop_run(f->loop);
    mcp_stdio_free(stdio);
    char got[2000] = {0};
    assert_true(read(out[0], got, sizeof got - 1) > 0);
    char *second = strchr(got, '\n') + 1;
    assert_non_null(strstr(got, "it has a NUL byte"));
    assert_true(strstr(got, "it has a NUL byte") < second);
    assert_non_null(strstr(second, "\"id\":7"));
    assert_non_null(strstr(second, "\"result\""));
    close(in);
    close(out[0]);
    close(out[1]);
}

int
run_mcp_io_tests(void)
{
    signal(SIGPIPE, SIG_IGN); // as the program does
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replay_is_bounded, mcp_setup, mcp_teardown),
        cmocka_unit_test_setup_teardown(test_replay_has_shares_of_owners, mcp_setup, mcp_teardown),
        cmocka_unit_test_setup_teardown(test_ended_streams_go_with_their_last_event, mcp_setup,
                                        mcp_teardown),
        cmocka_unit_test(test_events_however_they_are_cut),
        cmocka_unit_test(test_half_an_event_comes_again),
        cmocka_unit_test_setup_teardown(test_lines_of_a_pipe_and_of_a_file, mcp_setup,
                                        mcp_teardown),
        cmocka_unit_test_setup_teardown(test_lines_wait_while_one_is_read, mcp_setup, mcp_teardown),
        cmocka_unit_test_setup_teardown(test_a_reader_that_has_gone_is_the_end, mcp_setup,
                                        mcp_teardown),
        cmocka_unit_test_setup_teardown(test_all_bytes_of_a_line_are_written, mcp_setup,
                                        mcp_teardown),
        cmocka_unit_test_setup_teardown(test_a_large_line_with_a_nul_is_refused, mcp_setup,
                                        mcp_teardown),
    };
    return cmocka_run_group_tests_name("mcp io", tests, NULL, NULL);
}
