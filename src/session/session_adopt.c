// SPDX-License-Identifier: Apache-2.0
// Takes up a session that an earlier gateway has left: its sandbox, its kernels.

#include <string.h>

#include "session_priv.h"

enum { ADOPT_TIMEOUT_MS = 10 * 1000 };

static void
adopt_kernels(struct session *session, const json_t *processes)
{
    const struct sessions_settings *settings = &session->sessions->settings;
    size_t i;
    json_t *process;
    json_array_foreach(processes, i, process) {
        const char *name = json_string_value(json_object_get(process, "name"));
        const struct kernelspec *spec = name ? kernelspecs_find(settings->specs, name, NULL) : NULL;
        if (!spec || session_find_kernel(session, spec) ||
            session->n_kernels == SESSION_MAX_KERNELS)
            continue;
        struct kernel *kernel =
            kernel_adopt(settings->kernels, session->sandbox, spec, session->env, process,
                         settings->adopt_timeout_ms, &session_kernel_events, session);
        if (kernel)
            session->kernels[session->n_kernels++] = kernel;
    }
}

static void
on_processes(const json_t *body, const struct kg_error *err, void *arg)
{
    struct session *session = arg;
    if (session->state == SESSION_ENDING)
        return;
    if (!body) {
        session_end(session, err->message, NULL, NULL);
        return;
    }
    adopt_kernels(session, json_object_get(body, "kernels"));
    log_info("session adopted", LOG_STR("session", session->id), LOG_STR("owner", session->owner),
             LOG_INT("kernels", (int64_t)session->n_kernels));
    session_set_state(session, SESSION_READY);
    session_start_kernels(session);
    if (session->n_kernels == 0)
        (void)!session_kernel(session, session->sessions->settings.pooled_spec, NULL);
}

void
session_on_adopted(struct sandbox *sandbox, void *arg)
{
    struct kg_error err = {0};
    if (!sandbox_agent_call(sandbox, "GET", "/kernels", NULL, ADOPT_TIMEOUT_MS, on_processes, arg,
                            &err))
        session_end(arg, err.message, NULL, NULL);
}

int
session_adopt(struct sessions *sessions, const char *id, const json_t *meta, struct kg_error *err)
{
    const char *owner, *name;
    json_int_t created_ms, idle_timeout_ms;
    int one_shot;
    json_t *env;
    json_error_t why;
    if (json_unpack_ex((json_t *)(uintptr_t)meta, &why, 0, "{s:s, s:s, s:I, s:I, s:b, s:o}",
                       "session_id", &name, "owner", &owner, "created_ms", &created_ms,
                       "idle_timeout_ms", &idle_timeout_ms, "one_shot", &one_shot, "env", &env) < 0)
        return kg_error_set(err, KG_INVALID, 0, "its meta.json is malformed: %s", why.text);
    if (one_shot)
        return kg_error_set(err, KG_INVALID, 0, "whoever waited for its one execution has gone");
    const struct sandbox_spec spec = {
        .agent_idle_timeout_s = (int)sessions->settings.idle_timeout_s,
        .network = sessions->settings.network,
        .ready_timeout_ms = sessions->settings.sandbox_start_timeout_ms,
    };
    struct session *session = session_make(sessions, owner, name, env, idle_timeout_ms);
    session->created_wall_ms = created_ms;
    session->sandbox = sandbox_adopt(sessions->settings.sandboxes, id, true, &spec,
                                     &session_sandbox_events, session, err);
    if (session->sandbox)
        return 0;
    session_end(session, err->message, NULL, NULL);
    return -1;
}
