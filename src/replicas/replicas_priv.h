// SPDX-License-Identifier: Apache-2.0
// The files of this module. Each uses only those below it:
//
//     replicas.c           what each request names
//     jupyter_requests.c   the same for Jupyter's API
//     inquiry.c            where the session is that a request names
//     survey.c             what the other replicas answer to a question, or are told
//     mark.c               what a forwarded request carries
//     forward.c            one forwarded request
//     fellows.c            addresses of other replicas
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
char *replicas_mark(const struct provisioner_place *place, int n);
// How often a request with that header (or NULL) has been forwarded; -1: not to the replica `id`.
int replicas_read_mark(const char *mark, const char *id);
int replicas_times_forwarded(const struct replicas *replicas, const struct http_request *request);
// The session of a request has no holder, and that lasts.
void replicas_lost_error(struct kg_error *err);
void replicas_reply_lost(struct http_request *request);

// The host of host:port, without brackets, and its port. To be freed.
char *replicas_host(const char *address, int *ret_port);
// Whether a connection from there comes from the host of `address`. A host that is a name is not
// looked up, and is never it.
bool replicas_is_from(const struct sockaddr *from, const char *address);

static inline bool
begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static inline bool
is_among(const char *text, const char *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, all[i]) == 0)
            return true;
    return false;
}

// A member of a request's body, which is an object, or if `inner` is set of an object in it. NULL:
// it is no string, or the body is larger than those of interest here.
KG_MUST_CHECK json_t *replicas_read_string(struct http_request *request, const char *name,
                                           const char *inner);
// Reads the session's id in the body of a request, or of an MCP call of a tool; empty: there is
// none.
void replicas_read_session_id(bool of_mcp, const char *body, size_t body_len,
                              char ret[SESSION_MAX_ID_LEN + 1]);

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
// inquiry, which may be NULL.
struct inquiry;
void replicas_send(struct replicas *replicas, struct http_request *request,
                   const struct provisioner_place *place, struct inquiry *inquiry);
// Finds out where the session of a request is, by its id or what its body says, and lets it be
// answered there; while that is nowhere, or about to be elsewhere, the request waits for some
// seconds (inquiry.c). False: it is for this replica, now.
bool inquiry_start(struct replicas *replicas, struct http_request *request, const char *owner,
                   const char *session_id);
bool inquiry_start_by_body(struct replicas *replicas, struct http_request *request);

// Asks all other replicas GET `target`, with the credential of the request's client, and calls `fn`
// with their answers, maybe before this returns (survey.c). `fn` must end the request. If one that
// holds sessions of the client's does not answer 200, the request is answered with an error.
struct survey_answer {
    struct provisioner_place place;
    json_t *body; // NULL: it has not answered
};
typedef void (*survey_fn)(struct replicas *replicas, struct http_request *request,
                          const struct survey_answer *answers, size_t n);
void survey_start(struct replicas *replicas, struct http_request *request, const char *target,
                  survey_fn fn);
// The same for a request that lists what `target` lists, whose handler is called with the answers:
// http_request_elsewhere().
void survey_start_list(struct replicas *replicas, struct http_request *request, const char *target);
// Sends the request to all other replicas, too. Their answers are not awaited.
void survey_tell(struct replicas *replicas, struct http_request *request);

// The resource that a route of Jupyter's API is about, as in "kernels/{id}"; NULL: it is another
// route.
const char *replicas_jupyter_resource(const struct replicas *replicas, const char *route);
// Returns whether it has taken the request.
bool replicas_on_jupyter_request(struct replicas *replicas, struct http_request *request,
                                 const char *resource, bool is_forwarded);
