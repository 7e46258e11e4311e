// SPDX-License-Identifier: Apache-2.0
// One installation of packages: what is said of it, and its result.

#include <string.h>

#include "metrics.h"
#include "requirement.h"
#include "session_install_priv.h"

enum { MAX_STATES = 256 };

struct packages *
install_packages_of(const struct session_install *install)
{
    return install->session->sessions->settings.packages;
}

void
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
    free(install->set);
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

void
install_set_state(struct session *session, const char *requirement, const char *status,
                  const char *version, const char *message)
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
        install_set_state(install->session, text, status, failed ? NULL : version, message);
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
