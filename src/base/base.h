// SPDX-License-Identifier: Apache-2.0
// The base of all modules: errors, memory, cleanup, byte buffers, ids, clocks, the log.
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define KG_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define KG_MUST_CHECK __attribute__((warn_unused_result))
#define KG_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

// ---- Errors ---------------------------------------------------------------------------------

// Every way in which an operation can fail. A table (error.c) maps each code to its public form.
enum kg_code {
    KG_OK = 0,
    KG_INVALID,
    KG_INVALID_SESSION_ID,
    KG_INVALID_PATH,
    KG_INVALID_CONTENT,
    KG_UNAUTHORIZED,
    KG_FORBIDDEN_ORIGIN,
    KG_FORBIDDEN_HOST,
    KG_FORBIDDEN_LINK,
    KG_ADMINISTRATORS_ONLY,
    KG_CSRF_TOKEN,
    KG_TOKEN_SCOPE,
    KG_REGISTRATION_CLOSED,
    KG_PORT_PRIVATE,
    KG_PORT_FORBIDDEN,
    KG_SESSION_NOT_FOUND,
    KG_NOT_FOUND,
    KG_UNKNOWN_KERNEL,
    KG_METHOD_NOT_ALLOWED,
    KG_FILE_EXISTS,
    KG_COMMAND_EXISTS,
    KG_NAME_EXISTS,
    KG_NO_INPUT_REQUEST,
    KG_TOOL_CALL_ENDED,
    KG_KERNEL_BUSY,
    KG_TOO_MANY_SAVEPOINTS,
    KG_CODE_TOO_LARGE,
    KG_UPLOAD_TOO_LARGE,
    KG_ARTIFACT_TOO_LARGE,
    KG_UNSUPPORTED_CODING,
    KG_SESSION_BUSY,
    KG_MAX_SESSIONS,
    KG_RATE_LIMITED,
    KG_INTERNAL,
    KG_SAVEPOINT_FAILED,
    KG_UNSUPPORTED,
    KG_PORT_CLOSED,
    KG_PORT_ANSWER,
    KG_SERVER_DOWN,
    KG_PROVISIONER_UNAVAILABLE,
    KG_ACCOUNTS_UNAVAILABLE,
    KG_DRAINING,
    KG_KERNEL_START_TIMEOUT,
    KG_PORT_TIMEOUT,
    KG_DISK_FULL,
    KG_N_CODES
};

// A caller-owned error value. `sys_errno` is 0 unless a system call failed; `retry_after_s` is 0
// unless it is known when the same request can succeed.
struct kg_error {
    enum kg_code code;
    int sys_errno;
    int64_t retry_after_s;
    char message[240];
};

// The public form of a code: its HTTP status, its stable name (the `code` of a problem document),
// its title, and whether the same request can succeed later.
struct kg_code_info {
    int http_status;
    const char *name;
    const char *title;
    bool retryable;
};

const struct kg_code_info *kg_code_info(enum kg_code code);
// Finds a code by its stable name; KG_N_CODES if there is none.
enum kg_code kg_code_find(const char *name);

// Fills `err` (which may be NULL) and returns -1, so that a failure is one `return` line.
// With a nonzero `sys_errno`, ": " and its text are appended to the message.
int kg_error_set(struct kg_error *err, enum kg_code code, int sys_errno, const char *fmt, ...)
    KG_PRINTF(4, 5);

// ---- Memory and cleanup ---------------------------------------------------------------------

// Allocate or abort: only for sizes that no client chooses, or that have been bounded.
void *kg_calloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
void *kg_realloc(void *ptr, size_t size) __attribute__((returns_nonnull));
char *kg_strdup(const char *s) __attribute__((malloc, returns_nonnull));
char *kg_strndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
// Copies all `len` bytes, including NULs, and adds a NUL; kg_strndup() stops at the first NUL.
char *kg_memdup0(const void *data, size_t len) __attribute__((malloc, returns_nonnull));
char *kg_asprintf(const char *fmt, ...) KG_PRINTF(1, 2) __attribute__((malloc, returns_nonnull));

#define KG_NEW(type) ((type *)kg_calloc(1, sizeof(type)))

// KG_DEFINE_AUTO(kernel, kernel_free) makes `KG_AUTO(kernel) k = kernel_new(…);` free k at the end
// of its scope. KG_STEAL returns the value and sets the variable to NULL (a descriptor: to -1).
#define KG_DEFINE_AUTO(type, free_fn)                                                              \
    static inline void type##_auto_(struct type **ptr)                                             \
    {                                                                                              \
        free_fn(*ptr);                                                                             \
    }
#define KG_AUTO(type) __attribute__((cleanup(type##_auto_))) struct type *
#define KG_AUTO_FREE __attribute__((cleanup(kg_free_auto_)))
#define KG_AUTO_FD __attribute__((cleanup(kg_fd_auto_))) int
#define KG_STEAL(ptr)                                                                              \
    ({                                                                                             \
        __typeof__(ptr) stolen_ = (ptr);                                                           \
        (ptr) = NULL;                                                                              \
        stolen_;                                                                                   \
    })
#define KG_STEAL_FD(fd)                                                                            \
    ({                                                                                             \
        int stolen_fd_ = (fd);                                                                     \
        (fd) = -1;                                                                                 \
        stolen_fd_;                                                                                \
    })

static inline void
kg_free_auto_(void *ptr)
{
    free(*(void **)ptr);
}
void kg_fd_auto_(int *fd);

// ---- Byte buffers ---------------------------------------------------------------------------

// A growable array of bytes; `data` is NUL-terminated once something has been appended.
// All zeros is a valid empty buffer.
struct buf {
    char *data;
    size_t len;
    size_t cap;
};

void buf_fini(struct buf *buf);
// Makes room for `extra` more bytes and returns where to write them; the caller updates `len`.
char *buf_reserve(struct buf *buf, size_t extra);
void buf_append(struct buf *buf, const void *data, size_t len);
void buf_append_str(struct buf *buf, const char *s);
void buf_printf(struct buf *buf, const char *fmt, ...) KG_PRINTF(2, 3);
// Drops the first `n` bytes.
void buf_consume(struct buf *buf, size_t n);
// Returns the bytes (NUL-terminated, to be freed) and leaves the buffer empty.
char *buf_take(struct buf *buf);

static inline void
buf_auto_(struct buf *buf)
{
    buf_fini(buf);
}
#define KG_AUTO_BUF __attribute__((cleanup(buf_auto_))) struct buf

// ---- UTF-8 (Unicode 15, table 3-7) -----------------------------------------------------------

// The length of the character at `p`, which is before `end`; 0 if it is not valid.
size_t utf8_valid_len(const unsigned char *p, const unsigned char *end);
// How many bytes at the start are valid.
size_t utf8_valid_prefix(const char *data, size_t len);
// How many bytes one U+FFFD replaces where the character is not valid: the longest start of a
// character, at least one byte, as Python's decoder does.
size_t utf8_invalid_len(const unsigned char *p, const unsigned char *end);
// Writes a code point, which is not a surrogate, and returns its length.
size_t utf8_put(unsigned code, char ret[4]);
// Appends `data` as valid UTF-8, with U+FFFD for invalid bytes. Returns how many bytes at its end
// begin an incomplete character and were not appended: none if this is the `last` piece.
size_t utf8_append(struct buf *ret, const void *data, size_t len, bool last);

// The longest length, at most `max`, to which valid text can be cut without splitting a character.
size_t utf8_cut(const char *text, size_t len, size_t max);
// Copies an untrusted text, for a message that people read: at most `size` - 1 bytes, whole
// characters only. What is not valid, or moves or hides other characters (controls, bidirectional
// ones), becomes
// '?'.
void utf8_printable(const char *text, size_t len, char *ret, size_t size);

// ---- Escapes --------------------------------------------------------------------------------

// The value of a hexadecimal digit; -1 for any other character.
int hex_value(char c);
// Appends a text to a URL. Unreserved characters (RFC 3986, 2.3) and those in `also_plain` are
// copied, all others become %XX.
void percent_append(struct buf *ret, const char *text, const char *also_plain);
// Decodes %XX in place, and shortens `len`. PERCENT_FORM: + is a space, too. Both fail (-1, without
// an error) for a broken escape and for %00. PERCENT_LENIENT never fails: a broken escape is text,
// and %00 a NUL.
enum percent_mode { PERCENT_PATH, PERCENT_FORM, PERCENT_LENIENT };
KG_MUST_CHECK int percent_decode(char *data, size_t *len, enum percent_mode mode);

// ---- Lines of JSON --------------------------------------------------------------------------

// The text of a line of NDJSON, without its newline, to be freed; `flags` are jansson's. Escapes
// the characters at which readers that split lines as Unicode does would cut the line.
struct json_t;
char *json_line(const struct json_t *line, size_t flags);
// How many bytes at the start of `text` are ASCII that a JSON string holds unescaped: no control
// character, quote or backslash.
size_t json_plain_len(const char *text, size_t len);
// Appends a JSON string with its quotes; `text` is valid UTF-8 and may contain NULs. Escapes the
// same characters.
void json_append_string(struct buf *ret, const char *text, size_t len);
// The same, limited to `max` bytes including the quotes. Returns false and appends nothing if it
// would be longer.
KG_MUST_CHECK bool json_append_string_within(struct buf *ret, const char *text, size_t len,
                                             size_t max);

// ---- JSON text, without creating values ------------------------------------------------------

// Its cost as values: how deep arrays and objects nest, and roughly how much memory the values take
// in addition to the bytes of their strings. The text need not be valid.
struct json_weight {
    size_t depth;
    size_t bytes;
};
struct json_weight json_weigh(const char *text, size_t len);
// Roughly how much memory values take, including the bytes of their strings.
size_t json_value_weight(const struct json_t *value);
// The text of an object's member, borrowed; NULL if there is none. Finds a name only if it is
// written without escapes, so `name` has no backslash. The text must be valid JSON; otherwise the
// result is meaningless.
const char *json_member(const char *text, size_t len, const char *name, size_t *ret_len);
// The members of an object, one after the other; false: there is no further one. `at` is 0 at
// first. The name is without its quotes, as it is written. The same is required of the text.
struct json_text_member {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};
bool json_next_member(const char *text, size_t len, size_t *at, struct json_text_member *ret);
// The same JSON with all characters that are not ASCII escaped. To be freed.
char *json_ascii(const char *text, size_t len);

// ---- Limits of a sandbox ---------------------------------------------------------------------

// Per sandbox; they also count against the host's root, which has 128 by default.
enum { SANDBOX_INOTIFY_INSTANCES = 16 };

// ---- Files ----------------------------------------------------------------------------------

// Reads a whole file of at most `max` bytes into `ret` (appended).
KG_MUST_CHECK int file_read(const char *path, size_t max, struct buf *ret, struct kg_error *err);
// Reads exactly `len` bytes of an open file, from `offset` on; KG_INTERNAL where it has fewer.
KG_MUST_CHECK int fd_read_at(int fd, int64_t offset, void *to, size_t len, struct kg_error *err);
// Writes a file so that readers see the old or the new content, never a part (temporary + rename).
KG_MUST_CHECK int file_write_atomic(const char *path, const void *data, size_t len, unsigned mode,
                                    struct kg_error *err);
// Creates a folder; it may exist already.
KG_MUST_CHECK int dir_make(const char *path, unsigned mode, struct kg_error *err);
// Bytes that may still be written below `path`: an eighth of its file system (at most 256 MiB) is
// reserved for others, since it may be memory (/run). INT64_MAX if unknown.
int64_t disk_free_bytes(const char *path);
// Fails with KG_DISK_FULL if these are fewer than `bytes`.
KG_MUST_CHECK int disk_check_free(const char *path, int64_t bytes, struct kg_error *err);
// Removes a file or a folder with everything in it; follows no symlinks; the path may be missing.
KG_MUST_CHECK int path_remove_tree(const char *path, struct kg_error *err);
// The same with `name` in an open folder; sets errno if it returns -1.
KG_MUST_CHECK int path_remove_at(int folder, const char *name);
KG_MUST_CHECK int fd_set_nonblocking(int fd, struct kg_error *err);
// Listens on a Unix socket of this `type` at `path`, in place of what is there; `mode`: of its
// file. Returns a non-blocking socket that the caller owns.
KG_MUST_CHECK int unix_listen(const char *path, int type, unsigned mode, int backlog,
                              struct kg_error *err);

// Checks a path of a tenant's file: relative, names of 1 to 255 bytes separated by /, none of them
// ".", ".." or kernelgate's own, and no control characters if it `is_new`. KG_INVALID_PATH. The
// caller has checked that it is UTF-8.
enum { FILE_PATH_MAX = 1024 };
#define FILE_OWN_PREFIX ".kg-" // files of the agent and the gateway among a tenant's
KG_MUST_CHECK int file_path_check(const char *path, bool is_new, struct kg_error *err);
bool file_name_is_own(const char *name);
// Checks a path of any of a sandbox's files: as file_path_check() has it or, for one outside the
// working folder, the same behind a /; "/" alone is the root. What file_is_reserved() is refused.
KG_MUST_CHECK int file_any_path_check(const char *path, bool is_new, struct kg_error *err);
// Whether a path, seen from the root, without a / first, is not a file of the tenant's but the
// kernel's (/proc, /sys) or the agent's (its door, its program).
bool file_is_reserved(const char *path);
// The MIME type for a file's name; application/octet-stream if unknown.
const char *mime_of_path(const char *path);

// Whether an environment variable may have that name: 1 to 255 of A-Za-z0-9_.-, no leading digit.
bool env_name_valid(const char *name);

// ---- Ids and clocks -------------------------------------------------------------------------

// Random bytes for several ids are drawn at once, so a forked process must not make ids: it would
// make the same ones as its parent.

// Fills `ret` with `len` random characters of a-z2-7 (5 bits each) and a NUL: `len` + 1 bytes.
void id_random(char *ret, size_t len);
// Fills `ret` with `len` random lower-case hexadecimal digits and a NUL.
void id_random_hex(char *ret, size_t len);
// FNV-1a: well distributed, but collisions can be constructed.
uint32_t hash_fnv1a(const void *data, size_t len);

int64_t clock_mono_us(void);
int64_t clock_mono_ms(void);
int64_t clock_wall_ms(void);
// Writes `wall_ms` as 2026-01-31T23:59:59.123Z (RFC 3339): 25 bytes with the NUL.
#define CLOCK_RFC3339_LEN 25
void clock_format_rfc3339(int64_t wall_ms, char ret[CLOCK_RFC3339_LEN]);
// Reads a time of RFC 3339, with any offset; what is below a millisecond is cut off. -1: it is not
// one.
KG_MUST_CHECK int clock_parse_rfc3339(const char *text, int64_t *ret_wall_ms);

// ---- Log ------------------------------------------------------------------------------------

// Written to stderr, one line per event. Never log a tenant's code, keys or output. If stderr is a
// full pipe, terminal or socket, lines are dropped instead of blocking; the next line that can be
// written follows one that counts them.
enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_CONSOLE, LOG_FORMAT_JSON };

// One field of an event: a string, or a number if `str` is NULL. An empty key ends the list.
struct log_field {
    const char *key;
    const char *str;
    int64_t num;
};

#define LOG_STR(k, v) ((struct log_field){.key = (k), .str = (v) ? (v) : ""})
#define LOG_INT(k, v) ((struct log_field){.key = (k), .num = (int64_t)(v)})
// The code and message of a struct kg_error.
#define LOG_ERR(e) LOG_STR("code", kg_code_info((e)->code)->name), LOG_STR("error", (e)->message)

// Finds out what kind of file stderr is. Must be called again after stderr was replaced.
void log_setup(enum log_level level, enum log_format format);
// Ends the log after about that many more bytes, with a line that says so; 0: never.
void log_limit(size_t max_bytes);
// Masks all UUIDs in log lines, as 01234567-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
void log_mask_uuids(bool mask);
bool log_enabled(enum log_level level);
// `event` is a short constant phrase; variable parts go into the fields.
void log_write(enum log_level level, const char *event, const struct log_field *fields);

#define LOG_FIELDS_(...) ((const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){.key = NULL}})
#define log_at_(level, event, ...)                                                                 \
    do {                                                                                           \
        if (log_enabled(level))                                                                    \
            log_write(level, event, LOG_FIELDS_(__VA_ARGS__));                                     \
    } while (0)
#define log_debug(event, ...) log_at_(LOG_LEVEL_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...) log_at_(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_warning(event, ...) log_at_(LOG_LEVEL_WARNING, event, __VA_ARGS__)
#define log_error(event, ...) log_at_(LOG_LEVEL_ERROR, event, __VA_ARGS__)
