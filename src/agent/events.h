// SPDX-License-Identifier: Apache-2.0
// What the agent has to tell unasked: kept until the gateway listens.
#pragma once

#include <jansson.h>

#include "http.h"

struct events;
struct events *events_new(void);
void events_free(struct events *events);
// Takes the reference of `event`. The oldest is forgotten where too many wait.
void events_add(struct events *events, json_t *event);
// Answers with an endless stream of NDJSON lines. The newest listener gets all; an older one's
// stream is ended.
void events_listen(struct events *events, struct http_request *request);
