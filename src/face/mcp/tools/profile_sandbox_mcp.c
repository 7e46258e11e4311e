// SPDX-License-Identifier: Apache-2.0
// The profile `sandbox-mcp`: the MCP tools of a REST gateway.

#include <string.h>

#include "script.h"
#include "session_downloads.h"

enum { DOWNLOAD_S = 30, MAX_DOWNLOAD_S = 600 };

static json_t *
error_result(struct job *job, const struct kg_error *err)
{
    return result_of_error_json(job, json_pack("{s:s, s:[], s:s}", "error", err->message,
                                               "traceback", "code", kg_code_info(err->code)->name));
}

// ---- Execute --------------------------------------------------------------------------------

static json_t *
images_of(struct job *job)
{
    json_t *images = json_array();
    for (size_t i = 0; i < job->outcome.n_items; i++) {
        struct outcome_item *item = &job->outcome.items[i];
        if (outcome_has_image(item))
            json_array_append_new(images, json_pack("{s:s, s:s, s:o}", "type", "image", "format",
                                                    item->format, "data", image_string(job, item)));
    }
    return images;
}

// Printed text of both streams, and displays as text.
static json_t *
output_of(const struct job *job)
{
    const struct outcome *outcome = &job->outcome;
    KG_AUTO_BUF text = {0};
    text_append_to(&outcome->out, &text);
    text_append_to(&outcome->err, &text);
    for (size_t i = 0; i < outcome->n_items; i++) {
        const struct outcome_item *item = &outcome->items[i];
        if (item->text && !(outcome_has_image(item) && !item->is_result))
            buf_append(&text, item->text, item->text_len);
    }
    return json_stringn(text.data ? text.data : "", text.len);
}

static void
sandbox_mcp_on_ran(struct job *job)
{
    // After a timeout the first error is from the interrupt; the last one says why.
    const char *error = outcome_error(&job->outcome);
    json_t *value;
    if (error)
        value =
            json_pack("{s:s, s:O}", "error", error, "traceback", job->outcome.errors[0].traceback);
    else
        value = json_pack("{s:o, s:o, s:s}", "output", output_of(job), "images", images_of(job),
                          "session_id", job->session.id);
    if (job->session.note == JOB_NOTE_AGAIN)
        json_object_set_new(value, "note", json_string("the session had ended; this is a new one"));
    job_finish(job, result_of_own_json(job, value));
}

static void
execute_python_code(struct job *job)
{
    script_run(job, "python", JOB_SESSION_NEW, job_string(job, "session_id"), false,
               sandbox_mcp_on_ran);
}

// ---- Sessions -------------------------------------------------------------------------------

static void
list_active_sessions(struct job *job)
{
    json_auto_t *all = job_describe_sessions(job);
    json_t *sessions = json_object();
    const char *id;
    json_t *about;
    json_object_foreach(all, id, about)
        json_object_set_new(sessions, id,
                            json_pack("{s:O, s:O, s:s}", "execution_count",
                                      json_object_get(about, "execution_count"), "last_activity",
                                      json_object_get(about, "last_activity"), "status", "active"));
    job_finish(job, result_of_json(job, json_pack("{s:I, s:o}", "total",
                                                  (json_int_t)json_object_size(sessions),
                                                  "sessions", sessions)));
}

static void
tell_status(struct job *job, const char *status, const char *message)
{
    job_finish(job,
               result_of_json(job, json_pack("{s:s, s:s}", "status", status, "message", message)));
}

static void
tell_terminated(struct job *job, const char *id)
{
    KG_AUTO_FREE char *message = kg_asprintf("Session %s terminated", id);
    tell_status(job, "success", message);
}

static void
terminate_session(struct job *job)
{
    struct kg_error err = {0};
    struct session *session = job_find_session(job, job_string(job, "session_id"), &err);
    if (session)
        job_close_session(job, session, tell_terminated);
    else
        tell_status(job, err.code == KG_SESSION_NOT_FOUND ? "warning" : "error", err.message);
}

// ---- Sessions with files --------------------------------------------------------------------

static void
tell_created(struct job *job, json_t *files, json_t *errors)
{
    bool partly = json_array_size(errors) > 0;
    job_finish(job,
               result_of_json(job, json_pack("{s:s, s:s, s:o, s:o, s:s}", "session_id",
                                             job->session.id, "working_directory",
                                             working_directory, "downloaded_files", files, "errors",
                                             errors, "status", partly ? "partial" : "success")));
}

static void
on_downloaded(const json_t *files, const json_t *errors, void *arg)
{
    struct job *job = arg;
    job->work = NULL;
    tell_created(job, json_deep_copy(files), json_deep_copy(errors));
}

static void
cancel_downloads(void *work)
{
    session_downloads_cancel(work);
}

// Files that have arrived are kept.
static void
profile_sandbox_mcp_on_deadline(void *arg)
{
    struct job *job = arg;
    session_downloads_cancel(KG_STEAL(job->work));
    tell_created(job, json_array(),
                 json_pack("[{s:s}]", "error",
                           "the downloads took longer than their timeout; what "
                           "arrived by then is in the working folder"));
}

static void
download_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    const json_t *urls = job_value(job, "file_urls");
    size_t n = json_array_size(urls);
    if (n == 0) {
        tell_created(job, json_array(), json_array());
        return;
    }
    struct session_download downloads[SESSION_DOWNLOADS_MAX] = {0};
    for (size_t i = 0; i < n; i++)
        downloads[i].url = json_string_value(json_array_get(urls, i));
    job->cancel_work = cancel_downloads;
    job->work = session_downloads_start(session, downloads, n, on_downloaded, job);
    job->deadline = loop_timer_new(job->tools->settings.loop, profile_sandbox_mcp_on_deadline, job);
    loop_timer_start(job->deadline, (int64_t)(job_number(job, "timeout", DOWNLOAD_S) * 1000));
}

static void
create_session_with_files(struct job *job)
{
    struct kg_error err = {0};
    double timeout_s = job_number(job, "timeout", DOWNLOAD_S);
    if (json_array_size(job_value(job, "file_urls")) > SESSION_DOWNLOADS_MAX)
        kg_error_set(&err, KG_INVALID, 0, "file_urls must have at most %d URLs",
                     SESSION_DOWNLOADS_MAX);
    else if (!(timeout_s > 0 && timeout_s <= MAX_DOWNLOAD_S))
        kg_error_set(&err, KG_INVALID, 0, "timeout must be above 0 and at most %d seconds",
                     MAX_DOWNLOAD_S);
    if (err.code != KG_OK)
        job_fail(job, &err);
    else
        script_open(job, "python", JOB_SESSION_NEW, job_string(job, "session_id"), false,
                    download_in);
}

// ---- Table ----------------------------------------------------------------------------------

static const struct param execute_params[] = {
    {.name = "code", .required = true, .description = "The Python code to run"},
    {.name = "session_id",
     .description = "A session of an earlier call, whose variables are to be there; without it, a "
                    "new one"},
    {.name = "timeout",
     .type = PARAM_NUMBER,
     .description = "Seconds, {timeout} unless given, at most {max_timeout}"},
    {0},
};
static const struct param session_params[] = {
    {.name = "session_id", .required = true, .description = "The session to end"},
    {0},
};
static const struct param create_params[] = {
    {.name = "session_id", .description = "A name for the session; without it, a random one"},
    {.name = "file_urls",
     .type = PARAM_STRINGS,
     .description = "http and https URLs of files to download into the working folder"},
    {.name = "timeout",
     .type = PARAM_NUMBER,
     .description = "Seconds for the downloads",
     .fallback = "30"},
    {0},
};
static const struct param no_params[] = {{0}};

static const struct tool tool_table[] = {
    {.name = "execute_python_code",
     .title = "Run Python",
     .description = "Runs Python code in a session and returns {output, images, session_id}, or "
                    "{error, traceback}. Pass session_id on to keep variables.",
     .params = execute_params,
     .hints = TOOL_DESTRUCTIVE,
     .run = execute_python_code},
    {.name = "list_active_sessions",
     .title = "List sessions",
     .description = "Lists the sessions that live: {total, sessions}.",
     .params = no_params,
     .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_LISTS_SESSIONS,
     .run = list_active_sessions},
    {.name = "terminate_session",
     .title = "End a session",
     .description = "Ends a session; its variables and files are lost. Returns {status, message}.",
     .params = session_params,
     .hints = TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT,
     .run = terminate_session},
    {.name = "create_session_with_files",
     .title = "Create a session with files",
     .description = "Makes a session, and downloads files into its working folder. Returns "
                    "{session_id, working_directory, downloaded_files, errors, status}.",
     .params = create_params,
     .run = create_session_with_files},
    {0},
};

// ---- The resource and the prompt ------------------------------------------------------------

static const char session_scheme[] = "session://";

static json_t *
list_templates(const char *profile, void *arg)
{
    (void)profile;
    (void)arg;
    return json_pack("[{s:s, s:s, s:s, s:s, s:s}]", "uriTemplate", "session://{session_id}", "name",
                     "session", "title", "Session", "description",
                     "What a session is doing and when it expires.", "mimeType",
                     "application/json");
}

static bool
read_session(struct mcp_call *call, void *arg)
{
    const struct mcp_tools *tools = arg;
    const char *uri = mcp_call_name(call);
    if (strncmp(uri, session_scheme, strlen(session_scheme)) != 0)
        return false;
    const struct session *session = sessions_find(
        tools->settings.face->sessions, mcp_call_owner(call), uri + strlen(session_scheme), NULL);
    if (!session)
        return false;
    json_auto_t *about = session_describe(session);
    KG_AUTO_FREE char *text = json_dumps(about, JSON_INDENT(2));
    mcp_call_finish(call, json_pack("{s:[{s:s, s:s, s:s}]}", "contents", "uri", uri, "mimeType",
                                    "application/json", "text", text));
    return true;
}

static const char prompt_name[] = "code_execution_prompt";

static json_t *
list_prompts(const char *profile, void *arg)
{
    (void)profile;
    (void)arg;
    return json_pack("[{s:s, s:s, s:s, s:[{s:s, s:s, s:b}, {s:s, s:s, s:b}, {s:s, s:s, s:b}]}]",
                     "name", prompt_name, "title", "Solve a task with code", "description",
                     "A task to be solved by writing and running Python code.", "arguments", "name",
                     "task_description", "description", "What the code is to do.", "required", 1,
                     "name", "code_style", "description", "clean (the default), or another style.",
                     "required", 0, "name", "include_comments", "description",
                     "\"true\" (the default) or \"false\".", "required", 0);
}

static bool
get_prompt(struct mcp_call *call, void *arg)
{
    (void)arg;
    if (strcmp(mcp_call_name(call), prompt_name) != 0)
        return false;
    const json_t *args = mcp_call_arguments(call);
    const char *task = json_string_value(json_object_get(args, "task_description"));
    const char *style = json_string_value(json_object_get(args, "code_style"));
    const char *comments = json_string_value(json_object_get(args, "include_comments"));
    if (!task) {
        mcp_call_fail(call, MCP_INVALID_PARAMS, NULL, "task_description is missing");
        return true;
    }
    bool commented = !comments || strcasecmp(comments, "false") != 0;
    KG_AUTO_FREE char *text = kg_asprintf(
        "Write Python code for this task, and run it with execute_python_code:\n\n%s\n\nStyle: "
        "%s. %s. Run it, look at the result, and fix what fails; pass session_id on from call to "
        "call to keep variables.",
        task, style ? style : "clean",
        commented ? "Explain it with comments" : "Write no comments");
    mcp_call_finish(call, json_pack("{s:[{s:s, s:o}]}", "messages", "role", "user", "content",
                                    mcp_text(text, strlen(text))));
    return true;
}

static const struct mcp_provider more = {
    .list_resource_templates = list_templates,
    .read_resource = read_session,
    .list_prompts = list_prompts,
    .get_prompt = get_prompt,
};

const struct profile sandbox_mcp_profile = {
    .name = "sandbox-mcp",
    .instructions = "Runs Python code in sessions: execute_python_code returns a session_id; pass "
                    "it on to keep variables.",
    .tools = tool_table,
    .error_result = error_result,
    .more = &more,
};
