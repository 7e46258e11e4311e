// SPDX-License-Identifier: Apache-2.0
// What the files of this module share.
#pragma once

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

// Reads the session's id in the body of a request, or of an MCP call of a tool; empty: there is
// none.
void replicas_read_session_id(bool of_mcp, const char *body, size_t body_len,
                              char ret[SESSION_MAX_ID_LEN + 1]);

// Sends the request to another replica, and its answer to the client (forward.c).
void forward_start(struct replicas *replicas, struct http_request *request,
                   const struct provisioner_place *place);

// Answers with the owner's sessions of all replicas (session_list.c).
void session_list_start(struct replicas *replicas, struct http_request *request);
