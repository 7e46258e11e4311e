// SPDX-License-Identifier: Apache-2.0
// Accounts in a running gateway: an authenticator whose keys are in a database (account_store.h),
// beside those of the settings.
#pragma once

#include "base.h"
#include "change_limits.h"
#include "http.h"
#include "loop.h"

struct account_store;

struct accounts_settings {
    struct loop *loop;
    const char *path;                 // of the database, which is made if it does not exist; copied
    struct http_authenticator *fixed; // of keys that are asked first, answers at once; or NULL
    // Of an owner without a quota of its own, while there is at most one owner, or several.
    struct http_quota alone;
    struct http_quota shared;
    int changes_per_minute; // of each user: change_limits.h
    // There are several owners now, or no longer. Called on the loop; or NULL.
    loop_fn on_owners;
    void *arg;
};

struct accounts;
// Reads the database on a worker, now and after each change by any program. While it cannot be
// read, its keys get KG_ACCOUNTS_UNAVAILABLE and the log says why; those of `fixed` stay valid.
struct accounts *accounts_new(const struct accounts_settings *settings);
// After the server that uses the authenticator. Writes when keys were used last, which may block.
void accounts_free(struct accounts *accounts);
// Valid until accounts_free(). A key that was revoked, or whose user was disabled or removed,
// before the check began is not valid, whichever program did that.
struct http_authenticator *accounts_authenticator(struct accounts *accounts);
// How many owners the keys of `fixed` have; 2: several. Before this is called, none.
void accounts_set_fixed_owners(struct accounts *accounts, int n);
// While there is no user: a secret that lets its holder make the first one, who is an
// administrator. The log has told it. NULL: there are users, or the database is not known.
const char *accounts_first_user_token(const struct accounts *accounts);
// Whether a key of the settings is this owner's.
bool accounts_have_fixed_owner(const struct accounts *accounts, const char *owner);
// Whether requests may belong to several owners, as far as the database is known.
bool accounts_have_several_owners(const struct accounts *accounts);

// Whether the user made its account itself, and no administrator has set its role since.
bool accounts_has_registered(const struct accounts *accounts, const char *owner);

// Counts a key or login that a user is about to make. KG_RATE_LIMITED: too many. Administrators are
// not limited.
KG_MUST_CHECK int accounts_take_change(struct accounts *accounts, enum change_kind kind,
                                       const char *user, struct kg_error *err);

// ---- Work on the database -------------------------------------------------------------------

// Runs run(store, arg, err) on a worker, where it may use `arg` and nothing else, then done(err,
// arg) on the loop: `err` is NULL if it returned 0, else what it set, or why the database cannot be
// used. What it has changed is in effect when `done` is called.
struct account_call;
typedef int (*account_call_fn)(struct account_store *store, void *arg, struct kg_error *err);
typedef void (*account_called_fn)(const struct kg_error *err, void *arg);
struct account_call *accounts_call(struct accounts *accounts, account_call_fn run,
                                   account_called_fn done, void *arg);
// `done` will not be called, but `discard` on the loop: at once, or when a worker has ended with
// it. What it was to do may be done.
void account_call_cancel(struct account_call *call, loop_fn discard);
