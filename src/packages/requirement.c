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

static int
take_specifiers(const char **at, struct buf *ret)
{
    if (**at == '\0')
        return 0;
    if (take_specifier(at, ret) < 0)
        return -1;
    while (**at == ',') {
        buf_append_str(ret, ",");
        *at = skip_blanks(*at + 1);
        if (take_specifier(at, ret) < 0)
            return -1;
    }
    return **at == '\0' ? 0 : -1;
}

char *
requirement_normalise(const char *text, struct kg_error *err)
{
    KG_AUTO_BUF ret = {0};
    const char *at = skip_blanks(text);
    if (strlen(text) <= REQUIREMENT_MAX_LEN && take_name(&at, &ret) == 0 &&
        take_extras(&at, &ret) == 0 && take_specifiers(&at, &ret) == 0)
        return buf_take(&ret);
    kg_error_set(err, KG_INVALID, 0,
                 "\"%.60s\" is not a requirement: give a name, [extras] and versions, such as "
                 "\"name[extra]>=1.0,<2\"; flags, paths, URLs and markers are refused",
                 text);
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
