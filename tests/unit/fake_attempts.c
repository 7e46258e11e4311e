// SPDX-License-Identifier: Apache-2.0
#include "fake_attempts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void
say(int fd, const char *name, long result)
{
    dprintf(fd, "%s=%s\n", name, result >= 0 ? "allowed" : strerrorname_np(errno));
}

static void
forbidden_calls(int fd)
{
    say(fd, "unshare", syscall(SYS_unshare, CLONE_NEWUSER));
    say(fd, "setns", syscall(SYS_setns, fd, 0));
    say(fd, "mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL));
    say(fd, "open_tree", syscall(SYS_open_tree, -1, "/", 0));
    say(fd, "ptrace", syscall(SYS_ptrace, 0, 0, NULL, NULL));
    say(fd, "bpf", syscall(SYS_bpf, 0, NULL, 0));
    say(fd, "keyctl", syscall(SYS_keyctl, 0, 0, 0, 0, 0));
    say(fd, "add_key", syscall(SYS_add_key, "user", "x", "y", 1, -1));
    say(fd, "perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0));
    say(fd, "userfaultfd", syscall(SYS_userfaultfd, 0));
    say(fd, "io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL));
    say(fd, "process_vm_readv", syscall(SYS_process_vm_readv, 1, NULL, 0, NULL, 0, 0));
    say(fd, "io_setup", syscall(SYS_io_setup, 1, NULL));
    say(fd, "mq_open", syscall(SYS_mq_open, "x", 0, 0, NULL));
    say(fd, "seccomp", syscall(SYS_seccomp, 1, 0, NULL));
    say(fd, "remap_file_pages", syscall(SYS_remap_file_pages, NULL, 0, 0, 0, 0));
    say(fd, "socket_alg", socket(AF_ALG, SOCK_SEQPACKET, 0));
    say(fd, "socket_vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
    say(fd, "clone_newuser", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
    say(fd, "clone3", syscall(SYS_clone3, NULL, 0));
}

// What a filter refuses by an argument, also where that has bits which the kernel does not look at.
static void
forbidden_arguments(int fd)
{
    const unsigned long high = 1UL << 32;
    const struct rlimit none = {0};
    struct rlimit old;
    int pair[2];
    say(fd, "prctl_seccomp", syscall(SYS_prctl, PR_SET_SECCOMP, 2, NULL));
    say(fd, "prctl_sched_core", syscall(SYS_prctl, PR_SCHED_CORE, PR_SCHED_CORE_GET, 0, 0, 0));
    say(fd, "prctl_dumpable", syscall(SYS_prctl, PR_GET_DUMPABLE, 0));
    say(fd, "setrlimit_core", syscall(SYS_setrlimit, RLIMIT_CORE, &none));
    say(fd, "prlimit_core", syscall(SYS_prlimit64, 0, RLIMIT_CORE, &none, NULL));
    say(fd, "prlimit_core_high", syscall(SYS_prlimit64, 0, high | RLIMIT_CORE, &none, NULL));
    say(fd, "prlimit_core_read", syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, &old));
    say(fd, "prlimit_data_read", syscall(SYS_prlimit64, 0, RLIMIT_DATA, NULL, &old));
    say(fd, "prlimit_data", syscall(SYS_prlimit64, 0, RLIMIT_DATA, &old, NULL));
    say(fd, "prlimit_by_pid", syscall(SYS_prlimit64, getpid(), RLIMIT_DATA, &old, NULL));
    say(fd, "netlink_route", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    say(fd, "netlink_generic", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
    say(fd, "tcp", socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
    say(fd, "sctp", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_SCTP));
    say(fd, "mptcp", socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP));
    say(fd, "dccp", socket(AF_INET, SOCK_DCCP | SOCK_CLOEXEC, 0));
    say(fd, "dccp_high", syscall(SYS_socket, AF_INET, high | SOCK_DCCP, 0));
    say(fd, "seqpacket", socket(AF_INET6, SOCK_SEQPACKET, 0));
    say(fd, "raw", socket(AF_INET6, SOCK_RAW, IPPROTO_UDP));
    say(fd, "pair", socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    say(fd, "pair_tipc", socketpair(AF_TIPC, SOCK_STREAM, 0, pair));
    say(fd, "pair_inet", socketpair(AF_INET, SOCK_STREAM, 0, pair));
}

static void
udp(int fd)
{
    say(fd, "udp", socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    say(fd, "udp6", socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP));
    say(fd, "udplite", socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE));
    say(fd, "icmp", socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
}

// Some C libraries extend the sign of an ioctl's number; Linux and the filter ignore those bits.
static void
terminals(int fd)
{
    const unsigned long high = 1UL << 32, sign = ~0UL << 32;
    char data[256];
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    int end = unlockpt(master) == 0 ? open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    say(fd, "tiocsti", syscall(SYS_ioctl, end, TIOCSTI, "x"));
    say(fd, "tiocsti_high", syscall(SYS_ioctl, end, high | TIOCSTI, "x"));
    say(fd, "tiocsetd", syscall(SYS_ioctl, end, TIOCSETD, &(int){0}));
    say(fd, "tioclinux", syscall(SYS_ioctl, end, TIOCLINUX, data));
    say(fd, "tioccons", syscall(SYS_ioctl, end, TIOCCONS, NULL));
    say(fd, "tiocgwinsz", syscall(SYS_ioctl, end, TIOCGWINSZ, data));
    say(fd, "tiocgptn", syscall(SYS_ioctl, master, TIOCGPTN, data));
    say(fd, "tiocgptn_signed", syscall(SYS_ioctl, master, sign | TIOCGPTN, data));
    say(fd, "tiocgetd", syscall(SYS_ioctl, end, TIOCGETD, data));
    say(fd, "tcgets", syscall(SYS_ioctl, end, TCGETS, data));
    say(fd, "tcsets", syscall(SYS_ioctl, end, TCSETS, data));
    close(master);
    close(end);
}

static void
fcntls(int fd)
{
    char data[256];
    int pipes[2];
    struct flock lock = {.l_type = F_WRLCK};
    int file = open("/tmp/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || pipe(pipes) != 0)
        return;
    say(fd, "fs_getflags", syscall(SYS_ioctl, file, FS_IOC_GETFLAGS, data));
    say(fd, "fionread", syscall(SYS_ioctl, pipes[0], FIONREAD, data));
    say(fd, "getlease", syscall(SYS_fcntl, file, F_GETLEASE));
    say(fd, "notify", syscall(SYS_fcntl, file, F_NOTIFY, DN_CREATE));
    say(fd, "getfl", syscall(SYS_fcntl, file, F_GETFL));
    say(fd, "pipe_size", syscall(SYS_fcntl, pipes[0], F_SETPIPE_SZ, 4096));
    say(fd, "ofd_lock", syscall(SYS_fcntl, file, F_OFD_SETLK, &lock));
    say(fd, "unknown", syscall(SYS_fcntl, file, 999));
    close(pipes[0]);
    close(pipes[1]);
    close(file);
}

static const struct {
    const char *name;
    long level;
    long option;
} socket_options[] = {
    {"nodelay", IPPROTO_TCP, TCP_NODELAY},
    {"keepidle", IPPROTO_TCP, TCP_KEEPIDLE},
    {"reuseaddr", SOL_SOCKET, SO_REUSEADDR},
    {"rcvlowat", SOL_SOCKET, SO_RCVLOWAT},
    {"rcvbuf", SOL_SOCKET, SO_RCVBUF},
    {"tos", IPPROTO_IP, IP_TOS},
    {"v6only", IPPROTO_IPV6, IPV6_V6ONLY},
    {"attach_filter", SOL_SOCKET, SO_ATTACH_FILTER},
    {"attach_filter_high", SOL_SOCKET, 1L << 32 | SO_ATTACH_FILTER},
    {"attach_bpf", SOL_SOCKET, SO_ATTACH_BPF},
    {"reuseport_cbpf", SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF},
    {"lock_filter", SOL_SOCKET, SO_LOCK_FILTER},
    {"timestamping", SOL_SOCKET, SO_TIMESTAMPING_OLD},
    {"timestamping_new", SOL_SOCKET, SO_TIMESTAMPING_NEW},
    {"zerocopy", SOL_SOCKET, SO_ZEROCOPY},
    {"reuseport", SOL_SOCKET, SO_REUSEPORT},
    {"ip_recverr", IPPROTO_IP, IP_RECVERR},
    {"ipv6_recverr", IPPROTO_IPV6, IPV6_RECVERR},
    {"ip_options", IPPROTO_IP, IP_OPTIONS},
    {"membership", IPPROTO_IP, IP_ADD_MEMBERSHIP},
    {"flowlabel", IPPROTO_IPV6, 32},
    {"ulp", IPPROTO_TCP, TCP_ULP},
    {"congestion", IPPROTO_TCP, TCP_CONGESTION},
    {"md5", IPPROTO_TCP, TCP_MD5SIG},
    {"other_level", SOL_NETLINK, 1},
};

static void
options(int fd)
{
    struct sock_filter accept_all = BPF_STMT(BPF_RET | BPF_K, 0xffff);
    struct sock_fprog program = {1, &accept_all};
    int tcp = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    for (size_t i = 0; i < sizeof socket_options / sizeof socket_options[0]; i++) {
        bool filters = strncmp(socket_options[i].name, "attach_filter", 13) == 0;
        const void *value = filters ? (const void *)&program : &on;
        socklen_t len = filters ? sizeof program : sizeof on;
        say(fd, socket_options[i].name,
            syscall(SYS_setsockopt, tcp, socket_options[i].level, socket_options[i].option, value,
                    len));
    }
    char data[256];
    socklen_t len = sizeof data;
    say(fd, "tcp_info", getsockopt(tcp, IPPROTO_TCP, TCP_INFO, data, &len));
    say(fd, "zerocopy_receive", getsockopt(tcp, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, data, &len));
    close(tcp);
}

bool
attempt(const char *group, int fd)
{
    static const struct {
        const char *name;
        void (*run)(int fd);
    } groups[] = {
        {"calls", forbidden_calls},
        {"arguments", forbidden_arguments},
        {"udp", udp},
        {"terminals", terminals},
        {"fcntls", fcntls},
        {"options", options},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if (strcmp(groups[i].name, group) != 0)
            continue;
        groups[i].run(fd);
        return true;
    }
    return false;
}
