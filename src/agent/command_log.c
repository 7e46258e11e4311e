// SPDX-License-Identifier: Apache-2.0
// Readers are positions in one output. What is new goes to those that are at its end and have room;
// the others get it from what is kept, when they have room.
#include "command_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "command_output.h"
#include "replay.h"

enum {
    PIECE_BYTES = 48 * 1024, // of a frame; what is kept is more
    BACKLOG_MAX = COMMAND_LOG_BEHIND - REPLAY_BYTES,
};

struct reader {
    TAILQ_ENTRY(reader) entry;
    struct command_log *log;
    struct request *request;
    bool holds;
    uint64_t at; // what is before was sent, or told as dropped
    loop_fn on_gone;
    void *arg;
};

struct command_log {
    struct replay kept;
    TAILQ_HEAD(, reader) readers;
    int n_readers;
    bool held;
    json_t *end; // NULL: it goes on
    loop_fn on_room;
    void *arg;
};

struct command_log *
command_log_new(bool is_text, loop_fn on_room, void *arg)
{
    struct command_log *log = KG_NEW(struct command_log);

    log->kept.is_text = is_text;
    log->on_room = on_room;
    log->arg = arg;
    TAILQ_INIT(&log->readers);
    return log;
}

// ---- Readers --------------------------------------------------------------------------------

static void
reader_free(struct reader *reader)
{
    TAILQ_REMOVE(&reader->log->readers, reader, entry);
    reader->log->n_readers--;
    free(reader);
}

static bool
reader_has_room(const struct reader *reader, size_t len)
{
    return reader->holds || request_backlog(reader->request) + len <= BACKLOG_MAX;
}

static void
reader_tell_dropped(struct reader *reader)
{
    static const char stream = COMMAND_DROPPED;
    uint64_t start = replay_start(&reader->log->kept);
    char number[24];

    if (reader->at >= start)
        return;
    int len = snprintf(number, sizeof number, "%" PRIu64, start - reader->at);
    request_send2(reader->request, &stream, 1, number, (size_t)len);
    reader->at = start;
}

// Sends what is kept from where the reader is; `all`: also beyond its room.
static void
reader_catch_up(struct reader *reader, bool all)
{
    static char piece[PIECE_BYTES];
    const struct replay *kept = &reader->log->kept;
    char stream;

    while (reader->at < kept->end && (all || reader_has_room(reader, sizeof piece))) {
        reader_tell_dropped(reader);
        size_t n = replay_read(kept, reader->at, sizeof piece, piece, &stream);
        request_send2(reader->request, &stream, 1, piece, n);
        reader->at += n;
    }
    if (reader->at < kept->end)
        request_want_room(reader->request);
}

static void
reader_answer(struct reader *reader)
{
    struct request *request = reader->request;

    reader_catch_up(reader, true);
    json_t *end = reader->log->end;
    reader_free(reader);
    request_reply(request, json_incref(end));
}

// ---- Held or not ----------------------------------------------------------------------------

static void
hold(struct command_log *log)
{
    struct reader *reader;

    log->held = false;
    TAILQ_FOREACH(reader, &log->readers, entry) {
        if (!reader->holds || request_backlog(reader->request) <= WIRE_HIGH)
            continue;
        log->held = true;
        request_want_room(reader->request);
    }
}

static void
hold_again(struct command_log *log)
{
    bool was_held = log->held;

    hold(log);
    if (was_held && !log->held)
        log->on_room(log->arg);
}

bool
command_log_is_held(const struct command_log *log)
{
    return log->held;
}

static void
on_reader_room(void *arg)
{
    struct reader *reader = arg;

    reader_catch_up(reader, false);
    hold_again(reader->log);
}

static void
on_reader_gone(void *arg)
{
    struct reader *reader = arg;
    struct command_log *log = reader->log;
    loop_fn on_gone = reader->on_gone;
    void *gone_arg = reader->arg;

    request_reply(reader->request, NULL);
    reader_free(reader);
    hold_again(log);
    if (on_gone)
        on_gone(gone_arg);
}

// ---- For the command ------------------------------------------------------------------------

static void
add_piece(struct command_log *log, char stream, const char *data, size_t len)
{
    struct reader *reader;
    uint64_t before = log->kept.end;

    replay_add(&log->kept, stream, data, len);
    TAILQ_FOREACH(reader, &log->readers, entry) {
        if (reader->at == before && reader_has_room(reader, len)) {
            request_send2(reader->request, &stream, 1, data, len);
            reader->at = log->kept.end;
        } else {
            request_want_room(reader->request);
        }
    }
}

void
command_log_add(struct command_log *log, char stream, const char *data, size_t len)
{
    while (len > 0) {
        size_t n = len;
        if (n > PIECE_BYTES)
            n = log->kept.is_text ? utf8_cut(data, len, PIECE_BYTES) : PIECE_BYTES;
        add_piece(log, stream, data, n);
        data += n;
        len -= n;
    }
    hold(log);
}

void
command_log_join(struct command_log *log, struct request *request, json_t *head, bool holds,
                 loop_fn on_gone, void *arg)
{
    struct reader *reader = KG_NEW(struct reader);

    *reader = (struct reader){.log = log,
                              .request = request,
                              .holds = holds,
                              .at = replay_start(&log->kept),
                              .on_gone = on_gone,
                              .arg = arg};
    TAILQ_INSERT_TAIL(&log->readers, reader, entry);
    log->n_readers++;
    request_on_gone(request, on_reader_gone, reader);
    request_on_room(request, on_reader_room, reader);
    json_object_set_new(head, "dropped_bytes", json_integer((json_int_t)reader->at));
    json_object_set_new(head, "kept_bytes", json_integer((json_int_t)(log->kept.end - reader->at)));
    request_begin(request, head);
    if (log->end)
        reader_answer(reader);
    else
        reader_catch_up(reader, true);
}

int
command_log_n_readers(const struct command_log *log)
{
    return log->n_readers;
}

void
command_log_end(struct command_log *log, const json_t *end)
{
    struct reader *reader;

    log->end = json_incref((json_t *)(uintptr_t)end);
    while ((reader = TAILQ_FIRST(&log->readers)))
        reader_answer(reader);
    log->held = false;
}

void
command_log_free(struct command_log *log)
{
    if (!log)
        return;
    json_decref(log->end);
    replay_fini(&log->kept);
    free(log);
}
