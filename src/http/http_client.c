// SPDX-License-Identifier: Apache-2.0
// The HTTP client: libcurl's multi interface with its sockets and its timer in our loop.

#include <curl/curl.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_client.h"

enum { BODY_MAX_DEFAULT = 1024 * 1024, HEADER_MAX = 64 * 1024, CONNECT_TIMEOUT_MS = 10 * 1000 };

// `depth` counts our frames around curl and around callbacks: within them curl takes no new call
// and none is freed. Those that were started, cancelled or done meanwhile wait in `changed`.
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
    struct curl_slist *connect_to;
    int fd;       // given by the caller, until curl has it; -1: none
    int stand_in; // curl's, until `fd` takes its place
    bool uses_fd;
    bool added;
    bool over; // cancelled or done: no callback any more
    bool in_changed;
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

// ---- The life of a call ---------------------------------------------------------------------

static void
call_free(struct http_call *call)
{
    LIST_REMOVE(call, link);
    if (call->easy) {
        curl_multi_remove_handle(call->client->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->connect_to);
    if (call->fd >= 0)
        close(call->fd);
    buf_fini(&call->body);
    free(call);
}

static void
client_destroy(struct http_client *client)
{
    curl_multi_cleanup(client->multi);
    loop_timer_free(client->timer);
    free(client);
}

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
            // Sends nothing yet: curl asks for its timer, which fires in a later turn of the loop.
            call->added = true;
            if (curl_multi_add_handle(client->multi, call->easy) != CURLM_OK)
                abort();
        }
    }
    if (client->freed)
        client_destroy(client);
}

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

static void
call_fail(const struct http_call *call, CURLcode code, long status, struct kg_error *err)
{
    if (call->too_large)
        kg_error_set(err, KG_INTERNAL, 0, "the answer is too large");
    else if (call->cut)
        kg_error_set(err, KG_INTERNAL, 0, "the answer was cut by its reader");
    else if (code == CURLE_OPERATION_TIMEDOUT)
        kg_error_set(err, KG_INTERNAL, 0, "timed out%s", status ? " within the answer" : "");
    else
        kg_error_set(err, KG_INTERNAL, 0, "%s",
                     call->curl_error[0] ? call->curl_error : curl_easy_strerror(code));
}

static void
call_finish(struct http_call *call, CURLcode code)
{
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    struct kg_error err = {0};
    struct http_call_result result = {.body = ""};
    if (code == CURLE_OK) {
        result.status = (int)status;
        if (call->body.len > 0)
            result.body = call->body.data;
        result.body_len = call->body.len;
    } else {
        call_fail(call, code, status, &err);
        result.err = &err;
    }
    call_over(call);
    call->on_done(&result, call->arg);
}

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
            call_finish(call, message->data.result);
    }
}

// ---- curl and the loop ----------------------------------------------------------------------

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
    struct http_call *call;
    LIST_FOREACH(call, &client->calls, link)
    call_over(call);
    client_leave(client);
}

// ---- Calls ----------------------------------------------------------------------------------

static size_t
on_curl_data(char *data, size_t size, size_t n, void *arg)
{
    struct http_call *call = arg;
    size_t len = size * n;
    if (call->over)
        return CURL_WRITEFUNC_ERROR;
    if (call->on_data) {
        long status = 0;
        curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
        call->cut = !call->on_data((int)status, data, len, call->arg);
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
    (void)data;
    struct http_call *call = arg;
    call->header_len += size * n;
    call->too_large = call->header_len > HEADER_MAX;
    return call->too_large ? CURL_WRITEFUNC_ERROR : size * n;
}

// A connected descriptor of the caller's. CURL_SOCKOPT_ALREADY_CONNECTED would be made for it, but
// curl 7.88 calls connect() all the same. So curl gets a datagram socket to connect, which sends
// nothing, and before the first byte of the request the caller's takes its place.
static curl_socket_t
on_curl_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct http_call *call = arg;
    if (call->fd < 0)
        return CURL_SOCKET_BAD;
    call->stand_in = socket(address->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return call->stand_in;
}

static int
on_curl_connected(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    (void)ip;
    (void)local_ip;
    (void)port;
    (void)local_port;
    struct http_call *call = arg;
    if (call->fd < 0 || fd_set_nonblocking(call->fd, NULL) ||
        dup3(call->fd, call->stand_in, O_CLOEXEC) < 0)
        return CURL_PREREQFUNC_ABORT;
    close(KG_STEAL_FD(call->fd));
    return CURL_PREREQFUNC_OK;
}

static void
set_connection(struct http_call *call, const struct http_call_spec *spec)
{
    CURL *easy = call->easy;
    if (spec->unix_path)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, spec->unix_path);
    if (!call->uses_fd)
        return;
    // A numeric address, so that the URL's host is never looked up; nobody connects to it.
    call->connect_to = curl_slist_append(NULL, "::127.0.0.1:1");
    curl_easy_setopt(easy, CURLOPT_CONNECT_TO, call->connect_to);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_curl_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, call);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_curl_connected);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, call);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
}

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
set_options(struct http_call *call, const struct http_call_spec *spec)
{
    CURL *easy = call->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->curl_error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)spec->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_curl_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_curl_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    set_connection(call, spec);
    set_headers(call, spec);
    set_method(easy, spec);
}

struct http_call *
http_call_start(struct http_client *client, const struct http_call_spec *spec,
                http_call_data_fn on_data, http_call_fn on_done, void *arg, struct kg_error *err)
{
    struct http_call *call = KG_NEW(struct http_call);
    call->client = client;
    call->fd = spec->fd;
    call->uses_fd = spec->fd >= 0;
    call->on_data = on_data;
    call->on_done = on_done;
    call->arg = arg;
    call->max_body = spec->max_body_bytes ? spec->max_body_bytes : BODY_MAX_DEFAULT;
    LIST_INSERT_HEAD(&client->calls, call, link);
    call->easy = curl_easy_init();
    if (!call->easy)
        abort();
    CURLcode code = curl_easy_setopt(call->easy, CURLOPT_URL, spec->url);
    set_options(call, spec);
    if (code != CURLE_OK) {
        kg_error_set(err, KG_INTERNAL, 0, "cannot call %s", spec->url);
        call_free(call);
        return NULL;
    }
    client_enter(client);
    call_changed(call);
    client_leave(client);
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
