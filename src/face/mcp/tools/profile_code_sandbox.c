// SPDX-License-Identifier: Apache-2.0
// The profile `code-sandbox`: each call has a sandbox of its own. Results are text after success,
// and JSON after a failure.

#include <ctype.h>
#include <string.h>

#include "script.h"

// ---- Running --------------------------------------------------------------------------------

static json_t *
stripped(const json_t *value)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        len--;
    for (; len > 0 && isspace((unsigned char)*text); len--)
        text++;
    return json_stringn(text, len);
}

static void
code_sandbox_on_ran(struct job *job)
{
    bool cut;
    json_auto_t *out = script_stdout(job, &cut);
    json_auto_t *err = script_stderr(job, &cut);
    if (!outcome_is_ok(&job->outcome)) {
        job_finish(job, result_of_json(job, json_pack("{s:i, s:O, s:O}", "exit_code",
                                                      script_exit_code(job), "stderr", err,
                                                      "stdout", out)));
        return;
    }
    json_auto_t *text = stripped(json_string_length(out) > 0 ? out : err);
    static const char nothing[] = "The code ran without output; print() shows a value.";
    bool empty = json_string_length(text) == 0;
    json_t *content =
        json_pack("[o]", mcp_text(empty ? nothing : json_string_value(text),
                                  empty ? strlen(nothing) : json_string_length(text)));
    append_images(content, job);
    job_finish(job, mcp_tool_result(content, NULL, false));
}

static void
code_sandbox_run_python(struct job *job)
{
    script_run(job, "python", JOB_SESSION_ONE_SHOT, NULL, false, code_sandbox_on_ran);
}

static void
run_javascript(struct job *job)
{
    script_run(job, "javascript", JOB_SESSION_ONE_SHOT, NULL, false, code_sandbox_on_ran);
}

static json_t *
error_result(struct job *job, const struct kg_error *err)
{
    return result_of_error_json(job, json_pack("{s:i, s:s, s:s, s:s}", "exit_code", 1, "stderr",
                                               err->message, "stdout", "", "code",
                                               kg_code_info(err->code)->name));
}

static const struct param code_params[] = {
    {.name = "code", .required = true, .description = "The code to run."},
    {0},
};

#define PYTHON_TEXT                                                                                \
    "Runs Python code in a sandbox of its own, which ends with the call: nothing is kept. "        \
    "Returns "                                                                                     \
    "what it printed; print() what you want to see. Figures come as images."
#define JAVASCRIPT_TEXT                                                                            \
    "Runs JavaScript code in a sandbox of its own, which ends with the call: nothing is kept. "    \
    "Returns what it logged; console.log() what you want to see."

static const struct tool tool_table[] = {
    {.name = "run_python_code",
     .title = "Run Python",
     .description = PYTHON_TEXT,
     .params = code_params,
     .language = "python",
     .run = code_sandbox_run_python},
    {.name = "run_javascript_code",
     .title = "Run JavaScript",
     .description = JAVASCRIPT_TEXT,
     .params = code_params,
     .language = "javascript",
     .run = run_javascript},
    {.name = "run_js_code",
     .title = "Run JavaScript",
     .description = JAVASCRIPT_TEXT " The same as run_javascript_code.",
     .params = code_params,
     .language = "javascript",
     .run = run_javascript},
    {0},
};

// ---- The resource ---------------------------------------------------------------------------

static const char environments_uri[] = "sandbox://environments";

static void
list_environments(struct mcp_call *call, void *arg)
{
    (void)arg;
    mcp_call_finish(call,
                    json_pack("{s:[{s:s, s:s, s:s, s:s, s:s}]}", "resources", "uri",
                              environments_uri, "name", "environments", "title", "Environments",
                              "description", "The images and libraries that code runs with.",
                              "mimeType", "application/json"));
}

// {image, installed_libraries} of each available language.
static void
on_libraries(struct job *job)
{
    bool cut;
    const struct mcp_tools_settings *settings = &job->tools->settings;
    json_auto_t *out = script_stdout(job, &cut);
    json_t *libraries = json_loads(json_string_value(out), 0, NULL);
    json_t *about = json_pack("{s:{s:s, s:o}}", "python", "image", settings->image,
                              "installed_libraries", libraries ? libraries : json_array());
    if (kernelspecs_find(settings->face->specs, "javascript", NULL))
        json_object_set_new(
            about, "javascript",
            json_pack("{s:s, s:[]}", "image", settings->image, "installed_libraries"));
    KG_AUTO_FREE char *text = json_dumps(about, JSON_INDENT(2));
    json_decref(about);
    job_finish(job, json_pack("{s:[{s:s, s:s, s:s}]}", "contents", "uri", environments_uri,
                              "mimeType", "application/json", "text", text));
}

static void
ask_for_libraries(struct job *job, struct session *session, struct kernel *kernel)
{
    static const char code[] =
        "import importlib.metadata as m, json\n"
        "print(json.dumps(sorted({d.name for d in m.distributions() if d.name})))";
    job_run(job, session, kernel, code, job->tools->settings.face->default_timeout_ms,
            on_libraries);
}

static bool
read_environments(struct mcp_call *call, void *arg)
{
    if (strcmp(mcp_call_name(call), environments_uri) != 0)
        return false;
    struct job *job = job_new(arg, call, error_result);
    script_open(job, "python", JOB_SESSION_ONE_SHOT, NULL, false, ask_for_libraries);
    return true;
}

static const struct mcp_provider more = {
    .list_resources = list_environments,
    .read_resource = read_environments,
};

const struct profile code_sandbox_profile = {
    .name = "code-sandbox",
    .instructions = "Runs Python and JavaScript code, each call in a fresh sandbox.",
    .tools = tool_table,
    .error_result = error_result,
    .more = &more,
};
