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
struct zygote_slot {
    TAILQ_ENTRY(zygote_slot) link;
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
    TAILQ_HEAD(, zygote_slot) slots;
    loop_fn on_settled; // NULL: was called
    void *on_settled_arg;
    loop_fn on_change; // or NULL
    void *on_change_arg;
};

static struct zygote_slot *
zygotes_find(const struct zygotes *zygotes, const char *kernel)
{
    struct zygote_slot *slot;
    if (!zygotes)
        return NULL;
    TAILQ_FOREACH(slot, &zygotes->slots, link) {
        if (strcmp(slot->plan.kernel, kernel) == 0)
            return slot;
    }
    return NULL;
}

static bool
is_ready(const struct zygote *zygote)
{
    return zygote && zygote->state == ZYGOTE_READY;
}

static void
zygotes_look(struct zygotes *zygotes)
{
    const struct zygote_slot *slot;
    if (zygotes->on_change)
        zygotes->on_change(zygotes->on_change_arg);
    TAILQ_FOREACH(slot, &zygotes->slots, link) {
        if (!is_ready(slot->current) && !slot->failure.code)
            return;
    }
    if (zygotes->on_settled)
        KG_STEAL(zygotes->on_settled)(zygotes->on_settled_arg);
}

// ---- Life -----------------------------------------------------------------------------------

static void
back_off(struct zygote_slot *slot, const struct kg_error *reason)
{
    slot->failure = *reason;
    slot->backoff_ms = slot->backoff_ms ? slot->backoff_ms * 2 : MIN_BACKOFF_MS;
    if (slot->backoff_ms > MAX_BACKOFF_MS)
        slot->backoff_ms = MAX_BACKOFF_MS;
    log_warning("no zygote: kernels start by exec until the next one is ready",
                LOG_STR("kernel", slot->plan.kernel), LOG_INT("next_in_ms", slot->backoff_ms),
                LOG_ERR(reason));
    loop_timer_start(slot->work, slot->backoff_ms);
    zygotes_look(slot->zygotes);
}

static void
current_on_ready(void *arg)
{
    struct zygote_slot *slot = arg;
    slot->backoff_ms = 0;
    slot->failure = (struct kg_error){0};
    loop_timer_start(slot->work, MAX_AGE_MS);
    zygotes_look(slot->zygotes);
}

static void
current_on_ended(const struct kg_error *reason, void *arg)
{
    struct zygote_slot *slot = arg;
    const struct kg_error why = *reason;
    zygote_end(KG_STEAL(slot->current));
    back_off(slot, &why);
}

static const struct zygote_events current_events = {
    .on_ready = current_on_ready,
    .on_ended = current_on_ended,
};

// The old one has answered all requests, or gets no more of them: see zygotes_fork().
static void
next_on_ready(void *arg)
{
    struct zygote_slot *slot = arg;
    loop_timer_start(slot->work, 0);
}

static void
next_on_ended(const struct kg_error *reason, void *arg)
{
    struct zygote_slot *slot = arg;
    const struct kg_error why = *reason;
    zygote_end(KG_STEAL(slot->next));
    back_off(slot, &why);
}

static const struct zygote_events next_events = {
    .on_ready = next_on_ready,
    .on_ended = next_on_ended,
};

static struct zygote *
start(struct zygote_slot *slot, const struct zygote_events *events)
{
    const struct zygotes *zygotes = slot->zygotes;
    struct kg_error err = {0};
    struct zygote *zygote = zygote_new(zygotes->loop, zygotes->provisioner, &slot->plan,
                                       zygotes->library_fd, zygotes->filter_fd, events, slot, &err);
    if (!zygote)
        back_off(slot, &err);
    return zygote;
}

static void
take_next(struct zygote_slot *slot)
{
    if (slot->current)
        zygote_end(slot->current);
    slot->current = KG_STEAL(slot->next);
    slot->current->events = &current_events;
    current_on_ready(slot);
}

// Starts missing zygotes, and replaces the current one when the next is ready.
static void
on_work(void *arg)
{
    struct zygote_slot *slot = arg;
    if (is_ready(slot->next) && (!slot->current || TAILQ_EMPTY(&slot->current->forks)))
        take_next(slot);
    else if (is_ready(slot->next))
        loop_timer_start(slot->work, LOOK_MS);
    else if (!slot->current && !slot->next)
        slot->current = start(slot, &current_events);
    else if (is_ready(slot->current) && !slot->next && slot->current->n_forks > 0)
        slot->next = start(slot, &next_events);
    else if (is_ready(slot->current) && !slot->next)
        loop_timer_start(slot->work, MAX_AGE_MS); // nobody has used it
}

// ---- What they are made of ------------------------------------------------------------------

struct zygotes *
zygotes_new(struct loop *loop, const struct zygotes_settings *settings)
{
    struct zygotes *zygotes = KG_NEW(struct zygotes);
    zygotes->loop = loop;
    zygotes->provisioner = settings->provisioner;
    zygotes->library_path = kg_strdup(settings->library_path);
    zygotes->on_change = settings->on_change;
    zygotes->on_change_arg = settings->arg;
    zygotes->library_fd = zygotes->filter_fd = -1;
    TAILQ_INIT(&zygotes->slots);
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
    struct zygote_slot *slot = KG_NEW(struct zygote_slot);
    slot->zygotes = zygotes;
    slot->plan.kernel = kg_strdup(spec->kernel);
    slot->plan.argv = padded_argv(spec);
    slot->plan.env = json_deep_copy(spec->env);
    slot->plan.hello = json_pack("{s:O, s:s*, s:O*, s:s*}", "argv", spec->kernel_argv, "warmup",
                                 spec->warmup, "late", spec->late, "prepare", spec->prepare);
    slot->work = loop_timer_new(zygotes->loop, on_work, slot);
    TAILQ_INSERT_TAIL(&zygotes->slots, slot, link);
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
    struct zygote_slot *slot;
    zygotes->on_settled = on_settled;
    zygotes->on_settled_arg = arg;
    if (open_parts(zygotes, &err) < 0) {
        log_warning("kernels start by exec", LOG_ERR(&err));
        TAILQ_FOREACH(slot, &zygotes->slots, link)
            slot->failure = err;
    } else {
        TAILQ_FOREACH(slot, &zygotes->slots, link)
            loop_timer_start(slot->work, 0);
    }
    zygotes_look(zygotes);
}

void
zygotes_stop(struct zygotes *zygotes)
{
    struct zygote_slot *slot;
    zygotes->on_settled = NULL;
    TAILQ_FOREACH(slot, &zygotes->slots, link) {
        loop_timer_stop(slot->work);
        if (slot->current)
            zygote_end(KG_STEAL(slot->current));
        if (slot->next)
            zygote_end(KG_STEAL(slot->next));
    }
}

void
zygotes_free(struct zygotes *zygotes)
{
    struct zygote_slot *slot;
    if (!zygotes)
        return;
    zygotes_stop(zygotes);
    while ((slot = TAILQ_FIRST(&zygotes->slots))) {
        TAILQ_REMOVE(&zygotes->slots, slot, link);
        loop_timer_free(slot->work);
        json_decref(slot->plan.argv);
        json_decref(slot->plan.env);
        json_decref(slot->plan.hello);
        free(slot->plan.kernel);
        free(slot);
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
    return zygotes_find(zygotes, kernel) != NULL;
}

int
zygotes_ready(const struct zygotes *zygotes, const char *kernel, struct kg_error *err)
{
    const struct zygote_slot *slot = zygotes_find(zygotes, kernel);
    if (slot && is_ready(slot->current))
        return 0;
    if (slot && slot->failure.code) {
        *err = slot->failure;
        return -1;
    }
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "no zygote is ready yet");
}

struct zygote_fork *
zygotes_fork(struct zygotes *zygotes, const char *kernel, const char *sandbox_id, const char *id,
             zygote_forked_fn fn, void *arg, struct kg_error *err)
{
    struct zygote_slot *slot = zygotes_find(zygotes, kernel);
    if (zygotes_ready(zygotes, kernel, err) < 0 || !slot)
        return NULL;
    bool worn = slot->current->n_forks >= MAX_FORKS && !slot->next && !slot->backoff_ms;
    if (worn || is_ready(slot->next))
        loop_timer_start(slot->work, 0);
    // Uses the next one if it is ready; the old one then ends when it has answered.
    struct zygote *zygote = is_ready(slot->next) ? slot->next : slot->current;
    return zygote_ask(zygote, sandbox_id, id, fn, arg, err);
}
