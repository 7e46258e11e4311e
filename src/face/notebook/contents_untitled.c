// SPDX-License-Identifier: Apache-2.0
// New files and folders, and copies, in a folder where their names are not used yet: the agent
// finds a name, and what is made replaces nothing.

#include <string.h>

#include "contents_priv.h"
#include "session_files.h"

enum { TRIES_MAX = 16, NUMBER_MAX = 9999 };

// ---- Making ---------------------------------------------------------------------------------

static void find_name(struct contents_call *call);

// Whether it is made, and the answer left to the caller. Else the call goes on: with another name
// where somebody has taken this one meanwhile.
static bool
is_made(struct contents_call *call, const struct kg_error *err)
{
    struct contents_untitled *untitled = &call->untitled;
    call->op = NULL;
    if (err && err->code == KG_FILE_EXISTS && ++untitled->n_tries < TRIES_MAX) {
        find_name(call);
        return false;
    }
    if (err) {
        contents_fail_at(call, call->from ? call->from : call->file, err);
        return false;
    }
    KG_AUTO_FREE char *path =
        kg_asprintf("%.*s/%s", (int)strcspn(call->path, "/"), call->path, untitled->file);
    contents_call_set_path(call, path);
    call->type = CONTENTS_ANY;
    call->status = 201;
    call->with_location = true;
    return true;
}

static void
on_entry(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    if (is_made(call, err))
        contents_show_entry(call, entry);
}

static void
on_file(const struct session_file *file, bool created, const struct kg_error *err, void *arg)
{
    (void)created;
    struct contents_call *call = arg;
    if (is_made(call, err))
        contents_show_file(call, file);
}

static struct session_file_op *
make(struct contents_call *call, struct session *session, struct kg_error *err)
{
    const struct contents_untitled *untitled = &call->untitled;
    const char *content = untitled->type == CONTENTS_NOTEBOOK ? CONTENTS_EMPTY_NOTEBOOK : "";
    const struct session_file_source source = {.data = content, .len = strlen(content)};
    const struct session_copy copy = {
        .from = call->from, .to = untitled->file, .keep_existing = true};
    if (call->from)
        return session_entry_copy(session, &copy, on_entry, call, err);
    if (untitled->type == CONTENTS_DIRECTORY)
        return session_folder_make(session, untitled->file, SESSION_KEEP, on_entry, call, err);
    return session_file_put(session, untitled->file, &source, true, on_file, call, err);
}

// ---- Names ----------------------------------------------------------------------------------

// The path in the call's folder of the name with a number; 0: without.
static char *
numbered(const struct contents_call *call, int number)
{
    const struct contents_untitled *untitled = &call->untitled;
    const char *slash = *call->file ? "/" : "";
    if (number == 0)
        return kg_asprintf("%s%s%s%s", call->file, slash, untitled->start, untitled->end);
    return kg_asprintf("%s%s%s%s%d%s", call->file, slash, untitled->start, untitled->insert, number,
                       untitled->end);
}

static void
on_number(int number, const struct kg_error *number_err, void *arg)
{
    struct contents_call *call = arg;
    struct kg_error err = {0};
    call->op = NULL;
    if (number < 0) {
        contents_fail_at(call, call->file, number_err);
        return;
    }
    free(call->untitled.file);
    call->untitled.file = numbered(call, number);
    struct session *session = contents_session(call, &err);
    contents_wait_op(call, session ? make(call, session, &err) : NULL, &err);
}

static void
find_name(struct contents_call *call)
{
    const struct contents_untitled *untitled = &call->untitled;
    struct kg_error err = {0};
    struct session *session = contents_session(call, &err);
    const struct session_names names = {.folder = call->file,
                                        .start = untitled->start,
                                        .insert = untitled->insert,
                                        .end = untitled->end};
    contents_wait_op(
        call, session ? session_find_unused(session, &names, on_number, call, &err) : NULL, &err);
}

// ---- The folder -----------------------------------------------------------------------------

static void
on_folder(const struct session_entry *entry, const struct kg_error *stat_err, void *arg)
{
    struct contents_call *call = arg;
    struct kg_error err = {0};
    call->op = NULL;
    if (!entry) {
        contents_fail_at(call, call->file, stat_err);
        return;
    }
    if (strcmp(entry->type, "symlink") == 0)
        kg_error_set(&err, KG_INVALID_PATH, 0, CONTENTS_NO_LINKS);
    else if (strcmp(entry->type, "dir") != 0)
        kg_error_set(&err, KG_INVALID_PATH, 0, "Cannot POST to files, use PUT instead.");
    if (err.code == KG_OK)
        find_name(call);
    else
        contents_fail(call, &err);
}

// The session of the folder in which something is to be created; NULL if the request was answered.
static struct session *
session_of_folder(struct contents_call *call)
{
    struct kg_error err = {0};
    if (*call->file || !*call->path)
        return contents_writable(call);
    struct session *session = contents_session(call, &err);
    if (!session)
        contents_fail(call, &err);
    return session;
}

// The call has the parts of the name.
static void
begin(struct contents_call *call, struct session *session)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *longest = numbered(call, NUMBER_MAX);
    const char *name = longest + strlen(call->file) + (*call->file ? 1 : 0);
    if (strchr(name, '/'))
        kg_error_set(&err, KG_INVALID_PATH, 0, "a name must not contain a slash");
    if (err.code != KG_OK || contents_check_file(longest, true, &err) < 0)
        contents_fail(call, &err);
    else
        contents_wait_op(call, session_entry_stat(session, call->file, on_folder, call, &err),
                         &err);
}

void
contents_make_untitled(struct contents_call *call, enum contents_type type, const char *ext)
{
    struct session *session = session_of_folder(call);
    if (!session)
        return;
    bool is_folder = type == CONTENTS_DIRECTORY;
    bool is_notebook =
        type == CONTENTS_NOTEBOOK || (type == CONTENTS_ANY && strcmp(ext, ".ipynb") == 0);
    call->untitled = (struct contents_untitled){
        .type = is_notebook ? CONTENTS_NOTEBOOK : type,
        .start = kg_strdup(is_folder     ? "Untitled Folder"
                           : is_notebook ? "Untitled"
                                         : "untitled"),
        .insert = kg_strdup(is_folder ? " " : ""),
        .end = kg_strdup(is_folder     ? ""
                         : is_notebook ? ".ipynb"
                                       : ext),
    };
    begin(call, session);
}

// ---- Copies ---------------------------------------------------------------------------------

// Splits the name of a copy before its suffix, which begins at the first dot, except for notebooks.
// Drops the `-Copy1` of an earlier copy.
static struct contents_untitled
split_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    if (!dot || strcmp(dot, ".ipynb") != 0)
        dot = strchr(name, '.');
    size_t len = dot ? (size_t)(dot - name) : strlen(name);
    size_t digits = len;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    if (dot && digits > 5 && strncmp(name + digits - 5, "-Copy", 5) == 0)
        len = digits - 5;
    return (struct contents_untitled){
        .start = kg_strndup(name, len),
        .insert = kg_strdup("-Copy"),
        .end = kg_strdup(dot ? dot : ""),
    };
}

void
contents_copy(struct contents_call *call, const char *from)
{
    struct kg_error err = {0};
    struct session *session = session_of_folder(call);
    if (!session)
        return;
    const char *file = contents_same_session(call, from, false, &err);
    if (!file) {
        contents_fail(call, &err);
        return;
    }
    const char *slash = strrchr(file, '/');
    call->from = kg_strdup(file);
    call->untitled = split_name(slash ? slash + 1 : file);
    begin(call, session);
}
