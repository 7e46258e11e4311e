// SPDX-License-Identifier: Apache-2.0
// Installations by a set of packages that the gateway has unpacked: the session's folder of
// packages becomes a link to it. A session has one set; what it installs later makes another one
// of all that it has.

#include <string.h>

#include "requirement.h"
#include "session_install_priv.h"

enum { LINK_MS = 30 * 1000 };

// Both are in PYTHONPATH.
#define FOLDER "/mnt/data/.kg-packages"
#define OWN "/mnt/data/.kg-own"

static const json_t *
wheels_of(const struct session_install *install)
{
    const char *user = sandbox_id(install->session->sandbox);
    return packages_wheels_of(install_packages_of(install), user);
}

// ---- The set --------------------------------------------------------------------------------

static void
note_change(struct session_install *install, const json_t *wheel, const char *before)
{
    const char *name = json_string_value(json_object_get(wheel, "name"));
    const char *version = json_string_value(json_object_get(wheel, "version"));
    const char *old = before ? before : packages_base_version(install_packages_of(install), name);
    if (!old || strcmp(old, version) == 0)
        return;
    if (!install->changed)
        install->changed = json_array();
    json_array_append_new(install->changed,
                          json_pack("{s:s, s:s, s:s}", "name", name, "from", old, "to", version));
}

// The wheels that the session has, but those that the new ones replace, and the new ones.
static json_t *
merge_wheels(struct session_install *install)
{
    const json_t *old = wheels_of(install);
    const json_t *added = json_object_get(install->resolution, "wheels");
    json_t *all = json_array();
    size_t i;
    json_t *wheel;
    json_array_foreach(added, i, wheel) {
        const char *name = json_string_value(json_object_get(wheel, "name"));
        note_change(install, wheel, install_version_in(old, "name", name));
        json_array_append(all, wheel);
    }
    json_array_foreach(old, i, wheel) {
        const char *name = json_string_value(json_object_get(wheel, "name"));
        if (!install_version_in(added, "name", name))
            json_array_append(all, wheel);
    }
    return all;
}

static void
say_installed(const struct session_install *install)
{
    KG_AUTO_BUF text = {0};
    size_t i;
    json_t *item;
    buf_append_str(&text, "Successfully installed");
    json_array_foreach(json_object_get(install->resolution, "wheels"), i, item)
        buf_printf(&text, " %s-%s", json_string_value(json_object_get(item, "name")),
                   json_string_value(json_object_get(item, "version")));
    json_array_foreach(install->changed, i, item)
        buf_printf(&text,
                   "\n%s %s takes the place of %s: code that has imported it keeps the old one",
                   json_string_value(json_object_get(item, "name")),
                   json_string_value(json_object_get(item, "to")),
                   json_string_value(json_object_get(item, "from")));
    buf_append_str(&text, "\n");
    install_say(install, "stdout", text.data, text.len);
}

// What it uses besides until it is known whether the link leads to it.
static void
use_set(const struct session_install *install, const char *name, bool for_now)
{
    const char *id = sandbox_id(install->session->sandbox);
    KG_AUTO_FREE char *user = kg_asprintf("%s%s", id, for_now ? "~" : "");
    packages_use_set(install_packages_of(install), user, install->session->owner, name);
}

static void
install_set_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct session_install *install = arg;
    pip_output_take(&install->output, stream, text, len);
}

static void
on_linked(const struct sandbox_command_result *result, const struct kg_error *end_err, void *arg)
{
    struct session_install *install = arg;
    struct kg_error err = {0};
    install->command = NULL;
    if (end_err)
        err = *end_err;
    else if (result->exit_code != 0)
        kg_error_set(&err, KG_INTERNAL, 0,
                     "the session's folder of packages cannot be replaced: is its disk full?");
    // Where the end is not known, the link may lead to either; the new set has what the old one
    // had.
    bool stays = result && result->exit_code != 0 && !result->timed_out;
    if (install->set && !stays)
        use_set(install, install->set, false);
    use_set(install, NULL, true);
    if (!err.code && install->set)
        say_installed(install);
    install_end(install, err.code ? &err : NULL);
}

// The link changes in one step. In its place is a folder where a session is older than its gateway:
// what pip has installed there becomes the session's own.
static int
link_set(struct session_install *install, const char *name, struct kg_error *err)
{
    static const char script[] = "if [ ! -L " FOLDER " ] && [ -e " FOLDER " ]; then"
                                 " [ -e " OWN " ] || mv " FOLDER " " OWN "; rm -rf " FOLDER "; fi;"
                                 " ln -sfn \"$1\" " FOLDER ".new && mv -T " FOLDER ".new " FOLDER;
    static const struct sandbox_command_events events = {.on_output = install_set_on_output,
                                                         .on_end = on_linked};
    KG_AUTO_FREE char *path = package_set_path_inside(name);
    const char *const argv[] = {"/bin/sh", "-c", script, "sh", path, NULL};
    const struct sandbox_command_spec spec = {
        .argv = argv, .cwd = "/", .timeout_ms = LINK_MS, .max_output_bytes = PIP_OUTPUT_MAX};
    pip_output_clear(&install->output);
    install->command = session_command_start(install->session, &spec, &events, install, err);
    return install->command ? 0 : -1;
}

static void
on_set(const char *name, const struct kg_error *made_err, void *arg)
{
    struct session_install *install = arg;
    struct kg_error err = {0};
    install->making = NULL;
    if (made_err) {
        install_end(install, made_err);
        return;
    }
    install->set = kg_strdup(name);
    use_set(install, name, true);
    if (link_set(install, name, &err) < 0) {
        use_set(install, NULL, true);
        install_end(install, &err);
    }
}

void
install_set(struct session_install *install)
{
    json_auto_t *wheels = merge_wheels(install);
    struct package_set_making *making = packages_make_set(
        install_packages_of(install), install->session->owner, wheels, on_set, install);
    if (making)
        install->making = making;
}

// ---- What is missing ------------------------------------------------------------------------

void
install_set_check(struct session_install *install)
{
    const struct packages *packages = install_packages_of(install);
    size_t i;
    json_t *item;
    install->satisfied = json_array();
    install->missing = json_array();
    json_array_foreach(install->requirements, i, item) {
        const char *text = json_string_value(item);
        const char *version = packages_version_satisfying(packages, wheels_of(install), text);
        if (version)
            json_array_append_new(install->satisfied,
                                  json_pack("{s:s, s:s}", "requirement", text, "version", version));
        else
            json_array_append(install->missing, item);
    }
    // Code may have removed the link; and what the session has is what the gateway knows.
    const char *set = packages_set_of(packages, sandbox_id(install->session->sandbox));
    struct kg_error err = {0};
    if (json_array_size(install->missing) > 0 || !set)
        install->on_checked(install);
    else if (link_set(install, set, &err) < 0)
        install_end(install, &err);
}
