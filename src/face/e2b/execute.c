// SPDX-License-Identifier: Apache-2.0
// POST /execute: runs code in a context of a sandbox. The answer's lines come as they happen; if
// the client leaves, the code is interrupted.

#include <string.h>

#include "e2b_priv.h"
#include "pace.h"

enum {
    BACKLOG_MAX = 64 << 10, // bytes that wait for the client: above it no more lines are taken
    BACKLOG_LOW = 16 << 10,
    TICK_MS = 5 * 1000, // a client that has left is noticed by what is sent to it
    STALLED_TICKS = 12,
};

// A request, from its body to the end of its lines; the request owns it.
struct running {
    struct http_request *request;
    const struct e2b *e2b;
    json_t *body;
    char *env; // JSON text; or NULL
    struct session_open *opening;
    struct execution *execution; // the subscription's
    struct subscription *subscription;
    struct http_pace *ticks;   // keepalives, and clients that do not read after the end
    struct http_pace *crowded; // looks while a long line is being sent
};

static void
running_free(void *arg)
{
    struct running *running = arg;
    if (running->opening)
        session_open_cancel(running->opening);
    if (running->subscription)
        subscription_abandon(running->subscription);
    http_pace_free(running->ticks);
    http_pace_free(running->crowded);
    json_decref(running->body);
    free(running->env);
    free(running);
}

// ---- Lines ----------------------------------------------------------------------------------

// What a long line takes counts for the log until it is sent.
struct long_line {
    char *text;
    void *held; // or NULL
};

static void
long_line_release(void *arg)
{
    struct long_line *line = arg;
    if (line->held)
        subscription_release(line->held);
    free(line->text);
    free(line);
}

static void
send_long(struct running *running, const char *text, size_t len)
{
    struct long_line *line = KG_NEW(struct long_line);
    KG_AUTO_BUF made = {0};
    execute_append_line(&made, text, len, clock_wall_ms());
    size_t made_len = made.len;
    line->held = subscription_hold(running->subscription);
    line->text = buf_take(&made);
    http_stream_write_shared(running->request, line->text, made_len, long_line_release, line);
    http_pace_start(running->crowded);
}

// If the sandbox has ended, so does the answer, without its end: only then do the SDKs ask whether
// the sandbox is there.
static void
finish(struct running *running)
{
    subscription_free(KG_STEAL(running->subscription));
    if (e2b_sandbox(running->request, running->e2b, NULL))
        http_stream_end(running->request);
    else
        http_stream_abort(running->request);
}

static void
pump(void *arg)
{
    struct running *running = arg;
    struct http_request *request = running->request;
    while (http_stream_backlog(request) < BACKLOG_MAX) {
        size_t len;
        const char *line = subscription_next(running->subscription, &len);
        if (!line)
            return;
        if (len >= BACKLOG_MAX) {
            send_long(running, line, len);
        } else {
            KG_AUTO_BUF text = {0};
            execute_append_line(&text, line, len, clock_wall_ms());
            http_stream_write(request, text.data, text.len);
        }
        http_pace_put_off(running->ticks);
        if (subscription_finished(running->subscription)) {
            finish(running);
            return;
        }
    }
}

static void
on_tick(size_t backlog, void *arg)
{
    static const char keepalive[] = "{\"type\":\"keepalive\"}\n";
    const struct running *running = arg;
    if (backlog == 0)
        http_stream_write(running->request, keepalive, sizeof keepalive - 1);
}

static bool
has_ended(const void *arg)
{
    const struct running *running = arg;
    return execution_state(running->execution) == EXECUTION_DONE;
}

static bool
is_crowded(const void *arg)
{
    const struct running *running = arg;
    return subscription_is_crowded(running->subscription);
}

static void
on_slow(void *arg)
{
    struct running *running = arg;
    subscription_free(KG_STEAL(running->subscription));
    http_stream_abort(running->request);
}

static const struct http_pace_rule ticks_rule = {
    .tick_ms = TICK_MS,
    .max_ticks = STALLED_TICKS,
    .min_bytes = 1,
    .counts = has_ended,
    .on_tick = on_tick,
    .on_slow = on_slow,
};
static const struct http_pace_rule crowded_rule = {
    .tick_ms = HTTP_CROWDED_TICK_MS,
    .max_ticks = HTTP_CROWDED_TICKS,
    .min_bytes = HTTP_CROWDED_TICK_BYTES,
    .rests = true,
    .counts = is_crowded,
    .on_slow = on_slow,
};

static void
stream(struct running *running, struct execution *execution)
{
    struct http_request *request = running->request;
    running->execution = execution;
    running->ticks = http_pace_new(running->e2b->settings.loop, request, &ticks_rule, running);
    running->crowded = http_pace_new(running->e2b->settings.loop, request, &crowded_rule, running);
    running->subscription = execution_subscribe(execution, 0, pump, running);
    http_stream_start(request, 200, "application/x-ndjson; charset=utf-8");
    http_stream_on_drain(request, BACKLOG_LOW, pump, running);
    http_pace_start(running->ticks);
    pump(running);
}

// ---- The body -------------------------------------------------------------------------------

static void
on_context(struct session *session, struct kernel *kernel, const struct kg_error *open_err,
           void *arg)
{
    struct running *running = arg;
    struct kg_error err = {0};
    running->opening = NULL;
    if (open_err) {
        http_reply_error(running->request, open_err);
        return;
    }
    const struct session_code code = {
        .code = json_string_value(json_object_get(running->body, "code")),
        .env = running->env,
        .timeout_ms = running->e2b->settings.face->max_timeout_ms,
    };
    KG_AUTO(execution) execution = session_execute(session, kernel, &code, &err);
    if (!execution) {
        http_reply_error(running->request, &err);
        return;
    }
    stream(running, execution);
}

static int
check_body(const struct e2b *e2b, const json_t *body, struct kg_error *err)
{
    const json_t *code = json_object_get(body, "code");
    const json_t *env = json_object_get(body, "env_vars");
    if (!json_is_string(code))
        return kg_error_set(err, KG_INVALID, 0, "code must be a string");
    if (json_string_length(code) > e2b->settings.face->max_code_bytes)
        return kg_error_set(err, KG_INVALID, 0,
                            "code is larger than %zu bytes (setting max-code-bytes)",
                            e2b->settings.face->max_code_bytes);
    if (json_string_length(code) != strlen(json_string_value(code)))
        return kg_error_set(err, KG_INVALID, 0, "code must not contain a NUL");
    return env && !json_is_null(env) ? session_env_check(env, err) : 0;
}

// Runs the code in the context that it names, which may have to be started first.
static int
start(struct running *running, struct kg_error *err)
{
    const struct e2b *e2b = running->e2b;
    struct kernel *kernel;
    const struct kernelspec *spec;
    struct session *session = e2b_sandbox(running->request, e2b, err);
    if (!session || context_find(e2b, session, running->body, &kernel, &spec, err) < 0)
        return -1;
    const struct session_request wanted = {
        .owner = session_owner(session), .session_id = session_id(session), .kernelspec = spec};
    if (kernel)
        on_context(session, kernel, NULL, running);
    else if (!(running->opening = session_open_start(e2b->settings.face->sessions, &wanted,
                                                     on_context, running, err)))
        return -1;
    return 0;
}

void
handle_e2b_execute(struct http_request *request, void *arg)
{
    const struct e2b *e2b = arg;
    struct kg_error err = {0};
    struct running *running = KG_NEW(struct running);
    running->request = request;
    running->e2b = e2b;
    http_request_own(request, running, running_free);
    running->body = http_request_json(request, &err);
    if (!running->body || check_body(e2b, running->body, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    const json_t *env = json_object_get(running->body, "env_vars");
    if (json_object_size(env) > 0)
        running->env = json_dumps(env, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (start(running, &err) < 0)
        context_reply_error(request, &err);
}
