// SPDX-License-Identifier: Apache-2.0
// The profile `mcp-code-sandbox`: sessions, uploads, Python, artifacts. Errors are ordinary
// results.

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "script.h"

enum { ID_DIGITS = 12, RUN_DIGITS = 4, MAX_FILENAME = 255, MAX_ARTIFACT_BYTES = 10 << 20 };

// ---- Errors ---------------------------------------------------------------------------------

// Other codes keep their names.
static const struct {
    enum kg_code code;
    const char *name;
} code_names[] = {
    {KG_INVALID, "execution_failed"},          {KG_INTERNAL, "execution_failed"},
    {KG_DRAINING, "docker_unavailable"},       {KG_PROVISIONER_UNAVAILABLE, "docker_unavailable"},
    {KG_KERNEL_START_TIMEOUT, "docker_error"}, {KG_DISK_FULL, "upload_too_large"},
};

static json_t *
error_json(const char *name, const char *message)
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
    KG_AUTO_FREE char *message = kg_asprintf("%s%s%s", err->message, job->advice.len ? ". " : "",
                                             job->advice.len ? job->advice.data : "");
    return result_of_json(job, error_json(name, message));
}

static void
fail_with(struct job *job, const char *name, const char *message)
{
    job_finish(job, result_of_json(job, error_json(name, message)));
}

static const char id_prefix[] = "sess_";

// ---- Arguments ------------------------------------------------------------------------------

// Checks the form of the argument `session_id`. False: answered with an error.
static bool
check_id(struct job *job)
{
    const char *id = job_string(job, "session_id");
    size_t len = strlen(id_prefix);
    if (!id || (strncmp(id, id_prefix, len) == 0 && strlen(id) == len + ID_DIGITS &&
                strspn(id + len, "0123456789abcdef") == ID_DIGITS))
        return true;
    fail_with(job, "invalid_session_id", "session_id must be sess_ and 12 hexadecimal digits");
    return false;
}

// Makes the id of a new session, in the form that clients know.
static void
fresh_id(char ret[SESSION_MAX_ID_LEN + 1])
{
    memcpy(ret, id_prefix, sizeof id_prefix);
    id_random_hex(ret + strlen(id_prefix), ID_DIGITS);
}

static bool
check_filename(struct job *job)
{
    static const char characters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *name = job_string(job, "filename");
    size_t len = strlen(name);
    if (len > 0 && len <= MAX_FILENAME && strspn(name, characters) == len && !strstr(name, "..") &&
        strcmp(name, ".") != 0)
        return true;
    fail_with(job, "invalid_filename", "filename must be 1 to 255 of A-Z, a-z, 0-9, ., _ and -");
    return false;
}

static void
find_session(struct job *job, job_ready_fn fn)
{
    const struct job_session want = {
        .kind = JOB_SESSION_NEW, .id = job_string(job, "session_id"), .must_exist = true};
    if (check_id(job))
        job_open_session(job, &want, fn);
}

// ---- Artifacts ------------------------------------------------------------------------------

static json_t *
artifact(const struct job *job, const char *path, json_int_t size, const char *mime)
{
    const char *slash = strrchr(path, '/');
    KG_AUTO_FREE char *url = script_file_url(job, path);
    KG_AUTO_FREE char *essence = mime_essence(mime);
    return json_pack("{s:s, s:s, s:I, s:s, s:s?}", "path", path, "filename",
                     slash ? slash + 1 : path, "size_bytes", size, "mime_type", essence,
                     "download_url", url);
}

// Appends the file that `entry` describes; its path is the value of `path_key`.
static void
append_artifact(const struct job *job, json_t *artifacts, const json_t *entry, const char *path_key)
{
    const char *path = json_string_value(json_object_get(entry, path_key));
    const char *mime = json_string_value(json_object_get(entry, "mime"));
    json_int_t size = json_integer_value(json_object_get(entry, "size"));
    if (path)
        json_array_append_new(artifacts, artifact(job, path, size, mime));
}

// The files that a run has written.
static json_t *
artifacts_of(const struct job *job)
{
    json_t *artifacts = json_array();
    size_t i;
    json_t *file;
    json_array_foreach(job->outcome.files, i, file)
        append_artifact(job, artifacts, file, "file");
    return artifacts;
}

static void
mcp_code_sandbox_on_listed(const json_t *page, const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, page, err);
    if (!job)
        return;
    json_t *artifacts = json_array();
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(page, "files"), i, entry) {
        const char *type = json_string_value(json_object_get(entry, "type"));
        if (type && strcmp(type, "file") == 0)
            append_artifact(job, artifacts, entry, "path");
    }
    job_finish(job, result_of_json(job, json_pack("{s:o}", "artifacts", artifacts)));
}

static void
list_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct kg_error err = {0};
    static const struct session_files_query query = {.limit = SESSION_FILES_PAGE_MAX};
    job_set_file_work(
        job, session_files_list(session, &query, mcp_code_sandbox_on_listed, job, &err), &err);
}

static void
list_artifacts(struct job *job)
{
    find_session(job, list_in);
}

static void
finish_artifact(struct job *job, json_t *base64, bool is_text)
{
    (void)is_text;
    json_t *value = KG_STEAL(job->list.gathered);
    json_object_set_new(value, "content_base64", base64);
    job_finish(job, result_of_own_json(job, value));
}

static void
mcp_code_sandbox_on_read(const struct session_file *file, const void *data, size_t len,
                         const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, file, err);
    if (!job)
        return;
    job->list.gathered = artifact(job, file->path, (json_int_t)len, file->mime);
    json_object_del(job->list.gathered, "download_url");
    job_bytes_as_string(job, data, len, false, finish_artifact);
}

// The result for a file that is too large has its link.
static void
mcp_code_sandbox_on_found(struct job *job, struct session *session, const struct session_file *file)
{
    struct kg_error err = {0};
    if (file->size <= MAX_ARTIFACT_BYTES) {
        job_set_file_work(job,
                          session_file_read(session, job_file_path(job), MAX_ARTIFACT_BYTES,
                                            mcp_code_sandbox_on_read, job, &err),
                          &err);
        return;
    }
    json_t *value = error_json("artifact_too_large", "the file is too large to be returned");
    KG_AUTO_FREE char *url = script_file_url(job, file->path);
    json_object_set_new(value, "size_bytes", json_integer(file->size));
    if (url)
        json_object_set_new(value, "download_url", json_string(url));
    job_finish(job, result_of_json(job, value));
}

static void
read_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    job_find_file(job, session, mcp_code_sandbox_on_found);
}

static void
read_artifact(struct job *job)
{
    const char *path;
    struct kg_error err = {0};
    if (path_in_session(job_string(job, "path"), &path, &err) < 0)
        job_fail(job, &err);
    else
        find_session(job, read_in);
}

// ---- Upload ---------------------------------------------------------------------------------

static void
mcp_code_sandbox_on_uploaded(const struct session_file *file, bool created,
                             const struct kg_error *err, void *arg)
{
    (void)created;
    struct job *job = job_after_work(arg, file, err);
    if (!job)
        return;
    job_finish(job, result_of_json(job, json_pack("{s:s, s:s}", "session_id", job->session.id,
                                                  "path", file->path)));
}

static void
upload_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct kg_error err = {0};
    const struct session_file_source source = {.data = job->file.data.data,
                                               .len = job->file.data.len};
    bool keep = !job_bool(job, "overwrite", false);
    job_set_file_work(job,
                      session_file_put(session, job_string(job, "filename"), &source, keep,
                                       mcp_code_sandbox_on_uploaded, job, &err),
                      &err);
}

static void
upload_decoded(struct job *job)
{
    const char *id = job_string(job, "session_id");
    char fresh[SESSION_MAX_ID_LEN + 1];
    fresh_id(fresh);
    script_open(job, "python", JOB_SESSION_NEW, id ? id : fresh, id != NULL, upload_in);
}

static void
upload_file(struct job *job)
{
    if (check_filename(job) && check_id(job))
        job_decode_base64(job, job_string(job, "content_base64"), upload_decoded);
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
                                             artifacts_of(job), "duration_ms", (json_int_t)ms)));
}

static void
run_python(struct job *job)
{
    const char *id = job_string(job, "session_id");
    char fresh[SESSION_MAX_ID_LEN + 1];
    fresh_id(fresh);
    if (check_id(job))
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
    if (!check_id(job))
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
     .run = upload_file},
    {.name = "sandbox_run_python",
     .title = "Run Python",
     .description = "Runs Python code in a session, for at most {timeout} s. Returns {session_id, "
                    "run_id, exit_code, stdout, stderr, artifacts, …}; artifacts are the files "
                    "that it wrote. Variables and files stay for the session's next run.",
     .params = run_params,
     .run = run_python},
    {.name = "sandbox_read_artifact",
     .title = "Read an artifact",
     .description = "Returns a file of a session: {path, filename, mime_type, size_bytes, "
                    "content_base64}.",
     .params = read_params,
     .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
     .run = read_artifact},
    {.name = "sandbox_list_artifacts",
     .title = "List artifacts",
     .description = "Lists the files of a session: {artifacts}.",
     .params = session_params,
     .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
     .run = list_artifacts},
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
