// SPDX-License-Identifier: Apache-2.0
// How many logins failed lately, by name and by network, so that passwords cannot be guessed. From
// one network a name is limited early, so that others cannot keep its user from logging in.
#pragma once

#include "base.h"

enum {
    LOGIN_WINDOW_MS = 60 * 1000,
    LOGIN_FAILURES_OF_BOTH = 10, // of a name from one network, in one window
    LOGIN_FAILURES_OF_NETWORK = 60,
    LOGIN_FAILURES_OF_NAME = 100,
    LOGIN_LIMITS_KEY_LEN = 16,
};
struct login_limits;
// `key`: LOGIN_LIMITS_KEY_LEN bytes that nobody outside may know; NULL: random ones.
struct login_limits *login_limits_new(const unsigned char *key);
void login_limits_free(struct login_limits *limits);
// Counts a login as a failed one, until it is known not to be. KG_RATE_LIMITED, and not counted:
// too many have failed. `name` "": a registration, which no name is to be limited by. `network`: a
// text; "": not known, and not limited as such.
KG_MUST_CHECK int login_limits_take(struct login_limits *limits, const char *name,
                                    const char *network, int64_t now_ms, struct kg_error *err);
// It has not failed. `taken_ms`: when it was counted.
void login_limits_give_back(struct login_limits *limits, const char *name, const char *network,
                            int64_t taken_ms);
