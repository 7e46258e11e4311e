// SPDX-License-Identifier: Apache-2.0
// The log: one line an event on stderr, for people (console) or machines (JSON).

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base.h"

static enum log_level log_min_level = LOG_LEVEL_INFO;
static enum log_format log_line_format = LOG_FORMAT_CONSOLE;

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

// A value stays on its line and cannot pass for another field.
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

void
log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    char time[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(clock_wall_ms(), time);
    KG_AUTO_BUF line = {0};
    if (log_line_format == LOG_FORMAT_JSON)
        format_json(&line, time, level_names[level], event, fields);
    else
        format_console(&line, time, level_names[level], event, fields);
    buf_append(&line, "\n", 1);
    // One write, so that lines of several processes do not mix. A log that cannot be written
    // must not stop the gateway.
    ssize_t written = write(STDERR_FILENO, line.data, line.len);
    (void)written;
}
