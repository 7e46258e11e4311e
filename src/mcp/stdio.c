// SPDX-License-Identifier: Apache-2.0
// The transport stdio: a message a line, both ways.

#include <string.h>

#include "line_io.h"
#include "mcp_priv.h"

struct mcp_stdio {
    struct outlet base;
    struct mcp_session *session; // NULL once the input has ended
    struct line_io *io;
    loop_fn on_end;
    void *on_end_arg;
};

static void
stdio_send(struct outlet *outlet, json_t *message, bool minor)
{
    struct mcp_stdio *stdio = (struct mcp_stdio *)outlet;
    size_t len = 0;
    bool late = minor && line_io_backlog(stdio->io) > MCP_BACKLOG_MAX;
    KG_AUTO_FREE char *text = late ? NULL : rpc_dump(message, &len);
    json_decref(message);
    if (text)
        line_io_write(stdio->io, text, len);
}

static void
stdio_answer(struct outlet *outlet, json_t *message, int http_status)
{
    (void)http_status;
    if (message)
        stdio_send(outlet, message, false);
}

static bool
stdio_can_send(const struct outlet *outlet)
{
    const struct mcp_stdio *stdio = (const struct mcp_stdio *)outlet;
    return stdio->session != NULL;
}

static const struct outlet_ops stdio_ops = {
    .send = stdio_send,
    .answer = stdio_answer,
    .can_send = stdio_can_send,
};

static void
refuse_line(struct mcp_stdio *stdio, const json_t *id, int code, const char *why)
{
    stdio_send(&stdio->base, rpc_error(id, code, why, NULL), false);
}

static void
on_line(const char *line, size_t len, void *arg)
{
    struct mcp_stdio *stdio = arg;
    struct kg_error err = {.message = "the line is too long"};
    int code = MCP_PARSE_ERROR;
    json_t *message = line ? mcp_receive_parse(line, len, &code, &err) : NULL;
    if (!message) {
        refuse_line(stdio, NULL, code, err.message);
        return;
    }
    const char *why = mcp_receive_check(stdio->session, message);
    if (!why) {
        mcp_receive(stdio->session, &stdio->base, message);
        return;
    }
    const json_t *id = json_object_get(message, "id");
    refuse_line(stdio, json_is_string(id) || json_is_integer(id) ? id : NULL, MCP_INVALID_REQUEST,
                why);
    json_decref(message);
}

static void
on_input_end(void *arg)
{
    struct mcp_stdio *stdio = arg;
    mcp_session_close(KG_STEAL(stdio->session));
    stdio->on_end(stdio->on_end_arg);
}

struct mcp_stdio *
mcp_stdio_new(struct mcp *mcp, int in, int out, const char *owner, const char *profile,
              loop_fn on_end, void *arg, struct kg_error *err)
{
    struct mcp_stdio *stdio = KG_NEW(struct mcp_stdio);
    stdio->base.ops = &stdio_ops;
    stdio->on_end = on_end;
    stdio->on_end_arg = arg;
    stdio->io = line_io_new(mcp->loop, in, out, on_line, on_input_end, stdio, err);
    if (!stdio->io) {
        free(stdio);
        return NULL;
    }
    stdio->session = mcp_session_new(mcp, owner, profile);
    stdio->session->news = &stdio->base;
    return stdio;
}

void
mcp_stdio_free(struct mcp_stdio *stdio)
{
    if (!stdio)
        return;
    line_io_free(stdio->io);
    free(stdio);
}
