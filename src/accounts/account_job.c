// SPDX-License-Identifier: Apache-2.0
// One job on a worker: what a handler wants done, then the list of keys, then their last uses.

#include "accounts_priv.h"

enum { BUSY_MS = 250 }; // for which a job may wait for a lock: it holds a worker

void
account_call_finish(struct account_call *call)
{
    if (!call)
        return;
    if (call->done)
        call->done(call->failed ? &call->err : NULL, call->arg);
    else if (call->discard)
        call->discard(call->arg);
    free(call);
}

void
account_job_free(void *arg)
{
    struct account_job *job = arg;
    account_call_finish(job->call);
    account_store_close(job->store);
    account_list_free(job->list);
    free(job->uses);
    free(job->path);
    free(job);
}

static int
open_file(struct account_job *job)
{
    if (job->store && !store_is_current(job->store)) {
        account_store_close(KG_STEAL(job->store));
        job->full = true;
    }
    if (job->store)
        return 0;
    job->full = true;
    job->store = account_store_open(job->path, job->make, BUSY_MS, &job->err);
    return job->store ? 0 : -1;
}

// Its own changes do not count as those of another connection.
static void
run_call(struct account_job *job)
{
    struct account_call *call = job->call;
    if (!call)
        return;
    job->full = true;
    call->failed = job->failed || call->run(job->store, call->arg, &call->err) < 0;
    if (job->failed)
        call->err = job->err;
}

void
account_job_run(void *arg)
{
    struct account_job *job = arg;
    bool changed = false;
    job->failed = open_file(job) < 0 || store_has_changed(job->store, &changed, &job->err) < 0;
    run_call(job);
    if (!job->failed && (changed || job->full)) {
        job->list = account_list_read(job->store, &job->err);
        job->failed = !job->list;
    }
    if (!job->failed && job->n_uses > 0)
        job->uses_failed = key_write_uses(job->store, job->uses, job->n_uses, &job->uses_err) < 0;
    if (job->failed) // what was wrong may be so of this connection only
        account_store_close(KG_STEAL(job->store));
}
