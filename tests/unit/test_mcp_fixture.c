// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of the MCP core.

#include "test_mcp.h"

// ---- The client -----------------------------------------------------------------------------

static void
sink_send(struct outlet *outlet, json_t *message, bool minor)
{
    (void)minor;
    json_array_append_new(((struct sink *)outlet)->sent, message);
}

static void
sink_answer(struct outlet *outlet, struct payload *payload, int http_status)
{
    struct sink *sink = (struct sink *)outlet;
    sink->status = http_status;
    json_t *message = payload ? json_loadb(payload->text, payload->len, 0, NULL) : json_null();
    assert_non_null(message);
    json_array_append_new(sink->answers, message);
    payload_unref(payload);
}

static bool
sink_can_send(const struct outlet *outlet)
{
    (void)outlet;
    return true;
}

static const struct outlet_ops sink_ops = {
    .send = sink_send, .answer = sink_answer, .can_send = sink_can_send};

json_t *
quoted(const char *fmt, ...)
{
    KG_AUTO_BUF text = {0};
    va_list args;
    va_start(args, fmt);
    char chunk[4096];
    vsnprintf(chunk, sizeof chunk, fmt, args);
    va_end(args);
    for (char *c = chunk; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *value = json_loads(chunk, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    return value;
}

void
say(struct mcp_fixture *f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char text[4096];
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    json_t *message = quoted("%s", text);
    assert_null(mcp_receive_check(f->session, message));
    mcp_receive(f->session, &f->sink.base, message, NULL, NULL);
}

static void
stop(void *arg)
{
    loop_stop(arg);
}

void
turn(struct mcp_fixture *f)
{
    KG_AUTO(loop_timer) timer = loop_timer_new(f->loop, stop, f->loop);
    loop_timer_start(timer, 1);
    loop_run(f->loop);
}

json_t *
take_answer(struct mcp_fixture *f)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;
    while (json_array_size(f->sink.answers) == 0 && clock_mono_ms() < until_ms)
        turn(f);
    assert_int_equal(json_array_size(f->sink.answers), 1);
    json_t *answer = json_incref(json_array_get(f->sink.answers, 0));
    json_array_clear(f->sink.answers);
    return answer;
}

int
take_code(struct mcp_fixture *f)
{
    json_auto_t *answer = take_answer(f);
    return (int)json_integer_value(json_object_get(json_object_get(answer, "error"), "code"));
}

// ---- The provider ---------------------------------------------------------------------------

json_t *
large_result(size_t len)
{
    KG_AUTO_FREE char *base64 = kg_calloc(1, len + 1);
    memset(base64, 'A', len);
    json_t *image = mcp_image_string(json_stringn(base64, len), "image/png");
    return mcp_tool_result(json_pack("[o]", image), NULL, false);
}

static json_t *
list_tools(const char *profile, void *arg)
{
    (void)profile;
    (void)arg;
    return quoted("[{'name':'hold','title':'Hold','description':'d','annotations':{},"
                  "'inputSchema':{'type':'object'},'outputSchema':{},'icons':[]}]");
}

static void
on_cancel(void *arg)
{
    struct mcp_fixture *f = arg;
    f->cancels++;
}

static bool
call_tool(struct mcp_call *call, void *arg)
{
    struct mcp_fixture *f = arg;
    const char *name = mcp_call_name(call);
    if (strcmp(name, "echo") == 0) {
        json_t *content = json_pack("[o]", mcp_text("\xff!", 2));
        mcp_call_finish(call, mcp_tool_result(content, json_object(), false));
        return true;
    }
    if (strcmp(name, "large") == 0) {
        mcp_call_finish(call, large_result(10 << 20));
        return true;
    }
    if (strcmp(name, "broken") == 0) {
        mcp_call_finish(call, NULL);
        return true;
    }
    if (strcmp(name, "hold") != 0)
        return false;
    f->held = call;
    mcp_call_on_cancel(call, on_cancel, f);
    return true;
}

static void
list_resources(struct mcp_call *call, void *arg)
{
    (void)arg;
    mcp_call_finish(call, quoted("{'resources':[{'uri':'a:1','name':'one','title':'One'}]}"));
}

static const struct mcp_provider provider = {
    .list_tools = list_tools, .call_tool = call_tool, .list_resources = list_resources};
static const struct mcp_provider second = {.list_resources = list_resources};

int
mcp_setup(void **state)
{
    struct mcp_fixture *f = KG_NEW(struct mcp_fixture);
    f->loop = loop_new();
    const struct mcp_settings settings = {
        .loop = f->loop,
        .max_sessions = 6,
        .max_sessions_per_owner = 4,
        .session_idle_ms = 1,
        .max_replay_bytes = 2000,
    };
    f->mcp = mcp_new(&settings);
    mcp_add_provider(f->mcp, &provider, f);
    mcp_add_provider(f->mcp, &second, f);
    f->sink = (struct sink){.base.ops = &sink_ops, .sent = json_array(), .answers = json_array()};
    f->session = mcp_session_new(f->mcp, "alice", "");
    f->session->news = &f->sink.base;
    say(f, "{'jsonrpc':'2.0','id':0,'method':'initialize',"
           "'params':{'protocolVersion':'2025-11-25','capabilities':{}}}");
    assert_int_equal(take_code(f), 0);
    *state = f;
    return 0;
}

int
mcp_teardown(void **state)
{
    struct mcp_fixture *f = *state;
    mcp_free(f->mcp);
    loop_free(f->loop);
    json_decref(f->sink.sent);
    json_decref(f->sink.answers);
    free(f);
    return 0;
}
