// SPDX-License-Identifier: Apache-2.0
// What the engine "docker" does with an engine that answers as a real one seldom does: it is a
// server on a Unix socket, in the same loop, that follows a script.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_docker.h"

#define PATIENCE_MS 20000
#define MAX_REQUESTS 64

// What the script says to one request.
struct answer {
    int status;       // 0: nothing, ever
    const char *body; // the second half of it comes later
};

struct connection {
    struct fixture *fixture;
    int fd;
    struct loop_fd *watch;
    struct loop_timer *later;
    struct buf in;
    const char *rest;
};

struct fixture {
    struct loop *loop;
    struct loop_timer *tick;
    char dir[32];
    int listener;
    struct loop_fd *watch;
    struct connection connections[MAX_REQUESTS];
    size_t n_connections;
    struct docker *docker;
    struct answer create, pull, start, list, events;
    int n_creates, n_pulls, n_starts, n_lists, n_events;
    int64_t events_ms[MAX_REQUESTS];
    int n_done;
    struct kg_error err;
};

// ---- The engine -----------------------------------------------------------------------------

static void
hang_up(struct connection *connection)
{
    loop_fd_free(KG_STEAL(connection->watch));
    loop_timer_free(KG_STEAL(connection->later));
    buf_fini(&connection->in);
    connection->in = (struct buf){0};
    if (connection->fd >= 0)
        close(KG_STEAL_FD(connection->fd));
}

static void
say_rest(void *arg)
{
    struct connection *connection = arg;
    (void)!send(connection->fd, connection->rest, strlen(connection->rest), MSG_NOSIGNAL);
    hang_up(connection);
}

static struct answer
ask_script(struct fixture *f, const char *line)
{
    if (strstr(line, "POST /containers/create")) {
        f->n_creates++;
        return f->create;
    }
    if (strstr(line, "POST /images/create")) {
        f->n_pulls++;
        return f->pull;
    }
    if (strstr(line, "/start ")) {
        f->n_starts++;
        return f->start;
    }
    if (strstr(line, "GET /events")) {
        assert_true(f->n_events < MAX_REQUESTS);
        f->events_ms[f->n_events++] = clock_mono_ms();
        return f->events;
    }
    if (strstr(line, "GET /containers/json")) {
        f->n_lists++;
        return f->list;
    }
    return (struct answer){404, "{\"message\":\"the script knows it not\"}"};
}

static void
on_request(int fd, int events, void *arg)
{
    struct connection *connection = arg;
    struct fixture *f = connection->fixture;
    char piece[4096];
    (void)events;
    ssize_t n = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n <= 0) {
        hang_up(connection);
        return;
    }
    buf_append(&connection->in, piece, (size_t)n);
    const char *end = strstr(connection->in.data, "\r\n\r\n");
    const char *length = strstr(connection->in.data, "Content-Length: ");
    size_t body_len = length ? strtoul(length + strlen("Content-Length: "), NULL, 10) : 0;
    if (!end || connection->in.len < (size_t)(end + 4 - connection->in.data) + body_len)
        return;
    struct answer answer = ask_script(f, connection->in.data);
    if (!answer.status)
        return;
    size_t half = strlen(answer.body) / 2;
    KG_AUTO_FREE char *head =
        kg_asprintf("HTTP/1.1 %d Said\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%.*s",
                    answer.status, strlen(answer.body), (int)half, answer.body);
    (void)!send(connection->fd, head, strlen(head), MSG_NOSIGNAL);
    connection->rest = answer.body + half;
    loop_fd_free(KG_STEAL(connection->watch));
    connection->later = loop_timer_new(f->loop, say_rest, connection);
    loop_timer_start(connection->later, 20);
}

static void
on_accept(int fd, int events, void *arg)
{
    struct fixture *f = arg;
    (void)events;
    assert_true(f->n_connections < MAX_REQUESTS);
    struct connection *connection = &f->connections[f->n_connections++];
    *connection = (struct connection){.fixture = f};
    connection->fd = accept(fd, NULL, NULL);
    assert_true(connection->fd >= 0);
    connection->watch = loop_fd_new(f->loop, connection->fd, LOOP_READ, on_request, connection);
}

// ---- Fixture --------------------------------------------------------------------------------

static void
on_tick(void *arg)
{
    loop_stop(arg);
}

static void
turn(struct fixture *f)
{
    loop_timer_start(f->tick, 5);
    loop_run(f->loop);
}

#define WAIT_FOR(f, condition)                                                                     \
    for (int64_t give_up_ = clock_mono_ms() + PATIENCE_MS; !(condition); turn(f))                  \
    assert_true(clock_mono_ms() < give_up_)

static int
set_up(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct kg_error err = {0};
    f->loop = loop_new();
    f->tick = loop_timer_new(f->loop, on_tick, f->loop);
    strcpy(f->dir, "/tmp/kg-test-docker-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/engine.sock", f->dir);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(f->listener, 16), 0);
    f->watch = loop_fd_new(f->loop, f->listener, LOOP_READ, on_accept, f);
    KG_AUTO_FREE char *host = kg_asprintf("unix://%s", address.sun_path);
    const struct provisioner_settings settings = {
        .engine = "docker",
        .state_dir = f->dir,
        .gateway_id = "abcdefgh",
        .image = "registry/image:1",
        .docker_host = host,
        .limits = {.memory_mb = 64, .disk_mb = 16, .tmp_mb = 16, .cpus = 1, .pids = 16},
    };
    f->docker = docker_open(f->loop, &settings, &err);
    assert_non_null(f->docker);
    assert_int_equal(docker_write_files(f->docker, "/etc/hostname", &err), 0);
    f->create = (struct answer){404, "{\"message\":\"No such image: registry/image:1\"}"};
    f->pull = (struct answer){200, "{\"status\":\"Pulling\"}\r\n{\"status\":\"Done\"}\r\n"};
    f->list = (struct answer){200, "[]"};
    *state = f;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    WAIT_FOR(f, provisioner_is_idle(&f->docker->base));
    docker_close(f->docker);
    for (size_t i = 0; i < f->n_connections; i++)
        hang_up(&f->connections[i]);
    loop_fd_free(f->watch);
    close(f->listener);
    loop_timer_free(f->tick);
    loop_free(f->loop);
    assert_int_equal(path_remove_tree(f->dir, &err), 0);
    free(f);
    return 0;
}

static void
on_done(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->n_done++;
    f->err = err ? *err : (struct kg_error){0};
}

static void
on_exit_of(const char *id, void *arg)
{
    (void)id;
    (void)arg;
}

static struct provisioner_op *
ask_for(struct fixture *f, const char *id)
{
    const struct provisioner_sandbox_spec spec = {.id = id, .agent_idle_timeout_s = 60};
    struct kg_error err = {0};
    struct provisioner_op *op =
        provisioner_create(&f->docker->base, &spec, on_done, on_exit_of, f, &err);
    assert_non_null(op);
    return op;
}

static void
assert_said(const struct fixture *f, const char *words)
{
    if (!strstr(f->err.message, words))
        fail_msg("\"%s\" says nothing of \"%s\"", f->err.message, words);
}

// ---- Pulls ----------------------------------------------------------------------------------

static void
test_an_image_that_stays_missing(void **state)
{
    struct fixture *f = *state;
    (void)ask_for(f, "a");
    WAIT_FOR(f, f->n_done == 1);
    assert_said(f, "No such image");
    assert_int_equal(f->n_pulls, 1);
    assert_int_equal(f->n_creates, 2);
}

static void
test_why_a_pull_failed(void **state)
{
    static const struct {
        struct answer answer;
        const char *words;
    } cases[] = {
        {{200, "{\"errorDetail\":{\"message\":\"the reason\"},\"error\":\"an old one\"}\r\n"},
         "the reason"},
        {{200, "{\"error\":\"an old one\"}\r\n"}, "an old one"},
        {{500, "{\"message\":\"refused, for reasons that take their time\"}"},
         "refused, for reasons that take their time"},
        {{500, "<html>"}, "refused"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        f->pull = cases[i].answer;
        (void)ask_for(f, "a");
        WAIT_FOR(f, f->n_done == (int)i + 1);
        assert_said(f, cases[i].words);
        assert_said(f, "registry/image:1");
    }
}

static void
test_a_pull_that_goes_silent(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->docker->pull.silence_ms = 1000;
    f->pull = (struct answer){0};
    struct provisioner_op *op = ask_for(f, "a");
    WAIT_FOR(f, f->n_pulls == 1);
    assert_true(provisioner_op_explain(op, &err));
    assert_non_null(strstr(err.message, "registry/image:1 is being pulled"));
    WAIT_FOR(f, f->n_done == 1);
    assert_said(f, "no progress");
    // The next one is not kept by it.
    (void)ask_for(f, "b");
    WAIT_FOR(f, f->n_done == 2 && f->n_pulls == 2);
}

// ---- Creates --------------------------------------------------------------------------------

static void
test_warnings_and_a_container_that_runs_already(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->create = (struct answer){201, "{\"Id\":\"c0ffee\",\"Warnings\":[\"no swap limit\"]}"};
    f->start = (struct answer){304, ""};
    struct provisioner_op *op = ask_for(f, "a");
    assert_false(provisioner_op_explain(op, &err));
    WAIT_FOR(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_true(f->docker->warned);
    assert_non_null(watch_find(&f->docker->base, "a"));
}

// ---- Events ---------------------------------------------------------------------------------

static void
listen_in_vain(struct fixture *f, struct answer answer)
{
    f->events = answer;
    docker_monitor_start(f->docker);
    WAIT_FOR(f, f->n_events == 3);
    for (int i = 1; i < 3; i++)
        assert_true(f->events_ms[i] - f->events_ms[i - 1] >= 900);
    assert_true(f->n_lists <= f->n_events + 1);
}

static void
test_events_that_end_at_once(void **state)
{
    listen_in_vain(*state, (struct answer){200, ""});
    assert_false((*(struct fixture **)state)->docker->monitor.no_events);
}

static void
test_events_that_are_refused(void **state)
{
    struct fixture *f = *state;
    listen_in_vain(f, (struct answer){500, "{\"message\":\"not today\"}"});
    assert_true(f->docker->monitor.no_events);
    assert_false(f->docker->monitor.down); // nor said to be back each time
}

#define WITH_ENGINE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

const struct CMUnitTest docker_fault_tests[] = {
    WITH_ENGINE(test_an_image_that_stays_missing),
    WITH_ENGINE(test_why_a_pull_failed),
    WITH_ENGINE(test_a_pull_that_goes_silent),
    WITH_ENGINE(test_warnings_and_a_container_that_runs_already),
    WITH_ENGINE(test_events_that_end_at_once),
    WITH_ENGINE(test_events_that_are_refused),
};
const size_t n_docker_fault_tests = KG_ARRAY_LEN(docker_fault_tests);
