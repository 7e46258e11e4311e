// SPDX-License-Identifier: Apache-2.0
// Changes other than writing files: new names, copies, folders, checkpoints. Most are made by
// scripts, which get names as arguments and never as part of their text.

#include <stdio.h>
#include <string.h>

#include "contents_priv.h"
#include "session_files.h"

enum { EXT_BYTES_MAX = 64 };

static void
show(struct contents_call *call, const char *printed)
{
    (void)printed;
    contents_show(call);
}

// ---- New names ------------------------------------------------------------------------------

// $1 what to do, $2 the folder, with a slash, or nothing; $3, $4, $5 the name's parts: before the
// number, before it if there is one, after it; $6 the content, or the file that is copied. Prints
// the number. With -C nothing is overwritten that appears meanwhile.
static const char untitled_script[] =
    "plain \"${2%/}\"\n"
    "[ \"$1\" != copy ] || plain \"$6\"\n"
    "if ! [ -d \"./$2\" ]; then\n"
    "  [ -e \"./${2%/}\" ] || exit 3\n"
    "  echo 'Cannot POST to files, use PUT instead.'; exit 1\n"
    "fi\n"
    "[ \"$1\" != copy ] || [ -e \"./$6\" ] || exit 3\n"
    "set -C\n"
    "i=0\n"
    "while [ $i -lt 10000 ]; do\n"
    "  n=; [ $i = 0 ] || n=\"$4$i\"\n"
    "  to=\"./$2$3$n$5\"\n"
    "  i=$((i + 1))\n"
    "  if [ -e \"$to\" ] || [ -L \"$to\" ]; then continue; fi\n"
    "  case $1 in\n"
    "    folder) mkdir \"$to\" || exit 1 ;;\n"
    "    copy)\n"
    "      if [ -d \"./$6\" ]; then mkdir \"$to\" && cp -RP \"./$6/.\" \"$to\" || exit 1\n"
    "      else cat \"./$6\" >\"$to\" || exit 1; fi ;;\n"
    "    file) printf %s \"$6\" >\"$to\" || exit 1 ;;\n"
    "  esac\n"
    "  echo \"number $n\"\n"
    "  exit 0\n"
    "done\n"
    "exit 4\n";

static void
show_untitled(struct contents_call *call, const char *printed)
{
    static const char prefix[] = "number ";
    size_t len = strlen(prefix);
    const char *number = strncmp(printed, prefix, len) == 0 ? printed + len : "";
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s%.*s%s", call->path, call->name_start,
                                          (int)strcspn(number, "\n"), number, call->name_end);
    contents_call_set_path(call, path);
    call->type = CONTENTS_ANY;
    call->status = 201;
    call->with_location = true;
    contents_show(call);
}

// The session of the folder in which a file is to be created; NULL if the request was answered.
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

// Creates a file with the parts of its name and `content`. `action` is a case of the script.
static void
run_untitled(struct contents_call *call, struct session *session, const char *action,
             const char *content)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *name =
        kg_asprintf("%s%s9999%s", call->name_start, call->name_insert, call->name_end);
    KG_AUTO_FREE char *path = kg_asprintf("%s%s%s", call->file, *call->file ? "/" : "", name);
    if (strchr(name, '/'))
        kg_error_set(&err, KG_INVALID_PATH, 0, "a name must not contain a slash");
    if (err.code != KG_OK || contents_check_file(path, true, &err) < 0) {
        contents_fail(call, &err);
        return;
    }
    KG_AUTO_FREE char *folder = kg_asprintf("%s%s", call->file, *call->file ? "/" : "");
    const char *const args[CONTENTS_ARGS_MAX] = {
        action, folder, call->name_start, call->name_insert, call->name_end, content};
    contents_run(call, session, untitled_script, args, show_untitled);
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
    call->name_start = kg_strdup(is_folder     ? "Untitled Folder"
                                 : is_notebook ? "Untitled"
                                               : "untitled");
    call->name_insert = kg_strdup(is_folder ? " " : "");
    call->name_end = kg_strdup(is_folder ? "" : is_notebook ? ".ipynb" : ext);
    run_untitled(call, session, is_folder ? "folder" : "file",
                 is_notebook ? CONTENTS_EMPTY_NOTEBOOK : "");
}

// Splits the name of a copy before its suffix, which begins at the first dot, except for notebooks.
// Drops the `-Copy1` of an earlier copy.
static void
split_name(struct contents_call *call, const char *name)
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
    call->name_start = kg_strndup(name, len);
    call->name_insert = kg_strdup("-Copy");
    call->name_end = kg_strdup(dot ? dot : "");
}

// The file of a path in the same session, or an error.
static const char *
same_session(const struct contents_call *call, const char *path, bool is_new, struct kg_error *err)
{
    path += strspn(path, "/");
    size_t len = strcspn(call->path, "/");
    if (strncmp(path, call->path, len) != 0 || path[len] != '/') {
        kg_error_set(err, KG_INVALID_PATH, 0,
                     "files are moved and copied within the folder of one kernel only");
        return NULL;
    }
    const char *file = path + len + 1;
    return contents_check_file(file, is_new, err) == 0 ? file : NULL;
}

static void
copy(struct contents_call *call, const char *from)
{
    struct kg_error err = {0};
    struct session *session = session_of_folder(call);
    if (!session)
        return;
    const char *file = same_session(call, from, false, &err);
    if (!file) {
        contents_fail(call, &err);
        return;
    }
    const char *slash = strrchr(file, '/');
    split_name(call, slash ? slash + 1 : file);
    run_untitled(call, session, "copy", file);
}

void
contents_post(struct contents_call *call)
{
    struct kg_error err = {0};
    const char *copy_from = NULL, *type = NULL, *ext = NULL;
    json_auto_t *body =
        http_request_body_len(call->request) > 0 ? body_object(call->request, &err) : json_object();
    if (!body || body_string(body, "copy_from", FILE_PATH_MAX, &copy_from, &err) < 0 ||
        body_string(body, "type", EXT_BYTES_MAX, &type, &err) < 0 ||
        body_string(body, "ext", EXT_BYTES_MAX, &ext, &err) < 0)
        contents_fail(call, &err);
    else if (copy_from && *copy_from)
        copy(call, copy_from);
    else
        contents_make_untitled(call, contents_type_parse(type), ext ? ext : "");
}

void
contents_make_folder(struct contents_call *call)
{
    static const char script[] = "plain \"$1\"\n"
                                 "[ -d \"./$1\" ] || exec mkdir \"./$1\"\n";
    struct session *session = contents_writable(call);
    if (!session)
        return;
    const char *const args[CONTENTS_ARGS_MAX] = {call->file};
    call->type = CONTENTS_DIRECTORY;
    call->with_content = false;
    call->status = 201;
    call->with_location = true;
    contents_run(call, session, script, args, show);
}

// ---- Renaming, deleting ---------------------------------------------------------------------

void
contents_rename(struct contents_call *call)
{
    static const char script[] = "above \"$1\"\n"
                                 "above \"$2\"\n"
                                 "[ -e \"./$1\" ] || [ -L \"./$1\" ] || exit 3\n"
                                 "if [ -e \"./$2\" ] || [ -L \"./$2\" ]; then exit 4; fi\n"
                                 "exec mv -T \"./$1\" \"./$2\"\n";
    struct kg_error err = {0};
    const char *path = NULL;
    struct session *session = contents_writable(call);
    if (!session)
        return;
    json_auto_t *body = body_object(call->request, &err);
    const char *to = NULL;
    if (body && body_string(body, "path", FILE_PATH_MAX, &path, &err) == 0)
        to = same_session(call, path ? path : call->path, true, &err);
    if (!to) {
        contents_fail(call, &err);
        return;
    }
    call->with_location = true;
    if (strcmp(to, call->file) == 0) {
        contents_show(call);
        return;
    }
    KG_AUTO_FREE char *from = kg_strdup(call->file);
    const char *const args[CONTENTS_ARGS_MAX] = {from, to};
    contents_call_set_path(call, path);
    contents_run(call, session, script, args, show);
}

static void
on_deleted(const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    struct http_request *request = call->request;
    call->op = NULL;
    if (err) {
        contents_fail(call, err);
        return;
    }
    contents_call_free(call);
    reply_no_content(request);
}

void
contents_delete(struct contents_call *call)
{
    struct kg_error err = {0};
    struct session *session = contents_writable(call);
    if (session)
        contents_wait_op(call, session_file_delete(session, call->file, on_deleted, call, &err),
                         &err);
}

// ---- Checkpoints ----------------------------------------------------------------------------

static void
show_checkpoint(struct contents_call *call, const char *printed)
{
    (void)printed;
    call->status = 201;
    call->with_location = true;
    call->location_end = "/checkpoints/checkpoint";
    contents_show_checkpoint(call);
}

void
contents_checkpoint_make(struct contents_call *call)
{
    static const char script[] = "plain \"$1\" \"$3\"\n"
                                 "[ -f \"./$1\" ] || exit 3\n"
                                 "mkdir -p \"./$2\" && exec cp -T \"./$1\" \"./$3\"\n";
    struct session *session = contents_writable(call);
    if (!session)
        return;
    const char *slash = strrchr(call->checkpoint, '/');
    KG_AUTO_FREE char *folder = kg_strndup(call->checkpoint, (size_t)(slash - call->checkpoint));
    const char *const args[CONTENTS_ARGS_MAX] = {call->file, folder, call->checkpoint};
    contents_run(call, session, script, args, show_checkpoint);
}

static void
finish_restore(struct contents_call *call, const char *printed)
{
    (void)printed;
    struct http_request *request = call->request;
    contents_call_free(call);
    reply_no_content(request);
}

void
contents_checkpoint_restore(struct contents_call *call)
{
    static const char script[] = "plain \"$1\" \"$2\"\n"
                                 "[ -f \"./$2\" ] || exit 3\n"
                                 "exec cp -T \"./$2\" \"./$1\"\n";
    struct session *session = contents_writable(call);
    if (!session)
        return;
    const char *const args[CONTENTS_ARGS_MAX] = {call->file, call->checkpoint};
    contents_run(call, session, script, args, finish_restore);
}

void
contents_checkpoint_delete(struct contents_call *call)
{
    struct kg_error err = {0};
    struct session *session = contents_writable(call);
    if (session)
        contents_wait_op(
            call, session_file_delete(session, call->checkpoint, on_deleted, call, &err), &err);
}
