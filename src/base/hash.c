// SPDX-License-Identifier: Apache-2.0
#include "base.h"

uint32_t
hash_fnv1a(const void *data, size_t len)
{
    const unsigned char *bytes = data;
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 16777619U;
    return hash;
}
