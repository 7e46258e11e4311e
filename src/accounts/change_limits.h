// SPDX-License-Identifier: Apache-2.0
// How many keys and logins users have made lately: each is a write that waits for the disk, and
// others' writes wait for it. Those who made their accounts themselves also share one limit, since
// anybody may have any number of accounts. What ends a key or login is not limited: one was made
// before.
#pragma once

#include "base.h"

enum {
    CHANGE_WINDOW_MS = 60 * 1000,
    CHANGES_PER_USER_MAX = 10000,
    CHANGES_REGISTERED = 10, // all registered users together may make so many times as many as one
};
enum change_kind { CHANGE_KEY, CHANGE_LOGIN, CHANGE_KINDS };

struct change_limits;
// `per_minute`: of each user, and of each kind; 0: no limit.
struct change_limits *change_limits_new(int per_minute);
void change_limits_free(struct change_limits *limits);
// KG_RATE_LIMITED, and not counted: the user has made too many. `is_registered`: see above.
KG_MUST_CHECK int change_limits_take(struct change_limits *limits, enum change_kind kind,
                                     const char *user, bool is_registered, int64_t now_ms,
                                     struct kg_error *err);
