// SPDX-License-Identifier: Apache-2.0
// Bodies of requests, as far as the JSON reader of http lets them through. First byte: even for
// POST execute, odd for POST sessions, 255 for POST sessions/{id}/commands.
#include <assert.h>
#include <string.h>

#include "api_priv.h"
#include "sandbox.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_CODE_BYTES = 4096, MAX_TIMEOUT_MS = 3600 * 1000 };

static struct api_context *
context(void)
{
    static struct face_context face;
    static struct api_context made = {.face = &face};
    if (face.specs)
        return &made;
    static const char json[] = "{\"argv\":[\"python\"],\"language\":\"python\",\"metadata\":"
                               "{\"kernelgate\":{\"aliases\":[\"py\"]}}}";
    char dir[] = "/tmp/kg-fuzz-XXXXXX";
    char *made_dir = mkdtemp(dir);
    assert(made_dir);
    KG_AUTO_FREE char *folder = kg_asprintf("%s/python", dir);
    KG_AUTO_FREE char *path = kg_asprintf("%s/kernel.json", folder);
    int failed = dir_make(folder, 0700, NULL);
    failed += file_write_atomic(path, json, strlen(json), 0600, NULL);
    face = (struct face_context){
        .specs = kernelspecs_load(dir, NULL),
        .default_timeout_ms = 30 * 1000,
        .max_timeout_ms = MAX_TIMEOUT_MS,
        .max_code_bytes = MAX_CODE_BYTES,
    };
    failed += path_remove_tree(dir, NULL);
    assert(face.specs && failed == 0);
    face.default_spec = kernelspecs_at(face.specs, 0);
    return &made;
}

static void
check_env(const json_t *env)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)env, key, value) {
        assert(*key && !strchr(key, '=') && json_is_string(value));
    }
    assert(!env || json_is_object(env));
}

static void
check_error(const struct kg_error *err)
{
    assert(err->code == KG_INVALID || err->code == KG_UNKNOWN_KERNEL ||
           err->code == KG_CODE_TOO_LARGE || err->code == KG_INVALID_PATH);
    assert(err->message[0]);
}

static void
parse_execute(const json_t *root)
{
    struct kg_error err = {0};
    struct execute_body body;
    if (execute_body_parse(context(), root, &body, &err) < 0) {
        check_error(&err);
        return;
    }
    assert(body.code && strlen(body.code) <= MAX_CODE_BYTES && body.spec);
    assert(body.timeout_ms >= 1 && body.timeout_ms <= MAX_TIMEOUT_MS);
    assert(!body.variables || json_is_object(body.variables));
    check_env(body.env);
}

static void
parse_session(const json_t *root)
{
    struct kg_error err = {0};
    struct session_body body;
    if (session_body_parse(context(), root, &body, &err) < 0) {
        check_error(&err);
        return;
    }
    assert(body.spec && body.own.idle_timeout_s >= 0 && body.own.idle_timeout_s <= 31536000);
    assert(body.own.max_lifetime_s >= 0 && body.own.max_lifetime_s <= 31536000);
    assert(!body.own.metadata || json_object_size(body.own.metadata) <= 32);
    check_env(body.env);
}

static void
parse_command(const json_t *root)
{
    struct kg_error err = {0};
    struct command_body body;
    if (command_body_parse(context(), root, &body, &err) < 0) {
        check_error(&err);
        return;
    }
    assert(body.command && strlen(body.command) <= SANDBOX_COMMAND_MAX);
    assert(body.timeout_ms >= 1 && body.timeout_ms <= MAX_TIMEOUT_MS);
    check_env(body.env);
}

static void
parse_patch(const json_t *root)
{
    struct kg_error err = {0};
    struct session_change change;
    if (session_patch_body_parse(context(), root, &change, &err) < 0) {
        check_error(&err);
        return;
    }
    assert(change.idle_timeout_s >= 0 && change.idle_timeout_s <= 31536000);
    assert(change.max_lifetime_s >= 0 && change.max_lifetime_s <= 31536000);
    assert(!change.metadata || json_object_size(change.metadata) <= 32);
}

static void
parse_token(const json_t *root)
{
    struct kg_error err = {0};
    struct token_body body;
    if (token_body_parse(root, &body, &err) < 0) {
        check_error(&err);
        return;
    }
    assert(body.scopes && (body.scopes & ~HTTP_SCOPES) == 0);
    assert(body.life_s >= 1 && body.life_s <= 30 * 24 * 3600);
}

// What is looked up in the text is what the values say.
static void
check_text(const json_t *root, const char *text, size_t len)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (strchr(key, '\\')) // json_member() wants a name that is written as it is
            continue;
        size_t member_len;
        const char *member = json_member(text, len, key, &member_len);
        assert(member || memchr(text, '\\', len));
        KG_AUTO_FREE char *ascii = member ? json_ascii(member, member_len) : NULL;
        json_auto_t *again = member ? json_loads(ascii, JSON_DECODE_ANY, NULL) : NULL;
        assert(!member || json_equal(again, value));
    }
    (void)json_weigh(text, len);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (memchr(data + 1, '\0', size - 1)) // as http refuses it
        return 0;
    json_auto_t *root = json_loadb((const char *)data + 1, size - 1, JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        return 0;
    check_text(root, (const char *)data + 1, size - 1);
    if (data[0] % 2 == 0)
        parse_execute(root);
    else if (data[0] == 255)
        parse_command(root);
    else if (data[0] == 253)
        parse_patch(root);
    else if (data[0] == 251)
        parse_token(root);
    else
        parse_session(root);
    return 0;
}
