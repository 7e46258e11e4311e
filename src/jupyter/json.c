// SPDX-License-Identifier: Apache-2.0
// A bounded JSON reader (RFC 8259) for kernels: lenient where Python's writer is, and fast with the
// long strings that are most of what kernels send.

#include "json_priv.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum {
    MAX_DEPTH = 2048, // jansson's limit, which also holds for writing and freeing
    // Roughly what jansson allocates for a value, without the bytes of strings. Some megabytes of
    // "{},{},…" would take gigabytes.
    VALUE_BYTES = 48,
    MEMBER_BYTES = 112,
    CONTAINER_BYTES = 240,
    // For one text: values, strings and structured members together.
    MAX_BYTES = 32 * 1024 * 1024
};

// `fault` is NULL while everything could be read.
struct reader {
    const unsigned char *p; // next byte
    const unsigned char *end;
    struct buf scratch; // the current string or number
    size_t bytes;       // allocated so far, roughly
    bool repaired;
    bool too_large;
    const char *fault;
    bool in_bundle;     // the members of this object are those of a MIME bundle
    bool takes_bundle;  // the caller wants `structured`
    json_t *structured; // NULL until there is one
};

static json_t *read_value(struct reader *reader, size_t depth);

static json_t *
json_fail(struct reader *reader, const char *fault)
{
    if (reader->fault == NULL)
        reader->fault = fault;
    return NULL;
}

static bool
charge(struct reader *reader, size_t bytes)
{
    reader->bytes += bytes;
    if (reader->bytes > MAX_BYTES) {
        reader->too_large = true;
        json_fail(reader, "its values take too much memory");
    }
    return reader->fault == NULL;
}

// The next byte after white space; -1 at the end.
static int
peek(struct reader *reader)
{
    while (reader->p < reader->end &&
           (*reader->p == ' ' || *reader->p == '\n' || *reader->p == '\r' || *reader->p == '\t'))
        reader->p++;
    return reader->p < reader->end ? *reader->p : -1;
}

static bool
skip(struct reader *reader, char c)
{
    if (peek(reader) != c)
        return false;
    reader->p++;
    return true;
}

static bool
skip_word(struct reader *reader, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(reader->end - reader->p) < len || memcmp(reader->p, word, len) != 0)
        return false;
    reader->p += len;
    return true;
}

// ---- Strings --------------------------------------------------------------------------------

static void
append_char(struct reader *reader, unsigned code)
{
    char bytes[4];
    buf_append(&reader->scratch, bytes, utf8_put(code, bytes));
}

static void
append_replacement(struct reader *reader)
{
    append_char(reader, 0xfffd);
    reader->repaired = true;
}

// The value of the four hexadecimal digits of a \uXXXX at `p`, or -1.
static int
unicode_escape(const struct reader *reader, const unsigned char *p)
{
    int value = 0;

    if (reader->end - p < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    for (size_t i = 2; i < 6; i++) {
        int digit = hex_value((char)p[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool
read_unicode_escape(struct reader *reader, bool is_key)
{
    int code = unicode_escape(reader, reader->p);
    int low = unicode_escape(reader, reader->p + 6 <= reader->end ? reader->p + 6 : reader->end);

    if (code < 0)
        return false;
    reader->p += 6;
    if (code >= 0xd800 && code <= 0xdbff && low >= 0xdc00 && low <= 0xdfff) {
        reader->p += 6;
        append_char(reader,
                    0x10000U + ((unsigned)(code - 0xd800) << 10) + (unsigned)(low - 0xdc00));
    } else if ((code >= 0xd800 && code <= 0xdfff) || (code == 0 && is_key)) {
        append_replacement(reader);
    } else {
        append_char(reader, (unsigned)code);
    }
    return true;
}

static bool
read_escape(struct reader *reader, bool is_key)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";

    if (reader->end - reader->p < 2)
        return false;
    if (reader->p[1] == 'u')
        return read_unicode_escape(reader, is_key);
    const char *letter = memchr(letters, reader->p[1], sizeof(letters) - 1);
    if (letter == NULL)
        return false;
    append_char(reader, (unsigned char)values[letter - letters]);
    reader->p += 2;
    return true;
}

// Copies all bytes that need no decoding.
static void
read_run(struct reader *reader)
{
    const unsigned char *p = reader->p;

    while (p < reader->end) {
        size_t len = *p < 0x80 ? json_plain_len((const char *)p, (size_t)(reader->end - p))
                               : utf8_valid_len(p, reader->end);
        if (len == 0)
            break;
        p += len;
    }
    buf_append(&reader->scratch, reader->p, (size_t)(p - reader->p));
    reader->p = p;
}

// Reads a string, after its opening quote, into `scratch`.
static bool
read_string(struct reader *reader, bool is_key)
{
    reader->scratch.len = 0;
    for (;;) {
        read_run(reader);
        if (reader->p == reader->end || *reader->p < 0x20)
            break;
        if (*reader->p == '"') {
            reader->p++;
            return true;
        }
        if (*reader->p == '\\') {
            if (!read_escape(reader, is_key))
                break;
        } else {
            append_replacement(reader);
            reader->p += utf8_invalid_len(reader->p, reader->end);
        }
    }
    json_fail(reader, "bad string");
    return false;
}

// ---- Numbers --------------------------------------------------------------------------------

static size_t
count_digits(const unsigned char *p, const unsigned char *end)
{
    size_t n = 0;
    while (p + n < end && p[n] >= '0' && p[n] <= '9')
        n++;
    return n;
}

// Finds the end of the number that starts at the next byte; NULL if it is not a number.
static const unsigned char *
number_end(const struct reader *reader, bool *ret_is_integer)
{
    const unsigned char *p = reader->p, *end = reader->end;
    size_t n;

    *ret_is_integer = true;
    p += *p == '-';
    n = count_digits(p, end);
    if (n == 0 || (n > 1 && *p == '0'))
        return NULL;
    p += n;
    if (p < end && *p == '.') {
        *ret_is_integer = false;
        n = count_digits(++p, end);
        if (n == 0)
            return NULL;
        p += n;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        *ret_is_integer = false;
        p++;
        p += p < end && (*p == '+' || *p == '-');
        n = count_digits(p, end);
        if (n == 0)
            return NULL;
        p += n;
    }
    return p;
}

static json_t *
read_number(struct reader *reader)
{
    bool is_integer;

    if (skip_word(reader, "NaN") || skip_word(reader, "Infinity") ||
        skip_word(reader, "-Infinity")) {
        reader->repaired = true;
        return json_null();
    }
    const unsigned char *end = number_end(reader, &is_integer);
    if (end == NULL)
        return json_fail(reader, "bad value");
    reader->scratch.len = 0;
    buf_append(&reader->scratch, reader->p, (size_t)(end - reader->p));
    reader->p = end;

    errno = 0;
    if (is_integer) {
        long long integer = strtoll(reader->scratch.data, NULL, 10);
        if (errno == 0)
            return json_integer(integer);
        reader->repaired = true;
    }
    double real = strtod(reader->scratch.data, NULL);
    if (!isfinite(real)) {
        reader->repaired = true;
        real = real > 0 ? DBL_MAX : -DBL_MAX;
    }
    return json_real(real);
}

// ---- Values as text --------------------------------------------------------------------------

static bool
copy_string(struct reader *reader, struct buf *out, bool is_key)
{
    if (!read_string(reader, is_key))
        return false;
    json_append_string(out, reader->scratch.data, reader->scratch.len);
    return true;
}

static bool
copy_number(struct reader *reader, struct buf *out)
{
    json_auto_t *number = read_number(reader);
    if (number == NULL)
        return false;
    if (json_is_integer(number)) {
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
        return true;
    }
    KG_AUTO_FREE char *text = json_dumps(number, JSON_ENCODE_ANY);
    buf_append_str(out, text);
    return true;
}

static bool copy_value(struct reader *reader, struct buf *out, size_t depth);

static bool
copy_members(struct reader *reader, struct buf *out, size_t depth, char end)
{
    if (skip(reader, end)) {
        buf_append(out, &end, 1);
        return true;
    }
    do {
        if (end == '}') {
            if (!skip(reader, '"') || !copy_string(reader, out, true) || !skip(reader, ':'))
                return json_fail(reader, "bad object") != NULL;
            buf_append(out, ":", 1);
        }
        if (!copy_value(reader, out, depth))
            return false;
        buf_append(out, ",", 1);
    } while (skip(reader, ','));
    if (!skip(reader, end))
        return json_fail(reader, "bad array or object") != NULL;
    out->data[out->len - 1] = end; // in place of the last comma
    return true;
}

// Appends the next value as valid JSON.
static bool
copy_value(struct reader *reader, struct buf *out, size_t depth)
{
    static const char *const words[] = {"true", "false", "null"};

    if (depth == MAX_DEPTH)
        return json_fail(reader, "too deep") != NULL;
    if (reader->bytes + out->len > MAX_BYTES)
        return charge(reader, out->len);
    if (peek(reader) < 0)
        return json_fail(reader, "cut off") != NULL;
    if (skip(reader, '{')) {
        buf_append(out, "{", 1);
        return copy_members(reader, out, depth + 1, '}');
    }
    if (skip(reader, '[')) {
        buf_append(out, "[", 1);
        return copy_members(reader, out, depth + 1, ']');
    }
    if (skip(reader, '"'))
        return copy_string(reader, out, false);
    for (size_t i = 0; i < KG_ARRAY_LEN(words); i++) {
        if (skip_word(reader, words[i])) {
            buf_append_str(out, words[i]);
            return true;
        }
    }
    return copy_number(reader, out);
}

// Reads a structured member of a bundle.
static bool
take_structured(struct reader *reader, const char *key, size_t depth)
{
    KG_AUTO_BUF text = {0};
    if (!copy_value(reader, &text, depth) || !charge(reader, text.len))
        return false;
    if (reader->structured == NULL)
        reader->structured = json_object();
    json_object_set_new_nocheck(reader->structured, key, json_stringn_nocheck(text.data, text.len));
    return true;
}

// ---- Values ---------------------------------------------------------------------------------

static json_t *
read_array(struct reader *reader, size_t depth)
{
    json_auto_t *array = json_array();

    if (skip(reader, ']'))
        return KG_STEAL(array);
    do {
        json_t *value = read_value(reader, depth);
        if (value == NULL)
            return NULL;
        json_array_append_new(array, value);
    } while (skip(reader, ','));
    if (!skip(reader, ']'))
        return json_fail(reader, "bad array");
    return KG_STEAL(array);
}

// Reads the value of a member of an object at `depth`, and sets it.
static bool
read_member(struct reader *reader, json_t *object, const char *key, size_t depth)
{
    int c = peek(reader);
    bool in_bundle = reader->in_bundle;

    if (in_bundle && (c == '{' || c == '[')) {
        json_object_del(object, key); // of two members with one name the last one counts
        return take_structured(reader, key, depth);
    }
    if (in_bundle && reader->structured != NULL)
        json_object_del(reader->structured, key);
    bool is_data = reader->takes_bundle && depth == 1 && strcmp(key, "data") == 0;
    if (is_data) // a second one replaces the first
        json_decref(KG_STEAL(reader->structured));
    reader->in_bundle = is_data && c == '{';
    json_t *value = read_value(reader, depth);
    reader->in_bundle = in_bundle;
    if (value == NULL)
        return false;
    json_object_set_new_nocheck(object, key, value);
    return true;
}

static json_t *
read_object(struct reader *reader, size_t depth)
{
    json_auto_t *object = json_object();

    if (skip(reader, '}'))
        return KG_STEAL(object);
    do {
        if (!skip(reader, '"') || !read_string(reader, true))
            return json_fail(reader, "bad key");
        KG_AUTO_FREE char *key = kg_strndup(reader->scratch.data, reader->scratch.len);
        if (!charge(reader, MEMBER_BYTES + reader->scratch.len) || !skip(reader, ':'))
            return json_fail(reader, "bad object");
        if (!read_member(reader, object, key, depth))
            return NULL;
    } while (skip(reader, ','));
    if (!skip(reader, '}'))
        return json_fail(reader, "bad object");
    return KG_STEAL(object);
}

static json_t *
read_value(struct reader *reader, size_t depth)
{
    int c = peek(reader);

    if (depth == MAX_DEPTH)
        return json_fail(reader, "too deep");
    if (!charge(reader, c == '{' || c == '[' ? CONTAINER_BYTES : VALUE_BYTES))
        return NULL;
    if (skip(reader, '{'))
        return read_object(reader, depth + 1);
    if (skip(reader, '['))
        return read_array(reader, depth + 1);
    if (skip(reader, '"')) {
        if (!read_string(reader, false) || !charge(reader, reader->scratch.len))
            return NULL;
        return json_stringn_nocheck(reader->scratch.data, reader->scratch.len);
    }
    if (skip_word(reader, "true"))
        return json_true();
    if (skip_word(reader, "false"))
        return json_false();
    if (skip_word(reader, "null"))
        return json_null();
    return c < 0 ? json_fail(reader, "cut off") : read_number(reader);
}

// ---- Some strings of an object --------------------------------------------------------------

static struct kernel_json_string *
find_string(struct kernel_json_string *strings, size_t n_strings, const struct buf *name)
{
    for (size_t i = 0; i < n_strings; i++)
        if (strlen(strings[i].name) == name->len &&
            memcmp(strings[i].name, name->data, name->len) == 0)
            return &strings[i];
    return NULL;
}

static bool
read_string_member(struct reader *reader, struct kernel_json_string *strings, size_t n_strings,
                   struct buf *skipped)
{
    if (!skip(reader, '"') || !read_string(reader, true))
        return json_fail(reader, "bad key") != NULL;
    struct kernel_json_string *string = find_string(strings, n_strings, &reader->scratch);
    if (!skip(reader, ':'))
        return json_fail(reader, "bad object") != NULL;
    if (string != NULL)
        free(KG_STEAL(string->value));
    if (string == NULL || !skip(reader, '"')) {
        skipped->len = 0;
        return copy_value(reader, skipped, 1);
    }
    if (!read_string(reader, false))
        return false;
    string->value = kg_strndup(reader->scratch.data, reader->scratch.len);
    return true;
}

static void
read_strings(struct reader *reader, struct kernel_json_string *strings, size_t n_strings)
{
    KG_AUTO_BUF skipped = {0};
    if (!skip(reader, '{')) {
        json_fail(reader, "no object");
        return;
    }
    if (skip(reader, '}'))
        return;
    do {
        if (!read_string_member(reader, strings, n_strings, &skipped))
            return;
    } while (skip(reader, ','));
    if (!skip(reader, '}'))
        json_fail(reader, "bad object");
}

static int
reader_end(struct reader *reader, const char *what, bool *repaired, struct kg_error *err)
{
    if (reader->fault == NULL && peek(reader) >= 0)
        json_fail(reader, "more than one value");
    buf_fini(&reader->scratch);
    if (reader->fault != NULL)
        return kg_error_set(err, reader->too_large ? KG_ARTIFACT_TOO_LARGE : KG_INVALID_CONTENT, 0,
                            "%s is not usable JSON: %s", what, reader->fault);
    if (repaired != NULL)
        *repaired |= reader->repaired;
    return 0;
}

int
kernel_json_strings(const char *text, size_t len, const char *what,
                    struct kernel_json_string *strings, size_t n_strings, bool *repaired,
                    struct kg_error *err)
{
    struct reader reader = {.p = (const unsigned char *)text,
                            .end = (const unsigned char *)text + len};
    read_strings(&reader, strings, n_strings);
    return reader_end(&reader, what, repaired, err);
}

json_t *
kernel_json_load(const char *text, size_t len, const char *what, json_t **ret_structured,
                 bool *repaired, struct kg_error *err)
{
    struct reader reader = {.p = (const unsigned char *)text,
                            .end = (const unsigned char *)text + len,
                            .takes_bundle = ret_structured != NULL};

    json_auto_t *json = read_value(&reader, 0);
    json_auto_t *structured = reader.structured;
    if (reader_end(&reader, what, repaired, err) != 0)
        return NULL;
    if (!json_is_object(json)) {
        (void)kg_error_set(err, KG_INVALID_CONTENT, 0, "%s is not a JSON object", what);
        return NULL;
    }
    if (ret_structured)
        *ret_structured = KG_STEAL(structured);
    return KG_STEAL(json);
}
