// SPDX-License-Identifier: Apache-2.0
// Counters without names: what they count is known by a hash with a random key. Two that share one
// are limited a little earlier, and nobody can choose with whom to share.

#include "login_limits.h"

#include <sodium.h>
#include <string.h>

enum { COUNTERS = 4096, NETWORK_LEN = 16 };

struct login_limits {
    unsigned char key[crypto_shorthash_KEYBYTES];
    int64_t window_ms; // when it began
    uint16_t of_both[COUNTERS];
    uint16_t of_networks[COUNTERS];
    uint16_t of_names[COUNTERS];
};

struct login_limits *
login_limits_new(void)
{
    struct login_limits *limits = KG_NEW(struct login_limits);
    randombytes_buf(limits->key, sizeof limits->key);
    return limits;
}

void
login_limits_free(struct login_limits *limits)
{
    free(limits);
}

static uint64_t
hash_of(const struct login_limits *limits, const void *data, size_t len)
{
    uint64_t hash;
    unsigned char bytes[crypto_shorthash_BYTES];
    crypto_shorthash(bytes, data, len, limits->key);
    memcpy(&hash, bytes, sizeof hash);
    return hash;
}

// The counters of one login.
struct counters {
    uint16_t *both, *name, *network; // the last one may be NULL
};

static struct counters
counters_of(struct login_limits *limits, const char *name, const unsigned char *network)
{
    uint64_t of[2] = {hash_of(limits, name, strlen(name)),
                      network ? hash_of(limits, network, NETWORK_LEN) : 0};
    return (struct counters){
        .both = &limits->of_both[hash_of(limits, of, sizeof of) % COUNTERS],
        .name = &limits->of_names[of[0] % COUNTERS],
        .network = network ? &limits->of_networks[of[1] % COUNTERS] : NULL,
    };
}

static void
forget(struct login_limits *limits, int64_t now_ms)
{
    if (now_ms - limits->window_ms < LOGIN_WINDOW_MS)
        return;
    limits->window_ms = now_ms;
    memset(limits->of_both, 0, sizeof limits->of_both);
    memset(limits->of_networks, 0, sizeof limits->of_networks);
    memset(limits->of_names, 0, sizeof limits->of_names);
}

int
login_limits_check(struct login_limits *limits, const char *name, const unsigned char *network,
                   int64_t now_ms, struct kg_error *err)
{
    forget(limits, now_ms);
    struct counters failed = counters_of(limits, name, network);
    const char *what = NULL;
    if (*failed.both >= LOGIN_FAILURES_OF_BOTH || *failed.name >= LOGIN_FAILURES_OF_NAME)
        what = "with this name";
    else if (failed.network && *failed.network >= LOGIN_FAILURES_OF_NETWORK)
        what = "from your network";
    if (!what)
        return 0;
    return kg_error_set(err, KG_RATE_LIMITED, 0, "too many logins %s failed: try again in %lld s",
                        what,
                        (long long)(limits->window_ms + LOGIN_WINDOW_MS - now_ms + 999) / 1000);
}

static void
add_one(uint16_t *count)
{
    *count = (uint16_t)(*count + (*count < UINT16_MAX));
}

void
login_limits_fail(struct login_limits *limits, const char *name, const unsigned char *network,
                  int64_t now_ms)
{
    forget(limits, now_ms);
    struct counters counters = counters_of(limits, name, network);
    add_one(counters.both);
    add_one(counters.name);
    if (counters.network)
        add_one(counters.network);
}
