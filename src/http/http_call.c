// SPDX-License-Identifier: Apache-2.0
// One call of the HTTP client: its options, its bytes, its end.

#include <string.h>
#include <strings.h>

#include "http_client_priv.h"

enum { BODY_MAX_DEFAULT = 1024 * 1024, HEADER_MAX = 64 * 1024, CONNECT_TIMEOUT_MS = 10 * 1000 };

// ---- The end --------------------------------------------------------------------------------

void
call_free(struct http_call *call)
{
    LIST_REMOVE(call, link);
    if (call->easy) {
        curl_multi_remove_handle(call->client->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    buf_fini(&call->body);
    free(call->host);
    free(call);
}

static int
status_of(const struct http_call *call)
{
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

void
call_explain(const struct http_call *call, CURLcode code, struct kg_error *err)
{
    if (call->too_large)
        kg_error_set(err, KG_INTERNAL, 0, "the answer is too large");
    else if (call->cut)
        kg_error_set(err, KG_INTERNAL, 0, "the answer was cut by its reader");
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
}

void
call_finish(struct http_call *call, CURLcode code)
{
    if (call->on_dialled) {
        call_dial_finish(call, code);
        return;
    }
    struct kg_error err = {0};
    struct http_call_result result = {.body = ""};
    if (code == CURLE_OK) {
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

void
call_set_common_options(struct http_call *call)
{
    CURL *easy = call->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->curl_error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    // Else the end of a call waits for curl's thread, which waits for servers of names.
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
}

static void
set_options(struct http_call *call, const struct http_call_spec *spec)
{
    CURL *easy = call->easy;
    call_set_common_options(call);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)spec->timeout_ms);
    const char *authorities = getenv("SSL_CERT_FILE");
    if (authorities && *authorities)
        curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
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

struct http_call *
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

void
call_begin(struct http_call *call)
{
    struct http_client *client = call->client;
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
    call_begin(call);
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
