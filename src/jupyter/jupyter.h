// SPDX-License-Identifier: Apache-2.0
// The Jupyter messaging protocol (5.3 and later) over ZeroMQ: messages, signatures, channels.
// Source: jupyter_client's "Messaging in Jupyter"; JEP 65 for iopub_welcome.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

// ---- Connection info ------------------------------------------------------------------------

// What a connection file holds ("Connection files" in the protocol): the agent's kernel gets it.
enum { JUPYTER_KEY_LEN = 64 }; // hexadecimal digits

// ---- Messages -------------------------------------------------------------------------------

// One frame of a multipart message.
struct jupyter_frame {
    const void *data;
    size_t len;
};
enum { JUPYTER_MAX_FRAMES = 64 };

// A message as it is on the wire, both ways: four JSON objects as text, and buffers. The frames
// point into memory of its own.
enum { JUPYTER_HEADER, JUPYTER_PARENT_HEADER, JUPYTER_METADATA, JUPYTER_CONTENT, JUPYTER_N_PARTS };
enum { JUPYTER_MAX_BUFFERS = JUPYTER_MAX_FRAMES - 8 };
struct jupyter_raw {
    size_t bytes; // of all frames
    struct jupyter_frame parts[JUPYTER_N_PARTS];
    char *block;
    char *repaired[JUPYTER_N_PARTS]; // instead of the text in `block`; NULL: that is fine
    size_t n_buffers;
    struct jupyter_frame buffers[];
};
// Copies the frames as they are.
struct jupyter_raw *jupyter_raw_new(const struct jupyter_frame parts[JUPYTER_N_PARTS],
                                    const struct jupyter_frame *buffers, size_t n_buffers);
// Checks that each part is a JSON object, and repairs what JSON forbids as jupyter_message_parse()
// does. KG_INVALID_CONTENT, or KG_ARTIFACT_TOO_LARGE where it has too many values. A pure function.
KG_MUST_CHECK int jupyter_raw_repair(struct jupyter_raw *raw, struct kg_error *err);
void jupyter_raw_free(struct jupyter_raw *raw);
KG_DEFINE_AUTO(jupyter_raw, jupyter_raw_free)

// One message, as far as the gateway uses it. `content` is always an object.
struct jupyter_message {
    char *msg_type;
    char *msg_id;
    char *parent_id;      // the parent header's msg_id; "" where it has none
    char *parent_session; // the parent header's session; "" where it has none
    json_t *content;
    // The arrays and objects among the members of content's "data" (a MIME bundle): each a string
    // that holds its JSON. They are not in `content`. NULL: there are none.
    json_t *structured;
    // Not 0: metadata or content of about this many bytes was too large to be taken, or its end did
    // not come in time. `content` is empty then, and the signature, which covers both, was not
    // verified.
    uint64_t cut_bytes;
    bool repaired; // something in it was not legal JSON
    // The message as the kernel sent it, with its buffers. NULL where nobody asked for it
    // (jupyter_channels_keep_raw()) or where a part or a buffer was too large to be taken.
    struct jupyter_raw *raw;
    void *shaped; // what the events' `shape` made of it
};
void jupyter_message_free(struct jupyter_message *message);
KG_DEFINE_AUTO(jupyter_message, jupyter_message_free)

// Signs and verifies with HMAC-SHA256 and counts its own messages ("The Wire Protocol").
struct jupyter_session;
// `key` is the connection file's key, used as it stands; empty: unsigned.
struct jupyter_session *jupyter_session_new(const char *key);
void jupyter_session_free(struct jupyter_session *session);
KG_DEFINE_AUTO(jupyter_session, jupyter_session_free)

// Parses the frames of one message: [identities…, "<IDS|MSG>", signature, header, parent_header,
// metadata, content, buffers…]. What a kernel may legally produce and JSON forbids is replaced:
// lone surrogates and bytes that are not UTF-8 by U+FFFD, NaN and infinities by null, numbers out
// of range by the nearest real. Fails on a bad signature (KG_UNAUTHORIZED), a missing frame, text
// that is not JSON, or a bound on frames, header or depth (all KG_INVALID_CONTENT). A pure
// function: any thread may call it.
KG_MUST_CHECK struct jupyter_message *jupyter_message_parse(const struct jupyter_session *session,
                                                            const struct jupyter_frame *frames,
                                                            size_t n_frames, struct kg_error *err);

// Builds and signs a message of `msg_type` with a fresh msg_id. Takes the reference of `content`.
// The frames live in the returned value.
enum { JUPYTER_MSG_ID_SIZE = 40 };
struct jupyter_outgoing {
    char msg_id[JUPYTER_MSG_ID_SIZE];
    struct jupyter_frame
        frames[6]; // delimiter, signature, header, parent_header, metadata, content
    char *owned[6];
    struct jupyter_raw *raw; // has the last four of them, and buffers; NULL: none
};
struct jupyter_outgoing *jupyter_outgoing_new(struct jupyter_session *session, const char *msg_type,
                                              json_t *content);
// Signs a message that somebody else has made (taken). A pure function.
struct jupyter_outgoing *jupyter_outgoing_new_raw(const struct jupyter_session *session,
                                                  struct jupyter_raw *raw);
void jupyter_outgoing_free(struct jupyter_outgoing *outgoing);
KG_DEFINE_AUTO(jupyter_outgoing, jupyter_outgoing_free)

// ---- Channels -------------------------------------------------------------------------------

enum jupyter_channel {
    JUPYTER_SHELL,
    JUPYTER_IOPUB,
    JUPYTER_CONTROL,
    JUPYTER_STDIN, // has the shell's ZeroMQ identity, to which a kernel sends requests for input
    JUPYTER_N_CHANNELS
};
const char *jupyter_channel_name(enum jupyter_channel channel); // "shell", "iopub", …

// The channels of one kernel. Each is a czmq socket that binds an ipc endpoint in `dir`, and a
// guard that moves bytes between that endpoint and a *link*: a stream descriptor at whose other end
// the kernel's own ZeroMQ socket listens. The guard follows the ZMTP 3 frames that come from the
// kernel. It cuts a channel whose message has too many frames; a message above `max_message_bytes`,
// or a large one whose peer stops in the middle of it, comes with `cut_bytes` set.
//
// Messages above 64 KiB are verified, parsed and shaped on a worker (loop_work). The messages of a
// channel keep their order.
struct jupyter_channels;

struct jupyter_channels_events {
    // Makes `shaped` of a message, to be taken by on_message (which sets it to NULL), and may empty
    // what nobody needs beside it. It looks at nothing but the message, since it may run on a
    // worker. May be NULL, and return NULL.
    void *(*shape)(enum jupyter_channel channel, struct jupyter_message *message);
    // Frees what nobody took. May be NULL where `shape` is.
    void (*shaped_free)(void *shaped);
    // A message; it is freed when the callback returns. Channels may be freed from inside.
    void (*on_message)(enum jupyter_channel channel, struct jupyter_message *message, void *arg);
    // A message that was dropped: bad signature or malformed. `err` says which.
    void (*on_bad_message)(enum jupyter_channel channel, const struct kg_error *err, void *arg);
    // The link of a channel ended or was cut; `err->message` says why.
    void (*on_lost)(enum jupyter_channel channel, const struct kg_error *err, void *arg);
    // A channel has room again (jupyter_channels_has_room()). May be NULL. The channels must not be
    // freed from inside.
    void (*on_room)(enum jupyter_channel channel, void *arg);
};

struct jupyter_channels_settings {
    const char *dir; // exists, private to the gateway, short (socket paths end at 107 bytes)
    const char *key;
    size_t max_message_bytes; // 0: 10 MiB
};

KG_MUST_CHECK struct jupyter_channels *
jupyter_channels_new(struct loop *loop, const struct jupyter_channels_settings *settings,
                     const struct jupyter_channels_events *events, void *arg, struct kg_error *err);
// Closes the sockets, the links, and removes the endpoints.
void jupyter_channels_free(struct jupyter_channels *channels);
KG_DEFINE_AUTO(jupyter_channels, jupyter_channels_free)

// Connects a link to a channel; takes the descriptor, also on failure.
KG_MUST_CHECK int jupyter_channels_attach(struct jupyter_channels *channels,
                                          enum jupyter_channel channel, int link_fd,
                                          struct kg_error *err);
// Whether a message of the channel has begun to come in and was not reported yet: a large one takes
// its time.
bool jupyter_channels_is_receiving(const struct jupyter_channels *channels,
                                   enum jupyter_channel channel);
// Sends a request and writes its msg_id to `ret_msg_id` (40 bytes, may be NULL). Takes `content`.
// Fails with KG_PROVISIONER_UNAVAILABLE where the peer takes no more (its queue is full).
KG_MUST_CHECK int jupyter_channels_send(struct jupyter_channels *channels,
                                        enum jupyter_channel channel, const char *msg_type,
                                        json_t *content, char *ret_msg_id, struct kg_error *err);

// The same with a content that is made, signed and written on a worker, since it is large: `make`
// turns `arg` into it (a new reference), as a pure function; `free_arg` frees `arg` then, or where
// the message is not sent. `arg` is taken, also on failure. Messages of a channel keep their order.
struct jupyter_content {
    json_t *(*make)(void *arg);
    void (*free_arg)(void *arg);
    void *arg;
};
KG_MUST_CHECK int jupyter_channels_send_large(struct jupyter_channels *channels,
                                              enum jupyter_channel channel, const char *msg_type,
                                              const struct jupyter_content *content,
                                              char *ret_msg_id, struct kg_error *err);

// The session id in the headers of what is sent here.
const char *jupyter_channels_session(const struct jupyter_channels *channels);
// Whether messages that are read from now on carry `raw`.
void jupyter_channels_keep_raw(struct jupyter_channels *channels, bool keep);
// Whether the kernel's end of a channel is there: requests need not wait for it.
bool jupyter_channels_is_connected(struct jupyter_channels *channels, enum jupyter_channel channel);
// Whether a channel has room for a message that somebody else has made; where it has none, on_room
// is called when there is some. Some room is always left for jupyter_channels_send().
bool jupyter_channels_has_room(struct jupyter_channels *channels, enum jupyter_channel channel);
// Signs and sends a message that somebody else has made (taken); a large one is signed on a worker.
// The channel must have room. Fails where there is no link.
KG_MUST_CHECK int jupyter_channels_send_raw(struct jupyter_channels *channels,
                                            enum jupyter_channel channel, struct jupyter_raw *raw,
                                            struct kg_error *err);

// Once per process, before the first socket: no czmq signal handlers, as many files as may be.
void jupyter_init(void);
// Makes libzmq's table of sockets large enough for that many kernels at a time; before the first
// socket. At most jupyter_max_kernels(). From three quarters of these on, not all can have stdin.
void jupyter_reserve(size_t n_kernels);
size_t jupyter_max_kernels(void);
// After the last socket: ends libzmq's thread.
void jupyter_fini(void);
