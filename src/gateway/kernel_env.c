// SPDX-License-Identifier: Apache-2.0
// The environment that all kernels and commands have.

#include <string.h>

#include "gateway.h"
#include "packages.h"
#include "provisioner.h"

// What the agent takes of one variable, and some of what it takes of all.
enum { MAX_VALUE_BYTES = 32 << 10, MAX_PASSED = 64 };

static int
pass_through(json_t *env, const char *list, struct kg_error *err)
{
    KG_AUTO_FREE char **names = config_split_list(list);
    size_t n = 0;
    for (char **name = names; *name; name++) {
        const char *value = getenv(*name);
        if (!env_name_valid(*name))
            return kg_error_set(
                err, KG_INVALID, 0,
                "setting pass-through-env: \"%.60s\" cannot be the name of a variable", *name);
        if (++n > MAX_PASSED)
            return kg_error_set(err, KG_INVALID, 0, "setting pass-through-env: more than %d names",
                                MAX_PASSED);
        if (!value)
            continue;
        json_t *text = strlen(value) <= MAX_VALUE_BYTES ? json_string(value) : NULL;
        if (!text)
            return kg_error_set(
                err, KG_INVALID, 0,
                "setting pass-through-env: the value of %.60s is not UTF-8 of at most %d "
                "bytes",
                *name, MAX_VALUE_BYTES);
        json_object_set_new(env, *name, text);
    }
    return 0;
}

// What the session's own code has installed, from a file of its own say, goes before what the
// gateway has.
#define PACKAGES_OF_SESSION "/mnt/data/.kg-own:/mnt/data/.kg-packages"

// The agent has these variables, and gives them to what it starts; a forked kernel is not its
// child.
static void
add_way_out(json_t *env)
{
    static const char *const proxies[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
    static const char *const exceptions[] = {"no_proxy", "NO_PROXY"};
    for (size_t i = 0; i < KG_ARRAY_LEN(proxies); i++)
        json_object_set_new(env, proxies[i], json_string("http://127.0.0.1:" SANDBOX_EGRESS_PORT));
    for (size_t i = 0; i < KG_ARRAY_LEN(exceptions); i++)
        json_object_set_new(env, exceptions[i], json_string("localhost,127.0.0.1,::1"));
}

// Without an address, Streamlit makes a UDP socket to find one, and ends where sandboxes have no
// UDP. In a folder that is not called site-packages, it takes itself for its developers' and has no
// pages.
static void
add_streamlit(json_t *env)
{
    json_object_set_new(env, "STREAMLIT_SERVER_ADDRESS", json_string("localhost"));
    json_object_set_new(env, "STREAMLIT_GLOBAL_DEVELOPMENT_MODE", json_string("false"));
}

// Libraries that would start a thread a processor are told how many there are.
json_t *
kernel_env_make(const struct config *config, bool common_packages, struct kg_error *err)
{
    static const char *const thread_counts[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                                "MKL_NUM_THREADS", "NUMEXPR_MAX_THREADS",
                                                "POLARS_MAX_THREADS"};
    int threads = (int)config->cpus < 1 ? 1 : (int)config->cpus;
    KG_AUTO_FREE char *count = kg_asprintf("%d", threads);
    json_auto_t *env =
        json_pack("{s:s, s:s, s:s, s:s}", "HOME", "/tmp", "LANG", "C.UTF-8", "PYTHONPATH",
                  common_packages ? PACKAGES_OF_SESSION ":" PACKAGES_COMMON : PACKAGES_OF_SESSION,
                  "KERNELGATE_SOCKET", "@" SANDBOX_TENANT_SOCKET);
    for (size_t i = 0; i < KG_ARRAY_LEN(thread_counts); i++)
        json_object_set_new(env, thread_counts[i], json_string(count));
    if (strcmp(config->network, "egress") == 0)
        add_way_out(env);
    else // a pip that does not ask the gateway fails at once, instead of after seconds of retries
        json_object_set_new(env, "PIP_RETRIES", json_string("0"));
    add_streamlit(env);
    if (pass_through(env, config->pass_through_env, err) < 0)
        return NULL;
    return KG_STEAL(env);
}
