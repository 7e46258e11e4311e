// SPDX-License-Identifier: Apache-2.0
// One operation of the engine "oci".
#pragma once

#include "oci_priv.h"

// create:  queued -> running -> done
//                            -> killing -> deleting -> done      (failed, or cancelled)
// destroy: queued -> killing -> deleting -> done
// recover: queued -> waiting (for the destroys of what was dead) -> done
enum oci_op_state {
    OCI_OP_QUEUED,
    OCI_OP_RUNNING,
    OCI_OP_KILLING,
    OCI_OP_DELETING,
    OCI_OP_WAITING,
    OCI_OP_DONE,
};

enum oci_op_kind { OCI_OP_CREATE, OCI_OP_DESTROY, OCI_OP_RECOVER };

// Of the operations on one sandbox only the oldest is under way.
struct oci_op {
    struct provisioner_op base;
    TAILQ_ENTRY(oci_op) next;
    enum oci_op_kind kind;
    enum oci_op_state state;
    char id[SANDBOX_ID_MAX + 1]; // empty: recovery
    bool cancelled;              // nobody waits any longer
    bool internal;               // a recovery's destroy
    struct kg_error err;         // code KG_OK: none so far
    int idle_timeout_s;          // create
    struct loop_process *process;
    struct loop_timer *timer;
    int64_t kill_until_ms;
    size_t n_dead; // recover: destroys under way
    provisioner_done_fn on_done;
    provisioner_found_fn on_found;
    provisioner_exit_fn on_exit;
    void *arg;
};

struct oci_op *oci_op_new(struct oci *oci, enum oci_op_kind kind, const char *id,
                          provisioner_done_fn on_done, void *arg);
void oci_op_set_state(struct oci_op *op, enum oci_op_state state);
// Ends the operation and tells who waits.
void oci_op_finish(struct oci_op *op);
void oci_recover_start(struct oci_op *op);

static inline struct oci *
oci_of(const struct oci_op *op)
{
    return (struct oci *)op->base.provisioner;
}
