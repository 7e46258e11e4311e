// SPDX-License-Identifier: Apache-2.0
// The loop: what comes in is distributed, and every cell that waits looks whether it can go on. A
// cell has a stack of its own, so that cells of subshells and those in the background run side by
// side on one thread.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <zmq.h>

#include "kernel.h"

enum { STACK_SIZE = 512 << 10, SHELLS_MAX = 16, WAITING_MAX = 4096 };
enum { SIGNALS = N_CHANNELS, FILES, N_POLLED };

struct coroutine {
    ucontext_t context;
    void *stack;
    bool has_ended;
};

// The main shell, whose id is empty, or a subshell: requests are handled one after the other.
struct shell {
    char id[32];
    bool is_used;
    struct cell *running;
    struct message *waiting[WAITING_MAX];
    size_t n_waiting;
};

static struct shell shells[SHELLS_MAX] = {{.is_used = true}};
static unsigned subshells_made;
static struct cell *cells;
static ucontext_t loop_context;
static bool has_subscriber, is_deaf, ends;
static int exit_code;
static char *answer;

double
loop_now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

void
loop_end(int code)
{
    ends = true;
    exit_code = code;
}

void
loop_quit(int code)
{
    wire_close();
    _exit(code);
}

void
loop_set_deaf(bool deaf)
{
    is_deaf = deaf;
}

// Between requests a kernel does not heed interrupts. Those of subshells are not interrupted.
void
loop_interrupt(void)
{
    if (shells[0].running && !is_deaf)
        shells[0].running->interrupted = true;
}

char *
loop_take_answer(void)
{
    char *ret = answer;
    answer = NULL;
    return ret;
}

// ---- Shells ---------------------------------------------------------------------------------

struct shell *
shell_find(const char *id)
{
    for (size_t i = 0; i < SHELLS_MAX; i++)
        if (shells[i].is_used && strcmp(shells[i].id, id) == 0)
            return &shells[i];
    return NULL;
}

const char *
shell_add(void)
{
    for (size_t i = 1; i < SHELLS_MAX; i++) {
        if (shells[i].is_used)
            continue;
        shells[i].is_used = true;
        snprintf(shells[i].id, sizeof shells[i].id, "subshell-%u", ++subshells_made);
        return shells[i].id;
    }
    return NULL;
}

bool
shell_remove(const char *id)
{
    struct shell *shell = *id ? shell_find(id) : NULL;
    if (shell)
        shell->is_used = false;
    return shell;
}

json_t *
shell_list(void)
{
    json_t *ret = json_array();
    for (size_t i = 1; i < SHELLS_MAX; i++)
        if (shells[i].is_used)
            json_array_append_new(ret, json_string(shells[i].id));
    return ret;
}

void
shell_free(struct shell *shell)
{
    if (shell)
        shell->running = NULL;
}

// ---- What comes in --------------------------------------------------------------------------

static void
take_subscription(void)
{
    char byte;
    while (zmq_recv(wire_socket(IOPUB), &byte, 1, ZMQ_DONTWAIT) > 0)
        has_subscriber = byte == 1;
}

static void
echo_heartbeats(void)
{
    char bytes[256];
    int len;
    while ((len = zmq_recv(wire_socket(HB), bytes, sizeof bytes, ZMQ_DONTWAIT)) >= 0)
        zmq_send(wire_socket(HB), bytes, (size_t)len, 0);
}

// Outputs of what came before there is a subscriber would not be heard.
static void
take_shell(void)
{
    struct message *request;
    while (has_subscriber && (request = wire_receive(SHELL))) {
        const char *id = json_string_value(json_object_get(request->header, "subshell_id"));
        struct shell *shell = shell_find(id ? id : "");
        if (!shell || shell->n_waiting == WAITING_MAX) {
            fprintf(stderr, "no room for a %s of shell \"%s\"\n", message_type(request), id);
            exit(1);
        }
        shell->waiting[shell->n_waiting++] = request;
    }
}

static void
take_control(void)
{
    struct message *request;
    while ((request = wire_receive(CONTROL))) {
        request_handle(request);
        message_free(request);
    }
}

static void
take_answers(void)
{
    struct message *reply;
    while ((reply = wire_receive(STDIN))) {
        free(answer);
        answer = strdup(message_text(reply, "value"));
        message_free(reply);
    }
}

void
shell_abort(struct shell *shell)
{
    take_shell();
    size_t n = shell ? shell->n_waiting : 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct message *request = shell->waiting[i];
        if (strcmp(message_type(request), "execute_request") != 0) {
            shell->waiting[kept++] = request;
            continue;
        }
        cell_say_state(request, "busy");
        wire_send(request, SHELL, "execute_reply", json_pack("{s:s}", "status", "aborted"));
        cell_say_state(request, "idle");
        message_free(request);
    }
    if (shell)
        shell->n_waiting = kept;
}

// ---- Coroutines -----------------------------------------------------------------------------

static struct cell *resumed;

static void
run_cell(void)
{
    cell_run(resumed);
    resumed->runs->has_ended = true;
}

static void
resume(struct cell *cell)
{
    resumed = cell;
    swapcontext(&loop_context, &cell->runs->context);
}

void
loop_start(struct cell *cell)
{
    struct coroutine *coroutine = cell->runs = calloc(1, sizeof *coroutine);
    coroutine->stack =
        mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&coroutine->context);
    coroutine->context.uc_stack.ss_sp = coroutine->stack;
    coroutine->context.uc_stack.ss_size = STACK_SIZE;
    coroutine->context.uc_link = &loop_context;
    makecontext(&coroutine->context, run_cell, 0);
    cell->next = cells;
    cells = cell;
    if (cell->shell)
        cell->shell->running = cell;
    resume(cell);
}

bool
cell_wait(struct cell *cell, double seconds)
{
    cell->wake = loop_now() + seconds;
    swapcontext(&cell->runs->context, &loop_context);
    if (!cell->interrupted)
        return true;
    cell->interrupted = false;
    if (!cell->catches)
        cell_raise(cell, "KeyboardInterrupt", "");
    return false;
}

static void
remove_ended(void)
{
    for (struct cell **at = &cells; *at;) {
        struct cell *cell = *at;
        if (!cell->runs->has_ended) {
            at = &cell->next;
            continue;
        }
        *at = cell->next;
        munmap(cell->runs->stack, STACK_SIZE);
        free(cell->runs);
        cell_free(cell);
    }
}

// ---- Turns ----------------------------------------------------------------------------------

// Handles the shell's requests, up to a cell that waits.
static bool
advance(struct shell *shell)
{
    bool did = false;
    while (!shell->running && shell->n_waiting && !ends) {
        struct message *request = shell->waiting[0];
        memmove(shell->waiting, shell->waiting + 1, --shell->n_waiting * sizeof *shell->waiting);
        did = true;
        if (strcmp(message_type(request), "execute_request") == 0) {
            cell_start(request, shell);
        } else {
            request_handle(request);
            message_free(request);
        }
    }
    return did;
}

static void
advance_all(void)
{
    for (size_t i = 0; i < SHELLS_MAX; i++)
        if (shells[i].is_used)
            advance(&shells[i]);
    remove_ended();
}

static long
milliseconds_to_wait(void)
{
    double wake = loop_now() + 3600;
    for (const struct cell *cell = cells; cell; cell = cell->next)
        wake = cell->wake < wake ? cell->wake : wake;
    double left = wake - loop_now();
    return left > 0 ? (long)(left * 1000 + 0.999) : 0;
}

static void
turn(zmq_pollitem_t *polled)
{
    char bytes[4096];
    polled[SHELL].events = has_subscriber ? ZMQ_POLLIN : 0;
    zmq_poll(polled, N_POLLED, milliseconds_to_wait());
    take_subscription();
    echo_heartbeats();
    take_control();
    take_answers();
    if (polled[SIGNALS].revents && read(polled[SIGNALS].fd, bytes, sizeof bytes) > 0)
        loop_interrupt();
    if (polled[FILES].revents && read(polled[FILES].fd, bytes, sizeof bytes) < 0)
        perror("inotify");
    for (struct cell *cell = cells; cell && !ends; cell = cell->next)
        resume(cell);
    remove_ended();
    take_shell();
    advance_all();
}

void
loop_run(void)
{
    sigset_t set;
    zmq_pollitem_t polled[N_POLLED];
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    int files = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    inotify_add_watch(files, ".", IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE);
    for (int i = 0; i < N_CHANNELS; i++)
        polled[i] = (zmq_pollitem_t){.socket = wire_socket((enum channel)i), .events = ZMQ_POLLIN};
    polled[SIGNALS] = (zmq_pollitem_t){.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                                       .events = ZMQ_POLLIN};
    polled[FILES] = (zmq_pollitem_t){.fd = files, .events = ZMQ_POLLIN};
    while (!ends)
        turn(polled);
    loop_quit(exit_code);
}
