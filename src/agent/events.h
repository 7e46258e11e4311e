// SPDX-License-Identifier: Apache-2.0
// Events of the sandbox, kept until the gateway listens.
#pragma once

#include "request.h"

struct events;
struct events *events_new(void);
void events_free(struct events *events);
// Takes the reference of `event`. If too many wait, the oldest one is dropped.
void events_add(struct events *events, json_t *event);
// `fn` (NULL: none) is called each time a listener ends, or another one takes its place.
void events_on_lost(struct events *events, loop_fn fn, void *arg);
bool events_has_listener(const struct events *events);
// Takes the reference of an event that matters only now: false, and it is dropped, if nobody
// listens or others wait.
bool events_send(struct events *events, json_t *event);
// Answers with an endless stream, one event (JSON) in each part of the data. The newest listener
// gets all; the stream of an older one is ended.
void events_listen(struct events *events, struct request *request);
