// SPDX-License-Identifier: Apache-2.0
// One question at a time goes over the link; the others wait. Every callback is the last thing that
// its function does: it may free the sandbox.
#include "change_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent_reply.h"
#include "sandbox_priv.h"

enum { OPEN_TIMEOUT_MS = 5 * 1000, ANSWER_MAX = 512 << 10, READ_BYTES = 16 << 10 };

struct sandbox_question {
    TAILQ_ENTRY(sandbox_question) link;
    struct change_link *changes;
    char *line;
    struct loop_timer *timer;
    sandbox_changes_fn fn;
    void *arg;
};

// The first of `queue` is on its way where `asked`.
struct change_link {
    struct sandbox *sandbox;
    TAILQ_HEAD(, sandbox_question) queue;
    bool asked;
    struct sandbox_call *opening;
    struct loop_timer *failed; // the link could not be had: the first question is to fail
    struct kg_error failure;
    int fd;
    struct loop_fd *watch;
    struct buf answer;
};

static void ask_next(struct change_link *changes);

void
change_link_close(struct change_link *changes)
{
    if (changes->opening)
        sandbox_call_cancel(KG_STEAL(changes->opening));
    loop_fd_free(KG_STEAL(changes->watch));
    if (changes->fd >= 0)
        close(KG_STEAL_FD(changes->fd));
    changes->answer.len = 0;
    changes->asked = false;
}

static void
question_free(struct sandbox_question *question)
{
    TAILQ_REMOVE(&question->changes->queue, question, link);
    loop_timer_free(question->timer);
    free(question->line);
    free(question);
}

void
sandbox_question_cancel(struct sandbox_question *question)
{
    if (!question)
        return;
    struct change_link *changes = question->changes;
    bool on_its_way = changes->asked && question == TAILQ_FIRST(&changes->queue);
    // Nobody would tell its answer from the next one's.
    if (on_its_way)
        change_link_close(changes);
    question_free(question);
    ask_next(changes);
}

static void
fail(struct sandbox_question *question, const struct kg_error *err)
{
    sandbox_changes_fn fn = question->fn;
    void *arg = question->arg;

    sandbox_question_cancel(question);
    fn(NULL, err, arg);
}

bool
change_link_fail_one(struct change_link *changes, const struct kg_error *reason)
{
    if (TAILQ_EMPTY(&changes->queue))
        return false;
    fail(TAILQ_FIRST(&changes->queue), reason);
    return true;
}

static void
on_failed(void *arg)
{
    struct change_link *changes = arg;
    const struct kg_error failure = changes->failure;

    (void)change_link_fail_one(changes, &failure);
}

static void
on_timeout(void *arg)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                       "the sandbox's agent did not say in time what has changed");
    fail(arg, &err);
}

// ---- The link -------------------------------------------------------------------------------

static void
link_lost(struct change_link *changes)
{
    struct kg_error err;

    change_link_close(changes);
    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the agent's link was lost");
    (void)change_link_fail_one(changes, &err);
}

static void
take_answer(struct change_link *changes, size_t len)
{
    struct sandbox_question *question = TAILQ_FIRST(&changes->queue);
    sandbox_changes_fn fn = question->fn;
    void *arg = question->arg;
    struct kg_error err = {0};

    json_auto_t *body = agent_reply_parse(200, changes->answer.data, len, &err);
    if (body && !json_is_array(json_object_get(body, "files"))) {
        json_decref(KG_STEAL(body));
        (void)kg_error_set(&err, KG_INTERNAL, 0, "the agent cannot say what has changed");
    }
    changes->answer.len = 0;
    changes->asked = false;
    question_free(question);
    ask_next(changes);
    fn(body, body ? NULL : &err, arg);
}

static void
on_link_fd(int fd, int events, void *arg)
{
    struct change_link *changes = arg;
    struct buf *answer = &changes->answer;
    (void)events;

    ssize_t n = recv(fd, buf_reserve(answer, READ_BYTES), READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !changes->asked || answer->len + (size_t)n > ANSWER_MAX) {
        link_lost(changes);
        return;
    }
    const char *end = memchr(answer->data + answer->len, '\n', (size_t)n);
    answer->len += (size_t)n;
    if (end)
        take_answer(changes, (size_t)(end - answer->data));
}

static void
on_open(int fd, const struct kg_error *err, void *arg)
{
    struct change_link *changes = arg;

    changes->opening = NULL;
    if (fd < 0) {
        (void)change_link_fail_one(changes, err);
        return;
    }
    changes->fd = fd;
    changes->watch =
        loop_fd_new(changes->sandbox->context.loop, fd, LOOP_READ, on_link_fd, changes);
    ask_next(changes);
}

// Calls nobody back.
static void
ask_next(struct change_link *changes)
{
    const struct sandbox_question *question = TAILQ_FIRST(&changes->queue);

    if (!question || changes->asked || changes->opening || !changes->sandbox->door)
        return;
    if (changes->fd < 0) {
        changes->opening = sandbox_open_link(changes->sandbox, "changes", OPEN_TIMEOUT_MS, on_open,
                                             changes, &changes->failure);
        if (!changes->opening)
            loop_timer_start(changes->failed, 0);
        return;
    }
    size_t len = strlen(question->line);
    changes->asked = true;
    // A line fits into an empty socket.
    if (send(changes->fd, question->line, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len)
        return;
    change_link_close(changes);
    (void)kg_error_set(&changes->failure, KG_PROVISIONER_UNAVAILABLE, 0,
                       "the agent's link was lost");
    loop_timer_start(changes->failed, 0);
}

// ---- Asking ---------------------------------------------------------------------------------

struct sandbox_question *
sandbox_ask_changes(struct sandbox *sandbox, const char *cursor, int64_t within_us,
                    int64_t timeout_ms, sandbox_changes_fn fn, void *arg, struct kg_error *err)
{
    struct change_link *changes = sandbox->changes;

    if (!sandbox->door) {
        (void)kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox is gone");
        return NULL;
    }
    json_auto_t *line =
        json_pack("{s:s, s:I}", "cursor", cursor, "within_us", (json_int_t)within_us);
    KG_AUTO_FREE char *text = json_dumps(line, JSON_COMPACT);
    struct sandbox_question *question = KG_NEW(struct sandbox_question);
    question->changes = changes;
    question->line = kg_asprintf("%s\n", text);
    question->fn = fn;
    question->arg = arg;
    question->timer = loop_timer_new(sandbox->context.loop, on_timeout, question);
    loop_timer_start(question->timer, timeout_ms);
    TAILQ_INSERT_TAIL(&changes->queue, question, link);
    ask_next(changes);
    return question;
}

struct change_link *
change_link_new(struct sandbox *sandbox)
{
    struct change_link *changes = KG_NEW(struct change_link);

    changes->sandbox = sandbox;
    changes->fd = -1;
    changes->failed = loop_timer_new(sandbox->context.loop, on_failed, changes);
    TAILQ_INIT(&changes->queue);
    return changes;
}

void
change_link_free(struct change_link *changes)
{
    change_link_close(changes);
    loop_timer_free(changes->failed);
    buf_fini(&changes->answer);
    free(changes);
}
