// SPDX-License-Identifier: Apache-2.0
// Writes one line: straight into the memory of its entry, whose text is not copied again.

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "output_priv.h"

// Room for {"type":"display","seq":9223372036854775807 and the like.
enum { HEAD_ROOM = 64, MEMBERS_AT = sizeof(struct output_entry) + HEAD_ROOM };

void
line_begin(struct buf *line, const char *type)
{
    *line = (struct buf){0};
    struct output_entry *entry = (void *)buf_reserve(line, MEMBERS_AT);
    *entry = (struct output_entry){.type = type};
    line->len = MEMBERS_AT;
}

void
line_add_name(struct buf *line, const char *name)
{
    buf_append(line, ",", 1);
    json_append_string(line, name, strlen(name));
    buf_append(line, ":", 1);
}

void
line_add_string(struct buf *line, const char *name, const char *text, size_t len)
{
    line_add_name(line, name);
    json_append_string(line, text ? text : "", len);
}

void
line_add_json(struct buf *line, const char *name, const json_t *value)
{
    KG_AUTO_FREE char *text = json_line(value, JSON_ENCODE_ANY);
    line_add_name(line, name);
    buf_append_str(line, text);
}

struct output_entry *
line_end(struct buf *line, enum output_worth worth)
{
    buf_append(line, "}\n", 2);
    size_t len = line->len - 1;
    struct output_entry *entry = kg_realloc(buf_take(line), len + 2);
    entry->worth = worth;
    entry->refs = 1;
    entry->len = len - MEMBERS_AT;
    return entry;
}

void
line_number(struct output_entry *entry, int64_t seq)
{
    char head[HEAD_ROOM];
    int len = snprintf(head, sizeof head, "{\"type\":\"%s\",\"seq\":%" PRId64, entry->type, seq);
    assert(len > 0 && (size_t)len < sizeof head);
    entry->seq = seq;
    entry->text = entry->room + HEAD_ROOM - len;
    entry->len += (size_t)len;
    memcpy(entry->text, head, (size_t)len);
}
