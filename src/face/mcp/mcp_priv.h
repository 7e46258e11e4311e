// SPDX-License-Identifier: Apache-2.0
// What the files of the MCP core share, the lowest layers first. Everything here runs on the loop
// unless a comment says otherwise.
#pragma once

#include <sys/queue.h>

#include "budget.h"
#include "mcp_message.h"

#define MCP_SESSION_HEADER "Mcp-Session-Id"
#define MCP_VERSION_HEADER "MCP-Protocol-Version"
enum {
    MCP_CONCERNS_MAX = 8,
    MCP_NAME_MAX = 4096,           // bytes of a name or a URI from a client
    MCP_BATCH_MAX = 64,            // messages in a batch
    MCP_SESSION_CALLS_MAX = 64,    // running calls of one MCP session
    MCP_VALUES_MAX = 16 << 20,     // bytes for the values of one message, apart from its strings
    MCP_HELD_MAX = 256 << 20,      // bytes of the messages of all running calls
    MCP_OWNER_HELD_MAX = 64 << 20, // the same for one owner, or a single larger message
    MCP_SMALL_MESSAGE = 16 << 10,  // bytes; these bounds do not apply to smaller messages
    MCP_STREAM_AFTER_MS = 1000,    // a call that takes longer is answered as a stream
    MCP_TICK_MS = 1000,
    MCP_KEEPALIVE_MS = 15000,
    MCP_RETRY_MS = 1000,       // a client should wait this long before it reconnects
    MCP_BACKLOG_MAX = 1 << 20, // unread bytes beyond which a stream drops progress and log messages
    MCP_LARGE_BYTES = 64 << 10,       // larger messages are parsed, encoded and freed by a worker
    MCP_ANSWERS_MAX = 256 << 20,      // bytes of large answers that clients have not read
    MCP_OWNER_ANSWERS_MAX = 64 << 20, // the same for one owner
    MCP_ROOM_WAIT_MS = 10 * 1000,     // after which an answer without room is refused
    MCP_PARSING_MAX = 2, // large bodies parsed at a time; others wait in their connections
    MCP_BATCH_ANSWERS_MAX = 32 << 20, // bytes of the answers of one batch
    MCP_REPLAY_TOTAL_MAX = 32 << 20,  // bytes of kept events, of all sessions
    MCP_REPLAY_OWNER_MAX = 16 << 20,  // the same for the sessions of one owner
    MCP_SESSION_ID_LEN = 32,
};

#define MCP_META "io.modelcontextprotocol/"

// ---- Revisions (revision.c) -----------------------------------------------------------------

// How a revision differs from the others.
struct revision {
    const char *name;
    bool stateless;     // no initialize and no MCP sessions: each request carries its own metadata
    bool batches;       // several messages in one body
    bool completions;   // completions are a capability
    bool progress_text; // progress has a message
    bool audio;         // audio content blocks
    bool structured;    // structuredContent, resource_link
    bool priming_event; // a stream begins with an event that has an id and no data
    int not_found;      // error code for a resource that does not exist
};
const struct revision *revision_get(enum mcp_revision revision);
// -1: no revision has this name.
int revision_find(const char *name);
// Removes keys that `revision` does not have from the elements of `list`, the answer of `method`.
void revision_strip(enum mcp_revision revision, const char *method, json_t *list);
// Changes a result, in place, to what `revision` has.
void revision_adapt_result(enum mcp_revision revision, json_t *result);

// ---- Parts of results (content.c) -----------------------------------------------------------

// {name, title, version}. A new reference.
json_t *mcp_server_info(void);

// ---- Attachments (attachment.c) -------------------------------------------------------------

enum { ATTACHMENT_MARK_LEN = 32 };

struct attachment {
    const char *text; // what a JSON string has between its quotes
    size_t len;
    loop_fn release;
    void *arg;
};
// Texts that are written into an answer when it is encoded (see mcp_call_attach()).
struct attachments {
    char mark[ATTACHMENT_MARK_LEN + 1]; // random, so that no other text contains it; "" if unused
    struct attachment *list;
    size_t n;
};
// Returns the placeholder: the mark and the attachment's number.
json_t *attachments_add(struct attachments *attachments, const struct attachment *attachment);
// Appends `text` with each placeholder replaced by its attachment. On any thread.
void attachments_write(const struct attachments *attachments, const char *text, size_t len,
                       struct buf *ret);
// Their total length in bytes.
size_t attachments_len(const struct attachments *attachments);
void attachments_fini(struct attachments *attachments);

// ---- Room for answers (room.c) --------------------------------------------------------------

// Waits until there is room for an answer, at most mcp->room_wait_ms. Then `fn` is called, once; it
// must not start or cancel another wait.
struct room_wait;
struct room_wait *mcp_room_wait_start(struct mcp *mcp, const char *owner, size_t len, loop_fn fn,
                                      void *arg);
void mcp_room_wait_cancel(struct room_wait *wait);
// Less is held of mcp->answers: ends the waits for which there is room now.
void mcp_room_freed(struct mcp *mcp);

// ---- Payloads (payload.c) -------------------------------------------------------------------

// A message as JSON text. Reference counted, since an answer with figures has many megabytes.
struct payload {
    unsigned refs;
    size_t len;
    char *text;
    struct mcp *mcp; // counts it until it is freed, unless `mcp` is freed earlier; or NULL
    struct budget_hold held;
};
// Takes `text`.
struct payload *payload_take(char *text, size_t len);
// Encodes a message (taken). If it cannot be encoded, the payload is an error. On any thread.
struct payload *payload_of(json_t *message);
// The same for an answer with attachments.
struct payload *payload_with(json_t *message, const struct attachments *attachments);
// Counts it in mcp->answers, whether or not there is room.
void payload_count(struct payload *payload, struct mcp *mcp, const char *owner);
struct payload *payload_ref(struct payload *payload);
void payload_unref(struct payload *payload);
// payload_unref() as a loop_fn.
void payload_release(void *payload);
// Frees a payload that has a single reference, and returns its text.
char *payload_take_text(struct payload *payload, size_t *ret_len);

// ---- Encoding (encoding.c) ------------------------------------------------------------------

struct encoding;
// Takes the payload.
typedef void (*encoding_fn)(struct payload *payload, void *arg);
// Encodes an answer with its attachments on a worker, which also frees the request. Takes all
// three. `fn` is called once.
struct encoding *encoding_start(struct mcp *mcp, const char *owner, json_t *answer, json_t *request,
                                struct attachments *attachments, encoding_fn fn, void *arg);
void encoding_cancel(struct encoding *encoding);

// ---- Messages that are received (reception.c) -----------------------------------------------

// Frees a message on a worker if it is large. No value in it may have another reference.
void mcp_message_free(struct loop *loop, json_t *message, size_t weight);
// The result of parsing what a client sent.
struct received {
    json_t *message; // NULL: failed with `code` and `err`, or taken
    int code;        // of JSON-RPC
    struct kg_error err;
    size_t weight;                 // json_value_weight()
    size_t weights[MCP_BATCH_MAX]; // of the message, or of each message of a batch
};
// Parses and weighs a message, within MCP_VALUES_MAX. On any thread.
void mcp_received_fill(struct received *received, const char *data, size_t len);
void mcp_received_fini(struct mcp *mcp, struct received *received);
// The same on a worker. Takes `text`. `fn` is called once, and borrows `received`.
struct reception;
typedef void (*mcp_received_fn)(struct received *received, void *arg);
struct reception *mcp_receive_start(struct mcp *mcp, char *text, size_t len, mcp_received_fn fn,
                                    void *arg);
// The same for the body of a request. Takes it.
struct reception *mcp_receive_body_start(struct mcp *mcp, const char *owner, struct http_body *body,
                                         mcp_received_fn fn, void *arg);
void mcp_receive_cancel(struct reception *reception);

// ---- Outlets --------------------------------------------------------------------------------

// Where the messages for one request are sent, or those for a client that belong to no request.
struct outlet;
struct outlet_ops {
    // Sends a notification; takes it. A `minor` one (progress, log) may be dropped
    // if the client does not read.
    void (*send)(struct outlet *outlet, json_t *message, bool minor);
    // Sends the answer of a request; takes it. NULL: the request was cancelled.
    void (*answer)(struct outlet *outlet, struct payload *payload, int http_status);
    // Whether an answer of this size can be sent; else an error is sent in its place. NULL: any.
    bool (*has_room)(const struct outlet *outlet, size_t len);
    // Whether send() reaches the client.
    bool (*can_send)(const struct outlet *outlet);
};
struct outlet {
    const struct outlet_ops *ops;
    struct mcp_call *call; // the running call that answers through it, or NULL
};

// ---- Calls (call.c) -------------------------------------------------------------------------

struct method;

// A request, until it is answered.
struct mcp_call {
    struct mcp *mcp;
    struct mcp_session *session; // NULL: stateless
    struct outlet *outlet;
    char *owner;
    char *profile;
    char *base_url;    // or NULL
    json_t *elsewhere; // or NULL
    enum mcp_revision revision;
    json_t *message;
    size_t weight;                // of the message
    struct budget_hold held;      // the same, of mcp->requests
    const json_t *id;             // in the message, like the next three
    const json_t *params;         // an object
    const json_t *meta;           // or NULL
    const json_t *progress_token; // or NULL
    json_t *empty;                // {}, for absent params and arguments
    const struct method *method;
    const char *name;
    const json_t *arguments;
    double progress; // that was sent last
    int log_level;   // for this request alone; -1: none
    loop_fn on_cancel;
    void *on_cancel_arg;
    struct loop_timer *late_cancel;
    bool cancelled;
    bool holding;       // mcp_call_cancel() is on the stack, and will free it
    bool ended;         // answered; the answer may still be being encoded
    bool shares_answer; // a provider shares values of the answer: it is encoded on the loop
    struct attachments attachments;
    struct encoding *encoding; // of the answer, or NULL
    int http_status;           // of that answer
    // Takes a provider's result that is only a part of the answer. NULL: it is the answer.
    void (*on_result)(struct mcp_call *call, json_t *result);
    size_t provider; // the next one to ask
    json_t *joined;  // the parts until now
    bool listens;    // is in mcp->listeners
    LIST_ENTRY(mcp_call) in_session;
    LIST_ENTRY(mcp_call) in_mcp;
    LIST_ENTRY(mcp_call) listening;
};

// Where a message comes from. Borrowed during a function call.
struct origin {
    struct mcp *mcp;
    struct mcp_session *session; // or NULL
    const char *owner;
    const char *profile;
    const char *base_url; // NULL: the session's
    struct outlet *outlet;
    const size_t *weights; // of the message, or of each message of a batch; NULL: unknown
    json_t *elsewhere;     // see http_request_elsewhere(); or NULL
};

struct mcp_call *mcp_call_new(const struct origin *origin, enum mcp_revision revision,
                              json_t *message, size_t weight, const struct method *method);
// Returns the message, and leaves only its id in the call.
json_t *mcp_call_take_message(struct mcp_call *call);
// Frees the message except for its id, since the call may run for long.
void mcp_call_shrink(struct mcp_call *call);
void mcp_call_free(struct mcp_call *call);
void mcp_call_cancel(struct mcp_call *call);
// Whether messages other than the answer reach the client.
bool call_can_send(const struct mcp_call *call);
// -1: there is no level of this name.
int mcp_log_level_find(const char *name);

// ---- Streams (sse.c) ------------------------------------------------------------------------

// An event that is kept for Last-Event-ID.
struct event {
    unsigned seq;
    struct payload *payload;
    TAILQ_ENTRY(event) link;
};
TAILQ_HEAD(events, event);

// An SSE stream: an outlet whose client may leave and come back. If it is `kept`, its events have
// ids and are kept for Last-Event-ID, also after its end.
struct sse {
    struct outlet base; // for send() only
    struct mcp *mcp;
    struct mcp_session *session; // or NULL
    bool kept;                   // requires a session
    unsigned number;
    unsigned last_seq;
    bool ended;
    struct http_request *request; // NULL: no client is connected
    struct http_pace *pace;       // of the request: a client that is behind gets no more
    loop_fn on_left;              // a client has left: for the session
    loop_fn on_gone;              // the same, for who writes to the stream; `request` is NULL then
    void *on_gone_arg;
    struct events events;
    TAILQ_ENTRY(sse) in_session;
    LIST_ENTRY(sse) connected;
};
// `session` may be NULL. See mcp_session_stream().
struct sse *sse_new(struct mcp *mcp, struct mcp_session *session, bool kept);
// Starts the answer of `request` with the events after number `after`.
void sse_connect(struct sse *sse, struct http_request *request, unsigned after);
// Sends the priming event, which says how to reconnect.
void sse_prime(struct sse *sse);
// Takes the payload.
void sse_send(struct sse *sse, struct payload *payload);
// Sends a comment or an event without an id.
void sse_write_raw(struct sse *sse, const char *text);
// Ends the connection, but not the stream.
void sse_disconnect(struct sse *sse);
// Ends the stream. It may be freed.
void sse_end(struct sse *sse);
void sse_free(struct sse *sse);
struct sse *sse_find(struct mcp_session *session, unsigned number);
void sse_keepalive(struct mcp *mcp);

// ---- Sessions (session.c) -------------------------------------------------------------------

TAILQ_HEAD(streams, sse);
LIST_HEAD(calls, mcp_call);

struct session_value {
    const void *key;
    void *value;
    mcp_value_free_fn free_fn;
};

// An MCP session. Over HTTP `initialize` creates it; else it lives as long as its connection. A
// closed session is freed after its last call has been answered.
struct mcp_session {
    struct mcp *mcp;
    char id[MCP_SESSION_ID_LEN + MCP_SUFFIX_MAX + 1];
    char *owner;
    char *profile;
    char *base_url; // or NULL
    enum mcp_revision revision;
    enum mcp_log_level log_level;
    struct outlet *news; // for messages that belong to no request; or NULL
    struct session_value *values;
    size_t n_values;
    struct calls calls;
    size_t n_calls;
    bool initialized;
    bool one_stream; // all answers are sent to `news` (the old SSE)
    char *host_id; // this is a guest: for one request of the MCP session of that id, which another
                   // replica has; or NULL
    bool registered; // can be found by its id, expires, can be evicted
    bool closed;
    int64_t used_ms;
    struct streams streams;
    unsigned last_stream;
    struct budget_hold replay;       // of mcp->replay
    TAILQ_ENTRY(mcp_session) by_use; // the longest idle one first
    LIST_ENTRY(mcp_session) in_bucket;
    LIST_ENTRY(mcp_session) link;
};

struct mcp_session *mcp_session_new(struct mcp *mcp, const char *owner, const char *profile);
// Lets clients find it by its id. Fails if there are too many, or the gateway is shutting down.
KG_MUST_CHECK int mcp_session_register(struct mcp_session *session, struct kg_error *err);
// Whether this gateway of an installation has made an MCP session's id.
bool mcp_made_id(const struct mcp *mcp, const char *id);
// NULL: this owner has no such session. Counts as use.
struct mcp_session *mcp_session_find(struct mcp *mcp, const char *owner, const char *id);
// The owner's guest of the MCP session `host_id` that follows `after` (NULL: the first); NULL:
// none.
struct mcp_session *mcp_session_next_guest(struct mcp *mcp, struct mcp_session *after,
                                           const char *owner, const char *host_id);
// A new stream of the session, which is in use until the stream's client leaves.
struct sse *mcp_session_stream(struct mcp_session *session, bool kept);
// Cancels its calls and ends its streams.
void mcp_session_close(struct mcp_session *session);
// A call of the session has ended. A guest ends with its last one.
void mcp_session_release(struct mcp_session *session);
// Closes sessions that were idle for too long.
void mcp_sessions_expire(struct mcp *mcp);
// Frees closed sessions and guests without calls.
void mcp_sessions_reap(struct mcp *mcp);

// ---- Answers (answer.c) ---------------------------------------------------------------------

// Ends the call with a message (taken); NULL: without one. A large message is encoded on a worker;
// meanwhile the call stays in its session, and can be cancelled.
void mcp_call_answer(struct mcp_call *call, json_t *message, int http_status);
// Ends the call with a result (taken), in the shape of its revision.
void mcp_call_answer_result(struct mcp_call *call, json_t *result);
// Ends a call whose answer is being encoded, without that answer.
void mcp_call_drop_answer(struct mcp_call *call);

// ---- Methods (methods.c, lists.c, listen.c, target.c, call_tool.c) ---------------------------

void method_initialize(struct mcp_call *call);
void method_discover(struct mcp_call *call);
void method_ping(struct mcp_call *call);
void method_set_level(struct mcp_call *call);
void method_list_tools(struct mcp_call *call);
void method_list_prompts(struct mcp_call *call);
void method_list_templates(struct mcp_call *call);
void method_list_resources(struct mcp_call *call);
void method_call_tool(struct mcp_call *call);
void method_get_prompt(struct mcp_call *call);
void method_read_resource(struct mcp_call *call);
void method_complete(struct mcp_call *call);
void method_listen(struct mcp_call *call);
// Reads the name (the parameter `key`) and the arguments. False: answered with an error.
bool target_read(struct mcp_call *call, const char *key);
// Offers the call to the providers, in their order. False: none takes it. True: it may be gone.
typedef bool (*mcp_take_fn)(struct mcp_call *call, void *arg);
bool target_offer(struct mcp_call *call, mcp_take_fn (*pick)(const struct mcp_provider *provider));
enum mcp_list { MCP_LIST_TOOLS, MCP_LIST_PROMPTS, MCP_LIST_TEMPLATES };
// The joined list. A new reference.
json_t *lists_join(struct mcp *mcp, const char *profile, enum mcp_list list);
// Answers a subscriptions/listen: the subscription has ended.
void mcp_end_listener(struct mcp_call *call);

// ---- Dispatch (dispatch.c, batch.c, receive.c) ----------------------------------------------

struct method {
    const char *name;
    enum mcp_revision since;
    enum mcp_revision until;
    void (*handle)(struct mcp_call *call);
    int ttl_ms; // 2026: how long a client may cache the result; -1: not said
};
// NULL: the revision has no such method.
const struct method *method_find(const char *name, enum mcp_revision revision);

// These take the message. A request is answered through the outlet, exactly once, maybe before the
// function returns.
void mcp_dispatch_request(const struct origin *origin, enum mcp_revision revision, json_t *message);
// For a request that claims its revision (see mcp_claimed_version()).
void mcp_dispatch_stateless(const struct origin *origin, json_t *message);
// For a notification or a response.
void mcp_dispatch_other(const struct origin *origin, json_t *message);
// Answers a request with an error. Takes `data` (may be NULL), too.
void mcp_refuse(const struct origin *origin, json_t *message, int status, int code,
                const char *text, json_t *data);

// What is wrong with a batch, or NULL.
const char *mcp_batch_check(const json_t *messages, size_t *ret_requests);
// Takes a checked batch. The answers of its requests are sent as one.
void mcp_dispatch_batch(const struct origin *origin, enum mcp_revision revision, json_t *messages);

// What is wrong with a message or batch of this session at this time, or NULL.
const char *mcp_receive_check(const struct mcp_session *session, const json_t *message);
// Handles a checked message or batch (taken). Without requests in it `outlet` may be NULL.
// `elsewhere` is what http_request_elsewhere() says, or NULL.
void mcp_receive(struct mcp_session *session, struct outlet *outlet, json_t *message,
                 const size_t *weights, json_t *elsewhere);

// ---- HTTP (headers.c, body.c, post.c, old_sse.c) --------------------------------------------

// Answers with an error that belongs to no call. `id` may be NULL.
void mcp_http_answer_error(struct http_request *request, int status, const json_t *id, int code,
                           const char *fmt, ...) KG_PRINTF(5, 6);
// "http://host:port" as the client sees it, or NULL; to be freed.
char *mcp_http_base_url(const struct http_request *request);
// The types that the client accepts.
struct accepted {
    bool json;
    bool stream;
};
struct accepted mcp_http_accepted(const struct http_request *request);
bool mcp_http_content_is_json(const struct http_request *request);
// The profile in the query, "" by default. NULL: unknown, and answered.
const char *mcp_http_profile(struct mcp *mcp, struct http_request *request);
// Checks the headers that 2026-07-28 requires. -1: answered with an error.
KG_MUST_CHECK int mcp_headers_check(struct mcp *mcp, struct http_request *request,
                                    const json_t *message, const char *profile);

// Parses the body of a request, a large one on a worker, and passes the message to `fn`, maybe
// before this returns. An invalid body is answered. If the client leaves first, `fn` is not called.
typedef void (*mcp_body_fn)(struct mcp *mcp, struct http_request *request,
                            struct received *received);
void mcp_body_receive(struct mcp *mcp, struct http_request *request, mcp_body_fn fn);

// An outlet that answers a POST: as JSON, or as a stream if that takes longer or there are other
// messages. Without a session the call is cancelled when the client leaves.
struct outlet *mcp_post_new(struct mcp *mcp, struct mcp_session *session,
                            struct http_request *request, struct accepted accepted);

// Fills in what a POST concerns, by the session arguments of all providers (concern.c).
void mcp_concerns_init(struct mcp *mcp);

// GET /sse, POST /messages/.
void old_sse_handle_stream(struct http_request *request, void *arg);
void old_sse_handle_message(struct http_request *request, void *arg);

// ---- The adapter (mcp.c) --------------------------------------------------------------------

struct provider_entry {
    const struct mcp_provider *provider;
    void *arg;
};

enum { SESSION_BUCKETS = 256 };
LIST_HEAD(session_bucket, mcp_session);

struct mcp {
    struct loop *loop;
    char **profiles;
    size_t max_sessions;
    size_t max_sessions_per_owner;
    int64_t session_idle_ms;
    char id_suffix[MCP_SUFFIX_MAX + 1];
    int64_t room_wait_ms;
    size_t max_replay_bytes;
    struct provider_entry *providers;
    size_t n_providers;
    struct http_concern post_concerns[MCP_CONCERNS_MAX]; // of POST /mcp
    bool draining;
    struct loop_timer *tick; // runs while there are sessions or connected streams
    struct loop_timer *reaper;
    int64_t last_keepalive_ms;
    struct session_bucket buckets[SESSION_BUCKETS];
    TAILQ_HEAD(, mcp_session) by_use;
    LIST_HEAD(, mcp_session) sessions;
    size_t n_registered;
    struct budget requests; // bytes: the messages of all calls
    struct budget answers;  // bytes: large answers that are not sent yet, or are kept
    struct budget replay;   // bytes: events kept for Last-Event-ID
    TAILQ_HEAD(, room_wait) room_waits;
    mcp_admit_fn admit; // or NULL
    void *admit_arg;
    LIST_HEAD(, sse) connected;
    LIST_HEAD(, mcp_call) calls;
    LIST_HEAD(, mcp_call) listeners;
    TAILQ_HEAD(, body) bodies; // large ones that wait to be parsed
    size_t n_parsing;
    uint64_t last_parsed; // the lane of the owner whose body was parsed last
};

// Starts the tick, which expires sessions and sends keepalives.
static inline void
mcp_start_clock(struct mcp *mcp)
{
    if (loop_timer_active(mcp->tick))
        return;
    mcp->last_keepalive_ms = clock_mono_ms();
    loop_timer_start(mcp->tick, MCP_TICK_MS);
}
