// SPDX-License-Identifier: Apache-2.0
// The HTTP client: libcurl's multi interface with its sockets and its timer in our loop.

#include "http_client_priv.h"

// ---- Safe points ----------------------------------------------------------------------------

static void
client_destroy(struct http_client *client)
{
    curl_multi_cleanup(client->multi);
    loop_timer_free(client->timer);
    free(client);
}

void
client_enter(struct http_client *client)
{
    client->depth++;
}

void
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

void
call_changed(struct http_call *call)
{
    if (!call->in_changed)
        LIST_INSERT_HEAD(&call->client->changed, call, changed_link);
    call->in_changed = true;
}

void
call_over(struct http_call *call)
{
    call->over = true;
    call_changed(call);
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
            call_finish(call, message->data.result);
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
