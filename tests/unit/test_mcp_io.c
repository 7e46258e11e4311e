// SPDX-License-Identifier: Apache-2.0
// Bytes in and out: streams of events, what is kept of them, events read back, lines.

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
test_replay_is_bounded(void **state)
{
    struct mcp_fixture *f = *state;
    struct sse *first = sse_new(f->mcp, f->session, true);
    struct sse *second = sse_new(f->mcp, f->session, true);
    char text[500] = {0};
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 3; i++)
        sse_send(first, text, 499);
    assert_int_equal(events_of(first), 3);
    for (int i = 0; i < 2; i++)
        sse_send(second, text, 499); // 627 bytes each, with what an event costs
    assert_int_equal(events_of(first), 1);
    assert_int_equal(events_of(second), 2);
    assert_true(f->session->replay_bytes <= 2000);
    // An event beyond the bound is there all the same, until the next one comes.
    KG_AUTO_FREE char *large = kg_calloc(1, 10000);
    memset(large, 'y', 9999);
    sse_send(second, large, 9999);
    assert_int_equal(events_of(first), 0);
    assert_int_equal(events_of(second), 1);
    sse_send(first, text, 499);
    assert_int_equal(events_of(second), 0);
    assert_int_equal(f->session->replay_bytes, 499 + 128);
    assert_int_equal(f->mcp->replay_bytes, 499 + 128);
}

static void
test_ended_streams_go_with_their_last_event(void **state)
{
    struct mcp_fixture *f = *state;
    struct sse *empty = sse_new(f->mcp, f->session, true);
    sse_end(empty);
    assert_null(sse_find(f->session, 0));
    struct sse *ended = sse_new(f->mcp, f->session, true);
    sse_send(ended, "{}", 2);
    sse_end(ended);
    assert_ptr_equal(sse_find(f->session, 1), ended);
    struct sse *other = sse_new(f->mcp, f->session, true);
    char text[1990] = {0};
    memset(text, 'x', sizeof text - 1);
    sse_send(other, text, 1989);
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

// The id counts only with the whole event: else it would be lost when the stream is taken up again.
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
};

static void
on_line(const char *line, size_t len, void *arg)
{
    struct lines *lines = arg;
    collect(line ? line : "too long", line ? len : 8, &lines->got);
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
    // More than a pipe takes waits.
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

int
run_mcp_io_tests(void)
{
    signal(SIGPIPE, SIG_IGN); // as the commands do
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replay_is_bounded, mcp_setup, mcp_teardown),
        cmocka_unit_test_setup_teardown(test_ended_streams_go_with_their_last_event, mcp_setup,
                                        mcp_teardown),
        cmocka_unit_test(test_events_however_they_are_cut),
        cmocka_unit_test(test_half_an_event_comes_again),
        cmocka_unit_test_setup_teardown(test_lines_of_a_pipe_and_of_a_file, mcp_setup,
                                        mcp_teardown),
        cmocka_unit_test_setup_teardown(test_a_reader_that_has_gone_is_the_end, mcp_setup,
                                        mcp_teardown),
    };
    return cmocka_run_group_tests_name("mcp io", tests, NULL, NULL);
}
