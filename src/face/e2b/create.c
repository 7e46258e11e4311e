// SPDX-License-Identifier: Apache-2.0
// POST /v2/sandboxes and /sandboxes: makes a session. With an Idempotency-Key a client that does
// not know whether it was heard can ask again: the sandbox that has that key is the answer.

#include <sodium.h>
#include <string.h>

#include "e2b_priv.h"

enum { KEY_MAX = 255, HASH_BYTES = 16 };

struct creation {
    struct http_request *request;
    const struct e2b *e2b;
    struct session_open *open;
};

static void
creation_free(void *arg)
{
    struct creation *creation = arg;
    if (creation->open)
        session_open_cancel(creation->open);
    free(creation);
}

static void
on_opened(struct session *session, struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct creation *creation = arg;
    struct http_request *request = creation->request;
    (void)kernel;
    creation->open = NULL;
    if (err)
        http_reply_error(request, err);
    else
        http_reply_json(request, 201,
                        sandbox_model(creation->e2b, request, session_id(session),
                                      sandbox_face_member(session, SANDBOX_TEMPLATE)));
}

// ---- Creations that are repeated ------------------------------------------------------------

// One that has the key, here or elsewhere.
struct earlier {
    const char *key;
    const char *id; // NULL: it is still being made
    const char *template_id;
    const char *body;
    bool is_there;
};

static void
look_here(struct session *session, void *arg)
{
    struct earlier *earlier = arg;
    const char *key = sandbox_face_member(session, SANDBOX_KEY);
    if (!key || strcmp(key, earlier->key) != 0)
        return;
    earlier->is_there = true;
    earlier->id = session_sandbox(session) ? session_id(session) : NULL;
    earlier->template_id = sandbox_face_member(session, SANDBOX_TEMPLATE);
    earlier->body = sandbox_face_member(session, SANDBOX_BODY);
}

static void
look_elsewhere(const struct http_request *request, struct earlier *earlier)
{
    const json_t *list, *model;
    size_t i, k;
    json_array_foreach(http_request_elsewhere(request), i, list) {
        json_array_foreach(list, k, model) {
            const char *key = json_string_value(json_object_get(model, SANDBOX_KEY));
            if (!key || strcmp(key, earlier->key) != 0)
                continue;
            earlier->is_there = true;
            earlier->id = json_string_value(json_object_get(model, "sandboxID"));
            earlier->template_id = json_string_value(json_object_get(model, "templateID"));
            earlier->body = json_string_value(json_object_get(model, SANDBOX_BODY));
        }
    }
}

static void
reply_conflict(struct http_request *request, const char *code, const char *message)
{
    http_reply_json(
        request, 409,
        json_pack("{s:i, s:s, s:s}", "code", 409, "message", message, "error_code", code));
}

// Whether it has answered: this was asked before.
static bool
reply_as_before(struct http_request *request, const struct e2b *e2b, const char *key,
                const char *body)
{
    struct earlier earlier = {.key = key};
    sessions_each(e2b->settings.face->sessions, http_request_owner(request), look_here, &earlier);
    if (!earlier.is_there)
        look_elsewhere(request, &earlier);
    if (!earlier.is_there)
        return false;
    if (!earlier.body || strcmp(earlier.body, body) != 0)
        reply_conflict(request, "idempotency_request_mismatch",
                       "this Idempotency-Key was used with another body");
    else if (!earlier.id)
        reply_conflict(request, "idempotency_in_progress",
                       "the sandbox of this Idempotency-Key is still being made; ask again");
    else
        http_reply_json(request, 201, sandbox_model(e2b, request, earlier.id, earlier.template_id));
    return true;
}

static int
check_key(const char *key, struct kg_error *err)
{
    size_t len = strlen(key);
    if (len == 0 || len > KEY_MAX || strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
        return kg_error_set(err, KG_INVALID, 0,
                            "Idempotency-Key must be 1 to %d characters of a-z, 0-9 and -",
                            KEY_MAX);
    return 0;
}

static void
hash_body(const json_t *body, char ret[2 * HASH_BYTES + 1])
{
    unsigned char hash[HASH_BYTES];
    KG_AUTO_FREE char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    crypto_generichash(hash, sizeof hash, (const unsigned char *)text, strlen(text), NULL, 0);
    sodium_bin2hex(ret, 2 * HASH_BYTES + 1, hash, sizeof hash);
}

void
creation_concern(struct http_request *request, struct http_concern *ret, char **ret_name, void *arg)
{
    (void)arg;
    (void)ret_name;
    if (!http_request_header(request, "Idempotency-Key"))
        return;
    ret->kind = HTTP_CONCERNS_ALL;
    ret->target = "/v2/sandboxes";
}

// ---- Creating -------------------------------------------------------------------------------

static void
create(struct http_request *request, const struct e2b *e2b, int64_t timeout_s)
{
    const struct face_context *face = e2b->settings.face;
    const char *key = http_request_header(request, "Idempotency-Key");
    char hash[2 * HASH_BYTES + 1] = "";
    struct kg_error err = {0};
    struct creation_body body;
    json_auto_t *root = http_request_json(request, &err);
    if (!root || creation_body_parse(e2b, root, timeout_s, &body, &err) < 0 ||
        (key && check_key(key, &err) < 0)) {
        http_reply_error(request, &err);
        return;
    }
    hash_body(root, hash);
    if (key && reply_as_before(request, e2b, key, hash))
        return;
    json_auto_t *about = sandbox_face(body.template_id, key, key ? hash : NULL);
    // A sandbox lives until its timeout, however idle it is.
    const struct session_request wanted = {
        .owner = http_request_owner(request),
        .kernelspec = face->default_spec,
        .env = body.env,
        .home = E2B_HOME,
        .idle_timeout_s = body.timeout_s,
        .max_lifetime_s = body.timeout_s,
        .metadata = body.metadata,
        .named_by_sandbox = true,
        .ports_are_public = !body.ports_are_private,
        .face = about,
    };
    struct creation *creation = KG_NEW(struct creation);
    creation->request = request;
    creation->e2b = e2b;
    http_request_own(request, creation, creation_free);
    creation->open = session_open_start(face->sessions, &wanted, on_opened, creation, &err);
    if (!creation->open)
        http_reply_error(request, &err);
}

void
handle_sandbox_create(struct http_request *request, void *arg)
{
    create(request, arg, E2B_TIMEOUT_S);
}

void
handle_sandbox_create_old(struct http_request *request, void *arg)
{
    create(request, arg, E2B_OLD_TIMEOUT_S);
}
