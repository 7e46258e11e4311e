// SPDX-License-Identifier: Apache-2.0
// The loopback's server with its handlers, and raw sockets that can misbehave.

#include "test_http_util.h"
#include "virtual_clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct bench bench;

// ---- Handlers -------------------------------------------------------------------------------

static void
handle_hello(struct http_request *request, void *arg)
{
    (void)arg;
    bench.n_handled++;
    http_reply(request, 200, "text/plain", "hello", 5);
}

static void
handle_show(struct http_request *request, void *arg)
{
    (void)arg;
    char network[IP_NETWORK_TEXT_SIZE];
    bool distant = http_request_network(request, network);
    json_t *seen =
        json_pack("{s:s, s:s?, s:s?, s:s, s:b}", "name", http_request_param(request, "name"), "q",
                  http_request_query(request, "q"), "owner", http_request_owner(request), "network",
                  network, "distant", (int)distant);
    http_reply_json(request, 200, seen);
}

static void
handle_whose(struct http_request *request, void *arg)
{
    (void)arg;
    const char *owner = http_request_owner(request);
    if (!owner)
        owner = "nobody";
    http_reply(request, 200, "text/plain", owner, strlen(owner));
}

static void
handle_rest(struct http_request *request, void *arg)
{
    (void)arg;
    http_reply_json(request, 200,
                    json_pack("{s:s, s:s}", "name", http_request_param(request, "name"), "rest",
                              http_request_param(request, "rest")));
}

static void
handle_echo(struct http_request *request, void *arg)
{
    (void)arg;
    size_t len;
    const void *body = http_request_body(request, &len);
    http_reply(request, 200, "application/octet-stream", body, len);
}

// Takes a body piece by piece, and answers with its length.
static void
handle_large(struct http_request *request, void *arg)
{
    (void)arg;
    char piece[1000];
    size_t total = 0;
    size_t announced = http_request_body_len(request);
    for (size_t n; (n = http_request_body_read(request, piece, sizeof piece)) > 0;)
        total += n;
    assert_int_equal(total, announced);
    char text[24];
    snprintf(text, sizeof text, "%zu", total);
    http_reply(request, 200, "text/plain", text, strlen(text));
}

static void
handle_json(struct http_request *request, void *arg)
{
    (void)arg;
    struct kg_error err;
    json_t *value = http_request_json(request, &err);
    if (value)
        http_reply_json(request, 200, value);
    else
        http_reply_error(request, &err);
}

static void
on_gone(void *arg)
{
    (void)arg;
    bench.n_gone++;
}

static void
on_drain(void *arg)
{
    (void)arg;
    bench.n_drained++;
}

static void
handle_hold(struct http_request *request, void *arg)
{
    (void)arg;
    assert_null(bench.held);
    bench.held = request;
    http_request_on_gone(request, on_gone, NULL);
}

static void
handle_stream(struct http_request *request, void *arg)
{
    handle_hold(request, arg);
    http_stream_start(request, 200, "text/plain");
    http_stream_on_drain(request, 1024, on_drain, NULL);
}

static void
handle_busy(struct http_request *request, void *arg)
{
    (void)arg;
    struct kg_error err;
    kg_error_set(&err, KG_SESSION_BUSY, 0, "cut in a character: \xe2\x82");
    http_reply_error(request, &err);
}

static const struct http_concern session_in_body[] = {
    {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_BODY, .name = "session_id"}, {0}};
static const struct http_route routes[] = {
    {HTTP_GET, "/", handle_hello, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/hello", handle_hello, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/whose", handle_whose, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/show/{name}", handle_show, HTTP_KEY_IN_QUERY, NULL},
    {HTTP_DELETE, "/show/{name}", handle_show, 0, NULL},
    {HTTP_GET, "/files/{name}/{rest...}", handle_rest, 0, NULL},
    {HTTP_POST, "/echo", handle_echo, HTTP_PUBLIC, session_in_body},
    {HTTP_POST, "/json", handle_json, HTTP_PUBLIC, NULL},
    {HTTP_POST, "/parsed", handle_json, HTTP_PUBLIC | HTTP_JSON_BODY, NULL},
    {HTTP_PUT, "/large", handle_large, HTTP_PUBLIC | HTTP_LARGE_BODY, NULL},
    {HTTP_PUT, "/private", handle_large, HTTP_LARGE_BODY, NULL},
    {HTTP_PUT, "/parsed-hold", handle_hold, HTTP_LARGE_BODY | HTTP_JSON_BODY, NULL},
    {HTTP_POST, "/work", handle_hello, HTTP_STARTS_WORK, NULL},
    {HTTP_GET, "/hold", handle_hold, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/hold-private", handle_hold, 0, NULL},
    {HTTP_GET, "/stream", handle_stream, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/busy", handle_busy, HTTP_PUBLIC, NULL},
};

// ---- Keys -----------------------------------------------------------------------------------

struct http_check {
    char owner[HTTP_OWNER_MAX + 1];
    http_checked_fn done;
    void *arg;
};

static struct http_check *
test_check(struct http_authenticator *base, const char *credential, char *ret_owner,
           http_checked_fn done, void *arg)
{
    struct test_authenticator *authenticator = (struct test_authenticator *)base;
    const char *owner = "";
    authenticator->n_checks++;
    for (size_t i = 0; i < authenticator->n; i++)
        if (strcmp(authenticator->keys[i], credential) == 0)
            owner = authenticator->owners[i];
    if (!authenticator->slow) {
        strcpy(ret_owner, owner);
        return NULL;
    }
    struct http_check *check = KG_NEW(struct http_check);
    *check = (struct http_check){.done = done, .arg = arg};
    strcpy(check->owner, owner);
    assert_true(authenticator->n_pending < KG_ARRAY_LEN(authenticator->pending));
    authenticator->pending[authenticator->n_pending++] = check;
    return check;
}

static void
remove_check(struct test_authenticator *authenticator, const struct http_check *check)
{
    size_t i = 0;
    while (authenticator->pending[i] != check)
        assert_true(++i < authenticator->n_pending);
    authenticator->n_pending--;
    memmove(&authenticator->pending[i], &authenticator->pending[i + 1],
            (authenticator->n_pending - i) * sizeof authenticator->pending[0]);
}

static void
test_cancel(struct http_check *check)
{
    remove_check(&bench.authenticator, check);
    bench.authenticator.n_cancelled++;
    free(check);
}

static struct http_quota
test_quota(const struct http_authenticator *base, const char *owner)
{
    (void)owner;
    return ((const struct test_authenticator *)base)->quota;
}

static const struct http_authenticator_ops test_authenticator_ops = {
    .check = test_check, .cancel = test_cancel, .quota = test_quota};

void
bench_add_key(const char *owner, const char *key)
{
    struct test_authenticator *authenticator = &bench.authenticator;
    assert_true(authenticator->n < KG_ARRAY_LEN(authenticator->keys));
    authenticator->base.ops = &test_authenticator_ops;
    authenticator->owners[authenticator->n] = owner;
    authenticator->keys[authenticator->n++] = key;
    http_server_set_authenticator(bench.server, &authenticator->base);
}

void
bench_answer_check(void)
{
    assert_true(bench.authenticator.n_pending > 0);
    struct http_check *check = bench.authenticator.pending[0];
    remove_check(&bench.authenticator, check);
    check->done(check->owner, NULL, check->arg);
    free(check);
}

// ---- The loopback ---------------------------------------------------------------------------

struct http_server_settings
bench_settings(void)
{
    return (struct http_server_settings){.host = "127.0.0.1",
                                         .max_body_bytes = 1024 * 1024,
                                         .max_header_bytes = 16 * 1024,
                                         .max_connections = 16,
                                         .idle_timeout_s = 30,
                                         .check_origin_and_host = true};
}

void
bench_restart_server(const struct http_server_settings *settings)
{
    http_server_free(bench.server);
    struct kg_error err = {0};
    bench.server = http_server_new(bench.loop, settings, &err);
    assert_string_equal(err.message, "");
    http_server_add_routes(bench.server, routes, KG_ARRAY_LEN(routes), NULL);
    if (bench.authenticator.n > 0)
        http_server_set_authenticator(bench.server, &bench.authenticator.base);
    snprintf(bench.url, sizeof bench.url, "http://127.0.0.1:%d", http_server_port(bench.server));
}

int
bench_set_up(void **state)
{
    (void)state;
    bench = (struct bench){.loop = loop_new()};
    bench.client = http_client_new(bench.loop);
    bench.give_up_ms = wait_now_ms() + PATIENCE_MS;
    struct http_server_settings settings = bench_settings();
    bench_restart_server(&settings);
    return 0;
}

int
bench_tear_down(void **state)
{
    (void)state;
    http_client_free(bench.client);
    http_server_free(bench.server);
    if (bench.held)
        http_reply(bench.held, 200, NULL, NULL, 0);
    loop_free(bench.loop);
    return 0;
}

void
bench_turn(void)
{
    virtual_clock_turn(bench.loop);
    assert_true(wait_now_ms() < bench.give_up_ms);
}

// ---- Raw connections ------------------------------------------------------------------------

static void
on_raw_readable(int fd, int events, void *arg)
{
    (void)events;
    struct raw *raw = arg;
    ssize_t n = read(fd, buf_reserve(&raw->in, 65536), 65536);
    if (n > 0) {
        raw->in.len += (size_t)n;
        raw->in.data[raw->in.len] = '\0';
        return;
    }
    if (n < 0 && errno == EAGAIN)
        return;
    raw->closed = true;
    loop_fd_set(raw->watch, 0);
}

void
raw_open_small(struct raw *raw, int rcvbuf)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)http_server_port(bench.server)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *raw = (struct raw){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(raw->fd >= 0);
    if (rcvbuf)
        assert_int_equal(setsockopt(raw->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf), 0);
    assert_int_equal(connect(raw->fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(fd_set_nonblocking(raw->fd, NULL), 0);
    raw->watch = loop_fd_new(bench.loop, raw->fd, LOOP_READ, on_raw_readable, raw);
}

void
raw_open(struct raw *raw)
{
    raw_open_small(raw, 0);
}

void
raw_send(struct raw *raw, const char *text)
{
    size_t len = strlen(text);
    while (len > 0) {
        ssize_t n = send(raw->fd, text, len, MSG_NOSIGNAL);
        if (n < 0) {
            assert_int_equal(errno, EAGAIN);
            bench_turn();
            continue;
        }
        text += n;
        len -= (size_t)n;
    }
}

void
raw_ask(struct raw *raw, const char *text)
{
    raw_open(raw);
    raw_send(raw, text);
}

void
raw_pause(struct raw *raw, bool pause)
{
    loop_fd_set(raw->watch, pause ? 0 : LOOP_READ);
}

bool
raw_has(const struct raw *raw, const char *text)
{
    return raw->in.data && memmem(raw->in.data, raw->in.len, text, strlen(text));
}

int
raw_count(const struct raw *raw, const char *text)
{
    int n = 0;
    const char *at = raw->in.data;
    while (at && (at = strstr(at, text))) {
        n++;
        at += strlen(text);
    }
    return n;
}

void
raw_exchange(struct raw *raw, const char *text)
{
    raw_ask(raw, text);
    WAIT(raw->closed);
}

void
raw_close(struct raw *raw)
{
    loop_fd_free(KG_STEAL(raw->watch));
    if (raw->fd >= 0)
        close(KG_STEAL_FD(raw->fd));
    buf_fini(&raw->in);
}

// ---- Calls ----------------------------------------------------------------------------------

void
call_on_done(const struct http_call_result *result, void *arg)
{
    struct call *call = arg;
    assert_false(call->done);
    call->done = true;
    call->handle = NULL;
    call->status = result->status;
    buf_append(&call->body, result->body, result->body_len);
    if (result->err)
        memcpy(call->error, result->err->message, sizeof call->error);
}

void
call_path(struct call *call, const char *method, const char *path, const char *body,
          const char *const *headers)
{
    KG_AUTO_FREE char *url = kg_asprintf("%s%s", bench.url, path);
    struct http_call_spec spec = {.method = method,
                                  .url = url,
                                  .headers = headers,
                                  .body = body,
                                  .body_len = body ? strlen(body) : 0};
    struct kg_error err;
    *call = (struct call){0};
    call->handle = http_call_start(bench.client, &spec, NULL, call_on_done, call, &err);
    assert_non_null(call->handle);
    WAIT(call->done);
    assert_string_equal(call->error, "");
}

void
round_trip(void)
{
    KG_AUTO_CALL call;
    call_path(&call, "GET", "/hello", NULL, NULL);
    assert_int_equal(call.status, 200);
}

char *
repeated(char c, size_t n)
{
    char *text = kg_calloc(n + 1, 1);
    memset(text, c, n);
    return text;
}
