// SPDX-License-Identifier: Apache-2.0
// Values against JSON Schemas: what fits, what the message says, and what takes too long. All
// keywords were also held against the official JSON-Schema-Test-Suite (draft 2020-12).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "json_schema.h"
#include "test_tools.h"

// Both with ' for ".
static json_t *
parse(const char *text)
{
    KG_AUTO_FREE char *json = kg_strdup(text);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *value = json_loads(json, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!value)
        fail_msg("%s", json);
    return value;
}

static void
expect(const char *schema_text, const char *value_text, const char *message)
{
    json_auto_t *schema = parse(schema_text);
    json_auto_t *value = parse(value_text);
    struct kg_error err = {0};
    int result = json_schema_check(schema, value, "v", &err);
    assert_int_equal(result, *message ? -1 : 0);
    assert_int_equal(err.code, *message ? KG_INVALID : KG_OK);
    if (strcmp(err.message, message) != 0)
        fail_msg("%s of %s: \"%s\" instead of \"%s\"", value_text, schema_text, err.message,
                 message);
    assert_int_equal(json_schema_check(schema, value, "v", NULL), result);
}

static void
test_types(void **state)
{
    (void)state;
    expect("{}", "1", "");
    expect("true", "1", "");
    expect("false", "1", "v: is not allowed");
    expect("{'type':'integer'}", "'x'", "v: must be an integer, not a string");
    expect("{'type':'integer'}", "1.0", "");
    expect("{'type':'integer'}", "1.5", "v: must be an integer, not a number");
    expect("{'type':'number'}", "1", "");
    expect("{'type':'string'}", "null", "v: must be a string, not null");
    expect("{'type':'null'}", "0", "v: must be null, not an integer");
    expect("{'type':'boolean'}", "[]", "v: must be true or false, not an array");
    expect("{'type':['string','null']}", "null", "");
    expect("{'type':['string','null']}", "{}",
           "v: must be one of the types \"string\", \"null\", not an object");
    // What JSON Schema does not have says nothing.
    expect("{'type':'any'}", "1", "");
    expect("{'type':['float','string']}", "1", "");
    expect("{'type':7,'enum':1,'properties':[],'required':'a','items':3,'$ref':4,'minimum':'x',"
           "'allOf':{},'anyOf':1,'multipleOf':'y','maxLength':null}",
           "1", "");
}

static void
test_choices(void **state)
{
    (void)state;
    expect("{'enum':['a',1,null,{'b':[1]}]}", "{'b':[1.0]}", "");
    expect("{'enum':['a',1]}", "true", "v: must be one of \"a\", 1");
    expect("{'enum':[]}", "1", "v: must be one of nothing");
    expect("{'enum':[0.1]}", "1", "v: must be one of 0.1");
    expect("{'enum':['"
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1]}",
           "1.5",
           "v: must be one of \""
           "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
           "aaaaaaaaaaaaaaaaaaaaa…, …");
    expect("{'const':{'a':[false,0]}}", "{'a':[0,0]}", "v: must be {\"a\":[false,0]}");
    expect("{'const':2}", "2.0", "");
}

static void
test_numbers(void **state)
{
    (void)state;
    expect("{'minimum':1,'maximum':7}", "8", "v: must be at most 7");
    expect("{'minimum':1.5}", "1", "v: must be at least 1.5");
    expect("{'exclusiveMinimum':1}", "1", "v: must be above 1");
    expect("{'exclusiveMaximum':1}", "1.0", "v: must be below 1");
    expect("{'minimum':1}", "'x'", "");
    // Beyond what a double tells apart.
    expect("{'maximum':9007199254740992}", "9007199254740993",
           "v: must be at most 9.00719925474099e+15");
    expect("{'multipleOf':3}", "9007199254740993", "");
    expect("{'multipleOf':3}", "9007199254740992", "v: must be a multiple of 3");
    expect("{'multipleOf':0.01}", "19.99", "");
    expect("{'multipleOf':0.01}", "19.995", "v: must be a multiple of 0.01");
    expect("{'multipleOf':1e-8}", "12391239123", "");
    expect("{'multipleOf':0}", "1", "");
    expect("{'multipleOf':-1}", "-9223372036854775807", "");
}

static void
test_strings_and_arrays(void **state)
{
    (void)state;
    expect("{'minLength':2}", "'ä'", "v: must have at least 2 characters, not 1");
    expect("{'maxLength':2}", "'äöü'", "v: must have at most 2 characters, not 3");
    expect("{'minItems':1}", "[]", "v: must have at least 1 items, not 0");
    expect("{'items':{'type':'string'}}", "['a',1]", "v[1]: must be a string, not an integer");
    expect("{'prefixItems':[true,{'type':'null'}],'items':false}", "[1,null,2]",
           "v[2]: is not allowed");
    expect("{'items':[{'type':'null'}],'additionalItems':{'type':'string'}}", "[null,1]",
           "v[1]: must be a string, not an integer");
    expect("{'uniqueItems':true}", "[1,[2],'1',{'a':1,'b':2},null,false,0,[0]]", "");
    expect("{'uniqueItems':true}", "[0,1,{'a':1,'b':[2]},3,{'b':[2.0],'a':1}]",
           "v: the items 2 and 4 are the same");
    expect("{'uniqueItems':true}", "[-0.0,0]", "v: the items 0 and 1 are the same");
    // Many of them take no quadratic time.
    KG_AUTO_BUF many = {0};
    for (int i = 0; i < 20000; i++)
        buf_printf(&many, "%s%d", i ? "," : "[", i);
    buf_append_str(&many, "]");
    expect("{'uniqueItems':true,'items':{'type':'integer'}}", many.data, "");
}

static void
test_objects(void **state)
{
    (void)state;
    expect("{'required':['a','b']}", "{'a':1}", "v: \"b\" is missing");
    expect("{'properties':{'a':{'properties':{'b':{'type':'null'}}}}}", "{'a':{'b':1}}",
           "v.a.b: must be null, not an integer");
    expect("{'properties':{'a':{}},'additionalProperties':false}", "{'b':1}",
           "v: there is no \"b\"");
    expect("{'additionalProperties':{'type':'null'}}", "{'b':1}",
           "v.b: must be null, not an integer");
    expect("{'maxProperties':1}", "{'a':1,'b':1}", "v: must have at most 1 members, not 2");
    // Patterns are not checked, so what they may name is allowed.
    expect("{'patternProperties':{'^x':{}},'additionalProperties':false}", "{'b':1}", "");
}

// Where a keyword is not checked, a value may fit or not: that must not refuse it.
static void
test_combinations(void **state)
{
    (void)state;
    expect("{'anyOf':[{'type':'null'},{'type':'string'}]}", "1",
           "v: has none of the forms that are allowed");
    expect("{'oneOf':[{'type':'integer'},{'minimum':0}]}", "1",
           "v: has more than one of the forms that are allowed");
    expect("{'oneOf':[{'type':'integer'},{'minimum':0}]}", "-1", "");
    expect("{'anyOf':[{'required':['a']}]}", "{}", "v: \"a\" is missing");
    expect("{'allOf':[{},{'type':'null'}]}", "1", "v: must be null, not an integer");
    expect("{'not':{'type':'null'}}", "null", "v: has a form that is not allowed");
    expect("{'not':{'pattern':'^x'}}", "'y'", "");
    expect("{'not':{'anyOf':[{'format':'email'},{'type':'null'}]}}", "'y'", "");
    expect("{'not':{'anyOf':[{'format':'email'},{'type':'null'}]}}", "null",
           "v: has a form that is not allowed");
    expect("{'oneOf':[{'pattern':'^a'},{'pattern':'^b'}]}", "'bcd'", "");
    expect("{'oneOf':[{'pattern':'^a'},{'type':'string'},{'maxLength':9}]}", "'bcd'",
           "v: has more than one of the forms that are allowed");
    expect(
        "{'oneOf':[{'properties':{'a':{'pattern':'^a'}}},{'properties':{'a':{'pattern':'^b'}}}]}",
        "{'a':'b'}", "");
    expect("{'not':{'not':{'pattern':'^x'}}}", "'y'", "");
    expect("{'not':{'$ref':'https://elsewhere.example/'}}", "1", "");
    expect("{'not':{'$ref':'#/$defs/a'},'$defs':{'a':{'format':'x'}}}", "1", "");
}

static void
test_references(void **state)
{
    (void)state;
    expect("{'$ref':'#/$defs/a','$defs':{'a':{'type':'null'}}}", "1",
           "v: must be null, not an integer");
    expect("{'$ref':'#/definitions/a~1b~0c%25d/1','definitions':{'a/b~c%d':[1,{'type':'null'}]}}",
           "1", "v: must be null, not an integer");
    // They lead nowhere that is known here.
    expect("{'$ref':'#a','$defs':{'b':{'$anchor':'a'}},'type':'integer'}", "1", "");
    expect("{'$ref':'','$defs':{'a':{}},'type':'integer'}", "1", "");
    expect("{'$ref':'#/$defs/none'}", "1", "");
    expect("{'$ref':'#/allOf/1x','allOf':[true,true]}", "1", "");
    expect("{'$ref':'#/allOf/-1','allOf':[true,true]}", "1", "");
    expect("{'$ref':'#/allOf/99999999999999999999','allOf':[true,true]}", "1", "");
    expect("{'$ref':'#/%','%':false}", "1", "v: is not allowed");
    expect("{'$ref':'#/~','~':false}", "1", "v: is not allowed");
    // A part with an identity of its own refers to itself.
    expect(
        "{'items':{'$id':'b','items':{'$ref':'#/$defs/c'},'$defs':{'c':false}},'$defs':{'c':{}}}",
        "[[1]]", "v[0][0]: is not allowed");
    // As deep as values may be.
    expect("{'properties':{'a':{'$ref':'#'}},'additionalProperties':false}",
           "{'a':{'a':{'a':{'a':{'a':{'b':1}}}}}}", "v.a.a.a.a.a: there is no \"b\"");
}

static void
test_bounds(void **state)
{
    (void)state;
    static const char *const endless[] = {
        "{'$ref':'#'}",
        "{'not':{'$ref':'#'}}",
        "{'anyOf':[{'$ref':'#'},{'$ref':'#'}]}",
        "{'anyOf':[true,{'$ref':'#'}],'oneOf':[{'$ref':'#'},true]}",
        "{'oneOf':[{'allOf':[{'$ref':'#'},{'$ref':'#'}]},{'not':{'$ref':'#'}}]}",
        "{'items':{'$ref':'#/items'}}",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(endless); i++)
        expect(endless[i], "[1]", "v: the tool's schema is too complex to be checked");
    // Much work without depth.
    KG_AUTO_BUF schema = {0}, value = {0};
    buf_append_str(&schema, "{'items':{'enum':[0");
    for (int i = 1; i < 5000; i++)
        buf_printf(&schema, ",%d", i);
    buf_append_str(&schema, ",-1]}}");
    for (int i = 0; i < 5000; i++)
        buf_append_str(&value, i ? ",-1" : "[-1");
    buf_append_str(&value, "]");
    expect(schema.data, value.data, "v: the tool's schema is too complex to be checked");
    // A message is no longer than it may be, and is UTF-8.
    KG_AUTO_BUF deep = {0};
    for (int i = 0; i < 40; i++)
        buf_append_str(&deep, "{'ää':");
    buf_append_str(&deep, "1");
    for (int i = 0; i < 40; i++)
        buf_append_str(&deep, "}");
    json_auto_t *tree = parse(deep.data);
    json_auto_t *root = parse("{'type':'object','additionalProperties':{'$ref':'#'}}");
    struct kg_error err = {0};
    assert_int_equal(json_schema_check(root, tree, "v", &err), -1);
    json_auto_t *text = json_string(err.message);
    assert_non_null(text);
    assert_int_equal(strncmp(err.message, "v: the tool's schema", 10), 0);
}

int
test_json_schema(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),      cmocka_unit_test(test_choices),
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_strings_and_arrays),
        cmocka_unit_test(test_objects),    cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_references), cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests_name("json_schema", tests, NULL, NULL);
}
