// SPDX-License-Identifier: Apache-2.0
// The kernels of a sandbox: at most one of a name.
#pragma once

#include <jansson.h>

#include "children.h"
#include "commands.h"
#include "events.h"
#include "target.h"

struct kernels;

struct kernels_settings {
    struct loop *loop;
    struct children *children;
    struct events *events;
    const struct commands *commands; // whose processes are not the kernels'
    const char *tmp_dir;
    const char *cgroup_root;
    // The kernel's process has ended.
    void (*finish_links)(const char *kernel, void *arg);
    // What it left behind is gone, too.
    void (*close_links)(const char *kernel, void *arg);
    void *arg;
};

struct kernels *kernels_new(const struct kernels_settings *settings);
// Kills them all, and every other process of the sandbox.
void kernels_free(struct kernels *kernels);

// All borrowed. `{connection_file}` in argv becomes its path.
struct kernel_spec {
    const char *name;
    const char *stem;        // of its folder's name; NULL: its own name
    const char *const *argv; // NULL-terminated
    json_t *env;             // an object of strings, added to the agent's own; or NULL
    const char *cwd;
    const char *key;
    bool tcp;
};

// KG_FILE_EXISTS where a kernel of that name runs, or is expected.
KG_MUST_CHECK int kernels_start(struct kernels *kernels, const struct kernel_spec *spec,
                                struct kg_error *err);
// The same for a kernel, or a savepoint of one, that is forked elsewhere: outside, from where it
// enters the sandbox, or by a kernel or savepoint in it. kernels_expect() makes its
// connection file and a FIFO for its output, in the folder whose name has `stem` and `id`
// (CONNECTION_ID_LEN); `argv`, `env` and `cwd` are not used. Then kernels_admit() says which child
// of the agent the kernel is. Until then the kernel is not running.
KG_MUST_CHECK int kernels_expect(struct kernels *kernels, const struct kernel_spec *spec,
                                 const char *id, struct kg_error *err);
// Borrowed; NULL where there is none of that name.
const char *kernels_connection_file(struct kernels *kernels, const char *name);
KG_MUST_CHECK int kernels_admit(struct kernels *kernels, const char *name, pid_t pid,
                                struct kg_error *err);
// Whether a kernel of that name is expected, and was not admitted. It may have come in all the
// same, for a gateway that has ended meanwhile: before another start of that name it is to be
// stopped.
bool kernels_expects(struct kernels *kernels, const char *name);
// To the kernel's process group.
KG_MUST_CHECK int kernels_signal(struct kernels *kernels, const char *name, int signum,
                                 struct kg_error *err);
// `stopped` is false where another stop of the same kernel took this one's place.
typedef void (*kernel_stopped_fn)(bool stopped, void *arg);
// Kills the kernel and whatever it left behind, closes its links, removes its files; then `fn`.
// While another kernel is expected it waits, for 5 s at most, so that one that comes in is not
// killed.
KG_MUST_CHECK int kernels_stop(struct kernels *kernels, const char *name, kernel_stopped_fn fn,
                               void *arg, struct kg_error *err);
// As kernels_stop(), and forgets the kernel: it does not count any more.
KG_MUST_CHECK int kernels_remove(struct kernels *kernels, const char *name, kernel_stopped_fn fn,
                                 void *arg, struct kg_error *err);
// The same, but only what is in the kernel's session or below it is killed: what others have left
// behind stays.
KG_MUST_CHECK int kernels_end(struct kernels *kernels, const char *name, kernel_stopped_fn fn,
                              void *arg, struct kg_error *err);
// A non-blocking descriptor, connected to what the kernel listens on.
KG_MUST_CHECK int kernels_connect(struct kernels *kernels, const struct target *target,
                                  struct kg_error *err);
// NULL where there is none of that name.
json_t *kernels_describe(struct kernels *kernels, const char *name);
json_t *kernels_list(struct kernels *kernels);
// Sends events of type `kernel_memory`, for kernels and savepoints whose own memory has changed by
// 1 MiB or more. Where there is only one, and while none has run, nothing is looked at. It takes no
// longer than some milliseconds: true if there is more to look at. `anew`: a new listener knows
// nothing.
bool kernels_report_memory(struct kernels *kernels, bool anew);
// The name of the kernel that the process is or descends from, borrowed; NULL: of none.
const char *kernels_of_process(const struct kernels *kernels, pid_t pid);
// Whether a kernel listens on that TCP port.
bool kernels_have_port(const struct kernels *kernels, int port);
