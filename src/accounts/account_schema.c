// SPDX-License-Identifier: Apache-2.0
// The tables of the database, and how an older file gets them.

#include "accounts_priv.h"

enum { APPLICATION_ID = 0x6b676163 }; // "kgac"

// What leads from each version of the schema to the next one. Never changed afterwards.
static const char *const migrations[] = {
    "CREATE TABLE users ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " name TEXT NOT NULL UNIQUE,"
    " disabled INTEGER NOT NULL DEFAULT 0,"
    " created_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE keys ("
    " id TEXT PRIMARY KEY,"
    " user_id INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
    " name TEXT NOT NULL,"
    " hash BLOB NOT NULL,"
    " created_ms INTEGER NOT NULL,"
    " used_ms INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE INDEX keys_of_user ON keys (user_id);",
    "ALTER TABLE users ADD COLUMN max_sessions INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE users ADD COLUMN max_requests_per_second REAL NOT NULL DEFAULT 0;",
    "ALTER TABLE users ADD COLUMN administrator INTEGER NOT NULL DEFAULT 0;",
    // A key with an end is a login.
    "ALTER TABLE users ADD COLUMN password TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE keys ADD COLUMN expires_ms INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE users ADD COLUMN max_memory_mb INTEGER NOT NULL DEFAULT 0;",
    // Their sessions may still be there.
    "CREATE TABLE removed_users (name TEXT PRIMARY KEY) STRICT;",
    // What a gateway has in memory, and in which rows it may be out of date. SQLite itself notes
    // that, so that no program that writes can forget to. A mark shows whether a row is the one
    // that was read: a file that was restored from a backup has the same numbers.
    "CREATE TABLE changes ("
    " number INTEGER PRIMARY KEY,"
    " mark INTEGER NOT NULL,"
    " user_id INTEGER NOT NULL DEFAULT 0,"
    " key_id TEXT) STRICT;"
    "INSERT INTO changes (mark) VALUES (random());"
    "CREATE TRIGGER changes_are_few AFTER INSERT ON changes BEGIN"
    " DELETE FROM changes WHERE number <= NEW.number - 4096; END;"
    "CREATE TRIGGER user_inserted AFTER INSERT ON users BEGIN"
    " INSERT INTO changes (mark, user_id) VALUES (random(), NEW.id); END;"
    "CREATE TRIGGER user_deleted AFTER DELETE ON users BEGIN"
    " INSERT INTO changes (mark, user_id) VALUES (random(), OLD.id); END;"
    "CREATE TRIGGER user_updated AFTER UPDATE ON users BEGIN"
    " INSERT INTO changes (mark, user_id) VALUES (random(), NEW.id);"
    " INSERT INTO changes (mark, user_id) SELECT random(), OLD.id WHERE OLD.id <> NEW.id; END;"
    "CREATE TRIGGER key_inserted AFTER INSERT ON keys BEGIN"
    " INSERT INTO changes (mark, key_id) VALUES (random(), NEW.id); END;"
    "CREATE TRIGGER key_deleted AFTER DELETE ON keys BEGIN"
    " INSERT INTO changes (mark, key_id) VALUES (random(), OLD.id); END;"
    "CREATE TRIGGER key_updated AFTER UPDATE OF id, user_id, hash, expires_ms ON keys BEGIN"
    " INSERT INTO changes (mark, key_id) VALUES (random(), NEW.id);"
    " INSERT INTO changes (mark, key_id) SELECT random(), OLD.id WHERE OLD.id <> NEW.id; END;"
    // Logins that are over are found without looking at all keys.
    "CREATE INDEX logins_by_end ON keys (expires_ms) WHERE expires_ms > 0;"
    // Who made the account, and whether nobody has used it since its first login.
    "ALTER TABLE users ADD COLUMN registered INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE users ADD COLUMN unused INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX registered_users ON users (id) WHERE registered = 1;"
    "CREATE INDEX unused_users ON users (created_ms) WHERE unused = 1;",
};
enum { SCHEMA_VERSION = KG_ARRAY_LEN(migrations) };

static int
check_version(struct account_store *store, int64_t version, int64_t application, int64_t n_tables,
              struct kg_error *err)
{
    if (version < 0)
        return kg_error_set(err, KG_ACCOUNTS_UNAVAILABLE, 0,
                            "accounts-file %s is damaged: the version of its schema is negative",
                            store->path);
    if (version > SCHEMA_VERSION && application == APPLICATION_ID)
        return kg_error_set(err, KG_ACCOUNTS_UNAVAILABLE, 0,
                            "accounts-file %s has version %lld of the schema, and this kernelgate "
                            "knows up to %d: use the kernelgate that wrote it, or a newer one",
                            store->path, (long long)version, SCHEMA_VERSION);
    if (application != APPLICATION_ID && (version > 0 || n_tables > 0))
        return kg_error_set(err, KG_ACCOUNTS_UNAVAILABLE, 0,
                            "accounts-file %s is a database of another program", store->path);
    return 0;
}

// Within a transaction, since another program may be making the schema.
static int
read_version(struct account_store *store, int64_t *ret, struct kg_error *err)
{
    int64_t application = 0, n_tables = 0;
    if (store_read_number(store, "PRAGMA user_version", ret, err) < 0 ||
        store_read_number(store, "PRAGMA application_id", &application, err) < 0 ||
        store_read_number(store, "SELECT count(*) FROM sqlite_schema", &n_tables, err) < 0)
        return -1;
    return check_version(store, *ret, application, n_tables, err);
}

int
store_begin_reading(struct account_store *store, struct kg_error *err)
{
    int64_t version = 0;
    if (store_run(store, "BEGIN", err) < 0)
        return -1;
    return read_version(store, &version, err) < 0 ? store_roll_back(store) : 0;
}

int
store_check_version(struct account_store *store, struct kg_error *err)
{
    if (store_begin_reading(store, err) < 0)
        return -1;
    store_roll_back(store);
    return 0;
}

static int
migrate_from(struct account_store *store, int64_t version, struct kg_error *err)
{
    for (; version < SCHEMA_VERSION; version++) {
        if (store_run(store, migrations[version], err) < 0)
            return -1;
    }
    KG_AUTO_FREE char *sql = kg_asprintf("PRAGMA application_id = %d; PRAGMA user_version = %d",
                                         APPLICATION_ID, SCHEMA_VERSION);
    return store_run(store, sql, err);
}

int
store_migrate(struct account_store *store, struct kg_error *err)
{
    int64_t version = 0;
    if (store_read_number(store, "PRAGMA user_version", &version, err) < 0)
        return -1;
    if (version == SCHEMA_VERSION)
        return 0;
    if (store_begin(store, err) < 0)
        return -1;
    bool migrated =
        read_version(store, &version, err) == 0 && migrate_from(store, version, err) == 0;
    return store_end(store, migrated ? 0 : -1, err);
}
