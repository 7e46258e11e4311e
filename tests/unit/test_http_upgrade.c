// SPDX-License-Identifier: Apache-2.0
// Upgraded connections, and the keys of Jupyter's clients.

#include <string.h>
#include <sys/socket.h>

#include "test_http_util.h"
#include "virtual_clock.h"

#define UPGRADE                                                                                    \
    "GET /echo-protocol HTTP/1.1\r\nHost: localhost\r\n"                                           \
    "Connection: keep-alive, Upgrade\r\nUpgrade: other, Echo\r\n\r\n"

static struct buf received;

static void
upgrade_on_data(void *arg)
{
    char data[16];
    (void)arg;
    for (size_t n; (n = http_upgrade_read(bench.held, data, sizeof data)) > 0;)
        buf_append(&received, data, n);
}

static void
upgrade_on_gone(void *arg)
{
    (void)arg;
    bench.n_gone++;
}

static void
handle_upgrade(struct http_request *request, void *arg)
{
    (void)arg;
    if (!http_upgrade_is_asked(request, "echo")) {
        http_reply(request, 426, "text/plain", "no", 2);
        return;
    }
    bench.held = request;
    http_reply_header(request, "X-Chosen", "echo");
    http_request_on_gone(request, upgrade_on_gone, NULL);
    http_upgrade_start(request, "echo", upgrade_on_data, NULL);
}

static void
handle_whose_token(struct http_request *request, void *arg)
{
    (void)arg;
    const char *owner = http_request_owner(request);
    http_reply(request, 200, "text/plain", owner, strlen(owner));
}

static void
handle_by_secret(struct http_request *request, void *arg)
{
    struct kg_error err;
    if (strcmp(http_request_param(request, "secret"), "right") != 0)
        http_request_refuse_secret(request);
    else if (http_request_set_owner(request, "anna", &err) < 0)
        http_reply_error(request, &err);
    else
        handle_whose_token(request, arg);
}

static const struct http_route upgrade_routes[] = {
    {HTTP_GET, "/by-secret/{secret}", handle_by_secret, HTTP_PUBLIC | HTTP_STARTS_WORK, NULL},
    {HTTP_GET, "/echo-protocol", handle_upgrade, HTTP_PUBLIC, NULL},
    {HTTP_POST, "/echo-protocol", handle_upgrade, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/with-token", handle_whose_token, HTTP_TOKEN_KEY, NULL},
    {HTTP_GET, "/without-token", handle_whose_token, 0, NULL},
};

static int
upgrade_set_up(void **state)
{
    bench_set_up(state);
    http_server_add_routes(bench.server, upgrade_routes, KG_ARRAY_LEN(upgrade_routes), NULL);
    return 0;
}

static int
upgrade_tear_down(void **state)
{
    buf_fini(&received);
    return bench_tear_down(state);
}

static bool
has_received(const char *text)
{
    return received.data && strcmp(received.data, text) == 0;
}

// What is sent with the head belongs to the new protocol already.
static void
test_bytes_both_ways(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_open(&raw);
    raw_send(&raw, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    WAIT(raw_has(&raw, "hello"));
    raw_send(&raw, UPGRADE "GET / HTTP");
    WAIT(raw_has(&raw, "\r\nX-Chosen: echo\r\n") && has_received("GET / HTTP"));
    assert_true(raw_has(&raw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n"
                              "Connection: Upgrade\r\n"));
    assert_false(raw_has(&raw, "Transfer-Encoding"));
    assert_false(raw_has(&raw, "Content-Length: 0"));
    assert_int_equal(http_server_open_requests(bench.server), 0);
    raw_send(&raw, "/1.1\r\n\r\n");
    WAIT(has_received("GET / HTTP/1.1\r\n\r\n"));
    http_stream_write(bench.held, "\x81\x02hi", 4);
    WAIT(raw_has(&raw, "\r\n\r\n\x81\x02hi"));
    assert_int_equal(bench.n_gone, 0);
    http_stream_write(bench.held, "last", 4);
    http_upgrade_end(KG_STEAL(bench.held));
    WAIT(raw.closed);
    assert_true(raw_has(&raw, "hilast"));
    assert_int_equal(bench.n_gone, 0);
}

static void
test_client_of_an_upgrade_leaves(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_open(&raw);
    raw_send(&raw, UPGRADE);
    WAIT(bench.held);
    raw_close(&raw);
    WAIT(bench.n_gone == 1);
    http_stream_write(bench.held, "late", 4);
    assert_int_equal(http_upgrade_read(bench.held, (char[4]){0}, 4), 0);
    http_upgrade_pause(bench.held, true);
    http_upgrade_end(KG_STEAL(bench.held));
    assert_int_equal(http_server_open_requests(bench.server), 0);
}

static void
test_end_with_a_backlog(void **state)
{
    (void)state;
    enum { CHUNK = 64 * 1024 };
    KG_AUTO_FREE char *chunk = kg_calloc(CHUNK, 1);
    KG_AUTO_RAW raw;
    size_t written = 0;
    memset(chunk, 'x', CHUNK);
    raw_open_small(&raw, 4096);
    raw_pause(&raw, true);
    raw_send(&raw, UPGRADE);
    WAIT(bench.held);
    while (http_stream_backlog(bench.held) < 16 * CHUNK) {
        http_stream_write(bench.held, chunk, CHUNK);
        written += CHUNK;
        KG_AUTO_CALL call; // a round trip, in which some of it is sent
        call_path(&call, "GET", "/hello", NULL, NULL);
    }
    http_stream_write(bench.held, "the end", 7);
    assert_int_equal(http_server_open_requests(bench.server), 0);
    http_upgrade_end(KG_STEAL(bench.held));
    assert_int_equal(http_server_open_requests(bench.server), 1);
    raw_pause(&raw, false);
    WAIT(raw.closed);
    assert_int_equal(http_server_open_requests(bench.server), 0);
    assert_true(raw.in.len > written);
    assert_memory_equal(raw.in.data + raw.in.len - 7, "the end", 7);
}

static void
test_server_freed_during_upgrades(void **state)
{
    (void)state;
    KG_AUTO_RAW ending;
    KG_AUTO_RAW open;
    raw_open_small(&ending, 4096);
    raw_pause(&ending, true);
    raw_send(&ending, UPGRADE);
    WAIT(bench.held);
    static char chunk[1 << 20];
    for (int i = 0; i < 16; i++)
        http_stream_write(bench.held, chunk, sizeof chunk);
    http_upgrade_end(KG_STEAL(bench.held));
    raw_open(&open);
    raw_send(&open, UPGRADE);
    WAIT(bench.held);
    http_server_free(KG_STEAL(bench.server));
    assert_int_equal(bench.n_gone, 1);
    http_stream_abort(KG_STEAL(bench.held));
}

static void
test_a_paused_upgrade_reads_nothing(void **state)
{
    (void)state;
    KG_AUTO_RAW raw, other;
    raw_open(&raw);
    raw_open(&other);
    raw_send(&raw, UPGRADE);
    WAIT(bench.held && raw_has(&raw, "\r\n\r\n"));
    http_upgrade_pause(bench.held, true);
    raw_send(&raw, "early");
    for (int i = 1; i <= 5; i++) { // round trips, in which it could be read
        raw_send(&other, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
        WAIT(raw_count(&other, "hello") == i);
    }
    assert_null(received.data);
    http_upgrade_pause(bench.held, false);
    WAIT(has_received("early"));
    http_upgrade_end(KG_STEAL(bench.held));
    WAIT(raw.closed);
}

static void
test_what_is_no_upgrade(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "GET /echo-protocol HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /echo-protocol HTTP/1.1\r\nHost: localhost\r\nUpgrade: echo\r\n\r\n",
        "GET /echo-protocol HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\r\n",
        "GET /echo-protocol HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        "Upgrade: echoes\r\n\r\n",
        "GET /echo-protocol HTTP/1.0\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        "Upgrade: echo\r\n\r\n",
        "POST /echo-protocol HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        "Upgrade: echo\r\nContent-Length: 0\r\n\r\n",
        "GET /echo-protocol HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        "Upgrade: echo\r\nContent-Length: 1\r\n\r\nx",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(requests); i++) {
        KG_AUTO_RAW raw;
        raw_open(&raw);
        raw_send(&raw, requests[i]);
        WAIT(raw_has(&raw, "\r\n\r\n"));
        if (!raw_has(&raw, "HTTP/1.1 426 ") && !raw_has(&raw, "HTTP/1.0 426 "))
            fail_msg("%s: %s", requests[i], raw.in.data);
        assert_null(bench.held);
    }
}

#define BY_SECRET(secret) GET("/by-secret/" secret)

// It is an owner's request like one with a key; a wrong one is slowed like a wrong key.
static void
test_another_secret_than_a_key(void **state)
{
    (void)state;
    KG_AUTO_RAW guess;
    KG_AUTO_RAW raw;
    raw_open(&guess);
    raw_open(&raw);
    bench_add_key("anna", "k-1");
    raw_send(&raw, BY_SECRET("right"));
    WAIT(raw_has(&raw, "HTTP/1.1 200 ") && raw_has(&raw, "anna"));
    for (int i = 1; i <= 10; i++) {
        raw_send(&guess, BY_SECRET("wrong"));
        WAIT(raw_count(&guess, "HTTP/1.1 401 ") == i);
    }
    int64_t before_ms = clock_mono_ms();
    raw_send(&guess, BY_SECRET("wrong"));
    PASS_TIME_UNTIL(&bench, raw_count(&guess, "HTTP/1.1 401 ") == 11);
    assert_int_equal(clock_mono_ms() - before_ms, 100);
    raw_send(&guess, BY_SECRET("right"));
    WAIT(raw_has(&guess, "HTTP/1.1 200 "));
    bench.authenticator.quota.max_connections = 1;
    raw_send(&raw, BY_SECRET("right"));
    WAIT(raw_has(&raw, "HTTP/1.1 429 "));
    bench.authenticator.quota.max_connections = 0;
    http_server_drain(bench.server);
    raw_send(&guess, BY_SECRET("right"));
    WAIT(raw_has(&guess, "HTTP/1.1 503 "));
}

struct token_case {
    const char *path;
    const char *header;
    int status;
};

static void
test_tokens(void **state)
{
    (void)state;
    static const struct token_case cases[] = {
        {"/with-token", "Authorization: token k-1", 200},
        {"/with-token", "Authorization: Token  k-1", 200},
        {"/with-token", "Authorization: Bearer k-1", 200},
        {"/with-token", "X-API-Key: k-1", 200},
        {"/with-token?token=k-1", NULL, 200},
        {"/with-token?token=k-1", "Authorization: token ", 200},
        {"/with-token?token=wrong", "Authorization: token k-1", 200},
        {"/with-token?token=k-1", "Authorization: token wrong", 401},
        {"/with-token?token=", NULL, 401},
        {"/with-token?token=wrong", NULL, 401},
        {"/with-token", "Authorization: token ", 401},
        {"/with-token", "Authorization: token", 401},
        {"/with-token", "Authorization: tokenk-1", 401},
        {"/with-token", "Authorization: Basic k-1", 401},
        {"/with-token?api_key=k-1", NULL, 401},
        {"/without-token", "Authorization: token k-1", 401},
        {"/without-token?token=k-1", NULL, 401},
        {"/without-token", "Authorization: Bearer k-1", 200},
    };
    bench_add_key("anna", "k-1");
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_CALL call;
        const char *const headers[] = {cases[i].header, NULL};
        call_path(&call, "GET", cases[i].path, NULL, cases[i].header ? headers : NULL);
        if (call.status != cases[i].status)
            fail_msg("%s %s: %d", cases[i].path, cases[i].header, call.status);
        if (call.status == 200)
            assert_string_equal(call.body.data, "anna");
    }
}

// ---- Credentials that are checked again -----------------------------------------------------

static enum http_validity checked_as;
static int n_rechecked;

static void
on_rechecked(enum http_validity validity, void *arg)
{
    (void)arg;
    checked_as = validity;
    n_rechecked++;
}

static struct http_credential *
credential_of(const char *path, const char *header)
{
    KG_AUTO_RAW raw;
    KG_AUTO_FREE char *head =
        kg_asprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", path, header);
    raw_ask(&raw, head);
    WAIT(bench.held);
    struct http_request *request = KG_STEAL(bench.held);
    struct http_credential *credential = http_credential_new(request, on_rechecked, NULL);
    http_reply(request, 200, "text/plain", "", 0);
    WAIT(raw_has(&raw, "HTTP/1.1 200 "));
    return credential;
}

static void
test_a_credential_is_checked_again(void **state)
{
    (void)state;
    struct test_authenticator *authenticator = &bench.authenticator;
    assert_null(credential_of("/hold", "X-API-Key: k-1")); // no authenticator
    bench_add_key("anna", "k-1");
    assert_null(credential_of("/hold", "X-API-Key: wrong"));
    assert_null(credential_of("/hold", "X-Other: k-1"));
    struct http_credential *credential = credential_of("/hold-private", "X-API-Key: k-1");
    assert_int_equal(http_credential_check(credential), HTTP_VALID);
    authenticator->owners[0] = "bert";
    assert_int_equal(http_credential_check(credential), HTTP_INVALID);
    authenticator->owners[0] = "anna";
    authenticator->slow = true;
    n_rechecked = 0;
    assert_int_equal(http_credential_check(credential), HTTP_UNKNOWN);
    assert_int_equal(http_credential_check(credential), HTTP_UNKNOWN);
    assert_int_equal(authenticator->n_pending, 1);
    bench_answer_check();
    assert_true(n_rechecked == 1 && checked_as == HTTP_VALID);
    authenticator->keys[0] = "another";
    assert_int_equal(http_credential_check(credential), HTTP_UNKNOWN);
    bench_answer_check();
    assert_true(n_rechecked == 2 && checked_as == HTTP_INVALID);
    assert_int_equal(http_credential_check(credential), HTTP_UNKNOWN);
    int n_cancelled = authenticator->n_cancelled;
    http_credential_free(credential);
    assert_int_equal(authenticator->n_cancelled, n_cancelled + 1);
}

// ---- Forwarded requests ---------------------------------------------------------------------

static char *forwarded; // the head

static bool
forward_some(struct http_request *request, void *arg)
{
    (void)arg;
    if (!http_request_header(request, "X-Elsewhere"))
        return false;
    bench.held = request;
    const char *upgrade = http_request_header(request, "Upgrade");
    const struct http_tunnel_rule rule = {
        .extra = "X-From: here",
        .upgrade = upgrade && http_upgrade_is_asked(request, upgrade) ? upgrade : NULL};
    forwarded = http_tunnel_head(request, &rule);
    return true;
}

static void
tunnel_on_data(void *arg)
{
    char data[16];
    (void)arg;
    while (http_upgrade_read(bench.held, data, sizeof data) > 0)
        ;
}

static void
test_a_forwarded_request(void **state)
{
    (void)state;
    char body[8] = {0};
    KG_AUTO_RAW raw;
    http_server_set_forward(bench.server, forward_some, NULL);
    round_trip(); // one that is not forwarded
    raw_ask(&raw, "POST /echo-protocol?a=%20 HTTP/1.1\r\nHost: localhost\r\nX-Elsewhere: 1\r\n"
                  "Connection: keep-alive\r\nContent-Length: 4\r\n\r\nbody");
    WAIT(bench.held);
    assert_string_equal(forwarded, "POST /echo-protocol?a=%20 HTTP/1.1\r\nHost: localhost\r\n"
                                   "X-Elsewhere: 1\r\nConnection: close\r\n"
                                   "Content-Length: 4\r\nX-From: here\r\n\r\n");
    assert_int_equal(http_request_body_read(bench.held, body, sizeof body), 4);
    assert_string_equal(body, "body");
    http_request_on_gone(bench.held, upgrade_on_gone, NULL);
    http_tunnel_start(bench.held, 200, tunnel_on_data, NULL);
    assert_int_equal(http_server_open_requests(bench.server), 1);
    http_stream_write(bench.held, "HTTP/1.1 200 OK\r\n\r\nas it is", 27);
    WAIT(raw_has(&raw, "\r\n\r\nas it is"));
    raw_send(&raw, GET("/hello")); // is dropped: the connection ends with the answer
    http_upgrade_end(KG_STEAL(bench.held));
    WAIT(raw.closed);
    assert_int_equal(raw_count(&raw, "HTTP/1.1"), 1);
    assert_int_equal(http_server_open_requests(bench.server), 0);
    assert_int_equal(bench.n_gone, 0);
    free(KG_STEAL(forwarded));
}

static void
test_a_forwarded_head_has_no_body(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    http_server_set_forward(bench.server, forward_some, NULL);
    raw_ask(&raw, "HEAD /echo-protocol HTTP/1.1\r\nHost: localhost\r\nX-Elsewhere: 1\r\n\r\n");
    WAIT(bench.held);
    assert_non_null(strstr(forwarded, "HEAD /echo-protocol HTTP/1.1\r\n"));
    assert_null(strstr(forwarded, "Content-Length"));
    http_tunnel_start(bench.held, 200, tunnel_on_data, NULL);
    http_stream_write(bench.held, "HTTP/1.1 200 OK\r\n\r\n", 19);
    http_upgrade_end(KG_STEAL(bench.held));
    WAIT(raw.closed);
    assert_true(raw_has(&raw, "HTTP/1.1 200 OK\r\n\r\n"));
    free(KG_STEAL(forwarded));
}

static void
test_the_client_of_a_forwarded_request_leaves(void **state)
{
    (void)state;
    struct raw raw;
    http_server_set_forward(bench.server, forward_some, NULL);
    raw_ask(&raw, "GET /echo-protocol HTTP/1.1\r\nHost: localhost\r\nX-Elsewhere: 1\r\n"
                  "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    WAIT(bench.held);
    assert_non_null(strstr(forwarded, "\r\nUpgrade: echo\r\nConnection: Upgrade\r\n"));
    http_request_on_gone(bench.held, upgrade_on_gone, NULL);
    http_tunnel_start(bench.held, 101, tunnel_on_data, NULL);
    raw_close(&raw);
    WAIT(bench.n_gone == 1);
    http_request_abandon(KG_STEAL(bench.held));
    assert_int_equal(http_server_open_requests(bench.server), 0);
    free(KG_STEAL(forwarded));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, upgrade_set_up, upgrade_tear_down)

const struct CMUnitTest http_upgrade_tests[] = {
    TEST(test_a_forwarded_request),
    TEST(test_a_forwarded_head_has_no_body),
    TEST(test_the_client_of_a_forwarded_request_leaves),
    TEST(test_bytes_both_ways),
    TEST(test_client_of_an_upgrade_leaves),
    TEST(test_end_with_a_backlog),
    TEST(test_server_freed_during_upgrades),
    TEST(test_a_paused_upgrade_reads_nothing),
    TEST(test_another_secret_than_a_key),
    TEST(test_what_is_no_upgrade),
    TEST(test_tokens),
    TEST(test_a_credential_is_checked_again),
};
const size_t n_http_upgrade_tests = KG_ARRAY_LEN(http_upgrade_tests);
