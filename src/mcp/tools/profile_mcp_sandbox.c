// SPDX-License-Identifier: Apache-2.0
// The profile `mcp-sandbox`: named sandboxes with Python, a terminal, files by link.

#include <string.h>

#include "local_file.h"
#include "profile_mcp_sandbox.h"

static json_t *
error_result(struct job *job, const struct kg_error *err)
{
    json_t *result = result_of_json(job, json_pack("{s:s, s:s, s:b}", "error", err->message, "code",
                                                   kg_code_info(err->code)->name, "success", 0));
    json_object_set_new(result, "isError", json_true());
    return result;
}

void
mcp_sandbox_find(struct job *job, const struct kernelspec *spec,
                 void (*fn)(struct job *job, struct session *session, struct kernel *kernel))
{
    const struct job_session want = {.kind = JOB_SESSION_NEW,
                                     .id = job_string(job, "sandbox_id"),
                                     .must_exist = true,
                                     .spec = spec};
    job_start_progress(job);
    job_open_session(job, &want, fn);
}

// ---- Python and the terminal ----------------------------------------------------------------

static void
mcp_sandbox_on_ran(struct job *job)
{
    bool cut;
    json_t *files = json_array(), *links = json_array();
    size_t i;
    json_t *file;
    json_array_foreach(job->outcome.files, i, file) {
        const char *path = json_string_value(json_object_get(file, "file"));
        KG_AUTO_FREE char *url = path ? script_file_url(job, path) : NULL;
        if (path)
            json_array_append_new(files, json_sprintf("%s/%s", working_directory, path));
        if (url)
            json_array_append_new(links, json_string(url));
    }
    json_t *value = json_pack("{s:o, s:o, s:i, s:o, s:o}", "stdout", script_stdout(job, &cut),
                              "stderr", script_stderr(job, &cut), "exit_code",
                              script_exit_code(job), "files", files, "file_links", links);
    if (outcome_error(&job->outcome))
        json_object_set_new(value, "error", json_string(outcome_error(&job->outcome)));
    job_finish(job, result_of_json(job, value));
}

static void
execute_python_code(struct job *job)
{
    script_run(job, "python", JOB_SESSION_NEW, job_string(job, "sandbox_id"), true,
               mcp_sandbox_on_ran);
}

static void
on_command_ended(struct job *job)
{
    bool cut;
    job_finish(job,
               result_of_json(job, json_pack("{s:o, s:o, s:i}", "stdout", script_stdout(job, &cut),
                                             "stderr", script_stderr(job, &cut), "exit_code",
                                             job->command.result.exit_code)));
}

static void
command_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    const struct sandbox_command_spec spec = {
        .command = job_string(job, "command"),
        .timeout_ms = job->tools->settings.face->default_timeout_ms,
        .max_output_bytes = job->tools->settings.face->max_output_bytes,
    };
    job_run_command(job, session, &spec, on_command_ended);
}

static void
execute_terminal_command(struct job *job)
{
    mcp_sandbox_find(job, NULL, command_in);
}

// ---- Upload ---------------------------------------------------------------------------------

static const char results_folder[] = "/app/results"; // what its clients call the working folder

static void
mcp_sandbox_on_uploaded(const struct session_file *file, bool created, const struct kg_error *err,
                        void *arg)
{
    (void)created;
    struct job *job = job_after_work(arg, file, err);
    if (!job)
        return;
    job_finish(job, result_of_json(job, json_pack("{s:b, s:o}", "success", 1, "message",
                                                  json_sprintf("Uploaded to %s/%s",
                                                               working_directory, file->path))));
}

int
mcp_sandbox_path(const char *path, const char **ret, struct kg_error *err)
{
    size_t len = strlen(results_folder);
    if (strncmp(path, results_folder, len) != 0 || (path[len] && path[len] != '/'))
        return path_in_session(path, ret, err);
    *ret = path + len + (path[len] == '/');
    return 0;
}

static int
upload_path(const struct job *job, char **ret, struct kg_error *err)
{
    const char *local = job_string(job, "local_file_path"), *slash = strrchr(local, '/');
    const char *folder = job_string(job, "dest_path");
    if (mcp_sandbox_path(folder ? folder : results_folder, &folder, err) < 0)
        return -1;
    size_t n = strlen(folder);
    while (n > 0 && folder[n - 1] == '/')
        n--;
    *ret = kg_asprintf("%.*s%s%s", (int)n, folder, n ? "/" : "", slash ? slash + 1 : local);
    return 0;
}

static void
upload_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = NULL;
    if (upload_path(job, &path, &err) < 0) {
        job_fail(job, &err);
        return;
    }
    const struct session_file_source source = {.data = job->file.data.data,
                                               .len = job->file.data.len};
    job_set_file_work(
        job, session_file_put(session, path, &source, false, mcp_sandbox_on_uploaded, job, &err),
        &err);
}

static void
on_local_read(const struct kg_error *err, void *arg)
{
    struct job *job = arg;
    job->work = NULL;
    if (err)
        job_fail(job, err);
    else
        mcp_sandbox_find(job, NULL, upload_in);
}

static void
upload_file(struct job *job)
{
    const struct mcp_tools_settings *settings = &job->tools->settings;
    struct kg_error err = {0};
    if (settings->upload_root)
        job->work = local_read_start(
            settings->loop, settings->upload_root, job_string(job, "local_file_path"),
            settings->face->max_upload_bytes, &job->file.data, on_local_read, job, &err);
    else
        kg_error_set(&err, KG_INVALID_PATH, 0,
                     "files of the gateway's machine can be uploaded over stdio, or with "
                     "--upload-root");
    job->cancel_work = local_read_cancel;
    if (!job->work)
        job_fail(job, &err);
}

// ---- Table ----------------------------------------------------------------------------------

#define SANDBOX_PARAM                                                                              \
    {                                                                                              \
        .name = "sandbox_id", .required = true,                                                    \
        .description = "The sandbox, as create_sandbox or list_sandboxes told it"                  \
    }

static const struct param create_params[] = {
    {.name = "name", .description = "A name for people"},
    {0},
};
static const struct param package_params[] = {
    SANDBOX_PARAM,
    {.name = "package_name", .required = true, .description = "As for pip: name, or name==version"},
    {0},
};
static const struct param code_params[] = {
    SANDBOX_PARAM,
    {.name = "code", .required = true, .description = "The Python code to run"},
    {0},
};
static const struct param command_params[] = {
    SANDBOX_PARAM,
    {.name = "command", .required = true, .description = "A command line for sh"},
    {0},
};
static const struct param upload_params[] = {
    SANDBOX_PARAM,
    {.name = "local_file_path",
     .required = true,
     .description = "A file of the machine that this server runs on"},
    {.name = "dest_path",
     .description = "The folder to put it into",
     .fallback = "\"/app/results\""},
    {0},
};
static const struct param no_params[] = {{0}};

static const struct tool tool_table[] = {
    {.name = "list_sandboxes",
     .title = "List sandboxes",
     .description = "Lists your sandboxes: [{sandbox_id, name, installed_packages}].",
     .params = no_params,
     .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
     .run = mcp_sandbox_list},
    {.name = "create_sandbox",
     .title = "Create a sandbox",
     .description = "Makes a sandbox and returns its sandbox_id, for the other tools. Use one for "
                    "all steps of a task.",
     .params = create_params,
     .run = mcp_sandbox_create},
    {.name = "install_package_in_sandbox",
     .title = "Install a package",
     .description = "Installs a Python package. What takes longer than 5 s goes on; then ask "
                    "check_package_installation_status.",
     .params = package_params,
     .hints = TOOL_IDEMPOTENT,
     .run = mcp_sandbox_install},
    {.name = "check_package_installation_status",
     .title = "Check an installation",
     .description = "Says whether a package is installed, being installed, or failed.",
     .params = package_params,
     .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
     .run = mcp_sandbox_check_package},
    {.name = "execute_python_code",
     .title = "Run Python",
     .description = "Runs Python code in a sandbox; variables stay from call to call. Returns "
                    "{stdout, stderr, exit_code, files, file_links}: print() what you want to "
                    "see; files written to the working folder come as links.",
     .params = code_params,
     .hints = TOOL_DESTRUCTIVE,
     .run = execute_python_code},
    {.name = "execute_terminal_command",
     .title = "Run a command",
     .description = "Runs a shell command in a sandbox: {stdout, stderr, exit_code}.",
     .params = command_params,
     .hints = TOOL_DESTRUCTIVE,
     .run = execute_terminal_command},
    {.name = "upload_file_to_sandbox",
     .title = "Upload a file",
     .description = "Copies a file of the server's machine into a sandbox.",
     .params = upload_params,
     .hints = TOOL_DESTRUCTIVE,
     .run = upload_file},
    {0},
};

static const struct mcp_provider nothing_more = {0};

const struct profile mcp_sandbox_profile = {
    .name = "mcp-sandbox",
    .instructions = "Python sandboxes: create_sandbox, then execute_python_code with its "
                    "sandbox_id; install_package_in_sandbox for what is missing.",
    .tools = tool_table,
    .error_result = error_result,
    .more = &nothing_more,
};
