// SPDX-License-Identifier: Apache-2.0
// Counters without names: each name and network has one of them, by a hash with a random key. Two
// that share one are limited a little earlier, and nobody can choose with whom to share.

#include "login_limits.h"

#include <sodium.h>
#include <string.h>

enum { COUNTERS = 4096, NETWORK_LEN = 16 };

struct login_limits {
    unsigned char key[crypto_shorthash_KEYBYTES];
    int64_t window_ms; // when it began
    uint16_t of_names[COUNTERS];
    uint16_t of_networks[COUNTERS];
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

static uint16_t *
counter(struct login_limits *limits, uint16_t *counters, const void *of, size_t len)
{
    uint64_t hash;
    unsigned char bytes[crypto_shorthash_BYTES];
    crypto_shorthash(bytes, of, len, limits->key);
    memcpy(&hash, bytes, sizeof hash);
    return &counters[hash % COUNTERS];
}

static void
forget(struct login_limits *limits, int64_t now_ms)
{
    if (now_ms - limits->window_ms < LOGIN_WINDOW_MS)
        return;
    limits->window_ms = now_ms;
    memset(limits->of_names, 0, sizeof limits->of_names);
    memset(limits->of_networks, 0, sizeof limits->of_networks);
}

int
login_limits_check(struct login_limits *limits, const char *name, const unsigned char *network,
                   int64_t now_ms, struct kg_error *err)
{
    forget(limits, now_ms);
    bool name_failed =
        *counter(limits, limits->of_names, name, strlen(name)) >= LOGIN_FAILURES_OF_NAME;
    bool network_failed = network && *counter(limits, limits->of_networks, network, NETWORK_LEN) >=
                                         LOGIN_FAILURES_OF_NETWORK;
    if (!name_failed && !network_failed)
        return 0;
    return kg_error_set(err, KG_RATE_LIMITED, 0, "too many logins %s failed: try again in %lld s",
                        name_failed ? "with this name" : "from your network",
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
    add_one(counter(limits, limits->of_names, name, strlen(name)));
    if (network)
        add_one(counter(limits, limits->of_networks, network, NETWORK_LEN));
}
