// SPDX-License-Identifier: Apache-2.0
// Counters without names, as those of logins (login_limits.c): two users that share one are limited
// a little earlier, and nobody can choose with whom to share.

#include "change_limits.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

enum { COUNTERS = 16384 };

struct change_limits {
    unsigned char key[crypto_shorthash_KEYBYTES];
    int per_minute;
    int64_t window_ms; // when it began
    int of_registered[CHANGE_KINDS];
    uint16_t of_users[CHANGE_KINDS][COUNTERS];
};

struct change_limits *
change_limits_new(int per_minute)
{
    assert(per_minute >= 0 && per_minute <= CHANGES_PER_USER_MAX);
    struct change_limits *limits = KG_NEW(struct change_limits);
    limits->per_minute = per_minute;
    randombytes_buf(limits->key, sizeof limits->key);
    return limits;
}

void
change_limits_free(struct change_limits *limits)
{
    free(limits);
}

static uint16_t *
counter_of(struct change_limits *limits, enum change_kind kind, const char *user)
{
    uint64_t hash;
    unsigned char bytes[crypto_shorthash_BYTES];
    static_assert(sizeof hash == sizeof bytes, "");
    crypto_shorthash(bytes, (const unsigned char *)user, strlen(user), limits->key);
    memcpy(&hash, bytes, sizeof hash);
    return &limits->of_users[kind][hash % COUNTERS];
}

static void
forget(struct change_limits *limits, int64_t now_ms)
{
    if (limits->window_ms > 0 && now_ms - limits->window_ms < CHANGE_WINDOW_MS)
        return;
    limits->window_ms = now_ms;
    memset(limits->of_registered, 0, sizeof limits->of_registered);
    memset(limits->of_users, 0, sizeof limits->of_users);
}

static int
refuse(const struct change_limits *limits, const char *by, int limit, enum change_kind kind,
       int64_t now_ms, struct kg_error *err)
{
    int64_t wait_s = (limits->window_ms + CHANGE_WINDOW_MS - now_ms + 999) / 1000;
    kg_error_set(err, KG_RATE_LIMITED, 0,
                 "%s made %d %s within a minute, and account-changes-per-minute allows no more: "
                 "try again in %lld s",
                 by, limit, kind == CHANGE_KEY ? "keys" : "logins", (long long)wait_s);
    err->retry_after_s = wait_s;
    return -1;
}

int
change_limits_take(struct change_limits *limits, enum change_kind kind, const char *user,
                   bool is_registered, int64_t now_ms, struct kg_error *err)
{
    if (limits->per_minute == 0)
        return 0;
    forget(limits, now_ms);
    uint16_t *of_user = counter_of(limits, kind, user);
    int of_all = limits->per_minute * CHANGES_REGISTERED;
    if (*of_user >= limits->per_minute)
        return refuse(limits, user, limits->per_minute, kind, now_ms, err);
    if (is_registered && limits->of_registered[kind] >= of_all)
        return refuse(limits, "users who registered themselves", of_all, kind, now_ms, err);
    ++*of_user;
    limits->of_registered[kind] += is_registered;
    return 0;
}
