// SPDX-License-Identifier: Apache-2.0
// Downloads: fetched a few at a time, then written to the session's sandbox.

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "http_fetch.h"
#include "metrics.h"
#include "session_downloads.h"
#include "session_files.h"
#include "sessions_priv.h"

// Downloads at a time, of one request and of all: each may hold a large file.
enum { PARALLEL = 4, PARALLEL_OF_ALL = 16, FETCH_MS = 60 * 1000, MAX_SAME_NAME = 100 };

struct download {
    struct session_downloads *downloads;
    char *url;
    char *id; // or NULL
    bool started;
    bool done;
    struct http_fetch *fetch;
    struct session_file_op *put;
    int fd;
    int64_t len;
    int64_t n_read;
    char *name;
    int n_tries; // to find an unused name
};

struct session_downloads {
    TAILQ_ENTRY(session_downloads) link;
    struct session *session;
    struct loop_timer *step;
    struct download items[SESSION_DOWNLOADS_MAX];
    size_t n;
    struct budget_hold running; // of sessions->downloads
    size_t n_done;
    json_t *files;
    json_t *errors;
    session_downloads_fn fn;
    void *arg;
};

static void
download_clear(struct download *download)
{
    http_fetch_cancel(KG_STEAL(download->fetch));
    session_file_op_cancel(KG_STEAL(download->put));
    if (download->fd >= 0)
        close(KG_STEAL_FD(download->fd));
    free(KG_STEAL(download->name));
}

// Others may be waiting for these places.
static void
stop_running(struct session_downloads *downloads, size_t n)
{
    budget_hold_set(&downloads->running, downloads->running.held - n);
    loop_timer_start(downloads->session->sessions->downloads_step, 0);
}

static void
downloads_free(struct session_downloads *downloads)
{
    TAILQ_REMOVE(&downloads->session->downloads, downloads, link);
    stop_running(downloads, downloads->running.held);
    budget_hold_end(&downloads->running);
    for (size_t i = 0; i < downloads->n; i++) {
        download_clear(&downloads->items[i]);
        free(downloads->items[i].url);
        free(downloads->items[i].id);
    }
    loop_timer_free(downloads->step);
    json_decref(downloads->files);
    json_decref(downloads->errors);
    free(downloads);
}

void
session_downloads_cancel(struct session_downloads *downloads)
{
    if (downloads)
        downloads_free(downloads);
}

// ---- The end of one -------------------------------------------------------------------------

// Appends `entry` (taken), with the client's url and id, to `list`.
static void
finish_one(struct download *download, json_t *list, json_t *entry)
{
    struct session_downloads *downloads = download->downloads;
    json_object_set_new(entry, "url", json_string(download->url));
    if (download->id)
        json_object_set_new(entry, "id", json_string(download->id));
    json_array_append_new(list, entry);
    metric_add(METRIC_DOWNLOADS, 1, list == downloads->errors ? "failed" : "ok");
    download->done = true;
    downloads->n_done++;
    download_clear(download);
    loop_timer_start(downloads->step, 0);
    if (download->started)
        stop_running(downloads, 1);
}

static void
fail_one(struct download *download, const struct kg_error *err)
{
    finish_one(
        download, download->downloads->errors,
        json_pack("{s:s, s:s}", "code", kg_code_info(err->code)->name, "error", err->message));
}

// ---- Into the session -----------------------------------------------------------------------

static void put(struct download *download);

static void
on_put(const struct session_file *file, bool created, const struct kg_error *err, void *arg)
{
    struct download *download = arg;
    (void)created;
    download->put = NULL;
    if (err && err->code == KG_FILE_EXISTS && download->n_tries < MAX_SAME_NAME) {
        put(download);
        return;
    }
    if (err) {
        fail_one(download, err);
        return;
    }
    json_t *entry = json_pack("{s:s, s:I, s:s}", "path", file->path, "size", (json_int_t)file->size,
                              "mime", file->mime);
    finish_one(download, download->downloads->files, entry);
}

// Bytes that cannot be read back become zeros: the file is ours, so the disk is failing.
static size_t
downloads_on_read(void *to, size_t len, void *arg)
{
    struct download *download = arg;
    struct kg_error err = {0};
    if (fd_read_at(download->fd, download->n_read, to, len, &err) < 0) {
        log_error("cannot read a download back", LOG_ERR(&err));
        memset(to, 0, len);
    }
    download->n_read += (int64_t)len;
    return len;
}

// The name; from the second try on with a number before its extension.
static char *
next_name(struct download *download)
{
    if (download->n_tries++ == 0)
        return kg_strdup(download->name);
    const char *dot = strrchr(download->name, '.');
    int stem = (int)(dot && dot != download->name ? dot - download->name
                                                  : (ptrdiff_t)strlen(download->name));
    return kg_asprintf("%.*s-%d%s", stem, download->name, download->n_tries - 1,
                       download->name + stem);
}

static void
put(struct download *download)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *name = next_name(download);
    const struct session_file_source source = {
        .read = downloads_on_read, .arg = download, .len = (size_t)download->len};
    download->n_read = 0;
    download->put =
        session_file_put(download->downloads->session, name, &source, true, on_put, download, &err);
    if (!download->put)
        fail_one(download, &err);
}

static void
on_fetched(struct http_fetch_result *result, const struct kg_error *err, void *arg)
{
    struct download *download = arg;
    download->fetch = NULL;
    if (err) {
        fail_one(download, err);
        return;
    }
    download->fd = result->fd;
    download->len = result->len;
    download->name = result->name;
    put(download);
}

// ---- All of them ----------------------------------------------------------------------------

static void
start_one(struct download *download)
{
    const struct sessions_settings *settings = &download->downloads->session->sessions->settings;
    struct budget_hold *running = &download->downloads->running;
    const struct http_fetch_spec spec = {
        .url = download->url,
        .policy = settings->fetch_policy,
        .dir = settings->scratch_dir,
        .max_bytes = settings->max_download_bytes,
        .timeout_ms = FETCH_MS,
    };
    struct kg_error err = {0};
    download->started = true;
    budget_hold_set(running, running->held + 1);
    if (disk_check_free(spec.dir, spec.max_bytes, &err) == 0)
        download->fetch = http_fetch_start(settings->http, &spec, on_fetched, download, &err);
    if (!download->fetch)
        fail_one(download, &err);
}

static void
downloads_finish(struct session_downloads *downloads)
{
    session_downloads_fn fn = downloads->fn;
    void *arg = downloads->arg;
    json_auto_t *files = json_incref(downloads->files);
    json_auto_t *errors = json_incref(downloads->errors);
    session_touch(downloads->session);
    downloads_free(downloads);
    fn(files, errors, arg);
}

static struct download *
first_waiting(struct session_downloads *downloads)
{
    if (downloads->running.held >= PARALLEL)
        return NULL;
    for (size_t i = 0; i < downloads->n; i++) {
        if (!downloads->items[i].started)
            return &downloads->items[i];
    }
    return NULL;
}

// The next download: of the owner with the fewest under way.
static struct download *
find_next(const struct sessions *sessions)
{
    struct download *next = NULL;
    size_t fewest = sessions->downloads.max_share;
    const struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link) {
        struct session_downloads *downloads;
        TAILQ_FOREACH(downloads, &session->downloads, link) {
            struct download *waiting = first_waiting(downloads);
            if (!waiting || downloads->running.share->held >= fewest)
                continue;
            fewest = downloads->running.share->held;
            next = waiting;
        }
    }
    return next;
}

static void
sessions_downloads_step(void *arg)
{
    struct sessions *sessions = arg;
    struct download *next;
    while (sessions->downloads.held < sessions->downloads.max && (next = find_next(sessions)))
        start_one(next);
}

void
sessions_downloads_init(struct sessions *sessions)
{
    budget_init(&sessions->downloads, "downloads", PARALLEL_OF_ALL, PARALLEL_OF_ALL);
    budget_set_several_owners(&sessions->downloads, sessions->settings.several_owners);
    sessions->downloads_step = loop_timer_new(sessions->loop, sessions_downloads_step, sessions);
}

void
sessions_downloads_fini(struct sessions *sessions)
{
    loop_timer_free(sessions->downloads_step);
    budget_fini(&sessions->downloads);
}

static void
on_step(void *arg)
{
    struct session_downloads *downloads = arg;
    if (downloads->n_done == downloads->n)
        downloads_finish(downloads);
}

struct session_downloads *
session_downloads_start(struct session *session, const struct session_download *items, size_t n,
                        session_downloads_fn fn, void *arg)
{
    assert(n <= SESSION_DOWNLOADS_MAX);
    struct session_downloads *downloads = KG_NEW(struct session_downloads);
    downloads->session = session;
    budget_hold_start(&downloads->running, &session->sessions->downloads, session->owner);
    downloads->files = json_array();
    downloads->errors = json_array();
    downloads->fn = fn;
    downloads->arg = arg;
    downloads->n = n;
    for (size_t i = 0; i < n; i++)
        downloads->items[i] = (struct download){
            .downloads = downloads,
            .url = kg_strdup(items[i].url),
            .id = items[i].id ? kg_strdup(items[i].id) : NULL,
            .fd = -1,
        };
    downloads->step = loop_timer_new(session->sessions->loop, on_step, downloads);
    loop_timer_start(downloads->step, 0); // there may be none
    loop_timer_start(session->sessions->downloads_step, 0);
    TAILQ_INSERT_TAIL(&session->downloads, downloads, link);
    return downloads;
}

void
session_downloads_end(struct session *session, const struct kg_error *err)
{
    for (struct session_downloads *downloads; (downloads = TAILQ_FIRST(&session->downloads));) {
        for (size_t i = 0; i < downloads->n; i++) {
            if (!downloads->items[i].done)
                fail_one(&downloads->items[i], err);
        }
        downloads_finish(downloads);
    }
}
