// SPDX-License-Identifier: Apache-2.0
// The way out: requests' heads, tunnels, plain requests, refusals, bounds.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connect_head.h"
#include "egress.h"
#include "virtual_clock.h"

// ---- Heads ----------------------------------------------------------------------------------

static void
test_head_connect(void **state)
{
    (void)state;
    static const char text[] = "CONNECT pypi.example:443 HTTP/1.1\r\nHost: x\r\n\r\nmore";
    struct kg_error err = {0};
    struct connect_head head;
    for (size_t len = 0; len < sizeof text - 1 - 4; len++) {
        assert_int_equal(connect_head_parse(text, len, &head, &err), 0);
        connect_head_fini(&head);
    }
    assert_int_equal(connect_head_parse(text, sizeof text - 1, &head, &err), 1);
    assert_string_equal(head.host, "pypi.example");
    assert_int_equal(head.port, 443);
    assert_int_equal(head.len, sizeof text - 1 - 4);
    assert_int_equal(head.request.len, 0);
    connect_head_fini(&head);
    static const char v6[] = "CONNECT [2001:db8::1]:80 HTTP/1.0\r\n\r\n";
    assert_int_equal(connect_head_parse(v6, sizeof v6 - 1, &head, &err), 1);
    assert_string_equal(head.host, "2001:db8::1");
    connect_head_fini(&head);
}

static void
test_head_absolute(void **state)
{
    (void)state;
    static const char text[] =
        "POST http://Example.org:8080/a?b=c HTTP/1.1\r\nHost: Example.org\r\n"
        "Proxy-Connection: keep-alive\r\nproxy-authorization: Basic x\r\n"
        "Connection: keep-alive\r\nContent-Length: 3\r\n\r\nabc";
    struct kg_error err = {0};
    struct connect_head head;
    assert_int_equal(connect_head_parse(text, sizeof text - 1, &head, &err), 1);
    assert_string_equal(head.host, "Example.org");
    assert_int_equal(head.port, 8080);
    assert_int_equal(head.len, sizeof text - 1 - 3);
    assert_string_equal(head.request.data,
                        "POST /a?b=c HTTP/1.1\r\nHost: Example.org\r\nContent-Length: 3\r\n"
                        "Connection: close\r\n\r\n");
    connect_head_fini(&head);
    static const char bare[] = "GET http://example.org?x HTTP/1.1\r\n\r\n";
    assert_int_equal(connect_head_parse(bare, sizeof bare - 1, &head, &err), 1);
    assert_int_equal(head.port, 80);
    assert_string_equal(head.request.data, "GET /?x HTTP/1.1\r\nConnection: close\r\n\r\n");
    connect_head_fini(&head);
}

static void
test_head_bad(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "CONNECT a HTTP/1.1\r\n\r\n",
        "CONNECT a: HTTP/1.1\r\n\r\n",
        "CONNECT :80 HTTP/1.1\r\n\r\n",
        "CONNECT a:0 HTTP/1.1\r\n\r\n",
        "CONNECT a:65536 HTTP/1.1\r\n\r\n",
        "CONNECT a:80x HTTP/1.1\r\n\r\n",
        "CONNECT a/b:80 HTTP/1.1\r\n\r\n",
        "CONNECT a@b:80 HTTP/1.1\r\n\r\n",
        "CONNECT -a:80 HTTP/1.1\r\n\r\n",
        "CONNECT [::1]80 HTTP/1.1\r\n\r\n",
        "CONNECT [a]:80 HTTP/1.1\r\n\r\n",
        "GET http://[::1/ HTTP/1.1\r\n\r\n",
        "CONNECT a:80 HTTP/2.0\r\n\r\n",
        "CONNECT  a:80 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET https://a/ HTTP/1.1\r\n\r\n",
        "GET http:///x HTTP/1.1\r\n\r\n",
        "GET http://u:p@a/ HTTP/1.1\r\n\r\n",
        "GET http://a/\x01 HTTP/1.1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
        "get http://a/ HTTP/1.1\r\n\r\n",
        "\r\n\r\n",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        struct kg_error err = {0};
        struct connect_head head;
        if (connect_head_parse(bad[i], strlen(bad[i]), &head, &err) != -1)
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(err.code, KG_INVALID);
        connect_head_fini(&head);
    }
    char *endless = kg_calloc(1, CONNECT_HEAD_MAX);
    memset(endless, 'a', CONNECT_HEAD_MAX);
    struct connect_head head;
    struct kg_error err = {0};
    assert_int_equal(connect_head_parse(endless, CONNECT_HEAD_MAX - 1, &head, &err), 0);
    assert_int_equal(connect_head_parse(endless, CONNECT_HEAD_MAX, &head, &err), -1);
    free(endless);
}

// ---- Connections ----------------------------------------------------------------------------

enum { MANY = 33 };

struct bench {
    struct loop *loop;
    struct http_client *http;
    struct address_policy *policy;
    struct egress *egress;
    struct egress_user *user;
    int listener;
    int port;
    int64_t until_ms; // by the machine's clock
};

static struct bench bench;

static void
turn(void)
{
    assert_true(wait_now_ms() < bench.until_ms);
    virtual_clock_turn(bench.loop);
}

static int
set_up(void **state)
{
    (void)state;
    static const char *const allow[] = {"127.0.0.1", NULL};
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof addr;
    bench.loop = loop_new();
    bench.http = http_client_new(bench.loop);
    bench.policy = address_policy_new(allow, NULL);
    bench.egress = egress_new(bench.loop, bench.http, bench.policy);
    bench.user = egress_user_new(bench.egress);
    bench.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(bench.listener, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(bench.listener, 64), 0);
    assert_int_equal(getsockname(bench.listener, (struct sockaddr *)&addr, &len), 0);
    bench.port = ntohs(addr.sin_port);
    bench.until_ms = wait_now_ms() + PATIENCE_MS;
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    egress_user_free(bench.user);
    egress_free(bench.egress);
    http_client_free(bench.http);
    address_policy_free(bench.policy);
    loop_free(bench.loop);
    close(bench.listener);
    return 0;
}

// The sandbox's side of a new connection, which asks for `request`.
static int
ask(const char *request)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(send(fds[0], request, strlen(request), 0), strlen(request));
    egress_user_take(bench.user, fds[1]);
    return fds[0];
}

static void
expect(int fd, const char *text)
{
    char got[1024];
    size_t len = strlen(text);
    assert_true(len < sizeof got);
    while (recv(fd, got, len, MSG_PEEK | MSG_DONTWAIT) < (ssize_t)len)
        turn();
    assert_int_equal(recv(fd, got, len, 0), len);
    assert_memory_equal(got, text, len);
}

static void
expect_end(int fd)
{
    char rest[1024];
    ssize_t n;
    while ((n = recv(fd, rest, sizeof rest, MSG_DONTWAIT)) != 0 && (n > 0 || errno == EAGAIN))
        turn();
}

static int
accept_one(void)
{
    int fd;
    while ((fd = accept4(bench.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
        turn();
    return fd;
}

static void
test_tunnel(void **state)
{
    (void)state;
    KG_AUTO_FREE char *request =
        kg_asprintf("CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\nearly", bench.port);
    KG_AUTO_FD client = ask(request);
    KG_AUTO_FD server = accept_one();
    expect(client, "HTTP/1.1 200 Connection established\r\n\r\n");
    expect(server, "early");
    assert_int_equal(send(server, "pong", 4, 0), 4);
    expect(client, "pong");
    assert_int_equal(send(client, "ping", 4, 0), 4);
    expect(server, "ping");
    close(KG_STEAL_FD(server));
    expect_end(client);
}

static void
test_plain_request(void **state)
{
    (void)state;
    KG_AUTO_FREE char *request =
        kg_asprintf("POST http://127.0.0.1:%d/x HTTP/1.1\r\nProxy-Connection: keep-alive\r\n"
                    "Content-Length: 2\r\n\r\nhi",
                    bench.port);
    KG_AUTO_FD client = ask(request);
    KG_AUTO_FD server = accept_one();
    expect(server, "POST /x HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
    assert_int_equal(send(server, "HTTP/1.1 200 OK\r\n\r\n", 19, 0), 19);
    expect(client, "HTTP/1.1 200 OK\r\n\r\n");
}

static void
test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        const char *answer;
    } cases[] = {
        {"CONNECT 127.0.0.2:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n"},
        {"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n"},
        {"CONNECT 2130706434:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n"},
        {"CONNECT [::1]:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n"},
        {"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", "HTTP/1.1 502 Bad Gateway\r\n"},
        {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_FD client = ask(cases[i].request);
        expect(client, cases[i].answer);
        expect_end(client);
    }
}

// A request that is malformed is refused for that where there is room, else for want of it.
static bool
has_room(void)
{
    static const char full[] = "HTTP/1.1 503";
    char got[sizeof full - 1];
    KG_AUTO_FD fd = ask("GET / HTTP/1.1\r\n\r\n");
    while (recv(fd, got, sizeof got, MSG_PEEK) < (ssize_t)sizeof got)
        turn();
    if (memcmp(got, full, sizeof got) == 0)
        return false;
    expect(fd, "HTTP/1.1 400 Bad Request\r\n");
    return true;
}

static void
test_bounds(void **state)
{
    (void)state;
    int fds[MANY];
    for (int i = 0; i < MANY - 1; i++)
        fds[i] = ask("CONNECT");
    fds[MANY - 1] = ask("CONNECT");
    expect(fds[MANY - 1], "HTTP/1.1 503 Service Unavailable\r\n");
    // Who leaves makes room.
    close(fds[0]);
    while (!has_room())
        turn();
    for (int i = 1; i < MANY; i++)
        close(fds[i]);
}

static void
test_end_while_dialling(void **state)
{
    (void)state;
    KG_AUTO_FREE char *request = kg_asprintf("CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n", bench.port);
    KG_AUTO_FD dialling = ask(request);
    turn();
    KG_AUTO_FD joined = ask(request);
    expect(joined, "HTTP/1.1 200 Connection established\r\n\r\n");
    egress_user_free(KG_STEAL(bench.user));
    expect_end(joined);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_connect),
        cmocka_unit_test(test_head_absolute),
        cmocka_unit_test(test_head_bad),
        cmocka_unit_test_setup_teardown(test_tunnel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_plain_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_end_while_dialling, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
