// SPDX-License-Identifier: Apache-2.0
// What a gateway reads from the file: all keys and users at first, then the rows that have changed.
// The file lists its latest changes (see the migrations). If the last one that was read is not
// among them any more, everything is read.

#include <string.h>

#include "accounts_priv.h"

static void
add_row(struct account_news *news, const struct account_row *row)
{
    news->n_read++;
    if (news->all) {
        if (!row->gone)
            account_list_take(news->all, row);
        return;
    }
    if (news->n_rows == news->cap_rows) {
        news->cap_rows = news->cap_rows ? 2 * news->cap_rows : 8;
        news->rows = kg_realloc(news->rows, news->cap_rows * sizeof *news->rows);
    }
    news->rows[news->n_rows++] = *row;
}

// What kernelgate has not written is not valid: as if the row were not there.
static void
read_user(sqlite3_stmt *row, struct listed_user *ret, bool *ret_gone)
{
    const char *name = (const char *)sqlite3_column_text(row, 1);
    *ret_gone = !name || strlen(name) > HTTP_OWNER_MAX;
    if (*ret_gone)
        return;
    strcpy(ret->name, name);
    ret->disabled = sqlite3_column_int(row, 2) != 0;
    ret->administrator = sqlite3_column_int(row, 3) != 0;
    ret->quota = (struct account_quota){
        .max_sessions = sqlite3_column_int64(row, 4),
        .max_requests_per_second = sqlite3_column_double(row, 5),
        .max_memory_mb = sqlite3_column_int64(row, 6),
    };
    ret->registered = sqlite3_column_int(row, 7) != 0;
}

static void
read_key(sqlite3_stmt *row, struct listed_key *ret, bool *ret_gone)
{
    const char *id = (const char *)sqlite3_column_text(row, 0);
    const void *hash = sqlite3_column_blob(row, 1);
    *ret_gone = !id || !hash || strlen(id) != ACCOUNT_KEY_ID_LEN ||
                sqlite3_column_bytes(row, 1) != KEY_HASH_LEN;
    if (*ret_gone)
        return;
    strcpy(ret->id, id);
    memcpy(ret->hash, hash, KEY_HASH_LEN);
    ret->user_id = sqlite3_column_int64(row, 2);
    ret->expires_ms = sqlite3_column_int64(row, 3);
}

#define USERS                                                                                      \
    "SELECT id, name, disabled, administrator, max_sessions, max_requests_per_second, "            \
    "max_memory_mb, registered FROM users"
#define KEYS "SELECT id, hash, user_id, expires_ms FROM keys"

// ---- Everything -----------------------------------------------------------------------------

static int
read_table(struct account_store *store, enum account_row_kind kind, struct account_news *news,
           struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(store, err, kind == ROW_USER ? USERS : KEYS, "");
    int found = statement ? 1 : -1;
    while (found > 0 && (found = store_step(store, statement, err)) > 0) {
        struct account_row row = {.kind = kind};
        if (kind == ROW_USER) {
            row.user.id = sqlite3_column_int64(statement, 0);
            read_user(statement, &row.user, &row.gone);
        } else {
            read_key(statement, &row.key, &row.gone);
        }
        add_row(news, &row);
    }
    return found;
}

static int
read_last_change(struct account_store *store, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "SELECT number, mark FROM changes ORDER BY number DESC LIMIT 1", "");
    int found = statement ? store_step(store, statement, err) : -1;
    if (found < 0)
        return -1;
    store->seen = (struct account_change_mark){0}; // so that everything is read again
    if (found > 0)
        store->seen = (struct account_change_mark){
            .number = sqlite3_column_int64(statement, 0),
            .mark = sqlite3_column_int64(statement, 1),
        };
    return 0;
}

static int
read_all(struct account_store *store, struct account_news *news, struct kg_error *err)
{
    news->all = account_list_new();
    if (read_table(store, ROW_USER, news, err) < 0 || read_table(store, ROW_KEY, news, err) < 0)
        return -1;
    return read_last_change(store, err);
}

// ---- What has changed -----------------------------------------------------------------------

static int
read_one_user(struct account_store *store, int64_t id, struct account_news *news,
              struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(store, err, USERS " WHERE id = ?", "i", id);
    int found = statement ? store_step(store, statement, err) : -1;
    if (found < 0)
        return -1;
    struct account_row row = {.kind = ROW_USER, .gone = true, .user.id = id};
    if (found > 0)
        read_user(statement, &row.user, &row.gone);
    add_row(news, &row);
    return 0;
}

static int
read_one_key(struct account_store *store, const char *id, struct account_news *news,
             struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(store, err, KEYS " WHERE id = ?", "s", id);
    int found = statement ? store_step(store, statement, err) : -1;
    if (found < 0 || strlen(id) != ACCOUNT_KEY_ID_LEN)
        return found < 0 ? -1 : 0;
    struct account_row row = {.kind = ROW_KEY, .gone = true};
    strcpy(row.key.id, id);
    if (found > 0)
        read_key(statement, &row.key, &row.gone);
    add_row(news, &row);
    return 0;
}

// 1: everything must be read, since the list of changes does not reach back to the last one seen.
static int
read_changes(struct account_store *store, struct account_news *news, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err,
                      "SELECT number, mark, user_id, key_id FROM changes WHERE number >= ? "
                      "ORDER BY number",
                      "i", store->seen.number);
    int found = statement ? store_step(store, statement, err) : -1;
    if (found >= 0 && (found == 0 || sqlite3_column_int64(statement, 0) != store->seen.number ||
                       sqlite3_column_int64(statement, 1) != store->seen.mark))
        return 1;
    struct account_change_mark last = store->seen;
    while (found > 0 && (found = store_step(store, statement, err)) > 0) {
        last.number = sqlite3_column_int64(statement, 0);
        last.mark = sqlite3_column_int64(statement, 1);
        int64_t user_id = sqlite3_column_int64(statement, 2);
        const char *key_id = (const char *)sqlite3_column_text(statement, 3);
        if ((user_id != 0 && read_one_user(store, user_id, news, err) < 0) ||
            (key_id && read_one_key(store, key_id, news, err) < 0))
            return -1;
    }
    store->seen = last;
    return found;
}

// ---- Reading --------------------------------------------------------------------------------

struct account_news *
account_news_read(struct account_store *store, bool all, struct kg_error *err)
{
    KG_AUTO(account_news) news = KG_NEW(struct account_news);
    if (store_begin_reading(store, err) < 0)
        return NULL;
    int result = all || store->seen.number == 0 ? 1 : read_changes(store, news, err);
    if (result > 0)
        result = read_all(store, news, err);
    store_roll_back(store);
    return result < 0 ? NULL : KG_STEAL(news);
}

void
account_news_free(struct account_news *news)
{
    if (!news)
        return;
    account_list_free(news->all);
    free(news->rows);
    free(news);
}
