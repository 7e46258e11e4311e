// SPDX-License-Identifier: Apache-2.0
// The gateway's system calls. The list of the sandboxes' (provisioner/seccomp.c) has another
// purpose: those run any program, the gateway runs one that is known, and no other one.
#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <errno.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>

#include "privileges.h"

#if defined __has_feature // of clang
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FILTER_SANITIZED 1
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define FILTER_SANITIZED 1
#endif
#ifndef FILTER_SANITIZED
#define FILTER_SANITIZED 0
#endif

// Numbers that older headers lack.
#ifndef PR_GET_AUXV
#define PR_GET_AUXV 0x41555856
#endif

// ---- By name --------------------------------------------------------------------------------

// Names that this libseccomp or this architecture does not know are left out. Calls of which only
// some arguments are allowed are below.
// clang-format off
static const char *const filter_allowed[] = {
    // threads and signals
    "alarm", "arch_prctl", "exit", "exit_group", "futex", "futex_requeue", "futex_wait",
    "futex_waitv", "futex_wake", "get_robust_list", "getitimer", "membarrier", "pause", "restart_syscall",
    "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn",
    "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "set_robust_list", "set_tid_address",
    "setitimer", "sigaltstack", "tgkill", "tkill",
    "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
    "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield",
    // processes: Linux asks for CAP_KILL where another one is another user's
    "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrlimit", "getrusage", "getsid",
    "gettid", "ioprio_get", "ioprio_set", "kill", "pidfd_open", "pidfd_send_signal", "setpriority",
    "setrlimit",
    "capget", "getegid", "geteuid", "getgid", "getgroups", "getresgid", "getresuid", "getuid",
    // memory
    "brk", "madvise", "map_shadow_stack", "memfd_create", "mincore", "mlock", "mlock2", "mmap",
    "mprotect", "mremap", "mseal", "msync", "munlock", "munmap",
    // files
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
    "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod",
    "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "flock", "fstat",
    "fstatfs", "fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64",
    "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "lchown", "link",
    "linkat", "lseek", "lstat", "mkdir", "mkdirat", "newfstatat", "open", "openat", "openat2",
    "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead",
    "readlink", "readlinkat", "readv", "rename", "renameat", "renameat2", "rmdir", "sendfile",
    "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range",
    "syncfs", "tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes",
    "vmsplice", "write", "writev",
    // waiting, pipes, sockets
    "accept", "accept4", "bind", "connect", "epoll_create", "epoll_create1", "epoll_ctl",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getpeername",
    "getsockname", "getsockopt", "listen", "pipe", "pipe2", "poll", "ppoll", "pselect6",
    "recvfrom", "recvmmsg", "recvmsg", "select", "sendmmsg", "sendmsg", "sendto", "setsockopt",
    "shutdown", "signalfd", "signalfd4",
    // clocks and the machine
    "clock_getres", "clock_gettime", "clock_nanosleep", "getcpu", "getrandom", "gettimeofday",
    "nanosleep", "sysinfo", "time", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    "times", "uname",
};

// C libraries and programs take ENOSYS for an old kernel here, and try something else.
static const char *const filter_denied[] = {
    // programs, other processes
    "execveat", "kcmp", "pidfd_getfd", "process_madvise", "process_vm_writev",
    // namespaces and mounts
    "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount",
    "open_tree", "pivot_root", "setns", "umount2", "unshare",
    // users
    "capset", "setfsgid", "setfsuid", "setgid", "setgroups", "setregid", "setresgid", "setresuid",
    "setreuid", "setuid",
    // keys
    "add_key", "keyctl", "request_key",
    // the kernel and the machine
    "acct", "adjtimex", "bpf", "clock_adjtime", "clock_settime", "delete_module", "fanotify_init",
    "finit_module", "init_module", "ioperm", "iopl", "kexec_file_load", "kexec_load", "mknod",
    "mknodat", "name_to_handle_at", "open_by_handle_at", "perf_event_open", "personality",
    "quotactl", "quotactl_fd", "reboot", "setdomainname", "sethostname", "settimeofday", "swapoff",
    "swapon", "syslog", "userfaultfd", "vhangup",
};

// Sanitizers have a process look for leaks, and a program find the lines of a report.
static const char *const filter_sanitizers[] = {
    "execve", "fork", "process_vm_readv", "ptrace", "vfork",
};
static const char *const filter_waits[] = {"wait4", "waitid"};
// clang-format on

static int
filter_add_names(scmp_filter_ctx filter, uint32_t action, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        int failed = number < 0 ? 0 : seccomp_rule_add_array(filter, action, number, 0, NULL);
        if (failed)
            return failed;
    }
    return 0;
}

static int
filter_add_calls(scmp_filter_ctx filter)
{
    const struct {
        const char *const *names;
        size_t n;
        uint32_t action;
    } lists[] = {
        {filter_allowed, KG_ARRAY_LEN(filter_allowed), SCMP_ACT_ALLOW},
        {filter_denied, KG_ARRAY_LEN(filter_denied), SCMP_ACT_ERRNO(EPERM)},
        {filter_sanitizers, KG_ARRAY_LEN(filter_sanitizers),
         FILTER_SANITIZED ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM)},
        {filter_waits, KG_ARRAY_LEN(filter_waits),
         FILTER_SANITIZED ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(ECHILD)},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(lists); i++) {
        int failed = filter_add_names(filter, lists[i].action, lists[i].names, lists[i].n);
        if (failed)
            return failed;
    }
    return 0;
}

// ---- By argument ----------------------------------------------------------------------------

// clang-format off
// Not: what changes terminals, or puts something into their input. TCGETS is how isatty() asks.
static const uint32_t filter_ioctls[] = {
    FIONBIO, FIONREAD, FIOCLEX, FIONCLEX, FICLONE, FICLONERANGE, TCGETS, TCGETS2, TIOCGWINSZ,
    TIOCOUTQ, SIOCATMARK, SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFDSTADDR,
    SIOCGIFBRDADDR, SIOCGIFNETMASK, SIOCGIFMTU, SIOCGIFHWADDR, SIOCGIFINDEX,
};

// Not: capabilities, securebits, filters, and where a process has what in its memory.
static const uint32_t filter_prctls[] = {
    PR_SET_NAME, PR_GET_NAME, PR_SET_DUMPABLE, PR_GET_DUMPABLE, PR_SET_NO_NEW_PRIVS,
    PR_GET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_SET_TIMERSLACK, PR_GET_TIMERSLACK,
    PR_SET_VMA, PR_GET_SECCOMP, PR_GET_SECUREBITS, PR_GET_KEEPCAPS, PR_GET_CHILD_SUBREAPER,
    PR_GET_TID_ADDRESS, PR_GET_THP_DISABLE, PR_GET_SPECULATION_CTRL, PR_GET_AUXV, PR_CAPBSET_READ,
#if FILTER_SANITIZED
    PR_SET_PTRACER, // whom LeakSanitizer lets look
#endif
};
// clang-format on

// Others load modules of the kernel, reach parts of it that are not needed here, or are for root.
static const struct {
    uint32_t family, type, protocol;
} filter_sockets[] = {
    {AF_UNIX, SOCK_STREAM, 0},
    {AF_UNIX, SOCK_DGRAM, 0},
    {AF_UNIX, SOCK_SEQPACKET, 0},
    {AF_INET, SOCK_STREAM, 0},
    {AF_INET, SOCK_STREAM, IPPROTO_TCP},
    {AF_INET, SOCK_DGRAM, 0},
    {AF_INET, SOCK_DGRAM, IPPROTO_UDP},
    {AF_INET6, SOCK_STREAM, 0},
    {AF_INET6, SOCK_STREAM, IPPROTO_TCP},
    {AF_INET6, SOCK_DGRAM, 0},
    {AF_INET6, SOCK_DGRAM, IPPROTO_UDP},
    // getaddrinfo() and libzmq ask for the machine's addresses.
    {AF_NETLINK, SOCK_RAW, NETLINK_ROUTE},
    {AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE},
};
#define FILTER_SOCKET_TYPE 0xf // the other bits of a type are flags

#define FILTER_NAMESPACES                                                                          \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)

// All numbers here are ints for the kernel: of a register only 32 bits count.
static struct scmp_arg_cmp
filter_masked(unsigned index, uint32_t mask, uint32_t value)
{
    return (struct scmp_arg_cmp){
        .arg = index, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

static struct scmp_arg_cmp
filter_equals(unsigned index, uint32_t value)
{
    return filter_masked(index, UINT32_MAX, value);
}

static int
filter_add_values(scmp_filter_ctx filter, int call, unsigned index, const uint32_t *values,
                  size_t n)
{
    int failed = 0;
    for (size_t i = 0; !failed && i < n; i++) {
        const struct scmp_arg_cmp value = filter_equals(index, values[i]);
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, call, 1, &value);
    }
    return failed;
}

static int
filter_add_sockets(scmp_filter_ctx filter)
{
    const uint32_t unix_family = AF_UNIX;
    int failed = filter_add_values(filter, SCMP_SYS(socketpair), 0, &unix_family, 1);
    for (size_t i = 0; !failed && i < KG_ARRAY_LEN(filter_sockets); i++) {
        const struct scmp_arg_cmp arguments[] = {
            filter_equals(0, filter_sockets[i].family),
            filter_masked(1, FILTER_SOCKET_TYPE, filter_sockets[i].type),
            filter_equals(2, filter_sockets[i].protocol),
        };
        failed = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket),
                                        KG_ARRAY_LEN(arguments), arguments);
    }
    return failed;
}

// A filter cannot look at clone3's flags, so that fails with ENOSYS, and the C library uses clone.
static int
filter_add_clone(scmp_filter_ctx filter)
{
    const struct scmp_arg_cmp flags =
        FILTER_SANITIZED ? filter_masked(0, FILTER_NAMESPACES, 0)
                         : filter_masked(0, FILTER_NAMESPACES | CLONE_THREAD, CLONE_THREAD);
    return seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, &flags);
}

static int
filter_add_arguments(scmp_filter_ctx filter)
{
    const uint32_t self = 0; // instead of another process
    int failed = filter_add_clone(filter);
    if (!failed)
        failed = filter_add_values(filter, SCMP_SYS(prlimit64), 0, &self, 1);
    if (!failed)
        failed = filter_add_values(filter, SCMP_SYS(ioctl), 1, filter_ioctls,
                                   KG_ARRAY_LEN(filter_ioctls));
    if (!failed)
        failed = filter_add_values(filter, SCMP_SYS(prctl), 0, filter_prctls,
                                   KG_ARRAY_LEN(filter_prctls));
    return failed ? failed : filter_add_sockets(filter);
}

// ---- All ------------------------------------------------------------------------------------

int
privileges_filter(struct kg_error *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!filter)
        return kg_error_set(err, KG_INTERNAL, 0, "cannot make the system call filter");
    // By default only the thread would end, and the others would wait for it.
    int failed = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (!failed)
        failed = filter_add_calls(filter);
    if (!failed)
        failed = filter_add_arguments(filter);
    if (!failed)
        failed = seccomp_load(filter);
    seccomp_release(filter);
    if (failed)
        return kg_error_set(err, KG_INTERNAL, -failed, "cannot load the system call filter");
    return 0;
}
