// SPDX-License-Identifier: Apache-2.0
// A list of splices.
#include "relays.h"

#include <assert.h>
#include <sys/queue.h>

#include "splice.h"

struct relay {
    LIST_ENTRY(relay) entry;
    struct relays *relays;
    struct splice *splice;
};

struct relays {
    struct loop *loop;
    LIST_HEAD(, relay) list;
    int n, max;
};

static void
relay_free(struct relay *relay)
{
    LIST_REMOVE(relay, entry);
    relay->relays->n--;
    splice_free(relay->splice);
    free(relay);
}

static void
relay_on_end(void *arg)
{
    relay_free(arg);
}

void
relays_join(struct relays *relays, int client, int link)
{
    struct relay *relay = KG_NEW(struct relay);
    assert(relays_room(relays) > 0);
    relay->relays = relays;
    relay->splice =
        splice_new(relays->loop, client, link, SPLICE_HALF_CLOSED_MS, relay_on_end, relay);
    LIST_INSERT_HEAD(&relays->list, relay, entry);
    relays->n++;
}

int
relays_room(const struct relays *relays)
{
    return relays->max - relays->n;
}

struct relays *
relays_new(struct loop *loop, int max)
{
    struct relays *relays = KG_NEW(struct relays);
    relays->loop = loop;
    relays->max = max;
    LIST_INIT(&relays->list);
    return relays;
}

void
relays_free(struct relays *relays)
{
    if (!relays)
        return;
    for (struct relay *relay; (relay = LIST_FIRST(&relays->list));)
        relay_free(relay);
    free(relays);
}
