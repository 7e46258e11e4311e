// SPDX-License-Identifier: Apache-2.0
// The packages of all sessions: a set like that of a session, which a link in the shared folder
// leads to, and which Python finds behind the session's own.

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "packages_priv.h"
#include "requirement.h"

struct common_packages {
    struct packages *packages;
    json_t *requirements;
    json_t *resolution;
    struct wheel_wait *wait;
    struct package_set_making *making;
    packages_common_fn fn;
    void *arg;
};

static void
common_free(struct common_packages *common)
{
    common->packages->common = NULL;
    wheel_wait_cancel(common->wait);
    package_set_making_cancel(common->making);
    json_decref(common->requirements);
    json_decref(common->resolution);
    free(common);
}

void
common_packages_cancel(struct packages *packages)
{
    if (packages->common)
        common_free(packages->common);
}

static void
common_packages_finish(struct common_packages *common, const struct kg_error *err)
{
    packages_common_fn fn = common->fn;
    void *arg = common->arg;
    common_free(common);
    fn(err, arg);
}

// ---- What sandboxes see ---------------------------------------------------------------------

static int
link_common(const struct packages *packages, const char *name, struct kg_error *err)
{
    KG_AUTO_FREE char *path = wheels_locate(packages->wheels, "all");
    KG_AUTO_FREE char *draft = wheels_locate(packages->wheels, "all.new");
    KG_AUTO_FREE char *target = kg_asprintf("sets/%s", name);
    (void)unlink(draft);
    if (symlink(target, draft) < 0 || rename(draft, path) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot link the packages of all sessions");
    return 0;
}

void
packages_clear_common(struct packages *packages)
{
    KG_AUTO_FREE char *path = wheels_locate(packages->wheels, "all");
    (void)unlink(path);
    package_sets_use(packages->sets, PACKAGES_OF_ALL, "", NULL);
}

// ---- The set --------------------------------------------------------------------------------

static void
common_on_set(const char *name, const struct kg_error *made_err, void *arg)
{
    struct common_packages *common = arg;
    struct packages *packages = common->packages;
    struct kg_error err = {0};
    common->making = NULL;
    if (made_err) {
        common_packages_finish(common, made_err);
        return;
    }
    package_sets_use(packages->sets, PACKAGES_OF_ALL, "", name);
    int result = link_common(packages, name, &err);
    common_packages_finish(common, result < 0 ? &err : NULL);
}

static void
make_common(struct common_packages *common)
{
    const struct package_set_request request = {
        .wheels = json_object_get(common->resolution, "wheels"),
        .tag = common->packages->tag,
        .owner = "",
    };
    struct package_set_making *making =
        package_sets_make(common->packages->sets, &request, common_on_set, common);
    if (making)
        common->making = making;
}

static void
common_on_step(const char *text, void *arg)
{
    (void)arg;
    log_info("packages of all sessions", LOG_STR("step", text));
}

static void
common_on_text(const char *text, size_t len, void *arg)
{
    (void)text;
    (void)len;
    (void)arg;
}

static void
common_on_wheels(const json_t *resolution, const struct kg_error *err, void *arg)
{
    struct common_packages *common = arg;
    common->wait = NULL;
    if (err) {
        common_packages_finish(common, err);
        return;
    }
    common->resolution = json_deep_copy(resolution);
    if (json_array_size(json_object_get(resolution, "wheels")) > 0) {
        make_common(common);
        return;
    }
    packages_clear_common(common->packages); // every sandbox has them anyway
    common_packages_finish(common, NULL);
}

int
packages_prepare_common(struct packages *packages, const json_t *requirements,
                        packages_common_fn fn, void *arg, struct kg_error *err)
{
    static const struct wheel_wait_events events = {common_on_step, common_on_text,
                                                    common_on_wheels};
    if (packages_need_delivery(packages))
        return kg_error_set(err, KG_INVALID, 0,
                            "this engine shares no folder with its sandboxes: put the packages of "
                            "all sessions into the image");
    struct common_packages *common = KG_NEW(struct common_packages);
    common->packages = packages;
    common->requirements = json_deep_copy(requirements);
    common->fn = fn;
    common->arg = arg;
    packages->common = common;
    common->wait = wheel_wait_start(packages, "", requirements, &events, common, err);
    if (common->wait)
        return 0;
    common_free(common);
    return -1;
}
