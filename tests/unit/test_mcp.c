// SPDX-License-Identifier: Apache-2.0
// The MCP core without a transport: revisions, calls, answers, sessions and their limits.

#include "test_mcp.h"

// ---- Messages -------------------------------------------------------------------------------

static void
test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum message_kind kind;
    } cases[] = {
        {"{'jsonrpc':'2.0','id':1,'method':'m'}", MESSAGE_REQUEST},
        {"{'jsonrpc':'2.0','id':'a','method':'m','params':{}}", MESSAGE_REQUEST},
        {"{'jsonrpc':'2.0','method':'m'}", MESSAGE_NOTIFICATION},
        {"{'jsonrpc':'2.0','id':1,'result':{}}", MESSAGE_RESPONSE},
        {"{'jsonrpc':'2.0','id':1,'error':{}}", MESSAGE_RESPONSE},
        {"{'jsonrpc':'2.0','id':1}", MESSAGE_INVALID},
        {"{'jsonrpc':'2.0','result':{}}", MESSAGE_INVALID},
        {"{'jsonrpc':'1.0','id':1,'method':'m'}", MESSAGE_INVALID},
        {"{'id':1,'method':'m'}", MESSAGE_INVALID},
        {"{'jsonrpc':'2.0','id':null,'method':'m'}", MESSAGE_INVALID},
        {"{'jsonrpc':'2.0','id':1.5,'method':'m'}", MESSAGE_INVALID},
        {"{'jsonrpc':'2.0','id':1,'method':1}", MESSAGE_INVALID},
        {"{'jsonrpc':'2.0','id':1,'method':'m','params':[]}", MESSAGE_INVALID},
        {"17", MESSAGE_INVALID},
        {"[]", MESSAGE_INVALID},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        json_auto_t *message = quoted("%s", cases[i].text);
        const char *why;
        assert_int_equal(rpc_kind(message, &why), cases[i].kind);
        assert_true((why != NULL) == (cases[i].kind == MESSAGE_INVALID));
    }
}

// ---- Revisions ------------------------------------------------------------------------------

static void
test_revisions_by_name(void **state)
{
    (void)state;
    for (int i = 0; i < MCP_N_REVISIONS; i++)
        assert_int_equal(revision_find(revision_get((enum mcp_revision)i)->name), i);
    assert_int_equal(revision_find("2025-01-01"), -1);
    assert_int_equal(revision_find(""), -1);
    assert_int_equal(revision_find(NULL), -1);
}

static void
test_lists_lose_what_came_later(void **state)
{
    (void)state;
    static const struct {
        enum mcp_revision revision;
        size_t keys;
    } cases[] = {
        {MCP_2024_11_05, 3}, {MCP_2025_03_26, 4}, {MCP_2025_06_18, 6},
        {MCP_2025_11_25, 7}, {MCP_2026_07_28, 7},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        json_auto_t *list =
            quoted("[{'name':'n','description':'d','inputSchema':{},'annotations':{},"
                   "'title':'t','outputSchema':{},'icons':[]}]");
        json_auto_t *element = json_incref(json_array_get(list, 0));
        revision_strip(cases[i].revision, "tools/list", list);
        assert_int_equal(json_object_size(json_array_get(list, 0)), cases[i].keys);
        assert_int_equal(json_object_size(element), 7); // the provider's element is unchanged
    }
}

static void
test_results_become_what_is_known(void **state)
{
    (void)state;
    json_auto_t *result =
        quoted("{'content':[{'type':'audio','data':'','mimeType':'audio/wav'},"
               "{'type':'resource_link','uri':'a:1','name':'n'},{'type':'text','text':'t'}],"
               "'structuredContent':{}}");
    json_auto_t *same = json_deep_copy(result);
    revision_adapt_result(MCP_2025_11_25, same);
    assert_true(json_equal(result, same));
    revision_adapt_result(MCP_2024_11_05, result);
    json_auto_t *expected = quoted("{'content':[{'type':'text','text':'[audio, audio/wav]'},"
                                   "{'type':'text','text':'n: a:1'},{'type':'text','text':'t'}]}");
    assert_true(json_equal(result, expected));
}

static void
test_methods_by_revision(void **state)
{
    (void)state;
    assert_non_null(method_find("ping", MCP_2024_11_05));
    assert_null(method_find("ping", MCP_2026_07_28));
    assert_null(method_find("server/discover", MCP_2025_11_25));
    assert_non_null(method_find("tools/call", MCP_2026_07_28));
    assert_null(method_find("", MCP_2025_11_25));
}

// ---- Calls ----------------------------------------------------------------------------------

static void
test_results_are_valid_utf8(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'echo'}}");
    json_auto_t *answer = take_answer(f);
    json_t *content = json_object_get(json_object_get(answer, "result"), "content");
    assert_string_equal(rpc_string(json_array_get(content, 0), "text"), "\xef\xbf\xbd!");
}

static void
test_a_broken_result_costs_one_answer(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'broken'}}");
    assert_int_equal(take_code(f), MCP_INTERNAL_ERROR);
}

static void
test_lists_of_providers_are_joined(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'resources/list'}");
    json_auto_t *answer = take_answer(f);
    json_t *list = json_object_get(json_object_get(answer, "result"), "resources");
    assert_int_equal(json_array_size(list), 2);
}

static void
test_cancelled_once_and_not_answered(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, "{'jsonrpc':'2.0','id':'c','method':'tools/call','params':{'name':'hold'}}");
    say(f, "{'jsonrpc':'2.0','id':'c','method':'ping'}"); // the id is taken
    assert_int_equal(take_code(f), MCP_INVALID_REQUEST);
    for (int i = 0; i < 2; i++)
        say(f, "{'jsonrpc':'2.0','method':'notifications/cancelled','params':{'requestId':'c'}}");
    assert_int_equal(f->cancels, 1);
    mcp_call_progress(f->held, 1, 2, NULL);
    mcp_call_log(f->held, MCP_LOG_ERROR, NULL, json_string("late"));
    assert_int_equal(json_array_size(f->sink.sent), 0);
    mcp_call_finish(f->held, mcp_tool_result(json_array(), NULL, false));
    json_auto_t *answer = take_answer(f);
    assert_true(json_is_null(answer));
}

static void
stop_loop(void *arg)
{
    loop_stop(arg);
}

static void
test_who_asks_late_hears_of_the_cancel(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold'}}");
    mcp_call_cancel(f->held);
    assert_int_equal(f->cancels, 1);
    struct mcp_call *held = f->held;
    mcp_call_on_cancel(held, stop_loop, f->loop);
    loop_run(f->loop); // which it stops
    mcp_call_finish(held, json_object());
}

static void
test_progress_grows(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold',"
           "'_meta':{'progressToken':0}}}");
    assert_true(mcp_call_wants_progress(f->held));
    mcp_call_progress(f->held, 1, 0, "one");
    mcp_call_progress(f->held, 1, 0, "again");
    mcp_call_progress(f->held, 2, 4, NULL);
    json_auto_t *expected = quoted(
        "[{'jsonrpc':'2.0','method':'notifications/progress','params':{'progressToken':0,"
        "'progress':1.0,'message':'one'}},{'jsonrpc':'2.0','method':"
        "'notifications/progress','params':{'progressToken':0,'progress':2.0,'total':4.0}}]");
    assert_true(json_equal(f->sink.sent, expected));
    mcp_call_fail(f->held, MCP_SERVER_ERROR, NULL, "enough \xc3");
    assert_int_equal(take_code(f), MCP_SERVER_ERROR);
}

static void
test_calls_of_a_session_are_bounded(void **state)
{
    struct mcp_fixture *f = *state;
    for (int i = 1; i <= MCP_SESSION_CALLS_MAX; i++)
        say(f, "{'jsonrpc':'2.0','id':%d,'method':'tools/call','params':{'name':'hold'}}", i);
    assert_int_equal(json_array_size(f->sink.answers), 0);
    say(f, "{'jsonrpc':'2.0','id':0,'method':'ping'}");
    assert_int_equal(take_code(f), MCP_SERVER_ERROR);
}

static void
test_a_batch_is_answered_as_one(void **state)
{
    struct mcp_fixture *f = *state;
    f->session->revision = MCP_2025_03_26;
    say(f, "[{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold'}},"
           "{'jsonrpc':'2.0','method':'notifications/initialized'},"
           "{'jsonrpc':'2.0','id':2,'method':'nonsense'}]");
    assert_int_equal(json_array_size(f->sink.answers), 0);
    mcp_call_finish(f->held, json_object());
    json_auto_t *answer = take_answer(f);
    assert_int_equal(json_array_size(answer), 2);
}

static int
admit_two(const char *owner, void *arg, struct kg_error *err)
{
    int *asked = arg;
    assert_string_equal(owner, "alice");
    if (++*asked <= 2)
        return 0;
    return kg_error_set(err, KG_RATE_LIMITED, 0, "too many");
}

static void
test_a_batch_counts_as_what_stands_in_it(void **state)
{
    struct mcp_fixture *f = *state;
    int asked = 0;
    mcp_set_admit(f->mcp, admit_two, &asked);
    f->session->revision = MCP_2025_03_26;
    say(f, "[{'jsonrpc':'2.0','id':1,'method':'ping'},{'jsonrpc':'2.0','id':2,'method':'ping'},"
           "{'jsonrpc':'2.0','method':'notifications/initialized'},"
           "{'jsonrpc':'2.0','id':3,'method':'ping'},{'jsonrpc':'2.0','id':4,'method':'ping'}]");
    json_auto_t *answer = take_answer(f);
    assert_int_equal(asked, 3);
    assert_int_equal(json_array_size(answer), 4);
    json_t *last = json_array_get(answer, 3), *error = json_object_get(last, "error");
    assert_non_null(json_object_get(json_array_get(answer, 2), "result"));
    assert_int_equal(json_integer_value(json_object_get(last, "id")), 4);
    assert_int_equal(json_integer_value(json_object_get(error, "code")), MCP_SERVER_ERROR);
    assert_string_equal(rpc_string(json_object_get(error, "data"), "code"), "rate_limited");
}

// ---- What is kept of a client ---------------------------------------------------------------

static void
test_values_of_a_message_are_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        size_t n;
        int code;
    } cases[] = {{"{}", 1000, 0}, {"1", 300 * 1000, 0}, {"{}", 70 * 1000, MCP_INVALID_REQUEST}};
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_BUF text = {0};
        for (size_t n = 0; n < cases[i].n; n++)
            buf_printf(&text, "%c%s", n ? ',' : '[', cases[i].value);
        buf_append_str(&text, "]");
        struct received received;
        mcp_received_fill(&received, text.data, text.len);
        assert_int_equal(received.message ? 0 : received.code, cases[i].code);
        json_decref(received.message);
    }
    struct received received;
    mcp_received_fill(&received, "{", 1);
    assert_null(received.message);
    assert_int_equal(received.code, MCP_PARSE_ERROR);
}

static json_t *
large_request(int id)
{
    char large[3 << 10];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    json_t *message =
        quoted("{'jsonrpc':'2.0','id':%d,'method':'tools/call','params':{'name':'hold',"
               "'arguments':{'x':[]}}}",
               id);
    json_t *list =
        json_object_get(json_object_get(json_object_get(message, "params"), "arguments"), "x");
    for (int i = 0; i < 6; i++)
        json_array_append_new(list, json_string(large));
    return message;
}

// The messages of running calls are bounded; a small request is always accepted.
static void
test_messages_of_calls_are_bounded(void **state)
{
    struct mcp_fixture *f = *state;
    struct budget_hold others = {0};
    budget_hold_start(&others, &f->mcp->requests, "another");
    budget_hold_set(&others, MCP_HELD_MAX - 100);
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold'}}");
    assert_int_equal(json_array_size(f->sink.answers), 0);
    assert_true(f->mcp->requests.held > MCP_HELD_MAX);
    mcp_receive(f->session, &f->sink.base, large_request(2), NULL, NULL);
    assert_int_equal(take_code(f), MCP_SERVER_ERROR);
    mcp_call_finish(f->held, json_object());
    assert_int_equal(take_code(f), 0);
    assert_int_equal(f->mcp->requests.held, MCP_HELD_MAX - 100);
    budget_hold_end(&others);
}

static void
test_messages_of_one_owner_are_bounded(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold'}}");
    struct mcp_call *heavy = f->held;
    budget_hold_set(&heavy->held, MCP_OWNER_HELD_MAX);
    mcp_receive(f->session, &f->sink.base, large_request(2), NULL, NULL);
    assert_int_equal(take_code(f), MCP_SERVER_ERROR);
    budget_hold_end(&heavy->held);
    budget_hold_start(&heavy->held, &f->mcp->requests, "another");
    budget_hold_set(&heavy->held, MCP_OWNER_HELD_MAX);
    mcp_receive(f->session, &f->sink.base, large_request(2), NULL, NULL);
    assert_int_equal(json_array_size(f->sink.answers), 0);
    mcp_call_finish(f->held, json_object());
    assert_int_equal(take_code(f), 0);
    mcp_call_finish(heavy, json_object());
    assert_int_equal(take_code(f), 0);
    assert_int_equal(f->mcp->requests.held, 0);
}

// ---- Large answers --------------------------------------------------------------------------

static const char hold_one[] =
    "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold'}}";

// Its request runs until it is encoded. The encoded text has the whole result.
static void
test_a_large_answer_is_encoded_off_the_loop(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, hold_one);
    mcp_call_finish(f->held, large_result(3 << 20));
    assert_int_equal(json_array_size(f->sink.answers), 0);
    assert_int_equal(f->session->n_calls, 1);
    say(f, hold_one);
    assert_int_equal(take_code(f), MCP_INVALID_REQUEST);
    json_auto_t *answer = take_answer(f);
    json_auto_t *expected =
        json_pack("{s:s, s:i, s:o}", "jsonrpc", "2.0", "id", 1, "result", large_result(3 << 20));
    assert_true(json_equal(answer, expected));
    assert_int_equal(f->session->n_calls, 0);
    assert_int_equal(f->mcp->requests.held, 0);
    say(f, hold_one);
    mcp_call_finish(f->held, json_object()); // a small one is sent at once
    assert_int_equal(json_array_size(f->sink.answers), 1);
}

static void
note_release(void *arg)
{
    ++*(int *)arg;
}

// The attached text is written into the answer, escaped once more within JSON text, and released.
static void
test_attachments_become_a_part_of_the_answer(void **state)
{
    struct mcp_fixture *f = *state;
    int released = 0;
    static const char first[] = "a\\n\\\"b\\\\", second[] = "QUJD";
    say(f, hold_one);
    json_t *one = mcp_call_attach(f->held, first, strlen(first), note_release, &released);
    json_t *two = mcp_call_attach(f->held, second, strlen(second), note_release, &released);
    json_t *text = mcp_json_text(json_pack("{s:O, s:O}", "one", one, "two", two));
    json_t *image = mcp_image_string(two, "image/png");
    mcp_call_finish(f->held, json_pack("{s:[o, o], s:o}", "content", text, image, "one", one));
    assert_int_equal(released, 0);
    json_auto_t *answer = take_answer(f);
    assert_int_equal(released, 2);
    const char *said, *data, *again;
    assert_int_equal(json_unpack(answer, "{s:{s:[{s:s}, {s:s}], s:s}}", "result", "content", "text",
                                 &said, "data", &data, "one", &again),
                     0);
    assert_string_equal(again, "a\n\"b\\");
    assert_string_equal(data, "QUJD");
    json_auto_t *inner = json_loads(said, 0, NULL);
    const char *inner_one, *inner_two;
    assert_int_equal(json_unpack(inner, "{s:s, s:s}", "one", &inner_one, "two", &inner_two), 0);
    assert_string_equal(inner_one, "a\n\"b\\");
    assert_string_equal(inner_two, "QUJD");
}

static void
test_attachments_are_released_where_nobody_waits(void **state)
{
    struct mcp_fixture *f = *state;
    int released = 0;
    say(f, hold_one);
    json_t *string = mcp_call_attach(f->held, "QUJD", 4, note_release, &released);
    say(f, "{'jsonrpc':'2.0','method':'notifications/cancelled','params':{'requestId':1}}");
    mcp_call_finish(f->held, json_pack("{s:o}", "data", string));
    json_auto_t *answer = take_answer(f);
    assert_true(json_is_null(answer));
    assert_int_equal(released, 1);
}

static void
test_a_large_answer_can_be_cancelled(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, hold_one);
    mcp_call_finish(f->held, large_result(3 << 20));
    say(f, "{'jsonrpc':'2.0','method':'notifications/cancelled','params':{'requestId':1}}");
    json_auto_t *answer = take_answer(f);
    assert_true(json_is_null(answer));
    assert_int_equal(f->session->n_calls, 0);
}

// The session is kept until the answer is encoded, and the answer is discarded.
static void
test_a_session_ends_while_its_answer_is_encoded(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, hold_one);
    mcp_call_finish(f->held, large_result(3 << 20));
    mcp_session_close(f->session);
    mcp_sessions_reap(f->mcp);
    json_auto_t *answer = take_answer(f);
    assert_true(json_is_null(answer));
    turn(f);
    assert_true(LIST_EMPTY(&f->mcp->sessions));
}

static void
test_the_adapter_ends_while_answers_are_encoded(void **state)
{
    struct mcp_fixture *f = *state;
    for (int i = 1; i <= 8; i++) {
        say(f, "{'jsonrpc':'2.0','id':%d,'method':'tools/call','params':{'name':'hold'}}", i);
        mcp_call_finish(f->held, large_result(1 << 20));
    }
    mcp_free(KG_STEAL(f->mcp));
    assert_int_equal(json_array_size(f->sink.answers), 8); // no call got its answer
    assert_true(json_is_null(json_array_get(f->sink.answers, 7)));
}

// The unread answers of one owner do not affect another owner.
static void
test_answers_that_are_not_read_are_bounded(void **state)
{
    struct mcp_fixture *f = *state;
    struct payload *unread[2];
    for (int i = 0; i < 2; i++) {
        size_t len = MCP_OWNER_ANSWERS_MAX / 2 - (2 << 20);
        unread[i] = payload_take(kg_calloc(1, len), len);
        payload_count(unread[i], f->mcp, "alice");
    }
    say(f, hold_one);
    mcp_call_finish(f->held, large_result(3 << 20));
    assert_int_equal(take_code(f), 0);
    say(f, hold_one);
    mcp_call_finish(f->held, large_result(5 << 20));
    assert_int_equal(take_code(f), MCP_SERVER_ERROR);
    assert_true(budget_has_room(&f->mcp->answers, "bob", 5 << 20));
    payload_unref(unread[0]);
    say(f, hold_one);
    mcp_call_finish(f->held, large_result(5 << 20));
    assert_int_equal(take_code(f), 0);
    payload_unref(unread[1]);
    assert_int_equal(f->mcp->answers.held, 0);
}

enum { ATTACHED_BYTES = 5 << 20 };

// Answers the call `id` of the tool `hold` with an attachment.
static void
answer_attached(struct mcp_fixture *f, int id, const char *text, int *released)
{
    say(f, "{'jsonrpc':'2.0','id':%d,'method':'tools/call','params':{'name':'hold'}}", id);
    json_t *data = mcp_call_attach(f->held, text, ATTACHED_BYTES, note_release, released);
    mcp_call_finish(f->held, json_pack("{s:o}", "data", data));
}

// An answer with attachments waits for room until the clients have read enough.
static void
test_answers_wait_until_others_are_read(void **state)
{
    struct mcp_fixture *f = *state;
    int released = 0;
    size_t len = MCP_OWNER_ANSWERS_MAX - (1 << 20);
    KG_AUTO_FREE char *text = kg_calloc(1, ATTACHED_BYTES);
    memset(text, 'A', ATTACHED_BYTES);
    struct payload *unread = payload_take(kg_calloc(1, len), len);
    payload_count(unread, f->mcp, "alice");
    for (int i = 1; i <= 3; i++)
        answer_attached(f, i, text, &released);
    turn(f);
    assert_int_equal(json_array_size(f->sink.answers), 0);
    assert_int_equal(released, 0);
    say(f, "{'jsonrpc':'2.0','method':'notifications/cancelled','params':{'requestId':2}}");
    payload_unref(unread);
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;
    while (json_array_size(f->sink.answers) < 3 && clock_mono_ms() < until_ms)
        turn(f);
    assert_int_equal(json_array_size(f->sink.answers), 3);
    assert_int_equal(released, 3);
    int n_results = 0;
    for (size_t i = 0; i < 3; i++) {
        const json_t *result = json_object_get(json_array_get(f->sink.answers, i), "result");
        n_results += json_string_length(json_object_get(result, "data")) == ATTACHED_BYTES;
    }
    assert_int_equal(n_results, 2);
    assert_int_equal(f->mcp->answers.held, 0);
    assert_true(TAILQ_EMPTY(&f->mcp->room_waits));
}

// After the deadline an answer is encoded and refused.
static void
test_answers_do_not_wait_for_ever(void **state)
{
    struct mcp_fixture *f = *state;
    int released = 0;
    KG_AUTO_FREE char *text = kg_calloc(1, ATTACHED_BYTES);
    memset(text, 'A', ATTACHED_BYTES);
    struct payload *unread = payload_take(kg_calloc(1, 1), MCP_OWNER_ANSWERS_MAX);
    payload_count(unread, f->mcp, "alice");
    assert_int_equal(f->mcp->room_wait_ms, 10 * 1000);
    f->mcp->room_wait_ms = 1;
    answer_attached(f, 1, text, &released);
    assert_int_equal(released, 0);
    json_auto_t *answer = take_answer(f);
    json_t *error = json_object_get(answer, "error");
    assert_int_equal(json_integer_value(json_object_get(error, "code")), MCP_SERVER_ERROR);
    assert_string_equal(rpc_string(json_object_get(error, "data"), "code"), "rate_limited");
    assert_int_equal(released, 1);
    assert_int_equal(f->session->n_calls, 0);
    assert_true(TAILQ_EMPTY(&f->mcp->room_waits));
    assert_int_equal(f->mcp->answers.held, MCP_OWNER_ANSWERS_MAX);
    payload_unref(unread);
    assert_int_equal(f->mcp->answers.held, 0);
}

static void
test_the_adapter_ends_while_answers_wait(void **state)
{
    struct mcp_fixture *f = *state;
    int released = 0;
    KG_AUTO_FREE char *text = kg_calloc(1, ATTACHED_BYTES);
    struct payload *unread = payload_take(kg_calloc(1, 1), MCP_OWNER_ANSWERS_MAX);
    payload_count(unread, f->mcp, "alice");
    answer_attached(f, 1, text, &released);
    mcp_free(KG_STEAL(f->mcp));
    assert_int_equal(released, 1);
    payload_unref(unread);
}

static void
test_the_answers_of_a_batch_are_bounded(void **state)
{
    struct mcp_fixture *f = *state;
    f->session->revision = MCP_2025_03_26;
    KG_AUTO_BUF text = {0};
    for (int i = 0; i < 5; i++)
        buf_printf(&text,
                   "%c{'jsonrpc':'2.0','id':%d,'method':'tools/call','params':{'name':'large'}}",
                   i ? ',' : '[', i);
    say(f, "%s]", text.data);
    json_auto_t *answers = take_answer(f);
    assert_int_equal(json_array_size(answers), 5);
    int n_refused = 0;
    for (size_t i = 0; i < 5; i++)
        n_refused += json_object_get(json_array_get(answers, i), "error") != NULL;
    assert_int_equal(n_refused, 2); // three answers of 10 MiB fit
}

// Gathered answers count until the batch is answered.
static void
test_the_answers_of_a_batch_count_while_they_are_gathered(void **state)
{
    enum { UNREAD = 40 << 20, GATHERED = 20 << 20 };
    static const char large[] = "{'jsonrpc':'2.0','id':9,'method':'tools/call',"
                                "'params':{'name':'large'}}";
    struct mcp_fixture *f = *state;
    f->session->revision = MCP_2025_03_26;
    struct payload *unread = payload_take(kg_calloc(1, UNREAD), UNREAD);
    payload_count(unread, f->mcp, "alice");
    KG_AUTO_BUF text = {0};
    for (int i = 0; i < 3; i++)
        buf_printf(&text,
                   "%c{'jsonrpc':'2.0','id':%d,'method':'tools/call','params':{'name':'%s'}}",
                   i ? ',' : '[', i, i < 2 ? "large" : "hold");
    say(f, "%s]", text.data);
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;
    while (f->mcp->answers.held < UNREAD + GATHERED && clock_mono_ms() < until_ms)
        turn(f);
    say(f, large);
    assert_int_equal(take_code(f), MCP_SERVER_ERROR);
    mcp_call_finish(f->held, json_object());
    json_auto_t *answers = take_answer(f);
    assert_int_equal(json_array_size(answers), 3);
    for (size_t i = 0; i < 3; i++)
        assert_null(json_object_get(json_array_get(answers, i), "error"));
    say(f, large);
    assert_int_equal(take_code(f), 0);
    payload_unref(unread);
    assert_int_equal(f->mcp->answers.held, 0);
}

// A listener may run for ever, so only its id is kept.
static void
test_a_listener_holds_no_message(void **state)
{
    struct mcp_fixture *f = *state;
    say(f,
        "{'jsonrpc':'2.0','id':'l','method':'subscriptions/listen','params':{'pad':'%02000d',"
        "'notifications':{'toolsListChanged':true},'_meta':{'" MCP_META
        "protocolVersion':'2026-07-28','" MCP_META "clientCapabilities':{}}}}",
        0);
    json_t *params = json_object_get(json_array_get(f->sink.sent, 0), "params");
    json_auto_t *expected =
        quoted("{'notifications':{},'_meta':{'" MCP_META "subscriptionId':'l'}}");
    assert_true(json_equal(params, expected));
    assert_int_equal(json_array_size(f->sink.answers), 0);
    assert_true(f->mcp->requests.held > 0 && f->mcp->requests.held < 2000);
    mcp_end_listener(LIST_FIRST(&f->mcp->listeners));
    assert_int_equal(take_code(f), 0);
    assert_int_equal(f->mcp->requests.held, 0);
}

// ---- Sessions -------------------------------------------------------------------------------

static struct mcp_session *
register_one(struct mcp_fixture *f, const char *owner, bool expected)
{
    struct mcp_session *session = mcp_session_new(f->mcp, owner, "");
    struct kg_error err = {0};
    bool registered = mcp_session_register(session, &err) == 0;
    assert_int_equal(registered, expected);
    if (registered)
        return session;
    assert_int_equal(err.code, KG_MAX_SESSIONS);
    mcp_session_close(session);
    return NULL;
}

static void
test_the_longest_idle_session_makes_room(void **state)
{
    struct mcp_fixture *f = *state;
    struct mcp_session *bobs[5];
    for (int i = 0; i < 4; i++)
        bobs[i] = register_one(f, "bob", true);
    KG_AUTO_FREE char *first = kg_strdup(bobs[0]->id);
    KG_AUTO_FREE char *second = kg_strdup(bobs[1]->id);
    assert_ptr_equal(mcp_session_find(f->mcp, "bob", first), bobs[0]); // was used, so it is kept
    assert_null(mcp_session_find(f->mcp, "alice", first));
    bobs[4] = register_one(f, "bob", true);
    assert_ptr_equal(mcp_session_find(f->mcp, "bob", first), bobs[0]);
    assert_null(mcp_session_find(f->mcp, "bob", second));
    // The sessions of other owners are not ended to make room.
    register_one(f, "carol", true);
    register_one(f, "carol", true);
    register_one(f, "dave", false);
    assert_int_equal(f->mcp->n_registered, 6);
}

static void
test_how_long_a_client_has_been_silent(void **state)
{
    struct mcp_fixture *f = *state;
    f->session->used_ms -= 1000; // it is always connected, as over stdio
    assert_int_equal(mcp_session_idle_ms(f->session), 0);
    struct mcp_session *session = register_one(f, "bob", true);
    session->used_ms -= 1000;
    assert_true(mcp_session_idle_ms(session) >= 1000);
    f->session = session;
    session->initialized = true;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold'}}");
    assert_ptr_equal(mcp_call_session(f->held), session);
    session->used_ms -= 1000;
    assert_int_equal(mcp_session_idle_ms(session), 0);
    mcp_call_finish(f->held, json_object());
    assert_int_equal(take_code(f), 0);
    assert_true(mcp_session_idle_ms(session) < 1000); // its call has just ended
}

static void
count_free(void *value)
{
    ++*(int *)value;
}

static void
test_idle_sessions_expire_and_busy_ones_do_not(void **state)
{
    struct mcp_fixture *f = *state;
    int freed = 0;
    struct mcp_session *session = register_one(f, "bob", true);
    f->session = session;
    session->initialized = true;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold'}}");
    static const char key;
    assert_true(mcp_call_set_session_value(f->held, &key, &freed, count_free));
    assert_ptr_equal(mcp_call_session_value(f->held, &key), &freed);
    session->used_ms -= 1000;
    mcp_sessions_expire(f->mcp);
    assert_int_equal(f->mcp->n_registered, 1);
    mcp_call_finish(f->held, json_object());
    assert_int_equal(take_code(f), 0);
    session->used_ms -= 1000;
    mcp_sessions_expire(f->mcp);
    assert_int_equal(f->mcp->n_registered, 0);
    assert_int_equal(freed, 0); // not while a provider may be on the stack
    turn(f);
    assert_int_equal(freed, 1);
}

static void
test_a_closed_session_waits_for_its_calls(void **state)
{
    struct mcp_fixture *f = *state;
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'hold'}}");
    mcp_session_close(f->session);
    assert_int_equal(f->cancels, 1);
    turn(f);
    mcp_call_finish(f->held, json_object()); // the session still exists
    json_auto_t *answer = take_answer(f);
    assert_true(json_is_null(answer));
}

static void
test_draining_refuses_tools_only(void **state)
{
    struct mcp_fixture *f = *state;
    mcp_drain(f->mcp);
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/call','params':{'name':'echo'}}");
    assert_int_equal(take_code(f), MCP_SERVER_ERROR);
    assert_int_equal(f->sink.status, 503);
    say(f, "{'jsonrpc':'2.0','id':1,'method':'tools/list'}");
    assert_int_equal(take_code(f), 0);
}

int
main(void)
{
#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, mcp_setup, mcp_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_revisions_by_name),
        cmocka_unit_test(test_lists_lose_what_came_later),
        cmocka_unit_test(test_results_become_what_is_known),
        cmocka_unit_test(test_methods_by_revision),
        WITH_FIXTURE(test_results_are_valid_utf8),
        WITH_FIXTURE(test_a_broken_result_costs_one_answer),
        WITH_FIXTURE(test_lists_of_providers_are_joined),
        WITH_FIXTURE(test_cancelled_once_and_not_answered),
        WITH_FIXTURE(test_who_asks_late_hears_of_the_cancel),
        WITH_FIXTURE(test_progress_grows),
        WITH_FIXTURE(test_calls_of_a_session_are_bounded),
        WITH_FIXTURE(test_a_batch_is_answered_as_one),
        WITH_FIXTURE(test_a_batch_counts_as_what_stands_in_it),
        cmocka_unit_test(test_values_of_a_message_are_bounded),
        WITH_FIXTURE(test_messages_of_calls_are_bounded),
        WITH_FIXTURE(test_messages_of_one_owner_are_bounded),
        WITH_FIXTURE(test_a_large_answer_is_encoded_off_the_loop),
        WITH_FIXTURE(test_attachments_become_a_part_of_the_answer),
        WITH_FIXTURE(test_attachments_are_released_where_nobody_waits),
        WITH_FIXTURE(test_a_large_answer_can_be_cancelled),
        WITH_FIXTURE(test_a_session_ends_while_its_answer_is_encoded),
        WITH_FIXTURE(test_the_adapter_ends_while_answers_are_encoded),
        WITH_FIXTURE(test_the_answers_of_a_batch_are_bounded),
        WITH_FIXTURE(test_the_answers_of_a_batch_count_while_they_are_gathered),
        WITH_FIXTURE(test_answers_that_are_not_read_are_bounded),
        WITH_FIXTURE(test_answers_wait_until_others_are_read),
        WITH_FIXTURE(test_answers_do_not_wait_for_ever),
        WITH_FIXTURE(test_the_adapter_ends_while_answers_wait),
        WITH_FIXTURE(test_a_listener_holds_no_message),
        WITH_FIXTURE(test_the_longest_idle_session_makes_room),
        WITH_FIXTURE(test_how_long_a_client_has_been_silent),
        WITH_FIXTURE(test_idle_sessions_expire_and_busy_ones_do_not),
        WITH_FIXTURE(test_a_closed_session_waits_for_its_calls),
        WITH_FIXTURE(test_draining_refuses_tools_only),
    };
    int failed = cmocka_run_group_tests_name("mcp", tests, NULL, NULL);
    return failed + run_mcp_io_tests();
}
