// SPDX-License-Identifier: Apache-2.0
// Work off the loop: queues, a few threads, and an eventfd that brings results back.

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

#include "budget.h"
#include "loop_priv.h"

// Workers yield to the loop's thread where processors are short.
enum { WORKERS = 2, WORKER_NICE = 5 };

enum work_state { WORK_QUEUED, WORK_RUNNING, WORK_RUN };

// The queued work of one client, in its order. It exists while there is any.
struct work_lane {
    TAILQ_ENTRY(work_lane) link; // in the order in which they take turns
    uint64_t id;
    STAILQ_HEAD(work_list, loop_work) queued;
};

struct loop_work {
    struct work_pool *pool;
    struct work_lane *lane;       // while it is queued
    STAILQ_ENTRY(loop_work) link; // in its lane, then in `run`; in neither while it is running
    enum work_state state;
    loop_fn run;
    loop_fn finish; // called with the job on the loop: done or discard; NULL: nothing to call
    void *job;
};
// `lock` guards lanes and lists, `ending`, and the state of every work.
struct work_pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t threads[WORKERS];
    TAILQ_HEAD(, work_lane) lanes; // the first one's turn is next
    struct work_list run;
    bool ending;
    int event_fd; // a semaphore: one count for each work in `run`
    struct loop_fd *watch;
};

// ---- Lanes, under the lock ------------------------------------------------------------------

static void
lane_add(struct work_pool *pool, uint64_t id, struct loop_work *work)
{
    struct work_lane *lane;
    TAILQ_FOREACH(lane, &pool->lanes, link) {
        if (lane->id == id)
            break;
    }
    if (!lane) {
        lane = KG_NEW(struct work_lane);
        lane->id = id;
        STAILQ_INIT(&lane->queued);
        TAILQ_INSERT_TAIL(&pool->lanes, lane, link);
    }
    work->lane = lane;
    STAILQ_INSERT_TAIL(&lane->queued, work, link);
}

static void
lane_remove(struct work_pool *pool, struct loop_work *work)
{
    struct work_lane *lane = KG_STEAL(work->lane);
    STAILQ_REMOVE(&lane->queued, work, loop_work, link);
    if (!STAILQ_EMPTY(&lane->queued))
        return;
    TAILQ_REMOVE(&pool->lanes, lane, link);
    free(lane);
}

// Takes the next work of the lane whose turn it is; that lane then goes to the end.
static struct loop_work *
lanes_take(struct work_pool *pool)
{
    struct work_lane *lane = TAILQ_FIRST(&pool->lanes);
    if (!lane)
        return NULL;
    struct loop_work *work = STAILQ_FIRST(&lane->queued);
    TAILQ_REMOVE(&pool->lanes, lane, link);
    TAILQ_INSERT_TAIL(&pool->lanes, lane, link);
    lane_remove(pool, work);
    return work;
}

// ---- On a worker ----------------------------------------------------------------------------

// Waits for the next work and marks it as running; NULL when the pool ends and nothing is left.
static struct loop_work *
pool_take(struct work_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (TAILQ_EMPTY(&pool->lanes) && !pool->ending)
        pthread_cond_wait(&pool->wake, &pool->lock);
    struct loop_work *work = lanes_take(pool);
    if (work)
        work->state = WORK_RUNNING;
    pthread_mutex_unlock(&pool->lock);
    return work;
}

static void
pool_give_back(struct work_pool *pool, struct loop_work *work)
{
    pthread_mutex_lock(&pool->lock);
    work->state = WORK_RUN;
    STAILQ_INSERT_TAIL(&pool->run, work, link);
    pthread_mutex_unlock(&pool->lock);
    while (eventfd_write(pool->event_fd, 1) < 0 && errno == EINTR)
        ;
}

static void *
worker_main(void *arg)
{
    struct work_pool *pool = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), WORKER_NICE); // of this thread only, on Linux
    pthread_setname_np(pthread_self(), "kg-worker");
    for (struct loop_work *work; (work = pool_take(pool));) {
        work->run(work->job);
        pool_give_back(pool, work);
    }
    return NULL;
}

// ---- On the loop ----------------------------------------------------------------------------

// Takes the oldest work that has run; NULL if there is none.
static struct loop_work *
pool_collect(struct work_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    struct loop_work *work = STAILQ_FIRST(&pool->run);
    if (work)
        STAILQ_REMOVE_HEAD(&pool->run, link);
    pthread_mutex_unlock(&pool->lock);
    return work;
}

static void
work_finish(struct loop_work *work)
{
    loop_fn finish = work->finish;
    void *job = work->job;
    free(work);
    if (finish)
        finish(job);
}

// One result for each loop iteration, so that many do not delay everything else.
static void
pool_on_run(int fd, int events, void *arg)
{
    (void)events;
    struct work_pool *pool = arg;
    eventfd_t one;
    if (eventfd_read(fd, &one) < 0)
        return;
    struct loop_work *work = pool_collect(pool);
    assert(work);
    work_finish(work);
}

static struct work_pool *
work_pool_new(struct loop *loop)
{
    struct work_pool *pool = KG_NEW(struct work_pool);
    TAILQ_INIT(&pool->lanes);
    STAILQ_INIT(&pool->run);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (pool->event_fd < 0)
        abort();
    pool->watch = loop_fd_new(loop, pool->event_fd, LOOP_READ, pool_on_run, pool);
    sigset_t all, before; // signals are the loop's
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (size_t i = 0; i < WORKERS; i++)
        if (pthread_create(&pool->threads[i], NULL, worker_main, pool) != 0)
            abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool;
}

void
work_pool_free(struct work_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->ending = true;
    struct work_lane *lane;
    TAILQ_FOREACH(lane, &pool->lanes, link) {
        struct loop_work *left;
        STAILQ_FOREACH(left, &lane->queued, link)
        {
            assert(!left->finish); // somebody would still be waiting
        }
    }
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < WORKERS; i++)
        pthread_join(pool->threads[i], NULL);
    for (struct loop_work *work; (work = pool_collect(pool));)
        work_finish(work);
    for (struct loop_work *work; (work = pool_take(pool));) { // started by what just finished
        assert(!work->finish);
        work->run(work->job);
        free(work);
    }
    loop_fd_free(pool->watch);
    close(pool->event_fd);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

uint64_t
loop_lane_of(const char *owner)
{
    const char *name = budget_name(owner);
    return (uint64_t)hash_fnv1a(name, strlen(name)) + 1; // not the gateway's
}

struct loop_work *
loop_work_start(struct loop *loop, uint64_t lane, loop_fn run, loop_fn done, void *job)
{
    if (!loop->pool)
        loop->pool = work_pool_new(loop);
    struct work_pool *pool = loop->pool;
    struct loop_work *work = KG_NEW(struct loop_work);
    work->pool = pool;
    work->run = run;
    work->finish = done;
    work->job = job;
    pthread_mutex_lock(&pool->lock);
    lane_add(pool, lane, work);
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    return work;
}

void
loop_work_cancel(struct loop_work *work, loop_fn discard)
{
    if (!work)
        return;
    struct work_pool *pool = work->pool;
    pthread_mutex_lock(&pool->lock);
    work->finish = discard;
    bool queued = work->state == WORK_QUEUED;
    if (queued)
        lane_remove(pool, work);
    pthread_mutex_unlock(&pool->lock);
    if (queued)
        work_finish(work);
}
