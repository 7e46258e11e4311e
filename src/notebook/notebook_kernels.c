// SPDX-License-Identifier: Apache-2.0
// The resource /api/kernels. Bodies may be absent or empty, and members that are not known are
// ignored, as jupyter_server does.

#include <string.h>

#include "kernel_tap.h"
#include "notebook_priv.h"

void
handle_kernel_list(struct http_request *request, void *arg)
{
    http_reply_json(request, 200, kernel_models(arg, http_request_owner(request)));
}

// ---- Start ----------------------------------------------------------------------------------

// A kernel that is being started for a client. It is asked for its info, and reported when it has
// answered: a kernel that comes from the pool may still be importing modules, and jupyter_client
// gives up after a second without an answer (AsyncKernelClient.wait_for_ready).
struct kernel_start {
    struct notebook *notebook;
    struct http_request *request;
    struct session_open *open; // NULL: the session is there
    struct kernel_tap *tap;
    char id[KERNEL_ID_LEN + 1];
};

static void
kernel_start_free(struct kernel_start *start)
{
    kernel_tap_close(start->tap);
    free(start);
}

static void
start_fail(struct kernel_start *start, const struct kg_error *err)
{
    struct http_request *request = start->request;
    http_request_on_gone(request, NULL, NULL);
    kernel_start_free(start);
    reply_failure(request, err);
}

static void
start_finish(struct kernel_start *start)
{
    struct http_request *request = start->request;
    struct kg_error err = {0};
    const struct session *session =
        kernel_find(start->notebook, http_request_owner(request), start->id, &err);
    if (!session) {
        start_fail(start, &err);
        return;
    }
    json_t *model = kernel_model(start->notebook, session);
    KG_AUTO_FREE char *location = kg_asprintf("/api/kernels/%s", start->id);
    http_request_on_gone(request, NULL, NULL);
    kernel_start_free(start);
    http_reply_header(request, "Location", location);
    http_reply_json(request, 201, model);
}

// Another process of the kernel than the one that was asked, or none, has no answer either.
static void
start_on_tap(void *arg)
{
    struct kernel_start *start = arg;
    struct kernel_tap_item item;
    while (kernel_tap_next(start->tap, &item)) {
        bool is_over = item.kind == KERNEL_TAP_MESSAGE
                           ? item.message->channel == KERNEL_SHELL
                           : item.kind != KERNEL_TAP_STARTING && item.kind != KERNEL_TAP_READY &&
                                 item.kind != KERNEL_TAP_LOST;
        if (is_over) {
            start_finish(start);
            return;
        }
    }
}

static int
ask_for_info(struct kernel_start *start, struct kernel *kernel, struct kg_error *err)
{
    const struct kernel_tap_settings settings = {.owner = http_request_owner(start->request)};
    KG_AUTO_FREE char *header =
        kg_asprintf("{\"msg_id\":\"%s\",\"session\":\"%s\",\"msg_type\":\"kernel_info_request\"}",
                    start->id, start->id);
    const struct kernel_message message = {
        .channel = KERNEL_SHELL, .header = {header, strlen(header)}, .content = {"{}", 2}};
    start->tap = kernel_tap_open(kernel, &settings, start_on_tap, start, err);
    return start->tap ? kernel_tap_send(start->tap, &message, err) : -1;
}

static void
start_on_session(struct session *session, struct kernel *kernel, const struct kg_error *open_err,
                 void *arg)
{
    struct kernel_start *start = arg;
    struct kg_error err = {0};
    start->open = NULL;
    if (open_err) {
        start_fail(start, open_err);
    } else if (ask_for_info(start, kernel, &err) < 0) {
        session_end(session, "its kernel cannot be asked", NULL, NULL);
        start_fail(start, &err);
    }
}

// Nobody knows the kernel's id.
static void
start_on_gone(void *arg)
{
    struct kernel_start *start = arg;
    struct http_request *request = start->request;
    struct session *session =
        kernel_find(start->notebook, http_request_owner(request), start->id, NULL);
    if (start->open)
        session_open_cancel(start->open);
    kernel_start_free(start);
    if (session)
        session_end(session, "its client has disconnected", NULL, NULL);
    http_request_abandon(request);
}

// The kernelspec that a body names.
static const struct kernelspec *
read_spec(const struct notebook *notebook, struct http_request *request, struct kg_error *err)
{
    json_auto_t *body =
        http_request_body_len(request) > 0 ? http_request_json(request, err) : json_object();
    if (!body)
        return NULL;
    const json_t *name = json_object_get(body, "name");
    if (!json_is_object(body) || (name && !json_is_string(name) && !json_is_null(name))) {
        kg_error_set(err, KG_INVALID, 0, "name must be a string");
        return NULL;
    }
    const char *text = json_string_value(name);
    return text && *text ? kernelspecs_find(notebook->face->specs, text, err)
                         : notebook->face->default_spec;
}

void
handle_kernel_start(struct http_request *request, void *arg)
{
    struct notebook *notebook = arg;
    struct kg_error err = {0};
    const struct kernelspec *spec = read_spec(notebook, request, &err);
    if (!spec) {
        reply_failure(request, &err);
        return;
    }
    struct kernel_start *start = KG_NEW(struct kernel_start);
    kernel_id_random(start->id);
    const struct session_request session_request = {
        .owner = http_request_owner(request),
        .session_id = start->id,
        .kernelspec = spec,
    };
    start->notebook = notebook;
    start->request = request;
    start->open = session_open_start(notebook->face->sessions, &session_request, start_on_session,
                                     start, &err);
    if (!start->open) {
        free(start);
        reply_failure(request, &err);
        return;
    }
    http_request_on_gone(request, start_on_gone, start);
}

// ---- One ------------------------------------------------------------------------------------

void
handle_kernel_show(struct http_request *request, void *arg)
{
    const struct session *session = kernel_of_request(arg, request);
    if (session)
        http_reply_json(request, 200, kernel_model(arg, session));
}

static void
reply_no_content(void *arg)
{
    http_reply(arg, 204, NULL, NULL, 0);
}

void
handle_kernel_delete(struct http_request *request, void *arg)
{
    struct session *session = kernel_of_request(arg, request);
    if (session)
        session_end(session, "the kernel was shut down by its owner", reply_no_content, request);
}

void
handle_kernel_interrupt(struct http_request *request, void *arg)
{
    struct session *session = kernel_of_request(arg, request);
    if (!session)
        return;
    session_interrupt(session);
    reply_no_content(request);
}

// A restart that a client waits for.
struct kernel_restart {
    struct notebook *notebook;
    struct http_request *request;
};

static void
restart_on_done(const struct kg_error *err, void *arg)
{
    KG_AUTO_FREE struct kernel_restart *restart = arg;
    struct http_request *request = restart->request;
    if (err) {
        reply_failure(request, err);
        return;
    }
    const struct session *session = kernel_of_request(restart->notebook, request);
    if (session)
        http_reply_json(request, 200, kernel_model(restart->notebook, session));
}

void
handle_kernel_restart(struct http_request *request, void *arg)
{
    struct session *session = kernel_of_request(arg, request);
    struct kg_error err = {0};
    if (!session)
        return;
    struct kernel_restart *restart = KG_NEW(struct kernel_restart);
    restart->notebook = arg;
    restart->request = request;
    if (session_restart(session, restart_on_done, restart, &err) < 0) {
        free(restart);
        reply_failure(request, &err);
    }
}

void
handle_kernel_channels(struct http_request *request, void *arg)
{
    kernel_socket_open(arg, request);
}
