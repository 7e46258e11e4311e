// SPDX-License-Identifier: Apache-2.0
// Large texts of an answer. Its JSON values contain placeholders; only the encoded answer has a
// copy of the texts.

#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"

enum { NUMBER_LEN = 8 };

json_t *
attachments_add(struct attachments *attachments, const struct attachment *attachment)
{
    if (!*attachments->mark)
        id_random(attachments->mark, ATTACHMENT_MARK_LEN);
    attachments->list =
        kg_realloc(attachments->list, (attachments->n + 1) * sizeof attachments->list[0]);
    attachments->list[attachments->n] = *attachment;
    KG_AUTO_FREE char *mark =
        kg_asprintf("%s%0*zx", attachments->mark, NUMBER_LEN, attachments->n++);
    return json_string(mark);
}

// Escapes the inside of a JSON string once more, for JSON text within a string.
static void
append_escaped(struct buf *ret, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        size_t n = 0;
        while (i + n < len && text[i + n] != '"' && text[i + n] != '\\')
            n++;
        buf_append(ret, text + i, n);
        i += n;
        if (i < len)
            buf_append(ret, text[i] == '"' ? "\\\"" : "\\\\", 2);
    }
}

static void
append_attachment(struct buf *ret, const struct attachment *attachment)
{
    bool in_string =
        ret->len >= 2 && ret->data[ret->len - 2] == '\\'; // the quote before it is escaped
    if (in_string)
        append_escaped(ret, attachment->text, attachment->len);
    else
        buf_append(ret, attachment->text, attachment->len);
}

void
attachments_write(const struct attachments *attachments, const char *text, size_t len,
                  struct buf *ret)
{
    buf_reserve(ret, len + attachments_len(attachments));
    const char *at = text, *end = text + len, *mark;
    while ((mark = memmem(at, (size_t)(end - at), attachments->mark, ATTACHMENT_MARK_LEN))) {
        char number[NUMBER_LEN + 1] = "";
        memcpy(number, mark + ATTACHMENT_MARK_LEN, NUMBER_LEN);
        buf_append(ret, at, (size_t)(mark - at));
        append_attachment(ret, &attachments->list[strtoul(number, NULL, 16)]);
        at = mark + ATTACHMENT_MARK_LEN + NUMBER_LEN;
    }
    buf_append(ret, at, (size_t)(end - at));
}

size_t
attachments_len(const struct attachments *attachments)
{
    size_t len = 0;
    for (size_t i = 0; i < attachments->n; i++)
        len += attachments->list[i].len;
    return len;
}

void
attachments_fini(struct attachments *attachments)
{
    for (size_t i = 0; i < attachments->n; i++)
        attachments->list[i].release(attachments->list[i].arg);
    free(attachments->list);
    *attachments = (struct attachments){0};
}
