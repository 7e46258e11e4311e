// SPDX-License-Identifier: Apache-2.0
// One ZeroMQ socket for each channel and link. A new link gets a new socket, so that no message for
// a dead kernel can reach the next one or wait in its queue.

#include "socket_priv.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "zmtp_priv.h"

enum { SEND_QUEUE = 64, CLOSE_DELAY_MS = 100 };

// A ZeroMQ socket must not be used by two threads. Everything gets `zsock` from zsock_of(), which
// checks that.
struct channel_socket {
    zsock_t *zsock;
    pthread_t owner;
    STAILQ_ENTRY(channel_socket) next;
    int64_t freed_ms;
};

// libzmq 4.3 leaks an incomplete message if its socket is closed before libzmq's own thread has
// seen the end of the connection. So a socket is closed a moment later.
static STAILQ_HEAD(, channel_socket) closing = STAILQ_HEAD_INITIALIZER(closing);

static zsock_t *
zsock_of(const struct channel_socket *sock)
{
    assert(pthread_equal(sock->owner, pthread_self()));
    return sock->zsock;
}

static int
connect_unix(const char *path, struct kg_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    KG_AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot connect to the gateway's own socket");
    return KG_STEAL_FD(fd);
}

static int
listen_and_connect(zsock_t *sock, enum jupyter_channel channel, const char *dir,
                   struct kg_error *err)
{
    // libzmq removes the name of a socket some time after its close, so no name is used twice.
    char unique[9];
    id_random(unique, sizeof(unique) - 1);
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s-%s", dir, jupyter_channel_name(channel), unique);

    const size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;

    if (strlen(path) > max)
        return kg_error_set(err, KG_INTERNAL, 0,
                            "a socket's path is longer than %zu bytes: choose a shorter state-dir",
                            max);
    if (zsock_bind(sock, "ipc://%s", path) < 0)
        return kg_error_set(err, KG_INTERNAL, zmq_errno(), "cannot listen for the kernel's %s",
                            jupyter_channel_name(channel));
    int fd = connect_unix(path, err);
    unlink(path); // nothing else may connect
    return fd;
}

static void
close_those_freed_until(int64_t ms)
{
    struct channel_socket *sock;
    while ((sock = STAILQ_FIRST(&closing)) && sock->freed_ms <= ms) {
        zsock_t *zsock = zsock_of(sock);
        STAILQ_REMOVE_HEAD(&closing, next);
        zsock_destroy(&zsock);
        free(sock);
    }
}

static void
close_old_ones(void *arg)
{
    struct loop *loop = arg;
    close_those_freed_until(clock_mono_ms() - CLOSE_DELAY_MS);
    if (!STAILQ_EMPTY(&closing))
        loop_later(loop, CLOSE_DELAY_MS, close_old_ones, loop);
}

struct channel_socket *
socket_new(enum jupyter_channel channel, const char *identity, const char *dir,
           size_t max_message_bytes, int *ret_fd, struct kg_error *err)
{
    int64_t max_frame = (int64_t)max_message_bytes;
    zsock_t *zsock = zsock_new(channel == JUPYTER_IOPUB ? ZMQ_SUB : ZMQ_DEALER);
    if (zsock == NULL) {
        (void)kg_error_set(err, KG_INTERNAL, zmq_errno(), "cannot make a ZeroMQ socket");
        return NULL;
    }
    zsock_set_linger(zsock, 0);
    zmq_setsockopt(zsock_resolve(zsock), ZMQ_MAXMSGSIZE, &max_frame, sizeof(max_frame));
    if (channel == JUPYTER_IOPUB) {
        zsock_set_rcvhwm(zsock, 0); // at the mark a SUB drops silently; the guard limits it
        zsock_set_subscribe(zsock, "");
    } else {
        zsock_set_sndhwm(zsock, SEND_QUEUE);
    }
    if (channel == JUPYTER_SHELL || channel == JUPYTER_STDIN)
        zsock_set_identity(zsock, identity);
    *ret_fd = listen_and_connect(zsock, channel, dir, err);
    if (*ret_fd < 0) {
        zsock_destroy(&zsock);
        return NULL;
    }
    struct channel_socket *sock = KG_NEW(struct channel_socket);
    sock->zsock = zsock;
    sock->owner = pthread_self();
    return sock;
}

void
socket_free(struct channel_socket *sock, struct loop *loop)
{
    if (sock == NULL)
        return;
    if (STAILQ_EMPTY(&closing))
        loop_later(loop, CLOSE_DELAY_MS, close_old_ones, loop);
    sock->freed_ms = clock_mono_ms();
    STAILQ_INSERT_TAIL(&closing, sock, next);
}

void
socket_fini(void)
{
    if (!STAILQ_EMPTY(&closing))
        zclock_sleep(CLOSE_DELAY_MS);
    close_those_freed_until(INT64_MAX);
}

int
socket_fd(const struct channel_socket *sock)
{
    return zsock_fd(zsock_of(sock));
}

int
socket_events(const struct channel_socket *sock)
{
    return zsock_events(zsock_of(sock));
}

bool
socket_receive(const struct channel_socket *sock, struct socket_message *ret)
{
    void *handle = zsock_resolve(zsock_of(sock));
    bool more = true;

    ret->n_frames = 0;
    ret->cost = 0;
    while (more) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        int rc;
        do {
            rc = zmq_msg_recv(&part, handle, ZMQ_DONTWAIT);
        } while (rc < 0 && zmq_errno() == EINTR);
        if (rc < 0) {
            zmq_msg_close(&part);
            break;
        }
        more = zmq_msg_more(&part) != 0;
        ret->cost += zmtp_frame_cost(zmq_msg_size(&part));
        if (ret->n_frames < JUPYTER_MAX_FRAMES) {
            zmq_msg_t *kept = &ret->parts[ret->n_frames];
            zmq_msg_init(kept);
            zmq_msg_move(kept, &part);
            ret->frames[ret->n_frames] =
                (struct jupyter_frame){.data = zmq_msg_data(kept), .len = zmq_msg_size(kept)};
        }
        zmq_msg_close(&part);
        ret->n_frames++;
    }
    return ret->n_frames > 0;
}

void
socket_message_move(struct socket_message *to, struct socket_message *from)
{
    to->n_frames = from->n_frames;
    to->cost = from->cost;
    for (size_t i = 0; i < from->n_frames && i < JUPYTER_MAX_FRAMES; i++) {
        zmq_msg_init(&to->parts[i]);
        zmq_msg_move(&to->parts[i], &from->parts[i]);
        to->frames[i] = (struct jupyter_frame){.data = zmq_msg_data(&to->parts[i]),
                                               .len = zmq_msg_size(&to->parts[i])};
    }
    socket_message_fini(from);
}

void
socket_message_fini(struct socket_message *message)
{
    for (size_t i = 0; i < message->n_frames && i < JUPYTER_MAX_FRAMES; i++)
        zmq_msg_close(&message->parts[i]);
    message->n_frames = 0;
}

bool
socket_send(const struct channel_socket *sock, const struct jupyter_outgoing *outgoing)
{
    void *handle = zsock_resolve(zsock_of(sock));
    const size_t n_head = KG_ARRAY_LEN(outgoing->frames);
    size_t n = n_head + (outgoing->raw != NULL ? outgoing->raw->n_buffers : 0);

    for (size_t i = 0; i < n; i++) {
        const struct jupyter_frame *frame =
            i < n_head ? &outgoing->frames[i] : &outgoing->raw->buffers[i - n_head];
        int flags = ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : 0);
        int rc;
        do {
            rc = zmq_send(handle, frame->data, frame->len, flags);
        } while (rc < 0 && zmq_errno() == EINTR);
        // Only the first frame can be refused: a message's later frames belong to its pipe.
        if (rc < 0)
            return false;
    }
    return true;
}
