// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ socket of one channel, and the connection that leads to it.
#pragma once

#include "base.h"
#include "jupyter.h"

#include <czmq.h> // after base.h: it brings syslog.h, which has a LOG_ERR of its own

// Must be used and freed on the thread that created it; this is asserted.
struct channel_socket;

// Creates the socket, which listens in `dir`, and connects its only peer: `ret_fd` is the peer's
// end. The endpoint's name has been removed when this returns. shell and stdin get `identity` as
// their ZeroMQ routing id.
KG_MUST_CHECK struct channel_socket *socket_new(enum jupyter_channel channel, const char *identity,
                                                const char *dir, size_t max_message_bytes,
                                                int *ret_fd, struct kg_error *err);
// Its connection must be closed before. The socket itself is closed a moment later by the loop, or
// by socket_fini() if that is freed before.
void socket_free(struct channel_socket *sock, struct loop *loop);
// Closes the sockets that wait for that; may block for 100 ms.
void socket_fini(void);
// The descriptor to watch, which is edge-triggered (ZMQ_FD), and what can be done now (ZMQ_EVENTS).
int socket_fd(const struct channel_socket *sock);
int socket_events(const struct channel_socket *sock);

// A received message; all zeros is a valid empty one. `frames` point into `parts`.
struct socket_message {
    zmq_msg_t parts[JUPYTER_MAX_FRAMES];
    struct jupyter_frame frames[JUPYTER_MAX_FRAMES];
    size_t n_frames; // includes frames above the bound, which were dropped
    uint64_t cost;   // the sum of zmtp_frame_cost()
};

// Receives without waiting; false if there is no message.
bool socket_receive(const struct channel_socket *sock, struct socket_message *ret);
// Moves a message into the memory of a worker's job; any thread may then call its fini.
void socket_message_move(struct socket_message *to, struct socket_message *from);
void socket_message_fini(struct socket_message *message);

// Sends without waiting; false if the peer is not connected yet or its queue is full.
bool socket_send(const struct channel_socket *sock, const struct jupyter_outgoing *outgoing);
