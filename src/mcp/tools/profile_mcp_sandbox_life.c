// SPDX-License-Identifier: Apache-2.0
// The profile `mcp-sandbox`: making and listing sandboxes, and their packages.

#include <string.h>

#include "profile_mcp_sandbox.h"
#include "session_packages.h"

enum { PATIENCE_MS = 5000, LOOK_MS = 100, MAX_NAME = 200 };

// ---- Names ----------------------------------------------------------------------------------

// What clients call a sandbox is kept as long as this gateway runs.
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

void
mcp_sandbox_create(struct job *job)
{
    const char *name = job_string(job, "name");
    struct kg_error err = {0};
    if (name && strlen(name) > MAX_NAME) {
        kg_error_set(&err, KG_INVALID, 0, "name has more than %d bytes", MAX_NAME);
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
    (void)err; // what is unknown is not listed
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

void
mcp_sandbox_list(struct job *job)
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

void
mcp_sandbox_install(struct job *job)
{
    mcp_sandbox_find(job, NULL, install_in);
}

// ---- Their state ----------------------------------------------------------------------------

// What was asked for may have come with versions.
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
    json_t *result = result_of_json(job, value);
    json_object_set_new(result, "isError", json_true());
    job_finish(job, result);
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

// What is being installed is waited for as long as by the install itself.
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

void
mcp_sandbox_check_package(struct job *job)
{
    mcp_sandbox_find(job, NULL, check_in);
}
