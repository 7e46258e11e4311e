// SPDX-License-Identifier: Apache-2.0
// GET …/directories/list and GET …/files/search: what is in a folder.

#include <string.h>

#include "opensandbox_priv.h"
#include "session_files.h"

enum {
    LOOKED_AT_MAX = 20000, // entries of one request
    FOUND_MAX = 10000,
    DEPTH_MAX = 1000,
    PAGE_STEPS = 4 << 20, // of comparing patterns, which takes 10 ms
};

struct listing {
    struct http_request *request;
    const struct opensandbox *self;
    char *folder;
    char *pattern; // of a search; or NULL
    int64_t depth; // of a list
    size_t n_looked_at;
    struct session_file_op *op;
    json_t *found;
};

static void
listing_free(void *arg)
{
    struct listing *listing = arg;
    session_file_op_cancel(listing->op);
    free(listing->folder);
    free(listing->pattern);
    json_decref(listing->found);
    free(listing);
}

// The path below the folder that is listed.
static const char *
below(const struct listing *listing, const char *path)
{
    size_t len = strlen(listing->folder);
    if (len > 0 && strncmp(path, listing->folder, len) == 0)
        path += len;
    return path + strspn(path, "/");
}

static bool
is_wanted(const struct listing *listing, const json_t *entry, const char *path, int64_t *steps)
{
    const char *rest = below(listing, path);
    if (listing->pattern) {
        const char *type = json_string_value(json_object_get(entry, "type"));
        return type && strcmp(type, "dir") != 0 && glob_matches(listing->pattern, rest, steps);
    }
    int64_t depth = 1;
    for (; *rest; rest++)
        depth += *rest == '/';
    return depth <= listing->depth;
}

static int
add_page(struct listing *listing, const json_t *page, struct kg_error *err)
{
    size_t i;
    json_t *entry;
    int64_t steps = PAGE_STEPS;
    json_array_foreach(json_object_get(page, "files"), i, entry) {
        const char *name = json_string_value(json_object_get(entry, "path"));
        // Those of a folder with a / first have none.
        KG_AUTO_FREE char *path =
            kg_asprintf("%s%s", *listing->folder == '/' ? "/" : "", name ? name : "");
        if (name && is_wanted(listing, entry, path, &steps))
            json_array_append_new(listing->found, file_info(entry, path));
    }
    if (steps < 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "pattern takes too long to compare with these paths; use fewer stars");
    listing->n_looked_at += json_array_size(json_object_get(page, "files"));
    if (listing->n_looked_at > LOOKED_AT_MAX || json_array_size(listing->found) > FOUND_MAX)
        return kg_error_set(err, KG_INVALID, 0,
                            "path: the folder has more than %d entries; name one that is further "
                            "below",
                            FOUND_MAX);
    return 0;
}

static void ask(struct listing *listing, const char *after);

static void
on_page(const json_t *page, const struct kg_error *page_err, void *arg)
{
    struct listing *listing = arg;
    struct kg_error err = {0};
    listing->op = NULL;
    if (!page || add_page(listing, page, &err) < 0) {
        http_reply_error(listing->request, page ? &err : page_err);
        return;
    }
    const char *next = json_string_value(json_object_get(page, "next"));
    if (next)
        ask(listing, next);
    else
        http_reply_json(listing->request, 200, KG_STEAL(listing->found));
}

static void
ask(struct listing *listing, const char *after)
{
    struct kg_error err = {0};
    struct session *session = find_sandbox(listing->request, listing->self);
    if (!session)
        return;
    const struct session_files_query query = {
        .folder = listing->folder,
        .after = after,
        .shallow = !listing->pattern && listing->depth == 1,
        .details = true,
    };
    listing->op = session_files_list(session, &query, on_page, listing, &err);
    if (!listing->op)
        http_reply_error(listing->request, &err);
}

// Lists nothing of what is not a folder.
static void
on_folder(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct listing *listing = arg;
    struct kg_error own = {0};
    listing->op = NULL;
    if (entry && strcmp(entry->type, "dir") == 0) {
        if (listing->pattern || listing->depth > 0)
            ask(listing, NULL);
        else
            http_reply_json(listing->request, 200, KG_STEAL(listing->found));
        return;
    }
    if (entry)
        kg_error_set(&own, KG_INVALID_PATH, 0, "path is not a folder%s",
                     strcmp(entry->type, "symlink") == 0 ? ", but a symbolic link" : "");
    http_reply_error(listing->request, entry ? &own : err);
}

static int
start(struct listing *listing, struct kg_error *err)
{
    struct session *session;
    const char *path = http_request_query(listing->request, "path");
    if (!path)
        return kg_error_set(err, KG_INVALID, 0, "path is missing: that of a folder");
    listing->folder = sandbox_path(path, false, err);
    session = listing->folder ? sandbox_of(listing->request, listing->self, err) : NULL;
    if (!session)
        return -1;
    listing->op = session_entry_stat(session, listing->folder, on_folder, listing, err);
    return listing->op ? 0 : -1;
}

static struct listing *
listing_new(struct http_request *request, const struct opensandbox *self)
{
    struct listing *listing = KG_NEW(struct listing);
    *listing = (struct listing){.request = request, .self = self, .found = json_array()};
    http_request_own(request, listing, listing_free);
    return listing;
}

void
handle_os_folder_list(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct listing *listing = listing_new(request, arg);
    if (parse_number(http_request_query(request, "depth"), "depth", 1, DEPTH_MAX, &listing->depth,
                     &err) < 0 ||
        start(listing, &err) < 0)
        http_reply_error(request, &err);
}

void
handle_os_file_search(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct listing *listing = listing_new(request, arg);
    const char *pattern = http_request_query(request, "pattern");
    listing->pattern = kg_strdup(pattern && *pattern ? pattern : "**");
    if (glob_check(listing->pattern, &err) < 0 || start(listing, &err) < 0)
        http_reply_error(request, &err);
}
