// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ socket of one channel, and the connection that leads to it.
#pragma once

#include "base.h"
#include "jupyter.h"

#include <czmq.h> // after base.h: it brings syslog.h, which has a LOG_ERR of its own

// It is used, and freed, on the thread that made it; anything else is asserted against.
struct channel_socket;

// Makes the socket, lets it listen in `dir`, and connects the one peer that it will ever have:
// `ret_fd` is the peer's end. The endpoint's name is gone when this returns. shell and stdin get
// `identity` as their ZeroMQ routing id.
KG_MUST_CHECK struct channel_socket *socket_new(enum jupyter_channel channel, const char *identity,
                                                const char *dir, size_t max_message_bytes,
                                                int *ret_fd, struct kg_error *err);
// Its connection is to be closed before. The socket itself goes a moment later, when another one is
// made, read or freed, or by socket_fini().
void socket_free(struct channel_socket *sock);
// Closes what waits for that; may block for a moment.
void socket_fini(void);
// What to watch, edge-triggered (ZMQ_FD), and what can be done now (ZMQ_EVENTS).
int socket_fd(const struct channel_socket *sock);
int socket_events(const struct channel_socket *sock);

// A received message; all zero is a valid empty one. `frames` point into `parts`.
struct socket_message {
    zmq_msg_t parts[JUPYTER_MAX_FRAMES];
    struct jupyter_frame frames[JUPYTER_MAX_FRAMES];
    size_t n_frames; // counts also the frames above the bound, which were dropped
    uint64_t cost;   // as zmtp_frame_cost() counts
};

// Receives without waiting; false where nothing is there.
bool socket_receive(const struct channel_socket *sock, struct socket_message *ret);
// Moves a message to where a worker finds it; any thread may then end it.
void socket_message_move(struct socket_message *to, struct socket_message *from);
void socket_message_fini(struct socket_message *message);

// Sends without waiting; false where the peer is not there yet or takes no more.
bool socket_send(const struct channel_socket *sock, const struct jupyter_outgoing *outgoing);
