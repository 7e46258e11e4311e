// SPDX-License-Identifier: Apache-2.0
// The gateway's side of a conversation, as messages are made of it. The signature of a message
// ("The Wire Protocol") is HMAC-SHA256 in hexadecimal over four frames.
#pragma once

#include "base.h"
#include "jupyter.h"

enum { SESSION_SIGNED_FRAMES = 4, SESSION_SIGNATURE_LEN = 64 };
#define SESSION_DELIMITER "<IDS|MSG>"

// Signs header, parent_header, metadata and content; "" where the session has no key.
void session_sign(const struct jupyter_session *session,
                  const struct jupyter_frame frames[SESSION_SIGNED_FRAMES],
                  char ret_signature[SESSION_SIGNATURE_LEN + 1]);
bool session_verify(const struct jupyter_session *session,
                    const struct jupyter_frame frames[SESSION_SIGNED_FRAMES],
                    const struct jupyter_frame *signature);

// A copy for a worker: it verifies as the original does, and is freed like it.
struct jupyter_session *session_copy(const struct jupyter_session *session);
// Writes the next message's id.
void session_next_id(struct jupyter_session *session, char ret_msg_id[JUPYTER_MSG_ID_SIZE]);
// jupyter_outgoing_new() with an id that was taken before. Any thread may call it.
struct jupyter_outgoing *outgoing_make(const struct jupyter_session *session, const char *msg_id,
                                       const char *msg_type, json_t *content);
const char *session_own_id(const struct jupyter_session *session);
// Fills in `raw` from the frames that a message was parsed of. A pure function.
void message_keep_raw(struct jupyter_message *message, const struct jupyter_frame *frames,
                      size_t n_frames, size_t max_message_bytes);
