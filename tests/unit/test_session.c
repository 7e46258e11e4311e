// SPDX-License-Identifier: Apache-2.0
// Sessions: opening, sharing, owners, several kernels.

#include "test_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "file_links.h"
#include "jupyter.h"
#include "session_files.h"
#include "session_tokens.h"
#include "virtual_clock.h"

static void
test_open_and_open_again(void **state)
{
    struct fixture *f = *state;
    struct opener first = {0}, second = {0};
    struct session_request request = named(f, "s1");
    json_auto_t *env = json_pack("{s:s}", "A", "1");
    request.env = env;
    open_request(f, &first, &request);
    assert_int_equal(first.err.code, KG_OK);
    assert_string_equal(session_id(first.session), "s1");
    assert_int_equal(fake_journal_count("claim"), 1);
    assert_int_equal(fake_journal_count("start k0"), 1);
    const json_t *kernel_env = fake_sandbox_env(session_sandbox(first.session), "k0");
    assert_string_equal(json_string_value(json_object_get(kernel_env, "A")), "1");

    open_named(f, &second, "s1");
    assert_ptr_equal(second.session, first.session);
    assert_ptr_equal(second.kernel, first.kernel);
    assert_int_equal(fake_sandboxes_count(), 1);

    struct opener unnamed = {0};
    open_named(f, &unnamed, NULL);
    assert_int_equal(strncmp(session_id(unnamed.session), "sess_", 5), 0);
    assert_int_equal(sessions_count(f->sessions), 2);
}

static void
test_concurrent_opens_share(void **state)
{
    struct fixture *f = *state;
    struct opener openers[3] = {0};
    const struct session_request request = named(f, "s1");
    for (size_t i = 0; i < 3; i++)
        start(f, &openers[i], &request);
    session_open_cancel(openers[1].open);
    RUN_UNTIL(f, openers[0].answers > 0 && openers[2].answers > 0);
    assert_int_equal(openers[1].answers, 0);
    assert_ptr_equal(openers[0].session, openers[2].session);
    assert_ptr_equal(openers[0].kernel, openers[2].kernel);
    assert_int_equal(fake_sandboxes_count(), 1);
    assert_int_equal(fake_journal_count("claim"), 1);
    assert_int_equal(fake_journal_count("start k0"), 1);
}

static void
test_session_ids(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "",
        "a b",
        "../x",
        "a/b",
        "\xc3\xa4",
        "a\n",
        "12345678901234567890123456789012345678901234567890123456789012345",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        struct kg_error err = {0};
        struct opener opener = {0};
        const struct session_request request = named(f, bad[i]);
        start(f, &opener, &request);
        assert_null(opener.open);
        assert_int_equal(opener.err.code, KG_INVALID_SESSION_ID);
        assert_null(sessions_find(f->sessions, "me", bad[i], &err));
        assert_int_equal(err.code, KG_INVALID_SESSION_ID);
    }
    struct opener longest = {0};
    open_named(f, &longest, "1234567890123456789012345678901234567890123456789012345678-_AZaz");
    assert_int_equal(longest.err.code, KG_OK);
}

static void
test_owners_do_not_meet(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    struct opener mine = {0}, other = {0};
    open_named(f, &mine, "s1");
    struct session_request request = named(f, "s1");
    request.owner = "other";
    open_request(f, &other, &request);
    assert_ptr_not_equal(mine.session, other.session);
    assert_int_equal(fake_sandboxes_count(), 2);
    assert_ptr_equal(sessions_find(f->sessions, "me", "s1", &err), mine.session);
    assert_ptr_equal(sessions_find(f->sessions, "other", "s1", &err), other.session);
    assert_null(sessions_find(f->sessions, "third", "s1", &err));
    assert_int_equal(err.code, KG_SESSION_NOT_FOUND);
    json_auto_t *all = sessions_describe(f->sessions, "me");
    assert_int_equal(json_object_size(all), 1);
    json_auto_t *none = sessions_describe(f->sessions, "third");
    assert_int_equal(json_object_size(none), 0);
    json_auto_t *ids = sessions_ids(f->sessions, "other");
    assert_int_equal(json_array_size(ids), 1);
    assert_string_equal(json_string_value(json_array_get(ids, 0)), "s1");
    KG_AUTO(execution) execution = execute(&other, "1", NULL, &err);
    assert_non_null(execution);
    assert_string_equal(execution_session_id(execution), "s1");
    struct executions *all_executions = f->kernels.executions;
    const char *id = execution_id(execution);
    assert_null(executions_find(all_executions, id, "me", &err));
    assert_ptr_equal(executions_find(all_executions, id, "other", &err), execution);
}

static void
test_max_sessions(void **state)
{
    struct fixture *f = *state;
    struct opener openers[MAX_SESSIONS] = {0};
    for (size_t i = 0; i < MAX_SESSIONS; i++) {
        const char id[] = {(char)('a' + i), '\0'};
        open_named(f, &openers[i], id);
    }
    struct opener refused = {0}, again = {0}, next = {0};
    const struct session_request request = named(f, NULL);
    start(f, &refused, &request);
    assert_null(refused.open);
    assert_int_equal(refused.err.code, KG_MAX_SESSIONS);
    open_named(f, &again, "a");
    assert_int_equal(again.err.code, KG_OK);

    session_end(openers[0].session, NULL, NULL, NULL);
    open_named(f, &next, NULL);
    assert_int_equal(next.err.code, KG_OK);
}

static void
test_owners_wait_in_turn(void **state)
{
    struct fixture *f = *state;
    struct opener openers[MAX_SESSIONS] = {0};
    fake_script.hold_ready = true;
    for (size_t i = 0; i < MAX_SESSIONS; i++) {
        struct session_request request = named(f, NULL);
        request.owner = i < 2 ? "ann" : "bob";
        start(f, &openers[i], &request);
    }
    RUN_UNTIL(f, fake_sandboxes_count() == MAX_SESSIONS);
    static const size_t order[MAX_SESSIONS] = {0, 2, 1}; // bob came last
    for (size_t i = 0; i < MAX_SESSIONS; i++) {
        fake_sandbox_ready(fake_sandboxes_unready());
        RUN_UNTIL(f, openers[order[i]].answers == 1);
        assert_int_equal(openers[0].answers + openers[1].answers + openers[2].answers, i + 1);
    }
}

// ---- What cannot be opened ------------------------------------------------------------------

static void
test_no_sandbox(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    fake_script.refuse_create = true;
    const struct session_request request = named(f, "s1");
    start(f, &opener, &request);
    RUN_UNTIL(f, !opener.open);
    assert_int_equal(opener.err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(sessions_count(f->sessions), 0);
}

static void
check_opening_fails(struct fixture *f, enum kg_code code)
{
    struct opener openers[2] = {0};
    const struct session_request request = named(f, "s1");
    start(f, &openers[0], &request);
    start(f, &openers[1], &request);
    RUN_UNTIL(f, openers[0].answers > 0 && openers[1].answers > 0);
    assert_int_equal(openers[0].err.code, code);
    assert_int_equal(openers[1].err.code, code);
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
    assert_int_equal(sessions_count(f->sessions), 0);
    assert_null(sessions_find(f->sessions, "me", "s1", NULL));
}

static void
test_no_claim(void **state)
{
    fake_script.refuse_claim = true;
    check_opening_fails(*state, KG_DISK_FULL);
}

// The pool gives another sandbox; the one that was lost is not destroyed.
static void
test_lost_claims(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    fake_script.lose_claims = 2;
    open_named(f, &opener, "s1");
    assert_int_equal(opener.err.code, KG_OK);
    assert_int_equal(fake_journal_count("claim"), 3);
    assert_int_equal(fake_journal_count("destroy"), 0);
    assert_int_equal(fake_sandboxes_count(), 1);
    assert_int_equal(sessions_count(f->sessions), 1);
}

static void
test_every_claim_is_lost(void **state)
{
    fake_script.lose_claims = 1000;
    check_opening_fails(*state, KG_PROVISIONER_UNAVAILABLE);
    assert_true(fake_script.lose_claims > 900);
}

// An engine may take its time: the session waits, and can be ended meanwhile.
static void
test_slow_claim(void **state)
{
    struct fixture *f = *state;
    struct opener first = {0}, second = {0};
    const struct session_request requests[] = {named(f, "s1"), named(f, "s2")};
    fake_script.hold_claims = true;
    start(f, &first, &requests[0]);
    start(f, &second, &requests[1]);
    RUN_UNTIL(f, fake_journal_count("claim") == 2);
    assert_int_equal(first.answers + second.answers, 0);
    struct session *ended = sessions_find(f->sessions, "me", "s2", NULL);
    assert_non_null(ended);
    session_end(ended, NULL, NULL, NULL);
    assert_int_equal(second.err.code, KG_SESSION_NOT_FOUND);
    fake_sandboxes_release();
    RUN_UNTIL(f, first.answers == 1 && fake_sandboxes_count() == 1);
    assert_int_equal(first.err.code, KG_OK);
    assert_int_equal(fake_journal_count("destroy"), 1);
}

// The container ends while it is being claimed.
static void
test_gone_while_claimed(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    const struct session_request request = named(f, "s1");
    fake_script.hold_claims = true;
    start(f, &opener, &request);
    RUN_UNTIL(f, fake_journal_count("claim") == 1);
    fake_sandbox_gone(fake_sandboxes_last());
    assert_int_equal(opener.answers, 1);
    assert_int_equal(opener.err.code, KG_INTERNAL);
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
    assert_int_equal(sessions_count(f->sessions), 0);
}

static void
test_no_kernel(void **state)
{
    fake_script.refuse_start = true;
    check_opening_fails(*state, KG_KERNEL_START_TIMEOUT);
}

static void
test_no_second_kernel(void **state)
{
    struct fixture *f = *state;
    struct opener first = {0}, failing = {0}, again = {0};
    open_named(f, &first, "s1");
    fake_script.refuse_start = true;
    struct session_request request = named(f, "s1");
    request.kernelspec = kernelspecs_at(f->specs, 1);
    failing.then = &again; // while the kernel that failed is still there
    open_request(f, &failing, &request);
    assert_int_equal(failing.err.code, KG_KERNEL_START_TIMEOUT);
    RUN_UNTIL(f, again.answers > 0);
    assert_int_equal(again.err.code, KG_KERNEL_START_TIMEOUT);

    fake_script.refuse_start = false;
    struct opener later = {0};
    open_request(f, &later, &request);
    assert_int_equal(later.err.code, KG_OK);
    assert_ptr_equal(sessions_find(f->sessions, "me", "s1", NULL), first.session);
}

static void
test_the_container_ends(void **state)
{
    struct fixture *f = *state;
    struct opener running = {.code = "hang"}, waiting = {0};
    open_named(f, &running, "s1");
    fake_script.mute = true;
    struct session_request request = named(f, "s1");
    request.kernelspec = kernelspecs_at(f->specs, 1);
    start(f, &waiting, &request);
    RUN_UNTIL(f, fake_journal_count("run hang") == 1 && fake_journal_count("start k1") == 1);
    fake_sandbox_gone(fake_sandboxes_last());
    assert_int_equal(waiting.answers, 1);
    assert_string_equal(waiting.err.message, "the container has ended");
    assert_int_equal(execution_state(running.execution), EXECUTION_DONE);
    execution_unref(running.execution);
    assert_int_equal(sessions_count(f->sessions), 0);
}

// ---- Kernels --------------------------------------------------------------------------------

static void
test_several_kernels(void **state)
{
    struct fixture *f = *state;
    struct opener openers[N_SPECS] = {0};
    struct session_request request = named(f, "s1");
    for (size_t i = 0; i < N_SPECS - 1; i++) {
        request.kernelspec = kernelspecs_at(f->specs, i);
        open_request(f, &openers[i], &request);
        assert_int_equal(openers[i].err.code, KG_OK);
        assert_ptr_equal(openers[i].session, openers[0].session);
        assert_ptr_equal(kernel_spec(openers[i].kernel), request.kernelspec);
    }
    request.kernelspec = kernelspecs_at(f->specs, N_SPECS - 1);
    start(f, &openers[N_SPECS - 1], &request);
    assert_null(openers[N_SPECS - 1].open);
    assert_int_equal(openers[N_SPECS - 1].err.code, KG_INVALID);
    assert_int_equal(fake_sandboxes_count(), 1);

    struct kg_error err = {0};
    KG_AUTO(execution) hanging = execute(&openers[1], "hang", NULL, &err);
    KG_AUTO(execution) other = execute(&openers[2], "print", NULL, &err);
    RUN_UNTIL(f, execution_state(other) == EXECUTION_DONE);
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_RUNNING);
    json_auto_t *description = session_describe(openers[0].session);
    int busy;
    json_int_t count, memory;
    const char *state_of_k1, *state_of_k2;
    assert_int_equal(json_unpack(description, "{s:b, s:I, s:I, s:{s:{s:s}, s:{s:s}}}", "is_busy",
                                 &busy, "execution_count", &count, "memory_bytes", &memory,
                                 "kernels", "k1", "state", &state_of_k1, "k2", "state",
                                 &state_of_k2),
                     0);
    assert_true(busy);
    assert_int_equal(memory, FAKE_SANDBOX_MEMORY);
    assert_int_equal(count, 1);
    assert_string_equal(state_of_k1, "busy");
    assert_string_equal(state_of_k2, "ready");
    assert_true(sessions_are_busy(f->sessions));
    assert_true(session_interrupt(openers[0].session));
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_DONE);
    assert_false(session_interrupt(openers[0].session));
    assert_false(sessions_are_busy(f->sessions));
}

// While the session is being made it is not known yet who of them will be refused.
static void
test_too_many_kernels_for_a_new_session(void **state)
{
    struct fixture *f = *state;
    struct opener openers[N_SPECS] = {0};
    struct session_request request = named(f, "s1");
    for (size_t i = 0; i < N_SPECS; i++) {
        request.kernelspec = kernelspecs_at(f->specs, i);
        start(f, &openers[i], &request);
        assert_non_null(openers[i].open);
    }
    for (size_t i = 0; i < N_SPECS; i++) {
        RUN_UNTIL(f, openers[i].answers > 0);
        assert_int_equal(openers[i].err.code, i < N_SPECS - 1 ? KG_OK : KG_INVALID);
    }
}

// The query values of a link, in place.
static void
split_link(char *url, char **ret_expires, char **ret_signature)
{
    *ret_expires = strstr(url, "&expires=");
    *ret_signature = strstr(url, "&signature=");
    assert_non_null(*ret_expires);
    assert_non_null(*ret_signature);
    **ret_signature = '\0';
    *ret_expires += strlen("&expires=");
    *ret_signature += strlen("&signature=");
}

static void
test_file_links(void **state)
{
    (void)state;
    struct kg_error err = {0};
    struct stat st;
    char dir[] = "/tmp/kg-links-XXXXXX";
    char *expires, *signature, *odd_expires, *odd_signature;
    assert_non_null(mkdtemp(dir));
    KG_AUTO(file_links) links = file_links_new(dir, &err);
    KG_AUTO(file_links) again = file_links_new(dir, &err);
    KG_AUTO_FREE char *key = kg_asprintf("%s/link-key", dir);
    assert_int_equal(stat(key, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    KG_AUTO_FREE char *url = file_links_make(links, "ann", "s1", "a b/\xe2\x98\x83?.txt");
    static const char start[] = "/files/s1/a%20b/%E2%98%83%3F.txt?owner=ann&expires=";
    assert_memory_equal(url, start, strlen(start));
    split_link(url, &expires, &signature);
    const char *path = "a b/\xe2\x98\x83?.txt";
    // Another gateway on the same folder knows it too.
    assert_true(file_links_check(links, "ann", "s1", path, expires, signature));
    assert_true(file_links_check(again, "ann", "s1", path, expires, signature));
    assert_false(file_links_check(links, "bob", "s1", path, expires, signature));
    assert_false(file_links_check(links, "ann", "s2", path, expires, signature));
    assert_false(file_links_check(links, "ann", "s1", "a b", expires, signature));
    assert_false(file_links_check(links, "ann", "s1", path, "99999999999", signature));
    assert_false(file_links_check(links, "ann", "s1", path, expires, ""));
    // No owner has such a name today; links do not depend on it.
    KG_AUTO_FREE char *odd = file_links_make(links, "a b&c", "s1", path);
    assert_non_null(strstr(odd, "?owner=a%20b%26c&expires="));
    split_link(odd, &odd_expires, &odd_signature);
    assert_true(file_links_check(links, "a b&c", "s1", path, odd_expires, odd_signature));
    assert_false(file_links_check(links, "a b", "s1", path, odd_expires, odd_signature));
    // What moves from one part into the next is another text.
    assert_false(file_links_check(links, "ann", "s", "1a b/\xe2\x98\x83?.txt", expires, signature));
    assert_int_equal(path_remove_tree(dir, &err), 0);
    assert_null(file_links_new(dir, &err));
    // With the key its links are gone.
    assert_int_equal(dir_make(dir, 0700, &err), 0);
    KG_AUTO(file_links) other = file_links_new(dir, &err);
    assert_non_null(other);
    assert_false(file_links_check(other, "ann", "s1", path, expires, signature));
    assert_int_equal(path_remove_tree(dir, &err), 0);
}

static void
test_a_link_is_valid_for_a_day(void **state)
{
    (void)state;
    enum { DAY_MS = 24 * 3600 * 1000 };
    struct kg_error err = {0};
    char dir[] = "/tmp/kg-links-XXXXXX";
    char *expires, *signature;
    assert_non_null(mkdtemp(dir));
    KG_AUTO(file_links) links = file_links_new(dir, &err);
    assert_non_null(links);
    KG_AUTO_FREE char *url = file_links_make(links, "ann", "s1", "a");
    split_link(url, &expires, &signature);
    virtual_clock_move(DAY_MS - 1000); // the expiry is in whole seconds
    assert_true(file_links_check(links, "ann", "s1", "a", expires, signature));
    virtual_clock_move(1000);
    assert_false(file_links_check(links, "ann", "s1", "a", expires, signature));
    assert_int_equal(path_remove_tree(dir, &err), 0);
}

static void
test_a_link_ends_with_its_session(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    struct opener first = {0}, again = {0};
    char *expires, *signature;
    KG_AUTO(file_links) links = file_links_new(f->dir, &err);
    assert_non_null(links);
    file_links_set_sessions(links, f->sessions);
    open_named(f, &first, "s1");
    KG_AUTO_FREE char *url = file_links_make(links, "me", "s1", "a");
    split_link(url, &expires, &signature);
    assert_true(file_links_check(links, "me", "s1", "a", expires, signature));
    session_end(first.session, NULL, NULL, NULL);
    assert_false(file_links_check(links, "me", "s1", "a", expires, signature));
    open_named(f, &again, "s1");
    assert_false(file_links_check(links, "me", "s1", "a", expires, signature));
    // A link to what is not there yet is good for nothing later.
    KG_AUTO_FREE char *early = file_links_make(links, "me", "s2", "a");
    split_link(early, &expires, &signature);
    struct opener later = {0};
    open_named(f, &later, "s2");
    assert_false(file_links_check(links, "me", "s2", "a", expires, signature));
}

// ---- Files of an agent that does not end ----------------------------------------------------

struct receiver {
    size_t len;
    int ends;
    struct kg_error err;
};

static void
on_file_head(const struct session_file *file, bool is_part, int64_t offset, int64_t length,
             void *arg)
{
    (void)arg;
    assert_int_equal(file->size, 1500);
    assert_int_equal(length, 1500);
    assert_int_equal(offset, 0);
    assert_false(is_part);
}

static void
on_file_data(const void *data, size_t len, void *arg)
{
    struct receiver *receiver = arg;
    (void)data;
    receiver->len += len;
}

static void
on_file_end(const struct kg_error *err, void *arg)
{
    struct receiver *receiver = arg;
    receiver->ends++;
    receiver->err = *err;
}

static void
on_file_put(const struct session_file *file, bool created, const struct kg_error *err, void *arg)
{
    assert_null(file);
    assert_false(created);
    on_file_end(err, arg);
}

static void
test_files_without_end(void **state)
{
    struct fixture *f = *state;
    static const struct session_file_events file_events = {on_file_head, on_file_data, on_file_end};
    const struct session_file_source source = {.data = "x", .len = 1};
    struct opener opener = {0};
    struct receiver got = {0}, put = {0};
    struct kg_error err = {0};
    open_named(f, &opener, "a");
    fake_script.flood = true;
    assert_non_null(
        session_file_get(opener.session, "f", &SESSION_FILE_WHOLE, &file_events, &got, &err));
    RUN_UNTIL(f, got.ends);
    assert_int_equal(got.err.code, KG_INTERNAL);
    assert_in_range(got.len, 0, 1500);
    assert_non_null(session_file_put(opener.session, "f", &source, false, on_file_put, &put, &err));
    RUN_UNTIL(f, put.ends);
    assert_int_equal(put.err.code, KG_INTERNAL);
    assert_int_equal(got.ends + put.ends, 2);
}

// ---- Eviction -------------------------------------------------------------------------------

static void
on_second_kernel(struct session *session, struct kernel *kernel, const struct kg_error *err,
                 void *arg)
{
    (void)session;
    (void)kernel;
    (void)err;
    (*(int *)arg)++;
}

static void
on_restart_done(const struct kg_error *err, void *arg)
{
    (void)err;
    (*(int *)arg)++;
}

static void
test_what_is_idle(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    int answers = 0;
    open_named(f, &opener, "a");
    assert_true(session_is_idle(opener.session));

    struct session_request second = named(f, "a");
    second.kernelspec = kernelspecs_at(f->specs, 1);
    assert_non_null(session_open_start(f->sessions, &second, on_second_kernel, &answers, &err));
    assert_false(session_is_idle(opener.session));
    RUN_UNTIL(f, answers == 1);
    assert_true(session_is_idle(opener.session));

    KG_AUTO(execution) hanging = execute(&opener, "hang", NULL, &err);
    assert_false(session_is_idle(opener.session));
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_RUNNING);
    session_interrupt(opener.session);
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_DONE);
    assert_true(session_is_idle(opener.session));

    assert_int_equal(session_restart(opener.session, on_restart_done, &answers, &err), 0);
    assert_false(session_is_idle(opener.session));
    RUN_UNTIL(f, answers == 2);
    assert_true(session_is_idle(opener.session));

    struct session_client *client = session_client_new(opener.session);
    KG_AUTO(session_client) other = session_client_new(opener.session);
    session_client_free(client);
    assert_false(session_is_idle(opener.session));
    assert_ptr_equal(session_client_session(other), opener.session);
    session_client_free(KG_STEAL(other));
    assert_true(session_is_idle(opener.session));
}

static void
test_clients_outlive_the_session(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    open_named(f, &opener, "a");
    assert_ptr_equal(session_first_kernel(opener.session), opener.kernel);
    KG_AUTO(session_client) client = session_client_new(opener.session);
    session_end(opener.session, NULL, on_ended, f);
    assert_null(session_client_session(client));
    RUN_UNTIL(f, f->ended > 0);
}

static void
test_eviction_spares_file_traffic(void **state)
{
    struct fixture *f = *state;
    static const struct session_file_events file_events = {on_file_head, on_file_data, on_file_end};
    const struct session_file_source source = {.data = "x", .len = 1};
    struct opener openers[MAX_SESSIONS] = {0};
    struct receiver got = {0};
    struct kg_error err = {0};
    for (size_t i = 0; i < MAX_SESSIONS; i++) {
        const char id[] = {(char)('a' + i), '\0'};
        open_named(f, &openers[i], id);
    }
    fake_script.flood = true;
    struct session_file_op *ops[] = {
        session_file_get(openers[0].session, "f", &SESSION_FILE_WHOLE, &file_events, &got, &err),
        session_file_put(openers[1].session, "f", &source, false, on_file_put, &got, &err),
        session_file_stat(openers[2].session, "f", NULL, NULL, &err),
    };
    const struct session_request request = named(f, "new");
    struct opener refused = {0}, next = {0};
    start(f, &refused, &request);
    assert_null(refused.open);
    assert_int_equal(refused.err.code, KG_MAX_SESSIONS);
    assert_int_equal(sessions_count(f->sessions), MAX_SESSIONS);

    // The others go on; the one whose transfer is over makes room, though it was active last.
    session_file_op_cancel(ops[2]);
    start(f, &next, &request);
    assert_non_null(next.open);
    assert_null(sessions_find(f->sessions, "me", "c", NULL));
    assert_int_equal(got.ends, 0);
    session_file_op_cancel(ops[0]);
    session_file_op_cancel(ops[1]);
    RUN_UNTIL(f, next.answers > 0);
    assert_int_equal(next.err.code, KG_OK);
}

// ---- What a session has besides --------------------------------------------------------------

static void
on_recorded(const struct kg_error *err, void *arg)
{
    int *n = arg;
    *n += err ? 100 : 1;
}

static void
test_a_session_ends_at_its_end(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct session_request request = named(f, "s1");
    request.max_lifetime_s = 60;
    open_request(f, &opener, &request);
    struct kg_error err = {0};
    int n = 0;
    struct session_change change = {.max_lifetime_s = 4000, .idle_timeout_s = 31536000};
    assert_non_null(session_change(opener.session, &change, on_recorded, &n, &err));
    RUN_UNTIL(f, n == 1);
    virtual_clock_advance(f->loop, 3900 * 1000);
    assert_non_null(sessions_find(f->sessions, "me", "s1", &err));
    virtual_clock_advance(f->loop, 101 * 1000);
    assert_null(sessions_find(f->sessions, "me", "s1", &err));
}

static void
test_changes_are_recorded(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    json_auto_t *metadata = json_pack("{s:s}", "a", "1");
    struct session_change change = {.metadata = metadata, .idle_timeout_s = 77};
    int n = 0, n_cancelled = 0, n_late = 0;
    open_named(f, &opener, "s1");
    assert_int_equal(fake_journal_count("record"), 0);
    assert_non_null(session_change(opener.session, &change, on_recorded, &n, &err));
    RUN_UNTIL(f, n == 1);
    assert_non_null(strstr(fake_journal(), "\"idle_timeout_ms\":77000,\"metadata\":{\"a\":\"1\"}"));
    // A client that leaves, and a session that ends before.
    struct session_recording *recording =
        session_change(opener.session, &change, on_recorded, &n_cancelled, &err);
    assert_non_null(recording);
    session_recording_cancel(recording);
    assert_non_null(session_change(opener.session, &change, on_recorded, &n_late, &err));
    session_end(opener.session, "the test ends it", NULL, NULL);
    assert_int_equal(n_late, 100);
    assert_int_equal(n_cancelled, 0);
}

static void
test_a_change_that_cannot_be_recorded_is_undone(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    struct session_token token;
    KG_AUTO_FREE char *secret = NULL;
    json_auto_t *before = json_pack("{s:s}", "a", "before");
    json_auto_t *after = json_pack("{s:s}", "a", "after");
    struct session_change change = {.metadata = before, .idle_timeout_s = 600};
    int n = 0, n_refused = 0;
    KG_AUTO(file_links) links = file_links_new(f->dir, &err);
    KG_AUTO(session_tokens) tokens = session_tokens_new(f->sessions, links, "kgs_");
    open_named(f, &opener, "s1");
    assert_non_null(session_change(opener.session, &change, on_recorded, &n, &err));
    RUN_UNTIL(f, n == 1);
    json_auto_t *described = session_describe(opener.session);

    fake_script.refuse_record = true;
    change =
        (struct session_change){.metadata = after, .idle_timeout_s = 900, .max_lifetime_s = 300};
    virtual_clock_advance(f->loop, 100 * 1000);
    assert_null(session_change(opener.session, &change, on_recorded, &n_refused, &err));
    assert_int_equal(err.code, KG_INTERNAL);
    assert_null(session_token_make(tokens, opener.session, "read", 60, &token, &secret, on_recorded,
                                   &n_refused, &err));
    json_auto_t *left = session_tokens_list(opener.session);
    assert_int_equal(json_array_size(left), 0);
    json_auto_t *now = session_describe(opener.session);
    assert_true(json_equal(now, described)); // nor was it activity

    fake_script.refuse_record = false;
    change = (struct session_change){.max_lifetime_s = 1000};
    assert_non_null(session_change(opener.session, &change, on_recorded, &n, &err));
    RUN_UNTIL(f, n == 2);
    assert_non_null(
        strstr(fake_journal(), "\"idle_timeout_ms\":600000,\"metadata\":{\"a\":\"before\"}"));
    assert_null(strstr(fake_journal(), "after"));
    assert_int_equal(n_refused, 0);
}

static void
test_tokens(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    struct session_token token;
    struct session_token_claim claim;
    KG_AUTO_FREE char *secret = NULL, *other_secret = NULL;
    int n = 0;
    KG_AUTO(file_links) links = file_links_new(f->dir, &err);
    KG_AUTO(session_tokens) tokens = session_tokens_new(f->sessions, links, "kgs_");
    open_named(f, &opener, "s1");
    assert_non_null(session_token_make(tokens, opener.session, "read ports", 60, &token, &secret,
                                       on_recorded, &n, &err));
    RUN_UNTIL(f, n == 1);
    assert_int_equal(session_token_read(tokens, secret, &claim), SESSION_TOKEN_VALID);
    assert_string_equal(claim.owner, "me");
    assert_string_equal(claim.session_id, "s1");
    assert_string_equal(claim.scopes, "read ports");
    assert_non_null(strstr(fake_journal(), token.id));
    assert_non_null(strstr(fake_journal(), "\"scopes\":\"read ports\""));
    assert_null(strstr(fake_journal(), secret));
    // Each character counts, and the length.
    for (size_t i = 0; secret[i]; i++) {
        KG_AUTO_FREE char *changed = kg_strdup(secret);
        changed[i] = changed[i] == 'A' ? 'B' : 'A';
        enum session_token_state read = session_token_read(tokens, changed, &claim);
        assert_int_equal(read, SESSION_TOKEN_NONE);
        changed[i] = '\0';
        assert_int_equal(session_token_read(tokens, changed, &claim), SESSION_TOKEN_NONE);
    }
    KG_AUTO_FREE char *longer = kg_asprintf("%sAAAA", secret);
    assert_int_equal(session_token_read(tokens, longer, &claim), SESSION_TOKEN_NONE);
    // Another installation's key.
    unsigned char shared[32] = {1};
    file_links_share_key(links, shared, sizeof shared);
    KG_AUTO(session_tokens) others = session_tokens_new(f->sessions, links, "kgs_");
    assert_int_equal(session_token_read(others, secret, &claim), SESSION_TOKEN_NONE);

    assert_non_null(session_token_make(tokens, opener.session, "run", 600, &token, &other_secret,
                                       on_recorded, &n, &err));
    RUN_UNTIL(f, n == 2);
    virtual_clock_advance(f->loop, 61 * 1000);
    assert_int_equal(session_token_read(tokens, secret, &claim), SESSION_TOKEN_ENDED);
    assert_int_equal(session_token_read(tokens, other_secret, &claim), SESSION_TOKEN_VALID);
    json_auto_t *list = session_tokens_list(opener.session);
    assert_int_equal(json_array_size(list), 1);
    assert_null(session_token_revoke(opener.session, "none", on_recorded, &n, &err));
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_non_null(session_token_revoke(opener.session, token.id, on_recorded, &n, &err));
    assert_int_equal(session_token_read(tokens, other_secret, &claim), SESSION_TOKEN_ENDED);
    RUN_UNTIL(f, n == 3);
    session_end(opener.session, "the test ends it", NULL, NULL);
    assert_int_equal(session_token_read(tokens, other_secret, &claim), SESSION_TOKEN_ELSEWHERE);
}

int
main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, session_setup, session_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_open_and_open_again),
        TEST(test_concurrent_opens_share),
        TEST(test_session_ids),
        TEST(test_owners_do_not_meet),
        TEST(test_max_sessions),
        TEST(test_owners_wait_in_turn),
        TEST(test_no_sandbox),
        TEST(test_no_claim),
        TEST(test_lost_claims),
        TEST(test_every_claim_is_lost),
        TEST(test_slow_claim),
        TEST(test_gone_while_claimed),
        TEST(test_no_kernel),
        TEST(test_no_second_kernel),
        TEST(test_the_container_ends),
        TEST(test_several_kernels),
        TEST(test_too_many_kernels_for_a_new_session),
        TEST(test_a_session_ends_at_its_end),
        TEST(test_changes_are_recorded),
        TEST(test_a_change_that_cannot_be_recorded_is_undone),
        TEST(test_tokens),
        cmocka_unit_test(test_file_links),
        cmocka_unit_test(test_a_link_is_valid_for_a_day),
        TEST(test_a_link_ends_with_its_session),
        TEST(test_files_without_end),
        TEST(test_what_is_idle),
        TEST(test_clients_outlive_the_session),
        cmocka_unit_test_setup_teardown(test_eviction_spares_file_traffic, session_setup_evicting,
                                        session_teardown),
    };
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    jupyter_init();
    int failed = cmocka_run_group_tests_name("session: opening", tests, NULL, NULL);
    failed += test_session_commands() + test_session_end() + test_session_kernels() +
              test_session_pool() + test_session_requests() + test_session_tools();
    jupyter_fini();
    return failed;
}
