// SPDX-License-Identifier: Apache-2.0
// The system calls that a sandbox may make: those that an ordinary unprivileged program needs. All
// others fail with EPERM: namespaces, mounts, keys, bpf, perf, ptrace, io_uring, userfaultfd, and
// whatever future kernels add.
#include "provisioner_priv.h"

#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#if defined(__x86_64__)
#define NATIVE_ARCH "SCMP_ARCH_X86_64"
#elif defined(__aarch64__)
#define NATIVE_ARCH "SCMP_ARCH_AARCH64"
#else
#error "seccomp.c does not know this architecture"
#endif

// The runtime's libseccomp ignores names that it does not know.
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
    "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr",
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
    // waiting, pipes, sockets (but for socket and socketpair)
    "accept", "accept4", "bind", "connect", "epoll_create", "epoll_create1", "epoll_ctl",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getpeername",
    "getsockname", "getsockopt", "listen", "pipe", "pipe2", "poll", "ppoll", "pselect6", "recvfrom",
    "recvmmsg", "recvmsg", "select", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
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

// Other families, types and protocols load modules of the host's kernel (SOCK_DCCP does so with
// protocol 0), or reach parts of it that are not needed here. -1: any.
static const struct {
    int family;
    int type;
    int protocol;
} sockets[] = {
    {AF_UNIX, -1, -1},
    {AF_INET, SOCK_STREAM, 0},
    {AF_INET, SOCK_STREAM, IPPROTO_TCP},
    {AF_INET, SOCK_DGRAM, 0},
    {AF_INET, SOCK_DGRAM, IPPROTO_UDP},
    {AF_INET6, SOCK_STREAM, 0},
    {AF_INET6, SOCK_STREAM, IPPROTO_TCP},
    {AF_INET6, SOCK_DGRAM, 0},
    {AF_INET6, SOCK_DGRAM, IPPROTO_UDP},
    {AF_NETLINK, -1, NETLINK_ROUTE},
};
#define SOCKET_TYPE_MASK 0xf // the other bits are SOCK_CLOEXEC and SOCK_NONBLOCK

// TIOCSETD loads modules of line disciplines; the others write input to a terminal or the console.
static const uint32_t forbidden_ioctls[] = {TIOCSETD, TIOCSTI, TIOCLINUX};
// A tenant's own filters would be compiled into memory that the whole machine shares.
static const uint32_t forbidden_prctls[] = {PR_SET_SECCOMP};
// The limit of core files stays 1: the kernel ignores 0 where core_pattern is a pipe.
static const uint32_t forbidden_rlimits[] = {RLIMIT_CORE};

#define CLONE_NAMESPACES                                                                           \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

// A condition on one argument of a call.
static json_t *
arg_equals(int index, json_int_t value)
{
    return json_pack("{s:i, s:I, s:s}", "index", index, "value", value, "op", "SCMP_CMP_EQ");
}

static json_t *
arg_masked_equals(int index, json_int_t mask, json_int_t value)
{
    return json_pack("{s:i, s:I, s:I, s:s}", "index", index, "value", mask, "valueTwo", value, "op",
                     "SCMP_CMP_MASKED_EQ");
}

// Allows `name` if all conditions in `args` (stolen) hold.
static void
allow_where(json_t *rules, const char *name, json_t *args)
{
    json_array_append_new(rules, json_pack("{s:[s], s:s, s:o}", "names", name, "action",
                                           "SCMP_ACT_ALLOW", "args", args));
}

// Whether one of the values has the bits of `value` above `shift`.
static bool
any_begins(const uint32_t *values, size_t n, uint32_t value, int shift)
{
    for (size_t i = 0; i < n; i++)
        if (values[i] >> shift == value >> shift)
            return true;
    return false;
}

// Allows `name` unless the low 32 bits of its argument, the only ones that the kernel uses, are one
// of `values`. A filter has no "not equal" with a mask, so this allows every shortest prefix with
// which none of the values begins.
static void
allow_unless(json_t *rules, const char *name, int index, const uint32_t *values, size_t n,
             json_t *also)
{
    for (size_t i = 0; i < n; i++) {
        for (int shift = 31; shift >= 0; shift--) {
            uint32_t bit = UINT32_C(1) << shift;
            uint32_t prefix = (values[i] ^ bit) & ~(bit - 1);
            if (any_begins(values, n, prefix, shift) || any_begins(values, i, values[i], shift))
                continue; // handled further down, or by an earlier value
            json_t *args =
                json_pack("[o]", arg_masked_equals(index, (json_int_t)(~(bit - 1)), prefix));
            if (also)
                json_array_append(args, also);
            allow_where(rules, name, args);
        }
    }
}

static void
allow_sockets(json_t *rules)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(sockets); i++) {
        json_t *args = json_pack("[o]", arg_equals(0, sockets[i].family));
        if (sockets[i].type >= 0)
            json_array_append_new(args, arg_masked_equals(1, SOCKET_TYPE_MASK, sockets[i].type));
        if (sockets[i].protocol >= 0)
            json_array_append_new(args, arg_equals(2, sockets[i].protocol));
        allow_where(rules, "socket", args);
    }
    allow_where(rules, "socketpair", json_pack("[o]", arg_equals(0, AF_UNIX)));
}

static json_t *
make_profile(void)
{
    json_t *names = json_array();
    for (size_t i = 0; i < KG_ARRAY_LEN(allowed); i++)
        json_array_append_new(names, json_string(allowed[i]));
    json_t *rules = json_pack("[{s:o, s:s}]", "names", names, "action", "SCMP_ACT_ALLOW");
    allow_sockets(rules);
    allow_unless(rules, "ioctl", 1, forbidden_ioctls, KG_ARRAY_LEN(forbidden_ioctls), NULL);
    allow_unless(rules, "prctl", 0, forbidden_prctls, KG_ARRAY_LEN(forbidden_prctls), NULL);
    allow_unless(rules, "setrlimit", 0, forbidden_rlimits, KG_ARRAY_LEN(forbidden_rlimits), NULL);
    // Its own limits only: the agent has the same user, and could not work without descriptors.
    json_auto_t *own = arg_equals(0, 0);
    allow_unless(rules, "prlimit64", 1, forbidden_rlimits, KG_ARRAY_LEN(forbidden_rlimits), own);
    allow_where(rules, "prlimit64", json_pack("[o]", arg_equals(2, 0))); // sets nothing
    allow_where(rules, "personality", json_pack("[o]", arg_equals(0, PER_LINUX)));
    allow_where(rules, "personality", json_pack("[o]", arg_equals(0, 0xffffffff))); // asks only
    allow_where(rules, "clone", json_pack("[o]", arg_masked_equals(0, CLONE_NAMESPACES, 0)));
    // A filter cannot look at clone3's flags: glibc falls back to clone on ENOSYS, not on EPERM.
    json_array_append_new(rules, json_pack("{s:[s], s:s, s:i}", "names", "clone3", "action",
                                           "SCMP_ACT_ERRNO", "errnoRet", ENOSYS));
    return json_pack("{s:s, s:i, s:[s], s:o}", "defaultAction", "SCMP_ACT_ERRNO", "defaultErrnoRet",
                     EPERM, "architectures", NATIVE_ARCH, "syscalls", rules);
}

json_t *
seccomp_profile(void)
{
    static json_t *profile; // the same for every sandbox
    if (!profile)
        profile = make_profile();
    return json_incref(profile);
}
