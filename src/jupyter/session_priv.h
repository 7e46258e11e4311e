// SPDX-License-Identifier: Apache-2.0
// The signature of a message ("The Wire Protocol"): HMAC-SHA256 in hexadecimal over four frames.
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
