// SPDX-License-Identifier: Apache-2.0
// Counters without names: what they count is known by a hash with a random key. Two that share one
// are limited a little earlier, and nobody can choose with whom to share.

#include "login_limits.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

enum { COUNTERS = 16384 };

struct login_limits {
    unsigned char key[LOGIN_LIMITS_KEY_LEN];
    int64_t window_ms; // when it began
    uint16_t of_both[COUNTERS];
    uint16_t of_networks[COUNTERS];
    uint16_t of_names[COUNTERS];
};

struct login_limits *
login_limits_new(const unsigned char *key)
{
    static_assert(LOGIN_LIMITS_KEY_LEN == crypto_shorthash_KEYBYTES, "");
    struct login_limits *limits = KG_NEW(struct login_limits);
    if (key)
        memcpy(limits->key, key, sizeof limits->key);
    else
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
counters_of(struct login_limits *limits, const char *name, const char *network)
{
    uint64_t of[2] = {hash_of(limits, name, strlen(name)),
                      hash_of(limits, network, strlen(network))};
    return (struct counters){
        .both = &limits->of_both[hash_of(limits, of, sizeof of) % COUNTERS],
        .name = &limits->of_names[of[0] % COUNTERS],
        .network = *network ? &limits->of_networks[of[1] % COUNTERS] : NULL,
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

// Below the limits none reaches its end.
static void
login_limits_add(const struct counters *counters, int n)
{
    *counters->both = (uint16_t)(*counters->both + n);
    *counters->name = (uint16_t)(*counters->name + n);
    if (counters->network)
        *counters->network = (uint16_t)(*counters->network + n);
}

int
login_limits_take(struct login_limits *limits, const char *name, const char *network,
                  int64_t now_ms, struct kg_error *err)
{
    forget(limits, now_ms);
    const struct counters failed = counters_of(limits, name, network);
    const char *what = NULL;
    if (*failed.both >= LOGIN_FAILURES_OF_BOTH || *failed.name >= LOGIN_FAILURES_OF_NAME)
        what = *name ? "logins with this name failed" : "registrations";
    else if (failed.network && *failed.network >= LOGIN_FAILURES_OF_NETWORK)
        what = "logins from your network failed";
    if (what) {
        int64_t wait_s = (limits->window_ms + LOGIN_WINDOW_MS - now_ms + 999) / 1000;
        kg_error_set(err, KG_RATE_LIMITED, 0, "too many %s: try again in %lld s", what,
                     (long long)wait_s);
        err->retry_after_s = wait_s;
        return -1;
    }
    login_limits_add(&failed, 1);
    return 0;
}

void
login_limits_give_back(struct login_limits *limits, const char *name, const char *network,
                       int64_t taken_ms)
{
    const struct counters counters = counters_of(limits, name, network);
    if (taken_ms >= limits->window_ms)
        login_limits_add(&counters, -1);
}
