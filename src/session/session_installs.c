// SPDX-License-Identifier: Apache-2.0
// Packages of sessions: the queue, the wheels of what is missing, and the result.

#include <string.h>

#include "metrics.h"
#include "requirement.h"
#include "session_installs_priv.h"

enum { MAX_QUEUED = 16, MAX_STATES = 256 };

struct packages *
install_packages_of(const struct session_install *install)
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
    package_set_making_cancel(install->making);
    packages_delivery_cancel(install->delivery);
    pip_output_clear(&install->output);
    json_decref(install->requirements);
    json_decref(install->missing);
    json_decref(install->satisfied);
    json_decref(install->resolution);
    json_decref(install->stale);
    json_decref(install->changed);
    free(install->set_before);
    free(install);
}

void
install_say(const struct session_install *install, const char *type, const char *text, size_t len)
{
    if (!install->events.on_line)
        return;
    json_auto_t *line = json_pack("{s:s, s:s%}", "type", type, "text", text, len);
    if (line)
        install->events.on_line(line, install->arg);
}

void
install_say_progress(const struct session_install *install, const char *text)
{
    install_say(install, "progress", text, strlen(text));
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

const char *
install_version_in(const json_t *list, const char *key, const char *wanted)
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
    const char *version = install_version_in(wheels, "name", name);
    if (!version)
        version = install_version_in(install->satisfied, "requirement", requirement);
    return version ? version : install_version_in(besides, "requirement", requirement);
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
        bool failed = err && !install_version_in(install->satisfied, "requirement", text);
        const char *status = failed ? "failed" : "installed";
        const char *message = failed ? err->message : NULL;
        set_state(install->session, text, status, failed ? NULL : version, message);
        json_array_append(list, json_object_get(install->session->packages, name));
    }
    json_t *changed = err || json_array_size(install->changed) == 0 ? NULL : install->changed;
    return json_pack("{s:s, s:o, s:O*}", "status", err ? "error" : "ok", "packages", list,
                     "changed", changed);
}

// ---- The end --------------------------------------------------------------------------------

void
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

// ---- Their wheels ---------------------------------------------------------------------------

static void
install_wheels(struct session_install *install)
{
    if (json_array_size(json_object_get(install->resolution, "wheels")) == 0)
        install_end(install, NULL);
    else if (packages_need_delivery(install_packages_of(install)))
        install_pip(install);
    else
        install_set(install);
}

static void
on_text(const char *text, size_t len, void *arg)
{
    install_say(arg, "stdout", text, len);
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
        install_say_progress(install, "the index does not answer: using cached wheels");
    install->resolution = resolution ? json_deep_copy(resolution) : KG_STEAL(install->stale);
    install_wheels(install);
}

void
install_find_wheels(struct session_install *install)
{
    static const struct wheel_wait_events events = {on_text, on_wheels};
    struct packages *packages = install_packages_of(install);
    struct kg_error err = {0};
    bool fresh = false;
    if (json_array_size(install->missing) == 0) {
        install_end(install, NULL);
        return;
    }
    json_t *known = packages_find(packages, install->missing, &fresh);
    if (known && fresh) {
        install_say_progress(install, "all wheels are in the cache");
        install->resolution = known;
        install_wheels(install);
        return;
    }
    install->stale = known;
    install_say_progress(install, "asking the index, in a sandbox of its own");
    install->wait = wheel_wait_start(packages, install->session->owner, install->missing, &events,
                                     install, &err);
    if (!install->wait)
        install_end(install, &err);
}

// Starts the first queued installation if none is under way.
void
session_installs_step(void *arg)
{
    struct session *session = arg;
    struct session_install *install = TAILQ_FIRST(&session->installs);
    struct kg_error err = {0};
    if (!install || install->command || install->wait || install->making || install->delivery)
        return;
    if (!packages_need_delivery(install_packages_of(install)))
        install_set_begin(install);
    else if (install_pip_begin(install, &err) < 0)
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
