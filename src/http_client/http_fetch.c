// SPDX-License-Identifier: Apache-2.0
// Downloads of files by URL: the hops, and the temporary file.

#include "http_fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_REDIRECTS = 5, MAX_URL_LEN = 2048 };

struct http_fetch {
    struct http_client *client;
    const struct address_policy *policy;
    char *first_url; // as given
    char *url;       // of this hop
    int64_t max_bytes;
    int64_t deadline_ms;
    int n_redirects;
    struct http_call *call;
    int fd;
    int64_t len;
    int status;
    char *location;          // of a redirect
    char *disposition;       // or NULL
    struct kg_error failure; // found by us, not by curl; code KG_OK: none
    http_fetch_fn fn;
    void *arg;
};

static void
fetch_free(struct http_fetch *fetch)
{
    if (fetch->fd >= 0)
        close(fetch->fd);
    free(fetch->first_url);
    free(fetch->url);
    free(fetch->location);
    free(fetch->disposition);
    free(fetch);
}

void
http_fetch_cancel(struct http_fetch *fetch)
{
    if (!fetch)
        return;
    http_call_cancel(fetch->call);
    fetch_free(fetch);
}

static void
fetch_finish(struct http_fetch *fetch, const struct kg_error *err)
{
    struct http_fetch_result result = {.fd = -1};
    http_fetch_fn fn = fetch->fn;
    void *arg = fetch->arg;
    struct kg_error copy = err ? *err : (struct kg_error){0};
    if (!err) {
        result.fd = KG_STEAL_FD(fetch->fd);
        result.len = fetch->len;
        result.name = http_fetch_name(fetch->disposition, fetch->first_url);
    }
    fetch_free(fetch);
    fn(err ? NULL : &result, err ? &copy : NULL, arg);
}

// ---- One hop --------------------------------------------------------------------------------

static int start_hop(struct http_fetch *fetch, struct kg_error *err);

static bool
is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool
on_head(struct http_call *call, int status, void *arg)
{
    struct http_fetch *fetch = arg;
    const char *location = http_call_header(call, "Location");
    const char *disposition = http_call_header(call, "Content-Disposition");
    const char *length = http_call_header(call, "Content-Length");
    fetch->status = status;
    if (is_redirect(status) && location && strlen(location) <= MAX_URL_LEN)
        fetch->location = kg_strdup(location);
    if (status != 200)
        return false; // its body is not needed
    if (disposition)
        fetch->disposition = kg_strdup(disposition);
    if (length && strtoll(length, NULL, 10) > fetch->max_bytes) {
        kg_error_set(&fetch->failure, KG_UPLOAD_TOO_LARGE, 0,
                     "the file has %.20s bytes; the limit is %lld (setting max-upload-bytes)",
                     length, (long long)fetch->max_bytes);
        return false;
    }
    return true;
}

static bool
on_data(int status, const void *data, size_t len, void *arg)
{
    struct http_fetch *fetch = arg;
    (void)status;
    if ((int64_t)len > fetch->max_bytes - fetch->len) {
        kg_error_set(&fetch->failure, KG_UPLOAD_TOO_LARGE, 0,
                     "the file has more than %lld bytes (setting max-upload-bytes)",
                     (long long)fetch->max_bytes);
        return false;
    }
    ssize_t n = pwrite(fetch->fd, data, len, fetch->len);
    if (n != (ssize_t)len) {
        kg_error_set(&fetch->failure, KG_INTERNAL, n < 0 ? errno : ENOSPC, "cannot store the file");
        return false;
    }
    fetch->len += n;
    return true;
}

// The absolute URL of `location`; NULL if it is not valid.
static char *
resolve(const char *base, const char *location)
{
    CURLU *parts = curl_url();
    char *text = NULL;
    char *copy = NULL;
    if (parts && curl_url_set(parts, CURLUPART_URL, base, 0) == CURLUE_OK &&
        curl_url_set(parts, CURLUPART_URL, location, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_URL, &text, 0) == CURLUE_OK)
        copy = kg_strdup(text);
    curl_free(text);
    curl_url_cleanup(parts);
    return copy;
}

static void
follow(struct http_fetch *fetch)
{
    struct kg_error err = {0};
    char *next = resolve(fetch->url, fetch->location);
    free(KG_STEAL(fetch->location));
    free(fetch->url);
    fetch->url = next ? next : kg_strdup("");
    if (++fetch->n_redirects > MAX_REDIRECTS)
        kg_error_set(&err, KG_INTERNAL, 0, "more than %d redirects", MAX_REDIRECTS);
    else if (start_hop(fetch, &err) == 0)
        return;
    fetch_finish(fetch, &err);
}

static void
fetch_on_done(const struct http_call_result *result, void *arg)
{
    struct http_fetch *fetch = arg;
    struct kg_error err = {0};
    fetch->call = NULL;
    if (fetch->location) {
        follow(fetch);
        return;
    }
    if (fetch->failure.code) {
        err = fetch->failure;
    } else if (fetch->status && fetch->status != 200) {
        bool missing = fetch->status == 404 || fetch->status == 410;
        kg_error_set(&err, missing ? KG_NOT_FOUND : KG_INTERNAL, 0, "the server answered %d",
                     fetch->status);
    } else if (result->err) {
        err = *result->err;
    }
    fetch_finish(fetch, err.code ? &err : NULL);
}

static bool
is_url(const char *url)
{
    size_t len = strlen(url);
    bool web = strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)url[i] <= ' ' || url[i] == 0x7f)
            return false;
    }
    return web && len <= MAX_URL_LEN;
}

static int
start_hop(struct http_fetch *fetch, struct kg_error *err)
{
    if (!is_url(fetch->url))
        return kg_error_set(err, KG_INVALID, 0, "%s an http:// or https:// URL",
                            fetch->n_redirects ? "it redirects, but not to" : "not");
    int64_t left_ms = fetch->deadline_ms - clock_mono_ms();
    const struct http_call_spec spec = {
        .method = "GET",
        .url = fetch->url,
        .timeout_ms = left_ms > 1 ? left_ms : 1,
        .on_head = on_head,
        .policy = fetch->policy,
    };
    fetch->status = 0;
    fetch->call = http_call_start(fetch->client, &spec, on_data, fetch_on_done, fetch, err);
    return fetch->call ? 0 : -1;
}

// ---- Start ----------------------------------------------------------------------------------

static int
make_nameless(const char *dir, struct kg_error *err)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    // Not every file system has O_TMPFILE.
    KG_AUTO_FREE char *path = kg_asprintf("%s/fetch-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot create a file in %.100s", dir);
    (void)unlink(path);
    return fd;
}

struct http_fetch *
http_fetch_start(struct http_client *client, const struct http_fetch_spec *spec, http_fetch_fn fn,
                 void *arg, struct kg_error *err)
{
    struct http_fetch *fetch = KG_NEW(struct http_fetch);
    fetch->client = client;
    fetch->policy = spec->policy;
    fetch->first_url = kg_strdup(spec->url);
    fetch->url = kg_strdup(spec->url);
    fetch->max_bytes = spec->max_bytes;
    fetch->deadline_ms = clock_mono_ms() + spec->timeout_ms;
    fetch->fn = fn;
    fetch->arg = arg;
    fetch->fd = make_nameless(spec->dir, err);
    if (fetch->fd >= 0 && start_hop(fetch, err) == 0)
        return fetch;
    fetch_free(fetch);
    return NULL;
}
