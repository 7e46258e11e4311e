// SPDX-License-Identifier: Apache-2.0
// Accounts: their database, and the authenticator that follows its changes.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <event2/event.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accounts.h"
#include "accounts_priv.h"
#include "change_limits.h"
#include "login_limits.h"
#include "loop_wait.h"
#include "password.h"

enum { BUSY_MS = 5000 };

struct bench {
    struct loop *loop;
    char dir[40];
    char path[64];
    struct accounts *accounts;
    int n_owners_changed;
    struct account_counts seen; // by assert_read()
    // Of the last check:
    bool answered;
    char owner[HTTP_OWNER_MAX + 1];
    struct kg_error err;
};

static struct bench bench;

static int
set_up(void **state)
{
    (void)state;
    bench = (struct bench){.loop = loop_new(), .dir = "/tmp/kg-test-accounts-XXXXXX"};
    assert_non_null(mkdtemp(bench.dir));
    snprintf(bench.path, sizeof bench.path, "%s/accounts.db", bench.dir);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    accounts_free(bench.accounts);
    loop_free(bench.loop);
    struct kg_error err;
    assert_int_equal(path_remove_tree(bench.dir, &err), 0);
    return 0;
}

// ---- The database ---------------------------------------------------------------------------

static struct account_store *
open_store(void)
{
    struct kg_error err;
    struct account_store *store = account_store_open(bench.path, true, BUSY_MS, &err);
    if (!store)
        fail_msg("%s", err.message);
    return store;
}

static void
assert_not_opened(const char *why)
{
    struct kg_error err = {0};
    assert_null(account_store_open(bench.path, true, 0, &err));
    assert_int_equal(err.code, KG_ACCOUNTS_UNAVAILABLE);
    if (!strstr(err.message, why) || !strstr(err.message, bench.path))
        fail_msg("%s", err.message);
}

static int
set_disabled(struct account_store *store, const char *name, bool disabled, struct kg_error *err)
{
    const struct account_change change = {.disabled = &disabled};
    return account_user_change(store, name, &change, err);
}

static int
add_user(struct account_store *store, const char *name, struct kg_error *err)
{
    return account_user_add(store, name, &(struct account_change){0}, err);
}

static int
set_quota(struct account_store *store, const char *name, const struct account_quota *quota,
          struct kg_error *err)
{
    const struct account_change change = {
        .max_sessions = &quota->max_sessions,
        .max_requests_per_second = &quota->max_requests_per_second,
        .max_memory_mb = &quota->max_memory_mb,
    };
    return account_user_change(store, name, &change, err);
}

// Any SQL, as another program would run it.
static void
run_sql(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(bench.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void
print_users(const struct account_user *user, void *arg)
{
    buf_printf(arg, "%s%s %lld\n", user->name, user->disabled ? " disabled" : "",
               (long long)user->n_keys);
    assert_true(user->created_ms > 0);
}

static void
assert_users(struct account_store *store, const char *expected)
{
    KG_AUTO_BUF text = {0};
    struct kg_error err;
    buf_append_str(&text, "");
    assert_int_equal(account_user_each(store, print_users, &text, &err), 0);
    assert_string_equal(text.data, expected);
}

static void
print_keys(const struct account_key *key, void *arg)
{
    assert_int_equal(strlen(key->id), ACCOUNT_KEY_ID_LEN);
    buf_printf(arg, "%s %s%s\n", key->user, key->name, key->used_ms ? " used" : "");
}

static void
assert_keys(struct account_store *store, const char *user, const char *expected)
{
    KG_AUTO_BUF text = {0};
    struct kg_error err;
    buf_append_str(&text, "");
    assert_int_equal(account_key_each(store, user, print_keys, &text, &err), 0);
    assert_string_equal(text.data, expected);
}

static void
test_users(void **state)
{
    (void)state;
    KG_AUTO(account_store) store = open_store();
    struct kg_error err;
    struct stat st;
    assert_int_equal(stat(bench.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(add_user(store, "bob", &err), 0);
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(add_user(store, "bob", &err), -1);
    assert_int_equal(err.code, KG_INVALID);
    assert_string_equal(err.message, "there is a user bob already");
    static const char *const bad[] = {"", "a b", "ä", "default", "anonymous", "a/b"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(add_user(store, bad[i], &err), -1);
        assert_int_equal(err.code, KG_INVALID);
    }
    char name[HTTP_OWNER_MAX + 2];
    memset(name, 'x', sizeof name);
    name[HTTP_OWNER_MAX + 1] = '\0';
    assert_int_equal(add_user(store, name, &err), -1);
    const struct account_change wanted = {.max_sessions = &(int64_t){ACCOUNT_SESSIONS_MAX + 1}};
    assert_int_equal(account_user_add(store, "carol", &wanted, &err), -1);
    assert_int_equal(err.code, KG_INVALID);
    assert_int_equal(set_disabled(store, "bob", true, &err), 0);
    assert_users(store, "alice 0\nbob disabled 0\n");
    assert_int_equal(set_disabled(store, "bob", false, &err), 0);
    assert_int_equal(account_user_remove(store, "alice", &err), 0);
    assert_users(store, "bob 0\n");
    assert_int_equal(account_user_remove(store, "alice", &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_int_equal(set_disabled(store, "alice", true, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
}

static void
test_administrators(void **state)
{
    (void)state;
    KG_AUTO(account_store) store = open_store();
    struct kg_error err;
    const bool yes = true;
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(account_user_check_administrator(store, "alice", &err), -1);
    assert_int_equal(err.code, KG_ADMINISTRATORS_ONLY);
    const struct account_change promote = {.administrator = &yes};
    assert_int_equal(account_user_change(store, "alice", &promote, &err), 0);
    const struct account_quota quota = {.max_sessions = 3};
    assert_int_equal(set_quota(store, "alice", &quota, &err), 0); // which changes nothing else
    assert_int_equal(account_user_check_administrator(store, "alice", &err), 0);
    assert_int_equal(set_disabled(store, "alice", true, &err), 0);
    assert_int_equal(account_user_check_administrator(store, "alice", &err), -1);
    assert_int_equal(account_user_check_administrator(store, "default", &err), -1);
    assert_int_equal(err.code, KG_ADMINISTRATORS_ONLY);
}

static void
test_keys(void **state)
{
    (void)state;
    KG_AUTO(account_store) store = open_store();
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1], other[ACCOUNT_KEY_LEN + 1], id[ACCOUNT_KEY_ID_LEN + 1];
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(add_user(store, "bob", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "laptop", key, &err), 0);
    assert_int_equal(account_key_add(store, "bob", "", other, &err), 0);
    assert_true(key_parse(key, id));
    assert_string_not_equal(key, other);
    assert_keys(store, "alice", "alice laptop\n");
    assert_int_equal(account_key_add(store, "carol", "", other, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_int_equal(account_key_add(store, "bob", "a\nb", other, &err), -1);
    assert_int_equal(err.code, KG_INVALID);
    assert_int_equal(account_key_each(store, "carol", print_keys, NULL, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);

    // The secret is in no file.
    KG_AUTO_BUF bytes = {0};
    KG_AUTO_FREE char *log = kg_asprintf("%s-wal", bench.path);
    assert_int_equal(file_read(bench.path, 1 << 24, &bytes, &err), 0);
    assert_int_equal(file_read(log, 1 << 24, &bytes, &err), 0);
    const char *secret = key + ACCOUNT_KEY_LEN - ACCOUNT_KEY_SECRET_LEN;
    assert_non_null(memmem(bytes.data, bytes.len, id, strlen(id)));
    assert_null(memmem(bytes.data, bytes.len, secret, strlen(secret)));

    assert_int_equal(account_key_revoke(store, "bob", id, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_int_equal(account_key_revoke(store, "alice", id, &err), 0);
    assert_int_equal(account_key_revoke(store, NULL, key, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_int_equal(account_user_remove(store, "bob", &err), 0);
    assert_keys(store, NULL, "");
    for (int i = 0; i < ACCOUNT_KEYS_MAX; i++)
        assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), -1);
    assert_int_equal(err.code, KG_INVALID);
}

static void
test_keys_as_text(void **state)
{
    (void)state;
    char id[ACCOUNT_KEY_ID_LEN + 1];
    assert_true(key_parse("kgk_abcdefghij_abcdefghijklmnopqrstuvwxyz234567", id));
    assert_string_equal(id, "abcdefghij");
    static const char *const bad[] = {
        "",
        "kgk_",
        "kgk_abcdefghij_abcdefghijklmnopqrstuvwxyz23456",
        "kgk_abcdefghij_abcdefghijklmnopqrstuvwxyz2345678",
        "kgx_abcdefghij_abcdefghijklmnopqrstuvwxyz234567",
        "kgk_abcdefghijkabcdefghijklmnopqrstuvwxyz234567",
        "kgk_ABCDEFGHIJ_abcdefghijklmnopqrstuvwxyz234567",
        "kgk_abcdefghij_abcdefghijklmnopqrstuvwxyz23456'",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_false(key_parse(bad[i], id));
}

static size_t
read_file(char *to, size_t size)
{
    FILE *file = fopen(bench.path, "r");
    assert_non_null(file);
    size_t n = fread(to, 1, size, file);
    assert_int_equal(fclose(file), 0);
    return n;
}

static void
test_files_that_are_not_ours(void **state)
{
    (void)state;
    static char before[16384], after[16384];
    run_sql("CREATE TABLE notes (text)");
    size_t size = read_file(before, sizeof before);
    assert_not_opened("another program");
    assert_int_equal(read_file(after, sizeof after), size);
    assert_memory_equal(after, before, size);
    assert_int_equal(unlink(bench.path), 0);

    account_store_close(open_store());
    run_sql("PRAGMA user_version = 1000");
    assert_not_opened("has version 1000 of the schema");
    run_sql("PRAGMA user_version = -1");
    assert_not_opened("is negative");
    assert_int_equal(unlink(bench.path), 0);

    FILE *file = fopen(bench.path, "w");
    assert_non_null(file);
    for (int i = 0; i < 10000; i++)
        fputs("no database ", file);
    assert_int_equal(fclose(file), 0);
    assert_not_opened("is damaged");
    assert_int_equal(unlink(bench.path), 0);

    snprintf(bench.path, sizeof bench.path, "%s/none/accounts.db", bench.dir);
    assert_not_opened("No such file or directory");
}

static void
test_a_locked_file(void **state)
{
    (void)state;
    struct kg_error err;
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(sqlite3_busy_timeout(store->db, 0), SQLITE_OK);
    sqlite3 *other;
    assert_int_equal(sqlite3_open(bench.path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(add_user(store, "alice", &err), -1);
    assert_int_equal(err.code, KG_ACCOUNTS_UNAVAILABLE);
    assert_non_null(strstr(err.message, "is locked by another program"));
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    assert_int_equal(add_user(store, "alice", &err), 0);
}

// ---- The authenticator ----------------------------------------------------------------------

struct fixed_key {
    struct http_authenticator authenticator;
};

static struct http_check *
fixed_check(struct http_authenticator *authenticator, const char *credential, char *ret_owner,
            http_checked_fn done, void *arg)
{
    (void)authenticator;
    (void)done;
    (void)arg;
    strcpy(ret_owner, strcmp(credential, "fixed") == 0 ? "default" : "");
    return NULL;
}

static struct http_quota
fixed_quota(const struct http_authenticator *authenticator, const char *owner)
{
    (void)authenticator;
    (void)owner;
    return (struct http_quota){0};
}

static const struct http_authenticator_ops fixed_ops = {.check = fixed_check, .quota = fixed_quota};
static struct fixed_key fixed = {.authenticator.ops = &fixed_ops};

static void
on_owners(void *arg)
{
    (void)arg;
    bench.n_owners_changed++;
}

static void
start_accounts(void)
{
    const struct accounts_settings settings = {
        .loop = bench.loop,
        .path = bench.path,
        .fixed = &fixed.authenticator,
        .alone.max_sessions = 10,
        .shared.max_sessions = 5,
        .on_owners = on_owners,
    };
    bench.accounts = accounts_new(&settings);
    accounts_set_fixed_owners(bench.accounts, 1);
}

static void
on_checked(const char *owner, const struct kg_error *err, void *arg)
{
    (void)arg;
    bench.answered = true;
    strcpy(bench.owner, owner);
    bench.err = err ? *err : (struct kg_error){0};
}

static struct http_check *
start_check(const char *credential)
{
    struct http_authenticator *authenticator = accounts_authenticator(bench.accounts);
    bench.answered = false;
    bench.err = (struct kg_error){0};
    return authenticator->ops->check(authenticator, credential, bench.owner, on_checked, NULL);
}

// The owner of a key; empty: none, maybe with an error in the bench.
static const char *
owner_of(const char *credential)
{
    if (start_check(credential))
        WAIT_FOR(&bench, bench.answered);
    return bench.owner;
}

static void
test_changes_take_effect_at_once(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1], wrong[ACCOUNT_KEY_LEN + 1];
    start_accounts();
    assert_string_equal(owner_of("fixed"), "default");
    assert_string_equal(owner_of("other"), "");
    KG_AUTO(account_store) store = open_store();
    // Many times, since the change must also be seen while the last one is being read.
    for (int i = 0; i < 50; i++) {
        assert_int_equal(add_user(store, "alice", &err), 0);
        assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
        assert_string_equal(owner_of(key), "alice");
        strcpy(wrong, key);
        wrong[ACCOUNT_KEY_LEN - 1] = wrong[ACCOUNT_KEY_LEN - 1] == 'a' ? 'b' : 'a';
        assert_string_equal(owner_of(wrong), "");
        assert_int_equal(account_key_check(store, key, &err), 0);
        assert_int_equal(account_key_check(store, "fixed", &err), 0);
        assert_int_equal(account_key_check(store, wrong, &err), -1);
        assert_int_equal(err.code, KG_UNAUTHORIZED);
        assert_int_equal(set_disabled(store, "alice", true, &err), 0);
        assert_int_equal(account_key_check(store, key, &err), -1);
        assert_string_equal(owner_of(key), "");
        assert_int_equal(set_disabled(store, "alice", false, &err), 0);
        assert_string_equal(owner_of(key), "alice");
        assert_int_equal(account_key_revoke(store, NULL, key, &err), 0);
        assert_int_equal(account_key_check(store, key, &err), -1);
        assert_string_equal(owner_of(key), "");
        assert_int_equal(bench.err.code, KG_OK);
        assert_int_equal(account_user_remove(store, "alice", &err), 0);
    }
    assert_string_equal(owner_of("fixed"), "default");
}

static void
test_an_unchanged_file_is_not_read(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1];
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    start_accounts();
    WAIT_FOR(&bench, !start_check(key));
    for (int i = 0; i < 1000; i++)
        assert_null(start_check(key));
    // A lock that others hold changes nothing either.
    sqlite3 *other;
    assert_int_equal(sqlite3_open(bench.path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_string_equal(owner_of(key), "alice");
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

static void
test_a_file_that_cannot_be_read(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1];
    struct account_store *store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    account_store_close(store);
    start_accounts();
    assert_string_equal(owner_of(key), "alice");

    KG_AUTO_FREE char *away = kg_asprintf("%s.away", bench.path);
    assert_int_equal(rename(bench.path, away), 0);
    assert_string_equal(owner_of(key), "");
    assert_int_equal(bench.err.code, KG_ACCOUNTS_UNAVAILABLE);
    assert_string_equal(owner_of("fixed"), "default");
    assert_int_equal(bench.err.code, KG_OK);
    assert_string_equal(owner_of("other"), "");
    assert_int_equal(bench.err.code, KG_OK);
    assert_int_equal(access(bench.path, F_OK), -1); // it is not made again

    assert_int_equal(rename(away, bench.path), 0);
    assert_string_equal(owner_of(key), "alice");
}

static void
test_a_client_that_leaves(void **state)
{
    (void)state;
    start_accounts();
    struct http_check *check = start_check("kgk_abcdefghij_abcdefghijklmnopqrstuvwxyz234567");
    assert_non_null(check);
    accounts_authenticator(bench.accounts)->ops->cancel(check);
    assert_string_equal(owner_of("kgk_abcdefghij_abcdefghijklmnopqrstuvwxyz234567"), "");
}

static void
test_the_number_of_owners(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1];
    start_accounts();
    struct http_authenticator *authenticator = accounts_authenticator(bench.accounts);
    owner_of("kgk_abcdefghij_abcdefghijklmnopqrstuvwxyz234567");
    assert_false(accounts_have_several_owners(bench.accounts));
    assert_int_equal(authenticator->ops->quota(authenticator, "default").max_sessions, 10);
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    WAIT_FOR(&bench, accounts_have_several_owners(bench.accounts)); // without a request
    assert_int_equal(bench.n_owners_changed, 1);
    assert_int_equal(authenticator->ops->quota(authenticator, "default").max_sessions, 5);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    assert_int_equal(set_disabled(store, "alice", true, &err), 0);
    WAIT_FOR(&bench, !accounts_have_several_owners(bench.accounts));
}

struct naming {
    char key[ACCOUNT_KEY_LEN + 1];
    bool done, discarded;
    bool waits; // a check of the key did, when the call was done
    struct kg_error err;
};

static int
name_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct naming *naming = arg;
    return account_key_add(store, "alice", "", naming->key, err);
}

static void
name_done(const struct kg_error *err, void *arg)
{
    struct naming *naming = arg;
    naming->done = true;
    naming->waits = naming->key[0] && start_check(naming->key);
    naming->err = err ? *err : (struct kg_error){0};
}

static void
name_discard(void *arg)
{
    ((struct naming *)arg)->discarded = true;
}

static void
test_calls(void **state)
{
    (void)state;
    struct kg_error err;
    struct naming first = {0}, second = {0}, third = {0};
    start_accounts();
    accounts_call(bench.accounts, name_run, name_done, &first);
    assert_false(first.done);
    WAIT_FOR(&bench, first.done);
    assert_int_equal(first.err.code, KG_NOT_FOUND);
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);

    // The key is valid when the call is done; the other one was cancelled before it began.
    accounts_call(bench.accounts, name_run, name_done, &second);
    account_call_cancel(accounts_call(bench.accounts, name_run, name_done, &third), name_discard);
    assert_true(third.discarded);
    WAIT_FOR(&bench, second.done);
    assert_int_equal(second.err.code, KG_OK);
    assert_string_equal(owner_of(second.key), "alice");
    assert_keys(store, "alice", "alice \n");

    // One that a worker has when the accounts end.
    third = (struct naming){0};
    struct account_call *call = accounts_call(bench.accounts, name_run, name_done, &third);
    event_base_loop(loop_event_base(bench.loop), EVLOOP_ONCE);
    account_call_cancel(call, name_discard);
    accounts_free(KG_STEAL(bench.accounts));
    while (!third.discarded)
        event_base_loop(loop_event_base(bench.loop), EVLOOP_ONCE);
    assert_false(third.done);
}

// A call that a worker is busy with until it is told to end.
struct holding {
    atomic_bool begun;
    sem_t end;
    bool done;
};

static int
hold_run(struct account_store *store, void *arg, struct kg_error *err)
{
    (void)store;
    (void)err;
    struct holding *holding = arg;
    atomic_store(&holding->begun, true);
    sem_wait(&holding->end);
    return 0;
}

static void
hold_done(const struct kg_error *err, void *arg)
{
    (void)err;
    ((struct holding *)arg)->done = true;
}

static void
test_a_check_waits_for_changes_only(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1];
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    start_accounts();
    WAIT_FOR(&bench, !start_check(key));
    struct holding holding = {0};
    sem_init(&holding.end, 0, 0);
    accounts_call(bench.accounts, hold_run, hold_done, &holding);
    WAIT_FOR(&bench, atomic_load(&holding.begun));
    assert_null(start_check(key));
    assert_string_equal(bench.owner, "alice");

    // What was changed meanwhile is not in memory yet. The check waits for it, and not for the
    // call.
    assert_int_equal(account_key_revoke(store, NULL, key, &err), 0);
    assert_non_null(start_check(key));
    assert_false(bench.answered);
    WAIT_FOR(&bench, bench.answered);
    assert_string_equal(bench.owner, "");
    assert_false(holding.done);
    sem_post(&holding.end);
    WAIT_FOR(&bench, holding.done);
    sem_destroy(&holding.end);
}

// ---- What a change costs --------------------------------------------------------------------

enum { MANY = 2000 };

static void
insert_many_users(void)
{
    account_store_close(open_store());
    run_sql("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
            "INSERT INTO users (name, created_ms) SELECT 'user-' || i, 1 FROM n;"
            "INSERT INTO keys (id, user_id, name, hash, created_ms) "
            "SELECT printf('%010d', id), id, '', randomblob(32), 1 FROM users;");
}

// What was read since the last call.
static void
assert_read(uint64_t n_full, uint64_t n_rows)
{
    struct account_counts now = accounts_counts(bench.accounts);
    assert_int_equal(now.n_full - bench.seen.n_full, n_full);
    assert_int_equal(now.n_rows - bench.seen.n_rows, n_rows);
    bench.seen = now;
}

static int
revoke_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct naming *naming = arg;
    return account_key_revoke(store, "alice", naming->key, err);
}

static int
list_run(struct account_store *store, void *arg, struct kg_error *err)
{
    (void)arg;
    return account_user_check(store, "alice", err);
}

static void
call(account_call_fn run, struct naming *naming)
{
    naming->done = false;
    accounts_call(bench.accounts, run, name_done, naming);
    WAIT_FOR(&bench, naming->done);
    assert_int_equal(naming->err.code, KG_OK);
}

static void
test_a_change_costs_what_it_changes(void **state)
{
    (void)state;
    struct kg_error err;
    struct naming naming = {0};
    insert_many_users();
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    start_accounts();
    WAIT_FOR(&bench, accounts_have_several_owners(bench.accounts));
    assert_read(1, MANY + MANY + 1);

    // The gateway's own ones are in effect when they are done, and nothing else is read.
    char old[ACCOUNT_KEY_LEN + 1];
    for (int i = 0; i < 20; i++) {
        call(name_run, &naming);
        assert_false(naming.waits);
        assert_string_equal(bench.owner, "alice");
        assert_read(0, 1);
        call(revoke_run, &naming);
        assert_false(naming.waits);
        assert_string_equal(bench.owner, "");
        assert_read(0, 1);
    }
    call(list_run, &naming); // which changes nothing
    assert_read(0, 0);

    // So it is with another program's.
    assert_int_equal(account_key_add(store, "alice", "", old, &err), 0);
    assert_string_equal(owner_of(old), "alice");
    assert_read(0, 1);
    assert_int_equal(set_disabled(store, "alice", true, &err), 0);
    assert_string_equal(owner_of(old), "");
    assert_read(0, 1);
    assert_int_equal(set_disabled(store, "alice", false, &err), 0);
    assert_string_equal(owner_of(old), "alice");
    assert_read(0, 1);
    assert_int_equal(account_user_remove(store, "alice", &err), 0);
    assert_string_equal(owner_of(old), "");
    assert_read(0, 2); // the user and its key
}

static void
test_recorded_uses_are_not_read(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1];
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    start_accounts();
    assert_string_equal(owner_of(key), "alice");
    assert_read(1, 2);
    run_sql("UPDATE keys SET used_ms = 1, name = 'other'");
    assert_string_equal(owner_of(key), "alice");
    assert_read(0, 0);
}

// Whatever another program does to the file, with SQLite's own ways.
static void
test_changes_that_no_command_makes(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1], other[ACCOUNT_KEY_LEN + 1], id[ACCOUNT_KEY_ID_LEN + 1];
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(add_user(store, "bob", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    start_accounts();
    assert_string_equal(owner_of(key), "alice");

    // Another owner, another id, and another end.
    run_sql("UPDATE keys SET user_id = (SELECT id FROM users WHERE name = 'bob')");
    assert_string_equal(owner_of(key), "bob");
    run_sql("UPDATE users SET name = 'carol' WHERE name = 'bob'");
    assert_string_equal(owner_of(key), "carol");
    assert_true(key_parse(key, id));
    run_sql("UPDATE keys SET id = 'aaaaaaaaaa'");
    assert_string_equal(owner_of(key), "");
    KG_AUTO_FREE char *back = kg_asprintf("UPDATE keys SET id = '%s'", id);
    run_sql(back);
    assert_string_equal(owner_of(key), "carol");
    run_sql("UPDATE keys SET expires_ms = 1");
    assert_string_equal(owner_of(key), "");
    run_sql("UPDATE keys SET expires_ms = 0");
    assert_string_equal(owner_of(key), "carol");

    // Another user of the same name; without foreign keys, so the old key stays in the file.
    run_sql("INSERT OR REPLACE INTO users (name, created_ms) VALUES ('carol', 1)");
    assert_string_equal(owner_of(key), "");
    run_sql("DELETE FROM users WHERE name = 'alice'");
    assert_string_equal(owner_of(key), "");
    assert_int_equal(account_key_add(store, "carol", "", other, &err), 0);
    assert_string_equal(owner_of(other), "carol");
    run_sql("DELETE FROM users");
    assert_string_equal(owner_of(other), "");
    WAIT_FOR(&bench, accounts_first_user_token(bench.accounts));
}

// More changes than the file lists, and none that it has listed: everything is read again.
static void
test_when_everything_is_read(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1], other[ACCOUNT_KEY_LEN + 1];
    insert_many_users();
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    start_accounts();
    assert_string_equal(owner_of(key), "alice");
    assert_read(1, MANY + MANY + 2);
    assert_int_equal(account_key_add(store, "alice", "", other, &err), 0);
    run_sql("UPDATE users SET disabled = 1; UPDATE users SET disabled = 0;"
            "UPDATE users SET disabled = 1; UPDATE users SET disabled = 0;");
    assert_string_equal(owner_of(other), "alice");
    assert_read(1, MANY + MANY + 3);

    // A backup that is restored into the same file, whose next change has a number that was seen.
    sqlite3 *from, *to;
    KG_AUTO_FREE char *copy = kg_asprintf("%s.copy", bench.path);
    assert_int_equal(sqlite3_open(copy, &to), SQLITE_OK);
    assert_int_equal(sqlite3_open(bench.path, &from), SQLITE_OK);
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    assert_int_equal(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    assert_int_equal(sqlite3_backup_finish(backup), SQLITE_OK);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    assert_string_equal(owner_of(key), "alice");
    assert_read(0, 1);
    assert_int_equal(
        sqlite3_exec(to, "UPDATE users SET disabled = 1 WHERE name = 'alice'", NULL, NULL, NULL),
        SQLITE_OK);
    backup = sqlite3_backup_init(from, "main", to, "main");
    assert_int_equal(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    assert_int_equal(sqlite3_backup_finish(backup), SQLITE_OK);
    assert_int_equal(sqlite3_close(from), SQLITE_OK);
    assert_int_equal(sqlite3_close(to), SQLITE_OK);
    assert_string_equal(owner_of(other), "");
    assert_string_equal(owner_of(key), "");
    assert_read(1, MANY + MANY + 3);
}

static void
test_quotas(void **state)
{
    (void)state;
    struct kg_error err;
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    start_accounts();
    struct http_authenticator *authenticator = accounts_authenticator(bench.accounts);
    WAIT_FOR(&bench, accounts_have_several_owners(bench.accounts));
    struct http_quota quota = authenticator->ops->quota(authenticator, "alice");
    assert_int_equal(quota.max_sessions, 5);
    assert_int_equal(quota.max_memory_mb, 0);
    const struct account_quota own = {
        .max_sessions = 7, .max_requests_per_second = 0.5, .max_memory_mb = 64};
    assert_int_equal(set_quota(store, "alice", &own, &err), 0);
    WAIT_FOR(&bench, (quota = authenticator->ops->quota(authenticator, "alice")).max_sessions == 7);
    assert_float_equal(quota.requests_per_second, 0.5, 0);
    assert_int_equal(quota.max_memory_mb, 64);
    assert_int_equal(authenticator->ops->quota(authenticator, "bob").max_memory_mb, 0);
    assert_int_equal(authenticator->ops->quota(authenticator, "bob").max_sessions, 5);
    const struct account_quota none = {0};
    assert_int_equal(set_quota(store, "alice", &none, &err), 0);
    WAIT_FOR(&bench, authenticator->ops->quota(authenticator, "alice").max_sessions == 5);
    static const struct account_quota bad[] = {
        {.max_sessions = -1},
        {.max_sessions = 10001},
        {.max_requests_per_second = -1},
        {.max_requests_per_second = 1e7},
        {.max_memory_mb = 63},
        {.max_memory_mb = (1 << 20) + 1},
        {.max_memory_mb = -1},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(set_quota(store, "alice", &bad[i], &err), -1);
        assert_int_equal(err.code, KG_INVALID);
    }
    assert_int_equal(set_quota(store, "bob", &none, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
}

// A file as version 1 of the schema had it.
static void
test_an_older_schema(void **state)
{
    (void)state;
    run_sql("PRAGMA journal_mode = WAL;"
            "CREATE TABLE users (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,"
            " disabled INTEGER NOT NULL DEFAULT 0, created_ms INTEGER NOT NULL) STRICT;"
            "CREATE TABLE keys (id TEXT PRIMARY KEY,"
            " user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
            " name TEXT NOT NULL, hash BLOB NOT NULL, created_ms INTEGER NOT NULL,"
            " used_ms INTEGER NOT NULL DEFAULT 0) STRICT;"
            "CREATE INDEX keys_of_user ON keys (user_id);"
            "PRAGMA application_id = 1801937251; PRAGMA user_version = 1;"
            "INSERT INTO users (name, created_ms) VALUES ('alice', 1);");
    sqlite3 *db;
    assert_int_equal(sqlite3_open(bench.path, &db), SQLITE_OK);
    sqlite3_stmt *insert;
    const char *sql = "INSERT INTO keys VALUES ('abcdefghij', 1, 'old', ?, 1, 0)";
    const char *key = "kgk_abcdefghij_abcdefghijklmnopqrstuvwxyz234567";
    unsigned char hash[KEY_HASH_LEN];
    key_hash(key, hash);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &insert, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_bind_blob(insert, 1, hash, sizeof hash, SQLITE_STATIC), SQLITE_OK);
    assert_int_equal(sqlite3_step(insert), SQLITE_DONE);
    assert_int_equal(sqlite3_finalize(insert), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);

    start_accounts();
    assert_string_equal(owner_of(key), "alice");
    KG_AUTO(account_store) store = open_store();
    assert_users(store, "alice 1\n");
    assert_keys(store, "alice", "alice old\n");
    struct kg_error err;
    const struct account_quota quota = {.max_sessions = 1};
    assert_int_equal(set_quota(store, "alice", &quota, &err), 0);
}

// ---- Passwords and logins -------------------------------------------------------------------

static void
test_logins(void **state)
{
    (void)state;
    struct kg_error err;
    char hash[ACCOUNT_HASH_SIZE], key[ACCOUNT_KEY_LEN + 1], login[ACCOUNT_KEY_LEN + 1];
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "of alice", key, &err), 0);
    assert_int_equal(account_password_get(store, "alice", hash, &err), 0);
    assert_string_equal(hash, "");
    assert_int_equal(account_login_add(store, "alice", "h", login, &err), -1);
    assert_int_equal(err.code, KG_UNAUTHORIZED);
    assert_int_equal(account_password_set(store, "bob", NULL, "h", &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_int_equal(account_password_set(store, "alice", "g", "h", &err), -1);
    assert_int_equal(err.code, KG_INVALID);
    assert_int_equal(account_password_set(store, "alice", "", "h", &err), 0);
    assert_int_equal(account_password_get(store, "alice", hash, &err), 0);
    assert_string_equal(hash, "h");

    // It is valid like a key, until it is over, but not listed as one.
    assert_int_equal(account_login_add(store, "alice", "h", login, &err), 0);
    assert_keys(store, "alice", "alice of alice\n");
    assert_users(store, "alice 1\n");
    start_accounts();
    assert_string_equal(owner_of(login), "alice");
    assert_int_equal(account_key_check(store, login, &err), 0);
    run_sql("UPDATE keys SET expires_ms = 1 WHERE expires_ms > 0");
    assert_string_equal(owner_of(login), "");
    assert_int_equal(account_key_check(store, login, &err), -1);
    assert_string_equal(owner_of(key), "alice");

    // A disabled user has none, and another password ends all.
    assert_int_equal(account_login_add(store, "alice", "h", login, &err), 0);
    assert_int_equal(set_disabled(store, "alice", true, &err), 0);
    assert_string_equal(owner_of(login), "");
    assert_int_equal(account_password_get(store, "alice", hash, &err), 0);
    assert_string_equal(hash, "");
    assert_int_equal(account_login_add(store, "alice", "h", login, &err), -1);
    assert_int_equal(set_disabled(store, "alice", false, &err), 0);
    assert_int_equal(account_login_add(store, "alice", "h", login, &err), 0);
    assert_string_equal(owner_of(login), "alice");
    assert_int_equal(account_password_set(store, "alice", "h", "i", &err), 0);
    assert_string_equal(owner_of(login), "");
    assert_int_equal(account_login_add(store, "alice", "h", login, &err), -1);
    assert_string_equal(owner_of(key), "alice");
}

static int64_t
count_logins(struct account_store *store)
{
    struct kg_error err;
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, &err, "SELECT count(*) FROM keys WHERE expires_ms > 0", "");
    assert_non_null(statement);
    assert_int_equal(store_step(store, statement, &err), 1);
    return sqlite3_column_int64(statement, 0);
}

static void
test_the_number_of_logins(void **state)
{
    (void)state;
    struct kg_error err;
    char first[ACCOUNT_KEY_LEN + 1], login[ACCOUNT_KEY_LEN + 1];
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(account_register(store, "alice", "h", false, first, &err), 0);
    run_sql("UPDATE keys SET created_ms = 1");
    for (int i = 1; i < ACCOUNT_LOGINS_MAX; i++)
        assert_int_equal(account_login_add(store, "alice", "h", login, &err), 0);
    assert_int_equal(account_key_check(store, first, &err), 0);
    assert_int_equal(account_login_add(store, "alice", "h", login, &err), 0);
    assert_int_equal(account_key_check(store, first, &err), -1);
    assert_int_equal(account_key_check(store, login, &err), 0);
    assert_int_equal(count_logins(store), ACCOUNT_LOGINS_MAX);
    run_sql("UPDATE keys SET expires_ms = 1");
    assert_int_equal(account_register(store, "bob", "h", false, login, &err), 0);
    assert_int_equal(count_logins(store), 1);
}

static void
test_registration(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1];
    start_accounts();
    WAIT_FOR(&bench, accounts_first_user_token(bench.accounts));
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(account_register(store, "a b", "h", true, key, &err), -1);
    assert_int_equal(err.code, KG_INVALID);
    assert_int_equal(account_register(store, "root", "h", true, key, &err), 0);
    assert_int_equal(account_user_check_administrator(store, "root", &err), 0);
    assert_string_equal(owner_of(key), "root");
    assert_null(accounts_first_user_token(bench.accounts));
    assert_int_equal(account_register(store, "eve", "h", true, key, &err), -1);
    assert_int_equal(err.code, KG_REGISTRATION_CLOSED);
    assert_users(store, "root 0\n");
    assert_int_equal(account_register(store, "eve", "h", false, key, &err), 0);
    assert_int_equal(account_user_check_administrator(store, "eve", &err), -1);
    assert_int_equal(account_register(store, "eve", "h", false, key, &err), -1);
    assert_int_equal(err.code, KG_INVALID);

    // Nobody takes the place of a user who was removed, but an administrator may give it away.
    assert_int_equal(account_user_remove(store, "eve", &err), 0);
    assert_int_equal(account_register(store, "eve", "h", false, key, &err), -1);
    assert_string_equal(err.message, "there is a user eve already");
    assert_int_equal(add_user(store, "eve", &err), 0);
    assert_int_equal(account_user_remove(store, "eve", &err), 0);
}

// Makes an account as its user would, some days ago.
static void
register_before(struct account_store *store, const char *name, int days)
{
    struct kg_error err;
    char login[ACCOUNT_KEY_LEN + 1];
    assert_int_equal(account_register(store, name, "h", false, login, &err), 0);
    int64_t ms = clock_wall_ms() - days * 24 * 3600 * 1000LL;
    KG_AUTO_FREE char *sql =
        kg_asprintf("UPDATE users SET created_ms = %lld WHERE name = '%s';"
                    "UPDATE keys SET expires_ms = %lld WHERE user_id = "
                    "(SELECT id FROM users WHERE name = '%s')",
                    (long long)ms, name, (long long)(ms + ACCOUNT_LOGIN_S * 1000LL), name);
    run_sql(sql);
}

static void
test_the_number_of_registered_users(void **state)
{
    (void)state;
    struct kg_error err;
    int n_removed = 0;
    const bool no = false;
    const struct account_change user = {.administrator = &no};
    const struct account_registration limits = {.max = 2};
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0); // who is none of them
    register_before(store, "bob", 0);
    assert_int_equal(account_registration_check(store, &limits, &n_removed, &err), 0);
    register_before(store, "carol", 1000);
    assert_int_equal(account_registration_check(store, &limits, &n_removed, &err), -1);
    assert_int_equal(err.code, KG_REGISTRATION_CLOSED);
    assert_non_null(strstr(err.message, "max-registered-users"));
    assert_int_equal(n_removed, 0);
    const struct account_registration none = {0};
    assert_int_equal(account_registration_check(store, &none, &n_removed, &err), 0);

    // One that an administrator has given a role does not count; a limit makes no difference.
    assert_int_equal(set_quota(store, "bob", &(struct account_quota){0}, &err), 0);
    assert_int_equal(account_registration_check(store, &limits, &n_removed, &err), -1);
    assert_int_equal(account_user_change(store, "bob", &user, &err), 0);
    assert_int_equal(account_registration_check(store, &limits, &n_removed, &err), 0);
    assert_users(store, "alice 0\nbob 0\ncarol 0\n");
}

static void
test_unused_accounts_are_removed(void **state)
{
    (void)state;
    struct kg_error err;
    int n_removed = 0;
    char key[ACCOUNT_KEY_LEN + 1];
    const struct account_registration limits = {.max = 8, .unused_ms = 30 * 24 * 3600 * 1000LL};
    const bool no = false;
    const struct account_change user = {.administrator = &no};
    KG_AUTO(account_store) store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    run_sql("UPDATE users SET created_ms = 1");
    // Each of them has a reason to stay.
    static const char *const kept[] = {"young", "login", "key", "password", "role", "disabled"};
    for (size_t i = 0; i < KG_ARRAY_LEN(kept); i++)
        register_before(store, kept[i], i == 0 ? 29 : 31);
    assert_int_equal(account_login_add(store, "login", "h", key, &err), 0);
    run_sql("DELETE FROM keys WHERE user_id = (SELECT id FROM users WHERE name = 'login')");
    assert_int_equal(account_key_add(store, "key", "", key, &err), 0);
    assert_int_equal(account_key_revoke(store, "key", key, &err), 0);
    assert_int_equal(account_password_set(store, "password", NULL, "i", &err), 0);
    assert_int_equal(account_user_change(store, "role", &user, &err), 0);
    assert_int_equal(set_disabled(store, "disabled", true, &err), 0);
    register_before(store, "first-login", 31);
    KG_AUTO_FREE char *sql = kg_asprintf("UPDATE keys SET expires_ms = %lld WHERE user_id = "
                                         "(SELECT id FROM users WHERE name = 'first-login')",
                                         (long long)clock_wall_ms() + 100000);
    run_sql(sql);
    const char *all = "alice 0\ndisabled disabled 0\nfirst-login 0\nkey 0\nlogin 0\npassword 0\n"
                      "role 0\nyoung 0\n";
    assert_int_equal(account_registration_check(store, &limits, &n_removed, &err), 0);
    assert_int_equal(n_removed, 0);
    assert_users(store, all);

    // The oldest are removed, some at a time, and make room; nobody gets their names.
    for (int i = 0; i < 15; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("stranger-%d", i);
        register_before(store, name, 31 + i);
    }
    const struct account_registration keep = {.max = 8};
    assert_int_equal(account_registration_check(store, &keep, &n_removed, &err), -1);
    assert_int_equal(account_registration_check(store, &limits, &n_removed, &err), -1);
    assert_int_equal(n_removed, 10);
    assert_int_equal(account_user_check(store, "stranger-5", &err), -1);
    assert_int_equal(account_user_check(store, "stranger-4", &err), 0);
    assert_int_equal(account_registration_check(store, &limits, &n_removed, &err), 0);
    assert_int_equal(n_removed, 5);
    assert_users(store, all);
    assert_int_equal(account_register(store, "stranger-1", "h", false, key, &err), -1);
    assert_string_equal(err.message, "there is a user stranger-1 already");
}

static void
test_change_limits(void **state)
{
    (void)state;
    struct kg_error err;
    const int64_t now = 1000000;
    struct change_limits *limits = change_limits_new(3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(change_limits_take(limits, CHANGE_KEY, "alice", false, now, &err), 0);
    assert_int_equal(change_limits_take(limits, CHANGE_KEY, "alice", false, now + 1000, &err), -1);
    assert_int_equal(err.code, KG_RATE_LIMITED);
    assert_int_equal(err.retry_after_s, 59);
    assert_string_equal(err.message,
                        "alice made 3 keys within a minute, and account-changes-per-minute allows "
                        "no more: try again in 59 s");
    assert_int_equal(change_limits_take(limits, CHANGE_LOGIN, "alice", false, now, &err), 0);
    // Those who registered themselves share a limit, which those who did not do not.
    for (int i = 0; i < 3 * CHANGES_REGISTERED; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("stranger-%d", i);
        assert_int_equal(change_limits_take(limits, CHANGE_KEY, name, true, now, &err), 0);
    }
    assert_int_equal(change_limits_take(limits, CHANGE_KEY, "another", true, now, &err), -1);
    assert_non_null(strstr(err.message, "users who registered themselves made 30 keys"));
    assert_int_equal(change_limits_take(limits, CHANGE_KEY, "bob", false, now, &err), 0);
    int64_t then = now + CHANGE_WINDOW_MS;
    assert_int_equal(change_limits_take(limits, CHANGE_KEY, "alice", false, then, &err), 0);
    assert_int_equal(change_limits_take(limits, CHANGE_KEY, "another", true, then, &err), 0);
    change_limits_free(limits);

    limits = change_limits_new(0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(change_limits_take(limits, CHANGE_KEY, "alice", true, now, &err), 0);
    change_limits_free(limits);
}

static void
test_login_limits(void **state)
{
    (void)state;
    struct kg_error err;
    static const unsigned char key[LOGIN_LIMITS_KEY_LEN] = {1}; // no two of the names below collide
    struct login_limits *limits = login_limits_new(key);
    const int64_t now = 1000000;
    const char *here = "203.0.113.1", *there = "2001:db8::/64";
    // What succeeds is not counted.
    for (int i = 0; i < 2 * LOGIN_FAILURES_OF_NAME; i++) {
        assert_int_equal(login_limits_take(limits, "alice", here, now, &err), 0);
        login_limits_give_back(limits, "alice", here, now);
    }
    for (int i = 0; i < LOGIN_FAILURES_OF_BOTH; i++)
        assert_int_equal(login_limits_take(limits, "alice", here, now, &err), 0);
    assert_int_equal(login_limits_take(limits, "alice", here, now + 1000, &err), -1);
    assert_int_equal(err.code, KG_RATE_LIMITED);
    assert_string_equal(err.message, "too many logins with this name failed: try again in 59 s");
    assert_int_equal(err.retry_after_s, 59);
    assert_int_equal(login_limits_take(limits, "bob", here, now, &err), 0);
    assert_int_equal(login_limits_take(limits, "alice", there, now, &err), 0);
    assert_int_equal(login_limits_take(limits, "alice", "", now, &err), 0);
    for (int i = LOGIN_FAILURES_OF_BOTH + 1; i < LOGIN_FAILURES_OF_NETWORK; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("name %d", i);
        assert_int_equal(login_limits_take(limits, name, here, now, &err), 0);
    }
    assert_int_equal(login_limits_take(limits, "bob", here, now, &err), -1);
    assert_non_null(strstr(err.message, "from your network"));
    assert_int_equal(login_limits_take(limits, "bob", there, now, &err), 0);
    assert_int_equal(login_limits_take(limits, "bob", "", now, &err), 0);
    for (int i = LOGIN_FAILURES_OF_BOTH + 2; i < LOGIN_FAILURES_OF_NAME; i++) {
        KG_AUTO_FREE char *network = kg_asprintf("203.0.113.%d", i);
        assert_int_equal(login_limits_take(limits, "alice", network, now, &err), 0);
    }
    assert_int_equal(login_limits_take(limits, "alice", there, now, &err), -1);

    // Registrations have no name: one from a network is counted for all of its.
    for (int i = 0; i < LOGIN_FAILURES_OF_BOTH; i++)
        assert_int_equal(login_limits_take(limits, "", there, now, &err), 0);
    assert_int_equal(login_limits_take(limits, "", there, now, &err), -1);
    assert_non_null(strstr(err.message, "too many registrations"));

    // In the next window nothing is counted, nor given back.
    assert_int_equal(login_limits_take(limits, "alice", here, now + LOGIN_WINDOW_MS, &err), 0);
    login_limits_give_back(limits, "alice", here, now);
    for (int i = 1; i < LOGIN_FAILURES_OF_BOTH; i++)
        assert_int_equal(login_limits_take(limits, "alice", here, now + LOGIN_WINDOW_MS, &err), 0);
    assert_int_equal(login_limits_take(limits, "alice", here, now + LOGIN_WINDOW_MS, &err), -1);
    login_limits_free(limits);
}

// What strangers do leaves room for users, and one network's for others.
static void
test_places_of_passwords(void **state)
{
    (void)state;
    struct kg_error err;
    struct passwords *passwords = passwords_new(bench.loop);
    int places[PASSWORD_PLACES_MAX];
    for (int i = 0; i < PASSWORD_SHARE_MAX; i++) {
        places[i] = passwords_enter(passwords, PASSWORD_STRANGERS, "203.0.113.1", &err);
        assert_true(places[i] >= 0);
    }
    assert_int_equal(passwords_enter(passwords, PASSWORD_STRANGERS, "203.0.113.1", &err), -1);
    assert_int_equal(err.code, KG_RATE_LIMITED);
    for (int i = PASSWORD_SHARE_MAX; i < PASSWORD_PLACES_MAX; i++) {
        places[i] = passwords_enter(passwords, PASSWORD_STRANGERS, "", &err);
        assert_true(places[i] >= 0);
    }
    assert_int_equal(passwords_enter(passwords, PASSWORD_STRANGERS, "203.0.113.2", &err), -1);
    int of_user = passwords_enter(passwords, PASSWORD_USERS, "203.0.113.1", &err);
    assert_true(of_user >= 0);
    passwords_leave(passwords, places[0]);
    places[0] = passwords_enter(passwords, PASSWORD_STRANGERS, "203.0.113.2", &err);
    assert_true(places[0] >= 0);
    for (int i = 0; i < PASSWORD_PLACES_MAX; i++)
        passwords_leave(passwords, places[i]);
    passwords_leave(passwords, of_user);
    passwords_free(passwords);
}

struct answer {
    int n;
    bool matches;
    char hash[ACCOUNT_HASH_SIZE];
};

static void
on_password(const char *hash, bool matches, const struct kg_error *err, void *arg)
{
    struct answer *answer = arg;
    assert_null(err);
    answer->n++;
    answer->matches = matches;
    strcpy(answer->hash, hash ? hash : "");
}

static void
test_passwords(void **state)
{
    (void)state;
    struct kg_error err;
    struct answer made = {0}, right = {0}, wrong = {0};
    assert_int_equal(password_check("123456789", &err), -1);
    assert_int_equal(password_check("1234567890", &err), 0);
    assert_int_equal(password_check("123456789\xff", &err), -1);
    struct passwords *passwords = passwords_new(bench.loop);
    assert_non_null(passwords_start(passwords, "correct horse", NULL, on_password, &made));
    WAIT_FOR(&bench, made.n == 1);
    assert_int_equal(strncmp(made.hash, "$argon2id$v=19$m=19456,t=2,p=1$", 31), 0);
    assert_non_null(passwords_start(passwords, "correct horse", made.hash, on_password, &right));
    assert_non_null(passwords_start(passwords, "wrong horse", made.hash, on_password, &wrong));
    // Some that are cancelled while they wait.
    struct answer none = {0};
    struct password_job *waiting[10];
    for (size_t i = 0; i < KG_ARRAY_LEN(waiting); i++)
        assert_non_null(waiting[i] =
                            passwords_start(passwords, "x", made.hash, on_password, &none));
    for (size_t i = 0; i < KG_ARRAY_LEN(waiting); i++)
        password_job_cancel(waiting[i]);
    WAIT_FOR(&bench, wrong.n == 1);
    assert_true(right.n == 1 && right.matches && !wrong.matches && none.n == 0);

    // One that a worker has: the next one begins after it; the queue may be freed before it ends.
    struct password_job *job =
        passwords_start(passwords, "correct horse", made.hash, on_password, &none);
    password_job_cancel(job);
    assert_non_null(passwords_start(passwords, "correct horse", "", on_password, &wrong));
    WAIT_FOR(&bench, wrong.n == 2);
    assert_true(!wrong.matches && none.n == 0);
    job = passwords_start(passwords, "correct horse", made.hash, on_password, &none);
    password_job_cancel(job);
    passwords_free(passwords);
}

static void
test_last_use(void **state)
{
    (void)state;
    struct kg_error err;
    char key[ACCOUNT_KEY_LEN + 1];
    struct account_store *store = open_store();
    assert_int_equal(add_user(store, "alice", &err), 0);
    assert_int_equal(account_key_add(store, "alice", "", key, &err), 0);
    start_accounts();
    WAIT_FOR(&bench, !start_check(key));
    accounts_free(KG_STEAL(bench.accounts));
    assert_keys(store, NULL, "alice  used\n");
    account_store_close(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_users, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_administrators, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keys_as_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files_that_are_not_ours, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_locked_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changes_take_effect_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_unchanged_file_is_not_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_that_cannot_be_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_client_that_leaves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_number_of_owners, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_calls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_check_waits_for_changes_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_change_costs_what_it_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_recorded_uses_are_not_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_changes_that_no_command_makes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_when_everything_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_quotas, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_older_schema, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_logins, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_number_of_logins, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_registration, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_number_of_registered_users, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unused_accounts_are_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_change_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_login_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_places_of_passwords, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_passwords, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_last_use, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("accounts", tests, NULL, NULL);
}
