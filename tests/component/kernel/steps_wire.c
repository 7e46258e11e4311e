// SPDX-License-Identifier: Apache-2.0
// Steps that break the protocol, or what clients expect of it.
#include <stdlib.h>
#include <string.h>

#include "steps.h"

static json_t *
parse_object(struct cell *cell, const char *text)
{
    json_t *value = json_loads(text, JSON_ALLOW_NUL, NULL);
    if (!value)
        step_fail(cell, "an object or a list is missing");
    return value;
}

static void
step_reply(struct cell *cell, char *rest)
{
    json_t *content =
        *rest ? parse_object(cell, rest)
              : json_pack("{s:s, s:{}, s:[]}", "status", "ok", "user_expressions", "payload");
    if (content)
        cell_reply(cell, content);
}

static void
step_again(struct cell *cell, char *rest)
{
    json_t *content = parse_object(cell, rest);
    if (content)
        wire_send(cell->request, cell->request->channel, "execute_reply", content);
}

static void
step_no_reply(struct cell *cell, char *rest)
{
    (void)rest;
    cell->replied = true;
}

static void
step_idle(struct cell *cell, char *rest)
{
    (void)rest;
    cell_idle(cell);
}

static void
step_no_idle(struct cell *cell, char *rest)
{
    (void)rest;
    cell->idled = true;
}

static void
step_parent(struct cell *cell, char *rest)
{
    const struct frame *last = cell_last_header();
    bool is_last = strcmp(rest, "last") == 0;
    if (is_last && !last->data) {
        step_fail(cell, "there was no cell before this one");
        return;
    }
    bool is_own = strcmp(rest, "own") == 0;
    const struct frame text = {rest, strlen(rest)};
    cell_set_parent(cell, is_last ? last : is_own ? &cell->header : &text);
}

static void
step_bad_signature(struct cell *cell, char *rest)
{
    (void)cell, (void)rest;
    wire_next.bad_signature = true;
}

static void
step_metadata(struct cell *cell, char *rest)
{
    (void)cell;
    free(wire_next.metadata);
    wire_next.metadata = strdup(rest);
}

static enum channel
channel_of(struct cell *cell, char **rest)
{
    enum channel channel = wire_channel(step_word(rest));
    if (channel >= HB)
        step_fail(cell, "shell, control, stdin or iopub is missing");
    return channel;
}

static void
step_send(struct cell *cell, char *rest)
{
    enum channel channel = channel_of(cell, &rest);
    const char *type = step_word(&rest);
    if (!cell->ended)
        wire_send_text(cell->request, channel, type, rest);
}

static void
step_frames(struct cell *cell, char *rest)
{
    enum channel channel = channel_of(cell, &rest);
    json_t *frames = cell->ended ? NULL : parse_object(cell, rest);
    if (frames)
        wire_send_frames(cell->request, channel, frames);
    json_decref(frames);
}

const struct step steps_wire[] = {
    {"reply", step_reply},
    {"again", step_again},
    {"no-reply", step_no_reply},
    {"idle", step_idle},
    {"no-idle", step_no_idle},
    {"parent", step_parent},
    {"bad-signature", step_bad_signature},
    {"metadata", step_metadata},
    {"send", step_send},
    {"frames", step_frames},
    {NULL, NULL},
};
