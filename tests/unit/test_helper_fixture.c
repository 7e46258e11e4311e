// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_helper.h"

enum { MAX_SANDBOXES = 3 };

// A test that failed has not freed what it had, and processes that are forked later inherit that.
static bool one_has_failed;

// ---- A fixture --------------------------------------------------------------------------------

static struct fixture *
fixture_new(const struct provisioner_engine *const *engines)
{
    struct fixture *f = KG_NEW(struct fixture);
    snprintf(f->state_dir, sizeof f->state_dir, "/tmp/kgXXXXXX");
    assert_non_null(mkdtemp(f->state_dir));
    id_random(f->gateway_id, 8);
    f->fd = -1;
    f->engine = (struct provisioner_settings){
        .engines = engines,
        .engine = "oci",
        .state_dir = f->state_dir,
        .gateway_id = f->gateway_id,
        .image = "host",
        .oci_runtime = "runc",
        .agent_path = KG_FAKE_AGENT,
        .limits = {.memory_mb = 100, .disk_mb = 16, .tmp_mb = 8, .cpus = 0.5, .pids = 32},
    };
    f->zygote = (struct zygote_spec){
        .kernel = "python",
        .argv = json_pack("[s, s, s]", "/bin/sh", "-c", "sleep 1000"),
        .kernel_argv = json_pack("[s]", "python"),
        .env = json_object(),
    };
    f->settings = (struct helper_server_settings){
        .engine = &f->engine,
        .zygote_library = KG_FAKE_AGENT, // of which the zygote makes nothing
        .zygotes = &f->zygote,
        .n_zygotes = 1,
        .max_sandboxes = MAX_SANDBOXES,
    };
    f->table =
        mmap(NULL, sizeof *f->table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(f->table != MAP_FAILED);
    fake_sandboxes = f->table;
    return f;
}

int
set_up_fake(void **state)
{
    static const struct provisioner_engine *const engines[] = {&fake_engine, NULL};
    *state = fixture_new(engines);
    return 0;
}

int
set_up_real(void **state)
{
    static const struct provisioner_engine *const engines[] = {&provisioner_oci, NULL};
    *state = fixture_new(engines);
    return 0;
}

// What a failed test has left.
static void
remove_sandboxes(struct fixture *f)
{
    one_has_failed |= f->helper != 0;
    helper_kill(f);
    if (count_folders(f) == 0 || f->engine.engines[0] == &fake_engine)
        return;
    KG_AUTO_FREE char *pattern = kg_asprintf("%s/sb/*", f->state_dir);
    glob_t found;
    helper_start(f);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            ask_about(f, HELPER_DESTROY, strrchr(found.gl_pathv[i], '/') + 1);
    }
    globfree(&found);
    helper_end(f);
}

int
tear_down(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    remove_sandboxes(f);
    assert_int_equal(path_remove_tree(f->state_dir, &err), 0);
    json_decref((json_t *)(uintptr_t)f->zygote.argv);
    json_decref((json_t *)(uintptr_t)f->zygote.kernel_argv);
    json_decref((json_t *)(uintptr_t)f->zygote.env);
    munmap(f->table, sizeof *f->table);
    free(f);
    return 0;
}

// ---- The helper -------------------------------------------------------------------------------

void
helper_start(struct fixture *f)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    fflush(NULL);
    f->helper = fork();
    if (f->helper == 0) {
        close(ends[1]);
        log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
        f->settings.fd = ends[0];
        int code = helper_serve(&f->settings);
        if (one_has_failed)
            _exit(code);
        exit(code); // with a look for leaks
    }
    assert_true(f->helper > 0);
    close(ends[0]);
    f->fd = ends[1];
    struct helper_reply started = hear(f, NULL);
    assert_int_equal(started.event, HELPER_STARTED);
    if (started.code)
        fail_msg("%s", started.message);
}

int
helper_wait(struct fixture *f)
{
    int status = 0;
    UNTIL_(waitpid(f->helper, &status, WNOHANG) == f->helper, usleep(1000));
    f->helper = 0;
    if (f->fd >= 0)
        close(KG_STEAL_FD(f->fd));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void
helper_end(struct fixture *f)
{
    close(KG_STEAL_FD(f->fd));
    assert_int_equal(helper_wait(f), 0);
}

void
helper_kill(struct fixture *f)
{
    if (f->helper == 0)
        return;
    kill(f->helper, SIGKILL);
    helper_wait(f);
}

size_t
helper_count_files(const struct fixture *f)
{
    KG_AUTO_FREE char *pattern = kg_asprintf("/proc/%d/fd/*", (int)f->helper);
    glob_t found;
    size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return n;
}

// ---- What is said -----------------------------------------------------------------------------

struct helper_request
request_of(enum helper_verb verb, const char *id)
{
    struct helper_request request = {.verb = verb};
    memcpy(request.id, id, strlen(id));
    if (verb == HELPER_CREATE)
        request.number = 60;
    if (verb == HELPER_LIMIT)
        request.number = 50;
    if (verb == HELPER_FORK)
        memcpy(request.fork, "abcdefgh", HELPER_FORK_LEN);
    return request;
}

uint32_t
say(struct fixture *f, struct helper_request request)
{
    request.serial = ++f->serial;
    assert_int_equal(helper_send(f->fd, &request, sizeof request, -1, 0), 0);
    return request.serial;
}

// Only sockets may come: no file of the machine.
static void
take_descriptor(int fd, int *ret_fd)
{
    struct stat st;
    if (ret_fd)
        *ret_fd = fd;
    if (fd < 0)
        return;
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    if (!ret_fd)
        close(fd);
}

struct helper_reply
hear(struct fixture *f, int *ret_fd)
{
    struct helper_reply reply;
    struct pollfd ready = {.fd = f->fd, .events = POLLIN};
    int fd;
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    ssize_t n = helper_receive(f->fd, &reply, sizeof reply, 0, &fd);
    assert_true(n > 0);
    assert_true(helper_reply_is_valid(&reply, (size_t)n));
    take_descriptor(fd, ret_fd);
    return reply;
}

struct helper_reply
hear_done(struct fixture *f, uint32_t serial)
{
    for (;;) {
        struct helper_reply reply = hear(f, NULL);
        if (reply.event == HELPER_DONE && reply.serial == serial)
            return reply;
    }
}

enum kg_code
ask(struct fixture *f, struct helper_request request)
{
    return hear_done(f, say(f, request)).code;
}

enum kg_code
ask_about(struct fixture *f, enum helper_verb verb, const char *id)
{
    return ask(f, request_of(verb, id));
}

size_t
count_listed(struct fixture *f)
{
    uint32_t serial = say(f, request_of(HELPER_LIST, ""));
    for (size_t n = 0;;) {
        struct helper_reply reply = hear(f, NULL);
        n += reply.event == HELPER_FOUND;
        if (reply.event == HELPER_DONE && reply.serial == serial)
            return n;
    }
}

// ---- What is left -----------------------------------------------------------------------------

static size_t
count_glob(const char *pattern)
{
    glob_t found;
    size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return n;
}

size_t
count_folders(const struct fixture *f)
{
    KG_AUTO_FREE char *pattern = kg_asprintf("%s/sb/*", f->state_dir);
    return count_glob(pattern);
}

// Those of the runtime, which has the state folder in its arguments, and its children.
static size_t
count_processes(const struct fixture *f)
{
    size_t n = 0;
    glob_t found;
    if (glob("/proc/[0-9]*/cmdline", 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char text[4096] = "";
        KG_AUTO_FD fd = open(found.gl_pathv[i], O_RDONLY | O_CLOEXEC);
        ssize_t len = fd >= 0 ? read(fd, text, sizeof text) : 0;
        n += len > 0 && memmem(text, (size_t)len, f->state_dir, strlen(f->state_dir));
    }
    globfree(&found);
    return n;
}

void
assert_nothing_left(struct fixture *f)
{
    KG_AUTO_BUF mounts = {0};
    struct kg_error err;
    KG_AUTO_FREE char *v1 = kg_asprintf("/sys/fs/cgroup/*/kernelgate-%s/kg-*", f->gateway_id);
    KG_AUTO_FREE char *v2 = kg_asprintf("/sys/fs/cgroup/kernelgate-%s/kg-*", f->gateway_id);
    KG_AUTO_FREE char *containers = kg_asprintf("%s/oci-runc/*", f->state_dir);
    assert_int_equal(count_folders(f), 0);
    assert_int_equal(count_glob(containers), 0);
    assert_int_equal(count_glob(v1) + count_glob(v2), 0);
    UNTIL_(count_processes(f) == 0, usleep(1000)); // a killed runtime takes a moment
    assert_int_equal(file_read("/proc/self/mountinfo", 1 << 20, &mounts, &err), 0);
    assert_null(strstr(mounts.data, f->state_dir));
}
