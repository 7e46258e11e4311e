// SPDX-License-Identifier: Apache-2.0
// A cursor remembers every file as it was when it was last looked at. A file has changed if it
// differs from that and was touched within the time that is asked about, so that what a command or
// another kernel did before does not count. The time is not exact; so where another cursor has
// looked just before, what that one saw does not count either. Times of two machines are never
// compared.
#include "changes.h"

#include <sodium.h>
#include <string.h>
#include <time.h>

#include "target.h"
#include "walk.h"

enum {
    CURSORS_MAX = 16,
    FILES_SEEN_MAX = 10000, // what is beyond is neither remembered nor told
    FILES_TOLD_MAX = 100,
    TOLD_PATH_BYTES_MAX = 32 << 10,
    // The question says how long ago the execution began, and takes time to arrive: on a busy
    // machine longer than code takes to write its first file.
    DELAY_NS = 250 * 1000 * 1000,
};

struct seen {
    uint64_t path; // its keyed hash: tenants choose names
    uint64_t inode;
    int64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns;
};

// `files` is sorted by `path`.
struct cursor {
    char name[TARGET_NAME_MAX + 1];
    struct seen *files;
    size_t n;
    size_t cap;
};

struct changes {
    const char *root;
    unsigned char key[crypto_shorthash_KEYBYTES];
    struct cursor cursors[CURSORS_MAX];
    size_t n_cursors;
    const struct cursor *last; // of the last question; NULL: none yet
};

// ---- Cursors --------------------------------------------------------------------------------

static int64_t
nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct seen
seen_of(const struct changes *changes, const char *path, const struct stat *st)
{
    struct seen seen = {
        .inode = st->st_ino,
        .size = st->st_size,
        .mtime_ns = nanoseconds(st->st_mtim),
        .ctime_ns = nanoseconds(st->st_ctim),
    };

    crypto_shorthash((unsigned char *)&seen.path, (const unsigned char *)path, strlen(path),
                     changes->key);
    return seen;
}

static int
compare_seen(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    return (x->path > y->path) - (x->path < y->path);
}

static struct seen *
find_seen(const struct cursor *cursor, const struct seen *key)
{
    if (cursor->n == 0)
        return NULL;
    return bsearch(key, cursor->files, cursor->n, sizeof *cursor->files, compare_seen);
}

static bool
seen_equal(const struct seen *a, const struct seen *b)
{
    return a->inode == b->inode && a->size == b->size && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}

static bool
knows(const struct cursor *cursor, const struct seen *seen)
{
    const struct seen *old = find_seen(cursor, seen);
    return old && seen_equal(old, seen);
}

static void
append_seen(struct cursor *cursor, const struct seen *seen)
{
    if (cursor->n == cursor->cap) {
        cursor->cap = cursor->cap ? cursor->cap * 2 : 64;
        cursor->files = kg_realloc(cursor->files, cursor->cap * sizeof *cursor->files);
    }
    cursor->files[cursor->n++] = *seen;
}

static struct cursor *
find_cursor(struct changes *changes, const char *name)
{
    for (size_t i = 0; i < changes->n_cursors; i++) {
        if (strcmp(changes->cursors[i].name, name) == 0)
            return &changes->cursors[i];
    }
    return NULL;
}

static struct cursor *
make_cursor(struct changes *changes, const char *name)
{
    if (changes->n_cursors == CURSORS_MAX)
        return NULL;
    struct cursor *cursor = &changes->cursors[changes->n_cursors++];
    memcpy(cursor->name, name, strlen(name) + 1);
    return cursor;
}

void
changes_end(struct changes *changes, const char *name)
{
    struct cursor *cursor = find_cursor(changes, name);
    if (!cursor)
        return;
    struct cursor *end = &changes->cursors[--changes->n_cursors];
    if (changes->last == cursor)
        changes->last = NULL;
    else if (changes->last == end)
        changes->last = cursor;
    free(cursor->files);
    *cursor = *end;
    *end = (struct cursor){0};
}

static void
sort(struct cursor *cursor)
{
    if (cursor->n > 1)
        qsort(cursor->files, cursor->n, sizeof *cursor->files, compare_seen);
}

// Makes files known, of which no two have the same path.
static void
learn(struct cursor *cursor, const struct seen *files, size_t n)
{
    struct cursor sorted = *cursor; // what is appended is beyond its end

    for (size_t i = 0; i < n; i++) {
        struct seen *old = find_seen(&sorted, &files[i]);
        if (old) {
            *old = files[i];
        } else if (cursor->n < FILES_SEEN_MAX) {
            append_seen(cursor, &files[i]);
            sorted.files = cursor->files;
        }
    }
    if (cursor->n > sorted.n)
        sort(cursor);
}

void
changes_own(struct changes *changes, const char *path, const struct stat *st)
{
    const struct seen seen = seen_of(changes, path, st);

    for (size_t i = 0; i < changes->n_cursors; i++)
        learn(&changes->cursors[i], &seen, 1);
}

// ---- Looking --------------------------------------------------------------------------------

struct look {
    const struct changes *changes;
    const struct cursor *before;
    const struct cursor *last; // another one that has looked since; NULL: none
    struct cursor now;
    int64_t since_ns;
    json_t *files; // NULL: nobody wants to know
    size_t path_bytes;
    json_int_t more;
};

static bool
look_at(const char *path, const struct stat *st, void *arg)
{
    struct look *look = arg;

    if (!S_ISREG(st->st_mode))
        return true;
    if (look->now.n == FILES_SEEN_MAX)
        return false;
    const struct seen seen = seen_of(look->changes, path, st);
    bool is_known = knows(look->before, &seen) || (look->last && knows(look->last, &seen));
    append_seen(&look->now, &seen);
    if (!look->files || seen.ctime_ns < look->since_ns || is_known)
        return true;
    json_t *file = json_pack("{s:s, s:I, s:I}", "path", path, "size", (json_int_t)st->st_size,
                             "mtime_ms", (json_int_t)(seen.mtime_ns / 1000000));
    look->path_bytes += strlen(path);
    if (file && json_array_size(look->files) < FILES_TOLD_MAX &&
        look->path_bytes <= TOLD_PATH_BYTES_MAX) {
        json_array_append_new(look->files, file);
        return true;
    }
    json_decref(file);
    look->more++;
    return true;
}

static void
look_around(struct look *look, struct cursor *cursor)
{
    struct kg_error err;

    look->before = cursor;
    if (walk_files(look->changes->root, &(const struct walk_query){.path = ""}, look_at, look,
                   &err) != 0)
        log_warning("the working folder cannot be looked at", LOG_ERR(&err));
    sort(&look->now);
    free(cursor->files);
    cursor->files = look->now.files;
    cursor->n = look->now.n;
    cursor->cap = look->now.cap;
}

void
changes_own_folder(struct changes *changes, const char *path)
{
    const struct cursor nothing = {0};
    struct look look = {.changes = changes, .before = &nothing};
    struct kg_error err;

    if (walk_files(changes->root, &(const struct walk_query){.path = path}, look_at, &look, &err) !=
        0)
        log_warning("a folder cannot be looked at", LOG_ERR(&err));
    for (size_t i = 0; i < changes->n_cursors; i++)
        learn(&changes->cursors[i], look.now.files, look.now.n);
    free(look.now.files);
}

void
changes_begin(struct changes *changes, const char *name)
{
    struct look look = {.changes = changes};
    struct cursor *cursor = find_cursor(changes, name) ? NULL : make_cursor(changes, name);

    if (cursor)
        look_around(&look, cursor);
}

json_t *
changes_since(struct changes *changes, json_t *question, struct kg_error *err)
{
    enum { WITHIN_S_MAX = 366 * 24 * 3600 };
    struct look look = {.changes = changes};
    const char *name;
    json_int_t within_us;
    int after_look = 0;

    if (json_unpack(question, "{s:s, s:I, s?b !}", "cursor", &name, "within_us", &within_us,
                    "after_look", &after_look) != 0 ||
        !target_kernel_name_valid(name) || within_us < 0 ||
        within_us > WITHIN_S_MAX * INT64_C(1000000)) {
        (void)kg_error_set(err, KG_INVALID, 0, "malformed question about changes");
        return NULL;
    }
    struct cursor *cursor = find_cursor(changes, name);
    if (!cursor)
        cursor = make_cursor(changes, name);
    if (!cursor) {
        (void)kg_error_set(err, KG_INVALID, 0, "too many cursors");
        return NULL;
    }
    look.since_ns = (clock_wall_ms() * 1000 - within_us) * 1000 - DELAY_NS;
    look.last = after_look ? changes->last : NULL;
    look.files = json_array();
    look_around(&look, cursor);
    changes->last = cursor;
    return json_pack("{s:o, s:I}", "files", look.files, "more", look.more);
}

struct changes *
changes_new(const char *root)
{
    struct changes *changes = KG_NEW(struct changes);

    changes->root = root;
    if (sodium_init() < 0)
        abort();
    crypto_shorthash_keygen(changes->key);
    return changes;
}

void
changes_free(struct changes *changes)
{
    if (!changes)
        return;
    for (size_t i = 0; i < changes->n_cursors; i++)
        free(changes->cursors[i].files);
    free(changes);
}
