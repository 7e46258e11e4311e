// SPDX-License-Identifier: Apache-2.0
// The zygotes of all kernelspecs: for each one that forks, and while it is being replaced a second.
#include "zygotes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "provisioner.h"
#include "zygote_priv.h"

enum {
    MAX_FORKS = 1000, // then a new one: another address layout, another hash seed
    MAX_AGE_MS = 3600 * 1000,
    LOOK_MS = 100, // between checks whether the old one has answered all requests
    MIN_BACKOFF_MS = 1000,
    MAX_BACKOFF_MS = 5 * 60 * 1000,
    // Of a connection file's folder: `/tmp/.kg-<kernel>-<8 characters>`.
    CONNECTION_PATH_LEN = sizeof "/tmp/.kg--12345678/connection.json" - 1,
};

// One kernelspec.
struct breed {
    TAILQ_ENTRY(breed) link;
    struct zygotes *zygotes;
    struct zygote_plan plan;
    struct zygote *current; // forks, if it is ready; or NULL
    struct zygote *next;    // takes its place when it is ready; or NULL
    struct loop_timer *work;
    int64_t backoff_ms;
    struct kg_error failure; // of the last one; code KG_OK: none
};

struct zygotes {
    struct loop *loop;
    struct provisioner *provisioner;
    char *library_path;
    int library_fd;
    int filter_fd;
    TAILQ_HEAD(, breed) breeds;
    loop_fn on_settled; // NULL: was called
    void *on_settled_arg;
};

static struct breed *
find(const struct zygotes *zygotes, const char *kernel)
{
    struct breed *breed;
    if (!zygotes)
        return NULL;
    TAILQ_FOREACH(breed, &zygotes->breeds, link) {
        if (strcmp(breed->plan.kernel, kernel) == 0)
            return breed;
    }
    return NULL;
}

static bool
is_ready(const struct zygote *zygote)
{
    return zygote && zygote->state == ZYGOTE_READY;
}

static void
look_whether_settled(struct zygotes *zygotes)
{
    const struct breed *breed;
    TAILQ_FOREACH(breed, &zygotes->breeds, link) {
        if (!is_ready(breed->current) && !breed->failure.code)
            return;
    }
    if (zygotes->on_settled)
        KG_STEAL(zygotes->on_settled)(zygotes->on_settled_arg);
}

// ---- Life -----------------------------------------------------------------------------------

static void
back_off(struct breed *breed, const struct kg_error *reason)
{
    breed->failure = *reason;
    breed->backoff_ms = breed->backoff_ms ? breed->backoff_ms * 2 : MIN_BACKOFF_MS;
    if (breed->backoff_ms > MAX_BACKOFF_MS)
        breed->backoff_ms = MAX_BACKOFF_MS;
    log_warning("no zygote: kernels start by exec until the next one is ready",
                LOG_STR("kernel", breed->plan.kernel), LOG_INT("next_in_ms", breed->backoff_ms),
                LOG_ERR(reason));
    loop_timer_start(breed->work, breed->backoff_ms);
    look_whether_settled(breed->zygotes);
}

static void
current_on_ready(void *arg)
{
    struct breed *breed = arg;
    breed->backoff_ms = 0;
    breed->failure = (struct kg_error){0};
    loop_timer_start(breed->work, MAX_AGE_MS);
    look_whether_settled(breed->zygotes);
}

static void
current_on_ended(const struct kg_error *reason, void *arg)
{
    struct breed *breed = arg;
    const struct kg_error why = *reason;
    zygote_end(KG_STEAL(breed->current));
    back_off(breed, &why);
}

static const struct zygote_events current_events = {
    .on_ready = current_on_ready,
    .on_ended = current_on_ended,
};

// The old one has answered all requests, or gets no more of them: see zygotes_fork().
static void
next_on_ready(void *arg)
{
    struct breed *breed = arg;
    loop_timer_start(breed->work, 0);
}

static void
next_on_ended(const struct kg_error *reason, void *arg)
{
    struct breed *breed = arg;
    const struct kg_error why = *reason;
    zygote_end(KG_STEAL(breed->next));
    back_off(breed, &why);
}

static const struct zygote_events next_events = {
    .on_ready = next_on_ready,
    .on_ended = next_on_ended,
};

static struct zygote *
start(struct breed *breed, const struct zygote_events *events)
{
    const struct zygotes *zygotes = breed->zygotes;
    struct kg_error err = {0};
    struct zygote *zygote =
        zygote_new(zygotes->loop, zygotes->provisioner, &breed->plan, zygotes->library_fd,
                   zygotes->filter_fd, events, breed, &err);
    if (!zygote)
        back_off(breed, &err);
    return zygote;
}

static void
take_next(struct breed *breed)
{
    if (breed->current)
        zygote_end(breed->current);
    breed->current = KG_STEAL(breed->next);
    breed->current->events = &current_events;
    current_on_ready(breed);
}

// Starts missing zygotes, and replaces the current one when the next is ready.
static void
on_work(void *arg)
{
    struct breed *breed = arg;
    if (is_ready(breed->next) && (!breed->current || TAILQ_EMPTY(&breed->current->forks)))
        take_next(breed);
    else if (is_ready(breed->next))
        loop_timer_start(breed->work, LOOK_MS);
    else if (!breed->current && !breed->next)
        breed->current = start(breed, &current_events);
    else if (is_ready(breed->current) && !breed->next && breed->current->n_forks > 0)
        breed->next = start(breed, &next_events);
    else if (is_ready(breed->current) && !breed->next)
        loop_timer_start(breed->work, MAX_AGE_MS); // nobody has used it
}

// ---- What they are made of ------------------------------------------------------------------

struct zygotes *
zygotes_new(struct loop *loop, const struct zygotes_settings *settings)
{
    struct zygotes *zygotes = KG_NEW(struct zygotes);
    zygotes->loop = loop;
    zygotes->provisioner = settings->provisioner;
    zygotes->library_path = kg_strdup(settings->library_path);
    zygotes->library_fd = zygotes->filter_fd = -1;
    TAILQ_INIT(&zygotes->breeds);
    return zygotes;
}

// The zygote's argv with one more argument, so that a kernel's command line, which is written over
// it, has exactly its length.
static json_t *
padded_argv(const struct zygote_spec *spec)
{
    static const char placeholder[] = "{connection_file}";
    json_t *argv = json_deep_copy(spec->argv);
    size_t i, own = 0, kernels = 0;
    json_t *part;
    json_array_foreach(argv, i, part)
        own += json_string_length(part) + 1;
    json_array_foreach(spec->kernel_argv, i, part) {
        kernels += json_string_length(part) + 1;
        for (const char *at = json_string_value(part); (at = strstr(at, placeholder)); at++)
            kernels += CONNECTION_PATH_LEN + strlen(spec->kernel) - strlen(placeholder);
    }
    if (kernels > own) {
        KG_AUTO_FREE char *room = kg_calloc(kernels - own, 1);
        memset(room, '-', kernels - own - 1);
        json_array_append_new(argv, json_string(room));
    }
    return argv;
}

void
zygotes_add(struct zygotes *zygotes, const struct zygote_spec *spec)
{
    struct breed *breed = KG_NEW(struct breed);
    breed->zygotes = zygotes;
    breed->plan.kernel = kg_strdup(spec->kernel);
    breed->plan.argv = padded_argv(spec);
    breed->plan.env = json_deep_copy(spec->env);
    breed->plan.hello = json_pack("{s:O, s:s*, s:O*, s:s*}", "argv", spec->kernel_argv, "warmup",
                                  spec->warmup, "late", spec->late, "prepare", spec->prepare);
    breed->work = loop_timer_new(zygotes->loop, on_work, breed);
    TAILQ_INSERT_TAIL(&zygotes->breeds, breed, link);
}

static int
open_parts(struct zygotes *zygotes, struct kg_error *err)
{
    KG_AUTO_BUF filter = {0};
    zygotes->library_fd = open(zygotes->library_path, O_RDONLY | O_CLOEXEC);
    if (zygotes->library_fd < 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno, "cannot open %s",
                            zygotes->library_path);
    if (provisioner_filter(zygotes->provisioner, &filter, err) < 0)
        return -1;
    zygotes->filter_fd = memfd_create("filter", MFD_CLOEXEC);
    if (zygotes->filter_fd < 0 ||
        write(zygotes->filter_fd, filter.data, filter.len) != (ssize_t)filter.len)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot keep the system call filter");
    return 0;
}

void
zygotes_start(struct zygotes *zygotes, loop_fn on_settled, void *arg)
{
    struct kg_error err;
    struct breed *breed;
    zygotes->on_settled = on_settled;
    zygotes->on_settled_arg = arg;
    if (open_parts(zygotes, &err) < 0) {
        log_warning("kernels start by exec", LOG_ERR(&err));
        TAILQ_FOREACH(breed, &zygotes->breeds, link)
            breed->failure = err;
    } else {
        TAILQ_FOREACH(breed, &zygotes->breeds, link)
            loop_timer_start(breed->work, 0);
    }
    look_whether_settled(zygotes);
}

void
zygotes_stop(struct zygotes *zygotes)
{
    struct breed *breed;
    zygotes->on_settled = NULL;
    TAILQ_FOREACH(breed, &zygotes->breeds, link) {
        loop_timer_stop(breed->work);
        if (breed->current)
            zygote_end(KG_STEAL(breed->current));
        if (breed->next)
            zygote_end(KG_STEAL(breed->next));
    }
}

void
zygotes_free(struct zygotes *zygotes)
{
    struct breed *breed;
    if (!zygotes)
        return;
    zygotes_stop(zygotes);
    while ((breed = TAILQ_FIRST(&zygotes->breeds))) {
        TAILQ_REMOVE(&zygotes->breeds, breed, link);
        loop_timer_free(breed->work);
        json_decref(breed->plan.argv);
        json_decref(breed->plan.env);
        json_decref(breed->plan.hello);
        free(breed->plan.kernel);
        free(breed);
    }
    if (zygotes->library_fd >= 0)
        close(zygotes->library_fd);
    if (zygotes->filter_fd >= 0)
        close(zygotes->filter_fd);
    free(zygotes->library_path);
    free(zygotes);
}

// ---- Forks ----------------------------------------------------------------------------------

bool
zygotes_have(const struct zygotes *zygotes, const char *kernel)
{
    return find(zygotes, kernel) != NULL;
}

int
zygotes_ready(const struct zygotes *zygotes, const char *kernel, struct kg_error *err)
{
    const struct breed *breed = find(zygotes, kernel);
    if (breed && is_ready(breed->current))
        return 0;
    if (breed && breed->failure.code) {
        *err = breed->failure;
        return -1;
    }
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "no zygote is ready yet");
}

struct zygote_fork *
zygotes_fork(struct zygotes *zygotes, const char *kernel, const char *sandbox_id, const char *id,
             zygote_forked_fn fn, void *arg, struct kg_error *err)
{
    struct breed *breed = find(zygotes, kernel);
    if (zygotes_ready(zygotes, kernel, err) < 0 || !breed)
        return NULL;
    bool worn = breed->current->n_forks >= MAX_FORKS && !breed->next && !breed->backoff_ms;
    if (worn || is_ready(breed->next))
        loop_timer_start(breed->work, 0);
    // Uses the next one if it is ready; the old one then ends when it has answered.
    struct zygote *zygote = is_ready(breed->next) ? breed->next : breed->current;
    return zygote_ask(zygote, sandbox_id, id, fn, arg, err);
}
