// SPDX-License-Identifier: Apache-2.0
// JSON-RPC 2.0 messages, for the core and the bridge.
#pragma once

#include "mcp.h"

enum message_kind { MESSAGE_REQUEST, MESSAGE_NOTIFICATION, MESSAGE_RESPONSE, MESSAGE_INVALID };
// `ret_why` is what is wrong with an invalid message.
enum message_kind rpc_kind(const json_t *message, const char **ret_why);
// Whether a valid message (see rpc_kind()) is a request.
bool rpc_is_request(const json_t *message);
// Parses untrusted JSON: bounded in depth, no duplicate keys.
KG_MUST_CHECK json_t *mcp_message_parse(const char *data, size_t len, struct kg_error *err);
// These borrow `id`, which may be NULL, and take the other values.
json_t *rpc_result(const json_t *id, json_t *result);
json_t *rpc_error(const json_t *id, int code, const char *text, json_t *data);
json_t *rpc_notification(const char *method, json_t *params);
// Compact JSON; to be freed.
char *rpc_dump(const json_t *message, size_t *ret_len);
// The value of a string member; NULL: absent, or not a string.
const char *rpc_string(const json_t *object, const char *key);
// The revision in a message's _meta; "": not a string, NULL: absent.
const char *mcp_claimed_version(const json_t *message);
