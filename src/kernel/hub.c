// SPDX-License-Identifier: Apache-2.0
// The hub of a kernel.
//
// Every message that a tap sends on shell or control is answered in its order, at the latest by the
// idle status that a kernel publishes for each ("Kernel status" in the protocol). Until then it
// counts as unanswered: that bounds what waits in the kernel's sockets, and an execute_request
// among them keeps the kernel busy.
#include "hub_priv.h"

#include <string.h>

#include "tap_header_priv.h"
#include "tap_priv.h"

enum {
    // Of one kernel: messages that were sent and not answered.
    MAX_UNANSWERED = 256,
    MAX_UNANSWERED_BYTES = 16 << 20,
    // The same for its subshells: what the main shell has queued does not keep them waiting.
    MAX_UNANSWERED_SUBSHELLS = 64,
    MAX_UNANSWERED_SUBSHELLS_BYTES = 4 << 20,
};

// ---- Requests that are not answered ---------------------------------------------------------

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
    tap_request_free(request);
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
        tap_request_free(request);
    } else if (request->channel == JUPYTER_STDIN) {
        tap_request_free(request);
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
            send_request(tap->hub, tap_take_waiting(tap, request));
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
push_event_to_all(struct kernel_hub *hub, enum kernel_tap_kind kind)
{
    struct kernel_tap *tap;
    TAILQ_FOREACH(tap, &hub->taps, link)
        tap_push_event(tap, kind);
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
        if (channel != JUPYTER_IOPUB && !tap_uses_session(tap, message->parent_session))
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

// ---- What the process reports ---------------------------------------------------------------

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

enum kernel_tap_kind
hub_tap_kind(const struct kernel_hub *hub, enum process_state state)
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

// Discards the requests that wait for the old process.
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
            tap_discard_waiting(tap);
        tap_push_event(tap, hub_tap_kind(hub, PROCESS_REPLACING));
    }
    hub->was_up = false;
}

void
hub_on_dead(struct kernel_hub *hub)
{
    struct kernel_tap *tap;
    TAILQ_FOREACH(tap, &hub->taps, link)
        tap_discard_waiting(tap);
    push_event_to_all(hub, KERNEL_TAP_DEAD);
}

// ---- Life -----------------------------------------------------------------------------------

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
