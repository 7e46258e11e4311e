// SPDX-License-Identifier: Apache-2.0
// What the two halves of the HTTP client share: the client (http_client.c) and its calls
// (http_call.c). libcurl's types go no further.
#pragma once

#include <curl/curl.h>
#include <sys/queue.h>

#include "http_client.h"

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
    const struct address_policy *policy;
    char *host;   // as the policy is asked for it
    bool refused; // an address, by the policy
    http_dial_fn on_dialled;
    bool added;
    bool over; // cancelled or done: no callback any more
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

// ---- http_client.c --------------------------------------------------------------------------

// Every way into curl or into a callback is between these two.
void client_enter(struct http_client *client);
void client_leave(struct http_client *client);
// Started or over: client_leave() will act on it.
void call_changed(struct http_call *call);
void call_over(struct http_call *call);

// ---- http_call.c ----------------------------------------------------------------------------

void call_free(struct http_call *call);
// curl is through with the call: tells its owner.
void call_finish(struct http_call *call, CURLcode code);
struct http_call *call_new(struct http_client *client, void *arg);
// To be called last: from then on its callbacks fire.
void call_begin(struct http_call *call);
void call_set_common_options(struct http_call *call);
void call_explain(const struct http_call *call, CURLcode code, struct kg_error *err);

// ---- http_dial.c ----------------------------------------------------------------------------

// -1 where the URL names no host; a policy that is NULL allows anything.
KG_MUST_CHECK int call_set_policy(struct http_call *call, const char *url,
                                  const struct address_policy *policy);
void call_dial_finish(struct http_call *call, CURLcode code);
