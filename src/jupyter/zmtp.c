// SPDX-License-Identifier: Apache-2.0
// The ZMTP 3 frame follower: one function for each state. It accepts only what a kernel's ROUTER or
// PUB sends to a peer without security, since libzmq might read anything else differently.
//
// The greeting is passed on byte by byte, since libzmq answers its first part before it sends the
// rest. The head of a frame is passed on when it is complete and valid.

#include "zmtp_priv.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))

enum { FLAG_MORE = 1, FLAG_LONG = 2, FLAG_COMMAND = 4 };
enum { LONGEST_COMMAND_NAME = 5 };

static void
expect(struct zmtp_follower *follower, enum zmtp_state state, size_t want)
{
    follower->state = state;
    follower->head_len = 0;
    follower->head_want = want;
}

void
zmtp_init(struct zmtp_follower *follower, size_t max_message_bytes, size_t max_frames)
{
    *follower =
        (struct zmtp_follower){.max_message_cost = max_message_bytes, .max_frames = max_frames};
    expect(follower, ZMTP_GREETING, ZMTP_GREETING_LEN);
}

// The mechanism must be "NULL", since frames cannot be followed in encrypted bytes. Older
// revisions, to which libzmq would fall back, have other frames.
static int
on_greeting(struct zmtp_follower *follower, struct kg_error *err)
{
    static const unsigned char mechanism[20] = "NULL";
    const unsigned char *head = follower->head;

    if (head[0] != 0xff || head[9] != 0x7f || head[10] != 3)
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "the peer does not speak ZMTP 3");
    if (memcmp(head + 12, mechanism, sizeof(mechanism)) != 0)
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "the peer wants a security mechanism");
    expect(follower, ZMTP_FLAGS, 1);
    return 0;
}

static int
on_flags(struct zmtp_follower *follower, struct kg_error *err)
{
    unsigned char flags = follower->head[0];

    if ((flags & ~(FLAG_MORE | FLAG_LONG | FLAG_COMMAND)) != 0 ||
        (flags & (FLAG_MORE | FLAG_COMMAND)) == (FLAG_MORE | FLAG_COMMAND))
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "frame with bad flags 0x%02x", flags);
    follower->flags = flags;
    expect(follower, ZMTP_SIZE, (flags & FLAG_LONG) != 0 ? 8 : 1);
    return 0;
}

// Counts the message if this was its last frame. Does nothing when called again.
static void
end_frame(struct zmtp_follower *follower, uint64_t *cost)
{
    if ((follower->flags & (FLAG_MORE | FLAG_COMMAND)) == 0) {
        *cost += follower->message_cost;
        follower->message_cost = 0;
        follower->frames = 0;
        follower->abandoned = false;
    }
}

static void
begin_body(struct zmtp_follower *follower, uint64_t size, uint64_t *cost)
{
    follower->body_left = size;
    if (size > 0) {
        expect(follower, ZMTP_BODY, 0);
        return;
    }
    follower->replaced = false;
    expect(follower, ZMTP_FLAGS, 1);
    end_frame(follower, cost);
}

// Passes on the head of a frame unchanged: flags and size.
static void
pass_head(const struct zmtp_follower *follower, struct buf *out)
{
    buf_append(out, &follower->flags, 1);
    buf_append(out, follower->head, follower->head_want);
}

// Passes on a short frame of digits in place of one that is too large.
static void
pass_replacement(struct zmtp_follower *follower, uint64_t size, struct buf *out)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, size);
    const char head[2] = {(char)(follower->flags & ~FLAG_LONG), (char)len};
    buf_append(out, head, sizeof(head));
    buf_append(out, digits, (size_t)len);
    follower->message_cost += zmtp_frame_cost((uint64_t)len);
    follower->replaced = true;
}

static int
on_size(struct zmtp_follower *follower, struct buf *out, uint64_t *cost, struct kg_error *err)
{
    uint64_t size = 0;
    for (size_t i = 0; i < follower->head_want; i++)
        size = size << 8 | follower->head[i];

    if ((follower->flags & FLAG_COMMAND) != 0) {
        if (size == 0 || size > ZMTP_MAX_COMMAND)
            return kg_error_set(err, KG_INVALID_CONTENT, 0, "command of %ju bytes",
                                (uintmax_t)size);
        pass_head(follower, out);
        follower->body_left = size;
        expect(follower, ZMTP_COMMAND, MIN(size, (size_t)LONGEST_COMMAND_NAME + 1));
        return 0;
    }
    if (++follower->frames > follower->max_frames)
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "message of more than %zu frames",
                            follower->max_frames);
    if (size > ZMTP_MAX_REPLACED)
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "frame of %ju bytes", (uintmax_t)size);
    if (follower->abandoned) {
        follower->replaced = true;
        begin_body(follower, size, cost);
        return 0;
    }
    // Never overflows: neither is more than a few GiB.
    if (follower->message_cost + zmtp_frame_cost(size) > follower->max_message_cost) {
        pass_replacement(follower, size, out);
        end_frame(follower, cost); // now: it may be taken before the body has arrived
    } else {
        pass_head(follower, out);
        follower->message_cost += zmtp_frame_cost(size);
    }
    begin_body(follower, size, cost);
    return 0;
}

// libzmq would deliver SUBSCRIBE and CANCEL as messages that were not counted.
static int
on_command(struct zmtp_follower *follower, struct buf *out, uint64_t *cost, struct kg_error *err)
{
    static const char *const names[] = {"\5READY", "\5ERROR", "\4PING", "\4PONG"};

    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        size_t len = strlen(names[i]);
        if (follower->head_want >= len && memcmp(follower->head, names[i], len) == 0) {
            buf_append(out, follower->head, follower->head_want);
            begin_body(follower, follower->body_left - follower->head_want, cost);
            return 0;
        }
    }
    return kg_error_set(err, KG_INVALID_CONTENT, 0, "unexpected command");
}

static int
on_head(struct zmtp_follower *follower, struct buf *out, uint64_t *cost, struct kg_error *err)
{
    switch (follower->state) {
    case ZMTP_GREETING:
        return on_greeting(follower, err);
    case ZMTP_FLAGS:
        return on_flags(follower, err);
    case ZMTP_SIZE:
        return on_size(follower, out, cost, err);
    case ZMTP_COMMAND:
        return on_command(follower, out, cost, err);
    case ZMTP_BODY:
        break;
    }
    abort();
}

int
zmtp_follow(struct zmtp_follower *follower, const void *data, size_t len, struct buf *out,
            uint64_t *ret_cost, struct kg_error *err)
{
    const unsigned char *bytes = data;

    *ret_cost = 0;
    for (size_t pos = 0; pos < len;) {
        if (follower->state == ZMTP_BODY) {
            size_t take = MIN(follower->body_left, len - pos);
            if (!follower->replaced)
                buf_append(out, bytes + pos, take);
            pos += take;
            if (take == follower->body_left)
                begin_body(follower, 0, ret_cost);
            else
                follower->body_left -= take;
            continue;
        }
        size_t take = MIN(follower->head_want - follower->head_len, len - pos);
        memcpy(follower->head + follower->head_len, bytes + pos, take);
        if (follower->state == ZMTP_GREETING)
            buf_append(out, bytes + pos, take);
        follower->head_len += take;
        pos += take;
        if (follower->head_len == follower->head_want && on_head(follower, out, ret_cost, err) != 0)
            return -1;
    }
    return 0;
}

int
zmtp_abandon(struct zmtp_follower *follower, uint64_t *ret_nuls, uint64_t *ret_cost,
             struct kg_error *err)
{
    assert(zmtp_is_inside_message(follower));
    bool in_body = follower->state == ZMTP_BODY;
    bool in_command =
        (in_body || follower->state == ZMTP_COMMAND) && (follower->flags & FLAG_COMMAND) != 0;
    if (in_command)
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "unfinished command in a message");
    // Outside of a body, nothing of the next frame has been passed on.
    bool is_last = in_body && (follower->flags & FLAG_MORE) == 0;
    *ret_nuls = in_body && !follower->replaced ? follower->body_left : 0;
    *ret_cost = follower->message_cost;
    if (!is_last) {
        *ret_nuls += 2;
        *ret_cost += zmtp_frame_cost(0);
    }
    follower->replaced = in_body;
    follower->abandoned = true;
    follower->message_cost = 0;
    return 0;
}

uint64_t
zmtp_replaced_size(const void *data, size_t len)
{
    const char *digits = data;
    uint64_t size = 0;

    if (len > 0 && digits[len - 1] == '\0')
        return len;
    if (len == 0 || len > 10) // the digits of ZMTP_MAX_REPLACED
        return 0;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return 0;
        size = size * 10 + (uint64_t)(digits[i] - '0');
    }
    return size;
}
