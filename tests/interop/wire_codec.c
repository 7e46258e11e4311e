// SPDX-License-Identifier: Apache-2.0
// The wire codec as a filter, for test_wire_codec.py. A message is a number of frames, then each
// frame as its length and its bytes; numbers are 32 bits, big-endian.
//
//     wire_codec parse KEY    reads messages, writes one JSON line each
//     wire_codec make KEY     reads {"msg_type", "content"} lines, writes messages

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "jupyter.h"
#include "signer_priv.h"

enum { MAX_FRAME = 64 << 20 };

static bool
read_number(uint32_t *ret)
{
    if (fread(ret, sizeof(*ret), 1, stdin) != 1)
        return false;
    *ret = ntohl(*ret);
    return true;
}

static void
write_number(size_t number)
{
    uint32_t bytes = htonl((uint32_t)number);
    fwrite(&bytes, sizeof(bytes), 1, stdout);
}

static bool
read_frame(struct buf *ret)
{
    uint32_t len;
    if (!read_number(&len) || len > MAX_FRAME)
        return false;
    buf_reserve(ret, len);
    ret->len = fread(ret->data, 1, len, stdin);
    return ret->len == len;
}

static void
print_line(json_t *json)
{
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(json);
}

static json_t *
part(const struct jupyter_message *message, size_t i)
{
    const struct jupyter_frame *text = &message->raw->parts[i];
    return json_loadb(text->data, text->len, JSON_ALLOW_NUL, NULL);
}

static json_t *
describe(struct jupyter_message *message, const struct jupyter_frame *frames, size_t n_frames)
{
    message_keep_raw(message, frames, n_frames, MAX_FRAME);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:O}", "msg_type", message->msg_type, "msg_id",
                     message->msg_id, "parent_id", message->parent_id, "header",
                     part(message, JUPYTER_HEADER), "parent_header",
                     part(message, JUPYTER_PARENT_HEADER), "metadata",
                     part(message, JUPYTER_METADATA), "content", message->content);
}

static int
parse(struct jupyter_signer *signer)
{
    uint32_t n;
    while (read_number(&n)) {
        struct buf bytes[JUPYTER_MAX_FRAMES] = {0};
        struct jupyter_frame frames[JUPYTER_MAX_FRAMES];
        struct kg_error err;

        for (uint32_t i = 0; i < n; i++) {
            if (i == JUPYTER_MAX_FRAMES || !read_frame(&bytes[i]))
                return 1;
            frames[i] = (struct jupyter_frame){.data = bytes[i].data, .len = bytes[i].len};
        }
        KG_AUTO(jupyter_message) message = jupyter_message_parse(signer, frames, n, &err);
        print_line(message != NULL ? describe(message, frames, n)
                                   : json_pack("{s:s, s:s}", "code", kg_code_info(err.code)->name,
                                               "error", err.message));
        for (uint32_t i = 0; i < n; i++)
            buf_fini(&bytes[i]);
    }
    return 0;
}

static int
make(struct jupyter_signer *signer)
{
    json_t *line;
    while ((line = json_loadf(stdin, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)) != NULL) {
        json_t *content = json_object_get(line, "content");
        KG_AUTO(jupyter_outgoing)
        outgoing = jupyter_outgoing_new(
            signer, json_string_value(json_object_get(line, "msg_type")), json_incref(content));
        write_number(KG_ARRAY_LEN(outgoing->frames));
        for (size_t i = 0; i < KG_ARRAY_LEN(outgoing->frames); i++) {
            write_number(outgoing->frames[i].len);
            fwrite(outgoing->frames[i].data, 1, outgoing->frames[i].len, stdout);
        }
        fflush(stdout);
        json_decref(line);
    }
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s parse|make KEY\n", argv[0]);
        return 2;
    }
    KG_AUTO(jupyter_signer) signer = jupyter_signer_new(argv[2]);
    return strcmp(argv[1], "parse") == 0 ? parse(signer) : make(signer);
}
