// SPDX-License-Identifier: Apache-2.0
// WebSockets over the loopback: pings, and clients that do not answer them; the answer to a
// handshake's key.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "test_http_util.h"
#include "virtual_clock.h"
#include "websocket.h"

enum { TEST_PING_MS = 50 };

#define HANDSHAKE                                                                                  \
    "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"         \
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
#define PING '\x89'
#define PONG "\x8a\x80mask"

static struct websocket *served; // NULL: it has ended, or not begun
static int n_ended;

static void
served_on_message(bool is_text, const void *data, size_t len, void *arg)
{
    (void)is_text;
    (void)data;
    (void)len;
    (void)arg;
}

static bool
served_may_receive(size_t len, void *arg)
{
    (void)len;
    (void)arg;
    return true;
}

static void
served_on_drain(void *arg)
{
    (void)arg;
}

static void
served_on_end(void *arg)
{
    (void)arg;
    served = NULL;
    n_ended++;
}

static void
handle_websocket(struct http_request *request, void *arg)
{
    static const struct websocket_events events = {
        .on_message = served_on_message,
        .may_receive = served_may_receive,
        .on_drain = served_on_drain,
        .on_end = served_on_end,
    };
    (void)arg;
    assert_true(websocket_is_asked(request));
    served = websocket_start(request, &(const struct websocket_settings){
                                          .loop = bench.loop,
                                          .max_message_bytes = 1024,
                                          .ping_ms = TEST_PING_MS,
                                          .events = &events,
                                      });
}

static const struct http_route websocket_route = {HTTP_GET, "/ws", handle_websocket, HTTP_PUBLIC,
                                                  NULL};

static int
websocket_set_up(void **state)
{
    n_ended = 0;
    bench_set_up(state);
    http_server_add_routes(bench.server, &websocket_route, 1, NULL);
    return 0;
}

// The head of the answer has no such bytes.
static int
count_pings(const struct raw *raw)
{
    int n = 0;
    for (size_t i = 0; i < raw->in.len; i++)
        n += raw->in.data[i] == PING;
    return n;
}

static void
open_websocket(struct raw *raw)
{
    raw_ask(raw, HANDSHAKE);
    WAIT(served && raw_has(raw, "\r\n\r\n"));
}

static void
test_pings_without_an_answer(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_websocket(&raw);
    PASS_TIME_UNTIL(&bench, n_ended == 1 && raw.closed);
    assert_int_equal(count_pings(&raw), 3);
}

static void
test_pings_with_answers(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_websocket(&raw);
    for (int answered = 0; answered < 12; answered++) {
        PASS_TIME_UNTIL(&bench, count_pings(&raw) > answered);
        assert_int_equal(send(raw.fd, PONG, strlen(PONG), MSG_NOSIGNAL), strlen(PONG));
    }
    assert_int_equal(n_ended, 0);
    PASS_TIME_UNTIL(&bench, n_ended == 1);
}

// What waits for it does not become less, so it is not there; a close could not be sent.
static void
test_pings_of_a_client_that_takes_nothing(void **state)
{
    (void)state;
    enum { PIECE = 64 << 10 };
    KG_AUTO_RAW raw;
    raw_open_small(&raw, 4096);
    raw_send(&raw, HANDSHAKE);
    WAIT(served);
    raw_pause(&raw, true);
    KG_AUTO_FREE char *piece = repeated('x', PIECE);
    for (int i = 0; i < 256; i++) {
        websocket_begin(served, true, PIECE);
        websocket_write(served, piece, PIECE);
    }
    PASS_TIME_UNTIL(&bench, n_ended == 1);
    raw_pause(&raw, false);
    WAIT(raw.closed);
}

// The example of RFC 6455, 1.3, and one more, computed by Python's hashlib.
static void
test_keys(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="},
        {"AAAAAAAAAAAAAAAAAAAAAA==", "ICX+Yqv66kxgM0FcWaLWlFLwTAI="},
    };
    static const char *const bad[] = {
        "",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ= ",
        "dGhlIHNhbXBsZSBub25jZW==x",
        "dGhlIHNhbXBsZSBub25jZSEh",
        "____________________==",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        KG_AUTO_FREE char *accept = websocket_accept_key(good[i][0]);
        assert_string_equal(accept, good[i][1]);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_null(websocket_accept_key(bad[i]));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test_setup_teardown(test_pings_without_an_answer, websocket_set_up,
                                        bench_tear_down),
        cmocka_unit_test_setup_teardown(test_pings_with_answers, websocket_set_up, bench_tear_down),
        cmocka_unit_test_setup_teardown(test_pings_of_a_client_that_takes_nothing, websocket_set_up,
                                        bench_tear_down),
    };
    return cmocka_run_group_tests_name("websocket", tests, NULL, NULL);
}
