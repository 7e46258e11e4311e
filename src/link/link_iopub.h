// SPDX-License-Identifier: Apache-2.0
// Recognizes iopub messages in the bytes of a link, without libzmq: ZMTP 3 frames ("ZMTP 3.1",
// rfc.zeromq.org/spec/37), the first of which is the topic. Messages that are not written as
// ipykernel writes them are IOPUB_OTHER.
#pragma once

#include "base.h"

enum iopub_kind {
    IOPUB_NEEDLESS, // the busy status and execute_input, which an execution does not need
    IOPUB_LAST,     // a result or an error: the idle status follows
    IOPUB_OTHER,
};

// The length of the message that `data` begins with; 0: it is not complete, or is not a message.
size_t iopub_message(const char *data, size_t len, enum iopub_kind *ret_kind);

// Whether `data` consists of complete messages, none of them IOPUB_OTHER: another message follows.
bool iopub_can_linger(const char *data, size_t len);

// If `data` consists of complete messages, removes those that are IOPUB_NEEDLESS. Returns the
// remaining length.
size_t iopub_sift(char *data, size_t len);
