// SPDX-License-Identifier: Apache-2.0
// YAML as JSON.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "yaml_json.h"

static void
expect(const char *yaml, const char *json)
{
    struct kg_error err = {0};
    json_auto_t *value = json_of_yaml(yaml, strlen(yaml), &err);
    assert_string_equal(err.message, "");
    KG_AUTO_FREE char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text, json);
}

static void
expect_failure(const char *yaml, const char *why)
{
    struct kg_error err = {0};
    assert_null(json_of_yaml(yaml, strlen(yaml), &err));
    assert_int_equal(err.code, KG_INVALID);
    if (!strstr(err.message, why))
        fail_msg("\"%s\" instead of \"%s\"", err.message, why);
}

static void
test_scalars(void **state)
{
    (void)state;
    expect("[~, null, Null, true, FALSE]", "[null,null,null,true,false]");
    expect("a:\nb: 1\n", "{\"a\":null,\"b\":1}");
    expect("[yes, on, n, nullx]", "[\"yes\",\"on\",\"n\",\"nullx\"]");
    expect("[0, 12, -7, +3, 0x1f, 0o17, 007]", "[0,12,-7,3,31,15,7]");
    expect("[1.5, -.5, 1e3, 2.]", "[1.5,-0.5,1000.0,2.0]");
    expect("[1.2.3, 1e, -, ., 0x, 0x-1, 1_000, e5, 12a]",
           "[\"1.2.3\",\"1e\",\"-\",\".\",\"0x\",\"0x-1\",\"1_000\",\"e5\",\"12a\"]");
    expect("['7', \"true\", '', \"a\\nb\"]", "[\"7\",\"true\",\"\",\"a\\nb\"]");
    expect("a: |\n  one\n  two\nb: >\n  one\n  two\n",
           "{\"a\":\"one\\ntwo\\n\",\"b\":\"one two\\n\"}");
    expect("99999999999999999999", "\"99999999999999999999\"");
}

static void
test_collections(void **state)
{
    (void)state;
    expect("# a Pod\nkind: Pod\nspec:\n  tolerations:\n  - key: a\n    operator: Exists\n  - {}\n",
           "{\"kind\":\"Pod\",\"spec\":{\"tolerations\":[{\"key\":\"a\",\"operator\":\"Exists\"},{}"
           "]}}");
    expect("---\na: []\n...\n", "{\"a\":[]}");
    expect("{\"json\": [1, {\"a\": null}]}", "{\"json\":[1,{\"a\":null}]}");
}

static void
test_what_is_refused(void **state)
{
    (void)state;
    expect_failure("", "no document");
    expect_failure("a: 1\n---\nb: 2\n", "line 2: there is more than one document");
    expect_failure("a: 1\nb: [\n", "line 3");
    expect_failure("a: 1\n\nb: x: y\n", "line 3");
    expect_failure("a: 1\na: 2\n", "line 2: a key is there twice");
    expect_failure("? [a]\n: 1\n", "a key is not a text");
    expect_failure("a: &x 1\n", "anchors");
    expect_failure("a: &x [1]\nb: *x\n", "anchors");
    expect_failure("b: *x\n", "alias");
    expect_failure("a: !!str 1\n", "tags");
    expect_failure("a: \"\\0\"\n", "NUL");
    expect_failure("\"a\\0\": 1\n", "NUL");
    expect_failure("a: \xff\n", "line 1");
}

static void
test_bounds(void **state)
{
    (void)state;
    char deep[2 * YAML_DEPTH_MAX + 3] = "";
    memset(deep, '[', YAML_DEPTH_MAX);
    memset(deep + YAML_DEPTH_MAX, ']', YAML_DEPTH_MAX);
    expect(deep, deep);
    memset(deep, '[', YAML_DEPTH_MAX + 1);
    memset(deep + YAML_DEPTH_MAX + 1, ']', YAML_DEPTH_MAX + 1);
    expect_failure(deep, "too deep");
    KG_AUTO_BUF many = {0};
    buf_append_str(&many, "[");
    for (int i = 0; i < YAML_VALUES_MAX; i++)
        buf_append_str(&many, "1,");
    buf_append_str(&many, "]");
    expect_failure(many.data, "too many values");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_collections),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
