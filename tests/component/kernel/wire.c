// SPDX-License-Identifier: Apache-2.0
// Sockets and messages.
#include "wire.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define DELIMITER "<IDS|MSG>"

enum { N_PARTS = 4, HEX_SIZE = 2 * crypto_auth_hmacsha256_BYTES + 1, LINGER_MS = 2000 };

static const char *const channel_names[] = {"shell", "control", "stdin", "iopub", "hb"};
static const int socket_types[] = {ZMQ_ROUTER, ZMQ_ROUTER, ZMQ_ROUTER, ZMQ_XPUB, ZMQ_REP};

struct wire_next wire_next;

static void *context, *sockets[N_CHANNELS];
static char *key;
static char session[48];

// ---- Sockets --------------------------------------------------------------------------------

static void
set_option(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

static void
open_socket(enum channel channel, const json_t *connection)
{
    const char *transport = json_string_value(json_object_get(connection, "transport"));
    const char *ip = json_string_value(json_object_get(connection, "ip"));
    char address[256], name[32];
    snprintf(name, sizeof name, "%s_port", channel_names[channel]);
    long long port = json_integer_value(json_object_get(connection, name));
    bool is_tcp = transport && strcmp(transport, "tcp") == 0;
    snprintf(address, sizeof address, "%s://%s%c%lld", transport, ip, is_tcp ? ':' : '-', port);
    void *socket = sockets[channel] = zmq_socket(context, socket_types[channel]);
    set_option(socket, ZMQ_LINGER, LINGER_MS);
    set_option(socket, ZMQ_RCVHWM, 0);
    if (channel != IOPUB)
        set_option(socket, ZMQ_SNDHWM, 0);
    else // what does not fit waits, instead of being dropped
        set_option(socket, ZMQ_XPUB_NODROP, 1);
    if (socket_types[channel] == ZMQ_ROUTER) // a client may come back with its identity
        set_option(socket, ZMQ_ROUTER_HANDOVER, 1);
    if (zmq_bind(socket, address) != 0) {
        fprintf(stderr, "%s: %s\n", address, zmq_strerror(zmq_errno()));
        exit(1);
    }
}

void
wire_open(const json_t *connection)
{
    const char *text = json_string_value(json_object_get(connection, "key"));
    if (sodium_init() < 0)
        abort();
    key = strdup(text ? text : "");
    snprintf(session, sizeof session, "scripted-%d-%lx", getpid(), (unsigned long)time(NULL));
    context = zmq_ctx_new();
    for (int i = 0; i < N_CHANNELS; i++)
        open_socket((enum channel)i, connection);
}

void
wire_close(void)
{
    for (int i = 0; i < N_CHANNELS; i++)
        zmq_close(sockets[i]);
    zmq_ctx_term(context);
}

void *
wire_socket(enum channel channel)
{
    return sockets[channel];
}

enum channel
wire_channel(const char *name)
{
    int i = 0;
    while (i < N_CHANNELS && strcmp(name, channel_names[i]) != 0)
        i++;
    return (enum channel)i;
}

// ---- Receiving ------------------------------------------------------------------------------

// Appends one frame to `frames`, of which there are `n`. Returns false if no message has come.
static bool
receive_frame(enum channel channel, struct frame **frames, size_t n)
{
    zmq_msg_t part;
    zmq_msg_init(&part);
    if (zmq_msg_recv(&part, sockets[channel], ZMQ_DONTWAIT) < 0)
        return false;
    *frames = realloc(*frames, (n + 1) * sizeof **frames);
    size_t len = zmq_msg_size(&part);
    char *data = malloc(len + 1);
    memcpy(data, zmq_msg_data(&part), len);
    data[len] = '\0';
    (*frames)[n] = (struct frame){data, len};
    zmq_msg_close(&part);
    return true;
}

static bool
is_delimiter(const struct frame *frame)
{
    return frame->len == strlen(DELIMITER) && memcmp(frame->data, DELIMITER, frame->len) == 0;
}

// Takes the frames of a message: identities, delimiter, signature, four parts, buffers.
static struct message *
parse(enum channel channel, struct frame *frames, size_t n)
{
    struct message *message = calloc(1, sizeof *message);
    size_t at = 0;
    message->channel = channel;
    while (at < n && at < IDS_MAX && !is_delimiter(&frames[at]))
        message->ids[message->n_ids++] = frames[at++];
    if (n - at < 2 + N_PARTS) {
        fprintf(stderr, "a message has only %zu frames\n", n);
        exit(1);
    }
    free(frames[at].data);
    free(frames[at + 1].data); // the gateway's signatures are right; another test checks that
    struct frame *parts = frames + at + 2;
    message->parent = parts[0];
    message->header = json_loadb(parts[0].data, parts[0].len, 0, NULL);
    message->content = json_loadb(parts[3].data, parts[3].len, JSON_ALLOW_NUL, NULL);
    for (int i = 1; i < N_PARTS; i++)
        free(parts[i].data);
    message->n_buffers = n - at - 2 - N_PARTS;
    message->buffers = calloc(message->n_buffers + 1, sizeof *message->buffers);
    memcpy(message->buffers, parts + N_PARTS, message->n_buffers * sizeof *message->buffers);
    return message;
}

struct message *
wire_receive(enum channel channel)
{
    struct frame *frames = NULL;
    size_t n = 0, size = sizeof(int);
    int more = 1;
    while (more) {
        if (!receive_frame(channel, &frames, n))
            return NULL; // only before the first: the parts of a message come together
        n++;
        zmq_getsockopt(sockets[channel], ZMQ_RCVMORE, &more, &size);
    }
    struct message *message = parse(channel, frames, n);
    free(frames);
    return message;
}

void
message_free(struct message *message)
{
    if (!message)
        return;
    for (size_t i = 0; i < message->n_ids; i++)
        free(message->ids[i].data);
    for (size_t i = 0; i < message->n_buffers; i++)
        free(message->buffers[i].data);
    free(message->buffers);
    free(message->parent.data);
    json_decref(message->header);
    json_decref(message->content);
    free(message);
}

const char *
message_type(const struct message *message)
{
    const char *type = json_string_value(json_object_get(message->header, "msg_type"));
    return type ? type : "";
}

const char *
message_text(const struct message *message, const char *name)
{
    const char *text = json_string_value(json_object_get(message->content, name));
    return text ? text : "";
}

// ---- Sending --------------------------------------------------------------------------------

static void
sign(const struct frame *parts, char hex[HEX_SIZE])
{
    crypto_auth_hmacsha256_state state;
    unsigned char digest[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_init(&state, (const unsigned char *)key, strlen(key));
    for (int i = 0; i < N_PARTS; i++)
        crypto_auth_hmacsha256_update(&state, (const unsigned char *)parts[i].data, parts[i].len);
    crypto_auth_hmacsha256_final(&state, digest);
    sodium_bin2hex(hex, HEX_SIZE, digest, sizeof digest);
    if (wire_next.bad_signature)
        hex[0] = hex[0] == '0' ? '1' : '0';
}

static char *
header_of(const char *type)
{
    static unsigned sent;
    struct timeval at;
    char date[32], *ret;
    gettimeofday(&at, NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", gmtime(&at.tv_sec));
    if (asprintf(&ret,
                 "{\"msg_id\":\"%s_%u\",\"username\":\"kernel\",\"session\":\"%s\","
                 "\"date\":\"%s.%06ldZ\",\"msg_type\":\"%s\",\"version\":\"5.3\"}",
                 session, sent++, session, date, (long)at.tv_usec, type) < 0)
        abort();
    return ret;
}

static void
send_part(enum channel channel, const void *data, size_t len, bool more)
{
    zmq_send(sockets[channel], data, len, more ? ZMQ_SNDMORE : 0);
}

static void
send_address(const struct message *request, enum channel channel, const char *topic)
{
    for (size_t i = 0; request && channel != IOPUB && i < request->n_ids; i++)
        send_part(channel, request->ids[i].data, request->ids[i].len, true);
    if (channel == IOPUB)
        send_part(channel, topic, strlen(topic), true);
}

void
wire_send_text(const struct message *request, enum channel channel, const char *type,
               const char *content)
{
    char hex[HEX_SIZE], *header = header_of(type);
    char none[] = "{}", *metadata = wire_next.metadata ? wire_next.metadata : none;
    const struct frame parts[N_PARTS] = {
        {header, strlen(header)},
        request ? request->parent : (struct frame){none, strlen(none)},
        {metadata, strlen(metadata)},
        {strdup(content), strlen(content)},
    };
    sign(parts, hex);
    send_address(request, channel, type);
    send_part(channel, DELIMITER, strlen(DELIMITER), true);
    send_part(channel, hex, strlen(hex), true);
    for (int i = 0; i < N_PARTS; i++)
        send_part(channel, parts[i].data, parts[i].len, i + 1 < N_PARTS || wire_next.n_buffers);
    for (size_t i = 0; i < wire_next.n_buffers; i++)
        send_part(channel, wire_next.buffers[i].data, wire_next.buffers[i].len,
                  i + 1 < wire_next.n_buffers);
    free(wire_next.metadata);
    wire_next = (struct wire_next){0};
    free(header);
    free(parts[3].data);
}

void
wire_send(const struct message *request, enum channel channel, const char *type, json_t *content)
{
    char *text = json_dumps(content, JSON_COMPACT | JSON_ENSURE_ASCII);
    wire_send_text(request, channel, type, text);
    free(text);
    json_decref(content);
}

void
wire_send_frames(const struct message *request, enum channel channel, const json_t *frames)
{
    size_t i, n = json_array_size(frames);
    json_t *frame;
    for (i = 0; channel != IOPUB && i < request->n_ids; i++)
        send_part(channel, request->ids[i].data, request->ids[i].len, true);
    json_array_foreach((json_t *)(size_t)frames, i, frame)
        send_part(channel, json_string_value(frame), json_string_length(frame), i + 1 < n);
}
