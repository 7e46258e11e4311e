// SPDX-License-Identifier: Apache-2.0
// Installations by pip inside the session: it tells what is missing, wheels are copied to it, and
// it installs them offline.

#include <string.h>

#include "session_install_priv.h"

enum { CHECK_MS = 60 * 1000, INSTALL_MS = 300 * 1000 };

// ---- The script, in the session -------------------------------------------------------------

static void
install_pip_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct session_install *install = arg;
    pip_output_take(&install->output, stream, text, len);
    if (stream == SANDBOX_STDERR)
        install_say(install, "stdout", text, len);
}

static int
install_pip_run(struct session_install *install, const char *action, const json_t *args,
                int64_t timeout_ms,
                void (*on_end)(const struct sandbox_command_result *, const struct kg_error *,
                               void *),
                struct kg_error *err)
{
    const struct sandbox_command_events events = {.on_output = install_pip_on_output,
                                                  .on_end = on_end};
    char **argv = pip_argv(install_packages_of(install), action, args);
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
    const struct packages *packages = install_packages_of(install);
    json_auto_t *nothing = json_array();
    struct kg_error failure = {0};
    if (err)
        install->err = *err;
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
        KG_AUTO_FREE char *shared = wheel_path_of(wheel);
        KG_AUTO_FREE char *path = packages_path_inside(install_packages_of(install), shared);
        json_array_append_new(paths, json_string(inside ? path : shared));
    }
    return paths;
}

static void
run_pip(struct session_install *install)
{
    json_auto_t *paths = wheel_paths(install, true);
    struct kg_error err = {0};
    if (install_pip_run(install, "install", paths, INSTALL_MS, on_installed, &err) < 0)
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

void
install_pip(struct session_install *install)
{
    json_auto_t *files = wheel_paths(install, false);
    struct kg_error err = {0};
    install_say_progress(install, "copying the wheels into the session");
    install->delivery = packages_deliver(install_packages_of(install), install->session->sandbox,
                                         files, install_on_delivered, install, &err);
    if (!install->delivery)
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
        if (!install_version_in(install->satisfied, "requirement", json_string_value(item)))
            json_array_append(install->missing, item);
    }
    install->on_checked(install);
}

int
install_pip_check(struct session_install *install, struct kg_error *err)
{
    return install_pip_run(install, "check", install->requirements, CHECK_MS, on_checked, err);
}
