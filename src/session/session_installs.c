// SPDX-License-Identifier: Apache-2.0
// Installations of packages in sessions: the queue, and the wheels of what is missing.

#include <string.h>

#include "requirement.h"
#include "session_install_priv.h"

enum { MAX_QUEUED = 16 };

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
on_step(const char *text, void *arg)
{
    install_say_progress(arg, text);
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

static void
find_wheels(struct session_install *install)
{
    static const struct wheel_wait_events events = {on_step, on_text, on_wheels};
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
        install_set_check(install);
    else if (install_pip_check(install, &err) < 0)
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
    install->on_checked = find_wheels;
    size_t i;
    json_t *item;
    json_array_foreach(install->requirements, i, item)
        install_set_state(session, json_string_value(item), "installing", NULL, NULL);
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
