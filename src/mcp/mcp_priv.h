// SPDX-License-Identifier: Apache-2.0
// What the files of the adapter share: revisions, sessions, calls, and where their messages go.
#pragma once

#include <sys/queue.h>

#include "mcp_message.h"

enum {
    MCP_NAME_MAX = 4096,           // names and URIs that a client gives
    MCP_BATCH_MAX = 64,            // messages
    MCP_SESSION_CALLS_MAX = 64,    // that run at a time
    MCP_VALUES_MAX = 16 << 20,     // what the values of one message may take, beside its strings
    MCP_HELD_MAX = 256 << 20,      // what the messages of all calls that run may take
    MCP_OWNER_HELD_MAX = 64 << 20, // what those of one owner may take, beside a single large one
    MCP_SMALL_MESSAGE = 16 << 10,  // which is taken all the same
    MCP_SUBSCRIPTIONS_MAX = 256,   // of one session or listener
    MCP_STREAM_AFTER_MS = 1000,    // a call that takes longer is answered as a stream
    MCP_TICK_MS = 1000,
    MCP_KEEPALIVE_MS = 15000,
    MCP_RETRY_MS = 1000,         // after which a client should come back
    MCP_BACKLOG_MAX = 1 << 20,   // beyond it a stream takes no progress and no log messages
    MCP_LARGE_BYTES = 64 << 10,  // messages above it are parsed, encoded and freed off the loop
    MCP_ANSWERS_MAX = 256 << 20, // bytes of large answers that clients have not read
    MCP_OWNER_ANSWERS_MAX = 64 << 20, // those of one owner
    MCP_PARSING_MAX = 2, // large bodies at a time; others wait where their connections hold them
    MCP_BATCH_ANSWERS_MAX = 32 << 20, // bytes of the answers of one batch
    MCP_REPLAY_TOTAL_MAX = 32 << 20,  // events kept, of all sessions
    MCP_REPLAY_OWNER_MAX = 16 << 20,  // events kept, of one owner's sessions
    MCP_SESSION_ID_LEN = 32,
};

#define MCP_META "io.modelcontextprotocol/"

// ---- Revisions (revision.c) -----------------------------------------------------------------

// One row a revision: what differs between them.
struct revision {
    const char *name;
    bool stateless;     // no initialize, no sessions; every request says who asks
    bool batches;       // several messages in one body
    bool completions;   // a capability of its own
    bool progress_text; // progress has a message
    bool audio;         // a content block
    bool structured;    // structuredContent, resource_link
    bool priming_event; // a stream begins with an event without data
    int not_found;      // the code for a resource that does not exist
};
const struct revision *revision_get(enum mcp_revision revision);
// -1: there is none of that name.
int revision_find(const char *name);
// Takes out of each element of `list` (what `method` answers) the keys that came later.
void revision_strip(enum mcp_revision revision, const char *method, json_t *list);
// Makes of a result, in place, what the revision knows.
void revision_adapt_result(enum mcp_revision revision, json_t *result);

// ---- Payloads (payload.c) -------------------------------------------------------------------

// A message as JSON text. Shared by reference count, on the loop only, as an answer with figures
// has many megabytes.
struct payload {
    unsigned refs;
    size_t len;
    char *text;
    struct owner_share *share; // in which it counts until it is gone; or NULL
};
// Takes `text`, which is free()d with the last reference.
struct payload *payload_take(char *text, size_t len);
// Encodes and takes a message, on the calling thread; one that cannot be encoded becomes an error.
struct attachments;
struct payload *payload_of(json_t *message);
// The same for an answer with attachments (see below).
struct payload *payload_with(json_t *message, const struct attachments *attachments);
// Counts it as what the owner's clients have not read.
void payload_count(struct payload *payload, struct mcp *mcp, const char *owner);
struct payload *payload_ref(struct payload *payload);
void payload_unref(struct payload *payload);
// payload_unref() as a loop_fn.
void payload_release(void *payload);
// The text of a payload that nobody shares, which is gone; to be freed.
char *payload_take_text(struct payload *payload, size_t *ret_len);

// ---- Attachments (attachment.c) -------------------------------------------------------------

enum { ATTACHMENT_MARK_LEN = 32 };

struct attachment {
    const char *text; // the inside of a JSON string
    size_t len;
    loop_fn release;
    void *arg;
};
// Texts of one answer that are written into it when it is encoded (see mcp_call_attach()).
struct attachments {
    char mark[ATTACHMENT_MARK_LEN + 1]; // random: no text of a tenant has it; "" before the first
    struct attachment *list;
    size_t n;
};
// Returns the string that stands for it: the mark and the number.
json_t *attachments_add(struct attachments *attachments, const struct attachment *attachment);
// The answer `text` with the attachments in their places. Any thread may call it.
void attachments_write(const struct attachments *attachments, const char *text, size_t len,
                       struct buf *ret);
// How long they are together.
size_t attachments_len(const struct attachments *attachments);
// Releases them; on the loop.
void attachments_fini(struct attachments *attachments);

// ---- Outlets --------------------------------------------------------------------------------

// Where the messages of one request go, or those of a client that belong to no request.
struct outlet;
struct outlet_ops {
    // A notification or a question, ahead of the answer. Takes the message. One that is `minor`
    // (progress, log) may be left out for a client that does not read.
    void (*send)(struct outlet *outlet, json_t *message, bool minor);
    // The answer of a request; NULL: there will be none (it was cancelled). Takes the payload.
    void (*answer)(struct outlet *outlet, struct payload *payload, int http_status);
    // Whether an answer of this size can still be taken, else an error takes its place; may be
    // NULL: any.
    bool (*has_room)(const struct outlet *outlet, size_t len);
    // Whether anything but the answer can be sent.
    bool (*can_send)(const struct outlet *outlet);
    // See mcp_call_close_stream(); may be NULL.
    void (*close_stream)(struct outlet *outlet);
};
// `call` is the one that answers through it, as long as it runs.
struct outlet {
    const struct outlet_ops *ops;
    struct mcp_call *call;
};

// ---- Shares (share.c) -----------------------------------------------------------------------

// What the clients of one owner make the gateway hold. Gone with its last session and payload.
struct owner_share {
    LIST_ENTRY(owner_share) link;
    struct mcp *mcp; // NULL: it has ended, and libevent still has what was to be sent
    size_t n_users;
    size_t replay_bytes; // events kept for Last-Event-ID
    size_t answer_bytes; // large answers that were not sent yet, or are kept
    char owner[];
};
struct owner_share *mcp_share_join(struct mcp *mcp, const char *owner);
void mcp_share_leave(struct owner_share *share);
// Before the adapter is freed: connections may free what they hold only with the loop.
void mcp_shares_detach(struct mcp *mcp);
// Counts an answer that is being made, until it is released.
void mcp_share_reserve(struct mcp *mcp, const char *owner, size_t len);
void mcp_share_release(struct mcp *mcp, const char *owner, size_t len);
// Whether an answer of this size may wait for its client.
bool mcp_share_has_room(const struct mcp *mcp, const char *owner, size_t len);

// ---- Sessions (session.c) -------------------------------------------------------------------

struct sse;
TAILQ_HEAD(streams, sse);
LIST_HEAD(calls, mcp_call);

struct session_value {
    const void *key;
    void *value;
    mcp_value_free_fn free_fn;
};

// One client: made by `initialize` over HTTP, else as long as its connection. Closed, it stays
// until its last call is answered.
struct mcp_session {
    struct mcp *mcp;
    char id[MCP_SESSION_ID_LEN + 1];
    char *owner;
    char *profile;
    char *base_url; // or NULL
    enum mcp_revision revision;
    json_t *client_capabilities; // or NULL
    enum mcp_log_level log_level;
    struct outlet *news; // what belongs to no request; NULL: nowhere
    json_t *subscriptions;
    struct session_value *values;
    size_t n_values;
    struct calls calls;
    size_t n_calls;
    unsigned last_question;
    bool initialized;
    bool one_stream; // all answers go to `news` (the old SSE)
    bool registered; // found by its id, expires, can be evicted
    bool closed;
    int64_t used_ms;
    struct streams streams;
    unsigned last_stream;
    size_t replay_bytes;
    struct owner_share *share;
    TAILQ_ENTRY(mcp_session) by_use; // the longest idle one first
    LIST_ENTRY(mcp_session) in_bucket;
    LIST_ENTRY(mcp_session) link;
};

// A session that nobody finds by its id yet.
struct mcp_session *mcp_session_new(struct mcp *mcp, const char *owner, const char *profile);
// Makes it findable; fails where there are too many.
KG_MUST_CHECK int mcp_session_register(struct mcp_session *session, struct kg_error *err);
// NULL: there is none, or it is another owner's. Counts as use.
struct mcp_session *mcp_session_find(struct mcp *mcp, const char *owner, const char *id);
void mcp_session_touch(struct mcp_session *session);
// Cancels its calls, ends its streams; gone when the last call is answered.
void mcp_session_close(struct mcp_session *session);
// After a call of it has ended.
void mcp_session_release(struct mcp_session *session);
void mcp_sessions_expire(struct mcp *mcp);
// Frees those that are closed and have no call.
void mcp_sessions_reap(struct mcp *mcp);

// ---- Calls (call.c) -------------------------------------------------------------------------

struct method;

// A question that was sent to the client and is not answered.
struct question {
    char id[24]; // "" : none
    mcp_answer_fn fn;
    void *arg;
};

// One request until it is answered. `session` is NULL for stateless requests.
struct mcp_call {
    struct mcp *mcp;
    struct mcp_session *session;
    struct outlet *outlet;
    char *owner;
    char *profile;
    char *base_url; // or NULL
    enum mcp_revision revision;
    json_t *message;
    size_t weight;        // of the message, and of the filter
    const json_t *id;     // in the message, as are the next
    const json_t *params; // an object
    const json_t *meta;   // or NULL
    json_t *empty;        // {}, for what is missing
    const struct method *method;
    const char *name;
    const json_t *arguments;
    const json_t *progress_token; // or NULL
    double progress;              // the last one sent
    int log_level;                // of this request alone; -1: none
    json_t *state;                // of the retried call
    loop_fn on_cancel;
    void *on_cancel_arg;
    struct loop_timer *late_cancel;
    bool cancelled;
    bool holding;       // being cancelled: freed afterwards
    bool ended;         // answered, though the answer may still be on a worker to be encoded
    bool shares_answer; // parts of the answer are a provider's: encoded on the loop
    struct attachments attachments;
    struct encoding *encoding; // of the answer; NULL: none is under way
    int http_status;           // of that answer
    struct question question;
    // Lists of several providers are joined.
    size_t provider;
    json_t *joined;
    // subscriptions/listen: what was asked for, {toolsListChanged, …, resourceSubscriptions}
    json_t *filter;
    LIST_ENTRY(mcp_call) in_session;
    LIST_ENTRY(mcp_call) in_mcp;
    LIST_ENTRY(mcp_call) listening;
};

// What a message came with; borrowed for the time of the call.
struct origin {
    struct mcp *mcp;
    struct mcp_session *session; // or NULL
    const char *owner;
    const char *profile;
    const char *base_url; // NULL: the session's
    struct outlet *outlet;
    const size_t
        *weights; // json_value_weight() of the message, or of each of a batch; NULL: unknown
};

struct mcp_call *mcp_call_new(const struct origin *origin, enum mcp_revision revision,
                              json_t *message, size_t weight, const struct method *method);
// Takes all of the message but its id out of the call, which must not need it any more.
json_t *mcp_call_take_message(struct mcp_call *call);
// Frees all of the message but its id, in a call that has read the rest and may run for ever.
void mcp_call_shrink(struct mcp_call *call);
void mcp_call_free(struct mcp_call *call);
// Ends the call with a whole message, taken; NULL: with none. A large one is encoded on a worker:
// until then the call stays in its session, and can be cancelled.
void mcp_call_answer(struct mcp_call *call, json_t *message, int http_status);
// Gives the answer (taken; NULL: there is none) to the outlet; the call is gone afterwards.
void mcp_call_deliver(struct mcp_call *call, struct payload *payload, int http_status);
void mcp_call_cancel(struct mcp_call *call);
// Whether anything but the answer can be sent.
bool call_can_send(const struct mcp_call *call);

// ---- Encoding (encoding.c) ------------------------------------------------------------------

struct encoding;
// Encodes an answer (taken) with the call's attachments, and frees it and the request, on a worker.
// mcp_call_deliver() follows.
void encoding_start(struct mcp_call *call, json_t *answer, int http_status);
// Ends a call whose answer is being encoded without it.
void encoding_drop(struct mcp_call *call);
// Clients have read something: answers that waited for that are encoded.
void encodings_continue(struct mcp *mcp);

// ---- Dispatch (dispatch.c, methods.c, lists.c, target.c, call_tool.c) -----------------------

// Takes the message. A request is answered through the outlet, exactly once, maybe before this
// returns; other messages are not answered.
void mcp_dispatch_request(const struct origin *origin, enum mcp_revision revision, json_t *message);
// Answers a request with an error instead. Takes the message and `data` (may be NULL).
void mcp_refuse(const struct origin *origin, json_t *message, int status, int code,
                const char *text, json_t *data);
// The same for a request that claims a revision by itself (see mcp_claimed_version()).
void mcp_dispatch_stateless(const struct origin *origin, json_t *message);
void mcp_dispatch_other(const struct origin *origin, json_t *message);
// Cancels the call of this id, if there is one that belongs to the session.
void mcp_dispatch_cancel(struct mcp_session *session, const json_t *id);
// A result in the shape of the call's revision.
void mcp_call_answer_result(struct mcp_call *call, json_t *result);

struct method {
    const char *name;
    enum mcp_revision since;
    enum mcp_revision until;
    void (*handle)(struct mcp_call *call);
    // Of 2026's results: how long and for whom they may be kept; -1: not said.
    int ttl_ms;
    bool asks_input; // the answer may be input_required
};
// NULL: no such method at that revision.
const struct method *method_find(const char *name, enum mcp_revision revision);

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
void method_subscribe(struct mcp_call *call);
void method_unsubscribe(struct mcp_call *call);
void method_complete(struct mcp_call *call);
void method_listen(struct mcp_call *call);
// Reads the name (of the parameter `key`), the arguments and the state that a retried call brings;
// false: answered.
bool target_read(struct mcp_call *call, const char *key);
// Offers the call to the providers, in their order; false: none takes it. Else it may be gone.
typedef bool (*mcp_take_fn)(struct mcp_call *call, void *arg);
bool target_offer(struct mcp_call *call, mcp_take_fn (*pick)(const struct mcp_provider *provider));
// A provider has answered its part of resources/list.
void lists_resources_part(struct mcp_call *call, json_t *result);
// The joined list of tools, prompts or templates; the caller owns it.
json_t *lists_join(struct mcp *mcp, const char *profile, enum mcp_list list, bool templates);
bool mcp_can_subscribe(const struct mcp *mcp, const char *owner, const char *uri);
// Ends a subscriptions/listen in good order.
void mcp_end_listener(struct mcp_call *call);
int mcp_log_level_find(const char *name);

// ---- Batches (batch.c), clients on one stream (receive.c) -----------------------------------

// What is wrong with a batch, or NULL.
const char *mcp_batch_check(const json_t *messages, size_t *ret_requests);
// Takes the messages, which were checked. With requests in them, their answers become one.
void mcp_dispatch_batch(const struct origin *origin, enum mcp_revision revision, json_t *messages);
// What came of a client's bytes.
struct received {
    json_t *message; // NULL: see `code` and `err`. It may be taken, and is NULL then
    int code;        // JSON-RPC's
    struct kg_error err;
    size_t weight; // json_value_weight(), and that of each message of a batch
    size_t weights[MCP_BATCH_MAX];
};
// Parses and weighs a message, on the calling thread.
void mcp_received_fill(struct received *received, const char *data, size_t len);
// Frees the message where it was not taken, a large one on a worker.
void mcp_received_fini(struct mcp *mcp, struct received *received);
// The same on a worker, for what is above MCP_LARGE_BYTES. Takes `text`. `fn` fires once, and
// borrows `received`.
struct reception;
typedef void (*mcp_received_fn)(struct received *received, void *arg);
struct reception *mcp_receive_start(struct mcp *mcp, char *text, size_t len, mcp_received_fn fn,
                                    void *arg);
// The same for the body of a request. Takes it.
struct reception *mcp_receive_body_start(struct mcp *mcp, const char *owner, struct http_body *body,
                                         mcp_received_fn fn, void *arg);
// `fn` will not fire; NULL is fine.
void mcp_receive_cancel(struct reception *reception);
// Bytes of a client as JSON, within the bounds of a message. NULL: `ret_code` is JSON-RPC's.
KG_MUST_CHECK json_t *mcp_receive_parse(const char *data, size_t len, int *ret_code,
                                        struct kg_error *err);
// What is wrong with what a client sent at this moment, or NULL.
const char *mcp_receive_check(const struct mcp_session *session, const json_t *message);
// Frees a message, whose values nobody shares, on a worker where it is large.
void mcp_message_free(struct loop *loop, json_t *message, size_t weight);
// Takes a message, or a batch, that was checked.
void mcp_receive(struct mcp_session *session, struct outlet *outlet, json_t *message,
                 const size_t *weights);

// ---- Input of the client (ask.c, seal.c) ----------------------------------------------------

#ifdef KG_MCP_ASKS
// Gives a response of the client to the call that asked.
void mcp_call_take_response(struct mcp_session *session, const json_t *message);
// The call is cancelled: its question, if it has one, is answered with that.
void call_drop_question(struct mcp_call *call);
// Signs `state` for one owner, method and name; to be freed.
char *mcp_seal_state(const struct mcp *mcp, const struct mcp_call *call, const json_t *state);
// NULL where it is not ours, was changed, or belongs to another request.
json_t *mcp_unseal_state(const struct mcp *mcp, const struct mcp_call *call, const char *text);
#else
static inline void
mcp_call_take_response(struct mcp_session *session, const json_t *message)
{
    (void)session;
    (void)message;
}

static inline void
call_drop_question(struct mcp_call *call)
{
    (void)call;
}

static inline json_t *
mcp_unseal_state(const struct mcp *mcp, const struct mcp_call *call, const char *text)
{
    (void)mcp;
    (void)call;
    (void)text;
    return NULL;
}
#endif

// ---- Streams (sse.c) ------------------------------------------------------------------------

// One event. Kept until it is too old.
struct event {
    unsigned seq;
    struct payload *payload;
    TAILQ_ENTRY(event) link;
};
TAILQ_HEAD(events, event);

// One SSE stream: an outlet whose client may go and come back. Where it is kept, events have ids
// and stay for Last-Event-ID, also after the end.
struct sse {
    struct outlet base; // sends only
    struct mcp *mcp;
    struct mcp_session *session; // or NULL
    bool kept;                   // then it has a session
    unsigned number;
    unsigned last_seq;
    bool ended;
    bool too_slow;                // too much waits for the client: gets no more, and is cut
    struct http_request *request; // NULL: nobody is connected
    loop_fn on_gone;              // the client has left; then `request` is NULL
    void *on_gone_arg;
    struct events events;
    TAILQ_ENTRY(sse) in_session;
    LIST_ENTRY(sse) connected;
};
struct sse *sse_new(struct mcp *mcp, struct mcp_session *session, bool kept);
// Starts the answer of `request` as this stream's connection; sends what came after `after`.
void sse_connect(struct sse *sse, struct http_request *request, unsigned after);
// The event that says how to come back.
void sse_prime(struct sse *sse);
// Takes the payload.
void sse_send(struct sse *sse, struct payload *payload);
// A comment or an event without an id, to the connected client.
void sse_write_raw(struct sse *sse, const char *text);
// Ends the connection; the stream goes on.
void sse_disconnect(struct sse *sse);
// Nothing will follow. The stream may be gone afterwards.
void sse_end(struct sse *sse);
void sse_free(struct sse *sse);
struct sse *sse_find(struct mcp_session *session, unsigned number);
void sse_keepalive(struct mcp *mcp);
// Cuts the connections whose client does not read, as if it had left.
void sse_cut_slow(struct mcp *mcp);
bool mcp_session_has_connection(const struct mcp_session *session);

// ---- HTTP -----------------------------------------------------------------------------------

// Reads a request's body as a message, a large one on a worker, and gives it to `fn`, maybe before
// this returns. Invalid ones are answered. If the client leaves before, `fn` is not called.
typedef void (*mcp_body_fn)(struct mcp *mcp, struct http_request *request,
                            struct received *received);
void mcp_body_receive(struct mcp *mcp, struct http_request *request, mcp_body_fn fn);

// Answers with an error that belongs to no call. `id` may be NULL.
void mcp_http_answer_error(struct http_request *request, int status, const json_t *id, int code,
                           const char *fmt, ...) KG_PRINTF(5, 6);
// What a client takes.
struct accepted {
    bool json;
    bool stream;
};
struct accepted mcp_http_accepted(const struct http_request *request);
// An outlet that answers a POST: as JSON, or as a stream where it takes longer or has more to say.
// Without a session the call is cancelled when the client leaves.
struct outlet *mcp_post_new(struct mcp *mcp, struct mcp_session *session,
                            struct http_request *request, struct accepted accepted);
// "http://host:port" as the client sees it, or NULL; to be freed.
char *mcp_http_base_url(const struct http_request *request);
// The profile that the query names; NULL: answered.
const char *mcp_http_profile(struct mcp *mcp, struct http_request *request);
// /sse and /messages/ (old_sse.c).
void old_sse_handle_stream(struct http_request *request, void *arg);
void old_sse_handle_message(struct http_request *request, void *arg);
// 2026's rules for headers; -1: answered.
KG_MUST_CHECK int mcp_headers_check(struct mcp *mcp, struct http_request *request,
                                    const json_t *message, const char *profile);

// ---- The adapter (mcp.c) --------------------------------------------------------------------

// {name, title, version}; the caller owns it.
json_t *mcp_server_info(void);

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
    size_t max_replay_bytes;
    struct provider_entry *providers;
    size_t n_providers;
    unsigned char key[32];
    bool draining;
    struct loop_timer *tick; // runs while there are sessions or connected streams
    struct loop_timer *reaper;
    int64_t last_keepalive_ms;
    struct session_bucket buckets[SESSION_BUCKETS];
    TAILQ_HEAD(, mcp_session) by_use;
    LIST_HEAD(, mcp_session) sessions; // all of them
    size_t n_registered;
    size_t replay_bytes;
    size_t answer_bytes;              // of large answers that are not sent
    TAILQ_HEAD(, encoding) encodings; // that wait for room
    LIST_HEAD(, owner_share) shares;
    size_t held_bytes;  // by the messages of all calls
    mcp_admit_fn admit; // or NULL
    void *admit_arg;
    LIST_HEAD(, sse) connected;
    LIST_HEAD(, mcp_call) calls;
    LIST_HEAD(, mcp_call) listeners;
    TAILQ_HEAD(, body) bodies; // large ones that wait to be parsed
    size_t n_parsing;
    uint64_t last_parsed; // the lane of the owner whose body was parsed last
};

// Starts the tick, which expires sessions, cuts slow streams and sends keepalives.
static inline void
mcp_start_clock(struct mcp *mcp)
{
    if (loop_timer_active(mcp->tick))
        return;
    mcp->last_keepalive_ms = clock_mono_ms();
    loop_timer_start(mcp->tick, MCP_TICK_MS);
}
