// SPDX-License-Identifier: Apache-2.0
// The profile `mcp-code-sandbox`: sessions, uploads, Python, artifacts. Errors are answers too,
// never exceptions.

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "profile_mcp_code_sandbox.h"

enum { ID_DIGITS = 12, RUN_DIGITS = 4 };

// ---- Errors ---------------------------------------------------------------------------------

// What is missing here keeps its name.
static const struct {
    enum kg_code code;
    const char *name;
} code_names[] = {
    {KG_INVALID, "execution_failed"},          {KG_INTERNAL, "execution_failed"},
    {KG_DRAINING, "docker_unavailable"},       {KG_PROVISIONER_UNAVAILABLE, "docker_unavailable"},
    {KG_KERNEL_START_TIMEOUT, "docker_error"}, {KG_DISK_FULL, "upload_too_large"},
};

json_t *
mcp_code_sandbox_error(const char *name, const char *message)
{
    return json_pack("{s:s, s:s, s:n, s:n}", "error", name, "message", message, "size_bytes",
                     "download_url");
}

static json_t *
error_result(struct job *job, const struct kg_error *err)
{
    const char *name = kg_code_info(err->code)->name;
    for (size_t i = 0; i < KG_ARRAY_LEN(code_names); i++) {
        if (code_names[i].code == err->code)
            name = code_names[i].name;
    }
    return result_of_json(job, mcp_code_sandbox_error(name, err->message));
}

static void
fail_with(struct job *job, const char *name, const char *message)
{
    job_finish(job, result_of_json(job, mcp_code_sandbox_error(name, message)));
}

static const char id_prefix[] = "sess_";

// ---- Arguments ------------------------------------------------------------------------------

// Answers itself where the id or the name is malformed.
bool
mcp_code_sandbox_check_id(struct job *job)
{
    const char *id = job_string(job, "session_id");
    size_t len = strlen(id_prefix);
    if (!id || (strncmp(id, id_prefix, len) == 0 && strlen(id) == len + ID_DIGITS &&
                strspn(id + len, "0123456789abcdef") == ID_DIGITS))
        return true;
    fail_with(job, "invalid_session_id", "a session_id is sess_ and 12 hexadecimal digits");
    return false;
}

// Of a new session: the form that clients know.
void
mcp_code_sandbox_fresh_id(char ret[SESSION_MAX_ID_LEN + 1])
{
    memcpy(ret, id_prefix, sizeof id_prefix);
    id_random_hex(ret + strlen(id_prefix), ID_DIGITS);
}

// ---- Run ------------------------------------------------------------------------------------

static json_t *
run_id(void)
{
    time_t now = (time_t)(clock_wall_ms() / 1000);
    struct tm utc;
    char when[32], digits[RUN_DIGITS + 1];
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
    id_random_hex(digits, RUN_DIGITS);
    return json_sprintf("run_%s_%s", when, digits);
}

static json_t *
with_timeout(const struct job *job, json_t *stderr_text)
{
    json_t *text =
        json_sprintf("%s%sExecution timed out after %llds", json_string_value(stderr_text),
                     json_string_length(stderr_text) ? "\n" : "",
                     (long long)(job->tools->settings.face->default_timeout_ms / 1000));
    json_decref(stderr_text);
    return text;
}

static void
mcp_code_sandbox_on_ran(struct job *job)
{
    bool out_cut, err_cut;
    json_t *out = script_stdout(job, &out_cut), *err = script_stderr(job, &err_cut);
    bool timed_out = strcmp(outcome_status(&job->outcome), "timeout") == 0;
    if (timed_out)
        err = with_timeout(job, err);
    double ms = json_number_value(json_object_get(job->outcome.done, "duration_ms"));
    job_finish(job,
               result_of_json(job, json_pack("{s:s, s:o, s:i, s:o, s:o, s:b, s:b, s:o, s:I}",
                                             "session_id", job->session.id, "run_id", run_id(),
                                             "exit_code", timed_out ? -1 : script_exit_code(job),
                                             "stdout", out, "stderr", err, "stdout_truncated",
                                             out_cut, "stderr_truncated", err_cut, "artifacts",
                                             mcp_code_sandbox_artifacts(job), "duration_ms",
                                             (json_int_t)ms)));
}

static void
mcp_code_sandbox_run_python(struct job *job)
{
    const char *id = job_string(job, "session_id");
    char fresh[SESSION_MAX_ID_LEN + 1];
    mcp_code_sandbox_fresh_id(fresh);
    if (mcp_code_sandbox_check_id(job))
        script_run(job, "python", JOB_SESSION_NEW, id ? id : fresh, id != NULL,
                   mcp_code_sandbox_on_ran);
}

// ---- Close ----------------------------------------------------------------------------------

static void
tell_closed(struct job *job, const char *id)
{
    (void)id;
    job_finish(job, result_of_json(job, json_pack("{s:s}", "status", "closed")));
}

static void
close_session(struct job *job)
{
    struct kg_error err = {0};
    if (!mcp_code_sandbox_check_id(job))
        return;
    struct session *session = job_find_session(job, job_string(job, "session_id"), &err);
    if (session)
        job_close_session(job, session, tell_closed);
    else
        job_fail(job, &err);
}

// ---- Table ----------------------------------------------------------------------------------

#define NEW_SESSION_PARAM                                                                          \
    {                                                                                              \
        .name = "session_id", .description = "A session of an earlier call; without it, a new one" \
    }
#define SESSION_PARAM                                                                              \
    {                                                                                              \
        .name = "session_id", .required = true, .description = "The session"                       \
    }

static const struct param upload_params[] = {
    {.name = "filename", .required = true, .description = "1 to 255 of A-Z, a-z, 0-9, ., _ and -"},
    {.name = "content_base64", .required = true, .description = "The content, as base64"},
    NEW_SESSION_PARAM,
    {.name = "overwrite",
     .type = PARAM_BOOLEAN,
     .description = "Whether to replace a file that is there",
     .fallback = "false"},
    {0},
};
static const struct param run_params[] = {
    {.name = "code", .required = true, .description = "The Python code to run"},
    NEW_SESSION_PARAM,
    {0},
};
static const struct param read_params[] = {
    SESSION_PARAM,
    {.name = "path", .required = true, .description = "The path of an artifact, as it was listed"},
    {0},
};
static const struct param session_params[] = {SESSION_PARAM, {0}};

static const struct tool tool_table[] = {
    {.name = "sandbox_upload_file",
     .title = "Upload a file",
     .description = "Puts a file into a session's working folder, for code to read. Returns "
                    "{session_id, path}.",
     .params = upload_params,
     .run = mcp_code_sandbox_upload},
    {.name = "sandbox_run_python",
     .title = "Run Python",
     .description = "Runs Python code in a session, for at most {timeout} s. Returns {session_id, "
                    "run_id, exit_code, stdout, stderr, artifacts, …}; artifacts are the files "
                    "that it wrote. Variables and files stay for the session's next run.",
     .params = run_params,
     .run = mcp_code_sandbox_run_python},
    {.name = "sandbox_read_artifact",
     .title = "Read an artifact",
     .description = "Returns a file of a session: {path, filename, mime_type, size_bytes, "
                    "content_base64}.",
     .params = read_params,
     .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
     .run = mcp_code_sandbox_read},
    {.name = "sandbox_list_artifacts",
     .title = "List artifacts",
     .description = "Lists the files of a session: {artifacts}.",
     .params = session_params,
     .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
     .run = mcp_code_sandbox_list},
    {.name = "sandbox_close_session",
     .title = "Close a session",
     .description = "Ends a session; its files are lost. Returns {status}.",
     .params = session_params,
     .hints = TOOL_DESTRUCTIVE,
     .run = close_session},
    {0},
};

static const struct mcp_provider nothing_more = {0};

const struct profile mcp_code_sandbox_profile = {
    .name = "mcp-code-sandbox",
    .instructions = "Runs Python in sandboxed sessions. Errors are answers with `error` and "
                    "`message`.",
    .tools = tool_table,
    .error_result = error_result,
    .more = &nothing_more,
};
