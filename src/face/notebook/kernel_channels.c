// SPDX-License-Identifier: Apache-2.0
// The resource /api/kernels/{id}/channels: who may connect to a kernel, and when.
//
// Clients need a key. If the setting jupyter-id-as-key is on, the id of a kernel that POST
// /api/kernels has started is sufficient: it has 122 random bits, and only clients that may list
// the owner's kernels know it. A wrong id without a key is answered and counted as a wrong key.
//
// After a restart of the gateway, a session's kernel is not available at once. Clients wait for it,
// because a client that is refused tries again only seconds later (jupyter_server's gateway client
// after 1 to 30).

#include <sodium.h>
#include <string.h>

#include "notebook_priv.h"
#include "sandbox.h"
#include "websocket.h"

enum {
    WAIT_MAX_MS = 30 * 1000,
    WAIT_LOOK_MS = 20,
    GRANTS_LOOK_AT = 64,
};

// ---- Ids as keys ----------------------------------------------------------------------------

// A grant is for one session, not for a later one with the same id.
struct kernel_grant {
    TAILQ_ENTRY(kernel_grant) link;
    char *sandbox_id;
    char id[KERNEL_ID_LEN + 1];
    char owner[HTTP_OWNER_MAX + 1];
};

static void
grant_remove(struct kernel_channels *channels, struct kernel_grant *grant)
{
    TAILQ_REMOVE(&channels->grants, grant, link);
    channels->n_grants--;
    free(grant->sandbox_id);
    free(grant);
}

static bool
is_of_session(const struct kernel_grant *grant, const struct session *session)
{
    const struct sandbox *sandbox = session ? session_sandbox(session) : NULL;
    return sandbox && strcmp(sandbox_id(sandbox), grant->sandbox_id) == 0;
}

// Removes grants of kernels that have ended. That takes a search for each grant, so it is repeated
// only when their number has doubled.
static void
drop_old_grants(const struct notebook *notebook, struct kernel_channels *channels)
{
    struct kernel_grant *grant, *next;
    if (channels->n_grants < channels->look_at)
        return;
    for (grant = TAILQ_FIRST(&channels->grants); grant; grant = next) {
        next = TAILQ_NEXT(grant, link);
        if (!is_of_session(grant, kernel_find(notebook, grant->owner, grant->id, NULL)))
            grant_remove(channels, grant);
    }
    channels->look_at = 2 * channels->n_grants + GRANTS_LOOK_AT;
}

void
kernel_channels_grant(struct notebook *notebook, const char *owner, const struct session *session)
{
    struct kernel_channels *channels = &notebook->channels;
    if (!notebook->id_is_key)
        return;
    drop_old_grants(notebook, channels);
    struct kernel_grant *grant = KG_NEW(struct kernel_grant);
    memcpy(grant->id, session_id(session), KERNEL_ID_LEN);
    grant->sandbox_id = kg_strdup(sandbox_id(session_sandbox(session)));
    strncpy(grant->owner, owner, HTTP_OWNER_MAX);
    TAILQ_INSERT_TAIL(&channels->grants, grant, link);
    channels->n_grants++;
}

// The owner of the kernel that this id is a key for; NULL if there is none. Takes the same time for
// all ids.
static const char *
owner_by_id(const struct notebook *notebook, const char *id)
{
    const struct kernel_grant *grant, *found = NULL;
    if (strlen(id) < KERNEL_ID_LEN)
        return NULL;
    TAILQ_FOREACH(grant, &notebook->channels.grants, link)
        found = sodium_memcmp(grant->id, id, KERNEL_ID_LEN) == 0 ? grant : found;
    return found && is_of_session(found, kernel_find(notebook, found->owner, id, NULL))
               ? found->owner
               : NULL;
}

// The route is public if ids are keys. Returns false if the request was answered.
static bool
admit(const struct notebook *notebook, struct http_request *request)
{
    struct kg_error err = {0};
    const char *owner = http_request_owner(request);
    if (!notebook->id_is_key)
        return true;
    if (!owner)
        owner = owner_by_id(notebook, http_request_param(request, "id"));
    if (!owner) {
        http_request_refuse_secret(request);
        return false;
    }
    if (http_request_set_owner(request, owner, &err) == 0)
        return true;
    reply_failure(request, &err);
    return false;
}

// ---- Kernels that are being recovered -------------------------------------------------------

struct kernel_wait {
    TAILQ_ENTRY(kernel_wait) link;
    struct notebook *notebook;
    struct http_request *request;
    struct loop_timer *look;
    int64_t deadline_ms;
};

static void
wait_free(void *arg)
{
    struct kernel_wait *wait = arg;
    TAILQ_REMOVE(&wait->notebook->channels.waits, wait, link);
    loop_timer_free(wait->look);
    free(wait);
}

static void
wait_refuse(struct kernel_wait *wait)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the kernel is not there yet");
    reply_failure(wait->request, &err);
}

static void
wait_on_look(void *arg)
{
    struct kernel_wait *wait = arg;
    struct notebook *notebook = wait->notebook;
    struct http_request *request = wait->request;
    const char *id = http_request_param(request, "id");
    struct session *session = kernel_find(notebook, http_request_owner(request), id, NULL);
    struct kernel *kernel = session ? kernel_named(session, id) : NULL;
    if (session && !kernel && clock_mono_ms() < wait->deadline_ms) {
        loop_timer_start(wait->look, WAIT_LOOK_MS);
    } else if (session && !kernel) {
        wait_refuse(wait);
    } else {
        http_request_disown(request);
        wait_free(wait);
        session = kernel_of_request(notebook, request);
        if (session)
            kernel_socket_open(notebook, request, session, kernel);
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
    http_request_own(request, wait, wait_free);
    loop_timer_start(wait->look, WAIT_LOOK_MS);
}

// ---- The resource ---------------------------------------------------------------------------

void
kernel_channels_init(struct kernel_channels *channels)
{
    TAILQ_INIT(&channels->waits);
    TAILQ_INIT(&channels->grants);
    channels->look_at = GRANTS_LOOK_AT;
}

// The server has reported the end of all requests.
void
kernel_channels_fini(struct kernel_channels *channels)
{
    for (struct kernel_grant *grant; (grant = TAILQ_FIRST(&channels->grants));)
        grant_remove(channels, grant);
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
    if (!admit(notebook, request))
        return;
    struct session *session = kernel_of_request(notebook, request);
    if (!session || !websocket_is_asked(request))
        return;
    struct kernel *kernel = kernel_named(session, http_request_param(request, "id"));
    if (kernel)
        kernel_socket_open(notebook, request, session, kernel);
    else
        wait_for_kernel(notebook, request);
}
