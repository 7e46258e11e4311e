// SPDX-License-Identifier: Apache-2.0
// The resource /api/kernels. Bodies may be absent or empty, and members that are not known are
// ignored, as jupyter_server does.

#include <string.h>

#include "notebook_priv.h"
#include "session_kernels.h"

void
handle_kernel_list(struct http_request *request, void *arg)
{
    reply_list(request, kernel_models(arg, http_request_owner(request)));
}

// ---- Start ----------------------------------------------------------------------------------

// Lower than the agent's limits, as for sessions of the other APIs.

// Jupyter Server sends these with each kernel. They have no use here, and a kernel with its own
// variables cannot come from the pool.
static bool
is_of_client(const char *name)
{
    static const char *const names[] = {"KERNEL_ID", "KERNEL_LAUNCH_TIMEOUT", "KERNEL_USERNAME",
                                        "KERNEL_WORKING_DIR"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

// The kernel's variables, a new reference; NULL without an error if there are none.
static json_t *
read_env(const json_t *body, struct kg_error *err)
{
    json_t *env = json_object_get(body, "env");
    if (!env || json_is_null(env))
        return NULL;
    if (!json_is_object(env) || json_object_size(env) > SESSION_ENV_ENTRIES_MAX) {
        kg_error_set(err, KG_INVALID, 0, "env must be an object with at most %d members",
                     SESSION_ENV_ENTRIES_MAX);
        return NULL;
    }
    json_auto_t *taken = json_object();
    size_t bytes = 0;
    const char *name;
    json_t *value;
    json_object_foreach(env, name, value) {
        if (!json_is_string(value) || !env_name_valid(name)) {
            kg_error_set(err, KG_INVALID, 0, "env must map names to strings; \"%.40s\" does not",
                         name);
            return NULL;
        }
        if (is_of_client(name))
            continue;
        bytes += strlen(name) + json_string_length(value);
        json_object_set(taken, name, value);
    }
    if (bytes > SESSION_ENV_BYTES_MAX) {
        kg_error_set(err, KG_INVALID, 0, "env is larger than %d bytes", SESSION_ENV_BYTES_MAX);
        return NULL;
    }
    return json_object_size(taken) > 0 ? json_incref(taken) : NULL;
}

// The body of POST kernels; it may be absent. `ret` points into `ret_id` and `ret_env`.
static int
read_wish(const struct notebook *notebook, struct http_request *request, struct kernel_wish *ret,
          char ret_id[KERNEL_ID_LEN + 1], json_t **ret_env, struct kg_error *err)
{
    const char *name, *id;
    json_auto_t *body =
        http_request_body_len(request) > 0 ? body_object(request, err) : json_object();
    if (!body || body_string(body, "name", KERNEL_NAME_MAX, &name, err) < 0 ||
        body_string(body, "kernel_id", SESSION_MAX_ID_LEN, &id, err) < 0)
        return -1;
    *ret = (struct kernel_wish){.spec = notebook->face->default_spec};
    if (id && !kernel_id_is_valid(id))
        return kg_error_set(err, KG_INVALID, 0, "kernel_id must be a UUID");
    snprintf(ret_id, KERNEL_ID_LEN + 1, "%s", id ? id : "");
    ret->id = id ? ret_id : NULL;
    if (name && *name)
        ret->spec = kernelspecs_find(notebook->face->specs, name, err);
    if (!ret->spec)
        return -1;
    *ret_env = read_env(body, err);
    ret->env = *ret_env;
    return err->code == KG_OK ? 0 : -1;
}

// A client that waits for its kernel.
struct kernel_post {
    struct notebook *notebook;
    struct http_request *request;
    struct kernel_start *start;
};

// If the kernel still starts, the client has left, and nobody knows the kernel's id.
static void
post_free(void *arg)
{
    struct kernel_post *post = arg;
    if (post->start)
        kernel_start_cancel(post->start);
    free(post);
}

static void
post_on_started(struct session *session, const struct kg_error *err, void *arg)
{
    struct kernel_post *post = arg;
    struct http_request *request = post->request;
    post->start = NULL;
    if (!session) {
        reply_failure(request, err);
        return;
    }
    KG_AUTO_FREE char *location = kg_asprintf("/api/kernels/%s", session_id(session));
    http_reply_header(request, "Location", location);
    http_reply_json(request, 201,
                    kernel_model(post->notebook, session, session_first_kernel(session)));
}

void
handle_kernel_start(struct http_request *request, void *arg)
{
    struct notebook *notebook = arg;
    struct kg_error err = {0};
    struct kernel_wish wish;
    char id[KERNEL_ID_LEN + 1];
    bool exists = false;
    json_auto_t *env = NULL;
    struct kernel_post *post = KG_NEW(struct kernel_post);
    post->notebook = notebook;
    post->request = request;
    http_request_own(request, post, post_free);
    if (read_wish(notebook, request, &wish, id, &env, &err) == 0)
        exists = wish.id && kernel_find(notebook, http_request_owner(request), wish.id, NULL);
    if (exists)
        kg_error_set(&err, KG_INVALID, 0, "Kernel already exists: %s", id);
    if (err.code == KG_OK)
        post->start = kernel_start_new(notebook, http_request_owner(request), &wish,
                                       post_on_started, post, &err);
    if (!post->start)
        reply_failure_as(request, exists ? 409 : kg_code_info(err.code)->http_status, &err);
}

// ---- One ------------------------------------------------------------------------------------

static void
reply_model(const struct notebook *notebook, struct http_request *request)
{
    const struct session *session = kernel_of_request(notebook, request);
    if (session)
        http_reply_json(request, 200,
                        kernel_model(notebook, session,
                                     kernel_named(session, http_request_param(request, "id"))));
}

void
handle_kernel_show(struct http_request *request, void *arg)
{
    reply_model(arg, request);
}

void
handle_kernel_delete(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const char *id = http_request_param(request, "id");
    struct session *session = kernel_of_request(arg, request);
    if (!session)
        return;
    if (kernel_named(session, id) || strlen(id) == KERNEL_ID_LEN ||
        session_taken_up_check(session, &err) == 0)
        kernel_shut_down(session, id, "the kernel was shut down by its owner", reply_no_content,
                         request);
    else
        reply_failure(request, &err);
}

void
handle_kernel_interrupt(struct http_request *request, void *arg)
{
    struct session *session = kernel_of_request(arg, request);
    if (!session)
        return;
    struct kernel *kernel = kernel_named(session, http_request_param(request, "id"));
    if (kernel)
        kernel_interrupt(kernel);
    session_touch(session);
    reply_no_content(request);
}

// A restart that a client waits for.
struct kernel_restart {
    struct notebook *notebook;
    struct http_request *request;
};

static void
restart_on_done(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    KG_AUTO_FREE struct kernel_restart *restart = arg;
    (void)kernel;
    if (err)
        reply_failure(restart->request, err);
    else
        reply_model(restart->notebook, restart->request);
}

void
handle_kernel_restart(struct http_request *request, void *arg)
{
    struct session *session = kernel_of_request(arg, request);
    struct kg_error err = {0};
    if (!session)
        return;
    const struct kernel *kernel = kernel_named(session, http_request_param(request, "id"));
    struct kernel_restart *restart = KG_NEW(struct kernel_restart);
    restart->notebook = arg;
    restart->request = request;
    if (!kernel)
        kg_error_set(&err, KG_SESSION_BUSY, 0, "the kernel is not there yet");
    if (!kernel ||
        !session_kernel_restart(session, kernel_name(kernel), restart_on_done, restart, &err)) {
        free(restart);
        reply_failure(request, &err);
    }
}
