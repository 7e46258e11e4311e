// SPDX-License-Identifier: Apache-2.0
// The server's counts of each owner: its open connections, and how many requests it may still send
// (a bucket that holds two seconds' worth). An owner without a connection is forgotten when its
// bucket is full again, which is after two seconds without a request.

#include <assert.h>
#include <string.h>

#include "http_priv.h"

enum { BURST_S = 2, QUIET_MAX = 1024 };

static size_t
owner_slot(const char *name)
{
    return hash_fnv1a(name, strlen(name)) % HTTP_OWNER_SLOTS;
}

static void
owner_remove(struct http_owners *owners, struct http_owner *owner)
{
    assert(owner->n_connections == 0);
    LIST_REMOVE(owner, slot_link);
    TAILQ_REMOVE(&owners->quiet, owner, quiet_link);
    owners->n_quiet--;
    free(owner);
}

static void
owner_add_quiet(struct http_owners *owners, struct http_owner *owner)
{
    TAILQ_INSERT_TAIL(&owners->quiet, owner, quiet_link);
    owners->n_quiet++;
}

// The list is nearly in the order of the last requests. An owner whose connection closed long after
// its last request is behind others, and is removed a little later.
static void
forget_quiet(struct http_owners *owners, int64_t now_us)
{
    struct http_owner *oldest;
    while ((oldest = TAILQ_FIRST(&owners->quiet)) &&
           (owners->n_quiet > QUIET_MAX || now_us - oldest->filled_us >= BURST_S * 1000000))
        owner_remove(owners, oldest);
}

// A new owner is in the list of quiet ones.
static struct http_owner *
find_or_add(struct http_owners *owners, const char *name)
{
    size_t slot = owner_slot(name);
    struct http_owner *owner;
    LIST_FOREACH(owner, &owners->slots[slot], slot_link) {
        if (strcmp(owner->name, name) == 0)
            return owner;
    }
    owner = KG_NEW(struct http_owner);
    assert(strlen(name) <= HTTP_OWNER_MAX);
    strcpy(owner->name, name);
    LIST_INSERT_HEAD(&owners->slots[slot], owner, slot_link);
    owner_add_quiet(owners, owner);
    return owner;
}

void
owners_init(struct http_owners *owners)
{
    TAILQ_INIT(&owners->quiet);
}

void
owners_fini(struct http_owners *owners)
{
    while (!TAILQ_EMPTY(&owners->quiet))
        owner_remove(owners, TAILQ_FIRST(&owners->quiet));
}

struct http_owner *
owner_join(struct http_owners *owners, const char *name)
{
    struct http_owner *owner = find_or_add(owners, name);
    if (owner->n_connections++ == 0) {
        TAILQ_REMOVE(&owners->quiet, owner, quiet_link);
        owners->n_quiet--;
    }
    return owner;
}

void
owner_leave(struct http_owners *owners, struct http_owner *owner, int64_t now_us)
{
    assert(owner->n_connections > 0);
    if (--owner->n_connections > 0)
        return;
    owner_add_quiet(owners, owner);
    forget_quiet(owners, now_us);
}

int
owner_take_request(struct http_owners *owners, const char *name, double per_second, int64_t now_us,
                   struct kg_error *err)
{
    if (per_second <= 0)
        return 0;
    struct http_owner *owner = find_or_add(owners, name);
    double most = per_second * BURST_S;
    if (owner->filled_us == 0 || now_us - owner->filled_us >= BURST_S * 1000000)
        owner->tokens = most;
    else
        owner->tokens += (double)(now_us - owner->filled_us) / 1e6 * per_second;
    if (owner->tokens > most)
        owner->tokens = most;
    owner->filled_us = now_us;
    if (owner->n_connections == 0) {
        TAILQ_REMOVE(&owners->quiet, owner, quiet_link);
        TAILQ_INSERT_TAIL(&owners->quiet, owner, quiet_link);
    }
    // A rate below one in two seconds still lets one request through at a time.
    bool enough = owner->tokens >= 1 || owner->tokens >= most;
    owner->tokens -= enough;
    forget_quiet(owners, now_us);
    if (!enough)
        return kg_error_set(err, KG_RATE_LIMITED, 0,
                            "this owner may make %.15g requests a second "
                            "(max-requests-per-second); try again later",
                            per_second);
    return 0;
}
