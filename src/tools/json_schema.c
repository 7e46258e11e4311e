// SPDX-License-Identifier: Apache-2.0
// A schema is followed as far as a bound of steps and of depth allows. That a value does not fit is
// always certain. That it fits is not, where a keyword was met that is not checked: `not` and
// `oneOf` refuse only what fits for certain.

#include "json_schema.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MAX = 200 * 1000, // schemas applied, and values compared
    DEPTH_MAX = 64,         // of schemas in one another, `$ref` included
    PATH_MAX_BYTES = 100,
    LIST_MAX_BYTES = 100,
};

// Where in the value a check is: from the innermost to the outermost.
struct place {
    const struct place *in;
    const char *member; // NULL: an item of an array
    size_t item;
};

struct check {
    const json_t *root; // of `$ref`
    const char *name;
    int steps;
    int depth;
    bool gave_up;         // a bound was reached: there is no outcome
    bool unsure;          // a keyword was met that is not checked
    struct kg_error *err; // NULL: only the outcome is wanted
};

static int schema_apply(struct check *check, const json_t *schema, const json_t *value,
                        const struct place *place);

// ---- Messages -------------------------------------------------------------------------------

static void
place_append(struct buf *path, const struct check *check, const struct place *place)
{
    if (!place) {
        buf_append_str(path, check->name);
        return;
    }
    place_append(path, check, place->in);
    if (place->member)
        buf_printf(path, ".%.40s", place->member);
    else
        buf_printf(path, "[%zu]", place->item);
}

static int KG_PRINTF(3, 4)
    check_fail(struct check *check, const struct place *place, const char *fmt, ...)
{
    if (!check->err)
        return -1;
    char why[160];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    KG_AUTO_BUF path = {0};
    place_append(&path, check, place);
    size_t skipped = path.len > PATH_MAX_BYTES ? path.len - PATH_MAX_BYTES : 0;
    return kg_error_set(check->err, KG_INVALID, 0, "%s%s: %s", skipped ? "…" : "",
                        path.data + skipped, why);
}

static const char *
type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return "string";
    case JSON_INTEGER:
        return "integer";
    case JSON_REAL:
        return "number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

// NULL: JSON Schema has no such type.
static const char *
with_article(const char *type)
{
    static const struct {
        const char *type, *text;
    } texts[] = {{"object", "an object"},     {"array", "an array"},     {"string", "a string"},
                 {"number", "a number"},      {"integer", "an integer"}, {"null", "null"},
                 {"boolean", "true or false"}};
    for (size_t i = 0; i < KG_ARRAY_LEN(texts); i++) {
        if (strcmp(type, texts[i].type) == 0)
            return texts[i].text;
    }
    return NULL;
}

// `values` as JSON, for a message.
static char *
list_as_text(const json_t *values)
{
    KG_AUTO_BUF text = {0};
    size_t i;
    const json_t *value;
    json_array_foreach((json_t *)(uintptr_t)values, i, value) {
        if (text.len > LIST_MAX_BYTES) {
            buf_append_str(&text, ", …");
            break;
        }
        KG_AUTO_FREE char *one =
            json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        buf_printf(&text, "%s%.*s%s", i ? ", " : "", LIST_MAX_BYTES, one,
                   strlen(one) > LIST_MAX_BYTES ? "…" : "");
    }
    return text.len ? buf_take(&text) : kg_strdup("nothing");
}

// ---- Values ---------------------------------------------------------------------------------

static bool
is_of_type(const json_t *value, const char *type)
{
    const char *own = type_of(value);
    if (strcmp(type, "integer") == 0 && json_is_real(value)) {
        double number = json_real_value(value);
        return number == floor(number);
    }
    return strcmp(own, type) == 0 || (strcmp(type, "number") == 0 && json_is_number(value));
}

// Counts a step; false: there are no more.
static bool
check_step(struct check *check)
{
    if (++check->steps >= STEPS_MAX)
        check->gave_up = true;
    return !check->gave_up;
}

static int
compare_numbers(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b)) {
        json_int_t one = json_integer_value(a), other = json_integer_value(b);
        return (one > other) - (one < other);
    }
    double one = json_number_value(a), other = json_number_value(b);
    return (one > other) - (one < other);
}

// JSON Schema's equality: numbers by their value. The depth of both is bounded by who parsed them.
static bool
values_equal(struct check *check, const json_t *a, const json_t *b)
{
    size_t i;
    const char *key;
    json_t *value;
    if (!check_step(check))
        return false;
    if (json_is_number(a) && json_is_number(b))
        return compare_numbers(a, b) == 0;
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b))
            return false;
        json_array_foreach((json_t *)(uintptr_t)a, i, value) {
            if (!values_equal(check, value, json_array_get(b, i)))
                return false;
        }
        return true;
    }
    if (json_is_object(a)) {
        if (json_object_size(a) != json_object_size(b))
            return false;
        json_object_foreach((json_t *)(uintptr_t)a, key, value) {
            const json_t *other = json_object_get(b, key);
            if (!other || !values_equal(check, value, other))
                return false;
        }
        return true;
    }
    return json_equal(a, b);
}

static uint64_t
hash_bytes(const void *data, size_t len, uint64_t hash)
{
    for (const unsigned char *c = data; len > 0; c++, len--)
        hash = (hash ^ *c) * 0x100000001b3;
    return hash;
}

// The same for values that are equal.
static uint64_t
hash_value(struct check *check, const json_t *value)
{
    double number = json_number_value(value) + 0.0; // not -0
    uint64_t hash = 0xcbf29ce484222325 ^ (json_is_number(value) ? JSON_REAL : json_typeof(value));
    size_t i;
    const char *key;
    json_t *part;
    if (!check_step(check))
        return 0;
    if (json_is_number(value))
        return hash_bytes(&number, sizeof number, hash);
    if (json_is_string(value))
        return hash_bytes(json_string_value(value), json_string_length(value), hash);
    json_array_foreach((json_t *)(uintptr_t)value, i, part) {
        uint64_t item = hash_value(check, part);
        hash = hash_bytes(&item, sizeof item, hash);
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, part)
        hash += hash_bytes(key, strlen(key), hash_value(check, part)); // in any order
    return hash;
}

static size_t
count_characters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

// ---- Assertions -----------------------------------------------------------------------------

// Types that JSON Schema does not have, such as "any", say nothing.
static int
check_type(struct check *check, const json_t *schema, const json_t *value,
           const struct place *place)
{
    const json_t *types = json_object_get(schema, "type");
    const char *only = json_string_value(types);
    size_t i;
    const json_t *type;
    if (only && with_article(only) && !is_of_type(value, only))
        return check_fail(check, place, "must be %s, not %s", with_article(only),
                          with_article(type_of(value)));
    if (!json_is_array(types))
        return 0;
    json_array_foreach((json_t *)(uintptr_t)types, i, type) {
        const char *name = json_string_value(type);
        if (name && (!with_article(name) || is_of_type(value, name)))
            return 0;
    }
    KG_AUTO_FREE char *text = list_as_text(types);
    return check_fail(check, place, "must be one of the types %s, not %s", text,
                      with_article(type_of(value)));
}

static int
check_choices(struct check *check, const json_t *schema, const json_t *value,
              const struct place *place)
{
    const json_t *choices = json_object_get(schema, "enum");
    const json_t *only = json_object_get(schema, "const");
    size_t i;
    const json_t *choice;
    if (only && !values_equal(check, value, only)) {
        KG_AUTO_FREE char *text = json_dumps(only, JSON_COMPACT | JSON_ENCODE_ANY);
        return check_fail(check, place, "must be %.80s", text);
    }
    if (!json_is_array(choices))
        return 0;
    json_array_foreach((json_t *)(uintptr_t)choices, i, choice) {
        if (values_equal(check, value, choice))
            return 0;
    }
    KG_AUTO_FREE char *text = list_as_text(choices);
    return check_fail(check, place, "must be one of %s", text);
}

// As far as a floating-point number can tell.
static bool
is_multiple(const json_t *value, const json_t *step)
{
    double number = json_number_value(value), size = json_number_value(step);
    if (size <= 0)
        return true;
    if (json_is_integer(value) && json_is_integer(step))
        return json_integer_value(value) % json_integer_value(step) == 0;
    return fabs(remainder(number, size)) <= fmax(1e-9 * size, fabs(number) * DBL_EPSILON);
}

static int
check_number(struct check *check, const json_t *schema, const json_t *value,
             const struct place *place)
{
    static const struct {
        const char *keyword, *words;
        bool is_least, excludes;
    } bounds[] = {{"minimum", "at least", true, false},
                  {"maximum", "at most", false, false},
                  {"exclusiveMinimum", "above", true, true},
                  {"exclusiveMaximum", "below", false, true}};
    for (size_t i = 0; i < KG_ARRAY_LEN(bounds); i++) {
        const json_t *bound = json_object_get(schema, bounds[i].keyword);
        int order = json_is_number(bound) ? compare_numbers(value, bound) : 0;
        if (!json_is_number(bound) || (bounds[i].is_least ? order > 0 : order < 0) ||
            (!bounds[i].excludes && order == 0))
            continue;
        return check_fail(check, place, "must be %s %.15g", bounds[i].words,
                          json_number_value(bound));
    }
    const json_t *step = json_object_get(schema, "multipleOf");
    if (json_is_number(step) && !is_multiple(value, step))
        return check_fail(check, place, "must be a multiple of %.15g", json_number_value(step));
    return 0;
}

// `keywords`: of the least size, and of the greatest.
static int
check_size(struct check *check, const json_t *schema, const char *const keywords[2], size_t size,
           const char *what, const struct place *place)
{
    for (int i = 0; i < 2; i++) {
        const json_t *bound = json_object_get(schema, keywords[i]);
        double limit = json_number_value(bound);
        if (!json_is_number(bound) || (i == 0 ? (double)size >= limit : (double)size <= limit))
            continue;
        return check_fail(check, place, "must have at %s %.15g %s, not %zu",
                          i == 0 ? "least" : "most", limit, what, size);
    }
    return 0;
}

static int
check_string(struct check *check, const json_t *schema, const json_t *value,
             const struct place *place)
{
    static const char *const keywords[2] = {"minLength", "maxLength"};
    return check_size(check, schema, keywords, count_characters(json_string_value(value)),
                      "characters", place);
}

struct hashed_item {
    uint64_t hash;
    size_t at;
};

static int
compare_items(const void *one, const void *other)
{
    const struct hashed_item *a = one, *b = other;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static int
check_unique(struct check *check, const json_t *schema, const json_t *value,
             const struct place *place)
{
    size_t n = json_array_size(value);
    if (n < 2 || !json_is_true(json_object_get(schema, "uniqueItems")))
        return 0;
    KG_AUTO_FREE struct hashed_item *items = kg_calloc(n, sizeof *items);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct hashed_item){hash_value(check, json_array_get(value, i)), i};
    qsort(items, n, sizeof *items, compare_items);
    for (size_t i = 1; i < n; i++) {
        for (size_t j = i; j-- > 0 && items[j].hash == items[i].hash && !check->gave_up;) {
            if (values_equal(check, json_array_get(value, items[i].at),
                             json_array_get(value, items[j].at)))
                return check_fail(check, place, "the items %zu and %zu are the same", items[j].at,
                                  items[i].at);
        }
    }
    return 0;
}

static int
check_array(struct check *check, const json_t *schema, const json_t *value,
            const struct place *place)
{
    static const char *const keywords[2] = {"minItems", "maxItems"};
    const json_t *first = json_object_get(schema, "prefixItems");
    const json_t *rest = json_object_get(schema, "items");
    size_t i;
    const json_t *item;
    if (json_is_array(rest)) { // before 2020-12
        first = rest;
        rest = json_object_get(schema, "additionalItems");
    }
    if (check_size(check, schema, keywords, json_array_size(value), "items", place) < 0 ||
        check_unique(check, schema, value, place) < 0)
        return -1;
    json_array_foreach((json_t *)(uintptr_t)value, i, item) {
        const struct place inner = {.in = place, .item = i};
        const json_t *applies = i < json_array_size(first) ? json_array_get(first, i) : rest;
        if (applies && schema_apply(check, applies, item, &inner) < 0)
            return -1;
    }
    return 0;
}

static int
check_required(struct check *check, const json_t *schema, const json_t *value,
               const struct place *place)
{
    size_t i;
    const json_t *name;
    json_array_foreach(json_object_get(schema, "required"), i, name) {
        if (json_is_string(name) && !json_object_get(value, json_string_value(name)))
            return check_fail(check, place, "\"%.60s\" is missing", json_string_value(name));
    }
    return 0;
}

static int
check_object(struct check *check, const json_t *schema, const json_t *value,
             const struct place *place)
{
    static const char *const keywords[2] = {"minProperties", "maxProperties"};
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    bool has_patterns = json_object_size(json_object_get(schema, "patternProperties")) > 0;
    const char *name;
    json_t *member;
    if (check_required(check, schema, value, place) < 0 ||
        check_size(check, schema, keywords, json_object_size(value), "members", place) < 0)
        return -1;
    json_object_foreach((json_t *)(uintptr_t)value, name, member) {
        const struct place inner = {.in = place, .member = name};
        const json_t *applies = json_object_get(properties, name);
        if (!applies && json_is_false(others) && !has_patterns)
            return check_fail(check, place, "there is no \"%.60s\"", name);
        if (!applies && !has_patterns)
            applies = others;
        if (applies && schema_apply(check, applies, member, &inner) < 0)
            return -1;
    }
    return 0;
}

static int
check_by_type(struct check *check, const json_t *schema, const json_t *value,
              const struct place *place)
{
    if (json_is_number(value))
        return check_number(check, schema, value, place);
    if (json_is_string(value))
        return check_string(check, schema, value, place);
    if (json_is_array(value))
        return check_array(check, schema, value, place);
    return json_is_object(value) ? check_object(check, schema, value, place) : 0;
}

// ---- Schemas of schemas ---------------------------------------------------------------------

enum fit { FITS_NOT, FITS_PERHAPS, FITS };

// Without a message, and without an effect on `unsure`.
static enum fit
fit_of(struct check *check, const json_t *schema, const json_t *value)
{
    struct kg_error *err = KG_STEAL(check->err);
    bool unsure = check->unsure;
    check->unsure = false;
    enum fit fit = schema_apply(check, schema, value, NULL) < 0 ? FITS_NOT
                   : check->unsure                              ? FITS_PERHAPS
                                                                : FITS;
    check->err = err;
    check->unsure = unsure;
    return fit;
}

static int
check_some(struct check *check, const json_t *schema, const char *keyword, const json_t *value,
           const struct place *place)
{
    const json_t *list = json_object_get(schema, keyword);
    bool only_one = strcmp(keyword, "oneOf") == 0;
    size_t i, n = 0, n_perhaps = 0;
    const json_t *one;
    if (json_array_size(list) == 0)
        return 0;
    // What has one form anyway gets a message of its own.
    if (json_array_size(list) == 1)
        return schema_apply(check, json_array_get(list, 0), value, place);
    json_array_foreach(list, i, one) {
        enum fit fit = fit_of(check, one, value);
        n += fit == FITS;
        n_perhaps += fit == FITS_PERHAPS;
        if (fit == FITS && !only_one)
            return 0;
    }
    if (n > 1 || n + n_perhaps == 0)
        return check_fail(check, place, "has %s of the forms that are allowed",
                          n ? "more than one" : "none");
    check->unsure |= n_perhaps > 0;
    return 0;
}

static int
check_combined(struct check *check, const json_t *schema, const json_t *value,
               const struct place *place)
{
    const json_t *unwanted = json_object_get(schema, "not");
    enum fit fit = unwanted ? fit_of(check, unwanted, value) : FITS_NOT;
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(schema, "allOf"), i, one) {
        if (schema_apply(check, one, value, place) < 0)
            return -1;
    }
    if (check_some(check, schema, "anyOf", value, place) < 0 ||
        check_some(check, schema, "oneOf", value, place) < 0)
        return -1;
    check->unsure |= fit == FITS_PERHAPS;
    return fit == FITS ? check_fail(check, place, "has a form that is not allowed") : 0;
}

// One name of a JSON pointer in a URI's fragment (RFC 6901, sections 4 and 6), whose escapes are
// undone.
static char *
pointer_name(const char *at, size_t len)
{
    KG_AUTO_FREE char *part = kg_strndup(at, len);
    char *to = part;
    unsigned code;
    for (const char *from = part; *from; to++) {
        bool coded = from[0] == '%' && isxdigit((unsigned char)from[1]) &&
                     isxdigit((unsigned char)from[2]) && sscanf(from + 1, "%2x", &code) == 1;
        *to = coded ? (char)code : *from;
        from += coded ? 3 : 1;
    }
    *to = '\0';
    to = part;
    for (const char *from = part; *from; from++, to++) {
        bool escaped = from[0] == '~' && from[1];
        *to = !escaped ? *from : *++from == '1' ? '/' : '~';
    }
    *to = '\0';
    return KG_STEAL(part);
}

static const json_t *
array_member(const json_t *list, const char *name)
{
    char *end = NULL;
    size_t index = isdigit((unsigned char)name[0]) ? strtoul(name, &end, 10) : 0;
    return end && !*end ? json_array_get(list, index) : NULL;
}

// "#" and "#/$defs/name"; NULL: it leads nowhere within the schema.
static const json_t *
resolve(const json_t *root, const char *pointer)
{
    const json_t *found = root;
    if (pointer[0] != '#' || (pointer[1] && pointer[1] != '/'))
        return NULL;
    for (const char *at = pointer + 1; found && *at == '/';) {
        size_t len = strcspn(++at, "/");
        KG_AUTO_FREE char *name = pointer_name(at, len);
        found = json_is_array(found) ? array_member(found, name) : json_object_get(found, name);
        at += len;
    }
    return found;
}

static int
check_reference(struct check *check, const json_t *schema, const json_t *value,
                const struct place *place)
{
    const char *pointer = json_string_value(json_object_get(schema, "$ref"));
    const json_t *other = pointer ? resolve(check->root, pointer) : NULL;
    check->unsure |= pointer && !other;
    return other ? schema_apply(check, other, value, place) : 0;
}

// It matters only to who wants to know whether the value fits for certain.
static bool
has_unchecked(const struct check *check, const json_t *schema)
{
    static const char *const names[] = {"$dynamicRef",
                                        "$recursiveRef",
                                        "contains",
                                        "dependencies",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "format",
                                        "if",
                                        "pattern",
                                        "patternProperties",
                                        "propertyNames",
                                        "unevaluatedItems",
                                        "unevaluatedProperties"};
    size_t i = 0;
    while (!check->err && i < KG_ARRAY_LEN(names) && !json_object_get(schema, names[i]))
        i++;
    return !check->err && i < KG_ARRAY_LEN(names);
}

static int
schema_apply(struct check *check, const json_t *schema, const json_t *value,
             const struct place *place)
{
    const json_t *root = check->root;
    int result = 0;
    if (check->depth == DEPTH_MAX || !check_step(check)) {
        check->gave_up = true;
        return -1;
    }
    if (json_is_false(schema))
        return check_fail(check, place, "is not allowed");
    if (!json_is_object(schema))
        return 0;
    if (json_is_string(json_object_get(schema, "$id")))
        check->root = schema;
    check->depth++;
    if (check_reference(check, schema, value, place) < 0 ||
        check_type(check, schema, value, place) < 0 ||
        check_choices(check, schema, value, place) < 0 ||
        check_by_type(check, schema, value, place) < 0 ||
        check_combined(check, schema, value, place) < 0)
        result = -1;
    check->unsure |= has_unchecked(check, schema);
    check->depth--;
    check->root = root;
    return check->gave_up ? -1 : result;
}

int
json_schema_check(const json_t *schema, const json_t *value, const char *name, struct kg_error *err)
{
    struct kg_error why = {0};
    struct check check = {.root = schema, .name = name, .err = &why};
    if (schema_apply(&check, schema, value, NULL) == 0)
        return 0;
    if (check.gave_up)
        return kg_error_set(err, KG_INVALID, 0,
                            "%s: the tool's schema is too complex to be checked", name);
    if (err)
        *err = why;
    return -1;
}
