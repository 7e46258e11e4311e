// SPDX-License-Identifier: Apache-2.0
// What the engine "docker" makes of addresses, versions and lines. What it does with a real engine
// is shown by tests/e2e/test_docker.py.
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "docker_priv.h"

static void
parse(struct docker *docker, const char *host, int expected)
{
    struct kg_error err = {0};
    *docker = (struct docker){0};
    assert_int_equal(docker_parse_host(docker, host, &err), expected);
    if (expected < 0)
        assert_non_null(strstr(err.message, host));
}

static void
forget(struct docker *docker)
{
    free(docker->host);
    free(docker->socket_path);
    free(docker->url);
}

static void
test_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        const char *socket_path;
        const char *url;
    } good[] = {
        {"unix:///var/run/docker.sock", "/var/run/docker.sock", "http://docker"},
        {"tcp://127.0.0.1:2376", NULL, "http://127.0.0.1:2376"},
        {"tcp://engine", NULL, "http://engine:2375"},
        {"tcp://[::1]", NULL, "http://[::1]:2375"},
        {"tcp://[::1]:4711", NULL, "http://[::1]:4711"},
    };
    struct docker docker;
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        parse(&docker, good[i].host, 0);
        assert_string_equal(docker.url, good[i].url);
        if (good[i].socket_path)
            assert_string_equal(docker.socket_path, good[i].socket_path);
        else
            assert_null(docker.socket_path);
        forget(&docker);
    }
    static const char *const bad[] = {
        "",       "unix://",  "unix://relative", "/var/run/docker.sock",
        "tcp://", "tcp://a/", "ssh://host",      "https://host"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        parse(&docker, bad[i], -1);
        forget(&docker);
    }
}

static int
take(struct docker *docker, const char *text)
{
    struct kg_error err;
    json_auto_t *body = json_loads(text, 0, NULL);
    return docker_take_version(docker, body, &err);
}

static void
test_versions(void **state)
{
    (void)state;
    char host[] = "unix:///x";
    struct docker docker = {.host = host};
    assert_int_equal(take(&docker, "{\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\"}"), 0);
    assert_int_equal(docker.api_minor, 41);
    assert_false(docker.podman);
    // An engine that has left the oldest version behind is asked in its own oldest.
    assert_int_equal(take(&docker, "{\"ApiVersion\":\"1.52\",\"MinAPIVersion\":\"1.44\"}"), 0);
    assert_int_equal(docker.api_minor, 44);
    assert_int_equal(take(&docker, "{\"ApiVersion\":\"1.41\",\"Components\":"
                                   "[{\"Name\":\"Podman Engine\"}]}"),
                     0);
    assert_true(docker.podman);
    assert_int_equal(take(&docker, "{\"ApiVersion\":\"1.40\"}"), -1);
    assert_int_equal(take(&docker, "{\"ApiVersion\":41}"), -1);
    assert_int_equal(take(&docker, "[]"), -1);
    assert_int_equal(take(&docker, "no JSON"), -1);
}

static void
on_line(const json_t *line, void *arg)
{
    struct buf *seen = arg;
    buf_printf(seen, "%lld ", (long long)json_integer_value(json_object_get(line, "n")));
}

static void
test_lines_come_in_pieces(void **state)
{
    (void)state;
    static const char text[] = "{\"n\":1}\r\n{\"n\":2}\n\nno JSON\n{\"n\":3}\n{\"n\":4}";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct docker_lines lines = {0};
        KG_AUTO_BUF seen = {0};
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            size_t len = sizeof text - 1 - at < piece ? sizeof text - 1 - at : piece;
            assert_true(docker_lines_feed(&lines, text + at, len, on_line, &seen));
        }
        assert_string_equal(seen.data, "1 2 3 "); // the last one has not ended
        buf_fini(&lines.rest);
    }
}

static void
test_a_line_without_end(void **state)
{
    (void)state;
    struct docker_lines lines = {0};
    static const char much[64 * 1024];
    int n = 0;
    while (docker_lines_feed(&lines, much, sizeof much, on_line, NULL))
        assert_true(n++ < 1000);
    buf_fini(&lines.rest);
}

static void
test_escape(void **state)
{
    (void)state;
    KG_AUTO_FREE char *escaped = docker_escape("a/b:c {\"x\"}~é");
    assert_string_equal(escaped, "a%2Fb%3Ac%20%7B%22x%22%7D~%C3%A9");
    KG_AUTO_FREE char *empty = docker_escape("");
    assert_string_equal(empty, "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_lines_come_in_pieces),
        cmocka_unit_test(test_a_line_without_end),
        cmocka_unit_test(test_escape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
