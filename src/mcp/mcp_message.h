// SPDX-License-Identifier: Apache-2.0
// JSON-RPC messages, for the core and for the bridge beside it.
#pragma once

#include "mcp.h"

enum message_kind { MESSAGE_REQUEST, MESSAGE_NOTIFICATION, MESSAGE_RESPONSE, MESSAGE_INVALID };
// `ret_why` says what is wrong with an invalid one.
enum message_kind rpc_kind(const json_t *message, const char **ret_why);
// Whether a message that rpc_kind() has found valid is a request.
bool rpc_is_request(const json_t *message);
// Bytes of a client as JSON, bounded in depth, without duplicate keys.
KG_MUST_CHECK json_t *mcp_message_parse(const char *data, size_t len, struct kg_error *err);
// Builders; `id` is borrowed and may be NULL, the rest is taken.
json_t *rpc_result(const json_t *id, json_t *result);
json_t *rpc_error(const json_t *id, int code, const char *text, json_t *data);
json_t *rpc_notification(const char *method, json_t *params);
// Compact JSON; to be freed.
char *rpc_dump(const json_t *message, size_t *ret_len);
// The string member of an object, or NULL where it is missing or something else.
const char *rpc_string(const json_t *object, const char *key);
// The revision that a request's _meta names, "" where that is not a string, NULL where it says
// nothing.
const char *mcp_claimed_version(const json_t *message);
