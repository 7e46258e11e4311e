// SPDX-License-Identifier: Apache-2.0
// create_session, list_sessions, close_session, interrupt_session.

#include <string.h>

#include "tools_priv.h"

enum { MAX_IDLE_TIMEOUT_S = 31536000 };

// ---- Create ---------------------------------------------------------------------------------

static void
sessions_on_created(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    const char *id = session_id(session);
    KG_AUTO_FREE char *text = kg_asprintf(
        "Session %s is ready (%s). Pass session_id=\"%s\" to the other tools. Its files are in %s.",
        id, job->session.spec->display_name, id, working_directory);
    job_finish(job, result_of_text(job, text,
                                   json_pack("{s:s, s:s, s:s}", "session_id", id, "kernel",
                                             job->session.spec->name, "working_directory",
                                             working_directory)));
}

void
tool_create_session(struct job *job)
{
    const struct mcp_tools_settings *settings = &job->tools->settings;
    struct kg_error err = {0};
    const char *language = job_string(job, "language");
    double idle_s = job_number(job, "idle_timeout", 0);
    job->session.spec = language ? kernelspecs_find(settings->face->specs, language, &err)
                                 : settings->face->default_spec;
    if (job->session.spec && job_value(job, "idle_timeout") &&
        !(idle_s >= 1 && idle_s <= MAX_IDLE_TIMEOUT_S))
        kg_error_set(&err, KG_INVALID, 0, "idle_timeout must be 1 to %d seconds",
                     MAX_IDLE_TIMEOUT_S);
    if (err.code != KG_OK) {
        job_fail(job, &err);
        return;
    }
    const struct job_session want = {
        .kind = JOB_SESSION_NEW,
        .id = job_string(job, "session_id"),
        .spec = job->session.spec,
        .idle_timeout_s = (int64_t)idle_s,
        .creates = true,
    };
    job_start_progress(job);
    job_open_session(job, &want, sessions_on_created);
}

// ---- List -----------------------------------------------------------------------------------

static void
append_session(struct buf *text, const char *id, const json_t *about, bool is_own)
{
    KG_AUTO_BUF kernels = {0};
    const char *name;
    json_t *kernel;
    json_object_foreach(json_object_get(about, "kernels"), name, kernel) {
        const char *state = json_string_value(json_object_get(kernel, "state"));
        buf_printf(&kernels, "%s%s %s", kernels.len ? ", " : "", name, state ? state : "?");
    }
    const char *expires = json_string_value(json_object_get(about, "expires_at"));
    json_int_t commands = json_integer_value(json_object_get(about, "commands"));
    json_int_t terminals = json_integer_value(json_object_get(about, "terminals"));
    buf_printf(text, "%s%s: %s; %lld executions; ", id, is_own ? " (this conversation's own)" : "",
               kernels.len ? kernels.data : "starting",
               (long long)json_integer_value(json_object_get(about, "execution_count")));
    if (commands + terminals > 0)
        buf_printf(text, "running: %lld commands, %lld terminals; ", (long long)commands,
                   (long long)terminals);
    buf_printf(text, "expires %s\n", expires ? expires : "?");
}

void
tool_list_sessions(struct job *job)
{
    json_t *sessions = job_describe_sessions(job);
    const char *own = job_own_session_id(job);
    KG_AUTO_BUF text = {0};
    const char *id;
    json_t *about;
    json_object_foreach(sessions, id, about)
        append_session(&text, id, about, own && strcmp(own, id) == 0);
    if (text.len == 0)
        buf_append_str(&text, "There are no sessions.");
    json_int_t total = (json_int_t)json_object_size(sessions);
    job_finish(job, result_of_text(job, text.data,
                                   json_pack("{s:o, s:I}", "sessions", sessions, "total", total)));
}

// ---- Close ----------------------------------------------------------------------------------

static void
tell_closed(struct job *job, const char *id)
{
    KG_AUTO_FREE char *text =
        kg_asprintf("Session %s is closed: its variables and files are gone.", id);
    job_finish(job, result_of_text(job, text, NULL));
}

void
tool_close_session(struct job *job)
{
    struct kg_error err = {0};
    struct session *session = job_find_session(job, job_string(job, "session_id"), &err);
    if (session)
        job_close_session(job, session, tell_closed);
    else
        job_fail(job, &err);
}

// ---- Interrupt ------------------------------------------------------------------------------

void
tool_interrupt_session(struct job *job)
{
    struct kg_error err = {0};
    struct session *session = job_find_session(job, job_string(job, "session_id"), &err);
    if (!session) {
        job_fail(job, &err);
        return;
    }
    bool any = session_interrupt(session);
    KG_AUTO_FREE char *text =
        kg_asprintf(any ? "Session %s was interrupted; variables and files are kept."
                        : "Session %s was not busy; there was nothing to interrupt.",
                    session_id(session));
    job_finish(job, result_of_text(job, text, NULL));
}
