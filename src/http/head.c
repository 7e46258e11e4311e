// SPDX-License-Identifier: Apache-2.0
// Parses the head of a request (RFC 9112, sections 2 to 6): whatever two parsers might read
// differently is refused (section 11.2).

#include <string.h>
#include <strings.h>

#include "http_priv.h"

enum { LENGTH_DIGITS_MAX = 18 };

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

// A later minor version is spoken as 1.1 (RFC 9110, section 2.5).
static bool
take_version(struct http_head *head, const char *version)
{
    if (strncmp(version, "HTTP/1.", 7) != 0 || version[7] < '0' || version[7] > '9' || version[8])
        return false;
    head->is_1_0 = version[7] == '0';
    return true;
}

// The absolute-form, http://host/path, is what a client sends to a proxy, and what every server
// must accept (RFC 9112, section 3.2.2). It is taken apart in place.
static bool
take_target(struct http_head *head, char *target)
{
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;
    head->target = target;
    if (scheme == 0)
        return *target;
    size_t len = strcspn(target + scheme, "/?");
    char *path = target + scheme + len;
    char *authority = target + scheme - 2; // room for its end, and for the path's slash
    memmove(authority, target + scheme, len);
    authority[len] = '\0';
    path[-1] = '/';
    head->target = *path == '/' ? path : path - 1;
    head->authority = authority;
    return len > 0 && !strchr(authority, '@'); // RFC 9110, section 4.2.4
}

static bool
take_request_line(struct http_head *head, char *line)
{
    head->method = strsep(&line, " ");
    char *target = line ? strsep(&line, " ") : NULL;
    return line && is_token(head->method) && take_target(head, target) && take_version(head, line);
}

// RFC 9112, section 3.2.2.
static void
set_host(struct http_head *head)
{
    for (size_t i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, "Host") == 0)
            head->headers[i].value = head->authority;
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

void
head_add(struct http_head *head, const char *name, const char *value)
{
    if (head->n_headers == head->n_allocated) {
        head->n_allocated = head->n_allocated ? 2 * head->n_allocated : 16;
        head->headers = kg_realloc(head->headers, head->n_allocated * sizeof *head->headers);
    }
    head->headers[head->n_headers++] = (struct http_header){name, value};
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
    head_add(head, name, value);
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

// Takes the headers, to the empty line; returns what is wrong with them, or NULL.
static const char *
take_headers(struct http_head *head, char *at)
{
    const char *wrong = NULL;
    char *line = NULL;
    while (!wrong && (line = next_line(&at)) && *line)
        wrong = take_header(head, line);
    return wrong || line ? wrong : "a header has a control character";
}

int
head_parse(const char *text, size_t len, struct http_head *ret, struct kg_error *err)
{
    *ret = (struct http_head){.content_length = -1, .text = kg_strndup(text, len)};
    if (strlen(ret->text) < len)
        return kg_error_set(err, KG_INVALID, 0, "malformed HTTP request: its head has a NUL byte");
    char *at = ret->text;
    char *line = next_line(&at);
    if (!line || !take_request_line(ret, line))
        return kg_error_set(err, KG_INVALID, 0, "malformed HTTP request");
    const char *wrong = take_headers(ret, at);
    if (!wrong && (ret->n_hosts > 1 || ret->n_framings > 1))
        wrong =
            "Host must be given once, and either Content-Length or Transfer-Encoding at most once";
    if (!wrong && ret->is_1_0 && ret->chunked) // RFC 9112, section 6.1
        wrong = "Transfer-Encoding needs HTTP/1.1";
    if (ret->authority)
        set_host(ret);
    return wrong ? kg_error_set(err, KG_INVALID, 0, "malformed HTTP request: %s", wrong) : 0;
}

// RFC 9112, section 4. The reason says nothing, and may be absent.
static bool
take_status_line(struct http_head *head, const char *line)
{
    static const char version[] = "HTTP/1.";
    const char *digits = line + sizeof version + 1;
    if (strncmp(line, version, sizeof version - 1) != 0 || strlen(line) < sizeof version + 4)
        return false;
    char minor = line[sizeof version - 1];
    if ((minor != '0' && minor != '1') || digits[-1] != ' ' || strspn(digits, "0123456789") != 3 ||
        (digits[3] && digits[3] != ' '))
        return false;
    head->is_1_0 = minor == '0';
    head->status = (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0');
    return head->status >= 100 && head->status < 600;
}

// Whether each line ends with CR LF, and neither is anywhere else.
static bool
has_clean_lines(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' ? i + 1 == len || text[i + 1] != '\n'
                            : text[i] == '\n' && (i == 0 || text[i - 1] != '\r'))
            return false;
    }
    return true;
}

// What is wrong with an answer's head as a whole, or NULL.
static const char *
check_answer(const struct http_head *head)
{
    if (head->n_framings > 1)
        return "Content-Length and Transfer-Encoding may be there once, and not both";
    if (head->content_length == INT64_MAX)
        return "Content-Length is too large";
    if (head->is_1_0 && head->chunked) // RFC 9112, section 6.1
        return "Transfer-Encoding needs HTTP/1.1";
    if (head->status < 200 && head->n_framings > 0)
        return "an answer of that status has no body";
    return NULL;
}

int
head_parse_answer(const char *text, size_t len, struct http_head *ret, struct kg_error *err)
{
    *ret = (struct http_head){.content_length = -1, .text = kg_strndup(text, len)};
    const char *wrong = NULL;
    char *at = ret->text;
    if (strlen(ret->text) < len)
        wrong = "its head has a NUL byte";
    else if (!has_clean_lines(text, len))
        wrong = "a line of its head does not end with CR LF, or has one of them inside";
    char *line = wrong ? NULL : next_line(&at);
    if (!wrong && (!line || !take_status_line(ret, line)))
        wrong = "its first line is not that of an answer of HTTP/1.1";
    if (!wrong)
        wrong = take_headers(ret, at);
    if (!wrong)
        wrong = check_answer(ret);
    return wrong
               ? kg_error_set(err, KG_PORT_ANSWER, 0, "the server's answer is malformed: %s", wrong)
               : 0;
}

void
head_fini(struct http_head *head)
{
    free(head->headers);
    free(head->text);
    *head = (struct http_head){0};
}

const char *
head_find(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    return NULL;
}

// RFC 9110, section 5.6.1.
bool
head_has_token(const struct http_head *head, const char *name, const char *token)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        if (strcasecmp(head->headers[i].name, name) != 0)
            continue;
        for (const char *item = head->headers[i].value; *item; item += *item == ',') {
            item += strspn(item, " \t");
            size_t len = strcspn(item, ",");
            size_t used = len;
            while (used > 0 && (item[used - 1] == ' ' || item[used - 1] == '\t'))
                used--;
            if (used == strlen(token) && strncasecmp(item, token, used) == 0)
                return true;
            item += len;
        }
    }
    return false;
}
