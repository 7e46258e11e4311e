// SPDX-License-Identifier: Apache-2.0
// Each change of the process is made in a forked child, which says on a pipe what it has become.
// This is built twice: with sanitizers, and without, which is the filter that users have.

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "privileges.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED true
#else
#define SANITIZED false
#endif

extern char **environ;

// ---- Children -------------------------------------------------------------------------------

// What a child finds wrong it says on stderr, and its exit code is 1.
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));   \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define CHECK_FAILS(call, error) CHECK((errno = 0, (call) == -1) && errno == (error))

static void
check_done(int result, const struct kg_error *err)
{
    if (result != 0) {
        fprintf(stderr, "%s\n", err->message);
        _exit(1);
    }
}

// Runs `body` in a child, whose stdout goes to `ret` (appended). Returns its wait status.
static int
in_child(void (*body)(const void *arg), const void *arg, struct buf *ret)
{
    int output[2];
    int status;
    ssize_t n;
    assert_int_equal(pipe2(output, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(output[1], STDOUT_FILENO);
        body(arg);
        _exit(0);
    }
    close(output[1]);
    while ((n = read(output[0], buf_reserve(ret, 4096), 4096)) > 0)
        ret->len += (size_t)n;
    close(output[0]);
    buf_append(ret, "", 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

// /proc/self/status, on stdout.
static void
say_status(void)
{
    KG_AUTO_BUF status = {0};
    struct kg_error err;
    check_done(file_read("/proc/self/status", 65536, &status, &err), &err);
    CHECK(write(STDOUT_FILENO, status.data, status.len) == (ssize_t)status.len);
}

static void assert_status_has(const struct buf *status, const char *format, ...) KG_PRINTF(2, 3);
static void
assert_status_has(const struct buf *status, const char *format, ...)
{
    char line[200] = "\n";
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line + 1, sizeof line - 2, format, args);
    va_end(args);
    line[len + 1] = '\n';
    line[len + 2] = '\0';
    if (!strstr(status->data, line)) {
        print_error("no line \"%s\" in:\n%s", line + 1, status->data);
        fail();
    }
}

static void
assert_capabilities(const struct buf *status, uint64_t sets)
{
    static const char *const same[] = {"CapPrm", "CapEff", "CapBnd"};
    for (size_t i = 0; i < KG_ARRAY_LEN(same); i++)
        assert_status_has(status, "%s:\t%016llx", same[i], (unsigned long long)sets);
    assert_status_has(status, "CapInh:\t%016x", 0);
    assert_status_has(status, "CapAmb:\t%016x", 0);
    assert_status_has(status, "NoNewPrivs:\t1");
}

static void
need_root(void)
{
    if (geteuid() != 0) {
        print_message("only root has privileges to give up: run this as root\n");
        skip();
    }
}

// ---- Users ----------------------------------------------------------------------------------

static void
test_users(void **state)
{
    static const struct {
        const char *setting;
        uid_t uid;
        gid_t gid;
        const char *name, *error;
    } cases[] = {
        {"12:34", 12, 34, "12", NULL},
        {"4294967294:4294967294", 4294967294, 4294967294, "4294967294", NULL},
        {"nobody", 65534, 65534, "nobody", NULL},
        {"0:0", 0, 0, NULL, "user: 0 is root"},
        {"61:0", 0, 0, NULL, "root's group (uid 61, gid 0)"},
        {"0:61", 0, 0, NULL, "user: 0 is root"},
        {"root", 0, 0, NULL, "user: root is root"},
        {"x:y", 0, 0, NULL, "user: \"x:y\" is not UID:GID"},
        {"12:", 0, 0, NULL, "is not UID:GID"},
        {":34", 0, 0, NULL, "is not UID:GID"},
        {"12:34:56", 0, 0, NULL, "is not UID:GID"},
        {"12:34 ", 0, 0, NULL, "is not UID:GID"},
        {" 12:34", 0, 0, NULL, "is not UID:GID"},
        {"-1:34", 0, 0, NULL, "is not UID:GID"},
        {"12:4294967295", 0, 0, NULL, "is not UID:GID"},
        {"4294967296:34", 0, 0, NULL, "is not UID:GID"},
        {"99999999999999999999999:34", 0, 0, NULL, "is not UID:GID"},
        {"no-such-user", 0, 0, NULL, "user: there is no user \"no-such-user\""},
        {"12", 0, 0, NULL, "user: there is no user \"12\""},
        {"", 0, 0, NULL, "user: there is no user \"\""},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct privileges_user user;
        struct kg_error err = {0};
        int result = privileges_user_find(cases[i].setting, &user, &err);
        assert_int_equal(result, cases[i].error ? -1 : 0);
        if (cases[i].error) {
            assert_int_equal(err.code, KG_INVALID);
            assert_non_null(strstr(err.message, cases[i].error));
            continue;
        }
        assert_int_equal(user.uid, cases[i].uid);
        assert_int_equal(user.gid, cases[i].gid);
        assert_string_equal(user.name, cases[i].name);
        assert_int_equal(user.n_groups, 0);
    }
}

static void
test_the_default_user(void **state)
{
    struct privileges_user user;
    struct kg_error err;
    bool has = getpwnam(PRIVILEGES_DEFAULT_NAME);
    (void)state;
    assert_int_equal(privileges_user_find(NULL, &user, &err), 0);
    assert_string_equal(user.name, has ? PRIVILEGES_DEFAULT_NAME : "61160");
    if (!has) {
        assert_int_equal(user.uid, PRIVILEGES_DEFAULT_ID);
        assert_int_equal(user.gid, PRIVILEGES_DEFAULT_ID);
        assert_int_equal(user.n_groups, 0);
    }
}

static void
test_groups_of_a_user(void **state)
{
    struct privileges_user user = {.uid = 12, .gid = 34, .name = "ann"};
    struct kg_error err;
    (void)state;
    for (gid_t round = 0; round < 2; round++) {
        assert_int_equal(privileges_user_add_group(&user, 34, &err), 0); // has it anyway
        for (gid_t i = 0; i < PRIVILEGES_GROUPS_MAX; i++)
            assert_int_equal(privileges_user_add_group(&user, 100 + i, &err), 0);
        assert_int_equal(user.n_groups, PRIVILEGES_GROUPS_MAX);
    }
    assert_int_equal(privileges_user_add_group(&user, 99, &err), -1);
    assert_string_equal(err.message,
                        "user: ann would be in more than 32 groups; name a user of its own");
    assert_int_equal(privileges_user_add_group(&user, 0, &err), -1);
    assert_int_equal(err.code, KG_INVALID);
    assert_int_equal(user.n_groups, PRIVILEGES_GROUPS_MAX);
}

// In a mount namespace of its own.
static void
child_replace_file(const char *path, const char *text)
{
    struct kg_error err;
    char own[] = "/tmp/test_privileges.XXXXXX";
    int fd = mkstemp(own);
    CHECK(fd >= 0 && close(fd) == 0);
    check_done(file_write_atomic(own, text, strlen(text), 0644, &err), &err);
    CHECK(mount(own, path, NULL, MS_BIND, NULL) == 0 && unlink(own) == 0);
}

static void
check_is_refused(const char *setting, const char *message)
{
    struct privileges_user user;
    struct kg_error err;
    CHECK(privileges_user_find(setting, &user, &err) == -1);
    CHECK(err.code == KG_INVALID && strstr(err.message, message));
}

static void
child_with_users(const void *arg)
{
    KG_AUTO_BUF groups = {0};
    struct privileges_user user;
    struct kg_error err;
    (void)arg;
    CHECK(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    child_replace_file("/etc/passwd", "root:x:0:0::/:/bin/false\ntoor:x:0:5::/:/bin/false\n"
                                      "kernelgate:x:70:71::/:/bin/false\n"
                                      "wheel:x:72:71::/:/bin/false\nmany:x:73:71::/:/bin/false\n");
    buf_append_str(&groups, "root:x:0:wheel\nown:x:71:kernelgate\ndoor:x:81:kernelgate,wheel\n");
    buf_append_str(&groups, "log:x:82:kernelgate\n");
    for (int i = 0; i < PRIVILEGES_GROUPS_MAX + 1; i++)
        buf_printf(&groups, "g%d:x:%d:many\n", i, 100 + i);
    child_replace_file("/etc/group", groups.data);
    for (int i = 0; i < 2; i++) {
        check_done(privileges_user_find(i ? "kernelgate" : NULL, &user, &err), &err);
        CHECK(user.uid == 70 && user.gid == 71 && strcmp(user.name, "kernelgate") == 0);
        CHECK(user.n_groups == 2 && user.groups[0] + user.groups[1] == 81 + 82);
    }
    check_is_refused("toor", "user: toor is root");
    check_is_refused("wheel", "user: wheel must not be in root's group");
    check_is_refused("many", "user: many is in more than 32 groups");
}

static void
test_users_of_the_machine(void **state)
{
    KG_AUTO_BUF nothing = {0};
    (void)state;
    need_root();
    assert_int_equal(in_child(child_with_users, NULL, &nothing), 0);
}

// ---- Dropping -------------------------------------------------------------------------------

static const struct privileges_user someone = {
    .uid = 61161, .gid = 61162, .groups = {61164, 61163}, .n_groups = 2, .name = "someone"};

static void
child_drop(const void *user)
{
    struct kg_error err;
    check_done(privileges_drop(user, &err), &err);
    CHECK_FAILS(setuid(0), EPERM);
    CHECK_FAILS(setresuid(0, 0, 0), EPERM);
    CHECK_FAILS(setgid(0), EPERM);
    CHECK_FAILS(setgroups(0, NULL), EPERM);
    CHECK_FAILS(open("/etc/shadow", O_RDONLY), EACCES);
    CHECK_FAILS(kill(1, 0), EPERM);
    CHECK(prctl(PR_GET_DUMPABLE) != 1);
    say_status();
}

static void
test_nothing_is_left_after_a_drop(void **state)
{
    KG_AUTO_BUF status = {0};
    (void)state;
    need_root();
    assert_int_equal(in_child(child_drop, &someone, &status), 0);
    assert_capabilities(&status, 0);
    assert_status_has(&status, "Uid:\t61161\t61161\t61161\t61161");
    assert_status_has(&status, "Gid:\t61162\t61162\t61162\t61162");
    assert_status_has(&status, "Groups:\t61163 61164 ");
}

static void
test_groups_of_the_caller_are_dropped(void **state)
{
    KG_AUTO_BUF status = {0};
    struct privileges_user alone = someone;
    (void)state;
    need_root();
    alone.n_groups = 0;
    assert_int_equal(in_child(child_drop, &alone, &status), 0);
    assert_status_has(&status, "Groups:\t ");
}

// What an earlier program may have left: each of these would keep something.
static void
child_drop_with_more(const void *user)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    CHECK(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_capget, &header, data) == 0);
    data[0].inheritable = data[0].permitted;
    CHECK(syscall(SYS_capset, &header, data) == 0);
    CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0) == 0);
    child_drop(user);
}

static void
test_kept_and_ambient_capabilities_are_dropped(void **state)
{
    KG_AUTO_BUF status = {0};
    (void)state;
    need_root();
    assert_int_equal(in_child(child_drop_with_more, &someone, &status), 0);
    assert_capabilities(&status, 0);
}

static void *
thread_wait(void *fd)
{
    char byte;
    return read(*(int *)fd, &byte, 1) < 0 ? fd : NULL;
}

static void
child_with_threads(const void *user)
{
    static const int capability = CAP_KILL;
    struct kg_error err;
    pthread_t thread;
    int gate[2];
    CHECK(pipe(gate) == 0 && pthread_create(&thread, NULL, thread_wait, &gate[0]) == 0);
    CHECK(privileges_drop(user, &err) == -1 && strstr(err.message, "threads"));
    CHECK(privileges_limit(&capability, 1, &err) == -1 && strstr(err.message, "threads"));
    CHECK(getuid() == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    CHECK(write(gate[1], "", 1) == 1 && pthread_join(thread, NULL) == 0);
}

static void
test_threads_are_refused(void **state)
{
    KG_AUTO_BUF nothing = {0};
    (void)state;
    need_root();
    assert_int_equal(in_child(child_with_threads, &someone, &nothing), 0);
}

static void
test_root_is_no_user(void **state)
{
    const struct privileges_user root = {.name = "root"}, half = {.uid = 1, .name = "half"};
    struct kg_error err;
    (void)state;
    assert_int_equal(privileges_drop(&root, &err), -1);
    assert_int_equal(privileges_drop(&half, &err), -1);
    assert_int_equal(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
}

// ---- Limits ---------------------------------------------------------------------------------

static const int kept[] = {CAP_KILL, CAP_SETUID, CAP_CHECKPOINT_RESTORE};
static const uint64_t kept_set =
    UINT64_C(1) << CAP_KILL | UINT64_C(1) << CAP_SETUID | UINT64_C(1) << CAP_CHECKPOINT_RESTORE;

static void
child_limit(const void *program)
{
    struct kg_error err;
    check_done(privileges_limit(kept, KG_ARRAY_LEN(kept), &err), &err);
    CHECK(getuid() == 0);
    CHECK_FAILS(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
    if (program)
        execl(program, "cat", "/proc/self/status", NULL);
    else
        say_status();
}

static void
test_a_limit_holds_for_programs(void **state)
{
    (void)state;
    need_root();
    for (int i = 0; i < 2; i++) {
        KG_AUTO_BUF status = {0};
        assert_int_equal(in_child(child_limit, i ? "/bin/cat" : NULL, &status), 0);
        assert_capabilities(&status, kept_set);
        assert_status_has(&status, "Uid:\t0\t0\t0\t0");
    }
}

static void
child_limit_thrice(const void *arg)
{
    static const int first[] = {CAP_SETPCAP, CAP_KILL}, then[] = {CAP_KILL, CAP_SYS_ADMIN};
    struct kg_error err;
    (void)arg;
    check_done(privileges_limit(first, KG_ARRAY_LEN(first), &err), &err);
    check_done(privileges_limit(then, KG_ARRAY_LEN(then), &err), &err);
    check_done(privileges_limit(then, KG_ARRAY_LEN(then), &err), &err); // nothing is to be dropped
    say_status();
    CHECK(privileges_limit(NULL, 0, &err) == -1 && strstr(err.message, "bounding set"));
}

static void
test_what_a_process_lacks_it_does_not_get(void **state)
{
    KG_AUTO_BUF status = {0};
    (void)state;
    need_root();
    assert_int_equal(in_child(child_limit_thrice, NULL, &status), 0);
    assert_capabilities(&status, UINT64_C(1) << CAP_KILL);
}

// ---- The filter -----------------------------------------------------------------------------

static void
check_programs_are_impossible(void)
{
    char name[] = "true";
    char *const argv[] = {name, NULL};
    pid_t pid;
    CHECK_FAILS(execve("/bin/true", argv, environ), EPERM);
    CHECK_FAILS(execveat(AT_FDCWD, "/bin/true", argv, environ, 0), EPERM);
    CHECK(fork() == -1);
    CHECK_FAILS(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL), ENOSYS);
    CHECK_FAILS(syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, NULL),
                ENOSYS);
    CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) != 0);
    CHECK_FAILS(waitpid(-1, NULL, WNOHANG), ECHILD);
    CHECK_FAILS(ptrace(PTRACE_TRACEME, 0, NULL, NULL), EPERM);
    CHECK_FAILS(syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0), EPERM);
}

static void
check_sockets_are_refused(void)
{
    CHECK_FAILS(socket(AF_PACKET, SOCK_RAW, 0), ENOSYS);
    CHECK_FAILS(socket(AF_INET, SOCK_RAW, IPPROTO_TCP), ENOSYS);
    CHECK_FAILS(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), ENOSYS);
    CHECK_FAILS(socket(AF_ALG, SOCK_SEQPACKET, 0), ENOSYS);
    CHECK_FAILS(socket(AF_VSOCK, SOCK_STREAM, 0), ENOSYS);
    CHECK_FAILS(socket(AF_NETLINK, SOCK_RAW, 9), ENOSYS); // NETLINK_AUDIT
}

// As root, whom nothing else would stop.
static void
child_refused(const void *arg)
{
    struct kg_error err;
    (void)arg;
    check_done(privileges_filter(&err), &err);
    CHECK_FAILS(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
    CHECK_FAILS(umount2("/proc", MNT_DETACH), EPERM);
    CHECK_FAILS(chroot("/"), EPERM);
    CHECK_FAILS(setns(STDIN_FILENO, 0), EPERM);
    CHECK_FAILS(unshare(0), EPERM);
    CHECK_FAILS(unshare(CLONE_NEWUSER), EPERM);
    CHECK_FAILS(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL), ENOSYS);
    CHECK_FAILS(syscall(SYS_clone3, NULL, 0), ENOSYS);
    CHECK_FAILS(syscall(SYS_bpf, 0, NULL, 0), EPERM);
    CHECK_FAILS(syscall(SYS_keyctl, 0, 0, 0, 0, 0), EPERM);
    CHECK_FAILS(syscall(SYS_init_module, NULL, 0, ""), EPERM);
    CHECK_FAILS(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0), EPERM);
    CHECK_FAILS(syscall(SYS_pidfd_getfd, -1, 0, 0), EPERM);
    CHECK_FAILS(syscall(SYS_io_uring_setup, 1, NULL), ENOSYS);
    CHECK_FAILS(syscall(SYS_setuid, getuid()), EPERM);
    CHECK_FAILS(syscall(SYS_seccomp, 0, 0, NULL), ENOSYS);
    CHECK_FAILS(mknodat(AT_FDCWD, "/dev/shm/kg-never", S_IFIFO, 0), EPERM);
    CHECK_FAILS(prctl(PR_SET_SECUREBITS, 0), ENOSYS);
    CHECK_FAILS(ioctl(STDIN_FILENO, TIOCSTI, "x"), ENOSYS);
    CHECK_FAILS(prlimit(getpid(), RLIMIT_NOFILE, NULL, NULL), ENOSYS);
    check_sockets_are_refused();
    if (!SANITIZED)
        check_programs_are_impossible();
    say_status();
}

static void
test_calls_are_refused(void **state)
{
    KG_AUTO_BUF status = {0};
    (void)state;
    assert_int_equal(in_child(child_refused, NULL, &status), 0);
    assert_status_has(&status, "Seccomp:\t2");
    assert_status_has(&status, "NoNewPrivs:\t1");
}

static void
check_files(void)
{
    char folder[] = "/tmp/test_privileges.XXXXXX", path[64], other[64], byte;
    struct flock whole = {.l_type = F_WRLCK};
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/db", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fcntl(fd, F_SETLK, &whole) == 0);
    whole.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_SETLK, &whole) == 0 && fcntl(fd, F_OFD_SETLK, &whole) == 0);
    CHECK(flock(fd, LOCK_EX) == 0 && ftruncate(fd, 4096) == 0);
    CHECK(pwrite(fd, "abc", 3, 5) == 3 && pread(fd, &byte, 1, 5) == 1 && fdatasync(fd) == 0);
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(shared != MAP_FAILED && shared[5] == 'a' && munmap(shared, 4096) == 0);
    CHECK(fchmod(fd, 0640) == 0 && fchown(fd, (uid_t)-1, getgid()) == 0);
    CHECK(posix_fallocate(fd, 0, 8192) == 0 && futimens(fd, NULL) == 0);
    CHECK(renameat2(AT_FDCWD, path, AT_FDCWD, other, RENAME_NOREPLACE) == 0);
    CHECK(symlink("other", path) == 0 && readlink(path, &byte, 1) == 1 && byte == 'o');
    CHECK(unlink(path) == 0 && unlink(other) == 0 && rmdir(folder) == 0 && close(fd) == 0);
    CHECK(memfd_create("x", MFD_CLOEXEC) >= 0 && inotify_init1(IN_CLOEXEC) >= 0);
    CHECK(isatty(STDOUT_FILENO) == 0 && errno == ENOTTY);
}

static void
check_sockets(void)
{
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
    struct addrinfo *found;
    int pair[2], n, one = 1;
    for (size_t i = 0; i < KG_ARRAY_LEN(families); i++) {
        int fd = socket(families[i], SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0 || errno == EAFNOSUPPORT); // without IPv6
        CHECK(fd < 0 || (ioctl(fd, FIONBIO, &one) == 0 && close(fd) == 0));
    }
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS,
                          .cmsg_len = CMSG_LEN(sizeof(int))}};
    struct iovec byte = {.iov_base = &n, .iov_len = 1};
    struct msghdr message = {.msg_iov = &byte,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.head), &pair[0], sizeof(int));
    CHECK(sendmsg(pair[0], &message, MSG_NOSIGNAL) == 1);
    CHECK(ioctl(pair[1], FIONREAD, &n) == 0 && n == 1);
    CHECK(recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC) == 1 && message.msg_controllen > 0);
    CHECK(getaddrinfo("localhost", "80", NULL, &found) == 0);
    freeaddrinfo(found);
}

static void
check_waiting(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(EPOLL_CLOEXEC), counter = eventfd(1, EFD_CLOEXEC);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, 1000) == 1);
    CHECK(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC) >= 0);
    CHECK(syscall(SYS_pidfd_open, getpid(), 0) >= 0 && poll(NULL, 0, 1) == 0);
}

static void *
thread_name(void *arg)
{
    return pthread_setname_np(pthread_self(), "worker") == 0 ? arg : NULL;
}

static void
check_threads(void)
{
    struct rlimit files;
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, thread_name, &files) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == &files);
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(setpriority(PRIO_PROCESS, 0, 19) == 0);
}

// Ends by exit(), which under sanitizers looks for leaks.
static void
child_gateway(const void *user)
{
    struct kg_error err;
    if (user)
        check_done(privileges_drop(user, &err), &err);
    check_done(privileges_filter(&err), &err);
    check_threads();
    check_files();
    check_sockets();
    check_waiting();
    exit(0);
}

static void
test_the_gateway_can_work(void **state)
{
    KG_AUTO_BUF nothing = {0};
    (void)state;
    assert_int_equal(in_child(child_gateway, geteuid() == 0 ? &someone : NULL, &nothing), 0);
}

static void
child_aborts(const void *arg)
{
    const struct rlimit none = {0};
    struct kg_error err;
    (void)arg;
    check_done(privileges_filter(&err), &err);
    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    abort();
}

static void
child_calls_another_abi(const void *arg)
{
    const struct rlimit none = {0};
    struct kg_error err;
    (void)arg;
    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    check_done(privileges_filter(&err), &err);
#ifdef __x86_64__
    syscall(0x40000000 | SYS_getpid); // x32
#else
    raise(SIGSYS);
#endif
}

static void
test_signals_end_the_gateway(void **state)
{
    KG_AUTO_BUF nothing = {0};
    (void)state;
    int status = in_child(child_aborts, NULL, &nothing);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    status = in_child(child_calls_another_abi, NULL, &nothing);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_users),
        cmocka_unit_test(test_the_default_user),
        cmocka_unit_test(test_groups_of_a_user),
        cmocka_unit_test(test_users_of_the_machine),
        cmocka_unit_test(test_nothing_is_left_after_a_drop),
        cmocka_unit_test(test_groups_of_the_caller_are_dropped),
        cmocka_unit_test(test_kept_and_ambient_capabilities_are_dropped),
        cmocka_unit_test(test_threads_are_refused),
        cmocka_unit_test(test_root_is_no_user),
        cmocka_unit_test(test_a_limit_holds_for_programs),
        cmocka_unit_test(test_what_a_process_lacks_it_does_not_get),
        cmocka_unit_test(test_calls_are_refused),
        cmocka_unit_test(test_the_gateway_can_work),
        cmocka_unit_test(test_signals_end_the_gateway),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
