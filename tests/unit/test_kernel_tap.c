// SPDX-License-Identifier: Apache-2.0
// Taps: routing, executions beside them, bounds, lifetimes.

#include "tap_client.h"
#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct output_budget *
budget_of(struct fixture *f)
{
    return executions_budget(f->context.executions);
}

static struct fake_kernel *
fake(struct fixture *f)
{
    return fake_sandbox_kernel(f->sandbox, "python");
}

static const char *
content_text(const struct tap_got *got, const char *key)
{
    const char *text = got ? json_string_value(json_object_get(got->content, key)) : NULL;
    return text ? text : "";
}

static bool
has_event(const struct tap_client *client, enum kernel_tap_kind kind)
{
    return tap_client_find_event(client, kind) != NULL;
}

static bool
has(const struct tap_client *client, enum kernel_channel channel, const char *type)
{
    return tap_client_find(client, channel, type) != NULL;
}

// A kernel that is ready, and a client that has been told.
static struct tap_client *
start_with_client(struct fixture *f)
{
    start_ready_kernel(f);
    struct tap_client *client = tap_client_new(f->kernel, "alice", 0);
    RUN_UNTIL(f, has_event(client, KERNEL_TAP_READY));
    return client;
}

// ---- Routing --------------------------------------------------------------------------------

static void
test_a_message_waits_for_the_kernel(void **state)
{
    struct fixture *f = *state;
    start_kernel(f);
    KG_AUTO(tap_client) client = tap_client_new(f->kernel, "alice", 0);
    tap_client_say(client, KERNEL_SHELL, "complete_request", json_pack("{s:s}", "code", "pri"));
    assert_int_equal(client->n_woken, 0); // never from inside the call
    RUN_UNTIL(f, tap_client_is_idle(client) && has(client, KERNEL_SHELL, "complete_reply"));
    assert_int_equal(client->got[0].kind, KERNEL_TAP_STARTING);
    assert_true(has_event(client, KERNEL_TAP_READY));
    assert_string_equal(
        content_text(tap_client_find(client, KERNEL_SHELL, "complete_reply"), "code"), "pri");
}

static void
test_replies_are_for_one_and_iopub_is_for_all(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) alice = start_with_client(f);
    KG_AUTO(tap_client) bob = tap_client_new(f->kernel, "bob", 0);
    tap_client_say(alice, KERNEL_SHELL, "inspect_request", json_pack("{s:s}", "code", "len"));
    tap_client_say(alice, KERNEL_SHELL, "comm_msg", json_pack("{s:s}", "comm_id", "c"));
    RUN_UNTIL(f, tap_client_is_idle(alice) && has(bob, KERNEL_IOPUB, "comm_msg"));
    RUN_UNTIL(f, has(alice, KERNEL_SHELL, "inspect_reply"));
    assert_false(has(bob, KERNEL_SHELL, ""));
    tap_client_say(bob, KERNEL_SHELL, "inspect_request", json_object());
    RUN_UNTIL(f, has(bob, KERNEL_SHELL, "inspect_reply"));
}

static void
test_input_goes_to_the_tap_that_asked(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) alice = start_with_client(f);
    KG_AUTO(tap_client) bob = tap_client_new(f->kernel, "bob", 0);
    struct kg_error err = {0};
    json_t *early = json_pack("{s:s}", "value", "too early");
    assert_int_equal(tap_client_send(alice, KERNEL_STDIN, "input_reply", early, &err), -1);
    assert_int_equal(err.code, KG_INVALID);
    tap_client_execute(alice, "ask");
    RUN_UNTIL(f, has(alice, KERNEL_STDIN, "input_request"));
    assert_false(has(bob, KERNEL_STDIN, ""));
    assert_true(kernel_is_busy(f->kernel));
    tap_client_say(alice, KERNEL_STDIN, "input_reply", json_pack("{s:s}", "value", "Alice"));
    RUN_UNTIL(f, has(alice, KERNEL_IOPUB, "stream"));
    assert_string_equal(content_text(tap_client_find(alice, KERNEL_IOPUB, "stream"), "text"),
                        "Alice");
    RUN_UNTIL(f, !kernel_is_busy(f->kernel));
    json_t *second = json_pack("{s:s}", "value", "once more");
    assert_int_equal(tap_client_send(alice, KERNEL_STDIN, "input_reply", second, &err), -1);
}

// ---- Beside executions ----------------------------------------------------------------------

static void
test_an_execution_waits_for_that_of_a_tap(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    tap_client_execute(client, "hang");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    assert_int_equal(kernel_state(f->kernel), KERNEL_BUSY);
    KG_AUTO(execution) ours = execute(f, "print");
    assert_true(kernel_is_busy(f->kernel));
    for (int i = 0; loop_timer_active(f->kernel->runner.next); i++)
        fixture_turn(f);
    assert_int_equal(execution_state(ours), EXECUTION_QUEUED);
    fake_kernel_interrupt(fake(f));
    run_until_done(f, ours);
    assert_done(ours, "ok", false);
    json_auto_t *lines = all_lines(ours);
    assert_int_equal(json_array_size(lines), 2); // nothing of the tap's error
    assert_string_equal(fake_journal(), "run hang\nrun print\n");
    RUN_UNTIL(f, !kernel_is_busy(f->kernel));
}

// Its idle status and its reply are not taken for the running execution's.
static void
test_a_tap_beside_a_running_execution(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    KG_AUTO(execution) ours = execute(f, "no idle");
    RUN_UNTIL(f, f->kernel->runner.run.cell.reply != CELL_NO_REPLY);
    tap_client_execute(client, "print");
    RUN_UNTIL(f, tap_client_is_idle(client) && has(client, KERNEL_SHELL, "execute_reply"));
    assert_true(has(client, KERNEL_IOPUB, "stream"));
    assert_int_equal(execution_state(ours), EXECUTION_RUNNING);
    assert_int_equal(ours->log.last_seq, 0);
    assert_int_equal(kernel_execution_count(f->kernel), 1); // of ours
}

static void
test_an_interrupt_reaches_the_request_of_a_tap(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    tap_client_execute(client, "hang");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    assert_true(kernel_interrupt(f->kernel));
    RUN_UNTIL(f, has(client, KERNEL_IOPUB, "error"));
    RUN_UNTIL(f, !kernel_is_busy(f->kernel));
    assert_false(kernel_interrupt(f->kernel));
}

// As ipykernel does with what it has queued when code of a client fails.
static void
test_an_aborted_request_is_sent_again(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    KG_AUTO(tap_client) client = start_with_client(f);
    tap_client_execute(client, "abort");
    RUN_UNTIL(f, tap_client_is_idle(client));
    KG_AUTO(execution) plain = execute(f, "print");
    run_until_done(f, plain);
    assert_done(plain, "ok", false);
    assert_string_equal(fake_journal(), "run abort\nrun print\nrun print\n");
    tap_client_execute(client, "abort");
    RUN_UNTIL(f, tap_client_is_idle(client));
    json_auto_t *variables = json_pack("{s:i}", "x", 1);
    KG_AUTO(execution) with_variables = execute_with(f, "print", variables, NULL, &err);
    run_until_done(f, with_variables);
    assert_done(with_variables, "ok", false);
}

// It has run, and what it did would be done twice.
static void
test_a_request_that_fails_is_sent_once(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    KG_AUTO(tap_client) client = start_with_client(f);
    tap_client_execute(client, "print");
    RUN_UNTIL(f, tap_client_is_idle(client));
    fake_journal_clear();
    KG_AUTO(execution) plain = execute(f, "raise");
    run_until_done(f, plain);
    assert_done(plain, "error", false);
    json_auto_t *variables = json_pack("{s:i}", "bad", 1);
    KG_AUTO(execution) with_variables = execute_with(f, "print", variables, NULL, &err);
    run_until_done(f, with_variables);
    assert_done(with_variables, "error", false);
    assert_string_equal(fake_journal(), "run raise\nsilent set \"{\\\"bad\\\":1}\"\n");
}

// The startup code is a new process's first, whoever comes first.
static void
test_the_startup_code_comes_first(void **state)
{
    struct fixture *f = *state;
    f->spec.startup_code = kg_strdup("start up");
    KG_AUTO(tap_client) client = start_with_client(f);
    tap_client_execute(client, "print");
    RUN_UNTIL(f, tap_client_is_idle(client));
    KG_AUTO(execution) ours = execute(f, "print");
    run_until_done(f, ours);
    assert_string_equal(fake_journal(), "silent start up\nrun print\nrun print\n");
}

static void
test_no_request_gets_between_those_of_an_execution(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    KG_AUTO(tap_client) client = start_with_client(f);
    json_auto_t *slow = json_pack("{s:i}", "slow", 1);
    KG_AUTO(execution) ours = execute_with(f, "print", slow, NULL, &err);
    RUN_UNTIL(f, strstr(fake_journal(), "slow"));
    tap_client_execute(client, "raise");
    assert_true(kernel_is_busy(f->kernel));
    fake_kernel_interrupt(fake(f)); // the variables are set
    run_until_done(f, ours);
    RUN_UNTIL(f, tap_client_is_idle(client));
    assert_done(ours, "ok", false);
    assert_non_null(strstr(fake_journal(), "run print\nrun raise\n"));
}

// ---- Life -----------------------------------------------------------------------------------

static void
test_a_tap_survives_a_restart(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    KG_AUTO(tap_client) client = start_with_client(f);
    tap_client_execute(client, "hang");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    tap_client_clear(client);
    assert_int_equal(restart(f, &err), 0);
    assert_false(kernel_is_busy(f->kernel)); // nobody answers it any more
    RUN_UNTIL(f, has_event(client, KERNEL_TAP_READY));
    assert_true(has_event(client, KERNEL_TAP_REQUESTED));
    const struct tap_got *reply = tap_client_find(client, KERNEL_SHELL, "execute_reply");
    assert_string_equal(json_string_value(json_object_get(reply->content, "status")), "aborted");
    assert_true(tap_client_is_idle(client));
    tap_client_clear(client);
    tap_client_execute(client, "ask"); // with a stdin channel of the new process
    RUN_UNTIL(f, has(client, KERNEL_STDIN, "input_request"));
    tap_client_say(client, KERNEL_STDIN, "input_reply", json_pack("{s:s}", "value", "yes"));
    RUN_UNTIL(f, has(client, KERNEL_IOPUB, "stream"));
}

static void
test_a_dead_kernel_is_started_by_a_message(void **state)
{
    struct fixture *f = *state;
    fake_script.refuse_start = true;
    start_kernel(f);
    KG_AUTO(tap_client) client = tap_client_new(f->kernel, "alice", 0);
    RUN_UNTIL(f, has_event(client, KERNEL_TAP_DEAD));
    fake_script.refuse_start = false;
    tap_client_execute(client, "print");
    RUN_UNTIL(f, has(client, KERNEL_SHELL, "execute_reply"));
}

static void
test_a_tap_outlives_its_kernel(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    KG_AUTO(tap_client) client = start_with_client(f);
    client->is_deaf = true;
    tap_client_execute(client, "print");
    RUN_UNTIL(f, budget_of(f)->held > 0);
    assert_false(kernel_tap_has_ended(client->tap));
    kernel_free(KG_STEAL(f->kernel), NULL);
    assert_true(kernel_tap_has_ended(client->tap));
    assert_int_equal(tap_client_send(client, KERNEL_SHELL, "x", json_object(), &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    int n_woken = client->n_woken;
    RUN_UNTIL(f, client->n_woken > n_woken); // although it has taken nothing

    // What a reader is still sending counts until it is sent.
    struct kernel_tap_item item;
    void *held = NULL;
    while (!held && kernel_tap_next(client->tap, &item))
        held = item.kind == KERNEL_TAP_MESSAGE ? kernel_tap_hold(client->tap) : NULL;
    assert_non_null(held);
    KG_AUTO_FREE char *header = kg_memdup0(item.message->header.data, item.message->header.len);
    client->is_deaf = false;
    while (kernel_tap_next(client->tap, &item) && item.kind != KERNEL_TAP_ENDED)
        continue;
    assert_int_equal(item.kind, KERNEL_TAP_ENDED);
    tap_client_free(KG_STEAL(client));
    assert_in_range(budget_of(f)->held, strlen(header), 4096);
    assert_int_equal(budget_of(f)->held, budget_of(f)->sending);
    kernel_message_release(held);
    assert_int_equal(budget_of(f)->held, 0);
    assert_int_equal(budget_of(f)->sending, 0);
}

static void
test_what_was_taken_is_let_go(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    client->is_deaf = true;
    tap_client_execute(client, "print");
    RUN_UNTIL(f, !kernel_is_busy(f->kernel));
    struct kernel_tap_item item;
    do
        assert_true(kernel_tap_next(client->tap, &item));
    while (item.kind != KERNEL_TAP_MESSAGE);
    size_t held = budget_of(f)->held;
    kernel_tap_let_go(client->tap);
    assert_true(budget_of(f)->held < held);
    kernel_tap_let_go(client->tap);
    assert_true(kernel_tap_next(client->tap, &item));
}

// Every turn of the loop is one more step.
static void
test_close_and_free_at_every_step(void **state)
{
    struct fixture *f = *state;
    for (int turns = 0; turns < 16; turns++) {
        start_kernel(f);
        KG_AUTO(tap_client) client = tap_client_new(f->kernel, "alice", 0);
        KG_AUTO(tap_client) other = tap_client_new(f->kernel, "bob", 0);
        tap_client_execute(client, "ask");
        tap_client_execute(other, "print");
        for (int i = 0; i < turns; i++)
            fixture_turn(f);
        tap_client_free(KG_STEAL(other));
        kernel_free(KG_STEAL(f->kernel), NULL);
        RUN_UNTIL(f, has_event(client, KERNEL_TAP_ENDED));
        sandbox_free(f->sandbox);
        struct kg_error err = {0};
        make_sandbox(f, &err);
    }
    assert_int_equal(budget_of(f)->held, 0);
}

// ---- Bounds ---------------------------------------------------------------------------------

// What a kernel prints when it floods, told from other messages by its number.
static void
flood(struct fixture *f, int n, int bytes)
{
    KG_AUTO_FREE char *text = kg_calloc((size_t)bytes + 1, 1);
    memset(text, 'x', (size_t)bytes);
    for (int i = 0; i < n; i++)
        fake_kernel_print(fake(f), text);
}

static void
test_a_deaf_tap_loses_the_oldest(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) hearing = start_with_client(f);
    KG_AUTO(tap_client) deaf = tap_client_new(f->kernel, "deaf", 32 << 10);
    RUN_UNTIL(f, has_event(deaf, KERNEL_TAP_READY));
    deaf->is_deaf = true;
    tap_client_say(hearing, KERNEL_SHELL, "complete_request", json_object());
    RUN_UNTIL(f, tap_client_is_idle(hearing));
    flood(f, 200, 1000);
    tap_client_say(hearing, KERNEL_SHELL, "inspect_request", json_object());
    RUN_UNTIL(f, has(hearing, KERNEL_SHELL, "inspect_reply") && tap_client_is_idle(hearing));
    RUN_UNTIL(f, has(hearing, KERNEL_SHELL, "complete_reply"));
    size_t n_streams = 0;
    for (size_t i = 0; i < hearing->n_got; i++)
        n_streams += hearing->got[i].type && strcmp(hearing->got[i].type, "stream") == 0;
    assert_int_equal(n_streams, 200); // the deaf one holds up nobody
    assert_in_range(budget_of(f)->held, 16 << 10, 34 << 10);
    struct kernel_tap_item item;
    assert_true(kernel_tap_next(deaf->tap, &item));
    assert_int_equal(item.kind, KERNEL_TAP_LOST);
    assert_in_range(item.lost_messages, 150, 199);
    assert_in_range(item.lost_bytes, item.lost_messages * 1000, item.lost_messages * 2000);
    size_t n_left = 0, n_status = 0;
    while (kernel_tap_next(deaf->tap, &item)) {
        n_left += item.kind == KERNEL_TAP_MESSAGE;
        n_status += item.kind == KERNEL_TAP_MESSAGE && item.message->content.len < 100;
    }
    assert_in_range(n_left, 10, 50);
    assert_true(n_status >= 4); // busy and idle, twice: not dropped although they are older
    assert_int_equal(budget_of(f)->held, 0);
}

static void
test_all_taps_and_logs_share_one_budget(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) hearing = start_with_client(f);
    KG_AUTO(execution) ours = execute(f, "no idle");
    RUN_UNTIL(f, f->kernel->runner.run.cell.reply != CELL_NO_REPLY);
    fake_kernel_print(fake(f), "kept");
    RUN_UNTIL(f, ours->log.last_seq == 1);
    KG_AUTO(tap_client) deaf = tap_client_new(f->kernel, "deaf", 0);
    deaf->is_deaf = true;
    budget_of(f)->max = 64 << 10;
    tap_client_say(hearing, KERNEL_SHELL, "complete_request", json_object());
    RUN_UNTIL(f, tap_client_is_idle(hearing));
    flood(f, 300, 1000); // for taps only: the parent is not ours
    tap_client_say(hearing, KERNEL_SHELL, "inspect_request", json_object());
    RUN_UNTIL(f, tap_client_is_idle(hearing));
    assert_in_range(budget_of(f)->held, 32 << 10, 64 << 10);
    json_auto_t *lines = all_lines(ours);
    assert_int_equal(json_array_size(lines), 1); // the log has not paid for the tap
    struct kernel_tap_item item;
    assert_true(kernel_tap_next(deaf->tap, &item));
    assert_int_equal(item.kind, KERNEL_TAP_LOST);
    budget_of(f)->max = 1 << 30;
}

// A tenant can forge any number of messages that may not be dropped.
static void
test_a_tap_that_cannot_lose_enough_is_cut(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) hearing = start_with_client(f);
    KG_AUTO(tap_client) deaf = tap_client_new(f->kernel, "deaf", 32 << 10);
    struct kg_error err = {0};
    tap_client_say(hearing, KERNEL_SHELL, "complete_request", json_object());
    RUN_UNTIL(f, tap_client_is_idle(hearing));
    deaf->is_deaf = true;
    for (int i = 0; i < 200; i++)
        fake_kernel_say(fake(f), JUPYTER_IOPUB, "status",
                        json_pack("{s:s}", "execution_state", "idle"));
    tap_client_say(hearing, KERNEL_SHELL, "inspect_request", json_object());
    RUN_UNTIL(f, tap_client_is_idle(hearing) && has(hearing, KERNEL_SHELL, "inspect_reply"));
    RUN_UNTIL(f, budget_of(f)->held == 0);
    struct kernel_tap_item item;
    assert_true(kernel_tap_next(deaf->tap, &item));
    assert_int_equal(item.kind, KERNEL_TAP_LOST);
    assert_true(kernel_tap_next(deaf->tap, &item));
    assert_int_equal(item.kind, KERNEL_TAP_CUT);
    assert_false(kernel_tap_next(deaf->tap, &item));
    assert_int_equal(tap_client_send(deaf, KERNEL_SHELL, "x", json_object(), &err), -1);
}

// A kernel that answers nothing gets a bounded number of messages; the tap is refused more.
static void
test_what_a_tap_sends_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    KG_AUTO(tap_client) client = start_with_client(f);
    fake_sandbox_mute(f->sandbox, "python");
    for (int i = 0; i < 256; i++)
        tap_client_say(client, KERNEL_SHELL, "kernel_info_request", json_object());
    RUN_UNTIL(f, f->kernel->hub.main.n == 256);
    int n = 0;
    while (n < 10000 &&
           tap_client_send(client, KERNEL_SHELL, "kernel_info_request", json_object(), &err) == 0)
        n++;
    assert_int_equal(err.code, KG_SESSION_BUSY);
    assert_int_equal(n, 256);
    assert_int_equal(f->kernel->hub.main.n, 256);
    // The runner is not kept out by it.
    KG_AUTO(execution) ours = execute(f, "print");
    run_until_done(f, ours);
    assert_done(ours, "ok", false);
}

static void
test_taps_are_counted(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    struct tap_client *clients[KERNEL_MAX_TAPS];
    for (size_t i = 0; i < KERNEL_MAX_TAPS; i++)
        clients[i] = tap_client_new(f->kernel, "alice", 0);
    const struct kernel_tap_settings settings = {.owner = "me", .session_id = "s1"};
    assert_null(kernel_tap_open(f->kernel, &settings, NULL, NULL, &err));
    assert_int_equal(err.code, KG_SESSION_BUSY);
    for (size_t i = 0; i < KERNEL_MAX_TAPS; i++)
        tap_client_free(clients[i]);
}

// ---- What is refused ------------------------------------------------------------------------

#define ID "\"msg_id\":\"1\",\"msg_type\":\"x\""

static void
test_bad_messages_are_refused(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    KG_AUTO_FREE char *own =
        kg_asprintf("{" ID ",\"session\":\"%s\"}", process_session(&f->kernel->process));
    KG_AUTO_FREE char *long_id = kg_asprintf("{\"msg_id\":\"%0129d\",\"msg_type\":\"x\","
                                             "\"session\":\"s\"}",
                                             1);
    static const char good[] = "{" ID ",\"session\":\"s\"}";
    const struct {
        enum kernel_channel channel;
        const char *header, *parent, *metadata, *content, *message;
    } bad[] = {
        {KERNEL_IOPUB, good, "{}", "{}", "{}", "channel"},
        {KERNEL_SHELL, "", "{}", "{}", "{}", "header"},
        {KERNEL_SHELL, "[]", "{}", "{}", "{}", "header"},
        {KERNEL_SHELL, "{" ID "}", "{}", "{}", "{}", "session"},
        {KERNEL_SHELL, "{" ID ",\"session\":1}", "{}", "{}", "{}", "session"},
        {KERNEL_SHELL, "{" ID ",\"session\":\"s\",\"session\":\"t\"}", "{}", "{}", "{}", "header"},
        {KERNEL_SHELL, "{\"msg_id\":\"\",\"msg_type\":\"x\",\"session\":\"s\"}", "{}", "{}", "{}",
         "msg_id"},
        {KERNEL_SHELL, long_id, "{}", "{}", "{}", "msg_id"},
        {KERNEL_SHELL, own, "{}", "{}", "{}", "belongs to the gateway"},
        {KERNEL_SHELL, good, "[]", "{}", "{}", "parent_header"},
        {KERNEL_SHELL, good, "{}", "1", "{}", "metadata"},
        {KERNEL_SHELL, good, "{}", "{}", "", "content"},
        {KERNEL_SHELL, good, "{}", "{}", "{} {}", "content"},
        {KERNEL_STDIN, good, "{}", "{}", "{}", "has not asked"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        struct kg_error err = {0};
        const struct kernel_message message = {
            .channel = bad[i].channel,
            .header = {bad[i].header, strlen(bad[i].header)},
            .parent_header = {bad[i].parent, strlen(bad[i].parent)},
            .metadata = {bad[i].metadata, strlen(bad[i].metadata)},
            .content = {bad[i].content, strlen(bad[i].content)},
        };
        if (kernel_tap_send(client->tap, &message, &err) == 0 ||
            !strstr(err.message, bad[i].message))
            fail_msg("%zu: \"%s\" lacks \"%s\"", i, err.message, bad[i].message);
    }
    assert_false(kernel_is_busy(f->kernel));
}

static void
test_a_large_message_is_checked_and_keeps_its_place(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    executions_free(f->context.executions);
    f->context.executions =
        executions_new(f->loop, &(const struct executions_settings){.max_log_bytes = 1 << 20,
                                                                    .max_live_bytes = 1 << 30,
                                                                    .max_replay_bytes = 1 << 20,
                                                                    .max_waiting_bytes = 2 << 20});
    KG_AUTO(tap_client) client = start_with_client(f);
    static char no_json[100 << 10];
    memset(no_json, '{', sizeof no_json);
    static const char header[] = "{\"msg_id\":\"1\",\"msg_type\":\"execute_request\","
                                 "\"session\":\"alice\"}";
    const struct kernel_message bad = {
        .channel = KERNEL_SHELL,
        .header = {header, sizeof header - 1},
        .content = {no_json, sizeof no_json},
    };
    assert_int_equal(kernel_tap_send(client->tap, &bad, &err), 0);
    assert_true(kernel_is_busy(f->kernel));
    KG_AUTO_FREE char *text = kg_calloc((200 << 10) + 1, 1);
    memset(text, 'y', 200 << 10);
    tap_client_say(client, KERNEL_SHELL, "complete_request", json_pack("{s:s}", "code", text));
    tap_client_say(client, KERNEL_SHELL, "inspect_request", json_object());
    RUN_UNTIL(f, has(client, KERNEL_SHELL, "inspect_reply"));
    assert_true(has_event(client, KERNEL_TAP_REFUSED));
    const struct tap_got *large = tap_client_find(client, KERNEL_SHELL, "complete_reply");
    assert_true(large < tap_client_find(client, KERNEL_SHELL, "inspect_reply"));
    assert_string_equal(content_text(large, "code"), text);
    RUN_UNTIL(f, !kernel_is_busy(f->kernel));
}

int
test_kernel_tap(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_message_waits_for_the_kernel),
        TEST(test_replies_are_for_one_and_iopub_is_for_all),
        TEST(test_input_goes_to_the_tap_that_asked),
        TEST(test_an_execution_waits_for_that_of_a_tap),
        TEST(test_a_tap_beside_a_running_execution),
        TEST(test_an_interrupt_reaches_the_request_of_a_tap),
        TEST(test_an_aborted_request_is_sent_again),
        TEST(test_a_request_that_fails_is_sent_once),
        TEST(test_the_startup_code_comes_first),
        TEST(test_no_request_gets_between_those_of_an_execution),
        TEST(test_a_tap_survives_a_restart),
        TEST(test_a_dead_kernel_is_started_by_a_message),
        TEST(test_a_tap_outlives_its_kernel),
        TEST(test_what_was_taken_is_let_go),
        TEST(test_close_and_free_at_every_step),
        TEST(test_a_deaf_tap_loses_the_oldest),
        TEST(test_all_taps_and_logs_share_one_budget),
        TEST(test_a_tap_that_cannot_lose_enough_is_cut),
        TEST(test_what_a_tap_sends_is_bounded),
        TEST(test_taps_are_counted),
        TEST(test_bad_messages_are_refused),
        TEST(test_a_large_message_is_checked_and_keeps_its_place),
    };
    return cmocka_run_group_tests_name("kernel: taps", tests, NULL, NULL);
}
