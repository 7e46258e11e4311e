// SPDX-License-Identifier: Apache-2.0
// The face's files. Each uses those below it only:
//
//     notebook.c            the face, its routes, what they say of the server
//     notebook_kernels.c    /api/kernels
//     kernel_socket.c       WebSockets of clients of a kernel, on websocket.c and framing.c
//     kernel_models.c       the JSON of kernels and kernelspecs, errors
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "face.h"
#include "http.h"
#include "kernel.h"
#include "loop.h"
#include "notebook.h"
#include "session.h"
#include "sessions.h"

struct kernel_socket;

struct notebook {
    struct loop *loop;
    const struct face_context *face;
    int64_t started_wall_ms;
    TAILQ_HEAD(, kernel_socket) sockets;
};

// ---- kernel_models.c ------------------------------------------------------------------------

enum { KERNEL_ID_LEN = 36 };

// Fills `ret` with a random UUID (RFC 9562, version 4) and a NUL.
void kernel_id_random(char ret[KERNEL_ID_LEN + 1]);
bool kernel_id_is_valid(const char *id);
// The name of a kernelspec for clients: `python3`, by which notebooks know the kernel, where that
// is an alias.
const char *kernelspec_name(const struct kernelspec *spec);
json_t *kernelspec_model(const struct kernelspec *spec);
// {id, name, last_activity, execution_state, connections}
json_t *kernel_model(const struct notebook *notebook, const struct session *session);
// Those of one owner, an array.
json_t *kernel_models(const struct notebook *notebook, const char *owner);
// The kernel that an id names, of that owner. Borrowed; KG_NOT_FOUND.
struct session *kernel_find(const struct notebook *notebook, const char *owner, const char *id,
                            struct kg_error *err);
// The same for the path's `id` and the request's owner; NULL was answered.
struct session *kernel_of_request(const struct notebook *notebook, struct http_request *request);
// {message, reason}, as Jupyter's clients show errors.
void reply_failure(struct http_request *request, const struct kg_error *err);
void reply_failure_as(struct http_request *request, int status, const struct kg_error *err);

// ---- kernel_socket.c ------------------------------------------------------------------------

// Connects the client of a request with a kernel, or answers why not.
void kernel_socket_open(struct notebook *notebook, struct http_request *request);
// Closes the connections of all clients.
void kernel_sockets_close(struct notebook *notebook);
// The clients that are connected to a kernel.
int kernel_sockets_count(const struct notebook *notebook, const struct session *session);

// ---- Handlers -------------------------------------------------------------------------------

void handle_kernel_list(struct http_request *request, void *arg);
void handle_kernel_start(struct http_request *request, void *arg);
void handle_kernel_show(struct http_request *request, void *arg);
void handle_kernel_delete(struct http_request *request, void *arg);
void handle_kernel_interrupt(struct http_request *request, void *arg);
void handle_kernel_restart(struct http_request *request, void *arg);
void handle_kernel_channels(struct http_request *request, void *arg);
