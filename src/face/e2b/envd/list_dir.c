// SPDX-License-Identifier: Apache-2.0
// Filesystem.ListDir: what is in a folder, and in the folders in it, level by level. Where links
// lead is asked for each, up to a bound.
#include "envd_priv.h"

#include <string.h>
#include <sys/queue.h>

#include "link_walk.h"
#include "message.h"
#include "session_files.h"

enum {
    ENTRIES_MAX = 20000, // of an answer
    LINKS_MAX = 256,     // that are looked at
};

// A folder that is to be listed, or a link that is to be looked at.
struct pending {
    STAILQ_ENTRY(pending) link;
    struct envd_path path;
    int64_t depth; // of what is in the folder, the first level is 1
    size_t index;  // of the link's entry
};
STAILQ_HEAD(pendings, pending);

struct listing {
    struct http_request *request;
    struct session *session; // valid in the handler, and when an operation has succeeded
    struct session_file_op *op;
    struct link_walk *walk; // the second try, after one that has found a link
    bool walked;
    int64_t depth; // levels to list
    json_t *entries;
    struct pendings folders; // the first is being listed
    struct pendings links;   // the first is being looked at
    size_t n_links;
    char *after; // where the next page of the first folder begins; NULL: it is a new one
};

static void
pending_add(struct pendings *list, struct envd_path *path, int64_t depth, size_t index)
{
    struct pending *pending = KG_NEW(struct pending);
    *pending = (struct pending){.path = *path, .depth = depth, .index = index};
    *path = (struct envd_path){0};
    STAILQ_INSERT_TAIL(list, pending, link);
}

static void
pending_drop(struct pendings *list)
{
    struct pending *pending = STAILQ_FIRST(list);
    STAILQ_REMOVE_HEAD(list, link);
    envd_path_fini(&pending->path);
    free(pending);
}

static void
listing_free(void *arg)
{
    struct listing *self = arg;
    session_file_op_cancel(self->op);
    link_walk_cancel(self->walk);
    while (!STAILQ_EMPTY(&self->folders))
        pending_drop(&self->folders);
    while (!STAILQ_EMPTY(&self->links))
        pending_drop(&self->links);
    json_decref(self->entries);
    free(self->after);
    free(self);
}

// ---- The answer -----------------------------------------------------------------------------

// A folder comes before what is in it, and that before what follows the folder.
static int
compare_paths(const void *a, const void *b)
{
    const json_t *const *x = a, *const *y = b;
    const char *p = json_string_value(json_object_get(*x, "path"));
    const char *q = json_string_value(json_object_get(*y, "path"));
    while (*p && *p == *q) {
        p++;
        q++;
    }
    int left = *p == '/' ? 1 : (unsigned char)*p + 1, right = *q == '/' ? 1 : (unsigned char)*q + 1;
    return (*p ? left : 0) - (*q ? right : 0);
}

static void
reply_sorted(struct listing *self)
{
    size_t n = json_array_size(self->entries);
    KG_AUTO_FREE json_t **sorted = kg_calloc(n + 1, sizeof(json_t *));
    json_t *entries = json_array();
    for (size_t i = 0; i < n; i++)
        sorted[i] = json_array_get(self->entries, i);
    qsort(sorted, n, sizeof *sorted, compare_paths);
    for (size_t i = 0; i < n; i++)
        json_array_append(entries, sorted[i]);
    connect_reply(self->request, json_pack("{s:o}", "entries", entries));
}

// ---- Step by step ---------------------------------------------------------------------------

static void listing_go_on(struct listing *self);

// A link that cannot be looked at, since it is gone meanwhile, stays as it was listed.
static void
listing_on_link(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct listing *self = arg;
    const struct pending *link = STAILQ_FIRST(&self->links);
    self->op = NULL;
    if (err && err->code == KG_SESSION_NOT_FOUND) {
        http_reply_error(self->request, err);
        return;
    }
    if (entry)
        json_array_set_new(self->entries, link->index, entry_describe(entry, link->path.client));
    pending_drop(&self->links);
    listing_go_on(self);
}

static void
add_entry(struct listing *self, const struct pending *folder, const json_t *listed)
{
    const char *name = envd_path_name(json_string_value(json_object_get(listed, "path")));
    const char *type = json_string_value(json_object_get(listed, "type"));
    const char *in_session = folder->path.session;
    bool joins = *in_session && strcmp(in_session, "/") != 0;
    ENVD_AUTO_PATH path = {
        .client = kg_asprintf("%s/%s", folder->path.client[1] ? folder->path.client : "", name),
        .session = kg_asprintf("%s%s%s", in_session, joins ? "/" : "", name),
    };
    json_t *entry = entry_describe_listed(listed, path.client);
    if (!entry || json_array_append_new(self->entries, entry) < 0)
        return;
    if (strcmp(type, "dir") == 0 && folder->depth < self->depth)
        pending_add(&self->folders, &path, folder->depth + 1, 0);
    else if (strcmp(type, "symlink") == 0 && self->n_links++ < LINKS_MAX)
        pending_add(&self->links, &path, 0, json_array_size(self->entries) - 1);
}

static void
listing_on_walked(const char *found, const struct kg_error *err, void *arg)
{
    struct listing *self = arg;
    struct pending *folder = STAILQ_FIRST(&self->folders);
    self->walk = NULL;
    if (!found) {
        http_reply_error(self->request, err);
        return;
    }
    free(folder->path.session);
    folder->path.session = kg_strdup(found);
    listing_go_on(self);
}

// There may be a link on the way to the first folder. True: it is followed.
static bool
listing_walks(struct listing *self, const struct pending *folder, const struct kg_error *err)
{
    if (err->code != KG_INVALID_PATH || folder->depth > 1 || self->walked)
        return false;
    self->walked = true;
    self->walk = link_walk_start(self->session, &folder->path, true, listing_on_walked, self);
    return self->walk != NULL;
}

// A folder below the first that is gone meanwhile, or that the code may not read, is empty.
static bool
is_end_of_folder(const struct pending *folder, const struct kg_error *err)
{
    return folder->depth > 1 && (err->code == KG_NOT_FOUND || err->code == KG_INVALID_PATH);
}

static void
listing_on_page(const json_t *page, const struct kg_error *err, void *arg)
{
    struct listing *self = arg;
    const struct pending *folder = STAILQ_FIRST(&self->folders);
    const char *next = json_string_value(json_object_get(page, "next"));
    const json_t *listed;
    size_t i;
    self->op = NULL;
    if (err && listing_walks(self, folder, err))
        return;
    if (err && !is_end_of_folder(folder, err)) {
        http_reply_error(self->request, err);
        return;
    }
    json_array_foreach(json_object_get(page, "files"), i, listed)
        add_entry(self, folder, listed);
    if (json_array_size(self->entries) > ENTRIES_MAX) {
        connect_refuse(self->request, CONNECT_RESOURCE_EXHAUSTED,
                       "there are more than %d entries: list single folders, with a smaller depth",
                       ENTRIES_MAX);
        return;
    }
    free(self->after);
    self->after = next ? kg_strdup(next) : NULL;
    if (!next)
        pending_drop(&self->folders);
    listing_go_on(self);
}

static void
listing_go_on(struct listing *self)
{
    struct kg_error err = {0};
    const struct pending *link = STAILQ_FIRST(&self->links);
    const struct pending *folder = STAILQ_FIRST(&self->folders);
    if (link) {
        self->op =
            session_entry_stat(self->session, link->path.session, listing_on_link, self, &err);
    } else if (folder) {
        const struct session_files_query query = {
            .folder = folder->path.session, .after = self->after, .shallow = true, .details = true};
        self->op = session_files_list(self->session, &query, listing_on_page, self, &err);
    } else {
        reply_sorted(self);
        return;
    }
    if (!self->op)
        http_reply_error(self->request, &err);
}

static int
listing_parse(struct listing *self, const json_t *message, struct kg_error *err)
{
    struct envd_path path;
    const char *text;
    int64_t depth = 0;
    if (message_string(message, "path", &text, err) < 0 ||
        message_uint(message, "depth", UINT32_MAX, &depth, err) < 0 ||
        envd_path_parse(text ? text : "", &path, err) < 0)
        return -1;
    self->depth = depth ? depth : 1;
    pending_add(&self->folders, &path, 1, 0);
    return 0;
}

void
handle_list_dir(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *message = connect_unary_message(request);
    if (!message)
        return;
    struct listing *self = KG_NEW(struct listing);
    self->request = request;
    self->entries = json_array();
    STAILQ_INIT(&self->folders);
    STAILQ_INIT(&self->links);
    http_request_own(request, self, listing_free);
    self->session = envd_sandbox(request, arg, &err);
    if (self->session && listing_parse(self, message, &err) == 0)
        listing_go_on(self);
    else
        http_reply_error(request, &err);
}
