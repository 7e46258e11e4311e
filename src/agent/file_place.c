// SPDX-License-Identifier: Apache-2.0
// Where the paths of calls lead: below the working folder or, with a / first, below the sandbox's
// root. There the agent can do what the tenant can: both are the same user.
#include <string.h>

#include "agent_priv.h"
#include "files.h"
#include "walk.h"

// The working folder's path below the root; NULL where it is elsewhere.
static const char *
data_in_root(const struct agent *agent)
{
    const char *data = agent->settings.data_dir, *root = agent->settings.root_dir;
    size_t len = strlen(root);

    while (len > 0 && root[len - 1] == '/')
        len--;
    return strncmp(data, root, len) == 0 && data[len] == '/' ? data + len + 1 : NULL;
}

int
file_place_find(const struct agent *agent, const char *path, struct file_place *ret,
                struct kg_error *err)
{
    if (*path != '/') {
        *ret = (struct file_place){agent->settings.data_dir, path};
        return 0;
    }
    *ret = (struct file_place){agent->settings.root_dir, path + 1};
    return file_any_path_check(path, false, err);
}

bool
file_place_is_whole(const struct agent *agent, const struct file_place *place)
{
    return place->root == agent->settings.root_dir;
}

const char *
file_place_in_data(const struct agent *agent, const char *root, const char *path)
{
    if (root == agent->settings.data_dir)
        return path;
    const char *rest = walk_in_second_name(root, path);
    const char *data = data_in_root(agent);
    if (rest)
        return *rest ? rest : NULL;
    return data && file_path_is_below(path, data) ? path + strlen(data) + 1 : NULL;
}

char *
file_place_from_root(const struct agent *agent, const struct file_place *place)
{
    const char *data = data_in_root(agent);

    if (file_place_is_whole(agent, place))
        return kg_strdup(place->path);
    return kg_asprintf("%s%s%s", data ? data : "", *place->path ? "/" : "", place->path);
}
