// SPDX-License-Identifier: Apache-2.0
// The routes below /api/contents.

#include <string.h>

#include "contents_priv.h"

// A query that is 0 or 1.
static int
query_flag(struct http_request *request, const char *name, bool fallback, bool *ret,
           struct kg_error *err)
{
    const char *text = http_request_query(request, name);
    *ret = text ? strcmp(text, "1") == 0 : fallback;
    if (text && !*ret && strcmp(text, "0") != 0)
        return kg_error_set(err, KG_INVALID, 0, "%s must be 0 or 1", name);
    return 0;
}

// The requested format, as a constant; NULL if there is none.
static int
query_format(struct http_request *request, const char **ret, struct kg_error *err)
{
    const char *text = http_request_query(request, "format");
    *ret = NULL;
    if (text && strcmp(text, "text") == 0)
        *ret = "text";
    else if (text && strcmp(text, "base64") == 0)
        *ret = "base64";
    if (text && *text && !*ret)
        return kg_error_set(err, KG_INVALID, 0, "format must be text or base64");
    return 0;
}

// ---- Checkpoints ----------------------------------------------------------------------------

// The file of the only checkpoint, as jupyter_server names it: a.txt has
// .ipynb_checkpoints/a-checkpoint.txt.
static char *
checkpoint_of(const char *file)
{
    const char *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file;
    const char *dot = strrchr(name, '.');
    size_t len = dot && dot != name ? (size_t)(dot - name) : strlen(name);
    return kg_asprintf("%.*s.ipynb_checkpoints/%.*s-checkpoint%s", (int)(name - file), file,
                       (int)len, name, name + len);
}

// Removes "/checkpoints" or "/checkpoints/{id}" from the end of the call's path. Returns false if
// it has neither. The caller frees `ret_id`, which is NULL without an id.
static bool
take_checkpoint(struct contents_call *call, char **ret_id)
{
    static const char suffix[] = "/checkpoints";
    const size_t suffix_len = strlen(suffix);
    size_t len = strlen(call->path);
    const char *slash = strrchr(call->path, '/');
    *ret_id = NULL;
    if (slash && strcmp(slash, suffix) == 0) {
        len -= suffix_len;
    } else if (slash && (size_t)(slash - call->path) > suffix_len &&
               strncmp(slash - suffix_len, suffix, suffix_len) == 0) {
        len = (size_t)(slash - call->path) - suffix_len;
        *ret_id = kg_strdup(slash + 1);
    } else {
        return false;
    }
    KG_AUTO_FREE char *path = kg_strndup(call->path, len);
    contents_call_set_path(call, path);
    call->checkpoint = checkpoint_of(call->file);
    return true;
}

// Handles a request for all checkpoints, or for one, by its method.
static void
serve_checkpoint(struct contents_call *call, const char *id)
{
    struct kg_error err = {0};
    bool is_known = !id || strcmp(id, "checkpoint") == 0;
    enum http_method method = http_request_method(call->request);
    if (!*call->file || !is_known)
        kg_error_set(&err, KG_NOT_FOUND, 0, "Checkpoint does not exist: %s@%s", call->path,
                     id ? id : "");
    else if (method == HTTP_DELETE && id)
        contents_checkpoint_delete(call);
    else if (method == HTTP_POST && id)
        contents_checkpoint_restore(call);
    else if (method == HTTP_POST)
        contents_checkpoint_make(call);
    else if (method != HTTP_DELETE && !id)
        contents_list_checkpoints(call);
    else
        kg_error_set(&err, KG_METHOD_NOT_ALLOWED, 0, "checkpoints do not have this method");
    if (err.code != KG_OK)
        contents_fail(call, &err);
}

// ---- Handlers -------------------------------------------------------------------------------

static void
show(struct contents_call *call)
{
    struct kg_error err = {0};
    struct http_request *request = call->request;
    call->type = contents_type_parse(http_request_query(request, "type"));
    if (query_format(request, &call->format, &err) < 0 ||
        query_flag(request, "content", true, &call->with_content, &err) < 0 ||
        query_flag(request, "hash", false, &call->with_hash, &err) < 0)
        contents_fail(call, &err);
    else
        contents_show(call);
}

// Calls `fn` with the request's path, unless it is the path of checkpoints.
static void
serve(struct http_request *request, struct notebook *notebook, void (*fn)(struct contents_call *))
{
    struct contents_call *call =
        contents_call_new(notebook, request, http_request_param(request, "path"));
    KG_AUTO_FREE char *id = NULL;
    if (take_checkpoint(call, &id))
        serve_checkpoint(call, id);
    else
        fn(call);
}

void
handle_contents_show_root(struct http_request *request, void *arg)
{
    show(contents_call_new(arg, request, ""));
}

void
handle_contents_post_root(struct http_request *request, void *arg)
{
    contents_post(contents_call_new(arg, request, ""));
}

void
handle_contents_show(struct http_request *request, void *arg)
{
    serve(request, arg, show);
}

void
handle_contents_post(struct http_request *request, void *arg)
{
    serve(request, arg, contents_post);
}

void
handle_contents_rename(struct http_request *request, void *arg)
{
    contents_rename(contents_call_new(arg, request, http_request_param(request, "path")));
}

void
handle_contents_delete(struct http_request *request, void *arg)
{
    serve(request, arg, contents_delete);
}
