// SPDX-License-Identifier: Apache-2.0
// Lines from what a kernel publishes.

#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static json_t *
parse(const char *text)
{
    json_error_t why;
    json_t *value = json_loads(text, JSON_ALLOW_NUL, &why);
    if (!value)
        fail_msg("%s: %s", text, why.text);
    return value;
}

// The lines that a message of that type shows, without their seq; of an error its line, unless it
// is shown `on_stderr`.
static json_t *
lines_of(const char *type, json_t *content, bool on_stderr)
{
    KG_AUTO(loop) loop = loop_new();
    KG_AUTO(executions)
    executions =
        executions_new(loop, &(const struct executions_settings){.max_log_bytes = 64 << 20,
                                                                 .max_live_bytes = 1 << 30,
                                                                 .max_replay_bytes = 64 << 20});
    const struct execution_request request = {.owner = "me", .session_id = "s1", .code = ""};
    KG_AUTO(execution) execution = execution_new(executions, &request);
    KG_AUTO_FREE char *msg_type = kg_strdup(type);
    const struct jupyter_message message = {.msg_type = msg_type, .content = content};
    struct output_lines *shown = output_lines_of(&message);
    if (shown && shown->error && !on_stderr) {
        output_append_line(&execution->log, KG_STEAL(shown->error));
        output_lines_free(shown);
    } else {
        output_append_lines(&execution->log, shown);
    }
    json_t *lines = all_lines(execution);
    size_t i;
    json_t *line;
    json_array_foreach(lines, i, line) {
        json_object_del(line, "seq");
    }
    return lines;
}

#define DISPLAY "display_data"
#define UPDATE "update_display_data"
#define RESULT "execute_result"

static const struct {
    const char *type;
    const char *content;
    const char *lines; // JSON
} cases[] = {
    {"stream", "{'name':'stdout','text':'a\\nb'}", "[{'type':'stdout','text':'a\\nb'}]"},
    {"stream", "{'name':'stderr','text':'a'}", "[{'type':'stderr','text':'a'}]"},
    {"stream", "{'name':'?','text':'a'}", "[{'type':'stdout','text':'a'}]"},
    {"stream", "{'name':'stdout','text':'a\\u0000b'}", "[{'type':'stdout','text':'a\\u0000b'}]"},
    {"stream", "{'name':'stdout','text':''}", "[]"},
    {"stream", "{'name':'stdout','text':5}", "[]"},
    {"stream", "{'name':null,'text':'a'}", "[]"},
    {"stream", "{}", "[]"},

    {DISPLAY, "{'data':{'image/png':'iVBO','text/plain':'<Figure>'}}",
     "[{'type':'display','image':'iVBO','format':'png','data':{'text/plain':'<Figure>'}}]"},
    {DISPLAY, "{'data':{'image/jpeg':'/9j','image/png':'iVBO'}}",
     "[{'type':'display','image':'iVBO','format':'png','data':{'image/jpeg':'/9j'}}]"},
    {DISPLAY, "{'data':{'image/svg+xml':'<svg>','image/gif':'R0l'}}",
     "[{'type':'display','image':'R0l','format':'gif','data':{'image/svg+xml':'<svg>'}}]"},
    {DISPLAY, "{'data':{'image/jpeg':'/9j'}}",
     "[{'type':'display','image':'/9j','format':'jpeg','data':{}}]"},
    {DISPLAY, "{'data':{'image/svg+xml':'<svg>\\n</svg>'}}",
     "[{'type':'display','image':'<svg>\\n</svg>','format':'svg','data':{}}]"},
    {DISPLAY, "{'data':{'image/png':'iV\\nBO\\r\\n = \\t'}}",
     "[{'type':'display','image':'iVBO=','format':'png','data':{}}]"},
    {DISPLAY, "{'data':{'image/png':['iVBO'],'image/jpeg':'/9j'}}",
     "[{'type':'display','image':'/9j','format':'jpeg','data':{'image/png':['iVBO']}}]"},
    {DISPLAY, "{'data':{'text/plain':'a','text/html':'<b>a</b>'}}",
     "[{'type':'display','text':'a','data':{'text/html':'<b>a</b>'}}]"},
    {DISPLAY, "{'data':{'application/json':{'a':[1,null]}}}",
     "[{'type':'display','data':{'application/json':{'a':[1,null]}}}]"},
    {DISPLAY, "{'data':{'text/plain':7}}", "[{'type':'display','data':{'text/plain':7}}]"},
    {DISPLAY, "{'data':'text'}", "[{'type':'display','data':{}}]"},
    {DISPLAY, "{}", "[{'type':'display','data':{}}]"},
    {DISPLAY, "{'data':{},'transient':{'display_id':'d1'}}",
     "[{'type':'display','data':{},'display_id':'d1'}]"},
    {DISPLAY, "{'data':{},'transient':{'display_id':1}}", "[{'type':'display','data':{}}]"},
    {DISPLAY, "{'data':{},'transient':'d1'}", "[{'type':'display','data':{}}]"},
    {UPDATE, "{'data':{'text/plain':'a'},'transient':{'display_id':'d1'}}",
     "[{'type':'display','text':'a','data':{},'display_id':'d1','update':true}]"},

    {RESULT, "{'data':{'text/plain':'2'},'execution_count':1}",
     "[{'type':'result','text':'2','data':{},'execution_count':1}]"},
    {RESULT, "{'data':{'text/plain':'df','text/html':'<table>'},'execution_count':2}",
     "[{'type':'result','text':'df','data':{'text/html':'<table>'},'execution_count':2}]"},
    {RESULT, "{'data':{'text/plain':'img','image/png':'iVBO'},'execution_count':3}",
     "[{'type':'result','text':'img','image':'iVBO','format':'png','data':{},"
     "'execution_count':3}]"},
    {RESULT, "{'data':{'type':'error','seq':9},'execution_count':'many'}",
     "[{'type':'result','data':{'type':'error','seq':9},'execution_count':0}]"},

    {"error", "{'ename':'NameError','evalue':'no x','traceback':['1','2']}",
     "[{'type':'error','error':'NameError: no x','ename':'NameError','evalue':'no x',"
     "'traceback':['1','2']}]"},
    {"error", "{'ename':'KeyboardInterrupt','evalue':'','traceback':[]}",
     "[{'type':'error','error':'KeyboardInterrupt','ename':'KeyboardInterrupt','evalue':'',"
     "'traceback':[]}]"},
    {"error", "{'ename':'A\\u0000B','evalue':'c\\u0000d'}",
     "[{'type':'error','error':'A\\u0000B: c\\u0000d','ename':'A\\u0000B','evalue':'c\\u0000d',"
     "'traceback':[]}]"},
    {"error", "{'ename':5,'evalue':null,'traceback':'no list'}",
     "[{'type':'error','error':'','ename':'','evalue':'','traceback':[]}]"},
    {"error", "{'ename':'E','evalue':'','traceback':[{'a':1},'1',null,['2'],3,'4']}",
     "[{'type':'error','error':'E','ename':'E','evalue':'','traceback':['1','4']}]"},
    {"error", "{}", "[{'type':'error','error':'','ename':'','evalue':'','traceback':[]}]"},

    {"clear_output", "{'wait':true}", "[{'type':'clear','wait':true}]"},
    {"clear_output", "{'wait':'yes'}", "[{'type':'clear','wait':false}]"},
    {"clear_output", "{}", "[{'type':'clear','wait':false}]"},

    {"execute_input", "{'code':'1'}", "[]"},
    {"comm_open", "{}", "[]"},
    {"", "{}", "[]"},
};

// So that the table needs no backslash before each quote.
static char *
with_double_quotes(const char *text)
{
    char *copy = kg_strdup(text);
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return copy;
}

static void
test_messages_as_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_FREE char *content_text = with_double_quotes(cases[i].content);
        KG_AUTO_FREE char *expected_text = with_double_quotes(cases[i].lines);
        json_auto_t *content = parse(content_text);
        json_auto_t *before = json_deep_copy(content);
        json_auto_t *expected = parse(expected_text);
        json_auto_t *lines = lines_of(cases[i].type, content, false);
        if (!json_equal(lines, expected)) {
            KG_AUTO_FREE char *got = json_dumps(lines, JSON_COMPACT);
            fail_msg("%s %s: got %s", cases[i].type, cases[i].content, got);
        }
        assert_true(json_equal(content, before)); // it is the message's
    }
}

// ---- Long text ------------------------------------------------------------------------------

static void
check_split(const char *unit, size_t lead, size_t n_units)
{
    enum { MIB = 1 << 20, MANY = 1000 };
    KG_AUTO_BUF text = {0};
    for (size_t i = 0; i < lead; i++)
        buf_append(&text, "a", 1);
    KG_AUTO_BUF many = {0}; // one by one they take long
    for (size_t i = 0; i < MANY; i++)
        buf_append_str(&many, unit);
    for (size_t i = 0; i < n_units / MANY; i++)
        buf_append(&text, many.data, many.len);
    buf_append(&text, many.data, n_units % MANY * strlen(unit));
    json_auto_t *content =
        json_pack("{s:s, s:s#}", "name", "stdout", "text", text.data, (int)text.len);
    json_auto_t *lines = lines_of("stream", content, false);

    assert_int_equal(json_array_size(lines), (text.len + MIB - 1) / MIB);
    KG_AUTO_BUF joined = {0};
    size_t i;
    json_t *line;
    json_array_foreach(lines, i, line) {
        const json_t *part = json_object_get(line, "text"); // which is UTF-8, or it would not parse
        size_t len = json_string_length(part);
        assert_in_range(len, 1, MIB);
        if (i + 1 < json_array_size(lines))
            assert_in_range(len, MIB - strlen(unit) + 1, MIB);
        buf_append(&joined, json_string_value(part), len);
    }
    assert_int_equal(joined.len, text.len);
    assert_memory_equal(joined.data, text.data, text.len);
}

static void
test_long_text_is_split_between_characters(void **state)
{
    (void)state;
    check_split("a", 0, 1 << 20);
    check_split("a", 0, (1 << 20) + 1);
    for (size_t lead = 0; lead < 4; lead++) {
        check_split("\xe2\x82\xac", lead, 900 * 1000);     // 3 bytes
        check_split("\xf0\x9f\x98\x80", lead, 600 * 1000); // 4 bytes
    }
}

int
test_kernel_output(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_as_lines),
        cmocka_unit_test(test_long_text_is_split_between_characters),
    };
    return cmocka_run_group_tests_name("kernel: output", tests, NULL, NULL);
}
