// SPDX-License-Identifier: Apache-2.0
// Several gateways of one installation, behind one address: a request for what another one holds is
// forwarded to it, with the client's own credentials, which are checked there again.
#pragma once

#include "loop.h"

struct http_client;
struct http_server;
struct provisioner;
struct replicas;
struct sessions;

// All borrowed. The provisioner must have replicas (provisioner_replica_id()).
struct replicas_settings {
    struct loop *loop;
    struct provisioner *provisioner;
    struct sessions *sessions;
    struct http_client *client;
};

// From now on requests of `server` may be forwarded, by what their routes say that they concern
// (struct http_concern). Lists have what all replicas hold.
struct replicas *replicas_new(const struct replicas_settings *settings, struct http_server *server);
// When the sessions have been released: requests for them go to another replica once it has taken
// them over; those that still wait at `ends_ms` (of clock_mono_ms()) are answered with an error.
// While `server` drains, others get also what would start work here.
void replicas_leave(struct replicas *replicas, int64_t ends_ms);
// After the server, which ends the requests.
void replicas_free(struct replicas *replicas);
