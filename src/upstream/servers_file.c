// SPDX-License-Identifier: Apache-2.0
#include "servers_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FILE_MAX_BYTES = 1 << 20,
    FILE_MAX_DEPTH = 16,
    TIMEOUT_MAX_S = 86400,
    SECRET_MIN = 6, // shorter ones are in any text
};

// ---- Lists of texts -------------------------------------------------------------------------

static void
texts_free(char **texts)
{
    for (char **text = texts; text && *text; text++)
        free(*text);
    free(texts);
}

static void
texts_add(char ***texts, char *text)
{
    size_t n = 0;
    while (*texts && (*texts)[n])
        n++;
    *texts = kg_realloc(*texts, (n + 2) * sizeof **texts);
    (*texts)[n] = text;
    (*texts)[n + 1] = NULL;
}

// ---- One field ------------------------------------------------------------------------------

// Whose field is read, for messages.
struct field {
    struct server_spec *server;
    const char *name;
    const json_t *value;
    const char *(*get_env)(const char *name);
};

static int KG_PRINTF(3, 4)
    field_fail(const struct field *field, struct kg_error *err, const char *fmt, ...)
{
    char what[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return kg_error_set(err, KG_INVALID, 0, "server \"%s\": %s: %s", field->server->name,
                        field->name, what);
}

static int
field_text(const struct field *field, char **ret, struct kg_error *err)
{
    const char *text = json_string_value(field->value);
    if (!text || !*text)
        return field_fail(field, err, "must be a string that is not empty");
    *ret = kg_strdup(text);
    return 0;
}

static int
field_texts(const struct field *field, char ***ret, struct kg_error *err)
{
    size_t i;
    const json_t *item;
    if (!json_is_array(field->value))
        return field_fail(field, err, "must be a list of strings");
    if (!*ret)
        *ret = kg_calloc(1, sizeof **ret);
    json_array_foreach((json_t *)(uintptr_t)field->value, i, item) {
        if (!json_is_string(item))
            return field_fail(field, err, "item %zu must be a string", i);
        texts_add(ret, kg_strdup(json_string_value(item)));
    }
    return 0;
}

static int
field_flag(const struct field *field, bool *ret, struct kg_error *err)
{
    if (!json_is_boolean(field->value))
        return field_fail(field, err, "must be true or false");
    *ret = json_is_true(field->value);
    return 0;
}

// ---- Values with ${VARIABLE} ----------------------------------------------------------------

// Whether that is what credentials are called.
static bool
names_secret(const char *name)
{
    static const char *const words[] = {"auth",  "token", "key",   "secret",
                                        "passw", "cred",  "cookie"};
    for (size_t i = 0; i < KG_ARRAY_LEN(words); i++) {
        if (strcasestr(name, words[i]))
            return true;
    }
    return false;
}

static void
keep_value(struct server_spec *server, const char *name, const char *text)
{
    if (strlen(text) < SECRET_MIN)
        return;
    texts_add(&server->values, kg_strdup(text));
    if (names_secret(name))
        texts_add(&server->secrets, kg_strdup(text));
}

// Of the member `key`, whose value is `text`.
static int
expand(const struct field *field, const char *key, const char *text, struct buf *ret,
       struct kg_error *err)
{
    for (const char *at; (at = strstr(text, "${"));) {
        size_t len = strcspn(at + 2, "}");
        KG_AUTO_FREE char *name = kg_strndup(at + 2, len);
        if (at[2 + len] != '}' || !env_name_valid(name))
            return field_fail(field, err, "\"%.40s\": ${ must be followed by a name and }", key);
        const char *value = field->get_env(name);
        if (!value)
            return field_fail(field, err,
                              "\"%.40s\": the gateway's environment has no variable %.40s: set it "
                              "where the gateway is started",
                              key, name);
        keep_value(field->server, name, value);
        buf_append(ret, text, (size_t)(at - text));
        buf_append_str(ret, value);
        text = at + 2 + len + 1;
    }
    buf_append_str(ret, text);
    return 0;
}

static bool
has_control(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    }
    return false;
}

static bool
header_name_is_valid(const char *name)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (const char *c = name; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || strchr(others, *c);
        if (!plain)
            return false;
    }
    return *name != '\0';
}

// An object of strings: "headers", or "env".
static int
field_members(const struct field *field, bool headers, char ***ret, struct kg_error *err)
{
    const char *key;
    json_t *member;
    if (!json_is_object(field->value))
        return field_fail(field, err, "must be an object of strings");
    json_object_foreach((json_t *)(uintptr_t)field->value, key, member) {
        const char *text = json_string_value(member);
        KG_AUTO_BUF value = {0};
        if (!text)
            return field_fail(field, err, "\"%.40s\" must be a string", key);
        if (headers ? !header_name_is_valid(key) : !env_name_valid(key))
            return field_fail(field, err, "\"%.40s\" is not a valid name", key);
        if (expand(field, key, text, &value, err) < 0)
            return -1;
        if (headers && has_control(value.data))
            return field_fail(field, err, "\"%.40s\" has a control character", key);
        keep_value(field->server, key, value.data);
        const char *space = headers ? strchr(value.data, ' ') : NULL;
        if (space)
            keep_value(field->server, key, space + 1); // without "Bearer"
        texts_add(ret, kg_asprintf(headers ? "%s: %s" : "%s=%s", key, value.data));
    }
    return 0;
}

// ---- One server -----------------------------------------------------------------------------

static int
take_url(const struct field *field, struct kg_error *err)
{
    if (field_text(field, &field->server->url, err) < 0)
        return -1;
    const char *url = field->server->url;
    if ((strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) || has_control(url))
        return field_fail(field, err, "must begin with http:// or https://");
    return 0;
}

// Clients write it; what it says is known from the other fields.
static int
take_type(const struct field *field, struct kg_error *err)
{
    static const char *const known[] = {"stdio", "http", "streamable-http", "streamableHttp"};
    const char *type = json_string_value(field->value);
    for (size_t i = 0; type && i < KG_ARRAY_LEN(known); i++) {
        if (strcmp(type, known[i]) == 0)
            return 0;
    }
    return field_fail(field, err,
                      "must be stdio or http; the transport \"sse\" of 2024 is not supported");
}

static int
take_timeout(const struct field *field, struct kg_error *err)
{
    double seconds = json_number_value(field->value);
    if (!json_is_number(field->value) || !(seconds >= 0.001) || seconds > TIMEOUT_MAX_S)
        return field_fail(field, err, "must be a number of seconds, at most %d", TIMEOUT_MAX_S);
    field->server->timeout_ms = (int64_t)(seconds * 1000);
    return 0;
}

static int
take_command(const struct field *field, struct kg_error *err)
{
    KG_AUTO_FREE char *command = NULL;
    if (field_text(field, &command, err) < 0)
        return -1;
    texts_add(&field->server->argv, KG_STEAL(command)); // it is read before "args"
    return 0;
}

static int
take_field(const struct field *field, struct kg_error *err)
{
    struct server_spec *server = field->server;
    if (strcmp(field->name, "url") == 0)
        return take_url(field, err);
    if (strcmp(field->name, "headers") == 0)
        return field_members(field, true, &server->headers, err);
    if (strcmp(field->name, "args") == 0)
        return field_texts(field, &server->argv, err);
    if (strcmp(field->name, "env") == 0)
        return field_members(field, false, &server->env, err);
    if (strcmp(field->name, "allow") == 0)
        return field_texts(field, &server->allow, err);
    if (strcmp(field->name, "deny") == 0)
        return field_texts(field, &server->deny, err);
    if (strcmp(field->name, "owners") == 0)
        return field_texts(field, &server->owners, err);
    if (strcmp(field->name, "timeout") == 0)
        return take_timeout(field, err);
    if (strcmp(field->name, "per_session") == 0)
        return field_flag(field, &server->per_session, err);
    if (strcmp(field->name, "type") == 0)
        return take_type(field, err);
    return field_fail(field, err,
                      "there is no such field; a server has url and headers, or command, args and "
                      "env, and allow, deny, owners, timeout, per_session");
}

static bool
is_reserved(const char *name)
{
    static const char *const names[] = {"aio", "call", "find"}; // of the module that code imports
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

static int
take_name(struct server_spec *server, const char *name, struct kg_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t len = strlen(name);
    if (len < 1 || len > SERVER_NAME_MAX || !strchr(letters, name[0]) || strspn(name, all) != len ||
        is_reserved(name))
        return kg_error_set(err, KG_INVALID, 0,
                            "\"%.40s\" cannot be a server's name: it is what code writes after "
                            "`tools.`, a letter and up to %d letters, digits, _ and -, but not "
                            "aio, call or find",
                            name, SERVER_NAME_MAX - 1);
    memcpy(server->name, name, len + 1);
    return 0;
}

static int
take_server(struct server_spec *server, const char *name, const json_t *value,
            const char *(*get_env)(const char *name), struct kg_error *err)
{
    struct field field = {.server = server, .get_env = get_env};
    json_t *member;
    if (take_name(server, name, err) < 0)
        return -1;
    if (!json_is_object(value))
        return kg_error_set(err, KG_INVALID, 0, "server \"%s\": must be an object", name);
    bool has_url = json_object_get(value, "url");
    field.name = "command";
    field.value = json_object_get(value, "command");
    if (has_url == (field.value != NULL))
        return field_fail(&field, err, "a server has either url or command");
    if (field.value && take_command(&field, err) < 0)
        return -1;
    json_object_foreach((json_t *)(uintptr_t)value, field.name, member) {
        bool other = has_url ? strcmp(field.name, "args") == 0 || strcmp(field.name, "env") == 0
                             : strcmp(field.name, "headers") == 0;
        field.value = member;
        if (other)
            return field_fail(&field, err, "belongs to a server with %s",
                              has_url ? "command" : "url");
        if (strcmp(field.name, "command") != 0 && take_field(&field, err) < 0)
            return -1;
    }
    return 0;
}

// ---- The file -------------------------------------------------------------------------------

struct servers_file *
servers_file_parse(const char *text, size_t len, const char *(*get_env)(const char *name),
                   struct kg_error *err)
{
    json_error_t error = {0};
    json_auto_t *root = NULL;
    const char *key;
    json_t *value;
    if (json_weigh(text, len).depth <= FILE_MAX_DEPTH)
        root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    const json_t *servers = json_object_get(root, "mcpServers");
    if (!root) {
        (void)kg_error_set(err, KG_INVALID, 0, "it is not valid JSON: line %d: %.100s", error.line,
                           error.text[0] ? error.text : "it nests too deeply");
        return NULL;
    }
    if (!json_is_object(servers) || json_object_size(root) != 1) {
        (void)kg_error_set(err, KG_INVALID, 0,
                           "it must be {\"mcpServers\": {NAME: {…}}}, with nothing else beside");
        return NULL;
    }
    if (json_object_size(servers) > SERVERS_MAX) {
        (void)kg_error_set(err, KG_INVALID, 0, "there are more than %d servers", SERVERS_MAX);
        return NULL;
    }
    KG_AUTO(servers_file) file = KG_NEW(struct servers_file);
    file->servers = kg_calloc(json_object_size(servers) + 1, sizeof file->servers[0]);
    json_object_foreach((json_t *)(uintptr_t)servers, key, value) {
        if (take_server(&file->servers[file->n++], key, value, get_env, err) < 0)
            return NULL;
    }
    return KG_STEAL(file);
}

static const char *
own_env(const char *name)
{
    return getenv(name);
}

static void
warn_of_readers(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && (st.st_mode & (S_IRGRP | S_IROTH)))
        log_warning("others may read the file of MCP servers, which can have credentials in it: "
                    "chmod 600",
                    LOG_STR("file", path));
}

struct servers_file *
servers_file_load(const char *path, struct kg_error *err)
{
    struct kg_error why = {0};
    KG_AUTO_BUF text = {0};
    if (file_read(path, FILE_MAX_BYTES, &text, &why) < 0) {
        (void)kg_error_set(err, KG_INVALID, 0, "setting mcp-servers: %s", why.message);
        return NULL;
    }
    struct servers_file *file =
        servers_file_parse(text.data ? text.data : "", text.len, own_env, &why);
    if (text.data)
        explicit_bzero(text.data, text.len);
    if (file)
        warn_of_readers(path);
    else
        (void)kg_error_set(err, KG_INVALID, 0, "setting mcp-servers: %s", why.message);
    return file;
}

void
servers_file_free(struct servers_file *file)
{
    for (size_t i = 0; file && i < file->n; i++) {
        struct server_spec *server = &file->servers[i];
        free(server->url);
        char **const lists[] = {server->headers, server->argv,   server->env,    server->allow,
                                server->deny,    server->owners, server->values, server->secrets};
        for (size_t k = 0; k < KG_ARRAY_LEN(lists); k++)
            texts_free(lists[k]);
    }
    if (file)
        free(file->servers);
    free(file);
}

static bool
pattern_fits(const char *pattern, const char *name)
{
    const char *star = NULL;
    const char *retry = NULL; // where the name goes on after what the last * has taken
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++retry;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

bool
server_pattern_fits(const char *const *patterns, const char *name)
{
    for (; patterns && *patterns; patterns++) {
        if (pattern_fits(*patterns, name))
            return true;
    }
    return false;
}

static void
hide_texts(char **hidden, char *text, size_t len)
{
    for (; hidden && *hidden; hidden++) {
        size_t n = strlen(*hidden);
        char *end = text + len;
        for (char *at = text; (at = memmem(at, (size_t)(end - at), *hidden, n)); at += n)
            memset(at, '*', n);
    }
}

void
server_hide_values(const struct server_spec *server, char *text)
{
    hide_texts(server->values, text, strlen(text));
}

bool
server_says_secret(const struct server_spec *server, const char *text, size_t len)
{
    for (char **secret = server->secrets; secret && *secret; secret++) {
        if (memmem(text, len, *secret, strlen(*secret)))
            return true;
    }
    return false;
}

void
server_hide_secrets(const struct server_spec *server, char *text, size_t len)
{
    hide_texts(server->secrets, text, len);
}
