// SPDX-License-Identifier: Apache-2.0
// The channels of a kernel: ZeroMQ sockets in the loop, each behind its guard.

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "guard_priv.h"
#include "jupyter.h"
#include "socket_priv.h"

enum {
    DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024,
    // What one turn of the loop reads of a channel before the others have theirs: below 1 ms.
    TURN_MESSAGES = 64,
    TURN_COST = 32 * 1024,
    // Requests that wait for the end of the ZMTP handshake.
    MAX_PENDING = 8
};

// Without a link, `sock`, `watch` and `guard` are NULL and nothing is pending.
struct channel {
    struct jupyter_channels *channels;
    enum jupyter_channel id;
    struct channel_socket *sock;
    struct loop_fd *watch;
    struct guard *guard;
    struct loop_timer *again; // to go on where no edge of ZMQ_FD will come
    struct jupyter_outgoing *pending[MAX_PENDING];
    size_t n_pending;
};

// `gone`, where set, is told that the channels were freed from inside a callback.
struct jupyter_channels {
    struct loop *loop;
    struct jupyter_session *session;
    char *dir;
    size_t max_message_bytes;
    struct jupyter_channels_events events;
    void *arg;
    struct channel channel[JUPYTER_N_CHANNELS];
    bool *gone;
};

const char *
jupyter_channel_name(enum jupyter_channel channel)
{
    static const char *const names[JUPYTER_N_CHANNELS] = {"shell", "iopub", "control"};
    assert(channel < JUPYTER_N_CHANNELS);
    return names[channel];
}

static void
channel_close(struct channel *channel)
{
    loop_timer_stop(channel->again);
    loop_fd_free(channel->watch);
    channel->watch = NULL;
    guard_free(KG_STEAL(channel->guard));
    socket_free(KG_STEAL(channel->sock));
    while (channel->n_pending > 0)
        jupyter_outgoing_free(channel->pending[--channel->n_pending]);
}

// ---- Receiving ------------------------------------------------------------------------------

// Returns false where the callback freed the channels.
static bool
deliver(struct channel *channel, struct socket_message *received)
{
    struct jupyter_channels *channels = channel->channels;
    struct kg_error err;
    bool gone = false;
    KG_AUTO(jupyter_message)
    message = jupyter_message_parse(channels->session, received->frames, received->n_frames, &err);

    socket_message_fini(received);
    channels->gone = &gone;
    if (message != NULL)
        channels->events.on_message(channel->id, message, channels->arg);
    else
        channels->events.on_bad_message(channel->id, &err, channels->arg);
    if (!gone)
        channels->gone = NULL;
    return !gone;
}

static void
flush_pending(struct channel *channel)
{
    size_t sent = 0;
    while (sent < channel->n_pending && socket_send(channel->sock, channel->pending[sent]))
        jupyter_outgoing_free(channel->pending[sent++]);
    channel->n_pending -= sent;
    memmove(channel->pending, channel->pending + sent,
            channel->n_pending * sizeof(channel->pending[0]));
}

// ZMQ_FD is edge-triggered, and any call on the socket can consume the edge: it is left alone only
// where nothing can be done.
static void
go_on_if_ready(struct channel *channel)
{
    int wanted = ZMQ_POLLIN | (channel->n_pending > 0 ? ZMQ_POLLOUT : 0);
    if ((socket_events(channel->sock) & wanted) != 0)
        loop_timer_start(channel->again, 0);
}

static void
channel_turn(struct channel *channel)
{
    struct socket_message received;
    uint64_t cost = 0;

    flush_pending(channel);
    for (size_t n = 0; n < TURN_MESSAGES && cost < TURN_COST; n++) {
        if (!socket_receive(channel->sock, &received))
            break;
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

int
jupyter_channels_attach(struct jupyter_channels *channels, enum jupyter_channel id, int link_fd,
                        struct kg_error *err)
{
    struct channel *channel = &channels->channel[id];
    KG_AUTO_FD link = link_fd;
    int inner_fd;

    channel_close(channel);
    channel->sock = socket_new(id, channels->dir, channels->max_message_bytes, &inner_fd, err);
    if (channel->sock == NULL)
        return -1;
    channel->guard = guard_new(channels->loop, KG_STEAL_FD(link), inner_fd,
                               channels->max_message_bytes, on_link_end, channel);
    channel->watch =
        loop_fd_new(channels->loop, socket_fd(channel->sock), LOOP_READ, on_socket, channel);
    return 0;
}

// ---- Sending --------------------------------------------------------------------------------

int
jupyter_channels_send(struct jupyter_channels *channels, enum jupyter_channel id,
                      const char *msg_type, json_t *content, char *ret_msg_id, struct kg_error *err)
{
    struct channel *channel = &channels->channel[id];
    KG_AUTO(jupyter_outgoing)
    outgoing = jupyter_outgoing_new(channels->session, msg_type, content);

    if (channel->sock == NULL)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "no link to the kernel's %s",
                            jupyter_channel_name(id));
    if (channel->n_pending == MAX_PENDING)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the kernel's %s takes no more",
                            jupyter_channel_name(id));
    if (ret_msg_id != NULL)
        memcpy(ret_msg_id, outgoing->msg_id, sizeof(outgoing->msg_id));
    if (channel->n_pending > 0 || !socket_send(channel->sock, outgoing))
        channel->pending[channel->n_pending++] = KG_STEAL(outgoing);
    go_on_if_ready(channel);
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
    channels->session = jupyter_session_new(settings->key);
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
    jupyter_session_free(channels->session);
    free(channels->dir);
    free(channels);
}
