// SPDX-License-Identifier: Apache-2.0
// A sandbox's folder on the host: `<state>/sb/<id>`, private to the gateway. Of it the sandbox sees
// only `door/`.
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "provisioner_engine.h"

#define META_MAX (1024 * 1024)

bool
sandbox_id_valid(const char *id)
{
    size_t len = strlen(id);
    return len >= 1 && len <= SANDBOX_ID_MAX &&
           strspn(id, "abcdefghijklmnopqrstuvwxyz234567") == len;
}

char *
folder_path(const char *state_dir, const char *id, const char *name)
{
    return name ? kg_asprintf("%s/sb/%s/%s", state_dir, id, name)
                : kg_asprintf("%s/sb/%s", state_dir, id);
}

int
folder_make(const char *state_dir, const char *id, struct kg_error *err)
{
    KG_AUTO_FREE char *all = kg_asprintf("%s/sb", state_dir);
    KG_AUTO_FREE char *folder = folder_path(state_dir, id, NULL);
    KG_AUTO_FREE char *door = folder_path(state_dir, id, "door");
    if (dir_make(all, 0700, err) < 0)
        return -1;
    if (mkdir(folder, 0700) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make the sandbox's folder %s", folder);
    // The sandbox's user must get through to the socket, whatever the umask.
    if (mkdir(door, 0755) < 0 || chmod(door, 0755) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make the sandbox's folder %s", door);
    return 0;
}

int
folder_listen(const char *state_dir, const char *id, struct kg_error *err)
{
    enum { BACKLOG = 16 };
    KG_AUTO_FREE char *path = folder_path(state_dir, id, "door/door.sock");
    return unix_listen(path, SOCK_STREAM, 0666, BACKLOG, err); // the sandbox's user is another one
}

bool
folder_exists(const char *state_dir, const char *id)
{
    KG_AUTO_FREE char *folder = folder_path(state_dir, id, NULL);
    return access(folder, F_OK) == 0;
}

int
folder_remove(const char *state_dir, const char *id, struct kg_error *err)
{
    KG_AUTO_FREE char *folder = folder_path(state_dir, id, NULL);
    return path_remove_tree(folder, err);
}

int
folder_write_meta(const char *state_dir, const char *id, const json_t *meta, struct kg_error *err)
{
    KG_AUTO_FREE char *path = folder_path(state_dir, id, "meta.json");
    KG_AUTO_FREE char *text = json_dumps(meta, JSON_COMPACT);
    if (!text)
        return kg_error_set(err, KG_INTERNAL, 0, "a session's record cannot be written as JSON");
    return file_write_atomic(path, text, strlen(text), 0600, err);
}

int
folder_read_meta(const char *state_dir, const char *id, json_t **ret, struct kg_error *err)
{
    KG_AUTO_FREE char *path = folder_path(state_dir, id, "meta.json");
    KG_AUTO_BUF text = {0};
    *ret = NULL;
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return 0;
    if (file_read(path, META_MAX, &text, err) < 0)
        return -1;
    *ret = json_loadb(text.len ? text.data : "", text.len, 0, NULL);
    return *ret ? 0 : kg_error_set(err, KG_INTERNAL, 0, "%s is not a JSON document", path);
}

int
folder_mark_zygote(const char *state_dir, const char *id, struct kg_error *err)
{
    KG_AUTO_FREE char *path = folder_path(state_dir, id, "zygote");
    return file_write_atomic(path, "", 0, 0600, err);
}

bool
folder_is_zygotes(const char *state_dir, const char *id)
{
    KG_AUTO_FREE char *path = folder_path(state_dir, id, "zygote");
    return access(path, F_OK) == 0;
}

int
folder_list(const char *state_dir, void (*fn)(const char *id, void *arg), void *arg,
            struct kg_error *err)
{
    KG_AUTO_FREE char *all = kg_asprintf("%s/sb", state_dir);
    DIR *dir = opendir(all);
    if (!dir && errno == ENOENT)
        return 0;
    if (!dir)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot read %s", all);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (sandbox_id_valid(entry->d_name))
            fn(entry->d_name, arg);
    closedir(dir);
    return 0;
}
