// SPDX-License-Identifier: Apache-2.0
// Lists packages: those found in the sandbox, and requested ones that are not installed.

#include <string.h>

#include "packages.h"
#include "pip.h"
#include "requirement.h"
#include "session_commands.h"
#include "session_packages.h"
#include "sessions_priv.h"

enum { LIST_MS = 30 * 1000, MAX_LISTED = 2000 };

struct session_packages {
    struct session *session;
    char *name; // in its normal form; NULL: all
    struct session_command *command;
    struct pip_output output;
    session_packages_fn fn;
    void *arg;
};

static void
query_free(struct session_packages *query)
{
    if (query->command)
        session_command_cancel(query->command);
    pip_output_clear(&query->output);
    free(query->name);
    free(query);
}

void
session_packages_cancel(struct session_packages *query)
{
    if (query)
        query_free(query);
}

// The state of a requested package that is not simply installed; else NULL.
static json_t *
unsettled(const struct session *session, const char *name)
{
    json_t *state = json_object_get(session->packages, name);
    const char *status = json_string_value(json_object_get(state, "status"));
    return status && strcmp(status, "installed") != 0 ? state : NULL;
}

static json_t *
installed(const char *name, json_t *version)
{
    return json_pack("{s:s, s:s, s:O}", "name", name, "status", "installed", "version", version);
}

static json_t *
describe_one(const struct session_packages *query, const json_t *found)
{
    json_t *version = json_object_get(found, query->name);
    json_t *state = unsettled(query->session, query->name);
    if (state)
        return json_incref(state);
    if (json_is_string(version))
        return installed(query->name, version);
    return json_pack("{s:s, s:s}", "name", query->name, "status", "not_found");
}

static json_t *
describe_all(const struct session_packages *query, const json_t *found)
{
    json_t *list = json_array();
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)found, name, value) {
        bool fits = json_is_string(value) && json_array_size(list) < MAX_LISTED;
        if (fits && !unsettled(query->session, name))
            json_array_append_new(list, installed(name, value));
    }
    json_object_foreach(query->session->packages, name, value) {
        if (unsettled(query->session, name))
            json_array_append(list, value);
    }
    return json_pack("{s:o}", "packages", list);
}

static void
packages_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct session_packages *query = arg;
    pip_output_take(&query->output, stream, text, len);
}

static void
on_end(const struct sandbox_command_result *result, const struct kg_error *end_err, void *arg)
{
    struct session_packages *query = arg;
    session_packages_fn fn = query->fn;
    void *fn_arg = query->arg;
    const struct buf *text = &query->output.result;
    struct kg_error err = {0};
    json_auto_t *body = NULL;
    query->command = NULL;
    json_auto_t *root = NULL;
    if (pip_output_check(&query->output, result, end_err, &err) == 0)
        root = pip_result_parse(text->data, text->len, &err);
    if (root) {
        const json_t *found = json_object_get(root, "packages");
        body = query->name ? describe_one(query, found) : describe_all(query, found);
    }
    query_free(query);
    fn(body, body ? NULL : &err, fn_arg);
}

struct session_packages *
session_packages_list(struct session *session, const char *name, session_packages_fn fn, void *arg,
                      struct kg_error *err)
{
    static const struct sandbox_command_events events = {.on_output = packages_on_output,
                                                         .on_end = on_end};
    const struct packages *packages = session->sessions->settings.packages;
    KG_AUTO_FREE char *normal = name ? package_name_normalise(name, strlen(name)) : NULL;
    if (name && (!normal || strlen(normal) > REQUIREMENT_MAX_LEN)) {
        kg_error_set(err, KG_INVALID, 0, "\"%.60s\" is not a package name", name);
        return NULL;
    }
    if (packages_check_available(packages, err) < 0)
        return NULL;
    json_auto_t *names = json_array();
    if (normal)
        json_array_append_new(names, json_string(normal));
    struct session_packages *query = KG_NEW(struct session_packages);
    query->session = session;
    query->name = KG_STEAL(normal);
    query->fn = fn;
    query->arg = arg;
    char **argv = pip_argv(packages, "list", names);
    const struct sandbox_command_spec spec = {.argv = (const char *const *)argv,
                                              .cwd = "/", // the tenant's modules are not pip's
                                              .timeout_ms = LIST_MS,
                                              .max_output_bytes = PIP_OUTPUT_MAX};
    query->command = session_command_start(session, &spec, &events, query, err);
    pip_argv_free(argv);
    if (query->command)
        return query;
    query_free(query);
    return NULL;
}
