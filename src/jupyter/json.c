// SPDX-License-Identifier: Apache-2.0
// A text of some megabytes can hold millions of tiny values, which cost jansson fifty times their
// length: it is weighed before it is loaded.

#include "json_priv.h"

#include <string.h>

#include "jupyter.h"

enum {
    WEIGHED_FROM = 256 * 1024, // bytes; below, even the worst text is harmless
    MAX_WEIGHT = 2 * 1024 * 1024
};

// A structural character's weight: about how many times 48 bytes jansson allocates for it.
static const unsigned char weights[256] = {[','] = 1, [':'] = 2, ['['] = 3, ['{'] = 6};

// The byte after the string that starts at `p` (which is after its opening quote).
static const char *
skip_string(const char *p, const char *end)
{
    const char *start = p;
    while (p < end && (p = memchr(p, '"', (size_t)(end - p))) != NULL) {
        const char *slash = p;
        while (slash > start && slash[-1] == '\\')
            slash--;
        p++;
        if ((p - 1 - slash) % 2 == 0)
            return p;
        start = p;
    }
    return end;
}

static bool
too_heavy(const char *text, size_t len)
{
    const char *end = text + len;
    size_t weight = 0;

    for (const char *p = text; p < end && weight <= MAX_WEIGHT;) {
        if (*p == '"')
            p = skip_string(p + 1, end);
        else
            weight += weights[(unsigned char)*p++];
    }
    return weight > MAX_WEIGHT;
}

json_t *
kernel_json_load(const char *text, size_t len, const char *what, bool *repaired,
                 struct kg_error *err)
{
    json_error_t why;

    if (len >= WEIGHED_FROM && too_heavy(text, len)) {
        (void)kg_error_set(err, KG_INVALID_CONTENT, 0, "%s has too many JSON values", what);
        return NULL;
    }
    json_auto_t *json = json_loadb(text, len, JSON_ALLOW_NUL, &why);
    if (json == NULL) {
        size_t repaired_len;
        KG_AUTO_FREE char *copy = jupyter_json_repair(text, len, &repaired_len);
        json = json_loadb(copy, repaired_len, JSON_ALLOW_NUL, &why);
        if (json != NULL)
            *repaired = true;
    }
    if (json == NULL) {
        (void)kg_error_set(err, KG_INVALID_CONTENT, 0, "%s is not JSON: %.100s", what, why.text);
        return NULL;
    }
    if (!json_is_object(json)) {
        (void)kg_error_set(err, KG_INVALID_CONTENT, 0, "%s is not a JSON object", what);
        return NULL;
    }
    return KG_STEAL(json);
}
