// SPDX-License-Identifier: Apache-2.0
// The transport stdio: one message per line.

#include <string.h>

#include "line_io.h"
#include "mcp_priv.h"

struct mcp_stdio {
    struct outlet base;
    struct mcp_session *session; // NULL: the input has ended
    struct line_io *io;
    struct reception *reception; // of a large line; later lines wait
    loop_fn on_end;
    void *on_end_arg;
};

static void
stdio_answer(struct outlet *outlet, struct payload *payload, int http_status)
{
    (void)http_status;
    struct mcp_stdio *stdio = (struct mcp_stdio *)outlet;
    if (!payload)
        return;
    size_t len;
    char *text = payload_take_text(payload, &len);
    line_io_write_take(stdio->io, text, len);
}

static void
stdio_send(struct outlet *outlet, json_t *message, bool minor)
{
    struct mcp_stdio *stdio = (struct mcp_stdio *)outlet;
    if (minor && line_io_backlog(stdio->io) > MCP_BACKLOG_MAX)
        json_decref(message);
    else
        stdio_answer(outlet, payload_of(message), 200);
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
stdio_take(struct mcp_stdio *stdio, struct received *received)
{
    if (!received->message) {
        refuse_line(stdio, NULL, received->code, received->err.message);
        return;
    }
    const char *why = mcp_receive_check(stdio->session, received->message);
    if (!why) {
        mcp_receive(stdio->session, &stdio->base, KG_STEAL(received->message), received->weights,
                    NULL);
        return;
    }
    const json_t *id = json_object_get(received->message, "id");
    refuse_line(stdio, json_is_string(id) || json_is_integer(id) ? id : NULL, MCP_INVALID_REQUEST,
                why);
}

static void
stdio_on_received(struct received *received, void *arg)
{
    struct mcp_stdio *stdio = arg;
    stdio->reception = NULL;
    stdio_take(stdio, received);
    line_io_resume(stdio->io);
}

static void
stdio_on_line(const char *line, size_t len, void *arg)
{
    struct mcp_stdio *stdio = arg;
    struct mcp *mcp = stdio->session->mcp;
    if (!line) {
        refuse_line(stdio, NULL, MCP_PARSE_ERROR, "the line is too long");
    } else if (len > MCP_LARGE_BYTES) {
        line_io_pause(stdio->io);
        stdio->reception =
            mcp_receive_start(mcp, kg_memdup0(line, len), len, stdio_on_received, stdio);
    } else {
        struct received received;
        mcp_received_fill(&received, line, len);
        stdio_take(stdio, &received);
        mcp_received_fini(mcp, &received);
    }
}

static void
stdio_on_input_end(void *arg)
{
    struct mcp_stdio *stdio = arg;
    mcp_receive_cancel(KG_STEAL(stdio->reception)); // the output is not read any more
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
    stdio->io = line_io_new(mcp->loop, in, out, stdio_on_line, stdio_on_input_end, stdio, err);
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
    mcp_receive_cancel(stdio->reception);
    line_io_free(stdio->io);
    free(stdio);
}
