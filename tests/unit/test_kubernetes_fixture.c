// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_kubernetes.h"
#include "virtual_clock.h"

static struct fake_answer
answer(const char *request, void *arg)
{
    struct fixture *f = arg;
    int kind = f->kind_of(request);
    int n = f->n_requests[kind]++;
    assert_true(n < FAKE_SERVER_MAX_REQUESTS);
    f->asked_ms[kind][n] = clock_mono_ms();
    buf_append(&f->lines, request, strcspn(request, "\r") + 1);
    free(f->latest[kind]);
    f->latest[kind] = kg_strdup(request);
    if (n >= MAX_ANSWERS)
        n = MAX_ANSWERS - 1;
    while (n > 0 && !f->answers[kind][n].status)
        n--;
    return f->answers[kind][n];
}

struct fixture *
fixture_new(int (*kind_of)(const char *request), const char *replica_address)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct kg_error err = {0};
    f->kind_of = kind_of;
    f->loop = loop_new();
    strcpy(f->dir, "/tmp/kg-test-kubernetes-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->server = fake_server_new(f->loop, NULL, answer, f);
    KG_AUTO_FREE char *url = kg_asprintf("http://127.0.0.1:%d", fake_server_port(f->server));
    const struct provisioner_settings settings = {
        .engine = "kubernetes",
        .state_dir = f->dir,
        .gateway_id = "abcdefgh",
        .image = "an/image:1",
        .kubernetes = {.server = url,
                       .agent_image = "agent:1",
                       .replica_address = replica_address,
                       .unenforced_network = true},
        .limits = {.memory_mb = 64, .disk_mb = 16, .tmp_mb = 16, .cpus = 1, .pids = 16},
        .gateway_key = "5a",
    };
    f->kube = kube_open(f->loop, &settings, &err);
    assert_non_null(f->kube);
    for (int kind = 0; kind < N_KINDS_MAX; kind++)
        f->answers[kind][0].status = 200;
    return f;
}

int
fixture_tear_down(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    PASS_TIME_UNTIL(f, provisioner_is_idle(&f->kube->base));
    kube_close(f->kube);
    fake_server_free(f->server);
    loop_free(f->loop);
    for (int kind = 0; kind < N_KINDS_MAX; kind++)
        free(f->latest[kind]);
    buf_fini(&f->lines);
    assert_int_equal(path_remove_tree(f->dir, &err), 0);
    free(f);
    return 0;
}

void
fixture_on_done(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->n_done++;
    f->err = err ? *err : (struct kg_error){0};
}
