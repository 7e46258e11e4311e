// SPDX-License-Identifier: Apache-2.0
// The system calls that a sandbox may make: those that an ordinary unprivileged program needs. All
// others fail with EPERM: namespaces, mounts, keys, bpf, perf, ptrace, io_uring, userfaultfd, and
// whatever future kernels add.
#include "seccomp_priv.h"

#include <errno.h>
#include <sched.h>
#include <sys/personality.h>

#if defined(__x86_64__)
#define NATIVE_ARCH "SCMP_ARCH_X86_64"
#elif defined(__aarch64__)
#define NATIVE_ARCH "SCMP_ARCH_AARCH64"
#else
#error "seccomp.c does not know this architecture"
#endif

// The runtime's libseccomp ignores names that it does not know. Calls of which only some arguments
// are allowed are in seccomp_arguments.c.
// clang-format off
static const char *const allowed[] = {
    // processes, threads, signals
    "alarm", "arch_prctl", "brk", "execve", "execveat", "exit", "exit_group", "fork", "futex",
    "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list",
    "get_thread_area", "getitimer", "getpgid", "getpgrp", "getpid", "getppid", "getpriority",
    "getrlimit", "getrusage", "getsid", "gettid", "kill", "membarrier", "pause", "pidfd_open",
    "pidfd_send_signal", "process_mrelease", "restart_syscall", "rseq", "rt_sigaction",
    "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_tgsigqueueinfo",
    "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
    "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield",
    "set_robust_list", "set_thread_area", "set_tid_address", "setitimer", "setpgid", "setpriority",
    "setsid", "sigaltstack", "tgkill", "tkill", "vfork", "wait4", "waitid",
    // users
    "capget", "capset", "getegid", "geteuid", "getgid", "getgroups", "getresgid", "getresuid",
    "getuid", "setfsgid", "setfsuid", "setgid", "setgroups", "setregid", "setresgid", "setresuid",
    "setreuid", "setuid",
    // memory
    "madvise", "map_shadow_stack", "memfd_create", "mincore", "mlock", "mlock2", "mlockall", "mmap",
    "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc",
    "pkey_free", "pkey_mprotect",
    // files
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range",
    "creat", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir",
    "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "fdatasync", "fgetxattr",
    "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate",
    "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch",
    "inotify_init", "inotify_init1", "inotify_rm_watch", "ioprio_get", "ioprio_set",
    "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "lchown", "lgetxattr",
    "link", "linkat", "listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat",
    "mkdir", "mkdirat", "mknod", "mknodat", "newfstatat", "open", "openat", "openat2", "pread64",
    "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink",
    "readlinkat", "readv", "removexattr", "rename", "renameat", "renameat2", "rmdir", "sendfile",
    "setxattr", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync",
    "sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink", "unlinkat", "utime",
    "utimensat", "utimes", "vmsplice", "write", "writev",
    // waiting, pipes, sockets
    "accept", "accept4", "bind", "connect", "epoll_create", "epoll_create1", "epoll_ctl",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getpeername",
    "getsockname", "listen", "pipe", "pipe2", "poll", "ppoll", "pselect6", "recvfrom",
    "recvmmsg", "recvmsg", "select", "sendmmsg", "sendmsg", "sendto", "shutdown",
    "signalfd", "signalfd4",
    // System V IPC
    "msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat",
    "shmctl", "shmdt", "shmget",
    // clocks and the machine
    "clock_getres", "clock_gettime", "clock_nanosleep", "getcpu", "getrandom", "gettimeofday",
    "nanosleep", "sysinfo", "time", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    "times", "uname",
};
// clang-format on

#define CLONE_NAMESPACES                                                                           \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

static json_t *
make_profile(bool udp)
{
    json_t *names = json_array();
    for (size_t i = 0; i < KG_ARRAY_LEN(allowed); i++)
        json_array_append_new(names, json_string(allowed[i]));
    json_t *rules = json_pack("[{s:o, s:s}]", "names", names, "action", "SCMP_ACT_ALLOW");
    seccomp_add_arguments(rules, udp);
    seccomp_add(rules, "prlimit64", 0, json_pack("[o]", seccomp_equals(2, 0))); // sets nothing
    seccomp_add(rules, "personality", 0, json_pack("[o]", seccomp_equals(0, PER_LINUX)));
    // Asks only.
    seccomp_add(rules, "personality", 0, json_pack("[o]", seccomp_equals(0, 0xffffffff)));
    seccomp_add(rules, "clone", 0, json_pack("[o]", seccomp_masked(0, CLONE_NAMESPACES, 0)));
    // A filter cannot look at clone3's flags: glibc falls back to clone on ENOSYS, not on EPERM.
    seccomp_add(rules, "clone3", ENOSYS, NULL);
    return json_pack("{s:s, s:i, s:[s], s:o}", "defaultAction", "SCMP_ACT_ERRNO", "defaultErrnoRet",
                     EPERM, "architectures", NATIVE_ARCH, "syscalls", rules);
}

json_t *
seccomp_profile(bool udp)
{
    static json_t *profiles[2]; // the same for every sandbox
    if (!profiles[udp])
        profiles[udp] = make_profile(udp);
    return json_incref(profiles[udp]);
}
