// SPDX-License-Identifier: Apache-2.0
// Serves the console's files from memory.

#include "console.h"

#include <dirent.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base.h"
#include "http.h"

#define ASSETS "assets/"
#define FRAME "frame.html"
#define COMPRESSED ".gz"

// The page runs its own scripts only, and asks nobody but its gateway. Rendered output is shown in
// frames of frame.html, and charts in those of assets that are documents: without the page's origin,
// and with the rest of their policy in the file.
static const char page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'%s; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
static const char frame_policy[] =
    "sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox; frame-ancestors 'self'";
static const char chart_policy[] = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'";

struct console_file {
    char *name;       // relative to the folder
    struct buf plain; // empty: it is kept compressed only
    struct buf gzip;  // empty: there is none
    char etag[40];
    char gzip_etag[40];
};

struct console {
    char *dir;
    char *page_policy; // allows the page's own style, by its hash
    struct console_file files[CONSOLE_FILES_MAX];
    size_t n_files;
    size_t bytes;
    struct kg_error error; // why it cannot be served; KG_OK: it can
};

static bool
is_asset(const char *name)
{
    return strncmp(name, ASSETS, strlen(ASSETS)) == 0;
}

static bool
has_suffix(const char *name, const char *suffix)
{
    size_t len = strlen(name);
    size_t suffix_len = strlen(suffix);
    return len > suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

// ---- Loading --------------------------------------------------------------------------------

static struct console_file *
find_file(struct console *console, const char *name)
{
    for (size_t i = 0; i < console->n_files; i++)
        if (strcmp(console->files[i].name, name) == 0)
            return &console->files[i];
    return NULL;
}

static int
read_into(struct console *console, const char *name, struct buf *ret, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", console->dir, name);
    if (file_read(path, CONSOLE_BYTES_MAX - console->bytes, ret, err) < 0)
        return -1;
    console->bytes += ret->len;
    return 0;
}

static bool
exists(const struct console *console, const char *name)
{
    struct stat info;
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", console->dir, name);
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static void
write_etag(char *ret, size_t size, const struct buf *content)
{
    snprintf(ret, size, "\"%zx-%08x\"", content->len, hash_fnv1a(content->data, content->len));
}

static int
add_file(struct console *console, const char *name, struct kg_error *err)
{
    if (console->n_files == CONSOLE_FILES_MAX)
        return kg_error_set(err, KG_INVALID, 0, "it has more than %d files", CONSOLE_FILES_MAX);
    struct console_file *file = &console->files[console->n_files++];
    *file = (struct console_file){.name = kg_strdup(name)};
    if (exists(console, name) && read_into(console, name, &file->plain, err) < 0)
        return -1;
    write_etag(file->etag, sizeof file->etag, &file->plain);
    KG_AUTO_FREE char *compressed = kg_asprintf("%s" COMPRESSED, name);
    if (exists(console, compressed) && read_into(console, compressed, &file->gzip, err) < 0)
        return -1;
    write_etag(file->gzip_etag, sizeof file->gzip_etag, &file->gzip);
    return 0;
}

// The name of the file that `path` has, itself or compressed; NULL if it is the compressed form of one
// that is there itself, or not a file. To be freed.
static char *
name_of(const struct console *console, const char *path)
{
    if (!exists(console, path))
        return NULL;
    if (!has_suffix(path, COMPRESSED))
        return kg_strdup(path);
    size_t len = strlen(path) - strlen(COMPRESSED);
    KG_AUTO_FREE char *name = kg_asprintf("%.*s", (int)len, path);
    return exists(console, name) ? NULL : KG_STEAL(name);
}

// `prefix`: the subfolder with its slash, or "".
static int
add_folder(struct console *console, const char *prefix, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", console->dir, prefix);
    DIR *folder = opendir(path);
    if (!folder)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open %s", path);
    int failed = 0;
    for (const struct dirent *entry; !failed && (entry = readdir(folder));) {
        KG_AUTO_FREE char *file = kg_asprintf("%s%s", prefix, entry->d_name);
        KG_AUTO_FREE char *name = entry->d_name[0] == '.' ? NULL : name_of(console, file);
        if (name)
            failed = add_file(console, name, err);
    }
    closedir(folder);
    return failed;
}

static int
load(struct console *console, struct kg_error *err)
{
    if (add_folder(console, "", err) < 0)
        return -1;
    if (!find_file(console, "index.html"))
        return kg_error_set(err, KG_INTERNAL, 0, "it has no index.html");
    return add_folder(console, ASSETS, err);
}

// " 'sha256-…'" of the page's <style>; "" if it has none. To be freed.
static char *
style_source(struct console *console)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char text[sodium_base64_ENCODED_LEN(sizeof hash, sodium_base64_VARIANT_ORIGINAL)];
    const struct console_file *page = find_file(console, "index.html");
    const char *begin = page && page->plain.data ? strstr(page->plain.data, "<style>") : NULL;
    const char *end = begin ? strstr(begin, "</style>") : NULL;
    if (!end)
        return kg_strdup("");
    begin += strlen("<style>");
    crypto_hash_sha256(hash, (const unsigned char *)begin, (size_t)(end - begin));
    sodium_bin2base64(text, sizeof text, hash, sizeof hash, sodium_base64_VARIANT_ORIGINAL);
    return kg_asprintf(" 'sha256-%s'", text);
}

struct console *
console_new(const char *dir)
{
    struct console *console = KG_NEW(struct console);
    console->dir = kg_strdup(dir);
    if (load(console, &console->error) < 0)
        log_warning("the console is not served", LOG_STR("folder", dir), LOG_ERR(&console->error));
    KG_AUTO_FREE char *style = style_source(console);
    console->page_policy = kg_asprintf(page_policy, style);
    return console;
}

void
console_free(struct console *console)
{
    if (!console)
        return;
    for (size_t i = 0; i < console->n_files; i++) {
        free(console->files[i].name);
        buf_fini(&console->files[i].plain);
        buf_fini(&console->files[i].gzip);
    }
    free(console->dir);
    free(console->page_policy);
    free(console);
}

// ---- Serving --------------------------------------------------------------------------------

static const char *
policy_of(const struct console *console, const char *name)
{
    if (strcmp(name, FRAME) == 0)
        return frame_policy;
    return is_asset(name) && has_suffix(name, ".html") ? chart_policy : console->page_policy;
}

static void
add_headers(struct http_request *request, const struct console *console, const char *name)
{
    // The names of assets contain their hash.
    http_reply_header(request, "Cache-Control",
                      is_asset(name) ? "public, max-age=31536000, immutable" : "no-cache");
    http_reply_header(request, "Content-Security-Policy", policy_of(console, name));
    http_reply_header(request, "Cross-Origin-Opener-Policy", "same-origin");
    http_reply_header(request, "Cross-Origin-Resource-Policy", "same-origin");
    http_reply_header(request, "Referrer-Policy", "no-referrer");
    http_reply_header(request, "Vary", "Accept-Encoding");
}

// The files stay until the server has gone.
static void
keep(void *arg)
{
    (void)arg;
}

static void
reply_file(struct http_request *request, const struct console *console, struct console_file *file)
{
    // Every browser accepts what is kept compressed only.
    bool compressed =
        file->gzip.len > 0 && (file->plain.len == 0 || http_request_accepts_gzip(request));
    const struct buf *content = compressed ? &file->gzip : &file->plain;
    const char *etag = compressed ? file->gzip_etag : file->etag;
    const char *known = http_request_header(request, "If-None-Match");
    add_headers(request, console, file->name);
    http_reply_header(request, "ETag", etag);
    if (known && http_etag_list_has(known, etag)) {
        http_reply(request, 304, NULL, NULL, 0);
        return;
    }
    if (compressed)
        http_reply_header(request, "Content-Encoding", "gzip");
    http_reply_shared(request, 200, mime_of_path(file->name), content->data, content->len, keep,
                      NULL);
}

static void
reply_missing(struct http_request *request, const struct console *console)
{
    KG_AUTO_FREE char *text = kg_asprintf(
        "The console is not there: %s: %s\n"
        "script/setup builds it, and restart the gateway then. The API works without it.\n",
        console->dir, console->error.message);
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply(request, 404, "text/plain; charset=utf-8", text, strlen(text));
}

static void
handle_file(struct http_request *request, void *arg)
{
    struct console *console = arg;
    const char *path = http_request_param(request, "path");
    struct kg_error err;
    if (console->error.code != KG_OK) {
        reply_missing(request, console);
        return;
    }
    struct console_file *file = find_file(console, *path ? path : "index.html");
    if (file) {
        reply_file(request, console, file);
        return;
    }
    kg_error_set(&err, KG_NOT_FOUND, 0, "the console has no such file");
    http_reply_error(request, &err);
}

// For browsers only: clients of Jupyter ask for "/" to find out whether there is a login page. The
// address is relative, so that it is right behind a proxy that adds a path.
static void
handle_redirect(struct http_request *request, void *arg)
{
    (void)arg;
    const char *accepted = http_request_header(request, "Accept");
    struct kg_error err;
    http_reply_header(request, "Vary", "Accept");
    if (!accepted || !strstr(accepted, "text/html")) {
        kg_error_set(&err, KG_NOT_FOUND, 0, "no route has this path");
        http_reply_error(request, &err);
        return;
    }
    http_reply_header(request, "Location", "console/");
    http_reply(request, 302, NULL, NULL, 0);
}

static const struct http_route routes[] = {
    {HTTP_GET, "/", handle_redirect, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/console", handle_redirect, HTTP_PUBLIC, NULL},
    {HTTP_GET, "/console/{path...}", handle_file, HTTP_PUBLIC, NULL},
};

void
console_register(struct http_server *server, struct console *console)
{
    http_server_add_routes(server, routes, KG_ARRAY_LEN(routes), console);
}
