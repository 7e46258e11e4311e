// SPDX-License-Identifier: Apache-2.0
// The gateway's side of a sandbox, against a fake provisioner that runs the real agent as an
// ordinary process, and against strangers at the door.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent_process.h"
#include "agent_reply.h"
#include "link_hello.h"
#include "link_line.h"
#include "provisioner.h"
#include "provisioner_replicas.h"
#include "rpc.h"
#include "sandbox_priv.h"
#include "virtual_clock.h"

// ---- A fake provisioner ---------------------------------------------------------------------

struct provisioner_op {
    struct provisioner *provisioner;
    struct loop_timer *timer;
    provisioner_done_fn on_done;
    void *arg;
    enum op_kind { CREATE, CLAIM, DESTROY } kind;
};

// Has one sandbox at a time.
struct provisioner {
    struct loop *loop;
    struct agent_place place;
    char id[17];
    pid_t agent;
    bool fails;                   // creations do
    bool silent;                  // starts no agent
    bool pulls;                   // creations wait for their image for ever
    bool refuses;                 // destructions
    bool slow;                    // claims end by let_claims_end() only
    bool loses;                   // claims: another gateway is quicker
    struct provisioner_op *claim; // that waits
    bool tcp;                     // its agents listen
    int port;
    char key[2 * LINK_KEY_LEN + 1];
    uint64_t epoch;
    provisioner_exit_fn on_exit;
    void *arg;
    json_t *meta;
    int n_destroyed;
};

static void
end_agent(struct provisioner *provisioner)
{
    if (provisioner->agent)
        (void)agent_process_end(provisioner->agent, SIGKILL);
    provisioner->agent = 0;
}

static void
start_agent(struct provisioner *provisioner)
{
    if (provisioner->tcp) {
        provisioner->port = agent_free_port();
        provisioner->agent = agent_process_listen(&provisioner->place, provisioner->port,
                                                  provisioner->id, provisioner->key, 60);
    } else {
        KG_AUTO_FREE char *dir = provisioner_sandbox_dir(provisioner, provisioner->id);
        KG_AUTO_FREE char *door = kg_asprintf("%s/door.sock", dir);
        provisioner->agent = agent_process_start(&provisioner->place, door, 60);
    }
}

static void
op_free(struct provisioner_op *op)
{
    loop_timer_free(op->timer);
    free(op);
}

static void
on_op(void *arg)
{
    struct provisioner_op *op = arg;
    struct provisioner *provisioner = op->provisioner;
    provisioner_done_fn on_done = op->on_done;
    void *done_arg = op->arg;
    struct kg_error err = {0};

    if (op->kind == CLAIM) {
        provisioner->claim = NULL;
        if (provisioner->loses)
            (void)kg_error_set(&err, KG_NOT_FOUND, 0, "another gateway has it");
    } else if (op->kind == DESTROY) {
        end_agent(provisioner);
        provisioner->n_destroyed++;
    } else if (provisioner->fails) {
        (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "no container today");
    } else if (!provisioner->silent) {
        start_agent(provisioner);
    }
    op_free(op);
    on_done(err.code ? &err : NULL, done_arg);
}

static struct provisioner_op *
op_new(struct provisioner *provisioner, enum op_kind kind, provisioner_done_fn on_done, void *arg)
{
    struct provisioner_op *op = KG_NEW(struct provisioner_op);
    *op = (struct provisioner_op){
        .provisioner = provisioner, .on_done = on_done, .arg = arg, .kind = kind};
    op->timer = loop_timer_new(provisioner->loop, on_op, op);
    if (kind == CLAIM && provisioner->slow)
        provisioner->claim = op;
    else if (kind != CREATE || !provisioner->pulls)
        loop_timer_start(op->timer, 0);
    return op;
}

char *
provisioner_sandbox_dir(const struct provisioner *provisioner, const char *id)
{
    return kg_asprintf("%s/%s/door", provisioner->place.dir, id);
}

static void
make_door(struct provisioner *provisioner, const char *id)
{
    KG_AUTO_FREE char *dir = kg_asprintf("%s/%s", provisioner->place.dir, id);
    KG_AUTO_FREE char *door = provisioner_sandbox_dir(provisioner, id);
    struct kg_error err;
    assert_int_equal(dir_make(dir, 0700, &err), 0);
    assert_int_equal(dir_make(door, 0755, &err), 0);
}

struct provisioner_op *
provisioner_create(struct provisioner *provisioner, const struct provisioner_sandbox_spec *spec,
                   provisioner_done_fn on_done, provisioner_exit_fn on_exit, void *arg,
                   struct kg_error *err)
{
    (void)err;
    snprintf(provisioner->id, sizeof provisioner->id, "%s", spec->id);
    provisioner->on_exit = on_exit;
    provisioner->arg = arg;
    make_door(provisioner, spec->id);
    return op_new(provisioner, CREATE, on_done, arg);
}

struct provisioner_op *
provisioner_destroy(struct provisioner *provisioner, const char *id, provisioner_done_fn on_done,
                    void *arg, struct kg_error *err)
{
    (void)id;
    if (provisioner->refuses) {
        (void)kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "no destruction today");
        return NULL;
    }
    return op_new(provisioner, DESTROY, on_done, arg);
}

void
provisioner_hand_over(struct provisioner *provisioner, const char *id)
{
    (void)provisioner;
    (void)id;
}

void
provisioner_overtaken(struct provisioner *provisioner, const char *id)
{
    (void)provisioner;
    (void)id;
}

int
provisioner_check(const struct provisioner *provisioner, struct kg_error *err)
{
    (void)provisioner;
    (void)err;
    return 0;
}

void
provisioner_offer(struct provisioner *provisioner, const char *id)
{
    (void)provisioner;
    (void)id;
}

const char *
provisioner_replica_id(const struct provisioner *provisioner)
{
    (void)provisioner;
    return NULL; // it is the only gateway
}

const char *
provisioner_free_sandbox(const struct provisioner *provisioner)
{
    (void)provisioner;
    return NULL;
}

struct provisioner_op *
provisioner_take(struct provisioner *provisioner, const char *id, provisioner_done_fn on_done,
                 provisioner_exit_fn on_exit, void *arg, struct kg_error *err)
{
    (void)id;
    (void)on_exit;
    (void)err;
    return op_new(provisioner, CREATE, on_done, arg);
}

void
provisioner_op_cancel(struct provisioner_op *op)
{
    if (op == op->provisioner->claim)
        op->provisioner->claim = NULL;
    op_free(op);
}

bool
provisioner_op_explain(const struct provisioner_op *op, struct kg_error *err)
{
    if (op->provisioner->pulls)
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the image is being pulled");
    return op->provisioner->pulls;
}

bool
provisioner_dials(const struct provisioner *provisioner)
{
    return provisioner->tcp;
}

int
provisioner_dial(struct provisioner *provisioner, const char *id, uint64_t *ret_epoch,
                 struct kg_error *err)
{
    (void)id;
    *ret_epoch = provisioner->epoch;
    if (!provisioner->agent)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "it does not run yet");
    return agent_dial(provisioner->port);
}

bool
provisioner_opens_doors(const struct provisioner *provisioner)
{
    (void)provisioner;
    return false;
}

void
provisioner_open_door(struct provisioner *provisioner, const char *id, provisioner_door_fn fn,
                      void *arg)
{
    (void)provisioner;
    (void)id;
    (void)fn;
    (void)arg;
    fail_msg("not called");
}

void
provisioner_close_door(struct provisioner *provisioner, const char *id)
{
    (void)provisioner;
    (void)id;
    fail_msg("not called");
}

void
provisioner_forget(struct provisioner *provisioner, const char *id)
{
    if (strcmp(provisioner->id, id) == 0)
        provisioner->on_exit = NULL;
}

struct provisioner_op *
provisioner_claim(struct provisioner *provisioner, const char *id, const json_t *meta,
                  int64_t memory_mb, provisioner_done_fn on_done, void *arg, struct kg_error *err)
{
    (void)id;
    (void)memory_mb;
    (void)err;
    json_decref(provisioner->meta);
    provisioner->meta = json_deep_copy(meta);
    return op_new(provisioner, CLAIM, on_done, arg);
}

struct provisioner_op *
provisioner_record(struct provisioner *provisioner, const char *id, const json_t *meta,
                   provisioner_done_fn on_done, void *arg, struct kg_error *err)
{
    return provisioner_claim(provisioner, id, meta, 0, on_done, arg, err);
}

// ---- Fixture --------------------------------------------------------------------------------

struct fixture {
    struct loop *loop;
    struct provisioner provisioner;
    struct sandbox_context context;
    struct link_key link_key;
    struct sandbox *sandbox;
    int n_ready, n_gone, n_exits, n_destroyed, n_claimed;
    bool free_on_gone;
    struct kg_error reason;
    char kernel[64];
    int kernel_pid, exit_code, signal;
    bool oom;
    // Of the last call that ended:
    int n_answers;
    int link;
    json_t *body;
    struct kg_error err;
};

static void
on_ready(struct sandbox *sandbox, void *arg)
{
    struct fixture *f = arg;
    (void)sandbox;
    f->n_ready++;
}

static void
on_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    struct fixture *f = arg;
    f->n_gone++;
    f->reason = *reason;
    if (f->free_on_gone) {
        sandbox_free(sandbox);
        f->sandbox = NULL;
    }
}

static void
on_kernel_exit(struct sandbox *sandbox, const char *kernel, int pid, int exit_code, int signum,
               bool oom, void *arg)
{
    struct fixture *f = arg;
    (void)sandbox;
    f->n_exits++;
    snprintf(f->kernel, sizeof f->kernel, "%s", kernel);
    f->kernel_pid = pid;
    f->exit_code = exit_code;
    f->signal = signum;
    f->oom = oom;
}

static const struct sandbox_events events = {on_ready, on_gone, on_kernel_exit, NULL, NULL, NULL};
static const struct sandbox_spec spec = {.agent_idle_timeout_s = 60,
                                         .ready_timeout_ms = PATIENCE_MS};

static int
setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);

    f->loop = loop_new();
    f->provisioner.loop = f->loop;
    agent_place_make(&f->provisioner.place);
    f->context = (struct sandbox_context){.loop = f->loop, .provisioner = &f->provisioner};
    f->link = -1;
    *state = f;
    return 0;
}

// The same tests with the other door: the agent listens, and the gateway dials it.
static int
setup_tcp(void **state)
{
    static const unsigned char seed[LINK_KEY_LEN] = {7};

    (void)setup(state);
    struct fixture *f = *state;
    f->provisioner.tcp = true;
    f->provisioner.epoch = 1;
    link_key_from_seed(seed, &f->link_key);
    link_key_format(f->link_key.public_key, f->provisioner.key);
    f->context.link_key = &f->link_key;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;

    sandbox_free(f->sandbox);
    end_agent(&f->provisioner);
    if (f->link >= 0)
        close(f->link);
    json_decref(f->body);
    json_decref(f->provisioner.meta);
    loop_free(f->loop);
    agent_place_remove(&f->provisioner.place);
    free(f);
    return 0;
}

static void
create(struct fixture *f)
{
    struct kg_error err = {0};
    f->sandbox = sandbox_create(&f->context, &spec, &events, f, &err);
    assert_non_null(f->sandbox);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_CREATING);
}

static void
create_ready(struct fixture *f)
{
    create(f);
    LET_TIME_RUN_UNTIL(f, f->n_ready == 1);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_READY);
}

static void
on_body(const json_t *body, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->n_answers++;
    json_decref(f->body);
    f->body = body ? json_deep_copy(body) : NULL;
    f->err = err ? *err : (struct kg_error){0};
}

static void
on_link(int fd, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->n_answers++;
    f->link = fd;
    f->err = err ? *err : (struct kg_error){0};
}

static struct sandbox_call *
start_call(struct fixture *f, const char *method, const json_t *params)
{
    struct kg_error err = {0};
    struct sandbox_call *call =
        sandbox_agent_call(f->sandbox, method, params, PATIENCE_MS, on_body, f, &err);
    assert_non_null(call);
    return call;
}

// Returns the code of what came back.
static enum kg_code
call(struct fixture *f, const char *method, const json_t *params)
{
    int before = f->n_answers;
    (void)start_call(f, method, params);
    LET_TIME_RUN_UNTIL(f, f->n_answers > before);
    return f->err.code;
}

static enum kg_code
open_link(struct fixture *f, const char *target)
{
    struct kg_error err = {0};
    int before = f->n_answers;
    assert_non_null(sandbox_open_link(f->sandbox, target, PATIENCE_MS, on_link, f, &err));
    LET_TIME_RUN_UNTIL(f, f->n_answers > before);
    return f->err.code;
}

static void
start_kernel(struct fixture *f, const char *mode)
{
    json_auto_t *body =
        json_pack("{s:s, s:[s, s, s], s:s, s:s}", "name", "python", "argv", KERNEL_PATH, mode,
                  "{connection_file}", "key", "abcd", "cwd", f->provisioner.place.data);
    assert_int_equal(call(f, "kernels.start", body), KG_OK);
}

static char *
door_path(struct fixture *f)
{
    KG_AUTO_FREE char *dir = provisioner_sandbox_dir(&f->provisioner, sandbox_id(f->sandbox));
    return kg_asprintf("%s/door.sock", dir);
}

static int
dial_any(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) == 0)
        return fd;
    close(fd);
    return -1;
}

static int
dial(const char *path)
{
    int fd = dial_any(path);
    if (fd < 0)
        assert_int_equal(errno, EAGAIN);
    return fd;
}

// Whether the other side has closed: what it sent before is read away.
static bool
is_closed(int fd)
{
    char bytes[256];
    ssize_t n;

    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        ;
    return n == 0 || errno == ECONNRESET;
}

// ---- Lines and replies ----------------------------------------------------------------------

static void
test_link_lines(void **state)
{
    struct kg_error err;
    (void)state;

    assert_int_equal(link_hello_check("KG", 2), LINK_HELLO_MORE);
    assert_int_equal(link_hello_check("KGLINK 1\n", 9), LINK_HELLO_DONE);
    assert_int_equal(link_hello_check("KGLINK 2\n", 9), LINK_HELLO_BAD);
    assert_int_equal(link_hello_check("KGLINK 1\nx", 10), LINK_HELLO_BAD);
    assert_int_equal(link_hello_check("KGD", 3), LINK_HELLO_MORE);
    assert_int_equal(link_hello_check("KGDIAL 1\n", 9), LINK_HELLO_DIAL_DONE);
    assert_int_equal(link_hello_check("KGDINK 1\n", 9), LINK_HELLO_BAD);
    assert_int_equal(link_answer_parse("OK", 2, &err), LINK_ANSWER_OK);
    assert_int_equal(link_answer_parse("OK ", 3, &err), LINK_ANSWER_REFUSED);
    assert_int_equal(err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(link_answer_parse("ERR not found: x", 16, &err), LINK_ANSWER_REFUSED);
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_int_equal(link_answer_parse("ERR overtaken: y", 16, &err), LINK_ANSWER_OVERTAKEN);
    assert_int_equal(link_answer_parse("ERR closed: z", 13, &err), LINK_ANSWER_REFUSED);
    assert_int_equal(err.code, KG_PORT_CLOSED);
    assert_string_equal(err.message, "z");
    assert_int_equal(link_answer_parse("ERR \x1b[31mred\0", 13, &err), LINK_ANSWER_REFUSED);
    assert_string_equal(err.message, "?[31mred?");
    assert_false(link_target_valid("a\nb"));
    assert_false(link_target_valid(""));
    assert_true(link_target_valid("python/shell"));
}

static void
test_agent_replies(void **state)
{
    struct kg_error err = {0};
    struct agent_event event;
    (void)state;

    json_auto_t *ok = agent_object_parse("{\"a\":1}", 7, &err);
    assert_int_equal(json_object_size(ok), 1);
    static const char *const no_objects[] = {"", "[]", "{", "{\"a\":1,\"a\":1}"};
    for (size_t i = 0; i < KG_ARRAY_LEN(no_objects); i++)
        assert_null(agent_object_parse(no_objects[i], strlen(no_objects[i]), &err));
    // Little text that would take much memory.
    char *many = kg_calloc(FRAME_RESULT_MAX, 1);
    memset(many, '[', FRAME_RESULT_MAX);
    assert_null(agent_object_parse(many, FRAME_RESULT_MAX, &err));
    memcpy(many, "{\"a\":[", 6);
    for (size_t i = 6; i + 3 < FRAME_RESULT_MAX; i += 3)
        memcpy(many + i, "{},", 3);
    memcpy(many + FRAME_RESULT_MAX - 4, "1]}", 3);
    assert_null(agent_object_parse(many, FRAME_RESULT_MAX, &err));
    free(many);
    static const struct {
        const char *text;
        enum kg_code code;
        const char *message;
    } errors[] = {
        {"{\"code\":\"not_found\",\"error\":\"no\\nsuch\"}", KG_NOT_FOUND, "no?such"},
        {"{\"code\":\"not_found\"}", KG_NOT_FOUND, "no reason given"},
        {"{\"code\":\"draining\",\"error\":\"x\"}", KG_INTERNAL, "the agent failed: x"},
        {"{\"code\":\"unauthorized\",\"error\":\"x\"}", KG_INTERNAL, "the agent failed: x"},
        {"{\"code\":\"session_not_found\",\"error\":\"x\"}", KG_INTERNAL, "the agent failed: x"},
        {"{\"code\":\"rate_limited\",\"error\":\"x\"}", KG_INTERNAL, "the agent failed: x"},
        {"{\"code\":7,\"error\":\"x\"}", KG_INTERNAL, "the agent failed: x"},
        {"<html>", KG_INTERNAL, "the agent failed: no reason given"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(errors); i++) {
        agent_error_parse(errors[i].text, strlen(errors[i].text), &err);
        assert_int_equal(err.code, errors[i].code);
        assert_string_equal(err.message, errors[i].message);
    }

    static const char good[] = "{\"type\":\"kernel_exit\",\"name\":\"python\",\"pid\":7,"
                               "\"exit_code\":-1,\"signal\":9,\"oom\":true}";
    assert_int_equal(agent_event_parse(good, sizeof good - 1, &event, &err), 0);
    assert_string_equal(event.kernel, "python");
    assert_int_equal(event.signal, 9);
    assert_true(event.oom);
    static const char memory[] = "{\"type\":\"memory\",\"bytes\":1048576}";
    assert_int_equal(agent_event_parse(memory, sizeof memory - 1, &event, &err), 0);
    assert_int_equal(event.type, AGENT_MEMORY);
    assert_int_equal(event.memory_bytes, 1 << 20);
    static const char own[] = "{\"type\":\"kernel_memory\",\"name\":\"sp_a\",\"bytes\":4096}";
    assert_int_equal(agent_event_parse(own, sizeof own - 1, &event, &err), 0);
    assert_int_equal(event.type, AGENT_KERNEL_MEMORY);
    assert_string_equal(event.kernel, "sp_a");
    assert_int_equal(event.memory_bytes, 4096);
    static const char *const bad[] = {
        "",
        "{",
        "null",
        "{\"type\":\"kernel_memory\",\"bytes\":1}",
        "{\"type\":\"kernel_memory\",\"name\":\"\",\"bytes\":1}",
        "{\"type\":\"kernel_memory\",\"name\":\"p\",\"bytes\":-1}",
        "{\"type\":\"kernel_exit\"}",
        "{\"type\":\"other\",\"name\":\"p\",\"pid\":7,\"exit_code\":0,\"signal\":0,\"oom\":false}",
        "{\"type\":\"kernel_exit\",\"name\":\"\",\"pid\":7,\"exit_code\":0,\"signal\":0,"
        "\"oom\":false}",
        "{\"type\":\"kernel_exit\",\"name\":\"p\",\"pid\":7,\"exit_code\":999,\"signal\":0,"
        "\"oom\":false}",
        "{\"type\":\"memory\"}",
        "{\"type\":\"memory\",\"bytes\":-1}",
        "{\"type\":\"memory\",\"bytes\":9223372036854775807}",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_int_equal(agent_event_parse(bad[i], strlen(bad[i]), &event, &err), -1);
}

// What it says of a file or folder, and of a name.
static void
test_agent_entries(void **state)
{
    struct kg_error err = {0};
    struct agent_entry entry;
    (void)state;

    json_auto_t *good = json_pack("{s:s, s:I, s:i, s:i}", "type", "dir", "size",
                                  (json_int_t)INT64_MAX, "mtime_ms", -5, "more", 1);
    assert_int_equal(agent_entry_parse(good, &entry, &err), 0);
    assert_string_equal(entry.type, "dir");
    assert_true(entry.size == INT64_MAX && entry.mtime_ms == -5);
    static const char *const bad[] = {
        "{}",
        "{\"type\":\"file\",\"size\":1}",
        "{\"type\":\"file\",\"mtime_ms\":1}",
        "{\"type\":\"file\",\"size\":-1,\"mtime_ms\":1}",
        "{\"type\":\"file\",\"size\":1.5,\"mtime_ms\":1}",
        "{\"type\":\"file\",\"size\":1,\"mtime_ms\":\"1\"}",
        "{\"type\":\"file \",\"size\":1,\"mtime_ms\":1}",
        "{\"type\":1,\"size\":1,\"mtime_ms\":1}",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        json_auto_t *object = json_loads(bad[i], 0, NULL);
        assert_int_equal(agent_entry_parse(object, &entry, &err), -1);
        assert_int_equal(err.code, KG_INTERNAL);
    }
    static const struct {
        const char *text;
        int number;
    } numbers[] = {
        {"{\"number\":0}", 0},      {"{\"number\":9999}", 9999},
        {"{\"number\":10000}", -1}, {"{\"number\":-1}", -1},
        {"{\"number\":\"1\"}", -1}, {"{\"number\":1.0}", -1},
        {"{\"number\":null}", -1},  {"{}", -1},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(numbers); i++) {
        json_auto_t *object = json_loads(numbers[i].text, 0, NULL);
        assert_int_equal(agent_number_parse(object, &err), numbers[i].number);
    }
}

static void
test_frames(void **state)
{
    struct frame frame;
    (void)state;

    static const char whole[] = {FRAME_RESULT, 0, 0, 2, '{', '}', FRAME_HEAD};
    assert_int_equal(frame_read(RPC_GATEWAY, whole, sizeof whole, &frame), 6);
    assert_int_equal(frame.kind, FRAME_RESULT);
    assert_int_equal(frame.len, 2);
    assert_memory_equal(frame.data, "{}", 2);
    for (size_t len = 0; len < 6; len++)
        assert_int_equal(frame_read(RPC_GATEWAY, whole, len, &frame), 0);
    assert_int_equal(frame_read(RPC_AGENT, whole, 1, &frame), -1);
    static const char *const bad[] = {"\0", "\6",         "\377",       "H",
                                      "\1", "\5\0\x10\1", "\3\x10\0\1", "\2\2\0\1"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_int_equal(frame_read(RPC_GATEWAY, bad[i], 4, &frame), -1);
    for (enum frame_kind kind = FRAME_REQUEST; kind < FRAME_N_KINDS; kind++) {
        unsigned char header[FRAME_HEADER_LEN];
        frame_header(kind, 0, header);
        int to_agent = frame_read(RPC_AGENT, (char *)header, sizeof header, &frame);
        int to_gateway = frame_read(RPC_GATEWAY, (char *)header, sizeof header, &frame);
        assert_int_equal(to_agent, kind <= FRAME_DATA ? 4 : -1);
        assert_int_equal(to_gateway, kind >= FRAME_DATA ? 4 : -1);
    }
}

static void
test_command_frames(void **state)
{
    struct agent_output output;
    struct kg_error err;
    (void)state;

    assert_int_equal(agent_output_parse("\1a\0b", 4, &output, &err), 0);
    assert_int_equal(output.kind, AGENT_OUTPUT_STDOUT);
    assert_memory_equal(output.text, "a\0b", output.len);
    assert_int_equal(agent_output_parse("\2\xc3\xa4", 3, &output, &err), 0);
    assert_int_equal(output.kind, AGENT_OUTPUT_STDERR);
    assert_int_equal(agent_output_parse("\3\xff", 2, &output, &err), 0);
    assert_int_equal(output.kind, AGENT_OUTPUT_TERMINAL);
    assert_int_equal(agent_output_parse("\4"
                                        "4096",
                                        5, &output, &err),
                     0);
    assert_int_equal(output.kind, AGENT_OUTPUT_MISSED);
    assert_int_equal(output.missed_bytes, 4096);
    static const char *const bad[] = {"",
                                      "\1",
                                      "a",
                                      "\5a",
                                      "\1\377",
                                      "\1\303",
                                      "\4-1",
                                      "\4"
                                      "1234567890123456789"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_int_equal(agent_output_parse(bad[i], strlen(bad[i]), &output, &err), -1);
}

static void
test_command_starts(void **state)
{
    struct sandbox_command_start start;
    struct kg_error err;
    (void)state;

    json_auto_t *head = json_pack("{s:s, s:i, s:b, s:b, s:i}", "id", "t_1", "pid", 7, "terminal", 1,
                                  "running", 0, "dropped_bytes", 9);
    assert_int_equal(agent_command_start_parse(head, &start, &err), 0);
    assert_string_equal(start.id, "t_1");
    assert_int_equal(start.pid, 7);
    assert_true(start.terminal && !start.running);
    assert_int_equal(start.dropped_bytes, 9);
    json_auto_t *old = json_object(); // of an agent that knows no ids
    assert_int_equal(agent_command_start_parse(old, &start, &err), 0);
    assert_string_equal(start.id, "");
    static const char *const bad[] = {"{\"id\":\"A\"}", "{\"id\":3}", "{\"pid\":-1}",
                                      "{\"dropped_bytes\":-1}", "{\"terminal\":1}"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        json_auto_t *parsed = json_loads(bad[i], 0, NULL);
        assert_int_equal(agent_command_start_parse(parsed, &start, &err), -1);
    }
}

static void
on_destroyed(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->n_destroyed++;
    f->err = err ? *err : (struct kg_error){0};
}

static void
on_claimed(struct sandbox *sandbox, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    assert_ptr_equal(sandbox, f->sandbox);
    f->n_claimed++;
    f->err = err ? *err : (struct kg_error){0};
}

static void
claim(struct fixture *f, const json_t *meta)
{
    struct kg_error err = {0};
    assert_int_equal(sandbox_claim(f->sandbox, meta, 0, on_claimed, f, &err), 0);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_CLAIMING);
}

// ---- A sandbox ------------------------------------------------------------------------------

static void
test_life(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};

    create_ready(f);
    assert_int_equal(strlen(sandbox_id(f->sandbox)), 16);
    assert_int_equal(call(f, "info", NULL), KG_OK);
    assert_int_equal(json_integer_value(json_object_get(f->body, "pid")), f->provisioner.agent);
    json_auto_t *meta = json_pack("{s:s}", "owner", "me");
    claim(f, meta);
    LET_TIME_RUN_UNTIL(f, f->n_claimed == 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_CLAIMED);
    assert_true(json_equal(f->provisioner.meta, meta));
    assert_int_equal(sandbox_claim(f->sandbox, meta, 0, on_claimed, f, &err), -1);
}

// The agent can be asked meanwhile; what is freed or destroyed hears nothing of its claim.
static void
test_slow_claim(void **state)
{
    struct fixture *f = *state;
    json_auto_t *meta = json_object();

    f->provisioner.slow = true;
    create_ready(f);
    claim(f, meta);
    assert_int_equal(call(f, "info", NULL), KG_OK);
    assert_int_equal(f->n_claimed, 0);
    loop_timer_start(f->provisioner.claim->timer, 0);
    LET_TIME_RUN_UNTIL(f, f->n_claimed == 1);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_CLAIMED);
    sandbox_destroy(KG_STEAL(f->sandbox), on_destroyed, f);
    LET_TIME_RUN_UNTIL(f, f->n_destroyed == 1);

    create(f);
    LET_TIME_RUN_UNTIL(f, f->n_ready == 2);
    claim(f, meta);
    sandbox_destroy(KG_STEAL(f->sandbox), on_destroyed, f);
    LET_TIME_RUN_UNTIL(f, f->n_destroyed == 2);
    create(f);
    LET_TIME_RUN_UNTIL(f, f->n_ready == 3);
    claim(f, meta);
    sandbox_on_exit(f->sandbox);
    LET_TIME_RUN_UNTIL(f, f->n_gone == 1);
    assert_int_equal(f->n_claimed, 1);
}

// The container is the other gateway's, and lives on.
static void
test_lost_claim(void **state)
{
    struct fixture *f = *state;
    json_auto_t *meta = json_object();
    struct kg_error err = {0};

    f->provisioner.loses = true;
    create_ready(f);
    claim(f, meta);
    LET_TIME_RUN_UNTIL(f, f->n_claimed == 1);
    assert_int_equal(f->err.code, KG_NOT_FOUND);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_GONE);
    assert_null(f->provisioner.on_exit);
    assert_null(sandbox_open_link(f->sandbox, "agent", 1000, on_link, f, &err));
    sandbox_destroy(KG_STEAL(f->sandbox), on_destroyed, f);
    LET_TIME_RUN_UNTIL(f, f->n_destroyed == 1);
    assert_int_equal(f->provisioner.n_destroyed, 0);
    assert_int_equal(f->n_gone, 0);
}

static void
test_kernel(void **state)
{
    struct fixture *f = *state;
    char text[8] = {0};

    create_ready(f);
    assert_int_equal(open_link(f, "python/shell"), KG_NOT_FOUND);
    assert_int_equal(open_link(f, "python/nonsense"), KG_PROVISIONER_UNAVAILABLE);
    start_kernel(f, "echo");
    while (open_link(f, "python/iopub") != KG_OK)
        assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    // Not a byte of the target's is lost with the answer.
    LET_TIME_RUN_UNTIL(f, recv(f->link, text, 6, MSG_PEEK | MSG_DONTWAIT) == 6);
    assert_string_equal(text, "iopub\n");
    json_auto_t *interrupt = json_pack("{s:s, s:s}", "name", "python", "signal", "INT");
    assert_int_equal(call(f, "kernels.signal", interrupt), KG_OK);
    LET_TIME_RUN_UNTIL(f, f->n_exits == 1);
    assert_string_equal(f->kernel, "python");
    assert_true(f->kernel_pid > 1);
    assert_int_equal(f->exit_code, 42);
    assert_int_equal(f->signal, 0);
    assert_false(f->oom);
    LET_TIME_RUN_UNTIL(f, is_closed(f->link));

    json_auto_t *python = json_pack("{s:s}", "name", "python");
    assert_int_equal(call(f, "kernels.stop", python), KG_OK);
    start_kernel(f, "leave");
    assert_int_equal(call(f, "kernels.start", f->body), KG_INVALID);
    assert_int_equal(call(f, "kernels.stop", python), KG_OK);
    start_kernel(f, "exit");
    LET_TIME_RUN_UNTIL(f, f->n_exits == 2); // the stops were no events
    assert_int_equal(f->exit_code, 3);
}

struct run {
    struct fixture *f;
    struct sandbox_command *command;
    struct buf out, err_out;
    int n_started, n_ends;
    bool cancels; // as soon as anything comes
    struct sandbox_command_result result;
    struct kg_error err;
};

static void
on_command_started(const struct sandbox_command_start *start, void *arg)
{
    assert_true(start->running && start->pid > 0);
    struct run *run = arg;
    run->n_started++;
}

static void
on_command_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct run *run = arg;
    assert_int_equal(run->n_started, 1);
    buf_append(stream == SANDBOX_STDOUT ? &run->out : &run->err_out, text, len);
    if (run->cancels)
        sandbox_command_cancel(KG_STEAL(run->command));
}

static void
on_command_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    struct run *run = arg;
    assert_int_equal(result == NULL, err != NULL);
    run->n_ends++;
    run->command = NULL;
    if (result)
        run->result = *result;
    if (err)
        run->err = *err;
}

static void
start_run(struct fixture *f, struct run *run, const char *command, int64_t timeout_ms)
{
    static const struct sandbox_command_events run_events = {
        .on_started = on_command_started, .on_output = on_command_output, .on_end = on_command_end};
    const struct sandbox_command_spec run_spec = {
        .command = command, .timeout_ms = timeout_ms, .max_output_bytes = 1 << 20};
    run->f = f;
    run->command = sandbox_command_start(f->sandbox, &run_spec, &run_events, run, &run->err);
    assert_non_null(run->command);
    assert_int_equal(run->n_ends, 0);
}

static void
run_fini(struct run *run)
{
    buf_fini(&run->out);
    buf_fini(&run->err_out);
    *run = (struct run){0};
}

static void
test_command(void **state)
{
    struct fixture *f = *state;
    struct run run = {0};

    create_ready(f);
    start_run(f, &run, "echo out; echo err >&2; exit 3", PATIENCE_MS);
    LET_TIME_RUN_UNTIL(f, run.n_ends == 1);
    assert_string_equal(run.out.data, "out\n");
    assert_string_equal(run.err_out.data, "err\n");
    assert_int_equal(run.result.exit_code, 3);
    run_fini(&run);
    start_run(f, &run, "sleep 1000", 50);
    LET_TIME_RUN_UNTIL(f, run.n_ends == 1);
    assert_true(run.result.timed_out);
    assert_int_equal(run.result.signal, SIGTERM);
    run_fini(&run);
    start_run(f, &run, "yes", PATIENCE_MS); // more than was asked for is not sent
    sandbox_command_pause(run.command, true);
    sandbox_command_pause(run.command, false);
    LET_TIME_RUN_UNTIL(f, run.out.len == 1 << 20);
    sandbox_command_cancel(run.command);
    assert_int_equal(run.n_ends, 0);
    run_fini(&run);
    run.cancels = true;
    start_run(f, &run, "echo once; echo twice", PATIENCE_MS);
    LET_TIME_RUN_UNTIL(f, !run.command);
    run.cancels = false;
    run_fini(&run);
    // It ends soon after the agent: here no container ends it.
    start_run(f, &run, "while kill -0 $PPID; do sleep 0.1; done", PATIENCE_MS);
    LET_TIME_RUN_UNTIL(f, run.n_started == 1);
    end_agent(&f->provisioner);
    LET_TIME_RUN_UNTIL(f, run.n_ends == 1);
    assert_int_equal(run.err.code, KG_PROVISIONER_UNAVAILABLE);
    run_fini(&run);
}

// An agent that says what it likes of a command: in a terminal, though none was asked for.
static void
liar_on_frame(const struct frame *frame, void *arg)
{
    static const char head[] = "{\"id\":\"a\",\"pid\":1,\"terminal\":true,\"running\":true}";
    static const char output[] = "\3bytes";
    struct wire **liar = arg;

    assert_int_equal(frame->kind, FRAME_REQUEST);
    wire_send(*liar, FRAME_HEAD, head, strlen(head));
    wire_send(*liar, FRAME_DATA, output, strlen(output));
}

static void
liar_on_end(const struct kg_error *err, void *arg)
{
    struct wire **liar = arg;
    (void)err;
    wire_free(KG_STEAL(*liar));
}

static void
test_command_of_another_kind(void **state)
{
    static const struct wire_events liar_events = {.on_frame = liar_on_frame,
                                                   .on_end = liar_on_end};
    static const struct wire_events idle_events = {.on_frame = liar_on_frame,
                                                   .on_end = liar_on_end};
    struct fixture *f = *state;
    struct run run = {0};
    struct wire *liar;
    int fds[2];

    create_ready(f);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    liar = wire_new(f->loop, fds[1], RPC_AGENT, &liar_events, &liar);
    wire_free(f->sandbox->idle_wire); // the next call goes over the liar's link
    f->sandbox->idle_wire = wire_new(f->loop, fds[0], RPC_GATEWAY, &idle_events, NULL);
    start_run(f, &run, "true", PATIENCE_MS);
    LET_TIME_RUN_UNTIL(f, run.n_ends == 1);
    assert_int_equal(run.err.code, KG_INTERNAL);
    assert_int_equal(run.n_started, 0);
    assert_int_equal(run.out.len, 0);
    LET_TIME_RUN_UNTIL(f, !liar);
    run_fini(&run);
}

// ---- Streamed calls and changes -------------------------------------------------------------

struct stream_reader {
    struct fixture *f;
    struct sandbox_call *call;
    bool pauses; // with the first bytes
    bool cancels_at_head;
    int n_heads, n_ends;
    size_t bytes;
    bool sound; // each byte is what it should be
    json_int_t size;
    struct kg_error err;
};

static void
on_stream_head(const json_t *head, void *arg)
{
    struct stream_reader *reader = arg;

    reader->n_heads++;
    reader->size = json_integer_value(json_object_get(head, "size"));
    if (reader->cancels_at_head)
        sandbox_call_cancel(KG_STEAL(reader->call));
}

static void
on_stream_data(const void *data, size_t len, void *arg)
{
    struct stream_reader *reader = arg;
    const char *bytes = data;

    for (size_t i = 0; i < len; i++)
        reader->sound &= bytes[i] == (char)((reader->bytes + i) % 251);
    reader->bytes += len;
    if (reader->pauses)
        sandbox_stream_pause(reader->call, true);
    reader->pauses = false;
}

static void
on_stream_end(const json_t *result, const struct kg_error *err, void *arg)
{
    struct stream_reader *reader = arg;

    assert_int_equal(result == NULL, err != NULL);
    reader->call = NULL;
    reader->n_ends++;
    if (err)
        reader->err = *err;
}

static void
start_read(struct fixture *f, struct stream_reader *reader, const char *path)
{
    static const struct sandbox_stream_events stream_events = {on_stream_head, on_stream_data,
                                                               on_stream_end};
    json_auto_t *params = json_pack("{s:s}", "path", path);
    const struct sandbox_stream_spec stream_spec = {
        .method = "files.read",
        .params = params,
        .head_timeout_ms = PATIENCE_MS,
        .silence_timeout_ms = PATIENCE_MS,
    };
    struct kg_error err = {0};

    reader->f = f;
    reader->sound = true;
    reader->call = sandbox_agent_stream(f->sandbox, &stream_spec, &stream_events, reader, &err);
    assert_non_null(reader->call);
    assert_int_equal(reader->n_heads + reader->n_ends, 0);
}

// A file of 8 MiB below the working folder.
static void
write_large_file(struct fixture *f)
{
    enum { SIZE = 8 << 20 };
    KG_AUTO_FREE char *path = kg_asprintf("%s/large", f->provisioner.place.data);
    KG_AUTO_FREE char *bytes = kg_calloc(SIZE, 1);

    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i % 251);
    assert_int_equal(file_write_atomic(path, bytes, SIZE, 0600, NULL), 0);
}

static void
test_streams(void **state)
{
    struct fixture *f = *state;
    struct stream_reader reader = {.pauses = true};
    struct stream_reader missing = {0};
    struct stream_reader leaver = {.cancels_at_head = true};

    create_ready(f);
    write_large_file(f);
    start_read(f, &reader, "large");
    LET_TIME_RUN_UNTIL(f, reader.bytes > 0);
    // While it is paused other calls are answered, and nothing of this one comes.
    size_t before = reader.bytes;
    for (int i = 0; i < 20; i++)
        assert_int_equal(call(f, "info", NULL), KG_OK);
    assert_int_equal(reader.bytes, before);
    assert_int_equal(reader.n_ends, 0);
    sandbox_stream_pause(reader.call, false);
    assert_int_equal(reader.bytes, before);
    LET_TIME_RUN_UNTIL(f, reader.n_ends == 1);
    assert_int_equal(reader.bytes, 8 << 20);
    assert_true(reader.sound);
    assert_int_equal(reader.err.code, KG_OK);
    assert_int_equal(reader.size, 8 << 20);
    start_read(f, &missing, "missing");
    LET_TIME_RUN_UNTIL(f, missing.n_ends == 1);
    assert_int_equal(missing.err.code, KG_NOT_FOUND);
    assert_int_equal(missing.n_heads + (int)missing.bytes, 0);
    start_read(f, &leaver, "large");
    LET_TIME_RUN_UNTIL(f, leaver.n_heads == 1);
    assert_int_equal(call(f, "info", NULL), KG_OK);
    assert_int_equal(leaver.n_ends, 0);
}

static void
test_a_stream_ends_with_its_sandbox(void **state)
{
    struct fixture *f = *state;
    struct stream_reader reader = {.pauses = true};

    create_ready(f);
    write_large_file(f);
    start_read(f, &reader, "large");
    LET_TIME_RUN_UNTIL(f, reader.bytes > 0);
    sandbox_free(KG_STEAL(f->sandbox));
    assert_int_equal(reader.n_ends, 1);
    assert_int_equal(reader.err.code, KG_SESSION_NOT_FOUND);
}

// Bytes of a body come from a source that is read piece by piece.
static size_t
read_pattern(void *to, size_t len, void *arg)
{
    size_t *at = arg;
    char *bytes = to;

    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)((*at + i) % 251);
    *at += len;
    return len;
}

static void
start_write(struct fixture *f, const char *path, struct sandbox_body body)
{
    static const struct sandbox_stream_events write_events = {.on_end = on_body};
    json_auto_t *params = json_pack("{s:s, s:b}", "path", path, "keep", 1);
    const struct sandbox_stream_spec write_spec = {
        .method = "files.write", .params = params, .body = body, .head_timeout_ms = PATIENCE_MS};
    struct kg_error err = {0};
    assert_non_null(sandbox_agent_stream(f->sandbox, &write_spec, &write_events, f, &err));
}

static void
test_bodies(void **state)
{
    enum { LEN = (8 << 20) + 3 };
    struct fixture *f = *state;
    struct stream_reader reader = {0};
    size_t at = 0;

    create_ready(f);
    int before = f->n_answers;
    start_write(f, "empty", (struct sandbox_body){0});
    LET_TIME_RUN_UNTIL(f, f->n_answers == before + 1);
    assert_int_equal(f->err.code, KG_OK);
    start_write(f, "a/large", (struct sandbox_body){.read = read_pattern, .arg = &at, .len = LEN});
    assert_int_equal(at, 0);
    LET_TIME_RUN_UNTIL(f, f->n_answers == before + 2);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(json_integer_value(json_object_get(f->body, "size")), LEN);
    start_read(f, &reader, "a/large");
    LET_TIME_RUN_UNTIL(f, reader.n_ends == 1);
    assert_int_equal(reader.bytes, LEN);
    assert_true(reader.sound);
    // One that the agent refuses is not sent to its end.
    at = 0;
    start_write(f, "a/large", (struct sandbox_body){.read = read_pattern, .arg = &at, .len = LEN});
    LET_TIME_RUN_UNTIL(f, f->n_answers == before + 3);
    assert_int_equal(f->err.code, KG_FILE_EXISTS);
    assert_true(at < LEN);
    assert_int_equal(call(f, "info", NULL), KG_OK);
}

static struct sandbox_call *
ask_changes(struct fixture *f, const char *cursor, int64_t timeout_ms)
{
    json_auto_t *params = json_pack("{s:s, s:i}", "cursor", cursor, "within_us", 60 * 1000000);
    struct kg_error err = {0};
    struct sandbox_call *asked =
        sandbox_agent_call(f->sandbox, "changes", params, timeout_ms, on_body, f, &err);
    assert_non_null(asked);
    return asked;
}

static void
test_changes(void **state)
{
    struct fixture *f = *state;

    create_ready(f);
    write_large_file(f);
    int before = f->n_answers;
    // Two at a time: each gets its own answer.
    (void)ask_changes(f, "deno", PATIENCE_MS);
    (void)ask_changes(f, "python", PATIENCE_MS);
    assert_int_equal(f->n_answers, before);
    LET_TIME_RUN_UNTIL(f, f->n_answers == before + 2);
    assert_int_equal(json_array_size(json_object_get(f->body, "files")), 1);
    // One that is given up on its way does not answer for the next.
    sandbox_call_cancel(ask_changes(f, "other", PATIENCE_MS));
    (void)ask_changes(f, "python", PATIENCE_MS);
    LET_TIME_RUN_UNTIL(f, f->n_answers == before + 3);
    assert_int_equal(json_array_size(json_object_get(f->body, "files")), 0);
    (void)ask_changes(f, "bad name", PATIENCE_MS);
    LET_TIME_RUN_UNTIL(f, f->n_answers == before + 4);
    assert_int_equal(f->err.code, KG_INVALID);
    // An agent that says nothing costs the answer.
    assert_int_equal(kill(f->provisioner.agent, SIGSTOP), 0);
    (void)ask_changes(f, "python", 20);
    LET_TIME_RUN_UNTIL(f, f->n_answers == before + 5);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(kill(f->provisioner.agent, SIGCONT), 0);
    (void)ask_changes(f, "python", PATIENCE_MS);
    LET_TIME_RUN_UNTIL(f, f->n_answers == before + 6);
    assert_int_equal(f->err.code, KG_OK);
    (void)ask_changes(f, "python", PATIENCE_MS);
    sandbox_free(KG_STEAL(f->sandbox));
    assert_int_equal(f->n_answers, before + 7);
    assert_int_equal(f->err.code, KG_SESSION_NOT_FOUND);
}

static void
test_many_calls(void **state)
{
    struct fixture *f = *state;

    create_ready(f);
    // More at once than there are links, and more in all than the pace of accepts allows a
    // stranger: 50 at once, and the others as time passes, which it does not here.
    for (int i = 0; i < 300; i++)
        (void)start_call(f, "info", NULL);
    WAIT_FOR(f, f->n_answers == 300);
    assert_non_null(f->body);
}

static void
test_strangers_at_the_door(void **state)
{
    struct fixture *f = *state;

    create_ready(f);
    KG_AUTO_FREE char *path = door_path(f);
    int status;
    pid_t stranger = fork();
    if (stranger == 0) {
        // Not the agent's process: claims to be it, and holds on.
        int held[100];
        memset(held, -1, sizeof held);
        for (size_t i = 0; i < 1000; i++) {
            int *fd = &held[i % KG_ARRAY_LEN(held)];
            close(*fd);
            while ((*fd = dial_any(path)) < 0)
                ;
            (void)!send(*fd, "KGLINK 1\n", 9, MSG_NOSIGNAL);
        }
        _exit(0);
    }
    LET_TIME_RUN_UNTIL(f, waitpid(stranger, &status, WNOHANG) == stranger);
    assert_int_equal(status, 0);
    for (int i = 0; i < 30; i++)
        assert_int_equal(call(f, "info", NULL), KG_OK);
    assert_int_equal(f->n_gone, 0);
}

static void
test_agent_killed(void **state)
{
    struct fixture *f = *state;

    create_ready(f);
    start_kernel(f, "echo");
    while (open_link(f, "python/shell") != KG_OK)
        ;
    int before = f->n_answers;
    kill(f->provisioner.agent, SIGSTOP);
    for (int i = 0; i < 3; i++)
        (void)start_call(f, "info", NULL);
    end_agent(&f->provisioner);
    // The container is still there: a call that has no link fails when none has come for 10 s.
    virtual_clock_advance(f->loop, 9999);
    assert_true(f->n_answers < before + 3);
    virtual_clock_advance(f->loop, 1);
    assert_int_equal(f->n_answers, before + 3);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(f->n_gone, 0);
    LET_TIME_RUN_UNTIL(f, is_closed(f->link));

    // And now it is not.
    (void)start_call(f, "info", NULL);
    f->free_on_gone = true;
    f->provisioner.on_exit(f->provisioner.id, f->provisioner.arg);
    LET_TIME_RUN_UNTIL(f, f->n_gone == 1);
    assert_int_equal(f->n_answers, before + 4); // failed before
    assert_string_equal(f->err.message, "the sandbox's container has ended");
}

static void
test_creation_fails(void **state)
{
    struct fixture *f = *state;

    f->provisioner.fails = true;
    create(f);
    LET_TIME_RUN_UNTIL(f, f->n_gone == 1);
    assert_string_equal(f->reason.message, "no container today");
    assert_int_equal(f->n_ready, 0);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_GONE);
    struct kg_error err = {0};
    assert_null(sandbox_agent_call(f->sandbox, "info", NULL, 1000, on_body, f, &err));
    assert_int_equal(err.code, KG_PROVISIONER_UNAVAILABLE);
}

static void
test_agent_never_dials(void **state)
{
    struct fixture *f = *state;
    const struct sandbox_spec hasty = {.agent_idle_timeout_s = 60, .ready_timeout_ms = 50};
    struct kg_error err = {0};

    f->provisioner.silent = true;
    f->sandbox = sandbox_create(&f->context, &hasty, &events, f, &err);
    LET_TIME_RUN_UNTIL(f, f->n_gone == 1 && f->provisioner.n_destroyed == 1);
    assert_int_equal(f->reason.code, KG_PROVISIONER_UNAVAILABLE);
}

static void
test_what_it_waited_for_is_told(void **state)
{
    struct fixture *f = *state;
    const struct sandbox_spec hasty = {.agent_idle_timeout_s = 60, .ready_timeout_ms = 50};
    struct kg_error err = {0};

    f->provisioner.pulls = true;
    f->sandbox = sandbox_create(&f->context, &hasty, &events, f, &err);
    LET_TIME_RUN_UNTIL(f, f->n_gone == 1 && f->provisioner.n_destroyed == 1);
    assert_string_equal(f->reason.message, "the image is being pulled");
}

static void
test_destroy(void **state)
{
    struct fixture *f = *state;

    create_ready(f);
    (void)start_call(f, "info", NULL);
    sandbox_destroy(KG_STEAL(f->sandbox), on_destroyed, f);
    assert_int_equal(f->n_destroyed, 0);
    assert_int_equal(f->n_answers, 1); // the call under way has failed
    assert_int_equal(f->err.code, KG_SESSION_NOT_FOUND);
    LET_TIME_RUN_UNTIL(f, f->n_destroyed == 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->provisioner.n_destroyed, 1);
    assert_int_equal(f->n_answers, 1);
    assert_int_equal(f->n_gone, 0);

    f->provisioner.refuses = true;
    create(f); // also one that is still being made
    sandbox_destroy(KG_STEAL(f->sandbox), on_destroyed, f);
    assert_int_equal(f->n_destroyed, 1);
    LET_TIME_RUN_UNTIL(f, f->n_destroyed == 2);
    assert_string_equal(f->err.message, "no destruction today");
}

static void
test_freed_in_the_middle(void **state)
{
    struct fixture *f = *state;

    create_ready(f);
    struct sandbox_call *cancelled = start_call(f, "info", NULL);
    for (int i = 0; i < 5; i++)
        (void)start_call(f, "files.list", NULL);
    loop_turn(f->loop);
    if (f->n_answers == 0)
        sandbox_call_cancel(cancelled);
    sandbox_free(KG_STEAL(f->sandbox));
    int answers = f->n_answers;
    for (int i = 0; i < 20; i++)
        loop_turn(f->loop);
    assert_int_equal(f->n_answers, answers);
}

static void
test_taken_up_again(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};

    create_ready(f);
    start_kernel(f, "echo");
    KG_AUTO_FREE char *id = kg_strdup(sandbox_id(f->sandbox));
    assert_non_null(f->provisioner.on_exit);
    sandbox_free(KG_STEAL(f->sandbox)); // the gateway ends; the container lives on
    assert_null(f->provisioner.on_exit);
    f->sandbox = sandbox_adopt(&f->context, id, true, &spec, &events, f, &err);
    assert_non_null(f->sandbox);
    LET_TIME_RUN_UNTIL(f, f->n_ready == 2);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_CLAIMED);
    while (open_link(f, "python/shell") != KG_OK)
        ;
    sandbox_on_exit(f->sandbox);
    LET_TIME_RUN_UNTIL(f, f->n_gone == 1);
}

// ---- An agent that is none -------------------------------------------------------------------

// Waits until the gateway has asked for the agent on one more link.
static int
pretend_link(struct fixture *f, const char *path)
{
    char line[16] = {0};
    int fd = dial(path);

    assert_int_equal(send(fd, LINK_HELLO, LINK_HELLO_LEN, MSG_NOSIGNAL), LINK_HELLO_LEN);
    LET_TIME_RUN_UNTIL(f, recv(fd, line, sizeof line, MSG_DONTWAIT) > 0);
    assert_string_equal(line, RPC_TARGET "\n");
    return fd;
}

static void
say(int fd, enum frame_kind kind, const char *text)
{
    unsigned char header[FRAME_HEADER_LEN];
    KG_AUTO_BUF bytes = {0};

    frame_header(kind, strlen(text), header);
    buf_append(&bytes, header, sizeof header);
    buf_append_str(&bytes, text);
    (void)!send(fd, bytes.data, bytes.len, MSG_NOSIGNAL);
}

// Waits for a request as well.
static int
pretend_agent(struct fixture *f, const char *path)
{
    char request[1024];
    int fd = pretend_link(f, path);

    assert_int_equal(send(fd, "OK\n", 3, MSG_NOSIGNAL), 3);
    LET_TIME_RUN_UNTIL(f, recv(fd, request, sizeof request, MSG_DONTWAIT) > 0);
    return fd;
}

static void
flood(struct fixture *f, int fd)
{
    char junk[4096];
    memset(junk, FRAME_DATA, sizeof junk);
    LET_TIME_RUN_UNTIL(f, send(fd, junk, sizeof junk, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
                              errno != EAGAIN);
}

static void
test_pretended_agent(void **state)
{
    static const char event[] = "{\"type\":\"kernel_exit\",\"name\":\"python\",\"pid\":7,"
                                "\"exit_code\":-1,\"signal\":9,\"oom\":true}";
    struct fixture *f = *state;

    f->provisioner.silent = true;
    create(f);
    KG_AUTO_FREE char *path = door_path(f);
    // The link of the first call serves the second, which is that of the events.
    KG_AUTO_FD events_fd = pretend_agent(f, path);
    say(events_fd, FRAME_RESULT, "{}");
    LET_TIME_RUN_UNTIL(f, f->n_ready == 1);
    say(events_fd, FRAME_HEAD, "{}");
    say(events_fd, FRAME_DATA, event);
    LET_TIME_RUN_UNTIL(f, f->n_exits == 1);
    assert_true(f->oom);
    assert_int_equal(f->kernel_pid, 7);
    assert_int_equal(sandbox_memory(f->sandbox), -1);
    say(events_fd, FRAME_DATA, "{\"type\":\"memory\",\"bytes\":4096}");
    LET_TIME_RUN_UNTIL(f, sandbox_memory(f->sandbox) == 4096);
    assert_int_equal(f->n_exits, 1);
    say(events_fd, FRAME_DATA, "nonsense");
    LET_TIME_RUN_UNTIL(f, is_closed(events_fd));

    // The stream is opened again, and goes on there: what follows is for the calls.
    KG_AUTO_FD events_again = pretend_agent(f, path);
    say(events_again, FRAME_HEAD, "{}");
    static const struct {
        enum frame_kind kind;
        const char *text;
        const char *message;
    } answers[] = {
        {FRAME_HEAD, "{}", "the agent answers out of turn"},
        {FRAME_DATA, "{}", "the agent answers out of turn"},
        {FRAME_RESULT, "[]", "the agent's answer is not a JSON object"},
        {FRAME_ERROR, "", "the agent failed: no reason given"},
    };
    int n = 0;
    for (size_t i = 0; i < KG_ARRAY_LEN(answers); i++) {
        (void)start_call(f, "info", NULL);
        KG_AUTO_FD fd = pretend_agent(f, path);
        say(fd, answers[i].kind, answers[i].text);
        n++;
        LET_TIME_RUN_UNTIL(f, f->n_answers == n);
        assert_string_equal(f->err.message, answers[i].message);
        say(fd, FRAME_RESULT, "{}"); // nobody asked: the link does not serve another call
        LET_TIME_RUN_UNTIL(f, is_closed(fd));
    }
    (void)start_call(f, "info", NULL);
    KG_AUTO_FD body = pretend_agent(f, path);
    flood(f, body);
    n++;
    LET_TIME_RUN_UNTIL(f, f->n_answers == n);
    assert_non_null(strstr(f->err.message, "malformed frame"));

    (void)start_call(f, "info", NULL);
    KG_AUTO_FD answer = pretend_link(f, path);
    flood(f, answer);
    n++;
    LET_TIME_RUN_UNTIL(f, f->n_answers == n);
    assert_int_not_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_exits, 1);
}

static int
send_buffer_of(int fd)
{
    socklen_t len = sizeof(int);
    int bytes;

    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len), 0);
    return bytes;
}

// What an agent does not take is not read from a body's source: only what the link keeps is.
static void
test_a_body_waits_for_its_agent(void **state)
{
    enum { LEN = 16 << 20 };
    struct fixture *f = *state;
    size_t at = 0, before;

    f->provisioner.silent = true;
    create(f);
    KG_AUTO_FREE char *path = door_path(f);
    KG_AUTO_FD events_fd = pretend_agent(f, path);
    say(events_fd, FRAME_RESULT, "{}");
    LET_TIME_RUN_UNTIL(f, f->n_ready == 1);
    say(events_fd, FRAME_HEAD, "{}");
    start_write(f, "large", (struct sandbox_body){.read = read_pattern, .arg = &at, .len = LEN});
    KG_AUTO_FD fd = pretend_agent(f, path);
    do {
        before = at;
        for (int i = 0; i < 20; i++)
            loop_turn(f->loop);
    } while (at != before);
    assert_in_range(at, 1, FRAME_DATA_MAX + WIRE_LOW + send_buffer_of(fd));
    static char taken[1 << 20];
    LET_TIME_RUN_UNTIL(f, read(fd, taken, sizeof taken) >= 0 && at == LEN);
    say(fd, FRAME_RESULT, "{}");
    LET_TIME_RUN_UNTIL(f, f->n_answers == 1);
    assert_int_equal(f->err.code, KG_OK);
}

// An agent of kernelgate 0.2 is still there after an upgrade: it refuses the target.
static void
test_agent_of_another_version(void **state)
{
    struct fixture *f = *state;

    f->provisioner.silent = true;
    create(f);
    KG_AUTO_FREE char *path = door_path(f);
    KG_AUTO_FD fd = pretend_link(f, path);
    assert_int_equal(send(fd, "ERR bad target\n", 15, MSG_NOSIGNAL), 15);
    LET_TIME_RUN_UNTIL(f, f->n_gone == 1);
    assert_int_equal(f->reason.code, KG_PROVISIONER_UNAVAILABLE);
    assert_non_null(strstr(f->reason.message, "another version of kernelgate"));
}

// ---- Another gateway -------------------------------------------------------------------------

// The one that was overtaken learns it from the agent, at its next link, and leaves the container
// alone; the other one works with it.
static void
test_overtaken(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};

    create_ready(f);
    struct provisioner elsewhere = f->provisioner;
    struct sandbox_context context = f->context;
    elsewhere.epoch = 2;
    context.provisioner = &elsewhere;
    KG_AUTO(sandbox)
    second = sandbox_adopt(&context, sandbox_id(f->sandbox), false, &spec, &events, f, &err);
    assert_non_null(second);
    // The first one's event stream was cut, and is not opened again.
    LET_TIME_RUN_UNTIL(f, f->n_ready == 2 && f->n_gone == 1);
    assert_string_equal(f->reason.message, "another gateway has taken the sandbox over");
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_GONE);
    sandbox_destroy(KG_STEAL(f->sandbox), on_destroyed, f);
    LET_TIME_RUN_UNTIL(f, f->n_destroyed == 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->provisioner.n_destroyed, 0);
    f->sandbox = KG_STEAL(second);
    assert_int_equal(call(f, "info", NULL), KG_OK);
    assert_int_equal(f->n_gone, 1);
    sandbox_free(KG_STEAL(f->sandbox));
}

// Another gateway takes the container while it is being claimed here: the claim's answer says so,
// and not the end of the sandbox.
static void
test_overtaken_while_it_is_claimed(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    json_auto_t *meta = json_object();

    f->provisioner.slow = f->provisioner.loses = true;
    create_ready(f);
    claim(f, meta);
    struct provisioner elsewhere = f->provisioner;
    struct sandbox_context context = f->context;
    elsewhere.epoch = 2;
    context.provisioner = &elsewhere;
    KG_AUTO(sandbox)
    second = sandbox_adopt(&context, sandbox_id(f->sandbox), false, &spec, &events, f, &err);
    assert_non_null(second);
    LET_TIME_RUN_UNTIL(f, f->n_ready == 2 && f->sandbox->overtaken);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_CLAIMING);
    loop_timer_start(f->provisioner.claim->timer, 0);
    LET_TIME_RUN_UNTIL(f, f->n_claimed == 1);
    assert_int_equal(f->err.code, KG_NOT_FOUND);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_GONE);
    assert_true(sandbox_is_lost(f->sandbox));
    assert_int_equal(f->n_gone, 0);
    sandbox_destroy(KG_STEAL(f->sandbox), on_destroyed, f);
    LET_TIME_RUN_UNTIL(f, f->n_destroyed == 1);
    assert_int_equal(f->provisioner.n_destroyed, 0);
    f->sandbox = KG_STEAL(second);
    sandbox_free(KG_STEAL(f->sandbox));
}

// The container was elsewhere for a moment: what worked with it here ends without touching it.
static void
test_it_comes_back(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    struct living_sandboxes living = {0};

    f->context.living = &living;
    create_ready(f);
    f->provisioner.epoch = 3;
    KG_AUTO(sandbox)
    again = sandbox_adopt(&f->context, sandbox_id(f->sandbox), false, &spec, &events, f, &err);
    assert_non_null(again);
    assert_int_equal(sandbox_state(f->sandbox), SANDBOX_GONE);
    assert_true(sandbox_is_lost(f->sandbox) && !sandbox_is_lost(again));
    LET_TIME_RUN_UNTIL(f, f->n_ready == 2 && f->n_gone == 1);
    assert_string_equal(f->reason.message, "another gateway has taken the sandbox over");
    sandbox_destroy(KG_STEAL(f->sandbox), on_destroyed, f);
    LET_TIME_RUN_UNTIL(f, f->n_destroyed == 1);
    assert_int_equal(f->provisioner.n_destroyed, 0);
    assert_non_null(f->provisioner.on_exit); // that of the new one
    f->sandbox = KG_STEAL(again);
    assert_int_equal(call(f, "info", NULL), KG_OK);
    sandbox_free(KG_STEAL(f->sandbox));
}

// One that comes back with an old epoch takes nothing up, and destroys nothing.
static void
test_late_gateway(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};

    f->provisioner.epoch = 2;
    create_ready(f);
    KG_AUTO_FREE char *id = kg_strdup(sandbox_id(f->sandbox));
    sandbox_free(KG_STEAL(f->sandbox));
    f->provisioner.epoch = 1;
    f->sandbox = sandbox_adopt(&f->context, id, false, &spec, &events, f, &err);
    LET_TIME_RUN_UNTIL(f, f->n_gone == 1);
    assert_string_equal(f->reason.message, "another gateway has taken the sandbox over");
    assert_int_equal(f->n_ready, 1);
    assert_int_equal(f->provisioner.n_destroyed, 0);
}

#define ON_BOTH_DOORS(test)                                                                        \
    cmocka_unit_test_setup_teardown(test, setup, teardown),                                        \
    {                                                                                              \
#test " over TCP", test, setup_tcp, teardown, NULL                                         \
    }

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link_lines),
        cmocka_unit_test(test_agent_replies),
        cmocka_unit_test(test_agent_entries),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_command_frames),
        cmocka_unit_test(test_command_starts),
        ON_BOTH_DOORS(test_life),
        cmocka_unit_test_setup_teardown(test_slow_claim, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_claim, setup, teardown),
        ON_BOTH_DOORS(test_kernel),
        ON_BOTH_DOORS(test_command),
        ON_BOTH_DOORS(test_command_of_another_kind),
        ON_BOTH_DOORS(test_streams),
        ON_BOTH_DOORS(test_a_stream_ends_with_its_sandbox),
        ON_BOTH_DOORS(test_bodies),
        ON_BOTH_DOORS(test_changes),
        ON_BOTH_DOORS(test_many_calls),
        cmocka_unit_test_setup_teardown(test_strangers_at_the_door, setup, teardown),
        ON_BOTH_DOORS(test_agent_killed),
        ON_BOTH_DOORS(test_creation_fails),
        ON_BOTH_DOORS(test_agent_never_dials),
        cmocka_unit_test_setup_teardown(test_what_it_waited_for_is_told, setup, teardown),
        ON_BOTH_DOORS(test_destroy),
        ON_BOTH_DOORS(test_freed_in_the_middle),
        ON_BOTH_DOORS(test_taken_up_again),
        cmocka_unit_test_setup_teardown(test_pretended_agent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_body_waits_for_its_agent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overtaken, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(test_overtaken_while_it_is_claimed, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(test_it_comes_back, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(test_late_gateway, setup_tcp, teardown),
        cmocka_unit_test_setup_teardown(test_agent_of_another_version, setup, teardown),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
