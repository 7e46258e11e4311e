// SPDX-License-Identifier: Apache-2.0
// A zygote's child enters a sandbox. Three forks:
//
//     zygote -> joiner   joins the control groups and namespaces, and gives up its privileges
//            -> intermediate    is the first in the sandbox's PID namespace, and ends at once
//            -> kernel    becomes a child of the sandbox's init, the agent, as with exec
//
// No privileged process is ever visible in the sandbox: privileges are dropped before the second
// fork.
#include "enter.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARENT_LOOK_US = 100 };

// A child writes its report to this pipe.
static int report_fd;

// Python's hooks around a fork. For example, its after-fork handlers seed `random` again.
static struct {
    void (*before)(void);
    void (*parent)(void);
    void (*child)(void);
} python;

static const char *const step_names[] = {
    [ENTER_GROUPS] = "join the control groups",
    [ENTER_NAMESPACES] = "enter the namespaces",
    [ENTER_FOLDER] = "change to the working folder",
    [ENTER_BOUNDING_SET] = "clear the bounding set",
    [ENTER_USER] = "become the sandbox's user",
    [ENTER_CAPABILITIES] = "drop the capabilities",
    [ENTER_FILTER] = "load the filter of system calls",
    [ENTER_DESCRIPTORS] = "replace the descriptors",
    [ENTER_SECOND_FORK] = "fork into the PID namespace",
    [ENTER_THIRD_FORK] = "fork inside",
    [ENTER_SESSION] = "begin a session",
    [ENTER_OOM_SCORE] = "set oom_score_adj",
};

const char *
enter_step_name(int step)
{
    size_t n = sizeof step_names / sizeof step_names[0];
    return step >= 0 && (size_t)step < n ? step_names[step] : "do what is not known";
}

int
enter_prepare(void)
{
    // POSIX has dlsym() return functions as void pointers.
    *(void **)&python.before = dlsym(RTLD_DEFAULT, "PyOS_BeforeFork");
    *(void **)&python.parent = dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Parent");
    *(void **)&python.child = dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Child");
    if (!python.before || !python.parent || !python.child) {
        errno = ENOSYS;
        return -1;
    }
    return prctl(PR_SET_DUMPABLE, 0);
}

// ---- The entry ------------------------------------------------------------------------------

// Checks the result, so it does not rely on what Linux drops by itself.
static int
drop_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    struct __user_cap_data_struct left[2] = {0};

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
        syscall(SYS_capset, &header, none) != 0 || syscall(SYS_capget, &header, left) != 0)
        return -1;
    errno = EPERM;
    for (int i = 0; i < 2; i++) {
        if (left[i].effective || left[i].permitted || left[i].inheritable)
            return -1;
    }
    return 0;
}

static int
clear_bounding_set(void)
{
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++) {
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
            return -1;
    }
    return 0;
}

static int
become_user(unsigned user)
{
    uid_t real, effective, saved;

    if (setgroups(0, NULL) != 0 || setresgid(user, user, user) != 0 ||
        setresuid(user, user, user) != 0)
        return -1;
    errno = EPERM;
    return getresuid(&real, &effective, &saved) == 0 && real == user && effective == user &&
                   saved == user
               ? 0
               : -1;
}

static int
load_filter(const struct enter_spec *spec)
{
    struct sock_fprog program = {
        .len = (unsigned short)spec->filter_len,
        .filter = (struct sock_filter *)(uintptr_t)spec->filter,
    };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0
               ? 0
               : -1;
}

static int
join_groups(const struct enter_spec *spec)
{
    for (size_t i = 0; i < spec->n_groups; i++) {
        if (write(spec->groups[i], "0", 1) != 1)
            return -1;
    }
    return spec->n_groups > 0 ? 0 : -1;
}

// Keeps only one of the zygote's descriptors, the report's. It leads to the zygote, so it must be
// closed before other processes can look into this one.
static int
replace_descriptors(void)
{
    int at = STDERR_FILENO + 1;

    if (report_fd != at && dup3(report_fd, at, O_CLOEXEC) < 0)
        return -1;
    report_fd = at;
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        close(fd);
    if (close_range((unsigned)at + 1, ~0U, 0) != 0)
        return -1;
    return open("/dev/null", O_RDWR) == 0 && dup(0) == 1 && dup(0) == STDERR_FILENO ? 0 : -1;
}

// As the agent does for a kernel started by exec (agent/children.c). It uses the zygote's /proc,
// since this process is not visible in the sandbox's.
static int
raise_oom_score(void)
{
    static const char score[] = "900";
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, score, sizeof score - 1) != (ssize_t)sizeof score - 1)
        return -1;
    return close(fd);
}

// The order matters:
// - the control groups first, so that all later allocations are charged to the sandbox;
// - joining the user namespace gives all capabilities in it, whatever the zygote had; changing the
//   user does not drop them, since the old user was not root in that namespace;
// - the bounding set needs CAP_SETPCAP, and changing the user needs CAP_SETUID;
// - the filter last, since it forbids most of this.
// Returns the step that failed, with errno; -1 if none did.
static int
enter_sandbox(const struct enter_spec *spec)
{
    int namespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                     CLONE_NEWCGROUP | (spec->user_namespace ? CLONE_NEWUSER : 0);

    if (join_groups(spec) != 0)
        return ENTER_GROUPS;
    if (raise_oom_score() != 0)
        return ENTER_OOM_SCORE;
    if (setns(spec->pidfd, namespaces) != 0)
        return ENTER_NAMESPACES;
    // Root and working folder are now the sandbox's root. Descriptors may still lead outside.
    if (replace_descriptors() != 0)
        return ENTER_DESCRIPTORS;
    if (chdir(spec->folder) != 0)
        return ENTER_FOLDER;
    // Its own session keyring, as in a container. Code cannot use it: the filter forbids keyctl.
    (void)syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    if (clear_bounding_set() != 0)
        return ENTER_BOUNDING_SET;
    if (become_user(spec->user) != 0)
        return ENTER_USER;
    if (drop_capabilities() != 0)
        return ENTER_CAPABILITIES;
    // Changing the user has set it to fs.suid_dumpable.
    if (prctl(PR_SET_DUMPABLE, 0) != 0)
        return ENTER_USER;
    return load_filter(spec) == 0 ? -1 : ENTER_FILTER;
}

static void
report(int32_t pid, int step, int failure)
{
    struct enter_report message = {.pid = pid, .step = step, .failure = failure};
    (void)!write(report_fd, &message, sizeof message);
}

static _Noreturn void
enter_fail(int step)
{
    report(0, step, errno);
    _exit(127);
}

// ---- The kernel -----------------------------------------------------------------------------

// Exits if the FIFO cannot be opened: only the session's own code can have replaced it.
static void
open_output(const char *path)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 || fcntl(fd, F_SETFL, O_WRONLY) != 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        _exit(127);
    close(fd);
}

// Once the agent is the parent, the intermediate has ended, and its end cannot trigger the signal
// that this process requests for its parent's death.
static void
wait_for_agent(void)
{
    while (getppid() != 1)
        usleep(PARENT_LOOK_US);
}

// Other processes in the sandbox cannot open the report's descriptor: this process is not dumpable
// until it has closed it.
static void
become_kernel(const struct enter_spec *spec)
{
    wait_for_agent();
    if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        enter_fail(ENTER_SESSION);
    report(getpid(), 0, 0);
    close(report_fd);
    // From here on it may open files that a tenant has made, and reports nothing to the zygote.
    if (prctl(PR_SET_DUMPABLE, 1) != 0)
        _exit(127);
    open_output(spec->output);
    python.child();
}

// Returns in the kernel only.
static void
run_joiner(const struct enter_spec *spec)
{
    int failed = enter_sandbox(spec);
    if (failed >= 0)
        enter_fail(failed);
    pid_t intermediate = fork();
    if (intermediate < 0)
        enter_fail(ENTER_SECOND_FORK);
    if (intermediate > 0) {
        (void)waitpid(intermediate, NULL, 0);
        _exit(0);
    }
    pid_t kernel = fork();
    if (kernel < 0)
        enter_fail(ENTER_THIRD_FORK);
    if (kernel > 0)
        _exit(0);
    become_kernel(spec);
}

// ---- The zygote -----------------------------------------------------------------------------

// Does not wait for the report: a tenant can stop the processes in its sandbox, including the
// intermediate and the kernel.
int
enter_fork(const struct enter_spec *spec, int *ret_report_fd)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    python.before();
    pid_t joiner = fork();
    if (joiner == 0) {
        report_fd = ends[1];
        run_joiner(spec);
        return 0;
    }
    int failure = errno;
    python.parent();
    close(ends[1]);
    *ret_report_fd = ends[0];
    if (joiner < 0)
        close(ends[0]);
    errno = failure;
    return joiner;
}
