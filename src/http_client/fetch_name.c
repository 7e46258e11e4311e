// SPDX-License-Identifier: Apache-2.0
// Names of downloaded files. The header and the URL are untrusted.

#include <string.h>
#include <strings.h>

#include "http_fetch.h"

// ---- Content-Disposition (RFC 6266) ---------------------------------------------------------

static const char token_characters[] =
    "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static void
append_percent_decoded(struct buf *ret, const char *text, size_t len)
{
    KG_AUTO_FREE char *decoded = kg_strndup(text, len);
    (void)!percent_decode(decoded, &len, PERCENT_LENIENT);
    buf_append(ret, decoded, len);
}

// Takes a parameter's value, a token or a quoted string, from the text.
static void
take_value(const char **text, struct buf *ret)
{
    const char *at = *text;
    if (*at != '"') {
        size_t len = strcspn(at, "; \t");
        buf_append(ret, at, len);
        *text = at + len;
        return;
    }
    for (at++; *at && *at != '"'; at++) {
        if (*at == '\\' && at[1])
            at++;
        buf_append(ret, at, 1);
    }
    *text = *at ? at + 1 : at;
}

// UTF-8''percent-encoded (RFC 8187). With another character set the plain parameter is used.
static void
decode_extended(const struct buf *value, struct buf *ret)
{
    static const char charset[] = "UTF-8'";
    if (!value->data || strncasecmp(value->data, charset, sizeof charset - 1) != 0)
        return;
    const char *text = strchr(value->data + sizeof charset - 1, '\'');
    if (text)
        append_percent_decoded(ret, text + 1, strlen(text + 1));
}

static void
read_disposition(const char *header, struct buf *ret_plain, struct buf *ret_extended)
{
    const char *at = header + strcspn(header, ";");
    while (*at) {
        at += strspn(at, "; \t");
        const char *name = at;
        size_t len = strspn(at, token_characters);
        at += len;
        at += strspn(at, " \t");
        if (*at != '=') {
            at += strcspn(at, ";");
            continue;
        }
        at++;
        at += strspn(at, " \t");
        KG_AUTO_BUF value = {0};
        take_value(&at, &value);
        if (len == 8 && strncasecmp(name, "filename", len) == 0 && ret_plain->len == 0)
            buf_append(ret_plain, value.data ? value.data : "", value.len);
        else if (len == 9 && strncasecmp(name, "filename*", len) == 0 && ret_extended->len == 0)
            decode_extended(&value, ret_extended);
        at += strcspn(at, ";");
    }
}

// ---- URLs -----------------------------------------------------------------------------------

static void
read_url(const char *url, struct buf *ret)
{
    const char *path = strstr(url, "://");
    path = path ? path + 3 : url;
    path += strcspn(path, "/?#");
    size_t len = strcspn(path, "?#");
    while (len > 1 && path[len - 1] == '/')
        len--;
    const char *slash = len > 0 ? memrchr(path, '/', len) : NULL;
    if (slash)
        append_percent_decoded(ret, slash + 1, len - (size_t)(slash + 1 - path));
}

// ---- Names ----------------------------------------------------------------------------------

// U+0000 to U+001F, U+007F to U+009F.
static bool
is_control(const char *character)
{
    unsigned char first = (unsigned char)character[0];
    return first < ' ' || first == 0x7f || (first == 0xc2 && (unsigned char)character[1] < 0xa0);
}

// The part of an untrusted name that is safe; NULL: nothing is.
static char *
clean(const struct buf *raw)
{
    KG_AUTO_BUF text = {0};
    KG_AUTO_BUF name = {0};
    (void)utf8_append(&text, raw->data ? raw->data : "", raw->len, true);
    if (text.len == 0)
        return NULL;
    const char *end = text.data + text.len;
    for (const char *at = text.data; at < end;) {
        size_t len = utf8_valid_len((const unsigned char *)at, (const unsigned char *)end);
        if (*at == '/' || *at == '\\')
            name.len = 0; // only the last segment counts
        else if (!is_control(at) && (name.len > 0 || !strchr(". ", *at)))
            buf_append(&name, at, len);
        at += len;
    }
    while (name.len > 0 && strchr(". ", name.data[name.len - 1]))
        name.len--;
    size_t len = name.data ? utf8_cut(name.data, name.len, FETCH_NAME_MAX) : 0;
    return len > 0 ? kg_strndup(name.data, len) : NULL;
}

char *
http_fetch_name(const char *disposition, const char *url)
{
    KG_AUTO_BUF plain = {0};
    KG_AUTO_BUF extended = {0};
    KG_AUTO_BUF from_url = {0};
    if (disposition)
        read_disposition(disposition, &plain, &extended);
    read_url(url, &from_url);
    char *name = clean(&extended);
    if (!name)
        name = clean(&plain);
    if (!name)
        name = clean(&from_url);
    return name ? name : kg_strdup("download");
}
