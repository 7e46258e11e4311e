// SPDX-License-Identifier: Apache-2.0
// The helper's side: it makes sandboxes and zygotes for a gateway that it does not trust. It reads
// no byte that a tenant has written, and no request but packets of helper_packet.h.
#pragma once

#include "provisioner.h"
#include "zygotes.h"

struct servers_file;

struct helper_server_settings {
    int fd;                                    // the connection with the gateway; owned
    const struct provisioner_settings *engine; // of the engine that makes the sandboxes
    const char *zygote_library;                // of struct zygotes_settings
    const struct zygote_spec *zygotes;         // by their numbers
    size_t n_zygotes;
    size_t max_sandboxes;
    const char *const *files; // that settings name, by their numbers; NULL in the place of one that
    size_t n_files;           // is not to be watched
    uid_t user;               // the gateway's, and its group: see trusted_open.h
    gid_t group;
    const struct servers_file *servers; // whose programs it starts; NULL: there are none
    int network;                        // of these: see server_processes_new()
};

// Serves until the gateway closes the connection, or breaks the protocol. Everything in `settings`
// is borrowed. Returns the exit code of the process.
int helper_serve(const struct helper_server_settings *settings);
