// SPDX-License-Identifier: Apache-2.0
// Names of environment variables.

#include <string.h>

#include "base.h"

enum { ENV_NAME_MAX = 255 };

bool
env_name_valid(const char *name)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-0123456789";
    size_t len = strlen(name);
    return len > 0 && len <= ENV_NAME_MAX && strspn(name, letters) == len &&
           !strchr("0123456789", name[0]);
}
