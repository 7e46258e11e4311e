// SPDX-License-Identifier: Apache-2.0
#include "message_reader.h"

#include <string.h>
#include <sys/queue.h>

enum { READINGS_MAX = 64 };

// A large message that a worker reads.
struct reading {
    LIST_ENTRY(reading) link;
    struct message_reader *reader;
    struct loop_work *work;
    struct budget_hold hold;
    int64_t tag;
    char *text;
    size_t len;
    struct message message;
    bool failed; // `err`
    struct kg_error err;
    bool is_last; // of its tag, since `why`
    struct kg_error why;
};

struct message_reader {
    struct loop *loop;
    struct budget *budget;
    const struct server_spec *server;
    const struct message_reader_events *events;
    void *arg;
    LIST_HEAD(, reading) readings;
    size_t n;
};

static void
reading_run(void *arg)
{
    struct reading *reading = arg;
    reading->failed =
        message_parse(&reading->message, reading->text, reading->len, &reading->err) < 0;
}

static void
reading_free(void *arg)
{
    struct reading *reading = arg;
    message_fini(&reading->message);
    free(reading->text);
    free(reading);
}

static void
reading_forget(struct reading *reading)
{
    LIST_REMOVE(reading, link);
    reading->reader->n--;
    budget_hold_end(&reading->hold);
}

static void
reading_done(void *arg)
{
    struct reading *reading = arg;
    struct message_reader *reader = reading->reader;
    const struct message_reader_events *events = reader->events;
    reading_forget(reading);
    if (reading->failed)
        events->on_message(NULL, reading->tag, &reading->err, reader->arg);
    else
        events->on_message(&reading->message, reading->tag, NULL, reader->arg);
    if (reading->is_last)
        events->on_end(reading->tag, &reading->why, reader->arg);
    // Large values take a while. Parts of other messages, such as lists, may still be used.
    if (reading->message.value)
        loop_work_start(reader->loop, LOOP_LANE_GATEWAY, reading_free, NULL, reading);
    else
        reading_free(reading);
}

static void
reading_start(struct message_reader *reader, const char *text, size_t len, int64_t tag)
{
    struct kg_error err = {0};
    struct reading *reading = KG_NEW(struct reading);
    budget_hold_start(&reading->hold, reader->budget, reader->server->name);
    if (reader->n >= READINGS_MAX || !budget_hold_has_room(&reading->hold, len)) {
        budget_hold_end(&reading->hold);
        free(reading);
        (void)kg_error_set(&err, KG_SESSION_BUSY, 0, "too many large answers are under way");
        reader->events->on_message(NULL, tag, &err, reader->arg);
        return;
    }
    budget_hold_set(&reading->hold, len);
    reading->reader = reader;
    reading->tag = tag;
    reading->text = kg_memdup0(text, len);
    reading->len = len;
    server_hide_secrets(reader->server, reading->text, len); // the worker may outlive the server
    LIST_INSERT_HEAD(&reader->readings, reading, link);
    reader->n++;
    reading->work = loop_work_start(reader->loop, loop_lane_of(reader->server->name), reading_run,
                                    reading_done, reading);
}

void
message_reader_take(struct message_reader *reader, const char *text, size_t len, int64_t tag)
{
    struct kg_error err = {0};
    struct message message;
    if (len > MESSAGE_INLINE_MAX) {
        reading_start(reader, text, len, tag);
        return;
    }
    KG_AUTO_FREE char *hidden = NULL;
    if (server_says_secret(reader->server, text, len)) {
        hidden = kg_memdup0(text, len);
        server_hide_secrets(reader->server, hidden, len);
    }
    bool failed = message_parse(&message, hidden ? hidden : text, len, &err) < 0;
    reader->events->on_message(failed ? NULL : &message, tag, failed ? &err : NULL, reader->arg);
    message_fini(&message);
}

// The newest is the last: others of the tag have been read before it.
static struct reading *
reading_of(const struct message_reader *reader, int64_t tag)
{
    struct reading *reading;
    LIST_FOREACH(reading, &reader->readings, link) {
        if (reading->tag == tag)
            return reading;
    }
    return NULL;
}

bool
message_reader_has(const struct message_reader *reader, int64_t tag)
{
    return reading_of(reader, tag) != NULL;
}

void
message_reader_end(struct message_reader *reader, int64_t tag, const struct kg_error *why)
{
    struct reading *reading = reading_of(reader, tag);
    if (!reading) {
        reader->events->on_end(tag, why, reader->arg);
        return;
    }
    reading->is_last = true;
    reading->why = *why;
}

struct message_reader *
message_reader_new(struct loop *loop, struct budget *budget, const struct server_spec *server,
                   const struct message_reader_events *events, void *arg)
{
    struct message_reader *reader = KG_NEW(struct message_reader);
    reader->loop = loop;
    reader->budget = budget;
    reader->server = server;
    reader->events = events;
    reader->arg = arg;
    LIST_INIT(&reader->readings);
    return reader;
}

void
message_reader_free(struct message_reader *reader)
{
    for (struct reading *reading; (reading = LIST_FIRST(&reader->readings));) {
        reading_forget(reading);
        loop_work_cancel(reading->work, reading_free);
    }
    free(reader);
}
