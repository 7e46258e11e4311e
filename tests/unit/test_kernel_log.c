// SPDX-License-Identifier: Apache-2.0
// The output log: its bound, its readers, the registry.

#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MAX_LOG_BYTES = 8192, MAX_REPLAY_BYTES = 3 * MAX_LOG_BYTES };

struct log_fixture {
    struct loop *loop;
    struct executions *executions;
    struct execution *execution; // runs
};

struct reader {
    struct subscription *subscription;
    int wakes;
    bool leaves; // at its first wake
};

static void
on_ready(void *arg)
{
    struct reader *reader = arg;
    reader->wakes++;
    if (reader->leaves)
        subscription_free(KG_STEAL(reader->subscription));
}

static void
join(struct log_fixture *f, struct reader *reader, int64_t after_seq)
{
    reader->subscription = execution_subscribe(f->execution, after_seq, on_ready, reader);
}

static struct execution *
running_execution(struct executions *executions)
{
    const struct execution_request request = {
        .owner = "me", .session_id = "s1", .code = "", .timeout_ms = 1000};
    struct execution *execution = execution_new(executions, &request);
    execution_set_state(execution, EXECUTION_RUNNING);
    return execution;
}

// One message of the kernel's with `len` characters.
static void
print(struct execution *execution, size_t len)
{
    KG_AUTO_FREE char *text = kg_calloc(len + 1, 1);
    memset(text, 'x', len);
    json_auto_t *content = json_pack("{s:s, s:s}", "name", "stdout", "text", text);
    char type[] = "stream";
    const struct jupyter_message message = {.msg_type = type, .content = content};
    output_append_lines(&execution->log, output_lines_of(&message));
}

// A line of the message that came last.
static void
show(struct execution *execution)
{
    output_log_append(&execution->log, "display", OUTPUT_DROPPABLE, json_pack("{s:{}}", "data"));
}

static int64_t
number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static bool
is_type(const json_t *line, const char *type)
{
    return strcmp(json_string_value(json_object_get(line, "type")), type) == 0;
}

static int
setup(void **state)
{
    struct log_fixture *f = KG_NEW(struct log_fixture);
    f->loop = loop_new();
    f->executions = executions_new(
        f->loop, &(const struct executions_settings){.max_log_bytes = MAX_LOG_BYTES,
                                                     .max_live_bytes = 1 << 30,
                                                     .max_replay_bytes = MAX_REPLAY_BYTES});
    f->execution = running_execution(f->executions);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct log_fixture *f = *state;
    execution_unref(f->execution);
    executions_free(f->executions);
    loop_free(f->loop);
    free(f);
    return 0;
}

// ---- The bound ------------------------------------------------------------------------------

static void
test_seq_counts_lines(void **state)
{
    struct log_fixture *f = *state;
    for (int i = 0; i < 5; i++)
        print(f->execution, 10);
    json_auto_t *lines = all_lines(f->execution);
    assert_int_equal(json_array_size(lines), 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(number(json_array_get(lines, i), "seq"), i + 1);
}

static void
test_the_oldest_are_dropped_and_counted(void **state)
{
    struct log_fixture *f = *state;
    struct reader quick = {0};
    join(f, &quick, 0);
    int64_t bytes_until[201] = {0}; // of all lines up to that seq
    for (int i = 1; i <= 200; i++) {
        print(f->execution, 100);
        size_t len;
        assert_non_null(subscription_next(quick.subscription, &len));
        bytes_until[i] = bytes_until[i - 1] + (int64_t)len;
        assert_null(subscription_next(quick.subscription, &len));
    }
    subscription_free(quick.subscription);

    json_auto_t *lines = all_lines(f->execution);
    const json_t *dropped = json_array_get(lines, 0);
    assert_true(is_type(dropped, "dropped"));
    int64_t n = number(dropped, "messages");
    assert_in_range(n, 120, 180); // lines of 140 bytes and what an entry costs, in 8 KiB
    assert_int_equal(number(dropped, "bytes"), bytes_until[n]);
    assert_int_equal(number(dropped, "seq"), n);
    assert_int_equal(json_array_size(lines), 200 - n + 1);
    for (size_t i = 1; i < json_array_size(lines); i++)
        assert_int_equal(number(json_array_get(lines, i), "seq"), n + (int64_t)i);
}

static void
test_a_message_larger_than_the_bound_is_kept(void **state)
{
    struct log_fixture *f = *state;
    print(f->execution, 10);
    print(f->execution, 5 << 20); // of several lines, which stay together
    json_auto_t *lines = all_lines(f->execution);
    assert_true(is_type(json_array_get(lines, 0), "dropped"));
    assert_int_equal(number(json_array_get(lines, 0), "messages"), 1);
    assert_int_equal(json_array_size(lines), 1 + 5);

    // Until another one fills the log.
    print(f->execution, 5 << 20);
    json_auto_t *later = all_lines(f->execution);
    assert_int_equal(number(json_array_get(later, 0), "messages"), 1 + 5);
    assert_int_equal(json_array_size(later), 1 + 5);
}

// Appends lines beyond the log's bound; returns what that took.
static double
cpu_s_of_lines(struct log_fixture *f, bool one_message)
{
    enum { N_LINES = 30 * 1000 };
    clock_t began = clock();
    for (int i = 0; i < N_LINES; i++) {
        f->execution->log.last_message += !one_message;
        show(f->execution);
    }
    return (double)(clock() - began) / CLOCKS_PER_SEC;
}

// Each line of it would count all the others, and keep the loop for a minute.
static void
test_a_message_of_many_lines_takes_no_longer_than_many_messages(void **state)
{
    struct log_fixture *f = *state;
    double many_s = cpu_s_of_lines(f, false);
    double one_s = cpu_s_of_lines(f, true);
    assert_true(one_s < 10 * many_s + 1);

    f->execution->log.last_message++;
    print(f->execution, MAX_LOG_BYTES); // it goes as a whole
    json_auto_t *lines = all_lines(f->execution);
    assert_int_equal(json_array_size(lines), 2);
    assert_int_equal(number(json_array_get(lines, 0), "messages"), 2 * 30 * 1000);
}

// What stands between two parts of a message does not make the first one stay.
static void
test_a_message_with_a_kept_line_inside(void **state)
{
    struct log_fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        show(f->execution);
        output_log_append_entry(&f->execution->log, output_error_line("ValueError", "kept", NULL));
    }
    show(f->execution);
    print(f->execution, MAX_LOG_BYTES);
    json_auto_t *lines = all_lines(f->execution);
    static const char *const types[] = {"dropped", "error", "dropped", "error",
                                        "dropped", "error", "dropped", "stdout"};
    assert_int_equal(json_array_size(lines), KG_ARRAY_LEN(types));
    for (size_t i = 0; i < KG_ARRAY_LEN(types); i++)
        assert_true(is_type(json_array_get(lines, i), types[i]));
}

static void
test_errors_and_done_are_kept(void **state)
{
    struct log_fixture *f = *state;
    output_log_append_entry(&f->execution->log, output_error_line("ValueError", "early", NULL));
    for (int i = 0; i < 200; i++)
        print(f->execution, 100);
    execution_finish(f->execution, EXECUTION_ERROR, true);
    for (int i = 0; i < 200; i++)
        print(f->execution,
              100); // no kernel's message comes here any more; the bound holds all the same

    json_auto_t *lines = all_lines(f->execution);
    assert_true(is_type(json_array_get(lines, 0), "error"));
    assert_true(is_type(json_array_get(lines, 1), "dropped"));
    int n_done = 0;
    size_t i;
    json_t *line;
    json_array_foreach(lines, i, line) {
        n_done += is_type(line, "done");
    }
    assert_int_equal(n_done, 1);
}

// A tenant can raise as often as it likes.
static void
test_only_few_and_small_errors_are_kept(void **state)
{
    struct log_fixture *f = *state;
    KG_AUTO_FREE char *huge = kg_calloc((100 << 10) + 1, 1);
    memset(huge, 'x', 100 << 10);
    output_log_append_entry(&f->execution->log, output_error_line("ValueError", huge, NULL));
    for (int i = 0; i < 1000; i++) {
        f->execution->log.last_message++;
        output_log_append_entry(&f->execution->log, output_error_line("ValueError", "again", NULL));
    }
    json_auto_t *lines = all_lines(f->execution);
    size_t n_errors = 0;
    size_t i;
    json_t *line;
    json_array_foreach(lines, i, line) {
        n_errors += is_type(line, "error");
    }
    assert_true(is_type(json_array_get(lines, 0), "dropped"));
    assert_in_range(n_errors, 64, 64 + MAX_LOG_BYTES / 100);
    assert_in_range(f->execution->log.bytes_held, 1, 64 * 300 + MAX_LOG_BYTES);
}

// ---- All logs together ----------------------------------------------------------------------

enum { MAX_LIVE_BYTES = 3 * 4096, MAX_MESSAGE_BYTES = 6000 };

static struct executions *
small_executions(struct loop *loop)
{
    return executions_new(
        loop, &(const struct executions_settings){.max_log_bytes = MAX_LOG_BYTES,
                                                  .max_live_bytes = MAX_LIVE_BYTES,
                                                  .max_message_bytes = MAX_MESSAGE_BYTES,
                                                  .max_replay_bytes = 2 * MAX_LOG_BYTES});
}

// However many there are, and although none of them prints any more when the next one does.
static void
test_the_largest_log_makes_room(void **state)
{
    struct log_fixture *f = *state;
    KG_AUTO(executions) executions = small_executions(f->loop);
    struct execution *quiet[8];
    KG_AUTO(execution) small = running_execution(executions);
    print(small, 100);
    size_t held = 0;
    for (size_t i = 0; i < KG_ARRAY_LEN(quiet); i++) {
        quiet[i] = running_execution(executions);
        print(quiet[i], 2000);
        print(quiet[i], 3000);
        json_auto_t *newest = all_lines(quiet[i]);
        json_t *last = json_array_get(newest, json_array_size(newest) - 1);
        assert_true(is_type(last, "stdout")); // a reader is about to take it
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(quiet); i++)
        held += quiet[i]->log.bytes_held;
    assert_true(held + small->log.bytes_held <= MAX_LIVE_BYTES);
    json_auto_t *kept = all_lines(small);
    assert_true(is_type(json_array_get(kept, 0), "stdout"));
    for (size_t i = 0; i < KG_ARRAY_LEN(quiet); i++)
        execution_unref(quiet[i]);
}

// Even with its newest message, but only as long as nobody reads it.
static void
test_a_spare_log_makes_room_first(void **state)
{
    struct log_fixture *f = *state;
    KG_AUTO(executions) executions = small_executions(f->loop);
    KG_AUTO(execution) first = running_execution(executions);
    KG_AUTO(execution) second = running_execution(executions);
    KG_AUTO(execution) spare = running_execution(executions);
    output_log_set_spare(&spare->log);
    print(spare, 2000);
    output_log_append_entry(&spare->log,
                            output_error_line("Error", "which other logs would keep", NULL));
    print(first, 5000);
    assert_true(spare->log.bytes_held > 2000);
    print(second, 5000);
    assert_int_equal(spare->log.bytes_held, 0);
    print(spare, 3000);
    assert_int_equal(spare->log.bytes_held, 0);
    json_auto_t *kept = all_lines(first);
    assert_int_equal(json_array_size(kept), 1);
    assert_true(is_type(json_array_get(kept, 0), "stdout"));

    struct reader reader = {0};
    reader.subscription = execution_subscribe(spare, 0, on_ready, &reader);
    print(spare, 3000);
    assert_true(spare->log.bytes_held > 3000);
    assert_int_equal(first->log.bytes_held, 0);
    subscription_free(reader.subscription);
    print(first, 5000);
    assert_int_equal(spare->log.bytes_held, 0);
}

static void
test_a_message_whose_lines_are_too_large(void **state)
{
    struct log_fixture *f = *state;
    KG_AUTO(executions) executions = small_executions(f->loop);
    KG_AUTO(execution) execution = running_execution(executions);
    print(execution, MAX_MESSAGE_BYTES);
    print(execution, 10);
    json_auto_t *lines = all_lines(execution);
    assert_int_equal(json_array_size(lines), 2);
    assert_true(is_type(json_array_get(lines, 0), "dropped"));
    assert_int_equal(number(json_array_get(lines, 0), "messages"), 1);
    assert_in_range(number(json_array_get(lines, 0), "bytes"), MAX_MESSAGE_BYTES,
                    MAX_MESSAGE_BYTES + 20);
    assert_true(is_type(json_array_get(lines, 1), "stdout"));
}

// A line that is being sent is counted until it was, also where its log has dropped it.
static void
test_a_line_that_is_held(void **state)
{
    struct log_fixture *f = *state;
    KG_AUTO(executions) executions = small_executions(f->loop);
    KG_AUTO(execution) execution = running_execution(executions);
    struct reader reader = {0};
    size_t len;
    reader.subscription = execution_subscribe(execution, 0, on_ready, &reader);
    void *held[3];
    const char *lines[3];
    char *before[3];
    for (size_t i = 0; i < 3; i++) {
        assert_false(subscription_is_crowded(reader.subscription));
        assert_int_equal(subscription_next_len(reader.subscription), 0);
        print(execution, 5000);
        size_t next_len = subscription_next_len(reader.subscription);
        lines[i] = subscription_next(reader.subscription, &len);
        assert_int_equal(next_len, len);
        assert_int_equal(lines[i][len], '\n');
        before[i] = kg_strndup(lines[i], len);
        held[i] = subscription_hold(reader.subscription);
        assert_non_null(held[i]);
    }
    assert_in_range(execution->log.bytes_held, 5000,
                    6000); // the bound of one log dropped the others
    assert_true(subscription_is_crowded(reader.subscription));
    subscription_release(held[0]);
    assert_false(subscription_is_crowded(reader.subscription));
    executions_free(KG_STEAL(executions)); // the registry may end before
    for (size_t i = 1; i < 3; i++) {
        assert_memory_equal(lines[i], before[i], len);
        subscription_release(held[i]);
    }
    for (size_t i = 0; i < 3; i++)
        free(before[i]);
    subscription_free(reader.subscription);
}

// Ended executions of an owner who keeps much go before those of one who keeps little.
static void
test_replay_has_shares(void **state)
{
    struct log_fixture *f = *state;
    KG_AUTO(executions) executions = small_executions(f->loop);
    struct kg_error err;
    char id_of_bob[EXECUTION_ID_LEN + 1], id_of_alice[EXECUTION_ID_LEN + 1] = "";
    const struct execution_request of_bob = {.owner = "bob", .session_id = "s", .code = ""};
    const struct execution_request of_alice = {.owner = "alice", .session_id = "s", .code = ""};
    for (int i = 0; i < 20; i++) {
        KG_AUTO(execution)
        execution = execution_new(executions, i == 0 ? &of_bob : &of_alice);
        strcpy(i == 0 ? id_of_bob : id_of_alice, execution_id(execution));
        print(execution, 3000);
        execution_finish(execution, EXECUTION_OK, false);
    }
    assert_non_null(executions_find(executions, id_of_bob, "bob", &err));
    assert_non_null(executions_find(executions, id_of_alice, "alice", &err));
}

// ---- Readers --------------------------------------------------------------------------------

static void
test_a_reader_joins_after_a_line(void **state)
{
    struct log_fixture *f = *state;
    for (int i = 0; i < 3; i++)
        print(f->execution, 10);
    for (int64_t after = 0; after <= 4; after++) {
        struct reader reader = {0};
        join(f, &reader, after);
        for (int64_t seq = after + 1; seq <= 3; seq++) {
            json_auto_t *line = take_line(reader.subscription);
            assert_int_equal(number(line, "seq"), seq);
        }
        assert_null(take_line(reader.subscription));
        assert_false(subscription_finished(reader.subscription));
        subscription_free(reader.subscription);
    }
}

static void
test_readers_go_at_their_own_pace(void **state)
{
    struct log_fixture *f = *state;
    struct reader quick = {0}, slow = {0};
    join(f, &quick, 0);
    join(f, &slow, 0);
    for (int i = 1; i <= 3; i++) {
        print(f->execution, 10);
        json_auto_t *line = take_line(quick.subscription);
        assert_int_equal(number(line, "seq"), i);
    }
    // Woken only where there was nothing more to take.
    assert_int_equal(quick.wakes, 3);
    assert_int_equal(slow.wakes, 1);
    for (int i = 1; i <= 3; i++) {
        json_auto_t *line = take_line(slow.subscription);
        assert_int_equal(number(line, "seq"), i);
    }
    assert_null(take_line(slow.subscription));
    subscription_free(quick.subscription);
    subscription_free(slow.subscription);
}

static void
test_a_reader_leaves_inside_its_callback(void **state)
{
    struct log_fixture *f = *state;
    struct reader readers[3] = {{.leaves = true}, {0}, {.leaves = true}};
    for (size_t i = 0; i < 3; i++)
        join(f, &readers[i], 0);
    print(f->execution, 10);
    print(f->execution, 10);
    assert_null(readers[0].subscription);
    assert_null(readers[2].subscription);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(readers[i].wakes, 1);
    subscription_free(readers[1].subscription);
}

static void
test_a_slow_reader_is_told_what_it_lost(void **state)
{
    struct log_fixture *f = *state;
    struct reader slow = {0};
    join(f, &slow, 0);
    print(f->execution, 100);
    print(f->execution, 100);
    json_auto_t *first = take_line(slow.subscription);
    int64_t from, to;
    assert_int_equal(number(first, "seq"), 1);
    assert_false(subscription_has_lost(slow.subscription, &from, &to));
    for (int i = 0; i < 200; i++)
        print(f->execution, 100); // what it would have taken next is dropped meanwhile
    json_auto_t *dropped = take_line(slow.subscription);
    assert_true(is_type(dropped, "dropped"));
    int64_t n = number(dropped, "messages");
    assert_true(subscription_has_lost(slow.subscription, &from, &to));
    assert_int_equal(from, 2);
    assert_int_equal(to, 1 + n);
    json_auto_t *next = take_line(slow.subscription);
    assert_int_equal(number(next, "seq"), 1 + n + 1);
    assert_false(subscription_has_lost(slow.subscription, &from, &to));
    assert_in_range(number(dropped, "bytes"), 100 * n, 200 * n);
    subscription_free(slow.subscription);

    // Of one that joins later it is not known how much it had read.
    struct reader late = {0};
    join(f, &late, 2);
    json_auto_t *unknown = take_line(late.subscription);
    assert_int_equal(number(unknown, "messages"), n - 1);
    assert_null(json_object_get(unknown, "bytes"));
    subscription_free(late.subscription);
}

static void
test_replay_after_the_end(void **state)
{
    struct log_fixture *f = *state;
    print(f->execution, 10);
    execution_finish(f->execution, EXECUTION_OK, false);
    struct reader reader = {0};
    join(f, &reader, 0);
    assert_false(subscription_finished(reader.subscription));
    json_auto_t *line = take_line(reader.subscription);
    assert_false(subscription_finished(reader.subscription));
    json_auto_t *done = take_line(reader.subscription);
    assert_true(is_type(done, "done"));
    assert_true(subscription_finished(reader.subscription));
    assert_null(take_line(reader.subscription));
    subscription_free(reader.subscription);

    join(f, &reader, 2);
    assert_true(subscription_finished(reader.subscription));
    subscription_abandon(reader.subscription);
    assert_done(f->execution, "ok", false);
}

// ---- The registry ---------------------------------------------------------------------------

static void
test_found_by_its_owner_only(void **state)
{
    struct log_fixture *f = *state;
    struct kg_error err = {0};
    const char *id = execution_id(f->execution);
    assert_ptr_equal(executions_find(f->executions, id, "me", &err), f->execution);
    assert_null(executions_find(f->executions, id, "other", &err));
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_null(executions_find(f->executions, "", "me", &err));
}

static void
test_what_is_kept_for_replay_is_bounded(void **state)
{
    struct log_fixture *f = *state;
    struct execution *executions[10];
    for (size_t i = 0; i < 10; i++) {
        executions[i] = running_execution(f->executions);
        print(executions[i], MAX_LOG_BYTES);
        execution_finish(executions[i], EXECUTION_OK, false);
    }
    for (size_t i = 0; i < 10; i++) {
        const char *id = execution_id(executions[i]);
        assert_int_equal(executions_find(f->executions, id, "me", NULL) != NULL, i >= 8);
        execution_unref(executions[i]);
    }
    // One that runs is not counted, and stays.
    assert_non_null(executions_find(f->executions, execution_id(f->execution), "me", NULL));
}

int
test_kernel_log(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_seq_counts_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_oldest_are_dropped_and_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_message_larger_than_the_bound_is_kept, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_a_message_of_many_lines_takes_no_longer_than_many_messages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_message_with_a_kept_line_inside, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errors_and_done_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_few_and_small_errors_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_largest_log_makes_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_spare_log_makes_room_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_message_whose_lines_are_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_line_that_is_held, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay_has_shares, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_reader_joins_after_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_readers_go_at_their_own_pace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_reader_leaves_inside_its_callback, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_slow_reader_is_told_what_it_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replay_after_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found_by_its_owner_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_kept_for_replay_is_bounded, setup, teardown),
    };
    return cmocka_run_group_tests_name("kernel: log", tests, NULL, NULL);
}
