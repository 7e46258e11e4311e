// SPDX-License-Identifier: Apache-2.0
// The files of this module. Each uses only those below it:
//
//     e2b.c              routes
//     create.c, sandboxes.c      the control plane
//     contexts.c, execute.c      the code interpreter
//     execute_lines.c    from lines of ours to lines of E2B's
//     creation_body.c     the body of a creation
//     sandbox_model.c    sandboxes as clients see them
//     dialect.c          credentials, errors, the sandbox of a request
#pragma once

#include <jansson.h>

#include "e2b.h"
#include "face.h"
#include "http.h"
#include "kernel.h"
#include "loop.h"
#include "session.h"
#include "sessions.h"

struct e2b {
    struct e2b_settings settings;
};

// ---- dialect.c ------------------------------------------------------------------------------

// For the control plane.
extern const struct http_dialect e2b_dialect;
// The sandbox in the path. If it returns NULL, it has replied with the error.
struct session *e2b_path_sandbox(struct http_request *request, const struct e2b *e2b);
// The token that opens the ports of a sandbox and changes its contexts, to be freed.
char *e2b_traffic_token(const struct e2b *e2b, const char *owner, const char *id);

// ---- sandbox_model.c ------------------------------------------------------------------------

// What session_face() of a sandbox is, a new reference; NULL of `face` for those of other faces.
// `key` and `body`: of the creation; or NULL.
json_t *sandbox_face(const char *template_id, const char *key, const char *body);
// Its members, borrowed; NULL: it has none, or was made by another face.
const char *sandbox_face_member(const struct session *session, const char *name);
#define SANDBOX_TEMPLATE "template"
#define SANDBOX_KEY "key"   // Idempotency-Key
#define SANDBOX_BODY "body" // a hash

// The answer to a creation, with its tokens.
json_t *sandbox_model(const struct e2b *e2b, const struct http_request *request, const char *id,
                      const char *template_id);
// An entry of a list. `for_gateways`: with the members SANDBOX_KEY and SANDBOX_BODY, for another
// gateway of the installation.
json_t *sandbox_model_listed(const struct e2b *e2b, const struct session *session,
                             bool for_gateways);
// The answer to GET: the same with tokens and more.
json_t *sandbox_model_detail(const struct e2b *e2b, const struct http_request *request,
                             const struct session *session);

// ---- creation_body.c -------------------------------------------------------------------------

// The body of a creation; borrowed from the JSON.
struct creation_body {
    int64_t timeout_s;
    const json_t *metadata; // or NULL
    const json_t *env;      // or NULL
    const char *template_id;
    bool ports_are_private;
};
KG_MUST_CHECK int creation_body_parse(const struct e2b *e2b, const json_t *root, int64_t timeout_s,
                                      struct creation_body *ret, struct kg_error *err);
// The seconds in a body's member, or in its absence `fallback`.
KG_MUST_CHECK int timeout_parse(const struct e2b *e2b, const json_t *root, const char *name,
                                int64_t fallback, int64_t *ret, struct kg_error *err);
enum { E2B_TIMEOUT_S = 300, E2B_OLD_TIMEOUT_S = 15 };

// ---- contexts.c -----------------------------------------------------------------------------

// Which kernel a body's `context_id` or `language` means: one that takes code (borrowed), or the
// default one of `ret_spec`, to be opened. KG_NOT_FOUND, KG_INVALID, KG_UNKNOWN_KERNEL.
KG_MUST_CHECK int context_find(const struct e2b *e2b, const struct session *session,
                               const json_t *body, struct kernel **ret_kernel,
                               const struct kernelspec **ret_spec, struct kg_error *err);
void context_reply_error(struct http_request *request, const struct kg_error *err);

// ---- execute_lines.c ------------------------------------------------------------------------

// Appends what one line of an execution is to E2B's clients: no line, one or several.
void execute_append_line(struct buf *ret, const char *line, size_t len, int64_t now_ms);

// ---- Handlers -------------------------------------------------------------------------------

// The rule of creations: with an Idempotency-Key all gateways are asked for sandboxes that have it.
void creation_concern(struct http_request *request, struct http_concern *ret, char **ret_name,
                      void *arg);
void handle_sandbox_create(struct http_request *request, void *arg);
void handle_sandbox_create_old(struct http_request *request, void *arg);
void handle_sandbox_connect(struct http_request *request, void *arg);
void handle_sandbox_list(struct http_request *request, void *arg);
void handle_sandbox_show(struct http_request *request, void *arg);
void handle_sandbox_delete(struct http_request *request, void *arg);
void handle_sandbox_timeout(struct http_request *request, void *arg);
void handle_sandbox_refresh(struct http_request *request, void *arg);
void handle_sandbox_metrics(struct http_request *request, void *arg);
void handle_missing(struct http_request *request, void *arg);
void handle_e2b_execute(struct http_request *request, void *arg);
void handle_context_create(struct http_request *request, void *arg);
void handle_context_list(struct http_request *request, void *arg);
void handle_context_restart(struct http_request *request, void *arg);
void handle_context_delete(struct http_request *request, void *arg);
