// SPDX-License-Identifier: Apache-2.0
// Decodes request bodies. Every field is checked, and an unknown one refused: a misspelt option
// must not be ignored silently.

#include <math.h>
#include <string.h>

#include "api_priv.h"
#include "sandbox.h"
#include "session.h"
#include "session_files.h"
#include "session_packages.h"
#include "session_tokens.h"

enum { MAX_CWD_BYTES = 4000, MAX_VARIABLES = 1024, MAX_SESSION_S = 31536000 };
enum { MAX_INPUT_BYTES = 64 << 10 };
enum { MAX_KEPT_TIMEOUT_S = 24 * 3600, TOKEN_LIFE_S = 3600 };

static int
check_names(const json_t *root, const char *const *names, struct kg_error *err)
{
    if (!json_is_object(root))
        return kg_error_set(err, KG_INVALID, 0, "the body must be a JSON object");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        size_t i = 0;
        while (names[i] && strcmp(names[i], key) != 0)
            i++;
        if (!names[i])
            return kg_error_set(err, KG_INVALID, 0, "unknown field \"%.60s\"", key);
    }
    return 0;
}

// A member; null counts as absent.
static const json_t *
member(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return json_is_null(value) ? NULL : value;
}

static int
take_string(const json_t *root, const char *name, const char **ret, struct kg_error *err)
{
    const json_t *value = member(root, name);
    if (value && !json_is_string(value))
        return kg_error_set(err, KG_INVALID, 0, "%s must be a string", name);
    *ret = json_string_value(value);
    return 0;
}

static int
take_flag(const json_t *root, const char *name, bool *ret, struct kg_error *err)
{
    const json_t *value = member(root, name);
    if (value && !json_is_boolean(value))
        return kg_error_set(err, KG_INVALID, 0, "%s must be true or false", name);
    *ret = json_is_true(value);
    return 0;
}

static int
take_object(const json_t *root, const char *name, size_t max, const json_t **ret,
            struct kg_error *err)
{
    const json_t *value = member(root, name);
    if (value && !json_is_object(value))
        return kg_error_set(err, KG_INVALID, 0, "%s must be an object", name);
    if (json_object_size(value) > max)
        return kg_error_set(err, KG_INVALID, 0, "%s has more than %zu members", name, max);
    *ret = value;
    return 0;
}

static int
take_env(const json_t *root, const json_t **ret, struct kg_error *err)
{
    *ret = member(root, "env");
    return *ret ? session_env_check(*ret, err) : 0;
}

// `kernel` and `language` are two names of one field.
static int
take_spec(const struct api_context *context, const json_t *root, const struct kernelspec **ret,
          struct kg_error *err)
{
    const char *kernel, *language;
    if (take_string(root, "kernel", &kernel, err) < 0 ||
        take_string(root, "language", &language, err) < 0)
        return -1;
    *ret = context->face->default_spec;
    if (kernel || language)
        *ret = kernelspecs_find(context->face->specs, kernel ? kernel : language, err);
    return *ret ? 0 : -1;
}

static int
take_timeout(const struct api_context *context, const json_t *root, int64_t *ret_ms,
             struct kg_error *err)
{
    const json_t *value = member(root, "timeout");
    *ret_ms = context->face->default_timeout_ms;
    if (!value)
        return 0;
    double seconds = json_number_value(value);
    double max = (double)context->face->max_timeout_ms / 1000;
    if (!json_is_number(value) || !(seconds > 0) || seconds > max)
        return kg_error_set(
            err, KG_INVALID, 0,
            "timeout must be a number of seconds above 0, at most %.15g (setting max-timeout)",
            max);
    *ret_ms = (int64_t)ceil(seconds * 1000);
    return 0;
}

static int
take_code(const struct api_context *context, const json_t *root, const char **ret,
          struct kg_error *err)
{
    if (take_string(root, "code", ret, err) < 0)
        return -1;
    if (!*ret)
        return kg_error_set(err, KG_INVALID, 0, "code is missing: a string with the code to run");
    size_t len = strlen(*ret);
    if (len > context->face->max_code_bytes)
        return kg_error_set(err, KG_CODE_TOO_LARGE, 0,
                            "code is %zu bytes; the limit is %zu (setting max-code-bytes)", len,
                            context->face->max_code_bytes);
    return 0;
}

static int
take_on_disconnect(const json_t *root, bool *ret_keep_running, struct kg_error *err)
{
    const char *text;
    if (take_string(root, "on_disconnect", &text, err) < 0)
        return -1;
    *ret_keep_running = text && strcmp(text, "continue") == 0;
    if (text && !*ret_keep_running && strcmp(text, "interrupt") != 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "on_disconnect must be \"interrupt\" or \"continue\"");
    return 0;
}

int
execute_body_parse(const struct api_context *context, const json_t *root, struct execute_body *ret,
                   struct kg_error *err)
{
    static const char *const names[] = {
        "code", "session_id",  "kernel",    "language", "timeout", "variables", "on_disconnect",
        "env",  "allow_stdin", "savepoint", "branch",   "tools",   NULL};
    *ret = (struct execute_body){.tools = member(root, "tools")};
    if (check_names(root, names, err) < 0 || take_code(context, root, &ret->code, err) < 0 ||
        take_string(root, "session_id", &ret->session_id, err) < 0 ||
        take_spec(context, root, &ret->spec, err) < 0 ||
        take_timeout(context, root, &ret->timeout_ms, err) < 0 ||
        take_object(root, "variables", MAX_VARIABLES, &ret->variables, err) < 0 ||
        take_env(root, &ret->env, err) < 0 ||
        take_on_disconnect(root, &ret->keep_running, err) < 0 ||
        take_string(root, "branch", &ret->branch, err) < 0 ||
        take_flag(root, "savepoint", &ret->savepoint, err) < 0 ||
        take_flag(root, "allow_stdin", &ret->allow_stdin, err) < 0)
        return -1;
    return 0;
}

static int
take_kernel_of_session(const struct api_context *context, const json_t *root,
                       const struct kernelspec **ret_spec, const char **ret_branch,
                       struct kg_error *err)
{
    const char *kernel;
    *ret_spec = NULL;
    if (take_string(root, "kernel", &kernel, err) < 0 ||
        take_string(root, "branch", ret_branch, err) < 0)
        return -1;
    if (kernel && *ret_branch)
        return kg_error_set(err, KG_INVALID, 0, "kernel and branch: give one of them");
    if (kernel)
        *ret_spec = kernelspecs_find(context->face->specs, kernel, err);
    return kernel && !*ret_spec ? -1 : 0;
}

static int
take_count(const json_t *root, const char *name, int64_t fallback, int64_t max, int64_t *ret,
           struct kg_error *err)
{
    const json_t *value = member(root, name);
    *ret = value ? json_integer_value(value) : fallback;
    if (value && (!json_is_integer(value) || *ret < 0 || *ret > max))
        return kg_error_set(err, KG_INVALID, 0, "%s must be an integer from 0 to %lld", name,
                            (long long)max);
    return 0;
}

static int64_t
count_characters(const char *text)
{
    int64_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

int
question_body_parse(const struct api_context *context, const json_t *root,
                    struct question_body *ret, struct kg_error *err)
{
    static const char *const names[] = {"code",   "cursor_pos", "detail_level",
                                        "kernel", "branch",     NULL};
    *ret = (struct question_body){0};
    if (check_names(root, names, err) < 0 || take_code(context, root, &ret->code, err) < 0)
        return -1;
    int64_t end = count_characters(ret->code);
    if (take_count(root, "cursor_pos", end, end, &ret->cursor_pos, err) < 0 ||
        take_count(root, "detail_level", 0, 1, &ret->detail_level, err) < 0)
        return -1;
    return take_kernel_of_session(context, root, &ret->spec, &ret->branch, err);
}

int
savepoint_body_parse(const struct api_context *context, const json_t *root,
                     struct savepoint_body *ret, struct kg_error *err)
{
    static const char *const names[] = {"name", "files", "kernel", "branch", NULL};
    *ret = (struct savepoint_body){0};
    if (check_names(root, names, err) < 0 || take_string(root, "name", &ret->name, err) < 0 ||
        take_flag(root, "files", &ret->files, err) < 0)
        return -1;
    return take_kernel_of_session(context, root, &ret->spec, &ret->branch, err);
}

int
branch_body_parse(const struct api_context *context, const json_t *root, struct savepoint_body *ret,
                  struct kg_error *err)
{
    static const char *const names[] = {"name", "from", "kernel", "branch", NULL};
    *ret = (struct savepoint_body){0};
    if (check_names(root, names, err) < 0 || take_string(root, "name", &ret->name, err) < 0 ||
        take_string(root, "from", &ret->from, err) < 0 ||
        take_kernel_of_session(context, root, &ret->spec, &ret->branch, err) < 0)
        return -1;
    if (!ret->name)
        return kg_error_set(err, KG_INVALID, 0, "name is missing: a name for the branch");
    if (ret->from && (ret->branch || ret->spec))
        return kg_error_set(err, KG_INVALID, 0,
                            "from: a savepoint has its kernel; leave kernel and branch out");
    return 0;
}

int
empty_body_parse(const json_t *root, struct kg_error *err)
{
    static const char *const names[] = {NULL};
    return check_names(root, names, err);
}

int
tool_results_body_parse(const json_t *root, struct tool_results_body *ret, struct kg_error *err)
{
    static const char *const names[] = {"results", "wait", NULL};
    *ret = (struct tool_results_body){.results = member(root, "results")};
    if (check_names(root, names, err) < 0 || take_flag(root, "wait", &ret->wait, err) < 0)
        return -1;
    if (!ret->results)
        return kg_error_set(err, KG_INVALID, 0,
                            "results is missing: a list of {\"call_id\", \"result\" or \"error\"}");
    return 0;
}

int
execution_input_body_parse(const json_t *root, const char **ret, struct kg_error *err)
{
    static const char *const names[] = {"value", NULL};
    if (check_names(root, names, err) < 0 || take_string(root, "value", ret, err) < 0)
        return -1;
    if (!*ret)
        return kg_error_set(err, KG_INVALID, 0, "value is missing: a string, without the newline");
    if (strlen(*ret) > MAX_INPUT_BYTES)
        return kg_error_set(err, KG_INVALID, 0, "value is %zu bytes; the limit is %d", strlen(*ret),
                            MAX_INPUT_BYTES);
    return 0;
}

// Of a session: 0 if it is missing.
static int
take_seconds(const json_t *root, const char *name, int64_t max, int64_t *ret_s,
             struct kg_error *err)
{
    const json_t *value = member(root, name);
    *ret_s = 0;
    if (!value)
        return 0;
    double seconds = json_number_value(value);
    if (!json_is_number(value) || !(seconds >= 1) || seconds > (double)max)
        return kg_error_set(err, KG_INVALID, 0, "%s must be 1 to %lld seconds", name,
                            (long long)max);
    *ret_s = (int64_t)seconds;
    return 0;
}

// What a session is given, or later changed to.
static int
take_change_of_session(const struct api_context *context, const json_t *root,
                       struct session_change *ret, struct kg_error *err)
{
    int64_t max_lifetime_s = context->face->max_lifetime_s;
    *ret = (struct session_change){.metadata = member(root, "metadata")};
    if (take_seconds(root, "idle_timeout", MAX_SESSION_S, &ret->idle_timeout_s, err) < 0 ||
        take_seconds(root, "max_lifetime", max_lifetime_s ? max_lifetime_s : MAX_SESSION_S,
                     &ret->max_lifetime_s, err) < 0)
        return -1;
    return ret->metadata ? session_metadata_check(ret->metadata, err) : 0;
}

int
session_patch_body_parse(const struct api_context *context, const json_t *root,
                         struct session_change *ret, struct kg_error *err)
{
    static const char *const names[] = {"metadata", "idle_timeout", "max_lifetime", NULL};
    if (check_names(root, names, err) < 0)
        return -1;
    return take_change_of_session(context, root, ret, err);
}

static int
take_scope(const json_t *root, int *ret, struct kg_error *err)
{
    const json_t *names = member(root, "scope");
    size_t i;
    json_t *name;
    *ret = 0;
    json_array_foreach(names, i, name) {
        int scope = json_is_string(name) ? http_scope_find(json_string_value(name)) : 0;
        if (!scope) {
            *ret = 0;
            break;
        }
        *ret |= scope;
    }
    if (!*ret)
        return kg_error_set(err, KG_INVALID, 0,
                            "scope must be a list of read, run, files:read, files, terminal or "
                            "ports");
    return 0;
}

int
token_body_parse(const json_t *root, struct token_body *ret, struct kg_error *err)
{
    static const char *const names[] = {"scope", "expires_in", NULL};
    *ret = (struct token_body){0};
    if (check_names(root, names, err) < 0 || take_scope(root, &ret->scopes, err) < 0 ||
        take_seconds(root, "expires_in", SESSION_TOKEN_MAX_S, &ret->life_s, err) < 0)
        return -1;
    if (!ret->life_s)
        ret->life_s = TOKEN_LIFE_S;
    return 0;
}

static int
add_download(struct session_body *body, const json_t *url, const json_t *id, struct kg_error *err)
{
    if (!json_is_string(url) || (id && !json_is_string(id)))
        return kg_error_set(err, KG_INVALID, 0,
                            "file_urls must be a list of URLs, files one of {\"url\", \"id\"}");
    if (body->n_downloads == SESSION_DOWNLOADS_MAX)
        return kg_error_set(err, KG_INVALID, 0, "file_urls and files: more than %d files",
                            SESSION_DOWNLOADS_MAX);
    body->downloads[body->n_downloads++] =
        (struct session_download){.url = json_string_value(url), .id = json_string_value(id)};
    return 0;
}

// `file_urls` and `files` are two names of one field.
static int
take_downloads(const json_t *root, struct session_body *ret, struct kg_error *err)
{
    static const char *const names[] = {"url", "id", NULL};
    const json_t *urls = member(root, "file_urls");
    const json_t *files = member(root, "files");
    size_t i;
    json_t *item;
    if ((urls && !json_is_array(urls)) || (files && !json_is_array(files)))
        return add_download(ret, NULL, NULL, err);
    json_array_foreach(urls, i, item) {
        if (add_download(ret, item, NULL, err) < 0)
            return -1;
    }
    json_array_foreach(files, i, item) {
        if ((json_is_object(item) && check_names(item, names, err) < 0) ||
            add_download(ret, json_object_get(item, "url"), member(item, "id"), err) < 0)
            return -1;
    }
    return 0;
}

int
session_body_parse(const struct api_context *context, const json_t *root, struct session_body *ret,
                   struct kg_error *err)
{
    static const char *const names[] = {
        "session_id",   "kernel",   "language",  "env",   "idle_timeout",
        "max_lifetime", "metadata", "file_urls", "files", NULL};
    *ret = (struct session_body){0};
    if (check_names(root, names, err) < 0 ||
        take_string(root, "session_id", &ret->session_id, err) < 0 ||
        take_spec(context, root, &ret->spec, err) < 0 || take_env(root, &ret->env, err) < 0 ||
        take_change_of_session(context, root, &ret->own, err) < 0 ||
        take_downloads(root, ret, err) < 0)
        return -1;
    return 0;
}

static int
take_command(const json_t *root, const char **ret, struct kg_error *err)
{
    if (take_string(root, "command", ret, err) < 0)
        return -1;
    size_t len = *ret ? strlen(*ret) : 0;
    if (len > SANDBOX_COMMAND_MAX)
        return kg_error_set(err, KG_CODE_TOO_LARGE, 0,
                            "command is %zu bytes; the limit is %d (write it to a file)", len,
                            SANDBOX_COMMAND_MAX);
    return 0;
}

static int
take_cwd(const json_t *root, const char **ret, struct kg_error *err)
{
    if (take_string(root, "cwd", ret, err) < 0)
        return -1;
    if (*ret && strlen(*ret) > MAX_CWD_BYTES)
        return kg_error_set(err, KG_INVALID_PATH, 0, "cwd is longer than %d bytes", MAX_CWD_BYTES);
    return 0;
}

int
command_id_parse(const char *id, struct kg_error *err)
{
    if (sandbox_command_id_valid(id) && *id != '_')
        return 0;
    return kg_error_set(err, KG_INVALID, 0,
                        "id must be 1 to %d characters: a-z, 0-9 or _, the first not _",
                        SANDBOX_COMMAND_ID_MAX);
}

static int
take_command_id(const json_t *root, const char **ret, struct kg_error *err)
{
    if (take_string(root, "id", ret, err) < 0)
        return -1;
    return *ret ? command_id_parse(*ret, err) : 0;
}

static int
take_side(const json_t *size, const char *name, int *ret, struct kg_error *err)
{
    const json_t *value = json_object_get(size, name);
    json_int_t side = json_integer_value(value);
    if (!json_is_integer(value) || side < 1 || side > SANDBOX_TERMINAL_SIDE_MAX)
        return kg_error_set(err, KG_INVALID, 0, "%s must be a number from 1 to %d", name,
                            SANDBOX_TERMINAL_SIDE_MAX);
    *ret = (int)side;
    return 0;
}

int
terminal_size_parse(const json_t *size, int *ret_cols, int *ret_rows, struct kg_error *err)
{
    static const char *const names[] = {"cols", "rows", NULL};
    if (check_names(size, names, err) < 0 || take_side(size, "cols", ret_cols, err) < 0)
        return -1;
    return take_side(size, "rows", ret_rows, err);
}

// true: of the usual size.
static int
take_terminal(const json_t *root, struct command_body *body, struct kg_error *err)
{
    const json_t *value = member(root, "terminal");
    if (json_is_true(value)) {
        body->cols = TERMINAL_COLS;
        body->rows = TERMINAL_ROWS;
    }
    if (!value || json_is_boolean(value))
        return 0;
    if (!json_is_object(value))
        return kg_error_set(err, KG_INVALID, 0,
                            "terminal must be true, or an object with cols and rows");
    return terminal_size_parse(value, &body->cols, &body->rows, err);
}

static int
take_keep(const json_t *root, struct command_body *body, struct kg_error *err)
{
    const char *text;
    if (take_string(root, "on_disconnect", &text, err) < 0 ||
        take_flag(root, "background", &body->background, err) < 0)
        return -1;
    bool goes_on = text && strcmp(text, "continue") == 0;
    body->keep = body->background || goes_on;
    if (text && !goes_on && strcmp(text, "kill") != 0)
        return kg_error_set(err, KG_INVALID, 0, "on_disconnect must be \"kill\" or \"continue\"");
    return 0;
}

// A command that goes on without its client has no bound but its session's, unless it is given one.
static int
take_command_timeout(const struct api_context *context, const json_t *root,
                     struct command_body *body, struct kg_error *err)
{
    const json_t *value = member(root, "timeout");
    if (!body->keep)
        return take_timeout(context, root, &body->timeout_ms, err);
    double seconds = json_number_value(value);
    if (value && (!json_is_number(value) || !(seconds > 0) || seconds > MAX_KEPT_TIMEOUT_S))
        return kg_error_set(err, KG_INVALID, 0, "timeout must be above 0 and at most %d seconds",
                            MAX_KEPT_TIMEOUT_S);
    body->timeout_ms = value ? (int64_t)ceil(seconds * 1000) : 0;
    return 0;
}

static int
check_command(const struct command_body *body, struct kg_error *err)
{
    if (!body->command && !body->cols)
        return kg_error_set(err, KG_INVALID, 0,
                            "command is missing: a string for the sandbox's shell");
    if (body->with_stdin && body->cols)
        return kg_error_set(err, KG_INVALID, 0,
                            "stdin and terminal exclude each other: a terminal has input");
    return 0;
}

int
command_body_parse(const struct api_context *context, const json_t *root, struct command_body *ret,
                   struct kg_error *err)
{
    static const char *const names[] = {"command",       "cwd",        "env",   "timeout",  "id",
                                        "on_disconnect", "background", "stdin", "terminal", NULL};
    *ret = (struct command_body){0};
    if (check_names(root, names, err) < 0 || take_command(root, &ret->command, err) < 0 ||
        take_cwd(root, &ret->cwd, err) < 0 || take_env(root, &ret->env, err) < 0 ||
        take_command_id(root, &ret->id, err) < 0 || take_keep(root, ret, err) < 0 ||
        take_flag(root, "stdin", &ret->with_stdin, err) < 0 || take_terminal(root, ret, err) < 0 ||
        take_command_timeout(context, root, ret, err) < 0)
        return -1;
    ret->has_id = ret->id || ret->keep || ret->with_stdin || ret->cols;
    return check_command(ret, err);
}

int
signal_body_parse(const json_t *root, const char **ret, struct kg_error *err)
{
    static const char *const names[] = {"signal", NULL};
    if (check_names(root, names, err) < 0 || take_string(root, "signal", ret, err) < 0)
        return -1;
    if (!*ret)
        return kg_error_set(err, KG_INVALID, 0, "signal is missing: \"INT\", say");
    if (strncmp(*ret, "SIG", 3) == 0)
        *ret += 3;
    return 0;
}

// A number, as an entry's `mode` has it, or text in octal.
static int
take_mode(const json_t *root, int *ret, struct kg_error *err)
{
    const json_t *value = member(root, "mode");
    const char *text = json_string_value(value);
    json_int_t mode = json_is_integer(value) ? json_integer_value(value) : -1;
    if (text && strlen(text) >= 3 && strlen(text) <= 4 && strspn(text, "01234567") == strlen(text))
        mode = strtol(text, NULL, 8);
    if (mode < 0 || mode > SESSION_MODE_MAX)
        return kg_error_set(err, KG_INVALID, 0,
                            "mode must be octal digits, \"644\" say, at most \"777\", or that "
                            "number");
    *ret = (int)mode;
    return 0;
}

int
file_action_body_parse(const json_t *root, struct file_action_body *ret, struct kg_error *err)
{
    static const struct {
        const char *name;
        const char *fields[4];
    } actions[] = {
        [FILE_MKDIR] = {"mkdir", {"action"}},
        [FILE_MOVE] = {"move", {"action", "to", "overwrite"}},
        [FILE_COPY] = {"copy", {"action", "to", "overwrite"}},
        [FILE_CHMOD] = {"chmod", {"action", "mode"}},
    };
    static const char *const names[] = {"action", "to", "overwrite", "mode", NULL};
    const char *action;
    size_t i = 0;
    *ret = (struct file_action_body){0};
    if (check_names(root, names, err) < 0 || take_string(root, "action", &action, err) < 0)
        return -1;
    while (i < KG_ARRAY_LEN(actions) && (!action || strcmp(actions[i].name, action) != 0))
        i++;
    if (i == KG_ARRAY_LEN(actions))
        return kg_error_set(err, KG_INVALID, 0, "action must be mkdir, move, copy or chmod");
    ret->action = (enum file_action)i;
    if (check_names(root, actions[i].fields, err) < 0 ||
        take_string(root, "to", &ret->to, err) < 0 ||
        take_flag(root, "overwrite", &ret->overwrite, err) < 0)
        return -1;
    if (ret->action == FILE_CHMOD)
        return take_mode(root, &ret->mode, err);
    if (ret->action != FILE_MKDIR && !ret->to)
        return kg_error_set(err, KG_INVALID, 0, "to is missing: the new path");
    return 0;
}

int
port_body_parse(const json_t *root, bool *ret_has_public, bool *ret_public, struct kg_error *err)
{
    static const char *const names[] = {"public", NULL};
    *ret_has_public = json_is_boolean(json_object_get(root, "public"));
    *ret_public = false;
    if (check_names(root, names, err) < 0)
        return -1;
    return take_flag(root, "public", ret_public, err);
}

int
packages_body_parse(const json_t *root, const json_t **ret, struct kg_error *err)
{
    static const char *const names[] = {"packages", NULL};
    if (check_names(root, names, err) < 0)
        return -1;
    *ret = json_object_get(root, "packages");
    return session_packages_check(*ret, err);
}

// ---- Accounts -------------------------------------------------------------------------------

int
key_body_parse(const json_t *root, struct account_body *ret, struct kg_error *err)
{
    static const char *const names[] = {"name", NULL};
    *ret = (struct account_body){0};
    return check_names(root, names, err) < 0 ? -1 : take_string(root, "name", &ret->name, err);
}

static int
take_change(const json_t *root, const char *name, bool *ret, const bool **ret_given,
            struct kg_error *err)
{
    if (take_flag(root, name, ret, err) < 0)
        return -1;
    *ret_given = member(root, name) ? ret : NULL;
    return 0;
}

// The bounds are checked where the limits are written, too; there after a user was made.
static int
take_limits(const json_t *root, struct account_body *ret, struct kg_error *err)
{
    const json_t *sessions = member(root, "max_sessions");
    const json_t *requests = member(root, "max_requests_per_second");
    ret->max_sessions = json_integer_value(sessions);
    ret->max_requests_per_second = json_number_value(requests);
    if (sessions && (!json_is_integer(sessions) || ret->max_sessions < 0 ||
                     ret->max_sessions > ACCOUNT_SESSIONS_MAX))
        return kg_error_set(err, KG_INVALID, 0, "max_sessions must be a whole number, 0 to %d",
                            ACCOUNT_SESSIONS_MAX);
    if (requests && (!json_is_number(requests) || !(ret->max_requests_per_second >= 0) ||
                     ret->max_requests_per_second > ACCOUNT_REQUESTS_MAX))
        return kg_error_set(err, KG_INVALID, 0, "max_requests_per_second must be 0 to %d",
                            ACCOUNT_REQUESTS_MAX);
    const json_t *memory = member(root, "max_memory_mb");
    ret->max_memory_mb = json_integer_value(memory);
    if (memory && (!json_is_integer(memory) ||
                   (ret->max_memory_mb != 0 && (ret->max_memory_mb < ACCOUNT_MEMORY_MIN_MB ||
                                                ret->max_memory_mb > ACCOUNT_MEMORY_MAX_MB))))
        return kg_error_set(err, KG_INVALID, 0,
                            "max_memory_mb must be a whole number, 0 or %d to %d",
                            ACCOUNT_MEMORY_MIN_MB, ACCOUNT_MEMORY_MAX_MB);
    ret->change.max_memory_mb = memory ? &ret->max_memory_mb : NULL;
    ret->change.max_sessions = sessions ? &ret->max_sessions : NULL;
    ret->change.max_requests_per_second = requests ? &ret->max_requests_per_second : NULL;
    return 0;
}

int
user_body_parse(const json_t *root, struct account_body *ret, struct kg_error *err)
{
    static const char *const names[] = {
        "name", "administrator", "max_sessions", "max_requests_per_second", "max_memory_mb", NULL};
    *ret = (struct account_body){0};
    if (check_names(root, names, err) < 0 || take_string(root, "name", &ret->name, err) < 0 ||
        take_change(root, "administrator", &ret->administrator, &ret->change.administrator, err) <
            0)
        return -1;
    return take_limits(root, ret, err);
}

int
user_change_body_parse(const json_t *root, struct account_body *ret, struct kg_error *err)
{
    static const char *const names[] = {"disabled",      "administrator",
                                        "max_sessions",  "max_requests_per_second",
                                        "max_memory_mb", NULL};
    *ret = (struct account_body){0};
    if (check_names(root, names, err) < 0 ||
        take_change(root, "disabled", &ret->disabled, &ret->change.disabled, err) < 0 ||
        take_change(root, "administrator", &ret->administrator, &ret->change.administrator, err) <
            0)
        return -1;
    return take_limits(root, ret, err);
}

int
password_body_parse(const json_t *root, const char *const *required, const char *const *optional,
                    struct password_body *ret, struct kg_error *err)
{
    const char *names[8];
    size_t n = 0;
    for (const char *const *name = required; *name; name++)
        names[n++] = *name;
    for (const char *const *name = optional; *name; name++)
        names[n++] = *name;
    names[n] = NULL;
    if (check_names(root, names, err) < 0 || take_string(root, "name", &ret->name, err) < 0 ||
        take_string(root, "password", &ret->password, err) < 0 ||
        take_string(root, "old_password", &ret->old_password, err) < 0 ||
        take_string(root, "new_password", &ret->new_password, err) < 0 ||
        take_string(root, "token", &ret->token, err) < 0)
        return -1;
    for (const char *const *name = required; *name; name++) {
        if (!member(root, *name))
            return kg_error_set(err, KG_INVALID, 0, "%s is missing", *name);
    }
    return 0;
}
