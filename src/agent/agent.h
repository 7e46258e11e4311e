// SPDX-License-Identifier: Apache-2.0
// kernelgate-agent: PID 1 of every sandbox. It starts, watches and ends kernels, answers the
// gateway's questions, and joins the links between the two to what listens inside the sandbox.
#pragma once

#include "base.h"
#include "link_hello.h"
#include "loop.h"

struct agent_settings {
    const char *door_path; // the socket on which the gateway listens; or NULL, and then
    int listen_port;       // gateways dial this port, over TCP,
    const char *sandbox;   // ask for the sandbox with this id
    // ... and prove that they hold the other half of this public key.
    unsigned char gateway_key[LINK_KEY_LEN];
    int idle_timeout_s;      // on_end fires when no link was up for so long
    const char *data_dir;    // the working folder: /mnt/data
    const char *root_dir;    // that paths with a / first are below: /
    const char *second_name; // of data_dir, below root_dir, where the sandbox has it: home/user
    const char *tmp_dir;     // where connection files and sockets go: /tmp
    const char *cgroup_root; // /sys/fs/cgroup
    int egress_port;         // where the way out is offered inside; 0: there is none
    const char *tenant_name; // of the socket for requests of code (tenant.h); NULL: none
    bool no_log;             // the log ends when the agent is ready
};

struct agent;

// Dials the door, or listens for gateways. `on_end` asks the owner to stop the loop.
KG_MUST_CHECK struct agent *agent_new(struct loop *loop, const struct agent_settings *settings,
                                      loop_fn on_end, void *arg, struct kg_error *err);
// Kills every kernel.
void agent_free(struct agent *agent);
KG_DEFINE_AUTO(agent, agent_free)
