// SPDX-License-Identifier: Apache-2.0
// Files of an operator's: kubectl's configuration, and the template of pods.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kubernetes_priv.h"
#include "test_kubernetes.h"

static char folder[] = "/tmp/kg-test-XXXXXX";

static int
set_up(void **state)
{
    (void)state;
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    return mkdtemp(folder) ? 0 : -1;
}

static int
tear_down(void **state)
{
    (void)state;
    struct kg_error err = {0};
    return path_remove_tree(folder, &err);
}

// The path of a new file in the folder, to be freed.
static char *
write_file(const char *name, const char *text)
{
    struct kg_error err = {0};
    char *path = kg_asprintf("%s/%s", folder, name);
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, &err), 0);
    return path;
}

// ---- kubectl's configuration ----------------------------------------------------------------

#define CLUSTER(more)                                                                              \
    "clusters:\n- name: other\n  cluster: {server: 'https://other'}\n"                             \
    "- name: lab\n  cluster:\n    server: https://api:6443\n" more
#define USER(more) "users:\n- name: me\n  user:\n    token: secret\n" more
#define CONTEXT                                                                                    \
    "apiVersion: v1\nkind: Config\ncurrent-context: here\n"                                        \
    "contexts:\n- name: here\n  context: {cluster: lab, user: me, namespace: boxes}\n"

static void
test_a_configuration(void **state)
{
    (void)state;
    struct kube_access access = {0};
    struct kg_error err = {0};
    KG_AUTO_FREE char *ca = write_file("ca.crt", "PEM");
    KG_AUTO_FREE char *path =
        write_file("config", CONTEXT CLUSTER("    certificate-authority: ca.crt\n")
                                 USER("    client-certificate-data: b25l\n"
                                      "    client-key-data: |\n      dHdv\n"));
    const struct provisioner_kubernetes settings = {.kubeconfig = path};
    assert_int_equal(kube_find_access(&access, &settings, &err), 0);
    assert_string_equal(access.server, "https://api:6443");
    assert_string_equal(access.namespace, "boxes");
    assert_string_equal(access.ca_file, ca); // relative to the file
    assert_string_equal(access.certificate_pem, "one");
    assert_string_equal(access.key_pem, "two");
    KG_AUTO_FREE char *header = NULL;
    assert_int_equal(kube_authorization(&access, &header, &err), 0);
    assert_string_equal(header, "Authorization: Bearer secret");
    KG_AUTO_FREE char *description = kube_access_describe(&access);
    assert_string_equal(description, "https://api:6443, namespace boxes, with a token and a client "
                                     "certificate, from kubeconfig");
    kube_access_fini(&access);
}

static void
test_the_namespace_of_the_setting_counts(void **state)
{
    (void)state;
    struct kube_access access = {0};
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = write_file("config", CONTEXT CLUSTER("") USER(""));
    const struct provisioner_kubernetes settings = {.kubeconfig = path, .namespace = "mine"};
    assert_int_equal(kube_find_access(&access, &settings, &err), 0);
    assert_string_equal(access.namespace, "mine");
    kube_access_fini(&access);
}

static void
test_bad_configurations(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } all[] = {
        {"a: [", "line 2"},
        {"kind: Config\n", "no context that is the current one"},
        {"current-context: none\n", "no context none"},
        {CONTEXT USER(""), "no cluster lab"},
        {CONTEXT CLUSTER(""), "no user me"},
        {CONTEXT CLUSTER("    insecure-skip-tls-verify: true\n") USER(""),
         "insecure-skip-tls-verify of the cluster lab is not supported: anybody on the way could "
         "read the credential; name the certificate-authority"},
        {CONTEXT CLUSTER("    proxy-url: http://proxy\n") USER(""),
         "proxy-url of the cluster lab is not supported: the gateway connects to the server "
         "itself"},
        {CONTEXT CLUSTER("") USER("    exec: {command: aws}\n"),
         "exec of the user me is not supported: use a token, or a client certificate with its key"},
        {CONTEXT CLUSTER("") USER("    client-key-data: b25l\n"), "go together"},
        {CONTEXT CLUSTER("    certificate-authority-data: '%'\n") USER(""), "is not base64"},
        {CONTEXT CLUSTER("") USER("    tokenFile: none\n"), "tokenFile: cannot find "},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        struct kube_access access = {0};
        struct kg_error err = {0};
        KG_AUTO_FREE char *path = write_file("config", all[i].text);
        const struct provisioner_kubernetes settings = {.kubeconfig = path};
        assert_int_equal(kube_find_access(&access, &settings, &err), -1);
        if (!strstr(err.message, all[i].why))
            fail_msg("\"%s\" instead of \"%s\"", err.message, all[i].why);
        kube_access_fini(&access);
    }
    struct kube_access access = {0};
    struct kg_error err = {0};
    const struct provisioner_kubernetes both = {.kubeconfig = "/x", .server = "https://api"};
    assert_int_equal(kube_find_access(&access, &both, &err), -1);
    assert_non_null(strstr(err.message, "remove kubernetes-server"));
    kube_access_fini(&access);
    const struct provisioner_kubernetes missing = {.kubeconfig = "/nowhere/config"};
    access = (struct kube_access){0};
    assert_int_equal(kube_find_access(&access, &missing, &err), -1);
    assert_non_null(strstr(err.message, "kubeconfig: cannot open /nowhere/config"));
    kube_access_fini(&access);
}

// ---- Templates ------------------------------------------------------------------------------

static void
test_a_template_adds_to_pods(void **state)
{
    (void)state;
    struct kubernetes kube = {
        .installation = (char[]){"here"}, .image = (char[]){"i"}, .agent_image = (char[]){"a"}};
    struct kg_error err = {0};
    KG_AUTO_FREE char *path =
        write_file("pod.yaml", "kind: Pod\nmetadata:\n  labels: {team: data}\n"
                               "  annotations: {note: 'x'}\nspec:\n  runtimeClassName: gvisor\n"
                               "  hostUsers: false\n  tolerations: [{operator: Exists}]\n");
    assert_int_equal(kube_template_read(path, &kube.template, &err), 0);
    for (int i = 0; i < 2; i++) { // it can be used again
        json_auto_t *pod =
            kube_pod_spec(&kube, "abc", json_pack("[s, s]", SANDBOX_AGENT, "--version"));
        const json_t *metadata = json_object_get(pod, "metadata");
        const json_t *labels = json_object_get(metadata, "labels");
        const json_t *spec = json_object_get(pod, "spec");
        assert_string_equal(json_string_value(json_object_get(labels, "team")), "data");
        assert_string_equal(json_string_value(json_object_get(labels, KUBE_LABEL_STATE)), "free");
        assert_non_null(json_object_get(json_object_get(metadata, "annotations"), "note"));
        assert_string_equal(json_string_value(json_object_get(spec, "runtimeClassName")), "gvisor");
        assert_true(json_is_false(json_object_get(spec, "hostUsers")));
        assert_int_equal(json_array_size(json_object_get(spec, "tolerations")), 1);
        assert_string_equal(json_string_value(json_object_get(spec, "restartPolicy")), "Never");
    }
    json_decref(kube.template);
}

static void
test_bad_templates(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } all[] = {
        {"kind: Pod\nspec: [\n", "line 3"},
        {"[]", "kind must be Pod"},
        {"kind: Deployment\n", "kind must be Pod"},
        {"kind: Pod\nstatus: {}\n", "status cannot be set"},
        {"kind: Pod\nmetadata: {name: x}\n", "metadata.name cannot be set"},
        {"kind: Pod\nmetadata: {labels: {a: 1}}\n", "metadata.labels: a must be a text"},
        {"kind: Pod\nmetadata: {labels: [a]}\n", "metadata.labels must be a mapping"},
        {"kind: Pod\nmetadata: {labels: {kernelgate/state: claimed}}\n", "is kernelgate's own"},
        {"kind: Pod\nmetadata: {annotations: "
         "{container.apparmor.security.beta.kubernetes.io/sandbox: unconfined}}\n",
         "container.apparmor.security.beta.kubernetes.io/ cannot be set"},
        {"kind: Pod\nmetadata: {annotations: {k8s.v1.cni.cncf.io/networks: other}}\n",
         "metadata.annotations: k8s.v1.cni.cncf.io/ cannot be set: it could open the sandboxes"},
        {"kind: Pod\nmetadata: {annotations: {org.systemd.property.TasksMax: '1'}}\n",
         "org.systemd.property. cannot be set"},
        {"kind: Pod\nmetadata: {annotations: {cpu-quota.crio.io: disable}}\n",
         "cpu-quota.crio.io cannot be set"},
        {"kind: Pod\nspec: {hostNetwork: true}\n", "spec.hostNetwork cannot be set"},
        {"kind: Pod\nspec: {containers: []}\n", "spec.containers cannot be set"},
        {"kind: Pod\nspec: {securityContext: {}}\n", "spec.securityContext cannot be set"},
        {"kind: Pod\nspec: {hostUsers: true}\n", "spec.hostUsers can only be false"},
        {"kind: Pod\nspec: gvisor\n", "spec must be a mapping"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        struct kg_error err = {0};
        json_t *template;
        KG_AUTO_FREE char *path = write_file("pod.yaml", all[i].text);
        assert_int_equal(kube_template_read(path, &template, &err), -1);
        assert_null(template);
        assert_non_null(strstr(err.message, "kubernetes-pod-template"));
        if (!strstr(err.message, all[i].why))
            fail_msg("\"%s\" instead of \"%s\"", err.message, all[i].why);
    }
    struct kg_error err = {0};
    json_t *template;
    assert_int_equal(kube_template_read("/nowhere/pod.yaml", &template, &err), -1);
    assert_non_null(strstr(err.message, "kubernetes-pod-template: cannot open /nowhere/pod.yaml"));
    assert_int_equal(kube_template_read(NULL, &template, &err), 0);
    assert_null(template);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

const struct CMUnitTest kubernetes_file_tests[] = {
    TEST(test_a_configuration),    TEST(test_the_namespace_of_the_setting_counts),
    TEST(test_bad_configurations), TEST(test_a_template_adds_to_pods),
    TEST(test_bad_templates),
};
const size_t n_kubernetes_file_tests = KG_ARRAY_LEN(kubernetes_file_tests);
