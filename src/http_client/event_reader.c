// SPDX-License-Identifier: Apache-2.0
#include "event_reader.h"

#include <stdio.h>
#include <string.h>

enum { EVENT_MAX = 256 << 20, RETRY_MAX_MS = 60 * 1000 };

void
event_reader_fini(struct event_reader *reader)
{
    event_reader_rewind(reader);
    *reader->id = '\0';
}

void
event_reader_rewind(struct event_reader *reader)
{
    buf_fini(&reader->line);
    buf_fini(&reader->data);
    *reader->coming_id = '\0';
    reader->has_data = false;
}

static void
take_retry(struct event_reader *reader, const char *value, size_t len)
{
    int64_t ms = 0;
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9')
            return;
        if (ms < RETRY_MAX_MS)
            ms = ms * 10 + (value[i] - '0');
    }
    if (len > 0)
        reader->retry_ms = ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS;
}

static void
take_field(struct event_reader *reader, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    size_t name_len = colon ? (size_t)(colon - line) : len;
    const char *value = colon ? colon + 1 : line + len;
    size_t value_len = len - name_len - (colon ? 1 : 0);
    if (value_len > 0 && *value == ' ') {
        value++;
        value_len--;
    }
    if (name_len == 4 && memcmp(line, "data", 4) == 0) {
        if (reader->has_data)
            buf_append(&reader->data, "\n", 1);
        buf_append(&reader->data, value, value_len);
        reader->has_data = true;
    } else if (name_len == 2 && memcmp(line, "id", 2) == 0 && value_len < sizeof reader->id) {
        snprintf(reader->coming_id, sizeof reader->coming_id, "%.*s", (int)value_len, value);
    } else if (name_len == 5 && memcmp(line, "retry", 5) == 0) {
        take_retry(reader, value, value_len);
    }
}

static void
end_event(struct event_reader *reader, event_fn fn, void *arg)
{
    if (*reader->coming_id)
        memcpy(reader->id, reader->coming_id, sizeof reader->id);
    if (reader->data.len > 0)
        fn(reader->data.data, reader->data.len, arg);
    buf_fini(&reader->data);
    *reader->coming_id = '\0';
    reader->has_data = false;
}

bool
event_reader_take(struct event_reader *reader, const char *bytes, size_t len, event_fn fn,
                  void *arg)
{
    size_t max = reader->max ? reader->max : EVENT_MAX;
    while (len > 0) {
        const char *newline = memchr(bytes, '\n', len);
        size_t n = newline ? (size_t)(newline - bytes) : len;
        if (reader->line.len + reader->data.len + n > max)
            return false;
        buf_append(&reader->line, bytes, n);
        if (!newline)
            return true;
        bytes += n + 1;
        len -= n + 1;
        struct buf *line = &reader->line;
        if (line->len > 0 && line->data[line->len - 1] == '\r')
            line->len--;
        if (line->len > 0)
            take_field(reader, line->data, line->len);
        else
            end_event(reader, fn, arg);
        line->len = 0;
    }
    return true;
}
