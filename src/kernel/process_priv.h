// SPDX-License-Identifier: Apache-2.0
// The process of a kernel: started by the agent, linked through the sandbox, interrupted, and
// replaced by a new process when it ends or has to end. It knows nothing of executions: its owner
// gets its events and every message.
#pragma once

#include "jupyter.h"
#include "kernel.h"
#include "process_start_priv.h"
#include "sandbox.h"
#include "stdin_link_priv.h"

enum process_state {
    PROCESS_STARTING,
    PROCESS_UP,        // answers requests
    PROCESS_ENDING,    // has ended, or a channel was lost: only its last messages still come
    PROCESS_REPLACING, // the old process is being killed
    PROCESS_DEAD,      // could not be started; process_replace() tries again
};

// How the process ended, as the agent says.
struct process_exit {
    bool known;
    int code;
    int signal; // 0: none
    bool oom;
};

// Why a process that was up cannot be used any longer.
struct process_end {
    int exit_code; // 0 to 255, 128 and more for a signal; -1: it is not known to have exited
    const char *ename;
    const char *evalue;
};

// The receiver must not free the process from inside any of these.
struct process_events {
    // The process answers requests; the state is UP.
    void (*on_ready)(void *arg);
    // No process could be started; the state is DEAD.
    void (*on_failed)(const struct kg_error *err, void *arg);
    // A process that was up has ended or was lost, and its last messages have come. The receiver
    // calls process_replace().
    void (*on_end)(const struct process_end *end, void *arg);
    // From here until on_ready nothing can be sent: the process is about to be killed.
    void (*on_replacing)(void *arg);
    // The old process and all that it left behind are gone; a new one is being started.
    void (*on_replaced)(void *arg);
    // The agent cannot kill the old process, so no kernel can run in this sandbox; the state is
    // DEAD.
    void (*on_stuck)(const struct kg_error *err, void *arg);
    // The agent has answered the interrupt that was sent last.
    void (*on_interrupted)(void *arg);
    // Every message that comes while the process is starting, up or ending. The message is freed
    // after the call.
    void (*on_message)(enum jupyter_channel channel, struct jupyter_message *message, void *arg);
    // The kernel has begun to handle a request, and the message that says so was left out.
    void (*on_begun)(void *arg);
    // Messages of taps can be sent again: see process_can_send().
    void (*on_room)(void *arg);
    // The stdin channel is linked, or there will be none: see process_link_stdin().
    void (*on_stdin_settled)(void *arg);
    // As in struct jupyter_channels_events.
    void *(*shape)(enum jupyter_channel channel, struct jupyter_message *message);
    void (*shaped_free)(void *shaped);
};

// Invariant: `channels` is NULL in REPLACING and DEAD.
struct kernel_process {
    const struct kernel_context *context;
    struct sandbox *sandbox;
    const struct kernelspec *spec;
    char *name; // of the kernel, in the sandbox
    const struct process_events *events;
    void *arg;
    enum process_state state;
    char key[JUPYTER_KEY_LEN + 1];
    int pid; // in the sandbox; 0: not known yet
    char *dir;
    struct jupyter_channels *channels;
    struct process_start start;
    struct stdin_link stdin_link;
    bool is_tapped;
    struct sandbox_call *interrupting;
    struct sandbox_call *stopping;
    struct loop_timer *unasked; // the agent cannot be asked to stop the process
    struct process_exit exit;
    int64_t ending_ms;         // clock_mono_ms() when ENDING began
    struct loop_timer *ending; // until the end is reported
    int64_t n_bad_messages;
};

void process_init(struct kernel_process *process, const struct kernel_context *context,
                  struct sandbox *sandbox, const struct kernel_settings *settings,
                  const struct process_events *events, void *arg);
// The process inside is left to the sandbox's end.
void process_fini(struct kernel_process *process);
// Once, after process_init(): either starts a process, or takes up the one that an earlier gateway
// has started with that pid and key. An adopted process that ends, cannot be reached or does not
// answer within `timeout_ms` is replaced.
void process_start(struct kernel_process *process);
void process_adopt(struct kernel_process *process, int pid, const char *key, int64_t timeout_ms);
// Kills the process with all that it left behind, then starts a new one. In any state but
// REPLACING.
void process_replace(struct kernel_process *process);
// Interrupts what the process does, by a signal or a message as its kernelspec says.
void process_interrupt(struct kernel_process *process);
// The agent says that a process has ended; an event of an earlier process is ignored.
void process_on_exit(struct kernel_process *process, int pid, int exit_code, int signal, bool oom);

// jupyter_channels_send() and jupyter_channels_send_large() on shell; UP only.
KG_MUST_CHECK int process_send(struct kernel_process *process, const char *msg_type,
                               json_t *content, char *ret_msg_id, struct kg_error *err);
KG_MUST_CHECK int process_send_large(struct kernel_process *process, const char *msg_type,
                                     const struct jupyter_content *content, char *ret_msg_id,
                                     struct kg_error *err);

// Asks for the kernel's info on shell, for what is idle and has had no reply: the kernel answers
// there in order, so a reply that has not come before this one will not come. A kernel whose
// threads get little time may be much later with its replies than with its output.
KG_MUST_CHECK int process_probe(struct kernel_process *process, char *ret_msg_id);
enum { PROBE_MS = 10 * 1000 }; // without an answer to that

// Links the stdin channel of a process that is UP, unless that was tried. Returns whether the link
// is still being made; then on_stdin_settled follows.
bool process_link_stdin(struct kernel_process *process);
bool process_has_stdin(const struct kernel_process *process);
// Sends an input_reply ("Messages on the stdin channel").
KG_MUST_CHECK int process_send_input(struct kernel_process *process, const char *value,
                                     struct kg_error *err);

// Whether there are taps: then messages come with `raw`, and the stdin channel is linked.
void process_set_tapped(struct kernel_process *process, bool is_tapped);
// Whether a message of a tap can be sent now. Where it cannot, on_room or on_ready is called when
// that may have changed.
bool process_can_send(struct kernel_process *process, enum jupyter_channel channel);
// jupyter_channels_send_raw(); after process_can_send().
KG_MUST_CHECK int process_send_raw(struct kernel_process *process, enum jupyter_channel channel,
                                   struct jupyter_raw *raw, struct kg_error *err);
// The session id of what process_send() sends; "" where there are no channels.
const char *process_session(const struct kernel_process *process);
