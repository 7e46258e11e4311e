// SPDX-License-Identifier: Apache-2.0
// Where the API server is, and the credentials for it: from settings, a file of kubectl's, or the
// pod's service account.
#include <string.h>
#include <unistd.h>

#include "kubernetes_priv.h"

#define TOKEN_MAX_BYTES ((size_t)64 << 10)
#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

// Kubernetes sets these variables in a pod; an IPv6 address has no brackets there.
static char *
server_of_cluster(void)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !*host || !port || !*port)
        return NULL;
    return strchr(host, ':') ? kg_asprintf("https://[%s]:%s", host, port)
                             : kg_asprintf("https://%s:%s", host, port);
}

static int
check_server(struct kube_access *access, struct kg_error *err)
{
    if (!access->server)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "this is not a pod of a cluster; say where its API server is with "
                            "kubeconfig or kubernetes-server");
    size_t len = strlen(access->server);
    if (len && access->server[len - 1] == '/')
        access->server[len - 1] = '\0';
    if (strncmp(access->server, "https://", 8) == 0 || strncmp(access->server, "http://", 7) == 0)
        return 0;
    return kg_error_set(err, KG_INVALID, 0, "kubernetes-server: %.120s is not https://host:port",
                        access->server);
}

// The path `configured`, which must exist. If it is NULL, the service account's file, if there is
// one.
static int
take_file(char **ret, const char *setting, const char *configured, const char *of_account,
          struct kg_error *err)
{
    if (configured) {
        *ret = provisioner_real_path(setting, configured, err);
        return *ret ? 0 : -1;
    }
    if (of_account && access(of_account, R_OK) == 0)
        *ret = kg_strdup(of_account);
    return 0;
}

static int
take_namespace_of_account(struct kube_access *access, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    if (file_read(ACCOUNT "/namespace", KUBE_NAME_MAX + 1, &text, err) < 0)
        return -1;
    access->namespace = kg_strndup(text.len ? text.data : "", strcspn(text.data, "\n"));
    return 0;
}

static int
take_namespace(struct kube_access *ret, const struct provisioner_kubernetes *settings,
               struct kg_error *err)
{
    if (settings->namespace) {
        free(ret->namespace);
        ret->namespace = kg_strdup(settings->namespace);
    } else if (!settings->kubeconfig && access(ACCOUNT "/namespace", R_OK) == 0 &&
               take_namespace_of_account(ret, err) < 0) {
        return -1;
    }
    if (!ret->namespace)
        ret->namespace = kg_strdup("default");
    if (kube_name_valid(ret->namespace))
        return 0;
    return kg_error_set(err, KG_INVALID, 0, "kubernetes-namespace: %.80s is not a namespace's name",
                        ret->namespace);
}

static int
take_settings(struct kube_access *access, const struct provisioner_kubernetes *settings,
              struct kg_error *err)
{
    // A pod's service account is valid only in the pod's cluster.
    bool own = !settings->server;
    access->source = own ? "the pod's service account" : "the settings";
    access->server = own ? server_of_cluster() : kg_strdup(settings->server);
    if (take_file(&access->ca_file, "kubernetes-ca-file", settings->ca_file,
                  own ? ACCOUNT "/ca.crt" : NULL, err) < 0 ||
        take_file(&access->token_file, "kubernetes-token-file", settings->token_file,
                  own && !settings->certificate_file ? ACCOUNT "/token" : NULL, err) < 0 ||
        take_file(&access->certificate_file, "kubernetes-certificate-file",
                  settings->certificate_file, NULL, err) < 0 ||
        take_file(&access->key_file, "kubernetes-key-file", settings->key_file, NULL, err) < 0)
        return -1;
    if (!access->certificate_file != !access->key_file)
        return kg_error_set(err, KG_INVALID, 0,
                            "kubernetes-certificate-file and kubernetes-key-file go together");
    return 0;
}

static int
take_config(struct kube_access *access, const struct provisioner_kubernetes *settings,
            struct kg_error *err)
{
    if (settings->server || settings->ca_file || settings->token_file ||
        settings->certificate_file || settings->key_file)
        return kg_error_set(err, KG_INVALID, 0,
                            "kubeconfig names the API server and the credential: remove "
                            "kubernetes-server, -ca-file, -token-file, -certificate-file and "
                            "-key-file");
    access->source = "kubeconfig";
    return kube_take_config(access, settings->kubeconfig, err);
}

int
kube_find_access(struct kube_access *access, const struct provisioner_kubernetes *settings,
                 struct kg_error *err)
{
    int found = settings->kubeconfig ? take_config(access, settings, err)
                                     : take_settings(access, settings, err);
    return found < 0 || check_server(access, err) < 0 || take_namespace(access, settings, err) < 0
               ? -1
               : 0;
}

char *
kube_access_describe(const struct kube_access *access)
{
    bool has_token = access->token_file || access->token;
    bool has_certificate = access->certificate_file || access->certificate_pem;
    const char *credential = has_token && has_certificate ? "a token and a client certificate"
                             : has_token                  ? "a token"
                             : has_certificate            ? "a client certificate"
                                                          : "no credential";
    return kg_asprintf("%s, namespace %s, with %s, from %s", access->server, access->namespace,
                       credential, access->source);
}

void
kube_access_fini(struct kube_access *access)
{
    free(access->server);
    free(access->ca_file);
    free(access->ca_pem);
    free(access->token_file);
    free(access->token);
    free(access->certificate_file);
    free(access->certificate_pem);
    free(access->key_file);
    free(access->key_pem);
    free(access->namespace);
}

// Tokens of service accounts change every hour.
int
kube_authorization(const struct kube_access *access, char **ret, struct kg_error *err)
{
    KG_AUTO_BUF token = {0};
    *ret = NULL;
    if (access->token_file) {
        if (file_read(access->token_file, TOKEN_MAX_BYTES, &token, err) < 0)
            return -1;
    } else if (access->token) {
        buf_append_str(&token, access->token);
    } else {
        return 0;
    }
    size_t len = token.len ? strcspn(token.data, " \t\r\n") : 0;
    if (len == 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s has no token",
                            access->token_file ? access->token_file : "kubeconfig");
    *ret = kg_asprintf("Authorization: Bearer %.*s", (int)len, token.data);
    return 0;
}
