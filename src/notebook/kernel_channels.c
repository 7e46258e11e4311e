// SPDX-License-Identifier: Apache-2.0
// The resource /api/kernels/{id}/channels: when a client may connect to a kernel.
//
// After a restart of the gateway, a session's kernel is not available at once. Clients wait for it,
// because a client that is refused tries again only seconds later (jupyter_server's gateway client
// after 1 to 30).

#include "notebook_priv.h"
#include "websocket_priv.h"

enum {
    WAIT_MAX_MS = 30 * 1000,
    WAIT_LOOK_MS = 20,
};

// ---- Kernels that are being recovered -------------------------------------------------------

struct kernel_wait {
    TAILQ_ENTRY(kernel_wait) link;
    struct notebook *notebook;
    struct http_request *request;
    struct loop_timer *look;
    int64_t deadline_ms;
};

static void
wait_free(struct kernel_wait *wait)
{
    TAILQ_REMOVE(&wait->notebook->channels.waits, wait, link);
    loop_timer_free(wait->look);
    free(wait);
}

// Frees the wait. Returns its request, which the caller must answer.
static struct http_request *
wait_end(struct kernel_wait *wait)
{
    struct http_request *request = wait->request;
    http_request_on_gone(request, NULL, NULL);
    wait_free(wait);
    return request;
}

static void
wait_refuse(struct kernel_wait *wait)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the kernel is not there yet");
    reply_failure(wait_end(wait), &err);
}

static void
wait_on_gone(void *arg)
{
    struct kernel_wait *wait = arg;
    struct http_request *request = wait->request;
    wait_free(wait);
    http_request_abandon(request);
}

static void
wait_on_look(void *arg)
{
    struct kernel_wait *wait = arg;
    struct notebook *notebook = wait->notebook;
    struct session *session = kernel_find(notebook, http_request_owner(wait->request),
                                          http_request_param(wait->request, "id"), NULL);
    if (session && !session_first_kernel(session) && clock_mono_ms() < wait->deadline_ms) {
        loop_timer_start(wait->look, WAIT_LOOK_MS);
    } else if (session && !session_first_kernel(session)) {
        wait_refuse(wait);
    } else {
        struct http_request *request = wait_end(wait);
        session = kernel_of_request(notebook, request);
        if (session)
            kernel_socket_open(notebook, request, session);
    }
}

static void
wait_for_kernel(struct notebook *notebook, struct http_request *request)
{
    struct kernel_wait *wait = KG_NEW(struct kernel_wait);
    wait->notebook = notebook;
    wait->request = request;
    wait->deadline_ms = clock_mono_ms() + WAIT_MAX_MS;
    wait->look = loop_timer_new(notebook->loop, wait_on_look, wait);
    TAILQ_INSERT_TAIL(&notebook->channels.waits, wait, link);
    http_request_on_gone(request, wait_on_gone, wait);
    loop_timer_start(wait->look, WAIT_LOOK_MS);
}

// ---- The resource ---------------------------------------------------------------------------

void
kernel_channels_init(struct kernel_channels *channels)
{
    TAILQ_INIT(&channels->waits);
}

void
kernel_channels_refuse(struct kernel_channels *channels)
{
    for (struct kernel_wait *wait; (wait = TAILQ_FIRST(&channels->waits));)
        wait_refuse(wait);
}

void
handle_kernel_channels(struct http_request *request, void *arg)
{
    struct notebook *notebook = arg;
    struct session *session = kernel_of_request(notebook, request);
    if (!session || !websocket_is_asked(request))
        return;
    if (session_first_kernel(session))
        kernel_socket_open(notebook, request, session);
    else
        wait_for_kernel(notebook, request);
}
