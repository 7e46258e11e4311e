// SPDX-License-Identifier: Apache-2.0
// Writes to the file, on a worker: what handlers want done, one call at a time, and when keys were
// used last. A call is done when the reader has read what it has changed.

#include <assert.h>
#include <string.h>

#include "accounts_priv.h"

enum {
    BUSY_MS = 250,         // for which a job may wait for a lock: it holds a worker
    RETRY_MS = 1000,       // while the file is not known
    WRITE_USES_MS = 10000, // between the use of a key and its record in the file
    USES_MAX = 4096,
};

struct account_call {
    TAILQ_ENTRY(account_call) link; // in `queued` or `run`; in neither while a worker has it
    struct account_writer *writer;
    enum { CALL_QUEUED, CALL_RUNNING, CALL_RUN } state;
    account_call_fn run;
    account_called_fn done; // NULL: it was cancelled
    loop_fn discard;
    void *arg;
    bool failed;
    struct kg_error err;
    uint64_t after; // the read that it waits for, when it was run
};
TAILQ_HEAD(calls, account_call);

struct account_writer {
    struct loop *loop;
    char *path;
    struct account_reader *reader;
    struct account_store *store; // while no job has it
    struct loop_work *work;
    struct calls queued, run;
    struct loop_timer *begin;
    struct loop_timer *write_uses;
    struct key_use *uses; // not in the file yet
    size_t n_uses;
    uint64_t round; // of uses
    bool uses_failed;
};

// Belongs to the worker until it is done.
struct writing {
    struct account_writer *writer;
    struct account_store *store; // NULL: not open
    char *path;
    bool make;
    struct account_call *call; // or NULL
    bool wrote;                // the call has changed something
    struct key_use *uses;
    size_t n_uses;
    bool uses_failed;
    struct kg_error uses_err;
};

// ---- On a worker ----------------------------------------------------------------------------

// Calls back, and frees the call, which may be NULL.
static void
call_finish(struct account_call *call)
{
    if (!call)
        return;
    if (call->done)
        call->done(call->failed ? &call->err : NULL, call->arg);
    else if (call->discard)
        call->discard(call->arg);
    free(call);
}

static void
writing_free(void *arg)
{
    struct writing *writing = arg;
    call_finish(writing->call);
    account_store_close(writing->store);
    free(writing->uses);
    free(writing->path);
    free(writing);
}

static void
run_call(struct writing *writing, const struct kg_error *unusable)
{
    struct account_call *call = writing->call;
    if (!call)
        return;
    call->failed = unusable || call->run(writing->store, call->arg, &call->err) < 0;
    if (unusable)
        call->err = *unusable;
}

static void
write_uses(struct writing *writing, const struct kg_error *unusable)
{
    if (writing->n_uses == 0)
        return;
    writing->uses_failed = unusable || key_write_uses(writing->store, writing->uses,
                                                      writing->n_uses, &writing->uses_err) < 0;
    if (unusable)
        writing->uses_err = *unusable;
}

static void
writing_run(void *arg)
{
    struct writing *writing = arg;
    struct kg_error err;
    bool fresh;
    bool failed =
        store_reopen(&writing->store, writing->path, writing->make, BUSY_MS, &fresh, &err) < 0 ||
        store_check_version(writing->store, &err) < 0;
    int64_t before = failed ? 0 : store_count_changes(writing->store);
    run_call(writing, failed ? &err : NULL);
    writing->wrote = !failed && store_count_changes(writing->store) != before;
    write_uses(writing, failed ? &err : NULL);
    if (failed) // what was wrong may be so of this connection only
        account_store_close(KG_STEAL(writing->store));
}

// ---- Jobs -----------------------------------------------------------------------------------

static void writing_done(void *arg);

static void
writer_start(struct account_writer *writer, bool with_uses)
{
    assert(!writer->work);
    struct writing *writing = KG_NEW(struct writing);
    writing->writer = writer;
    writing->store = KG_STEAL(writer->store);
    writing->path = kg_strdup(writer->path);
    writing->make = !account_reader_has_known(writer->reader);
    writing->call = TAILQ_FIRST(&writer->queued);
    if (writing->call) {
        TAILQ_REMOVE(&writer->queued, writing->call, link);
        writing->call->state = CALL_RUNNING;
    }
    if (with_uses) {
        writing->uses = KG_STEAL(writer->uses);
        writing->n_uses = writer->n_uses;
        writer->n_uses = 0;
        writer->round++;
    }
    writer->work =
        loop_work_start(writer->loop, LOOP_LANE_GATEWAY, writing_run, writing_done, writing);
}

// Said once until it works again.
static void
report_uses(struct account_writer *writer, const struct writing *writing)
{
    if (writing->uses_failed && !writer->uses_failed)
        log_error("cannot write when keys were used last", LOG_ERR(&writing->uses_err));
    if (writing->n_uses > 0)
        writer->uses_failed = writing->uses_failed;
}

static void
take_run(struct account_writer *writer, struct account_call *call, bool wrote)
{
    call->after = call->done && wrote ? account_reader_ask(writer->reader, true) : 0;
    if (call->after == 0) {
        call_finish(call);
        return;
    }
    call->state = CALL_RUN;
    TAILQ_INSERT_TAIL(&writer->run, call, link);
}

static void
writing_done(void *arg)
{
    struct writing *writing = arg;
    struct account_writer *writer = writing->writer;
    writer->work = NULL;
    writer->store = KG_STEAL(writing->store);
    report_uses(writer, writing);
    if (writing->call)
        take_run(writer, KG_STEAL(writing->call), writing->wrote);
    writing_free(writing);
    if (!writer->work && !TAILQ_EMPTY(&writer->queued))
        writer_start(writer, false);
}

static void
on_begin(void *arg)
{
    struct account_writer *writer = arg;
    if (!writer->work && !TAILQ_EMPTY(&writer->queued))
        writer_start(writer, false);
}

// ---- Calls ----------------------------------------------------------------------------------

struct account_call *
account_writer_call(struct account_writer *writer, account_call_fn run, account_called_fn done,
                    void *arg)
{
    struct account_call *call = KG_NEW(struct account_call);
    *call = (struct account_call){.writer = writer, .run = run, .done = done, .arg = arg};
    TAILQ_INSERT_TAIL(&writer->queued, call, link);
    loop_timer_start(writer->begin, 0);
    return call;
}

void
account_call_cancel(struct account_call *call, loop_fn discard)
{
    struct account_writer *writer = call->writer;
    call->done = NULL;
    call->discard = discard;
    if (call->state == CALL_RUNNING)
        return;
    TAILQ_REMOVE(call->state == CALL_QUEUED ? &writer->queued : &writer->run, call, link);
    call_finish(call);
}

void
account_writer_on_read(struct account_writer *writer, uint64_t number)
{
    struct account_call *call;
    while ((call = TAILQ_FIRST(&writer->run)) && call->after <= number) {
        TAILQ_REMOVE(&writer->run, call, link);
        call_finish(call);
    }
}

// ---- Uses -----------------------------------------------------------------------------------

uint64_t
account_writer_round(const struct account_writer *writer)
{
    return writer->round;
}

void
account_writer_note_use(struct account_writer *writer, const char *id)
{
    if (writer->n_uses == USES_MAX)
        return;
    if (!writer->uses)
        writer->uses = kg_calloc(USES_MAX, sizeof *writer->uses);
    struct key_use *use = &writer->uses[writer->n_uses++];
    *use = (struct key_use){.used_ms = clock_wall_ms()};
    strcpy(use->id, id);
    if (!loop_timer_active(writer->write_uses))
        loop_timer_start(writer->write_uses, WRITE_USES_MS);
}

static void
on_write_uses(void *arg)
{
    struct account_writer *writer = arg;
    if (writer->work || !account_reader_knows(writer->reader))
        loop_timer_start(writer->write_uses, RETRY_MS);
    else if (writer->n_uses > 0)
        writer_start(writer, true);
}

static void
write_last_uses(struct account_writer *writer)
{
    struct kg_error err;
    bool fresh;
    if (writer->n_uses == 0 || !account_reader_knows(writer->reader))
        return;
    if (store_reopen(&writer->store, writer->path, false, BUSY_MS, &fresh, &err) < 0 ||
        key_write_uses(writer->store, writer->uses, writer->n_uses, &err) < 0)
        log_error("cannot write when keys were used last", LOG_ERR(&err));
}

// ---- Life -----------------------------------------------------------------------------------

struct account_writer *
account_writer_new(struct loop *loop, const char *path, struct account_reader *reader)
{
    struct account_writer *writer = KG_NEW(struct account_writer);
    writer->loop = loop;
    writer->path = kg_strdup(path);
    writer->reader = reader;
    writer->round = 1;
    TAILQ_INIT(&writer->queued);
    TAILQ_INIT(&writer->run);
    writer->begin = loop_timer_new(loop, on_begin, writer);
    writer->write_uses = loop_timer_new(loop, on_write_uses, writer);
    return writer;
}

// A worker may have the database still; then the last uses are not written.
void
account_writer_free(struct account_writer *writer)
{
    if (!writer)
        return;
    assert(TAILQ_EMPTY(&writer->queued) && TAILQ_EMPTY(&writer->run));
    if (writer->work)
        loop_work_cancel(writer->work, writing_free);
    else
        write_last_uses(writer);
    account_store_close(writer->store);
    loop_timer_free(writer->begin);
    loop_timer_free(writer->write_uses);
    free(writer->uses);
    free(writer->path);
    free(writer);
}
