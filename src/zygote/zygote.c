// SPDX-License-Identifier: Apache-2.0
// The life of one zygote, and its protocol: packets on a Unix socket, each a JSON document.
//
//     helper   {"argv", "warmup"?, "late"?, "prepare"?}                    library, filter
//     zygote   {"ready", "milliseconds"} or {"error"}
//     helper   {"id", "connection_file", "output", "folder",
//               "user_namespace"}                         pidfd, control groups
//     zygote   {"id", "pid"} or {"id", "error"}           in any order
#include "zygote_priv.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "provisioner.h"

enum {
    READY_TIMEOUT_MS = 120 * 1000,
    FORK_TIMEOUT_MS = 20 * 1000, // above the zygote's own
    MESSAGE_MAX = 64 * 1024,
};

static void
zygote_set_state(struct zygote *zygote, enum zygote_state state)
{
    static const char *const names[] = {
        [ZYGOTE_STARTING] = "starting",
        [ZYGOTE_WARMING] = "warming",
        [ZYGOTE_READY] = "ready",
        [ZYGOTE_ENDED] = "ended",
    };
    assert(state == ZYGOTE_ENDED ? zygote->state != ZYGOTE_ENDED : state == zygote->state + 1);
    log_debug("zygote state", LOG_STR("kernel", zygote->plan->kernel),
              LOG_STR("zygote", zygote->id), LOG_STR("from", names[zygote->state]),
              LOG_STR("to", names[state]));
    zygote->state = state;
}

// ---- Its end --------------------------------------------------------------------------------

static void
zygote_answer(struct zygote *zygote, struct zygote_fork *fork, int pid, const struct kg_error *err)
{
    struct zygote_fork asked = *fork;
    TAILQ_REMOVE(&zygote->forks, fork, link);
    free(fork);
    if (asked.fn)
        asked.fn(pid, err, asked.arg);
}

static void
answer_all(struct zygote *zygote, const struct kg_error *err)
{
    for (struct zygote_fork *fork; (fork = TAILQ_FIRST(&zygote->forks));)
        zygote_answer(zygote, fork, 0, err);
}

// Finishes in a later turn of the loop, since the caller may be the provisioner or a fork's owner.
static void
zygote_fail(struct zygote *zygote, const struct kg_error *reason)
{
    if (zygote->state == ZYGOTE_ENDED)
        return;
    zygote_set_state(zygote, ZYGOTE_ENDED);
    zygote->failure = *reason;
    loop_fd_free(KG_STEAL(zygote->watch));
    loop_timer_start(zygote->timer, 0);
}

static void
fail_with(struct zygote *zygote, int number, const char *what)
{
    struct kg_error err;
    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, number, "%s", what);
    zygote_fail(zygote, &err);
}

static void
on_removed(const struct kg_error *err, void *arg)
{
    (void)err;
    (void)arg; // never called: the operation is cancelled at once
}

void
zygote_end(struct zygote *zygote)
{
    struct kg_error err = {0};
    provisioner_op_cancel(zygote->making);
    if (!zygote->making) {
        struct provisioner_op *op =
            provisioner_destroy(zygote->provisioner, zygote->id, on_removed, NULL, &err);
        if (op)
            provisioner_op_cancel(op); // it continues in the background
        else
            log_warning("a zygote's container stays", LOG_ERR(&err));
    }
    (void)kg_error_set(&err, KG_DRAINING, 0, "the zygote was ended");
    answer_all(zygote, &err);
    loop_fd_free(zygote->watch);
    loop_timer_free(zygote->timer);
    if (zygote->listen_fd >= 0)
        close(zygote->listen_fd);
    if (zygote->fd >= 0)
        close(zygote->fd); // so it exits
    free(zygote->door);
    free(zygote);
}

static void
on_timer(void *arg)
{
    struct zygote *zygote = arg;
    const struct zygote_fork *first = TAILQ_FIRST(&zygote->forks);
    if (zygote->state == ZYGOTE_READY && (!first || first->deadline_ms > clock_mono_ms())) {
        if (first)
            loop_timer_start(zygote->timer, first->deadline_ms - clock_mono_ms());
        return;
    }
    if (zygote->state != ZYGOTE_ENDED) {
        fail_with(zygote, 0,
                  zygote->state == ZYGOTE_READY ? "the zygote did not answer in time"
                                                : "the zygote was not ready in time");
        return;
    }
    answer_all(zygote, &zygote->failure);
    zygote->events->on_ended(&zygote->failure, zygote->arg); // frees it
}

// ---- Messages -------------------------------------------------------------------------------

static int
send_message(const struct zygote *zygote, const json_t *message, const int *fds, size_t n_fds,
             struct kg_error *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * (PROVISIONER_MAX_GROUPS + 1))];
    } control = {0};
    KG_AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);
    struct iovec part = {.iov_base = text, .iov_len = text ? strlen(text) : 0};
    struct msghdr header = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = CMSG_SPACE(sizeof(int) * n_fds),
    };
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    assert(rights);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
    memcpy(CMSG_DATA(rights), fds, sizeof(int) * n_fds);
    if (!text || part.iov_len > MESSAGE_MAX ||
        sendmsg(zygote->fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno, "the zygote takes no message");
    return 0;
}

// A zygote runs trusted code only; its answers are checked nevertheless.
static void
take_answer(struct zygote *zygote, const json_t *message)
{
    struct kg_error err;
    const char *failure = json_string_value(json_object_get(message, "error"));
    json_int_t pid = json_integer_value(json_object_get(message, "pid"));
    struct zygote_fork *fork;
    TAILQ_FOREACH(fork, &zygote->forks, link) {
        if (fork->id == json_integer_value(json_object_get(message, "id")))
            break;
    }
    if (!fork) {
        fail_with(zygote, 0, "the zygote answered without a request");
        return;
    }
    if (pid > 1 && pid <= INT32_MAX) {
        zygote->n_forks++;
        zygote_answer(zygote, fork, (int)pid, NULL);
        return;
    }
    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the zygote %.160s",
                       failure ? failure : "sent a malformed answer");
    zygote_answer(zygote, fork, 0, &err);
}

static void
take_message(struct zygote *zygote, const json_t *message)
{
    const char *failure = json_string_value(json_object_get(message, "error"));
    const json_t *ready = json_object_get(message, "ready");
    if (zygote->state == ZYGOTE_READY) {
        take_answer(zygote, message);
        return;
    }
    if (!json_is_integer(ready)) {
        fail_with(zygote, 0, failure ? failure : "the zygote sent a malformed message");
        return;
    }
    zygote_set_state(zygote, ZYGOTE_READY);
    loop_timer_stop(zygote->timer);
    log_info("kernels can be forked", LOG_STR("kernel", zygote->plan->kernel),
             LOG_STR("zygote", zygote->id), LOG_INT("modules", json_integer_value(ready)),
             LOG_INT("ms", clock_mono_ms() - zygote->started_ms));
    zygote->events->on_ready(zygote->arg);
}

static void
on_message(int fd, int events, void *arg)
{
    static char text[MESSAGE_MAX];
    struct zygote *zygote = arg;
    (void)events;
    ssize_t len = recv(fd, text, sizeof text, MSG_DONTWAIT);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len <= 0) {
        fail_with(zygote, len < 0 ? errno : 0, "the zygote has ended");
        return;
    }
    json_auto_t *message = json_loadb(text, (size_t)len, 0, NULL);
    take_message(zygote, message);
}

// ---- Its start ------------------------------------------------------------------------------

static void
on_connect(int fd, int events, void *arg)
{
    struct zygote *zygote = arg;
    struct kg_error err;
    (void)events;
    zygote->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (zygote->fd < 0)
        return;
    loop_fd_free(zygote->watch);
    zygote->watch = loop_fd_new(zygote->loop, zygote->fd, LOOP_READ, on_message, zygote);
    close(KG_STEAL_FD(zygote->listen_fd));
    zygote_set_state(zygote, ZYGOTE_WARMING);
    const int fds[] = {zygote->library_fd, zygote->filter_fd};
    if (send_message(zygote, zygote->plan->hello, fds, KG_ARRAY_LEN(fds), &err) < 0)
        zygote_fail(zygote, &err);
}

static void
on_made(const struct kg_error *err, void *arg)
{
    struct zygote *zygote = arg;
    zygote->making = NULL;
    if (err)
        zygote_fail(zygote, err);
}

static void
on_exit_of(const char *id, void *arg)
{
    (void)id;
    fail_with(arg, 0, "the zygote's container has ended");
}

struct zygote *
zygote_new(struct loop *loop, struct provisioner *provisioner, const struct zygote_plan *plan,
           int library_fd, int filter_fd, const struct zygote_events *events, void *arg,
           struct kg_error *err)
{
    struct zygote *zygote = KG_NEW(struct zygote);
    zygote->loop = loop;
    zygote->provisioner = provisioner;
    zygote->plan = plan;
    zygote->events = events;
    zygote->arg = arg;
    zygote->library_fd = library_fd;
    zygote->filter_fd = filter_fd;
    zygote->listen_fd = zygote->fd = -1;
    zygote->started_ms = clock_mono_ms();
    TAILQ_INIT(&zygote->forks);
    zygote->timer = loop_timer_new(loop, on_timer, zygote);
    id_random(zygote->id, 10);
    const struct provisioner_zygote program = {.argv = plan->argv, .env = plan->env};
    const struct provisioner_sandbox_spec spec = {.id = zygote->id, .zygote = &program};
    zygote->making = provisioner_create(provisioner, &spec, on_made, on_exit_of, zygote, err);
    if (!zygote->making) {
        zygote_end(zygote);
        return NULL;
    }
    KG_AUTO_FREE char *dir = provisioner_sandbox_dir(provisioner, zygote->id);
    zygote->door = kg_asprintf("%s/door.sock", dir);
    zygote->listen_fd = unix_listen(zygote->door, SOCK_SEQPACKET, 0600, 1, err);
    if (zygote->listen_fd < 0) {
        zygote_end(zygote);
        return NULL;
    }
    zygote->watch = loop_fd_new(loop, zygote->listen_fd, LOOP_READ, on_connect, zygote);
    loop_timer_start(zygote->timer, READY_TIMEOUT_MS);
    return zygote;
}

// ---- Forks ----------------------------------------------------------------------------------

struct zygote_fork *
zygote_ask(struct zygote *zygote, const char *sandbox_id, const char *id, zygote_forked_fn fn,
           void *arg, struct kg_error *err)
{
    struct provisioner_entry entry;
    int fds[PROVISIONER_MAX_GROUPS + 1];
    if (provisioner_open_entry(zygote->provisioner, sandbox_id, &entry, err) < 0)
        return NULL;
    fds[0] = entry.pidfd;
    memcpy(fds + 1, entry.groups, entry.n_groups * sizeof fds[0]);
    KG_AUTO_FREE char *folder = kg_asprintf("/tmp/.kg-%s-%s", zygote->plan->kernel, id);
    KG_AUTO_FREE char *file = kg_asprintf("%s/connection.json", folder);
    KG_AUTO_FREE char *output = kg_asprintf("%s/output", folder);
    json_auto_t *request = json_pack(
        "{s:I, s:s, s:s, s:s, s:b}", "id", (json_int_t)++zygote->n_asked, "connection_file", file,
        "output", output, "folder", "/mnt/data", "user_namespace", entry.user_namespace);
    int sent = send_message(zygote, request, fds, entry.n_groups + 1, err);
    provisioner_entry_fini(&entry);
    if (sent < 0)
        return NULL;
    struct zygote_fork *fork = KG_NEW(struct zygote_fork);
    fork->id = zygote->n_asked;
    fork->fn = fn;
    fork->arg = arg;
    fork->deadline_ms = clock_mono_ms() + FORK_TIMEOUT_MS;
    if (TAILQ_EMPTY(&zygote->forks))
        loop_timer_start(zygote->timer, FORK_TIMEOUT_MS);
    TAILQ_INSERT_TAIL(&zygote->forks, fork, link);
    log_debug("a zygote is asked to fork", LOG_STR("zygote", zygote->id),
              LOG_STR("sandbox", sandbox_id), LOG_INT("number", fork->id));
    return fork;
}

void
zygote_fork_cancel(struct zygote_fork *fork)
{
    if (fork)
        fork->fn = NULL;
}
