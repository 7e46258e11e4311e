// SPDX-License-Identifier: Apache-2.0
// The head of a proxy's request.

#include "connect_head.h"

#include <string.h>
#include <strings.h>

enum { HTTP_PORT = 80, PORT_MAX = 65535, PORT_DIGITS = 5 };

// A piece of the head.
struct piece {
    const char *data;
    size_t len;
};

#define PIECE(text) ((struct piece){.data = (text), .len = sizeof(text) - 1})

static bool
piece_begins(struct piece piece, const char *prefix)
{
    size_t len = strlen(prefix);
    return piece.len >= len && strncasecmp(piece.data, prefix, len) == 0;
}

// Takes what stands before `separator` off the front, and the separator; all where there is none.
static struct piece
piece_take(struct piece *rest, char separator)
{
    const char *at = memchr(rest->data, separator, rest->len);
    struct piece taken = {rest->data, at ? (size_t)(at - rest->data) : rest->len};
    size_t gone = taken.len + (at ? 1 : 0);
    rest->data += gone;
    rest->len -= gone;
    return taken;
}

static bool
is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c);
}

static bool
is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static int
parse_port(struct piece text, int *ret)
{
    if (text.len < 1 || text.len > PORT_DIGITS)
        return -1;
    *ret = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return -1;
        *ret = *ret * 10 + (text.data[i] - '0');
    }
    return *ret >= 1 && *ret <= PORT_MAX ? 0 : -1;
}

// host[:port] or [v6][:port]; `port` is what holds where there is none, 0: there must be one.
static int
parse_authority(struct piece text, int port, struct connect_head *ret)
{
    bool v6 = text.len > 0 && text.data[0] == '[';
    struct piece rest = {text.data + v6, text.len - v6};
    struct piece host = piece_take(&rest, v6 ? ']' : ':');
    bool separated = rest.data != host.data + host.len;
    bool has_port = separated && (!v6 || rest.len > 0);
    if (v6 && (!separated || (has_port && piece_take(&rest, ':').len > 0)))
        return -1;
    if (host.len < 1 || host.len > CONNECT_HOST_MAX || host.data[0] == '-')
        return -1;
    for (size_t i = 0; i < host.len; i++) {
        if (!is_letter_or_digit(host.data[i]) && !is_one_of(host.data[i], v6 ? ":." : "._-"))
            return -1;
    }
    if (v6 && !memchr(host.data, ':', host.len))
        return -1;
    memcpy(ret->host, host.data, host.len);
    ret->host[host.len] = '\0';
    ret->port = port;
    if (has_port)
        return parse_port(rest, &ret->port);
    return port > 0 ? 0 : -1;
}

// ---- A request for an http:// URL -----------------------------------------------------------

// What is between the client and its proxy only.
static bool
is_hop_by_hop(struct piece line)
{
    return piece_begins(line, "Connection:") || piece_begins(line, "Proxy-Connection:") ||
           piece_begins(line, "Proxy-Authorization:") || piece_begins(line, "Keep-Alive:");
}

// As the origin server expects it, for this one request.
static int
write_request(struct piece method, struct piece path, struct piece headers,
              struct connect_head *ret)
{
    buf_append(&ret->request, method.data, method.len);
    bool rooted = path.len > 0 && path.data[0] == '/';
    buf_append_str(&ret->request, rooted ? " " : " /");
    buf_append(&ret->request, path.data, path.len);
    buf_append_str(&ret->request, " HTTP/1.1\r\n");
    while (headers.len > 0) {
        struct piece line = piece_take(&headers, '\n');
        if (line.len < 2 || is_one_of(line.data[0], " \t") || line.data[line.len - 1] != '\r')
            return -1; // a line that continues the one before might belong to one that is left out
        if (is_hop_by_hop(line))
            continue;
        buf_append(&ret->request, line.data, line.len);
        buf_append_str(&ret->request, "\n");
    }
    buf_append_str(&ret->request, "Connection: close\r\n\r\n");
    return 0;
}

static int
parse_absolute(struct piece method, struct piece target, struct piece headers,
               struct connect_head *ret, struct kg_error *err)
{
    static const struct piece scheme = PIECE("http://");
    if (!piece_begins(target, scheme.data))
        return kg_error_set(err, KG_INVALID, 0,
                            "this is a proxy: ask for CONNECT host:port or for an http:// URL");
    struct piece rest = {target.data + scheme.len, target.len - scheme.len};
    size_t len = 0;
    while (len < rest.len && !is_one_of(rest.data[len], "/?#"))
        len++;
    struct piece path = {rest.data + len, rest.len - len};
    if (parse_authority((struct piece){rest.data, len}, HTTP_PORT, ret) < 0)
        return kg_error_set(err, KG_INVALID, 0, "bad host or port in the URL");
    if (write_request(method, path, headers, ret) < 0)
        return kg_error_set(err, KG_INVALID, 0, "malformed header line");
    return 1;
}

// ---- The head -------------------------------------------------------------------------------

static bool
is_method(struct piece method)
{
    for (size_t i = 0; i < method.len; i++) {
        if (method.data[i] < 'A' || method.data[i] > 'Z')
            return false;
    }
    return method.len >= 1 && method.len <= 16;
}

static bool
is_visible(struct piece text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] <= ' ' || text.data[i] == 0x7f)
            return false;
    }
    return text.len > 0;
}

int
connect_head_parse(const char *data, size_t len, struct connect_head *ret, struct kg_error *err)
{
    *ret = (struct connect_head){0};
    const char *end = len ? memmem(data, len, "\r\n\r\n", 4) : NULL;
    size_t head_len = end ? (size_t)(end - data) + 4 : len;
    if (head_len > CONNECT_HEAD_MAX || (!end && head_len == CONNECT_HEAD_MAX))
        return kg_error_set(err, KG_INVALID, 0, "the request's head is above %d bytes",
                            CONNECT_HEAD_MAX);
    if (!end)
        return 0;
    ret->len = head_len;
    struct piece headers = {data, head_len - 2};
    struct piece line = piece_take(&headers, '\n');
    if (line.len > 0 && line.data[line.len - 1] == '\r')
        line.len--;
    struct piece method = piece_take(&line, ' ');
    struct piece target = piece_take(&line, ' ');
    if (!is_method(method) || !is_visible(target) || line.len != 8 ||
        !piece_begins(line, "HTTP/1.") || !is_one_of(line.data[7], "01"))
        return kg_error_set(err, KG_INVALID, 0, "malformed request line");
    if (method.len != 7 || memcmp(method.data, "CONNECT", 7) != 0)
        return parse_absolute(method, target, headers, ret, err);
    if (parse_authority(target, 0, ret) < 0)
        return kg_error_set(err, KG_INVALID, 0, "CONNECT wants host:port");
    return 1;
}

void
connect_head_fini(struct connect_head *head)
{
    buf_fini(&head->request);
}
