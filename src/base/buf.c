// SPDX-License-Identifier: Apache-2.0
// A growable array of bytes.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base.h"

void
buf_fini(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}

char *
buf_reserve(struct buf *buf, size_t extra)
{
    assert(extra < SIZE_MAX / 4 && buf->len < SIZE_MAX / 4);
    size_t need = buf->len + extra + 1;
    if (need > buf->cap) {
        size_t cap = buf->cap ? buf->cap : 64;
        while (cap < need)
            cap *= 2;
        buf->data = kg_realloc(buf->data, cap);
        buf->cap = cap;
    }
    return buf->data + buf->len;
}

void
buf_append(struct buf *buf, const void *data, size_t len)
{
    char *end = buf_reserve(buf, len);
    if (len > 0)
        memcpy(end, data, len);
    end[len] = '\0';
    buf->len += len;
}

void
buf_append_str(struct buf *buf, const char *s)
{
    buf_append(buf, s, strlen(s));
}

void
buf_printf(struct buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    KG_AUTO_FREE char *text = NULL;
    int len = vasprintf(&text, fmt, args);
    va_end(args);
    assert(len >= 0);
    buf_append(buf, text, (size_t)len);
}

void
buf_consume(struct buf *buf, size_t n)
{
    assert(n <= buf->len);
    if (n == 0)
        return;
    buf->len -= n;
    memmove(buf->data, buf->data + n, buf->len + 1);
}

char *
buf_take(struct buf *buf)
{
    *buf_reserve(buf, 0) = '\0';
    char *data = buf->data;
    *buf = (struct buf){0};
    return data;
}
