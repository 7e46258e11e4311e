// SPDX-License-Identifier: Apache-2.0
// Opening links, and the HTTP calls over them. Every callback is the last thing that its function
// does: it may free the call's sandbox.
#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "agent_reply.h"
#include "call.h"
#include "sandbox_priv.h"

enum { REPLY_MAX = 1 << 20, PATH_MAX_LEN = 8192 };

void
sandbox_call_cancel(struct sandbox_call *call)
{
    if (!call)
        return;
    TAILQ_REMOVE(&call->sandbox->calls, call, entry);
    if (call->http_call)
        http_call_cancel(call->http_call);
    door_call_cancel(call->opening);
    if (call->fd >= 0)
        close(call->fd);
    loop_timer_free(call->timer);
    call_stream_free(call->stream);
    free(call->method);
    free(call->url);
    free(call->body);
    free(call);
}

void
call_fail(struct sandbox_call *call, const struct kg_error *err)
{
    sandbox_link_fn link_fn = call->link_fn;
    sandbox_agent_fn agent_fn = call->agent_fn;
    void *arg = call->arg;

    if (call->stream) {
        call_stream_end(call, err);
        return;
    }
    sandbox_call_cancel(call);
    if (link_fn)
        link_fn(-1, err, arg);
    else
        agent_fn(NULL, err, arg);
}

static void
on_timeout(void *arg)
{
    struct sandbox_call *call = arg;
    struct kg_error err;

    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                       "the sandbox's agent did not answer in time");
    call_fail(call, &err);
}

// ---- The HTTP call --------------------------------------------------------------------------

static void
on_http_done(const struct http_call_result *result, void *arg)
{
    struct sandbox_call *call = arg;
    struct kg_error err = {0};

    call->http_call = NULL;
    if (result->status == 0) {
        (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the agent's connection failed: %s",
                           result->err->message);
        call_fail(call, &err);
        return;
    }
    json_auto_t *body = agent_reply_parse(result->status, result->body, result->body_len, &err);
    if (!body) {
        call_fail(call, &err);
        return;
    }
    sandbox_agent_fn fn = call->agent_fn;
    void *fn_arg = call->arg;
    sandbox_call_cancel(call);
    fn(body, NULL, fn_arg);
}

static void
start_http(struct sandbox_call *call)
{
    const char *const headers[] = {"Content-Type: application/json", NULL};
    struct kg_error err = {0};
    const struct http_call_spec spec = {
        .method = call->method,
        .url = call->url,
        .fd = KG_STEAL_FD(call->fd),
        .headers = call->body ? headers : NULL,
        .body = call->body,
        .body_len = call->body_len,
        .max_body_bytes = REPLY_MAX,
    };

    // The call's own timer bounds the whole of it.
    call->http_call =
        http_call_start(call->sandbox->context.http, &spec, NULL, on_http_done, call, &err);
    if (!call->http_call)
        call_fail(call, &err);
}

// ---- The link -------------------------------------------------------------------------------

static void
on_opened(int fd, const struct kg_error *err, void *arg)
{
    struct sandbox_call *call = arg;
    int64_t left = call->deadline_ms - clock_mono_ms();

    call->opening = NULL;
    if (fd < 0) {
        call_fail(call, err);
        return;
    }
    if (call->link_fn) {
        sandbox_link_fn fn = call->link_fn;
        void *fn_arg = call->arg;
        sandbox_call_cancel(call);
        fn(fd, NULL, fn_arg);
        return;
    }
    call->fd = fd;
    loop_timer_start(call->timer, left > 0 ? left : 0);
    if (call->stream)
        call_stream_start(call);
    else
        start_http(call);
}

bool
sandbox_fail_call(struct sandbox *sandbox, const struct kg_error *reason)
{
    struct sandbox_call *call = TAILQ_FIRST(&sandbox->calls);

    if (!call)
        return change_link_fail_one(sandbox->changes, reason);
    call_fail(call, reason);
    return true;
}

// ---- Starting -------------------------------------------------------------------------------

static struct sandbox_call *
start(struct sandbox *sandbox, const char *target, int64_t timeout_ms, struct kg_error *err)
{
    if (!sandbox->door) {
        (void)kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox is gone");
        return NULL;
    }
    if (!link_target_valid(target)) {
        (void)kg_error_set(err, KG_INVALID, 0, "bad link target");
        return NULL;
    }
    assert(timeout_ms > 0);
    struct sandbox_call *call = KG_NEW(struct sandbox_call);
    call->sandbox = sandbox;
    call->deadline_ms = clock_mono_ms() + timeout_ms;
    call->opening = door_open(sandbox->door, target, timeout_ms, on_opened, call);
    call->timer = loop_timer_new(sandbox->context.loop, on_timeout, call);
    call->fd = -1;
    TAILQ_INSERT_TAIL(&sandbox->calls, call, entry);
    return call;
}

struct sandbox_call *
sandbox_open_link(struct sandbox *sandbox, const char *target, int64_t timeout_ms,
                  sandbox_link_fn fn, void *arg, struct kg_error *err)
{
    struct sandbox_call *call = start(sandbox, target, timeout_ms, err);

    if (!call)
        return NULL;
    call->link_fn = fn;
    call->arg = arg;
    return call;
}

static struct sandbox_call *
start_agent_call(struct sandbox *sandbox, const char *method, const char *path, int64_t timeout_ms,
                 struct kg_error *err)
{
    size_t len = strlen(path);

    if (path[0] != '/' || len > PATH_MAX_LEN || strcspn(path, " \t\r\n#") != len) {
        (void)kg_error_set(err, KG_INVALID, 0, "bad path for the agent");
        return NULL;
    }
    struct sandbox_call *call = start(sandbox, "agent", timeout_ms, err);
    if (!call)
        return NULL;
    call->method = kg_strdup(method);
    // The sandbox's id as the host: no cache of the client's can mix two tenants up.
    call->url = kg_asprintf("http://%s%s", sandbox->id, path);
    return call;
}

struct sandbox_call *
sandbox_agent_call(struct sandbox *sandbox, const char *method, const char *path,
                   const json_t *body, int64_t timeout_ms, sandbox_agent_fn fn, void *arg,
                   struct kg_error *err)
{
    struct sandbox_call *call = start_agent_call(sandbox, method, path, timeout_ms, err);

    if (!call)
        return NULL;
    call->agent_fn = fn;
    call->arg = arg;
    call->body = body ? json_dumps(body, JSON_COMPACT) : NULL;
    call->body_len = call->body ? strlen(call->body) : 0;
    return call;
}

struct sandbox_call *
sandbox_agent_stream(struct sandbox *sandbox, const struct sandbox_stream_spec *spec,
                     const struct sandbox_stream_events *events, void *arg, struct kg_error *err)
{
    struct sandbox_call *call =
        start_agent_call(sandbox, spec->method, spec->path, spec->head_timeout_ms, err);

    if (!call)
        return NULL;
    call->stream = call_stream_new(spec, events);
    call->arg = arg;
    if (spec->body_len > 0) {
        call->body_len = spec->body_len;
        call->body = kg_calloc(1, spec->body_len);
        memcpy(call->body, spec->body, spec->body_len);
    }
    return call;
}
