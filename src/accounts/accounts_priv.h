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

// One entry of the file's list of changes; `number` 0: none.
struct account_change_mark {
    int64_t number, mark;
};
struct account_store {
    sqlite3 *db;
    char *path;
    int failure;                     // the primary result code of what failed last
    int64_t seen_version;            // PRAGMA data_version, when it was read last; 0: never
    struct account_change_mark seen; // the last one of which account_news_read() has told
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
// Opens the file if `*store` is NULL, or is not what the path leads to any more; `ret_fresh`: it
// has.
KG_MUST_CHECK int store_reopen(struct account_store **store, const char *path, bool make,
                               int busy_ms, bool *ret_fresh, struct kg_error *err);
// Statements without arguments; a number: of the first row.
KG_MUST_CHECK int store_run(struct account_store *store, const char *sql, struct kg_error *err);
KG_MUST_CHECK int store_read_number(struct account_store *store, const char *sql, int64_t *ret,
                                    struct kg_error *err);
// Grows with each row that this connection changes.
int64_t store_count_changes(const struct account_store *store);
// Whether another connection may have changed something since the last call.
KG_MUST_CHECK int store_has_changed(struct account_store *store, bool *ret, struct kg_error *err);

// ---- account_schema.c -----------------------------------------------------------------------

// Fails if a newer kernelgate has changed the schema since the file was opened.
KG_MUST_CHECK int store_check_version(struct account_store *store, struct kg_error *err);
// The same, and what is read from then on is of one time, until store_roll_back().
KG_MUST_CHECK int store_begin_reading(struct account_store *store, struct kg_error *err);
// Brings the file's schema up to date.
KG_MUST_CHECK int store_migrate(struct account_store *store, struct kg_error *err);

// ---- account_users.c ------------------------------------------------------------------------

// Within a transaction. KG_INVALID: the name is not allowed, or is taken.
KG_MUST_CHECK int user_insert(struct account_store *store, const char *name, struct kg_error *err);
// KG_INVALID, as of a name that is taken.
KG_MUST_CHECK int user_check_never_removed(struct account_store *store, const char *name,
                                           struct kg_error *err);
// KG_NOT_FOUND.
KG_MUST_CHECK int user_find_id(struct account_store *store, const char *name, int64_t *ret_id,
                               struct kg_error *err);

// With all keys, within a transaction. KG_NOT_FOUND.
KG_MUST_CHECK int user_remove(struct account_store *store, const char *name, struct kg_error *err);

// The user has come back, within a transaction.
KG_MUST_CHECK int user_note_use(struct account_store *store, int64_t user_id, struct kg_error *err);

// ---- account_logins.c -----------------------------------------------------------------------

// Both within a transaction. `expected`: the present one, else KG_INVALID; NULL: any.
KG_MUST_CHECK int password_update(struct account_store *store, int64_t user_id,
                                  const char *expected, const char *hash, struct kg_error *err);
KG_MUST_CHECK int login_insert(struct account_store *store, int64_t user_id,
                               char ret_key[ACCOUNT_KEY_LEN + 1], struct kg_error *err);

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

struct listed_user {
    int64_t id;
    char name[HTTP_OWNER_MAX + 1];
    bool disabled, administrator, registered;
    struct account_quota quota;
};
struct listed_key {
    char id[ACCOUNT_KEY_ID_LEN + 1];
    unsigned char hash[KEY_HASH_LEN];
    int64_t user_id;
    int64_t expires_ms; // clock_wall_ms(); 0: never
    uint64_t used_in;   // the last round in which it was asked for
};
// A user or key as the file has it, or as it has it no longer: then only the id is set.
struct account_row {
    enum account_row_kind { ROW_USER, ROW_KEY } kind;
    bool gone;
    union {
        struct listed_user user;
        struct listed_key key;
    };
};

// All keys and users. Any thread may fill one; afterwards it belongs to the loop. Every function
// takes a time that grows with the logarithm of their number at most.
struct account_list;
struct account_list *account_list_new(void);
void account_list_free(struct account_list *list);
KG_DEFINE_AUTO(account_list, account_list_free)
// Adds, replaces or removes the row.
void account_list_take(struct account_list *list, const struct account_row *row);
// Those that are not disabled.
size_t account_list_users(const struct account_list *list);
// Whether there are no users at all.
bool account_list_is_empty(const struct account_list *list);
// NULL: there is no such user. Borrowed until the next change.
const struct listed_user *account_list_user(const struct account_list *list, const char *name);
size_t account_list_keys(const struct account_list *list);
// The owner of a key, borrowed; NULL: it is not valid, or no longer. `ret_first`: nobody has asked
// for this key in this round.
const char *account_list_find(struct account_list *list, const char *id, const char *credential,
                              uint64_t round, bool *ret_first);

// ---- account_read.c -------------------------------------------------------------------------

// What was read: everything, or rows that may have changed.
struct account_news {
    struct account_list *all; // NULL: only `rows`
    struct account_row *rows;
    size_t n_rows, cap_rows;
    size_t n_read; // rows of users and keys
};
// What has changed since the last time; `all`: everything. On a worker.
KG_MUST_CHECK struct account_news *account_news_read(struct account_store *store, bool all,
                                                     struct kg_error *err);
void account_news_free(struct account_news *news);
KG_DEFINE_AUTO(account_news, account_news_free)

// ---- account_reader.c -----------------------------------------------------------------------

// `news` NULL: nothing has changed, or it failed with `err`, which is NULL if it did not. The
// callee may take news->all.
typedef void (*account_read_fn)(uint64_t number, struct account_news *news,
                                const struct kg_error *err, void *arg);
struct account_reader;
// Reads at once, and after each change by any program; after a failure, each second.
struct account_reader *account_reader_new(struct loop *loop, const char *path, account_read_fn fn,
                                          void *arg);
void account_reader_free(struct account_reader *reader);
// The number of the read that sees all that was changed before this call. It or a later one will
// come. 0: what was read is up to date. `anew`: something has changed.
uint64_t account_reader_ask(struct account_reader *reader, bool anew);
// Whether the last read succeeded; whether any has.
bool account_reader_knows(const struct account_reader *reader);
bool account_reader_has_known(const struct account_reader *reader);

// ---- account_writer.c -----------------------------------------------------------------------

struct account_writer;
struct account_writer *account_writer_new(struct loop *loop, const char *path,
                                          struct account_reader *reader);
// Writes the last uses, which may block.
void account_writer_free(struct account_writer *writer);
// See accounts_call().
struct account_call *account_writer_call(struct account_writer *writer, account_call_fn run,
                                         account_called_fn done, void *arg);
// What the read with that number has found is in effect, or it has failed.
void account_writer_on_read(struct account_writer *writer, uint64_t number);
// Of each key one use is noted in each round.
uint64_t account_writer_round(const struct account_writer *writer);
void account_writer_note_use(struct account_writer *writer, const char *id);

// ---- accounts.c -----------------------------------------------------------------------------

// What has been read since the beginning, for tests.
struct account_counts {
    uint64_t n_full; // times everything was read
    uint64_t n_rows; // rows of users and keys, those included
};
struct account_counts accounts_counts(const struct accounts *accounts);

// ---- account_watch.c ------------------------------------------------------------------------

// Knows whether any program has written to the database since it was asked last.
struct account_watch;
// `on_change` is called soon after a change.
struct account_watch *account_watch_new(struct loop *loop, const char *path, loop_fn on_change,
                                        void *arg);
void account_watch_free(struct account_watch *watch);
// True once for each change. Never misses one that was complete before the call.
bool account_watch_changed(struct account_watch *watch);
