// SPDX-License-Identifier: Apache-2.0
// A cursor remembers every file as it was when it was last looked at. What differs from that, and
// was touched within the time that is asked about, is news: so what a command or another kernel did
// before is none. No time of another machine is compared with one of this.
#include "changes.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "target.h"
#include "walk.h"

enum {
    CURSORS_MAX = 16,
    FILES_SEEN_MAX = 10000, // what is beyond is neither remembered nor told
    FILES_TOLD_MAX = 100,
    TOLD_PATH_BYTES_MAX = 32 << 10,
    CONVERSATIONS_MAX = 8,
    QUESTION_MAX = 512,
    // A file's times may be as old as the kernel's last tick.
    TICK_NS = 10 * 1000 * 1000,
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

struct conversation {
    LIST_ENTRY(conversation) link;
    struct changes *changes;
    int fd;
    struct loop_fd *watch;
    char line[QUESTION_MAX];
    size_t len;
    struct buf out;
};

struct changes {
    struct loop *loop;
    const char *root;
    unsigned char key[crypto_shorthash_KEYBYTES];
    struct cursor cursors[CURSORS_MAX];
    size_t n_cursors;
    LIST_HEAD(, conversation) conversations;
    int n_conversations;
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
changes_own(struct changes *changes, const char *path, const struct stat *st)
{
    const struct seen seen = seen_of(changes, path, st);

    for (size_t i = 0; i < changes->n_cursors; i++) {
        struct cursor *cursor = &changes->cursors[i];
        struct seen *old = find_seen(cursor, &seen);
        if (old) {
            *old = seen;
        } else if (cursor->n < FILES_SEEN_MAX) {
            append_seen(cursor, &seen);
            qsort(cursor->files, cursor->n, sizeof *cursor->files, compare_seen);
        }
    }
}

// ---- Looking --------------------------------------------------------------------------------

struct look {
    const struct changes *changes;
    const struct cursor *before;
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
    const struct seen *old = find_seen(look->before, &seen);
    append_seen(&look->now, &seen);
    if (!look->files || seen.ctime_ns < look->since_ns || (old && seen_equal(old, &seen)))
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
    if (walk_files(look->changes->root, "", NULL, look_at, look, &err) != 0)
        log_warning("the working folder cannot be looked at", LOG_ERR(&err));
    if (look->now.n > 1)
        qsort(look->now.files, look->now.n, sizeof *look->now.files, compare_seen);
    free(cursor->files);
    cursor->files = look->now.files;
    cursor->n = look->now.n;
    cursor->cap = look->now.cap;
}

void
changes_begin(struct changes *changes, const char *name)
{
    struct look look = {.changes = changes};
    struct cursor *cursor = find_cursor(changes, name) ? NULL : make_cursor(changes, name);

    if (cursor)
        look_around(&look, cursor);
}

static json_t *
answer(struct changes *changes, const char *name, int64_t within_us)
{
    struct look look = {.changes = changes};
    struct timespec now;
    struct cursor *cursor = find_cursor(changes, name);

    if (!cursor)
        cursor = make_cursor(changes, name);
    if (!cursor)
        return json_pack("{s:s}", "error", "too many cursors");
    clock_gettime(CLOCK_REALTIME, &now);
    look.since_ns = nanoseconds(now) - within_us * 1000 - TICK_NS;
    look.files = json_array();
    look_around(&look, cursor);
    return json_pack("{s:o, s:I}", "files", look.files, "more", look.more);
}

char *
changes_answer(struct changes *changes, const char *line, size_t len)
{
    enum { WITHIN_S_MAX = 366 * 24 * 3600 };
    json_auto_t *question = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const char *name;
    json_int_t within_us;
    bool sound =
        question &&
        json_unpack(question, "{s:s, s:I !}", "cursor", &name, "within_us", &within_us) == 0 &&
        target_kernel_name_valid(name) && within_us >= 0 &&
        within_us <= WITHIN_S_MAX * INT64_C(1000000);
    json_auto_t *reply = sound ? answer(changes, name, within_us)
                               : json_pack("{s:s}", "error", "a malformed question");

    KG_AUTO_FREE char *text = json_dumps(reply, JSON_COMPACT);
    return kg_asprintf("%s\n", text);
}

// ---- Conversations --------------------------------------------------------------------------

static void
conversation_free(struct conversation *conversation)
{
    LIST_REMOVE(conversation, link);
    conversation->changes->n_conversations--;
    loop_fd_free(conversation->watch);
    close(conversation->fd);
    buf_fini(&conversation->out);
    free(conversation);
}

// Returns -1 where the other end is gone. While an answer waits, no question is read.
static int
flush(struct conversation *conversation)
{
    struct buf *out = &conversation->out;

    ssize_t n = send(conversation->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return -1;
    if (n > 0)
        buf_consume(out, (size_t)n);
    loop_fd_set(conversation->watch, out->len > 0 ? LOOP_WRITE : LOOP_READ);
    return 0;
}

static int
take_lines(struct conversation *conversation)
{
    char *room = conversation->line + conversation->len;
    ssize_t n =
        recv(conversation->fd, room, sizeof conversation->line - conversation->len, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0)
        return -1;
    conversation->len += (size_t)n;
    for (char *end; (end = memchr(conversation->line, '\n', conversation->len));) {
        size_t len = (size_t)(end - conversation->line);
        KG_AUTO_FREE char *reply = changes_answer(conversation->changes, conversation->line, len);
        buf_append_str(&conversation->out, reply);
        conversation->len -= len + 1;
        memmove(conversation->line, end + 1, conversation->len);
    }
    if (conversation->len == sizeof conversation->line)
        return -1;
    return conversation->out.len > 0 ? flush(conversation) : 0;
}

static void
on_conversation(int fd, int events, void *arg)
{
    struct conversation *conversation = arg;
    (void)fd;

    bool writing = conversation->out.len > 0;
    if ((writing && (events & LOOP_WRITE) && flush(conversation) != 0) ||
        (!writing && (events & LOOP_READ) && take_lines(conversation) != 0))
        conversation_free(conversation);
}

int
changes_connect(struct changes *changes, struct kg_error *err)
{
    int fds[2];

    if (changes->n_conversations == CONVERSATIONS_MAX)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "too many links of this kind");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a socket");
    struct conversation *conversation = KG_NEW(struct conversation);
    conversation->changes = changes;
    conversation->fd = fds[1];
    conversation->watch =
        loop_fd_new(changes->loop, fds[1], LOOP_READ, on_conversation, conversation);
    LIST_INSERT_HEAD(&changes->conversations, conversation, link);
    changes->n_conversations++;
    return fds[0];
}

struct changes *
changes_new(struct loop *loop, const char *root)
{
    struct changes *changes = KG_NEW(struct changes);

    changes->loop = loop;
    changes->root = root;
    LIST_INIT(&changes->conversations);
    if (sodium_init() < 0)
        abort();
    crypto_shorthash_keygen(changes->key);
    return changes;
}

void
changes_free(struct changes *changes)
{
    struct conversation *conversation;

    if (!changes)
        return;
    while ((conversation = LIST_FIRST(&changes->conversations)))
        conversation_free(conversation);
    for (size_t i = 0; i < changes->n_cursors; i++)
        free(changes->cursors[i].files);
    free(changes);
}
