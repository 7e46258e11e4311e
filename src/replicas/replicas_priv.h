// SPDX-License-Identifier: Apache-2.0
// The files of this module. Each uses only those below it:
//
//     replicas.c           what each request names
//     jupyter_requests.c   the same for Jupyter's API
//     whereabouts.c        where the session is that a request names
//     survey.c             what the other replicas answer to a question
//     forward.c            one forwarded request
//     fellows.c            addresses of other replicas
#pragma once

#include <string.h>

#include "http.h"
#include "provisioner_replicas.h"
#include "replicas.h"
#include "session.h"

// A request that has it was forwarded to the replica of that id, and is not forwarded again.
// Another one, which may have got that one's address, refuses it.
#define FORWARDED_HEADER "X-Kernelgate-Forwarded"

struct replicas {
    struct replicas_settings settings;
    bool left;
};

// The header for a request to that replica. To be freed.
static inline char *
replicas_mark(const struct provisioner_place *place)
{
    return kg_asprintf(FORWARDED_HEADER ": %s", place->id);
}

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

// Sends the request to another replica, and its answer to the client (forward.c).
void forward_start(struct replicas *replicas, struct http_request *request,
                   const struct provisioner_place *place);

// Asks all other replicas GET `target`, with the credential of the request's client, and calls `fn`
// with their answers, maybe before this returns (survey.c). `fn` must end the request. If one does
// not answer 200, the request is answered with an error.
struct survey_answer {
    struct provisioner_place place;
    json_t *body;
};
typedef void (*survey_fn)(struct replicas *replicas, struct http_request *request,
                          const struct survey_answer *answers, size_t n);
void survey_start(struct replicas *replicas, struct http_request *request, const char *target,
                  survey_fn fn);
// Asks the request itself, and calls its handler with the answers: http_request_elsewhere().
void survey_start_list(struct replicas *replicas, struct http_request *request);

// ---- whereabouts.c --------------------------------------------------------------------------

// Those that return a bool have taken the request, or return false if it is for this replica.

// Answers that the session is being taken over.
void replicas_refuse_lost(struct http_request *request);
bool replicas_follow(struct replicas *replicas, struct http_request *request,
                     const struct provisioner_place *place);
// Looks for a session of that owner. There is none if one of them is NULL or empty. False may come
// later as a call of the request's handler.
bool replicas_look(struct replicas *replicas, struct http_request *request, const char *owner,
                   const char *session_id);
// The same for the session that the body names.
bool replicas_look_by_body(struct replicas *replicas, struct http_request *request);
// Reads the session's id in the body of a request, or of an MCP call of a tool; empty: there is
// none.
void replicas_read_session_id(bool of_mcp, const char *body, size_t body_len,
                              char ret[SESSION_MAX_ID_LEN + 1]);

// ---- jupyter_requests.c ---------------------------------------------------------------------

// The resource that a route of Jupyter's API is about, as in "kernels/{id}"; NULL: it is another
// route.
const char *replicas_jupyter_resource(const struct replicas *replicas, const char *route);
// Returns whether it has taken the request.
bool replicas_on_jupyter_request(struct replicas *replicas, struct http_request *request,
                                 const char *resource, bool is_forwarded);
