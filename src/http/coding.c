// SPDX-License-Identifier: Apache-2.0
// Content codings (RFC 9110, section 8.4): which one a body has, whether the client accepts gzip,
// and gzip itself (RFC 1952), in pieces.

#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "http_priv.h"

// ---- Lists in headers -----------------------------------------------------------------------

// An item of the lists that all headers of one name are together.
struct list {
    const struct http_head *head;
    const char *name;
    size_t next_header;
    const char *rest;   // of the last header
    const char *item;   // its token; not NUL-terminated
    size_t len;         // of that
    const char *params; // what follows the token, up to `rest`
};

static bool
list_next(struct list *list)
{
    for (;;) {
        list->rest += list->rest ? strspn(list->rest, ", \t") : 0;
        if (list->rest && *list->rest) {
            list->item = list->rest;
            list->len = strcspn(list->item, ",; \t");
            list->params = list->item + list->len;
            list->rest = list->item + strcspn(list->item, ",");
            return true;
        }
        const struct http_head *head = list->head;
        while (list->next_header < head->n_headers &&
               strcasecmp(head->headers[list->next_header].name, list->name) != 0)
            list->next_header++;
        if (list->next_header == head->n_headers)
            return false;
        list->rest = head->headers[list->next_header++].value;
    }
}

static bool
list_item_is(const struct list *list, const char *name)
{
    return list->len == strlen(name) && strncasecmp(list->item, name, list->len) == 0;
}

// RFC 9110, section 8.4.1.3.
static bool
list_item_is_gzip(const struct list *list)
{
    return list_item_is(list, "gzip") || list_item_is(list, "x-gzip");
}

// Whether the item's weight (section 12.4.2) is above 0. A malformed weight counts as 0.
static bool
list_item_is_wanted(const struct list *list)
{
    const char *at = list->params + strspn(list->params, " \t");
    if (at == list->rest)
        return true;
    at += *at == ';';
    at += strspn(at, " \t");
    if (strncasecmp(at, "q=", 2) != 0)
        return false;
    at += 2;
    size_t len = strcspn(at, ",; \t");
    return strspn(at, "0123456789.") == len && strspn(at, "0.") < len;
}

int
coding_of_body(const struct http_head *head, bool *ret_gzip, struct kg_error *err)
{
    struct list list = {.head = head, .name = "Content-Encoding"};
    *ret_gzip = false;
    while (list_next(&list)) {
        if (list_item_is(&list, "identity"))
            continue;
        if (!list_item_is_gzip(&list) || *ret_gzip)
            return kg_error_set(err, KG_UNSUPPORTED_CODING, 0,
                                "Content-Encoding: %.*s is not accepted%s: send the body in gzip, "
                                "or without a coding",
                                (int)(list.len < 40 ? list.len : 40), list.item,
                                *ret_gzip ? " after gzip" : "");
        *ret_gzip = true;
    }
    return 0;
}

bool
http_request_accepts_gzip(const struct http_request *request)
{
    struct list list = {.head = &request->head, .name = "Accept-Encoding"};
    bool is_named = false, named = false, any = false;
    while (list_next(&list)) {
        if (list_item_is_gzip(&list)) {
            is_named = true;
            named |= list_item_is_wanted(&list);
        } else if (list_item_is(&list, "*")) {
            any = list_item_is_wanted(&list);
        }
    }
    return is_named ? named : any;
}

// ---- Decoding -------------------------------------------------------------------------------

enum { GZIP_FORMAT = 16 }; // added to the number of bits of a window

struct gunzip {
    z_stream z;
    bool between; // members: nothing of the next one has come
};

struct gunzip *
gunzip_new(void)
{
    struct gunzip *gunzip = KG_NEW(struct gunzip);
    gunzip->between = true;
    if (inflateInit2(&gunzip->z, MAX_WBITS + GZIP_FORMAT) != Z_OK)
        abort(); // no memory
    return gunzip;
}

void
gunzip_free(struct gunzip *gunzip)
{
    if (!gunzip)
        return;
    inflateEnd(&gunzip->z);
    free(gunzip);
}

bool
gunzip_is_between(const struct gunzip *gunzip)
{
    return gunzip->between;
}

int
gunzip_cut(struct kg_error *err)
{
    return kg_error_set(err, KG_INVALID, 0, "the body ends in the middle of its gzip");
}

// Decodes from the first piece of `from`, or what is left in zlib.
static int
gunzip_step(struct gunzip *gunzip, struct evbuffer *from)
{
    struct evbuffer_iovec piece = {0};
    if (evbuffer_get_length(from) > 0)
        evbuffer_peek(from, -1, NULL, &piece, 1);
    if (gunzip->between)
        inflateReset(&gunzip->z);
    gunzip->between = false;
    uInt len = piece.iov_len < HTTP_READ_AHEAD_MAX ? (uInt)piece.iov_len : HTTP_READ_AHEAD_MAX;
    gunzip->z.next_in = piece.iov_base;
    gunzip->z.avail_in = len;
    int result = inflate(&gunzip->z, Z_NO_FLUSH);
    evbuffer_drain(from, len - gunzip->z.avail_in);
    gunzip->between = result == Z_STREAM_END;
    return result;
}

int
gunzip_take(struct gunzip *gunzip, struct evbuffer *from, void *to, size_t len, size_t *ret_len,
            struct kg_error *err)
{
    size_t max = len < HTTP_TURN_BYTES ? len : HTTP_TURN_BYTES;
    gunzip->z.next_out = to;
    gunzip->z.avail_out = (uInt)max;
    while (gunzip->z.avail_out > 0 && (evbuffer_get_length(from) > 0 || !gunzip->between)) {
        int result = gunzip_step(gunzip, from);
        if (result == Z_BUF_ERROR)
            break; // more must come
        if (result == Z_MEM_ERROR)
            abort();
        if (result != Z_OK && result != Z_STREAM_END)
            return kg_error_set(err, KG_INVALID, 0,
                                "the body is not gzip as Content-Encoding says");
    }
    *ret_len = max - gunzip->z.avail_out;
    return 0;
}

// ---- Encoding -------------------------------------------------------------------------------

// A quarter of the memory that zlib takes by default, since each download has its own: 64 KiB.
enum { GZIP_WINDOW_BITS = 13, GZIP_MEMORY_LEVEL = 6 };

struct gzip {
    z_stream z;
};

struct gzip *
gzip_new(void)
{
    struct gzip *gzip = KG_NEW(struct gzip);
    if (deflateInit2(&gzip->z, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW_BITS + GZIP_FORMAT,
                     GZIP_MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        abort(); // no memory
    return gzip;
}

void
gzip_free(struct gzip *gzip)
{
    if (!gzip)
        return;
    deflateEnd(&gzip->z);
    free(gzip);
}

void
gzip_add(struct gzip *gzip, const void *data, size_t len, bool last, struct evbuffer *to)
{
    static unsigned char piece[16 << 10]; // of the loop's thread
    const unsigned char *at = data;
    do {
        uInt part = len < HTTP_TURN_BYTES ? (uInt)len : HTTP_TURN_BYTES;
        gzip->z.next_in = (unsigned char *)(uintptr_t)at;
        gzip->z.avail_in = part;
        at += part;
        len -= part;
        do {
            gzip->z.next_out = piece;
            gzip->z.avail_out = sizeof piece;
            (void)deflate(&gzip->z, last && len == 0 ? Z_FINISH : Z_NO_FLUSH);
            evbuffer_add(to, piece, sizeof piece - gzip->z.avail_out);
        } while (gzip->z.avail_out == 0);
    } while (len > 0);
}
