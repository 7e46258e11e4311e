// SPDX-License-Identifier: Apache-2.0
// The `file` lines of an execution: where they stand, and what happens when nobody knows them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "test_kernel.h"

static const char two_files[] =
    "{\"files\":[{\"path\":\"a/chart.png\",\"size\":3,\"mtime_ms\":1},"
    "{\"path\":\"b\",\"size\":4,\"mtime_ms\":1},{\"path\":7}],\"more\":5}";

static char *
make_url(const void *arg, const char *owner, const char *session_id, const char *path)
{
    (void)arg;
    return kg_asprintf("/files/%s/%s/%s", owner, session_id, path);
}

static const json_t *
line_at(const json_t *lines, size_t from_end)
{
    return json_array_get(lines, json_array_size(lines) - 1 - from_end);
}

static const char *
member(const json_t *line, const char *name)
{
    return json_string_value(json_object_get(line, name));
}

static void
test_lines(void **state)
{
    struct fixture *f = *state;
    f->context.file_url = make_url;
    fake_script.changes = two_files;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "print");
    run_until_done(f, execution);
    json_auto_t *lines = all_lines(execution);
    assert_int_equal(json_array_size(lines), 4);
    const json_t *first = line_at(lines, 2);
    assert_string_equal(member(first, "type"), "file");
    assert_string_equal(member(first, "file"), "a/chart.png");
    assert_string_equal(member(first, "mime"), "image/png");
    KG_AUTO_FREE char *url = make_url(NULL, execution->owner, execution->session_id, "a/chart.png");
    assert_string_equal(member(first, "url"), url);
    assert_int_equal(json_integer_value(json_object_get(first, "size")), 3);
    assert_string_equal(member(line_at(lines, 1), "file"), "b");
    assert_int_equal(json_integer_value(json_object_get(line_at(lines, 0), "more_files")), 5);
    // Without a name for them there are no links.
    f->context.file_url = NULL;
    KG_AUTO(execution) next = execute(f, "print");
    run_until_done(f, next);
    json_auto_t *others = all_lines(next);
    assert_null(member(line_at(others, 1), "url"));
}

static void
on_turn(void *arg)
{
    *(bool *)arg = true;
}

static void
test_the_next_waits(void **state)
{
    struct fixture *f = *state;
    fake_script.changes = two_files;
    fake_script.hold_changes = true;
    start_ready_kernel(f);
    KG_AUTO(execution) first = execute(f, "print");
    KG_AUTO(execution) second = execute(f, "print");
    RUN_UNTIL(f, kernel_state(f->kernel) == KERNEL_BUSY);
    RUN_UNTIL(f, kernel_state(f->kernel) == KERNEL_READY);
    // What is asked for in the kernel's name gets its turn first.
    bool turned = false;
    KG_AUTO(loop_timer) turn = loop_timer_new(f->loop, on_turn, &turned);
    loop_timer_start(turn, 1);
    RUN_UNTIL(f, turned);
    assert_int_equal(execution_state(first), EXECUTION_RUNNING);
    assert_int_equal(execution_state(second), EXECUTION_QUEUED);
    assert_int_equal(fake_journal_count("run print"), 1);
    execution_interrupt(first); // there is nothing left to stop
    fake_sandboxes_release();
    run_until_done(f, first);
    assert_done(first, "ok", false);
    run_until_done(f, second);
    assert_done(second, "ok", false);
    assert_int_equal(f->done, 2);
}

static void
test_no_answer(void **state)
{
    struct fixture *f = *state;
    fake_script.refuse_changes = true;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "print");
    run_until_done(f, execution);
    json_auto_t *lines = all_lines(execution);
    assert_int_equal(json_array_size(lines), 2);
    assert_done(execution, "ok", false);
}

static void
test_a_kernel_that_goes_waits_for_nothing(void **state)
{
    struct fixture *f = *state;
    fake_script.hold_changes = true;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "print");
    RUN_UNTIL(f, kernel_state(f->kernel) == KERNEL_BUSY);
    RUN_UNTIL(f, kernel_state(f->kernel) == KERNEL_READY);
    assert_true(kernel_is_busy(f->kernel));
    kernel_free(KG_STEAL(f->kernel), NULL);
    assert_done(execution, "ok", false);
    assert_int_equal(f->done, 1);
}

static void
test_an_agent_that_lies(void **state)
{
    struct fixture *f = *state;
    static const char file[] = "{\"path\":\"f\",\"size\":1},";
    KG_AUTO_BUF changes = {0};
    buf_append_str(&changes,
                   "{\"files\":[{\"path\":\"../x\",\"size\":1},{\"path\":\"/x\",\"size\":1},"
                   "{\"path\":\"y\",\"size\":-1},");
    for (int i = 0; i < 1000; i++)
        buf_append_str(&changes, file);
    changes.data[changes.len - 1] = ' ';
    buf_append_str(&changes, "],\"more\":-7}");
    fake_script.changes = changes.data;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "print");
    run_until_done(f, execution);
    json_auto_t *lines = all_lines(execution);
    assert_in_range(json_array_size(lines), 2, 102); // its text, the first files, done
    size_t i;
    const json_t *line;
    json_array_foreach(lines, i, line) {
        if (strcmp(member(line, "type"), "file") == 0)
            assert_string_equal(member(line, "file"), "f");
    }
    assert_null(json_object_get(line_at(lines, 0), "more_files"));
}

static void
test_after_a_timeout_too(void **state)
{
    struct fixture *f = *state;
    fake_script.changes = two_files;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute_for(f, "hang", 50);
    run_until_done(f, execution);
    json_auto_t *lines = all_lines(execution);
    assert_string_equal(member(line_at(lines, 1), "file"), "b");
    assert_done(execution, "timeout", false);
}

int
test_kernel_artifacts(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_lines),
        TEST(test_the_next_waits),
        TEST(test_no_answer),
        TEST(test_a_kernel_that_goes_waits_for_nothing),
        TEST(test_an_agent_that_lies),
        TEST(test_after_a_timeout_too),
    };
    return cmocka_run_group_tests_name("kernel: artifacts", tests, NULL, NULL);
}
