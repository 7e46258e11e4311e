// SPDX-License-Identifier: Apache-2.0
#include "split.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account_folder.h"
#include "helper_server.h"
#include "starter.h"

// With which the runtimes, the control groups and the zygotes work.
static const int of_helper[] = {
    CAP_CHOWN,      CAP_DAC_OVERRIDE, CAP_SETUID, CAP_SETGID,    CAP_SYS_ADMIN, CAP_SYS_CHROOT,
    CAP_SYS_PTRACE, CAP_MKNOD,        CAP_KILL,   CAP_NET_ADMIN, CAP_FOWNER,    CAP_SETPCAP,
    CAP_SETFCAP, // Linux wants it where the root of a user namespace is the machine's
};
// Files of the settings only, where another engine makes the sandboxes.
static const int of_reader[] = {CAP_DAC_READ_SEARCH, CAP_SETUID, CAP_SETGID, CAP_KILL};

enum { MORE_SANDBOXES = 128 }; // than sessions and the pool: those that end, and of packages

// ---- The helper's process -------------------------------------------------------------------

static bool
split_makes_sandboxes(const struct config *config)
{
    return strcmp(config->provisioner, "oci") == 0 || strcmp(config->provisioner, "auto") == 0;
}

// Programs of MCP servers need the machine's network, unlike the helper. Only with CAP_SYS_ADMIN
// can they be put back into it.
static bool
split_keeps_network(struct split_settings *settings, bool makes)
{
    const struct servers_file *servers = settings->core->servers;
    bool any = false;
    for (size_t i = 0; servers && i < servers->n; i++)
        any |= servers->servers[i].argv != NULL;
    if (any && makes)
        settings->network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return any && settings->network < 0;
}

// A network is only in the sandboxes' own namespaces, where agents are dialled in some tests.
static int
split_confine(void *arg)
{
    struct split_settings *settings = arg;
    bool makes = split_makes_sandboxes(settings->core->config);
    struct kg_error err;
    close(settings->core->state.own_lock_fd);
    provisioner_raise_limits();
    settings->network = -1;
    if (!split_keeps_network(settings, makes) &&
        !provisioner_runtime_needs_network(settings->core->config->oci_runtime) &&
        unshare(CLONE_NEWNET) < 0)
        log_warning("the helper keeps the machine's network", LOG_STR("error", strerror(errno)));
    if (privileges_limit(makes ? of_helper : of_reader,
                         makes ? KG_ARRAY_LEN(of_helper) : KG_ARRAY_LEN(of_reader), &err) == 0)
        return 0;
    log_error("the helper cannot start", LOG_ERR(&err));
    return -1;
}

// How many there may be at a time; how many sessions the default grants, the engine has not said.
static size_t
split_max_sandboxes(const struct config *config)
{
    int64_t sessions = config->max_sessions > 0 ? config->max_sessions : PROVISIONER_SESSIONS_MOST;
    int64_t pool = config->pool_size >= 0 ? config->pool_size : 0; // the default's is smaller
    return (size_t)(sessions + pool + MORE_SANDBOXES);
}

static int
split_serve(int fd, void *arg)
{
    const struct split_settings *settings = arg;
    struct core *core = settings->core;
    struct core_zygotes zygotes = {0};
    struct provisioner_settings engine = core->engine.settings;
    engine.engine = "oci";
    engine.state_dir = core->state.root;
    core_list_zygotes(core, &zygotes);
    const struct helper_server_settings server = {
        .fd = fd,
        .engine = split_makes_sandboxes(core->config) ? &engine : NULL,
        .zygote_library = core->layout.enter,
        .zygotes = zygotes.specs,
        .n_zygotes = zygotes.n,
        .max_sandboxes = split_max_sandboxes(core->config),
        .user = settings->for_user.uid,
        .group = settings->for_user.gid,
        .files = settings->files,
        .n_files = settings->n_files,
        .servers = core->servers,
        .network = settings->network,
    };
    int code = helper_serve(&server);
    core_free_zygotes(&zygotes);
    return code;
}

// ---- The start ------------------------------------------------------------------------------

// The socket of the engine Docker; false: settings name none.
static bool
find_socket(const struct config *config, const char **ret_path, struct stat *ret)
{
    static const char scheme[] = "unix://";
    *ret_path = config->docker_host + strlen(scheme);
    return strncmp(config->docker_host, scheme, strlen(scheme)) == 0 && stat(*ret_path, ret) == 0;
}

static int
find_user(const struct split_settings *settings, struct privileges_user *ret, struct kg_error *err)
{
    bool stays = settings->keeps_user || (settings->user && strcmp(settings->user, "root") == 0);
    *ret = (struct privileges_user){0};
    return stays ? 0 : privileges_user_find(settings->user, ret, err);
}

// Why the engine Docker can be used by root only; NULL: it can by others.
static const char *
why_root(const struct core *core)
{
    const char *path;
    struct stat st;
    if (!path_is_reachable(core->state.root))
        return "the state folder is below a folder of root's, and the Engine mounts by paths";
    if (!find_socket(core->config, &path, &st))
        return NULL;
    if (!path_is_reachable(path))
        return "the Engine's socket is below a folder of root's";
    bool for_group = st.st_gid != 0 && (st.st_mode & S_IWGRP);
    return for_group || (st.st_mode & S_IWOTH) ? NULL : "only root may open the Engine's socket";
}

// Whether the engine is Docker; with `auto` that is known when the helper has tried the runtimes.
static bool
is_docker(const struct core *core)
{
    const char *wanted = core->config->provisioner;
    return strcmp(wanted, "docker") == 0 ||
           (strcmp(wanted, "auto") == 0 && core->link.started.code != KG_OK);
}

// Whoever is in the group of the Engine's socket can do all that root can, so only a gateway that
// uses the Engine gets into it.
static int
allow_docker(const struct core *core, struct privileges_user *user, struct kg_error *err)
{
    const char *path;
    struct stat st;
    if (user->uid == 0 || !is_docker(core))
        return 0;
    const char *why = why_root(core);
    if (why) {
        log_warning("the gateway stays root, without most capabilities", LOG_STR("reason", why));
        *user = (struct privileges_user){0};
        return 0;
    }
    bool by_group = find_socket(core->config, &path, &st) && st.st_gid != 0;
    return by_group ? privileges_user_add_group(user, st.st_gid, err) : 0;
}

// The engine Docker copies it, as the gateway's user.
static void
keep_agent(struct core *core)
{
    char *agent = path_to_reach(core->layout.agent);
    free(core->layout.agent);
    core->layout.agent = agent;
    core->engine.settings.agent_path = agent;
}

static int
hand_over_accounts(const struct core *core, const struct privileges_user *user,
                   struct kg_error *err)
{
    const char *path = core->config->accounts_file;
    if (!path)
        return 0;
    if (user->uid != 0 && account_folder_is(path, core->state.root))
        return kg_error_set(err, KG_INVALID, 0,
                            "setting accounts-file: the state folder stays root's: move the "
                            "database into a folder of its own, such as %.100s/accounts",
                            core->state.root);
    return account_folder_hand_over(path, user->uid, user->gid, err);
}

int
split_start(struct split_settings *settings, struct privileges_user *ret, struct kg_error *err)
{
    struct core *core = settings->core;
    struct kg_error why;
    const struct starter_settings starter = {
        .confine = split_confine, .serve = split_serve, .arg = settings};
    *ret = (struct privileges_user){0};
    if (geteuid() != 0 || strcmp(core->config->provisioner, "kubernetes") == 0)
        return 0;
    // The folder is divided when it is known for whom; the helper needs what sandboxes see of it.
    if (find_user(settings, ret, err) < 0)
        return -1;
    settings->for_user = *ret;
    if (dir_make(core->state.packages, 0711, err) < 0 ||
        dir_make(core->packages_dir, 0755, err) < 0 ||
        starter_start(&starter, &core->link, err) < 0)
        return -1;
    core->has_link = true;
    state_leave_lock(&core->state); // to the helper and the starter
    if (allow_docker(core, ret, err) < 0 ||
        state_divide(&core->state, ret->uid, ret->gid, is_docker(core), err) < 0)
        return -1;
    if (hand_over_accounts(core, ret, &why) < 0)
        log_error("accounts cannot be used", LOG_ERR(&why));
    keep_agent(core);
    return 0;
}

int
split_drop(const struct split_settings *settings, const struct privileges_user *user,
           struct kg_error *err)
{
    // The files of the user who has started it, wherever they are.
    static const int of_root[] = {CAP_DAC_READ_SEARCH};
    if (!settings->core->has_link)
        return 0;
    int result = user->uid != 0 ? privileges_drop(user, err)
                                : privileges_limit(of_root, KG_ARRAY_LEN(of_root), err);
    if (result < 0 || privileges_filter(err) < 0)
        return -1;
    if (user->uid != 0)
        log_info("the gateway has given up root's rights", LOG_STR("user", user->name));
    return 0;
}
