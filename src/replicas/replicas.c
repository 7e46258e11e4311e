// SPDX-License-Identifier: Apache-2.0
// Takes each request before its handler, and lets it be answered where it belongs.
#include <string.h>

#include "replicas_priv.h"

static bool
on_request(struct http_request *request, void *arg)
{
    struct replicas *replicas = arg;
    int n_forwards = replicas_times_forwarded(replicas, request);
    if (n_forwards < 0) {
        replicas_reply_lost(request);
        return true;
    }
    if (n_forwards > 0)
        http_request_set_forwarded(request);
    return place_start(replicas, request, n_forwards > 0);
}

static bool
is_replica(const struct sockaddr *from, void *arg)
{
    const struct replicas *replicas = arg;
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    size_t n = provisioner_other_replicas(replicas->settings.provisioner, places);
    for (size_t i = 0; i < n; i++)
        if (replicas_is_from(from, places[i].address))
            return true;
    return false;
}

struct replicas *
replicas_new(const struct replicas_settings *settings, struct http_server *server)
{
    struct replicas *replicas = KG_NEW(struct replicas);
    replicas->settings = *settings;
    replicas->server = server;
    http_server_set_forward(server, on_request, replicas);
    http_server_set_replica(server, is_replica, replicas);
    return replicas;
}

void
replicas_leave(struct replicas *replicas, int64_t ends_ms)
{
    replicas->left = true;
    replicas->ends_ms = ends_ms;
}

void
replicas_free(struct replicas *replicas)
{
    free(replicas);
}
