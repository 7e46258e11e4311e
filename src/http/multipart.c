// SPDX-License-Identifier: Apache-2.0
// Reads multipart/form-data: delimiters, the heads of parts, Content-Disposition.
#include "multipart.h"

#include <string.h>
#include <strings.h>

static const char malformed[] = "the body is not multipart/form-data as RFC 7578 has it: ";

static int
fail(struct kg_error *err, const char *why)
{
    return kg_error_set(err, KG_INVALID, 0, "%s%s", malformed, why);
}

static bool
is_token(char c)
{
    return c && (strchr("!#$%&'*+-.^_`|~", c) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                 (c >= 'A' && c <= 'Z'));
}

// ---- Parameters of a header -----------------------------------------------------------------

// Reads `; name=value`, where the value is a token or in quotes, with \ before a quote or a \.
// Returns 1, 0 at the end of the text, or -1. Both buffers have the length of the text.
static int
next_parameter(const char **at, char *ret_name, char *ret_value)
{
    const char *c = *at + strspn(*at, " \t");
    if (!*c)
        return 0;
    if (*c++ != ';')
        return -1;
    c += strspn(c, " \t");
    while (is_token(*c))
        *ret_name++ = *c++;
    *ret_name = '\0';
    if (*c++ != '=')
        return -1;
    if (*c != '"') {
        if (!is_token(*c))
            return -1;
        while (is_token(*c))
            *ret_value++ = *c++;
    } else {
        for (c++; *c && *c != '"'; c++) {
            if (*c == '\\' && (c[1] == '"' || c[1] == '\\'))
                c++;
            *ret_value++ = *c;
        }
        if (*c++ != '"')
            return -1;
    }
    *ret_value = '\0';
    *at = c;
    return 1;
}

int
multipart_boundary(const char *content_type, char ret[MULTIPART_BOUNDARY_MAX + 1],
                   struct kg_error *err)
{
    static const char type[] = "multipart/form-data";
    static const char others[] = "'()+_,-./:=? "; // RFC 2046, besides letters and digits
    if (!content_type || strncasecmp(content_type, type, strlen(type)) != 0)
        return kg_error_set(err, KG_INVALID, 0, "Content-Type must be %s, with a boundary", type);
    const char *at = content_type + strlen(type);
    KG_AUTO_FREE char *name = kg_strdup(content_type);
    KG_AUTO_FREE char *value = kg_strdup(content_type);
    bool found = false;
    int result;
    while ((result = next_parameter(&at, name, value)) > 0) {
        if (strcasecmp(name, "boundary") != 0)
            continue;
        size_t len = strlen(value);
        bool sound = !found && len >= 1 && len <= MULTIPART_BOUNDARY_MAX && value[len - 1] != ' ';
        for (const char *c = value; sound && *c; c++)
            sound = (is_token(*c) && !strchr("!#$%&*^`|~", *c)) || strchr(others, *c);
        if (!sound)
            return kg_error_set(err, KG_INVALID, 0,
                                "the boundary in Content-Type must be 1 to %d characters of "
                                "RFC 2046, once",
                                MULTIPART_BOUNDARY_MAX);
        memcpy(ret, value, len + 1);
        found = true;
    }
    if (result < 0 || !found)
        return kg_error_set(err, KG_INVALID, 0, "Content-Type must be %s, with a boundary", type);
    return 0;
}

// ---- The head of a part ---------------------------------------------------------------------

// The text after the name of the header and form-data.
static int
disposition_parse(const char *at, char **ret_name, struct kg_error *err)
{
    KG_AUTO_FREE char *name = kg_strdup(at);
    KG_AUTO_FREE char *value = kg_strdup(at);
    int result;
    while ((result = next_parameter(&at, name, value)) > 0) {
        if (strcasecmp(name, "filename*") == 0)
            return fail(err, "filename* is not allowed, only filename");
        if (strcasecmp(name, "filename") != 0)
            continue;
        if (*ret_name)
            return fail(err, "a part has two filenames");
        *ret_name = kg_strdup(value);
    }
    return result == 0 ? 0 : fail(err, "Content-Disposition is malformed");
}

// One line, without its end.
static int
header_parse(const char *line, char **ret_name, struct kg_error *err)
{
    static const char header[] = "content-disposition:";
    static const char kind[] = "form-data";
    size_t len = 0;
    while (is_token(line[len]))
        len++;
    if (len == 0 || line[len] != ':')
        return fail(err, "a part has a malformed header");
    if (strncasecmp(line, header, strlen(header)) != 0)
        return 0;
    line += strlen(header);
    line += strspn(line, " \t");
    if (strncasecmp(line, kind, strlen(kind)) != 0)
        return fail(err, "Content-Disposition must be form-data");
    return disposition_parse(line + strlen(kind), ret_name, err);
}

// Up to and with the empty line; returns its length, or 0.
static size_t
head_parse(const char *head, size_t len, char **ret_name, struct kg_error *err)
{
    size_t max = len < MULTIPART_HEAD_MAX ? len : MULTIPART_HEAD_MAX;
    const char *end = memmem(head, max, "\r\n\r\n", 4);
    if (!end || memchr(head, '\0', (size_t)(end - head))) {
        (void)fail(err, "a part has no end of its headers, or they are too long");
        return 0;
    }
    KG_AUTO_FREE char *copy = kg_strndup(head, (size_t)(end - head));
    for (char *line = copy, *next; line; line = next) {
        next = strstr(line, "\r\n");
        if (next) {
            *next = '\0';
            next += 2;
        }
        if (strpbrk(line, "\r\n")) {
            (void)fail(err, "a part has a malformed header");
            return 0;
        }
        if (header_parse(line, ret_name, err) < 0)
            return 0;
    }
    if (!*ret_name || !**ret_name) {
        (void)fail(err, "every part must be a file: Content-Disposition with a filename");
        return 0;
    }
    if (utf8_valid_prefix(*ret_name, strlen(*ret_name)) != strlen(*ret_name)) {
        (void)fail(err, "a filename is not UTF-8");
        return 0;
    }
    return (size_t)(end - head) + 4;
}

// ---- The body -------------------------------------------------------------------------------

void
multipart_fini(struct multipart *multipart)
{
    while (multipart->n > 0)
        free(multipart->files[--multipart->n].name);
}

int
multipart_parse(const char *body, size_t len, const char *boundary, struct multipart *ret,
                struct kg_error *err)
{
    KG_AUTO_FREE char *delimiter = kg_asprintf("\r\n--%s", boundary);
    size_t delimiter_len = strlen(delimiter);
    const char *end = body + len, *at = body;
    *ret = (struct multipart){0};
    // The first one has no line before it.
    if (len < delimiter_len - 2 || memcmp(body, delimiter + 2, delimiter_len - 2) != 0)
        return fail(err, "it does not begin with the boundary");
    at += delimiter_len - 2;
    while (end - at >= 2 && memcmp(at, "\r\n", 2) == 0) {
        at += 2;
        if (ret->n == MULTIPART_FILES_MAX)
            return kg_error_set(err, KG_INVALID, 0, "there are more than %d files",
                                MULTIPART_FILES_MAX);
        struct multipart_file *file = &ret->files[ret->n++];
        size_t head_len = head_parse(at, (size_t)(end - at), &file->name, err);
        if (head_len == 0)
            return -1;
        at += head_len;
        const char *next = memmem(at, (size_t)(end - at), delimiter, delimiter_len);
        if (!next)
            return fail(err, "a part does not end with the boundary");
        file->data = at;
        file->len = (size_t)(next - at);
        at = next + delimiter_len;
    }
    bool ends = end - at >= 2 && memcmp(at, "--", 2) == 0 &&
                (end - at == 2 || (end - at == 4 && memcmp(at + 2, "\r\n", 2) == 0));
    if (!ends)
        return fail(err, "something else follows a boundary, or the last one");
    return ret->n > 0 ? 0 : fail(err, "there is no file in it");
}
