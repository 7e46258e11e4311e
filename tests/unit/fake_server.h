// SPDX-License-Identifier: Apache-2.0
// An HTTP server in the test's loop that answers as the test says. A connection has one request.
#pragma once

#include "loop.h"

enum { FAKE_SERVER_MAX_REQUESTS = 64 };

struct fake_answer {
    int status;
    const char *body;   // NULL: "{}"
    const char *header; // one more line, with its CRLF; NULL: none
    bool in_halves;     // with its length, and the second half of the body later
    bool open;          // the connection stays
    bool silent;        // nothing is sent
};

struct fake_server;

// `request` has the whole head and the body; the strings of the answer stay until the server is
// freed.
typedef struct fake_answer (*fake_server_fn)(const char *request, void *arg);

// Listens on the Unix socket `path`; NULL: on a TCP port of this machine.
struct fake_server *fake_server_new(struct loop *loop, const char *path, fake_server_fn answer,
                                    void *arg);
int fake_server_port(const struct fake_server *server);
void fake_server_free(struct fake_server *server);
