// SPDX-License-Identifier: Apache-2.0
// Where calls may connect to, and connections without HTTP.

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_client_priv.h"

// ---- The policy -----------------------------------------------------------------------------

// curl tries the next address, where there is one.
static curl_socket_t
on_curl_open_checked(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct http_call *call = arg;
    if (!address_policy_allows(call->policy, call->host, &address->addr)) {
        call->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// The host of a URL, an IPv6 address without its brackets; NULL where it has none.
static char *
host_of(const char *url)
{
    CURLU *parts = curl_url();
    char *host = NULL;
    char *copy = NULL;
    if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK)
        copy = host[0] == '[' ? kg_strndup(host + 1, strcspn(host + 1, "]")) : kg_strdup(host);
    curl_free(host);
    curl_url_cleanup(parts);
    return copy;
}

int
call_set_policy(struct http_call *call, const char *url, const struct address_policy *policy)
{
    if (!policy)
        return 0;
    call->policy = policy;
    call->host = host_of(url);
    if (!call->host)
        return -1;
    // No connection that was made under another policy, or for a name that was allowed.
    curl_easy_setopt(call->easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(call->easy, CURLOPT_OPENSOCKETFUNCTION, on_curl_open_checked);
    curl_easy_setopt(call->easy, CURLOPT_OPENSOCKETDATA, call);
    return 0;
}

// ---- Connections ----------------------------------------------------------------------------

// curl closes its descriptor with the handle.
void
call_dial_finish(struct http_call *call, CURLcode code)
{
    struct kg_error err = {0};
    curl_socket_t socket = CURL_SOCKET_BAD;
    KG_AUTO_FD fd = -1;
    if (code != CURLE_OK)
        call_explain(call, code, &err);
    else if (curl_easy_getinfo(call->easy, CURLINFO_ACTIVESOCKET, &socket) != CURLE_OK ||
             (fd = fcntl(socket, F_DUPFD_CLOEXEC, 0)) < 0)
        kg_error_set(&err, KG_INTERNAL, errno, "cannot keep the connection");
    call_over(call);
    call->on_dialled(KG_STEAL_FD(fd), err.code ? &err : NULL, call->arg);
}

struct http_call *
http_dial_start(struct http_client *client, const char *host, int port,
                const struct address_policy *policy, int64_t timeout_ms, http_dial_fn fn, void *arg,
                struct kg_error *err)
{
    bool v6 = strchr(host, ':') != NULL;
    KG_AUTO_FREE char *url =
        kg_asprintf("http://%s%s%s:%d/", v6 ? "[" : "", host, v6 ? "]" : "", port);
    struct http_call *call = call_new(client, arg);
    call->on_dialled = fn;
    call_set_common_options(call);
    curl_easy_setopt(call->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    if (strpbrk(host, "/?#@\\[]%") || curl_easy_setopt(call->easy, CURLOPT_URL, url) != CURLE_OK ||
        call_set_policy(call, url, policy) < 0) {
        kg_error_set(err, KG_INVALID, 0, "bad host name");
        call_free(call);
        return NULL;
    }
    call_begin(call);
    return call;
}
