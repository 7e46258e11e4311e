// SPDX-License-Identifier: Apache-2.0
// Messages in the JSON form of Protocol Buffers: their fields.
#include "message.h"

#include <ctype.h>
#include <sodium.h>
#include <string.h>

static const json_t *
field_named(const json_t *message, const char *name)
{
    const json_t *value = json_object_get(message, name);
    return json_is_null(value) ? NULL : value;
}

const json_t *
message_field(const json_t *message, const char *name)
{
    const json_t *value = field_named(message, name);
    KG_AUTO_BUF snake = {0};
    if (value)
        return value;
    for (const char *c = name; *c; c++) {
        char lower = (char)tolower((unsigned char)*c);
        buf_append(&snake, "_", isupper((unsigned char)*c) != 0);
        buf_append(&snake, &lower, 1);
    }
    return field_named(message, snake.data);
}

static int
bad_field(const char *name, const char *what, struct kg_error *err)
{
    return kg_error_set(err, KG_INVALID, 0, "%s must be %s", name, what);
}

int
message_object(const json_t *message, const char *name, const json_t **ret, struct kg_error *err)
{
    *ret = message_field(message, name);
    return !*ret || json_is_object(*ret) ? 0 : bad_field(name, "an object", err);
}

int
message_string(const json_t *message, const char *name, const char **ret, struct kg_error *err)
{
    const json_t *value = message_field(message, name);
    *ret = json_string_value(value);
    if (value && !*ret)
        return bad_field(name, "a string", err);
    if (*ret && strlen(*ret) != json_string_length(value))
        return bad_field(name, "a string without NUL", err);
    return 0;
}

int
message_bool(const json_t *message, const char *name, bool *ret, struct kg_error *err)
{
    const json_t *value = message_field(message, name);
    if (value && !json_is_boolean(value))
        return bad_field(name, "true or false", err);
    if (value)
        *ret = json_is_true(value);
    return 0;
}

int
message_uint(const json_t *message, const char *name, int64_t max, int64_t *ret,
             struct kg_error *err)
{
    enum { DIGITS_MAX = 18 };
    const json_t *value = message_field(message, name);
    const char *text = json_string_value(value);
    double real = json_is_real(value) ? json_real_value(value) : 0;
    int64_t number = -1;
    if (!value)
        return 0;
    if (json_is_integer(value))
        number = json_integer_value(value);
    else if (text && *text && strspn(text, "0123456789") == strlen(text) &&
             strlen(text) <= DIGITS_MAX)
        number = strtoll(text, NULL, 10);
    else if (real >= 0 && real <= INT32_MAX && (double)(int64_t)real == real && json_is_real(value))
        number = (int64_t)real;
    if (number < 0 || number > max)
        return kg_error_set(err, KG_INVALID, 0, "%s must be a number from 0 to %lld", name,
                            (long long)max);
    *ret = number;
    return 0;
}

int
message_bytes(const json_t *message, const char *name, struct buf *ret, bool *ret_has,
              struct kg_error *err)
{
    const json_t *value = message_field(message, name);
    size_t len = json_string_length(value), n = 0;
    if (ret_has)
        *ret_has = value != NULL;
    if (!value)
        return 0;
    if (!json_is_string(value))
        return bad_field(name, "base64 in a string", err);
    KG_AUTO_FREE char *text = kg_memdup0(json_string_value(value), len);
    for (int padding = 0; padding < 2 && len > 0 && text[len - 1] == '='; padding++)
        len--;
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    char *to = buf_reserve(ret, len / 4 * 3 + 3);
    if (sodium_base642bin((unsigned char *)to, len / 4 * 3 + 3, text, len, NULL, &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL_NO_PADDING) != 0)
        return bad_field(name, "base64", err);
    ret->len += n;
    return 0;
}

json_t *
message_of_bytes(const void *data, size_t len)
{
    size_t size = sodium_base64_ENCODED_LEN(len, sodium_base64_VARIANT_ORIGINAL);
    char *text = kg_calloc(size, 1);
    sodium_bin2base64(text, size, data, len, sodium_base64_VARIANT_ORIGINAL);
    json_t *ret = json_stringn_nocheck(text, strlen(text));
    free(text);
    return ret;
}
