// SPDX-License-Identifier: Apache-2.0
#include "yaml_json.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    int n_values;
    struct kg_error *err;
};

static json_t *read_value(struct reader *reader, int depth);

// Always returns NULL.
static json_t *
json_fail(struct reader *reader, const char *why)
{
    kg_error_set(reader->err, KG_INVALID, 0, "line %zu: %s", reader->event.start_mark.line + 1,
                 why);
    return NULL;
}

// Replaces the current event by the next one.
static bool
next_event(struct reader *reader)
{
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event))
        return true;
    kg_error_set(reader->err, KG_INVALID, 0, "line %zu: %s", reader->parser.problem_mark.line + 1,
                 reader->parser.problem ? reader->parser.problem : "not YAML");
    return false;
}

// ---- Scalars --------------------------------------------------------------------------------

static bool
is_any(const char *text, const char *const *all)
{
    for (; *all; all++)
        if (strcmp(text, *all) == 0)
            return true;
    return false;
}

// The number that the text is. NULL: it is none, or does not fit.
static json_t *
read_number(const char *text)
{
    const char *digits = text + (*text == '-' || *text == '+');
    size_t whole = strspn(digits, "0123456789");
    int base = strncmp(text, "0x", 2) == 0 ? 16 : strncmp(text, "0o", 2) == 0 ? 8 : 10;
    bool is_whole = digits[whole] == '\0' && whole > 0;
    char *end;
    errno = 0;
    if (base != 10 || is_whole) {
        long long number = strtoll(base == 10 ? text : text + 2, &end, base);
        bool signed_again = base != 10 && !strchr("0123456789abcdefABCDEF", text[2]);
        return *end || errno || signed_again || !text[base == 10 ? 0 : 2] ? NULL
                                                                          : json_integer(number);
    }
    if (strspn(digits, "0123456789.eE+-") != strlen(digits) || !strpbrk(digits, "0123456789") ||
        strchr("eE+-", *digits))
        return NULL;
    double number = strtod(text, &end);
    return *end || errno ? NULL : json_real(number);
}

static json_t *
read_plain(const char *text)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    if (is_any(text, nulls))
        return json_null();
    if (is_any(text, trues))
        return json_true();
    if (is_any(text, falses))
        return json_false();
    json_t *number = read_number(text);
    return number ? number : json_string(text);
}

static json_t *
read_scalar(struct reader *reader)
{
    const char *text = (const char *)reader->event.data.scalar.value;
    size_t len = reader->event.data.scalar.length;
    if (reader->event.data.scalar.anchor)
        return json_fail(reader, "anchors are not supported");
    if (reader->event.data.scalar.tag)
        return json_fail(reader, "tags are not supported");
    if (strlen(text) != len)
        return json_fail(reader, "a text has a NUL");
    if (reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return read_plain(text);
    return json_stringn(text, len);
}

// ---- Collections ----------------------------------------------------------------------------

static json_t *
read_sequence(struct reader *reader, int depth)
{
    if (reader->event.data.sequence_start.anchor || reader->event.data.sequence_start.tag)
        return json_fail(reader, "anchors and tags are not supported");
    json_auto_t *array = json_array();
    for (;;) {
        if (!next_event(reader))
            return NULL;
        if (reader->event.type == YAML_SEQUENCE_END_EVENT)
            return json_incref(array);
        json_t *value = read_value(reader, depth);
        if (!value)
            return NULL;
        json_array_append_new(array, value);
    }
}

static json_t *
read_mapping(struct reader *reader, int depth)
{
    if (reader->event.data.mapping_start.anchor || reader->event.data.mapping_start.tag)
        return json_fail(reader, "anchors and tags are not supported");
    json_auto_t *object = json_object();
    for (;;) {
        if (!next_event(reader))
            return NULL;
        if (reader->event.type == YAML_MAPPING_END_EVENT)
            return json_incref(object);
        if (reader->event.type != YAML_SCALAR_EVENT)
            return json_fail(reader, "a key is not a text");
        KG_AUTO_FREE char *key = kg_strdup((const char *)reader->event.data.scalar.value);
        if (strlen(key) != reader->event.data.scalar.length)
            return json_fail(reader, "a key has a NUL");
        if (json_object_get(object, key))
            return json_fail(reader, "a key is there twice");
        json_t *value = next_event(reader) ? read_value(reader, depth) : NULL;
        if (!value)
            return NULL;
        json_object_set_new(object, key, value);
    }
}

// The value that begins with the current event. NULL: failed.
static json_t *
read_value(struct reader *reader, int depth)
{
    if (depth == YAML_DEPTH_MAX)
        return json_fail(reader, "too deep");
    if (++reader->n_values > YAML_VALUES_MAX)
        return json_fail(reader, "too many values");
    yaml_event_type_t type = reader->event.type;
    if (type == YAML_SCALAR_EVENT)
        return read_scalar(reader);
    if (type == YAML_SEQUENCE_START_EVENT)
        return read_sequence(reader, depth + 1);
    if (type == YAML_MAPPING_START_EVENT)
        return read_mapping(reader, depth + 1);
    return json_fail(reader, type == YAML_ALIAS_EVENT ? "aliases are not supported" : "no value");
}

// ---- Documents ------------------------------------------------------------------------------

static json_t *
read_document(struct reader *reader)
{
    if (!next_event(reader) || !next_event(reader)) // the stream's start, and then the document's
        return NULL;
    if (reader->event.type != YAML_DOCUMENT_START_EVENT)
        return json_fail(reader, "there is no document");
    json_auto_t *value = next_event(reader) ? read_value(reader, 0) : NULL;
    if (!value || !next_event(reader) || !next_event(reader)) // its end, and what follows
        return NULL;
    if (reader->event.type != YAML_STREAM_END_EVENT)
        return json_fail(reader, "there is more than one document");
    return json_incref(value);
}

json_t *
json_of_yaml(const char *text, size_t len, struct kg_error *err)
{
    struct reader reader = {.err = err};
    if (!yaml_parser_initialize(&reader.parser)) {
        kg_error_set(err, KG_INTERNAL, ENOMEM, "cannot parse YAML");
        return NULL;
    }
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, len);
    json_t *value = read_document(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return value;
}
