// SPDX-License-Identifier: Apache-2.0
// The environment that a client gives to a session, a command or an execution.

#include <string.h>

#include "session.h"

int
session_env_check(const json_t *env, struct kg_error *err)
{
    size_t bytes = 0;
    const char *name;
    json_t *value;
    if (!json_is_object(env))
        return kg_error_set(err, KG_INVALID, 0, "env must be an object");
    if (json_object_size(env) > SESSION_ENV_ENTRIES_MAX)
        return kg_error_set(err, KG_INVALID, 0, "env has more than %d members",
                            SESSION_ENV_ENTRIES_MAX);
    json_object_foreach((json_t *)(uintptr_t)env, name, value) {
        if (!json_is_string(value) || !env_name_valid(name))
            return kg_error_set(err, KG_INVALID, 0,
                                "env must map names to strings; \"%.40s\" does not", name);
        bytes += strlen(name) + json_string_length(value);
    }
    if (bytes > SESSION_ENV_BYTES_MAX)
        return kg_error_set(err, KG_INVALID, 0, "env is larger than %d bytes",
                            SESSION_ENV_BYTES_MAX);
    return 0;
}
