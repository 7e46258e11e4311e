// SPDX-License-Identifier: Apache-2.0
// Requirements and the names of wheels.

#include "requirement.h"

#include <ctype.h>
#include <string.h>

static const char letters_and_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
static const char name_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
static const char version_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._*+!-";
// Longer operators come before their prefixes.
static const char *const operators[] = {"===", "==", "~=", "!=", "<=", ">=", "<", ">"};

static bool
is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c);
}

static const char *
skip_blanks(const char *at)
{
    return at + strspn(at, " ");
}

char *
package_name_normalise(const char *name, size_t len)
{
    if (len == 0 || !is_one_of(name[0], letters_and_digits) ||
        !is_one_of(name[len - 1], letters_and_digits))
        return NULL;
    KG_AUTO_BUF ret = {0};
    for (size_t i = 0; i < len; i++) {
        if (!is_one_of(name[i], name_characters))
            return NULL;
        bool separator = is_one_of(name[i], "._-");
        if (separator && is_one_of(name[i - 1], "._-"))
            continue;
        char c = separator ? '-' : (char)tolower((unsigned char)name[i]);
        buf_append(&ret, &c, 1);
    }
    return buf_take(&ret);
}

// ---- Requirements ---------------------------------------------------------------------------

static int
take_name(const char **at, struct buf *ret)
{
    size_t len = strspn(*at, name_characters);
    KG_AUTO_FREE char *name = package_name_normalise(*at, len);
    if (!name)
        return -1;
    buf_append_str(ret, name);
    *at = skip_blanks(*at + len);
    return 0;
}

static int
take_extras(const char **at, struct buf *ret)
{
    if (**at != '[')
        return 0;
    do {
        buf_append_str(ret, **at == '[' ? "[" : ",");
        *at = skip_blanks(*at + 1);
        if (take_name(at, ret) < 0)
            return -1;
    } while (**at == ',');
    if (**at != ']')
        return -1;
    buf_append_str(ret, "]");
    *at = skip_blanks(*at + 1);
    return 0;
}

static int
take_specifier(const char **at, struct buf *ret)
{
    size_t i = 0;
    while (i < KG_ARRAY_LEN(operators) && strncmp(*at, operators[i], strlen(operators[i])) != 0)
        i++;
    if (i == KG_ARRAY_LEN(operators))
        return -1;
    buf_append_str(ret, operators[i]);
    *at = skip_blanks(*at + strlen(operators[i]));
    size_t len = strspn(*at, version_characters);
    if (len == 0 || !is_one_of(**at, letters_and_digits))
        return -1;
    buf_append(ret, *at, len);
    *at = skip_blanks(*at + len);
    return 0;
}

// Up to a comma that no specifier follows.
static int
take_specifiers(const char **at, struct buf *ret)
{
    if (!is_one_of(**at, "=~!<>"))
        return 0;
    if (take_specifier(at, ret) < 0)
        return -1;
    while (**at == ',' && is_one_of(*skip_blanks(*at + 1), "=~!<>")) {
        buf_append_str(ret, ",");
        *at = skip_blanks(*at + 1);
        if (take_specifier(at, ret) < 0)
            return -1;
    }
    return 0;
}

static int
take_requirement(const char **at, struct buf *ret)
{
    const char *begin = *at;
    bool is_one = take_name(at, ret) == 0 && take_extras(at, ret) == 0 &&
                  take_specifiers(at, ret) == 0 && *at - begin <= REQUIREMENT_MAX_LEN;
    return is_one ? 0 : -1;
}

static int
refuse(const char *text, struct kg_error *err)
{
    return kg_error_set(err, KG_INVALID, 0,
                        "\"%.60s\" is not a requirement: give a name, [extras] and versions, such "
                        "as \"name[extra]>=1.0,<2\"; flags, paths, URLs and markers are refused",
                        text);
}

char *
requirement_normalise(const char *text, struct kg_error *err)
{
    KG_AUTO_BUF ret = {0};
    const char *at = skip_blanks(text);
    if (strlen(text) <= REQUIREMENT_MAX_LEN && take_requirement(&at, &ret) == 0 && *at == '\0')
        return buf_take(&ret);
    refuse(text, err);
    return NULL;
}

// ---- Lists of them --------------------------------------------------------------------------

static const char white[] = " \t\r\n";

static const char *
skip_command(const char *text)
{
    static const char *const commands[] = {"pip install ", "pip3 install ", "uv pip install "};
    const char *at = text + strspn(text, white);
    at += *at == '!' || *at == '%';
    for (size_t i = 0; i < KG_ARRAY_LEN(commands); i++) {
        if (strncmp(at, commands[i], strlen(commands[i])) == 0)
            return at + strlen(commands[i]);
    }
    return text;
}

// Skips what is between two requirements. Fails if nothing is, or if what follows blanks could be a
// version.
static int
take_gap(const char **at)
{
    size_t n = strspn(*at, white);
    bool blanks_before = n > 0 || is_one_of((*at)[-1], white);
    bool comma = (*at)[n] == ',';
    *at += n + comma;
    *at += strspn(*at, white);
    return **at == '\0' || comma || (blanks_before && isalpha((unsigned char)**at)) ? 0 : -1;
}

static int
read_some(const char *text, json_t *list, struct kg_error *err)
{
    const char *at = skip_command(text);
    at += strspn(at, white);
    do {
        KG_AUTO_BUF normal = {0};
        if (take_requirement(&at, &normal) < 0 || take_gap(&at) < 0)
            return refuse(text, err);
        json_array_append_new(list, json_stringn(normal.data, normal.len));
    } while (*at && json_array_size(list) <= REQUIREMENTS_MAX);
    return 0;
}

json_t *
requirements_read(const json_t *value, struct kg_error *err)
{
    json_auto_t *list = json_array();
    size_t n = json_array_size(value);
    for (size_t i = 0; i < n && json_array_size(list) <= REQUIREMENTS_MAX; i++) {
        const json_t *item = json_array_get(value, i);
        const char *text = json_string_value(item);
        if (!text || strlen(text) != json_string_length(item)) {
            kg_error_set(err, KG_INVALID, 0, "packages must be a list of strings");
            return NULL;
        }
        if (read_some(text, list, err) < 0)
            return NULL;
    }
    if (json_array_size(list) >= 1 && json_array_size(list) <= REQUIREMENTS_MAX)
        return KG_STEAL(list);
    kg_error_set(err, KG_INVALID, 0, "packages must be a list of 1 to %d strings",
                 REQUIREMENTS_MAX);
    return NULL;
}

char *
requirement_name(const char *normal)
{
    return kg_strndup(normal, strcspn(normal, "[=~!<>"));
}

bool
requirement_is_pinned(const char *normal)
{
    const char *specifier = normal + strcspn(normal, "=~!<>");
    return strncmp(specifier, "==", 2) == 0 && !strpbrk(specifier, "*,");
}

// ---- Wheels ---------------------------------------------------------------------------------

bool
wheel_name_is_valid(const char *name)
{
    static const char extension[] = ".whl";
    size_t len = strlen(name);
    int n_dashes = 0;
    if (len > WHEEL_NAME_MAX || len < sizeof extension ||
        strcmp(name + len - (sizeof extension - 1), extension) != 0 ||
        !is_one_of(name[0], letters_and_digits))
        return false;
    for (size_t i = 0; i < len; i++) {
        n_dashes += name[i] == '-';
        if (!is_one_of(name[i], version_characters) || name[i] == '*' ||
            (name[i] == '-' && name[i + 1] == '-'))
            return false;
    }
    return n_dashes == 4 || n_dashes == 5;
}
