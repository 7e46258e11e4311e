// SPDX-License-Identifier: Apache-2.0
// Passwords as Argon2id (RFC 9106) hashes: 19 MiB and some 30 ms of a processor for each.
#pragma once

#include "account_store.h"
#include "base.h"
#include "loop.h"

// Measured in bytes of UTF-8.
enum { PASSWORD_MIN = 10, PASSWORD_MAX = 1024 };
// KG_INVALID: it is too short or too long, or not UTF-8.
KG_MUST_CHECK int password_check(const char *password, struct kg_error *err);
// These take that time. KG_INTERNAL: there is no memory for it.
KG_MUST_CHECK int password_hash(const char *password, char ret_hash[ACCOUNT_HASH_SIZE],
                                struct kg_error *err);
// Takes as long with the hash "", which no password has.
bool password_matches(const char *password, const char *hash);

// The same on a worker of the loop: one at a time, so that another one stays free.
struct passwords;
struct passwords *passwords_new(struct loop *loop);
// After all its jobs.
void passwords_free(struct passwords *passwords);

// The places of requests with passwords, from their first access to the database to their answer:
// without one a request gets KG_RATE_LIMITED, so that strangers cannot keep the database from
// others, nor their places from users.
enum password_clients { PASSWORD_STRANGERS, PASSWORD_USERS };
enum {
    PASSWORD_PLACES_MAX = 16, // of strangers, and as many of users
    PASSWORD_SHARE_MAX = 4,   // of one network, or one user
};
// Returns the place. `who`: a network or a user, less than PASSWORD_WHO_SIZE bytes; "": not known,
// and without a limit of its own.
enum { PASSWORD_WHO_SIZE = 65 };
KG_MUST_CHECK int passwords_enter(struct passwords *passwords, enum password_clients clients,
                                  const char *who, struct kg_error *err);
void passwords_leave(struct passwords *passwords, int place);

struct password_job;
// `hash`: what was made, or NULL, of a comparison; or of one that failed. `matches`: the result of
// a comparison. `err` is NULL if there was no failure. Borrowed for the time of the call.
typedef void (*password_fn)(const char *hash, bool matches, const struct kg_error *err, void *arg);
// For a request that has entered. Compares the password with `hash`; or, if that is NULL, makes its
// hash. Both are copied.
struct password_job *passwords_start(struct passwords *passwords, const char *password,
                                     const char *hash, password_fn done, void *arg);
// `done` will not be called.
void password_job_cancel(struct password_job *job);
