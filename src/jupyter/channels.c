// SPDX-License-Identifier: Apache-2.0
// The channels of a kernel: ZeroMQ sockets in the loop, each behind its guard. Large messages are
// read and written on a worker; meanwhile their channel waits, so that the order is kept.

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "guard_priv.h"
#include "jupyter.h"
#include "link_iopub.h"
#include "signer_priv.h"
#include "socket_priv.h"

enum {
    DEFAULT_MAX_MESSAGE_BYTES = 10 * 1024 * 1024,
    // Above this a worker parses a message: its cost on the loop would be above a millisecond.
    LARGE_COST = 64 * 1024,
    // What one turn of the loop reads of a channel before the others have theirs: below 1 ms.
    TURN_MESSAGES = 64,
    TURN_COST = 32 * 1024,
    // Requests that wait for the end of the ZMTP handshake, or are being built on a worker.
    MAX_PENDING = 8,
    // How many of these may be messages of taps.
    MAX_PENDING_RAW = 4
};

// A large message on its way from the socket to the events.
struct delivery {
    struct channel *channel; // not used by the worker
    enum jupyter_channel id;
    void *(*shape)(enum jupyter_channel channel, struct jupyter_message *message);
    void (*shaped_free)(void *shaped);
    struct jupyter_signer *signer; // a copy
    struct socket_message received;
    bool keep_raw;
    size_t max_message_bytes;
    uint64_t cost;
    struct jupyter_message *message; // the result; NULL: see `err`
    struct kg_error err;
};

// A large request that a worker builds.
struct making {
    struct channel *channel; // not used by the worker
    struct jupyter_signer *signer;
    char msg_id[JUPYTER_MSG_ID_SIZE];
    char *msg_type;
    struct jupyter_content content;
    struct jupyter_raw *raw;           // replaces type and content; may be NULL
    struct jupyter_outgoing *outgoing; // the result
};

// A request that waits; `outgoing` is NULL while `work` builds it.
struct pending {
    struct jupyter_outgoing *outgoing;
    struct making *making;
    struct loop_work *work;
};

// While there is no link, `sock`, `watch` and `guard` are NULL and nothing is pending.
struct channel {
    struct jupyter_channels *channels;
    enum jupyter_channel id;
    struct channel_socket *sock;
    struct loop_fd *watch;
    struct guard *guard;
    struct loop_timer *again;     // continues where ZMQ_FD will report no new edge
    struct loop_work *delivering; // a large message; nothing is read until it has been delivered
    struct pending pending[MAX_PENDING];
    size_t n_pending;
    bool had_no_room; // has_room() has returned false: on_room is due
};

// `gone` is set during a callback: freeing the channels sets *gone.
struct jupyter_channels {
    struct loop *loop;
    struct jupyter_signer *signer;
    char *dir;
    size_t max_message_bytes;
    bool keep_raw;
    struct jupyter_channels_events events;
    void *arg;
    struct channel channel[JUPYTER_N_CHANNELS];
    bool *gone;
};

const char *
jupyter_channel_name(enum jupyter_channel channel)
{
    static const char *const names[JUPYTER_N_CHANNELS] = {"shell", "iopub", "control", "stdin"};
    assert(channel < JUPYTER_N_CHANNELS);
    return names[channel];
}

// Each kernel has its own lane.
static uint64_t
lane_of(const struct jupyter_channels *channels)
{
    return (uint64_t)(uintptr_t)channels;
}

// ---- Work ------------------------------------------------------------------------------------

static void
message_free_shaped(struct jupyter_message *message, void (*shaped_free)(void *shaped))
{
    if (message != NULL && message->shaped != NULL)
        shaped_free(message->shaped);
    jupyter_message_free(message);
}

static void
delivery_free(void *arg)
{
    struct delivery *delivery = arg;
    socket_message_fini(&delivery->received);
    message_free_shaped(delivery->message, delivery->shaped_free);
    jupyter_signer_free(delivery->signer);
    free(delivery);
}

static void
delivery_run(void *arg)
{
    struct delivery *delivery = arg;
    delivery->message = jupyter_message_parse(delivery->signer, delivery->received.frames,
                                              delivery->received.n_frames, &delivery->err);
    if (delivery->message != NULL && delivery->keep_raw)
        message_keep_raw(delivery->message, delivery->received.frames, delivery->received.n_frames,
                         delivery->max_message_bytes);
    socket_message_fini(&delivery->received);
    if (delivery->message != NULL && delivery->shape != NULL)
        delivery->message->shaped = delivery->shape(delivery->id, delivery->message);
}

static void
making_free(void *arg)
{
    struct making *making = arg;
    if (making->content.arg != NULL)
        making->content.free_arg(making->content.arg);
    jupyter_raw_free(making->raw);
    jupyter_outgoing_free(making->outgoing);
    jupyter_signer_free(making->signer);
    free(making->msg_type);
    free(making);
}

static void
making_run(void *arg)
{
    struct making *making = arg;
    if (making->raw != NULL) {
        making->outgoing = jupyter_outgoing_new_raw(making->signer, KG_STEAL(making->raw));
        return;
    }
    json_t *content = making->content.make(making->content.arg);
    making->outgoing = outgoing_make(making->signer, making->msg_id, making->msg_type, content);
    making->content.free_arg(KG_STEAL(making->content.arg));
}

// Frees a large value on a worker: a million values take tens of milliseconds.
static void
free_elsewhere(struct loop *loop, loop_fn free_fn, void *job)
{
    (void)loop_work_start(loop, LOOP_LANE_GATEWAY, free_fn, NULL, job);
}

static void
channel_discard_pending(struct channel *channel)
{
    for (size_t i = 0; i < channel->n_pending; i++) {
        struct pending *pending = &channel->pending[i];
        jupyter_outgoing_free(pending->outgoing);
        if (pending->work != NULL)
            loop_work_cancel(pending->work, making_free);
    }
    channel->n_pending = 0;
}

static void
channel_close(struct channel *channel)
{
    loop_timer_stop(channel->again);
    loop_fd_free(channel->watch);
    channel->watch = NULL;
    loop_work_cancel(KG_STEAL(channel->delivering), delivery_free);
    guard_free(KG_STEAL(channel->guard));
    socket_free(KG_STEAL(channel->sock), channel->channels->loop);
    channel_discard_pending(channel);
}

// ---- Receiving ------------------------------------------------------------------------------

// Reports a message, or `err` if `message` is NULL. Returns false if the callback freed the
// channels.
static bool
report(struct channel *channel, struct jupyter_message *message, const struct kg_error *err)
{
    struct jupyter_channels *channels = channel->channels;
    bool gone = false;

    channels->gone = &gone;
    if (message != NULL)
        channels->events.on_message(channel->id, message, channels->arg);
    else
        channels->events.on_bad_message(channel->id, err, channels->arg);
    if (!gone)
        channels->gone = NULL;
    return !gone;
}

// Returns false if the callback freed the channels.
static bool
deliver(struct channel *channel, struct socket_message *received)
{
    const struct jupyter_channels_events *events = &channel->channels->events;
    void (*shaped_free)(void *shaped) = events->shaped_free;
    struct kg_error err;
    struct jupyter_message *message = jupyter_message_parse(
        channel->channels->signer, received->frames, received->n_frames, &err);

    if (message != NULL && channel->channels->keep_raw)
        message_keep_raw(message, received->frames, received->n_frames,
                         channel->channels->max_message_bytes);
    socket_message_fini(received);
    if (message != NULL && events->shape != NULL)
        message->shaped = events->shape(channel->id, message);
    bool alive = report(channel, message, &err);
    message_free_shaped(message, shaped_free);
    return alive;
}

static void channel_turn(struct channel *channel);

static void
delivery_on_done(void *arg)
{
    struct delivery *delivery = arg;
    struct channel *channel = delivery->channel;
    struct loop *loop = channel->channels->loop;

    channel->delivering = NULL;
    guard_taken(channel->guard, delivery->cost);
    bool alive = report(channel, delivery->message, &delivery->err);
    free_elsewhere(loop, delivery_free, delivery);
    if (alive && channel->sock != NULL)
        channel_turn(channel);
}

static void
deliver_large(struct channel *channel, struct socket_message *received)
{
    struct jupyter_channels *channels = channel->channels;
    struct delivery *delivery = KG_NEW(struct delivery);

    delivery->channel = channel;
    delivery->id = channel->id;
    delivery->shape = channels->events.shape;
    delivery->shaped_free = channels->events.shaped_free;
    delivery->signer = signer_copy(channels->signer);
    delivery->cost = received->cost;
    delivery->keep_raw = channels->keep_raw;
    delivery->max_message_bytes = channels->max_message_bytes;
    socket_message_move(&delivery->received, received);
    channel->delivering = loop_work_start(channels->loop, lane_of(channels), delivery_run,
                                          delivery_on_done, delivery);
}

static void
flush_pending(struct channel *channel)
{
    size_t sent = 0;
    while (sent < channel->n_pending && channel->pending[sent].outgoing != NULL &&
           socket_send(channel->sock, channel->pending[sent].outgoing))
        jupyter_outgoing_free(channel->pending[sent++].outgoing);
    channel->n_pending -= sent;
    memmove(channel->pending, channel->pending + sent,
            channel->n_pending * sizeof(channel->pending[0]));
}

static void
report_room(struct channel *channel)
{
    const struct jupyter_channels_events *events = &channel->channels->events;
    if (!channel->had_no_room || channel->n_pending >= MAX_PENDING_RAW)
        return;
    channel->had_no_room = false;
    if (events->on_room != NULL)
        events->on_room(channel->id, channel->channels->arg);
}

static bool
has_something_to_send(const struct channel *channel)
{
    return channel->n_pending > 0 && channel->pending[0].outgoing != NULL;
}

// ZMQ_FD is edge-triggered, and any call on the socket can consume the edge. So the loop waits for
// an edge only if nothing can be done now.
static void
go_on_if_ready(struct channel *channel)
{
    int wanted = (channel->delivering == NULL ? ZMQ_POLLIN : 0) |
                 (has_something_to_send(channel) ? ZMQ_POLLOUT : 0);
    if ((socket_events(channel->sock) & wanted) != 0)
        loop_timer_start(channel->again, 0);
}

// After a send. It may have consumed the edge of a message that had arrived, but not of a later
// one.
static void
go_on_after_send(struct channel *channel)
{
    if (channel->n_pending > 0 || guard_has_untaken(channel->guard))
        go_on_if_ready(channel);
}

// After a failed receive, ZMQ_FD reports the next message, so nothing else needs to be checked.
static void
channel_turn(struct channel *channel)
{
    struct socket_message received;
    uint64_t cost = 0;

    flush_pending(channel);
    report_room(channel);
    for (size_t n = 0; n < TURN_MESSAGES && cost < TURN_COST && channel->delivering == NULL; n++) {
        if (!socket_receive(channel->sock, &received)) {
            if (has_something_to_send(channel))
                break;
            return;
        }
        if (received.cost > LARGE_COST) {
            deliver_large(channel, &received);
            break;
        }
        cost += received.cost;
        guard_taken(channel->guard, received.cost);
        if (!deliver(channel, &received) || channel->sock == NULL)
            return;
    }
    go_on_if_ready(channel);
}

static void
on_again(void *arg)
{
    channel_turn(arg);
}

static void
on_socket(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    channel_turn(arg);
}

bool
jupyter_channels_is_linked(const struct jupyter_channels *channels, enum jupyter_channel id)
{
    return channels->channel[id].sock != NULL;
}

bool
jupyter_channels_is_receiving(const struct jupyter_channels *channels, enum jupyter_channel id)
{
    const struct channel *channel = &channels->channel[id];
    return channel->delivering != NULL ||
           (channel->guard != NULL && guard_is_receiving(channel->guard));
}

// ---- Links ----------------------------------------------------------------------------------

static void
on_link_end(const struct kg_error *reason, void *arg)
{
    struct channel *channel = arg;
    struct jupyter_channels *channels = channel->channels;
    struct kg_error err = *reason;

    channel_close(channel);
    channels->events.on_lost(channel->id, &err, channels->arg);
}

// Only taps need messages that show nothing.
static size_t
sift_iopub(char *bytes, size_t len, void *arg)
{
    const struct channel *channel = arg;
    struct jupyter_channels *channels = channel->channels;
    size_t left = channels->keep_raw ? len : iopub_sift(bytes, len);

    if (left < len && channels->events.on_begun != NULL)
        channels->events.on_begun(channels->arg);
    return left;
}

int
jupyter_channels_attach(struct jupyter_channels *channels, enum jupyter_channel id, int link_fd,
                        struct kg_error *err)
{
    struct channel *channel = &channels->channel[id];
    KG_AUTO_FD link = link_fd;
    int inner_fd;

    channel_close(channel);
    channel->sock = socket_new(id, signer_own_id(channels->signer), channels->dir,
                               channels->max_message_bytes, &inner_fd, err);
    if (channel->sock == NULL)
        return -1;
    channel->guard = guard_new(channels->loop, KG_STEAL_FD(link), inner_fd,
                               channels->max_message_bytes, on_link_end, channel);
    if (id == JUPYTER_IOPUB)
        guard_set_sift(channel->guard, sift_iopub);
    channel->watch =
        loop_fd_new(channels->loop, socket_fd(channel->sock), LOOP_READ, on_socket, channel);
    return 0;
}

// ---- Sending --------------------------------------------------------------------------------

// Fails if the channel accepts no request now.
static int
check_can_send(const struct channel *channel, struct kg_error *err)
{
    const char *name = jupyter_channel_name(channel->id);
    if (channel->sock == NULL)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "no link to the kernel's %s", name);
    if (channel->n_pending == MAX_PENDING)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the kernel's %s takes no more",
                            name);
    return 0;
}

int
jupyter_channels_send(struct jupyter_channels *channels, enum jupyter_channel id,
                      const char *msg_type, json_t *content, char *ret_msg_id, struct kg_error *err)
{
    struct channel *channel = &channels->channel[id];
    KG_AUTO(jupyter_outgoing)
    outgoing = jupyter_outgoing_new(channels->signer, msg_type, content);

    if (check_can_send(channel, err) != 0)
        return -1;
    if (ret_msg_id != NULL)
        memcpy(ret_msg_id, outgoing->msg_id, sizeof(outgoing->msg_id));
    if (channel->n_pending > 0 || !socket_send(channel->sock, outgoing))
        channel->pending[channel->n_pending++] = (struct pending){.outgoing = KG_STEAL(outgoing)};
    go_on_after_send(channel);
    return 0;
}

static void
making_on_done(void *arg)
{
    struct making *making = arg;
    struct channel *channel = making->channel;

    for (size_t i = 0; i < channel->n_pending; i++) {
        struct pending *pending = &channel->pending[i];
        if (pending->making == making)
            *pending = (struct pending){.outgoing = KG_STEAL(making->outgoing)};
    }
    making_free(making);
    flush_pending(channel);
    go_on_after_send(channel);
    report_room(channel);
}

int
jupyter_channels_send_large(struct jupyter_channels *channels, enum jupyter_channel id,
                            const char *msg_type, const struct jupyter_content *content,
                            char *ret_msg_id, struct kg_error *err)
{
    struct channel *channel = &channels->channel[id];
    if (check_can_send(channel, err) != 0) {
        content->free_arg(content->arg);
        return -1;
    }
    struct making *making = KG_NEW(struct making);
    making->channel = channel;
    making->signer = signer_copy(channels->signer);
    making->msg_type = kg_strdup(msg_type);
    making->content = *content;
    signer_next_id(channels->signer, making->msg_id);
    if (ret_msg_id != NULL)
        memcpy(ret_msg_id, making->msg_id, sizeof(making->msg_id));
    channel->pending[channel->n_pending++] = (struct pending){
        .making = making,
        .work =
            loop_work_start(channels->loop, lane_of(channels), making_run, making_on_done, making),
    };
    return 0;
}

// ---- Messages of taps -----------------------------------------------------------------------

const char *
jupyter_channels_session(const struct jupyter_channels *channels)
{
    return signer_own_id(channels->signer);
}

void
jupyter_channels_keep_raw(struct jupyter_channels *channels, bool keep)
{
    channels->keep_raw = keep;
}

bool
jupyter_channels_is_connected(struct jupyter_channels *channels, enum jupyter_channel id)
{
    struct channel *channel = &channels->channel[id];
    if (channel->sock == NULL)
        return false;
    bool connected = (socket_events(channel->sock) & ZMQ_POLLOUT) != 0;
    go_on_if_ready(channel); // socket_events() may have consumed an edge
    return connected;
}

bool
jupyter_channels_has_room(struct jupyter_channels *channels, enum jupyter_channel id)
{
    struct channel *channel = &channels->channel[id];
    channel->had_no_room |= channel->n_pending >= MAX_PENDING_RAW;
    return channel->n_pending < MAX_PENDING_RAW;
}

int
jupyter_channels_send_raw(struct jupyter_channels *channels, enum jupyter_channel id,
                          struct jupyter_raw *raw, struct kg_error *err)
{
    struct channel *channel = &channels->channel[id];
    assert(channel->n_pending < MAX_PENDING_RAW);
    if (check_can_send(channel, err) != 0) {
        jupyter_raw_free(raw);
        return -1;
    }
    struct pending *pending = &channel->pending[channel->n_pending];
    if (raw->bytes > LARGE_COST) {
        struct making *making = KG_NEW(struct making);
        making->channel = channel;
        making->signer = signer_copy(channels->signer);
        making->raw = raw;
        *pending = (struct pending){
            .making = making,
            .work = loop_work_start(channels->loop, lane_of(channels), making_run, making_on_done,
                                    making),
        };
        channel->n_pending++;
    } else {
        *pending = (struct pending){.outgoing = jupyter_outgoing_new_raw(channels->signer, raw)};
        channel->n_pending++;
        flush_pending(channel);
        go_on_if_ready(channel);
    }
    return 0;
}

// ---- Life -----------------------------------------------------------------------------------

struct jupyter_channels *
jupyter_channels_new(struct loop *loop, const struct jupyter_channels_settings *settings,
                     const struct jupyter_channels_events *events, void *arg, struct kg_error *err)
{
    if (access(settings->dir, W_OK | X_OK) != 0) {
        (void)kg_error_set(err, KG_INTERNAL, 0, "cannot make sockets in %s", settings->dir);
        return NULL;
    }
    struct jupyter_channels *channels = KG_NEW(struct jupyter_channels);
    channels->loop = loop;
    channels->signer = jupyter_signer_new(settings->key);
    channels->dir = kg_strdup(settings->dir);
    channels->max_message_bytes =
        settings->max_message_bytes != 0 ? settings->max_message_bytes : DEFAULT_MAX_MESSAGE_BYTES;
    channels->events = *events;
    channels->arg = arg;
    for (size_t i = 0; i < JUPYTER_N_CHANNELS; i++) {
        struct channel *channel = &channels->channel[i];
        channel->channels = channels;
        channel->id = (enum jupyter_channel)i;
        channel->again = loop_timer_new(loop, on_again, channel);
    }
    return channels;
}

void
jupyter_channels_free(struct jupyter_channels *channels)
{
    if (channels == NULL)
        return;
    for (size_t i = 0; i < JUPYTER_N_CHANNELS; i++) {
        channel_close(&channels->channel[i]);
        loop_timer_free(channels->channel[i].again);
    }
    if (channels->gone != NULL)
        *channels->gone = true;
    jupyter_signer_free(channels->signer);
    free(channels->dir);
    free(channels);
}
