// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of the MCP core: an adapter with a test provider, and a client that
// collects messages.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mcp_priv.h"

// An outlet that collects messages.
struct sink {
    struct outlet base;
    json_t *sent;    // notifications
    json_t *answers; // one for each request; null: none
    int status;      // of the last answer
};

enum { PATIENCE_MS = 60 * 1000 };

struct mcp_fixture {
    struct loop *loop;
    struct mcp *mcp;
    struct mcp_session *session; // initialized, at MCP_2025_11_25
    struct sink sink;
    struct mcp_call *held; // the last call of the tool `hold`
    int cancels;
};

int mcp_setup(void **state);
int mcp_teardown(void **state);

// Parses JSON that has ' in place of ".
json_t *quoted(const char *fmt, ...) KG_PRINTF(1, 2);
// Receives a message from the session's client.
void say(struct mcp_fixture *f, const char *fmt, ...) KG_PRINTF(2, 3);
// Takes the only answer; waits for it if it is still being encoded.
json_t *take_answer(struct mcp_fixture *f);
// The same, but returns the code of its error; 0: it has a result.
int take_code(struct mcp_fixture *f);
// The result of a tool with an image of `len` bytes.
json_t *large_result(size_t len);
// Runs the loop for a moment.
void turn(struct mcp_fixture *f);

int run_mcp_io_tests(void);
