// SPDX-License-Identifier: Apache-2.0
// The events of a command. A client that reads too slowly holds the command back, so it misses
// nothing; one that does not read at all is disconnected after a minute, and the command goes on.
#include "envd_priv.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "message.h"
#include "session_commands.h"

struct process_stream {
    LIST_ENTRY(process_stream) link;
    struct http_request *request;
    struct connect_stream *stream;
    struct session *session;         // while it looks for the command
    struct process_search *search;   // or NULL
    struct session_command *command; // or NULL
    bool joined;
    bool paused;
};

static void
process_stream_free(void *arg)
{
    struct process_stream *self = arg;
    LIST_REMOVE(self, link);
    process_search_cancel(self->search);
    if (self->command)
        session_command_cancel(self->command);
    connect_stream_free(self->stream);
    free(self);
}

// ---- Slow clients ---------------------------------------------------------------------------

static void
process_pause(struct process_stream *self, bool paused)
{
    if (self->command && paused != self->paused)
        session_command_pause(self->command, paused);
    self->paused = paused;
}

static void
process_on_room(void *arg)
{
    process_pause(arg, false);
}

static bool
process_waits(const void *arg)
{
    const struct process_stream *self = arg;
    return self->paused;
}

// ---- Events ---------------------------------------------------------------------------------

// Takes `value`.
static void
send_event(struct process_stream *self, const char *name, json_t *value)
{
    connect_stream_send(self->stream, json_pack("{s:{s:o}}", "event", name, value));
}

static void
process_on_started(const struct sandbox_command_start *start, void *arg)
{
    send_event(arg, "start", json_pack("{s:i}", "pid", start->pid));
}

static void
process_on_output(enum sandbox_stream kind, const char *text, size_t len, void *arg)
{
    static const char *const names[] = {
        [SANDBOX_STDOUT] = "stdout", [SANDBOX_STDERR] = "stderr", [SANDBOX_TERMINAL] = "pty"};
    struct process_stream *self = arg;
    send_event(self, "data", json_pack("{s:o}", names[kind], message_of_bytes(text, len)));
    if (connect_stream_is_full(self->stream))
        process_pause(self, true);
}

// Only one that does not hold the command back could miss any.
static void
process_on_missed(int64_t bytes, void *arg)
{
    (void)bytes;
    (void)arg;
}

// As the libraries of envd's own language put it: "exit status 1", "signal: killed".
static json_t *
describe_end(const struct sandbox_command_result *result)
{
    char status[80];
    const char *name = result->signal ? sigdescr_np(result->signal) : NULL;
    if (!result->signal)
        snprintf(status, sizeof status, "exit status %d", result->exit_code);
    else if (name)
        snprintf(status, sizeof status, "signal: %c%s%s", tolower((unsigned char)name[0]), name + 1,
                 result->oom ? " (out of memory)" : "");
    else
        snprintf(status, sizeof status, "signal: signal %d", result->signal);
    json_t *end = json_pack("{s:i, s:b, s:s}", "exitCode", result->signal ? -1 : result->exit_code,
                            "exited", result->signal == 0, "status", status);
    if (result->signal || result->exit_code)
        json_object_set_new(end, "error", json_string(status));
    return end;
}

static void
process_on_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    struct process_stream *self = arg;
    self->command = NULL;
    if (err) {
        process_stream_fail(self, err);
    } else if (result->timed_out && !self->joined) {
        connect_stream_end(self->stream, CONNECT_DEADLINE_EXCEEDED,
                           "the command has run for as long as Connect-Timeout-Ms allows");
    } else {
        send_event(self, "end", describe_end(result));
        connect_stream_end(self->stream, CONNECT_OK, NULL);
    }
}

static const struct sandbox_command_events process_events = {
    .on_started = process_on_started,
    .on_output = process_on_output,
    .on_end = process_on_end,
    .on_missed = process_on_missed,
};

// ---- Its start ------------------------------------------------------------------------------

struct process_stream *
process_stream_new(struct http_request *request, struct envd *envd, int64_t timeout_ms)
{
    struct process_stream *self = KG_NEW(struct process_stream);
    self->request = request;
    self->stream = connect_stream_new(&(const struct connect_stream_settings){
        .loop = e2b_loop(envd->e2b),
        .request = request,
        .keepalive = "{\"event\":{\"keepalive\":{}}}",
        .deadline_ms = timeout_ms,
        .on_room = process_on_room,
        .waits_for_client = process_waits,
        .arg = self,
    });
    LIST_INSERT_HEAD(&envd->streams, self, link);
    http_request_own(request, self, process_stream_free);
    return self;
}

void
process_stream_fail(struct process_stream *self, const struct kg_error *err)
{
    if (connect_stream_has_begun(self->stream))
        connect_stream_fail(self->stream, err);
    else
        connect_refuse_stream_error(self->request, err);
}

int
process_stream_start(struct process_stream *self, struct session *session,
                     const struct sandbox_command_spec *spec, struct kg_error *err)
{
    self->command = session_command_start(session, spec, &process_events, self, err);
    if (!self->command)
        return -1;
    session_command_attend(self->command);
    return 0;
}

static void
process_on_found(const struct process_found *found, const struct kg_error *err, void *arg)
{
    struct process_stream *self = arg;
    struct kg_error own = {0};
    self->search = NULL;
    if (found)
        self->command =
            session_command_join(self->session, found->id, true, &process_events, self, &own);
    if (self->command)
        session_command_attend(self->command);
    else
        process_stream_fail(self, found ? &own : err);
}

int
process_stream_find(struct process_stream *self, struct session *session,
                    const struct process_selector *selector, struct kg_error *err)
{
    self->joined = true;
    self->session = session;
    self->search = process_search_start(session, selector, true, process_on_found, self, err);
    return self->search ? 0 : -1;
}

void
envd_drain(struct envd *envd)
{
    struct kg_error err = {0};
    (void)kg_error_set(&err, KG_DRAINING, 0,
                       "the gateway is shutting down; the command goes on: connect to it again");
    while (!LIST_EMPTY(&envd->streams))
        process_stream_fail(LIST_FIRST(&envd->streams), &err);
}
