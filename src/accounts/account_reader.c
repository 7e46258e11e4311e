// SPDX-License-Identifier: Apache-2.0
// Follows the file: reads it on a worker, by a connection of its own, so that reading does not wait
// for a write that waits for the disk. One read at a time, and they have numbers.

#include <string.h>

#include "accounts_priv.h"

enum {
    AGAIN_MS = 200,  // after a change: see store_commit(), and writers that are not ours
    RETRY_MS = 1000, // after a failure
    BUSY_MS = 250,   // for which a read may wait for a lock: it holds a worker
};

struct account_reader {
    struct loop *loop;
    char *path;
    account_read_fn fn;
    void *arg;
    struct account_store *store; // while no read has it
    struct account_watch *watch;
    struct loop_work *work;
    struct loop_timer *again;
    uint64_t n_started, n_wanted; // reads; the last number that was asked for
    bool known;                   // the last read has succeeded
    bool stale;                   // the file may have changed since the last read began
    bool behind;                  // the file may have changed since the read before the present one
    bool made;                    // the file was there once: it is not made again
};

// Belongs to the worker until it is done.
struct reading {
    struct account_reader *reader;
    struct account_store *store; // NULL: not open
    char *path;
    bool make;
    bool all; // read everything, even if nothing has changed
    bool failed;
    struct kg_error err;
    struct account_news *news; // NULL: as before
};

static void
reading_free(void *arg)
{
    struct reading *reading = arg;
    account_store_close(reading->store);
    account_news_free(reading->news);
    free(reading->path);
    free(reading);
}

static void
reading_run(void *arg)
{
    struct reading *reading = arg;
    struct kg_error *err = &reading->err;
    bool changed = false, fresh = false;
    reading->failed =
        store_reopen(&reading->store, reading->path, reading->make, BUSY_MS, &fresh, err) < 0 ||
        store_has_changed(reading->store, &changed, err) < 0;
    if (!reading->failed && (changed || fresh || reading->all)) {
        reading->news = account_news_read(reading->store, reading->all || fresh, err);
        reading->failed = !reading->news;
    }
    if (reading->failed) // what was wrong may be so of this connection only
        account_store_close(KG_STEAL(reading->store));
}

static void reading_done(void *arg);

static void
reader_start(struct account_reader *reader)
{
    // What has happened so far, the read will see.
    reader->behind = account_watch_changed(reader->watch) || reader->stale;
    reader->stale = false;
    reader->n_started++;
    struct reading *reading = KG_NEW(struct reading);
    reading->reader = reader;
    reading->store = KG_STEAL(reader->store);
    reading->path = kg_strdup(reader->path);
    reading->make = !reader->made;
    reading->all = !reader->known;
    // A lane of its own: requests wait for it, and passwords and writes are the gateway's work.
    reader->work = loop_work_start(reader->loop, (uint64_t)(uintptr_t)reader, reading_run,
                                   reading_done, reading);
}

static void
reading_done(void *arg)
{
    struct reading *reading = arg;
    struct account_reader *reader = reading->reader;
    reader->work = NULL;
    reader->behind = false;
    reader->known = !reading->failed;
    reader->made |= reader->known;
    reader->store = KG_STEAL(reading->store);
    if (reading->failed)
        loop_timer_start(reader->again, RETRY_MS);
    reader->fn(reader->n_started, reading->news, reading->failed ? &reading->err : NULL,
               reader->arg);
    reading_free(reading);
    if (!reader->work && reader->n_wanted > reader->n_started)
        reader_start(reader);
}

uint64_t
account_reader_ask(struct account_reader *reader, bool anew)
{
    reader->stale |= anew || account_watch_changed(reader->watch);
    if (reader->known && !reader->stale && !reader->behind)
        return 0;
    uint64_t number = reader->work && !reader->stale ? reader->n_started : reader->n_started + 1;
    if (number > reader->n_wanted)
        reader->n_wanted = number;
    if (!reader->work)
        reader_start(reader);
    return number;
}

bool
account_reader_knows(const struct account_reader *reader)
{
    return reader->known;
}

bool
account_reader_has_known(const struct account_reader *reader)
{
    return reader->made;
}

// A read starts a moment later, unless a request needs it now.
static void
on_file_changed(void *arg)
{
    struct account_reader *reader = arg;
    reader->stale |= account_watch_changed(reader->watch);
    if (!loop_timer_active(reader->again))
        loop_timer_start(reader->again, AGAIN_MS);
}

static void
on_again(void *arg)
{
    struct account_reader *reader = arg;
    if (reader->work)
        loop_timer_start(reader->again, AGAIN_MS);
    else
        reader_start(reader);
}

struct account_reader *
account_reader_new(struct loop *loop, const char *path, account_read_fn fn, void *arg)
{
    struct account_reader *reader = KG_NEW(struct account_reader);
    reader->loop = loop;
    reader->path = kg_strdup(path);
    reader->fn = fn;
    reader->arg = arg;
    reader->again = loop_timer_new(loop, on_again, reader);
    reader->watch = account_watch_new(loop, path, on_file_changed, reader);
    reader_start(reader);
    return reader;
}

void
account_reader_free(struct account_reader *reader)
{
    if (!reader)
        return;
    loop_work_cancel(reader->work, reading_free);
    account_store_close(reader->store);
    account_watch_free(reader->watch);
    loop_timer_free(reader->again);
    free(reader->path);
    free(reader);
}
