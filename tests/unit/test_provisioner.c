// SPDX-License-Identifier: Apache-2.0
// The engine "oci", on real containers: needs root and runc. PID 1 inside is fake_agent.c, which
// runs what it is told over the door.
#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "loop_wait.h"
#include "oci_priv.h"

struct fixture {
    struct loop *loop;
    char state_dir[32];
    char gateway_id[9];
    struct provisioner_settings settings;
    struct provisioner *provisioner;
    struct loop_timer *deadline;
    int n_waited; // callbacks that the loop still waits for
    int n_failed;
    struct kg_error err;
    int n_exits;
    char last_exit[20];
    int n_found;
    char last_found[20];
    char *found_meta;
};

// ---- The loop, until what is waited for has come ----------------------------------------------

// The test fails when the loop has returned: the end of the test runs it again.
static void
on_deadline(void *arg)
{
    struct fixture *f = arg;
    loop_stop(f->loop);
}

static void
wait_for(struct fixture *f, int n)
{
    f->n_waited += n;
    loop_timer_start(f->deadline, PATIENCE_MS);
    if (f->n_waited > 0)
        loop_run(f->loop);
    loop_timer_stop(f->deadline);
    if (f->n_waited > 0)
        fail_msg("%d callbacks did not come within %d ms", f->n_waited, PATIENCE_MS);
}

static void
arrived(struct fixture *f)
{
    if (--f->n_waited == 0)
        loop_stop(f->loop);
}

static void
on_done(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    if (err) {
        f->n_failed++;
        f->err = *err;
    }
    arrived(f);
}

static void
on_never(const struct kg_error *err, void *arg)
{
    (void)err, (void)arg;
    fail_msg("the callback of a cancelled operation came");
}

static void
on_exit_of(const char *id, void *arg)
{
    struct fixture *f = arg;
    f->n_exits++;
    snprintf(f->last_exit, sizeof(f->last_exit), "%s", id);
    arrived(f);
}

static void
on_found(const char *id, const json_t *meta, void *arg)
{
    struct fixture *f = arg;
    f->n_found++;
    snprintf(f->last_found, sizeof(f->last_found), "%s", id);
    free(f->found_meta);
    f->found_meta = meta ? json_dumps(meta, JSON_COMPACT) : NULL;
}

// ---- A fixture --------------------------------------------------------------------------------

static int
set_up(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct kg_error err;
    snprintf(f->state_dir, sizeof(f->state_dir), "/tmp/kgXXXXXX");
    assert_non_null(mkdtemp(f->state_dir));
    id_random(f->gateway_id, 8);
    f->loop = loop_new();
    f->deadline = loop_timer_new(f->loop, on_deadline, f);
    static const struct provisioner_engine *const engines[] = {&provisioner_oci, NULL};
    f->settings = (struct provisioner_settings){
        .engines = engines,
        .engine = "oci",
        .state_dir = f->state_dir,
        .gateway_id = f->gateway_id,
        .image = "host",
        .oci_runtime = "runc",
        .docker_host = "unix:///nonexistent/docker.sock",
        .agent_path = KG_FAKE_AGENT,
        .limits = {.memory_mb = 100, .disk_mb = 16, .tmp_mb = 8, .cpus = 0.5, .pids = 32},
    };
    f->provisioner = provisioner_new(f->loop, &f->settings, &err);
    if (!f->provisioner)
        fail_msg("%s", err.message);
    *state = f;
    return 0;
}

static struct provisioner_op *
start_create(struct fixture *f, const char *id)
{
    struct provisioner_sandbox_spec spec = {.id = id, .agent_idle_timeout_s = 60};
    struct kg_error err;
    struct provisioner_op *op =
        provisioner_create(f->provisioner, &spec, on_done, on_exit_of, f, &err);
    if (!op)
        fail_msg("%s", err.message);
    return op;
}

static void
create(struct fixture *f, const char *id)
{
    start_create(f, id);
    wait_for(f, 1);
    if (f->n_failed)
        fail_msg("%s", f->err.message);
}

static void
start_destroy(struct fixture *f, const char *id)
{
    struct kg_error err;
    assert_non_null(provisioner_destroy(f->provisioner, id, on_done, f, &err));
}

static void
destroy(struct fixture *f, const char *id)
{
    start_destroy(f, id);
    wait_for(f, 1);
    if (f->n_failed)
        fail_msg("%s", f->err.message);
}

// What a failed test has left.
static void
remove_sandboxes(struct fixture *f)
{
    KG_AUTO_FREE char *pattern = kg_asprintf("%s/sb/*", f->state_dir);
    glob_t found;
    f->n_waited = 0;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            start_destroy(f, strrchr(found.gl_pathv[i], '/') + 1);
        wait_for(f, (int)found.gl_pathc);
    }
    globfree(&found);
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    remove_sandboxes(f);
    provisioner_free(f->provisioner);
    loop_timer_free(f->deadline);
    loop_free(f->loop);
    assert_int_equal(path_remove_tree(f->state_dir, &err), 0);
    free(f->found_meta);
    free(f);
    return 0;
}

// ---- What is left on the machine --------------------------------------------------------------

static size_t
count_glob(const char *pattern)
{
    glob_t found;
    size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return n;
}

static size_t
count_cgroups(const struct fixture *f)
{
    KG_AUTO_FREE char *v1 = kg_asprintf("/sys/fs/cgroup/*/kernelgate-%s/kg-*", f->gateway_id);
    KG_AUTO_FREE char *v2 = kg_asprintf("/sys/fs/cgroup/kernelgate-%s/kg-*", f->gateway_id);
    return count_glob(v1) + count_glob(v2);
}

// That the files of control groups that the pattern matches hold a limit.
static void
assert_bounded(const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            KG_AUTO_BUF text = {0};
            struct kg_error err;
            assert_int_equal(file_read(found.gl_pathv[i], 64, &text, &err), 0);
            assert_in_range(strtoll(text.data, NULL, 10), 1, INT64_C(1) << 50);
        }
    }
    globfree(&found);
}

// That the one file that the pattern matches, if there is one, holds this number.
static void
assert_holds(const char *pattern, long long number)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) == 0) {
        KG_AUTO_BUF text = {0};
        struct kg_error err;
        assert_int_equal(found.gl_pathc, 1);
        assert_int_equal(file_read(found.gl_pathv[0], 64, &text, &err), 0);
        assert_int_equal(strtoll(text.data, NULL, 10), number);
    }
    globfree(&found);
}

static size_t
count_containers(const struct fixture *f)
{
    KG_AUTO_FREE char *pattern = kg_asprintf("%s/oci-runc/*", f->state_dir);
    return count_glob(pattern);
}

static size_t
count_folders(const struct fixture *f)
{
    KG_AUTO_FREE char *pattern = kg_asprintf("%s/sb/*", f->state_dir);
    return count_glob(pattern);
}

static void
assert_nothing_left(const struct fixture *f)
{
    KG_AUTO_BUF mounts = {0};
    struct kg_error err;
    assert_int_equal(count_cgroups(f), 0);
    assert_int_equal(count_containers(f), 0);
    assert_int_equal(count_folders(f), 0);
    assert_int_equal(file_read("/proc/self/mountinfo", 1 << 20, &mounts, &err), 0);
    assert_null(strstr(mounts.data, f->state_dir));
}

// ---- The door ---------------------------------------------------------------------------------

static int
listen_at_door(const struct fixture *f, const char *id)
{
    KG_AUTO_FREE char *door = provisioner_sandbox_dir(f->provisioner, id);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_in_range(snprintf(address.sun_path, sizeof(address.sun_path), "%s/door.sock", door), 1,
                    sizeof(address.sun_path) - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(address.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(chmod(address.sun_path, 0666), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

// Sends one line to the agent inside and returns all that it answers.
static char *
ask(int door, const char *line)
{
    struct pollfd ready = {.fd = door, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    KG_AUTO_FD fd = accept(door, NULL, NULL);
    assert_true(fd >= 0);
    KG_AUTO_FREE char *sent = kg_asprintf("%s\n", line);
    assert_int_equal(write(fd, sent, strlen(sent)), (ssize_t)strlen(sent));
    struct buf answer = {0};
    buf_append_str(&answer, "");
    for (ssize_t n; (n = read(fd, buf_reserve(&answer, 4096), 4096)) > 0;)
        answer.len += (size_t)n;
    *buf_reserve(&answer, 1) = '\0';
    return buf_take(&answer);
}

static void
assert_says(int door, const char *line, const char *expected)
{
    KG_AUTO_FREE char *answer = ask(door, line);
    if (strcmp(answer, expected) != 0)
        fail_msg("%s\nanswers: %s\nexpected: %s", line, answer, expected);
}

// ---- Tests ------------------------------------------------------------------------------------

static void
test_user_and_privileges(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    assert_says(door, "run id -u; id -g; id -G; id -un", "1000\n1000\n1000\nsandbox\n");
    assert_says(door, "run grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/1/status | tr -d '\\t'",
                "CapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\n"
                "CapBnd:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n");
    assert_says(door, "run ls /sys/class/net; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '",
                "lo\nlo\n");
    assert_says(door,
                "run cd /proc; echo [0-9] | tr ' ' '\\n' | head -1; cat 1/cmdline | tr '\\0' ' '",
                "1\n/run/kg-agent --door /run/kg/door.sock --idle-timeout 60 ");
    assert_says(door, "run hostname; pwd; echo $HOME $LANG; ulimit -n",
                "sandbox\n/mnt/data\n/tmp C.UTF-8\n4096\n");
    assert_says(door, "run grep -E 'core|signals|queue' /proc/self/limits | cut -c27- | tr -s ' '",
                "1 1 bytes \n1024 1024 signals \n0 0 bytes \n");
    destroy(f, "a");
    assert_nothing_left(f);
}

// Where a gateway was started with a hard limit of 0, as by `ulimit -c 0`, and may raise it.
static void
test_a_core_limit_of_none_is_raised(void **state)
{
    (void)state;
    const struct sandbox_rlimit wanted = {"CORE", RLIMIT_CORE, 1};
    int status = 0;
    pid_t pid = fork(); // without that right, a limit stays lowered
    if (pid == 0) {
        const struct rlimit none = {0}, one = {.rlim_max = 1};
        setrlimit(RLIMIT_CORE, &none);
        unsigned limit = sandbox_rlimit_raise(&wanted);
        setrlimit(RLIMIT_CORE, &none);
        _exit(limit == (setrlimit(RLIMIT_CORE, &one) == 0 ? 1 : 0) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

// The user inside is neither root nor user 1000 on the host, and another one for each sandbox.
static void
test_user_namespace(void **state)
{
    struct fixture *f = *state;
    const char *const ids[] = {"a", "b"};
    KG_AUTO_FREE char *maps[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        create(f, ids[i]);
        KG_AUTO_FD door = listen_at_door(f, ids[i]);
        maps[i] = ask(door, "run cat /proc/self/uid_map");
        unsigned inside[2];
        unsigned outside[2];
        assert_int_equal(
            sscanf(maps[i], "%u %u %*u %u %u", &inside[0], &outside[0], &inside[1], &outside[1]),
            4);
        assert_int_equal(inside[0], 0);
        assert_int_equal(inside[1], 1000);
        assert_true(outside[0] >= 0x70000000 && outside[1] >= 0x70000000);
    }
    assert_string_not_equal(maps[0], maps[1]);
    free(maps[1]); // the cleanup attribute covers the array's first element
    destroy(f, "a");
    destroy(f, "b");
}

static void
test_files(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    assert_says(door,
                "run for d in / /usr /usr/bin /etc /run/kg /run /opt /sys /sys/fs/cgroup/memory"
                " /dev /mnt /var /proc/sys; do (: >$d/x) 2>/dev/null && echo can write $d; done;"
                " for f in /run/kg-agent /etc/passwd /proc/sysrq-trigger; do"
                " (: >>$f) 2>/dev/null && echo can write $f; done",
                "");
    assert_says(door, "run : >/tmp/x && : >/mnt/data/x && : >/dev/shm/x && echo fine", "fine\n");
    assert_says(door,
                "run ls -d /root /boot /etc/shadow /etc/ssh /work /var/log /var/lib"
                " 2>/dev/null",
                "");
    assert_says(
        door,
        "run ls -A /home; cd /home/user && echo 1 >a && cat /mnt/data/a; echo 2 >/mnt/data/a"
        " && cat a && rm a; [ . -ef /mnt/data ] && echo same",
        "user\n1\n2\nsame\n");
    assert_says(door,
                "run cat /proc/cmdline; ls -A /sys/kernel/slab /sys/kernel/btf | grep -v :", "\n");
    assert_says(door, "run cut -d: -f1 /etc/passwd", "root\nsandbox\nnobody\n");
    assert_says(door,
                "run dd if=/dev/zero of=/mnt/data/big bs=1M count=17 2>&1 | grep -c 'No space'",
                "1\n");
    assert_says(door, "run dd if=/dev/zero of=/tmp/big bs=1M count=9 2>&1 | grep -c 'No space'",
                "1\n");
    assert_says(door, "run df --output=itotal /tmp /mnt/data | tail -n 2 | tr -d ' '",
                "2048\n3072\n");
    assert_says(door,
                "run awk '$2==\"/tmp\"||$2==\"/mnt/data\"{print $2,$4}' /proc/mounts |"
                " grep -c nosuid,nodev",
                "2\n");
    assert_says(door, "run stat -c '%u %g %a' /mnt/data /tmp /run/kg",
                "1000 1000 755\n0 0 1777\n65534 65534 755\n");
    destroy(f, "a");
}

static void
test_forbidden_calls(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    assert_says(door, "calls",
                "unshare=EPERM\nsetns=EPERM\nmount=EPERM\nopen_tree=EPERM\nptrace=EPERM\n"
                "bpf=EPERM\nkeyctl=EPERM\nadd_key=EPERM\nperf_event_open=EPERM\n"
                "userfaultfd=EPERM\nio_uring_setup=EPERM\nprocess_vm_readv=EPERM\n"
                "io_setup=EPERM\nmq_open=EPERM\nseccomp=EPERM\nremap_file_pages=EPERM\n"
                "socket_alg=EPERM\nsocket_vsock=EPERM\nclone_newuser=EPERM\nclone3=ENOSYS\n");
    destroy(f, "a");
}

// UDP: whether its queues count as the sandbox's memory depends on the machine's control groups.
static void
test_udp_where_it_is_counted(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    bool counted = access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) != 0;
    assert_int_equal(f->provisioner->counts_udp, counted);
    assert_says(door, "udp",
                counted ? "udp=allowed\nudp6=allowed\nudplite=EPERM\nicmp=EPERM\n"
                        : "udp=EPROTONOSUPPORT\nudp6=EPROTONOSUPPORT\nudplite=EPROTONOSUPPORT\n"
                          "icmp=EPROTONOSUPPORT\n");
    destroy(f, "a");
}

static void
test_terminals_and_files(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    assert_says(door, "terminals",
                "tiocsti=ENOTTY\ntiocsti_high=EPERM\ntiocsetd=ENOTTY\ntioclinux=ENOTTY\n"
                "tioccons=ENOTTY\ntiocgwinsz=allowed\n"
                "tiocgptn=allowed\ntiocgptn_signed=allowed\ntiocgetd=allowed\ntcgets=allowed\n"
                "tcsets=allowed\n");
    assert_says(door, "fcntls",
                "fs_getflags=ENOTTY\nfionread=allowed\ngetlease=EINVAL\nnotify=EINVAL\n"
                "getfl=allowed\npipe_size=allowed\nofd_lock=allowed\nunknown=EINVAL\n");
    destroy(f, "a");
}

static void
test_options_of_sockets(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    assert_says(door, "options",
                "nodelay=allowed\nkeepidle=allowed\nreuseaddr=allowed\nrcvlowat="
                "ENOPROTOOPT\nrcvbuf=allowed\n"
                "tos=allowed\nv6only=allowed\nattach_filter=ENOPROTOOPT\n"
                "attach_filter_high=ENOPROTOOPT\nattach_bpf=ENOPROTOOPT\n"
                "reuseport_cbpf=ENOPROTOOPT\nlock_filter=ENOPROTOOPT\ntimestamping=ENOPROTOOPT\n"
                "timestamping_new=ENOPROTOOPT\nzerocopy=ENOPROTOOPT\nreuseport=ENOPROTOOPT\n"
                "ip_recverr=ENOPROTOOPT\nipv6_recverr=ENOPROTOOPT\nip_options=ENOPROTOOPT\n"
                "membership=ENOPROTOOPT\nflowlabel=ENOPROTOOPT\nulp=ENOPROTOOPT\n"
                "congestion=ENOPROTOOPT\nmd5=ENOPROTOOPT\nother_level=ENOPROTOOPT\n"
                "tcp_info=allowed\nzerocopy_receive=ENOPROTOOPT\n");
    destroy(f, "a");
}

static void
test_forbidden_arguments(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    assert_says(door, "arguments",
                "prctl_seccomp=EINVAL\nprctl_sched_core=EINVAL\nprctl_dumpable=allowed\nsetrlimit_"
                "core=EPERM\nprlimit_core=EPERM\n"
                "prlimit_core_high=EPERM\nprlimit_core_read=allowed\nprlimit_data_read=allowed\n"
                "prlimit_data=allowed\nprlimit_by_pid=EPERM\nnetlink_route=EOPNOTSUPP\n"
                "netlink_generic=EOPNOTSUPP\ntcp=allowed\nsctp=EPERM\nmptcp=EPERM\ndccp="
                "EPERM\ndccp_high=EPERM\n"
                "seqpacket=EPERM\nraw=EPERM\npair=allowed\npair_tipc=EPERM\npair_inet=EPERM\n");
    destroy(f, "a");
}

static void
test_limits(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    const int64_t memory = (100 + 16 + 8) * INT64_C(1024) * 1024;
    KG_AUTO_FREE char *expected = kg_asprintf("%lld\n32\n50000\n", (long long)memory);
    assert_says(door,
                "run cd /sys/fs/cgroup; if [ -e memory.max ]; then cat memory.max pids.max;"
                " cut -d' ' -f1 cpu.max; else cat memory/memory.limit_in_bytes pids/pids.max"
                " cpu/cpu.cfs_quota_us; fi",
                expected);
    assert_says(door,
                "run (for i in $(seq 64); do sleep 30 >/dev/null 2>&1 & done) 2>/tmp/said;"
                " read line </tmp/said; echo ${line##*annot }; kill -9 -1", // all built in
                "fork\n");
    assert_says(door, "reap", "");
    // Files count as memory: both tmpfs full, and a process of 200 MiB on top is killed.
    assert_says(door, "run (head -c 200M /dev/zero | tail -c 200M | wc -c) 2>&-; echo alive",
                "0\nalive\n");
    destroy(f, "a");
}

// Version 1 counts buffers of TCP apart from all other memory.
static void
test_tcp_buffers_are_bounded(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    assert_says(door,
                "run cd /sys/fs/cgroup; [ -e memory ] || { echo 67108864; exit; };"
                " cat memory/memory.kmem.tcp.limit_in_bytes",
                "67108864\n");
    destroy(f, "a");
}

// All sandboxes are in one group, which has bounds and goes with the last of them.
static void
test_one_group_of_all(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *v1 = kg_asprintf("/sys/fs/cgroup/*/kernelgate-%s", f->gateway_id);
    KG_AUTO_FREE char *v2 = kg_asprintf("/sys/fs/cgroup/kernelgate-%s", f->gateway_id);
    create(f, "a");
    assert_true(count_cgroups(f) > 0);
    for (int i = 0; i < 2; i++) {
        KG_AUTO_FREE char *memory =
            kg_asprintf("%s/memory.%s", i ? v2 : v1, i ? "max" : "limit_in_bytes");
        KG_AUTO_FREE char *pids = kg_asprintf("%s/pids.max", i ? v2 : v1);
        KG_AUTO_FREE char *weight = kg_asprintf("%s/cpu.%s", i ? v2 : v1, i ? "weight" : "shares");
        assert_bounded(memory);
        assert_bounded(pids);
        assert_holds(weight, i ? 100 : 1024);
    }
    KG_AUTO_FREE char *with_swap = kg_asprintf("%s/memory.memsw.limit_in_bytes", v1);
    KG_AUTO_FREE char *swap = kg_asprintf("%s/memory.swap.max", v2);
    assert_bounded(with_swap);
    assert_holds(swap, 0);
    struct provisioner_traits traits = provisioner_traits(f->provisioner);
    int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
    assert_string_equal(traits.engine, "oci");
    assert_true(traits.memory_bound > 0 && traits.memory_bound <= machine / 10 * 9);
    destroy(f, "a");
    provisioner_free(f->provisioner);
    assert_int_equal(count_glob(v1) + count_glob(v2), 0);
    struct kg_error err;
    f->provisioner = provisioner_new(f->loop, &f->settings, &err);
    assert_non_null(f->provisioner);
}

static void
test_how_many_sessions_there_may_be(void **state)
{
    static const int64_t GIB = INT64_C(1) << 30;
    static const struct {
        int64_t bound, memory_mb, max_files, found;
    } cases[] = {
        {0, 512, 524288, 10},                     // nothing bounds them together
        {2 * GIB / 10 * 9, 512, 524288, 10},      // a machine of 2 GiB
        {24 * GIB / 10 * 9, 512, 524288, 43},     // of 24 GiB
        {24 * GIB / 10 * 9, 1024, 524288, 21},    // whose sandboxes have more each
        {24 * GIB / 10 * 9, 64, 524288, 43},      // or less
        {24 * GIB / 10 * 9, 1048576, 524288, 10}, //
        {1024 * GIB / 10 * 9, 512, 524288, 512},  // of 1 TiB
        {1024 * GIB / 10 * 9, 512, 20000, 312},   // whose gateway may open few files
        {24 * GIB / 10 * 9, 512, 256, 10},        //
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++)
        assert_int_equal(
            provisioner_sessions_for(cases[i].bound, cases[i].memory_mb, cases[i].max_files),
            cases[i].found);
}

static void
test_exit_is_noticed(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    create(f, "b");
    KG_AUTO_FD door = listen_at_door(f, "b");
    free(ask(door, "exit"));
    wait_for(f, 1);
    assert_int_equal(f->n_exits, 1);
    assert_string_equal(f->last_exit, "b");
    destroy(f, "b");
    assert_int_equal(count_folders(f), 1);
    destroy(f, "a"); // its exit is not told
    assert_int_equal(f->n_exits, 1);
    assert_nothing_left(f);
}

static void
test_exit_of_a_forgotten_one(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    create(f, "b");
    provisioner_forget(f->provisioner, "a");
    provisioner_forget(f->provisioner, "unknown");
    KG_AUTO_FD door_a = listen_at_door(f, "a");
    KG_AUTO_FD door_b = listen_at_door(f, "b");
    free(ask(door_a, "exit"));
    free(ask(door_b, "exit"));
    wait_for(f, 1);
    assert_string_equal(f->last_exit, "b");
    destroy(f, "a");
    destroy(f, "b");
    assert_int_equal(f->n_exits, 1);
    assert_nothing_left(f);
}

static void
test_destroy_is_idempotent(void **state)
{
    struct fixture *f = *state;
    destroy(f, "unknown");
    create(f, "a");
    start_destroy(f, "a");
    start_destroy(f, "a");
    wait_for(f, 2);
    assert_int_equal(f->n_failed, 0);
    assert_nothing_left(f);
    struct kg_error err;
    assert_null(provisioner_destroy(f->provisioner, "../x", on_done, f, &err));
}

static void
test_many_at_once(void **state)
{
    struct fixture *f = *state;
    enum { N = 16 };
    char ids[N][3];
    for (int i = 0; i < N; i++) {
        snprintf(ids[i], sizeof(ids[i]), "s%c", 'a' + i);
        start_create(f, ids[i]);
    }
    wait_for(f, N);
    assert_int_equal(f->n_failed, 0);
    assert_int_equal(count_containers(f), N);
    for (int i = 0; i < N; i++)
        start_destroy(f, ids[i]);
    wait_for(f, N);
    assert_int_equal(f->n_failed, 0);
    assert_nothing_left(f);
}

static void
cancel_op(void *arg)
{
    provisioner_op_cancel(arg);
}

// One is cancelled while it waits in the queue, one while the runtime works on it.
static void
test_cancelled_create_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct provisioner_sandbox_spec a = {.id = "a", .agent_idle_timeout_s = 60};
    struct provisioner_sandbox_spec b = {.id = "b", .agent_idle_timeout_s = 60};
    struct kg_error err;
    struct provisioner_op *queued =
        provisioner_create(f->provisioner, &a, on_never, on_exit_of, f, &err);
    struct provisioner_op *running =
        provisioner_create(f->provisioner, &b, on_never, on_exit_of, f, &err);
    assert_non_null(queued);
    assert_non_null(running);
    assert_int_equal(count_folders(f), 2);
    provisioner_op_cancel(queued);
    KG_AUTO(loop_timer) timer = loop_timer_new(f->loop, cancel_op, running);
    loop_timer_start(timer, 3);
    start_destroy(f, "a"); // both wait for what goes on in the background
    start_destroy(f, "b");
    wait_for(f, 2);
    assert_int_equal(f->n_failed, 0);
    assert_nothing_left(f);
}

static void
write_script(const char *path, const char *text)
{
    struct kg_error err;
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0755, &err), 0);
    assert_int_equal(chmod(path, 0755), 0);
}

// A runtime that passes the trial and fails later.
static void
test_failing_runtime(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *script = kg_asprintf("%s/flaky", f->state_dir);
    write_script(script,
                 "#!/bin/sh\ncase \"$*\" in\n*--detach*) exit 9;;\nesac\nexec runc \"$@\"\n");
    provisioner_free(f->provisioner);
    f->settings.oci_runtime = script;
    struct kg_error err;
    f->provisioner = provisioner_new(f->loop, &f->settings, &err);
    assert_non_null(f->provisioner);
    start_create(f, "a");
    wait_for(f, 1);
    assert_int_equal(f->n_failed, 1);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_non_null(strstr(f->err.message, "exit code 9"));
    assert_nothing_left(f);
}

static void
restart(struct fixture *f)
{
    struct kg_error err;
    provisioner_free(f->provisioner);
    f->provisioner = provisioner_new(f->loop, &f->settings, &err);
    assert_non_null(f->provisioner);
}

static void
on_inodes_finding(const char *what, bool ok, const char *detail, void *arg)
{
    char *found = arg;
    if (strstr(what, ", own inodes"))
        snprintf(found, 512, "%s %s", ok ? "ok" : "missing", detail);
}

// What cannot be an overlay is bind-mounted, and the doctor says so.
static void
test_runtime_without_overlays(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *script = kg_asprintf("%s/without", f->state_dir);
    write_script(script, "#!/bin/sh\nlast=\nfor a in \"$@\"; do\n"
                         "[ \"$last\" = --bundle ] && grep -q overlay $a/config.json && exit 7\n"
                         "last=$a\ndone\nexec runc \"$@\"\n");
    create(f, "a");
    KG_AUTO_FD with = listen_at_door(f, "a");
    assert_says(with, "run grep -c ' - overlay .*lowerdir=' /proc/self/mountinfo | grep -c '[1-9]'",
                "1\n");
    destroy(f, "a");
    f->settings.oci_runtime = script;
    restart(f);
    create(f, "b");
    KG_AUTO_FD without = listen_at_door(f, "b");
    assert_says(without, "run id -un; grep -c lowerdir= /proc/self/mountinfo", "sandbox\n0\n");
    destroy(f, "b");
    char found[512] = "";
    assert_non_null(provisioner_doctor(&f->settings, on_inodes_finding, found).engine);
    assert_non_null(strstr(found, "missing the machine's files are shared"));
    assert_nothing_left(f);
}

static void
on_users_finding(const char *what, bool ok, const char *detail, void *arg)
{
    char *found = arg;
    if (strstr(what, ", user namespace"))
        snprintf(found, 512, "%s %s", ok ? "ok" : "missing", detail);
}

// The doctor says what may be done about it.
static void
test_runtime_without_user_namespaces(void **state)
{
    struct fixture *f = *state;
    char found[512] = "";
    assert_non_null(provisioner_doctor(&f->settings, on_users_finding, found).engine);
    assert_string_equal(found, "ok every sandbox has its own user on the host");
    KG_AUTO_FREE char *script = kg_asprintf("%s/without", f->state_dir);
    write_script(script,
                 "#!/bin/sh\nlast=\nfor a in \"$@\"; do\n"
                 "[ \"$last\" = --bundle ] && grep -q uidMappings $a/config.json && exit 7\n"
                 "last=$a\ndone\nexec runc \"$@\"\n");
    f->settings.oci_runtime = script;
    assert_non_null(provisioner_doctor(&f->settings, on_users_finding, found).engine);
    assert_non_null(strstr(found, "missing "));
    assert_non_null(strstr(found, "exit code 7; sysctl user.max_user_namespaces is "));
    assert_nothing_left(f);
}

static void
test_runtime_error_is_told(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    struct provisioner_settings settings = f->settings;
    settings.oci_runtime = "/bin/false";
    assert_null(provisioner_new(f->loop, &settings, &err));
    assert_non_null(strstr(err.message, "/bin/false failed with exit code 1"));
    settings.oci_runtime = "no-such-runtime";
    assert_null(provisioner_new(f->loop, &settings, &err));
    assert_non_null(strstr(err.message, "no-such-runtime is not installed"));
    settings = f->settings;
    KG_AUTO_FREE char *agent = kg_asprintf("%s/agent", f->state_dir);
    write_script(agent, "no program");
    settings.agent_path = agent;
    assert_null(provisioner_new(f->loop, &settings, &err));
    assert_non_null(strstr(err.message, "exec format error"));
    settings = f->settings;
    settings.image = "/usr"; // a folder that is no rootfs
    assert_null(provisioner_new(f->loop, &settings, &err));
    assert_non_null(strstr(err.message, "image: /usr lacks /proc"));
    assert_nothing_left(f);
}

static void
recover(struct fixture *f)
{
    struct kg_error err;
    f->n_found = 0;
    assert_non_null(provisioner_recover(f->provisioner, on_found, on_done, on_exit_of, f, &err));
    wait_for(f, 1);
    if (f->n_failed)
        fail_msg("%s", f->err.message);
}

static void
test_recover(void **state)
{
    struct fixture *f = *state;
    recover(f); // nothing was ever made
    assert_int_equal(f->n_found, 0);
    create(f, "a");
    json_auto_t *meta = json_pack("{s:s}", "owner", "me");
    struct kg_error err;
    assert_non_null(provisioner_claim(f->provisioner, "a", meta, 0, on_done, f, &err));
    wait_for(f, 1);
    assert_int_equal(f->n_failed, 0);
    restart(f);
    recover(f);
    assert_int_equal(f->n_found, 1);
    assert_string_equal(f->last_found, "a");
    assert_string_equal(f->found_meta, "{\"owner\":\"me\"}");

    KG_AUTO_FD door = listen_at_door(f, "a");
    free(ask(door, "exit"));
    wait_for(f, 1);
    assert_string_equal(f->last_exit, "a");
    restart(f);
    recover(f); // dead now
    assert_int_equal(f->n_found, 0);
    assert_nothing_left(f);
}

static void
test_recover_unclaimed(void **state)
{
    struct fixture *f = *state;
    create(f, "a");
    restart(f);
    recover(f);
    assert_int_equal(f->n_found, 1);
    assert_null(f->found_meta);
    destroy(f, "a");
    assert_nothing_left(f);
}

// A folder without a container, a container without a folder, one whose owner cannot be read.
static void
test_recover_removes_halves(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    KG_AUTO_FREE char *half = kg_asprintf("%s/sb/half", f->state_dir);
    KG_AUTO_FREE char *bare = kg_asprintf("%s/sb/bare", f->state_dir);
    KG_AUTO_FREE char *meta = kg_asprintf("%s/sb/bad/meta.json", f->state_dir);
    create(f, "bare");
    create(f, "bad");
    assert_int_equal(path_remove_tree(bare, &err), 0);
    assert_int_equal(file_write_atomic(meta, "{", 1, 0600, &err), 0);
    assert_int_equal(dir_make(half, 0700, &err), 0);
    assert_int_equal(count_containers(f), 2);
    restart(f);
    recover(f);
    assert_int_equal(f->n_found, 0);
    assert_nothing_left(f);
}

static void
stop_loop(void *arg)
{
    loop_stop(arg);
}

// The gateway dies while a runtime is at work, at this moment or that.
static void
test_recover_after_death_in_create(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(loop_timer) timer = loop_timer_new(f->loop, stop_loop, f->loop);
    for (int delay_ms = 1; delay_ms < 40; delay_ms += 6) {
        struct provisioner_sandbox_spec spec = {.id = "a", .agent_idle_timeout_s = 60};
        struct kg_error err;
        struct provisioner_op *op =
            provisioner_create(f->provisioner, &spec, on_done, on_exit_of, f, &err);
        assert_non_null(op);
        f->n_waited = 1;
        loop_timer_start(timer, delay_ms);
        loop_run(f->loop);
        if (f->n_waited > 0)
            provisioner_op_cancel(op);
        loop_timer_stop(timer);
        f->n_waited = 0;
        restart(f); // kills the runtime
        recover(f);
        destroy(f, "a");
        assert_nothing_left(f);
    }
}

// Where the user that is root inside could not get to the state folder, it is the gateway's own.
static void
test_private_parent_folder(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    KG_AUTO_FREE char *parent = kg_asprintf("%s/private", f->state_dir);
    KG_AUTO_FREE char *nested = kg_asprintf("%s/private/state", f->state_dir);
    assert_int_equal(dir_make(parent, 0700, &err), 0);
    assert_int_equal(dir_make(nested, 0700, &err), 0);
    f->settings.state_dir = nested;
    restart(f);
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    KG_AUTO_FREE char *map = ask(door, "run cat /proc/self/uid_map");
    unsigned root;
    unsigned user;
    assert_int_equal(sscanf(map, " 0 %u 1 1000 %u 1", &root, &user), 2);
    assert_int_equal(root, geteuid());
    assert_true(user >= 0x70000000);
    destroy(f, "a");
    assert_int_equal(count_cgroups(f), 0);
}

// An image that is a folder: here one with the mount points and nothing else.
static void
test_folder_image(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    KG_AUTO_FREE char *image = kg_asprintf("%s/image", f->state_dir);
    const char *const points[] = {"",     "/proc",     "/dev", "/sys",   "/tmp",
                                  "/mnt", "/mnt/data", "/run", "/run/kg"};
    for (size_t i = 0; i < KG_ARRAY_LEN(points); i++) {
        KG_AUTO_FREE char *path = kg_asprintf("%s%s", image, points[i]);
        assert_int_equal(dir_make(path, 0755, &err), 0);
    }
    provisioner_free(f->provisioner);
    f->settings.image = image;
    f->provisioner = provisioner_new(f->loop, &f->settings, &err);
    assert_null(f->provisioner);
    assert_non_null(strstr(err.message, "lacks /run/kg-agent"));
    KG_AUTO_FREE char *agent = kg_asprintf("%s/run/kg-agent", image);
    write_script(agent, "");
    f->provisioner = provisioner_new(f->loop, &f->settings, &err);
    assert_non_null(f->provisioner);
    create(f, "a");
    KG_AUTO_FD door = listen_at_door(f, "a");
    KG_AUTO_FREE char *calls = ask(door, "calls");
    assert_non_null(strstr(calls, "mount=EPERM\n"));
    assert_says(door, "run true", ""); // there is no /bin/sh
    destroy(f, "a");
    assert_nothing_left(f);
}

static void
on_finding(const char *what, bool ok, const char *detail, void *arg)
{
    int *n_runtimes = arg;
    print_message("%s: %s (%s)\n", what, ok ? "ok" : "missing", detail);
    if (!strcmp(what, "oci: runc") && ok)
        (*n_runtimes)++;
}

static void
test_doctor(void **state)
{
    struct fixture *f = *state;
    int n_runtimes = 0;
    int64_t bound = provisioner_traits(f->provisioner).memory_bound;
    f->settings.oci_runtime = "auto";
    struct provisioner_traits traits = provisioner_doctor(&f->settings, on_finding, &n_runtimes);
    assert_string_equal(traits.engine, "oci");
    assert_true(traits.memory_bound == bound);
    assert_int_equal(n_runtimes, 1);
    f->settings.oci_runtime = "/bin/false";
    assert_null(provisioner_doctor(&f->settings, on_finding, &n_runtimes).engine);
    assert_nothing_left(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    if (geteuid() != 0) {
        print_error("test_provisioner makes real containers: it must run as root\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        TEST(test_user_and_privileges),
        cmocka_unit_test(test_a_core_limit_of_none_is_raised),
        TEST(test_user_namespace),
        TEST(test_files),
        TEST(test_forbidden_calls),
        TEST(test_forbidden_arguments),
        TEST(test_udp_where_it_is_counted),
        TEST(test_terminals_and_files),
        TEST(test_options_of_sockets),
        TEST(test_limits),
        TEST(test_tcp_buffers_are_bounded),
        TEST(test_one_group_of_all),
        cmocka_unit_test(test_how_many_sessions_there_may_be),
        TEST(test_exit_is_noticed),
        TEST(test_exit_of_a_forgotten_one),
        TEST(test_destroy_is_idempotent),
        TEST(test_many_at_once),
        TEST(test_cancelled_create_leaves_nothing),
        TEST(test_failing_runtime),
        TEST(test_runtime_without_overlays),
        TEST(test_runtime_without_user_namespaces),
        TEST(test_runtime_error_is_told),
        TEST(test_recover),
        TEST(test_recover_unclaimed),
        TEST(test_recover_removes_halves),
        TEST(test_recover_after_death_in_create),
        TEST(test_private_parent_folder),
        TEST(test_folder_image),
        TEST(test_doctor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
