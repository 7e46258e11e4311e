// SPDX-License-Identifier: Apache-2.0
// Parses the head of a request and the framing of its body, more strictly than evhttp: whatever two
// parsers might read differently is refused (RFC 9112, section 11.2).

#include <string.h>
#include <strings.h>

#include "http_priv.h"

enum { LENGTH_DIGITS_MAX = 18, CHUNK_DIGITS_MAX = 8 };

size_t
head_end(const char *text, size_t len, size_t from)
{
    size_t at = from > 3 ? from - 3 : 0;
    for (const char *eol; at < len && (eol = memchr(text + at, '\n', len - at));) {
        at = (size_t)(eol - text) + 1;
        if (at < len && text[at] == '\n')
            return at + 1;
        if (at + 1 < len && text[at] == '\r' && text[at + 1] == '\n')
            return at + 2;
    }
    return 0;
}

// The next line, without its line end; NULL: it has a character that no line may have.
static char *
next_line(char **at)
{
    char *line = *at;
    char *eol = strchr(line, '\n');
    if (!eol)
        return NULL; // a NUL before it
    *at = eol + 1;
    if (eol > line && eol[-1] == '\r')
        eol--;
    *eol = '\0';
    for (const char *c = line; c < eol; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
            return NULL;
    return line;
}

// RFC 9110, section 5.6.2.
static bool
is_token(const char *name)
{
    return *name && !name[strspn(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ")];
}

static bool
take_request_line(struct http_head *head, char *line)
{
    head->method = strsep(&line, " ");
    head->target = line ? strsep(&line, " ") : NULL;
    return line && is_token(head->method) && *head->target && strncmp(line, "HTTP/", 5) == 0;
}

static const char *
take_length(struct http_head *head, const char *value)
{
    size_t digits = strspn(value, "0123456789");
    if (digits == 0 || value[digits])
        return "Content-Length must be a number of bytes";
    head->content_length =
        digits > LENGTH_DIGITS_MAX ? INT64_MAX : (int64_t)strtoll(value, NULL, 10);
    return NULL;
}

// Takes a header; returns what is wrong with it, or NULL.
static const char *
take_header(struct http_head *head, char *line)
{
    char *value = line;
    char *name = strsep(&value, ":");
    if (!value || !is_token(name)) // also a folded line, which begins with a blank
        return "a header has no name, or an invalid character in its name";
    value += strspn(value, " \t");
    for (size_t len = strlen(value); len > 0 && strchr(" \t", value[len - 1]);)
        value[--len] = '\0';
    if (evhttp_add_header(&head->headers, name, value))
        return "a header has an invalid character in its value";
    head->n_hosts += strcasecmp(name, "Host") == 0;
    if (strcasecmp(name, "Content-Length") == 0) {
        head->n_framings++;
        return take_length(head, value);
    }
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        head->n_framings++;
        head->chunked = true;
        return strcasecmp(value, "chunked") == 0 ? NULL
                                                 : "Transfer-Encoding: only chunked is supported";
    }
    return NULL;
}

int
head_parse(const char *text, size_t len, struct http_head *ret, struct kg_error *err)
{
    *ret = (struct http_head){.content_length = -1, .text = kg_strndup(text, len)};
    TAILQ_INIT(&ret->headers);
    if (strlen(ret->text) < len)
        return kg_error_set(err, KG_INVALID, 0, "malformed HTTP request: its head has a NUL byte");
    char *at = ret->text;
    char *line = next_line(&at);
    if (!line || !take_request_line(ret, line))
        return kg_error_set(err, KG_INVALID, 0, "malformed HTTP request");
    const char *wrong = NULL;
    while (!wrong && (line = next_line(&at)) && *line)
        wrong = take_header(ret, line);
    if (!wrong && !line)
        wrong = "a header has a control character";
    if (!wrong && (ret->n_hosts > 1 || ret->n_framings > 1))
        wrong =
            "Host must be given once, and either Content-Length or Transfer-Encoding at most once";
    return wrong ? kg_error_set(err, KG_INVALID, 0, "malformed HTTP request: %s", wrong) : 0;
}

void
head_fini(struct http_head *head)
{
    evhttp_clear_headers(&head->headers);
    free(head->text);
}

void
head_write_without_body(const struct http_head *head, struct evbuffer *out)
{
    evbuffer_add_printf(out, "%s %s HTTP/1.1\r\nContent-Length: 0\r\n", head->method, head->target);
    const struct evkeyval *header;
    TAILQ_FOREACH(header, &head->headers, next) {
        if (strcasecmp(header->key, "Content-Length") != 0 &&
            strcasecmp(header->key, "Transfer-Encoding") != 0 &&
            strcasecmp(header->key, "Expect") != 0)
            evbuffer_add_printf(out, "%s: %s\r\n", header->key, header->value);
    }
    evbuffer_add(out, "\r\n", 2);
}

// ---- Chunks ---------------------------------------------------------------------------------

// RFC 9112, section 7.1. Extensions and trailers are refused.
static bool
chunks_take(struct http_chunks *chunks, char c)
{
    int digit;
    switch (chunks->state) {
    case CHUNK_SIZE:
        digit = hex_value(c);
        if (digit >= 0) {
            chunks->left = chunks->left * 16 + (uint64_t)digit;
            return ++chunks->digits <= CHUNK_DIGITS_MAX;
        }
        chunks->state = CHUNK_SIZE_LF;
        return c == '\r' && chunks->digits > 0;
    case CHUNK_SIZE_LF:
        chunks->state = chunks->left > 0 ? CHUNK_DATA : CHUNKS_LAST_CR;
        return c == '\n';
    case CHUNK_DATA: // see chunks_scan()
        return false;
    case CHUNK_DATA_CR:
        chunks->state = CHUNK_DATA_LF;
        return c == '\r';
    case CHUNK_DATA_LF:
        chunks->state = CHUNK_SIZE;
        chunks->digits = 0;
        return c == '\n';
    case CHUNKS_LAST_CR:
        chunks->state = CHUNKS_LAST_LF;
        return c == '\r';
    case CHUNKS_LAST_LF:
        chunks->state = CHUNKS_END;
        return c == '\n';
    case CHUNKS_END:
        return true;
    }
    return false;
}

bool
chunks_scan(struct http_chunks *chunks, const char *data, size_t len)
{
    for (size_t i = 0; i < len && chunks->state != CHUNKS_END;) {
        if (chunks->state != CHUNK_DATA) {
            if (!chunks_take(chunks, data[i++]))
                return false;
            continue;
        }
        size_t skip = chunks->left < len - i ? (size_t)chunks->left : len - i;
        chunks->left -= skip;
        i += skip;
        if (chunks->left == 0)
            chunks->state = CHUNK_DATA_CR;
    }
    return true;
}
