// SPDX-License-Identifier: Apache-2.0
// The body of a request as it comes: a fixed number of bytes, or chunks (RFC 9112, section 7.1).

#include "http_priv.h"

enum { CHUNK_DIGITS_MAX = 8 };

// Takes a byte of the framing itself. Extensions and trailers are refused.
static bool
take_char(struct http_framing *framing, char c)
{
    int digit;
    switch (framing->state) {
    case FRAMING_SIZE:
        digit = hex_value(c);
        if (digit >= 0) {
            framing->left = framing->left * 16 + (uint64_t)digit;
            return ++framing->digits <= CHUNK_DIGITS_MAX;
        }
        framing->state = FRAMING_SIZE_LF;
        return c == '\r' && framing->digits > 0;
    case FRAMING_SIZE_LF:
        framing->state = framing->left > 0 ? FRAMING_DATA : FRAMING_LAST_CR;
        return c == '\n';
    case FRAMING_DATA_CR:
        framing->state = FRAMING_DATA_LF;
        return c == '\r';
    case FRAMING_DATA_LF:
        framing->state = FRAMING_SIZE;
        framing->digits = 0;
        return c == '\n';
    case FRAMING_LAST_CR:
        framing->state = FRAMING_LAST_LF;
        return c == '\r';
    case FRAMING_LAST_LF:
        framing->state = FRAMING_END;
        return c == '\n';
    case FRAMING_DATA:
    case FRAMING_END:
        break;
    }
    return false;
}

// All of it at once, unless the body is taken in parts: a part would take the memory that it was
// read into, most of it empty. False: it has not come.
static bool
take_data(struct http_framing *framing, struct evbuffer *input, struct evbuffer *body)
{
    size_t len = evbuffer_get_length(input);
    if (len < framing->left && !framing->in_parts)
        return false;
    size_t n = len < framing->left ? len : (size_t)framing->left;
    if (evbuffer_remove_buffer(input, body, n) != (int)n)
        abort();
    framing->left -= n;
    if (framing->left > 0)
        return false;
    framing->state = framing->chunked ? FRAMING_DATA_CR : FRAMING_END;
    return true;
}

void
framing_init(struct http_framing *framing, bool chunked, uint64_t len)
{
    *framing = (struct http_framing){.chunked = chunked, .left = chunked ? 0 : len};
    if (!chunked)
        framing->state = len > 0 ? FRAMING_DATA : FRAMING_END;
}

bool
framing_take(struct http_framing *framing, struct evbuffer *input, struct evbuffer *body)
{
    char c;
    while (framing->state != FRAMING_END && evbuffer_get_length(input) > 0) {
        if (framing->state == FRAMING_DATA) {
            if (!take_data(framing, input, body))
                return true;
        } else if (evbuffer_remove(input, &c, 1) != 1 || !take_char(framing, c)) {
            return false;
        }
    }
    return true;
}

int
framing_fail(struct kg_error *err)
{
    return kg_error_set(err, KG_INVALID, 0,
                        "malformed HTTP request: the body is not a sequence of chunks without "
                        "extensions and trailers");
}
