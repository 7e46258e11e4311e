// SPDX-License-Identifier: Apache-2.0
// Checks resolutions, which a sandbox reports and which are untrusted.

#include <string.h>

#include "pip.h"
#include "requirement.h"
#include "wheels.h"

#define WHEEL_MAX_BYTES (INT64_C(512) << 20)

enum { MAX_WHEELS = 200, HASH_HEX = 64 };

static bool
is_hash(const char *text)
{
    return strlen(text) == HASH_HEX && strspn(text, "0123456789abcdef") == HASH_HEX;
}

static bool
is_version(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= REQUIREMENT_MAX_LEN &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+!-") ==
               len;
}

static int
check_wheel(json_t *wheel, struct kg_error *err)
{
    const char *name, *version, *file, *sha256;
    json_int_t size;
    json_error_t why;
    if (json_unpack_ex(wheel, &why, 0, "{s:s, s:s, s:s, s:I, s:s}", "name", &name, "version",
                       &version, "file", &file, "size", &size, "sha256", &sha256) < 0)
        return kg_error_set(err, KG_INTERNAL, 0, "a wheel is malformed: %.100s", why.text);
    KG_AUTO_FREE char *normal = package_name_normalise(name, strlen(name));
    KG_AUTO_FREE char *own = package_name_normalise(file, strcspn(file, "-"));
    if (!normal || !own || strcmp(normal, own) != 0 || !is_version(version) ||
        !wheel_name_is_valid(file) || !is_hash(sha256))
        return kg_error_set(err, KG_INTERNAL, 0, "a wheel's name, version or hash is malformed");
    if (size < 1 || size > WHEEL_MAX_BYTES)
        return kg_error_set(err, KG_INTERNAL, 0, "%.80s is %lld bytes; the limit is %lld", file,
                            (long long)size, (long long)WHEEL_MAX_BYTES);
    json_object_set_new(wheel, "name", json_string(normal));
    return 0;
}

static int
check_satisfied(const json_t *item, struct kg_error *err)
{
    const char *requirement = json_string_value(json_object_get(item, "requirement"));
    const char *version = json_string_value(json_object_get(item, "version"));
    KG_AUTO_FREE char *normal = requirement ? requirement_normalise(requirement, err) : NULL;
    if (!normal || !version || !is_version(version))
        return kg_error_set(err, KG_INTERNAL, 0, "a satisfied requirement is malformed");
    return 0;
}

static int
check_resolution(const json_t *root, struct kg_error *err)
{
    const json_t *wheels = json_object_get(root, "wheels");
    const json_t *satisfied = json_object_get(root, "satisfied");
    size_t i;
    json_t *item;
    if (!json_is_array(wheels) || !json_is_array(satisfied) ||
        json_array_size(wheels) > MAX_WHEELS || json_array_size(satisfied) > MAX_WHEELS)
        return kg_error_set(err, KG_INTERNAL, 0, "the resolution does not list at most %d wheels",
                            MAX_WHEELS);
    json_array_foreach(wheels, i, item) {
        if (check_wheel(item, err) < 0)
            return -1;
    }
    json_array_foreach(satisfied, i, item) {
        if (check_satisfied(item, err) < 0)
            return -1;
    }
    return 0;
}

json_t *
resolution_parse(const char *text, size_t len, struct kg_error *err)
{
    json_auto_t *root = pip_result_parse(text, len, err);
    return root && check_resolution(root, err) == 0 ? KG_STEAL(root) : NULL;
}
