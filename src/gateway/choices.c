// SPDX-License-Identifier: Apache-2.0
// What the settings leave to the machine, and what is on: chosen here, and said by the log and by
// doctor in the same words.

#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "choices.h"
#include "packages.h"

// ---- Chosen ---------------------------------------------------------------------------------

int64_t
choose_max_sessions(const struct config *config, const struct provisioner_traits *traits)
{
    return config->max_sessions > 0
               ? config->max_sessions
               : provisioner_sessions_for(traits->memory_bound, config->memory_mb,
                                          provisioner_max_files());
}

// Without the setting max-sessions the pool is not larger where there may be more sessions: it
// costs memory all the time.
struct pool_size
choose_pool_size(const struct config *config, bool forks)
{
    int64_t max_sessions =
        config->max_sessions > 0 ? config->max_sessions : PROVISIONER_SESSIONS_LEAST;
    int64_t memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
    return pool_size_for(config->pool_size, config->pool_bare, max_sessions, memory_bytes,
                         get_nprocs(), forks);
}

bool
kernels_fork(const struct config *config, const struct provisioner_traits *traits,
             const struct kernelspec *spec)
{
    return strcmp(config->kernel_start, "exec") != 0 && traits->can_enter && spec->zygote_argv;
}

// ---- Said -----------------------------------------------------------------------------------

static void
say_forks(const struct choices *of, choice_fn fn, void *arg)
{
    KG_AUTO_BUF forked = {0}, executed = {0};
    for (size_t i = 0; i < kernelspecs_count(of->specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(of->specs, i);
        struct buf *names = kernels_fork(of->config, &of->traits, spec) ? &forked : &executed;
        buf_printf(names, "%s%s", names->len ? ", " : "", spec->name);
    }
    KG_AUTO_FREE char *others = executed.len ? kg_asprintf("; by exec, since a kernelspec has no "
                                                           "zygote: %s",
                                                           executed.data)
                                             : kg_strdup("");
    KG_AUTO_FREE char *detail = NULL;
    if (strcmp(of->config->kernel_start, "exec") == 0)
        detail = kg_strdup("kernels start by exec: setting kernel-start is exec");
    else if (!of->traits.can_enter)
        detail = kg_asprintf("kernels start by exec: nothing can enter the sandboxes of %s",
                             strcmp(of->traits.engine, "oci") == 0 ? "this OCI runtime"
                                                                   : of->traits.engine);
    else if (forked.len)
        detail = kg_asprintf("%s%s", forked.data, others);
    else
        detail = kg_strdup("kernels start by exec: no kernelspec has a zygote");
    fn("forked kernels", forked.len > 0, detail, arg);
}

// Where the number of sessions comes from. To be freed.
static char *
why_max_sessions(const struct choices *of, int64_t n)
{
    const struct config *config = of->config;
    double gib = (double)of->traits.memory_bound / (1 << 30);
    long long each = config->memory_mb > 512 ? config->memory_mb : 512;
    if (config->max_sessions > 0)
        return kg_strdup("setting max-sessions");
    if (of->traits.memory_bound == 0)
        return kg_asprintf("no control group bounds the memory of all sandboxes of %s together",
                           of->traits.engine);
    if (n == PROVISIONER_SESSIONS_LEAST)
        return kg_asprintf("the least; all sandboxes together have %.1f GiB", gib);
    if (n == PROVISIONER_SESSIONS_MOST)
        return kg_asprintf("the most; all sandboxes together have %.1f GiB", gib);
    if (n < provisioner_sessions_for(of->traits.memory_bound, config->memory_mb, INT64_MAX))
        return kg_asprintf("the gateway may have %lld files open",
                           (long long)provisioner_max_files());
    return kg_asprintf("one for each %lld MiB of the %.1f GiB that all sandboxes together have",
                       each, gib);
}

static void
say_max_sessions(const struct choices *of, choice_fn fn, void *arg)
{
    int64_t n = choose_max_sessions(of->config, &of->traits);
    KG_AUTO_FREE char *why = why_max_sessions(of, n);
    KG_AUTO_FREE char *detail = kg_asprintf("%lld: %s", (long long)n, why);
    fn("max sessions", true, detail, arg);
}

static void
say_pool(const struct choices *of, choice_fn fn, void *arg)
{
    const struct config *config = of->config;
    bool forks = kernels_fork(config, &of->traits, of->default_spec);
    struct pool_size pool = choose_pool_size(config, forks);
    const char *why = config->pool_size >= 0 ? "setting pool-size"
                      : forks ? "by the machine's memory and processors, and max-sessions"
                              : "kernels of the pool start by exec";
    KG_AUTO_FREE char *detail = kg_asprintf("%lld with a warm kernel, %lld without: %s",
                                            (long long)pool.size, (long long)pool.n_bare, why);
    fn("pool", pool.size + pool.n_bare > 0, detail, arg);
}

static void
say_packages(const struct choices *of, choice_fn fn, void *arg)
{
    const char *index = getenv("PIP_INDEX_URL");
    KG_AUTO_FREE char *python = packages_python(of->specs);
    fn("packages", python != NULL,
       !python                      ? "no kernelspec takes packages: none is for Python"
       : of->config->pypi_index_url ? "from the index of setting pypi-index-url"
       : index && *index            ? "from the index of PIP_INDEX_URL"
                                    : "from pip's own index",
       arg);
}

void
choices_say(const struct choices *of, choice_fn fn, void *arg)
{
    const struct config *config = of->config;
    fn("engine", of->traits.engine != NULL, of->traits.engine ? of->traits.engine : "none works",
       arg);
    if (of->traits.engine) {
        say_forks(of, fn, arg);
        say_max_sessions(of, fn, arg);
        say_pool(of, fn, arg);
    }
    bool network = strcmp(config->network, "egress") == 0;
    fn("network", network,
       network ? "egress: sandboxes reach what is public, through a proxy"
               : "setting network is none: sandboxes reach nothing outside",
       arg);
    say_packages(of, fn, arg);
    fn("jupyter api", config->jupyter_api,
       config->jupyter_api ? "for notebooks, at /api" : "setting jupyter-api is false", arg);
    fn("console", config->console,
       config->console ? "for people, at /console/" : "setting console is false", arg);
}
