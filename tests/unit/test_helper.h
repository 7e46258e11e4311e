// SPDX-License-Identifier: Apache-2.0
// A helper in a process of its own, and the test in the place of its gateway. After <cmocka.h>.
#pragma once

#include <sys/types.h>

#include "fake_engine.h"
#include "helper_packet.h"
#include "helper_server.h"
#include "loop_wait.h"

struct fixture {
    char state_dir[32];
    char gateway_id[9];
    struct provisioner_settings engine;
    struct helper_server_settings settings;
    struct zygote_spec zygote; // the only one
    struct fake_sandboxes *table;
    pid_t helper; // 0: none runs
    int fd;
    uint32_t serial;
};

int set_up_fake(void **state); // the engine is that of fake_engine.h
int set_up_real(void **state); // it is `oci`, with runc
int tear_down(void **state);

// Starts a helper and takes what it says first.
void helper_start(struct fixture *f);
// Waits for its end; returns its exit code.
int helper_wait(struct fixture *f);
// Closes the connection and waits; the code must be 0.
void helper_end(struct fixture *f);
void helper_kill(struct fixture *f);
size_t helper_count_files(const struct fixture *f);

struct helper_request request_of(enum helper_verb verb, const char *id);
// Returns the request's serial.
uint32_t say(struct fixture *f, struct helper_request request);
// The next packet. A descriptor must be a socket, and is closed unless `ret_fd` is given.
struct helper_reply hear(struct fixture *f, int *ret_fd);
// What ends the answer; other packets are passed over.
struct helper_reply hear_done(struct fixture *f, uint32_t serial);
// Says it and returns the code of the answer.
enum kg_code ask(struct fixture *f, struct helper_request request);
enum kg_code ask_about(struct fixture *f, enum helper_verb verb, const char *id);
// How many sandboxes the helper lists.
size_t count_listed(struct fixture *f);

// Below the state folder.
size_t count_folders(const struct fixture *f);
// Of containers, control groups, mounts and processes, too.
void assert_nothing_left(struct fixture *f);

// test_helper_starter.c
void test_a_killed_helper_is_replaced(void **state);
void test_both_end_with_the_gateway(void **state);
void test_a_hanging_helper_is_killed(void **state);
void test_the_lock_is_held_until_both_have_ended(void **state);
void test_a_helper_that_never_starts(void **state);
