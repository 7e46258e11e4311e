// SPDX-License-Identifier: Apache-2.0
// What an agent sends, as the gateway reads it. The first byte, modulo 5: frames (which the others
// are then tried on), the content of a RESULT, of an ERROR, an event, a command's output.
#include <assert.h>
#include <string.h>

#include "agent_reply.h"
#include "rpc.h"
#include "sandbox.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_object(const char *text, size_t len)
{
    struct sandbox_command_result end;
    struct sandbox_command_start start;
    struct agent_entry entry;
    struct kg_error err = {0};

    json_auto_t *object = agent_object_parse(text, len, &err);
    assert(object ? json_is_object(object) : err.code == KG_INTERNAL);
    if (!object)
        return;
    if (agent_command_end_parse(object, &end, &err) == 0)
        assert(end.exit_code >= 0 && end.exit_code <= 255 && end.dropped_bytes >= 0);
    if (agent_command_start_parse(object, &start, &err) == 0)
        assert(start.pid >= 0 && start.dropped_bytes >= 0 && strlen(start.id) <= 32);
    json_auto_t *commands = sandbox_command_list_parse(object, &err);
    assert(!commands || json_array_size(commands) <= SANDBOX_COMMANDS_MAX);
    if (agent_entry_parse(object, &entry, &err) == 0)
        assert(entry.size >= 0 && strlen(entry.type) >= 3);
    else
        assert(err.code == KG_INTERNAL);
    assert(agent_number_parse(object, &err) <= AGENT_NUMBER_MAX);
    assert(agent_watch_start_parse(object, &err) >= -1);
}

static void
check_watch(const char *text, size_t len)
{
    struct agent_watch_event event;
    struct kg_error err = {0};

    json_auto_t *line = agent_watch_event_parse(text, len, &event, &err);
    if (!line) {
        assert(err.code == KG_INTERNAL);
        return;
    }
    assert(event.path ? file_path_check(event.path, false, &err) == 0
                      : strcmp(event.event, "overflow") == 0);
    assert((strcmp(event.event, "rename") == 0) == (event.from != NULL));
    assert(!event.from || file_path_check(event.from, false, &err) == 0);
}

static void
check_error(const char *text, size_t len)
{
    struct kg_error err = {0};

    agent_error_parse(text, len, &err);
    int status = kg_code_info(err.code)->http_status;
    assert((status >= 400 && status < 500) || err.code == KG_DISK_FULL || err.code == KG_INTERNAL);
    size_t said = strlen(err.message);
    assert(said > 0 && utf8_valid_prefix(err.message, said) == said);
    for (const char *c = err.message; *c; c++)
        assert((unsigned char)*c >= ' ' && *c != 0x7f);
}

static void
check_event(const char *text, size_t len)
{
    struct agent_event event;
    struct kg_error err = {0};

    if (agent_event_parse(text, len, &event, &err) != 0) {
        assert(err.code == KG_INTERNAL);
        return;
    }
    json_auto_t *params = event.params;
    assert((params != NULL) == (event.type == AGENT_REQUEST));
    if (event.type == AGENT_REQUEST || event.type == AGENT_REQUEST_END) {
        assert(event.request_id >= 1 && strlen(event.method) <= AGENT_METHOD_MAX);
        assert(!params || json_is_object(params));
        return;
    }
    if (event.type == AGENT_COMMANDS) {
        assert(event.n_commands >= 0 && event.n_terminals >= 0);
        return;
    }
    if (event.type == AGENT_MEMORY) {
        assert(event.memory_bytes >= 0);
        return;
    }
    assert(strlen(event.kernel) >= 1 && strlen(event.kernel) <= AGENT_KERNEL_NAME_MAX);
    if (event.type == AGENT_KERNEL_MEMORY) {
        assert(event.memory_bytes >= 0);
        return;
    }
    assert(event.pid >= 1 && event.signal >= 0 && event.signal <= 64);
}

static void
check_output(const char *text, size_t len)
{
    struct agent_output output;
    struct kg_error err = {0};

    if (agent_output_parse(text, len, &output, &err) != 0) {
        assert(err.code == KG_INTERNAL);
        return;
    }
    assert(output.len == len - 1 && output.len > 0 && output.missed_bytes >= 0);
    if (output.kind == AGENT_OUTPUT_TERMINAL)
        return;
    // It goes into lines of JSON.
    json_auto_t *line = json_stringn(output.text, output.len);
    assert(line);
}

static void
check_frames(const char *data, size_t len)
{
    struct frame frame;

    for (int n; (n = frame_read(RPC_GATEWAY, data, len, &frame)) > 0; data += n, len -= (size_t)n) {
        assert((size_t)n == FRAME_HEADER_LEN + frame.len && (size_t)n <= len);
        assert(frame.kind != FRAME_REQUEST && frame.kind < FRAME_N_KINDS);
        // Less of it is never more than a question of time.
        assert(frame_read(RPC_GATEWAY, data, (size_t)n - 1, &frame) == 0);
        assert(frame_read(RPC_GATEWAY, data, len, &frame) == n);
        if (frame.kind == FRAME_ERROR) {
            check_error(frame.data, frame.len);
        } else if (frame.kind == FRAME_DATA) {
            check_event(frame.data, frame.len);
            check_output(frame.data, frame.len);
            check_watch(frame.data, frame.len);
        } else {
            check_object(frame.data, frame.len);
        }
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const checks[])(const char *text, size_t len) = {
        check_frames, check_object, check_error, check_event, check_output};

    if (size < 1)
        return 0;
    // A copy of its own size, so that a byte too much is seen.
    char *text = kg_calloc(size, 1);
    memcpy(text, data + 1, size - 1);
    char *exact = kg_realloc(text, size > 1 ? size - 1 : 1);
    checks[data[0] % KG_ARRAY_LEN(checks)](exact, size - 1);
    free(exact);
    return 0;
}
