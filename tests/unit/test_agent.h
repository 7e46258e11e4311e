// SPDX-License-Identifier: Apache-2.0
// The agent as a real process behind a door that the test holds; failures end the test.
#pragma once

#include <jansson.h>
#include <sys/stat.h>

#include "agent_process.h"
#include "base.h"
#include "loop_wait.h"
#include "rpc.h"

struct fixture {
    struct agent_place place;
    char door[108];
    int listener;
    pid_t agent;
};

int agent_setup(void **state);
int agent_teardown(void **state);

// Of a folder, hidden ones too.
int count_entries(const char *dir);

// Writes a file below the working folder, and the folders on the way.
void write_text(const struct agent_place *place, const char *name, const char *text);
// The whole path of a name below the working folder; the caller frees it.
char *inside(const struct agent_place *place, const char *name);
// What has that name; its st_mode is 0 where there is nothing.
struct stat look(const struct agent_place *place, const char *name);
void assert_content(const struct agent_place *place, const char *name, const char *text);

// Descriptors.
void wait_readable(int fd);
void read_line(int fd, char *ret, size_t size);
void read_all(int fd, struct buf *ret);

// The next link, past its hello.
int accept_link(struct fixture *f);
// Returns the link where the answer is OK, else -1 with the answer.
int open_target(struct fixture *f, const char *target, char answer[128]);
// Sends a request, and nothing of its body; `params` is JSON.
int send_request(struct fixture *f, const char *method, const char *params, size_t body_len);
void send_frame(int fd, enum frame_kind kind, const void *data, size_t len);
// The next frame's content, NUL-terminated; returns its kind, or FRAME_N_KINDS where the link has
// ended.
enum frame_kind read_frame(int fd, struct buf *ret);
// The result of a call, or what its error says; `expected` is its code.
json_t *read_result(int fd, enum kg_code expected);
json_t *call(struct fixture *f, const char *method, const char *params, enum kg_code expected);
void do_call(struct fixture *f, const char *method, const char *params, enum kg_code expected);
const char *text_of(const json_t *object, const char *key);
int number_of(const json_t *object, const char *key);

// The parameters that start inside_kernel in a mode.
char *kernel_spec(struct fixture *f, const char *name, const char *mode, const char *transport);
void start_kernel(struct fixture *f, const char *name, const char *mode, const char *transport);
// A channel, as soon as the kernel listens on it.
int open_kernel(struct fixture *f, const char *target);
// Every channel of an `echo` kernel answers.
void check_channels(struct fixture *f, const char *kernel);

// Commands with ids (test_agent_streams.c).

// The answer of commands.run and commands.join, as far as it was read. Zero but for `fd`.
struct stream {
    int fd;
    json_t *head, *end;
    struct buf out, err; // `out`: of a terminal, too
    unsigned streams;    // a bit for each kind of data that came
    int n_frames;
    int64_t dropped;
    size_t after_drop; // of `out`, where it went on after the last drop
};

// Both read the head; `more` is further parameters, whose reference is taken, or NULL.
struct stream stream_start(struct fixture *f, const char *script, json_t *more);
struct stream stream_join(struct fixture *f, const char *id, bool hold);
// One frame. Returns whether more follow.
bool stream_read(struct stream *stream);
// Up to this output.
void stream_until(struct stream *stream, const char *text);
void stream_finish(struct stream *stream);
void stream_fini(struct stream *stream);
// Starts a script that is kept and has nobody who reads; returns its pid.
pid_t detach(struct fixture *f, const char *id, const char *script, json_t *more);
// A call whose parameters are the id and, as text that begins with a comma, `more`.
void id_call(struct fixture *f, const char *method, const char *id, const char *more,
             enum kg_code code);
void input_bytes(struct fixture *f, const char *id, const char *data, size_t len,
                 enum kg_code code);
void input(struct fixture *f, const char *id, const char *text);
// The command in commands.list, or NULL.
json_t *listed(struct fixture *f, const char *id);
void wait_until_ended(struct fixture *f, const char *id);
void wait_until_gone(pid_t pid);
pid_t read_pid(struct fixture *f, const char *name);

// Tests of other files.
void test_command(void **state);
void test_command_note(void **state);
void test_command_text(void **state);
void test_command_timeout(void **state);
void test_command_caller_gone(void **state);
void test_command_background(void **state);
void test_command_and_kernels(void **state);
void test_command_output_bound(void **state);
void test_command_held_back(void **state);
void test_command_refused(void **state);
void test_files_pages(void **state);
void test_files_list_refuses(void **state);
void test_files_open(void **state);
void test_files_write(void **state);
void test_files_etag(void **state);
void test_changes(void **state);
void test_changes_are_bounded_in_time_and_number(void **state);
void test_changes_call(void **state);
void test_files_calls(void **state);
void test_files_own(void **state);
void test_files_read(void **state);
void test_entries_stat(void **state);
void test_entries_second_name(void **state);
void test_entries_mkdir(void **state);
void test_entries_move(void **state);
void test_entries_move_replaces(void **state);
void test_entries_rename_where_the_system_cannot(void **state);
void test_entries_unused(void **state);
void test_entries_append(void **state);
void test_entries_append_to_a_full_disk(void **state);
void test_entries_hostile_paths(void **state);
void test_entries_permissions(void **state);
void test_entries_calls(void **state);
void test_entries_calls_refuse(void **state);
void test_append_call(void **state);
void test_watch(void **state);
void test_watch_ends(void **state);
void test_watch_bounds(void **state);
void test_files_by_whole_paths(void **state);
void test_copy_file(void **state);
void test_copy_folder(void **state);
void test_copy_refuses(void **state);
void test_copy_is_bounded(void **state);
void test_copy_of_what_changes(void **state);
void test_copy_call(void **state);
void test_copies_whose_callers_leave(void **state);
void test_mirror_makes_equal(void **state);
void test_mirror_changes_in_place(void **state);
void test_mirror_holes(void **state);
void test_mirror_is_bounded(void **state);
void test_data_kept_and_put_back(void **state);
void test_data_whose_callers_leave(void **state);
void test_tenant_request(void **state);
void test_tenant_refuses(void **state);
void test_tenant_is_bounded(void **state);
void test_tenant_ended_requests_count(void **state);
void test_tenant_slow_reader(void **state);
void test_tenant_tools(void **state);
void test_tenant_many_callers(void **state);
void test_tenant_gateway_lost(void **state);
void test_replay(void **state);
void test_replay_bounds(void **state);
void test_process_ids(void **state);
void test_process_refused(void **state);
void test_process_detached(void **state);
void test_process_keep(void **state);
void test_process_replay(void **state);
void test_process_readers(void **state);
void test_process_slow_reader(void **state);
void test_process_hold(void **state);
void test_process_input(void **state);
void test_process_input_bound(void **state);
void test_process_input_ends(void **state);
void test_process_signals(void **state);
void test_process_times(void **state);
void test_process_known(void **state);
void test_process_limits(void **state);
void test_process_descriptors(void **state);
void test_terminal(void **state);
void test_terminal_resize(void **state);
void test_terminal_keys(void **state);
void test_terminal_jobs(void **state);
void test_terminal_raw(void **state);
void test_terminal_background(void **state);
void test_terminal_closed(void **state);
void test_terminal_input(void **state);
void test_terminal_limits(void **state);
void test_terminal_refused(void **state);

// Ports (test_agent_ports.c).

void test_port_targets(void **state);
void test_port_links(void **state);
void test_port_refused(void **state);
void test_port_silent(void **state);
void test_port_call(void **state);
void test_port_list(void **state);
