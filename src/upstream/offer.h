// SPDX-License-Identifier: Apache-2.0
// Which of a server's tools code may call: those that say that they only read, and those that the
// operator names; fewer, where the server describes more than there is room for.
#pragma once

#include <jansson.h>

#include "servers_file.h"
#include "tool_list.h"

enum {
    OFFER_BYTES_MAX = 256 << 10, // of all descriptions of a server, as JSON
    OFFER_TOOLS_MAX = TOOL_LIST_MAX,
};

struct offer {
    struct tool_list *tools; // by their own names; NULL: nothing has been listed
    json_t *described;       // [{"name": "server.tool", "server", "description", "input_schema"}]
    size_t n_listed;         // by the server
    size_t n_left_out;       // for want of room, or since they are not described properly
};

// Of what tools/list has answered, all pages together: an array. `server` is borrowed.
void offer_init(struct offer *offer, const struct server_spec *server, const json_t *listed);
void offer_fini(struct offer *offer);
