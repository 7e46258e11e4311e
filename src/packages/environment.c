// SPDX-License-Identifier: Apache-2.0
// What every sandbox has before anything is installed, as a clean sandbox reports it: untrusted in
// its form, but no session's.

#include <sodium.h>
#include <string.h>

#include "packages_priv.h"
#include "pip.h"
#include "requirement.h"

enum { MAX_PACKAGES = 2000, TAG_MAX = 32 };

static bool
is_tag(const char *text)
{
    size_t len = text ? strlen(text) : 0;
    return len >= 1 && len <= TAG_MAX &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == len;
}

// A hash of all of it: what was resolved for one environment is not right for another.
static void
name_environment(struct packages *packages)
{
    unsigned char hash[crypto_generichash_BYTES];
    char hex[2 * sizeof hash + 1];
    json_auto_t *all = json_pack("{s:s, s:O}", "python", packages->tag, "packages", packages->base);
    KG_AUTO_FREE char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    crypto_generichash(hash, sizeof hash, (const unsigned char *)text, strlen(text), NULL, 0);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    packages->environment = kg_strdup(hex);
}

int
environment_take(struct packages *packages, const char *text, size_t len, struct kg_error *err)
{
    json_auto_t *root = pip_result_parse(text, len, err);
    if (!root)
        return -1;
    json_t *list = json_object_get(root, "packages");
    const char *tag = json_string_value(json_object_get(root, "python"));
    const char *name;
    json_t *version;
    if (!is_tag(tag) || !json_is_object(list) || json_object_size(list) > MAX_PACKAGES)
        return kg_error_set(err, KG_INTERNAL, 0, "the list of what is installed is malformed");
    json_object_foreach(list, name, version) {
        if (!json_is_string(version) || json_string_length(version) > REQUIREMENT_MAX_LEN)
            return kg_error_set(err, KG_INTERNAL, 0, "the version of %.60s is malformed", name);
    }
    environment_clear(packages);
    packages->tag = kg_strdup(tag);
    packages->base = json_incref(list);
    name_environment(packages);
    return 0;
}

void
environment_clear(struct packages *packages)
{
    free(KG_STEAL(packages->tag));
    free(KG_STEAL(packages->environment));
    json_decref(KG_STEAL(packages->base));
}

static const char *
version_among(const json_t *wheels, const char *name)
{
    size_t i;
    json_t *wheel;
    json_array_foreach(wheels, i, wheel) {
        if (strcmp(json_string_value(json_object_get(wheel, "name")), name) == 0)
            return json_string_value(json_object_get(wheel, "version"));
    }
    return NULL;
}

const char *
packages_base_version(const struct packages *packages, const char *name)
{
    const json_t *common = package_sets_wheels_of(packages->sets, PACKAGES_OF_ALL);
    const char *version = version_among(common, name);
    return version ? version : json_string_value(json_object_get(packages->base, name));
}

const char *
packages_version_satisfying(const struct packages *packages, const json_t *wheels,
                            const char *requirement)
{
    KG_AUTO_FREE char *name = requirement_name(requirement);
    const char *rest = requirement + strlen(name);
    const char *version = version_among(wheels, name);
    if (!version)
        version = packages_base_version(packages, name);
    if (!version || *rest == '\0')
        return version;
    return strncmp(rest, "==", 2) == 0 && strcmp(rest + 2, version) == 0 ? version : NULL;
}
