// SPDX-License-Identifier: Apache-2.0
// A file of kubectl's: the API server, the credential and the namespace of its current context
// (Kubernetes' reference, "kubeconfig (v1)").
#include <sodium.h>
#include <string.h>

#include "kubernetes_priv.h"
#include "yaml_json.h"

#define CONFIG_MAX_BYTES ((size_t)1 << 20)

// A part of the file that a name selects.
struct section {
    const char *path; // of the file
    const char *kind; // "cluster"
    const char *name;
    const json_t *value;
};

static int
find_section(struct section *section, const json_t *config, const char *list, struct kg_error *err)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(json_object_get(config, list), i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && section->name && strcmp(name, section->name) == 0)
            section->value = json_object_get(entry, section->kind);
    }
    if (json_is_object(section->value))
        return 0;
    return kg_error_set(err, KG_INVALID, 0, "kubeconfig: %s has no %s %.80s", section->path,
                        section->kind, section->name ? section->name : "that is the current one");
}

// A member that would have to be respected, and is not supported.
struct refusal {
    const char *name; // NULL ends a list
    const char *why;  // and what to do
};

static int
refuse(const struct section *section, const struct refusal *refusals, struct kg_error *err)
{
    for (; refusals->name; refusals++) {
        const json_t *value = json_object_get(section->value, refusals->name);
        if (value && !json_is_null(value) && !json_is_false(value))
            return kg_error_set(err, KG_INVALID, 0,
                                "kubeconfig: %s of the %s %.60s is not supported: %s",
                                refusals->name, section->kind, section->name, refusals->why);
    }
    return 0;
}

// ---- Values ---------------------------------------------------------------------------------

// A path in the file is relative to the file's folder.
static char *
resolve(const char *config_path, const char *path)
{
    const char *slash = strrchr(config_path, '/');
    if (path[0] == '/' || !slash)
        return kg_strdup(path);
    return kg_asprintf("%.*s/%s", (int)(slash - config_path), config_path, path);
}

static int
take_path(const struct section *section, const char *name, char **ret, struct kg_error *err)
{
    const char *path = json_string_value(json_object_get(section->value, name));
    if (!path || !*path)
        return 0;
    KG_AUTO_FREE char *resolved = resolve(section->path, path);
    *ret = provisioner_real_path(name, resolved, err);
    return *ret ? 0 : -1;
}

// `name`-data, which is base64 of PEM, or the path `name`.
static int
take_pem(const struct section *section, const char *name, char **ret_file, char **ret_pem,
         struct kg_error *err)
{
    KG_AUTO_FREE char *of_data = kg_asprintf("%s-data", name);
    const char *data = json_string_value(json_object_get(section->value, of_data));
    if (!data || !*data)
        return take_path(section, name, ret_file, err);
    size_t len = strlen(data);
    size_t pem_len;
    KG_AUTO_FREE char *pem = kg_calloc(1, len + 1);
    if (sodium_base642bin((unsigned char *)pem, len, data, len, " \r\n", &pem_len, NULL,
                          sodium_base64_VARIANT_ORIGINAL) < 0 ||
        strlen(pem) != pem_len)
        return kg_error_set(err, KG_INVALID, 0, "kubeconfig: %s of the %s %.80s is not base64",
                            of_data, section->kind, section->name);
    *ret_pem = KG_STEAL(pem);
    return 0;
}

static char *
copy_of(const struct section *section, const char *name)
{
    const char *text = json_string_value(json_object_get(section->value, name));
    return text && *text ? kg_strdup(text) : NULL;
}

// ---- Sections -------------------------------------------------------------------------------

static int
take_cluster(struct kube_access *access, const struct section *cluster, struct kg_error *err)
{
    static const struct refusal unsupported[] = {
        {"insecure-skip-tls-verify",
         "anybody on the way could read the credential; name the certificate-authority"},
        {"tls-server-name", "server must have a name that is in its certificate"},
        {"proxy-url", "the gateway connects to the server itself"},
        {NULL, NULL}};
    if (refuse(cluster, unsupported, err) < 0)
        return -1;
    access->server = copy_of(cluster, "server");
    if (!access->server)
        return kg_error_set(err, KG_INVALID, 0, "kubeconfig: the cluster %.80s has no server",
                            cluster->name);
    return take_pem(cluster, "certificate-authority", &access->ca_file, &access->ca_pem, err);
}

static int
take_user(struct kube_access *access, const struct section *user, struct kg_error *err)
{
    static const char *const advice = "use a token, or a client certificate with its key";
    static const char *const own = "the credential must be the gateway's own";
    const struct refusal unsupported[] = {
        {"exec", advice}, {"auth-provider", advice}, {"username", advice},   {"as", own},
        {"as-uid", own},  {"as-groups", own},        {"as-user-extra", own}, {NULL, NULL}};
    if (refuse(user, unsupported, err) < 0 ||
        take_path(user, "tokenFile", &access->token_file, err) < 0 ||
        take_pem(user, "client-certificate", &access->certificate_file, &access->certificate_pem,
                 err) < 0 ||
        take_pem(user, "client-key", &access->key_file, &access->key_pem, err) < 0)
        return -1;
    access->token = copy_of(user, "token");
    bool has_certificate = access->certificate_file || access->certificate_pem;
    bool has_key = access->key_file || access->key_pem;
    if (has_certificate == has_key)
        return 0;
    return kg_error_set(err, KG_INVALID, 0,
                        "kubeconfig: of the user %.80s, client-certificate and client-key go "
                        "together",
                        user->name);
}

static const char *
name_in(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

int
kube_take_config(struct kube_access *access, const char *path, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    struct kg_error why = {0};
    if (file_read(path, CONFIG_MAX_BYTES, &text, &why) < 0)
        return kg_error_set(err, KG_INVALID, 0, "kubeconfig: %s", why.message);
    json_auto_t *config = json_of_yaml(text.data ? text.data : "", text.len, &why);
    if (!config)
        return kg_error_set(err, KG_INVALID, 0, "kubeconfig: %s: %.120s", path, why.message);
    struct section context = {path, "context", name_in(config, "current-context"), NULL};
    if (find_section(&context, config, "contexts", err) < 0)
        return -1;
    struct section cluster = {path, "cluster", name_in(context.value, "cluster"), NULL};
    struct section user = {path, "user", name_in(context.value, "user"), NULL};
    access->namespace = copy_of(&context, "namespace");
    if (find_section(&cluster, config, "clusters", err) < 0 ||
        find_section(&user, config, "users", err) < 0 || take_cluster(access, &cluster, err) < 0)
        return -1;
    return take_user(access, &user, err);
}
