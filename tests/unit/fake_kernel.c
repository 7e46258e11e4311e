// SPDX-License-Identifier: Apache-2.0
// The kernel's side of shell, iopub, control and stdin.

#include "fake_kernel.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "signer_priv.h"

#include <czmq.h> // after base.h: it brings syslog.h, which has a LOG_ERR of its own

struct fake_kernel {
    struct jupyter_signer *signer;
    char *path; // of its endpoints, without the channel
    zsock_t *sockets[JUPYTER_N_CHANNELS];
    struct loop_fd *watches[JUPYTER_N_CHANNELS];
    struct loop_timer *exit;
    bool mute;
    const struct fake_kernel_events *events;
    void *arg;
    int exit_signal;
    bool exit_oom;
    // The request that came last, and whether it runs until an interrupt.
    zframe_t *identity;
    struct buf header;
    struct buf late; // the request that is replied to just before the next question for its info
    enum { DONE, HANGING, DEAF, STUBBORN, SLOW_SILENT, ASKING } running;
    bool aborts; // the next execute_request
    int count;
};

// ---- Messages -------------------------------------------------------------------------------

// Sends a message, the child of the last request; takes `content`.
static void
say(struct fake_kernel *kernel, enum jupyter_channel channel, const char *type, json_t *content)
{
    KG_AUTO(jupyter_outgoing)
    outgoing = jupyter_outgoing_new(kernel->signer, type, content);
    char signature[SIGNER_SIGNATURE_LEN + 1];
    outgoing->frames[3] = (struct jupyter_frame){kernel->header.data, kernel->header.len};
    signer_sign(kernel->signer, &outgoing->frames[2], signature);
    outgoing->frames[1] = (struct jupyter_frame){signature, strlen(signature)};

    zmsg_t *message = zmsg_new();
    zframe_t *prefix =
        channel == JUPYTER_IOPUB ? zframe_from("kernel") : zframe_dup(kernel->identity);
    zmsg_append(message, &prefix);
    for (size_t i = 0; i < KG_ARRAY_LEN(outgoing->frames); i++)
        zmsg_addmem(message, outgoing->frames[i].data, outgoing->frames[i].len);
    int sent = zmsg_send(&message, kernel->sockets[channel]);
    assert(sent == 0);
}

static void
say_state(struct fake_kernel *kernel, const char *state)
{
    say(kernel, JUPYTER_IOPUB, "status", json_pack("{s:s}", "execution_state", state));
}

static void
reply(struct fake_kernel *kernel, const char *status)
{
    say(kernel, JUPYTER_SHELL, "execute_reply",
        json_pack("{s:s, s:i}", "status", status, "execution_count", kernel->count));
}

static void
say_error(struct fake_kernel *kernel, const char *ename, const char *evalue)
{
    say(kernel, JUPYTER_IOPUB, "error",
        json_pack("{s:s, s:s, s:[s]}", "ename", ename, "evalue", evalue, "traceback", "line 1"));
}

static void
raise_error(struct fake_kernel *kernel, const char *ename, const char *evalue)
{
    say_error(kernel, ename, evalue);
    reply(kernel, "error");
    say_state(kernel, "idle");
}

static void
end_well(struct fake_kernel *kernel)
{
    reply(kernel, "ok");
    say_state(kernel, "idle");
}

void
fake_kernel_print(struct fake_kernel *kernel, const char *text)
{
    say(kernel, JUPYTER_IOPUB, "stream", json_pack("{s:s, s:s}", "name", "stdout", "text", text));
}

// ---- What it does with code -----------------------------------------------------------------

static void
run_silent(struct fake_kernel *kernel, const char *code)
{
    if (strstr(code, "slow"))
        kernel->running = SLOW_SILENT;
    else if (strstr(code, "bad"))
        say(kernel, JUPYTER_SHELL, "execute_reply",
            json_pack("{s:s, s:s, s:s}", "status", "error", "ename", "ValueError", "evalue",
                      "bad value"));
    else
        end_well(kernel);
}

static void
end_process(struct fake_kernel *kernel, bool oom)
{
    kernel->exit_signal = SIGKILL;
    kernel->exit_oom = oom;
    loop_timer_start(kernel->exit, 0);
}

static void
show_pages(struct fake_kernel *kernel)
{
    json_t *pages = json_array();
    for (int i = 0; i < 150; i++)
        json_array_append_new(
            pages, json_pack("{s:s, s:{s:s}}", "source", "page", "data", "text/plain", "a page"));
    say(kernel, JUPYTER_SHELL, "execute_reply",
        json_pack("{s:s, s:i, s:o}", "status", "ok", "execution_count", kernel->count, "payload",
                  pages));
    say_state(kernel, "idle");
}

static void
run(struct fake_kernel *kernel, const char *code)
{
    kernel->count++;
    if (strcmp(code, "hang") == 0)
        kernel->running = HANGING;
    else if (strcmp(code, "deaf") == 0)
        kernel->running = DEAF;
    else if (strcmp(code, "stubborn") == 0)
        kernel->running = STUBBORN;
    else if (strcmp(code, "ask") == 0) {
        kernel->running = ASKING;
        say(kernel, JUPYTER_STDIN, "input_request",
            json_pack("{s:s, s:b}", "prompt", "name?", "password", 0));
    } else if (strcmp(code, "abort") == 0) {
        kernel->aborts = true;
        end_well(kernel);
    } else if (strcmp(code, "raise") == 0)
        raise_error(kernel, "NameError", "name 'x' is not defined");
    else if (strcmp(code, "no reply") == 0)
        say_state(kernel, "idle");
    else if (strcmp(code, "late reply") == 0) {
        buf_append(&kernel->late, kernel->header.data, kernel->header.len);
        say_state(kernel, "idle");
    } else if (strcmp(code, "no idle") == 0)
        reply(kernel, "ok");
    else if (strcmp(code, "die") == 0 || strcmp(code, "oom") == 0)
        end_process(kernel, *code == 'o');
    else if (strcmp(code, "pages") == 0)
        show_pages(kernel);
    else if (strcmp(code, "error, no reply") == 0) {
        say_error(kernel, "UnicodeError", "");
        say_state(kernel, "idle");
    } else if (strcmp(code, "exit") == 0) {
        say(kernel, JUPYTER_SHELL, "execute_reply",
            json_pack("{s:s, s:i, s:[{s:s, s:b}]}", "status", "ok", "execution_count",
                      kernel->count, "payload", "source", "ask_exit", "keepkernel", 0));
        say_state(kernel, "idle");
    } else {
        fake_kernel_print(kernel, "hello\n");
        end_well(kernel);
    }
}

void
fake_kernel_mute(struct fake_kernel *kernel)
{
    kernel->mute = true;
}

void
fake_kernel_interrupt(struct fake_kernel *kernel)
{
    int running = kernel->running;
    if (running == HANGING || running == SLOW_SILENT || running == ASKING)
        kernel->running = DONE;
    if (running == HANGING || running == ASKING)
        raise_error(kernel, "KeyboardInterrupt", "");
    else if (running == SLOW_SILENT)
        end_well(kernel);
    else if (running == DEAF)
        kernel->running = HANGING;
}

static void
on_execute(struct fake_kernel *kernel, const json_t *content)
{
    const char *code = json_string_value(json_object_get(content, "code"));
    bool silent = json_is_true(json_object_get(content, "silent"));
    KG_AUTO_FREE char *what = kg_asprintf("%s %s", silent ? "silent" : "run", code);
    kernel->events->on_request(what, kernel->arg);
    if (strcmp(code, "quiet") == 0) {
        reply(kernel, "ok");
        return;
    }
    say_state(kernel, "busy");
    if (kernel->aborts) {
        kernel->aborts = false;
        reply(kernel, "aborted");
        say_state(kernel, "idle");
    } else if (silent)
        run_silent(kernel, code);
    else
        run(kernel, code);
}

void
fake_kernel_say(struct fake_kernel *kernel, enum jupyter_channel channel, const char *type,
                json_t *content)
{
    say(kernel, channel, type, content);
}

static void
reply_late(struct fake_kernel *kernel)
{
    struct buf header = kernel->header;
    if (kernel->late.len == 0)
        return;
    kernel->header = kernel->late;
    reply(kernel, "ok");
    kernel->header = header;
    buf_fini(&kernel->late);
}

// Whatever else a client sends on shell.
static void
on_other(struct fake_kernel *kernel, const char *type, json_t *content)
{
    size_t stem = strlen(type) - strlen("_request");
    say_state(kernel, "busy");
    if (strlen(type) > strlen("_request") && strcmp(type + stem, "_request") == 0) {
        KG_AUTO_FREE char *reply_type = kg_asprintf("%.*s_reply", (int)stem, type);
        say(kernel, JUPYTER_SHELL, reply_type, json_incref(content));
    } else {
        say(kernel, JUPYTER_IOPUB, type, json_incref(content));
    }
    say_state(kernel, "idle");
}

static void
on_input(struct fake_kernel *kernel, zmsg_t *message)
{
    zframe_t *frame = zmsg_last(message);
    json_auto_t *content = json_loadb((char *)zframe_data(frame), zframe_size(frame), 0, NULL);
    assert(kernel->running == ASKING);
    kernel->running = DONE;
    fake_kernel_print(kernel, json_string_value(json_object_get(content, "value")));
    end_well(kernel);
}

// [identity, delimiter, signature, header, parent_header, metadata, content, …]; the control
// channel brings interrupts only, and stdin what was asked for.
static void
on_request(struct fake_kernel *kernel, enum jupyter_channel channel, zmsg_t *message)
{
    if (channel == JUPYTER_CONTROL) {
        kernel->events->on_request("interrupt_request", kernel->arg);
        fake_kernel_interrupt(kernel);
        return;
    }
    if (channel == JUPYTER_STDIN) {
        on_input(kernel, message);
        return;
    }
    zframe_destroy(&kernel->identity);
    kernel->identity = zmsg_pop(message);
    zmsg_first(message);
    zmsg_next(message);
    zframe_t *header_frame = zmsg_next(message);
    buf_fini(&kernel->header);
    buf_append(&kernel->header, zframe_data(header_frame), zframe_size(header_frame));
    zmsg_next(message);
    zmsg_next(message);
    zframe_t *content_frame = zmsg_next(message);
    json_auto_t *header = json_loadb(kernel->header.data, kernel->header.len, 0, NULL);
    json_auto_t *content =
        json_loadb((char *)zframe_data(content_frame), zframe_size(content_frame), 0, NULL);
    const char *type = json_string_value(json_object_get(header, "msg_type"));
    assert(type && content);
    if (strcmp(type, "execute_request") == 0) {
        on_execute(kernel, content);
    } else if (strcmp(type, "kernel_info_request") != 0) {
        on_other(kernel, type, content);
    } else if (!kernel->mute) {
        reply_late(kernel);
        say_state(kernel, "busy");
        say(kernel, JUPYTER_SHELL, "kernel_info_reply", json_pack("{s:s}", "status", "ok"));
        say_state(kernel, "idle");
    }
}

// A send may swallow the edge of another socket's descriptor: looks at all until none has more.
static void
on_readable(int fd, int events, void *arg)
{
    struct fake_kernel *kernel = arg;
    (void)fd;
    (void)events;
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < JUPYTER_N_CHANNELS; i++) {
            zmsg_t *message;
            while ((zsock_events(kernel->sockets[i]) & ZMQ_POLLIN) &&
                   (message = zmsg_recv(kernel->sockets[i]))) {
                any = true;
                if (i != JUPYTER_IOPUB) // there it is a subscription
                    on_request(kernel, (enum jupyter_channel)i, message);
                zmsg_destroy(&message);
            }
        }
    }
}

// ---- Its life -------------------------------------------------------------------------------

static void
on_exit_due(void *arg)
{
    struct fake_kernel *kernel = arg;
    kernel->events->on_exit(kernel->exit_signal, kernel->exit_oom, kernel->arg);
}

struct fake_kernel *
fake_kernel_new(struct loop *loop, const char *dir, int pid, const char *key, bool mute,
                const struct fake_kernel_events *events, void *arg)
{
    struct fake_kernel *kernel = KG_NEW(struct fake_kernel);
    kernel->signer = jupyter_signer_new(key);
    kernel->path = kg_asprintf("%s/%d", dir, pid);
    kernel->exit = loop_timer_new(loop, on_exit_due, kernel);
    kernel->mute = mute;
    kernel->events = events;
    kernel->arg = arg;
    for (int i = 0; i < JUPYTER_N_CHANNELS; i++) {
        zsock_t *socket = zsock_new(i == JUPYTER_IOPUB ? ZMQ_XPUB : ZMQ_ROUTER);
        zsock_set_linger(socket, 0);
        int bound = zsock_bind(socket, "ipc://%s-%s", kernel->path,
                               jupyter_channel_name((enum jupyter_channel)i));
        assert(bound == 0);
        kernel->sockets[i] = socket;
        kernel->watches[i] = loop_fd_new(loop, zsock_fd(socket), LOOP_READ, on_readable, kernel);
    }
    return kernel;
}

void
fake_kernel_free(struct fake_kernel *kernel)
{
    if (!kernel)
        return;
    for (int i = 0; i < JUPYTER_N_CHANNELS; i++) {
        loop_fd_free(kernel->watches[i]);
        zsock_destroy(&kernel->sockets[i]);
    }
    jupyter_signer_free(kernel->signer);
    loop_timer_free(kernel->exit);
    zframe_destroy(&kernel->identity);
    buf_fini(&kernel->header);
    buf_fini(&kernel->late);
    free(kernel->path);
    free(kernel);
}

int
fake_kernel_connect(const struct fake_kernel *kernel, enum jupyter_channel channel)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s-%s", kernel->path,
             jupyter_channel_name(channel));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int connected = connect(fd, (struct sockaddr *)&address, sizeof address);
    assert(connected == 0);
    return fd;
}
