// SPDX-License-Identifier: Apache-2.0
// E2B's protocol, for its SDKs and for what is built on them: the control plane (/sandboxes) and
// the code interpreter (what the SDKs call port 49999). Source: E2B's OpenAPI document, and the
// SDKs `e2b` and `e2b-code-interpreter`. face/e2b/envd has files, commands and terminals.
//
// A sandbox is a session, whose id is its sandboxID. It has no idle timeout, but an end, the E2B
// timeout. Its kernels work in E2B_HOME.
#pragma once

#include "base.h"

struct face_context;
struct http_dialect;
struct http_request;
struct http_server;
struct loop;
struct session;
struct session_tokens;

enum { E2B_ENVD_PORT = 49983, E2B_CODE_PORT = 49999 };
// Both ended by 0, for struct ports_settings.
extern const int e2b_own_ports[];
#define E2B_SANDBOX_HEADER "E2b-Sandbox-Id"
#define E2B_PORT_HEADER "E2b-Sandbox-Port"
#define E2B_TRAFFIC_HEADER "E2B-Traffic-Access-Token"
#define E2B_HOME "/home/user"
// What envd's clients may expect of this face.
#define E2B_ENVD_VERSION "0.5.7"

// All borrowed.
struct e2b_settings {
    struct loop *loop;
    const struct face_context *face;
    const struct session_tokens *tokens;
    double cpus; // of a sandbox
    int64_t memory_mb, disk_mb;
    bool network; // sandboxes have a way out
};
struct e2b;
struct e2b *e2b_new(const struct e2b_settings *settings);
void e2b_free(struct e2b *e2b);
// Adds the routes; `e2b` must outlive the server.
void e2b_serve_http(struct e2b *e2b, struct http_server *server);

// ---- For face/e2b/envd -----------------------------------------------------------------------

const struct face_context *e2b_face(const struct e2b *e2b);
struct loop *e2b_loop(const struct e2b *e2b);
// How requests to a sandbox are identified, and what their errors look like: {"code": <status>,
// "message"}, 502 where there is no such sandbox. The argument of the routes is the struct e2b.
extern const struct http_dialect e2b_sandbox_dialect;
// The sandbox that a request names in E2B_SANDBOX_HEADER, of the request's owner. Borrowed; NULL
// with KG_SESSION_NOT_FOUND.
struct session *e2b_sandbox(struct http_request *request, const struct e2b *e2b,
                            struct kg_error *err);
// The envdAccessToken of an owner's sandbox: a token of the session. To be freed.
char *e2b_envd_token(const struct e2b *e2b, const char *owner, const char *id);
// Whether a request is for the code interpreter's port; else it is for envd's.
bool e2b_is_for_code(const struct http_request *request);
