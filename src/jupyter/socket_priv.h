// SPDX-License-Identifier: Apache-2.0
// The ZeroMQ socket of one channel, and the connection that leads to it.
#pragma once

#include "base.h"
#include "jupyter.h"

#include <czmq.h> // after base.h: it brings syslog.h, which has a LOG_ERR of its own

// Makes the socket, lets it listen in `dir`, and connects the one peer that it will ever have:
// `ret_fd` is the peer's end. The endpoint's name is gone when this returns.
KG_MUST_CHECK zsock_t *socket_new(enum jupyter_channel channel, const char *dir,
                                  size_t max_message_bytes, int *ret_fd, struct kg_error *err);

// A received message; all zero is a valid empty one. `frames` point into `parts`.
struct socket_message {
    zmq_msg_t parts[JUPYTER_MAX_FRAMES];
    struct jupyter_frame frames[JUPYTER_MAX_FRAMES];
    size_t n_frames; // counts also the frames above the bound, which were dropped
    uint64_t cost;   // as zmtp_frame_cost() counts
};

// Receives without waiting; false where nothing is there.
bool socket_receive(zsock_t *sock, struct socket_message *ret);
void socket_message_fini(struct socket_message *message);

// Sends without waiting; false where the peer is not there yet or takes no more.
bool socket_send(zsock_t *sock, const struct jupyter_outgoing *outgoing);
