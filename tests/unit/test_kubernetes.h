// SPDX-License-Identifier: Apache-2.0
// The unit tests of the engine "kubernetes" are one program of several files.
#pragma once

#include "fake_server.h"
#include "kubernetes_priv.h"

extern const struct CMUnitTest kubernetes_fault_tests[];
extern const size_t n_kubernetes_fault_tests;

extern const struct CMUnitTest kubernetes_file_tests[];
extern const size_t n_kubernetes_file_tests;

extern const struct CMUnitTest kubernetes_replica_tests[];
extern const size_t n_kubernetes_replica_tests;

// ---- The fixture (test_kubernetes_fixture.c) ------------------------------------------------

// The engine, and an API server in the same loop. That has a list of answers for each kind of
// request, as the test counts kinds; the last one stays. All are 200 with "{}" at first.
enum { N_KINDS_MAX = 12, MAX_ANSWERS = 4 };

#define EMPTY "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}"
#define RUNNING                                                                                    \
    "{\"phase\":\"Running\",\"podIP\":\"127.0.0.1\",\"containerStatuses\":[{\"name\":\"sandbox\"," \
    "\"state\":{\"running\":{}}}]}"

struct fixture {
    struct loop *loop;
    char dir[40];
    struct fake_server *server;
    struct kubernetes *kube;
    int (*kind_of)(const char *request);
    struct fake_answer answers[N_KINDS_MAX][MAX_ANSWERS];
    int n_requests[N_KINDS_MAX];
    int64_t asked_ms[N_KINDS_MAX][FAKE_SERVER_MAX_REQUESTS];
    char *latest[N_KINDS_MAX]; // requests
    struct buf lines;          // their first lines
    int n_done, n_exits, n_found;
    struct kg_error err; // of the operation that was done last
};

// `replica_address` is NULL for a gateway without others.
struct fixture *fixture_new(int (*kind_of)(const char *request), const char *replica_address);
int fixture_tear_down(void **state);
// Notes that an operation is done; `arg` is the fixture.
void fixture_on_done(const struct kg_error *err, void *arg);
