// SPDX-License-Identifier: Apache-2.0
// Requests of code, from the socket inside to the gateway and back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_agent.h"

enum { LINE_MAX_LEN = 16 * 1024 };

static const char request[] = "{\"method\":\"packages\",\"params\":{\"packages\":[\"x\"]}}\n";

// Begins to say something as code.
static int
dial(struct fixture *f, const char *text)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(f->place.dir);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path + 1, f->place.dir, len);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)),
                     0);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    return fd;
}

// What it is told, to the end of the connection.
static void
read_told(int fd, const char *expected)
{
    KG_AUTO_BUF told = {0};

    read_all(fd, &told);
    if (!strstr(told.data, expected))
        fail_msg("%s", told.data);
    close(fd);
}

static int
listen_to_events(struct fixture *f)
{
    KG_AUTO_BUF head = {0};
    int fd = send_request(f, "events", "{\"requests\":true}", 0);

    assert_int_equal(read_frame(fd, &head), FRAME_HEAD);
    return fd;
}

// Returns the id of the request that the next event is about.
static int
read_event(int events, const char *type)
{
    KG_AUTO_BUF text = {0};

    assert_int_equal(read_frame(events, &text), FRAME_DATA);
    json_auto_t *event = json_loadb(text.data, text.len, 0, NULL);
    assert_string_equal(text_of(event, "type"), type);
    assert_true(strcmp(type, "request") != 0 || strcmp(text_of(event, "method"), "packages") == 0);
    return number_of(event, "id");
}

static void
answer(struct fixture *f, int id, const char *lines, bool last, bool gone)
{
    KG_AUTO_FREE char *params =
        kg_asprintf("{\"id\":%d,\"lines\":%s,\"last\":%s}", id, lines, last ? "true" : "false");
    json_auto_t *result = call(f, "tenant.answer", params, KG_OK);
    assert_int_equal(json_is_true(json_object_get(result, "gone")), gone);
}

void
test_tenant_request(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FD events = listen_to_events(f);
    char line[128];

    int fd = dial(f, request);
    int id = read_event(events, "request");
    answer(f, id, "[{\"type\":\"progress\",\"text\":\"a\"}]", false, false);
    read_line(fd, line, sizeof line);
    assert_string_equal(line, "{\"type\":\"progress\",\"text\":\"a\"}");
    answer(f, id, "[{\"type\":\"result\"}, 7]", true, false);
    read_told(fd, "{\"type\":\"result\"}\n");
    answer(f, id, "[]", true, true);
    do_call(f, "tenant.answer", "{\"id\":1}", KG_INVALID);
    do_call(f, "tenant.answer", "{\"id\":1,\"lines\":{},\"last\":true}", KG_INVALID);

    // In parts, as large as may be.
    KG_AUTO_FREE char *large = kg_calloc(1, LINE_MAX_LEN + 8);
    snprintf(large, LINE_MAX_LEN, "{\"method\":\"packages\",\"params\":{\"packages\":[\"");
    memset(large + strlen(large), 'x', LINE_MAX_LEN - strlen(large));
    memcpy(large + LINE_MAX_LEN - 4, "\"]}}", 4);
    fd = dial(f, large);
    assert_int_equal(send(fd, "\n", 1, MSG_NOSIGNAL), 1);
    id = read_event(events, "request");
    answer(f, id, "[{\"type\":\"error\"}]", true, false);
    read_told(fd, "{\"type\":\"error\"}\n");
}

void
test_tenant_refuses(void **state)
{
    static const char *const malformed[] = {
        "\n",
        "[]\n",
        "{\"method\":\"packages\"}\n",
        "{\"method\":\"packages\",\"params\":[]}\n",
        "{\"method\":\"packages\",\"params\":{},\"more\":1}\n",
        "{\"method\":\"packages\",\"method\":\"x\",\"params\":{}}\n",
        "{\"method\":\"a b\",\"params\":{}}\n",
        "{\"method\":\"\",\"params\":{}}\n",
        "{\"method\":\"a\\u0000b\",\"params\":{}}\n",
        "\xff\n",
        "{\"method\":\"abcdefghijabcdefghijabcdefghijabc\",\"params\":{}}\n",
    };
    struct fixture *f = *state;

    do_call(f, "info", "{}", KG_OK); // it runs
    // No gateway, or one that does not know requests.
    read_told(dial(f, request), "\"code\":\"draining\"");
    KG_AUTO_FD old = send_request(f, "events", "{}", 0);
    KG_AUTO_BUF head = {0};
    assert_int_equal(read_frame(old, &head), FRAME_HEAD);
    read_told(dial(f, request), "\"code\":\"draining\"");

    KG_AUTO_FD events = listen_to_events(f);
    for (size_t i = 0; i < KG_ARRAY_LEN(malformed); i++)
        read_told(dial(f, malformed[i]), "\"code\":\"invalid_request\"");
    KG_AUTO_FREE char *large = kg_calloc(1, LINE_MAX_LEN + 2);
    memset(large, ' ', LINE_MAX_LEN + 1);
    read_told(dial(f, large), "at most 16384 bytes");
    // Short here, but too long as the gateway would read it.
    KG_AUTO_BUF numbers = {0};
    buf_append_str(&numbers, "{\"method\":\"packages\",\"params\":{\"a\":[1e16");
    while (numbers.len < LINE_MAX_LEN - 20)
        buf_append_str(&numbers, ",1e16");
    buf_append_str(&numbers, "]}}\n");
    read_told(dial(f, numbers.data), "at most 16384 bytes");
    close(dial(f, "{\"method\":"));
    // None of them has reached the gateway.
    int fd = dial(f, request);
    assert_int_equal(read_event(events, "request"), 1);
    // Who says more than the request withdraws it.
    assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(read_event(events, "request_end"), 1);
    close(fd);
    answer(f, 1, "[]", true, true);
}

void
test_tenant_is_bounded(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FD events = listen_to_events(f);
    int silent[40], waiting[4];
    char byte;

    // Of connections that say nothing the oldest make room.
    for (size_t i = 0; i < KG_ARRAY_LEN(silent); i++)
        silent[i] = dial(f, "");
    // When one more is answered, all before it were accepted.
    read_told(dial(f, "\n"), "\"code\":\"invalid_request\"");
    for (size_t i = 0; i < 9; i++)
        assert_int_equal(recv(silent[i], &byte, 1, MSG_DONTWAIT), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(waiting); i++) {
        waiting[i] = dial(f, request);
        read_event(events, "request");
    }
    read_told(dial(f, request), "\"code\":\"session_busy\"");
    // Who leaves keeps a place until the gateway has heard of it.
    close(waiting[0]);
    assert_int_equal(read_event(events, "request_end"), 1);
    read_told(dial(f, request), "\"code\":\"session_busy\"");
    answer(f, 1, "[]", true, true);
    agent_clock_advance(&f->place, 300);
    waiting[0] = dial(f, request);
    assert_int_equal(read_event(events, "request"), 5);
    // The silent ones end by themselves, requests later.
    agent_clock_advance(&f->place, 6 * 1000);
    for (size_t i = 9; i < KG_ARRAY_LEN(silent); i++) {
        wait_readable(silent[i]);
        assert_int_equal(read(silent[i], &byte, 1), 0);
    }
    agent_clock_advance(&f->place, 21 * 60 * 1000);
    for (size_t i = 0; i < KG_ARRAY_LEN(waiting); i++) {
        read_event(events, "request_end");
        read_told(waiting[i], "did not answer in time");
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(silent); i++)
        close(silent[i]);
    // Places that the gateway has forgotten are free.
    close(dial(f, request));
    assert_int_equal(read_event(events, "request"), 6);
}

// A connection whose request has ended is as loose as one that says nothing.
void
test_tenant_ended_requests_count(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FD events = listen_to_events(f);
    int ended[4], silent[40];
    char byte;

    for (size_t i = 0; i < KG_ARRAY_LEN(ended); i++) {
        ended[i] = dial(f, request);
        read_event(events, "request");
    }
    for (size_t i = 0; i < 32; i++)
        silent[i] = dial(f, "");
    for (size_t i = 0; i < KG_ARRAY_LEN(ended); i++)
        answer(f, (int)i + 1, "[{\"type\":\"result\"}]", true, false);
    for (size_t i = 32; i < KG_ARRAY_LEN(silent); i++)
        silent[i] = dial(f, "");
    // When this one is answered, all before it were accepted.
    read_told(dial(f, "\n"), "\"code\":\"invalid_request\"");
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(recv(silent[i], &byte, 1, MSG_DONTWAIT), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(ended); i++)
        read_told(ended[i], "result");
    for (size_t i = 0; i < KG_ARRAY_LEN(silent); i++)
        close(silent[i]);
}

void
test_tenant_slow_reader(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FD events = listen_to_events(f);
    KG_AUTO_FREE char *text = kg_calloc(1, 64 * 1024);
    memset(text, 'x', 64 * 1024 - 1);
    KG_AUTO_FREE char *lines = kg_asprintf("[{\"text\":\"%s\"}]", text);
    KG_AUTO_FREE char *params = kg_asprintf("{\"id\":1,\"lines\":%s,\"last\":false}", lines);
    bool gone = false;
    int n = 0;

    KG_AUTO_FD slow = dial(f, request);
    assert_int_equal(read_event(events, "request"), 1);
    // Others are served meanwhile, and what it does not read is bounded.
    for (; !gone; n++) {
        json_auto_t *result = call(f, "tenant.answer", params, KG_OK);
        gone = json_is_true(json_object_get(result, "gone"));
        assert_true(n < 100);
    }
    assert_in_range(n, 16, 32);
    assert_int_equal(read_event(events, "request_end"), 1);
    int fd = dial(f, request);
    answer(f, read_event(events, "request"), "[{\"type\":\"result\"}]", true, false);
    read_told(fd, "result");
    // One that has its last line has a while to read it.
    KG_AUTO_FD late = dial(f, request);
    int id = read_event(events, "request");
    answer(f, id, lines, false, false);
    answer(f, id, lines, false, false);
    answer(f, id, lines, false, false);
    answer(f, id, lines, false, false);
    answer(f, id, lines, true, false);
    KG_AUTO_BUF told = {0};
    read_all(late, &told);
    assert_true(told.len > (size_t)5 * 64 * 1024);
}

void
test_tenant_gateway_lost(void **state)
{
    struct fixture *f = *state;
    int events = listen_to_events(f);

    int first = dial(f, request);
    assert_int_equal(read_event(events, "request"), 1);
    close(events);
    read_told(first, "the connection to the gateway has ended");
    events = listen_to_events(f);
    answer(f, 1, "[]", true, true);
    int second = dial(f, request);
    assert_int_equal(read_event(events, "request"), 2);
    // The next gateway comes before the last one's link has ended.
    KG_AUTO_FD next = listen_to_events(f);
    read_told(second, "the connection to the gateway has ended");
    int third = dial(f, request);
    answer(f, read_event(next, "request"), "[{\"type\":\"result\"}]", true, false);
    read_told(third, "result");
    close(events);
}

// ---- Tools ----------------------------------------------------------------------------------

#define TOOLS "{\"method\":\"tools\",\"params\":{}}\n"

// The next link of a caller, past its hello. Idle links that come before it are kept in `idle`.
static int
accept_caller(struct fixture *f, int idle[8])
{
    char hello[16] = {0};
    for (int i = 0;;) {
        wait_readable(f->listener);
        int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
        assert_int_equal(recv(fd, hello, 9, MSG_WAITALL), 9);
        if (strcmp(hello, "KGTOOL 1\n") == 0)
            return fd;
        while (i < 8 && idle[i] > 0)
            i++;
        assert_true(i < 8);
        idle[i] = fd;
    }
}

static void
close_idle(const int idle[8])
{
    for (int i = 0; i < 8 && idle[i] > 0; i++)
        close(idle[i]);
}

void
test_tenant_tools(void **state)
{
    struct fixture *f = *state;
    char line[128];
    int idle[8] = {0};

    do_call(f, "info", "{}", KG_OK);
    // Its first line says whose process it is; what follows is passed on as it comes.
    int code = dial(f, TOOLS "not\0read");
    assert_int_equal(send(code, "\xff here\n", 7, MSG_NOSIGNAL), 7);
    int link = accept_caller(f, idle);
    read_line(link, line, sizeof line);
    assert_string_equal(line, "{\"kernel\":null}");
    read_line(link, line, sizeof line);
    assert_string_equal(line, "not\xff here");
    assert_int_equal(send(link, "answer\n", 7, MSG_NOSIGNAL), 7);
    read_line(code, line, sizeof line);
    assert_string_equal(line, "answer");
    // Each end is that of the other side.
    close(code);
    wait_readable(link);
    assert_int_equal(read(link, line, 1), 0);
    close(link);
    code = dial(f, TOOLS);
    link = accept_caller(f, idle);
    read_line(link, line, sizeof line);
    close(link);
    wait_readable(code);
    assert_int_equal(read(code, line, 1), 0);
    close(code);
    close_idle(idle);
}

// As many as may be at once, though the gateway's queue takes only some of them; one more is
// refused.
void
test_tenant_many_callers(void **state)
{
    struct fixture *f = *state;
    int codes[64], links[64], idle[8] = {0};
    char line[128];

    KG_AUTO_FD events = listen_to_events(f);
    for (size_t i = 0; i < KG_ARRAY_LEN(codes); i++)
        codes[i] = dial(f, TOOLS);
    read_told(dial(f, TOOLS), "64 connections of this sandbox call tools already");
    for (size_t i = 0; i < KG_ARRAY_LEN(links); i++) {
        links[i] = accept_caller(f, idle);
        read_line(links[i], line, sizeof line);
        assert_string_equal(line, "{\"kernel\":null}");
    }
    // A place is free when its caller has left.
    close(codes[0]);
    wait_readable(links[0]);
    assert_int_equal(read(links[0], line, 1), 0);
    close(links[0]);
    codes[0] = dial(f, TOOLS);
    links[0] = accept_caller(f, idle);
    // Requests go on beside them.
    close_idle(idle);
    int fd = dial(f, request);
    answer(f, read_event(events, "request"), "[{\"type\":\"result\"}]", true, false);
    read_told(fd, "result");
    for (size_t i = 0; i < KG_ARRAY_LEN(codes); i++) {
        close(codes[i]);
        close(links[i]);
    }
    // Where the gateway takes none, they are told so after a while; and at once where there is
    // none.
    close(f->listener);
    fd = dial(f, TOOLS);
    agent_clock_advance(&f->place, 11 * 1000);
    read_told(fd, "too many connections of this sandbox begin to call tools");
    close(KG_STEAL_FD(events));
    fd = dial(f, TOOLS);
    read_told(fd, "no gateway is connected to this sandbox now");
    f->listener = -1;
}
