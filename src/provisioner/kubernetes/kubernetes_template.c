// SPDX-License-Identifier: Apache-2.0
// What an operator adds to the sandboxes' pods: where they run and as what they are known. What
// isolates them cannot be changed by it.
#include <string.h>

#include "kubernetes_priv.h"
#include "yaml_json.h"

#define TEMPLATE_MAX_BYTES ((size_t)1 << 20)

static bool
is_among(const char *name, const char *const *all)
{
    for (; *all; all++)
        if (strcmp(name, *all) == 0)
            return true;
    return false;
}

// Fails unless `object` is absent, or an object with these members only. `where` ends with a dot,
// or is empty.
static int
check_members(const json_t *object, const char *where, const char *const *allowed,
              struct kg_error *err)
{
    const char *name;
    json_t *value;
    if (object && !json_is_object(object))
        return kg_error_set(err, KG_INVALID, 0, "%.*s must be a mapping", (int)strcspn(where, "."),
                            *where ? where : "it");
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (!is_among(name, allowed))
            return kg_error_set(err, KG_INVALID, 0,
                                "%s%.80s cannot be set: kernelgate sets it, or has no use for it",
                                where, name);
    }
    return 0;
}

// Kubernetes, container runtimes and network plugins take settings of a pod's isolation from
// annotations: profiles, devices, limits, other networks. NULL: it is not such a name.
static const char *
isolation_prefix(const char *name)
{
    static const char *const prefixes[] = {"cdi.k8s.io/",
                                           "container.apparmor.security.beta.kubernetes.io/",
                                           "container.seccomp.security.alpha.kubernetes.io/",
                                           "cpu-quota.crio.io",
                                           "dev.gvisor.",
                                           "devices.nri.io",
                                           "io.katacontainers.",
                                           "io.kubernetes.cri-o.",
                                           "k8s.v1.cni.cncf.io/",
                                           "org.systemd.property.",
                                           "run.oci.",
                                           "seccomp.security.alpha.kubernetes.io/",
                                           "security.alpha.kubernetes.io/",
                                           "v1.multus-cni.io/"};
    for (size_t i = 0; i < KG_ARRAY_LEN(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return prefixes[i];
    return NULL;
}

// Labels and annotations.
static int
check_texts(const json_t *metadata, const char *member, struct kg_error *err)
{
    const char *name;
    json_t *value;
    json_t *texts = json_object_get(metadata, member);
    if (texts && !json_is_object(texts))
        return kg_error_set(err, KG_INVALID, 0, "metadata.%s must be a mapping", member);
    json_object_foreach(texts, name, value) {
        if (!json_is_string(value))
            return kg_error_set(err, KG_INVALID, 0,
                                "metadata.%s: %.80s must be a text; put it in quotes", member,
                                name);
        if (strncmp(name, "kernelgate/", 11) == 0 || strcmp(name, "app.kubernetes.io/name") == 0)
            return kg_error_set(err, KG_INVALID, 0, "metadata.%s: %.80s is kernelgate's own",
                                member, name);
        const char *prefix = isolation_prefix(name);
        if (prefix)
            return kg_error_set(err, KG_INVALID, 0,
                                "metadata.%s: %s cannot be set: it could open the sandboxes",
                                member, prefix);
    }
    return 0;
}

static int
check(const json_t *template, struct kg_error *err)
{
    static const char *const of_pod[] = {"apiVersion", "kind", "metadata", "spec", NULL};
    static const char *const of_metadata[] = {"annotations", "labels", NULL};
    static const char *const of_spec[] = {"affinity",
                                          "hostUsers",
                                          "imagePullSecrets",
                                          "nodeSelector",
                                          "preemptionPolicy",
                                          "priorityClassName",
                                          "runtimeClassName",
                                          "schedulerName",
                                          "tolerations",
                                          "topologySpreadConstraints",
                                          NULL};
    const json_t *metadata = json_object_get(template, "metadata");
    const json_t *spec = json_object_get(template, "spec");
    const json_t *host_users = json_object_get(spec, "hostUsers");
    const char *kind = json_string_value(json_object_get(template, "kind"));
    if (!kind || strcmp(kind, "Pod") != 0)
        return kg_error_set(err, KG_INVALID, 0, "kind must be Pod");
    if (check_members(template, "", of_pod, err) < 0 ||
        check_members(metadata, "metadata.", of_metadata, err) < 0 ||
        check_members(spec, "spec.", of_spec, err) < 0 ||
        check_texts(metadata, "labels", err) < 0 || check_texts(metadata, "annotations", err) < 0)
        return -1;
    if (host_users && !json_is_false(host_users))
        return kg_error_set(err, KG_INVALID, 0, "spec.hostUsers can only be false");
    return 0;
}

int
kube_template_read(const char *path, json_t **ret, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    struct kg_error why = {0};
    *ret = NULL;
    if (!path)
        return 0;
    if (file_read(path, TEMPLATE_MAX_BYTES, &text, &why) < 0)
        return kg_error_set(err, KG_INVALID, 0, "kubernetes-pod-template: %s", why.message);
    json_auto_t *template = json_of_yaml(text.data ? text.data : "", text.len, &why);
    if (!template || check(template, &why) < 0)
        return kg_error_set(err, KG_INVALID, 0, "kubernetes-pod-template: %s: %.140s", path,
                            why.message);
    *ret = json_incref(template);
    return 0;
}

void
kube_template_apply(const json_t *template, json_t *pod)
{
    const json_t *added = json_object_get(template, "metadata");
    json_t *metadata = json_object_get(pod, "metadata");
    json_object_update_missing(json_object_get(metadata, "labels"),
                               json_object_get(added, "labels"));
    json_object_update_missing(json_object_get(metadata, "annotations"),
                               json_object_get(added, "annotations"));
    json_object_update_missing(json_object_get(pod, "spec"), json_object_get(template, "spec"));
}
