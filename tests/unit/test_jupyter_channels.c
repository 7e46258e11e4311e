// SPDX-License-Identifier: Apache-2.0
// Channels against a kernel made of plain ZeroMQ sockets in the same loop.

#include "test_jupyter.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "jupyter.h"

#include <czmq.h> // after base.h: it brings syslog.h, which has a LOG_ERR of its own

#define KEY "0123456789abcdef"

enum { DEADLINE_S = 120, LINGER_MS = 60 * 1000 }; // valgrind takes its time

struct fixture {
    struct loop *loop;
    struct event *deadline; // by the machine's clock
    bool timed_out;
    char dir[32];
    struct jupyter_channels *channels;
    bool (*done)(struct fixture *f);

    // The kernel's side.
    struct jupyter_signer *signer;
    zsock_t *kernel[JUPYTER_N_CHANNELS];
    struct loop_fd *kernel_watch[JUPYTER_N_CHANNELS];
    size_t requests;
    char request_types[4][16];
    char request_ids[4][JUPYTER_MSG_ID_SIZE];
    size_t subscriptions;

    // What the channels told.
    size_t messages, bad_messages, lost;
    size_t bytes; // of stream text
    uint64_t cut_bytes;
    bool in_order;
    _Atomic size_t shaped_elsewhere; // than on the loop's thread
    pthread_mutex_t worker;          // locked: it is held where it shapes a message
    bool free_on_message;
    char last_type[32];
    struct kg_error last_error;
};

static void
progress(struct fixture *f)
{
    if (f->done(f))
        loop_stop(f->loop);
}

static void
on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct fixture *f = arg;
    (void)fd;
    (void)what;
    f->timed_out = true;
    loop_stop(f->loop);
}

static void
run_until(struct fixture *f, bool (*done)(struct fixture *f))
{
    f->done = done;
    if (done(f))
        return;
    event_add(f->deadline, &(const struct timeval){.tv_sec = DEADLINE_S});
    loop_run(f->loop);
    event_del(f->deadline);
    assert_false(f->timed_out);
}

// ---- What the channels tell -----------------------------------------------------------------

static void
on_message(enum jupyter_channel channel, struct jupyter_message *message, void *arg)
{
    struct fixture *f = arg;
    (void)channel;

    const json_t *n = json_object_get(message->content, "n");
    if (n != NULL && json_integer_value(n) != (json_int_t)f->messages)
        f->in_order = false;
    f->messages++;
    f->cut_bytes += message->cut_bytes;
    f->bytes += json_string_length(json_object_get(message->content, "text"));
    snprintf(f->last_type, sizeof(f->last_type), "%s", message->msg_type);
    if (f->free_on_message) {
        jupyter_channels_free(f->channels);
        f->channels = NULL;
    }
    progress(f);
}

// It has no argument of its own, as it is a pure function; the test has one fixture at a time.
static struct fixture *the_fixture;
static pthread_t loop_thread;

static void *
shape(enum jupyter_channel channel, struct jupyter_message *message)
{
    (void)channel;
    (void)message;
    if (!pthread_equal(pthread_self(), loop_thread))
        the_fixture->shaped_elsewhere++;
    pthread_mutex_lock(&the_fixture->worker);
    pthread_mutex_unlock(&the_fixture->worker);
    return kg_strdup("shaped"); // a leak, where nobody frees it
}

static void
on_bad_message(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    (void)channel;
    f->bad_messages++;
    f->last_error = *err;
    progress(f);
}

static void
on_lost(enum jupyter_channel channel, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    (void)channel;
    f->lost++;
    f->last_error = *err;
    progress(f);
}

// ---- The kernel -----------------------------------------------------------------------------

// Sends a message of the kernel's; `prefix` is the identity or the topic.
static void
kernel_send(struct fixture *f, enum jupyter_channel channel, zframe_t *prefix, const char *type,
            json_t *content)
{
    KG_AUTO(jupyter_outgoing) outgoing = jupyter_outgoing_new(f->signer, type, content);
    zmsg_t *message = zmsg_new();

    zmsg_append(message, &prefix);
    for (size_t i = 0; i < KG_ARRAY_LEN(outgoing->frames); i++)
        zmsg_addmem(message, outgoing->frames[i].data, outgoing->frames[i].len);
    assert_int_equal(zmsg_send(&message, f->kernel[channel]), 0);
}

// identity, delimiter, signature, header, …
static void
note_request(struct fixture *f, zmsg_t *message)
{
    zframe_t *frame = zmsg_first(message);
    for (int i = 0; i < 3; i++)
        frame = zmsg_next(message);
    json_auto_t *header = json_loadb((const char *)zframe_data(frame), zframe_size(frame), 0, NULL);
    size_t i = f->requests++ % KG_ARRAY_LEN(f->request_types);
    const char *type = json_string_value(json_object_get(header, "msg_type"));
    const char *id = json_string_value(json_object_get(header, "msg_id"));
    snprintf(f->request_types[i], sizeof(f->request_types[i]), "%s", type);
    snprintf(f->request_ids[i], sizeof(f->request_ids[i]), "%s", id);
}

// A ROUTER echoes the type of every request; the XPUB sees subscriptions.
static void
on_kernel(int fd, int events, void *arg)
{
    struct fixture *f = arg;
    (void)fd;
    (void)events;

    for (int i = 0; i < JUPYTER_N_CHANNELS; i++) {
        zmsg_t *message;
        while (f->kernel[i] != NULL && (zsock_events(f->kernel[i]) & ZMQ_POLLIN) != 0 &&
               (message = zmsg_recv(f->kernel[i])) != NULL) {
            if (i == JUPYTER_IOPUB)
                f->subscriptions++;
            else {
                note_request(f, message);
                kernel_send(f, (enum jupyter_channel)i, zmsg_pop(message), "echo", json_object());
            }
            zmsg_destroy(&message);
        }
    }
    progress(f);
}

static int
connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void
kernel_start(struct fixture *f, enum jupyter_channel channel)
{
    struct kg_error err;
    const char *name = jupyter_channel_name(channel);
    zsock_t *sock = zsock_new(channel == JUPYTER_IOPUB ? ZMQ_XPUB : ZMQ_ROUTER);
    KG_AUTO_FREE char *path = kg_asprintf("%s/k-%s", f->dir, name);

    zsock_set_sndhwm(sock, 0);
    zsock_set_linger(sock, 0);
    assert_int_equal(zsock_bind(sock, "ipc://%s", path), 0);
    f->kernel[channel] = sock;
    f->kernel_watch[channel] = loop_fd_new(f->loop, zsock_fd(sock), LOOP_READ, on_kernel, f);
    assert_int_equal(jupyter_channels_attach(f->channels, channel, connect_to(path), &err), 0);
}

static void
kernel_stop(struct fixture *f, enum jupyter_channel channel)
{
    loop_fd_free(f->kernel_watch[channel]);
    f->kernel_watch[channel] = NULL;
    zsock_destroy(&f->kernel[channel]);
}

static void
publish(struct fixture *f, size_t n, size_t text_len)
{
    KG_AUTO_FREE char *text = kg_calloc(text_len + 1, 1);
    memset(text, 'x', text_len);
    kernel_send(f, JUPYTER_IOPUB, zframe_from("stream"), "stream",
                json_pack("{s:I, s:s#}", "n", (json_int_t)n, "text", text, (int)text_len));
}

static int
setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct kg_error err;

    f->loop = loop_new();
    f->deadline = event_new(loop_event_base(f->loop), -1, 0, on_deadline, f);
    f->signer = jupyter_signer_new(KEY);
    f->in_order = true;
    pthread_mutex_init(&f->worker, NULL);
    strcpy(f->dir, "/tmp/kg-jupyter-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    const struct jupyter_channels_settings settings = {.dir = f->dir, .key = KEY};
    the_fixture = f;
    loop_thread = pthread_self();
    const struct jupyter_channels_events channels_events = {.shape = shape,
                                                            .shaped_free = free,
                                                            .on_message = on_message,
                                                            .on_bad_message = on_bad_message,
                                                            .on_lost = on_lost};
    f->channels = jupyter_channels_new(f->loop, &settings, &channels_events, f, &err);
    assert_non_null(f->channels);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;

    jupyter_channels_free(f->channels);
    for (int i = 0; i < JUPYTER_N_CHANNELS; i++)
        kernel_stop(f, (enum jupyter_channel)i);
    jupyter_signer_free(f->signer);
    event_free(f->deadline);
    pthread_mutex_destroy(&f->worker);
    loop_free(f->loop);
    int removed = path_remove_tree(f->dir, &err);
    free(f);
    return removed;
}

// ---- Tests ----------------------------------------------------------------------------------

static bool
one_message(struct fixture *f)
{
    return f->messages == 1;
}

static bool
two_messages(struct fixture *f)
{
    return f->messages == 2;
}

static bool
one_bad_and_one_message(struct fixture *f)
{
    return f->bad_messages == 1 && f->messages == 1;
}

static bool
subscribed(struct fixture *f)
{
    return f->subscriptions > 0;
}

static bool
one_lost(struct fixture *f)
{
    return f->lost == 1;
}

static void
test_request_and_reply(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    char msg_id[40] = "";
    static const enum jupyter_channel channels[] = {JUPYTER_SHELL, JUPYTER_CONTROL};

    for (size_t i = 0; i < KG_ARRAY_LEN(channels); i++) {
        assert_int_equal(
            jupyter_channels_send(f->channels, channels[i], "x", json_object(), NULL, &err), -1);
        assert_int_equal(err.code, KG_PROVISIONER_UNAVAILABLE);
        f->messages = 0;
        kernel_start(f, channels[i]);
        // Before the handshake is over, too.
        assert_int_equal(
            jupyter_channels_send(f->channels, channels[i], "x", json_object(), msg_id, &err), 0);
        assert_true(strlen(msg_id) > 16);
        assert_int_equal(
            jupyter_channels_send(f->channels, channels[i], "y", json_object(), NULL, &err), 0);
        run_until(f, two_messages);
        assert_string_equal(f->last_type, "echo");
        assert_int_equal(f->requests, 2 * (i + 1));
    }
}

static void
test_bad_signature_is_dropped_and_told(void **state)
{
    struct fixture *f = *state;
    kernel_start(f, JUPYTER_IOPUB);
    run_until(f, subscribed);

    struct jupyter_signer *good = f->signer;
    f->signer = jupyter_signer_new("another key");
    publish(f, 0, 1);
    jupyter_signer_free(f->signer);
    f->signer = good;
    publish(f, 0, 1);
    run_until(f, one_bad_and_one_message);
    assert_int_equal(f->last_error.code, KG_UNAUTHORIZED);
    assert_int_equal(f->bytes, 1);
}

static bool
five_messages(struct fixture *f)
{
    return f->messages == 5;
}

// Off the loop, and in the order in which they were sent.
static void
test_large_messages_keep_their_place(void **state)
{
    struct fixture *f = *state;
    kernel_start(f, JUPYTER_IOPUB);
    run_until(f, subscribed);
    for (size_t i = 0; i < 5; i++)
        publish(f, i, i % 2 == 0 ? 1 : 9 * 1000 * 1000);
    run_until(f, five_messages);
    assert_true(f->in_order);
    assert_int_equal(f->bytes, 3 + 2 * 9 * 1000 * 1000);
    assert_int_equal(f->shaped_elsewhere, 2);
}

// Beyond the bound a message comes without what made it so, and the channel lives.
static void
test_a_message_that_is_too_large_comes_cut(void **state)
{
    struct fixture *f = *state;
    kernel_start(f, JUPYTER_IOPUB);
    run_until(f, subscribed);
    publish(f, 0, 20 * 1000 * 1000);
    run_until(f, one_message);
    assert_in_range(f->cut_bytes, 20 * 1000 * 1000, 20 * 1000 * 1000 + 100);
    assert_string_equal(f->last_type, "stream");
    assert_int_equal(f->bytes, 0);
    f->messages = 0;
    publish(f, 0, 10);
    run_until(f, one_message);
    assert_int_equal(f->bytes, 10);
    assert_int_equal(f->lost + f->bad_messages, 0);
}

// The worker's result is thrown away.
static void
test_freed_while_a_message_is_being_read(void **state)
{
    struct fixture *f = *state;
    kernel_start(f, JUPYTER_IOPUB);
    run_until(f, subscribed);
    publish(f, 0, 1);
    run_until(f, one_message);
    publish(f, 1, 9 * 1000 * 1000);
    pthread_mutex_lock(&f->worker);
    while (f->shaped_elsewhere == 0) // the worker has it, and does not wake the loop
        event_base_loop(loop_event_base(f->loop), EVLOOP_NONBLOCK);
    jupyter_channels_free(KG_STEAL(f->channels));
    pthread_mutex_unlock(&f->worker);
    assert_int_equal(f->messages, 1);
}

static json_t *
make_content(void *arg)
{
    return json_pack("{s:s}", "code", (const char *)arg);
}

static bool
three_requests(struct fixture *f)
{
    return f->requests == 3;
}

static void
test_large_requests_keep_their_place(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    char msg_id[JUPYTER_MSG_ID_SIZE];
    kernel_start(f, JUPYTER_SHELL);
    char *code = kg_calloc(1, 9 * 1000 * 1000 + 1);
    memset(code, 'x', 9 * 1000 * 1000);
    const struct jupyter_content content = {make_content, free, code};
    struct jupyter_channels *channels = f->channels;
    assert_int_equal(
        jupyter_channels_send(channels, JUPYTER_SHELL, "first", json_object(), NULL, &err), 0);
    assert_int_equal(
        jupyter_channels_send_large(channels, JUPYTER_SHELL, "large", &content, msg_id, &err), 0);
    assert_int_equal(
        jupyter_channels_send(channels, JUPYTER_SHELL, "last", json_object(), NULL, &err), 0);
    run_until(f, three_requests);
    static const char *const types[] = {"first", "large", "last"};
    for (size_t i = 0; i < KG_ARRAY_LEN(types); i++)
        assert_string_equal(f->request_types[i], types[i]);
    assert_string_equal(f->request_ids[1], msg_id);

    // Freed with the channels, and where there is no link.
    const struct jupyter_content waiting = {make_content, free, kg_strdup("code")};
    assert_int_equal(
        jupyter_channels_send_large(channels, JUPYTER_SHELL, "large", &waiting, NULL, &err), 0);
    const struct jupyter_content unsent = {make_content, free, kg_strdup("code")};
    assert_int_equal(
        jupyter_channels_send_large(channels, JUPYTER_CONTROL, "large", &unsent, NULL, &err), -1);
}

enum { FLOOD = 20 * 1000 }; // more than the guard's window

static bool
flood_is_over(struct fixture *f)
{
    return f->messages == FLOOD;
}

static void
test_flood_arrives_complete_and_in_order(void **state)
{
    struct fixture *f = *state;
    kernel_start(f, JUPYTER_IOPUB);
    run_until(f, subscribed);
    for (size_t i = 0; i < FLOOD; i++)
        publish(f, i, 10);
    run_until(f, flood_is_over);
    assert_true(f->in_order);
    assert_int_equal(f->bytes, FLOOD * 10);
}

// What a kernel said before it died is read before its end is told; a new link works again.
static void
test_lost_comes_last_and_a_new_link_works(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    kernel_start(f, JUPYTER_IOPUB);
    kernel_start(f, JUPYTER_SHELL);
    run_until(f, subscribed);
    zsock_set_linger(f->kernel[JUPYTER_IOPUB], LINGER_MS);
    for (size_t i = 0; i < FLOOD; i++)
        publish(f, i, 10);
    kernel_stop(f, JUPYTER_IOPUB);
    run_until(f, one_lost);
    assert_int_equal(f->messages, FLOOD);
    assert_true(f->in_order);
    assert_string_equal(f->last_error.message, "the link ended");

    f->subscriptions = f->messages = 0;
    kernel_start(f, JUPYTER_IOPUB);
    run_until(f, subscribed);
    publish(f, 0, 1);
    run_until(f, one_message);
    // Replacing a living link tells nothing.
    kernel_stop(f, JUPYTER_SHELL);
    f->messages = 0;
    kernel_start(f, JUPYTER_SHELL);
    assert_int_equal(
        jupyter_channels_send(f->channels, JUPYTER_SHELL, "x", json_object(), NULL, &err), 0);
    run_until(f, one_message);
    assert_int_equal(f->lost, 1);
}

static void
test_free_inside_a_callback(void **state)
{
    struct fixture *f = *state;
    kernel_start(f, JUPYTER_IOPUB);
    run_until(f, subscribed);
    f->free_on_message = true;
    publish(f, 0, 1);
    publish(f, 1, 1);
    run_until(f, one_message);
    assert_null(f->channels);
}

static bool
no_endpoint_is_left(const char *dir)
{
    zdir_t *listing = zdir_new(dir, "-");
    bool empty = zdir_count(listing) == 0;
    zdir_destroy(&listing);
    return empty;
}

static void
test_endpoints_are_private(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(jupyter_channels_attach(f->channels, JUPYTER_SHELL, pair[0], &err), 0);
    assert_true(no_endpoint_is_left(f->dir));
    close(pair[1]);
}

static void
test_a_long_path_is_refused(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    KG_AUTO_FREE char *dir = kg_asprintf("%s/%090d", f->dir, 0);
    const struct jupyter_channels_settings settings = {.dir = dir, .key = KEY};
    const struct jupyter_channels_events no_events = {
        .on_message = on_message, .on_bad_message = on_bad_message, .on_lost = on_lost};

    assert_null(jupyter_channels_new(f->loop, &settings, &no_events, f, &err));
    assert_int_equal(dir_make(dir, 0700, &err), 0);
    KG_AUTO(jupyter_channels)
    channels = jupyter_channels_new(f->loop, &settings, &no_events, f, &err);
    assert_non_null(channels);
    assert_int_equal(jupyter_channels_attach(channels, JUPYTER_SHELL, dup(STDIN_FILENO), &err), -1);
    assert_int_equal(err.code, KG_INTERNAL);
}

static void *
send_from_here(void *arg)
{
    struct jupyter_channels *channels = arg;
    struct kg_error err;
    (void)!jupyter_channels_send(channels, JUPYTER_SHELL, "x", json_object(), NULL, &err);
    return NULL;
}

// In a child, since the process aborts. The thread's stack is not one that a thread of the parent
// had: ThreadSanitizer still counts those as in use.
static void
test_another_thread_is_noticed(void **state)
{
    struct fixture *f = *state;
    static char stack[1 << 20];
    kernel_start(f, JUPYTER_SHELL);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t other;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, stack, sizeof stack);
        (void)!freopen("/dev/null", "w", stderr);
        signal(SIGABRT, SIG_DFL); // not cmocka's
        pthread_create(&other, &attributes, send_from_here, f->channels);
        pthread_join(other, NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int
test_jupyter_channels(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_request_and_reply, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_signature_is_dropped_and_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_messages_keep_their_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_message_that_is_too_large_comes_cut, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_freed_while_a_message_is_being_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large_requests_keep_their_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flood_arrives_complete_and_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_comes_last_and_a_new_link_works, setup, teardown),
        cmocka_unit_test_setup_teardown(test_free_inside_a_callback, setup, teardown),
        cmocka_unit_test_setup_teardown(test_endpoints_are_private, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_long_path_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_thread_is_noticed, setup, teardown),
    };
    return cmocka_run_group_tests_name("jupyter channels", tests, NULL, NULL);
}
