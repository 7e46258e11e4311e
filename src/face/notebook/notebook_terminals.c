// SPDX-License-Identifier: Apache-2.0
// The resource /api/terminals, and their WebSockets. A terminal's name is that of its session and
// that of its command, with a dot between them: every replica knows from it where the terminal is.

#include <stdio.h>
#include <string.h>

#include "notebook_priv.h"
#include "session_commands.h"
#include "terminado_priv.h"

enum { COLS = 80, ROWS = 24, CWD_MAX = 4000, NAME_MAX = 255 };
#define OWN_SESSION "terminal-" // begins the id of a session that is made for one terminal

struct terminal_name {
    char session_id[SESSION_MAX_ID_LEN + 1];
    char command[SANDBOX_COMMAND_ID_MAX + 1];
};

static bool
terminal_name_parse(const char *name, struct terminal_name *ret)
{
    const char *dot = strchr(name, '.');
    size_t len = dot ? (size_t)(dot - name) : 0;
    if (len < 1 || len > SESSION_MAX_ID_LEN || !sandbox_command_id_valid(dot + 1))
        return false;
    *ret = (struct terminal_name){0};
    memcpy(ret->session_id, name, len);
    memcpy(ret->command, dot + 1, strlen(dot + 1));
    return true;
}

void
notebook_terminal_ask(struct http_request *request, struct http_concern *ret, char **ret_name,
                      void *arg)
{
    struct terminal_name name;
    (void)arg;
    ret->kind = HTTP_CONCERNS_HERE;
    if (!terminal_name_parse(http_request_param(request, "name"), &name))
        return;
    ret->kind = HTTP_CONCERNS_SESSION;
    *ret_name = kg_strdup(name.session_id);
}

static json_t *
terminal_model(const struct session *session, const char *command)
{
    json_auto_t *described = session_describe(session);
    return json_pack("{s:o, s:O}", "name", json_sprintf("%s.%s", session_id(session), command),
                     "last_activity", json_object_get(described, "last_activity"));
}

// The session of the terminal that the path names; NULL was answered.
static struct session *
session_of_request(const struct notebook *notebook, struct http_request *request,
                   struct terminal_name *ret)
{
    struct kg_error err = {0};
    const char *name = http_request_param(request, "name");
    struct session *session = NULL;
    if (terminal_name_parse(name, ret))
        session = sessions_find(notebook->face->sessions, http_request_owner(request),
                                ret->session_id, NULL);
    if (session)
        return session;
    (void)kg_error_set(&err, KG_NOT_FOUND, 0, "Terminal not found: %.60s", name);
    reply_failure(request, &err);
    return NULL;
}

// ---- Looking --------------------------------------------------------------------------------

// Sessions are asked one beside the other; what does not answer has no terminals.
struct terminal_look {
    const struct notebook *notebook;
    struct http_request *request;
    char *owner;
    json_t *models;
    TAILQ_HEAD(, terminal_question) questions; // that have no answer yet
    const char *wanted;                        // one command, in its session; NULL: all are listed
};

struct terminal_question {
    TAILQ_ENTRY(terminal_question) link;
    struct terminal_look *look;
    struct sandbox_call *call;
    char session_id[SESSION_MAX_ID_LEN + 1];
};

static void
question_free(struct terminal_question *question)
{
    TAILQ_REMOVE(&question->look->questions, question, link);
    sandbox_call_cancel(question->call);
    free(question);
}

static void
look_free(void *arg)
{
    struct terminal_look *look = arg;
    for (struct terminal_question *each; (each = TAILQ_FIRST(&look->questions));)
        question_free(each);
    json_decref(look->models);
    free(look->owner);
    free(look);
}

static void
look_reply_if_done(struct terminal_look *look)
{
    struct kg_error err = {0};
    if (!TAILQ_EMPTY(&look->questions))
        return;
    json_auto_t *models = json_incref(look->models);
    if (!look->wanted) {
        reply_list(look->request, json_incref(models));
    } else if (json_array_size(models) > 0) {
        http_reply_json(look->request, 200, json_incref(json_array_get(models, 0)));
    } else {
        (void)kg_error_set(&err, KG_NOT_FOUND, 0, "Terminal not found: %.60s",
                           http_request_param(look->request, "name"));
        reply_failure(look->request, &err);
    }
}

static void
look_add(struct terminal_look *look, const struct session *session, const json_t *commands)
{
    const json_t *command;
    size_t i;
    json_array_foreach(commands, i, command) {
        const char *id = json_string_value(json_object_get(command, "id"));
        if (json_is_true(json_object_get(command, "terminal")) &&
            json_is_true(json_object_get(command, "running")) &&
            (!look->wanted || strcmp(look->wanted, id) == 0))
            json_array_append_new(look->models, terminal_model(session, id));
    }
}

static void
question_on_result(const json_t *result, const struct kg_error *err, void *arg)
{
    struct terminal_question *question = arg;
    struct terminal_look *look = question->look;
    struct kg_error why = {0};
    (void)err;
    question->call = NULL;
    json_auto_t *commands = result ? sandbox_command_list_parse(result, &why) : NULL;
    const struct session *session =
        sessions_find(look->notebook->face->sessions, look->owner, question->session_id, NULL);
    if (session && commands)
        look_add(look, session, commands);
    question_free(question);
    look_reply_if_done(look);
}

static void
look_ask(struct terminal_look *look, struct session *session)
{
    struct kg_error err = {0};
    struct sandbox *sandbox = session_sandbox(session);
    if (!sandbox || sandbox_state(sandbox) != SANDBOX_CLAIMED)
        return;
    struct terminal_question *question = KG_NEW(struct terminal_question);
    question->look = look;
    memcpy(question->session_id, session_id(session), strlen(session_id(session)));
    TAILQ_INSERT_TAIL(&look->questions, question, link);
    question->call = sandbox_command_list(sandbox, question_on_result, question, &err);
    if (!question->call)
        question_free(question);
}

static struct terminal_look *
look_new(const struct notebook *notebook, struct http_request *request)
{
    struct terminal_look *look = KG_NEW(struct terminal_look);
    look->notebook = notebook;
    look->request = request;
    look->owner = kg_strdup(http_request_owner(request));
    look->models = json_array();
    TAILQ_INIT(&look->questions);
    http_request_own(request, look, look_free);
    return look;
}

void
handle_notebook_terminal_list(struct http_request *request, void *arg)
{
    const struct notebook *notebook = arg;
    struct terminal_look *look = look_new(notebook, request);
    json_auto_t *ids = sessions_ids(notebook->face->sessions, look->owner);
    const json_t *id;
    size_t i;
    json_array_foreach(ids, i, id) {
        struct session *session =
            sessions_find(notebook->face->sessions, look->owner, json_string_value(id), NULL);
        if (session)
            look_ask(look, session);
    }
    look_reply_if_done(look);
}

void
handle_notebook_terminal_show(struct http_request *request, void *arg)
{
    struct terminal_name name;
    struct session *session = session_of_request(arg, request, &name);
    if (!session)
        return;
    struct terminal_look *look = look_new(arg, request);
    look->wanted = strchr(http_request_param(request, "name"), '.') + 1;
    look_ask(look, session);
    look_reply_if_done(look);
}

// ---- Starting -------------------------------------------------------------------------------

struct terminal_post {
    struct notebook *notebook;
    struct http_request *request;
    struct session_open *open; // of a session of its own
    struct sandbox_call *call;
    char session_id[SESSION_MAX_ID_LEN + 1];
    bool is_own; // the session, which no client knows yet
    char *cwd;   // or NULL
};

static struct session *
post_session(const struct terminal_post *post)
{
    return sessions_find(post->notebook->face->sessions, http_request_owner(post->request),
                         post->session_id, NULL);
}

// Sessions that were made for a terminal are known until they end, or this gateway does: then such
// a session expires like any other.
static void
own_sessions_add(struct notebook *notebook, const struct terminal_post *post)
{
    const char *id;
    json_t *owner;
    void *next;
    json_object_foreach_safe(notebook->terminal_sessions, next, id, owner)
    {
        if (!sessions_find(notebook->face->sessions, json_string_value(owner), id, NULL))
            json_object_del(notebook->terminal_sessions, id);
    }
    json_object_set_new(notebook->terminal_sessions, post->session_id,
                        json_string(http_request_owner(post->request)));
}

static bool
is_own_session(const struct notebook *notebook, const struct http_request *request, const char *id)
{
    const char *owner = json_string_value(json_object_get(notebook->terminal_sessions, id));
    return owner && strcmp(owner, http_request_owner(request)) == 0;
}

static void
post_free(void *arg)
{
    struct terminal_post *post = arg;
    sandbox_call_cancel(post->call);
    struct session *session = post->is_own ? post_session(post) : NULL;
    if (post->open)
        session_open_cancel(post->open);
    if (session)
        session_end(session, "its client has disconnected, or its terminal could not be started",
                    NULL, NULL);
    free(post->cwd);
    free(post);
}

static void
terminal_on_result(const json_t *result, const struct kg_error *err, void *arg)
{
    struct terminal_post *post = arg;
    struct sandbox_command_start start;
    struct kg_error why = {0};
    post->call = NULL;
    if (!result || sandbox_command_detach_parse(result, &start, &why) < 0) {
        reply_failure(post->request, result ? &why : err);
        return;
    }
    const struct session *session = post_session(post);
    if (!session) {
        (void)kg_error_set(&why, KG_SESSION_NOT_FOUND, 0, "the session has ended");
        reply_failure(post->request, &why);
        return;
    }
    if (post->is_own)
        own_sessions_add(post->notebook, post);
    post->is_own = false;
    json_t *model = terminal_model(session, start.id);
    KG_AUTO_FREE char *location =
        kg_asprintf("/api/terminals/%s", json_string_value(json_object_get(model, "name")));
    http_reply_header(post->request, "Location", location);
    http_reply_json(post->request, 200, model);
}

static void
post_start(struct terminal_post *post, struct session *session)
{
    struct kg_error err = {0};
    char id[TERMINAL_ID_LEN + 1];
    terminals_make_id(id);
    const struct sandbox_command_spec spec = {
        .id = id, .cwd = post->cwd, .cols = COLS, .rows = ROWS, .keep = true};
    post->call = session_command_detach(session, &spec, terminal_on_result, post, &err);
    if (!post->call)
        reply_failure(post->request, &err);
}

static void
post_on_session(struct session *session, struct kernel *kernel, const struct kg_error *err,
                void *arg)
{
    struct terminal_post *post = arg;
    (void)kernel;
    post->open = NULL;
    if (session)
        post_start(post, session);
    else
        reply_failure(post->request, err);
}

static void
post_open_session(struct terminal_post *post)
{
    struct kg_error err = {0};
    char random[TERMINAL_ID_LEN + 1];
    terminals_make_id(random);
    KG_AUTO_FREE char *id = kg_asprintf(OWN_SESSION "%s", random);
    const struct session_request request = {
        .owner = http_request_owner(post->request),
        .session_id = id,
        .kernelspec = post->notebook->face->default_spec,
    };
    post->is_own = true;
    memcpy(post->session_id, id, strlen(id));
    post->open =
        session_open_start(post->notebook->face->sessions, &request, post_on_session, post, &err);
    if (!post->open)
        reply_failure(post->request, &err);
}

// `ret_id`: of the session where it is to be, borrowed; NULL: a new one.
static int
post_read(struct terminal_post *post, const json_t *body, const char **ret_id, struct kg_error *err)
{
    const char *cwd, *kernel_id, *id;
    if (body_string(body, "cwd", CWD_MAX, &cwd, err) < 0 ||
        body_string(body, "kernel_id", NAME_MAX, &kernel_id, err) < 0 ||
        body_string(body, "session_id", NAME_MAX, &id, err) < 0)
        return -1;
    *ret_id = id ? id : kernel_id;
    post->cwd = cwd && *cwd ? kg_strdup(cwd) : NULL;
    return 0;
}

void
handle_notebook_terminal_start(struct http_request *request, void *arg)
{
    struct notebook *notebook = arg;
    struct kg_error err = {0};
    const char *id;
    json_auto_t *body =
        http_request_body_len(request) > 0 ? body_object(request, &err) : json_object();
    struct terminal_post *post = KG_NEW(struct terminal_post);
    post->notebook = notebook;
    post->request = request;
    http_request_own(request, post, post_free);
    if (!body || post_read(post, body, &id, &err) < 0) {
        reply_failure(request, &err);
        return;
    }
    if (!id) {
        post_open_session(post);
        return;
    }
    struct session *session =
        sessions_find(notebook->face->sessions, http_request_owner(request), id, &err);
    if (!session) {
        reply_failure(request, &err);
        return;
    }
    memcpy(post->session_id, session_id(session), strlen(session_id(session)));
    post_start(post, session);
}

// ---- Ending ---------------------------------------------------------------------------------

struct terminal_end {
    struct http_request *request;
    struct sandbox_call *call;
};

static void
terminal_end_free(void *arg)
{
    struct terminal_end *end = arg;
    sandbox_call_cancel(end->call);
    free(end);
}

static void
terminal_on_signalled(const json_t *result, const struct kg_error *err, void *arg)
{
    struct terminal_end *end = arg;
    end->call = NULL;
    if (result)
        reply_no_content(end->request);
    else
        reply_failure_as(end->request,
                         err->code == KG_INVALID ? 404 : kg_code_info(err->code)->http_status, err);
}

void
handle_notebook_terminal_delete(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct terminal_name name;
    struct session *session = session_of_request(arg, request, &name);
    if (!session)
        return;
    if (is_own_session(arg, request, name.session_id)) {
        session_end(session, "its terminal was closed", reply_no_content, request);
        return;
    }
    struct sandbox *sandbox = session_commands_sandbox(session, &err);
    struct terminal_end *end = KG_NEW(struct terminal_end);
    end->request = request;
    http_request_own(request, end, terminal_end_free);
    if (sandbox)
        end->call =
            sandbox_command_signal(sandbox, name.command, "TERM", terminal_on_signalled, end, &err);
    if (!end->call)
        reply_failure(request, &err);
}

// ---- Connecting -----------------------------------------------------------------------------

void
handle_notebook_terminal_connect(struct http_request *request, void *arg)
{
    const struct notebook *notebook = arg;
    struct terminal_name name;
    struct session *session = session_of_request(notebook, request, &name);
    if (!session || !websocket_is_asked(request))
        return;
    const struct terminal_wish wish = {.session = session,
                                       .id = name.command,
                                       .only_joins = true,
                                       .dialect = &terminado_dialect,
                                       .fail = reply_failure};
    terminals_open(notebook->face->terminals, request, &wish);
}
