// SPDX-License-Identifier: Apache-2.0
// How many requests an owner may make a second: a bucket each, that holds two seconds' worth.

#include <string.h>

#include "api_priv.h"

enum { BURST_S = 2, BUCKETS_MAX = 1024 };

// A bucket that was not used for BURST_S is full, and so as good as a new one.
struct bucket {
    char *owner;
    double tokens;
    int64_t filled_us;
};

struct rate_limiter {
    double per_second;
    struct bucket *buckets;
    size_t n;
};

struct rate_limiter *
rate_limiter_new(double per_second)
{
    struct rate_limiter *limiter = KG_NEW(struct rate_limiter);
    limiter->per_second = per_second;
    return limiter;
}

void
rate_limiter_free(struct rate_limiter *limiter)
{
    if (!limiter)
        return;
    for (size_t i = 0; i < limiter->n; i++)
        free(limiter->buckets[i].owner);
    free(limiter->buckets);
    free(limiter);
}

// The place for one more: beyond the bound that of the owner who has been quiet for longest.
static struct bucket *
add_bucket(struct rate_limiter *limiter)
{
    if (limiter->n < BUCKETS_MAX) {
        limiter->buckets =
            kg_realloc(limiter->buckets, (limiter->n + 1) * sizeof limiter->buckets[0]);
        return &limiter->buckets[limiter->n++];
    }
    struct bucket *oldest = &limiter->buckets[0];
    for (size_t i = 1; i < limiter->n; i++)
        if (limiter->buckets[i].filled_us < oldest->filled_us)
            oldest = &limiter->buckets[i];
    free(oldest->owner);
    return oldest;
}

static struct bucket *
find_bucket(struct rate_limiter *limiter, const char *owner)
{
    for (size_t i = 0; i < limiter->n; i++) {
        if (strcmp(limiter->buckets[i].owner, owner) == 0)
            return &limiter->buckets[i];
    }
    struct bucket *bucket = add_bucket(limiter);
    *bucket = (struct bucket){.owner = kg_strdup(owner),
                              .tokens = limiter->per_second * BURST_S,
                              .filled_us = clock_mono_us()};
    return bucket;
}

int
rate_limiter_take(struct rate_limiter *limiter, const char *owner, struct kg_error *err)
{
    if (limiter->per_second <= 0)
        return 0;
    struct bucket *bucket = find_bucket(limiter, owner);
    double most = limiter->per_second * BURST_S;
    int64_t now_us = clock_mono_us();
    bucket->tokens += (double)(now_us - bucket->filled_us) / 1e6 * limiter->per_second;
    if (bucket->tokens > most)
        bucket->tokens = most;
    bucket->filled_us = now_us;
    // A rate below one in two seconds still lets one request through at a time.
    if (bucket->tokens < 1 && bucket->tokens < most)
        return kg_error_set(err, KG_RATE_LIMITED, 0,
                            "more than %.15g requests a second; try again later",
                            limiter->per_second);
    bucket->tokens -= 1;
    return 0;
}
