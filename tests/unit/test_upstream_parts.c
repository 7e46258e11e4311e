// SPDX-License-Identifier: Apache-2.0
// The operator's file, servers' messages, and what is offered of a list.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "message.h"
#include "offer.h"
#include "servers_file.h"
#include "test_upstream.h"

// ---- The file -------------------------------------------------------------------------------

static const char *
test_env(const char *name)
{
    return strcmp(name, "TOKEN") == 0 ? "secret-token" : NULL;
}

static struct servers_file *
parse(const char *text, struct kg_error *err)
{
    return servers_file_parse(text, strlen(text), test_env, err);
}

void
test_a_file(void **state)
{
    struct kg_error err = {0};
    (void)state;
    KG_AUTO(servers_file)
    file = parse(
        "{\"mcpServers\": {\"github\": {\"type\": \"http\", \"url\": \"https://a.example/mcp\", "
        "\"headers\": {\"Authorization\": \"Bearer ${TOKEN}\", \"X-A\": \"b\"}, "
        "\"allow\": [\"a*\"], \"deny\": [\"b\"], \"owners\": [\"alice\", \"*\"], "
        "\"timeout\": 1.5, \"per_session\": true}, "
        "\"my-time\": {\"args\": [\"-x\", \"y\"], \"command\": \"prog\", \"env\": {\"A\": "
        "\"x${TOKEN}y${TOKEN}\"}}}}",
        &err);
    assert_non_null(file);
    assert_int_equal(file->n, 2);
    const struct server_spec *first = &file->servers[0];
    assert_string_equal(first->name, "github");
    assert_string_equal(first->url, "https://a.example/mcp");
    assert_string_equal(first->headers[0], "Authorization: Bearer secret-token");
    assert_string_equal(first->headers[1], "X-A: b");
    assert_null(first->headers[2]);
    assert_string_equal(first->allow[0], "a*");
    assert_string_equal(first->deny[0], "b");
    assert_string_equal(first->owners[1], "*");
    assert_int_equal(first->timeout_ms, 1500);
    assert_true(first->per_session);
    assert_null(first->argv);
    const struct server_spec *second = &file->servers[1];
    assert_string_equal(second->argv[0], "prog");
    assert_string_equal(second->argv[2], "y");
    assert_null(second->argv[3]);
    assert_string_equal(second->env[0], "A=xsecret-tokenysecret-token");
    assert_null(second->url);
    assert_null(second->owners);
    assert_false(second->per_session);
}

#define SERVER(fields) "{\"mcpServers\": {\"a\": {" fields "}}}"
#define URL "\"url\": \"http://a/\""

void
test_wrong_files(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "not valid JSON"},
        {"[]", "it must be {\"mcpServers\""},
        {"{\"mcpServers\": {}, \"more\": 1}", "it must be {\"mcpServers\""},
        {"{\"mcpServers\": {\"a\": 1}}", "server \"a\": must be an object"},
        {"{\"mcpServers\": {\"a b\": {}}}", "\"a b\" cannot be a server's name"},
        {"{\"mcpServers\": {\"find\": {}}}", "\"find\" cannot be a server's name"},
        {"{\"mcpServers\": {\"a.b\": {}}}", "cannot be a server's name"},
        {"{\"mcpServers\": {\"\": {}}}", "cannot be a server's name"},
        {"{\"mcpServers\": {\"a\": {" URL "}, \"a\": {" URL "}}}", "not valid JSON"},
        {SERVER(""), "server \"a\": command: a server has either url or command"},
        {SERVER(URL ", \"command\": \"x\""), "has either url or command"},
        {SERVER("\"url\": \"ftp://a\""), "url: must begin with http:// or https://"},
        {SERVER("\"url\": \"http://a\\nb\""), "url: must begin with"},
        {SERVER("\"url\": 1"), "url: must be a string that is not empty"},
        {SERVER("\"command\": \"\""), "command: must be a string that is not empty"},
        {SERVER(URL ", \"args\": []"), "args: belongs to a server with command"},
        {SERVER("\"command\": \"x\", \"headers\": {}"), "headers: belongs to a server with url"},
        {SERVER(URL ", \"headers\": []"), "headers: must be an object of strings"},
        {SERVER(URL ", \"headers\": {\"a\": 1}"), "headers: \"a\" must be a string"},
        {SERVER(URL ", \"headers\": {\"a b\": \"\"}"), "headers: \"a b\" is not a valid name"},
        {SERVER(URL ", \"headers\": {\"a\": \"b\\r\\nc: d\"}"), "has a control character"},
        {SERVER(URL ", \"headers\": {\"a\": \"${NO}\"}"), "environment has no variable NO"},
        {SERVER(URL ", \"headers\": {\"a\": \"${TOKEN\"}"), "must be followed by a name and }"},
        {SERVER("\"command\": \"x\", \"env\": {\"1a\": \"\"}"), "env: \"1a\" is not a valid name"},
        {SERVER("\"command\": \"x\", \"args\": [1]"), "args: item 0 must be a string"},
        {SERVER(URL ", \"allow\": \"a\""), "allow: must be a list of strings"},
        {SERVER(URL ", \"timeout\": 0"), "timeout: must be a number of seconds"},
        {SERVER(URL ", \"timeout\": \"1\""), "timeout: must be a number of seconds"},
        {SERVER(URL ", \"per_session\": 1"), "per_session: must be true or false"},
        {SERVER(URL ", \"type\": \"sse\""), "type: must be stdio or http"},
        {SERVER(URL ", \"cwd\": \"/\""), "cwd: there is no such field"},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err = {0};
        KG_AUTO(servers_file) file = parse(cases[i].text, &err);
        if (file || !strstr(err.message, cases[i].words))
            print_error("%s: %s\n", cases[i].text, err.message);
        assert_null(file);
        assert_int_equal(err.code, KG_INVALID);
        assert_non_null(strstr(err.message, cases[i].words));
    }
}

void
test_patterns(void **state)
{
    static const char *const patterns[] = {"get_*", "*b*c", "exact", NULL};
    static const char *const all[] = {"*", NULL};
    (void)state;
    assert_true(server_pattern_fits(patterns, "get_"));
    assert_true(server_pattern_fits(patterns, "get_issue"));
    assert_true(server_pattern_fits(patterns, "exact"));
    assert_true(server_pattern_fits(patterns, "aabbccbc"));
    assert_false(server_pattern_fits(patterns, "aabbccb"));
    assert_false(server_pattern_fits(patterns, "exactly"));
    assert_false(server_pattern_fits(patterns, "forget_it"));
    assert_false(server_pattern_fits(NULL, "a"));
    assert_true(server_pattern_fits(all, "anything"));
}

void
test_secrets_are_hidden(void **state)
{
    struct kg_error err = {0};
    (void)state;
    KG_AUTO(servers_file)
    file = parse(SERVER(URL ", \"headers\": {\"Authorization\": \"Bearer ${TOKEN}\", \"a\": "
                            "\"ordinary\", \"b\": \"short\"}"),
                 &err);
    assert_non_null(file);
    const struct server_spec *server = &file->servers[0];
    char error[] = "secret-token, Bearer secret-token, ordinary, short";
    server_hide_values(server, error);
    assert_string_equal(error, "************, Bearer ************, ********, short");
    char said[] = "secret-token\0, secret-token, ordinary";
    assert_true(server_says_secret(server, said, sizeof said));
    assert_false(server_says_secret(server, "an ordinary one", 15));
    server_hide_secrets(server, said, sizeof said);
    assert_memory_equal(said, "************\0, ************, ordinary", sizeof said);
}

// ---- Messages -------------------------------------------------------------------------------

void
test_values(void **state)
{
    static const struct {
        const char *result, *value;
        bool is_error;
    } cases[] = {
        {"{\"content\": []}", "null", false},
        {"{\"content\": [{\"type\": \"text\", \"text\": \"{}\"}]}", "\"{}\"", false},
        {"{\"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": "
         "\"b\"}]}",
         "[\"a\",\"b\"]", false},
        {"{\"content\": [1], \"structuredContent\": {\"x\": [1]}}", "{\"x\":[1]}", false},
        {"{\"content\": [], \"structuredContent\": 5}", "5", false},
        {"{\"content\": [{\"type\": \"image\", \"data\": \"aa\", \"mimeType\": \"image/png\", "
         "\"annotations\": {}}]}",
         "{\"type\":\"image\",\"mimeType\":\"image/png\",\"data\":\"aa\"}", false},
        {"{\"content\": [{\"type\": \"resource\", \"resource\": {\"uri\": \"a:\", \"text\": \"t\", "
         "\"mimeType\": \"m\"}}]}",
         "{\"type\":\"resource\",\"mimeType\":\"m\",\"uri\":\"a:\",\"text\":\"t\"}", false},
        {"{\"content\": [7, null]}", "[{},{}]", false},
        {"{\"isError\": true, \"content\": [{\"text\": \"a\"}, {}, {\"text\": \"b\"}]}",
         "\"a\\nb\"", true},
        {"{\"isError\": true}", "\"the tool has failed, and does not say why\"", true},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err = {0};
        struct message message;
        KG_AUTO_FREE char *text =
            kg_asprintf("{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": %s}", cases[i].result);
        assert_int_equal(message_parse(&message, text, strlen(text), &err), 0);
        KG_AUTO_FREE char *value = json_dumps(message.value, JSON_COMPACT | JSON_ENCODE_ANY);
        assert_string_equal(value, cases[i].value);
        assert_int_equal(message.is_tool_error, cases[i].is_error);
        assert_null(message.text);
        message_fini(&message);
    }
}

void
test_messages_that_are_refused(void **state)
{
    static const char *const cases[] = {
        "", "[]", "1", "{", "{\"a\": 1}x", "nul", "{\"a\":\"\xff\"}", "{\"a\": 1e999}"};
    struct kg_error err = {0};
    struct message message;
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++)
        assert_int_equal(message_parse(&message, cases[i], strlen(cases[i]), &err), -1);
    KG_AUTO_BUF deep = {0};
    for (size_t i = 0; i < 129; i++)
        buf_append_str(&deep, "[");
    assert_int_equal(message_parse(&message, deep.data, deep.len, &err), -1);
    assert_non_null(strstr(err.message, "deeper"));
    KG_AUTO_BUF many = {0};
    for (size_t i = 0; i < 2 << 20; i++)
        buf_append_str(&many, "0,");
    assert_int_equal(message_parse(&message, many.data, many.len, &err), -1);
    assert_non_null(strstr(err.message, "larger"));
}

// ---- The offer ------------------------------------------------------------------------------

static struct offer
offer_of(const char *fields, json_t *listed, struct servers_file **ret_file)
{
    struct kg_error err = {0};
    struct offer offer;
    KG_AUTO_FREE char *text = kg_asprintf("{\"mcpServers\": {\"s\": {" URL "%s}}}", fields);
    *ret_file = parse(text, &err);
    assert_non_null(*ret_file);
    offer_init(&offer, &(*ret_file)->servers[0], listed);
    json_decref(listed);
    return offer;
}

static json_t *
some_tools(void)
{
    return json_pack("[{s:s, s:{s:b}, s:{s:s}, s:s}, {s:s, s:{s:b}}, {s:s}, {s:s, s:{s:b}}, "
                     "{s:s, s:{s:b}}, {s:i}, s]",
                     "name", "read", "annotations", "readOnlyHint", 1, "inputSchema", "type",
                     "object", "description", "Reads", "name", "write", "annotations",
                     "readOnlyHint", 0, "name", "unsaid", "name", "read", "annotations",
                     "readOnlyHint", 1, "name", "bad name", "annotations", "readOnlyHint", 1,
                     "name", 1, "text");
}

void
test_an_offer(void **state)
{
    struct servers_file *file;
    (void)state;
    struct offer offer = offer_of("", some_tools(), &file);
    KG_AUTO_FREE char *text = json_dumps(offer.described, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "[{\"description\":\"Reads\",\"input_schema\":{\"type\":\"object\"},"
                              "\"name\":\"s.read\",\"server\":\"s\"}]");
    assert_int_equal(offer.n_listed, 7);
    assert_int_equal(offer.n_left_out, 2); // the second of a name, and the bad name
    offer_fini(&offer);
    servers_file_free(file);
    offer = offer_of(", \"allow\": [\"w*\", \"un*\"], \"deny\": [\"unsaid\", \"read\"]",
                     some_tools(), &file);
    assert_int_equal(json_array_size(offer.described), 1);
    assert_true(tool_list_has(offer.tools, "write"));
    offer_fini(&offer);
    servers_file_free(file);
}

void
test_an_offer_has_bounds(void **state)
{
    struct servers_file *file;
    json_t *many = json_array();
    (void)state;
    for (int i = 0; i < 300; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("t%d", i);
        json_array_append_new(many, json_pack("{s:s}", "name", name));
    }
    struct offer offer = offer_of(", \"allow\": [\"*\"]", many, &file);
    assert_int_equal(json_array_size(offer.described), OFFER_TOOLS_MAX);
    assert_int_equal(offer.n_left_out, 300 - OFFER_TOOLS_MAX);
    offer_fini(&offer);
    servers_file_free(file);
    KG_AUTO_FREE char *large = kg_calloc(1, 100 * 1024 + 1);
    memset(large, 'x', 100 * 1024);
    json_t *descriptions = json_array();
    for (int i = 0; i < 4; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("t%d", i);
        json_array_append_new(descriptions,
                              json_pack("{s:s, s:s}", "name", name, "description", large));
    }
    offer = offer_of(", \"allow\": [\"*\"]", descriptions, &file);
    assert_int_equal(json_array_size(offer.described), 2);
    offer_fini(&offer);
    servers_file_free(file);
}
