// SPDX-License-Identifier: Apache-2.0
// Patterns of file names.

#include <string.h>

#include "opensandbox_priv.h"

int
glob_check(const char *pattern, struct kg_error *err)
{
    size_t stars = 0;
    for (const char *c = pattern; *c; c++)
        stars += *c == '*' && c[1] != '*';
    if (strlen(pattern) > GLOB_PATTERN_MAX || stars > GLOB_STARS_MAX)
        return kg_error_set(err, KG_INVALID, 0, "pattern has more than %d bytes, or %d stars",
                            GLOB_PATTERN_MAX, GLOB_STARS_MAX);
    return 0;
}

// Whether one byte is in the set that begins behind `[`; moves behind its `]`. Without one, `[` is
// itself.
static bool
matches_set(const char **pattern, char c)
{
    bool negated = **pattern == '!' || **pattern == '^', found = false;
    const char *at = *pattern + negated;
    const char *end = *at ? strchr(at + 1, ']') : NULL; // a first `]` is in the set
    if (!end)
        return c == '[';
    for (; at < end; at++) {
        if (at[1] == '-' && at + 2 < end) {
            found |= (unsigned char)at[0] <= (unsigned char)c &&
                     (unsigned char)c <= (unsigned char)at[2];
            at += 2;
        } else {
            found |= *at == c;
        }
    }
    *pattern = end + 1;
    return found != negated;
}

// One byte of a name, but for stars.
static bool
matches_one(const char **pattern, char c)
{
    char p = *(*pattern)++;
    if (p == '?')
        return true;
    if (p == '[')
        return matches_set(pattern, c);
    if (p == '\\' && **pattern)
        p = *(*pattern)++;
    return p == c;
}

// The star that was passed last may be extended by one byte at a time: that is all that has to be
// remembered within names, and once more for `**`.
struct retry {
    const char *pattern; // behind the star; NULL: there is none
    const char *path;    // where it ends now
};

bool
glob_matches(const char *pattern, const char *path, int64_t *steps)
{
    struct retry within = {0}, across = {0};
    const char *name = strrchr(path, '/');
    if (!strchr(pattern, '/') && !strstr(pattern, "**") && name)
        path = name + 1;
    while (*path || *pattern) {
        if (--*steps < 0)
            return false;
        if (strncmp(pattern, "**", 2) == 0) {
            pattern += strspn(pattern, "*");
            pattern += *pattern == '/'; // `**/a` is `a`, too
            across = (struct retry){pattern, path};
            within = (struct retry){0};
            continue;
        }
        if (*pattern == '*') {
            within = (struct retry){++pattern, path};
            continue;
        }
        const char *next = pattern;
        bool is_slash = *path == '/';
        if (*path && *pattern && (is_slash ? *next++ == '/' : matches_one(&next, *path))) {
            pattern = next;
            path++;
        } else if (within.pattern && *within.path && *within.path != '/') {
            pattern = within.pattern;
            path = ++within.path;
        } else if (across.pattern && *across.path) {
            within = (struct retry){0};
            pattern = across.pattern;
            path = ++across.path;
        } else {
            return false;
        }
    }
    return true;
}
