// SPDX-License-Identifier: Apache-2.0
// The state folder: a lock, so that no two gateways share it, and the id that labels what is made.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway.h"

enum { ID_LEN = 8, MAX_ID_FILE_BYTES = 64, MAX_PID_FILE_BYTES = 16, SLOTS = 64 };
enum { LOCK_WAIT_MS = 2000, LOCK_LOOK_MS = 10 };

char *
state_default_dir(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    return runtime && *runtime ? kg_asprintf("%s/kernelgate", runtime)
                               : kg_strdup("/run/kernelgate");
}

// Makes the folder and those above it.
static int
make_path(const char *path, struct kg_error *err)
{
    KG_AUTO_FREE char *part = kg_strdup(path);
    for (char *slash = part; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (dir_make(part, 0755, err) < 0)
            return -1;
        *slash = '/';
    }
    return dir_make(path, 0700, err);
}

// The file of the lock that only a gateway has says which process it is.
static int
in_use(const struct state *state, int fd, struct kg_error *err)
{
    char pid[MAX_PID_FILE_BYTES + 1] = "";
    KG_AUTO_FREE char *of = NULL;
    if (pread(fd, pid, MAX_PID_FILE_BYTES, 0) > 0 && atoi(pid) > 0)
        of = kg_asprintf(" (process %d)", atoi(pid));
    return kg_error_set(
        err, KG_INVALID, 0,
        "setting state-dir: another gateway%s uses %.80s; end that one, or give this "
        "one a folder of its own: --state-dir FOLDER (and another --port)",
        of ? of : "", state->root);
}

static void
write_pid(int fd)
{
    char pid[MAX_PID_FILE_BYTES];
    int len = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)len, 0) != len)
        log_debug("the state folder does not say whose it is");
}

static int
lock(const struct state *state, const char *name, int wait_ms, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", state->root, name);
    KG_AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open %s", path);
    int locked = flock(fd, LOCK_EX | LOCK_NB);
    for (int waited = 0; locked < 0 && waited < wait_ms; waited += LOCK_LOOK_MS) {
        usleep(LOCK_LOOK_MS * 1000);
        locked = flock(fd, LOCK_EX | LOCK_NB);
    }
    return locked < 0 ? in_use(state, fd, err) : KG_STEAL_FD(fd);
}

// Only a gateway that lives has the one; the helper of one that has just ended has the other a
// moment longer.
static int
lock_both(struct state *state, struct kg_error *err)
{
    state->own_lock_fd = lock(state, "lock.gateway", 0, err);
    if (state->own_lock_fd < 0)
        return -1;
    write_pid(state->own_lock_fd);
    state->lock_fd = lock(state, "lock", LOCK_WAIT_MS, err);
    return state->lock_fd < 0 ? -1 : 0;
}

static int
load_id(struct state *state, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/id", state->root);
    KG_AUTO_BUF text = {0};
    if (access(path, F_OK) == 0) {
        if (file_read(path, MAX_ID_FILE_BYTES, &text, err) < 0)
            return -1;
        if (text.len != ID_LEN || strspn(text.data, "abcdefghijklmnopqrstuvwxyz234567") != ID_LEN)
            return kg_error_set(err, KG_INVALID, 0,
                                "%s is not a gateway's id; remove it where no sandbox is left",
                                path);
        memcpy(state->id, text.data, ID_LEN + 1);
        return 0;
    }
    id_random(state->id, ID_LEN);
    return file_write_atomic(path, state->id, ID_LEN, 0600, err);
}

static int
no_folder(struct kg_error *err)
{
    bool forbidden = err->sys_errno == EACCES || err->sys_errno == EPERM;
    return kg_error_set(err, err->code, 0, "setting state-dir: %s%s", err->message,
                        forbidden && geteuid() != 0
                            ? "; start kernelgate as root (sudo), or name a folder of yours with "
                              "--state-dir FOLDER"
                            : "");
}

static int
state_open_at(struct state *state, const char *wanted, struct kg_error *err)
{
    *state = (struct state){.lock_fd = -1, .own_lock_fd = -1};
    if (make_path(wanted, err) < 0)
        return no_folder(err);
    state->root = realpath(wanted, NULL); // OCI runtimes take absolute paths only
    if (!state->root)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot find %s", wanted);
    state->dir = kg_strdup(state->root);
    state->packages = kg_asprintf("%s/packages", state->root);
    return lock_both(state, err) < 0 || load_id(state, err) < 0 ? -1 : 0;
}

int
state_open(struct state *state, const char *configured, struct kg_error *err)
{
    KG_AUTO_FREE char *wanted = configured ? kg_strdup(configured) : state_default_dir();
    return state_open_at(state, wanted, err);
}

int
state_open_slot(struct state *state, const char *configured, struct kg_error *err)
{
    KG_AUTO_FREE char *base = configured ? kg_strdup(configured) : state_default_dir();
    for (int slot = 0; slot < SLOTS; slot++) {
        KG_AUTO_FREE char *dir = kg_asprintf("%s/mcp/%d", base, slot);
        if (state_open_at(state, dir, err) == 0)
            return 0;
        bool taken = state->root && err->code == KG_INVALID;
        state_close(state);
        if (!taken)
            return -1;
    }
    return -1;
}

void
state_leave_lock(struct state *state)
{
    close(KG_STEAL_FD(state->lock_fd));
}

void
state_close(struct state *state)
{
    free(KG_STEAL(state->root));
    free(KG_STEAL(state->dir));
    free(KG_STEAL(state->packages));
    if (state->lock_fd >= 0)
        close(KG_STEAL_FD(state->lock_fd));
    if (state->own_lock_fd >= 0)
        close(KG_STEAL_FD(state->own_lock_fd));
}

// ---- Trials ---------------------------------------------------------------------------------

// Others get leave to pass through the state folder, as the engines do it for a gateway.
static int
open_way(const char *base, struct kg_error *err)
{
    struct stat st;
    if (stat(base, &st) < 0 ||
        (!(st.st_mode & S_IXOTH) && chmod(base, (st.st_mode & 07777) | S_IXOTH) < 0))
        return kg_error_set(err, KG_INTERNAL, errno, "cannot set the mode of %s", base);
    return 0;
}

int
state_make_trial(struct state_trial *trial, const char *configured, struct kg_error *err)
{
    KG_AUTO_FREE char *base = configured ? kg_strdup(configured) : state_default_dir();
    KG_AUTO_FREE char *dir = kg_asprintf("%s/t-XXXXXX", base);
    *trial = (struct state_trial){.made_base = access(base, F_OK) < 0};
    if (make_path(base, err) < 0 || open_way(base, err) < 0)
        return -1;
    if (!mkdtemp(dir))
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make a folder in %s", base);
    trial->dir = KG_STEAL(dir);
    return 0;
}

void
state_drop_trial(struct state_trial *trial)
{
    struct kg_error err = {0};
    if (path_remove_tree(trial->dir, &err) < 0)
        log_warning("a temporary folder stays", LOG_ERR(&err));
    *strrchr(trial->dir, '/') = '\0';
    if (trial->made_base)
        (void)rmdir(trial->dir); // not empty where a gateway has begun there meanwhile
    free(KG_STEAL(trial->dir));
}
