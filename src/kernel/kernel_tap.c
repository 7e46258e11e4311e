// SPDX-License-Identifier: Apache-2.0
// A tap: what its reader sends is checked and waits here; what the hub has for it waits in its
// queue.
#include "kernel_tap.h"

#include <string.h>

#include "tap_header_priv.h"
#include "tap_priv.h"

enum {
    MAX_WAITING = 256, // messages that wait to be sent
    DEFAULT_MAX_BYTES = 10 << 20,
    // What is larger is checked on a worker.
    LARGE_MESSAGE = 64 << 10,
};

// The job of a worker: whether a large message is JSON.
struct tap_check {
    struct tap_request *request; // not looked at by the worker
    struct jupyter_raw *raw;
    bool is_good;
};

// ---- Messages that wait ---------------------------------------------------------------------

static void
check_free(void *arg)
{
    struct tap_check *check = arg;
    jupyter_raw_free(check->raw);
    free(check);
}

void
tap_request_free(struct tap_request *request)
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
struct tap_request *
tap_take_waiting(struct kernel_tap *tap, struct tap_request *request)
{
    TAILQ_REMOVE(&tap->waiting, request, link);
    tap->n_waiting--;
    budget_hold_set(&tap->held, tap->held.held - request->bytes);
    return request;
}

void
tap_discard_waiting(struct kernel_tap *tap)
{
    for (struct tap_request *request; (request = TAILQ_FIRST(&tap->waiting));)
        tap_request_free(tap_take_waiting(tap, request));
}

// ---- What the reader is told ----------------------------------------------------------------

void
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

void
tap_push_event(struct kernel_tap *tap, enum kernel_tap_kind kind)
{
    tap_queue_push_event(&tap->queue, kind);
    tap_wake(tap);
}

bool
tap_uses_session(const struct kernel_tap *tap, const char *session)
{
    for (size_t i = 0; i < TAP_MAX_SESSIONS; i++) {
        if (tap->sessions[i] && strcmp(tap->sessions[i], session) == 0)
            return true;
    }
    return false;
}

static void
remember_session(struct kernel_tap *tap, const char *session)
{
    if (tap_uses_session(tap, session))
        return;
    free(tap->sessions[tap->next_session]);
    tap->sessions[tap->next_session] = kg_strdup(session);
    tap->next_session = (tap->next_session + 1) % TAP_MAX_SESSIONS;
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
        tap_request_free(tap_take_waiting(tap, request));
        tap_push_event(tap, KERNEL_TAP_REFUSED);
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
    for (size_t i = 0; i < TAP_MAX_SESSIONS; i++)
        tap->sessions[i] = twin->sessions[i] ? kg_strdup(twin->sessions[i]) : NULL;
    tap->next_session = twin->next_session;
    tap->n_input_requests = twin->n_input_requests;
}

void
tap_leave(struct kernel_tap *tap)
{
    struct kernel_hub *hub = tap->hub;
    tap_discard_waiting(tap);
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
    tap_push_event(tap, hub_tap_kind(hub, hub->process->state));
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
    for (size_t i = 0; i < TAP_MAX_SESSIONS; i++)
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
