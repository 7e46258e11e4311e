// SPDX-License-Identifier: Apache-2.0
// The signer, for the files that build and parse messages. The signature
// ("The Wire Protocol") is HMAC-SHA256 over four frames, in hexadecimal.
#pragma once

#include "base.h"
#include "jupyter.h"

enum { SIGNER_SIGNED_FRAMES = 4, SIGNER_SIGNATURE_LEN = 64 };
#define SIGNER_DELIMITER "<IDS|MSG>"

// Signs header, parent_header, metadata and content; "" if it has no key.
void signer_sign(const struct jupyter_signer *signer,
                 const struct jupyter_frame frames[SIGNER_SIGNED_FRAMES],
                 char ret_signature[SIGNER_SIGNATURE_LEN + 1]);
bool signer_verify(const struct jupyter_signer *signer,
                   const struct jupyter_frame frames[SIGNER_SIGNED_FRAMES],
                   const struct jupyter_frame *signature);

// A copy for a worker, which verifies and signs as the original does.
struct jupyter_signer *signer_copy(const struct jupyter_signer *signer);
// Writes the next message's id.
void signer_next_id(struct jupyter_signer *signer, char ret_msg_id[JUPYTER_MSG_ID_SIZE]);
// jupyter_outgoing_new() with an id from signer_next_id(). Any thread may call it.
struct jupyter_outgoing *outgoing_make(const struct jupyter_signer *signer, const char *msg_id,
                                       const char *msg_type, json_t *content);
const char *signer_own_id(const struct jupyter_signer *signer);
// Sets `raw` from the frames that the message was parsed from. A pure function.
void message_keep_raw(struct jupyter_message *message, const struct jupyter_frame *frames,
                      size_t n_frames, size_t max_message_bytes);
