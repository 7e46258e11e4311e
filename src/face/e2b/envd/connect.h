// SPDX-License-Identifier: Apache-2.0
// The Connect protocol (connectrpc.com/docs/protocol) with its JSON codec, uncompressed: unary
// calls and server streams. All on the loop's thread.
#pragma once

#include <jansson.h>

#include "envelope.h"
#include "http.h"

#define CONNECT_STREAM_TYPE "application/connect+json"

// The protocol's error codes, in the order of its table.
enum connect_code {
    CONNECT_OK,
    CONNECT_CANCELED,
    CONNECT_UNKNOWN,
    CONNECT_INVALID_ARGUMENT,
    CONNECT_DEADLINE_EXCEEDED,
    CONNECT_NOT_FOUND,
    CONNECT_ALREADY_EXISTS,
    CONNECT_PERMISSION_DENIED,
    CONNECT_RESOURCE_EXHAUSTED,
    CONNECT_FAILED_PRECONDITION,
    CONNECT_ABORTED,
    CONNECT_OUT_OF_RANGE,
    CONNECT_UNIMPLEMENTED,
    CONNECT_INTERNAL,
    CONNECT_UNAVAILABLE,
    CONNECT_DATA_LOSS,
    CONNECT_UNAUTHENTICATED,
    CONNECT_N_CODES
};
const char *connect_code_name(enum connect_code code);
int connect_code_status(enum connect_code code);
enum connect_code connect_code_of(enum kg_code code);

// ---- Requests -------------------------------------------------------------------------------

// The message of a unary call, a new reference. NULL: it was answered with what is wrong.
KG_MUST_CHECK json_t *connect_unary_message(struct http_request *request);
// The same of a server stream: exactly one envelope.
KG_MUST_CHECK json_t *connect_stream_message(struct http_request *request);
// Whether the request is a stream of envelopes; false: it was answered. For client streams.
KG_MUST_CHECK bool connect_check_stream(struct http_request *request);
// Connect-Timeout-Ms; 0: none. `err`: KG_INVALID.
KG_MUST_CHECK int connect_timeout_ms(const struct http_request *request, int64_t *ret,
                                     struct kg_error *err);

enum {
    CONNECT_MESSAGE_MAX = 4 << 20,  // bytes of one message in a stream of a client
    CONNECT_VALUES_MAX = 256 << 10, // the memory of its values, without their strings: they are
                                    // parsed on the loop
};
// Parses one. A new reference of an object.
KG_MUST_CHECK json_t *connect_message_parse(const struct envelope *envelope, struct kg_error *err);
// What is wrong with an envelope that is not whole, at the end of the body, or not alone.
enum connect_code connect_envelope_error(enum envelope_state state, const char **ret_message);

// ---- Answers to unary calls -----------------------------------------------------------------

// Takes `message`. Errors that have a kg_code are answered with http_reply_error(): the routes'
// dialect writes them as the protocol has it.
void connect_reply(struct http_request *request, json_t *message);
void connect_refuse(struct http_request *request, enum connect_code code, const char *fmt, ...)
    KG_PRINTF(3, 4);
// {"code", "message"}, a new reference.
json_t *connect_error(enum connect_code code, const char *message);

// ---- Server streams -------------------------------------------------------------------------

struct connect_stream;
struct connect_stream_settings {
    struct loop *loop;
    struct http_request *request;
    const char *keepalive; // a message, borrowed: sent when nothing was for as long as the
                           // request's Keepalive-Ping-Interval says. NULL: never
    int64_t deadline_ms;   // from now until it ends with deadline_exceeded; 0: none
    loop_fn on_room;       // the client has read; fires only after connect_stream_is_full()
    // While it is true, a client that reads nothing for a minute is disconnected.
    bool (*waits_for_client)(const void *arg);
    void *arg;
};
// Neither starts the answer nor owns the request, whose state frees the stream.
struct connect_stream *connect_stream_new(const struct connect_stream_settings *settings);
void connect_stream_free(struct connect_stream *stream);
// Sends a message, which it takes.
void connect_stream_send(struct connect_stream *stream, json_t *message);
// Whether so much waits to be read by the client that no more should be sent.
bool connect_stream_is_full(const struct connect_stream *stream);
bool connect_stream_has_begun(const struct connect_stream *stream);
// Each ends the answer, and with it the request and its state. The HTTP status is 200 also for
// errors. CONNECT_OK has no message.
void connect_stream_end(struct connect_stream *stream, enum connect_code code, const char *message);
void connect_stream_fail(struct connect_stream *stream, const struct kg_error *err);
// Ends an answer that has not begun in the same way.
void connect_refuse_stream(struct http_request *request, enum connect_code code,
                           const char *message);
void connect_refuse_stream_error(struct http_request *request, const struct kg_error *err);
// The answer of a client stream: one message (taken) and the end. Frees the request.
void connect_stream_reply(struct http_request *request, json_t *message);
