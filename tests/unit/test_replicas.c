// SPDX-License-Identifier: Apache-2.0
// What the module replicas reads: addresses of other replicas, and names in bodies; where
// requests for sandboxes go.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>

#include "provisioner_engine.h"
#include "replicas_priv.h"
#include "sessions_priv.h"
#include "test_http_util.h"

static void
test_hosts_and_ports(void **state)
{
    (void)state;
    static const struct {
        const char *address, *host;
        int port;
    } cases[] = {{"10.0.0.1:16010", "10.0.0.1", 16010},
                 {"[fd00::1]:1", "fd00::1", 1},
                 {"host.name:65535", "host.name", 65535}};
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        int port;
        KG_AUTO_FREE char *host = replicas_host(cases[i].address, &port);
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
    }
}

static void
test_connections_of_replicas(void **state)
{
    (void)state;
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6}, mapped = {.sin6_family = AF_INET6};
    inet_pton(AF_INET, "10.0.0.1", &four.sin_addr);
    inet_pton(AF_INET6, "fd00::1", &six.sin6_addr);
    inet_pton(AF_INET6, "::ffff:10.0.0.1", &mapped.sin6_addr);
    const struct sockaddr *from_four = (const struct sockaddr *)&four;
    const struct sockaddr *from_six = (const struct sockaddr *)&six;
    assert_true(replicas_is_from(from_four, "10.0.0.1:16010"));
    assert_true(replicas_is_from((const struct sockaddr *)&mapped, "10.0.0.1:16010"));
    assert_true(replicas_is_from(from_six, "[fd00::1]:16010"));
    assert_false(replicas_is_from(from_four, "10.0.0.2:16010"));
    assert_false(replicas_is_from(from_six, "10.0.0.1:16010"));
    assert_false(replicas_is_from(from_six, "[fd00::2]:16010"));
    assert_false(replicas_is_from(from_four, "host.name:16010")); // names are not looked up
    struct sockaddr local = {.sa_family = AF_UNIX};
    assert_false(replicas_is_from(&local, "10.0.0.1:16010"));
}

static const struct http_concern in_body = {
    .kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_BODY, .name = "session_id"};
static const struct http_concern in_arguments = {.kind = HTTP_CONCERNS_SESSION,
                                                 .part = HTTP_IN_BODY,
                                                 .within = "/params/arguments",
                                                 .name = "sandbox_id"};

static void
assert_name(const struct http_concern *rule, const char *body, const char *expected)
{
    KG_AUTO_FREE char *name = place_read_body(rule, body, strlen(body));
    if (expected)
        assert_string_equal(name, expected);
    else
        assert_null(name);
}

static void
test_names_in_bodies(void **state)
{
    (void)state;
    assert_name(&in_body, "{\"code\":\"1\",\"session_id\":\"mine\"}", "mine");
    assert_name(&in_body, "{\"session_id\":\"m\\u0069ne\"}", "mine");
    assert_name(&in_body, "{\"code\":\"{\\\"session_id\\\":\\\"x\\\"}\"}", NULL);
    assert_name(&in_body, "{\"session_id\":7}", NULL);
    assert_name(&in_body, "[]", NULL);
    assert_name(&in_body, "", NULL);
    assert_name(&in_body, "{\"sandbox_id\":\"mine\"}", NULL);
    assert_name(&in_arguments, "{\"params\":{\"arguments\":{\"sandbox_id\":\"mine\"}}}", "mine");
    assert_name(&in_arguments, "{\"params\":{\"arguments\":{\"session_id\":\"mine\"}}}", NULL);
    assert_name(&in_arguments, "{\"params\":{\"sandbox_id\":\"mine\"}}", NULL);
    assert_name(&in_arguments, "{\"params\":\"arguments\"}", NULL);
    assert_name(&in_arguments, "{\"sandbox_id\":\"mine\"}", NULL);
    KG_AUTO_FREE char *longest = repeated('x', PLACE_NAME_MAX);
    KG_AUTO_FREE char *body = kg_asprintf("{\"session_id\":\"%s\"}", longest);
    assert_name(&in_body, body, longest);
    KG_AUTO_FREE char *longer = kg_asprintf("{\"session_id\":\"%s1\"}", longest);
    assert_name(&in_body, longer, NULL);
}

static bool
on_request(struct http_request *request, void *arg)
{
    return place_start(arg, request, false);
}

// The body of a large request is read on a worker, and the request handled then.
static void
test_large_bodies_are_read_on_a_worker(void **state)
{
    (void)state;
    struct replicas replicas = {.settings.loop = bench.loop, .server = bench.server};
    http_server_set_forward(bench.server, on_request, &replicas);
    KG_AUTO_FREE char *code = repeated('x', 200 << 10);
    KG_AUTO_FREE char *body = kg_asprintf("{\"code\":\"%s\"}", code);
    KG_AUTO_CALL call;
    call_path(&call, "POST", "/echo", body, NULL);
    assert_int_equal(call.status, 200);
    assert_int_equal(call.body.len, strlen(body));
    // A client that leaves meanwhile.
    KG_AUTO_FREE char *request =
        kg_asprintf("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                    strlen(body), body);
    KG_AUTO_RAW raw;
    raw_ask(&raw, request);
    raw_close(&raw);
    round_trip();
}

// ---- Requests for sandboxes -----------------------------------------------------------------

static struct provisioner_place sandbox_places[2]; // the first one is answered once
static int n_places;

static const char *
fake_id(const struct provisioner *provisioner)
{
    (void)provisioner;
    return "abcdefghij";
}

static struct provisioner_place
fake_sandbox_place(const struct provisioner *provisioner, const char *id)
{
    (void)provisioner;
    assert_string_equal(id, "sandbox");
    return sandbox_places[n_places++ > 0];
}

static void
ask_for_sandbox(struct http_request *request, struct http_concern *ret, char **ret_name, void *arg)
{
    (void)request;
    (void)arg;
    ret->kind = HTTP_CONCERNS_SANDBOX;
    *ret_name = kg_strdup("sandbox");
}

static void
answer_here(struct http_request *request, void *arg)
{
    (void)arg;
    http_reply(request, 200, "text/plain", "here", 4);
}

static int
ask_sandbox(struct provisioner_place first)
{
    static const struct http_concern concerns[] = {
        {.kind = HTTP_CONCERNS_ASKED, .ask = ask_for_sandbox}, {0}};
    static const struct http_route route = {HTTP_GET, "/sandbox", answer_here, HTTP_PUBLIC,
                                            concerns};
    static const struct provisioner_replica_engine replica_engine = {
        .id = fake_id, .sandbox_place = fake_sandbox_place};
    static const struct provisioner_engine engine = {.replicas = &replica_engine};
    struct provisioner provisioner = {.engine = &engine};
    struct sessions sessions = {0};
    TAILQ_INIT(&sessions.live);
    struct replicas replicas = {
        .settings = {.loop = bench.loop,
                     .provisioner = &provisioner,
                     .sessions = &sessions,
                     .client = bench.client},
        .server = bench.server,
    };
    sandbox_places[0] = first;
    n_places = 0;
    http_server_add_routes(bench.server, &route, 1, NULL);
    http_server_set_forward(bench.server, on_request, &replicas);
    KG_AUTO_CALL call;
    call_path(&call, "GET", "/sandbox", NULL, NULL);
    http_server_set_forward(bench.server, NULL, NULL);
    return call.status;
}

static void
test_sandboxes(void **state)
{
    (void)state;
    assert_int_equal(ask_sandbox((struct provisioner_place){.holder = HOLDER_NOBODY}), 200);
    assert_int_equal(n_places, 1);
    assert_int_equal(ask_sandbox((struct provisioner_place){.holder = HOLDER_SELF}), 200);
    assert_int_equal(ask_sandbox((struct provisioner_place){.holder = HOLDER_LOST}), 503);
    // The other replica is this server, where it is found then.
    struct provisioner_place other = {.holder = HOLDER_OTHER, .id = "abcdefghij"};
    snprintf(other.address, sizeof other.address, "127.0.0.1:%d", http_server_port(bench.server));
    assert_int_equal(ask_sandbox(other), 200);
    assert_int_equal(n_places, 2);
}

static void
test_marks(void **state)
{
    (void)state;
    const struct provisioner_place place = {.id = "abcdefghij"};
    static const char name[] = FORWARDED_HEADER ": ";
    for (int n = 1; n <= MAX_FORWARDS; n++) {
        KG_AUTO_FREE char *line = replicas_forwarded_line(&place, n);
        assert_memory_equal(line, name, strlen(name));
        assert_int_equal(replicas_read_forwarded(line + strlen(name), place.id), n);
        assert_int_equal(replicas_read_forwarded(line + strlen(name), "abcdefghik"), -1);
    }
    assert_int_equal(replicas_read_forwarded(NULL, place.id), 0);
    static const char *const wrong[] = {
        "",           "abcdefghi", "abcdefghij ", "abcdefghij 1", "abcdefghij 22", "abcdefghij -1",
        "abcdefghijk"};
    for (size_t i = 0; i < KG_ARRAY_LEN(wrong); i++)
        assert_int_equal(replicas_read_forwarded(wrong[i], place.id), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_and_ports),
        cmocka_unit_test(test_connections_of_replicas),
        cmocka_unit_test(test_names_in_bodies),
        cmocka_unit_test_setup_teardown(test_large_bodies_are_read_on_a_worker, bench_set_up,
                                        bench_tear_down),
        cmocka_unit_test_setup_teardown(test_sandboxes, bench_set_up, bench_tear_down),
        cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
