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
};
struct login_limits;
struct login_limits *login_limits_new(void);
void login_limits_free(struct login_limits *limits);
// KG_RATE_LIMITED while one of them has failed too often. `network`: 16 bytes; NULL: any, which is
// not limited as such.
KG_MUST_CHECK int login_limits_check(struct login_limits *limits, const char *name,
                                     const unsigned char *network, int64_t now_ms,
                                     struct kg_error *err);
// Counts a failure.
void login_limits_fail(struct login_limits *limits, const char *name, const unsigned char *network,
                       int64_t now_ms);
