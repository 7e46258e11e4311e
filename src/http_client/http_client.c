// SPDX-License-Identifier: Apache-2.0
// The HTTP client: libcurl's multi interface with its sockets and its timer in our loop, its calls,
// and connections without HTTP.

#include "http_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BODY_MAX_DEFAULT = 1024 * 1024, HEADER_MAX = 64 * 1024, CONNECT_TIMEOUT_MS = 10 * 1000 };

// `depth` counts the frames that call curl or a callback. Within them no call is added to curl, and
// none is freed: calls that were started, cancelled or done meanwhile wait in `changed`.
struct http_client {
    struct loop *loop;
    CURLM *multi;
    struct loop_timer *timer;
    int depth;
    bool freed;
    LIST_HEAD(, http_call) calls;
    LIST_HEAD(, http_call) changed;
};

struct http_call {
    struct http_client *client;
    CURL *easy;
    struct curl_slist *headers;
    struct loop_timer *timeout; // of the whole call; NULL: none
    const struct address_policy *policy;
    char *host;              // of the URL, for the policy
    bool refused;            // the policy has refused an address
    http_dial_fn on_dialled; // NULL: an HTTP call, which has the other callbacks
    bool added;
    bool over; // cancelled or done: no callback fires any more
    bool in_changed;
    bool (*on_head)(struct http_call *call, int status, void *arg);
    http_call_data_fn on_data;
    http_call_fn on_done;
    void *arg;
    size_t max_body;
    size_t header_len;
    bool too_large;
    bool cut;
    struct buf body;
    char curl_error[CURL_ERROR_SIZE];
    LIST_ENTRY(http_call) link;
    LIST_ENTRY(http_call) changed_link;
};

// ---- Safe points ----------------------------------------------------------------------------

static void
call_free(struct http_call *call)
{
    LIST_REMOVE(call, link);
    loop_timer_free(call->timeout);
    if (call->easy) {
        curl_multi_remove_handle(call->client->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    buf_fini(&call->body);
    free(call->host);
    free(call);
}

static void
client_destroy(struct http_client *client)
{
    curl_multi_cleanup(client->multi);
    loop_timer_free(client->timer);
    free(client);
}

// Every call of curl and of a callback is between client_enter() and client_leave().
static void
client_enter(struct http_client *client)
{
    client->depth++;
}

static void
client_leave(struct http_client *client)
{
    if (--client->depth > 0)
        return;
    struct http_call *call;
    while ((call = LIST_FIRST(&client->changed))) {
        LIST_REMOVE(call, changed_link);
        call->in_changed = false;
        if (call->over) {
            call_free(call);
        } else if (!call->added) {
            // Sends nothing yet: curl sets its timer, which fires in a later turn of the loop.
            call->added = true;
            if (curl_multi_add_handle(client->multi, call->easy) != CURLM_OK)
                abort();
        }
    }
    if (client->freed)
        client_destroy(client);
}

// The call was started or is over: client_leave() acts on it.
static void
call_changed(struct http_call *call)
{
    if (!call->in_changed)
        LIST_INSERT_HEAD(&call->client->changed, call, changed_link);
    call->in_changed = true;
}

static void
call_over(struct http_call *call)
{
    call->over = true;
    call_changed(call);
}

// ---- The end --------------------------------------------------------------------------------

static int
status_of(const struct http_call *call)
{
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

static void
call_explain(const struct http_call *call, CURLcode code, struct kg_error *err)
{
    if (call->too_large)
        kg_error_set(err, KG_INTERNAL, 0, "the answer is too large");
    else if (call->cut)
        kg_error_set(err, KG_INTERNAL, 0, "the answer was not read to its end");
    else if (call->refused)
        kg_error_set(err, KG_INVALID, 0,
                     "%.100s leads to an address that is not allowed: private, or this machine's",
                     call->host);
    else if (code == CURLE_OPERATION_TIMEDOUT)
        kg_error_set(err, KG_INTERNAL, 0, "timed out%s",
                     status_of(call) ? " within the answer" : "");
    else
        kg_error_set(err, KG_INTERNAL, 0, "%s",
                     call->curl_error[0] ? call->curl_error : curl_easy_strerror(code));
    long sys_errno = 0;
    if (code == CURLE_COULDNT_CONNECT)
        curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &sys_errno);
    err->sys_errno = (int)sys_errno;
}

static void
call_finish(struct http_call *call, CURLcode code)
{
    struct kg_error err = {0};
    struct http_call_result result = {.body = ""};
    if (code == CURLE_OK) {
        curl_off_t retry_after_s = 0;
        curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
        result.retry_after_s = retry_after_s;
        result.status = status_of(call);
        if (call->body.len > 0)
            result.body = call->body.data;
        result.body_len = call->body.len;
    } else {
        call_explain(call, code, &err);
        result.err = &err;
    }
    call_over(call);
    call->on_done(&result, call->arg);
}

// curl closes its descriptor with the handle, so the caller gets a duplicate.
static void
dial_finish(struct http_call *call, CURLcode code)
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

static void
client_finish(struct http_call *call, CURLcode code)
{
    if (call->on_dialled)
        dial_finish(call, code);
    else
        call_finish(call, code);
}

static void
client_on_timeout(void *arg)
{
    struct http_call *call = arg;
    struct http_client *client = call->client;
    client_enter(client);
    client_finish(call, CURLE_OPERATION_TIMEDOUT);
    client_leave(client);
}

// ---- curl and the loop ----------------------------------------------------------------------

static void
finish_calls(struct http_client *client)
{
    const CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        struct http_call *call = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        if (!call->over)
            client_finish(call, message->data.result);
    }
}

static void
drive(struct http_client *client, curl_socket_t fd, int events)
{
    int running;
    client_enter(client);
    curl_multi_socket_action(client->multi, fd, events, &running);
    finish_calls(client);
    client_leave(client);
}

static void
on_fd(int fd, int events, void *arg)
{
    drive(arg, fd,
          (events & LOOP_READ ? CURL_CSELECT_IN : 0) |
              (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0));
}

static void
on_timer(void *arg)
{
    drive(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int
on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    (void)easy;
    struct http_client *client = arg;
    struct loop_fd *watch = socket_arg;
    if (what == CURL_POLL_REMOVE) {
        loop_fd_free(watch);
        curl_multi_assign(client->multi, fd, NULL);
        return 0;
    }
    int events = (what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0);
    if (watch)
        loop_fd_set(watch, events);
    else
        curl_multi_assign(client->multi, fd, loop_fd_new(client->loop, fd, events, on_fd, client));
    return 0;
}

static int
on_curl_timer(CURLM *multi, long timeout_ms, void *arg)
{
    (void)multi;
    struct http_client *client = arg;
    if (timeout_ms < 0)
        loop_timer_stop(client->timer);
    else
        loop_timer_start(client->timer, timeout_ms);
    return 0;
}

// ---- The client -----------------------------------------------------------------------------

struct http_client *
http_client_new(struct loop *loop)
{
    static bool ready;
    if (!ready && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        abort();
    ready = true;
    struct http_client *client = KG_NEW(struct http_client);
    client->loop = loop;
    client->timer = loop_timer_new(loop, on_timer, client);
    client->multi = curl_multi_init();
    if (!client->multi)
        abort();
    LIST_INIT(&client->calls);
    LIST_INIT(&client->changed);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    return client;
}

void
http_client_free(struct http_client *client)
{
    if (!client)
        return;
    client_enter(client);
    client->freed = true;
    for (struct http_call *call = LIST_FIRST(&client->calls); call; call = LIST_NEXT(call, link))
        call_over(call);
    client_leave(client);
}

// ---- The policy -----------------------------------------------------------------------------

// After CURL_SOCKET_BAD curl tries the host's next address, if there is one.
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

// The host of a URL, an IPv6 address without its brackets; NULL if it has none.
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

// -1 if the URL has no host. A policy that is NULL allows any address.
static int
call_set_policy(struct http_call *call, const char *url, const struct address_policy *policy)
{
    if (!policy)
        return 0;
    call->policy = policy;
    call->host = host_of(url);
    if (!call->host)
        return -1;
    // Connections may have been made under another policy, or for a name that is allowed.
    curl_easy_setopt(call->easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(call->easy, CURLOPT_OPENSOCKETFUNCTION, on_curl_open_checked);
    curl_easy_setopt(call->easy, CURLOPT_OPENSOCKETDATA, call);
    return 0;
}

// ---- What comes, and where from -------------------------------------------------------------

static size_t
on_curl_data(char *data, size_t size, size_t n, void *arg)
{
    struct http_call *call = arg;
    size_t len = size * n;
    if (call->over)
        return CURL_WRITEFUNC_ERROR;
    if (call->on_data) {
        call->cut = !call->on_data(status_of(call), data, len, call->arg);
        return call->cut || call->over ? CURL_WRITEFUNC_ERROR : len;
    }
    if (len > call->max_body - call->body.len) {
        call->too_large = true;
        return CURL_WRITEFUNC_ERROR;
    }
    buf_append(&call->body, data, len);
    return len;
}

static size_t
on_curl_header(char *data, size_t size, size_t n, void *arg)
{
    struct http_call *call = arg;
    if (call->over)
        return CURL_WRITEFUNC_ERROR;
    call->header_len += size * n;
    call->too_large = call->header_len > HEADER_MAX;
    if (call->too_large)
        return CURL_WRITEFUNC_ERROR;
    bool complete = n > 0 && (data[0] == '\r' || data[0] == '\n');
    if (complete && call->on_head && status_of(call) >= 200) {
        call->cut = !KG_STEAL(call->on_head)(call, status_of(call), call->arg);
        return call->cut || call->over ? CURL_WRITEFUNC_ERROR : size * n;
    }
    return size * n;
}

// ---- Options --------------------------------------------------------------------------------

static void
set_headers(struct http_call *call, const struct http_call_spec *spec)
{
    bool has_type = false;
    for (const char *const *header = spec->headers; header && *header; header++) {
        call->headers = curl_slist_append(call->headers, *header);
        has_type = has_type || strncasecmp(*header, "Content-Type:", 13) == 0;
    }
    // Neither curl's guess of a type, nor its second of waiting for "100 Continue".
    if (!has_type)
        call->headers = curl_slist_append(call->headers, "Content-Type:");
    call->headers = curl_slist_append(call->headers, "Expect:");
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
}

static void
set_method(CURL *easy, const struct http_call_spec *spec)
{
    bool sends_body =
        spec->body_len > 0 || strcmp(spec->method, "POST") == 0 || strcmp(spec->method, "PUT") == 0;
    if (sends_body) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)spec->body_len);
        curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, spec->body_len > 0 ? spec->body : "");
    }
    if (strcmp(spec->method, "HEAD") == 0)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    else
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, spec->method);
}

static void
call_set_common_options(struct http_call *call)
{
    CURL *easy = call->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->curl_error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    // Otherwise the end of a call waits for curl's thread, which waits for name servers.
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
}

static void
set_pem(CURL *easy, CURLoption option, const char *pem)
{
    struct curl_blob blob = {.flags = CURL_BLOB_COPY};
    if (!pem)
        return;
    blob.data = (void *)(uintptr_t)pem; // which is copied
    blob.len = strlen(pem);
    curl_easy_setopt(easy, option, &blob);
}

static void
set_certificates(CURL *easy, const struct http_call_spec *spec)
{
    const char *authorities = spec->ca_file ? spec->ca_file : getenv("SSL_CERT_FILE");
    if (spec->ca_pem)
        set_pem(easy, CURLOPT_CAINFO_BLOB, spec->ca_pem);
    else if (authorities && *authorities)
        curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
    if (spec->certificate_file)
        curl_easy_setopt(easy, CURLOPT_SSLCERT, spec->certificate_file);
    if (spec->key_file)
        curl_easy_setopt(easy, CURLOPT_SSLKEY, spec->key_file);
    set_pem(easy, CURLOPT_SSLCERT_BLOB, spec->certificate_pem);
    set_pem(easy, CURLOPT_SSLKEY_BLOB, spec->key_pem);
}

static void
set_options(struct http_call *call, const struct http_call_spec *spec)
{
    CURL *easy = call->easy;
    call_set_common_options(call);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    set_certificates(easy, spec);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_curl_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_curl_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    if (spec->unix_path)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, spec->unix_path);
    set_headers(call, spec);
    set_method(easy, spec);
}

const char *
http_call_header(struct http_call *call, const char *name)
{
    struct curl_header *header;
    return curl_easy_header(call->easy, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK
               ? header->value
               : NULL;
}

// ---- Start and cancel -----------------------------------------------------------------------

static struct http_call *
call_new(struct http_client *client, void *arg)
{
    struct http_call *call = KG_NEW(struct http_call);
    call->client = client;
    call->arg = arg;
    LIST_INSERT_HEAD(&client->calls, call, link);
    call->easy = curl_easy_init();
    if (!call->easy)
        abort();
    return call;
}

// The last step: from here on the call's callbacks fire.
static void
call_begin(struct http_call *call, int64_t timeout_ms)
{
    struct http_client *client = call->client;
    if (timeout_ms > 0) {
        call->timeout = loop_timer_new(client->loop, client_on_timeout, call);
        loop_timer_start(call->timeout, timeout_ms);
    }
    client_enter(client);
    call_changed(call);
    client_leave(client);
}

struct http_call *
http_call_start(struct http_client *client, const struct http_call_spec *spec,
                http_call_data_fn on_data, http_call_fn on_done, void *arg, struct kg_error *err)
{
    struct http_call *call = call_new(client, arg);
    call->on_head = spec->on_head;
    call->on_data = on_data;
    call->on_done = on_done;
    call->max_body = spec->max_body_bytes ? spec->max_body_bytes : BODY_MAX_DEFAULT;
    CURLcode code = curl_easy_setopt(call->easy, CURLOPT_URL, spec->url);
    set_options(call, spec);
    if (code != CURLE_OK || call_set_policy(call, spec->url, spec->policy) < 0) {
        kg_error_set(err, KG_INTERNAL, 0, "cannot call %s", spec->url);
        call_free(call);
        return NULL;
    }
    if (spec->policy)
        curl_easy_setopt(call->easy, CURLOPT_FORBID_REUSE, 1L);
    call_begin(call, spec->timeout_ms);
    return call;
}

void
http_call_cancel(struct http_call *call)
{
    if (!call)
        return;
    struct http_client *client = call->client;
    client_enter(client);
    call_over(call);
    client_leave(client);
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
    if (strpbrk(host, "/?#@\\[]%") || curl_easy_setopt(call->easy, CURLOPT_URL, url) != CURLE_OK ||
        call_set_policy(call, url, policy) < 0) {
        kg_error_set(err, KG_INVALID, 0, "bad host name");
        call_free(call);
        return NULL;
    }
    call_begin(call, timeout_ms);
    return call;
}
