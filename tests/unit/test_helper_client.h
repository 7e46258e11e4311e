// SPDX-License-Identifier: Apache-2.0
// The gateway's side of a helper, with the test in the place of the helper and of its starter.
// After <cmocka.h>.
#pragma once

#include "helper.h"
#include "provisioner_engine.h"
#include "virtual_clock.h"

enum { SEEN_MAX = 16 };

struct fixture {
    struct loop *loop;
    char state_dir[32];
    struct helper *helper;
    int fd;      // the helper's end; -1: it has ended
    int starter; // the starter's end
    struct provisioner *provisioner;
    struct helper_reply seen[SEEN_MAX]; // what callbacks were given
    size_t n_seen;
    int last_fd;
    struct kg_error err; // of the last operation that failed
    size_t n_done, n_failed;
    char exited[SEEN_MAX][SANDBOX_ID_MAX + 1];
    size_t n_exited;
    size_t n_doors;
    int pid; // that was forked
    size_t n_settled;
};

// Two ends of a connection.
void pair(int *ret_own, int *ret_other);
int client_set_up(void **state);
void helper_dies(struct fixture *f);
int client_tear_down(void **state);
bool is_readable(int fd);
// What the gateway has asked the helper next.
struct helper_request asked(struct fixture *f);
struct helper_request asked_for(struct fixture *f, enum helper_verb verb, const char *id);
// What the helper says.
void answer(struct fixture *f, struct helper_reply reply, int fd);
void answer_done(struct fixture *f, const struct helper_request *request, enum kg_code code,
                 int64_t number);
void answer_found(struct fixture *f, const struct helper_request *request, const char *id);
void say_event(struct fixture *f, enum helper_event event, const char *id);
// Another helper, which the starter passes.
void helper_comes(struct fixture *f, const struct helper_reply *started);
void helper_is_replaced(struct fixture *f);
size_t count_files(void);
// A provisioner_done_fn: counts.
void client_on_done(const struct kg_error *err, void *arg);

// test_helper_engine.c
void test_a_sandbox_of_the_helper(void **state);
void test_a_create_that_the_helper_refuses(void **state);
void test_a_create_without_a_helper(void **state);
void test_a_create_in_the_middle_of_which_the_helper_is_lost(void **state);
void test_destroys_wait_for_the_next_helper(void **state);
void test_destroys_do_not_wait_for_ever(void **state);
void test_another_helper_is_compared(void **state);
void test_another_helper_that_is_lost_while_it_lists(void **state);
void test_another_helper_that_makes_no_sandboxes(void **state);
void test_recovery(void **state);
void test_a_recovery_that_fails_removes_nothing(void **state);
