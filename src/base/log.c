// SPDX-License-Identifier: Apache-2.0
// The log: one line per event on stderr, for people (console) or machines (JSON).

#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base.h"

static enum log_level log_min_level = LOG_LEVEL_INFO;
static enum log_format log_line_format = LOG_FORMAT_CONSOLE;
static bool log_masks_uuids;
static struct {
    size_t max_bytes; // 0: unlimited
    size_t written;
    long long lost; // lines since the last one that was written
    bool torn;      // the end of the last line was lost
    bool ended;
    bool is_file; // stderr
} log_state;

static const char *const level_names[] = {
    [LOG_LEVEL_DEBUG] = "debug",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_WARNING] = "warning",
    [LOG_LEVEL_ERROR] = "error",
};

void
log_setup(enum log_level level, enum log_format format)
{
    log_min_level = level;
    log_line_format = format;
    struct stat stat;
    log_state.is_file = fstat(STDERR_FILENO, &stat) == 0 && S_ISREG(stat.st_mode);
}

void
log_limit(size_t max_bytes)
{
    log_state.max_bytes = max_bytes;
    log_state.written = 0;
    log_state.ended = false;
}

void
log_mask_uuids(bool mask)
{
    log_masks_uuids = mask;
}

bool
log_enabled(enum log_level level)
{
    return level >= log_min_level;
}

static bool
is_plain(const char *value)
{
    const char *c = value;
    while ((unsigned char)*c > ' ' && *c != '"' && *c != '=' && *c != '\\' && *c != 0x7f)
        c++;
    return c > value && *c == '\0';
}

// A value cannot leave its line, or look like another field.
static void
append_value(struct buf *line, const char *value)
{
    if (is_plain(value)) {
        buf_append_str(line, value);
        return;
    }
    buf_append(line, "\"", 1);
    for (const char *c = value; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            buf_printf(line, "\\x%02x", (unsigned)(unsigned char)*c);
        else if (*c == '"' || *c == '\\')
            buf_printf(line, "\\%c", *c);
        else
            buf_append(line, c, 1);
    }
    buf_append(line, "\"", 1);
}

static void
format_console(struct buf *line, const char *time, const char *level, const char *event,
               const struct log_field *fields)
{
    buf_printf(line, "%s %-7s %s", time, level, event);
    for (; fields->key; fields++) {
        buf_printf(line, " %s=", fields->key);
        if (fields->str)
            append_value(line, fields->str);
        else
            buf_printf(line, "%lld", (long long)fields->num);
    }
}

static void
format_json(struct buf *line, const char *time, const char *level, const char *event,
            const struct log_field *fields)
{
    json_t *object = json_pack("{s:s, s:s, s:s}", "time", time, "level", level, "event", event);
    for (; fields->key; fields++) {
        json_t *value = json_integer(fields->num);
        if (fields->str) {
            json_decref(value);
            value = json_string(fields->str);
        }
        json_object_set_new(object, fields->key, value ? value : json_string("(not UTF-8)"));
    }
    KG_AUTO_FREE char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    buf_append_str(line, text ? text : "{}");
}

// A log that nobody reads must not block the gateway. stderr may be shared, so it is not made
// non-blocking: when it is writable, it accepts PIPE_BUF bytes without blocking (pipe(7)). A file
// is always writable.
static bool
log_put(const char *text, size_t len)
{
    while (len > 0) {
        struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
        size_t piece = len < PIPE_BUF ? len : PIPE_BUF;
        if (!log_state.is_file && (poll(&fd, 1, 0) <= 0 || !(fd.revents & POLLOUT)))
            return false;
        ssize_t n = write(STDERR_FILENO, text, piece);
        if (n <= 0)
            return false;
        log_state.written += (size_t)n;
        log_state.torn = text[n - 1] != '\n';
        text += n;
        len -= (size_t)n;
    }
    return true;
}

static bool
is_uuid(const char *text)
{
    static const char pattern[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    size_t i = 0;
    while (pattern[i] == 'x' ? hex_value(text[i]) >= 0 : pattern[i] && text[i] == pattern[i])
        i++;
    return pattern[i] == '\0';
}

static void
mask_uuids(char *text)
{
    enum { SHOWN = 8, LEN = 36 };
    for (char *at = text; *at; at++) {
        if (!is_uuid(at))
            continue;
        for (size_t i = SHOWN; i < LEN; i++)
            at[i] = at[i] == '-' ? '-' : 'x';
        at += LEN - 1;
    }
}

static void
log_format_line(struct buf *line, enum log_level level, const char *event,
                const struct log_field *fields)
{
    char time[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(clock_wall_ms(), time);
    if (log_line_format == LOG_FORMAT_JSON)
        format_json(line, time, level_names[level], event, fields);
    else
        format_console(line, time, level_names[level], event, fields);
    buf_append(line, "\n", 1);
    if (log_masks_uuids)
        mask_uuids(line->data);
}

// Writes a line about the log itself; false if it cannot be written.
static bool
log_put_note(const char *event, const struct log_field *fields)
{
    KG_AUTO_BUF line = {0};
    buf_append(&line, "\n", log_state.torn);
    log_format_line(&line, LOG_LEVEL_WARNING, event, fields);
    return log_put(line.data, line.len);
}

void
log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    if (log_state.ended)
        return;
    if (log_state.max_bytes && log_state.written > log_state.max_bytes) {
        log_state.ended = log_put_note("the log is full and ends here", LOG_FIELDS_());
        return;
    }
    KG_AUTO_BUF line = {0};
    if (log_state.lost > 0 &&
        log_put_note("log lines were lost", LOG_FIELDS_(LOG_INT("lines", log_state.lost))))
        log_state.lost = 0;
    log_format_line(&line, level, event, fields);
    // One write for all but the longest lines, so that those of several processes do not mix.
    if (log_state.lost > 0 || !log_put(line.data, line.len))
        log_state.lost++;
}
