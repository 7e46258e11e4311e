// SPDX-License-Identifier: Apache-2.0
// The hub of a kernel and its taps.
//
// Every message that a tap sends on shell or control is answered in its order, at the latest by the
// idle status that a kernel publishes for each ("Kernel status" in the protocol). Until then it
// counts as unanswered: that bounds what waits in the kernel's sockets, and an execute_request
// among them keeps the kernel busy.

#include <string.h>

#include "hub_priv.h"
#include "tap_header_priv.h"
#include "tap_queue_priv.h"

enum {
    // Of one kernel: messages that were sent and not answered.
    MAX_UNANSWERED = 256,
    MAX_UNANSWERED_BYTES = 16 << 20,
    // The same for its subshells: what the main shell has queued does not keep them waiting.
    MAX_UNANSWERED_SUBSHELLS = 64,
    MAX_UNANSWERED_SUBSHELLS_BYTES = 4 << 20,
    // Of one tap: messages that wait to be sent.
    MAX_WAITING = 256,
    DEFAULT_MAX_BYTES = 10 << 20,
    // What is larger is checked on a worker.
    LARGE_MESSAGE = 64 << 10,
    MAX_SESSIONS = 4, // that one tap uses at a time
};

// A message of a tap: it waits, and is then unanswered.
struct tap_request {
    TAILQ_ENTRY(tap_request) link;
    struct kernel_tap *tap; // NULL once it was sent
    enum jupyter_channel channel;
    char *session;
    char *msg_id;
    char *subshell; // JEP 91; NULL: the main shell, or not on shell
    char *type;
    char *header; // as JSON, for answers in the kernel's place
    bool is_execute;
    size_t bytes;
    struct jupyter_raw *raw;    // NULL once it was sent
    struct loop_work *checking; // NULL: it was checked
    struct tap_check *check;    // while `checking`
};

// The job of a worker: whether a large message is JSON.
struct tap_check {
    struct tap_request *request; // not looked at by the worker
    struct jupyter_raw *raw;
    bool is_good;
};

struct kernel_tap {
    TAILQ_ENTRY(kernel_tap) link;
    struct kernel_hub *hub; // NULL: ended
    struct tap_queue queue;
    struct loop_timer *wake;
    bool is_asleep; // kernel_tap_next() has returned false
    loop_fn on_ready;
    void *arg;
    struct tap_requests waiting;
    int n_waiting;
    int n_input_requests; // that no input_reply has answered
    char *sessions[MAX_SESSIONS];
    size_t next_session;
    char *owner;
    char *session_id;
    struct budget_hold held; // of executions_waiting(): the bytes of those that wait
};

// ---- Requests -------------------------------------------------------------------------------

static void
check_free(void *arg)
{
    struct tap_check *check = arg;
    jupyter_raw_free(check->raw);
    free(check);
}

static void
request_free(struct tap_request *request)
{
    if (request->checking)
        loop_work_cancel(request->checking, check_free);
    jupyter_raw_free(request->raw);
    free(request->session);
    free(request->msg_id);
    free(request->subshell);
    free(request->type);
    free(request->header);
    free(request);
}

// Takes a request out of those that wait; the caller owns it.
static struct tap_request *
take_waiting(struct kernel_tap *tap, struct tap_request *request)
{
    TAILQ_REMOVE(&tap->waiting, request, link);
    tap->n_waiting--;
    budget_hold_set(&tap->held, tap->held.held - request->bytes);
    return request;
}

static void
discard_waiting(struct kernel_tap *tap)
{
    for (struct tap_request *request; (request = TAILQ_FIRST(&tap->waiting));)
        request_free(take_waiting(tap, request));
}

static struct hub_load *
load_of(struct kernel_hub *hub, const struct tap_request *request)
{
    return request->subshell ? &hub->subshells : &hub->main;
}

static void
add_unanswered(struct kernel_hub *hub, struct tap_request *request)
{
    request->tap = NULL;
    struct hub_load *load = load_of(hub, request);
    TAILQ_INSERT_TAIL(&hub->unanswered, request, link);
    load->n++;
    load->bytes += request->bytes;
    hub->n_executing += request->is_execute;
    hub->was_used = true;
}

static void
remove_unanswered(struct kernel_hub *hub, struct tap_request *request)
{
    struct hub_load *load = load_of(hub, request);
    TAILQ_REMOVE(&hub->unanswered, request, link);
    load->n--;
    load->bytes -= request->bytes;
    hub->n_executing -= request->is_execute;
    request_free(request);
}

static void
forget_unanswered(struct kernel_hub *hub)
{
    for (struct tap_request *request; (request = TAILQ_FIRST(&hub->unanswered));)
        remove_unanswered(hub, request);
    hub->was_used = false;
}

static struct tap_request *
find_unanswered(const struct kernel_hub *hub, const struct jupyter_message *message)
{
    struct tap_request *request;
    TAILQ_FOREACH(request, &hub->unanswered, link) {
        if (strcmp(request->msg_id, message->parent_id) == 0 &&
            strcmp(request->session, message->parent_session) == 0)
            return request;
    }
    return NULL;
}

// Whether the kernel answers these two in their order.
static bool
is_behind_same(const struct tap_request *a, const struct tap_request *b)
{
    bool same_subshell = a->subshell && b->subshell ? strcmp(a->subshell, b->subshell) == 0
                                                    : a->subshell == b->subshell;
    return a->channel == b->channel && same_subshell;
}

// A request is answered, and so is every earlier one of its channel and subshell: a kernel that
// says nothing about one message must not stay busy for ever.
static void
request_answered(struct kernel_hub *hub, struct tap_request *answered)
{
    bool was_executing = hub->n_executing > 0, done = false;
    struct tap_request *next;
    for (struct tap_request *request = TAILQ_FIRST(&hub->unanswered); !done; request = next) {
        next = TAILQ_NEXT(request, link);
        done = request == answered;
        if (!done && is_behind_same(request, answered))
            remove_unanswered(hub, request);
    }
    remove_unanswered(hub, answered);
    if (was_executing && hub->n_executing == 0)
        hub->events->on_idle(hub->arg);
    hub_flush(hub);
}

static bool
is_type(const struct jupyter_message *message, const char *type)
{
    return strcmp(message->msg_type, type) == 0;
}

// Replies and the idle status come on channels of their own, in any order.
static bool
is_answer(enum jupyter_channel channel, const struct jupyter_message *message)
{
    if (channel == JUPYTER_SHELL || channel == JUPYTER_CONTROL)
        return true;
    const char *state = json_string_value(json_object_get(message->content, "execution_state"));
    return channel == JUPYTER_IOPUB && is_type(message, "status") && state &&
           strcmp(state, "idle") == 0;
}

// ---- To the kernel --------------------------------------------------------------------------

static bool
has_room(struct kernel_hub *hub, const struct tap_request *request)
{
    const struct hub_load *load = load_of(hub, request);
    int max = request->subshell ? MAX_UNANSWERED_SUBSHELLS : MAX_UNANSWERED;
    size_t max_bytes = request->subshell ? MAX_UNANSWERED_SUBSHELLS_BYTES : MAX_UNANSWERED_BYTES;
    return load->n == 0 || (load->n < max && load->bytes + request->bytes <= max_bytes);
}

static bool
can_send(struct kernel_hub *hub, const struct tap_request *request)
{
    if (request->checking || !process_can_send(hub->process, request->channel))
        return false;
    if (request->channel == JUPYTER_STDIN)
        return true;
    if (request->channel == JUPYTER_SHELL && hub->is_held) {
        hub->events->on_held(hub->arg);
        return false;
    }
    return has_room(hub, request);
}

static void
add_run(struct kernel_hub *hub, const struct tap_request *request)
{
    const struct tap_run_request run = {
        .owner = request->tap->owner,
        .session_id = request->tap->session_id,
        .header_session = request->session,
        .msg_id = request->msg_id,
        .subshell = request->subshell,
        .header = request->header,
    };
    tap_runs_add(&hub->runs, &run);
}

static void
send_request(struct kernel_hub *hub, struct tap_request *request)
{
    struct kg_error err = {0};
    if (process_send_raw(hub->process, request->channel, KG_STEAL(request->raw), &err) < 0) {
        log_debug("a message of a tap was not sent", LOG_ERR(&err));
        request_free(request);
    } else if (request->channel == JUPYTER_STDIN) {
        request_free(request);
    } else {
        if (request->is_execute && request->channel == JUPYTER_SHELL)
            add_run(hub, request);
        add_unanswered(hub, request);
    }
}

// Sends the first message of a tap that can be sent. Where the first of a channel cannot, neither
// can the others of that channel; subshells are a channel of their own here.
static bool
flush_one(struct kernel_tap *tap)
{
    bool blocked[JUPYTER_N_CHANNELS + 1] = {false};
    struct tap_request *request;
    TAILQ_FOREACH(request, &tap->waiting, link) {
        size_t lane = request->subshell ? JUPYTER_N_CHANNELS : (size_t)request->channel;
        if (blocked[lane])
            continue;
        if (can_send(tap->hub, request)) {
            send_request(tap->hub, take_waiting(tap, request));
            return true;
        }
        blocked[lane] = true;
    }
    return false;
}

void
hub_flush(struct kernel_hub *hub)
{
    if (hub->is_flushing) // on_held may release what it holds
        return;
    hub->is_flushing = true;
    for (bool any = true; any;) { // one of each tap, in turn
        any = false;
        struct kernel_tap *tap;
        TAILQ_FOREACH(tap, &hub->taps, link)
            any |= flush_one(tap);
    }
    hub->is_flushing = false;
}

void
hub_hold(struct kernel_hub *hub, bool hold)
{
    bool was_held = hub->is_held;
    hub->is_held = hold;
    if (was_held && !hold)
        hub_flush(hub);
}

bool
hub_can_be_interrupted(const struct kernel_hub *hub)
{
    const struct tap_request *request;
    TAILQ_FOREACH(request, &hub->unanswered, link) {
        if (request->is_execute && !request->subshell)
            return true;
    }
    return false;
}

bool
hub_is_busy(const struct kernel_hub *hub)
{
    const struct kernel_tap *tap;
    const struct tap_request *request;
    if (hub->n_executing > 0)
        return true;
    TAILQ_FOREACH(tap, &hub->taps, link) {
        TAILQ_FOREACH(request, &tap->waiting, link) {
            if (request->is_execute)
                return true;
        }
    }
    return false;
}

// ---- To the taps ----------------------------------------------------------------------------

static void
tap_wake(struct kernel_tap *tap)
{
    if (tap->is_asleep)
        loop_timer_start(tap->wake, 0);
    tap->is_asleep = false;
}

static void
tap_on_wake(void *arg)
{
    struct kernel_tap *tap = arg;
    tap->on_ready(tap->arg); // may close the tap
}

static void
push_event(struct kernel_tap *tap, enum kernel_tap_kind kind)
{
    tap_queue_push_event(&tap->queue, kind);
    tap_wake(tap);
}

static void
push_event_to_all(struct kernel_hub *hub, enum kernel_tap_kind kind)
{
    struct kernel_tap *tap;
    TAILQ_FOREACH(tap, &hub->taps, link)
        push_event(tap, kind);
}

static bool
uses_session(const struct kernel_tap *tap, const char *session)
{
    for (size_t i = 0; i < MAX_SESSIONS; i++) {
        if (tap->sessions[i] && strcmp(tap->sessions[i], session) == 0)
            return true;
    }
    return false;
}

static void
remember_session(struct kernel_tap *tap, const char *session)
{
    if (uses_session(tap, session))
        return;
    free(tap->sessions[tap->next_session]);
    tap->sessions[tap->next_session] = kg_strdup(session);
    tap->next_session = (tap->next_session + 1) % MAX_SESSIONS;
}

// What is given to taps. `raw` is taken; NULL: it was too large.
struct distributed {
    enum jupyter_channel channel;
    const char *type;
    const char *parent_session;
    struct jupyter_raw *raw;
    uint64_t cut_bytes;
};

static void
distribute(struct kernel_hub *hub, struct distributed *message)
{
    struct output_budget *budget = executions_budget(hub->executions);
    enum jupyter_channel channel = message->channel;
    bool droppable = channel == JUPYTER_IOPUB && strcmp(message->type, "status") != 0;
    bool asks_input = channel == JUPYTER_STDIN && strcmp(message->type, "input_request") == 0;
    struct tap_message *shared = NULL;
    struct kernel_tap *tap;
    TAILQ_FOREACH(tap, &hub->taps, link) {
        if (channel != JUPYTER_IOPUB && !uses_session(tap, message->parent_session))
            continue;
        if (!shared && message->raw)
            shared = tap_message_new(budget, channel, KG_STEAL(message->raw));
        if (shared)
            tap_queue_push(&tap->queue, shared, droppable);
        else
            tap_queue_lose(&tap->queue, message->cut_bytes);
        tap->n_input_requests += asks_input;
        tap_wake(tap);
    }
    tap_message_unref(shared);
    jupyter_raw_free(message->raw);
}

// ---- Answers in the kernel's place ----------------------------------------------------------

static void
say(struct kernel_hub *hub, const struct tap_answer *answer, enum jupyter_channel channel,
    const char *type, json_t *content)
{
    distribute(hub, &(struct distributed){
                        .channel = channel,
                        .type = type,
                        .parent_session = answer->session,
                        .raw = tap_raw_answer(type, answer->header, content),
                    });
}

// As a kernel would: the error, the reply, and then the idle status. Clients wait for the last two.
static void
hub_answer(const struct tap_answer *answer, void *arg)
{
    struct kernel_hub *hub = arg;
    bool failed = strcmp(answer->status, "error") == 0;
    KG_AUTO_FREE char *text = kg_asprintf("%s: %s", answer->ename, answer->evalue);
    json_auto_t *error = json_pack("{s:s, s:s, s:[s]}", "ename", answer->ename, "evalue",
                                   answer->evalue, "traceback", text);
    if (failed && answer->needs_error)
        say(hub, answer, JUPYTER_IOPUB, "error", json_deep_copy(error));
    if (answer->needs_reply) {
        size_t len = strlen(answer->type);
        size_t stem = len > 8 && strcmp(answer->type + len - 8, "_request") == 0 ? len - 8 : len;
        KG_AUTO_FREE char *type = kg_asprintf("%.*s_reply", (int)stem, answer->type);
        json_object_set_new(error, "status", json_string(answer->status));
        say(hub, answer, answer->channel, type, json_incref(error));
    }
    if (answer->needs_idle)
        say(hub, answer, JUPYTER_IOPUB, "status", json_pack("{s:s}", "execution_state", "idle"));
}

// A request to which the kernel says nothing any more; `end` is NULL where a client has restarted
// it.
static void
answer_in_its_place(struct kernel_hub *hub, const struct tap_request *request,
                    const struct process_end *end)
{
    const struct tap_answer answer = {
        .channel = request->channel,
        .type = request->type,
        .session = request->session,
        .header = request->header,
        .status = end ? "error" : "aborted",
        .ename = end ? end->ename : "KernelRestarted",
        .evalue = end ? end->evalue : "the kernel was restarted",
        .needs_error = request->is_execute,
        .needs_reply = true,
        .needs_idle = true,
    };
    if (request->channel != JUPYTER_STDIN)
        hub_answer(&answer, hub);
}

// What a kernel says about the gateway's own kernel_info_requests (while it starts, and to see that
// it lives): nobody has run anything, so no client is told that the kernel is busy.
static bool
is_about_a_probe(const struct jupyter_message *message)
{
    return strcmp(message->parent_type, "kernel_info_request") == 0;
}

void
hub_on_message(struct kernel_hub *hub, enum jupyter_channel channel,
               struct jupyter_message *message)
{
    const char *own = process_session(hub->process);
    bool is_own = strcmp(message->parent_session, own) == 0;
    struct tap_request *answered =
        !is_own && is_answer(channel, message) ? find_unanswered(hub, message) : NULL;
    if (!is_own || !is_about_a_probe(message))
        distribute(hub, &(struct distributed){
                            .channel = channel,
                            .type = message->msg_type,
                            .parent_session = message->parent_session,
                            .raw = KG_STEAL(message->raw),
                            .cut_bytes = message->cut_bytes,
                        });
    if (is_own) {
        tap_runs_on_own_message(&hub->runs, channel, message);
        hub->events->on_own_message(channel, message, hub->arg);
        return;
    }
    tap_runs_on_message(&hub->runs, channel, message);
    if (answered)
        request_answered(hub, answered);
}

void
hub_on_ready(struct kernel_hub *hub)
{
    hub->was_up = true;
    push_event_to_all(hub, KERNEL_TAP_READY);
    hub_flush(hub);
}

static enum kernel_tap_kind
kind_of(const struct kernel_hub *hub, enum process_state state)
{
    switch (state) {
    case PROCESS_STARTING:
        return KERNEL_TAP_STARTING;
    case PROCESS_UP:
    case PROCESS_ENDING: // the taps learn of the end when it is certain
        return KERNEL_TAP_READY;
    case PROCESS_REPLACING:
        return hub->replaced_by_request ? KERNEL_TAP_REQUESTED : KERNEL_TAP_RESTARTING;
    case PROCESS_DEAD:
        return KERNEL_TAP_DEAD;
    }
    return KERNEL_TAP_DEAD;
}

// Requests that the old process had, and those of taps that were meant for it. What a run has the
// answer to, it gives.
static void
answer_all(struct kernel_hub *hub, const struct process_end *end)
{
    struct tap_request *request;
    struct kernel_tap *tap;
    TAILQ_FOREACH(request, &hub->unanswered, link) {
        if (!request->is_execute || request->channel != JUPYTER_SHELL)
            answer_in_its_place(hub, request, end);
    }
    tap_runs_end(&hub->runs, end ? CELL_DIED : CELL_RESTARTED, end, true);
    TAILQ_FOREACH(tap, &hub->taps, link) {
        TAILQ_FOREACH(request, &tap->waiting, link)
            answer_in_its_place(hub, request, end);
    }
}

// What was meant for the old process is not for the new one.
void
hub_on_replacing(struct kernel_hub *hub, const struct process_end *end)
{
    struct kernel_tap *tap;
    hub->replaced_by_request = !end;
    if (hub->was_up)
        answer_all(hub, end);
    forget_unanswered(hub);
    TAILQ_FOREACH(tap, &hub->taps, link) {
        tap->n_input_requests = 0;
        if (hub->was_up)
            discard_waiting(tap);
        push_event(tap, kind_of(hub, PROCESS_REPLACING));
    }
    hub->was_up = false;
}

void
hub_on_dead(struct kernel_hub *hub)
{
    struct kernel_tap *tap;
    TAILQ_FOREACH(tap, &hub->taps, link)
        discard_waiting(tap);
    push_event_to_all(hub, KERNEL_TAP_DEAD);
}

// ---- Checks of what a tap sends -------------------------------------------------------------

static int
check_message(const struct kernel_tap *tap, const struct kernel_message *message, size_t bytes,
              struct kg_error *err)
{
    size_t max = executions_max_message_bytes(tap->hub->executions);
    size_t max_bytes = max ? max : DEFAULT_MAX_BYTES;
    if (message->channel != KERNEL_SHELL && message->channel != KERNEL_CONTROL &&
        message->channel != KERNEL_STDIN)
        return kg_error_set(err, KG_INVALID, 0, "channel: must be shell, control or stdin");
    if (bytes > max_bytes)
        return kg_error_set(err, KG_INVALID, 0, "message: more than %zu bytes", max_bytes);
    if (tap->n_waiting == MAX_WAITING || tap->held.held + bytes > max_bytes)
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "the kernel does not take more messages; try again later");
    return executions_check_waiting(tap->hub->executions, tap->owner, bytes, err);
}

static void
check_run(void *arg)
{
    struct tap_check *check = arg;
    struct kg_error err;
    check->is_good = jupyter_raw_repair(check->raw, &err) == 0;
}

static void
check_on_done(void *arg)
{
    struct tap_check *check = arg;
    struct tap_request *request = check->request;
    struct kernel_tap *tap = request->tap;
    request->checking = NULL;
    if (check->is_good) {
        request->raw = KG_STEAL(check->raw);
    } else {
        request_free(take_waiting(tap, request));
        push_event(tap, KERNEL_TAP_REFUSED);
    }
    check_free(check);
    hub_flush(tap->hub);
}

// Has a large message checked, which waits meanwhile.
static void
check_later(struct tap_request *request, struct jupyter_raw *raw)
{
    struct tap_check *check = KG_NEW(struct tap_check);
    check->request = request;
    check->raw = raw;
    request->checking = loop_work_start(request->tap->hub->loop, loop_lane_of(request->tap->owner),
                                        check_run, check_on_done, check);
}

static struct tap_request *
request_new(struct kernel_tap *tap, const struct kernel_message *message, const json_t *header,
            size_t bytes)
{
    const char *type = json_string_value(json_object_get(header, "msg_type"));
    const char *subshell = json_string_value(json_object_get(header, "subshell_id"));
    struct tap_request *request = KG_NEW(struct tap_request);
    request->tap = tap;
    request->channel = (enum jupyter_channel)message->channel;
    request->session = kg_strdup(json_string_value(json_object_get(header, "session")));
    request->msg_id = kg_strdup(json_string_value(json_object_get(header, "msg_id")));
    if (request->channel == JUPYTER_SHELL && subshell)
        request->subshell = kg_strdup(subshell);
    request->type = kg_strdup(type);
    request->header = json_dumps(header, JSON_COMPACT);
    request->is_execute = strcmp(type, "execute_request") == 0;
    request->bytes = bytes;
    return request;
}

// Whether a stdin message answers a request for input.
static int
check_input(const struct kernel_tap *tap, const struct kernel_message *message,
            struct kg_error *err)
{
    if (message->channel == KERNEL_STDIN && tap->n_input_requests == 0)
        return kg_error_set(err, KG_INVALID, 0, "channel: the kernel has not asked for input");
    return 0;
}

int
kernel_tap_send(struct kernel_tap *tap, const struct kernel_message *message, struct kg_error *err)
{
    struct kernel_hub *hub = tap->hub;
    if (!hub || tap->queue.is_cut)
        return kg_error_set(err, KG_NOT_FOUND, 0, "the kernel is not connected any more");
    size_t bytes = tap_message_bytes(message);
    json_auto_t *header = tap_header_read(&message->header, process_session(hub->process), err);
    if (!header || check_input(tap, message, err) < 0 ||
        check_message(tap, message, bytes, err) < 0)
        return -1;
    KG_AUTO(jupyter_raw) raw = tap_raw_new(message, header, err);
    if (!raw)
        return -1;
    bool is_large = bytes > LARGE_MESSAGE;
    if (!is_large && jupyter_raw_repair(raw, err) < 0)
        return -1;
    struct tap_request *request = request_new(tap, message, header, bytes);
    remember_session(tap, request->session);
    tap->n_input_requests -= message->channel == KERNEL_STDIN;
    TAILQ_INSERT_TAIL(&tap->waiting, request, link);
    tap->n_waiting++;
    budget_hold_set(&tap->held, tap->held.held + bytes);
    if (is_large)
        check_later(request, KG_STEAL(raw));
    else
        request->raw = KG_STEAL(raw);
    if (hub->process->state == PROCESS_DEAD)
        process_replace(hub->process);
    hub_flush(hub);
    return 0;
}

bool
kernel_tap_is_sending(const struct kernel_tap *tap)
{
    return tap->n_waiting > 0;
}

// ---- Life -----------------------------------------------------------------------------------

static void
use_sessions_of(struct kernel_tap *tap, const struct kernel_tap *twin)
{
    for (size_t i = 0; i < MAX_SESSIONS; i++)
        tap->sessions[i] = twin->sessions[i] ? kg_strdup(twin->sessions[i]) : NULL;
    tap->next_session = twin->next_session;
    tap->n_input_requests = twin->n_input_requests;
}

static void
tap_leave(struct kernel_tap *tap)
{
    struct kernel_hub *hub = tap->hub;
    discard_waiting(tap);
    budget_hold_end(&tap->held);
    TAILQ_REMOVE(&hub->taps, tap, link);
    hub->n_taps--;
    tap->hub = NULL;
}

struct kernel_tap *
hub_open_tap(struct kernel_hub *hub, const struct kernel_tap_settings *settings, loop_fn on_ready,
             void *arg, struct kg_error *err)
{
    if (hub->n_taps == KERNEL_MAX_TAPS) {
        (void)kg_error_set(err, KG_SESSION_BUSY, 0, "%d clients use the kernel already",
                           KERNEL_MAX_TAPS);
        return NULL;
    }
    struct kernel_tap *tap = KG_NEW(struct kernel_tap);
    size_t max_bytes =
        settings->max_bytes ? settings->max_bytes : executions_max_log_bytes(hub->executions);
    tap->hub = hub;
    tap->on_ready = on_ready;
    tap->arg = arg;
    tap->owner = kg_strdup(settings->owner);
    tap->session_id = kg_strdup(settings->session_id);
    budget_hold_start(&tap->held, executions_waiting(hub->executions), settings->owner);
    tap->wake = loop_timer_new(hub->loop, tap_on_wake, tap);
    tap->is_asleep = true;
    if (settings->twin)
        use_sessions_of(tap, settings->twin);
    TAILQ_INIT(&tap->waiting);
    tap_queue_init(&tap->queue, executions_budget(hub->executions), max_bytes);
    TAILQ_INSERT_TAIL(&hub->taps, tap, link);
    if (hub->n_taps++ == 0)
        process_set_tapped(hub->process, true);
    push_event(tap, kind_of(hub, hub->process->state));
    return tap;
}

void
kernel_tap_close(struct kernel_tap *tap)
{
    if (!tap)
        return;
    struct kernel_hub *hub = tap->hub;
    if (hub) {
        tap_leave(tap);
        if (hub->n_taps == 0)
            process_set_tapped(hub->process, false);
    }
    tap_queue_fini(&tap->queue);
    loop_timer_free(tap->wake);
    for (size_t i = 0; i < MAX_SESSIONS; i++)
        free(tap->sessions[i]);
    free(tap->owner);
    free(tap->session_id);
    free(tap);
}

bool
kernel_tap_has_ended(const struct kernel_tap *tap)
{
    return !tap->hub;
}

bool
kernel_tap_next(struct kernel_tap *tap, struct kernel_tap_item *ret)
{
    bool any = tap_queue_take(&tap->queue, ret);
    tap->is_asleep = !any;
    return any;
}

void
kernel_tap_let_go(struct kernel_tap *tap)
{
    tap_message_unref(KG_STEAL(tap->queue.taken));
}

void *
kernel_tap_hold(struct kernel_tap *tap)
{
    return tap_message_ref(tap->queue.taken);
}

bool
kernel_tap_is_crowded(const struct kernel_tap *tap)
{
    return output_budget_is_crowded(tap->queue.budget);
}

void
hub_init(struct kernel_hub *hub, const struct kernel_context *context,
         struct kernel_process *process, const struct hub_events *events, void *arg)
{
    *hub = (struct kernel_hub){
        .loop = context->loop,
        .executions = context->executions,
        .process = process,
        .events = events,
        .arg = arg,
    };
    tap_runs_init(&hub->runs, context, process, hub_answer, hub);
    TAILQ_INIT(&hub->taps);
    TAILQ_INIT(&hub->unanswered);
}

void
hub_fini(struct kernel_hub *hub, const char *evalue)
{
    const struct process_end end = {-1, "KernelDied", evalue};
    tap_runs_end(&hub->runs, CELL_GONE, &end, false);
    for (struct kernel_tap *tap; (tap = TAILQ_FIRST(&hub->taps));) {
        tap_leave(tap);
        tap_queue_push_event(&tap->queue, KERNEL_TAP_ENDED);
        tap->is_asleep = true; // its reader is told even if it reads nothing now
        tap_wake(tap);
    }
    forget_unanswered(hub);
}
