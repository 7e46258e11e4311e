// SPDX-License-Identifier: Apache-2.0
// Filesystem.Stat, MakeDir, Move and Remove.
#include "envd_priv.h"

#include <string.h>

#include "link_walk.h"
#include "message.h"
#include "session_files.h"

// A call that waits for an operation.
struct file_call {
    struct http_request *request;
    struct session *session; // in the handler, and when the sandbox has answered
    struct session_file_op *op;
    struct link_walk *walk; // of Stat: the second try, after one that has found a link
    struct envd_path path;  // of what is answered
};

static void
file_call_free(void *arg)
{
    struct file_call *self = arg;
    session_file_op_cancel(self->op);
    link_walk_cancel(self->walk);
    envd_path_fini(&self->path);
    free(self);
}

static int
path_field_parse(const json_t *message, const char *name, struct envd_path *ret,
                 struct kg_error *err)
{
    const char *text;
    *ret = (struct envd_path){0};
    if (message_string(message, name, &text, err) < 0)
        return -1;
    return envd_path_parse(text ? text : "", ret, err);
}

// Starts the operation; NULL with `err` where there is none.
typedef struct session_file_op *(*file_call_fn)(struct file_call *self, const json_t *message,
                                                struct kg_error *err);

static void
file_call_start(struct http_request *request, struct envd *envd, const char *field, file_call_fn fn)
{
    struct kg_error err = {0};
    json_auto_t *message = connect_unary_message(request);
    if (!message)
        return;
    struct file_call *self = KG_NEW(struct file_call);
    self->request = request;
    http_request_own(request, self, file_call_free);
    self->session = envd_sandbox(request, envd, &err);
    if (self->session && path_field_parse(message, field, &self->path, &err) == 0)
        self->op = fn(self, message, &err);
    if (!self->op)
        http_reply_error(request, &err);
}

static void
file_call_on_entry(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct file_call *self = arg;
    self->op = NULL;
    if (entry)
        connect_reply(self->request,
                      json_pack("{s:o}", "entry", entry_describe(entry, self->path.client)));
    else
        http_reply_error(self->request, err);
}

static void
stat_on_walked(const char *found, const struct kg_error *err, void *arg)
{
    struct file_call *self = arg;
    struct kg_error own = {0};
    self->walk = NULL;
    if (found)
        self->op = session_entry_stat(self->session, found, file_call_on_entry, self, &own);
    if (!self->op)
        http_reply_error(self->request, found ? &own : err);
}

// There may be a link on the way.
static void
stat_on_entry(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct file_call *self = arg;
    self->op = NULL;
    if (err && err->code == KG_INVALID_PATH)
        self->walk = link_walk_start(self->session, &self->path, false, stat_on_walked, self);
    if (!self->walk)
        file_call_on_entry(entry, err, self);
}

static struct session_file_op *
stat_start(struct file_call *self, const json_t *message, struct kg_error *err)
{
    (void)message;
    return session_entry_stat(self->session, self->path.session, stat_on_entry, self, err);
}

void
handle_stat(struct http_request *request, void *arg)
{
    file_call_start(request, arg, "path", stat_start);
}

static struct session_file_op *
make_dir_start(struct file_call *self, const json_t *message, struct kg_error *err)
{
    (void)message;
    if (!*self->path.session || strcmp(self->path.session, "/") == 0) {
        (void)kg_error_set(err, KG_FILE_EXISTS, 0, "%s exists", self->path.client);
        return NULL;
    }
    return session_folder_make(self->session, self->path.session, SESSION_KEEP | SESSION_PARENTS,
                               file_call_on_entry, self, err);
}

void
handle_make_dir(struct http_request *request, void *arg)
{
    file_call_start(request, arg, "path", make_dir_start);
}

static struct session_file_op *
move_start(struct file_call *self, const json_t *message, struct kg_error *err)
{
    ENVD_AUTO_PATH source = {0};
    if (path_field_parse(message, "source", &source, err) < 0)
        return NULL;
    return session_entry_move(self->session, source.session, self->path.session, SESSION_PARENTS,
                              file_call_on_entry, self, err);
}

void
handle_move(struct http_request *request, void *arg)
{
    file_call_start(request, arg, "destination", move_start);
}

// What is not there need not be removed.
static void
remove_on_done(const struct kg_error *err, void *arg)
{
    struct file_call *self = arg;
    self->op = NULL;
    if (err && err->code != KG_NOT_FOUND)
        http_reply_error(self->request, err);
    else
        connect_reply(self->request, json_object());
}

static struct session_file_op *
remove_start(struct file_call *self, const json_t *message, struct kg_error *err)
{
    (void)message;
    return session_file_delete(self->session, self->path.session, remove_on_done, self, err);
}

void
handle_remove(struct http_request *request, void *arg)
{
    file_call_start(request, arg, "path", remove_start);
}
