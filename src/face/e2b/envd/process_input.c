// SPDX-License-Identifier: Apache-2.0
// Process.SendInput and StreamInput: bytes for a command, in their order. While a command does not
// read, its clients wait.
#include "envd_priv.h"

#include <string.h>

#include "message.h"
#include "session_commands.h"

enum {
    PIECE_BYTES = 64 << 10,
    AGAIN_MS = 50,                // after as much waits for the command as may
    STREAM_IDLE_MS = 3600 * 1000, // in which a client sends nothing
};

// ---- Feeding a command ----------------------------------------------------------------------

// Gives a command bytes, and waits until it has room for them.
struct feed {
    struct http_request *request;
    const struct envd *envd;
    char id[SANDBOX_COMMAND_ID_MAX + 1];
    struct buf bytes; // that wait; the first `giving` ones are on their way
    size_t giving;
    struct sandbox_call *call;
    struct loop_timer *again;
    // All bytes were taken; or, with `err`, they cannot be.
    void (*on_done)(const struct kg_error *err, void *arg);
    void *arg;
};

static void
feed_fini(struct feed *feed)
{
    sandbox_call_cancel(feed->call);
    loop_timer_free(feed->again);
    buf_fini(&feed->bytes);
}

static void feed_give(void *feed);

static void
feed_on_given(const json_t *result, const struct kg_error *err, void *arg)
{
    struct feed *feed = arg;
    feed->call = NULL;
    if (!result && err->code == KG_SESSION_BUSY) {
        loop_timer_start(feed->again, AGAIN_MS);
        return;
    }
    if (!result) {
        feed->on_done(err, feed->arg);
        return;
    }
    buf_consume(&feed->bytes, feed->giving);
    feed_give(feed);
}

static void
feed_give(void *arg)
{
    struct feed *feed = arg;
    struct kg_error err = {0};
    if (feed->bytes.len == 0) {
        feed->on_done(NULL, feed->arg);
        return;
    }
    // The session may have ended while nothing was under way.
    struct session *session = envd_sandbox(feed->request, feed->envd, &err);
    struct sandbox *sandbox = session ? session_commands_sandbox(session, &err) : NULL;
    feed->giving = feed->bytes.len < PIECE_BYTES ? feed->bytes.len : PIECE_BYTES;
    if (sandbox)
        feed->call = sandbox_command_input(sandbox, feed->id, feed->bytes.data, feed->giving,
                                           feed_on_given, feed, &err);
    if (!feed->call)
        feed->on_done(&err, feed->arg);
}

static void
feed_init(struct feed *feed, struct http_request *request, const struct envd *envd,
          void (*on_done)(const struct kg_error *err, void *arg), void *arg)
{
    feed->request = request;
    feed->envd = envd;
    feed->again = loop_timer_new(e2b_loop(envd->e2b), feed_give, feed);
    feed->on_done = on_done;
    feed->arg = arg;
}

// ---- What messages say ----------------------------------------------------------------------

// `input` of a message. KG_INVALID: it has neither stdin nor pty.
static int
input_parse(const json_t *message, struct buf *ret, bool *ret_is_pty, struct kg_error *err)
{
    const json_t *input;
    bool has_stdin = false;
    if (message_object(message, "input", &input, err) < 0 ||
        message_bytes(input, "stdin", ret, &has_stdin, err) < 0 ||
        (!has_stdin && message_bytes(input, "pty", ret, ret_is_pty, err) < 0))
        return -1;
    if (has_stdin)
        *ret_is_pty = false;
    if (!has_stdin && !*ret_is_pty)
        return kg_error_set(err, KG_INVALID, 0, "input must have stdin or pty");
    return 0;
}

// ---- SendInput ------------------------------------------------------------------------------

struct send_input {
    struct http_request *request;
    struct process_search *search;
    struct feed feed;
    bool is_pty;
};

static void
send_input_free(void *arg)
{
    struct send_input *self = arg;
    process_search_cancel(self->search);
    feed_fini(&self->feed);
    free(self);
}

static void
send_input_on_done(const struct kg_error *err, void *arg)
{
    struct send_input *self = arg;
    if (err)
        http_reply_error(self->request, err);
    else
        connect_reply(self->request, json_object());
}

static void
send_input_on_found(const struct process_found *found, const struct kg_error *err, void *arg)
{
    struct send_input *self = arg;
    struct kg_error own = {0};
    self->search = NULL;
    if (!found || process_input_check(found, self->is_pty, &own) < 0) {
        http_reply_error(self->request, found ? &own : err);
        return;
    }
    memcpy(self->feed.id, found->id, strlen(found->id) + 1);
    feed_give(&self->feed);
}

void
handle_process_input(struct http_request *request, void *arg)
{
    const struct envd *envd = arg;
    struct kg_error err = {0};
    struct process_selector selector;
    json_auto_t *message = connect_unary_message(request);
    if (!message)
        return;
    struct send_input *self = KG_NEW(struct send_input);
    self->request = request;
    feed_init(&self->feed, request, envd, send_input_on_done, self);
    http_request_own(request, self, send_input_free);
    struct session *session = envd_sandbox(request, envd, &err);
    if (session && process_selector_parse(message, &selector, &err) == 0 &&
        input_parse(message, &self->feed.bytes, &self->is_pty, &err) == 0)
        self->search =
            process_search_start(session, &selector, false, send_input_on_found, self, &err);
    if (!self->search)
        http_reply_error(request, &err);
}

// ---- StreamInput ----------------------------------------------------------------------------

// Reads one message of the body after the other; while one is being dealt with, the rest waits with
// the client.
struct stream_input {
    struct http_request *request;
    struct buf body; // what was read of it, and not yet taken as messages
    struct process_search *search;
    struct process_found found; // once it is known; the id is in `feed`
    struct feed feed;
    bool busy; // with a message
};

static void
stream_input_free(void *arg)
{
    struct stream_input *self = arg;
    process_search_cancel(self->search);
    feed_fini(&self->feed);
    buf_fini(&self->body);
    free(self);
}

static void stream_input_go_on(void *arg);

static void
stream_input_on_done(const struct kg_error *err, void *arg)
{
    struct stream_input *self = arg;
    if (err) {
        connect_refuse_stream_error(self->request, err);
        return;
    }
    self->busy = false;
    stream_input_go_on(self);
}

static void
stream_input_on_found(const struct process_found *found, const struct kg_error *err, void *arg)
{
    struct stream_input *self = arg;
    self->search = NULL;
    if (found) {
        memcpy(self->feed.id, found->id, strlen(found->id) + 1);
        self->found = (struct process_found){.id = self->feed.id, .terminal = found->terminal};
    }
    stream_input_on_done(err, self);
}

// The first message names the command; others have bytes, or keep the connection alive.
static int
take_message(struct stream_input *self, const json_t *message, struct kg_error *err)
{
    const json_t *start, *data;
    struct process_selector selector;
    bool is_pty;
    if (message_object(message, "start", &start, err) < 0 ||
        message_object(message, "data", &data, err) < 0)
        return -1;
    if (!self->found.id) {
        if (!start)
            return kg_error_set(err, KG_INVALID, 0, "the first message must have start");
        struct session *session = envd_sandbox(self->request, self->feed.envd, err);
        if (!session || process_selector_parse(start, &selector, err) < 0)
            return -1;
        self->busy = true;
        self->search =
            process_search_start(session, &selector, false, stream_input_on_found, self, err);
        return self->search ? 0 : -1;
    }
    if (start)
        return kg_error_set(err, KG_INVALID, 0, "only the first message may have start");
    if (!data)
        return 0;
    if (input_parse(data, &self->feed.bytes, &is_pty, err) < 0 ||
        process_input_check(&self->found, is_pty, err) < 0)
        return -1;
    self->busy = self->feed.bytes.len > 0;
    return 0;
}

static int
take_envelope(struct stream_input *self, const struct envelope *envelope, struct kg_error *err)
{
    json_auto_t *message = connect_message_parse(envelope, err);
    return message ? take_message(self, message, err) : -1;
}

// 1: a message was taken; 0: more of the body must come first; -1: the request is gone.
static int
stream_input_step(struct stream_input *self)
{
    struct envelope envelope;
    struct kg_error err = {0};
    const char *why;
    enum envelope_state state = envelope_read(self->body.data ? self->body.data : "",
                                              self->body.len, CONNECT_MESSAGE_MAX, &envelope);
    if (state == ENVELOPE_CUT)
        return 0;
    if (state != ENVELOPE_WHOLE) {
        enum connect_code code = connect_envelope_error(state, &why);
        connect_refuse_stream(self->request, code, why);
        return -1;
    }
    if (take_envelope(self, &envelope, &err) < 0) {
        connect_refuse_stream_error(self->request, &err);
        return -1;
    }
    buf_consume(&self->body, envelope.taken);
    return 1;
}

static void
stream_input_end(struct stream_input *self)
{
    const char *why;
    enum connect_code cut = connect_envelope_error(ENVELOPE_CUT, &why);
    if (self->body.len > 0)
        connect_refuse_stream(self->request, cut, why);
    else if (!self->found.id)
        connect_refuse_stream(self->request, CONNECT_INVALID_ARGUMENT,
                              "the stream must begin with a message that has start");
    else
        connect_stream_reply(self->request, json_object());
}

static void
stream_input_go_on(void *arg)
{
    static char piece[16 << 10];
    struct stream_input *self = arg;
    while (!self->busy) {
        int result = stream_input_step(self);
        if (result < 0)
            return;
        if (result > 0)
            continue;
        size_t n = http_request_body_read(self->request, piece, sizeof piece);
        buf_append(&self->body, piece, n);
        if (n > 0)
            continue;
        if (http_request_body_ended(self->request))
            stream_input_end(self);
        return;
    }
    if (self->feed.bytes.len > 0 && !self->feed.call && !loop_timer_active(self->feed.again))
        loop_timer_start(self->feed.again, 0);
}

void
handle_process_stream_input(struct http_request *request, void *arg)
{
    const struct envd *envd = arg;
    struct kg_error err = {0};
    if (!connect_check_stream(request))
        return;
    struct stream_input *self = KG_NEW(struct stream_input);
    self->request = request;
    feed_init(&self->feed, request, envd, stream_input_on_done, self);
    http_request_own(request, self, stream_input_free);
    http_request_on_body(request, stream_input_go_on, self);
    http_request_body_idle(request, STREAM_IDLE_MS);
    if (envd_sandbox(request, envd, &err))
        stream_input_go_on(self);
    else
        connect_refuse_stream_error(request, &err);
}
