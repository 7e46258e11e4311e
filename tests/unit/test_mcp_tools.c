// SPDX-License-Identifier: Apache-2.0
// The MCP tools without kernels: shaped text, outcomes of executions, results, the schemas and
// checks of parameters.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <event2/event.h>

#include "display.h"
#include "mcp_priv.h"
#include "tools_priv.h"

// ---- Text -----------------------------------------------------------------------------------

static char *
shaped(const char *data, size_t len, size_t head, size_t tail)
{
    struct text text;
    KG_AUTO_BUF ret = {0};
    text_init(&text, head, tail);
    text_add(&text, data, len);
    text_append_to(&text, &ret);
    text_fini(&text);
    return buf_take(&ret);
}

static void
test_text_is_cleaned(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain\ntext\n", "plain\ntext\n"},
        {"\x1b[31mred\x1b[0m", "red"},
        {"\x1b[1;38;5;200mx\x1b[K", "x"},
        {"\x1b]0;title\ay", "y"},
        {"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"},
        {"\x1b(Bz", "z"},
        {"\x1bMup", "up"},
        {"10%\r20%\r100%\n", "100%\n"},
        {"dos\r\nline\r\n", "dos\nline\n"},
        {"ab\bc", "ac"},
        {"a\xc3\xa9\bc", "ac"},
        {"bell\a\x7f", "bell"},
        {"tab\there", "tab\there"},
        {"\x1b[31", ""},
        {"\x1b[\nafter", "\nafter"},
        {"", ""},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_FREE char *got = shaped(cases[i][0], strlen(cases[i][0]), 1000, 1000);
        assert_string_equal(got, cases[i][1]);
    }
}

static void
test_an_escape_sequence_may_be_split_anywhere(void **state)
{
    (void)state;
    static const char all[] = "a\x1b[1;31mb\x1b]0;t\x1b\\c\r\nd";
    for (size_t cut = 0; cut < sizeof all; cut++) {
        struct text text;
        KG_AUTO_BUF ret = {0};
        text_init(&text, 100, 100);
        text_add(&text, all, cut);
        text_add(&text, all + cut, sizeof all - 1 - cut);
        text_append_to(&text, &ret);
        text_fini(&text);
        assert_string_equal(ret.data, "abc\nd");
    }
}

static void
test_an_unclosed_sequence_hides_only_so_much(void **state)
{
    (void)state;
    KG_AUTO_BUF long_one = {0};
    buf_append_str(&long_one, "\x1b]");
    for (int i = 0; i < 10000; i++)
        buf_append_str(&long_one, "x");
    buf_append_str(&long_one, "END");
    KG_AUTO_FREE char *got = shaped(long_one.data, long_one.len, 20000, 20000);
    assert_true(strlen(got) > 5000);
    assert_non_null(strstr(got, "END"));
}

static void
test_long_text_keeps_its_beginning_and_its_end(void **state)
{
    (void)state;
    KG_AUTO_BUF lines = {0};
    for (int i = 0; i < 10000; i++)
        buf_printf(&lines, "line %d\n", i);
    struct text text;
    KG_AUTO_BUF got = {0};
    text_init(&text, 1000, 500);
    for (size_t i = 0; i < lines.len; i += 777)
        text_add(&text, lines.data + i, lines.len - i < 777 ? lines.len - i : 777);
    size_t n_cut = text_append_to(&text, &got);
    text_fini(&text);
    assert_true(got.len < 1600 && n_cut > lines.len - 1600);
    assert_int_equal(strncmp(got.data, "line 0\nline 1\n", 14), 0);
    assert_string_equal(got.data + got.len - 10, "line 9999\n");
    // It is cut between lines, and the note has the number of bytes.
    char marker[64];
    int len = snprintf(marker, sizeof marker, "\n[... %zu bytes left out ...]\nline ", n_cut);
    assert_non_null(strstr(got.data, marker));
    assert_int_equal(got.len - (size_t)len + strlen("\nline ") + n_cut, lines.len);
}

static void
test_what_just_fits_is_whole(void **state)
{
    (void)state;
    KG_AUTO_FREE char *whole = shaped("0123456789", 10, 6, 4);
    assert_string_equal(whole, "0123456789");
    KG_AUTO_FREE char *cut = shaped("0123456789a", 11, 6, 4);
    assert_non_null(strstr(cut, "bytes left out"));
}

static void
test_what_can_be_read(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        bool readable;
        size_t begin, whole;
    } cases[] = {
        {"", true, 0, 0},
        {"a\xc3\xa9", true, 0, 3},
        {"\x80hello\n", false, 1, 7},
        {"\xa9\xa9\xa9\xa9", false, 3, 4},
        {"hello\xc3", false, 0, 5},
        {"\xa9\xe2\x98", false, 1, 1},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        const char *data = cases[i].data;
        assert_int_equal(text_is_readable(data, strlen(data)), cases[i].readable);
        assert_int_equal(text_begin(data, strlen(data)), cases[i].begin);
        assert_int_equal(text_whole(data, strlen(data)), cases[i].whole);
    }
    assert_false(text_is_readable("a\0b", 3));
}

static void
test_characters_are_not_split(void **state)
{
    (void)state;
    KG_AUTO_BUF euros = {0};
    for (int i = 0; i < 1000; i++)
        buf_append_str(&euros, "€");
    for (size_t head = 10; head < 14; head++) {
        KG_AUTO_FREE char *got = shaped(euros.data, euros.len, head, head);
        json_auto_t *valid = json_string(got); // refuses invalid UTF-8
        assert_non_null(valid);
    }
}

static void
test_the_newest_line(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 100, 100);
    assert_string_equal(text_newest_line(&text), "");
    text_add(&text, "one\ntwo\n  \n\n", 12);
    assert_string_equal(text_newest_line(&text), "two");
    text_add(&text, "10%\r2\x1b[0m0%", 12);
    assert_string_equal(text_newest_line(&text), "20%");
    text_fini(&text);
}

// ---- Bytes of files -------------------------------------------------------------------------

enum { FILE_BYTES = 200 << 10 }; // what a worker takes

struct file_job {
    struct job job; // the first member
    int n_done;
    bool is_text;
    json_t *string;
};

static void
on_string(struct job *job, json_t *string, bool is_text)
{
    struct file_job *file = (struct file_job *)job;
    file->n_done++;
    file->string = string;
    file->is_text = is_text;
}

static void
on_decoded(struct job *job)
{
    ((struct file_job *)job)->n_done++;
}

static void
turn_until(struct loop *loop, const struct file_job *file, int n_done)
{
    while (file->n_done < n_done)
        event_base_loop(loop_event_base(loop), EVLOOP_ONCE);
}

static void
test_large_files_are_read_on_a_worker(void **state)
{
    (void)state;
    struct loop *loop = loop_new();
    struct mcp_tools tools = {.settings.loop = loop};
    struct mcp_call call = {.owner = (char *)(uintptr_t) "ann"};
    struct file_job file = {.job = {.tools = &tools, .call = &call}};
    KG_AUTO_FREE char *bytes = kg_calloc(1, FILE_BYTES + 1);
    memset(bytes, 'x', FILE_BYTES);
    job_bytes_as_string(&file.job, bytes, FILE_BYTES, true, on_string);
    assert_int_equal(file.n_done, 0);
    memset(bytes, 0, FILE_BYTES); // it has its own copy
    turn_until(loop, &file, 1);
    assert_true(file.is_text);
    assert_int_equal(json_string_length(file.string), FILE_BYTES);
    assert_int_equal(strspn(json_string_value(file.string), "x"), FILE_BYTES);
    json_decref(KG_STEAL(file.string));

    job_bytes_as_string(&file.job, bytes, FILE_BYTES, true, on_string);
    turn_until(loop, &file, 2);
    assert_false(file.is_text);
    job_decode_base64(&file.job, json_string_value(file.string), on_decoded);
    assert_int_equal(file.n_done, 2);
    turn_until(loop, &file, 3);
    assert_int_equal(file.job.file.data.len, FILE_BYTES);
    assert_memory_equal(file.job.file.data.data, bytes, FILE_BYTES);
    json_decref(file.string);

    // A call that ends meanwhile: what the worker has is its own.
    job_bytes_as_string(&file.job, bytes, FILE_BYTES, false, on_string);
    file.job.cancel_work(file.job.work);
    loop_free(loop);
    assert_int_equal(file.n_done, 3);
    buf_fini(&file.job.file.data);
}

// ---- Outcomes and results -------------------------------------------------------------------

static struct mcp_tools *
no_tools(void)
{
    static const struct face_context face = {
        .default_timeout_ms = 30000, .max_timeout_ms = 3600000, .max_code_bytes = 100};
    static struct mcp_tools tools = {.settings = {.face = &face}};
    return &tools;
}

static void
job_of(struct job *job, const char *const *lines)
{
    static const struct outcome_limits limits = {10000, 6000, 1 << 20};
    *job = (struct job){.tools = no_tools(), .error_result = result_of_error, .session.id = "s1"};
    outcome_init(&job->outcome, &limits);
    for (; *lines; lines++)
        outcome_add_line(&job->outcome, *lines, strlen(*lines));
}

#define DONE "{\"type\":\"done\",\"status\":\"ok\"}"

// The text of the result of these lines, and the number of other blocks.
static char *
text_of(const char *const *lines, bool *ret_error, size_t *ret_others)
{
    struct job job;
    job_of(&job, lines);
    json_auto_t *result = result_of_run(&job);
    outcome_fini(&job.outcome);
    const json_t *content = json_object_get(result, "content");
    const json_t *block = json_array_get(content, 0);
    assert_string_equal(json_string_value(json_object_get(block, "type")), "text");
    *ret_error = json_is_true(json_object_get(result, "isError"));
    *ret_others = json_array_size(content) - 1;
    return kg_strdup(json_string_value(json_object_get(block, "text")));
}

static void
test_results(void **state)
{
    (void)state;
    static const struct {
        const char *lines[8];
        const char *text;
        bool is_error;
        size_t n_others;
    } cases[] = {
        {{"{\"type\":\"stdout\",\"text\":\"hi\\n\"}", DONE}, "hi\n", false, 0},
        {{"{\"type\":\"result\",\"text\":\"2\",\"data\":{}}", DONE}, "2", false, 0},
        {{"{\"type\":\"stdout\",\"text\":\"hi\\n\"}",
          "{\"type\":\"result\",\"text\":\"2\",\"data\":{}}", DONE},
         "[stdout]\nhi\n\n[result]\n2",
         false,
         0},
        {{"{\"type\":\"stderr\",\"text\":\"w\\n\"}", DONE}, "[stderr]\nw\n", false, 0},
        {{DONE}, "[ran without error, and without output: print() shows a value]\n", false, 0},
        {{"{\"type\":\"error\",\"error\":\"E: x\",\"traceback\":[\"tb\",\"\\u001b[31mE: x\"]}",
          "{\"type\":\"done\",\"status\":\"error\"}"},
         "tb\nE: x\n",
         true,
         0},
        {{"{\"type\":\"display\",\"image\":\"QUJD\",\"format\":\"png\",\"data\":{\"text/"
          "plain\":\"<Figure>\"}}",
          DONE},
         "[1 image]\n",
         false,
         1},
        {{"{\"type\":\"display\",\"image\":\"<svg/>\",\"format\":\"svg\",\"data\":{}}", DONE},
         "[1 SVG image cannot be shown here: display PNG, or save to a file]\n",
         false,
         0},
        {{"{\"type\":\"display\",\"data\":{\"text/html\":\"<b>x</b>\"}}", DONE}, "x", false, 0},
        {{"{\"type\":\"result\",\"text\":\"<IPython.core.display.Markdown object>\",\"data\":{"
          "\"text/markdown\":\"# Title\"}}",
          DONE},
         "# Title",
         false,
         0},
        {{"{\"type\":\"display\",\"text\":\"   a\\n0  1\",\"data\":{\"text/html\":\"<table>\"}}",
          DONE},
         "   a\n0  1",
         false,
         0},
        {{"{\"type\":\"display\",\"data\":{\"application/vnd.plotly.v1+json\":{\"data\":[]},"
          "\"text/html\":\"<div></div>\"}}",
          DONE},
         "[a Plotly figure is interactive, and cannot be shown here: "
         "fig.write_html(\"figure.html\") "
         "saves it; a figure of matplotlib is shown]",
         false,
         0},
        {{"{\"type\":\"display\",\"data\":{\"application/pdf\":\"JVBERi0=\"}}", DONE},
         "[a display of type application/pdf cannot be shown here: save it to a file]",
         false,
         0},
        {{"{\"type\":\"display\",\"text\":\"<PIL.Image>\",\"data\":{\"image/webp\":\"UklGRg==\"}}",
          DONE},
         "[1 image]\n",
         false,
         1},
        {{"{\"type\":\"display\",\"text\":\"old\",\"data\":{},\"display_id\":\"d\"}",
          "{\"type\":\"display\",\"text\":\"new\",\"data\":{},\"display_id\":\"d\",\"update\":"
          "true}",
          DONE},
         "new",
         false,
         0},
        {{"{\"type\":\"stdout\",\"text\":\"gone\"}", "{\"type\":\"clear\",\"wait\":true}",
          "{\"type\":\"stdout\",\"text\":\"kept\"}", "{\"type\":\"clear\",\"wait\":true}", DONE},
         "kept",
         false,
         0},
        {{"{\"type\":\"file\",\"file\":\"a b.txt\",\"size\":3,\"mime\":\"text/plain\"}", DONE},
         "[files written: a b.txt (3 bytes)]\n",
         false,
         1},
        {{"{\"type\":\"error\",\"error\":\"TimeoutError: 1 s\",\"traceback\":[]}",
          "{\"type\":\"done\",\"status\":\"timeout\",\"kernel_restarted\":true}"},
         "TimeoutError: 1 s\n\n[timed out: pass a larger timeout (up to 3600 s), work in smaller "
         "steps, or start long work in the background]\n[the kernel was restarted: "
         "variables and imports are gone, files are kept]\n",
         true,
         0},
        {{"not json", "[]", "{\"type\":3}", "{\"type\":\"stdout\"}", DONE},
         "[ran without error, and without output: print() shows a value]\n",
         false,
         0},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        bool is_error;
        size_t n_others;
        KG_AUTO_FREE char *text = text_of(cases[i].lines, &is_error, &n_others);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(is_error, cases[i].is_error);
        assert_int_equal(n_others, cases[i].n_others);
    }
}

// The first errors and the newest are kept, each shortened to what is shown.
static void
test_errors_are_kept_cut(void **state)
{
    (void)state;
    struct outcome outcome;
    outcome_init(&outcome, &(const struct outcome_limits){.max_text_head = 100});
    for (int i = 0; i < 12; i++) {
        json_t *traceback = json_array();
        for (int n = 0; n < (i == 1 ? 20000 : 2); n++)
            json_array_append_new(traceback, json_sprintf("line %d of %d", n, i));
        KG_AUTO_BUF said = {0};
        buf_printf(&said, "E%d: %*d", i, i == 11 ? 100000 : 1, 0);
        json_auto_t *line = json_pack("{s:s, s:s, s:o}", "type", "error", "error", said.data,
                                      "traceback", traceback);
        KG_AUTO_FREE char *text = json_dumps(line, 0);
        outcome_add_line(&outcome, text, strlen(text));
    }
    assert_int_equal(outcome.n_errors, OUTCOME_MAX_ERRORS);
    assert_int_equal(strncmp(outcome_error(&outcome), "E11: ", 5), 0);
    assert_int_equal(strlen(outcome_error(&outcome)), 4096);
    assert_int_equal(json_array_size(outcome.errors[0].traceback), 2);
    const json_t *cut = outcome.errors[1].traceback;
    assert_int_equal(json_array_size(cut), 1);
    assert_true(json_string_length(json_array_get(cut, 0)) < 5000);
    KG_AUTO_BUF shown = {0};
    outcome_append_errors(&outcome, &shown);
    assert_int_equal(strncmp(shown.data, "line 0 of 0\nline 1 of 0\nline 0 of 1\n", 36), 0);
    assert_non_null(strstr(shown.data, "bytes left out"));
    assert_true(shown.len < 6000);
    outcome_fini(&outcome);
}

static void
test_an_image_is_an_image_and_a_file_a_link(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "{\"type\":\"display\",\"image\":\"QUJD\",\"format\":\"jpeg\",\"data\":{}}",
        "{\"type\":\"file\",\"file\":\"d/ü#.csv\",\"size\":3,\"mime\":\"text/csv\"}", DONE, NULL};
    struct job job;
    job_of(&job, lines);
    json_auto_t *result = result_of_run(&job);
    outcome_fini(&job.outcome);
    const char *type, *data, *mime, *link, *uri, *name;
    assert_int_equal(json_unpack(result, "{s:[{}, {s:s, s:s, s:s}, {s:s, s:s, s:s}]}", "content",
                                 "type", &type, "data", &data, "mimeType", &mime, "type", &link,
                                 "uri", &uri, "name", &name),
                     0);
    assert_string_equal(type, "image");
    assert_string_equal(data, "QUJD");
    assert_string_equal(mime, "image/jpeg");
    assert_string_equal(link, "resource_link");
    assert_string_equal(uri, "kernelgate://s1/d/%C3%BC%23.csv");
    assert_string_equal(name, "d/ü#.csv");
}

static void
test_what_is_no_image_is_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *image;
        size_t n_images;
    } cases[] = {
        {"QUJD", 1}, {"QUI=", 1},           {"QQ==\\n", 1},     {"QUJD\\nQUJD\\n", 1},
        {"", 0},     {"\\u0000\\ufffd", 0}, {"QUJD\\u0000", 0}, {"Q=JD", 0},
        {"=", 0},    {"QUJDR", 0},          {"<svg/>", 0},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_FREE char *line = kg_asprintf("{\"type\":\"display\",\"image\":\"%s\",\"format\":"
                                              "\"png\",\"text\":\"alt\",\"data\":{}}",
                                              cases[i].image);
        const char *lines[] = {line, DONE, NULL};
        bool is_error;
        size_t n_others;
        KG_AUTO_FREE char *text = text_of(lines, &is_error, &n_others);
        assert_int_equal(n_others, cases[i].n_images);
        assert_int_equal(strcmp(text, "alt") == 0, cases[i].n_images == 0);
    }
}

static void
count_release(void *held)
{
    ++*(int *)held;
}

// Only the shown members of a large line are loaded, with the same result as for a small line. A
// held line is kept for its image, and released once.
static void
test_large_lines(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
        const char *text; // the beginning of the item's text; NULL: none
        bool image;
    } cases[] = {
        {"{'type':'display','image':'", "','format':'png','data':{'a/b':[1,{}]}}", NULL, true},
        {"{'type':'result','data':{'a/b':[1]},'image':'", "','format':'png','text':'t'}", "t",
         true},
        {"{'type':'display','image':'", "\\n','format':'png'}", NULL, true},
        {"{'type':'display','image':'", "\\n\\r\\nQQ==\\n','format':'png'}", NULL, true},
        {"{'type':'display','image':'", "\\u0000','format':'png','text':'t'}", "t", false},
        {"{'type':'display','image':'", "\\tQ','format':'png','text':'t'}", "t", false},
        {"{'type':'display','image':'", "\\t<svg/>','format':'svg'}", NULL, true},
        {"{'type':'display','image':'", "<','format':'png','text':'t'}", "t", false},
        {"{'type':'display','text':'", "'}", "AAAA", false},
        {"{'type':'display','data':{'text/html':'h','text/markdown':'", "'}}", "AAAA", false},
        {"{'type':'display','data':{'text/html':'h\\u00e9','a/b':'", "'}}", "h\xc3\xa9", false},
        {"{'type':'display','data':{'application/json':{'k':['", "']}}}", "{\"k\":[\"AAAA", false},
        {"{'type':'display','text':'t','data':{'a/b':'", "'}}", "t", false},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        KG_AUTO_BUF line = {0};
        buf_append_str(&line, cases[i].before);
        size_t len = OUTCOME_LARGE_LINE;
        memset(buf_reserve(&line, len), 'A', len);
        line.len += len;
        buf_append_str(&line, cases[i].after);
        for (size_t at = 0; at < line.len; at++)
            line.data[at] = line.data[at] == '\'' ? '"' : line.data[at];
        for (int held = 0; held < 2; held++) {
            int released = 0;
            struct outcome outcome;
            outcome_init(&outcome, &(const struct outcome_limits){.max_image_bytes = 1 << 20});
            outcome.release = count_release;
            if (held)
                outcome_add_held_line(&outcome, line.data, line.len, &released);
            else
                outcome_add_line(&outcome, line.data, line.len);
            assert_int_equal(released, 0); // this may be a worker
            outcome_release(&outcome);
            assert_int_equal(released, held && !cases[i].image);
            assert_int_equal(outcome.n_items, 1);
            const struct outcome_item *item = &outcome.items[0];
            assert_int_equal(outcome_has_image(item), cases[i].image);
            if (cases[i].image)
                assert_true(item->image.len >= len);
            assert_int_equal(item->text != NULL, cases[i].text != NULL);
            if (cases[i].text)
                assert_memory_equal(item->text, cases[i].text, strlen(cases[i].text));
            outcome_fini(&outcome);
            assert_int_equal(released, held);
        }
    }
}

// A held line is released when its image is replaced.
static void
test_a_held_line_is_released_with_its_item(void **state)
{
    (void)state;
    KG_AUTO_BUF line = {0};
    buf_append_str(&line, "{\"type\":\"display\",\"display_id\":\"d\",\"format\":\"png\","
                          "\"update\":true,\"image\":\"");
    memset(buf_reserve(&line, OUTCOME_LARGE_LINE), 'A', OUTCOME_LARGE_LINE);
    line.len += OUTCOME_LARGE_LINE;
    buf_append_str(&line, "\"}");
    int released[3] = {0};
    struct outcome outcome;
    outcome_init(&outcome, &(const struct outcome_limits){.max_image_bytes = 1 << 20});
    outcome.release = count_release;
    for (int i = 0; i < 3; i++)
        outcome_add_held_line(&outcome, line.data, line.len, &released[i]);
    outcome_release(&outcome);
    assert_int_equal(outcome.n_items, 1);
    assert_int_equal(released[0] + released[1], 2);
    assert_int_equal(released[2], 0);
    static const char clear[] = "{\"type\":\"clear\"}";
    outcome_add_line(&outcome, clear, strlen(clear));
    outcome_release(&outcome);
    assert_int_equal(released[2], 1);
    outcome_fini(&outcome);
}

// Millions of values that are not shown are not loaded.
static void
test_a_large_line_makes_no_values_of_what_is_not_shown(void **state)
{
    (void)state;
    KG_AUTO_BUF line = {0};
    buf_append_str(&line, "{\"type\":\"display\",\"text\":\"t\",\"data\":{\"a/b\":[");
    for (int i = 0; i < 100 * 1000; i++)
        buf_append_str(&line, "[],");
    buf_append_str(&line, "not JSON at all]}}"); // which a parser would refuse
    struct outcome outcome;
    outcome_init(&outcome, &(const struct outcome_limits){.max_image_bytes = 1 << 20});
    outcome_add_line(&outcome, line.data, line.len);
    assert_int_equal(outcome.n_items, 1);
    assert_string_equal(outcome.items[0].text, "t");
    outcome_fini(&outcome);
}

static void
test_images_are_bounded(void **state)
{
    (void)state;
    const char *lines[32] = {0};
    for (int i = 0; i < 25; i++)
        lines[i] = "{\"type\":\"display\",\"image\":\"QUJD\",\"format\":\"png\",\"data\":{}}";
    lines[25] = DONE;
    bool is_error;
    size_t n_others;
    KG_AUTO_FREE char *text = text_of(lines, &is_error, &n_others);
    assert_int_equal(n_others, 20);
    assert_non_null(strstr(text, "5 further images"));
}

// Clients refuse a whole answer with a larger one.
static void
test_an_image_is_bounded(void **state)
{
    (void)state;
    enum { MAX_BYTES = 5 << 20 }; // of base64
    for (int above = 0; above < 2; above++) {
        const size_t len = MAX_BYTES + 4 * (size_t)above;
        KG_AUTO_BUF line = {0};
        buf_append_str(&line, "{\"type\":\"display\",\"format\":\"png\",\"image\":\"");
        memset(buf_reserve(&line, len), 'A', len);
        line.len += len;
        buf_append_str(&line, "\"}");
        struct job job = {.tools = no_tools(), .session.id = "s1"};
        outcome_init(&job.outcome, &(const struct outcome_limits){10000, 6000, 2 * MAX_BYTES});
        outcome_add_line(&job.outcome, line.data, line.len);
        outcome_add_line(&job.outcome, DONE, strlen(DONE));
        json_auto_t *result = result_of_run(&job);
        outcome_fini(&job.outcome);
        const json_t *content = json_object_get(result, "content");
        const json_t *text = json_object_get(json_array_get(content, 0), "text");
        const json_t *data = json_object_get(json_array_get(content, 1), "data");
        const char *said = above ? "1 further images or displays were left out" : "[1 image]";
        assert_non_null(strstr(json_string_value(text), said));
        assert_int_equal(json_array_size(content), above ? 1 : 2);
        assert_int_equal(json_string_length(data), above ? 0 : len);
    }
}

static void
test_the_session_is_told(void **state)
{
    (void)state;
    static const char *const lines[] = {DONE, NULL};
    struct job job;
    job_of(&job, lines);
    job.session.note = JOB_NOTE_AGAIN;
    json_auto_t *result = result_of_run(&job);
    outcome_fini(&job.outcome);
    const char *text, *id, *status;
    assert_int_equal(json_unpack(result, "{s:[{s:s}], s:{s:s, s:s}}", "content", "text", &text,
                                 "_meta", "kernelgate/session_id", &id, "kernelgate/status",
                                 &status),
                     0);
    assert_non_null(strstr(text, "NOTE: session s1 did not exist any more"));
    assert_string_equal(id, "s1");
    assert_string_equal(status, "ok");
}

static void
test_errors_carry_their_code(void **state)
{
    (void)state;
    struct job job = {.tools = no_tools()};
    struct kg_error err = {0};
    kg_error_set(&err, KG_SESSION_NOT_FOUND, 0, "there is no session x");
    json_auto_t *result = result_of_error(&job, &err);
    const char *text, *code;
    int is_error;
    assert_int_equal(json_unpack(result, "{s:b, s:[{s:s}], s:{s:s}}", "isError", &is_error,
                                 "content", "text", &text, "structuredContent", "code", &code),
                     0);
    assert_true(is_error);
    assert_string_equal(code, "session_not_found");
    assert_non_null(strstr(text, "Error session_not_found: there is no session x\nlist_sessions "));
}

// ---- Parameters -----------------------------------------------------------------------------

static const struct param params[] = {
    {.name = "code", .required = true, .description = "c"},
    {.name = "n", .type = PARAM_INTEGER, .description = "n of {timeout} {other}", .fallback = "3"},
    {.name = "x", .type = PARAM_NUMBER, .description = "x"},
    {.name = "flag", .type = PARAM_BOOLEAN, .description = "f"},
    {.name = "list", .type = PARAM_STRINGS, .description = "l", .choices = NULL},
    {.name = "env", .type = PARAM_OBJECT, .description = "e"},
    {.name = "where", .description = "{network}", .choices = "here|there"},
    {0},
};
static const struct tool sample = {
    .name = "sample", .title = "S", .description = "up to {max_timeout} s", .params = params};

static void
test_a_tool_is_described(void **state)
{
    (void)state;
    json_auto_t *tool = tool_describe(no_tools(), &sample);
    const char *description, *n;
    json_int_t fallback;
    json_t *required;
    assert_int_equal(json_unpack(tool, "{s:s, s:{s:o, s:{s:{s:s, s:I}}}}", "description",
                                 &description, "inputSchema", "required", &required, "properties",
                                 "n", "description", &n, "default", &fallback),
                     0);
    assert_string_equal(description, "up to 3600 s");
    assert_string_equal(n, "n of 30 {other}");
    assert_int_equal(fallback, 3);
    assert_int_equal(json_array_size(required), 1);
    struct mcp_tools reaching = *no_tools();
    reaching.settings.network = true;
    KG_AUTO_FREE char *said = fill_in(&reaching, "{network}.");
    KG_AUTO_FREE char *by_default = fill_in(no_tools(), "{network}.");
    assert_string_equal(said, "the network can be reached.");
    for (int reaches = 0; reaches < 2; reaches++) {
        json_auto_t *run = tool_describe(reaches ? &reaching : no_tools(), &kernelgate_tools[0]);
        const json_t *annotations = json_object_get(run, "annotations");
        assert_int_equal(json_is_true(json_object_get(annotations, "openWorldHint")), reaches);
    }
    assert_string_equal(by_default, "there is no network.");
}

static void
test_text_of_displays(void **state)
{
    (void)state;
    static const struct {
        const char *plain; // JSON; NULL: absent
        const char *data;
        const char *text;
    } cases[] = {
        {"\"3\"", "{}", "3"},
        {NULL, "{}", ""},
        {NULL, "{\"text/html\":\"<p>a&amp;b<br>c</p><script>if (1<2) {}</script> d\"}",
         "a&b\nc\nd"},
        {NULL, "{\"text/html\":\"<table><tr><th>x</th><td>1</td></tr><tr><td>2\"}", "x\t1\n2"},
        {NULL, "{\"text/html\":\"<a title='>'>1 < 2</a><!-- > -->\"}", "1 < 2"},
        {NULL, "{\"text/html\":\"<script>x\"}", "[a display of type text/html cannot be shown"},
        {NULL, "{\"text/html\":\"<\"}", "<"},
        {"\"<x at 0x7f>\"", "{\"text/html\":\"<i>i</i>\"}", "i"},
        {"\"<x at 0x7f>\"", "{}", "<x at 0x7f>"},
        {"\"<IPython.core.display.Latex object>\"", "{\"text/latex\":\"$x$\"}", "$x$"},
        {"\"<IPython.core.display.JSON object>\"", "{\"application/json\":{\"a\":[1]}}",
         "{\"a\": [1]}"},
        {"\"alt.Chart(...)\"", "{\"application/vnd.vegalite.v5+json\":{}}",
         "[an Altair or Vega chart"},
        {"\":Curve [x]\"", "{\"application/vnd.holoviews_exec.v0+json\":\"\"}",
         ":Curve [x]\n[a Bokeh or HoloViews plot"},
        {"\"IntSlider(value=0)\"", "{\"application/vnd.jupyter.widget-view+json\":{}}",
         "IntSlider(value=0)"},
        {NULL, "{\"a\\u202eb\":1}", "[a display of type a?b cannot be shown here"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        json_auto_t *plain =
            cases[i].plain ? json_loads(cases[i].plain, JSON_DECODE_ANY, NULL) : NULL;
        json_auto_t *data = json_loads(cases[i].data, 0, NULL);
        KG_AUTO_BUF text = {0};
        display_append_text(&text, plain, data);
        const char *got = text.data ? text.data : "";
        if (strncmp(got, cases[i].text, strlen(cases[i].text)) != 0 ||
            (*got != '[' && !strchr(got, '[') && strcmp(got, cases[i].text) != 0))
            fail_msg("%s: %s", cases[i].data, got);
    }
}

static void
test_sizes_of_images(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        size_t len;
        const char *mime; // NULL: it cannot be read
        int width, height;
    } cases[] = {
#define HEAD(text) text, sizeof text - 1
        {HEAD("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x24\x90\0\0\0\xc5"), "image/png", 9360, 197},
        {HEAD("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\xff\0\0\0\0\0\0\1"), "image/png", INT32_MAX, 1},
        {HEAD("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x24\x90\0\0\0"), NULL, 0, 0},
        {HEAD("GIF89a\x10\x27\x02\x00"), "image/gif", 10000, 2},
        {HEAD("GIF88a\x10\x27\x02\x00"), NULL, 0, 0},
        {HEAD("\xff\xd8\xff\xe0\0\4ab\xff\xff\xc2\0\x0b\x08\x01\x00\x02\x03\1"), "image/jpeg",
         0x203, 0x100},
        {HEAD("\xff\xd8\xff\xc4\0\2\xff\xc0\0\x0b\x08\0\1\0\2\1"), "image/jpeg", 2, 1},
        {HEAD("\xff\xd8\xff\xe0\xff\xff"), NULL, 0, 0},
        {HEAD("\xff\xd8\xff\xe0\0\0\xff\xe0\0\0"), NULL, 0, 0},
        {HEAD("RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x0f\x27\0\1\0\0"), "image/webp", 10000, 2},
        {HEAD("RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x0f\x67\x02\0\0\0\0\0\0"), "image/webp", 10000, 10},
        {HEAD("RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x10\x27\2\0"), "image/webp", 10000,
         2},
        {HEAD("RIFF\0\0\0\0WEBPVP8?\0\0\0\0\0\0\0\x9d\x01\x2a\x10\x27\2\0"), NULL, 0, 0},
        {HEAD(""), NULL, 0, 0},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct image_size size;
        KG_AUTO_FREE char *copy = kg_calloc(cases[i].len, 1); // of its size, to see reads beyond it
        memcpy(copy, cases[i].head, cases[i].len);
        bool found = image_size_read(copy, cases[i].len, &size);
        assert_int_equal(found, cases[i].mime != NULL);
        if (!found)
            continue;
        assert_string_equal(size.mime, cases[i].mime);
        assert_int_equal(size.width, cases[i].width);
        assert_int_equal(size.height, cases[i].height);
    }
    struct image_size size;
    static const char lines[] = "R0lGODlh\\nECcCAA==", plain[] = "R0lGODlh\nECcCAA";
    assert_true(image_size_read_base64(lines, strlen(lines), true, &size));
    assert_int_equal(size.width, 10000);
    assert_true(image_size_read_base64(plain, strlen(plain), false, &size));
    assert_false(image_size_read_base64("QUJD", 4, false, &size));
    assert_false(image_size_read_base64("?", 1, false, &size));
    assert_false(image_size_read_base64("", 0, false, &size));
}

static void
test_an_image_with_too_many_pixels(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "{\"type\":\"display\",\"image\":\"R0lGODlhECcCAA==\",\"format\":\"gif\",\"data\":{}}",
        DONE, NULL};
    struct mcp_tools *tools = no_tools();
    for (int max = 9999; max <= 10000; max++) {
        bool is_error;
        size_t n_others;
        tools->settings.max_image_side = max;
        KG_AUTO_FREE char *text = text_of(lines, &is_error, &n_others);
        assert_int_equal(n_others, max == 10000);
        assert_string_equal(
            text, max == 10000 ? "[1 image]\n"
                               : "[an image of 10000 x 2 pixels is not shown, since a side may "
                                 "have 9999 at most: display a smaller one]\n");
    }
    tools->settings.max_image_side = 0;
}

static void
test_arguments_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *args;
        const char *message; // NULL: fine
    } cases[] = {
        {"{\"code\":\"1\"}", NULL},
        {"{\"code\":\"1\",\"n\":null,\"x\":1,\"flag\":true,\"list\":[\"a\"],\"env\":{}}", NULL},
        {"{\"code\":\"1\",\"sessionId\":\"x\",\"toolCallId\":\"y\"}", NULL},
        {"{}", "code is missing (a string). sample takes: code (required), n, x, flag, list, env"},
        {"{\"code\":null}", "code is missing"},
        {"{\"code\":1}", "code must be a string"},
        {"{\"code\":\"1\",\"n\":1.5}", "n must be an integer"},
        {"{\"code\":\"1\",\"n\":5.0,\"where\":\"\"}", NULL},
        {"{\"code\":\"\",\"where\":null}", NULL},
        {"{\"code\":\"1\",\"x\":\"1\",\"n\":\" 20 \",\"flag\":\"True\",\"list\":\"[\\\"a\\\"]\"}",
         NULL},
        {"{\"code\":\"1\",\"list\":\"a\",\"env\":\"{\\\"A\\\":1}\"}", NULL},
        {"{\"code\":\"1\",\"x\":\"one\"}", "x must be a number"},
        {"{\"code\":\"1\",\"n\":\"1.5\"}", "n must be an integer"},
        {"{\"code\":\"1\",\"n\":\"\"}", NULL},
        {"{\"code\":\"1\",\"flag\":\"yes\"}", "flag must be true or false"},
        {"{\"code\":\"1\",\"env\":\"[]\"}", "env must be an object"},
        {"{\"code\":\"1\",\"flag\":1}", "flag must be true or false"},
        {"{\"code\":\"1\",\"list\":[1]}", "list must be an array of strings"},
        {"{\"code\":\"1\",\"env\":[]}", "env must be an object"},
        {"{\"code\":\"1\",\"cod\":\"2\"}", "unknown argument \"cod\""},
        {"{\"code\":\"a\\u0000b\"}", "code must not contain a NUL"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        json_auto_t *args = json_loads(cases[i].args, JSON_ALLOW_NUL, NULL);
        struct kg_error err = {0};
        int got = tool_check(no_tools(), &sample, args, &err);
        assert_int_equal(got, cases[i].message ? -1 : 0);
        if (cases[i].message)
            assert_non_null(strstr(err.message, cases[i].message));
    }
    char code[200];
    memset(code, 'x', sizeof code);
    json_auto_t *args = json_pack("{s:s%}", "code", code, sizeof code);
    struct kg_error err = {0};
    assert_int_equal(tool_check(no_tools(), &sample, args, &err), -1);
    assert_int_equal(err.code, KG_CODE_TOO_LARGE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_cleaned),
        cmocka_unit_test(test_an_escape_sequence_may_be_split_anywhere),
        cmocka_unit_test(test_an_unclosed_sequence_hides_only_so_much),
        cmocka_unit_test(test_long_text_keeps_its_beginning_and_its_end),
        cmocka_unit_test(test_what_just_fits_is_whole),
        cmocka_unit_test(test_what_can_be_read),
        cmocka_unit_test(test_characters_are_not_split),
        cmocka_unit_test(test_the_newest_line),
        cmocka_unit_test(test_large_files_are_read_on_a_worker),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_errors_are_kept_cut),
        cmocka_unit_test(test_an_image_is_an_image_and_a_file_a_link),
        cmocka_unit_test(test_what_is_no_image_is_left_out),
        cmocka_unit_test(test_large_lines),
        cmocka_unit_test(test_a_large_line_makes_no_values_of_what_is_not_shown),
        cmocka_unit_test(test_a_held_line_is_released_with_its_item),
        cmocka_unit_test(test_images_are_bounded),
        cmocka_unit_test(test_an_image_is_bounded),
        cmocka_unit_test(test_the_session_is_told),
        cmocka_unit_test(test_errors_carry_their_code),
        cmocka_unit_test(test_a_tool_is_described),
        cmocka_unit_test(test_text_of_displays),
        cmocka_unit_test(test_sizes_of_images),
        cmocka_unit_test(test_an_image_with_too_many_pixels),
        cmocka_unit_test(test_arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
