// SPDX-License-Identifier: Apache-2.0
// Follows the symbolic links in a path, name by name.
#include "link_walk.h"

#include <string.h>

#include "session_files.h"

enum { LINKS_MAX = 40 }; // as Linux has it

struct link_walk {
    struct session *session; // valid at the start, and when an operation has succeeded
    struct session_file_op *op;
    struct envd_path path;
    size_t end; // of the names in path.client that were looked at, or are being
    bool whole;
    int n_links;
    link_walk_fn fn;
    void *arg;
};

void
link_walk_cancel(struct link_walk *walk)
{
    if (!walk)
        return;
    session_file_op_cancel(walk->op);
    envd_path_fini(&walk->path);
    free(walk);
}

static void
walk_finish(struct link_walk *walk, const struct kg_error *err)
{
    link_walk_fn fn = walk->fn;
    void *arg = walk->arg;
    KG_AUTO_FREE char *found = err ? NULL : KG_STEAL(walk->path.session);
    link_walk_cancel(walk);
    fn(found, err, arg);
}

static int walk_step(struct link_walk *walk, struct kg_error *err);

// Begins with a path; the names of the home folder itself are not looked at.
static void
begin(struct link_walk *walk)
{
    const char *session = walk->path.session;
    size_t len = strlen(walk->path.client);
    walk->end = *session == '/' ? 0 : len - strlen(session) - (*session != '\0');
}

// Where the next name ends that is to be looked at; 0: there is none.
static size_t
next_end(const struct link_walk *walk)
{
    const char *path = walk->path.client;
    if (!path[walk->end] || !path[walk->end + 1])
        return 0;
    size_t end = walk->end + 1 + strcspn(path + walk->end + 1, "/");
    return path[end] || walk->whole ? end : 0;
}

// The link is replaced by what it leads to, and the walk begins anew.
static int
follow(struct link_walk *walk, const char *target, struct kg_error *err)
{
    const char *path = walk->path.client;
    const char *rest = path + walk->end;
    size_t folder = walk->end;
    while (folder > 0 && path[folder - 1] != '/')
        folder--;
    if (++walk->n_links > LINKS_MAX)
        return kg_error_set(err, KG_INVALID_PATH, 0, "there are too many symbolic links in %.100s",
                            path);
    KG_AUTO_FREE char *next = *target == '/'
                                  ? kg_asprintf("%s%s", target, rest)
                                  : kg_asprintf("%.*s%s%s", (int)folder, path, target, rest);
    envd_path_fini(&walk->path);
    if (envd_path_parse(next, &walk->path, err) < 0)
        return -1;
    begin(walk);
    return 0;
}

static void
walk_on_entry(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct link_walk *walk = arg;
    struct kg_error own = {0};
    walk->op = NULL;
    if (!entry)
        walk_finish(walk, err);
    else if ((entry->target && follow(walk, entry->target, &own) < 0) ||
             (next_end(walk) > 0 && walk_step(walk, &own) < 0))
        walk_finish(walk, &own);
    else if (!walk->op)
        walk_finish(walk, NULL);
}

static int
walk_step(struct link_walk *walk, struct kg_error *err)
{
    ENVD_AUTO_PATH prefix = {0};
    walk->end = next_end(walk);
    KG_AUTO_FREE char *text = kg_strndup(walk->path.client, walk->end);
    if (envd_path_parse(text, &prefix, err) < 0)
        return -1;
    walk->op = session_entry_stat(walk->session, prefix.session, walk_on_entry, walk, err);
    return walk->op ? 0 : -1;
}

struct link_walk *
link_walk_start(struct session *session, const struct envd_path *path, bool whole, link_walk_fn fn,
                void *arg)
{
    struct link_walk *walk = KG_NEW(struct link_walk);
    *walk = (struct link_walk){.session = session, .whole = whole, .fn = fn, .arg = arg};
    walk->path = (struct envd_path){kg_strdup(path->client), kg_strdup(path->session)};
    begin(walk);
    if (next_end(walk) > 0 && walk_step(walk, NULL) == 0)
        return walk;
    link_walk_cancel(walk);
    return NULL;
}
