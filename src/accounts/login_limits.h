// SPDX-License-Identifier: Apache-2.0
// How many logins failed lately, by name and by network, so that passwords cannot be guessed.
#pragma once

#include "base.h"

enum {
    LOGIN_WINDOW_MS = 60 * 1000,
    LOGIN_FAILURES_OF_NAME = 10, // in one window
    LOGIN_FAILURES_OF_NETWORK = 60,
};
struct login_limits;
struct login_limits *login_limits_new(void);
void login_limits_free(struct login_limits *limits);
// KG_RATE_LIMITED while a name or a network has failed too often. `network`: 16 bytes; NULL: not
// limited.
KG_MUST_CHECK int login_limits_check(struct login_limits *limits, const char *name,
                                     const unsigned char *network, int64_t now_ms,
                                     struct kg_error *err);
// Counts a failure of both.
void login_limits_fail(struct login_limits *limits, const char *name, const unsigned char *network,
                       int64_t now_ms);
