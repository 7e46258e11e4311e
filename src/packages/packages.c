// SPDX-License-Identifier: Apache-2.0
// The cache, the downloads and pip's settings, from start to end.

#include <string.h>
#include <unistd.h>

#include "kernel.h"
#include "packages_priv.h"

// The certificates that pip trusts for the index: those that this process's environment names, else
// this machine's; NULL: pip's own.
static const char *
find_authorities(void)
{
    static const char *const names[] = {"PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"};
    static const char machine[] = "/etc/ssl/certs/ca-certificates.crt";
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        const char *path = getenv(names[i]);
        if (path && *path && access(path, R_OK) == 0)
            return path;
    }
    return access(machine, R_OK) == 0 ? machine : NULL;
}

char *
packages_python(const struct kernelspecs *specs)
{
    for (size_t i = 0; i < kernelspecs_count(specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(specs, i);
        if (strcmp(spec->language, "python") == 0)
            return kg_strdup(json_string_value(json_array_get(spec->argv, 0)));
    }
    return NULL;
}

struct packages *
packages_new(struct loop *loop, const struct packages_settings *settings, struct kg_error *err)
{
    const char *authorities = find_authorities();
    const char *index_url = settings->index_url ? settings->index_url : getenv("PIP_INDEX_URL");
    struct wheels *wheels = wheels_new(settings->dir, authorities, err);
    if (!wheels)
        return NULL;
    struct package_sets *sets =
        package_sets_new(loop, settings->dir, &package_set_limits_default, err);
    if (!sets) {
        wheels_free(wheels);
        return NULL;
    }
    struct packages *packages = KG_NEW(struct packages);
    packages->loop = loop;
    packages->sandboxes = settings->sandboxes;
    packages->python = packages_python(settings->specs);
    packages->index_url = index_url && *index_url ? kg_strdup(index_url) : NULL;
    packages->has_authorities = authorities != NULL;
    packages->wheels = wheels;
    packages->sets = sets;
    wheel_jobs_init(packages, settings->several_owners);
    return packages;
}

void
packages_set_several_owners(struct packages *packages, bool several_owners)
{
    wheel_jobs_set_several_owners(packages, several_owners);
}

const char *
packages_shared_dir(const struct packages *packages)
{
    return wheels_shared_dir(packages->wheels);
}

int
packages_check_available(const struct packages *packages, struct kg_error *err)
{
    if (packages && packages->python)
        return 0;
    return kg_error_set(err, KG_INVALID, 0, "no kernelspec of this gateway takes packages");
}

static bool
has_wheels(const struct packages *packages, const json_t *wheels)
{
    size_t i;
    json_t *wheel;
    if (!packages_need_delivery(packages))
        return package_sets_can_make(packages->sets, wheels, packages->tag);
    json_array_foreach(wheels, i, wheel) {
        if (!wheels_use(packages->wheels, wheel))
            return false;
    }
    return true;
}

json_t *
packages_find(const struct packages *packages, const json_t *requirements, bool *ret_fresh)
{
    if (!packages->environment)
        return NULL;
    json_auto_t *found =
        wheels_find(packages->wheels, packages->environment, requirements, ret_fresh);
    return found && has_wheels(packages, json_object_get(found, "wheels")) ? KG_STEAL(found) : NULL;
}

// ---- Sets -----------------------------------------------------------------------------------

const json_t *
packages_wheels_of(const struct packages *packages, const char *user)
{
    return package_sets_wheels_of(packages->sets, user);
}

const char *
packages_set_of(const struct packages *packages, const char *user)
{
    return package_sets_name_of(packages->sets, user);
}

struct package_set_making *
packages_make_set(struct packages *packages, const char *owner, const json_t *wheels,
                  package_set_fn fn, void *arg)
{
    const struct package_set_request request = {.wheels = wheels,
                                                .tag = packages->tag ? packages->tag : "",
                                                .owner = owner,
                                                .is_shared = packages->several_owners};
    return package_sets_make(packages->sets, &request, fn, arg);
}

char *
package_set_path_inside(const char *name)
{
    return kg_asprintf(PACKAGES_INSIDE "/sets/%s", name);
}

void
packages_use_set(struct packages *packages, const char *user, const char *owner, const char *name)
{
    package_sets_use(packages->sets, user, owner, name);
}

void
packages_keep_user(struct packages *packages, const char *user)
{
    package_sets_keep(packages->sets, user);
}

void
packages_forget_other_users(struct packages *packages)
{
    package_sets_forget_others(packages->sets);
}

// ---- The end --------------------------------------------------------------------------------

void
packages_stop(struct packages *packages)
{
    common_packages_cancel(packages);
    wheel_jobs_stop(packages);
}

void
packages_free(struct packages *packages)
{
    if (!packages)
        return;
    packages_stop(packages);
    environment_clear(packages);
    package_sets_free(packages->sets);
    wheels_free(packages->wheels);
    free(packages->python);
    free(packages->index_url);
    wheel_jobs_fini(packages);
    free(packages);
}
