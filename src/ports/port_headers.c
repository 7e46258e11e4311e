// SPDX-License-Identifier: Apache-2.0
// What is left out of heads, both ways.

#include <string.h>
#include <strings.h>

#include "ports_priv.h"

static bool
is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++) {
        size_t len = strlen(*names);
        bool is_prefix = (*names)[len - 1] == '-';
        if (is_prefix ? strncasecmp(name, *names, len) == 0 : strcasecmp(name, *names) == 0)
            return true;
    }
    return false;
}

bool
port_cookie_is_own(const char *name, size_t len)
{
    static const char *const prefixes[] = {"__Host-", "__Secure-"};
    static const char own[] = "kernelgate_";
    for (size_t i = 0; i < KG_ARRAY_LEN(prefixes); i++) {
        size_t n = strlen(prefixes[i]);
        if (len >= n && strncasecmp(name, prefixes[i], n) == 0) {
            name += n;
            len -= n;
            break;
        }
    }
    return len >= strlen(own) && strncasecmp(name, own, strlen(own)) == 0;
}

// ---- Requests -------------------------------------------------------------------------------

// Whether an Authorization has a form in which the gateway takes its keys.
static bool
may_be_key(const char *authorization)
{
    size_t len = strcspn(authorization, " \t");
    return (len == 6 && strncasecmp(authorization, "Bearer", len) == 0) ||
           (len == 5 && strncasecmp(authorization, "token", len) == 0);
}

// A cookie without a name is sent as its value alone, or with "=" before it.
static void
append_cookies(struct buf *head, const char *value)
{
    KG_AUTO_BUF kept = {0};
    while (*value) {
        value += strspn(value, " \t;");
        size_t len = strcspn(value, ";");
        size_t skip = strspn(value, "= \t");
        bool is_own = skip < len && port_cookie_is_own(value + skip, len - skip);
        if (len > 0 && !is_own) {
            buf_append_str(&kept, kept.len > 0 ? "; " : "");
            buf_append(&kept, value, len);
        }
        value += len;
    }
    if (kept.len > 0)
        http_append_header(head, "Cookie", kept.data);
}

void
port_request_header(struct buf *head, const char *name, const char *value,
                    const struct http_request *request)
{
    static const char *const own[] = {"X-API-Key", "Forwarded",     "X-Forwarded-",
                                      "X-Real-IP", "X-Kernelgate-", "E2B-Traffic-Access-Token",
                                      NULL};
    (void)request;
    if (strcasecmp(name, "Cookie") == 0)
        append_cookies(head, value);
    else if (!is_one_of(name, own) &&
             (strcasecmp(name, "Authorization") != 0 || !may_be_key(value)))
        http_append_header(head, name, value);
}

// ---- Answers --------------------------------------------------------------------------------

static bool
has_domain(const char *attributes)
{
    static const char domain[] = "domain";
    while (*attributes) {
        attributes += strspn(attributes, " \t;");
        size_t len = strcspn(attributes, ";");
        size_t name_len = strcspn(attributes, "=; \t");
        if (name_len == strlen(domain) && strncasecmp(attributes, domain, name_len) == 0)
            return true;
        attributes += len;
    }
    return false;
}

void
port_answer_header(struct http_request *request, const char *name, const char *value)
{
    // What a proxy before the gateway would obey, what leads browsers to another server, and what
    // lets them forget the cookies of all hosts of the same site, the gateway's login among them.
    static const char *const reach_beyond[] = {
        "X-Accel-",     "X-Sendfile", "X-Sendfile2", "X-Sendfile-",     "X-LIGHTTPD-",
        "X-LiteSpeed-", "X-Reproxy-", "Alt-Svc",     "Clear-Site-Data", NULL};
    size_t skip = strspn(value, "= \t");
    bool is_cookie = strcasecmp(name, "Set-Cookie") == 0 || strcasecmp(name, "Set-Cookie2") == 0;
    if (is_cookie && (port_cookie_is_own(value + skip, strlen(value + skip)) ||
                      has_domain(value + strcspn(value, ";"))))
        return;
    if (!is_one_of(name, reach_beyond))
        http_reply_header(request, name, value);
}
