// SPDX-License-Identifier: Apache-2.0
// An in-process loopback for the HTTP tests: one loop with a server, a client, and raw sockets.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base.h"
#include "http.h"
#include "http_client.h"
#include "loop.h"

// A fake authenticator: it has a few keys, and a check can wait until the test allows it.
struct test_authenticator {
    struct http_authenticator base; // the first member
    const char *owners[4];          // of the keys
    const char *keys[4];
    size_t n;
    bool slow; // checks wait in `pending` for bench_answer_check()
    struct http_check *pending[8];
    size_t n_pending;
    int n_checks;
    int n_cancelled;
    struct http_quota quota;
};

struct bench {
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct test_authenticator authenticator;
    int64_t give_up_ms; // by the machine's clock
    char url[64];
    // Set by the handlers of test_http_util.c:
    struct http_request *held; // by /hold and /stream, until a test answers it
    int n_gone;
    int n_drained;
    int n_handled;
};

extern struct bench bench;

int bench_set_up(void **state);
int bench_tear_down(void **state);
// Replaces the server by one with other settings and the same routes.
void bench_restart_server(const struct http_server_settings *settings);
struct http_server_settings bench_settings(void);
// Adds a key. From the first one on the server requires keys; bench_restart_server() keeps them.
void bench_add_key(const char *owner, const char *key);
// Completes the check that has waited longest.
void bench_answer_check(void);
// One turn of the loop; fails the test after its deadline.
void bench_turn(void);
#define WAIT(condition)                                                                            \
    do {                                                                                           \
        while (!(condition))                                                                       \
            bench_turn();                                                                          \
    } while (0)

// ---- A raw connection -----------------------------------------------------------------------

struct raw {
    int fd;
    struct loop_fd *watch;
    struct buf in;
    bool closed;
};

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define HELLO GET("/hello")

void raw_open(struct raw *raw);
void raw_open_small(struct raw *raw, int rcvbuf);
void raw_send(struct raw *raw, const char *text);
// Opens a connection and sends.
void raw_ask(struct raw *raw, const char *text);
void raw_pause(struct raw *raw, bool pause);
bool raw_has(const struct raw *raw, const char *text);
int raw_count(const struct raw *raw, const char *text);
// Opens a connection, sends, and waits until the server has answered and closed.
void raw_exchange(struct raw *raw, const char *text);
void raw_close(struct raw *raw);

static inline void
raw_auto_(struct raw *raw)
{
    raw_close(raw);
}
#define KG_AUTO_RAW __attribute__((cleanup(raw_auto_))) struct raw

// ---- A call by the client -------------------------------------------------------------------

struct call {
    struct http_call *handle;
    bool done;
    int status;
    struct buf body;
    char error[240];
};

void call_on_done(const struct http_call_result *result, void *arg);
// Starts `METHOD path` and waits for its end.
void call_path(struct call *call, const char *method, const char *path, const char *body,
               const char *const *headers);

// A request on a connection of its own, which must be answered.
void round_trip(void);
// A text of `n` times `c`, to be freed.
char *repeated(char c, size_t n);

static inline void
call_auto_(struct call *call)
{
    buf_fini(&call->body);
}
#define KG_AUTO_CALL __attribute__((cleanup(call_auto_))) struct call

extern const struct CMUnitTest http_stream_tests[];
extern const size_t n_http_stream_tests;
extern const struct CMUnitTest http_pace_tests[];
extern const size_t n_http_pace_tests;
extern const struct CMUnitTest http_body_tests[];
extern const size_t n_http_body_tests;
extern const struct CMUnitTest http_open_tests[];
extern const size_t n_http_open_tests;
extern const struct CMUnitTest http_coding_tests[];
extern const size_t n_http_coding_tests;
extern const struct CMUnitTest http_upgrade_tests[];
extern const size_t n_http_upgrade_tests;
extern const struct CMUnitTest http_client_tests[];
extern const size_t n_http_client_tests;
extern const struct CMUnitTest http_fetch_tests[];
extern const size_t n_http_fetch_tests;
extern const struct CMUnitTest http_policy_tests[];
extern const size_t n_http_policy_tests;
