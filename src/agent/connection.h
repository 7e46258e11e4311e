// SPDX-License-Identifier: Apache-2.0
// Where a kernel listens: its connection file, the folder of that and of its sockets, dialling in.
#pragma once

#include "base.h"
#include "target.h"

struct connection {
    char *dir;  // private, below the temporary folder; NULL: none
    char *file; // the connection file in it
    char *ip;   // as the connection file says: the stem of the socket paths, or 127.0.0.1
    bool tcp;
    int ports[TARGET_N_CHANNELS];
};

enum { CONNECTION_ID_LEN = 8 }; // characters, each one of a-z2-7

// Chooses the endpoints and writes the connection file, which only this user can read:
// `<tmp_dir>/.kg-<kernel>-<id>/connection.json`.
KG_MUST_CHECK int connection_make(const char *tmp_dir, const char *kernel, const char *id, bool tcp,
                                  const char *key, struct connection *ret, struct kg_error *err);
// Creates the FIFO `output` beside the connection file, and opens it for non-blocking reads.
KG_MUST_CHECK int connection_make_output(const struct connection *connection, struct kg_error *err);
// Removes the folder with all in it; an all-zero connection is fine.
void connection_fini(struct connection *connection);
// A non-blocking descriptor; KG_PROVISIONER_UNAVAILABLE where nothing listens (yet).
KG_MUST_CHECK int connection_dial(const struct connection *connection, enum target_channel channel,
                                  struct kg_error *err);
