// SPDX-License-Identifier: Apache-2.0
// Packages of sessions: each install checks what is missing, finds or waits for its wheels, and
// installs them offline.

#include <string.h>

#include "metrics.h"
#include "packages.h"
#include "pip.h"
#include "requirement.h"
#include "session_commands.h"
#include "session_packages.h"
#include "sessions_priv.h"

enum { CHECK_MS = 60 * 1000, INSTALL_MS = 300 * 1000, MAX_QUEUED = 16, MAX_STATES = 256 };

// queued -> checking -> [waiting for wheels] -> [delivering] -> installing -> [removing] -> done
struct session_install {
    TAILQ_ENTRY(session_install) link;
    struct session *session;
    struct session_install_events events; // empty where its client has left
    void *arg;
    int64_t asked_us;
    json_t *requirements; // in their normal form
    json_t *missing;
    json_t *satisfied;  // by the environment, or beside the wheels
    json_t *resolution; // the wheels to install
    json_t *stale;      // an old resolution from the cache, used if the index does not answer
    struct session_command *command;
    struct pip_output output;
    struct wheel_wait *wait;
    struct packages_delivery *delivery; // of the wheels, or their removal
    struct kg_error err;                // how the installation ended, while they are removed
};

static struct packages *
packages_of(const struct session_install *install)
{
    return install->session->sessions->settings.packages;
}

static void
install_free(struct session_install *install)
{
    TAILQ_REMOVE(&install->session->installs, install, link);
    if (install->command)
        session_command_cancel(install->command);
    wheel_wait_cancel(install->wait);
    packages_delivery_cancel(install->delivery);
    pip_output_clear(&install->output);
    json_decref(install->requirements);
    json_decref(install->missing);
    json_decref(install->satisfied);
    json_decref(install->resolution);
    json_decref(install->stale);
    free(install);
}

static void
say(const struct session_install *install, const char *type, const char *text, size_t len)
{
    if (!install->events.on_line)
        return;
    json_auto_t *line = json_pack("{s:s, s:s%}", "type", type, "text", text, len);
    if (line)
        install->events.on_line(line, install->arg);
}

static void
say_progress(const struct session_install *install, const char *text)
{
    say(install, "progress", text, strlen(text));
}

// ---- What is known of each package ----------------------------------------------------------

static void
set_state(struct session *session, const char *requirement, const char *status, const char *version,
          const char *message)
{
    KG_AUTO_FREE char *name = requirement_name(requirement);
    if (json_object_size(session->packages) >= MAX_STATES &&
        !json_object_get(session->packages, name))
        json_object_clear(session->packages); // what is installed is known from inside
    json_object_set_new(session->packages, name,
                        json_pack("{s:s, s:s, s:s*, s:s*}", "name", name, "status", status,
                                  "version", version, "message", message));
}

static const char *
find_version(const json_t *list, const char *key, const char *wanted)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(json_object_get(item, key));
        const json_t *version = json_object_get(item, "version");
        if (text && strcmp(text, wanted) == 0 && json_string_length(version) <= REQUIREMENT_MAX_LEN)
            return json_string_value(version);
    }
    return NULL;
}

static const char *
version_of(const struct session_install *install, const char *requirement)
{
    KG_AUTO_FREE char *name = requirement_name(requirement);
    const json_t *wheels = json_object_get(install->resolution, "wheels");
    const json_t *besides = json_object_get(install->resolution, "satisfied");
    const char *version = find_version(wheels, "name", name);
    if (!version)
        version = find_version(install->satisfied, "requirement", requirement);
    return version ? version : find_version(besides, "requirement", requirement);
}

static json_t *
describe_result(const struct session_install *install, const struct kg_error *err)
{
    json_t *list = json_array();
    size_t i;
    json_t *item;
    json_array_foreach(install->requirements, i, item) {
        const char *text = json_string_value(item);
        KG_AUTO_FREE char *name = requirement_name(text);
        const char *version = version_of(install, text);
        bool failed = err && !find_version(install->satisfied, "requirement", text);
        const char *status = failed ? "failed" : "installed";
        const char *message = failed ? err->message : NULL;
        set_state(install->session, text, status, failed ? NULL : version, message);
        json_array_append(list, json_object_get(install->session->packages, name));
    }
    return json_pack("{s:s, s:o}", "status", err ? "error" : "ok", "packages", list);
}

// ---- The end --------------------------------------------------------------------------------

static void
install_end(struct session_install *install, const struct kg_error *err)
{
    struct session *session = install->session;
    const struct session_install_events events = install->events;
    void *arg = install->arg;
    json_auto_t *result = describe_result(install, err);
    metric_add(METRIC_PACKAGE_INSTALLS, 1, err ? "failed" : "ok");
    metric_observe_since(METRIC_PACKAGE_INSTALL_SECONDS, install->asked_us);
    session_touch(session);
    install_free(install);
    loop_timer_start(session->install_step, 0);
    loop_timer_start(session->step, 0);
    if (events.on_end)
        events.on_end(result, NULL, arg);
}

// ---- The script, in the session -------------------------------------------------------------

static void
on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct session_install *install = arg;
    pip_output_take(&install->output, stream, text, len);
    if (stream == SANDBOX_STDERR)
        say(install, "stdout", text, len);
}

static int
run(struct session_install *install, const char *action, const json_t *args, int64_t timeout_ms,
    void (*on_end)(const struct sandbox_command_result *, const struct kg_error *, void *),
    struct kg_error *err)
{
    const struct sandbox_command_events events = {.on_output = on_output, .on_end = on_end};
    char **argv = pip_argv(packages_of(install), action, args);
    const struct sandbox_command_spec spec = {.argv = (const char *const *)argv,
                                              .cwd = "/", // the tenant's modules are not pip's
                                              .timeout_ms = timeout_ms,
                                              .max_output_bytes = PIP_OUTPUT_MAX};
    pip_output_clear(&install->output);
    install->command = session_command_start(install->session, &spec, &events, install, err);
    pip_argv_free(argv);
    return install->command ? 0 : -1;
}

// ---- Installing -----------------------------------------------------------------------------

static void
install_on_removed(const struct kg_error *err, void *arg)
{
    struct session_install *install = arg;
    install->delivery = NULL;
    if (err)
        log_warning("delivered wheels stay in a session", LOG_STR("session", install->session->id),
                    LOG_ERR(err));
    install_end(install, install->err.code ? &install->err : NULL);
}

// Ends it as soon as its wheels do not take the session's disk any more.
static void
remove_wheels(struct session_install *install, const struct kg_error *err)
{
    const struct packages *packages = packages_of(install);
    json_auto_t *nothing = json_array();
    struct kg_error failure = {0};
    if (err)
        install->err = *err;
    if (packages_need_delivery(packages))
        install->delivery = packages_deliver(packages, install->session->sandbox, nothing,
                                             install_on_removed, install, &failure);
    if (!install->delivery)
        install_end(install, err);
}

static void
on_installed(const struct sandbox_command_result *result, const struct kg_error *end_err, void *arg)
{
    struct session_install *install = arg;
    struct kg_error err = {0};
    install->command = NULL;
    int failed = pip_output_check(&install->output, result, end_err, &err);
    remove_wheels(install, failed ? &err : NULL);
}

static json_t *
wheel_paths(const struct session_install *install, bool inside)
{
    json_t *paths = json_array();
    size_t i;
    json_t *wheel;
    json_array_foreach(json_object_get(install->resolution, "wheels"), i, wheel) {
        KG_AUTO_FREE char *shared = wheel_path_shared(wheel);
        KG_AUTO_FREE char *path = packages_path_inside(packages_of(install), shared);
        json_array_append_new(paths, json_string(inside ? path : shared));
    }
    return paths;
}

static void
run_pip(struct session_install *install)
{
    json_auto_t *paths = wheel_paths(install, true);
    struct kg_error err = {0};
    if (run(install, "install", paths, INSTALL_MS, on_installed, &err) < 0)
        remove_wheels(install, &err);
}

static void
install_on_delivered(const struct kg_error *err, void *arg)
{
    struct session_install *install = arg;
    install->delivery = NULL;
    if (err)
        install_end(install, err);
    else
        run_pip(install);
}

static void
install_wheels(struct session_install *install)
{
    json_auto_t *files = wheel_paths(install, false);
    struct kg_error err = {0};
    if (json_array_size(files) == 0) {
        install_end(install, NULL);
        return;
    }
    if (!packages_need_delivery(packages_of(install))) {
        run_pip(install);
        return;
    }
    say_progress(install, "copying the wheels into the session");
    install->delivery = packages_deliver(packages_of(install), install->session->sandbox, files,
                                         install_on_delivered, install, &err);
    if (!install->delivery)
        install_end(install, &err);
}

// ---- Their wheels ---------------------------------------------------------------------------

static void
on_text(const char *text, size_t len, void *arg)
{
    say(arg, "stdout", text, len);
}

static void
on_wheels(const json_t *resolution, const struct kg_error *err, void *arg)
{
    struct session_install *install = arg;
    install->wait = NULL;
    if (!resolution && !install->stale) {
        install_end(install, err);
        return;
    }
    if (!resolution)
        say_progress(install, "the index does not answer: using cached wheels");
    install->resolution = resolution ? json_deep_copy(resolution) : KG_STEAL(install->stale);
    install_wheels(install);
}

static void
find_wheels(struct session_install *install)
{
    static const struct wheel_wait_events events = {on_text, on_wheels};
    struct packages *packages = packages_of(install);
    struct kg_error err = {0};
    bool fresh = false;
    json_t *known = packages_find(packages, install->missing, &fresh);
    if (known && fresh) {
        say_progress(install, "all wheels are in the cache");
        install->resolution = known;
        install_wheels(install);
        return;
    }
    install->stale = known;
    say_progress(install, "asking the index, in a sandbox of its own");
    install->wait = wheel_wait_start(packages, install->session->owner, install->missing, &events,
                                     install, &err);
    if (!install->wait)
        install_end(install, &err);
}

// ---- What is missing ------------------------------------------------------------------------

// The sandbox reports its own packages, and is untrusted: only what was asked for counts.
static void
on_checked(const struct sandbox_command_result *result, const struct kg_error *end_err, void *arg)
{
    struct session_install *install = arg;
    struct kg_error err = {0};
    const struct buf *text = &install->output.result;
    install->command = NULL;
    json_auto_t *root = NULL;
    if (pip_output_check(&install->output, result, end_err, &err) == 0)
        root = pip_result_parse(text->data, text->len, &err);
    if (!root) {
        install_end(install, &err);
        return;
    }
    install->satisfied = json_incref(json_object_get(root, "satisfied"));
    install->missing = json_array();
    size_t i;
    json_t *item;
    json_array_foreach(install->requirements, i, item) {
        if (!find_version(install->satisfied, "requirement", json_string_value(item)))
            json_array_append(install->missing, item);
    }
    if (json_array_size(install->missing) == 0)
        install_end(install, NULL);
    else
        find_wheels(install);
}

// Starts the first queued installation if none is under way.
void
session_installs_step(void *arg)
{
    struct session *session = arg;
    struct session_install *install = TAILQ_FIRST(&session->installs);
    struct kg_error err = {0};
    if (!install || install->command || install->wait || install->delivery)
        return;
    if (run(install, "check", install->requirements, CHECK_MS, on_checked, &err) < 0)
        install_end(install, &err);
}

// ---- Start and end --------------------------------------------------------------------------

int
session_packages_check(const json_t *requirements, struct kg_error *err)
{
    json_auto_t *read = requirements_read(requirements, err);
    return read ? 0 : -1;
}

static int
check_possible(const struct session *session, struct kg_error *err)
{
    const struct packages *packages = session->sessions->settings.packages;
    const struct session_install *install;
    size_t n = 0;
    if (packages_check_available(packages, err) < 0)
        return -1;
    TAILQ_FOREACH(install, &session->installs, link)
        n++;
    if (n >= MAX_QUEUED)
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "%zu installations are already queued in this session", n);
    return 0;
}

struct session_install *
session_install_start(struct session *session, const json_t *requirements,
                      const struct session_install_events *events, void *arg, struct kg_error *err)
{
    json_auto_t *read = requirements_read(requirements, err);
    if (!read || check_possible(session, err) < 0)
        return NULL;
    struct session_install *install = KG_NEW(struct session_install);
    install->session = session;
    install->events = *events;
    install->arg = arg;
    install->asked_us = clock_mono_us();
    install->requirements = KG_STEAL(read);
    size_t i;
    json_t *item;
    json_array_foreach(install->requirements, i, item)
        set_state(session, json_string_value(item), "installing", NULL, NULL);
    TAILQ_INSERT_TAIL(&session->installs, install, link);
    session_touch(session);
    loop_timer_start(session->install_step, 0);
    return install;
}

void
session_install_leave(struct session_install *install)
{
    if (install)
        install->events = (struct session_install_events){0};
}

static bool
installs(const struct session_install *install, const char *normal)
{
    size_t i;
    json_t *item;
    json_array_foreach(install->requirements, i, item) {
        KG_AUTO_FREE char *name = requirement_name(json_string_value(item));
        if (strcmp(name, normal) == 0)
            return true;
    }
    return false;
}

int64_t
session_install_elapsed_ms(const struct session *session, const char *name)
{
    KG_AUTO_FREE char *normal = package_name_normalise(name, strlen(name));
    const struct session_install *install;
    TAILQ_FOREACH(install, &session->installs, link) {
        if (normal && installs(install, normal))
            return (clock_mono_us() - install->asked_us) / 1000;
    }
    return -1;
}

void
session_installs_end(struct session *session, const struct kg_error *err)
{
    for (struct session_install *install; (install = TAILQ_FIRST(&session->installs));) {
        const struct session_install_events events = install->events;
        void *arg = install->arg;
        install_free(install);
        if (events.on_end)
            events.on_end(NULL, err, arg);
    }
}
