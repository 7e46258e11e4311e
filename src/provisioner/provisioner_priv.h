// SPDX-License-Identifier: Apache-2.0
// What an engine fills in to be a provisioner, and the sandbox's folder, which engines on this
// machine share.
#pragma once

#include "provisioner.h"

#define SANDBOX_ID_MAX 16

// Every function does what the public one of its name says.
struct provisioner_engine {
    const char *name;
    struct provisioner *(*create)(struct loop *loop, const struct provisioner_settings *settings,
                                  struct kg_error *err);
    void (*free)(struct provisioner *provisioner);
    bool (*doctor)(const struct provisioner_settings *settings, provisioner_finding_fn fn,
                   void *arg);
    struct provisioner_op *(*sandbox_create)(struct provisioner *provisioner,
                                             const struct provisioner_sandbox_spec *spec,
                                             provisioner_done_fn on_done,
                                             provisioner_exit_fn on_exit, void *arg,
                                             struct kg_error *err);
    struct provisioner_op *(*sandbox_destroy)(struct provisioner *provisioner, const char *id,
                                              provisioner_done_fn on_done, void *arg,
                                              struct kg_error *err);
    int (*sandbox_claim)(struct provisioner *provisioner, const char *id, const json_t *meta,
                         struct kg_error *err);
    struct provisioner_op *(*recover)(struct provisioner *provisioner,
                                      provisioner_found_fn on_found, provisioner_done_fn on_done,
                                      provisioner_exit_fn on_exit, void *arg, struct kg_error *err);
    void (*op_cancel)(struct provisioner_op *op);
    bool (*is_idle)(const struct provisioner *provisioner);
};

extern const struct provisioner_engine provisioner_oci;

// The first member of every engine's own struct.
struct provisioner {
    const struct provisioner_engine *engine;
    struct loop *loop;
    char *state_dir; // absolute
};

// The first member of every engine's operation.
struct provisioner_op {
    struct provisioner *provisioner;
    int64_t asked_us; // clock_mono_us()
};

// ---- The sandbox's folder (folder.c) --------------------------------------------------------

bool sandbox_id_valid(const char *id);
// Path of a sandbox's folder, or of `name` in it where that is not NULL. To be freed.
char *folder_path(const char *state_dir, const char *id, const char *name);
// Makes the folder and its `door/`; KG_INTERNAL where it exists already.
KG_MUST_CHECK int folder_make(const char *state_dir, const char *id, struct kg_error *err);
KG_MUST_CHECK int folder_remove(const char *state_dir, const char *id, struct kg_error *err);
KG_MUST_CHECK int folder_claim(const char *state_dir, const char *id, const json_t *meta,
                               struct kg_error *err);
// Fails where meta.json cannot be read; a sandbox that was never claimed has none: NULL.
KG_MUST_CHECK int folder_meta(const char *state_dir, const char *id, json_t **ret,
                              struct kg_error *err);
// Calls `fn` with the id of every folder.
KG_MUST_CHECK int folder_list(const char *state_dir, void (*fn)(const char *id, void *arg),
                              void *arg, struct kg_error *err);
