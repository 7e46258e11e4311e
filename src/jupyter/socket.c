// SPDX-License-Identifier: Apache-2.0
// One ZeroMQ socket per channel and link. A new link gets a new socket, so that nothing meant for a
// kernel that died can reach, or wait in, the queue of the next.

#include "socket_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "zmtp_priv.h"

enum { SEND_QUEUE = 64 }; // messages

static int
connect_unix(const char *path, struct kg_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    KG_AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot connect to %s", path);
    return KG_STEAL_FD(fd);
}

static int
listen_and_connect(zsock_t *sock, enum jupyter_channel channel, const char *dir,
                   struct kg_error *err)
{
    // libzmq removes the name of a socket some time after it was closed: never use one twice.
    char unique[9];
    id_random(unique, sizeof(unique) - 1);
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s-%s", dir, jupyter_channel_name(channel), unique);

    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return kg_error_set(err, KG_INTERNAL, 0, "socket path too long: %s", path);
    if (zsock_bind(sock, "ipc://%s", path) < 0)
        return kg_error_set(err, KG_INTERNAL, zmq_errno(), "cannot listen on %s", path);
    int fd = connect_unix(path, err);
    unlink(path); // nobody else is to connect
    return fd;
}

zsock_t *
socket_new(enum jupyter_channel channel, const char *dir, size_t max_message_bytes, int *ret_fd,
           struct kg_error *err)
{
    int64_t max_frame = (int64_t)max_message_bytes;
    zsock_t *sock = zsock_new(channel == JUPYTER_IOPUB ? ZMQ_SUB : ZMQ_DEALER);

    if (sock == NULL) {
        (void)kg_error_set(err, KG_INTERNAL, zmq_errno(), "cannot make a ZeroMQ socket");
        return NULL;
    }
    zsock_set_linger(sock, 0);
    zmq_setsockopt(zsock_resolve(sock), ZMQ_MAXMSGSIZE, &max_frame, sizeof(max_frame));
    if (channel == JUPYTER_IOPUB) {
        zsock_set_rcvhwm(sock, 0); // at its mark a SUB drops silently; the guard bounds it
        zsock_set_subscribe(sock, "");
    } else {
        zsock_set_sndhwm(sock, SEND_QUEUE);
    }
    *ret_fd = listen_and_connect(sock, channel, dir, err);
    if (*ret_fd < 0)
        zsock_destroy(&sock);
    return sock;
}

bool
socket_receive(zsock_t *sock, struct socket_message *ret)
{
    void *handle = zsock_resolve(sock);
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
socket_message_fini(struct socket_message *message)
{
    for (size_t i = 0; i < message->n_frames && i < JUPYTER_MAX_FRAMES; i++)
        zmq_msg_close(&message->parts[i]);
    message->n_frames = 0;
}

bool
socket_send(zsock_t *sock, const struct jupyter_outgoing *outgoing)
{
    void *handle = zsock_resolve(sock);
    size_t n = KG_ARRAY_LEN(outgoing->frames);

    for (size_t i = 0; i < n; i++) {
        const struct jupyter_frame *frame = &outgoing->frames[i];
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
