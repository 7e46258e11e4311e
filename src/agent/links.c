// SPDX-License-Identifier: Apache-2.0
// Dialling the door. The protocol of a link: the agent says "KGLINK 1\n"; the gateway, when it
// needs the link, "<target>\n"; the agent "OK\n" or "ERR <text>\n"; after OK bytes flow both ways.
// A link of a gateway that dials begins with its target. One to the target "egress" waits here
// until a connection out of the sandbox, or code that calls tools, needs it.
#include "links.h"

#include <errno.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "link_iopub.h"
#include "port_dial.h"
#include "splice.h"

enum {
    IDLE_LINKS = 4,
    MAX_LINKS = 384,
    BACKOFF_MIN_MS = 50,
    BACKOFF_MAX_MS = 1000,
};

static const char hello[] = "KGLINK 1\n";
static const char *const hellos_out[] = {[LINKS_OUT] = "KGDIAL 1\n", [LINKS_TOOLS] = "KGTOOL 1\n"};

// Idle while `splice` is NULL: until the gateway names a target or, of a `way_out`, until a
// connection needs it.
struct link {
    TAILQ_ENTRY(link) entry;
    struct links *links;
    uint64_t epoch;
    bool way_out;
    int fd; // -1 once the splice owns it
    struct loop_fd *watch;
    char line[TARGET_LINE_MAX + 1];
    size_t len;
    char kernel[TARGET_NAME_MAX + 1];
    struct splice *splice;
    struct conversation *conversation; // carries calls
    struct port_dial *dial;            // until the port has answered
    bool taken;                        // no longer idle
};

struct links {
    struct loop *loop;
    struct links_settings settings;
    TAILQ_HEAD(, link) list;
    int n_links;
    int n_idle;
    int64_t backoff_ms;
    struct loop_timer *dial_timer;
    struct loop_timer *idle_timer;
};

static void
link_close(struct link *link)
{
    struct links *links = link->links;

    TAILQ_REMOVE(&links->list, link, entry);
    links->n_links--;
    if (!link->taken)
        links->n_idle--;
    if (links->n_links == 0)
        loop_timer_start(links->idle_timer, (int64_t)links->settings.idle_timeout_s * 1000);
    loop_fd_free(link->watch);
    if (link->fd >= 0)
        close(link->fd);
    splice_free(link->splice);
    port_dial_cancel(link->dial);
    server_drop(link->conversation);
    free(link);
}

static void
dial_later(struct links *links)
{
    if (!links->settings.door_path || loop_timer_active(links->dial_timer))
        return;
    loop_timer_start(links->dial_timer, links->backoff_ms);
    links->backoff_ms =
        links->backoff_ms * 2 < BACKOFF_MAX_MS ? links->backoff_ms * 2 : BACKOFF_MAX_MS;
}

static void
dial_now(struct links *links)
{
    links->backoff_ms = BACKOFF_MIN_MS;
    if (links->settings.door_path)
        loop_timer_start(links->dial_timer, 0);
}

static void
on_splice_end(void *arg)
{
    struct link *link = arg;
    struct links *links = link->links;

    link_close(link);
    if (links->n_idle < IDLE_LINKS)
        dial_later(links);
}

static void
on_conversation_end(void *arg)
{
    struct link *link = arg;

    link->conversation = NULL;
    on_splice_end(link);
}

// What the gateway tells errors apart by (sandbox/link_line.c).
static const char *
prefix_of(enum kg_code code)
{
    return code == KG_NOT_FOUND        ? "not found: "
           : code == KG_PORT_CLOSED    ? "closed: "
           : code == KG_PORT_TIMEOUT   ? "timeout: "
           : code == KG_PORT_FORBIDDEN ? "forbidden: "
                                       : "";
}

static void
link_refuse(struct link *link, const struct kg_error *err)
{
    KG_AUTO_BUF answer = {0};

    buf_printf(&answer, "ERR %s%s\n", prefix_of(err->code), err->message);
    (void)send(link->fd, answer.data, answer.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    link_close(link);
}

// The gateway links stdin for clients of the messaging protocol. These expect a result before the
// reply, so nothing may be delayed any more.
static void
stop_lingering(const struct links *links, const char *kernel)
{
    struct link *link;

    TAILQ_FOREACH(link, &links->list, entry) {
        if (link->splice && strcmp(link->kernel, kernel) == 0)
            splice_set_linger(link->splice, NULL);
    }
}

// Answers OK; false: the gateway has left, and the link is gone.
static bool
link_accept(struct link *link)
{
    if (send(link->fd, "OK\n", 3, MSG_NOSIGNAL | MSG_DONTWAIT) == 3)
        return true;
    link_close(link);
    return false;
}

// It is no longer idle.
static void
link_take(struct link *link)
{
    link->links->n_idle--;
    link->taken = true;
}

static void
on_port_dialled(int port_fd, const struct kg_error *err, void *arg)
{
    struct link *link = arg;
    KG_AUTO_FD fd = port_fd;

    link->dial = NULL;
    if (fd < 0) {
        link_refuse(link, err);
        return;
    }
    if (!link_accept(link))
        return;
    loop_fd_free(KG_STEAL(link->watch));
    link->splice = splice_new(link->links->loop, KG_STEAL_FD(link->fd), KG_STEAL_FD(fd),
                              SPLICE_HALF_CLOSED_MS, on_splice_end, link);
}

// The answer comes when the port has answered; until then the link's end is noticed.
static void
link_join_port(struct link *link, int port)
{
    struct links *links = link->links;
    struct kg_error err;

    if (links->settings.port_is_own(port, links->settings.arg)) {
        (void)kg_error_set(&err, KG_PORT_FORBIDDEN, 0, "port %d is the sandbox's own", port);
        link_refuse(link, &err);
        return;
    }
    link_take(link);
    link->dial = port_dial_start(links->loop, port, on_port_dialled, link);
}

static void
link_join(struct link *link)
{
    struct links *links = link->links;
    struct kg_error err = {0};
    struct target target;

    dial_now(links);
    if (target_parse(link->line, link->len, &target, &err) != 0) {
        link_refuse(link, &err);
        return;
    }
    if (target.channel == TARGET_PORT) {
        link_join_port(link, target.port);
        return;
    }
    if (target.channel == TARGET_STDIN)
        stop_lingering(links, target.kernel);
    bool calls = target.channel == TARGET_RPC;
    int fd = calls ? -1 : links->settings.connect(&target, links->settings.arg, &err);
    if (fd < 0 && !calls) {
        link_refuse(link, &err);
        return;
    }
    if (!link_accept(link)) {
        if (fd >= 0)
            close(fd);
        return;
    }
    memcpy(link->kernel, target.kernel, sizeof link->kernel);
    loop_fd_free(KG_STEAL(link->watch));
    link_take(link);
    if (calls) {
        link->conversation =
            server_take(links->settings.server, KG_STEAL_FD(link->fd), on_conversation_end, link);
        if (!link->conversation)
            on_splice_end(link);
        return;
    }
    link->splice = splice_new(links->loop, KG_STEAL_FD(link->fd), fd, SPLICE_HALF_CLOSED_MS,
                              on_splice_end, link);
    if (target.channel == TARGET_IOPUB)
        splice_set_linger(link->splice, iopub_can_linger);
}

// Until it is answered, the gateway has no reason to send more than its one line; and nothing at
// all on a way out.
static void
on_link(int fd, int events, void *arg)
{
    struct link *link = arg;
    struct links *links = link->links;
    (void)events;

    ssize_t n = recv(fd, link->line + link->len, sizeof link->line - link->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || link->way_out || link->dial) {
        link_close(link);
        dial_later(links);
        return;
    }
    link->len += (size_t)n;
    const char *newline = memchr(link->line, '\n', link->len);
    if (newline == link->line + link->len - 1) {
        link->len--;
        link_join(link);
    } else if (newline || link->len == sizeof link->line) {
        link_close(link);
        dial_later(links);
    }
}

// Dials the door and says `text`. Returns a non-blocking descriptor; -1 with errno.
static int
link_dial(const char *door_path, const char *text)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(text);

    if (strlen(door_path) >= sizeof addr.sun_path)
        return -1;
    memcpy(addr.sun_path, door_path, strlen(door_path) + 1);
    KG_AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof addr) != 0)
        return -1;
    if (send(fd, text, len, MSG_NOSIGNAL) != (ssize_t)len)
        return -1;
    return KG_STEAL_FD(fd);
}

static struct link *
link_add(struct links *links, int fd)
{
    struct link *link = KG_NEW(struct link);

    link->links = links;
    link->fd = fd;
    link->watch = loop_fd_new(links->loop, fd, LOOP_READ, on_link, link);
    TAILQ_INSERT_TAIL(&links->list, link, entry);
    links->n_links++;
    links->n_idle++;
    loop_timer_stop(links->idle_timer);
    return link;
}

static int
dial(struct links *links)
{
    int fd = link_dial(links->settings.door_path, hello);

    if (fd < 0)
        return -1;
    (void)link_add(links, fd);
    return 0;
}

static void
wait_for_way_out(struct link *link)
{
    link->way_out = true;
    if (send(link->fd, "OK\n", 3, MSG_NOSIGNAL | MSG_DONTWAIT) != 3)
        link_close(link);
}

static void
cut_below(struct links *links, uint64_t epoch)
{
    struct link *next;

    for (struct link *link = TAILQ_FIRST(&links->list); link; link = next) {
        next = TAILQ_NEXT(link, entry);
        if (link->epoch < epoch)
            link_close(link);
    }
}

void
links_take(struct links *links, int fd, uint64_t epoch, const char *target)
{
    size_t len = strlen(target);

    cut_below(links, epoch);
    if (links->n_links >= MAX_LINKS || len > TARGET_LINE_MAX) {
        close(fd);
        return;
    }
    struct link *link = link_add(links, fd);
    link->epoch = epoch;
    memcpy(link->line, target, len);
    link->len = len;
    if (strcmp(target, "egress") == 0)
        wait_for_way_out(link);
    else
        link_join(link);
}

int
links_open(struct links *links, enum links_purpose purpose)
{
    const char *hello_out = hellos_out[purpose];
    struct link *link;

    if (links->settings.door_path)
        return link_dial(links->settings.door_path, hello_out);
    TAILQ_FOREACH(link, &links->list, entry) {
        if (link->way_out) {
            int fd = KG_STEAL_FD(link->fd);
            link_close(link);
            // A program may say nothing for long: the gateway has to know that the link is used.
            if (send(fd, hello_out, strlen(hello_out), MSG_NOSIGNAL | MSG_DONTWAIT) !=
                (ssize_t)strlen(hello_out)) {
                close(fd);
                return -1;
            }
            return fd;
        }
    }
    return -1;
}

static void
on_dial(void *arg)
{
    struct links *links = arg;

    while (links->n_idle < IDLE_LINKS && links->n_links < MAX_LINKS) {
        if (dial(links) != 0) {
            // The gateway is there, only its queue is full: others dial, too.
            if (errno == EAGAIN)
                links->backoff_ms = BACKOFF_MIN_MS;
            dial_later(links);
            return;
        }
    }
}

static void
on_idle(void *arg)
{
    struct links *links = arg;
    links->settings.on_idle_timeout(links->settings.arg);
}

struct links *
links_new(struct loop *loop, const struct links_settings *settings)
{
    struct links *links = KG_NEW(struct links);

    links->loop = loop;
    links->settings = *settings;
    TAILQ_INIT(&links->list);
    links->dial_timer = loop_timer_new(loop, on_dial, links);
    links->idle_timer = loop_timer_new(loop, on_idle, links);
    loop_timer_start(links->idle_timer, (int64_t)settings->idle_timeout_s * 1000);
    dial_now(links);
    return links;
}

void
links_free(struct links *links)
{
    struct link *link;

    if (!links)
        return;
    while ((link = TAILQ_FIRST(&links->list)))
        link_close(link);
    loop_timer_free(links->dial_timer);
    loop_timer_free(links->idle_timer);
    free(links);
}

void
links_finish_kernel(struct links *links, const char *kernel)
{
    struct link *link;

    TAILQ_FOREACH(link, &links->list, entry) {
        if (link->splice && strcmp(link->kernel, kernel) == 0)
            splice_finish(link->splice);
    }
}

void
links_close_kernel(struct links *links, const char *kernel)
{
    struct link *next;

    for (struct link *link = TAILQ_FIRST(&links->list); link; link = next) {
        next = TAILQ_NEXT(link, entry);
        if (link->splice && strcmp(link->kernel, kernel) == 0)
            link_close(link);
    }
}
