// SPDX-License-Identifier: Apache-2.0
// Stands in for the agent as PID 1 of a sandbox: dials the door, obeys one line a connection
// (`run COMMAND`, `calls`, `arguments`, `reap`, `exit`), answers, hangs up, dials again.
#include <errno.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prepare.h"

#define LIFETIME_S 120 // of one whose test has died

static const char *
door_path(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--door"))
            return argv[i + 1];
    return NULL;
}

static int
dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void
run_command(const char *command, int fd)
{
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

// Waits for all that commands have left behind.
static void
reap_all(void)
{
    while (wait(NULL) > 0 || errno == EINTR)
        ;
}

static void
say(int fd, const char *name, long result)
{
    dprintf(fd, "%s=%s\n", name, result >= 0 ? "allowed" : strerrorname_np(errno));
}

// Tries what no sandbox may do.
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
    say(fd, "tiocsti", syscall(SYS_ioctl, fd, TIOCSTI, ""));
    say(fd, "tiocsti_high", syscall(SYS_ioctl, fd, high | TIOCSTI, ""));
    say(fd, "tiocsetd", syscall(SYS_ioctl, fd, TIOCSETD, NULL));
    say(fd, "tioclinux", syscall(SYS_ioctl, fd, TIOCLINUX, NULL));
    say(fd, "tiocgwinsz", syscall(SYS_ioctl, fd, TIOCGWINSZ, NULL));
    say(fd, "tiocgetd", syscall(SYS_ioctl, fd, TIOCGETD, NULL));
    say(fd, "prctl_seccomp", syscall(SYS_prctl, PR_SET_SECCOMP, 2, NULL));
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
    say(fd, "udp", socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    say(fd, "dccp", socket(AF_INET, SOCK_DCCP | SOCK_CLOEXEC, 0));
    say(fd, "dccp_high", syscall(SYS_socket, AF_INET, high | SOCK_DCCP, 0));
    say(fd, "seqpacket", socket(AF_INET6, SOCK_SEQPACKET, 0));
    say(fd, "raw", socket(AF_INET6, SOCK_RAW, IPPROTO_UDP));
    say(fd, "pair", socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    say(fd, "pair_tipc", socketpair(AF_TIPC, SOCK_STREAM, 0, pair));
    say(fd, "pair_inet", socketpair(AF_INET, SOCK_STREAM, 0, pair));
}

static void
obey(int fd)
{
    char line[4096];
    ssize_t len = read(fd, line, sizeof(line) - 1);
    if (len <= 0)
        return;
    line[len] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (!strncmp(line, "run ", 4))
        run_command(line + 4, fd);
    else if (!strcmp(line, "calls"))
        forbidden_calls(fd);
    else if (!strcmp(line, "arguments"))
        forbidden_arguments(fd);
    else if (!strcmp(line, "reap"))
        reap_all();
    else if (!strcmp(line, "exit"))
        _exit(0);
}

static void
on_alarm(int signum)
{
    (void)signum;
    _exit(1);
}

int
main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        puts("fake agent");
        return 0;
    }
    if (argc >= 2 && !strcmp(argv[1], "--prepare"))
        return prepare_main(argc > 2 ? argv[2] : NULL, argc > 2 ? argv + 3 : argv + 2);
    const char *door = door_path(argc, argv);
    signal(SIGALRM, on_alarm); // by default PID 1 would ignore it
    alarm(LIFETIME_S);
    while (door) {
        int fd = dial(door);
        if (fd >= 0) {
            obey(fd);
            close(fd);
        } else {
            usleep(1000);
        }
    }
    return 2;
}
