// SPDX-License-Identifier: Apache-2.0
// The profile `mcp-sandbox`: named sandboxes with Python, a terminal, packages, links to files.

#include <string.h>

#include "file_links.h"
#include "local_file.h"
#include "script.h"
#include "session_packages.h"

enum { PATIENCE_MS = 5000, LOOK_MS = 100, MAX_NAME = 200 };

static json_t *
error_result(struct job *job, const struct kg_error *err)
{
    return result_of_error_json(job, json_pack("{s:s, s:s, s:b}", "error", err->message, "code",
                                               kg_code_info(err->code)->name, "success", 0));
}

static void
find_sandbox(struct job *job, const struct kernelspec *spec, job_ready_fn fn)
{
    const struct job_session want = {.kind = JOB_SESSION_NEW,
                                     .id = job_string(job, "sandbox_id"),
                                     .must_exist = true,
                                     .spec = spec};
    job_start_progress(job);
    job_open_session(job, &want, fn);
}

// ---- Names ----------------------------------------------------------------------------------

// Names are kept until the gateway ends. Those of ended sandboxes are removed here.
static void
set_name(struct mcp_tools *tools, const char *owner, const char *id, const char *name)
{
    const char *key;
    void *next;
    json_t *value;
    json_object_foreach_safe(tools->names, next, key, value)
    {
        const char *slash = strchr(key, '/');
        KG_AUTO_FREE char *of = kg_strndup(key, (size_t)(slash - key));
        if (!sessions_find(tools->settings.face->sessions, of, slash + 1, NULL))
            json_object_del(tools->names, key);
    }
    KG_AUTO_FREE char *new_key = kg_asprintf("%s/%s", owner, id);
    json_object_set_new(tools->names, new_key, json_string(name));
}

static char *
name_of(const struct mcp_tools *tools, const char *owner, const char *id)
{
    KG_AUTO_FREE char *key = kg_asprintf("%s/%s", owner, id);
    const char *name = json_string_value(json_object_get(tools->names, key));
    return name ? kg_strdup(name) : kg_asprintf("sandbox %s", id);
}

// ---- Sandboxes ------------------------------------------------------------------------------

static void
mcp_sandbox_on_created(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)session;
    (void)kernel;
    const char *name = job_string(job, "name"), *owner = mcp_call_owner(job->call);
    if (name)
        set_name(job->tools, owner, job->session.id, name);
    KG_AUTO_FREE char *known = name_of(job->tools, owner, job->session.id);
    job_finish(job,
               result_of_json(job, json_pack("{s:s, s:s, s:s, s:s}", "sandbox_id", job->session.id,
                                             "user_id", owner, "name", known, "status", "active")));
}

static void
create_sandbox(struct job *job)
{
    const char *name = job_string(job, "name");
    struct kg_error err = {0};
    if (name && strlen(name) > MAX_NAME) {
        kg_error_set(&err, KG_INVALID, 0, "name must have at most %d bytes", MAX_NAME);
        job_fail(job, &err);
        return;
    }
    script_open(job, "python", JOB_SESSION_NEW, NULL, false, mcp_sandbox_on_created);
}

static void
cancel_packages(void *work)
{
    session_packages_cancel(work);
}

static void list_next(struct job *job);

static void
on_packages(const json_t *body, const struct kg_error *err, void *arg)
{
    (void)err; // then none are listed
    struct job *job = arg;
    job->work = NULL;
    json_t *names = json_array();
    size_t i;
    json_t *package;
    json_array_foreach(json_object_get(body, "packages"), i, package) {
        const char *status = json_string_value(json_object_get(package, "status"));
        if (status && strcmp(status, "installed") == 0)
            json_array_append(names, json_object_get(package, "name"));
    }
    json_t *entry = json_array_get(job->list.gathered, json_array_size(job->list.gathered) - 1);
    json_object_set_new(entry, "installed_packages", names);
    list_next(job);
}

static void
list_next(struct job *job)
{
    struct sessions *sessions = job->tools->settings.face->sessions;
    const char *owner = mcp_call_owner(job->call);
    job->cancel_work = cancel_packages;
    while (json_array_size(job->list.waiting) > 0 && !job->work) {
        const char *id = json_string_value(json_array_get(job->list.waiting, 0));
        struct session *session = sessions_find(sessions, owner, id, NULL);
        KG_AUTO_FREE char *name = name_of(job->tools, owner, id);
        if (session) {
            json_array_append_new(job->list.gathered,
                                  json_pack("{s:s, s:s, s:[]}", "sandbox_id", id, "name", name,
                                            "installed_packages"));
            if (session_sandbox(session))
                job->work = session_packages_list(session, NULL, on_packages, job, NULL);
        }
        json_array_remove(job->list.waiting, 0);
    }
    if (!job->work)
        job_finish(job, result_of_json(job, json_incref(job->list.gathered)));
}

static void
list_sandboxes(struct job *job)
{
    job->list.gathered = json_array();
    job->list.waiting = job_session_ids(job);
    list_next(job);
}

// ---- Packages -------------------------------------------------------------------------------

static json_t *
installed_json(const json_t *package)
{
    const char *status = json_string_value(json_object_get(package, "status"));
    const char *version = json_string_value(json_object_get(package, "version"));
    const char *message = json_string_value(json_object_get(package, "message"));
    const char *name = json_string_value(json_object_get(package, "name"));
    bool ok = status && strcmp(status, "installed") == 0;
    char when[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(clock_wall_ms(), when);
    json_t *value = json_pack(
        "{s:s, s:o, s:b, s:b, s:s}", "status", ok ? "success" : "failed", "message",
        ok ? json_sprintf("%s %s is installed", name ? name : "the package", version ? version : "")
           : json_sprintf("%s was not installed", name ? name : "it"),
        "complete", 1, "success", ok, "end_time", when);
    if (!ok && message)
        json_object_set_new(value, "stderr", json_string(message));
    return value;
}

static json_t *
installing_json(const struct job *job)
{
    return json_pack("{s:n, s:s, s:o}", "success", "status", "installing", "message",
                     json_sprintf("%s is being installed; ask check_package_installation_status",
                                  job_string(job, "package_name")));
}

static void
on_installed(const json_t *result, const struct kg_error *err, void *arg)
{
    struct job *job = arg;
    job->work = NULL;
    if (result)
        job_finish(job, result_of_json(job, installed_json(json_array_get(
                                                json_object_get(result, "packages"), 0))));
    else
        job_fail(job, err);
}

static void
on_impatient(void *arg)
{
    struct job *job = arg;
    job_finish(job, result_of_json(job, installing_json(job)));
}

static void
leave_install(void *work)
{
    session_install_leave(work);
}

static void
install_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    static const struct session_install_events events = {.on_end = on_installed};
    struct kg_error err = {0};
    json_auto_t *requirements = json_pack("[s]", job_string(job, "package_name"));
    if (session_packages_check(requirements, &err) == 0)
        job->work = session_install_start(session, requirements, &events, job, &err);
    job->cancel_work = leave_install;
    if (!job->work) {
        job_fail(job, &err);
        return;
    }
    job->deadline = loop_timer_new(job->tools->settings.loop, on_impatient, job);
    loop_timer_start(job->deadline, PATIENCE_MS);
}

static void
install_package(struct job *job)
{
    find_sandbox(job, NULL, install_in);
}

// ---- State of a package ---------------------------------------------------------------------

// The requirement without its version.
static char *
asked_name(const struct job *job)
{
    const char *text = job_string(job, "package_name");
    return kg_strndup(text, strcspn(text, " [=~!<>"));
}

static json_t *
settled_json(const char *status, json_t *message)
{
    return json_pack("{s:s, s:o, s:b, s:b}", "status", status, "message", message, "complete", 1,
                     "success", 0);
}

static void
fail_check(struct job *job, const struct kg_error *err)
{
    json_t *value = settled_json("error", json_string(err->message));
    json_object_set_new(value, "code", json_string(kg_code_info(err->code)->name));
    job_finish(job, result_of_error_json(job, value));
}

static void
on_status(const json_t *package, const struct kg_error *err, void *arg)
{
    struct job *job = arg;
    job->work = NULL;
    if (!package) {
        fail_check(job, err);
        return;
    }
    const char *status = json_string_value(json_object_get(package, "status"));
    bool missing = !status || strcmp(status, "not_found") == 0;
    job_finish(job, result_of_json(
                        job, missing ? settled_json("not_found",
                                                    json_sprintf("%s was not asked for",
                                                                 job_string(job, "package_name")))
                                     : installed_json(package)));
}

static void
finish_installing(struct job *job, int64_t elapsed_ms)
{
    json_t *value = installing_json(job);
    json_object_set_new(value, "complete", json_false());
    json_object_set_new(value, "elapsed_seconds", json_real((double)elapsed_ms / 1000));
    job_finish(job, result_of_json(job, value));
}

// Waits for a running installation as long as install_package() does.
static void
look(void *arg)
{
    struct job *job = arg;
    struct kg_error err = {0};
    struct session *session = sessions_find(job->tools->settings.face->sessions,
                                            mcp_call_owner(job->call), job->session.id, &err);
    KG_AUTO_FREE char *name = asked_name(job);
    int64_t elapsed_ms = session ? session_install_elapsed_ms(session, name) : -1;
    if (elapsed_ms >= 0 && clock_mono_ms() - job->started_ms >= PATIENCE_MS) {
        finish_installing(job, elapsed_ms);
        return;
    }
    if (elapsed_ms >= 0) {
        loop_timer_start(job->deadline, LOOK_MS);
        return;
    }
    job->cancel_work = cancel_packages;
    if (session)
        job->work = session_packages_list(session, name, on_status, job, &err);
    if (!job->work)
        fail_check(job, &err);
}

static void
check_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)session;
    (void)kernel;
    job->deadline = loop_timer_new(job->tools->settings.loop, look, job);
    look(job);
}

static void
check_package(struct job *job)
{
    find_sandbox(job, NULL, check_in);
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
    find_sandbox(job, NULL, command_in);
}

// ---- Upload ---------------------------------------------------------------------------------

static const char results_folder[] = "/app/results"; // the working folder in the paths of clients

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

static int
sandbox_path(const char *path, const char **ret, struct kg_error *err)
{
    size_t len = strlen(results_folder);
    if (strncmp(path, results_folder, len) != 0 || (path[len] && path[len] != '/'))
        return path_in_session(path, ret, err);
    return path_in_session(path + len + (path[len] == '/'), ret, err);
}

static int
upload_path(const struct job *job, char **ret, struct kg_error *err)
{
    const char *local = job_string(job, "local_file_path"), *slash = strrchr(local, '/');
    const char *folder = job_string(job, "dest_path");
    if (sandbox_path(folder ? folder : results_folder, &folder, err) < 0)
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
        find_sandbox(job, NULL, upload_in);
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
        kg_error_set(
            &err, KG_INVALID_PATH, 0,
            "local_file_path: files can be uploaded over stdio, or if --upload-root is set");
    job->cancel_work = local_read_cancel;
    if (!job->work)
        job_fail(job, &err);
}

// ---- Links that clients build themselves ----------------------------------------------------

// Redirects to the signed link.
static void
handle_link(struct http_request *request, void *arg)
{
    const struct mcp_tools *tools = arg;
    const char *owner = http_request_owner(request);
    const char *id = http_request_query(request, "sandbox_id");
    const char *path = http_request_query(request, "file_path");
    struct kg_error err = {0};
    if (!id || !path)
        kg_error_set(&err, KG_INVALID, 0, "sandbox_id and file_path must be given");
    else if (sandbox_path(path, &path, &err) == 0 &&
             sessions_find(tools->settings.face->sessions, owner, id, &err)) {
        KG_AUTO_FREE char *url = file_links_make(tools->settings.face->links, owner, id, path);
        http_reply_header(request, "Location", url);
        http_reply(request, 302, NULL, NULL, 0);
        return;
    }
    http_reply_error(request, &err);
}

void
mcp_tools_serve_http(struct mcp_tools *tools, struct http_server *server)
{
    static const struct http_concern of_sandbox[] = {
        {.kind = HTTP_CONCERNS_SESSION, .part = HTTP_IN_QUERY, .name = "sandbox_id"}, {0}};
    static const struct http_route route = {HTTP_GET, "/sandbox/file", handle_link,
                                            HTTP_KEY_IN_QUERY, of_sandbox};
    http_server_add_routes(server, &route, 1, tools);
}

// ---- Table ----------------------------------------------------------------------------------

#define SANDBOX_PARAM                                                                              \
    {                                                                                              \
        .name = "sandbox_id", .required = true,                                                    \
        .description = "The sandbox, from create_sandbox or list_sandboxes"                        \
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
     .run = list_sandboxes},
    {.name = "create_sandbox",
     .title = "Create a sandbox",
     .description =
         "Creates a sandbox and returns its sandbox_id, for the other tools. Use one for "
         "all steps of a task.",
     .params = create_params,
     .run = create_sandbox},
    {.name = "install_package_in_sandbox",
     .title = "Install a package",
     .description = "Installs a Python package. If that takes longer than 5 s, it continues; call "
                    "check_package_installation_status.",
     .params = package_params,
     .hints = TOOL_IDEMPOTENT,
     .run = install_package},
    {.name = "check_package_installation_status",
     .title = "Check an installation",
     .description = "Returns whether a package is installed, being installed, or failed.",
     .params = package_params,
     .hints = TOOL_READ_ONLY | TOOL_IDEMPOTENT,
     .run = check_package},
    {.name = "execute_python_code",
     .title = "Run Python",
     .description = "Runs Python code in a sandbox; variables stay from call to call. Returns "
                    "{stdout, stderr, exit_code, files, file_links}: print() what you want to "
                    "see; files in the working folder are returned as links.",
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
