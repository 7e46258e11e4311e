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
replicas_mark(const struct provisioner_place *place, int n)
{
    return n > 1 ? kg_asprintf(FORWARDED_HEADER ": %s %d", place->id, n)
                 : kg_asprintf(FORWARDED_HEADER ": %s", place->id);
}

int
replicas_read_mark(const char *mark, const char *id)
{
    size_t len = strlen(id);
    if (!mark)
        return 0;
    if (strncmp(mark, id, len) != 0)
        return -1;
    if (!mark[len])
        return 1;
    return mark[len] == ' ' && mark[len + 1] >= '2' && mark[len + 1] <= '9' && !mark[len + 2]
               ? mark[len + 1] - '0'
               : -1;
}

int
replicas_times_forwarded(const struct replicas *replicas, const struct http_request *request)
{
    return replicas_read_mark(http_request_header(request, FORWARDED_HEADER),
                              provisioner_replica_id(replicas->settings.provisioner));
}

void
replicas_reply_lost(struct http_request *request)
{
    struct kg_error err = {0};
    replicas_lost_error(&err);
    http_reply_error(request, &err);
}
