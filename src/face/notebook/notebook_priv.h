// SPDX-License-Identifier: Apache-2.0
// The files of this module. Each uses only those below it:
//
//     notebook.c            the face, its routes, what they say of the server
//     contents.c            /api/contents, on contents_priv.h
//     notebook_terminals.c  /api/terminals, on terminado.c
//     notebook_sessions.c   /api/sessions, on session_records.c
//     notebook_kernels.c    /api/kernels
//     kernel_channels.c     /api/kernels/{id}/channels: who may connect, and when
//     kernel_start.c        starting a kernel for a client
//     kernel_socket*.c      WebSockets of clients of a kernel, on websocket.c and framing.c
//     own_message.c         messages to clients that no kernel has sent
//     kernel_models.c       the JSON of kernels and kernelspecs, errors
//     request_body.c        JSON bodies
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "budget.h"
#include "face.h"
#include "http.h"
#include "kernel.h"
#include "kernel_tap.h"
#include "loop.h"
#include "notebook.h"
#include "session.h"
#include "sessions.h"

struct kernel_socket;
struct kernel_wait;
struct kernel_grant;

// The state of kernel_channels.c.
struct kernel_channels {
    TAILQ_HEAD(, kernel_wait) waits;   // clients of kernels that are being recovered
    TAILQ_HEAD(, kernel_grant) grants; // kernels whose id is a key
    size_t n_grants;
    size_t look_at; // the number of grants at which those of ended kernels are removed
};

struct session_record;

struct notebook {
    struct loop *loop;
    const struct face_context *face;
    char *prefix;      // of the second set of routes; or NULL
    char **prefixed;   // their patterns
    char *records_dir; // see session_records.c
    int64_t replay_ms; // see struct notebook_settings
    int64_t hold_ms;
    bool id_is_key;
    int64_t started_wall_ms;
    int64_t cut_ms;                      // when a slow client was last cut
    TAILQ_HEAD(, kernel_socket) sockets; // those of disconnected clients are last
    TAILQ_HEAD(, session_record) records;
    struct budget contents;    // what contents_hold_new() counts
    json_t *terminal_sessions; // {id: owner}: see notebook_terminals.c
    struct kernel_channels channels;
};

// ---- request_body.c -------------------------------------------------------------------------

// The body as an object, a new reference.
json_t *body_object(struct http_request *request, struct kg_error *err);
// A member of at most `max` bytes, borrowed; NULL: absent or null.
KG_MUST_CHECK int body_string(const json_t *body, const char *name, size_t max, const char **ret,
                              struct kg_error *err);

// ---- kernel_models.c ------------------------------------------------------------------------

// The id of a session's main kernel is the session's, a UUID. A further kernel's has the kernel's
// name behind it, after a `_`: in the name `__` is a `_` and `_d` a `-`, since jupyter_server takes
// an id with five `-` for another path.
enum { KERNEL_ID_LEN = 36, KERNEL_ID_MAX = KERNEL_ID_LEN + 1 + 2 * KERNEL_MAX_NAME_LEN };
enum { KERNEL_NAME_MAX = 255 }; // of a kernelspec, as a client sends it

// Fills `ret` with a random UUID (RFC 9562, version 4) and a NUL.
void kernel_id_random(char ret[KERNEL_ID_LEN + 1]);
bool kernel_id_is_valid(const char *id); // of a session's main kernel
// `kernel` is NULL while the session's main kernel is not there.
void kernel_id_make(const struct session *session, const struct kernel *kernel,
                    char ret[KERNEL_ID_MAX + 1]);
// What a request for a kernel concerns: see struct http_concern.
void kernel_id_ask(struct http_request *request, struct http_concern *ret, char **ret_name,
                   void *arg);
// The name of a kernelspec for clients: `python3`, by which notebooks know the kernel, where that
// is an alias.
const char *kernelspec_name(const struct kernelspec *spec);
json_t *kernelspec_model(const struct kernelspec *spec);
// {id, name, last_activity, execution_state, connections}; `kernel` as for kernel_id_make().
json_t *kernel_model(const struct notebook *notebook, const struct session *session,
                     const struct kernel *kernel);
// The execution_state for a client that connects now.
const char *kernel_first_state(const struct kernel *kernel);
// Those of one owner, an array.
json_t *kernel_models(const struct notebook *notebook, const char *owner);
// The session of the kernel that an id names, of that owner. Borrowed; KG_NOT_FOUND.
struct session *kernel_find(const struct notebook *notebook, const char *owner, const char *id,
                            struct kg_error *err);
// The same for the path's `id` and the request's owner; NULL was answered.
struct session *kernel_of_request(const struct notebook *notebook, struct http_request *request);
// The kernel itself, of a session that kernel_find() has found by this id. Borrowed; NULL: it is
// not there yet.
struct kernel *kernel_named(const struct session *session, const char *id);
// Ends it: with its session if it is the main one. `on_done` (NULL: none) fires later, or, if there
// is none of that id, at once.
void kernel_shut_down(struct session *session, const char *id, const char *reason, loop_fn on_done,
                      void *arg);
// {message, reason}, as Jupyter's clients show errors.
void reply_failure(struct http_request *request, const struct kg_error *err);
void reply_failure_as(struct http_request *request, int status, const struct kg_error *err);
// A loop_fn of a request.
void reply_no_content(void *request);
// Replies with a list (taken), to which the lists of other replicas are added.
void reply_list(struct http_request *request, json_t *models);

// ---- kernel_start.c -------------------------------------------------------------------------

// The kernel that a client requests. All borrowed.
struct kernel_wish {
    const char *id; // NULL: a random one
    const struct kernelspec *spec;
    const json_t *env; // an object of strings, or NULL
};
// `session` is NULL with `err`. Not from within kernel_start_new().
typedef void (*kernel_started_fn)(struct session *session, const struct kg_error *err, void *arg);
struct kernel_start;
KG_MUST_CHECK struct kernel_start *kernel_start_new(struct notebook *notebook, const char *owner,
                                                    const struct kernel_wish *wish,
                                                    kernel_started_fn fn, void *arg,
                                                    struct kg_error *err);
// For a client that has disconnected. Ends the kernel, whose id no client knows.
void kernel_start_cancel(struct kernel_start *start);

// ---- session_records.c ----------------------------------------------------------------------

// What Jupyter calls a session: a notebook's path, name and type, and the id of a kernel. Ids are
// UUIDs. Records are visible only to their owner.
struct session_record {
    TAILQ_ENTRY(session_record) link;
    char id[KERNEL_ID_LEN + 1];
    char kernel_id[KERNEL_ID_MAX + 1];
    char *owner;
    char *path;
    char *name; // or NULL
    char *type;
};
// NULL: absent, or (in a change) unchanged.
struct session_fields {
    const char *path;
    const char *name;
    const char *type;
};

// Reads the records of an earlier gateway, and removes those whose kernel has ended. Must be called
// after the recovery of the sessions.
KG_MUST_CHECK int session_records_load(struct notebook *notebook, struct kg_error *err);
// Keeps their files for the next gateway.
void session_records_free(struct notebook *notebook);
// Removes the records whose kernel has ended.
void session_records_prune(struct notebook *notebook);
// Fails with KG_MAX_SESSIONS if the owner has too many.
KG_MUST_CHECK int session_records_check_room(const struct notebook *notebook, const char *owner,
                                             struct kg_error *err);
// NULL: there is none.
struct session_record *session_record_find(const struct notebook *notebook, const char *owner,
                                           const char *id);
struct session_record *session_record_of_path(const struct notebook *notebook, const char *owner,
                                              const char *path);
// The kernel's session, borrowed; NULL if it has ended.
struct session *session_record_kernel(const struct notebook *notebook,
                                      const struct session_record *record);
// There must be room; `fields` has a path and a type.
struct session_record *session_record_add(struct notebook *notebook, const char *owner,
                                          const char *kernel_id,
                                          const struct session_fields *fields);
// `kernel_id` may be NULL.
void session_record_change(struct notebook *notebook, struct session_record *record,
                           const char *kernel_id, const struct session_fields *fields);
void session_record_remove(struct notebook *notebook, struct session_record *record);
// Whether another record has the record's kernel.
bool session_record_shares_kernel(const struct notebook *notebook,
                                  const struct session_record *record);
// {id, path, name, type, kernel, notebook}
json_t *session_record_model(const struct notebook *notebook, const struct session_record *record);

// ---- own_message.c --------------------------------------------------------------------------

// A message that is the gateway's own.
struct own_message {
    struct kernel_message message;
    char *header;
    char *content;
};
// Makes a message with that session in its header. `parent_header` is borrowed, and empty where the
// message answers nothing. Takes `content`, JSON text.
void own_message_init(struct own_message *ret, enum kernel_channel channel, const char *type,
                      const char *session, struct kernel_bytes parent_header, char *content);
void own_message_fini(struct own_message *own);
// The contents of `status` and of a `stream` of stderr.
char *own_status(const char *state);
char *own_stderr(const char *text);
// Whether a client's message is a kernel_info_request on shell whose header is well-formed.
bool is_info_request(const struct kernel_message *message);

// ---- kernel_socket_open.c -------------------------------------------------------------------

// Connects the client of a request, which is a handshake, with a kernel of a session, or answers
// why not.
void kernel_socket_open(struct notebook *notebook, struct http_request *request,
                        struct session *session, struct kernel *kernel);
// Closes the connections of all clients, and frees the taps of disconnected ones.
void kernel_sockets_close(struct notebook *notebook);
// The clients that are connected to a kernel.
int kernel_sockets_count(const struct notebook *notebook, const struct session *session,
                         const char *kernel_id);

// ---- kernel_channels.c ----------------------------------------------------------------------

void kernel_channels_init(struct kernel_channels *channels);
void kernel_channels_fini(struct kernel_channels *channels);
// Answers clients that still wait for a kernel. Called when the gateway is about to end.
void kernel_channels_refuse(struct kernel_channels *channels);
// If ids are keys, the session's id, which must be random, is a key until its kernel ends. Called
// when a client with a key has started a kernel.
void kernel_channels_grant(struct notebook *notebook, const char *owner,
                           const struct session *session);

// ---- Handlers -------------------------------------------------------------------------------

void handle_kernel_list(struct http_request *request, void *arg);
void handle_kernel_start(struct http_request *request, void *arg);
void handle_kernel_show(struct http_request *request, void *arg);
void handle_kernel_delete(struct http_request *request, void *arg);
void handle_kernel_interrupt(struct http_request *request, void *arg);
void handle_kernel_restart(struct http_request *request, void *arg);
void handle_kernel_channels(struct http_request *request, void *arg);
void handle_notebook_session_list(struct http_request *request, void *arg);
void handle_notebook_session_create(struct http_request *request, void *arg);
void handle_notebook_session_show(struct http_request *request, void *arg);
void handle_notebook_session_change(struct http_request *request, void *arg);
void handle_notebook_session_delete(struct http_request *request, void *arg);
// What a request for a notebook's session concerns by its kernel: see struct http_concern.
void notebook_session_ask(struct http_request *request, struct http_concern *ret, char **ret_name,
                          void *arg);

void handle_notebook_terminal_list(struct http_request *request, void *arg);
void handle_notebook_terminal_start(struct http_request *request, void *arg);
void handle_notebook_terminal_show(struct http_request *request, void *arg);
void handle_notebook_terminal_delete(struct http_request *request, void *arg);
void handle_notebook_terminal_connect(struct http_request *request, void *arg);
// What a request about one terminal concerns: see struct http_concern.
void notebook_terminal_ask(struct http_request *request, struct http_concern *ret, char **ret_name,
                           void *arg);

void handle_contents_show_root(struct http_request *request, void *arg);
void handle_contents_post_root(struct http_request *request, void *arg);
void handle_contents_show(struct http_request *request, void *arg);
void handle_contents_post(struct http_request *request, void *arg);
void handle_contents_put(struct http_request *request, void *arg);
void handle_contents_rename(struct http_request *request, void *arg);
void handle_contents_delete(struct http_request *request, void *arg);
