// SPDX-License-Identifier: Apache-2.0
// The body of POST /v1/sandboxes. What would have to change the sandbox and cannot is refused; what
// the gateway's settings decide is accepted as it is.

#include <string.h>
#include <sys/utsname.h>

#include "opensandbox_priv.h"

enum {
    TIMEOUT_MAX_S = 31536000, // as of sessions
    IMAGE_BYTES_MAX = 512,
    ENTRYPOINT_MAX = 64,
    ENTRYPOINT_BYTES_MAX = 4096,
};

// ---- What is refused ------------------------------------------------------------------------

static bool
is_given(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return value && !json_is_null(value) && !json_is_false(value) &&
           !(json_is_array(value) && json_array_size(value) == 0) &&
           !(json_is_object(value) && json_object_size(value) == 0);
}

static int
refuse_what_is_not_served(const json_t *root, struct kg_error *err)
{
    static const struct {
        const char *name;
        const char *why;
    } refused[] = {
        {"snapshotId", "there are no snapshots: name an image"},
        {"templateId", "there are no templates: name an image"},
        {"volumes", "nothing of the host can be mounted: upload the files"},
        {"lifecycle", "there are no hooks: run a command when the sandbox is there"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(refused); i++)
        if (is_given(root, refused[i].name))
            return kg_error_set(err, KG_INVALID, 0, "%s: %s", refused[i].name, refused[i].why);
    if (json_is_true(json_object_get(json_object_get(root, "credentialProxy"), "enabled")))
        return kg_error_set(err, KG_INVALID, 0, "credentialProxy: it cannot be enabled here");
    return 0;
}

// Of a limit, "0" is none.
static int
check_limits(const json_t *root, struct kg_error *err)
{
    const json_t *limits = json_object_get(root, "resourceLimits");
    const char *key;
    json_t *value;
    if (limits && !json_is_null(limits) && !json_is_object(limits))
        return kg_error_set(err, KG_INVALID, 0, "resourceLimits must be an object");
    json_object_foreach((json_t *)(uintptr_t)limits, key, value) {
        if (!json_is_string(value))
            return kg_error_set(err, KG_INVALID, 0,
                                "resourceLimits must map names to strings; \"%.40s\" does not",
                                key);
        if (strcmp(key, "gpu") == 0 && strcmp(json_string_value(value), "0") != 0)
            return kg_error_set(err, KG_INVALID, 0,
                                "resourceLimits: sandboxes of this gateway have no gpu");
    }
    return 0;
}

static int
check_platform(const json_t *root, struct kg_error *err)
{
    const json_t *platform = json_object_get(root, "platform");
    const char *os = json_string_value(json_object_get(platform, "os"));
    const char *arch = json_string_value(json_object_get(platform, "arch"));
    struct utsname machine;
    if (!platform || json_is_null(platform) || uname(&machine) < 0)
        return 0;
    const char *own = strcmp(machine.machine, "x86_64") == 0    ? "amd64"
                      : strcmp(machine.machine, "aarch64") == 0 ? "arm64"
                                                                : machine.machine;
    if ((os && strcmp(os, "linux") != 0) || (arch && strcmp(arch, own) != 0))
        return kg_error_set(err, KG_INVALID, 0, "platform: this gateway has linux on %s", own);
    return 0;
}

// All sandboxes have the same network, which the gateway's setting decides. A policy must be what
// that is: none, or all.
static int
check_network(const struct opensandbox *self, const json_t *root, struct kg_error *err)
{
    const json_t *policy = json_object_get(root, "networkPolicy");
    if (!policy || json_is_null(policy))
        return 0;
    if (!json_is_object(policy))
        return kg_error_set(err, KG_INVALID, 0, "networkPolicy must be an object");
    const char *action = json_string_value(json_object_get(policy, "defaultAction"));
    bool denies = !action || strcmp(action, "deny") == 0;
    if (action && !denies && strcmp(action, "allow") != 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "networkPolicy: defaultAction must be allow or deny");
    if (json_array_size(json_object_get(policy, "egress")) > 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "networkPolicy: rules for single targets cannot be enforced here; "
                            "leave egress empty");
    if (denies && self->settings.network)
        return kg_error_set(err, KG_INVALID, 0,
                            "networkPolicy: sandboxes of this gateway have a way out (its setting "
                            "network is egress), so it cannot be denied to one; allow it, or set "
                            "network to none");
    if (!denies && !self->settings.network)
        return kg_error_set(err, KG_INVALID, 0,
                            "networkPolicy: sandboxes of this gateway have no network (its setting "
                            "network is none); deny it, or leave networkPolicy out");
    return 0;
}

// ---- What is taken --------------------------------------------------------------------------

static int
take_image(const json_t *root, const char **ret, struct kg_error *err)
{
    *ret = json_string_value(json_object_get(json_object_get(root, "image"), "uri"));
    if (!*ret)
        return kg_error_set(err, KG_INVALID, 0,
                            "image is missing: {\"uri\": \"opensandbox/code-interpreter\"}, say");
    if (strlen(*ret) > IMAGE_BYTES_MAX)
        return kg_error_set(err, KG_INVALID, 0, "image: uri has more than %d bytes",
                            IMAGE_BYTES_MAX);
    if (!strstr(*ret, "code-interpreter") && !strstr(*ret, "python"))
        return kg_error_set(err, KG_INVALID, 0,
                            "image: \"%.100s\" is not served; sandboxes of this gateway all have "
                            "its own kernels, which stand for images with code-interpreter or "
                            "python in their name",
                            *ret);
    return 0;
}

static int
take_entrypoint(const json_t *root, const json_t **ret, struct kg_error *err)
{
    size_t i, bytes = 0;
    json_t *item;
    *ret = json_object_get(root, "entrypoint");
    if (json_is_null(*ret))
        *ret = NULL;
    if (*ret && !json_is_array(*ret))
        return kg_error_set(err, KG_INVALID, 0, "entrypoint must be a list of strings");
    json_array_foreach(*ret, i, item) {
        if (!json_is_string(item))
            return kg_error_set(err, KG_INVALID, 0, "entrypoint must be a list of strings");
        bytes += json_string_length(item);
    }
    if (json_array_size(*ret) > ENTRYPOINT_MAX || bytes > ENTRYPOINT_BYTES_MAX)
        return kg_error_set(err, KG_INVALID, 0, "entrypoint has more than %d words, or %d bytes",
                            ENTRYPOINT_MAX, ENTRYPOINT_BYTES_MAX);
    return 0;
}

int
check_lifetime(const struct opensandbox *self, const char *name, int64_t seconds,
               struct kg_error *err)
{
    int64_t own = self->settings.face->max_lifetime_s;
    int64_t max = own ? own : TIMEOUT_MAX_S;
    if (seconds < 1 || seconds > max)
        return kg_error_set(err, KG_INVALID, 0, "%s must be 1 to %lld seconds from now%s", name,
                            (long long)max, own ? " (setting max-session-lifetime)" : "");
    return 0;
}

static int
take_timeout(const struct opensandbox *self, const json_t *root, int64_t *ret, struct kg_error *err)
{
    const json_t *value = json_object_get(root, "timeout");
    *ret = 0;
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_integer(value))
        return kg_error_set(err, KG_INVALID, 0, "timeout must be a whole number of seconds");
    *ret = json_integer_value(value);
    return check_lifetime(self, "timeout", *ret, err);
}

int
create_body_parse(const struct opensandbox *self, const json_t *root, struct create_body *ret,
                  struct kg_error *err)
{
    const json_t *metadata = json_object_get(root, "metadata");
    *ret = (struct create_body){0};
    if (refuse_what_is_not_served(root, err) < 0 || take_image(root, &ret->image, err) < 0 ||
        take_entrypoint(root, &ret->entrypoint, err) < 0 || check_limits(root, err) < 0 ||
        check_platform(root, err) < 0 || check_network(self, root, err) < 0 ||
        os_take_env(root, "env", &ret->env, err) < 0 ||
        take_timeout(self, root, &ret->timeout_s, err) < 0)
        return -1;
    if (!metadata || json_is_null(metadata))
        return 0;
    ret->metadata = metadata;
    return session_metadata_check(metadata, err);
}
