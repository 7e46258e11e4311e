// SPDX-License-Identifier: Apache-2.0
// Starts a kernel for a client. The client gets its answer when the kernel has replied to a
// kernel_info_request: a kernel from the pool may still be importing modules, and jupyter_client
// gives up after a second without an answer (AsyncKernelClient.wait_for_ready).

#include <stdio.h>
#include <string.h>

#include "kernel_tap.h"
#include "notebook_priv.h"

struct kernel_start {
    struct notebook *notebook;
    char *owner;
    char id[KERNEL_ID_LEN + 1];
    bool is_random;            // the id
    struct session_open *open; // NULL once the session exists
    struct kernel_tap *tap;
    struct session_client *client; // keeps the session from expiring meanwhile
    kernel_started_fn fn;
    void *arg;
};

static void
kernel_start_free(struct kernel_start *start)
{
    kernel_tap_close(start->tap);
    session_client_free(start->client);
    free(start->owner);
    free(start);
}

static struct session *
find_session(const struct kernel_start *start, struct kg_error *err)
{
    return kernel_find(start->notebook, start->owner, start->id, err);
}

static void
kernel_start_finish(struct kernel_start *start, const struct kg_error *start_err)
{
    kernel_started_fn fn = start->fn;
    void *arg = start->arg;
    struct kg_error err = {0};
    struct session *session = start_err ? NULL : find_session(start, &err);
    if (session && start->is_random)
        kernel_channels_grant(start->notebook, start->owner, session);
    kernel_start_free(start);
    fn(session, session ? NULL : start_err ? start_err : &err, arg);
}

// If the process was replaced, or could not be, there will be no reply either.
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
            kernel_start_finish(start, NULL);
            return;
        }
    }
}

static int
ask_for_info(struct kernel_start *start, struct kernel *kernel, struct kg_error *err)
{
    const struct kernel_tap_settings settings = {.owner = start->owner, .session_id = start->id};
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
        kernel_start_finish(start, open_err);
        return;
    }
    start->client = session_client_new(session);
    if (ask_for_info(start, kernel, &err) < 0) {
        if (start->is_random) // else other clients may use the kernel
            session_end(session, "its kernel cannot be asked", NULL, NULL);
        kernel_start_finish(start, &err);
    }
}

struct kernel_start *
kernel_start_new(struct notebook *notebook, const char *owner, const struct kernel_wish *wish,
                 kernel_started_fn fn, void *arg, struct kg_error *err)
{
    struct kernel_start *start = KG_NEW(struct kernel_start);
    start->notebook = notebook;
    start->owner = kg_strdup(owner);
    start->fn = fn;
    start->arg = arg;
    start->is_random = !wish->id;
    if (wish->id)
        snprintf(start->id, sizeof start->id, "%s", wish->id);
    else
        kernel_id_random(start->id);
    const struct session_request request = {
        .owner = owner,
        .session_id = start->id,
        .kernelspec = wish->spec,
        .env = wish->env,
    };
    start->open =
        session_open_start(notebook->face->sessions, &request, start_on_session, start, err);
    if (start->open)
        return start;
    kernel_start_free(start);
    return NULL;
}

void
kernel_start_cancel(struct kernel_start *start)
{
    // If the client has chosen the id, other clients may use the kernel.
    struct session *session = start->is_random ? find_session(start, NULL) : NULL;
    if (start->open)
        session_open_cancel(start->open);
    kernel_start_free(start);
    if (session)
        session_end(session, "its client has disconnected", NULL, NULL);
}
