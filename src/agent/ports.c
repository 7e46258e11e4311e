// SPDX-License-Identifier: Apache-2.0
// Ports of the sandbox: which of them are the tenant's, and the call that lists these.
#include "agent_priv.h"
#include "port_list.h"

bool
agent_port_is_own(int port, void *arg)
{
    const struct agent *agent = arg;
    const struct agent_settings *settings = &agent->settings;

    return port == settings->listen_port || port == settings->egress_port ||
           kernels_have_port(agent->kernels, port);
}

void
ports_list_call(struct request *request, void *arg)
{
    request_reply(request, json_pack("{s:o}", "ports", port_list(agent_port_is_own, arg)));
}
