// SPDX-License-Identifier: Apache-2.0
// What the engine "docker" makes of addresses, versions and lines. What it does with a real engine
// is shown by tests/e2e/test_docker.py.
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "test_docker.h"

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
        struct json_lines lines = {0};
        KG_AUTO_BUF seen = {0};
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            size_t len = sizeof text - 1 - at < piece ? sizeof text - 1 - at : piece;
            assert_true(json_lines_feed(&lines, text + at, len, on_line, &seen));
        }
        assert_string_equal(seen.data, "1 2 3 "); // the last one has not ended
        buf_fini(&lines.rest);
    }
}

static void
test_a_line_without_end(void **state)
{
    (void)state;
    struct json_lines lines = {0};
    static const char much[64 * 1024];
    int n = 0;
    while (json_lines_feed(&lines, much, sizeof much, on_line, NULL))
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

// ---- Whose a container is -------------------------------------------------------------------

static json_t *
listed(const char *name, const char *gateway)
{
    return json_pack("{s:s, s:[s], s:s, s:{s:s, s:s, s:s}}", "Id", "c0ffee", "Names", name, "State",
                     "running", "Labels", "kernelgate.gateway", gateway, "kernelgate.sandbox",
                     "abc", "kernelgate.state", "/run/kg");
}

static void
test_whose_a_container_is(void **state)
{
    (void)state;
    char id[] = "mygatewy";
    const struct docker docker = {.base.gateway_id = id};
    static const struct {
        const char *name;
        const char *gateway;
        bool sandbox;
        bool ours;
    } cases[] = {
        {"/kg-mygatewy-abc", "mygatewy", true, true},
        {"/kg-another1-abc", "another1", true, false},
        {"/debug", "mygatewy", false, false}, // of an image committed from a sandbox
        {"/kg-mygatewy-xyz", "mygatewy", false, false},
        {"/kg-mygatewy-abc", "another1", false, false},
        {"", "mygatewy", false, false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        json_auto_t *element = listed(cases[i].name, cases[i].gateway);
        struct docker_container container;
        assert_int_equal(docker_take_listed(&docker, element, &container), cases[i].sandbox);
        if (!cases[i].sandbox)
            continue;
        assert_int_equal(container.ours, cases[i].ours);
        assert_true(container.lives);
        assert_string_equal(container.sandbox, "abc");
        assert_string_equal(container.state_dir, "/run/kg");
    }
    struct docker_container container;
    assert_false(docker_take_listed(&docker, NULL, &container));
    json_auto_t *actor =
        json_pack("{s:s, s:{s:s, s:s, s:s}}", "ID", "c0ffee", "Attributes", "name",
                  "kg-mygatewy-abc", "kernelgate.gateway", "mygatewy", "kernelgate.sandbox", "abc");
    assert_true(docker_take_actor(&docker, actor, &container) && container.ours);
    json_object_set_new(json_object_get(actor, "Attributes"), "name", json_string("debug"));
    assert_false(docker_take_actor(&docker, actor, &container));
}

static void
test_missing_limits(void **state)
{
    (void)state;
    json_auto_t *all = json_pack("{s:b, s:b, s:b, s:b}", "MemoryLimit", 1, "PidsLimit", 1,
                                 "SwapLimit", 1, "CpuCfsQuota", 1);
    assert_null(docker_missing_limits(all, true));
    assert_null(docker_missing_limits(all, false));
    json_auto_t *some =
        json_pack("{s:b, s:b, s:b}", "MemoryLimit", 1, "PidsLimit", 0, "CpuCfsQuota", 1);
    KG_AUTO_FREE char *needed = docker_missing_limits(some, true);
    assert_string_equal(needed, "processes");
    KG_AUTO_FREE char *others = docker_missing_limits(some, false);
    assert_string_equal(others, "swap");
    KG_AUTO_FREE char *none = docker_missing_limits(NULL, true);
    assert_string_equal(none, "memory, processes");
}

// Where numbers of users are the host's, each sandbox has one that the host has not.
static void
test_users(void **state)
{
    (void)state;
    struct docker docker = {0};
    json_auto_t *plain = json_pack("{s:[s]}", "SecurityOptions", "name=seccomp,profile=default");
    json_auto_t *mapped =
        json_pack("{s:[s, s]}", "SecurityOptions", "name=cgroupns", "name=userns");
    json_auto_t *rootless = json_pack("{s:[s]}", "SecurityOptions", "name=rootless");
    docker_take_info(&docker, plain);
    assert_true(docker.own_users);
    docker_take_info(&docker, mapped);
    assert_false(docker.own_users);
    docker_take_info(&docker, rootless);
    assert_false(docker.own_users);
    docker.podman = true;
    docker_take_info(&docker, plain);
    assert_false(docker.own_users);
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
        cmocka_unit_test(test_whose_a_container_is),
        cmocka_unit_test(test_missing_limits),
        cmocka_unit_test(test_users),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed +
           _cmocka_run_group_tests("faults", docker_fault_tests, n_docker_fault_tests, NULL, NULL);
}
