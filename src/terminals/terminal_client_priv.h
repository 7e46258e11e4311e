// SPDX-License-Identifier: Apache-2.0
// One client, for the files of this module. Each uses only those below it:
//
//     terminals.c         the list, and how a client begins
//     terminal_client.c   from the command to the client, and the end
//     terminal_input.c    from the client to the command
#pragma once

#include <sys/queue.h>

#include "budget.h"
#include "http.h"
#include "loop.h"
#include "session.h"
#include "session_commands.h"
#include "terminals.h"

struct terminals {
    struct loop *loop;
    TAILQ_HEAD(, terminal_client) clients;
    struct budget input; // bytes that clients have sent
};

// What a client has typed and the command has not read, and the size that it wants.
struct terminal_input {
    struct buf waiting;
    struct buf sending; // in the call
    struct sandbox_call *call;
    struct loop_timer *retry; // the command does not read now
    struct sandbox_call *resizing;
    int cols, rows; // wanted; 0: nothing has changed
    struct budget_hold hold;
};

struct terminal_client {
    TAILQ_ENTRY(terminal_client) link;
    struct terminals *terminals;
    struct http_request *request;
    const struct terminal_dialect *dialect;
    void (*fail)(struct http_request *request, const struct kg_error *err);
    struct session *session; // valid while it has a command or a call
    char id[SANDBOX_COMMAND_ID_MAX + 1];
    struct sandbox_call *starting;
    struct session_command *command;
    struct websocket *ws; // NULL: it has not begun
    struct http_credential *key;
    struct loop_timer *recheck;
    struct loop_timer *slow; // the command waits for this client
    bool paused;
    bool skips; // output, until it has read what waits
    int64_t skipped;
    int64_t touched_ms;
    struct terminal_tail tail;
    struct terminal_input input;
};

// ---- terminal_client.c -----------------------------------------------------------------------

// The request is not answered yet, and owns it. The wish has an id.
struct terminal_client *terminal_client_new(struct terminals *terminals,
                                            struct http_request *request,
                                            const struct terminal_wish *wish);
// A loop_fn.
void terminal_client_free(void *client);
// Follows the command, and answers the request when it does.
void terminal_client_join(struct terminal_client *client);
// With a status of RFC 6455, section 7.4. The client is gone.
void terminal_client_close(struct terminal_client *client, int status, const char *reason);

// ---- terminal_input.c ------------------------------------------------------------------------

void terminal_input_init(struct terminal_client *client);
void terminal_input_fini(struct terminal_client *client);
// Counts as use of the session, at most once a second.
void terminal_client_touch(struct terminal_client *client);
// Events of its WebSocket, and its key.
void terminal_on_message(bool is_text, const void *data, size_t len, void *client);
bool terminal_may_receive(size_t len, void *client);
void terminal_on_recheck(void *client);
void terminal_on_key_checked(enum http_validity validity, void *client);
