// SPDX-License-Identifier: Apache-2.0
// Request bodies: what every field may hold, and what is said where it does not.

#include "test_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api_priv.h"
#include "sandbox.h"

static struct face_context face;
static struct api_context context = {.face = &face};

static void
write_spec(const char *dir, const char *name, const char *aliases)
{
    KG_AUTO_FREE char *folder = kg_asprintf("%s/%s", dir, name);
    KG_AUTO_FREE char *path = kg_asprintf("%s/kernel.json", folder);
    KG_AUTO_FREE char *json = kg_asprintf("{\"argv\":[\"k\"],\"language\":\"k\",\"metadata\":"
                                          "{\"kernelgate\":{\"aliases\":[%s]}}}",
                                          aliases);
    assert_int_equal(dir_make(folder, 0700, NULL), 0);
    assert_int_equal(file_write_atomic(path, json, strlen(json), 0600, NULL), 0);
}

static int
setup(void **state)
{
    (void)state;
    char dir[] = "/tmp/kg-api-XXXXXX";
    assert_non_null(mkdtemp(dir));
    write_spec(dir, "python", "\"py\"");
    write_spec(dir, "ruby", "");
    face = (struct face_context){
        .specs = kernelspecs_load(dir, NULL),
        .default_timeout_ms = 30 * 1000,
        .max_timeout_ms = 3600 * 1000,
        .max_code_bytes = 16,
    };
    assert_int_equal(path_remove_tree(dir, NULL), 0);
    assert_non_null(face.specs);
    face.default_spec = kernelspecs_at(face.specs, 0);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kernelspecs_free((struct kernelspecs *)(uintptr_t)face.specs);
    return 0;
}

// JSON with ' for ", so that the tables can be read.
static json_t *
parse(const char *text)
{
    KG_AUTO_FREE char *copy = kg_strdup(text);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *root = json_loads(copy, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!root)
        fail_msg("the test's own JSON: %s", text);
    return root;
}

struct bad_body {
    const char *body;
    const char *message;
    enum kg_code code; // 0: KG_INVALID
};

static const struct bad_body bad_execute[] = {
    {"[]", "the body must be a JSON object", 0},
    {"'code'", "the body must be a JSON object", 0},
    {"null", "the body must be a JSON object", 0},
    {"{}", "code is missing: a string with the code to run", 0},
    {"{'code':null}", "code is missing: a string with the code to run", 0},
    {"{'code':1}", "code must be a string", 0},
    {"{'code':['x']}", "code must be a string", 0},
    {"{'code':'12345678901234567'}", "code is 17 bytes; the limit is 16 (setting max-code-bytes)",
     KG_CODE_TOO_LARGE},
    {"{'code':'x','cdoe':'y'}", "unknown field \"cdoe\"", 0},
    {"{'code':'x','Code':'y'}", "unknown field \"Code\"", 0},
    {"{'code':'x','idle_timeout':5}", "unknown field \"idle_timeout\"", 0},
    {"{'code':'x','session_id':5}", "session_id must be a string", 0},
    {"{'code':'x','session_id':{}}", "session_id must be a string", 0},
    {"{'code':'x','kernel':5}", "kernel must be a string", 0},
    {"{'code':'x','language':false}", "language must be a string", 0},
    {"{'code':'x','kernel':'py','language':[]}", "language must be a string", 0},
    {"{'code':'x','kernel':'perl'}", "there is no kernel \"perl\"; there are: python, ruby",
     KG_UNKNOWN_KERNEL},
    {"{'code':'x','language':''}", "there is no kernel \"\"; there are: python, ruby",
     KG_UNKNOWN_KERNEL},
    {"{'code':'x','timeout':0}",
     "timeout must be a number of seconds above 0, at most 3600 (setting max-timeout)", 0},
    {"{'code':'x','timeout':-1}",
     "timeout must be a number of seconds above 0, at most 3600 (setting max-timeout)", 0},
    {"{'code':'x','timeout':3600.001}",
     "timeout must be a number of seconds above 0, at most 3600 (setting max-timeout)", 0},
    {"{'code':'x','timeout':1e300}",
     "timeout must be a number of seconds above 0, at most 3600 (setting max-timeout)", 0},
    {"{'code':'x','timeout':9223372036854775807}",
     "timeout must be a number of seconds above 0, at most 3600 (setting max-timeout)", 0},
    {"{'code':'x','timeout':'5'}",
     "timeout must be a number of seconds above 0, at most 3600 (setting max-timeout)", 0},
    {"{'code':'x','timeout':true}",
     "timeout must be a number of seconds above 0, at most 3600 (setting max-timeout)", 0},
    {"{'code':'x','variables':[]}", "variables must be an object", 0},
    {"{'code':'x','variables':'a'}", "variables must be an object", 0},
    {"{'code':'x','env':[]}", "env must be an object", 0},
    {"{'code':'x','env':{'A':1}}", "env must map names to strings; \"A\" does not", 0},
    {"{'code':'x','env':{'A':null}}", "env must map names to strings; \"A\" does not", 0},
    {"{'code':'x','env':{'':'1'}}", "env must map names to strings; \"\" does not", 0},
    {"{'code':'x','env':{'A=B':'1'}}", "env must map names to strings; \"A=B\" does not", 0},
    {"{'code':'x','on_disconnect':'later'}", "on_disconnect must be \"interrupt\" or \"continue\"",
     0},
    {"{'code':'x','on_disconnect':''}", "on_disconnect must be \"interrupt\" or \"continue\"", 0},
    {"{'code':'x','on_disconnect':true}", "on_disconnect must be a string", 0},
};

static const struct bad_body bad_session[] = {
    {"[]", "the body must be a JSON object", 0},
    {"{'code':'x'}", "unknown field \"code\"", 0},
    {"{'session_id':5}", "session_id must be a string", 0},
    {"{'kernel':5}", "kernel must be a string", 0},
    {"{'kernel':'perl'}", "there is no kernel \"perl\"; there are: python, ruby",
     KG_UNKNOWN_KERNEL},
    {"{'env':5}", "env must be an object", 0},
    {"{'env':{'A':[]}}", "env must map names to strings; \"A\" does not", 0},
    {"{'idle_timeout':0}", "idle_timeout must be 1 to 31536000 seconds", 0},
    {"{'idle_timeout':0.99}", "idle_timeout must be 1 to 31536000 seconds", 0},
    {"{'idle_timeout':-5}", "idle_timeout must be 1 to 31536000 seconds", 0},
    {"{'idle_timeout':31536001}", "idle_timeout must be 1 to 31536000 seconds", 0},
    {"{'idle_timeout':1e300}", "idle_timeout must be 1 to 31536000 seconds", 0},
    {"{'idle_timeout':'60'}", "idle_timeout must be 1 to 31536000 seconds", 0},
    {"{'max_lifetime':0}", "max_lifetime must be 1 to 31536000 seconds", 0},
    {"{'metadata':5}", "metadata must be an object of strings", 0},
    {"{'metadata':{'a':5}}", "metadata: \"a\" must be a string of at most 512 bytes", 0},
    {"{'metadata':{'\\u0007':''}}",
     "metadata: a name must have 1 to 64 bytes, without control characters", 0},
};

static const struct bad_body bad_command[] = {
    {"[]", "the body must be a JSON object", 0},
    {"{}", "command is missing: a string for the sandbox's shell", 0},
    {"{'command':['ls']}", "command must be a string", 0},
    {"{'command':'ls','code':'x'}", "unknown field \"code\"", 0},
    {"{'command':'ls','cwd':5}", "cwd must be a string", 0},
    {"{'command':'ls','env':{'A':1}}", "env must map names to strings; \"A\" does not", 0},
    {"{'command':'ls','env':{'1A':''}}", "env must map names to strings; \"1A\" does not", 0},
    {"{'command':'ls','env':{'A B':''}}", "env must map names to strings; \"A B\" does not", 0},
    {"{'command':'ls','timeout':0}",
     "timeout must be a number of seconds above 0, at most 3600 (setting max-timeout)", 0},
};

static void
check_bad(const struct bad_body *bad, int result, const struct kg_error *err)
{
    enum kg_code code = bad->code ? bad->code : KG_INVALID;
    if (result != -1 || err->code != code || strcmp(err->message, bad->message) != 0)
        fail_msg("%s: \"%s\" (%s)", bad->body, err->message, kg_code_info(err->code)->name);
}

static void
test_bad_execute_bodies(void **state)
{
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(bad_execute); i++) {
        struct kg_error err = {0};
        struct execute_body body;
        json_auto_t *root = parse(bad_execute[i].body);
        check_bad(&bad_execute[i], execute_body_parse(&context, root, &body, &err), &err);
    }
}

static void
test_bad_session_bodies(void **state)
{
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(bad_session); i++) {
        struct kg_error err = {0};
        struct session_body body;
        json_auto_t *root = parse(bad_session[i].body);
        check_bad(&bad_session[i], session_body_parse(&context, root, &body, &err), &err);
    }
}

// So many members that it is refused, and one fewer.
static void
test_command_bodies(void **state)
{
    (void)state;
    struct kg_error err = {0};
    struct command_body body;
    for (size_t i = 0; i < KG_ARRAY_LEN(bad_command); i++) {
        json_auto_t *root = parse(bad_command[i].body);
        check_bad(&bad_command[i], command_body_parse(&context, root, &body, &err), &err);
    }
    KG_AUTO_FREE char *longest = kg_calloc(SANDBOX_COMMAND_MAX + 2, 1);
    memset(longest, 'x', SANDBOX_COMMAND_MAX);
    json_auto_t *root = json_pack("{s:s, s:s, s:{s:s}, s:f}", "command", longest, "cwd", "a/b",
                                  "env", "A_1.b-c", "1", "timeout", 0.5);
    assert_int_equal(command_body_parse(&context, root, &body, &err), 0);
    assert_string_equal(body.command, longest);
    assert_string_equal(body.cwd, "a/b");
    assert_int_equal(json_object_size(body.env), 1);
    assert_int_equal(body.timeout_ms, 500);
    longest[SANDBOX_COMMAND_MAX] = 'x';
    json_object_set_new(root, "command", json_string(longest));
    assert_int_equal(command_body_parse(&context, root, &body, &err), -1);
    assert_int_equal(err.code, KG_CODE_TOO_LARGE);
    json_object_set_new(root, "command", json_string("ls"));
    longest[4001] = '\0';
    json_object_set_new(root, "cwd", json_string(longest));
    assert_int_equal(command_body_parse(&context, root, &body, &err), -1);
    assert_int_equal(err.code, KG_INVALID_PATH);
}

static void
test_number_of_members(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t max;
        const char *message;
    } cases[] = {
        {"variables", 1024, "variables has more than 1024 members"},
        {"env", 64, "env has more than 64 members"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err = {0};
        struct execute_body body;
        json_t *members = json_object();
        json_auto_t *root = json_pack("{s:s, s:o}", "code", "x", cases[i].name, members);
        for (size_t n = 1; n <= cases[i].max; n++) {
            char key[16];
            snprintf(key, sizeof key, "K%zu", n);
            json_object_set_new(members, key, json_string(""));
        }
        assert_int_equal(execute_body_parse(&context, root, &body, &err), 0);
        json_object_set_new(members, "one more", json_string(""));
        assert_int_equal(execute_body_parse(&context, root, &body, &err), -1);
        assert_string_equal(err.message, cases[i].message);
    }
}

static void
test_smallest_execute_body(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{'code':'x'}",
        "{'code':'x','session_id':null,'kernel':null,'language':null,'timeout':null,"
        "'variables':null,'env':null,'on_disconnect':null}",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bodies); i++) {
        struct kg_error err = {0};
        struct execute_body body;
        json_auto_t *root = parse(bodies[i]);
        assert_int_equal(execute_body_parse(&context, root, &body, &err), 0);
        assert_string_equal(body.code, "x");
        assert_null(body.session_id);
        assert_ptr_equal(body.spec, face.default_spec);
        assert_int_equal(body.timeout_ms, 30 * 1000);
        assert_null(body.variables);
        assert_null(body.env);
        assert_false(body.keep_running);
    }
}

static void
test_full_execute_body(void **state)
{
    (void)state;
    struct kg_error err = {0};
    struct execute_body body;
    json_auto_t *root =
        parse("{'code':'1234567890123456','session_id':'s1','kernel':'ruby','timeout':3600,"
              "'variables':{'a':[1,null]},'env':{'A':'1','B':''},'on_disconnect':'continue'}");
    assert_int_equal(execute_body_parse(&context, root, &body, &err), 0);
    assert_string_equal(body.code, "1234567890123456");
    assert_string_equal(body.session_id, "s1");
    assert_string_equal(body.spec->name, "ruby");
    assert_int_equal(body.timeout_ms, 3600 * 1000);
    assert_int_equal(json_object_size(body.variables), 1);
    assert_int_equal(json_object_size(body.env), 2);
    assert_true(body.keep_running);
}

static void
test_kernel_goes_before_language(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *name;
    } cases[] = {
        {"{'code':'','language':'py'}", "python"},
        {"{'code':'','language':'ruby'}", "ruby"},
        {"{'code':'','kernel':'ruby','language':'py'}", "ruby"},
        {"{'code':'','on_disconnect':'interrupt'}", "python"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err = {0};
        struct execute_body body;
        json_auto_t *root = parse(cases[i].body);
        assert_int_equal(execute_body_parse(&context, root, &body, &err), 0);
        assert_string_equal(body.spec->name, cases[i].name);
        assert_false(body.keep_running);
    }
}

// Never rounded down to nothing.
static void
test_timeouts(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int64_t ms;
    } cases[] = {
        {"{'code':'','timeout':1}", 1000},
        {"{'code':'','timeout':0.25}", 250},
        {"{'code':'','timeout':1e-9}", 1},
        {"{'code':'','timeout':0.0011}", 2},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct kg_error err = {0};
        struct execute_body body;
        json_auto_t *root = parse(cases[i].body);
        assert_int_equal(execute_body_parse(&context, root, &body, &err), 0);
        assert_int_equal(body.timeout_ms, cases[i].ms);
    }
}

static void
test_session_bodies(void **state)
{
    (void)state;
    struct kg_error err = {0};
    struct session_body body;
    json_auto_t *empty = parse("{}");
    assert_int_equal(session_body_parse(&context, empty, &body, &err), 0);
    assert_null(body.session_id);
    assert_ptr_equal(body.spec, face.default_spec);
    assert_null(body.env);
    assert_int_equal(body.own.idle_timeout_s, 0);
    json_auto_t *full =
        parse("{'session_id':'s1','language':'ruby','env':{'A':'1'},'idle_timeout':31536000}");
    assert_int_equal(session_body_parse(&context, full, &body, &err), 0);
    assert_string_equal(body.session_id, "s1");
    assert_string_equal(body.spec->name, "ruby");
    assert_int_equal(json_object_size(body.env), 1);
    assert_int_equal(body.own.idle_timeout_s, 31536000);
    assert_null(body.own.metadata);
    struct session_change change;
    json_auto_t *some = parse("{'metadata':{'a':'1'},'max_lifetime':60.5}");
    assert_int_equal(session_patch_body_parse(&context, some, &change, &err), 0);
    assert_int_equal(change.max_lifetime_s, 60);
    assert_int_equal(change.idle_timeout_s, 0);
    assert_int_equal(json_object_size(change.metadata), 1);
    assert_int_equal(session_patch_body_parse(&context, full, &change, &err), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_execute_bodies),
        cmocka_unit_test(test_bad_session_bodies),
        cmocka_unit_test(test_command_bodies),
        cmocka_unit_test(test_number_of_members),
        cmocka_unit_test(test_smallest_execute_body),
        cmocka_unit_test(test_full_execute_body),
        cmocka_unit_test(test_kernel_goes_before_language),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_session_bodies),
    };
    return cmocka_run_group_tests_name("api", tests, setup, teardown) + test_api_stream();
}
