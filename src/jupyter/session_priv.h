// SPDX-License-Identifier: Apache-2.0
// The gateway's side of a conversation, for the files that build and parse messages. The signature
// ("The Wire Protocol") is HMAC-SHA256 over four frames, in hexadecimal.
#pragma once

#include "base.h"
#include "jupyter.h"

enum { SESSION_SIGNED_FRAMES = 4, SESSION_SIGNATURE_LEN = 64 };
#define SESSION_DELIMITER "<IDS|MSG>"

// Signs header, parent_header, metadata and content; "" if the session has no key.
void session_sign(const struct jupyter_session *session,
                  const struct jupyter_frame frames[SESSION_SIGNED_FRAMES],
                  char ret_signature[SESSION_SIGNATURE_LEN + 1]);
bool session_verify(const struct jupyter_session *session,
                    const struct jupyter_frame frames[SESSION_SIGNED_FRAMES],
                    const struct jupyter_frame *signature);

// A copy for a worker, which verifies and signs as the original does.
struct jupyter_session *session_copy(const struct jupyter_session *session);
// Writes the next message's id.
void session_next_id(struct jupyter_session *session, char ret_msg_id[JUPYTER_MSG_ID_SIZE]);
// jupyter_outgoing_new() with an id from session_next_id(). Any thread may call it.
struct jupyter_outgoing *outgoing_make(const struct jupyter_session *session, const char *msg_id,
                                       const char *msg_type, json_t *content);
const char *session_own_id(const struct jupyter_session *session);
// Sets `raw` from the frames that the message was parsed from. A pure function.
void message_keep_raw(struct jupyter_message *message, const struct jupyter_frame *frames,
                      size_t n_frames, size_t max_message_bytes);
