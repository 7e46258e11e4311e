// SPDX-License-Identifier: Apache-2.0
// What an MCP client may send: lines of JSON-RPC, at any revision, to a core whose provider answers
// at once, later, or never. First byte: which revision it begins with; from 0x80 on the rest is a
// stream of events for the bridge, which must read the same however it is cut.
#include <assert.h>
#include <string.h>

#include "bridge_priv.h"
#include "mcp_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_HELD = 64 };

// ---- The client -----------------------------------------------------------------------------

struct client {
    struct outlet base;
    size_t n_answers;
    struct mcp_call *held[MAX_HELD];
    size_t n_held;
};

// Whatever goes out is JSON that can be written.
static void
check_message(json_t *message)
{
    size_t len;
    KG_AUTO_FREE char *text = rpc_dump(message, &len);
    assert(text && len > 0 && !memchr(text, '\n', len));
    json_decref(message);
}

static void
on_send(struct outlet *outlet, json_t *message, bool minor)
{
    (void)outlet;
    (void)minor;
    check_message(message);
}

static void
on_answer(struct outlet *outlet, struct payload *payload, int http_status)
{
    assert(http_status >= 200 && http_status < 600);
    ((struct client *)outlet)->n_answers++;
    if (!payload)
        return;
    assert(payload->len > 0 && !memchr(payload->text, '\n', payload->len));
    payload_unref(payload);
}

static bool
can_send(const struct outlet *outlet)
{
    (void)outlet;
    return true;
}

static const struct outlet_ops ops = {.send = on_send, .answer = on_answer, .can_send = can_send};

// ---- The provider ---------------------------------------------------------------------------

static json_t *
list_tools(const char *profile, void *arg)
{
    (void)profile;
    (void)arg;
    return json_pack("[{s:s, s:s, s:{s:s}}]", "name", "now", "title", "Now", "inputSchema", "type",
                     "object");
}

static void
on_cancel(void *arg)
{
    (void)arg;
}

static bool
call_tool(struct mcp_call *call, void *arg)
{
    struct client *client = arg;
    const char *name = mcp_call_name(call);
    if (strcmp(name, "now") == 0) {
        mcp_call_progress(call, 1, 2, "half");
        mcp_call_log(call, MCP_LOG_ERROR, "fuzz", json_string("now"));
        mcp_call_finish(call, mcp_tool_result(json_pack("[o]", mcp_text(name, 3)), NULL, false));
        return true;
    }
    if (strcmp(name, "later") != 0 || client->n_held == MAX_HELD)
        return false;
    client->held[client->n_held++] = call;
    mcp_call_on_cancel(call, on_cancel, call);
    return true;
}

static void
list_resources(struct mcp_call *call, void *arg)
{
    (void)arg;
    mcp_call_finish(call, json_pack("{s:[{s:s}]}", "resources", "uri", "a:1"));
}

static bool
complete(struct mcp_call *call, void *arg)
{
    (void)arg;
    mcp_call_finish(call, mcp_completion(json_pack("[s]", mcp_call_completed_value(call))));
    return true;
}

static const struct mcp_provider provider = {
    .list_tools = list_tools,
    .call_tool = call_tool,
    .list_prompts = list_tools,
    .list_resource_templates = list_tools,
    .list_resources = list_resources,
    .complete = complete,
};

// ---- Lines ----------------------------------------------------------------------------------

// Whether an answer is due for it, at once or later.
static size_t
requests_in(const json_t *message)
{
    const char *why;
    size_t n = 0;
    if (json_is_array(message))
        return mcp_batch_check(message, &n) || n == 0 ? 0 : 1;
    return rpc_kind(message, &why) == MESSAGE_REQUEST;
}

static size_t
take_line(struct mcp_session *session, struct client *client, const char *line, size_t len)
{
    struct kg_error err;
    json_t *message = mcp_message_parse(line, len, &err);
    if (!message)
        return 0;
    if (mcp_receive_check(session, message)) {
        json_decref(message);
        return 0;
    }
    size_t n = requests_in(message);
    mcp_receive(session, &client->base, message, NULL, NULL);
    return n;
}

static void
take_lines(const char *text, size_t size, enum mcp_revision revision, bool initialized)
{
    KG_AUTO(loop) loop = loop_new();
    const struct mcp_settings settings = {.loop = loop, .max_sessions = 1};
    struct client client = {.base.ops = &ops};
    struct mcp *mcp = mcp_new(&settings);
    mcp_add_provider(mcp, &provider, &client);
    struct mcp_session *session = mcp_session_new(mcp, "fuzz", "");
    session->news = &client.base;
    session->revision = revision;
    session->initialized = initialized;
    size_t n_requests = 0;
    while (size > 0) {
        const char *newline = memchr(text, '\n', size);
        size_t len = newline ? (size_t)(newline - text) : size;
        n_requests += take_line(session, &client, text, len);
        text += len + (newline != NULL);
        size -= len + (newline != NULL);
    }
    // The first half of what is held is answered, the rest is cut off.
    for (size_t i = 0; i < client.n_held / 2; i++)
        mcp_call_finish(client.held[i], mcp_tool_result(json_array(), NULL, false));
    mcp_free(mcp);
    assert(client.n_answers == n_requests);
}

// ---- Events ---------------------------------------------------------------------------------

static void
collect(const char *data, size_t len, void *arg)
{
    struct buf *got = arg;
    buf_append(got, data, len);
    buf_append(got, "|", 2);
}

static void
read_events(const char *text, size_t size, size_t cut, struct buf *got, char id[128])
{
    struct event_reader reader = {0};
    for (size_t at = 0; at < size; at += cut) {
        bool taken =
            event_reader_take(&reader, text + at, size - at < cut ? size - at : cut, collect, got);
        assert(taken);
    }
    memcpy(id, reader.id, sizeof reader.id);
    event_reader_fini(&reader);
}

static void
take_events(const char *text, size_t size)
{
    KG_AUTO_BUF whole = {0};
    KG_AUTO_BUF cut = {0};
    char whole_id[128];
    char cut_id[128];
    read_events(text, size, size + 1, &whole, whole_id);
    read_events(text, size, 3, &cut, cut_id);
    assert(whole.len == cut.len && strcmp(whole_id, cut_id) == 0);
    assert(whole.len == 0 || memcmp(whole.data, cut.data, cut.len) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    log_setup(LOG_LEVEL_ERROR + 1, LOG_FORMAT_CONSOLE);
    const char *text = (const char *)data + 1;
    if (data[0] & 0x80)
        take_events(text, size - 1);
    else
        take_lines(text, size - 1, data[0] % MCP_2026_07_28, !(data[0] & 0x40));
    return 0;
}
