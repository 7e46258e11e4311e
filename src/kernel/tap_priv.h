// SPDX-License-Identifier: Apache-2.0
// What a tap is for its hub: its messages that wait to be sent, and what it is told.
#pragma once

#include "hub_priv.h"
#include "tap_queue_priv.h"

enum { TAP_MAX_SESSIONS = 4 }; // that one tap uses at a time

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
    char *sessions[TAP_MAX_SESSIONS];
    size_t next_session;
    char *owner;
    char *session_id;
    struct budget_hold held; // of executions_waiting(): the bytes of those that wait
};

void tap_request_free(struct tap_request *request);
// Takes a request out of those that wait; the caller owns it.
struct tap_request *tap_take_waiting(struct kernel_tap *tap, struct tap_request *request);
void tap_discard_waiting(struct kernel_tap *tap);
// Calls its reader in the loop's next turn, if that has found nothing to read.
void tap_wake(struct kernel_tap *tap);
void tap_push_event(struct kernel_tap *tap, enum kernel_tap_kind kind);
// Whether it has sent messages of that header session: replies to them are its own.
bool tap_uses_session(const struct kernel_tap *tap, const char *session);
// Its hub ends: nothing is sent any more.
void tap_leave(struct kernel_tap *tap);
