// SPDX-License-Identifier: Apache-2.0
// The engine of a gateway with a helper.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_helper_client.h"

// ---- The engine -------------------------------------------------------------------------------

static void
make_engine(struct fixture *f)
{
    static const struct provisioner_engine *const engines[] = {&provisioner_helped, NULL};
    const struct provisioner_settings settings = {
        .engines = engines,
        .engine = "oci",
        .state_dir = f->state_dir,
        .gateway_id = "abcdefgh",
        .helper = f->helper,
    };
    struct kg_error err;
    f->provisioner = provisioner_new(f->loop, &settings, &err);
    assert_non_null(f->provisioner);
}

static void
on_exit_of(const char *id, void *arg)
{
    struct fixture *f = arg;
    snprintf(f->exited[f->n_exited++], sizeof f->exited[0], "%s", id);
}

static struct provisioner_op *
start_create(struct fixture *f, const char *id)
{
    const struct provisioner_sandbox_spec spec = {.id = id, .agent_idle_timeout_s = 60};
    struct kg_error err;
    struct provisioner_op *op =
        provisioner_create(f->provisioner, &spec, client_on_done, on_exit_of, f, &err);
    assert_non_null(op);
    return op;
}

static void
create(struct fixture *f, const char *id)
{
    size_t n = f->n_done + 1;
    start_create(f, id);
    struct helper_request request = asked_for(f, HELPER_CREATE, id);
    assert_int_equal(request.number, 60);
    answer_done(f, &request, KG_OK, 0);
    WAIT_FOR(f, f->n_done == n);
    assert_int_equal(f->n_failed, 0);
}

static void
start_destroy(struct fixture *f, const char *id)
{
    struct kg_error err;
    assert_non_null(provisioner_destroy(f->provisioner, id, client_on_done, f, &err));
}

static void
on_door(int fd, void *arg)
{
    struct fixture *f = arg;
    f->n_doors++;
    close(fd);
}

void
test_a_sandbox_of_the_helper(void **state)
{
    struct fixture *f = *state;
    make_engine(f);
    assert_true(provisioner_can_enter(f->provisioner));
    assert_int_equal(provisioner_traits(f->provisioner).memory_bound, 1 << 30);
    start_create(f, "a");
    provisioner_open_door(f->provisioner, "a", on_door, f);
    struct helper_request request = asked_for(f, HELPER_CREATE, "a");
    struct helper_reply door = {.event = HELPER_DOOR, .serial = request.serial, .id = "a"};
    answer(f, door, f->fd);
    answer_done(f, &request, KG_OK, 0);
    WAIT_FOR(f, f->n_done == 1 && f->n_doors == 1);
    assert_true(folder_exists(f->state_dir, "a"));
    say_event(f, HELPER_EXITED, "nowhere");
    say_event(f, HELPER_EXITED, "a");
    WAIT_FOR(f, f->n_exited == 1);
    assert_string_equal(f->exited[0], "a");
    start_destroy(f, "a");
    request = asked_for(f, HELPER_DESTROY, "a");
    answer_done(f, &request, KG_OK, 0);
    WAIT_FOR(f, f->n_done == 2);
    assert_int_equal(f->n_failed, 0);
    assert_false(folder_exists(f->state_dir, "a"));
}

void
test_a_create_that_the_helper_refuses(void **state)
{
    struct fixture *f = *state;
    make_engine(f);
    start_create(f, "a");
    struct helper_request request = asked_for(f, HELPER_CREATE, "a");
    answer_done(f, &request, KG_INVALID, 0); // which has left nothing
    WAIT_FOR(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_INVALID);
    assert_string_equal(f->err.message, "as the test says");
    assert_false(folder_exists(f->state_dir, "a"));
}

void
test_a_create_without_a_helper(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    make_engine(f);
    helper_dies(f);
    WAIT_FOR(f, provisioner_check(f->provisioner, &err) < 0);
    start_create(f, "a");
    WAIT_FOR(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_false(folder_exists(f->state_dir, "a"));
}

// It was being made when the helper was lost: its caller need not wait, and the next one destroys
// it.
void
test_a_create_in_the_middle_of_which_the_helper_is_lost(void **state)
{
    struct fixture *f = *state;
    make_engine(f);
    start_create(f, "a");
    asked_for(f, HELPER_CREATE, "a");
    helper_dies(f);
    WAIT_FOR(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    const struct helper_reply started = {.event = HELPER_STARTED};
    helper_comes(f, &started);
    struct helper_request list = asked_for(f, HELPER_LIST, "");
    struct helper_request destroy = asked_for(f, HELPER_DESTROY, "a");
    answer_found(f, &list, "a");
    answer_done(f, &list, KG_OK, 0);
    answer_done(f, &destroy, KG_OK, 0);
    WAIT_FOR(f, !folder_exists(f->state_dir, "a"));
    assert_false(is_readable(f->fd)); // it is not destroyed twice
}

void
test_destroys_wait_for_the_next_helper(void **state)
{
    struct fixture *f = *state;
    make_engine(f);
    create(f, "a");
    create(f, "b");
    start_destroy(f, "a");
    asked_for(f, HELPER_DESTROY, "a");
    helper_dies(f);
    WAIT_FOR(f, helper_check(f->helper, NULL) < 0);
    start_destroy(f, "b"); // while there is none
    virtual_clock_advance(f->loop, 14 * 1000);
    assert_int_equal(f->n_done, 2);
    const struct helper_reply started = {.event = HELPER_STARTED};
    helper_comes(f, &started);
    struct helper_request list = asked_for(f, HELPER_LIST, "");
    answer_done(f, &list, KG_OK, 0);
    struct helper_request first = asked_for(f, HELPER_DESTROY, "a");
    struct helper_request second = asked_for(f, HELPER_DESTROY, "b");
    answer_done(f, &first, KG_OK, 0);
    answer_done(f, &second, KG_OK, 0);
    WAIT_FOR(f, f->n_done == 4);
    assert_int_equal(f->n_failed, 0);
    assert_int_equal(f->n_exited, 0);
}

void
test_destroys_do_not_wait_for_ever(void **state)
{
    struct fixture *f = *state;
    make_engine(f);
    create(f, "a");
    helper_dies(f);
    WAIT_FOR(f, helper_check(f->helper, NULL) < 0);
    start_destroy(f, "a");
    virtual_clock_advance(f->loop, 16 * 1000);
    assert_int_equal(f->n_failed, 1);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_false(folder_exists(f->state_dir, "a"));
    const struct helper_reply started = {.event = HELPER_STARTED};
    helper_comes(f, &started);
    struct helper_request list = asked_for(f, HELPER_LIST, "");
    answer_found(f, &list, "a");
    answer_done(f, &list, KG_OK, 0);
    struct helper_request destroy = asked_for(f, HELPER_DESTROY, "a");
    answer_done(f, &destroy, KG_OK, 0);
    PASS_TIME_UNTIL(f, provisioner_is_idle(f->provisioner));
}

// The next helper lists what lives: what has ended meanwhile is reported, and what nobody knows
// removed.
void
test_another_helper_is_compared(void **state)
{
    struct fixture *f = *state;
    make_engine(f);
    create(f, "a");
    create(f, "b");
    create(f, "c");
    helper_is_replaced(f);
    struct helper_request list = asked_for(f, HELPER_LIST, "");
    assert_int_equal(list.flag, 0);
    answer_found(f, &list, "b");
    answer_found(f, &list, "unknown");
    answer_done(f, &list, KG_OK, 0);
    struct helper_request destroy = asked_for(f, HELPER_DESTROY, "unknown");
    answer_done(f, &destroy, KG_OK, 0);
    WAIT_FOR(f, f->n_exited == 2);
    assert_string_equal(f->exited[0], "a");
    assert_string_equal(f->exited[1], "c");
    PASS_TIME_UNTIL(f, provisioner_is_idle(f->provisioner));
    assert_true(folder_exists(f->state_dir, "b"));
    assert_false(is_readable(f->fd));
}

// Nothing is removed because of a list that is not complete.
void
test_another_helper_that_is_lost_while_it_lists(void **state)
{
    struct fixture *f = *state;
    make_engine(f);
    create(f, "a");
    create(f, "b");
    helper_is_replaced(f);
    struct helper_request list = asked_for(f, HELPER_LIST, "");
    answer_found(f, &list, "b");
    answer_found(f, &list, "unknown");
    helper_is_replaced(f);
    list = asked_for(f, HELPER_LIST, "");
    answer_found(f, &list, "a");
    answer_found(f, &list, "b");
    answer_done(f, &list, KG_OK, 0);
    loop_turn(f->loop);
    assert_int_equal(f->n_exited, 0);
    assert_false(is_readable(f->fd));
}

void
test_another_helper_that_makes_no_sandboxes(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    struct helper_reply started = {.event = HELPER_STARTED, .code = KG_PROVISIONER_UNAVAILABLE};
    strcpy(started.message, "no runtime");
    make_engine(f);
    create(f, "a");
    helper_dies(f);
    WAIT_FOR(f, helper_check(f->helper, NULL) < 0);
    helper_comes(f, &started);
    WAIT_FOR(f, helper_check(f->helper, NULL) == 0);
    assert_int_equal(provisioner_check(f->provisioner, &err), -1);
    assert_string_equal(err.message, "no runtime");
    assert_int_equal(f->n_exited, 0);
}

static void
on_found(const char *id, const json_t *meta, void *arg)
{
    struct fixture *f = arg;
    assert_null(meta);
    snprintf(f->exited[f->n_exited++], sizeof f->exited[0], "%s", id);
}

// At the start: what lives is taken up, and the folders of what does not are removed.
void
test_recovery(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    make_engine(f);
    assert_int_equal(folder_make(f->state_dir, "lives", &err), 0);
    assert_int_equal(folder_make(f->state_dir, "dead", &err), 0);
    assert_non_null(
        provisioner_recover(f->provisioner, on_found, client_on_done, on_exit_of, f, &err));
    struct helper_request list = asked_for(f, HELPER_LIST, "");
    assert_int_equal(list.flag, 1);
    answer_found(f, &list, "lives");
    answer_done(f, &list, KG_OK, 0);
    struct helper_request destroy = asked_for(f, HELPER_DESTROY, "dead");
    answer_done(f, &destroy, KG_OK, 0);
    WAIT_FOR(f, f->n_done == 1);
    assert_int_equal(f->n_failed, 0);
    assert_string_equal(f->exited[0], "lives");
    assert_true(folder_exists(f->state_dir, "lives"));
    assert_false(folder_exists(f->state_dir, "dead"));
    say_event(f, HELPER_EXITED, "lives");
    WAIT_FOR(f, f->n_exited == 2);
}

void
test_a_recovery_that_fails_removes_nothing(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    make_engine(f);
    assert_int_equal(folder_make(f->state_dir, "lives", &err), 0);
    assert_non_null(
        provisioner_recover(f->provisioner, on_found, client_on_done, on_exit_of, f, &err));
    asked_for(f, HELPER_LIST, "");
    helper_dies(f);
    WAIT_FOR(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_true(folder_exists(f->state_dir, "lives"));
}
