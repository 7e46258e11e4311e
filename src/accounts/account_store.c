// SPDX-License-Identifier: Apache-2.0
// Opens the database, and turns SQLite's errors into ours.

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accounts_priv.h"

enum { AGAIN_US = 5000 };

// ---- Errors ---------------------------------------------------------------------------------

static int
account_store_fail(const char *path, int code, const char *message, int sys_errno,
                   struct kg_error *err)
{
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return kg_error_set(err, KG_ACCOUNTS_UNAVAILABLE, 0,
                            "accounts-file %s is locked by another program: try again when that "
                            "has ended",
                            path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return kg_error_set(err, KG_ACCOUNTS_UNAVAILABLE, 0,
                            "accounts-file %s is damaged (%s): restore a backup", path, message);
    case SQLITE_FULL:
        return kg_error_set(err, KG_DISK_FULL, 0, "no space is left for accounts-file %s", path);
    }
    if (sys_errno == ENOSPC || sys_errno == EDQUOT)
        return kg_error_set(err, KG_DISK_FULL, 0, "no space is left for accounts-file %s", path);
    return kg_error_set(err, KG_ACCOUNTS_UNAVAILABLE, sys_errno, "accounts-file %s: %s", path,
                        message);
}

int
store_fail(struct account_store *store, struct kg_error *err)
{
    int code = sqlite3_extended_errcode(store->db);
    store->failure = code & 0xff;
    bool by_system =
        (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN || code == SQLITE_FULL;
    return account_store_fail(store->path, code, sqlite3_errmsg(store->db),
                              by_system ? sqlite3_system_errno(store->db) : 0, err);
}

// ---- Statements -----------------------------------------------------------------------------

static int
bind(sqlite3_stmt *statement, const char *types, va_list args)
{
    int result = SQLITE_OK;
    for (int i = 0; types[i] && result == SQLITE_OK; i++) {
        if (types[i] == 's')
            result = sqlite3_bind_text(statement, i + 1, va_arg(args, const char *), -1,
                                       SQLITE_TRANSIENT);
        else if (types[i] == 'd')
            result = sqlite3_bind_double(statement, i + 1, va_arg(args, double));
        else
            result = sqlite3_bind_int64(statement, i + 1, va_arg(args, int64_t));
    }
    return result;
}

sqlite3_stmt *
store_prepare(struct account_store *store, struct kg_error *err, const char *sql, const char *types,
              ...)
{
    sqlite3_stmt *statement = NULL;
    va_list args;
    va_start(args, types);
    bool good = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL) == SQLITE_OK &&
                bind(statement, types, args) == SQLITE_OK;
    va_end(args);
    if (good)
        return statement;
    store_fail(store, err);
    sqlite3_finalize(statement);
    return NULL;
}

int
store_step(struct account_store *store, sqlite3_stmt *statement, struct kg_error *err)
{
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        return 1;
    return result == SQLITE_DONE ? 0 : store_fail(store, err);
}

int
store_run(struct account_store *store, const char *sql, struct kg_error *err)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : store_fail(store, err);
}

int
store_read_number(struct account_store *store, const char *sql, int64_t *ret, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(store, err, sql, "");
    if (!statement || store_step(store, statement, err) < 0)
        return -1;
    *ret = sqlite3_column_int64(statement, 0);
    return 0;
}

// ---- Transactions ---------------------------------------------------------------------------

int
store_begin(struct account_store *store, struct kg_error *err)
{
    return store_run(store, "BEGIN IMMEDIATE", err);
}

int
store_roll_back(struct account_store *store)
{
    sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}

// A reader that saw the write-ahead log change may have read before the change was valid. It looks
// again when the times of the file change, which is after that.
int
store_commit(struct account_store *store, struct kg_error *err)
{
    if (store_run(store, "COMMIT", err) < 0)
        return store_roll_back(store);
    utimensat(AT_FDCWD, store->path, NULL, 0);
    return 0;
}

int
store_end(struct account_store *store, int result, struct kg_error *err)
{
    return result < 0 ? store_roll_back(store) : store_commit(store, err);
}

void
store_set_durable(struct account_store *store, bool durable)
{
    const char *sql = durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL";
    sqlite3_exec(store->db, sql, NULL, NULL, NULL);
}

int64_t
store_count_changes(const struct account_store *store)
{
    return sqlite3_total_changes64(store->db);
}

int
store_has_changed(struct account_store *store, bool *ret, struct kg_error *err)
{
    int64_t version = 0;
    if (store_read_number(store, "PRAGMA data_version", &version, err) < 0)
        return -1;
    *ret = version != store->seen_version;
    store->seen_version = version;
    return 0;
}

static int
check_pages(struct account_store *store, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(store, err, "PRAGMA quick_check(1)", "");
    if (!statement || store_step(store, statement, err) < 0)
        return -1;
    const char *text = (const char *)sqlite3_column_text(statement, 0);
    return text && strcmp(text, "ok") == 0
               ? 0
               : account_store_fail(store->path, SQLITE_CORRUPT, text ? text : "no answer", 0, err);
}

// ---- Life -----------------------------------------------------------------------------------

// SQLite gives the files beside it the same mode.
static int
make_file(const char *path, struct kg_error *err)
{
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST)
        return kg_error_set(err, KG_ACCOUNTS_UNAVAILABLE, errno, "cannot make accounts-file %s",
                            path);
    if (fd >= 0)
        close(fd);
    return 0;
}

static bool
identify(const char *path, uint64_t *ret_device, uint64_t *ret_inode)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return false;
    *ret_device = st.st_dev;
    *ret_inode = st.st_ino;
    return true;
}

static bool
is_current(const struct account_store *store)
{
    uint64_t device, inode;
    return identify(store->path, &device, &inode) && device == store->device &&
           inode == store->inode;
}

// Checks the version first: nothing of another program's file is changed, not even its mode.
static int
set_up(struct account_store *store, struct kg_error *err)
{
    store->failure = SQLITE_OK;
    if (store_check_version(store, err) < 0 ||
        store_run(store,
                  "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; "
                  "PRAGMA secure_delete = ON",
                  err) < 0)
        return -1;
    return store_migrate(store, err);
}

struct account_store *
account_store_open(const char *path, bool make, int busy_ms, struct kg_error *err)
{
    if (make && make_file(path, err) < 0)
        return NULL;
    KG_AUTO(account_store) store = KG_NEW(struct account_store);
    store->path = kg_strdup(path);
    if (!identify(path, &store->device, &store->inode)) {
        kg_error_set(err, KG_ACCOUNTS_UNAVAILABLE, errno, "cannot open accounts-file %s", path);
        return NULL;
    }
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(path, &store->db, flags, NULL) != SQLITE_OK) {
        store_fail(store, err);
        return NULL;
    }
    sqlite3_busy_timeout(store->db, busy_ms);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    // While another program makes the same file, SQLite does not wait for all of its locks.
    int64_t until_ms = clock_mono_ms() + busy_ms;
    while (set_up(store, err) < 0) {
        if (store->failure != SQLITE_BUSY || clock_mono_ms() >= until_ms)
            return NULL;
        usleep(AGAIN_US);
    }
    return check_pages(store, err) < 0 ? NULL : KG_STEAL(store);
}

int
store_reopen(struct account_store **store, const char *path, bool make, int busy_ms,
             bool *ret_fresh, struct kg_error *err)
{
    if (*store && !is_current(*store))
        account_store_close(KG_STEAL(*store));
    *ret_fresh = !*store;
    if (!*store)
        *store = account_store_open(path, make, busy_ms, err);
    return *store ? 0 : -1;
}

void
account_store_close(struct account_store *store)
{
    if (!store)
        return;
    sqlite3_close(store->db);
    free(store->path);
    free(store);
}
