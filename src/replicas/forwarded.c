// SPDX-License-Identifier: Apache-2.0
// What a forwarded request carries, and what the client of a session without a holder reads.
#include <string.h>

#include "replicas_priv.h"

void
replicas_lost_error(struct kg_error *err)
{
    kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                 "the session is being taken over from a replica that has ended; try again");
}

char *
replicas_forwarded_line(const struct provisioner_place *place, int n)
{
    return n > 1 ? kg_asprintf(FORWARDED_HEADER ": %s %d", place->id, n)
                 : kg_asprintf(FORWARDED_HEADER ": %s", place->id);
}

int
replicas_read_forwarded(const char *value, const char *id)
{
    size_t len = strlen(id);
    if (!value)
        return 0;
    if (strncmp(value, id, len) != 0)
        return -1;
    if (!value[len])
        return 1;
    return value[len] == ' ' && value[len + 1] >= '2' && value[len + 1] <= '9' && !value[len + 2]
               ? value[len + 1] - '0'
               : -1;
}

int
replicas_times_forwarded(const struct replicas *replicas, const struct http_request *request)
{
    return replicas_read_forwarded(http_request_header(request, FORWARDED_HEADER),
                                   provisioner_replica_id(replicas->settings.provisioner));
}

void
replicas_reply_lost(struct http_request *request)
{
    struct kg_error err = {0};
    replicas_lost_error(&err);
    http_reply_error(request, &err);
}
