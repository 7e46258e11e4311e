// SPDX-License-Identifier: Apache-2.0
// The files of this module. Each uses only those below it:
//
//     replicas.c    each request, before its handler
//     place.c       which replica answers it, by what its route says that it concerns
//     lookup.c      where the session is that a request names
//     fan_out.c     what the other replicas answer to a question, or are told
//     forwarded.c   what a forwarded request carries
//     forward.c     one forwarded request
//     addresses.c   addresses of other replicas
#pragma once

#include <string.h>

#include "http.h"
#include "provisioner_replicas.h"
#include "replicas.h"
#include "session.h"

// A request that has it was forwarded to the replica of that id. Another one, which may have got
// that one's address, refuses it. From the second time on it also says how often: the session may
// move meanwhile, but nothing is forwarded for ever.
#define FORWARDED_HEADER "X-Kernelgate-Forwarded"

enum { MAX_FORWARDS = 4 };

struct replicas {
    struct replicas_settings settings;
    struct http_server *server;
    bool left;
    int64_t ends_ms; // if it has left
};

// The header for a request that is forwarded to that replica for the n-th time. To be freed.
char *replicas_forwarded_line(const struct provisioner_place *place, int n);
// How often a request with that header (or NULL) has been forwarded; -1: not to the replica `id`.
int replicas_read_forwarded(const char *value, const char *id);
int replicas_times_forwarded(const struct replicas *replicas, const struct http_request *request);
// The session of a request has no holder, and that lasts.
void replicas_lost_error(struct kg_error *err);
void replicas_reply_lost(struct http_request *request);

// The host of host:port, without brackets, and its port. To be freed.
char *replicas_host(const char *address, int *ret_port);
// Whether a connection from there comes from the host of `address`. A host that is a name is not
// looked up, and is never it.
bool replicas_is_from(const struct sockaddr *from, const char *address);

// What becomes of a request whose replica cannot be reached: `fn` answers it, now or later, else
// `discard` is called.
struct forward_retry {
    void (*fn)(const struct kg_error *err, void *arg);
    void (*discard)(void *arg);
    void *arg;
};
// Sends the request to another replica for the n-th time, and its answer to the client
// (forward.c). `retry` may be NULL.
void forward_start(struct replicas *replicas, struct http_request *request,
                   const struct provisioner_place *place, int n, const struct forward_retry *retry);

// Forwards a request that belongs to that replica, unless it was forwarded too often. Takes the
// lookup, which may be NULL.
struct lookup;
void replicas_send(struct replicas *replicas, struct http_request *request,
                   const struct provisioner_place *place, struct lookup *lookup);
// Finds out where the session of a request is, and lets the request be answered there; while that
// is nowhere, or about to be elsewhere, the request waits for some seconds. `session_id` may be
// NULL: it names none, and any replica can answer it. False: it is for this replica, now.
bool lookup_start(struct replicas *replicas, struct http_request *request, const char *owner,
                  const char *session_id);

// Asks all other replicas GET `target`, with the credential of the request's client, and calls `fn`
// with their answers, maybe before this returns. `fn` must end the request. If one that holds
// sessions of the client's does not answer 200, the request is answered with an error. If the
// answers do not come to `fn`, `discard` is called.
struct fan_out_answer {
    struct provisioner_place place;
    json_t *body; // NULL: it has not answered
};
struct fan_out_asker {
    void (*fn)(struct http_request *request, const struct fan_out_answer *answers, size_t n,
               void *arg);
    void (*discard)(void *arg); // or NULL
    void *arg;
};
void fan_out_start(struct replicas *replicas, struct http_request *request, const char *target,
                   const struct fan_out_asker *asker);
// The same for a request that lists what `target` lists, whose handler is called with the answers:
// http_request_elsewhere().
void fan_out_list(struct replicas *replicas, struct http_request *request, const char *target);
// Sends the request to all other replicas, too, with those of its headers (NULL-terminated). Their
// answers are not awaited.
void fan_out_tell(struct replicas *replicas, struct http_request *request,
                  const char *const *headers);

// Lets a request be answered where it belongs. False: this replica answers it, now.
bool place_start(struct replicas *replicas, struct http_request *request, bool is_forwarded);
// The name that a rule with HTTP_IN_BODY finds, to be freed; NULL: none, or a longer one. On any
// thread.
enum { PLACE_NAME_MAX = 4096 };
char *place_read_body(const struct http_concern *rule, const char *body, size_t body_len);
