// SPDX-License-Identifier: Apache-2.0
// Calls of tools: their time, the clock of their execution, their number and memory, and how they
// end.

#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tool_list.h"
#include "tool_results.h"
#include "virtual_clock.h"

// What a call's callback has heard.
struct ended {
    int n;
    char text[128]; // a value, or an error
    char code[32];  // of an error
};

static void
on_result(const struct tool_result *result, void *arg)
{
    struct ended *ended = arg;
    ended->n++;
    snprintf(ended->text, sizeof ended->text, "%s", result->json ? result->json : result->error);
    snprintf(ended->code, sizeof ended->code, "%s", result->json ? "" : result->code);
}

static struct execution *
execute_with_tools(struct fixture *f, const char *code, int64_t timeout_ms)
{
    struct kg_error err = {0};
    json_auto_t *value = json_pack("[{s:s}, {s:s, s:{s:[s]}}]", "name", "echo", "name", "search",
                                   "input_schema", "required", "query");
    KG_AUTO(tool_list) tools = tool_list_new(value, &err);
    const struct execution_request request = {
        .owner = "me", .session_id = "s1", .code = code, .timeout_ms = timeout_ms, .tools = tools};
    struct execution *execution = kernel_execute(f->kernel, &request, &err);
    assert_non_null(execution);
    return execution;
}

// Code that runs.
static struct execution *
run_with_tools(struct fixture *f, const char *code, int64_t timeout_ms)
{
    start_ready_kernel(f);
    struct execution *execution = execute_with_tools(f, code, timeout_ms);
    RUN_UNTIL(f, kernel_execution(f->kernel));
    assert_ptr_equal(kernel_execution(f->kernel), execution);
    assert_non_null(execution_tools(execution));
    return execution;
}

static struct tool_call *
try_call(struct execution *execution, const char *name, struct ended *ended, struct kg_error *err)
{
    json_auto_t *arguments = json_pack("{s:i}", "n", 1);
    *err = (struct kg_error){0};
    return execution_call_tool(execution, name, arguments, on_result, ended, err);
}

static struct tool_call *
call(struct execution *execution, struct ended *ended)
{
    struct kg_error err;
    struct tool_call *made = try_call(execution, "echo", ended, &err);
    assert_string_equal(err.message, "");
    assert_non_null(made);
    return made;
}

static enum kg_code
refusal(struct execution *execution, const char *name)
{
    struct kg_error err;
    struct ended ended = {0};
    assert_null(try_call(execution, name, &ended, &err));
    assert_int_equal(ended.n, 0);
    return err.code;
}

// Answers the calls of these numbers, the last one 0, with their numbers.
static enum kg_code
give(struct execution *execution, const int *numbers)
{
    struct kg_error err = {0};
    json_auto_t *list = json_array();
    for (; *numbers; numbers++)
        json_array_append_new(list,
                              json_pack("{s:o, s:i}", "call_id",
                                        json_sprintf("%s-%d", execution_id(execution), *numbers),
                                        "result", *numbers));
    KG_AUTO(tool_results) results = tool_results_new(list, &err);
    assert_non_null(results);
    (void)!execution_give_results(execution, results, &err);
    return err.code;
}
#define GIVE(execution, ...) give(execution, (const int[]){__VA_ARGS__, 0})

static void
expect_end(const struct ended *ended, const char *text, const char *code)
{
    assert_int_equal(ended->n, 1);
    assert_string_equal(ended->text, text);
    assert_string_equal(ended->code, code);
}

static size_t
waiting(const struct execution *execution)
{
    json_auto_t *calls = execution_waiting_calls(execution);
    return json_array_size(calls);
}

// The lines of a type; the member `status` of each, or its name.
static void
expect_lines(struct execution *execution, const char *type, const char *expected)
{
    KG_AUTO_BUF found = {0};
    json_auto_t *lines = all_lines(execution);
    size_t i;
    const json_t *line;
    buf_append(&found, "", 0);
    json_array_foreach(lines, i, line) {
        const char *status = json_string_value(json_object_get(line, "status"));
        const char *name = json_string_value(json_object_get(line, "name"));
        if (strcmp(json_string_value(json_object_get(line, "type")), type) == 0)
            buf_printf(&found, "%s ", status ? status : name);
    }
    assert_string_equal(found.data, expected);
}

// ---- Results --------------------------------------------------------------------------------

static void
test_results(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 60 * 1000);
    struct ended one = {0}, two = {0}, three = {0};
    assert_int_equal(waiting(execution), 0);
    call(execution, &one);
    call(execution, &two);
    struct tool_call *third = call(execution, &three);
    json_auto_t *calls = execution_waiting_calls(execution);
    KG_AUTO_FREE char *id = kg_asprintf("%s-2", execution_id(execution));
    const json_t *second = json_array_get(calls, 1);
    assert_string_equal(json_string_value(json_object_get(second, "call_id")), id);
    assert_string_equal(json_string_value(json_object_get(second, "name")), "echo");
    assert_int_equal(json_integer_value(json_object_get(second, "seq")), 2);
    assert_int_equal(json_object_size(second), 4);

    // All are taken, or none.
    assert_int_equal(GIVE(execution, 1, 4), KG_NOT_FOUND);
    tool_call_cancel(third);
    assert_int_equal(GIVE(execution, 1, 3), KG_TOOL_CALL_ENDED);
    assert_int_equal(one.n + two.n + three.n, 0);
    assert_int_equal(GIVE(execution, 2, 1), KG_OK);
    expect_end(&one, "1", "");
    expect_end(&two, "2", "");
    assert_int_equal(three.n, 0);
    assert_int_equal(GIVE(execution, 1), KG_TOOL_CALL_ENDED);
    assert_int_equal(waiting(execution), 0);
    expect_lines(execution, "tool_call", "echo echo echo ");
    expect_lines(execution, "tool_result", "cancelled ok ok ");
    tool_call_cancel(NULL);

    assert_int_equal(refusal(execution, "none"), KG_NOT_FOUND);
    assert_int_equal(refusal(execution, "search"), KG_INVALID);
    kernel_free(KG_STEAL(f->kernel), NULL);
    assert_int_equal(GIVE(execution, 1), KG_TOOL_CALL_ENDED);
    assert_null(execution_tools(execution));
}

// ---- Times ----------------------------------------------------------------------------------

static void
test_a_call_that_is_not_answered(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 1000);
    struct ended early = {0}, late = {0};
    call(execution, &early);
    virtual_clock_advance(f->loop, TOOL_CALL_MS - 1000);
    call(execution, &late);
    virtual_clock_advance(f->loop, 999);
    assert_int_equal(early.n, 0);
    virtual_clock_advance(f->loop, 1);
    expect_end(&early, "echo was not answered within 60 s (setting tool-call-timeout)", "timeout");
    assert_int_equal(GIVE(execution, 1), KG_TOOL_CALL_ENDED);
    virtual_clock_advance(f->loop, TOOL_CALL_MS - 1000);
    expect_end(&late, early.text, "timeout");
    expect_lines(execution, "tool_result", "timeout timeout ");
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING); // which has its second still
}

// The clock of the code stands still from its first call to the answer of the last one.
static void
test_the_clock_rests(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 10 * 1000);
    struct ended one = {0}, two = {0}, three = {0};
    int64_t ends_ms = f->kernel->runner.run.ends_ms; // it took some time to begin
    virtual_clock_advance(f->loop, 4000);
    int64_t left_ms = ends_ms - clock_mono_ms();
    call(execution, &one);
    virtual_clock_advance(f->loop, 20 * 1000);
    call(execution, &two);
    virtual_clock_advance(f->loop, 20 * 1000);
    assert_int_equal(GIVE(execution, 1), KG_OK);
    virtual_clock_advance(f->loop, 20 * 1000);
    assert_int_equal(GIVE(execution, 2), KG_OK);
    virtual_clock_advance(f->loop, 5000);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    tool_call_cancel(call(execution, &three)); // takes no time
    virtual_clock_advance(f->loop, left_ms - 5000 - 1);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    virtual_clock_advance(f->loop, 1);
    assert_int_not_equal(execution_state(execution), EXECUTION_RUNNING);
    run_until_done(f, execution);
    assert_done(execution, "timeout", false);
}

// ---- Bounds ---------------------------------------------------------------------------------

static void
test_number_of_calls(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 60 * 1000);
    struct ended ended = {0};
    struct tool_call *last = NULL;
    for (int i = 0; i < TOOL_RESULTS_MAX; i++) {
        assert_false(execution_is_full_of_calls(execution));
        last = call(execution, &ended);
    }
    assert_true(execution_is_full_of_calls(execution));
    assert_int_equal(refusal(execution, "echo"), KG_SESSION_BUSY);
    tool_call_cancel(last);
    assert_false(execution_is_full_of_calls(execution));
    for (int i = TOOL_RESULTS_MAX; i < TOOL_CALLS_MAX; i++)
        tool_call_cancel(call(execution, &ended));
    assert_int_equal(refusal(execution, "echo"), KG_RATE_LIMITED);
    assert_int_equal(ended.n, 0);
    kernel_free(KG_STEAL(f->kernel), NULL);
    assert_int_equal(ended.n, TOOL_RESULTS_MAX - 1);
}

static json_t *
arguments_of(size_t len)
{
    KG_AUTO_FREE char *text = kg_calloc(len + 1, 1);
    memset(text, 'x', len);
    return json_pack("{s:s}", "text", text);
}

// What waits counts as code and variables do, as the memory that it takes.
static void
test_memory_of_calls(void **state)
{
    struct fixture *f = *state;
    struct budget *waits = executions_waiting(f->context.executions);
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 60 * 1000);
    struct ended ended = {0};
    struct kg_error err = {0};
    size_t tools = waits->held;
    assert_in_range(tools, tool_list_weight(execution_tools(execution)), 4096);
    json_auto_t *large = arguments_of(30 * 1000);
    json_auto_t *heavy = json_pack("{s:[]}", "a");
    for (int i = 0; i < 200; i++)
        json_array_append_new(json_object_get(heavy, "a"), json_object());
    struct tool_call *one = execution_call_tool(execution, "echo", large, on_result, &ended, &err);
    assert_non_null(one);
    assert_in_range(waits->held, tools + 30 * 1000, tools + 31 * 1000);
    assert_null(execution_call_tool(execution, "echo", large, on_result, &ended, &err));
    assert_int_equal(err.code, KG_SESSION_BUSY);
    assert_null(
        execution_call_tool(execution, "echo", heavy, on_result, &ended, &err)); // 1 KB of text
    assert_int_equal(err.code, KG_SESSION_BUSY);
    call(execution, &ended); // small ones are always taken
    tool_call_cancel(one);
    one = execution_call_tool(execution, "echo", large, on_result, &ended, &err);
    assert_non_null(one);
    assert_int_equal(GIVE(execution, 3), KG_OK);
    assert_int_equal(GIVE(execution, 2), KG_OK);
    assert_int_equal(waits->held, tools);
    call(execution, &ended);
    execution_interrupt(execution);
    run_until_done(f, execution);
    assert_int_equal(waits->held, 0);
}

static void
test_memory_of_tools(void **state)
{
    struct fixture *f = *state;
    struct budget *waits = executions_waiting(f->context.executions);
    struct kg_error err = {0};
    json_auto_t *schema = arguments_of(30 * 1000);
    json_auto_t *value = json_pack("[{s:s, s:O}]", "name", "a", "input_schema", schema);
    KG_AUTO(tool_list) tools = tool_list_new(value, &err);
    const struct execution_request request = {
        .owner = "me", .session_id = "s1", .code = "hang", .timeout_ms = 1000, .tools = tools};
    start_ready_kernel(f);
    KG_AUTO(execution) first = kernel_execute(f->kernel, &request, &err);
    assert_non_null(first);
    assert_true(waits->held >= tool_list_weight(tools));
    assert_null(kernel_execute(f->kernel, &request, &err));
    assert_int_equal(err.code, KG_SESSION_BUSY);
    KG_AUTO(execution) small = execute_with_tools(f, "print", 1000);
    RUN_UNTIL(f, kernel_execution(f->kernel));
    assert_true(waits->held >= tool_list_weight(tools)); // as long as it may call them
    kernel_interrupt(f->kernel);
    run_until_done(f, first);
    assert_done(small, "interrupted", false);
    assert_int_equal(waits->held, 0);
}

// ---- Ends -----------------------------------------------------------------------------------

static void
test_an_interrupt(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 60 * 1000);
    struct ended one = {0}, two = {0};
    call(execution, &one);
    call(execution, &two);
    execution_interrupt(execution);
    expect_end(&one, "the execution was interrupted", "cancelled");
    expect_end(&two, "the execution was interrupted", "cancelled");
    assert_int_equal(refusal(execution, "echo"), KG_KERNEL_BUSY);
    assert_int_equal(GIVE(execution, 1), KG_TOOL_CALL_ENDED);
    run_until_done(f, execution);
    assert_done(execution, "interrupted", false);
    expect_lines(execution, "tool_result", "cancelled cancelled ");
}

static void
test_code_that_cannot_be_interrupted(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "stubborn", 60 * 1000);
    struct ended ended = {0};
    execution_interrupt(execution);
    assert_int_equal(refusal(execution, "echo"), KG_KERNEL_BUSY);
    RUN_UNTIL(f, fake_journal_count("signal python") == 1);
    virtual_clock_advance(f->loop, 3000);
    run_until_done(f, execution);
    assert_done(execution, "interrupted", true);
    assert_int_equal(ended.n, 0);
}

static void
test_a_death(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 60 * 1000);
    struct ended ended = {0};
    call(execution, &ended);
    fake_sandbox_kill(f->sandbox, "python");
    fake_sandbox_tell_exit(f->sandbox, "python", fake_sandbox_pid(f->sandbox, "python"), -1, 9,
                           false);
    run_until_done(f, execution);
    expect_end(&ended, "the execution has ended", "cancelled");
    assert_done(execution, "died", true);
}

static void
test_a_restart(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 60 * 1000);
    KG_AUTO(execution) queued = execute_with_tools(f, "print", 1000);
    struct ended ended = {0};
    call(execution, &ended);
    assert_int_equal(refusal(queued, "echo"), KG_KERNEL_BUSY); // it does not run yet
    assert_int_equal(restart(f, &err), 0);
    RUN_UNTIL(f, f->restarted == 1);
    run_until_done(f, execution);
    expect_end(&ended, "the execution has ended", "cancelled");
}

// ---- Readers that stop the execution from inside their callbacks ----------------------------

struct stopper {
    struct subscription *subscription;
    const char *at; // the type of the line at which it leaves
};

static void
on_lines(void *arg)
{
    struct stopper *stopper = arg;
    for (json_t *line; stopper->subscription && (line = take_line(stopper->subscription));) {
        if (strcmp(json_string_value(json_object_get(line, "type")), stopper->at) == 0)
            subscription_abandon(KG_STEAL(stopper->subscription));
        json_decref(line);
    }
}

static void
test_a_reader_that_leaves_at_a_call(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 60 * 1000);
    struct stopper stopper = {.at = "tool_call"};
    stopper.subscription = execution_subscribe(execution, 0, on_lines, &stopper);
    assert_int_equal(refusal(execution, "echo"), KG_KERNEL_BUSY);
    assert_int_equal(waiting(execution), 0);
    run_until_done(f, execution);
    assert_done(execution, "interrupted", false);
}

static void
test_a_reader_that_leaves_at_a_result(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(execution) execution = run_with_tools(f, "hang", 60 * 1000);
    struct stopper stopper = {.at = "tool_result"};
    struct ended ended[3] = {0};
    for (int i = 0; i < 3; i++)
        call(execution, &ended[i]);
    stopper.subscription = execution_subscribe(execution, 0, on_lines, &stopper);
    on_lines(&stopper);
    assert_int_equal(GIVE(execution, 1, 2, 3), KG_OK);
    expect_end(&ended[0], "1", "");
    expect_end(&ended[1], "the execution was interrupted", "cancelled");
    expect_end(&ended[2], "the execution was interrupted", "cancelled");
    run_until_done(f, execution);
    assert_done(execution, "interrupted", false);
    expect_lines(execution, "tool_result", "ok cancelled cancelled ");
}

int
test_kernel_tools(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_results),
        TEST(test_a_call_that_is_not_answered),
        TEST(test_the_clock_rests),
        TEST(test_number_of_calls),
        TEST(test_memory_of_calls),
        TEST(test_memory_of_tools),
        TEST(test_an_interrupt),
        TEST(test_code_that_cannot_be_interrupted),
        TEST(test_a_death),
        TEST(test_a_restart),
        TEST(test_a_reader_that_leaves_at_a_call),
        TEST(test_a_reader_that_leaves_at_a_result),
    };
#undef TEST
    return cmocka_run_group_tests_name("kernel: tools", tests, NULL, NULL);
}
