// SPDX-License-Identifier: Apache-2.0
// The Jupyter messaging protocol (5.3 and later) over ZeroMQ: messages, signatures, channels.
// Source: jupyter_client's "Messaging in Jupyter"; JEP 65 for iopub_welcome.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

// ---- Connection info ------------------------------------------------------------------------

// Hexadecimal digits of the key in a kernel's connection file ("Connection files" in the protocol).
enum { JUPYTER_KEY_LEN = 64 };

// ---- Messages -------------------------------------------------------------------------------

// One frame of a multipart message.
struct jupyter_frame {
    const void *data;
    size_t len;
};
enum { JUPYTER_MAX_FRAMES = 64 };

// A message as it is on the wire, in either direction: four JSON objects as text, and buffers. It
// owns the memory of its frames.
enum { JUPYTER_HEADER, JUPYTER_PARENT_HEADER, JUPYTER_METADATA, JUPYTER_CONTENT, JUPYTER_N_PARTS };
enum { JUPYTER_MAX_BUFFERS = JUPYTER_MAX_FRAMES - 8 };
struct jupyter_raw {
    size_t bytes; // of all frames
    struct jupyter_frame parts[JUPYTER_N_PARTS];
    char *block;
    char *repaired[JUPYTER_N_PARTS]; // replaces the text in `block`; NULL: nothing was repaired
    size_t n_buffers;
    struct jupyter_frame buffers[];
};
// Copies the frames as they are.
struct jupyter_raw *jupyter_raw_new(const struct jupyter_frame parts[JUPYTER_N_PARTS],
                                    const struct jupyter_frame *buffers, size_t n_buffers);
// Checks that each part is a JSON object, and repairs what JSON forbids, as jupyter_message_parse()
// does. KG_INVALID_CONTENT, or KG_ARTIFACT_TOO_LARGE if there are too many values. A pure function.
KG_MUST_CHECK int jupyter_raw_repair(struct jupyter_raw *raw, struct kg_error *err);
void jupyter_raw_free(struct jupyter_raw *raw);
KG_DEFINE_AUTO(jupyter_raw, jupyter_raw_free)

// One message, as far as the gateway uses it. `content` is always an object.
struct jupyter_message {
    char *msg_type;
    char *msg_id;
    char *parent_id;      // the parent header's msg_id, or ""
    char *parent_session; // the parent header's session, or ""
    char *parent_type;    // the parent header's msg_type, or ""
    json_t *content;
    // The arrays and objects in content's "data" (a MIME bundle), as strings that hold their JSON.
    // They are not in `content`. NULL: there are none.
    json_t *structured;
    // Not 0: metadata or content of about this many bytes was too large, or its end did not arrive
    // in time. Then `content` is empty, and the signature, which covers both, was not verified.
    uint64_t cut_bytes;
    bool repaired; // something in it was not valid JSON
    // The message as the kernel sent it, with its buffers. NULL unless it was asked for
    // (jupyter_channels_keep_raw()), and if a part or a buffer was too large.
    struct jupyter_raw *raw;
    void *shaped; // the result of the events' `shape`
};
void jupyter_message_free(struct jupyter_message *message);
KG_DEFINE_AUTO(jupyter_message, jupyter_message_free)

// Signs and verifies with HMAC-SHA256 ("The Wire Protocol"), and numbers the messages that it
// sends.
struct jupyter_signer;
// `key` is the connection file's key, used as it is; empty: messages are not signed.
struct jupyter_signer *jupyter_signer_new(const char *key);
void jupyter_signer_free(struct jupyter_signer *signer);
KG_DEFINE_AUTO(jupyter_signer, jupyter_signer_free)

// Parses the frames of one message: [identities…, "<IDS|MSG>", signature, header, parent_header,
// metadata, content, buffers…]. What kernels produce and JSON forbids is replaced:
// lone surrogates and bytes that are not UTF-8 by U+FFFD, NaN and infinities by null, numbers out
// of range by the nearest real. Fails on a bad signature (KG_UNAUTHORIZED), a missing frame, text
// that is not JSON, or a bound on frames, header or depth (all KG_INVALID_CONTENT). A pure
// function: any thread may call it.
KG_MUST_CHECK struct jupyter_message *jupyter_message_parse(const struct jupyter_signer *signer,
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
struct jupyter_outgoing *jupyter_outgoing_new(struct jupyter_signer *signer, const char *msg_type,
                                              json_t *content);
// Signs a client's message (taken). A pure function.
struct jupyter_outgoing *jupyter_outgoing_new_raw(const struct jupyter_signer *signer,
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
// A worker (loop_work) verifies, parses and shapes messages above 64 KiB. The messages of a channel
// keep their order. While keep_raw is off, the busy status and execute_input may be left out.
struct jupyter_channels;

struct jupyter_channels_events {
    // Makes `shaped` from a message; on_message takes it and sets it to NULL. May empty what is not
    // needed then. Uses nothing but the message, since it may run on a worker. May be NULL, and may
    // return NULL.
    void *(*shape)(enum jupyter_channel channel, struct jupyter_message *message);
    // Frees `shaped` if it was not taken. May be NULL if `shape` is.
    void (*shaped_free)(void *shaped);
    // A message, which is freed when the callback returns. The channels may be freed from inside.
    void (*on_message)(enum jupyter_channel channel, struct jupyter_message *message, void *arg);
    // A message that was dropped: bad signature or malformed. `err` says which.
    void (*on_bad_message)(enum jupyter_channel channel, const struct kg_error *err, void *arg);
    // The link of a channel has ended or was cut; `err->message` says why.
    void (*on_lost)(enum jupyter_channel channel, const struct kg_error *err, void *arg);
    // A channel has room again; see jupyter_channels_has_room(). May be NULL. Must not free the
    // channels.
    void (*on_room)(enum jupyter_channel channel, void *arg);
    // The kernel has begun to handle a request: its message that says so was left out. May be NULL.
    // Must not free the channels.
    void (*on_begun)(void *arg);
};

struct jupyter_channels_settings {
    const char *dir; // exists, private to the gateway, short: a socket's path has 107 bytes at most
    const char *key;
    size_t max_message_bytes; // 0: 10 MiB
};

KG_MUST_CHECK struct jupyter_channels *
jupyter_channels_new(struct loop *loop, const struct jupyter_channels_settings *settings,
                     const struct jupyter_channels_events *events, void *arg, struct kg_error *err);
// Closes the sockets and the links, and removes the endpoints.
void jupyter_channels_free(struct jupyter_channels *channels);
KG_DEFINE_AUTO(jupyter_channels, jupyter_channels_free)

// Connects a link to a channel. Takes the descriptor, also on failure.
KG_MUST_CHECK int jupyter_channels_attach(struct jupyter_channels *channels,
                                          enum jupyter_channel channel, int link_fd,
                                          struct kg_error *err);
// Whether the channel has a link: from jupyter_channels_attach() until on_lost.
bool jupyter_channels_is_linked(const struct jupyter_channels *channels,
                                enum jupyter_channel channel);
// Whether a message of the channel has begun to arrive and has not been reported yet.
bool jupyter_channels_is_receiving(const struct jupyter_channels *channels,
                                   enum jupyter_channel channel);
// Sends a request and writes its msg_id to `ret_msg_id` (40 bytes, may be NULL). Takes `content`.
// Fails with KG_PROVISIONER_UNAVAILABLE if the queue to the kernel is full.
KG_MUST_CHECK int jupyter_channels_send(struct jupyter_channels *channels,
                                        enum jupyter_channel channel, const char *msg_type,
                                        json_t *content, char *ret_msg_id, struct kg_error *err);

// The same with large content, which a worker builds, signs and writes. `make` returns the content
// (a new reference) from `arg`, as a pure function; `free_arg` frees `arg` then, or if the message
// is not sent. `arg` is taken, also on failure. Messages of a channel keep their order.
struct jupyter_content {
    json_t *(*make)(void *arg);
    void (*free_arg)(void *arg);
    void *arg;
};
KG_MUST_CHECK int jupyter_channels_send_large(struct jupyter_channels *channels,
                                              enum jupyter_channel channel, const char *msg_type,
                                              const struct jupyter_content *content,
                                              char *ret_msg_id, struct kg_error *err);

// The session id in the headers of jupyter_channels_send().
const char *jupyter_channels_session(const struct jupyter_channels *channels);
// Whether messages that are read from now on carry `raw`.
void jupyter_channels_keep_raw(struct jupyter_channels *channels, bool keep);
// Whether the kernel's end of a channel is connected, so that requests are sent at once.
bool jupyter_channels_is_connected(struct jupyter_channels *channels, enum jupyter_channel channel);
// Whether a channel has room for jupyter_channels_send_raw(). If not, on_room is called when it
// has. Some room is always left for jupyter_channels_send().
bool jupyter_channels_has_room(struct jupyter_channels *channels, enum jupyter_channel channel);
// Signs and sends a client's message (taken); a large one is signed on a worker. The channel must
// have room. Fails if there is no link.
KG_MUST_CHECK int jupyter_channels_send_raw(struct jupyter_channels *channels,
                                            enum jupyter_channel channel, struct jupyter_raw *raw,
                                            struct kg_error *err);

// Once in a process, before the first socket. Disables czmq's signal handlers, and raises the limit
// of open files.
void jupyter_init(void);
// Makes libzmq's table of sockets large enough for `n_kernels` at a time, at most
// jupyter_max_kernels(). Before the first socket. Above three quarters of the maximum, not all
// kernels can have stdin.
void jupyter_reserve(size_t n_kernels);
size_t jupyter_max_kernels(void);
// After the last socket. Ends libzmq's thread.
void jupyter_fini(void);
