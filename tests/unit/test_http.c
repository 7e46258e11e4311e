// SPDX-License-Identifier: Apache-2.0
// The HTTP server: routing, authentication, errors, bodies, limits, connections.

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "http_priv.h"
#include "test_http_util.h"
#include "virtual_clock.h"

static void
assert_problem(const struct call *call, int status, const char *code)
{
    assert_int_equal(call->status, status);
    json_auto_t *problem = json_loadb(call->body.data, call->body.len, 0, NULL);
    assert_non_null(problem);
    assert_string_equal(json_string_value(json_object_get(problem, "code")), code);
    assert_int_equal(json_integer_value(json_object_get(problem, "status")), status);
    assert_true(json_is_string(json_object_get(problem, "type")));
    assert_true(json_is_string(json_object_get(problem, "title")));
    assert_true(json_is_string(json_object_get(problem, "detail")));
}

static const char *
field(const struct call *call, const char *name)
{
    static char value[256];
    json_auto_t *object = json_loadb(call->body.data, call->body.len, 0, NULL);
    const char *s = json_string_value(json_object_get(object, name));
    snprintf(value, sizeof value, "%s", s ? s : "(none)");
    return value;
}

// ---- Routes ---------------------------------------------------------------------------------

// Only an installation of several gateways would look the parameter up.
static void
test_a_route_cannot_concern_a_parameter_that_it_lacks(void **state)
{
    (void)state;
    static const struct http_concern concerns[] = {
        {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_PATH, .name = "id"}, {0}};
    static const struct http_route good[] = {
        {HTTP_GET, "/things/{id}", NULL, 0, concerns},
        {HTTP_GET, "/more/{id...}", NULL, 0, concerns},
    };
    static const struct http_route bad = {HTTP_GET, "/things/{name}", NULL, 0, concerns};
    http_server_add_routes(bench.server, good, KG_ARRAY_LEN(good), NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        signal(SIGABRT, SIG_DFL); // not cmocka's
        http_server_add_routes(bench.server, &bad, 1, NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void
test_routes_and_params(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *name;
        const char *rest;
    } good[] = {
        {"/show/a", "a", NULL},
        {"/show/a/", "a", NULL},
        {"/show/a%20b%2Fc+d", "a b/c+d", NULL},
        {"/show/%E2%82%AC", "\xe2\x82\xac", NULL},
        {"/files/s/x/y%20z", "s", "x/y z"},
        {"/files/s/", "s", ""},
        {"/files/s/a//b/", "s", "a//b/"},
        {"/files/s/..%2f..", "s", "../.."},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        KG_AUTO_CALL call;
        call_path(&call, "GET", good[i].path, NULL, NULL);
        assert_int_equal(call.status, 200);
        assert_string_equal(field(&call, "name"), good[i].name);
        if (good[i].rest)
            assert_string_equal(field(&call, "rest"), good[i].rest);
    }
    static const char *const unknown[] = {"/nope",    "/show",    "/show/", "/show/a/b",
                                          "/files/s", "/hello//", "//",     "/files//x"};
    for (size_t i = 0; i < KG_ARRAY_LEN(unknown); i++) {
        KG_AUTO_CALL call;
        call_path(&call, "GET", unknown[i], NULL, NULL);
        assert_problem(&call, 404, "not_found");
    }
    static const char *const bad[] = {"/show/%00",     "/show/%zz",       "/show/%4",
                                      "/show/%ff",     "/show/%ed%a0%80", "/show/%c0%80",
                                      "/show/a?q=%00", "/show/a?q=%ff"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        KG_AUTO_CALL call;
        call_path(&call, "GET", bad[i], NULL, NULL);
        assert_problem(&call, 400, "invalid_request");
    }
}

static void
test_query(void **state)
{
    (void)state;
    static const struct {
        const char *query;
        const char *q;
    } cases[] = {
        {"?q=1", "1"},    {"?a=b&q=x+y%26z", "x y&z"}, {"?q", ""},
        {"?q=&q=2", ""},  {"?aq=1", "(none)"},         {"?", "(none)"},
        {"?&&q=3&", "3"}, {"?%71=4=5", "4=5"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_CALL call;
        KG_AUTO_FREE char *path = kg_asprintf("/show/n%s", cases[i].query);
        call_path(&call, "GET", path, NULL, NULL);
        assert_string_equal(field(&call, "q"), cases[i].q);
        assert_string_equal(field(&call, "name"), "n");
    }
}

static void
test_methods(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_exchange(&raw, "PUT /show/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_true(raw_has(&raw, "HTTP/1.1 405 "));
    assert_true(raw_has(&raw, "\r\nAllow: GET, HEAD, DELETE, OPTIONS\r\n"));
    assert_true(raw_has(&raw, "\"code\":\"method_not_allowed\""));
    KG_AUTO_RAW options;
    raw_exchange(&options,
                 "OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_true(raw_has(&options, "HTTP/1.1 204 "));
    assert_true(raw_has(&options, "\r\nAllow: POST, OPTIONS\r\n"));
    assert_false(raw_has(&options, "Access-Control"));
    KG_AUTO_RAW unknown;
    raw_exchange(&unknown, "BREW /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_true(raw_has(&unknown, "HTTP/1.1 405 "));
}

static void
test_head(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_exchange(&raw, "HEAD /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_true(raw_has(&raw, "HTTP/1.1 200 "));
    assert_true(raw_has(&raw, "\r\nContent-Length: 5\r\n"));
    assert_true(raw_has(&raw, "\r\nX-Request-Id: "));
    assert_true(raw_has(&raw, "\r\nX-Content-Type-Options: nosniff\r\n"));
    assert_false(raw_has(&raw, "hello"));
}

static void
test_draining(void **state)
{
    (void)state;
    static const char *const local[] = {NULL};
    assert_false(http_server_is_draining(bench.server));
    http_server_drain(bench.server);
    assert_true(http_server_is_draining(bench.server));
    KG_AUTO_RAW raw;
    raw_exchange(&raw, "POST /work HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_true(raw_has(&raw, "HTTP/1.1 503 "));
    assert_true(raw_has(&raw, "\r\nRetry-After: 1\r\n"));
    assert_true(raw_has(&raw, "\r\nContent-Type: application/problem+json\r\n"));
    assert_true(raw_has(&raw, "\"code\":\"draining\""));
    assert_int_equal(bench.n_handled, 0);

    // Requests that start no work are still answered.
    KG_AUTO_CALL call;
    call_path(&call, "GET", "/show/x", NULL, local);
    assert_int_equal(call.status, 200);
}

static void
test_message_cut_in_a_character(void **state)
{
    (void)state;
    KG_AUTO_CALL call;
    call_path(&call, "GET", "/busy", NULL, NULL);
    assert_problem(&call, 429, "session_busy");
    assert_string_equal(field(&call, "detail"), "cut in a character: ");
}

#define SHOW_AS(key) "GET /show/x HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " key "\r\n\r\n"

// ---- Keys -----------------------------------------------------------------------------------

static void
test_authentication(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    bench_add_key("bob", "kb");
    static const struct {
        const char *method;
        const char *path;
        const char *header;
        const char *owner; // NULL: 401
        const char *detail;
    } cases[] = {
        {"GET", "/show/x", "Authorization: Bearer ka", "alice", NULL},
        {"GET", "/show/x", "authorization: bearer kb", "bob", NULL},
        {"GET", "/show/x", "X-API-Key: kb", "bob", NULL},
        {"GET", "/show/x?api_key=ka", "X: y", "alice", NULL},
        {"GET", "/show/x", "X: y", NULL, "API key required"},
        {"GET", "/show/x", "Authorization: Basic a2E=", NULL, "API key required"},
        {"GET", "/show/x", "X-API-Key: kaa", NULL, "Invalid API key"},
        {"GET", "/show/x", "X-API-Key: ", NULL, "API key required"},
        {"GET", "/show/x?api_key=ka", "X-API-Key: ", "alice", NULL},
        {"GET", "/show/x?api_key=nope", "X: y", NULL, "Invalid API key"},
        {"DELETE", "/show/x?api_key=ka", "X: y", NULL, "API key required"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_CALL call;
        call_path(&call, cases[i].method, cases[i].path, NULL,
                  (const char *const[]){cases[i].header, NULL});
        if (cases[i].owner) {
            assert_int_equal(call.status, 200);
            assert_string_equal(field(&call, "owner"), cases[i].owner);
        } else {
            assert_problem(&call, 401, "unauthorized");
            assert_string_equal(field(&call, "detail"), cases[i].detail);
        }
    }
    round_trip();
    KG_AUTO_RAW raw;
    raw_exchange(&raw, "GET /show/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_true(raw_has(&raw, "\r\nWWW-Authenticate: Bearer\r\n"));
}

// The cookie of a login, which counts where no key was sent.
static void
test_cookies(void **state)
{
    (void)state;
    char token[HTTP_CSRF_TOKEN_LEN + 1], others[HTTP_CSRF_TOKEN_LEN + 1];
    bench_add_key("alice", "ka");
    bench_add_key("bob", "kb");
    http_csrf_token("ka", token);
    http_csrf_token("kb", others);
    assert_string_not_equal(token, others);
    KG_AUTO_FREE char *right = kg_asprintf("X-CSRF-Token: %s", token);
    KG_AUTO_FREE char *wrong = kg_asprintf("X-CSRF-Token: %s", others);
    const struct {
        const char *method;
        const char *cookie;
        const char *header;
        int status;
        const char *code_or_owner;
    } cases[] = {
        {"GET", "kernelgate_login=ka", NULL, 200, "alice"},
        {"GET", "a=b; kernelgate_login=ka; c=d", NULL, 200, "alice"},
        {"GET", "a=b;kernelgate_login=ka", NULL, 200, "alice"},
        {"GET", "kernelgate_login=ka", "X-API-Key: kb", 200, "bob"},
        {"GET", "kernelgate_login=kc", NULL, 401, "unauthorized"},
        {"GET", "kernelgate_login=", NULL, 401, "unauthorized"},
        {"GET", "kernelgate_login=ka", "X-API-Key: ", 200, "alice"},
        {"GET", "kernelgate_login=ka; kernelgate_login=ka", NULL, 401, "unauthorized"},
        {"GET", "kernelgate_login=kb; kernelgate_login=ka", NULL, 401, "unauthorized"},
        {"GET", "kernelgate_login=ka", "X-Forwarded-Proto: https", 401, "unauthorized"},
        {"GET", "kernelgate_login=kb; __Host-kernelgate_login=ka", "X-Forwarded-Proto: https", 200,
         "alice"},
        {"GET", "__Host-kernelgate_login=ka", "X-Forwarded-Proto: HTTPS, http", 200, "alice"},
        {"GET", "__Host-kernelgate_login=ka", "X-Forwarded-Proto: http, https", 401,
         "unauthorized"},
        {"GET", "__Host-kernelgate_login=ka", NULL, 401, "unauthorized"},
        {"GET", "xkernelgate_login=ka", NULL, 401, "unauthorized"},
        {"GET", "kernelgate_loginx=ka", NULL, 401, "unauthorized"},
        {"DELETE", "kernelgate_login=ka", NULL, 403, "csrf_token_required"},
        {"DELETE", "kernelgate_login=ka", wrong, 403, "csrf_token_required"},
        {"DELETE", "kernelgate_login=ka", "X-CSRF-Token: ", 403, "csrf_token_required"},
        {"DELETE", "kernelgate_login=ka", right, 200, "alice"},
        {"DELETE", "kernelgate_login=ka", "X-API-Key: kb", 200, "bob"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_CALL call;
        KG_AUTO_FREE char *cookie = kg_asprintf("Cookie: %s", cases[i].cookie);
        call_path(&call, cases[i].method, "/show/x", NULL,
                  (const char *const[]){cookie, cases[i].header, NULL});
        assert_int_equal(call.status, cases[i].status);
        assert_string_equal(field(&call, call.status == 200 ? "owner" : "code"),
                            cases[i].code_or_owner);
    }
}

static void
test_without_a_key_no_body_is_read(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    struct http_server_settings settings = bench_settings();
    settings.head_timeout_s = 1;
    bench_restart_server(&settings);
    // These are refused by their heads. The body is never sent, and there is no 100.
    static const struct {
        const char *head;
        const char *expect;
    } cases[] = {
        {"PUT /private HTTP/1.1\r\nContent-Length: 70000\r\n", "HTTP/1.1 401 "},
        {"PUT /private HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", "HTTP/1.1 401 "},
        {"PUT /private HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n", "HTTP/1.1 401 "},
        {"PUT /private HTTP/1.1\r\nContent-Length: 70000\r\nX-API-Key: kb\r\n", "HTTP/1.1 401 "},
        {"PUT /private HTTP/1.1\r\nX-API-Key: ka\r\nContent-Length: 999999999\r\n",
         "HTTP/1.1 413 "},
        {"PUT /private HTTP/1.1\r\nX-API-Key: ka\r\nContent-Length: 99999999999999999999999\r\n",
         "HTTP/1.1 413 "},
        {"POST /nothing HTTP/1.1\r\nContent-Length: 70000\r\n", "HTTP/1.1 404 "},
        {"PUT /large HTTP/1.1\r\nContent-Length: 70000\r\n", "HTTP/1.1 413 "}, // public
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_RAW raw;
        KG_AUTO_FREE char *head = kg_asprintf("%sHost: localhost\r\n\r\n", cases[i].head);
        raw_exchange(&raw, head);
        assert_true(raw_has(&raw, cases[i].expect));
        assert_true(raw_has(&raw, "\r\nConnection: close\r\n"));
        assert_true(raw_has(&raw, "\r\nContent-Type: application/problem+json\r\n"));
        assert_false(raw_has(&raw, " 100 "));
    }
    // A small body is read, but it must be complete within the head timeout.
    KG_AUTO_RAW small;
    raw_ask(&small, "PUT /private HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nping");
    WAIT(raw_has(&small, "HTTP/1.1 401 "));
    assert_false(small.closed);
    KG_AUTO_RAW slow;
    raw_ask(&slow, "PUT /private HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\npin");
    PASS_TIME_UNTIL(&bench, slow.closed);
    assert_int_equal(slow.in.len, 0);
    // With a key there is more time, and a 100.
    KG_AUTO_RAW keyed;
    raw_ask(&keyed, "PUT /private HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ka\r\n"
                    "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    WAIT(raw_has(&keyed, "HTTP/1.1 100 Continue\r\n"));
    KG_AUTO_RAW late;
    raw_ask(&late, "GET /hello HTTP/1.1\r\nHost: localh");
    PASS_TIME_UNTIL(&bench, late.closed);
    raw_send(&keyed, "ping");
    WAIT(raw_has(&keyed, "HTTP/1.1 200 "));
}

struct drip {
    struct raw raw;
    struct loop_timer *timer;
    int n_sent;
};

static void
on_drip(void *arg)
{
    struct drip *drip = arg;
    drip->n_sent += send(drip->raw.fd, "x", 1, MSG_NOSIGNAL) == 1;
    loop_timer_start(drip->timer, 200);
}

// Bytes that keep coming move no deadline.
static void
test_a_head_that_drips_is_cut(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.head_timeout_s = 1;
    bench_restart_server(&settings);
    struct drip drip = {0};
    drip.timer = loop_timer_new(bench.loop, on_drip, &drip);
    raw_ask(&drip.raw, "GET /hello HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    on_drip(&drip);
    PASS_TIME_UNTIL(&bench, drip.raw.closed);
    loop_timer_free(drip.timer);
    assert_in_range(drip.n_sent, 5, 6); // in a second
    assert_int_equal(drip.raw.in.len, 0);
    raw_close(&drip.raw);
}

// A body that comes after its refusal is read and dropped, so that no reset destroys the answer.
static void
test_a_refusal_arrives_although_the_body_comes(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    KG_AUTO_FREE char *body = repeated('x', 512 << 10);
    KG_AUTO_RAW raw;
    raw_open(&raw);
    raw_pause(&raw, true);
    raw_send(&raw, "PUT /private HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8388608\r\n\r\n");
    for (int i = 0; i < 16; i++)
        raw_send(&raw, body); // fails after a reset
    raw_pause(&raw, false);
    WAIT(raw.closed);
    assert_true(raw_has(&raw, "HTTP/1.1 401 "));
    assert_true(raw_has(&raw, "API key required"));
}

static void
test_wrong_keys_are_slowed(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    static const char guess[] = SHOW_AS("kb");
    KG_AUTO_RAW raw;
    raw_open(&raw);
    for (int i = 1; i <= 10; i++) {
        raw_send(&raw, guess);
        WAIT(raw_count(&raw, "HTTP/1.1 401 ") == i);
    }
    int64_t before_ms = clock_mono_ms();
    for (int i = 11; i <= 13; i++) {
        raw_send(&raw, guess);
        PASS_TIME_UNTIL(&bench, raw_count(&raw, "HTTP/1.1 401 ") == i);
    }
    assert_int_equal(clock_mono_ms() - before_ms, 3 * 100);
    // Meanwhile other requests are answered, and a client may disconnect.
    KG_AUTO_RAW leaving;
    raw_ask(&leaving, guess);
    raw_send(&raw, guess);
    WAIT(http_server_open_requests(bench.server) == 2);
    raw_close(&leaving);
    KG_AUTO_CALL good;
    call_path(&good, "GET", "/show/x", NULL, (const char *const[]){"X-API-Key: ka", NULL});
    assert_int_equal(good.status, 200);
    WAIT(raw_count(&raw, "HTTP/1.1 401 ") == 14);
    WAIT(http_server_open_requests(bench.server) == 0);
}

// A request waits until its owner is known. Other requests do not wait.
static void
test_a_check_may_take_its_time(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    bench.authenticator.slow = true;
    KG_AUTO_RAW raw;
    raw_ask(&raw, "PUT /private HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ka\r\n"
                  "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    WAIT(bench.authenticator.n_pending == 1);
    KG_AUTO_RAW guess;
    raw_ask(&guess, SHOW_AS("kb"));
    WAIT(bench.authenticator.n_pending == 2);
    round_trip();
    assert_int_equal(raw.in.len + guess.in.len, 0);
    bench_answer_check();
    WAIT(raw_has(&raw, "HTTP/1.1 100 Continue\r\n"));
    // The next request on the connection is checked again, and only after this one is answered.
    raw_send(&raw, "pingGET /show/x HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ka\r\n\r\n");
    WAIT(raw_has(&raw, "HTTP/1.1 200 "));
    WAIT(bench.authenticator.n_pending == 2);
    bench_answer_check();
    WAIT(raw_has(&guess, "HTTP/1.1 401 "));
    assert_true(raw_has(&guess, "Invalid API key"));
    assert_int_equal(raw_count(&raw, "HTTP/1.1 200 "), 1);
    bench_answer_check();
    WAIT(raw_count(&raw, "HTTP/1.1 200 ") == 2);
    assert_true(raw_has(&raw, "\"owner\":\"alice\""));
    assert_int_equal(bench.authenticator.n_checks, 3);
}

static void
test_a_check_ends_with_its_connection(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    bench.authenticator.slow = true;
    static const char show[] = SHOW_AS("ka");
    struct http_server_settings settings = bench_settings();
    settings.head_timeout_s = 1;
    bench_restart_server(&settings);
    KG_AUTO_RAW late;
    raw_ask(&late, show);
    PASS_TIME_UNTIL(&bench, late.closed); // after the head timeout
    assert_int_equal(late.in.len, 0);
    assert_int_equal(bench.authenticator.n_cancelled, 1);
    KG_AUTO_RAW open;
    raw_ask(&open, show);
    WAIT(bench.authenticator.n_pending == 1);
    bench_restart_server(&settings);
    assert_int_equal(bench.authenticator.n_cancelled, 2);
    assert_int_equal(bench.authenticator.n_pending, 0);
}

// Revoking a key does not affect a request that was sent with it.
static void
test_a_request_outlives_its_key(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    static const char hold[] =
        "GET /hold-private HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ka\r\n\r\n";
    KG_AUTO_RAW raw;
    raw_ask(&raw, hold);
    WAIT(bench.held);
    bench.authenticator.keys[0] = "another";
    bench.authenticator.owners[0] = "bob";
    KG_AUTO_CALL refused;
    call_path(&refused, "GET", "/show/x", NULL, (const char *const[]){"X-API-Key: ka", NULL});
    assert_problem(&refused, 401, "unauthorized");
    struct http_request *held = KG_STEAL(bench.held);
    assert_string_equal(http_request_owner(held), "alice");
    http_reply(held, 200, NULL, NULL, 0);
    WAIT(raw_has(&raw, "HTTP/1.1 200 "));
    raw_send(&raw, hold);
    WAIT(raw_has(&raw, "HTTP/1.1 401 "));
}

static struct http_peer *
take_peer(struct http_peers *peers, uint32_t address)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    struct http_peer *peer = peer_take(peers, (const struct sockaddr *)(const void *)&from, false);
    assert_non_null(peer);
    return peer;
}

static void
test_guessers_are_forgotten(void **state)
{
    (void)state;
    enum { FIRST = 0x08080000, MANY = 3000, REMEMBERED = 1024, MINUTE_MS = 60000 };
    struct http_peers peers = {0};
    peers_init(&peers, 0);
    int64_t now_ms = 1000000;
    for (uint32_t i = 0; i < MANY; i++) {
        struct http_peer *peer = take_peer(&peers, FIRST + i);
        assert_false(peer_failed(peer, now_ms));
        peer_leave(&peers, peer, false, now_ms);
    }
    assert_int_equal(peers.n_remembered, REMEMBERED);
    // An address that connects again within the minute keeps its count.
    for (int i = 2; i <= 12; i++) {
        struct http_peer *peer = take_peer(&peers, FIRST + MANY - 1);
        assert_int_equal(peer_failed(peer, now_ms + MINUTE_MS - 1), i > 10);
        peer_leave(&peers, peer, false, now_ms + MINUTE_MS - 1);
    }
    peer_leave(&peers, take_peer(&peers, 1), false, now_ms + MINUTE_MS);
    assert_int_equal(peers.n_remembered, 0);
    peers_fini(&peers);
}

// The address 2001:db8:0:<net>::<host>.
static struct http_peer *
take_peer6(struct http_peers *peers, uint16_t net, uint16_t host)
{
    struct sockaddr_in6 from = {.sin6_family = AF_INET6};
    const unsigned char address[16] = {0x20,
                                       0x01,
                                       0x0d,
                                       0xb8,
                                       0,
                                       0,
                                       (unsigned char)(net >> 8),
                                       (unsigned char)net,
                                       [14] = (unsigned char)(host >> 8),
                                       (unsigned char)host};
    memcpy(&from.sin6_addr, address, sizeof address);
    return peer_take(peers, (const struct sockaddr *)(const void *)&from, false);
}

// How many of 1,024 strangers get in whose addresses differ by `net_step` and `host_step`.
static int
count_strangers(uint16_t net_step, uint16_t host_step)
{
    enum { MANY = 1024 };
    struct http_peers peers = {0};
    struct http_peer *in[MANY];
    int n = 0;
    peers_init(&peers, 0);
    for (uint16_t i = 0; i < MANY; i++) {
        in[n] = take_peer6(&peers, (uint16_t)(i * net_step), (uint16_t)(i * host_step));
        n += in[n] != NULL;
    }
    for (int i = 0; i < n; i++)
        peer_leave(&peers, in[i], false, 1000);
    for (size_t i = 0; i < KG_ARRAY_LEN(peers.slots); i++)
        assert_true(LIST_EMPTY(&peers.slots[i]));
    peers_fini(&peers);
    return n;
}

static void
test_networks_of_one_client(void **state)
{
    (void)state;
    assert_int_equal(count_strangers(0, 1), 64);   // one /64
    assert_int_equal(count_strangers(0, 0), 64);   // one address
    assert_int_equal(count_strangers(1, 0), 256);  // four /56 in one /48
    assert_int_equal(count_strangers(64, 0), 256); // all /56 in one /48
    struct http_peers peers = {0};
    peers_init(&peers, 0);
    // Wrong keys of one /56, each from another /64.
    for (uint16_t i = 0; i < 21; i++) {
        struct http_peer *peer = take_peer6(&peers, i, 0);
        assert_int_equal(peer_failed(peer, 1000), i == 20);
        peer_leave(&peers, peer, false, 1000);
    }
    peer_leave(&peers, take_peer6(&peers, 0x300, 0), false, 70000);
    peers_fini(&peers);
}

// ---- Quotas ---------------------------------------------------------------------------------

// Sends a request on an open connection; returns the status of its answer.
static int
ask_on(struct raw *raw, const char *text)
{
    buf_consume(&raw->in, raw->in.len);
    raw_send(raw, text);
    WAIT(raw_has(raw, "}"));
    return atoi(raw->in.data + strlen("HTTP/1.1 "));
}

static void
test_an_owner_has_a_share_of_the_connections(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    bench_add_key("bob", "kb");
    bench.authenticator.quota.max_connections = 2;
    KG_AUTO_RAW first, second, third, other;
    raw_open(&first);
    raw_open(&second);
    raw_open(&third);
    raw_open(&other);
    for (int i = 0; i < 3; i++) // a connection counts once
        assert_int_equal(ask_on(&first, SHOW_AS("ka")), 200);
    assert_int_equal(ask_on(&second, SHOW_AS("ka")), 200);
    assert_int_equal(ask_on(&third, SHOW_AS("ka")), 429);
    assert_true(raw_has(&third, "\"code\":\"rate_limited\""));
    WAIT(third.closed);
    assert_int_equal(ask_on(&other, SHOW_AS("kb")), 200);
    // A connection that carries a request of another owner counts for that owner, as with a proxy.
    assert_int_equal(ask_on(&first, SHOW_AS("kb")), 200);
    KG_AUTO_RAW fourth, fifth;
    raw_open(&fourth);
    assert_int_equal(ask_on(&fourth, SHOW_AS("ka")), 200);
    raw_open(&fifth);
    assert_int_equal(ask_on(&fifth, SHOW_AS("ka")), 429);
    // Nor is a body read.
    KG_AUTO_RAW large;
    raw_exchange(&large, "PUT /private HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ka\r\n"
                         "Content-Length: 100000\r\n\r\n");
    assert_true(raw_has(&large, "HTTP/1.1 429 "));
    assert_int_equal(raw_count(&large, "Connection: close"), 1);
    raw_close(&second);
    for (int status = 429; status != 200;) { // until the server has noticed
        KG_AUTO_RAW next;
        raw_open(&next);
        status = ask_on(&next, SHOW_AS("ka"));
    }
}

static void
test_requests_a_second(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    bench_add_key("bob", "kb");
    bench.authenticator.quota.requests_per_second = 0.001;
    KG_AUTO_RAW alice, bob;
    raw_open(&alice);
    raw_open(&bob);
    assert_int_equal(ask_on(&alice, SHOW_AS("ka")), 200);
    assert_int_equal(ask_on(&alice, SHOW_AS("ka")), 429);
    assert_true(raw_has(&alice, "\r\nRetry-After: 1\r\n"));
    assert_int_equal(ask_on(&bob, SHOW_AS("kb")), 200);
    KG_AUTO_CALL open;
    call_path(&open, "GET", "/hello", NULL, (const char *const[]){"X-API-Key: ka", NULL});
    assert_int_equal(open.status, 200);
    // Requests that a handler counts by itself use the same quota.
    struct kg_error err;
    assert_int_equal(http_server_admit(bench.server, "bob", &err), -1);
    assert_int_equal(err.code, KG_RATE_LIMITED);
    assert_int_equal(http_server_admit(bench.server, "carol", &err), 0);
}

static void
test_owners_are_forgotten(void **state)
{
    (void)state;
    struct http_owners owners = {0};
    struct kg_error err;
    int64_t now_us = 1000000000;
    owners_init(&owners);
    assert_int_equal(owner_take_request(&owners, "first", 0.1, now_us, &err), 0);
    assert_int_equal(owner_take_request(&owners, "first", 0.1, now_us, &err), -1);
    struct http_owner *connected = owner_join(&owners, "connected");
    for (int i = 0; i < 5000; i++) {
        char name[24];
        snprintf(name, sizeof name, "owner-%d", i);
        assert_int_equal(owner_take_request(&owners, name, 0.1, now_us, &err), 0);
    }
    assert_int_equal(owners.n_quiet, 1024);
    // The owner that was quiet longest is forgotten; the others are not, nor is one with a
    // connection.
    assert_int_equal(owner_take_request(&owners, "owner-4999", 0.1, now_us, &err), -1);
    assert_int_equal(owner_take_request(&owners, "first", 0.1, now_us, &err), 0);
    assert_ptr_equal(owner_join(&owners, "connected"), connected);
    // An owner whose bucket is full again is forgotten.
    now_us += 2000000;
    assert_int_equal(owner_take_request(&owners, "last", 0.1, now_us, &err), 0);
    assert_int_equal(owners.n_quiet, 1);
    owner_leave(&owners, connected, now_us);
    owner_leave(&owners, connected, now_us);
    assert_int_equal(owners.n_quiet, 2);
    owners_fini(&owners);
    assert_int_equal(owners.n_quiet, 0);
}

// ---- Origin and Host ------------------------------------------------------------------------

static void
test_a_proxy_before_a_server_without_keys(void **state)
{
    (void)state;
    static const struct {
        const char *headers;
        bool here;
    } cases[] = {
        {"X-Forwarded-For: 127.0.0.1", true},
        {"X-Forwarded-For: ::1, 127.0.0.2", true},
        {"X-Real-IP: [::1]", true},
        {"Forwarded: proto=https;For=\"[::1]\", for=127.0.0.1;by=192.0.2.1", true},
        {"X-Forwarded-For: ::ffff:127.0.0.1, 127.0.0.1:5000", true},
        {"Forwarded: for=\"[::1]:4711\";proto=http, for=\"127.0.0.1:80\"", true},
        {"X-Forwarded-For: 192.0.2.7", false},
        {"X-Forwarded-For: 192.0.2.7:127", false},
        {"X-Forwarded-For: ::ffff:192.0.2.7", false},
        {"X-Forwarded-For: [::1", false},
        {"X-Forwarded-For: , 192.0.2.7", false},
        {"X-Forwarded-For: 127.0.0.1, 192.0.2.7", false},
        {"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: 2001:db8::7", false},
        {"X-Forwarded-For: unknown", false},
        {"X-Real-IP: 1127.0.0.1", false},
        {"Forwarded: by=127.0.0.1;for=192.0.2.7:80", false},
        {"Forwarded: for=127.0.0.1, for=_hidden", false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_RAW raw;
        KG_AUTO_FREE char *text = kg_asprintf("GET /show/x HTTP/1.1\r\nHost: localhost\r\n"
                                              "Connection: close\r\n%s\r\n\r\n",
                                              cases[i].headers);
        raw_exchange(&raw, text);
        assert_int_equal(raw_has(&raw, "HTTP/1.1 200 "), cases[i].here);
        assert_int_equal(raw_has(&raw, "\"code\":\"forbidden_host\""), !cases[i].here);
    }
    // On a public route such a request has no owner either.
    KG_AUTO_RAW nobody;
    raw_exchange(&nobody, "GET /whose HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          "X-Forwarded-For: 192.0.2.7\r\n\r\n");
    assert_true(raw_has(&nobody, "\r\n\r\nnobody"));
    KG_AUTO_RAW anonymous;
    raw_exchange(&anonymous, "GET /whose HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_true(raw_has(&anonymous, "\r\n\r\nanonymous"));
    // Public routes answer; and all routes do with a key.
    KG_AUTO_RAW probe;
    raw_exchange(&probe, "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "X-Forwarded-For: 192.0.2.7\r\n\r\n");
    assert_true(raw_has(&probe, "HTTP/1.1 200 "));
    bench_add_key("alice", "ka");
    KG_AUTO_RAW keyed;
    raw_exchange(&keyed, "GET /show/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "X-Forwarded-For: 192.0.2.7\r\nX-API-Key: ka\r\n\r\n");
    assert_true(raw_has(&keyed, "HTTP/1.1 200 "));
}

// The peer is on loopback, and so believed in any case.
static void
test_networks_behind_proxies(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        const char *trusted; // besides
        const char *network;
    } cases[] = {
        {NULL, NULL, "127.0.0.1"},
        {"X-Real-IP: 203.0.113.7", NULL, "127.0.0.1"},
        {"X-Forwarded-For: 203.0.113.7", NULL, "203.0.113.7"},
        {"X-Forwarded-For: 203.0.113.7:4711", NULL, "203.0.113.7"},
        {"X-Forwarded-For: 198.51.100.1, 203.0.113.7", NULL, "203.0.113.7"},
        {"X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 203.0.113.7", NULL, "203.0.113.7"},
        {"X-Forwarded-For: 203.0.113.7, 127.0.0.1", NULL, "203.0.113.7"},
        {"X-Forwarded-For: 203.0.113.7, 10.1.2.3", NULL, "10.1.2.3"},
        {"X-Forwarded-For: 203.0.113.7, 10.1.2.3", "10.1.2.3", "203.0.113.7"},
        {"X-Forwarded-For: 203.0.113.7, 10.1.2.3", "10.1.0.0/16", "203.0.113.7"},
        {"X-Forwarded-For: 203.0.113.7, 10.1.2.3", "10.1.2.0/25", "203.0.113.7"},
        {"X-Forwarded-For: 203.0.113.7, 10.1.2.3", "10.1.2.128/25", "10.1.2.3"},
        {"X-Forwarded-For: 203.0.113.7, 172.16.0.1, 192.168.0.1", "private", "203.0.113.7"},
        {"X-Forwarded-For: 203.0.113.7, 172.32.0.1", "private", "172.32.0.1"},
        {"X-Forwarded-For: 203.0.113.7, fd00::1", "private", "203.0.113.7"},
        {"X-Forwarded-For: 10.0.0.1, 10.0.0.2", "private", "10.0.0.1"},
        {"X-Forwarded-For: [2001:db8:1:2:3::4]:80", NULL, "2001:db8:1:2::/64"},
        {"X-Forwarded-For: ::ffff:203.0.113.7", NULL, "203.0.113.7"},
        {"X-Forwarded-For: 203.0.113.7, unknown", NULL, "127.0.0.1"},
        {"X-Forwarded-For: 203.0.113.7/8", NULL, "127.0.0.1"},
        {"X-Forwarded-For: ", NULL, "127.0.0.1"},
        {"X-Forwarded-For: ,,,", NULL, "127.0.0.1"},
    };
    bench_add_key("alice", "ka");
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct http_server_settings settings = bench_settings();
        settings.trusted_proxies = (const char *const[]){cases[i].trusted, NULL};
        bench_restart_server(&settings);
        KG_AUTO_CALL call;
        call_path(&call, "GET", "/show/x?api_key=ka", NULL,
                  (const char *const[]){cases[i].header, NULL});
        assert_int_equal(call.status, 200);
        assert_string_equal(field(&call, "network"), cases[i].network);
        json_auto_t *seen = json_loads(call.body.data, 0, NULL);
        assert_int_equal(json_is_true(json_object_get(seen, "distant")),
                         strcmp(cases[i].network, "127.0.0.1") != 0);
    }
    struct http_server_settings settings = bench_settings();
    settings.trusted_proxies = (const char *const[]){"10.0.0.0/33", NULL};
    struct kg_error err;
    assert_null(http_server_new(bench.loop, &settings, &err));
    assert_int_equal(err.code, KG_INVALID);
    assert_string_equal(err.message, "trusted-proxies: \"10.0.0.0/33\" is neither an address nor a "
                                     "network (10.0.0.0/8), nor the word private");
}

static void
test_origin_and_host(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.allowed_origins = (const char *const[]){"https://app.example", NULL};
    settings.allowed_hosts = (const char *const[]){"kg.example", NULL};
    bench_restart_server(&settings);
    static const struct {
        const char *headers;
        const char *expect;
    } cases[] = {
        {"Host: localhost", "200"},
        {"Host: LOCALHOST:1234", "200"},
        {"Host: 127.0.0.1:16010", "200"},
        {"Host: [::1]:80", "200"},
        {"Host: kg.example:99", "200"},
        {"Host: evil.example", "forbidden_host"},
        {"Host: localhost.evil.example", "forbidden_host"},
        {"Host: localhost:80@evil", "forbidden_host"},
        {"Host: [::1", "forbidden_host"},
        {"Host:", "forbidden_host"},
        {"X: y", "forbidden_host"},
        {"Host: localhost:5\r\nOrigin: http://localhost:5", "200"},
        {"Host: localhost:5\r\nOrigin: http://localhost:6", "forbidden_origin"},
        {"Host: localhost\r\nOrigin: null", "forbidden_origin"},
        {"Host: localhost\r\nOrigin: https://evil.example", "forbidden_origin"},
        {"Host: localhost\r\nOrigin: https://app.example",
         "Access-Control-Allow-Origin: https://app.example"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_RAW raw;
        KG_AUTO_FREE char *text =
            kg_asprintf("GET /hello HTTP/1.1\r\nConnection: close\r\n%s\r\n\r\n", cases[i].headers);
        raw_exchange(&raw, text);
        assert_true(raw_has(&raw, cases[i].expect));
        assert_int_equal(raw_has(&raw, "HTTP/1.1 403 "), cases[i].expect[0] == 'f');
    }
    KG_AUTO_RAW preflight;
    raw_exchange(&preflight, "OPTIONS /json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                             "Origin: https://app.example\r\n"
                             "Access-Control-Request-Headers: x-api-key\r\n\r\n");
    assert_true(raw_has(&preflight, "HTTP/1.1 204 "));
    assert_true(raw_has(&preflight, "\r\nAccess-Control-Allow-Headers: x-api-key\r\n"));
}

// ---- Bodies ---------------------------------------------------------------------------------

// An array of `n` times `value`.
static char *
array_of(const char *value, size_t n)
{
    KG_AUTO_BUF text = {0};
    size_t len = strlen(value);
    for (size_t i = 0; i < n; i++) {
        buf_append(&text, i ? "," : "[", 1);
        buf_append(&text, value, len);
    }
    buf_append_str(&text, "]");
    return buf_take(&text);
}

// Values take many times the memory of their text, so their size is estimated before parsing.
static void
test_json_values_are_bounded(void **state)
{
    (void)state;
    enum { LIMIT = HTTP_JSON_VALUE_BYTES_MAX / 12 };
    static const struct {
        const char *value;
        size_t n;
        bool fits;
    } cases[] = {
        {"7", 83 * 1000, true},           {"-1.5e-3", 83 * 1000, true},
        {"[1,2]", 20 * 1000, true},       {"{\"a\":1,\"b\":\"c\"}", 8 * 1000, true},
        {"{}", 34 * 1000, false},         {"[]", 50 * 1000, false},
        {"1", 184 * 1000, false},         {"\"\"", 100 * 1000, false},
        {"\"{},[],:\"", 16 * 1000, true},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err = {0};
        bool beyond;
        KG_AUTO_FREE char *text = array_of(cases[i].value, cases[i].n);
        json_auto_t *json = http_json_parse_within(text, strlen(text), LIMIT, &beyond, &err);
        assert_int_equal(json != NULL, cases[i].fits);
        assert_int_equal(beyond, !cases[i].fits);
        assert_int_equal(err.code, cases[i].fits ? KG_OK : KG_INVALID);
        if (!cases[i].fits)
            assert_non_null(strstr(err.message, "the limit is 8 MiB"));
    }
    struct kg_error err = {0};
    KG_AUTO_FREE char *text = array_of("{}", 400 * 1000);
    assert_null(http_json_parse(text, strlen(text), &err));
    assert_non_null(strstr(err.message, "the limit is 96 MiB"));
}

// jansson overlooks a NUL after a number, while json_member() returns the text with it.
static void
test_json_has_no_nul(void **state)
{
    (void)state;
    struct kg_error err = {0};
    assert_null(http_json_parse("{\"a\":1\0}", 8, &err));
    assert_non_null(strstr(err.message, "NUL"));
}

static void
test_json_bodies(void **state)
{
    (void)state;
    char deep[200] = "";
    memset(deep, '[', 64);
    memset(deep + 64, ']', 64);
    KG_AUTO_CALL fits;
    call_path(&fits, "POST", "/json", deep, NULL);
    assert_int_equal(fits.status, 200);
    KG_AUTO_CALL brackets;
    KG_AUTO_FREE char *text = kg_asprintf("{\"a\\\"[\":\"%s%s\"}", deep, deep);
    call_path(&brackets, "POST", "/json", text, NULL);
    assert_int_equal(brackets.status, 200);
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    const struct {
        const char *body;
        const char *detail;
    } bad[] = {
        {"", "empty"},
        {deep, "64 levels"},
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"a\":\"\xff\"}", "line 1"},
        {"{\n\"a\":}", "line 2, column 5"},
        {"{} x", "line 1"},
        {"\"\\", "line 1"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        KG_AUTO_CALL call;
        call_path(&call, "POST", "/json", bad[i].body, NULL);
        assert_problem(&call, 400, "invalid_request");
        assert_non_null(strstr(field(&call, "detail"), bad[i].detail));
    }
}

static void
test_large_json_is_parsed_before_its_handler(void **state)
{
    (void)state;
    KG_AUTO_FREE char *numbers = array_of("1234567", 30 * 1000);
    KG_AUTO_CALL good;
    call_path(&good, "POST", "/parsed", numbers, NULL);
    assert_int_equal(good.status, 200);
    assert_string_equal(good.body.data, numbers);
    KG_AUTO_FREE char *heavy = array_of("{}", 30 * 1000);
    KG_AUTO_FREE char *bad = array_of("x", 50 * 1000);
    const struct {
        const char *body;
        const char *detail;
    } cases[] = {{heavy, "the limit is 4 MiB"}, {bad, "line 1"}, {"", "empty"}};
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_CALL call;
        call_path(&call, "POST", "/parsed", cases[i].body, NULL);
        assert_problem(&call, 400, "invalid_request");
        assert_non_null(strstr(field(&call, "detail"), cases[i].detail));
    }
    // Clients disconnect before or while their body is parsed: nothing is answered, nothing leaks.
    for (int i = 0; i < 5; i++) {
        KG_AUTO_FREE char *text =
            kg_asprintf("POST /parsed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                        strlen(numbers), numbers);
        KG_AUTO_RAW leaving;
        raw_ask(&leaving, text);
        for (int turn = 0; turn < i; turn++)
            bench_turn();
        raw_close(&leaving);
    }
    round_trip();
    WAIT(http_server_open_requests(bench.server) == 0);
}

static void
test_bodies_and_their_bound(void **state)
{
    (void)state;
    enum { MAX = 1024 * 1024 };
    KG_AUTO_FREE char *body = kg_calloc(MAX + 2, 1);
    memset(body, 'x', MAX);
    KG_AUTO_CALL fits;
    call_path(&fits, "POST", "/echo", body, NULL);
    assert_int_equal(fits.status, 200);
    assert_int_equal(fits.body.len, MAX);
    body[MAX] = 'x';
    KG_AUTO_CALL above;
    call_path(&above, "POST", "/echo", body, NULL);
    assert_problem(&above, 413, "upload_too_large");
    KG_AUTO_CALL chunked;
    call_path(&chunked, "POST", "/echo", "abc",
              (const char *const[]){"Transfer-Encoding: chunked", NULL});
    assert_int_equal(chunked.status, 200);
    assert_string_equal(chunked.body.data, "abc");
}

static void
test_large_and_small_bodies(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.max_small_body_bytes = 1000;
    bench_restart_server(&settings);
    KG_AUTO_FREE char *body = repeated('x', 5000);
    KG_AUTO_CALL small;
    call_path(&small, "POST", "/echo", body, NULL);
    assert_problem(&small, 413, "upload_too_large");
    KG_AUTO_CALL large;
    call_path(&large, "PUT", "/large", body, NULL);
    assert_int_equal(large.status, 200);
    assert_string_equal(large.body.data, "5000");
}

// Sends as many bytes as the socket takes, up to `left`; returns their number.
static size_t
send_some(const struct raw *raw, size_t left)
{
    static const char bytes[64 << 10];
    size_t sent = 0;
    while (sent < left) {
        size_t len = left - sent < sizeof bytes ? left - sent : sizeof bytes;
        ssize_t n = send(raw->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    return sent;
}

// The rest of a refused body is read so that the client gets its answer, but only up to a limit.
static void
test_a_refused_body_has_an_end(void **state)
{
    (void)state;
    enum { DROPPED = 64 << 20, SLACK = 16 << 20 }; // see linger.c; and the buffers of the sockets
    bench_add_key("alice", "ka");
    KG_AUTO_RAW raw;
    raw_open(&raw);
    raw_pause(&raw, true);
    raw_send(&raw,
             "PUT /private HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576000\r\n\r\n");
    static const char bytes[64 << 10];
    size_t sent = 0;
    for (bool cut = false; !cut && sent <= DROPPED + SLACK;) {
        ssize_t n = send(raw.fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        cut = n < 0 && errno != EAGAIN;
        if (n > 0)
            sent += (size_t)n;
        else if (!cut)
            bench_turn();
    }
    assert_in_range(sent, DROPPED, DROPPED + SLACK);
}

static void
test_bodies_wait_for_one_another(void **state)
{
    (void)state;
    enum { BODY = 16 << 20, STOPS = 1 << 20 };
    static const char head[] = "PUT /large HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 16777216\r\n\r\n";
    struct http_server_settings settings = bench_settings();
    settings.max_body_bytes = BODY;
    settings.max_held_bytes = STOPS;
    bench_restart_server(&settings);
    KG_AUTO_RAW first, second;
    raw_ask(&first, head);
    size_t first_left = BODY - send_some(&first, STOPS + 100000);
    raw_ask(&second, head);
    size_t second_left = BODY;
    // The second body has to wait; small requests do not.
    for (int i = 0; i < 20; i++) {
        second_left -= send_some(&second, second_left);
        round_trip();
    }
    assert_true(second_left > BODY / 4);
    assert_false(raw_has(&second, "200 OK"));
    while (first_left > 0) {
        first_left -= send_some(&first, first_left);
        bench_turn();
    }
    WAIT(raw_has(&first, "16777216"));
    while (second_left > 0) {
        second_left -= send_some(&second, second_left);
        bench_turn();
    }
    WAIT(raw_has(&second, "16777216"));
}

#define PUT_16_MIB "PUT /private HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16777216\r\n"

static void
start_large(const struct http_server_settings *settings)
{
    bench_add_key("alice", "ka");
    bench_add_key("bob", "kb");
    bench_restart_server(settings);
}

static void
test_bodies_of_one_owner_do_not_stop_anothers(void **state)
{
    (void)state;
    enum { BODY = 16 << 20, HELD = 2 << 20 };
    struct http_server_settings settings = bench_settings();
    settings.max_body_bytes = BODY;
    settings.max_held_bytes = HELD;
    start_large(&settings);
    // Alice's first body stops at the limit; so the second one has to wait.
    KG_AUTO_RAW first, second, other;
    raw_ask(&first, PUT_16_MIB "X-API-Key: ka\r\n\r\n");
    size_t sent = send_some(&first, HELD);
    WAIT((sent += send_some(&first, HELD - sent)) == HELD);
    raw_ask(&second, PUT_16_MIB "X-API-Key: ka\r\n\r\n");
    sent = send_some(&second, BODY);
    for (int i = 0; i < 20; i++) {
        round_trip();
        sent += send_some(&second, BODY - sent);
    }
    assert_true(sent < BODY * 3 / 4);
    raw_ask(&other, PUT_16_MIB "X-API-Key: kb\r\n\r\n");
    for (size_t left = BODY; left > 0; bench_turn())
        left -= send_some(&other, left);
    WAIT(raw_has(&other, "16777216"));
    assert_false(first.closed || second.closed);
}

static void
send_all(const struct raw *raw, size_t left)
{
    for (; left > 0; bench_turn())
        left -= send_some(raw, left);
}

#define PUT_HEAD(path, len)                                                                        \
    "PUT " path " HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ka\r\nContent-Length: " len "\r\n\r\n"

// While the first body is not answered, there is room for only one of the other two.
static void
test_a_body_counts_until_it_was_read(void **state)
{
    (void)state;
    enum { HELD = 16 << 20, FIRST = 9437184, STOPS = 1 << 20, THIRD = 6291456 };
    struct http_server_settings settings = bench_settings();
    settings.max_body_bytes = HELD;
    settings.max_held_bytes = HELD;
    start_large(&settings);
    KG_AUTO_RAW first, second, third;
    raw_ask(&first, PUT_HEAD("/parsed-hold", "9437184"));
    send_all(&first, FIRST);
    WAIT(bench.held);
    raw_ask(&second, PUT_HEAD("/private", "9437184"));
    send_all(&second, STOPS);
    raw_ask(&third, PUT_HEAD("/private", "6291456"));
    size_t left = THIRD;
    WAIT((left -= send_some(&third, left)) == 0);
    WAIT(raw_has(&third, "6291456"));
    http_reply(KG_STEAL(bench.held), 200, "text/plain", "late", 4);
    WAIT(raw_has(&first, "late"));
}

// Of those whose key is being checked one may read on; the others have their body when it has been
// checked.
static void
test_a_connection_that_has_waited_reads_on(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.max_body_bytes = 16 << 20;
    settings.max_held_bytes = 1 << 20;
    start_large(&settings);
    KG_AUTO_RAW first, second, third;
    raw_ask(&first, PUT_16_MIB "X-API-Key: ka\r\n\r\n");
    size_t sent = 0;
    WAIT((sent += send_some(&first, 2000000 - sent)) == 2000000);
    for (int i = 0; i < 300; i++)
        round_trip();
    bench.authenticator.slow = true;
    raw_ask(&second, PUT_HEAD("/private", "65500")); // with its head more than 64 KiB
    send_all(&second, 65500);
    raw_ask(&third, PUT_HEAD("/private", "65500"));
    send_all(&third, 65500);
    WAIT(bench.authenticator.n_pending == 2);
    for (int i = 0; i < 300; i++)
        round_trip();
    bench_answer_check();
    bench_answer_check();
    WAIT(raw_has(&second, "65500") && raw_has(&third, "65500"));
    raw_send(&third, HELLO);
    WAIT(raw_count(&third, "200 OK") == 2);
}

static int n_counted;

static void
handle_counted(struct http_request *request, void *arg)
{
    (void)arg;
    n_counted++;
    http_reply(request, 204, NULL, NULL, 0);
}

// Each connection has one answer, and then the others have their turn.
static void
test_requests_that_are_sent_ahead_do_not_keep_others_waiting(void **state)
{
    (void)state;
    enum { AHEAD = 1000 };
    static const struct http_route route = {HTTP_GET, "/counted", handle_counted, HTTP_PUBLIC,
                                            NULL};
    http_server_add_routes(bench.server, &route, 1, NULL);
    KG_AUTO_BUF many = {0};
    for (int i = 0; i < AHEAD; i++)
        buf_append_str(&many, GET("/counted"));
    n_counted = 0;
    KG_AUTO_RAW greedy;
    raw_open(&greedy);
    raw_send(&greedy, many.data);
    WAIT(n_counted > 0);
    assert_in_range(n_counted, 1, 10);
    WAIT(raw_count(&greedy, "HTTP/1.1 204 ") == AHEAD);
}

// The client closes its side while it has not read the first answer. What is complete is answered,
// and what is not has an end.
static void
test_a_half_closed_connection_ends(void **state)
{
    (void)state;
    enum { LARGE = 1000 * 1000 };
    static const char *const behind[] = {
        HELLO HELLO, HELLO "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"};
    KG_AUTO_FREE char *large = repeated('x', LARGE);
    for (size_t i = 0; i < KG_ARRAY_LEN(behind); i++) {
        KG_AUTO_FREE char *text =
            kg_asprintf("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s%s",
                        LARGE, large, behind[i]);
        KG_AUTO_RAW raw;
        raw_open_small(&raw, 4096);
        raw_pause(&raw, true);
        raw_send(&raw, text);
        WAIT(http_server_open_requests(bench.server) == 1);
        assert_int_equal(shutdown(raw.fd, SHUT_WR), 0);
        for (int turn = 0; turn < 50; turn++)
            bench_turn();
        assert_int_equal(http_server_open_requests(bench.server), 1);
        raw_pause(&raw, false);
        WAIT(raw.closed);
        assert_int_equal(raw_count(&raw, "200 OK"), i == 0 ? 3 : 2);
    }
}

// This holds even if no other body waits.
static void
test_a_body_that_stops_is_cut(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.max_body_bytes = 16 << 20;
    settings.head_timeout_s = 1;
    start_large(&settings);
    KG_AUTO_RAW raw;
    raw_ask(&raw, PUT_16_MIB "X-API-Key: ka\r\n\r\n");
    send_some(&raw, 500 * 1000);
    WAIT(raw.closed);
    assert_int_equal(raw.in.len, 0);
}

static void
test_expect_100_continue(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                  "Content-Length: 4\r\n\r\n");
    WAIT(raw_has(&raw, "HTTP/1.1 100 Continue\r\n"));
    raw_send(&raw, "ping");
    WAIT(raw_has(&raw, "\r\n\r\nping"));
    assert_true(raw_has(&raw, "HTTP/1.1 200 "));
}

// The body of a GET is not read, so the connection cannot be used for another request.
static void
test_a_get_with_a_body_ends_its_connection(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_exchange(&raw, "GET /hello HTTP/1.1\r\nHost: localhost\r\n"
                       "Content-Length: 40\r\n\r\n" HELLO);
    assert_int_equal(raw_count(&raw, "HTTP/1.1 200 "), 1);
    assert_int_equal(raw_count(&raw, "\r\nConnection: close\r\n"), 1);
}

#define CHUNKED "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

// Chunks arrive byte by byte, and become invalid after the first one.
static void
test_chunks_in_pieces(void **state)
{
    (void)state;
    static const char good[] = "3\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\n";
    KG_AUTO_RAW raw;
    raw_ask(&raw, CHUNKED);
    for (size_t i = 0; i < strlen(good); i++) {
        raw_send(&raw, (const char[]){good[i], '\0'});
        bench_turn();
    }
    WAIT(raw_has(&raw, "\r\n\r\nabc0123456789"));
    raw_send(&raw, CHUNKED "3\r\nabc\r\n");
    for (int i = 0; i < 10; i++) {
        round_trip(); // so that the first chunk has been read
    }
    raw_send(&raw, "0x1\r\na\r\n0\r\n\r\n");
    WAIT(raw.closed);
    assert_int_equal(raw_count(&raw, "HTTP/1.1 400 "), 1);
    assert_int_equal(raw_count(&raw, "not a sequence of chunks"), 1);
}

static void
test_a_trailer_is_refused(void **state)
{
    (void)state;
    static const char *const ends[] = {"X: y\r\n\r\n", "\n\r\n", "\rX", "0\r\n\r\n"};
    for (size_t i = 0; i < KG_ARRAY_LEN(ends); i++) {
        KG_AUTO_FREE char *text = kg_asprintf(CHUNKED "1\r\na\r\n0\r\n%s", ends[i]);
        KG_AUTO_RAW raw;
        raw_exchange(&raw, text);
        assert_true(raw_has(&raw, "HTTP/1.1 400 "));
        assert_true(raw_has(&raw, "\"code\":\"invalid_request\""));
        assert_int_equal(raw_count(&raw, "HTTP/1.1 "), 1);
    }
    // Bytes after the last chunk are the next request.
    KG_AUTO_RAW both;
    raw_ask(&both, CHUNKED "1\r\na\r\n0\r\n\r\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    WAIT(raw_count(&both, "HTTP/1.1 200 ") == 2);
}

static void
test_a_nul_in_a_head(void **state)
{
    (void)state;
    static const char head[] = "GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n";
    KG_AUTO_RAW raw;
    raw_open(&raw);
    assert_int_equal(send(raw.fd, head, sizeof head - 1, MSG_NOSIGNAL), sizeof head - 1);
    WAIT(raw.closed);
    assert_true(raw_has(&raw, "HTTP/1.1 400 "));
    assert_true(raw_has(&raw, "NUL"));
}

static void
test_malformed_requests(void **state)
{
    (void)state;
    KG_AUTO_FREE char *padding = repeated('x', 20000);
    KG_AUTO_FREE char *long_header =
        kg_asprintf("GET /hello HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", padding);
    const struct {
        const char *text;
        const char *expect;
    } cases[] = {
        {"garbage\r\n\r\n", "HTTP/1.1 400 "},
        {"GET /hello HTTP/1.1\r\nno colon\r\n\r\n", "HTTP/1.1 400 "},
        {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 "},
        {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2\r\n\r\nhi", "HTTP/1.1 400 "},
        {"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", "HTTP/1.1 400 "},
        {"GET /hello HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n", "HTTP/1.1 400 "},
        {CHUNKED "0x2\r\nhi\r\n0\r\n\r\n", "HTTP/1.1 400 "},
        {CHUNKED "+2\r\nhi\r\n0\r\n\r\n", "HTTP/1.1 400 "},
        {CHUNKED "2\r\nhi0\r\n\r\n", "HTTP/1.1 400 "},
        {CHUNKED "2;x=y\r\nhi\r\n0\r\n\r\n", "HTTP/1.1 400 "},
        {CHUNKED "000000002\r\nhi\r\n0\r\n\r\n", "HTTP/1.1 400 "},
        {long_header, "HTTP/1.1 400 "},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_RAW raw;
        raw_exchange(&raw, cases[i].text);
        assert_true(raw_has(&raw, cases[i].expect));
        assert_true(raw_has(&raw, "\"code\":\"invalid_request\""));
        assert_false(raw_has(&raw, "<"));
    }
    round_trip();
}

// ---- Connections ----------------------------------------------------------------------------

static void
test_keep_alive_and_pipelining(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_open(&raw);
    for (int i = 1; i <= 3; i++) {
        raw_send(&raw, HELLO);
        WAIT(raw_count(&raw, "\r\n\r\nhello") == i);
    }
    raw_send(&raw, HELLO HELLO "POST /echo HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 4\r\n\r\nping" HELLO);
    WAIT(raw_count(&raw, "\r\n\r\nhello") == 6);
    assert_int_equal(raw_count(&raw, "\r\n\r\nping"), 1);
    assert_false(raw.closed);
    WAIT(http_server_open_requests(bench.server) == 0);
}

static void
test_pipelined_behind_a_late_answer(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, GET("/hold") HELLO);
    WAIT(bench.held);
    assert_int_equal(http_server_open_requests(bench.server), 1);
    // More than the watermark, so that reading has to continue afterwards.
    KG_AUTO_FREE char *body = repeated('b', 300000);
    KG_AUTO_FREE char *post = kg_asprintf(
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n%s", body);
    raw_send(&raw, post);
    assert_int_equal(bench.n_handled, 0);
    http_reply(KG_STEAL(bench.held), 200, "text/plain", "late", 4);
    WAIT(raw_has(&raw, "late") && raw_has(&raw, "hello") && raw_has(&raw, body));
    assert_int_equal(bench.n_gone, 0);
}

// Connections are refused until the server has noticed that another one was closed.
static void
connect_until_served(void)
{
    for (bool served = false; !served;) {
        KG_AUTO_RAW again;
        raw_ask(&again, HELLO);
        WAIT(again.closed || raw_has(&again, "hello"));
        served = raw_has(&again, "hello");
    }
}

static void
test_an_idle_connection_makes_room(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.max_connections = 2;
    bench_restart_server(&settings);
    KG_AUTO_RAW first;
    KG_AUTO_RAW second;
    KG_AUTO_RAW third;
    raw_ask(&first, HELLO);
    WAIT(raw_has(&first, "hello"));
    raw_ask(&second, HELLO);
    WAIT(raw_has(&second, "hello"));
    raw_ask(&third, HELLO);
    WAIT(first.closed && raw_has(&third, "hello"));
    assert_false(second.closed);
}

static void
test_connection_limit(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.max_connections = 1;
    bench_restart_server(&settings);
    KG_AUTO_RAW busy;
    KG_AUTO_RAW second;
    raw_ask(&busy, GET("/hold"));
    WAIT(bench.held);
    raw_open(&second);
    WAIT(second.closed);
    http_reply(KG_STEAL(bench.held), 200, "text/plain", "late", 4);
    WAIT(raw_has(&busy, "late"));
    connect_until_served();
}

// Strangers have half of the places. Of those the longest idle goes, also one that sends its head
// byte by byte; never a client with a key.
static void
test_strangers_make_room(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    struct http_server_settings settings = bench_settings();
    settings.max_connections = 4;
    bench_restart_server(&settings);
    KG_AUTO_RAW keyed;
    KG_AUTO_RAW drips;
    KG_AUTO_RAW second;
    KG_AUTO_RAW third;
    raw_ask(&keyed, SHOW_AS("ka"));
    WAIT(raw_has(&keyed, "200 OK"));
    raw_open(&drips);
    raw_ask(&second, HELLO);
    WAIT(raw_has(&second, "hello"));
    raw_send(&drips, "GET /hel");
    raw_ask(&third, HELLO);
    WAIT(drips.closed && raw_has(&third, "hello"));
    assert_false(second.closed);
    KG_AUTO_RAW fourth;
    raw_ask(&fourth, SHOW_AS("ka"));
    WAIT(second.closed && raw_has(&fourth, "200 OK"));
    raw_send(&keyed, HELLO);
    WAIT(raw_has(&keyed, "\r\n\r\nhello"));
    // It is a stranger no more: another one fits.
    KG_AUTO_RAW fifth;
    raw_ask(&fifth, HELLO);
    WAIT(raw_has(&fifth, "hello"));
    assert_false(third.closed || fourth.closed);
}

// The limit is for connections of one address without a valid key; others do not count.
static void
test_strangers_of_one_address_are_few(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    struct http_server_settings settings = bench_settings();
    settings.max_strangers = 2;
    bench_restart_server(&settings);
    KG_AUTO_RAW keyed;
    raw_ask(&keyed, SHOW_AS("ka"));
    WAIT(raw_has(&keyed, "200 OK"));
    KG_AUTO_RAW first;
    KG_AUTO_RAW second;
    KG_AUTO_RAW third;
    raw_open(&first);
    raw_ask(&second, HELLO);
    WAIT(raw_has(&second, "hello"));
    raw_open(&third);
    WAIT(third.closed);
    raw_send(&keyed, HELLO);
    WAIT(raw_has(&keyed, "\r\n\r\nhello"));
    raw_close(&first);
    connect_until_served();
}

static bool
is_replica(const struct sockaddr *from, void *arg)
{
    (void)arg;
    return from->sa_family == AF_INET;
}

// Other gateways forward what has no key, too.
static void
test_other_replicas_are_no_strangers(void **state)
{
    (void)state;
    bench_add_key("alice", "ka");
    struct http_server_settings settings = bench_settings();
    settings.max_strangers = 1;
    bench_restart_server(&settings);
    http_server_set_replica(bench.server, is_replica, NULL);
    KG_AUTO_RAW first;
    KG_AUTO_RAW second;
    raw_open(&first);
    raw_ask(&second, HELLO);
    WAIT(raw_has(&second, "hello"));
}

static void
test_idle_timeout(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.idle_timeout_s = 1;
    bench_restart_server(&settings);
    KG_AUTO_RAW silent;
    KG_AUTO_RAW held;
    KG_AUTO_RAW used;
    raw_open(&silent);
    raw_open(&held);
    raw_open(&used);
    raw_send(&held, GET("/hold"));
    raw_send(&used, HELLO);
    WAIT(silent.closed && used.closed);
    assert_true(raw_has(&used, "hello"));
    // The idle timeout does not apply while a request waits for its answer.
    assert_false(held.closed);
    assert_int_equal(bench.n_gone, 0);
    http_reply(KG_STEAL(bench.held), 200, "text/plain", "late", 4);
    WAIT(raw_has(&held, "late"));
    WAIT(held.closed);
}

static void
test_cannot_listen(void **state)
{
    (void)state;
    struct http_server_settings settings = bench_settings();
    settings.port = http_server_port(bench.server);
    struct kg_error err;
    assert_null(http_server_new(bench.loop, &settings, &err));
    assert_non_null(strstr(err.message, "Address already in use"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_set_up, bench_tear_down)

// ---- Tokens ---------------------------------------------------------------------------------

// "kgs_", a letter for the state, and the scopes' names.
static enum http_token_state
read_test_token(const char *credential, struct http_token *ret, char *ret_owner, void *arg)
{
    (void)arg;
    const char *at = credential + strlen(HTTP_TOKEN_PREFIX);
    enum http_token_state state = *at == 'V'   ? HTTP_TOKEN_VALID
                                  : *at == 'E' ? HTTP_TOKEN_ELSEWHERE
                                  : *at == 'X' ? HTTP_TOKEN_ENDED
                                               : HTTP_TOKEN_NONE;
    if (state != HTTP_TOKEN_NONE) {
        ret->scopes = http_scope_find(at + 1);
        strcpy(ret->session_id, "s1");
        strcpy(ret_owner, at[1] == 'p' ? "nobody" : HTTP_ANONYMOUS); // of the scope `ports`
    }
    return state;
}

static const char *
session_of_made(const char *id, const char *owner, const struct http_token *token, void *arg)
{
    (void)arg;
    assert_string_equal(owner, HTTP_ANONYMOUS);
    return strcmp(id, "m1") == 0 ? token->session_id : NULL;
}

static void
handle_owner(struct http_request *request, void *arg)
{
    (void)arg;
    const char *owner = http_request_owner(request);
    http_reply_json(request, 200, json_pack("{s:s}", "owner", owner ? owner : ""));
}

static void
test_tokens(void **state)
{
    (void)state;
    static const struct http_concern in_path[] = {
        {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_PATH, .name = "id"}, {0}};
    static const struct http_concern in_body[] = {
        {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_BODY, .name = "id"}, {0}};
    static const struct http_concern made[] = {
        {.kind = HTTP_CONCERNS_MADE, .part = HTTP_IN_PATH, .name = "id"}, {0}};
    static const struct http_route routes[] = {
        {HTTP_GET, "/of/{id}", handle_owner, HTTP_SCOPE_READ, in_path},
        {HTTP_PUT, "/of/{id}", handle_owner, HTTP_SCOPE_FILES, in_path},
        {HTTP_POST, "/named", handle_owner, HTTP_SCOPE_RUN, in_body},
        {HTTP_GET, "/made/{id}", handle_owner, HTTP_SCOPE_READ, made},
        {HTTP_GET, "/all", handle_owner, 0, NULL},
        {HTTP_GET, "/scope-only", handle_owner, HTTP_SCOPE_READ, NULL},
        {HTTP_GET, "/public/{id}", handle_owner, HTTP_PUBLIC | HTTP_SCOPE_READ, in_path},
    };
    static const struct {
        const char *method, *path, *token, *body;
        int status;
        const char *text; // the owner, or the code
    } cases[] = {
        {"GET", "/of/s1", "kgs_Vread", NULL, 200, HTTP_ANONYMOUS},
        {"GET", "/of/s1", "kgs_Vrun", NULL, 200, HTTP_ANONYMOUS},
        {"GET", "/of/s1", "kgs_Vfiles", NULL, 403, "token_scope"},
        {"GET", "/of/s2", "kgs_Vread", NULL, 403, "token_scope"},
        {"GET", "/of/s1", "kgs_Eread", NULL, 401, "unauthorized"}, // nobody else has the session
        {"GET", "/of/s2", "kgs_Eread", NULL, 403, "token_scope"},
        {"GET", "/of/s1", "kgs_Xread", NULL, 401, "unauthorized"},
        {"GET", "/of/s1", "kgs_Vports", NULL, 401, "unauthorized"}, // of another owner
        {"GET", "/of/s2", "kgs_-", NULL, 200, HTTP_ANONYMOUS},      // is not a token
        {"PUT", "/of/s1", "kgs_Vfiles", "", 200, HTTP_ANONYMOUS},
        {"PUT", "/of/s1", "kgs_Vfiles:read", "", 403, "token_scope"},
        {"POST", "/named", "kgs_Vrun", "{\"id\":\"s1\"}", 200, HTTP_ANONYMOUS},
        {"POST", "/named", "kgs_Vrun", "{\"id\":\"s2\"}", 403, "token_scope"},
        {"POST", "/named", "kgs_Vrun", "{\"i\\u0064\":\"s1\"}", 403, "token_scope"},
        {"POST", "/named", "kgs_Vrun", "{", 403, "token_scope"},
        {"POST", "/named", "kgs_Vrun", "", 403, "token_scope"},
        {"GET", "/made/m1", "kgs_Vread", NULL, 200, HTTP_ANONYMOUS},
        {"GET", "/made/m2", "kgs_Vread", NULL, 403, "token_scope"},
        {"GET", "/all", "kgs_Vread", NULL, 403, "token_scope"},
        {"GET", "/scope-only", "kgs_Vread", NULL, 403, "token_scope"},
        {"GET", "/public/s2", "kgs_Vread", NULL, 200, ""},
    };
    const struct http_tokens tokens = {.read = read_test_token, .session_of = session_of_made};
    http_server_add_routes(bench.server, routes, KG_ARRAY_LEN(routes), NULL);
    http_server_set_tokens(bench.server, &tokens);
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_CALL call;
        KG_AUTO_FREE char *header = kg_asprintf("Authorization: Bearer %s", cases[i].token);
        call_path(&call, cases[i].method, cases[i].path, cases[i].body,
                  (const char *const[]){header, NULL});
        if (call.status != cases[i].status)
            fail_msg("%s %s %s: %d", cases[i].method, cases[i].path, cases[i].token, call.status);
        if (call.status == 200)
            assert_string_equal(field(&call, "owner"), cases[i].text);
        else
            assert_problem(&call, cases[i].status, cases[i].text);
    }
    // This authenticator cannot tell whether an owner still is one, so no token is valid.
    bench_add_key("anna", "k-1");
    KG_AUTO_CALL refused;
    call_path(&refused, "GET", "/of/s1", NULL,
              (const char *const[]){"Authorization: Bearer kgs_Vread", NULL});
    assert_problem(&refused, 401, "unauthorized");
}

static void
test_scopes_as_text(void **state)
{
    (void)state;
    char text[HTTP_SCOPES_TEXT_MAX + 1];
    http_scopes_format(HTTP_SCOPES, text);
    assert_string_equal(text, "read run files:read files terminal ports");
    assert_int_equal(http_scopes_parse(text), HTTP_SCOPES);
    http_scopes_format(HTTP_SCOPE_FILES, text);
    assert_string_equal(text, "files");
    assert_int_equal(http_scopes_parse("ports  run "), HTTP_SCOPE_PORTS | HTTP_SCOPE_RUN);
    // What is no name grants nothing: a flag's number, a part of a name, a name of the future.
    assert_int_equal(http_scopes_parse("65536 file runs future read:"), 0);
    assert_int_equal(http_scopes_parse("future read"), HTTP_SCOPE_READ);
    assert_int_equal(http_scopes_parse(""), 0);
    http_scopes_format(0, text);
    assert_string_equal(text, "");
}

int
main(void)
{
    static const struct CMUnitTest http_tests[] = {
        TEST(test_a_route_cannot_concern_a_parameter_that_it_lacks),
        TEST(test_routes_and_params),
        TEST(test_query),
        TEST(test_methods),
        TEST(test_head),
        TEST(test_draining),
        TEST(test_message_cut_in_a_character),
        TEST(test_authentication),
        TEST(test_tokens),
        cmocka_unit_test(test_scopes_as_text),
        TEST(test_cookies),
        TEST(test_without_a_key_no_body_is_read),
        TEST(test_a_head_that_drips_is_cut),
        TEST(test_a_refusal_arrives_although_the_body_comes),
        TEST(test_a_check_may_take_its_time),
        TEST(test_a_check_ends_with_its_connection),
        TEST(test_a_request_outlives_its_key),
        TEST(test_an_owner_has_a_share_of_the_connections),
        TEST(test_requests_a_second),
        cmocka_unit_test(test_guessers_are_forgotten),
        cmocka_unit_test(test_networks_of_one_client),
        cmocka_unit_test(test_owners_are_forgotten),
        TEST(test_wrong_keys_are_slowed),
        TEST(test_a_proxy_before_a_server_without_keys),
        TEST(test_networks_behind_proxies),
        TEST(test_origin_and_host),
        TEST(test_json_bodies),
        TEST(test_json_values_are_bounded),
        TEST(test_json_has_no_nul),
        TEST(test_large_json_is_parsed_before_its_handler),
        TEST(test_bodies_and_their_bound),
        TEST(test_large_and_small_bodies),
        TEST(test_a_refused_body_has_an_end),
        TEST(test_bodies_wait_for_one_another),
        TEST(test_bodies_of_one_owner_do_not_stop_anothers),
        TEST(test_a_body_counts_until_it_was_read),
        TEST(test_a_connection_that_has_waited_reads_on),
        TEST(test_requests_that_are_sent_ahead_do_not_keep_others_waiting),
        TEST(test_a_half_closed_connection_ends),
        TEST(test_a_body_that_stops_is_cut),
        TEST(test_expect_100_continue),
        TEST(test_a_get_with_a_body_ends_its_connection),
        TEST(test_malformed_requests),
        TEST(test_chunks_in_pieces),
        TEST(test_a_trailer_is_refused),
        TEST(test_a_nul_in_a_head),
        TEST(test_keep_alive_and_pipelining),
        TEST(test_pipelined_behind_a_late_answer),
        TEST(test_an_idle_connection_makes_room),
        TEST(test_connection_limit),
        TEST(test_strangers_make_room),
        TEST(test_strangers_of_one_address_are_few),
        TEST(test_other_replicas_are_no_strangers),
        TEST(test_idle_timeout),
        TEST(test_cannot_listen),
    };
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    int failed = cmocka_run_group_tests(http_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("http_stream_tests", http_stream_tests, n_http_stream_tests,
                                      NULL, NULL);
    failed +=
        _cmocka_run_group_tests("http_pace_tests", http_pace_tests, n_http_pace_tests, NULL, NULL);
    failed +=
        _cmocka_run_group_tests("http_body_tests", http_body_tests, n_http_body_tests, NULL, NULL);
    failed +=
        _cmocka_run_group_tests("http_open_tests", http_open_tests, n_http_open_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("http_coding_tests", http_coding_tests, n_http_coding_tests,
                                      NULL, NULL);
    failed += _cmocka_run_group_tests("http_upgrade_tests", http_upgrade_tests,
                                      n_http_upgrade_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("http_client_tests", http_client_tests, n_http_client_tests,
                                      NULL, NULL);
    failed += _cmocka_run_group_tests("http_fetch_tests", http_fetch_tests, n_http_fetch_tests,
                                      NULL, NULL);
    failed += _cmocka_run_group_tests("http_policy_tests", http_policy_tests, n_http_policy_tests,
                                      NULL, NULL);
    return failed;
}
