// SPDX-License-Identifier: Apache-2.0
// The body of a creation: what is known is checked, what is not known is left alone, since newer
// SDKs send more. What cannot be given is refused, and not left out silently.

#include <string.h>

#include "e2b_priv.h"

enum { TIMEOUT_MAX_S = 30 * 24 * 3600 };

int
timeout_parse(const struct e2b *e2b, const json_t *root, const char *name, int64_t fallback,
              int64_t *ret, struct kg_error *err)
{
    const json_t *value = json_object_get(root, name);
    int64_t limit = e2b->settings.face->max_lifetime_s;
    int64_t max = limit ? limit : TIMEOUT_MAX_S;
    *ret = fallback < max ? fallback : max;
    if (!json_is_object(root))
        return kg_error_set(err, KG_INVALID, 0, "the body must be an object");
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return kg_error_set(err, KG_INVALID, 0, "%s must be a whole number of seconds", name);
    if (json_integer_value(value) > max)
        return kg_error_set(err, KG_INVALID, 0,
                            "%s is greater than %lld seconds, the most that a sandbox may live%s",
                            name, (long long)max, limit ? " (setting max-session-lifetime)" : "");
    *ret = json_integer_value(value) > 0 ? json_integer_value(value) : 1;
    return 0;
}

static int
check_template(const char *template, struct kg_error *err)
{
    static const char *const known[] = {"base", "code-interpreter-v1", "code-interpreter-beta",
                                        "code-interpreter-stateful"};
    for (size_t i = 0; i < KG_ARRAY_LEN(known); i++)
        if (strcmp(template, known[i]) == 0)
            return 0;
    return kg_error_set(err, KG_NOT_FOUND, 0,
                        "template '%.64s' not found: this gateway has no templates of its own; "
                        "\"base\" and \"code-interpreter-v1\" are its one image",
                        template);
}

static bool
is_given(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return value && !json_is_null(value) && !json_is_false(value) &&
           !(json_is_object(value) && json_object_size(value) == 0) &&
           !(json_is_array(value) && json_array_size(value) == 0);
}

static int
check_missing(const json_t *root, struct kg_error *err)
{
    static const struct {
        const char *name;
        const char *what;
    } missing[] = {
        {"autoPause", "sandboxes cannot be paused here; without it one ends at its timeout"},
        {"volumeMounts", "there are no volumes here"},
        {"mcp", "there is no MCP gateway in the sandboxes; kernelgate serves MCP itself, at /mcp"},
        {"iam", "sandboxes have no identities here"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(missing); i++)
        if (is_given(root, missing[i].name))
            return kg_error_set(err, KG_INVALID, 0, "%s: %s", missing[i].name, missing[i].what);
    if (json_is_true(json_object_get(json_object_get(root, "autoResume"), "enabled")))
        return kg_error_set(err, KG_INVALID, 0, "autoResume: sandboxes cannot be paused here");
    return 0;
}

// Where sandboxes have no network, less than that cannot be asked for; where they have one, all of
// them have the same.
static int
check_network(const struct e2b *e2b, const json_t *root, struct kg_error *err)
{
    static const char *const limits[] = {"allowOut", "denyOut", "rules", "egressProxy",
                                         "dnsServers"};
    const json_t *network = json_object_get(root, "network");
    if (is_given(network, "maskRequestHost"))
        return kg_error_set(err, KG_INVALID, 0,
                            "network.maskRequestHost: programs get the Host that clients send");
    const char *limit = json_is_false(json_object_get(root, "allow_internet_access"))
                            ? "allow_internet_access"
                            : NULL;
    for (size_t i = 0; i < KG_ARRAY_LEN(limits) && !limit; i++)
        if (is_given(network, limits[i]))
            limit = limits[i];
    if (limit && e2b->settings.network)
        return kg_error_set(err, KG_INVALID, 0,
                            "%s: the network of sandboxes is set for all of them (setting "
                            "network), and not for one",
                            limit);
    return 0;
}

int
creation_body_parse(const struct e2b *e2b, const json_t *root, int64_t timeout_s,
                    struct creation_body *ret, struct kg_error *err)
{
    const json_t *template = json_object_get(root, "templateID");
    const json_t *public = json_object_get(json_object_get(root, "network"), "allowPublicTraffic");
    *ret = (struct creation_body){0};
    if (!json_is_object(root))
        return kg_error_set(err, KG_INVALID, 0, "the body must be an object");
    if (template && !json_is_string(template))
        return kg_error_set(err, KG_INVALID, 0, "templateID must be a string");
    ret->template_id = template ? json_string_value(template) : "base";
    ret->metadata = json_object_get(root, "metadata");
    ret->env = json_object_get(root, "envVars");
    ret->ports_are_private = json_is_false(public);
    if (json_is_null(ret->metadata))
        ret->metadata = NULL;
    if (json_is_null(ret->env))
        ret->env = NULL;
    if (check_template(ret->template_id, err) < 0 || check_missing(root, err) < 0 ||
        check_network(e2b, root, err) < 0 ||
        timeout_parse(e2b, root, "timeout", timeout_s, &ret->timeout_s, err) < 0)
        return -1;
    if (ret->metadata && session_metadata_check(ret->metadata, err) < 0)
        return -1;
    return ret->env ? session_env_check(ret->env, err) : 0;
}
