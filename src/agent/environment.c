// SPDX-License-Identifier: Apache-2.0
// The environment of a child process.
#include "environment.h"

#include <string.h>
#include <unistd.h>

static bool
is_overridden(const char *assignment, json_t *env)
{
    KG_AUTO_FREE char *name = kg_strndup(assignment, strcspn(assignment, "="));
    return json_object_get(env, name) != NULL;
}

char **
environment_make(json_t *env)
{
    size_t n = json_object_size(env);
    size_t out = 0;
    const char *name;
    json_t *value;

    for (char **e = environ; *e; e++)
        n++;
    char **ret = kg_calloc(n + 1, sizeof *ret);
    for (char **e = environ; *e; e++) {
        if (!is_overridden(*e, env))
            ret[out++] = kg_strdup(*e);
    }
    json_object_foreach(env, name, value)
        ret[out++] = kg_asprintf("%s=%s", name, json_string_value(value));
    return ret;
}

void
strings_free(char **strings)
{
    for (char **s = strings; *s; s++)
        free(*s);
    free(strings);
}
