// SPDX-License-Identifier: Apache-2.0
// What an agent says. First byte: even for event lines, and lines of commands, fed in parts of that
// many bytes; odd for the body of an HTTP answer with one of some statuses.
#include <assert.h>
#include <string.h>

#include "agent_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
parse_command_line(const char *text, size_t len)
{
    struct agent_command_line line;
    struct kg_error err = {0};

    if (agent_command_parse(text, len, &line, &err) != 0) {
        assert(err.code == KG_INTERNAL);
        return;
    }
    assert(line.is_end ? !line.text : json_is_string(line.text));
    assert(line.result.exit_code >= 0 && line.result.dropped_bytes >= 0);
    json_decref(line.text);
}

static void
on_line(const char *line, size_t len, void *arg)
{
    struct agent_event event;
    struct kg_error err = {0};
    (void)arg;

    if (!line)
        return;
    assert(len <= AGENT_EVENT_LINE_MAX);
    parse_command_line(line, len);
    if (agent_event_parse(line, len, &event, &err) != 0) {
        assert(err.code == KG_INTERNAL);
        return;
    }
    assert(strlen(event.kernel) >= 1 && strlen(event.kernel) <= AGENT_KERNEL_NAME_MAX);
    assert(event.pid >= 1 && event.signal >= 0 && event.signal <= 64);
}

static void
feed_lines(const char *text, size_t len, size_t part)
{
    struct agent_lines lines = {0};

    for (size_t at = 0; at < len; at += part)
        agent_lines_feed(&lines, text + at, len - at < part ? len - at : part, on_line, NULL);
    agent_lines_fini(&lines);
}

static void
parse_reply(const char *text, size_t len, unsigned which)
{
    static const int statuses[] = {200, 201, 400, 404, 409, 413, 500, 507, 302};
    struct kg_error err = {0};
    int status = statuses[which % KG_ARRAY_LEN(statuses)];

    json_auto_t *body = agent_reply_parse(status, text, len, &err);
    assert(body ? json_is_object(body) && status < 300 : err.code != KG_OK);
    for (const char *c = err.message; *c; c++)
        assert(*c >= ' ' && *c < 0x7f);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *text = (const char *)data + 1;
    if (data[0] % 2 == 0)
        feed_lines(text, size - 1, data[0] ? data[0] : 1);
    else
        parse_reply(text, size - 1, data[0] / 2);
    return 0;
}
