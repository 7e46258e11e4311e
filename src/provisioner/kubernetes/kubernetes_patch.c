// SPDX-License-Identifier: Apache-2.0
// JSON Patch (RFC 6902), with which objects of the cluster are changed: the API server applies a
// whole patch, or nothing of it.
#include "kubernetes_priv.h"

static void
patch_append(json_t *patch, const char *op, const char *path, json_t *value)
{
    json_array_append_new(patch,
                          json_pack("{s:s, s:s, s:o}", "op", op, "path", path, "value", value));
}

void
kube_patch_test(json_t *patch, const char *path, const char *value)
{
    patch_append(patch, "test", path, json_string(value));
}

void
kube_patch_add(json_t *patch, const char *path, const char *value)
{
    patch_append(patch, "add", path, json_string(value));
}

void
kube_patch_add_json(json_t *patch, const char *path, json_t *value)
{
    patch_append(patch, "add", path, value);
}

void
kube_patch_replace(json_t *patch, const char *path, const char *value)
{
    patch_append(patch, "replace", path, json_string(value));
}
