// SPDX-License-Identifier: Apache-2.0
// What the files of the accounts share.
#pragma once

#include <sqlite3.h>
#include <sys/queue.h>

#include "account_store.h"
#include "accounts.h"
#include "http.h"
#include "loop.h"

// ---- account_store.c ------------------------------------------------------------------------

struct account_store {
    sqlite3 *db;
    char *path;
    int failure;          // the primary result code of what failed last
    int64_t seen_version; // PRAGMA data_version when the list was read last; 0: never
    uint64_t device, inode;
};

// Sets the error for what failed last, and returns -1.
int store_fail(struct account_store *store, struct kg_error *err);
// A statement, to be finished with store_finish(); NULL with the error. The arguments are bound in
// their order, one for each character of `types`: s (const char *), i (int64_t),
// d (double).
KG_MUST_CHECK sqlite3_stmt *store_prepare(struct account_store *store, struct kg_error *err,
                                          const char *sql, const char *types, ...);
// Steps: 1 where there is a row, 0 at the end, -1 with the error.
KG_MUST_CHECK int store_step(struct account_store *store, sqlite3_stmt *statement,
                             struct kg_error *err);
static inline void
store_finish_(sqlite3_stmt **statement)
{
    sqlite3_finalize(*statement);
}
#define STORE_AUTO_STATEMENT __attribute__((cleanup(store_finish_))) sqlite3_stmt *
// Each change is one transaction. store_commit() also lets a gateway notice it.
KG_MUST_CHECK int store_begin(struct account_store *store, struct kg_error *err);
KG_MUST_CHECK int store_commit(struct account_store *store, struct kg_error *err);
// Undoes what is not committed; returns -1.
int store_roll_back(struct account_store *store);
// Commits, or undoes if `result` is negative.
KG_MUST_CHECK int store_end(struct account_store *store, int result, struct kg_error *err);
// Whether a commit waits until the disk has it, which is so after opening.
void store_set_durable(struct account_store *store, bool durable);
// Whether the path still is the file that was opened.
bool store_is_current(const struct account_store *store);
// Fails if a newer kernelgate has changed the schema since the file was opened.
KG_MUST_CHECK int store_check_version(struct account_store *store, struct kg_error *err);
// Whether another connection may have changed something since the last call.
KG_MUST_CHECK int store_has_changed(struct account_store *store, bool *ret, struct kg_error *err);

// ---- account_users.c ------------------------------------------------------------------------

// Within a transaction. KG_INVALID: the name is not allowed, or is taken.
KG_MUST_CHECK int user_insert(struct account_store *store, const char *name, struct kg_error *err);
// KG_INVALID, as of a name that is taken.
KG_MUST_CHECK int user_check_never_removed(struct account_store *store, const char *name,
                                           struct kg_error *err);
// KG_NOT_FOUND.
KG_MUST_CHECK int user_find_id(struct account_store *store, const char *name, int64_t *ret_id,
                               struct kg_error *err);

// ---- account_keys.c -------------------------------------------------------------------------

enum { KEY_HASH_LEN = 32 };
// Whether a credential has the form of a key; then `ret_id` has ACCOUNT_KEY_ID_LEN + 1 bytes.
bool key_parse(const char *credential, char *ret_id);
void key_hash(const char *key, unsigned char ret[KEY_HASH_LEN]);

struct key_use {
    char id[ACCOUNT_KEY_ID_LEN + 1];
    int64_t used_ms;
};
// Makes a key within a transaction, with a new id and secret. `expires_ms`: clock_wall_ms(); 0:
// never.
KG_MUST_CHECK int key_insert(struct account_store *store, int64_t user_id, const char *name,
                             int64_t expires_ms, char ret_key[ACCOUNT_KEY_LEN + 1],
                             struct kg_error *err);
KG_MUST_CHECK int key_write_uses(struct account_store *store, const struct key_use *uses, size_t n,
                                 struct kg_error *err);

// ---- account_list.c -------------------------------------------------------------------------

// All valid keys and the users that may use them, as the file had them at one time. Any thread may
// read one from the file; afterwards it belongs to the loop.
struct account_list;
KG_MUST_CHECK struct account_list *account_list_read(struct account_store *store,
                                                     struct kg_error *err);
void account_list_free(struct account_list *list);
KG_DEFINE_AUTO(account_list, account_list_free)
// Those that are not disabled.
size_t account_list_users(const struct account_list *list);
// Whether there are no users at all.
bool account_list_is_empty(const struct account_list *list);
// NULL: there is no such user. Borrowed.
const struct account_quota *account_list_quota(const struct account_list *list, const char *user);
size_t account_list_keys(const struct account_list *list);
// The owner of a key, borrowed; NULL: it is not valid, or no longer. `ret_first`: nobody has asked
// for this key since account_list_forget_uses().
const char *account_list_find(struct account_list *list, const char *id, const char *credential,
                              bool *ret_first);
void account_list_forget_uses(struct account_list *list);

// ---- account_job.c --------------------------------------------------------------------------

struct account_call {
    TAILQ_ENTRY(account_call) link; // until a job takes it
    struct accounts *accounts;
    account_call_fn run;
    account_called_fn done; // NULL: it was cancelled
    loop_fn discard;
    void *arg;
    bool failed;
    struct kg_error err;
};
// Calls back, and frees the call, which may be NULL.
void account_call_finish(struct account_call *call);

// Belongs to the worker until it is done.
struct account_job {
    struct accounts *accounts;
    struct account_store *store; // NULL: not open
    char *path;
    bool make;
    bool full;                 // read the list even if no other connection has changed anything
    struct account_call *call; // or NULL
    struct key_use *uses;
    size_t n_uses;
    bool failed;
    struct kg_error err;
    bool uses_failed;
    struct kg_error uses_err;
    struct account_list *list; // NULL: as before
};
void account_job_run(void *arg);
// Also of one that was cancelled.
void account_job_free(void *arg);

// ---- account_watch.c ------------------------------------------------------------------------

// Knows whether any program has written to the database since it was asked last.
struct account_watch;
// `on_change` is called soon after a change.
struct account_watch *account_watch_new(struct loop *loop, const char *path, loop_fn on_change,
                                        void *arg);
void account_watch_free(struct account_watch *watch);
// True once for each change. Never misses one that was complete before the call.
bool account_watch_changed(struct account_watch *watch);
