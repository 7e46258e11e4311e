// SPDX-License-Identifier: Apache-2.0
// A sandbox of the gateway's own, one thing at a time.

#include "wheel_sandbox.h"

#include "packages_priv.h"
#include "pip.h"

enum { READY_MS = 30 * 1000, SILENCE_MS = 30 * 1000, AGENT_IDLE_S = 300 };

struct wheel_sandbox {
    const struct packages *packages;
    struct sandbox *sandbox;
    struct packages_delivery *delivery;
    struct sandbox_command *command;
    struct sandbox_call *call;
    struct pip_output output;
    wheel_sandbox_fn next; // when what is being done is done
    const struct wheel_sandbox_events *events;
    void *arg;
};

void
wheel_sandbox_free(struct wheel_sandbox *own)
{
    if (!own)
        return;
    packages_delivery_cancel(own->delivery);
    if (own->command)
        sandbox_command_cancel(own->command);
    sandbox_call_cancel(own->call);
    if (own->sandbox)
        sandbox_destroy(own->sandbox, NULL, NULL);
    pip_output_clear(&own->output);
    free(own);
}

static void
go_on(const struct wheel_sandbox *own, const struct kg_error *err)
{
    if (err)
        own->events->on_failed(err, own->arg);
    else
        own->next(own->arg);
}

// ---- Delivering -----------------------------------------------------------------------------

static void
own_on_delivered(const struct kg_error *err, void *arg)
{
    struct wheel_sandbox *own = arg;
    own->delivery = NULL;
    go_on(own, err);
}

void
wheel_sandbox_deliver(struct wheel_sandbox *own, const char *path, wheel_sandbox_fn next)
{
    struct kg_error err = {0};
    json_auto_t *files = json_pack("[s]", path);
    own->next = next;
    own->delivery =
        packages_deliver(own->packages, own->sandbox, files, own_on_delivered, own, &err);
    if (!own->delivery)
        go_on(own, &err);
}

// ---- Running --------------------------------------------------------------------------------

static void
own_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct wheel_sandbox *own = arg;
    pip_output_take(&own->output, stream, text, len);
    if (stream == SANDBOX_STDERR && own->events->on_text)
        own->events->on_text(text, len, own->arg);
}

static void
own_on_ended(const struct sandbox_command_result *result, const struct kg_error *end_err, void *arg)
{
    struct wheel_sandbox *own = arg;
    struct kg_error err = {0};
    own->command = NULL;
    int checked = pip_output_check(&own->output, result, end_err, &err);
    go_on(own, checked < 0 ? &err : NULL);
}

void
wheel_sandbox_run(struct wheel_sandbox *own, char **argv, const json_t *env, int timeout_ms,
                  wheel_sandbox_fn next)
{
    static const struct sandbox_command_events events = {.on_output = own_on_output,
                                                         .on_end = own_on_ended};
    struct kg_error err = {0};
    const struct sandbox_command_spec spec = {
        .argv = (const char *const *)argv,
        .env = env,
        .timeout_ms = timeout_ms,
        .max_output_bytes = PIP_OUTPUT_MAX,
    };
    own->next = next;
    pip_output_clear(&own->output);
    own->command = sandbox_command_start(own->sandbox, &spec, &events, own, &err);
    pip_argv_free(argv);
    if (!own->command)
        go_on(own, &err);
}

const struct buf *
wheel_sandbox_result(const struct wheel_sandbox *own)
{
    return &own->output.result;
}

// ---- Reading --------------------------------------------------------------------------------

static void
own_on_data(const void *data, size_t len, void *arg)
{
    struct wheel_sandbox *own = arg;
    struct kg_error err = {0};
    if (own->events->on_data(data, len, own->arg, &err) == 0)
        return;
    sandbox_call_cancel(KG_STEAL(own->call));
    go_on(own, &err);
}

static void
own_on_read(const json_t *result, const struct kg_error *err, void *arg)
{
    struct wheel_sandbox *own = arg;
    (void)result;
    own->call = NULL;
    go_on(own, err);
}

void
wheel_sandbox_read(struct wheel_sandbox *own, const char *path, wheel_sandbox_fn next)
{
    static const struct sandbox_stream_events events = {.on_data = own_on_data,
                                                        .on_end = own_on_read};
    struct kg_error err = {0};
    json_auto_t *params = json_pack("{s:s}", "path", path);
    const struct sandbox_stream_spec spec = {
        .method = "files.read",
        .params = params,
        .head_timeout_ms = SILENCE_MS,
        .silence_timeout_ms = SILENCE_MS,
    };
    own->next = next;
    own->call = sandbox_agent_stream(own->sandbox, &spec, &events, own, &err);
    if (!own->call)
        go_on(own, &err);
}

// ---- Its start ------------------------------------------------------------------------------

static void
own_on_claimed(struct sandbox *sandbox, const struct kg_error *err, void *arg)
{
    (void)sandbox;
    go_on(arg, err);
}

static void
own_on_ready(struct sandbox *sandbox, void *arg)
{
    struct kg_error err = {0};
    // After a crash the next gateway sees from this that the sandbox belongs to no session.
    json_auto_t *meta = json_pack("{s:s}", "purpose", "packages");
    if (sandbox_claim(sandbox, meta, 0, own_on_claimed, arg, &err) < 0)
        go_on(arg, &err);
}

static void
own_on_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    const struct wheel_sandbox *own = arg;
    (void)sandbox;
    own->events->on_failed(reason, own->arg);
}

struct wheel_sandbox *
wheel_sandbox_new(const struct packages *packages, bool network,
                  const struct wheel_sandbox_events *events, void *arg, wheel_sandbox_fn next,
                  struct kg_error *err)
{
    static const struct sandbox_events sandbox_events = {.on_ready = own_on_ready,
                                                         .on_gone = own_on_gone};
    const struct sandbox_spec spec = {
        .agent_idle_timeout_s = AGENT_IDLE_S, .network = network, .ready_timeout_ms = READY_MS};
    struct wheel_sandbox *own = KG_NEW(struct wheel_sandbox);
    own->packages = packages;
    own->events = events;
    own->arg = arg;
    own->next = next;
    own->sandbox = sandbox_create(packages->sandboxes, &spec, &sandbox_events, own, err);
    if (own->sandbox)
        return own;
    wheel_sandbox_free(own);
    return NULL;
}
