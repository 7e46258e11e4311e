// SPDX-License-Identifier: Apache-2.0
// The helper's side: what a gateway that an attacker controls can make of it. Sandboxes are real
// where that matters, which needs root and runc.
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_helper.h"

// ---- Packets that are none --------------------------------------------------------------------

struct hostile {
    const char *what;
    struct helper_request request; // `serial` is 7
    size_t len;                    // 0: that of a request
    size_t n_descriptors;
    bool without_serial;
};

#define PACKET(text, verb_, ...)                                                                   \
    {                                                                                              \
        .what = (text), .request = {.verb = (verb_), __VA_ARGS__ }                                 \
    }
#define CREATE(text, ...)                                                                          \
    {                                                                                              \
        .what = (text), .request = {.verb = HELPER_CREATE, __VA_ARGS__ }                           \
    }
#define CREATE_A(text, ...)                                                                        \
    {                                                                                              \
        .what = (text), .request = {.verb = HELPER_CREATE, .id = "a"}, __VA_ARGS__                 \
    }

static const struct hostile hostile[] = {
    CREATE_A("half a packet", .len = sizeof(struct helper_request) / 2),
    CREATE_A("one byte", .len = 1),
    CREATE_A("one byte less", .len = sizeof(struct helper_request) - 1),
    CREATE_A("one byte more", .len = sizeof(struct helper_request) + 1),
    CREATE_A("much more", .len = 16 * sizeof(struct helper_request)),
    CREATE_A("no serial", .without_serial = true),
    CREATE_A("a descriptor", .n_descriptors = 1),
    CREATE_A("two descriptors", .n_descriptors = 2),
    PACKET("no verb", 0, .id = "a"),
    PACKET("the verb after the last", HELPER_SERVER + 1, .id = "a"),
    PACKET("a large verb", UINT32_MAX, .id = "a"),
    PACKET("no id", HELPER_CREATE, .id = ""),
    CREATE("a path", .id = "a/b"),
    CREATE("the folder above", .id = ".."),
    CREATE("a way up", .id = "../../x"),
    CREATE("a root", .id = "/"),
    CREATE("upper case", .id = "aB"),
    CREATE("a digit that ids have not", .id = "a1"),
    CREATE("a space", .id = "a b"),
    CREATE("an option", .id = "-a"),
    CREATE("a byte above ASCII", .id = "a\xff"),
    CREATE("a newline", .id = "a\n"),
    CREATE("no NUL", .id = {[0 ... HELPER_ID_MAX + 3] = 'a'}),
    CREATE("a character too many", .id = {[0 ... HELPER_ID_MAX] = 'a'}),
    CREATE("a byte after the NUL", .id = "a\0b"),
    CREATE("a last byte", .id = {'a', [HELPER_ID_MAX + 3] = 'b'}),
    CREATE("a NUL first", .id = "\0a"),
    PACKET("a path to destroy", HELPER_DESTROY, .id = "../sb/a"),
    PACKET("a path to limit", HELPER_LIMIT, .id = "..", .number = 1),
    PACKET("a path to dial", HELPER_DIAL, .id = "a/"),
    PACKET("a path to fork into", HELPER_FORK, .id = "./a", .fork = "abcdefgh"),
    PACKET("a path as a fork", HELPER_FORK, .id = "a", .fork = "../../aa"),
    PACKET("a short fork", HELPER_FORK, .id = "a", .fork = "abcdefg"),
    PACKET("a long fork", HELPER_FORK, .id = "a", .fork = "abcdefghi"),
    PACKET("no fork", HELPER_FORK, .id = "a"),
    PACKET("bytes after the fork", HELPER_FORK, .id = "a", .fork = "abcdefgh\0\0a"),
    PACKET("a negative zygote", HELPER_FORK, .id = "a", .fork = "abcdefgh", .number = -1),
    PACKET("a large zygote", HELPER_FORK, .id = "a", .fork = "abcdefgh",
           .number = INT64_C(1) << 32),
    CREATE("a negative time", .id = "a", .number = -1),
    CREATE("more than a day", .id = "a", .number = 24 * 3600 + 1),
    CREATE("a time that is cut to 0", .id = "a", .number = INT64_C(1) << 32),
    PACKET("no memory", HELPER_LIMIT, .id = "a", .number = 0),
    PACKET("negative memory", HELPER_LIMIT, .id = "a", .number = -1),
    PACKET("all memory", HELPER_LIMIT, .id = "a", .number = INT64_MAX),
    CREATE("flag 2", .id = "a", .flag = 2),
    CREATE("a large flag", .id = "a", .flag = UINT32_MAX),
    PACKET("flag 2 of a list", HELPER_LIST, .flag = 2),
    PACKET("a flag to destroy", HELPER_DESTROY, .id = "a", .flag = 1),
    PACKET("a number to destroy", HELPER_DESTROY, .id = "a", .number = 1),
    PACKET("a fork to destroy", HELPER_DESTROY, .id = "a", .fork = "abcdefgh"),
    PACKET("an id to list", HELPER_LIST, .id = "a"),
    PACKET("a number to list", HELPER_LIST, .number = 1),
    PACKET("a flag to limit", HELPER_LIMIT, .id = "a", .number = 1, .flag = 1),
    PACKET("a fork to create", HELPER_CREATE, .id = "a", .fork = "abcdefgh"),
    PACKET("a flag to fork", HELPER_FORK, .id = "a", .fork = "abcdefgh", .flag = 1),
    PACKET("an id to warm", HELPER_WARM, .id = "a"),
    PACKET("a number to warm", HELPER_WARM, .number = 1),
    PACKET("a flag to cool", HELPER_COOL, .flag = 1),
    PACKET("a number to dial", HELPER_DIAL, .id = "a", .number = 1),
    PACKET("an id for a server", HELPER_SERVER, .id = "a"),
    PACKET("a negative server", HELPER_SERVER, .number = -1),
    PACKET("a large server", HELPER_SERVER, .number = INT64_C(1) << 32),
    PACKET("a flag for a server", HELPER_SERVER, .flag = 1),
};

static void
send_hostile(struct fixture *f, const struct hostile *item)
{
    int null[2] = {open("/dev/null", O_RDWR | O_CLOEXEC), open("/dev/null", O_RDWR | O_CLOEXEC)};
    char packet[16 * sizeof item->request] = {0};
    char control[CMSG_SPACE(sizeof null)] = {0};
    struct helper_request request = item->request;
    request.serial = item->without_serial ? 0 : 7;
    memcpy(packet, &request, sizeof request);
    struct iovec part = {packet, item->len ? item->len : sizeof request};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (item->n_descriptors > 0) {
        size_t size = item->n_descriptors * sizeof null[0];
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(size);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        *rights = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(size)};
        memcpy(CMSG_DATA(rights), null, size);
    }
    assert_int_equal(sendmsg(f->fd, &header, MSG_NOSIGNAL), (ssize_t)part.iov_len);
    close(null[0]);
    close(null[1]);
}

static void
test_hostile_requests(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < KG_ARRAY_LEN(hostile); i++) {
        helper_start(f);
        send_hostile(f, &hostile[i]);
        int code = helper_wait(f);
        if (code != 1)
            fail_msg("%s: the helper ended with code %d", hostile[i].what, code);
        assert_int_equal(count_folders(f), 0);
        assert_int_equal(f->table->n_calls + f->table->n_living, 0);
    }
}

// It is as if the connection had ended.
static void
test_an_empty_packet_ends_the_helper(void **state)
{
    struct fixture *f = *state;
    helper_start(f);
    assert_int_equal(send(f->fd, "", 0, MSG_NOSIGNAL), 0);
    assert_int_equal(helper_wait(f), 0);
    assert_int_equal(count_folders(f), 0);
}

// The longest and the largest of everything that a request may have, which is no attack.
static void
test_requests_at_their_bounds(void **state)
{
    struct fixture *f = *state;
    struct helper_request request = request_of(HELPER_CREATE, "abcdefghijklmnop");
    helper_start(f);
    request.number = 24 * 3600;
    request.flag = 1;
    assert_int_equal(ask(f, request), KG_OK);
    request = request_of(HELPER_LIMIT, "abcdefghijklmnop");
    request.number = INT64_C(1) << 24;
    assert_int_equal(ask(f, request), KG_OK);
    request = request_of(HELPER_FORK, "abcdefghijklmnop");
    request.number = 1000;
    assert_int_equal(ask(f, request), KG_INVALID); // there are not so many
    assert_int_equal(ask_about(f, HELPER_DESTROY, "abcdefghijklmnop"), KG_OK);
    assert_int_equal(count_folders(f), 0);
    helper_end(f);
}

// ---- Names of others' -------------------------------------------------------------------------

static void
assert_cannot_name(struct fixture *f, const char *id)
{
    size_t n_calls = f->table->n_calls;
    assert_int_equal(ask_about(f, HELPER_LIMIT, id), KG_INVALID);
    assert_int_equal(ask_about(f, HELPER_FORK, id), KG_INVALID);
    assert_int_equal(ask_about(f, HELPER_DIAL, id), KG_INVALID);
    assert_int_equal(ask_about(f, HELPER_SERVER, ""), KG_INVALID); // the operator names none
    assert_int_equal(ask_about(f, HELPER_DESTROY, id), KG_OK);     // there is none
    assert_int_equal(f->table->n_calls, n_calls);
}

// A folder beside the helper's own.
static char *
make_folder(const struct fixture *f, const char *id)
{
    struct kg_error err;
    assert_int_equal(folder_make(f->state_dir, id, &err), 0);
    char *marker = folder_path(f->state_dir, id, "marker");
    assert_int_equal(file_write_atomic(marker, "kept", 4, 0600, &err), 0);
    return marker;
}

static char *
zygote_id(const struct fixture *f)
{
    KG_AUTO_FREE char *pattern = kg_asprintf("%s/sb/*/zygote", f->state_dir);
    glob_t found;
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    char *id = kg_strdup(found.gl_pathv[0] + strlen(f->state_dir) + strlen("/sb/"));
    *strchr(id, '/') = '\0';
    globfree(&found);
    return id;
}

static void
test_only_what_was_made_can_be_named(void **state)
{
    struct fixture *f = *state;
    f->settings.engine = &f->engine;
    helper_start(f);
    assert_int_equal(ask_about(f, HELPER_CREATE, "a"), KG_OK);
    KG_AUTO_FREE char *marker = make_folder(f, "ondisk");
    fake_sandbox_add(f->table, "other"); // a container that was not made here
    say(f, request_of(HELPER_WARM, ""));
    assert_int_equal(count_listed(f), 1);
    UNTIL_(f->table->zygotes[0][0], usleep(1000));
    KG_AUTO_FREE char *zygote = zygote_id(f);
    KG_AUTO_FREE char *zygote_folder = folder_path(f->state_dir, zygote, NULL);

    const char *const strangers[] = {"ondisk", "other", zygote, "nowhere"};
    for (size_t i = 0; i < KG_ARRAY_LEN(strangers); i++)
        assert_cannot_name(f, strangers[i]);
    assert_int_not_equal(ask_about(f, HELPER_CREATE, "ondisk"), KG_OK);
    assert_int_not_equal(ask_about(f, HELPER_CREATE, zygote), KG_OK);
    assert_cannot_name(f, "ondisk"); // nor after that
    assert_cannot_name(f, zygote);
    assert_int_equal(count_listed(f), 1);

    assert_int_equal(access(marker, F_OK), 0);
    assert_int_equal(access(zygote_folder, F_OK), 0);
    assert_true(fake_sandbox_lives(f->table, "other"));
    assert_string_equal(f->table->zygotes[0], zygote);
    assert_int_equal(f->table->n_strangers, 0);
    assert_int_equal(ask_about(f, HELPER_LIMIT, "a"), KG_OK);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "a"), KG_OK);
    assert_cannot_name(f, "a");
    helper_end(f);
    assert_int_equal(f->table->zygotes[0][0], '\0');
}

// Neither while it is made, nor if that failed.
static void
test_what_is_not_made_cannot_be_named(void **state)
{
    struct fixture *f = *state;
    helper_start(f);
    assert_int_not_equal(ask_about(f, HELPER_CREATE, "f"), KG_OK);
    assert_cannot_name(f, "f");
    assert_int_equal(count_folders(f), 0);
    say(f, request_of(HELPER_CREATE, "w"));
    assert_int_equal(ask_about(f, HELPER_LIMIT, "w"), KG_INVALID);
    assert_int_equal(ask_about(f, HELPER_FORK, "w"), KG_INVALID);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "w"), KG_INVALID);
    assert_int_equal(ask_about(f, HELPER_CREATE, "w"), KG_INVALID);
    assert_int_equal(count_listed(f), 0);
    helper_end(f);
    assert_int_equal(count_folders(f), 0);
    assert_int_equal(f->table->n_calls, 0);
}

// A gateway that lists after the end would wait for that for ever.
static void
test_what_has_ended_is_not_listed(void **state)
{
    struct fixture *f = *state;
    helper_start(f);
    assert_int_equal(ask_about(f, HELPER_CREATE, "a"), KG_OK);
    assert_int_equal(ask_about(f, HELPER_CREATE, "x"), KG_OK);
    struct helper_reply reply = hear(f, NULL);
    assert_int_equal(reply.event, HELPER_EXITED);
    assert_string_equal(reply.id, "x");
    assert_int_equal(count_listed(f), 1);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "x"), KG_OK); // what is left of it
    assert_int_equal(f->table->n_calls, 1);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "a"), KG_OK);
    assert_int_equal(count_folders(f), 0);
    helper_end(f);
}

// Zygotes that start after they were ended would not be ended again.
static void
test_zygotes_start_and_end_once(void **state)
{
    struct fixture *f = *state;
    helper_start(f);
    uint32_t warm = say(f, request_of(HELPER_WARM, ""));
    assert_int_equal(ask_about(f, HELPER_WARM, ""), KG_INVALID);
    uint32_t cool = say(f, request_of(HELPER_COOL, ""));
    assert_int_equal(hear_done(f, warm).code, KG_OK);
    assert_int_equal(hear_done(f, cool).code, KG_OK);
    assert_int_equal(count_folders(f), 0);
    assert_int_equal(ask_about(f, HELPER_COOL, ""), KG_INVALID);
    helper_end(f);

    helper_start(f);
    assert_int_equal(ask_about(f, HELPER_COOL, ""), KG_OK);
    assert_int_equal(ask_about(f, HELPER_WARM, ""), KG_INVALID);
    assert_int_equal(count_folders(f), 0);
    helper_end(f);
}

// Descriptors that are refused, or passed on, do not stay in the helper.
static void
test_no_descriptor_stays(void **state)
{
    struct fixture *f = *state;
    helper_start(f);
    assert_int_equal(ask_about(f, HELPER_CREATE, "a"), KG_OK);
    size_t before = helper_count_files(f);
    for (int i = 0; i < 100; i++) {
        struct helper_request list = request_of(HELPER_LIST, "");
        list.flag = 1; // with its door
        assert_int_equal(ask(f, list), KG_OK);
        assert_int_equal(ask_about(f, HELPER_CREATE, "a"), KG_INVALID);
        assert_int_not_equal(ask_about(f, HELPER_CREATE, "f"), KG_OK);
        assert_int_equal(ask_about(f, HELPER_CREATE, "b"), KG_OK);
        assert_int_equal(ask_about(f, HELPER_DESTROY, "b"), KG_OK);
        ask_about(f, HELPER_FORK, "a");
        ask_about(f, HELPER_DIAL, "a");
    }
    assert_int_equal(helper_count_files(f), before);
    helper_end(f);
}

// ---- An attacker ------------------------------------------------------------------------------

// A folder that only root can enter, with a file that nobody has read.
static void
plant_secret(char path[static 64])
{
    struct kg_error err;
    const struct timespec times[] = {{.tv_sec = 1000}, {.tv_sec = 500}};
    snprintf(path, 64, "/tmp/kgsecretXXXXXX");
    assert_non_null(mkdtemp(path));
    strcat(path, "/file");
    assert_int_equal(file_write_atomic(path, "secret", 6, 0600, &err), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void
assert_secret_untouched(char path[static 64])
{
    struct stat st;
    KG_AUTO_BUF text = {0};
    struct kg_error err;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_atim.tv_sec, 1000);
    assert_int_equal(st.st_mtim.tv_sec, 500);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(file_read(path, 64, &text, &err), 0);
    assert_string_equal(text.data, "secret");
    *strrchr(path, '/') = '\0';
    assert_int_equal(path_remove_tree(path, &err), 0);
}

// Asks for more than there may be, and for each thing at a time when it cannot be done.
static void
ask_out_of_order(struct fixture *f)
{
    uint32_t made[3];
    const char *const ids[] = {"a", "b", "c"};
    assert_int_equal(ask_about(f, HELPER_COOL, ""), KG_OK);
    assert_int_equal(ask_about(f, HELPER_COOL, ""), KG_INVALID);
    for (size_t i = 0; i < KG_ARRAY_LEN(ids); i++)
        made[i] = say(f, request_of(HELPER_CREATE, ids[i]));
    uint32_t refused[] = {
        say(f, request_of(HELPER_CREATE, "a")), say(f, request_of(HELPER_DESTROY, "a")),
        say(f, request_of(HELPER_LIMIT, "b")), say(f, request_of(HELPER_FORK, "c")),
        say(f, request_of(HELPER_CREATE, "d"))};
    size_t n_made = 0, n_refused = 0;
    while (n_made < KG_ARRAY_LEN(made) || n_refused < KG_ARRAY_LEN(refused)) {
        struct helper_reply reply = hear(f, NULL);
        if (reply.event != HELPER_DONE)
            continue;
        bool is_made = reply.serial <= made[2];
        n_made += is_made;
        n_refused += !is_made;
        assert_int_equal(reply.code, is_made ? KG_OK : KG_INVALID);
    }
    assert_int_equal(ask_about(f, HELPER_CREATE, "d"), KG_INVALID);
    assert_int_not_equal(ask_about(f, HELPER_FORK, "a"), KG_OK); // no zygote is ready
    assert_int_equal(count_listed(f), 3);
}

// Says as much as the socket takes, and only then reads.
static void
flood(struct fixture *f, int n)
{
    struct helper_request request = request_of(HELPER_LIMIT, "nowhere");
    int n_said = 0, n_heard = 0;
    while (n_heard < n) {
        request.serial = f->serial + 1;
        if (n_said < n && helper_send(f->fd, &request, sizeof request, -1, MSG_DONTWAIT) == 0) {
            f->serial++;
            n_said++;
            continue;
        }
        for (struct pollfd more = {.fd = f->fd, .events = POLLIN};
             n_heard < n_said && (n_heard == 0 || poll(&more, 1, 0) > 0); n_heard++)
            assert_int_equal(hear(f, NULL).code, KG_INVALID);
    }
}

static void
test_an_attacker_in_the_gateways_place(void **state)
{
    struct fixture *f = *state;
    char secret[64];
    plant_secret(secret);
    helper_start(f);
    ask_out_of_order(f);
    flood(f, 3000);
    uint32_t first = say(f, request_of(HELPER_DESTROY, "a"));
    uint32_t again = say(f, request_of(HELPER_DESTROY, "a"));
    assert_int_equal(hear_done(f, again).code, KG_INVALID);
    assert_int_equal(hear_done(f, first).code, KG_OK);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "a"), KG_OK);
    say(f, request_of(HELPER_CREATE, "e"));
    usleep(30 * 1000); // in the middle of it
    helper_end(f);

    helper_start(f);
    assert_int_equal(count_listed(f), 2);
    say(f, request_of(HELPER_WARM, ""));
    assert_int_equal(ask_about(f, HELPER_WARM, ""), KG_INVALID);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "b"), KG_OK);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "c"), KG_OK);
    helper_end(f);

    helper_start(f); // removes what was left half-made
    assert_int_equal(count_listed(f), 0);
    helper_end(f);
    assert_nothing_left(f);
    assert_secret_untouched(secret);
}

// Requests are under way when the connection ends: nothing waits for answers.
static void
test_a_gateway_that_never_reads(void **state)
{
    struct fixture *f = *state;
    struct helper_request request = request_of(HELPER_LIST, "");
    helper_start(f);
    do
        request.serial++;
    while (helper_send(f->fd, &request, sizeof request, -1, MSG_DONTWAIT) == 0);
    assert_int_equal(errno, EAGAIN);
    helper_end(f);
}

// Neither is it mistaken for the end of this process's work that nobody hears an answer: zygotes
// and what is being made are removed.
static void
test_the_helper_cleans_up_unheard(void **state)
{
    struct fixture *f = *state;
    struct helper_request request = request_of(HELPER_LIST, "");
    helper_start(f);
    say(f, request_of(HELPER_WARM, ""));
    say(f, request_of(HELPER_CREATE, "w"));
    UNTIL_(f->table->zygotes[0][0], usleep(1000));
    do
        request.serial++;
    while (helper_send(f->fd, &request, sizeof request, -1, MSG_DONTWAIT) == 0);
    helper_end(f);
    assert_int_equal(f->table->zygotes[0][0], '\0');
    assert_int_equal(count_folders(f), 0);
}

// ---- A helper that is killed ------------------------------------------------------------------

static void
prepare(struct fixture *f, enum helper_verb verb)
{
    if (verb == HELPER_DESTROY || verb == HELPER_LIMIT || verb == HELPER_FORK ||
        verb == HELPER_LIST || verb == HELPER_DIAL)
        assert_int_equal(ask_about(f, HELPER_CREATE, "a"), KG_OK);
    if (verb == HELPER_COOL || verb == HELPER_FORK)
        say(f, request_of(HELPER_WARM, ""));
}

// The next one goes on with what lives, and removes the rest.
static void
kill_in_the_middle(struct fixture *f, enum helper_verb verb, int delay_ms)
{
    helper_start(f);
    prepare(f, verb);
    say(f, request_of(
               verb, verb == HELPER_LIST || verb == HELPER_WARM || verb == HELPER_COOL ? "" : "a"));
    usleep((unsigned)delay_ms * 1000);
    helper_kill(f);
    helper_start(f);
    size_t n = count_listed(f);
    if (verb == HELPER_LIMIT || verb == HELPER_LIST || verb == HELPER_FORK || verb == HELPER_DIAL)
        assert_int_equal(n, 1); // what was made lives
    else
        assert_in_range(n, 0, 1);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "a"), KG_OK);
    assert_int_equal(ask_about(f, HELPER_CREATE, "b"), KG_OK);
    assert_int_equal(ask_about(f, HELPER_DESTROY, "b"), KG_OK);
    helper_end(f);
    assert_nothing_left(f);
}

static void
test_a_helper_that_is_killed(void **state)
{
    struct fixture *f = *state;
    for (enum helper_verb verb = HELPER_CREATE; verb <= HELPER_DIAL; verb++)
        kill_in_the_middle(f, verb, verb == HELPER_CREATE || verb == HELPER_WARM ? 20 : 3);
}

#define FAKE(name) cmocka_unit_test_setup_teardown(name, set_up_fake, tear_down)
#define REAL(name) cmocka_unit_test_setup_teardown(name, set_up_real, tear_down)

int
main(void)
{
    if (geteuid() != 0) {
        print_error("test_helper makes real containers: it must run as root\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        FAKE(test_hostile_requests),
        FAKE(test_an_empty_packet_ends_the_helper),
        FAKE(test_requests_at_their_bounds),
        FAKE(test_only_what_was_made_can_be_named),
        FAKE(test_what_is_not_made_cannot_be_named),
        FAKE(test_what_has_ended_is_not_listed),
        FAKE(test_zygotes_start_and_end_once),
        FAKE(test_no_descriptor_stays),
        FAKE(test_a_gateway_that_never_reads),
        FAKE(test_the_helper_cleans_up_unheard),
        REAL(test_an_attacker_in_the_gateways_place),
        REAL(test_a_helper_that_is_killed),
        cmocka_unit_test(test_a_killed_helper_is_replaced),
        cmocka_unit_test(test_both_end_with_the_gateway),
        cmocka_unit_test(test_a_hanging_helper_is_killed),
        cmocka_unit_test(test_the_lock_is_held_until_both_have_ended),
        cmocka_unit_test(test_a_helper_that_never_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
