// SPDX-License-Identifier: Apache-2.0
// The resource /v1/sandboxes/{id}: making, showing, changing and ending a sandbox.

#include <string.h>

#include "opensandbox_priv.h"
#include "sessions.h"

// ---- What a sandbox is ----------------------------------------------------------------------

json_t *
sandbox_describe(const struct session *session)
{
    json_auto_t *session_json = session_describe(session);
    const json_t *own = session_face(session);
    const json_t *image = json_object_get(own, "image");
    const json_t *entrypoint = json_object_get(own, "entrypoint");
    const json_t *ends_at = json_object_get(session_json, "ends_at");
    const json_t *created_at = json_object_get(session_json, "created_at");
    json_t *ret = json_pack(
        "{s:s, s:{s:o}, s:{s:s, s:O}, s:O, s:o, s:O}", "id", session_id(session), "image", "uri",
        image ? json_incref((json_t *)(uintptr_t)image) : json_string("kernelgate"), "status",
        "state", session_sandbox(session) ? "Running" : "Pending", "lastTransitionAt", created_at,
        "metadata", json_object_get(session_json, "metadata"), "entrypoint",
        entrypoint ? json_deep_copy(entrypoint) : json_pack("[s]", "kernelgate-agent"), "createdAt",
        created_at);
    if (json_is_string(ends_at))
        json_object_set(ret, "expiresAt", (json_t *)(uintptr_t)ends_at);
    return ret;
}

// ---- Making ---------------------------------------------------------------------------------

struct making {
    struct http_request *request;
    struct session_open *open;
};

static void
making_free(void *arg)
{
    struct making *making = arg;
    if (making->open)
        session_open_cancel(making->open);
    free(making);
}

static void
on_made(struct session *session, struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)kernel;
    struct making *making = arg;
    making->open = NULL;
    if (err) {
        http_reply_error(making->request, err);
        return;
    }
    json_t *sandbox = sandbox_describe(session);
    json_object_del(sandbox, "image"); // as OpenSandbox answers here
    KG_AUTO_FREE char *location = kg_asprintf(SANDBOXES "/%s", session_id(session));
    http_reply_header(making->request, "Location", location);
    http_reply_json(making->request, 202, sandbox);
}

// The session lives as long as OpenSandbox says, used or not.
static struct session_open *
open_sandbox(struct making *making, const struct opensandbox *self, const struct create_body *body,
             struct kg_error *err)
{
    json_auto_t *own =
        json_pack("{s:s, s:O*}", "image", body->image, "entrypoint", body->entrypoint);
    const struct session_request request = {
        .owner = http_request_owner(making->request),
        .kernelspec = self->settings.face->default_spec,
        .env = body->env,
        .idle_timeout_s = body->timeout_s,
        .max_lifetime_s = body->timeout_s,
        .metadata = body->metadata,
        .face = own,
    };
    return session_open_start(self->settings.face->sessions, &request, on_made, making, err);
}

void
handle_os_create(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    struct create_body body;
    json_auto_t *root = os_body_object(request, &err);
    if (!root || create_body_parse(self, root, &body, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    struct making *making = KG_NEW(struct making);
    making->request = request;
    http_request_own(request, making, making_free);
    making->open = open_sandbox(making, self, &body, &err);
    if (!making->open)
        http_reply_error(request, &err);
}

// ---- Showing and ending ---------------------------------------------------------------------

void
handle_os_show(struct http_request *request, void *arg)
{
    const struct session *session = find_sandbox(request, arg);
    if (session)
        http_reply_json(request, 200, sandbox_describe(session));
}

static void
on_deleted(void *arg)
{
    http_reply(arg, 204, NULL, NULL, 0);
}

void
handle_os_delete(struct http_request *request, void *arg)
{
    struct session *session = find_sandbox(request, arg);
    if (session)
        session_end(session, "the sandbox was deleted by its owner", on_deleted, request);
}

void
handle_os_pause(struct http_request *request, void *arg)
{
    if (find_sandbox(request, arg))
        reply_not_served(request, 409,
                         "sandboxes of this gateway cannot be paused; renew the expiration of one "
                         "that is needed later");
}

void
handle_os_snapshot(struct http_request *request, void *arg)
{
    if (find_sandbox(request, arg))
        reply_not_served(request, 409,
                         "there are no snapshots; download the files that are needed");
}

void
handle_os_policy(struct http_request *request, void *arg)
{
    if (find_sandbox(request, arg))
        reply_not_served(request, 400,
                         "the network of sandboxes is the gateway's setting `network`, the same "
                         "for all of them");
}

void
handle_os_ping(struct http_request *request, void *arg)
{
    if (find_sandbox(request, arg))
        os_reply_empty(request);
}

// What has no other route, with the errors of this face.
void
handle_os_unknown(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    if (!find_sandbox(request, arg))
        return;
    kg_error_set(&err, KG_NOT_FOUND, 0, "no route has this path and method");
    http_reply_error(request, &err);
}

// ---- Changing -------------------------------------------------------------------------------

// A change that waits until it is recorded; the request owns it.
struct changing {
    struct http_request *request;
    const struct opensandbox *self;
    struct session_recording *recording;
    json_t *answer; // NULL: the sandbox
};

static void
changing_free(void *arg)
{
    struct changing *changing = arg;
    session_recording_cancel(changing->recording);
    json_decref(changing->answer);
    free(changing);
}

static void
on_changed(const struct kg_error *err, void *arg)
{
    struct changing *changing = arg;
    struct http_request *request = changing->request;
    changing->recording = NULL;
    if (err) {
        http_reply_error(request, err);
        return;
    }
    const struct session *session = find_sandbox(request, changing->self);
    if (session)
        http_reply_json(request, 200,
                        changing->answer ? KG_STEAL(changing->answer) : sandbox_describe(session));
}

static void
change(struct http_request *request, const struct opensandbox *self, struct session *session,
       const struct session_change *what, json_t *answer)
{
    struct kg_error err = {0};
    struct changing *changing = KG_NEW(struct changing);
    *changing = (struct changing){.request = request, .self = self, .answer = answer};
    http_request_own(request, changing, changing_free);
    changing->recording = session_change(session, what, on_changed, changing, &err);
    if (!changing->recording)
        http_reply_error(request, &err);
}

void
handle_os_renew(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    const char *text;
    int64_t expires_ms;
    struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    json_auto_t *root = os_body_object(request, &err);
    bool is_good = root && os_take_string(root, "expiresAt", &text, &err) == 0;
    if (is_good && !text) {
        kg_error_set(&err, KG_INVALID, 0, "expiresAt is missing: when the sandbox is to end");
        is_good = false;
    }
    if (is_good && clock_parse_rfc3339(text, &expires_ms) < 0) {
        kg_error_set(&err, KG_INVALID, 0,
                     "expiresAt must be a time as RFC 3339 has it: 2026-11-29T12:00:00Z");
        is_good = false;
    }
    int64_t seconds = is_good ? (expires_ms - clock_wall_ms() + 999) / 1000 : 0;
    if (!is_good || check_lifetime(self, "expiresAt", seconds, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    const struct session_change what = {.idle_timeout_s = seconds, .lifetime_s = seconds};
    change(request, self, session, &what, json_pack("{s:o}", "expiresAt", os_rfc3339(expires_ms)));
}

// JSON Merge Patch (RFC 7396) of the metadata.
void
handle_os_metadata(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    json_auto_t *patch = os_body_object(request, &err);
    json_auto_t *now = session_describe(session);
    json_t *metadata = json_object_get(now, "metadata");
    const char *key;
    json_t *value;
    json_object_foreach(patch, key, value) {
        if (json_is_null(value))
            json_object_del(metadata, key);
        else
            json_object_set(metadata, key, value);
    }
    if (!patch || session_metadata_check(metadata, &err) < 0)
        http_reply_error(request, &err);
    else
        change(request, self, session, &(const struct session_change){.metadata = metadata}, NULL);
}
