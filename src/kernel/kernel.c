// SPDX-License-Identifier: Apache-2.0
// A kernel's states, and its life: made or adopted, ready, freed.

#include <assert.h>
#include <string.h>

#include "kernel_priv.h"

static const char *const state_names[] = {
    [KERNEL_STARTING] = "starting",
    [KERNEL_READY] = "ready",
    [KERNEL_BUSY] = "busy",
    [KERNEL_INTERRUPTING] = "interrupting",
    [KERNEL_RESTARTING] = "restarting",
    [KERNEL_DEAD] = "dead",
};

const char *
kernel_state_name(enum kernel_state state)
{
    return state_names[state];
}

static bool
edge_is_legal(enum kernel_state from, enum kernel_state to)
{
    switch (from) {
    case KERNEL_STARTING:
        return to == KERNEL_READY || to == KERNEL_RESTARTING || to == KERNEL_DEAD;
    case KERNEL_READY:
        return to == KERNEL_BUSY || to == KERNEL_RESTARTING;
    case KERNEL_BUSY:
        return to == KERNEL_READY || to == KERNEL_INTERRUPTING || to == KERNEL_RESTARTING;
    case KERNEL_INTERRUPTING:
        return to == KERNEL_READY || to == KERNEL_RESTARTING;
    case KERNEL_RESTARTING:
        return to == KERNEL_STARTING || to == KERNEL_DEAD;
    case KERNEL_DEAD:
        return to == KERNEL_RESTARTING;
    }
    return false;
}

void
kernel_set_state(struct kernel *kernel, enum kernel_state state)
{
    assert(edge_is_legal(kernel->state, state));
    log_debug("kernel state", LOG_STR("sandbox", sandbox_id(kernel->sandbox)),
              LOG_STR("kernel", kernel->spec->name), LOG_STR("from", state_names[kernel->state]),
              LOG_STR("to", state_names[state]));
    kernel->state = state;
}

// ---- Its life -------------------------------------------------------------------------------

static struct kernel *
kernel_make(const struct kernel_context *context, struct sandbox *sandbox,
            const struct kernelspec *spec, const json_t *env, const struct kernel_events *events,
            void *arg)
{
    struct kernel *kernel = KG_NEW(struct kernel);
    kernel->context = context;
    kernel->sandbox = sandbox;
    kernel->spec = spec;
    kernel->env = env ? json_deep_copy(env) : json_object();
    kernel->events = events;
    kernel->arg = arg;
    kernel->state = KERNEL_STARTING;
    kernel->dir = kg_asprintf("%s/%s", sandbox_dir(sandbox), spec->name);
    kernel_queue_init(kernel);
    kernel_restart_init(kernel);
    kernel_start_init(kernel);
    kernel_run_init(kernel);
    return kernel;
}

struct kernel *
kernel_new(const struct kernel_context *context, struct sandbox *sandbox,
           const struct kernelspec *spec, const json_t *env, const struct kernel_events *events,
           void *arg)
{
    struct kernel *kernel = kernel_make(context, sandbox, spec, env, events, arg);
    kernel_start_begin(kernel);
    return kernel;
}

struct kernel *
kernel_adopt(const struct kernel_context *context, struct sandbox *sandbox,
             const struct kernelspec *spec, const json_t *env, const json_t *process,
             int64_t timeout_ms, const struct kernel_events *events, void *arg)
{
    const char *key = json_string_value(json_object_get(process, "key"));
    const char *state = json_string_value(json_object_get(process, "state"));
    if (!key || strlen(key) != JUPYTER_KEY_LEN || !state || strcmp(state, "running") != 0)
        return NULL;
    struct kernel *kernel = kernel_make(context, sandbox, spec, env, events, arg);
    memcpy(kernel->key, key, JUPYTER_KEY_LEN + 1);
    kernel->pid = (int)json_integer_value(json_object_get(process, "pid"));
    kernel->adopting = kernel->has_started = true;
    kernel->adopt_timeout_ms = timeout_ms;
    kernel_start_adopt(kernel);
    return kernel;
}

void
kernel_free(struct kernel *kernel, const char *reason)
{
    if (!kernel)
        return;
    const char *evalue = reason ? reason : "the session was ended";
    kernel_artifacts_end(kernel);
    if (kernel->run.execution) {
        output_append_error(&kernel->run.execution->log, "KernelDied", evalue, NULL);
        kernel_run_finish(kernel, EXECUTION_DIED, KERNEL_GOES);
    }
    kernel_queue_end(kernel, evalue);
    kernel_restart_fini(kernel);
    kernel_start_fini(kernel);
    kernel_run_fini(kernel);
    kernel_queue_fini(kernel);
    json_decref(kernel->env);
    free(kernel->dir);
    free(kernel);
}

void
kernel_set_events(struct kernel *kernel, const struct kernel_events *events, void *arg)
{
    kernel->events = events;
    kernel->arg = arg;
}

const struct kernelspec *
kernel_spec(const struct kernel *kernel)
{
    return kernel->spec;
}

enum kernel_state
kernel_state(const struct kernel *kernel)
{
    return kernel->state;
}

bool
kernel_has_started(const struct kernel *kernel)
{
    return kernel->has_started;
}

int64_t
kernel_execution_count(const struct kernel *kernel)
{
    return kernel->execution_count;
}

bool
kernel_is_busy(const struct kernel *kernel)
{
    return kernel->run.execution || kernel->artifacts.ending || kernel->n_queued > 0 ||
           kernel->adopting;
}
