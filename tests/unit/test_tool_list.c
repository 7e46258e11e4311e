// SPDX-License-Identifier: Apache-2.0
// What clients say of their tools, and what they answer. tests/component/test_tools.py has every
// message.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "test_tools.h"
#include "tool_list.h"
#include "tool_results.h"

static void
test_list(void **state)
{
    (void)state;
    struct kg_error err = {0};
    json_auto_t *value =
        json_pack("[{s:s, s:s, s:{s:[s]}}, {s:s, s:n, s:n}, {s:s}]", "name", "search",
                  "description", "ä", "input_schema", "required", "query", "name", "add",
                  "description", "input_schema", "name", "~!");
    KG_AUTO(tool_list) list = tool_list_new(value, &err);
    assert_non_null(list);
    json_array_clear(value); // it has a copy
    const json_t *tools = tool_list_describe(list);
    KG_AUTO_FREE char *text = json_dumps(tools, JSON_COMPACT);
    assert_string_equal(
        text,
        "[{\"name\":\"search\",\"description\":\"ä\",\"input_schema\":{\"required\":[\"query\"]}},"
        "{\"name\":\"add\",\"description\":\"\",\"input_schema\":{\"type\":\"object\"}},"
        "{\"name\":\"~!\",\"description\":\"\",\"input_schema\":{\"type\":\"object\"}}]");
    assert_in_range(tool_list_weight(list), 1000, 4000);

    json_auto_t *arguments = json_pack("{s:s}", "query", "rain");
    json_auto_t *none = json_object();
    json_auto_t *array = json_array();
    assert_int_equal(tool_list_check(list, "search", arguments, &err), 0);
    assert_int_equal(tool_list_check(list, "add", none, &err), 0);
    assert_int_equal(tool_list_check(list, "search", none, &err), -1);
    assert_string_equal(err.message, "arguments: \"query\" is missing");
    assert_int_equal(tool_list_check(list, "search", array, &err), -1);
    assert_int_equal(tool_list_check(list, "add", NULL, &err), -1);
    assert_int_equal(err.code, KG_INVALID);
    assert_int_equal(tool_list_check(list, "Search", none, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    tool_list_unref(tool_list_ref(list));
    tool_list_unref(NULL);
}

static void
refuse_list(json_t *value, const char *message)
{
    struct kg_error err = {0};
    assert_null(tool_list_new(value, &err));
    assert_int_equal(err.code, KG_INVALID);
    if (!strstr(err.message, message))
        fail_msg("%s", err.message);
    json_decref(value);
}

static void
test_list_refuses(void **state)
{
    (void)state;
    struct kg_error err;
    refuse_list(json_object(), "a list of at most 256 tools");
    refuse_list(json_pack("[n]"), "tools[0].name must be");
    refuse_list(json_pack("[{s:s}, {s:s}]", "name", "a", "name", "a"),
                "tools[1]: there are two tools named \"a\"");
    refuse_list(json_pack("[{s:s, s:n}]", "name", "a", "inputSchema"),
                "tools[0]: unknown field \"inputSchema\"");
    // As many, and one more.
    json_t *many = json_array();
    for (int i = 0; i < TOOL_LIST_MAX; i++)
        json_array_append_new(many, json_pack("{s:o}", "name", json_sprintf("t%d", i)));
    KG_AUTO(tool_list) list = tool_list_new(many, &err);
    assert_non_null(list);
    json_array_append_new(many, json_pack("{s:s}", "name", "t"));
    refuse_list(many, "a list of at most 256 tools");
    // Short as text, but not in memory.
    json_t *heavy = json_array();
    for (int i = 0; i < 30000; i++)
        json_array_append_new(heavy, json_object());
    refuse_list(json_pack("[{s:s, s:{s:o}}]", "name", "a", "input_schema", "enum", heavy),
                "their schemas have too many values");
}

static void
test_results(void **state)
{
    (void)state;
    struct kg_error err = {0};
    json_auto_t *value =
        json_pack("[{s:s, s:{s:n}}, {s:s, s:s}, {s:s, s:n}]", "call_id", "x-1", "result", "a",
                  "call_id", "x-2", "error", "too wet", "call_id", "", "result");
    KG_AUTO(tool_results) results = tool_results_new(value, &err);
    assert_non_null(results);
    assert_int_equal(tool_results_count(results), 3);
    struct tool_result one = tool_results_get(results, 0), two = tool_results_get(results, 1);
    assert_string_equal(tool_results_call_id(results, 0), "x-1");
    assert_string_equal(one.json, "{\"a\":null}");
    assert_int_equal(one.len, 10);
    assert_null(one.error);
    assert_string_equal(two.error, "too wet");
    assert_string_equal(two.code, "tool_error");
    assert_null(two.json);
    assert_string_equal(tool_results_get(results, 2).json, "null");
    tool_results_free(NULL);

    json_auto_t *twice = json_pack("[{s:s, s:n}, {s:s, s:n}]", "call_id", "x-1", "result",
                                   "call_id", "x-1", "result");
    assert_null(tool_results_new(twice, &err));
    assert_string_equal(err.message, "results[1]: x-1 has two results");
    assert_null(tool_results_new(NULL, &err));
    json_auto_t *more = json_pack("[{s:s, s:n, s:n}]", "call_id", "x-1", "result", "more");
    assert_null(tool_results_new(more, &err));
    assert_int_equal(err.code, KG_INVALID);
}

int
test_tool_list(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_list_refuses),
        cmocka_unit_test(test_results),
    };
    return cmocka_run_group_tests_name("tool_list", tests, NULL, NULL);
}
