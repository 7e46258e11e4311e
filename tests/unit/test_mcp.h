// SPDX-License-Identifier: Apache-2.0
// What the tests of the MCP core share: an adapter with a provider of their own, a client that
// collects what it is sent.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mcp_priv.h"

// An outlet that keeps everything, without a transport.
struct sink {
    struct outlet base;
    json_t *sent;    // notifications and questions
    json_t *answers; // one a request; null where there was none
    int status;      // of the last answer
};

struct mcp_fixture {
    struct loop *loop;
    struct mcp *mcp;
    struct mcp_session *session; // initialized, at MCP_2025_11_25
    struct sink sink;
    struct mcp_call *held; // the last call of the tool `hold`
    int cancels;
    json_t *asked; // what the tool `ask` was answered; a string where it failed
};

int mcp_setup(void **state);
int mcp_teardown(void **state);

// JSON with ' for ", so that it can be read here.
json_t *quoted(const char *fmt, ...) KG_PRINTF(1, 2);
// Sends a message of the session's client.
void say(struct mcp_fixture *f, const char *fmt, ...) KG_PRINTF(2, 3);
// Takes the only answer; waits for it where it is still being encoded.
json_t *take_answer(struct mcp_fixture *f);
// Its error's code; 0 where it has a result.
int take_code(struct mcp_fixture *f);
// A tool's result with an image of so many bytes.
json_t *large_result(size_t len);
// Turns the loop once.
void turn(struct mcp_fixture *f);

int run_mcp_io_tests(void);
