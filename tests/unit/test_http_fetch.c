// SPDX-License-Identifier: Apache-2.0
// Downloads of files: their names, redirects and limits.

#include <string.h>
#include <unistd.h>

#include "http_fetch.h"
#include "test_http_util.h"

static void
test_names(void **state)
{
    (void)state;
    static const struct {
        const char *disposition;
        const char *url;
        const char *name;
    } cases[] = {
        {NULL, "http://h/a/data.csv?x=/y#z", "data.csv"},
        {NULL, "http://h/a%20b.csv", "a b.csv"},
        {NULL, "http://h/simple/six/", "six"},
        {NULL, "http://h", "download"},
        {NULL, "http://h/", "download"},
        {NULL, "http://h/%2e%2e%2fx", "x"},
        {NULL, "http://h/..", "download"},
        {NULL, "http://h/a%00b", "ab"},
        {NULL, "http://h/a%", "a%"},
        {NULL, "http://h/%ff.txt", "\xef\xbf\xbd.txt"},
        {"attachment", "http://h/u", "u"},
        {"attachment; filename=a.csv", "http://h/u", "a.csv"},
        {"attachment; filename=\"a \\\"b\\\".csv\"", "http://h/u", "a \"b\".csv"},
        {"attachment; FILENAME = \"a.csv\" ; x=y", "http://h/u", "a.csv"},
        {"inline; filename=\"../../etc/passwd\"", "http://h/u", "passwd"},
        {"inline; filename=\"C:\\\\temp\\\\a.txt\"", "http://h/u", "a.txt"},
        {"inline; filename=\".bashrc\"", "http://h/u", "bashrc"},
        {"inline; filename=\"..\"", "http://h/u", "u"},
        {"inline; filename=\"a;b.csv\"; filename=c", "http://h/u", "a;b.csv"},
        {"inline; filename=b; filename*=UTF-8''%e2%82%ac%20a", "http://h/u", "\xe2\x82\xac a"},
        {"inline; filename*=utf-8'en'x.csv; filename=y", "http://h/u", "x.csv"},
        {"inline; filename*=ISO-8859-1''%e9; filename=y", "http://h/u", "y"},
        {"inline; filename*=UTF-8''; filename=y", "http://h/u", "y"},
        {"inline; filename=", "http://h/u", "u"},
        {"inline; filename=\"unterminated", "http://h/u", "unterminated"},
        {"", "http://h/u", "u"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_FREE char *name = http_fetch_name(cases[i].disposition, cases[i].url);
        assert_string_equal(name, cases[i].name);
    }
    char *url = kg_asprintf("http://h/%0300d\xc3\xa9", 1);
    KG_AUTO_FREE char *name = http_fetch_name(NULL, url);
    assert_int_equal(strlen(name), FETCH_NAME_MAX);
    free(url);
}

// ---- Fetching -------------------------------------------------------------------------------

struct fetched {
    bool done;
    int64_t len;
    struct kg_error err;
};

static void
on_fetched(struct http_fetch_result *result, const struct kg_error *err, void *arg)
{
    struct fetched *fetched = arg;
    assert_false(fetched->done);
    fetched->done = true;
    if (err) {
        fetched->err = *err;
        return;
    }
    fetched->len = result->len;
    assert_int_equal(lseek(result->fd, 0, SEEK_END), result->len);
    close(result->fd);
    free(result->name);
}

static struct http_fetch *
fetch(struct fetched *fetched, const char *path, int64_t max_bytes, int64_t timeout_ms)
{
    static struct address_policy *policy;
    static const char *const loopback[] = {"127.0.0.1", NULL};
    struct kg_error err = {0};
    address_policy_free(policy);
    policy = path ? address_policy_new(loopback, &err) : NULL;
    if (!path)
        return NULL;
    KG_AUTO_FREE char *url = kg_asprintf("%s%s", bench.url, path);
    const struct http_fetch_spec spec = {.url = url,
                                         .policy = policy,
                                         .dir = "/tmp",
                                         .max_bytes = max_bytes,
                                         .timeout_ms = timeout_ms};
    *fetched = (struct fetched){0};
    struct http_fetch *handle = http_fetch_start(bench.client, &spec, on_fetched, fetched, &err);
    assert_non_null(handle);
    assert_false(fetched->done);
    return handle;
}

static void
test_bounds(void **state)
{
    (void)state;
    struct fetched fetched;
    fetch(&fetched, "/show/x", 1 << 20, 5000);
    WAIT(fetched.done);
    assert_int_equal(fetched.err.code, KG_OK);
    assert_true(fetched.len > 4);
    fetch(&fetched, "/show/x", 4, 5000);
    WAIT(fetched.done);
    assert_int_equal(fetched.err.code, KG_UPLOAD_TOO_LARGE);
    fetch(&fetched, "/nowhere", 1 << 20, 5000);
    WAIT(fetched.done);
    assert_int_equal(fetched.err.code, KG_NOT_FOUND);
    fetch(&fetched, "/hold", 1 << 20, 50);
    WAIT(fetched.done);
    assert_int_equal(fetched.err.code, KG_INTERNAL);
    assert_non_null(strstr(fetched.err.message, "timed out"));
    http_fetch_cancel(fetch(&fetched, "/show/x", 1 << 20, 5000));
    KG_AUTO_CALL other = {0};
    call_path(&other, "GET", "/show/x", NULL, NULL);
    assert_false(fetched.done);
    fetch(NULL, NULL, 0, 0); // frees the policy
}

const struct CMUnitTest http_fetch_tests[] = {
    cmocka_unit_test(test_names),
    cmocka_unit_test_setup_teardown(test_bounds, bench_set_up, bench_tear_down),
};
const size_t n_http_fetch_tests = KG_ARRAY_LEN(http_fetch_tests);
