// SPDX-License-Identifier: Apache-2.0
// What a gateway that an attacker controls says to the helper: packets as they come, and a
// conversation with a helper whose engine only keeps a table.
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_engine.h"
#include "helper_packet.h"
#include "helper_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SANDBOXES = 3, MAX_PACKETS = 32 };

// ---- One packet -------------------------------------------------------------------------------

static void
check_packet(const uint8_t *data, size_t size)
{
    struct helper_request request;
    struct helper_reply reply;
    struct kg_error err;
    if (helper_request_is_valid(data, size)) {
        memcpy(&request, data, sizeof request);
        assert(size == sizeof request && request.flag <= 1 && request.number >= 0);
        assert(!request.id[0] || sandbox_id_valid(request.id));
    }
    if (helper_reply_is_valid(data, size)) {
        memcpy(&reply, data, sizeof reply);
        assert(!reply.id[0] || sandbox_id_valid(reply.id));
        if (helper_reply_error(&reply, &err))
            assert(strlen(err.message) < sizeof err.message);
    }
}

// ---- A conversation ---------------------------------------------------------------------------

// A request in few bytes: the verb, the id, the flag, the number. `fork` is always one.
enum { SHORT_LEN = 4, RAW = 0x80 };

static void
request_read(const uint8_t data[static SHORT_LEN], struct helper_request *ret)
{
    static const char *const ids[] = {"", "a", "b", "c", "d", "f", "w", "x", "abcdefghijklmnop"};
    const char *id = ids[data[1] % KG_ARRAY_LEN(ids)];
    *ret = (struct helper_request){
        .verb = data[0], .serial = 1, .flag = data[2], .number = (int8_t)data[3]};
    memcpy(ret->id, id, strlen(id));
    if (data[0] == HELPER_FORK)
        memcpy(ret->fork, "abcdefgh", HELPER_FORK_LEN);
}

// Sends the packets that the input holds, each with a serial of its own. Returns how many.
static uint32_t
send_packets(int fd, const uint8_t *data, size_t size)
{
    struct helper_request request;
    uint32_t n = 0;
    for (size_t len; size >= SHORT_LEN && n < MAX_PACKETS; data += len, size -= len) {
        bool raw = data[0] & RAW;
        len = raw ? 1 + sizeof request : SHORT_LEN;
        if (size < len)
            break;
        if (raw)
            memcpy(&request, data + 1, sizeof request);
        else
            request_read(data, &request);
        request.serial = ++n;
        if (helper_send(fd, &request, sizeof request, -1, MSG_DONTWAIT) < 0)
            abort();
    }
    return n;
}

// Each answer is to a request, and each request is answered at most once.
static void
check_answers(int fd, uint32_t n_asked)
{
    bool done[MAX_PACKETS + 1] = {false};
    struct helper_reply reply;
    int received;
    for (ssize_t n; (n = helper_receive(fd, &reply, sizeof reply, MSG_DONTWAIT, &received)) > 0;) {
        if (received >= 0)
            close(received);
        assert(helper_reply_is_valid(&reply, (size_t)n));
        assert(reply.serial <= n_asked);
        if (reply.event != HELPER_DONE)
            continue;
        assert(reply.serial > 0 && !done[reply.serial]);
        done[reply.serial] = true;
    }
}

static char state_dir[] = "/tmp/kg-fuzz-helper-XXXXXX";

static void
remove_state(void)
{
    struct kg_error err;
    if (path_remove_tree(state_dir, &err) < 0)
        fprintf(stderr, "%s\n", err.message);
}

static void
make_state(void)
{
    static bool made;
    if (made)
        return;
    made = true;
    log_setup(LOG_LEVEL_ERROR + 1, LOG_FORMAT_CONSOLE);
    if (!mkdtemp(state_dir))
        abort();
    atexit(remove_state);
}

static int
serve(int fd, const struct zygote_spec *zygote)
{
    static const struct provisioner_engine *const engines[] = {&fake_engine, NULL};
    const struct provisioner_settings engine = {
        .engines = engines, .engine = "oci", .state_dir = state_dir, .gateway_id = "abcdefgh"};
    const struct helper_server_settings settings = {
        .fd = fd,
        .engine = &engine,
        .zygote_library = "/dev/null",
        .zygotes = zygote,
        .n_zygotes = 1,
        .max_sandboxes = MAX_SANDBOXES,
    };
    return helper_serve(&settings);
}

static void
on_folder(const char *id, void *arg)
{
    const struct fake_sandboxes *table = arg;
    assert(id[0] == FAKE_ENDS || fake_sandbox_lives(table, id));
}

static void
check_conversation(const uint8_t *data, size_t size)
{
    json_auto_t *argv = json_pack("[s]", "zygote");
    json_auto_t *env = json_object();
    const struct zygote_spec zygote = {
        .kernel = "python", .argv = argv, .kernel_argv = argv, .env = env};
    struct fake_sandboxes table = {0};
    struct kg_error err;
    int ends[2];
    make_state();
    fake_sandboxes = &table;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        abort();
    uint32_t n = send_packets(ends[1], data, size);
    shutdown(ends[1], SHUT_WR);
    (void)serve(ends[0], &zygote);
    check_answers(ends[1], n);
    close(ends[1]);
    assert(table.n_strangers == 0 && table.most <= MAX_SANDBOXES);
    for (size_t i = 0; i < FAKE_SANDBOXES; i++)
        assert(!table.zygotes[i][0]);
    if (folder_list(state_dir, on_folder, &table, &err) < 0)
        abort();
    KG_AUTO_FREE char *all = kg_asprintf("%s/sb", state_dir);
    if (path_remove_tree(all, &err) < 0)
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_packet(data, size);
    check_conversation(data, size);
    return 0;
}
