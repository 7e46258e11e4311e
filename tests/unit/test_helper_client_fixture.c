// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_helper_client.h"

// ---- A fixture --------------------------------------------------------------------------------

void
pair(int *ret_own, int *ret_other)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    *ret_own = ends[0];
    *ret_other = ends[1];
}

int
client_set_up(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct helper_link link = {.started = {.event = HELPER_STARTED, .flag = 1, .number = 1 << 30}};
    snprintf(f->state_dir, sizeof f->state_dir, "/tmp/kgXXXXXX");
    assert_non_null(mkdtemp(f->state_dir));
    f->loop = loop_new();
    pair(&f->fd, &link.helper);
    pair(&f->starter, &link.starter);
    f->helper = helper_new(f->loop, &link);
    f->last_fd = -1;
    *state = f;
    return 0;
}

void
helper_dies(struct fixture *f)
{
    close(KG_STEAL_FD(f->fd));
}

int
client_tear_down(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    provisioner_free(f->provisioner);
    if (f->fd >= 0)
        helper_dies(f);
    close(f->starter);
    helper_free(f->helper);
    loop_free(f->loop);
    assert_int_equal(path_remove_tree(f->state_dir, &err), 0);
    free(f);
    return 0;
}

// ---- The helper -------------------------------------------------------------------------------

bool
is_readable(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, 0) > 0;
}

struct helper_request
asked(struct fixture *f)
{
    struct helper_request request;
    int fd;
    WAIT_FOR(f, is_readable(f->fd));
    assert_int_equal(helper_receive(f->fd, &request, sizeof request, 0, &fd), sizeof request);
    assert_int_equal(fd, -1);
    assert_true(helper_request_is_valid(&request, sizeof request));
    return request;
}

struct helper_request
asked_for(struct fixture *f, enum helper_verb verb, const char *id)
{
    struct helper_request request = asked(f);
    assert_int_equal(request.verb, verb);
    assert_string_equal(request.id, id);
    return request;
}

void
answer(struct fixture *f, struct helper_reply reply, int fd)
{
    assert_true(helper_reply_is_valid(&reply, sizeof reply));
    assert_int_equal(helper_send(f->fd, &reply, sizeof reply, fd, 0), 0);
}

void
answer_done(struct fixture *f, const struct helper_request *request, enum kg_code code,
            int64_t number)
{
    struct helper_reply reply = {
        .event = HELPER_DONE, .serial = request->serial, .code = code, .number = number};
    snprintf(reply.message, sizeof reply.message, "%s", code ? "as the test says" : "");
    answer(f, reply, -1);
}

void
answer_found(struct fixture *f, const struct helper_request *request, const char *id)
{
    struct helper_reply reply = {.event = HELPER_FOUND, .serial = request->serial};
    memcpy(reply.id, id, strlen(id));
    answer(f, reply, -1);
}

void
say_event(struct fixture *f, enum helper_event event, const char *id)
{
    struct helper_reply reply = {.event = event};
    memcpy(reply.id, id, strlen(id));
    answer(f, reply, -1);
}

// Another helper, which the starter passes.
void
helper_comes(struct fixture *f, const struct helper_reply *started)
{
    int other;
    pair(&f->fd, &other);
    assert_int_equal(helper_send(f->starter, started, sizeof *started, other, 0), 0);
    close(other);
}

void
helper_is_replaced(struct fixture *f)
{
    const struct helper_reply started = {.event = HELPER_STARTED, .number = 1 << 29};
    helper_dies(f);
    WAIT_FOR(f, helper_check(f->helper, NULL) < 0);
    helper_comes(f, &started);
    WAIT_FOR(f, helper_check(f->helper, NULL) == 0);
}

size_t
count_files(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

void
client_on_done(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->n_done++;
    f->n_failed += err != NULL;
    if (err)
        f->err = *err;
}
