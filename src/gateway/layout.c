// SPDX-License-Identifier: Apache-2.0
// Finds the agent, the kernelspecs and the kernels' environments.

#include <errno.h>
#include <libgen.h>
#include <string.h>
#include <unistd.h>

#include "gateway.h"

enum { MAX_PATH = 4096 };

// The folder above the one with the binary, to be freed. In what the system says there are no
// links.
static char *
find_prefix(struct kg_error *err)
{
    char path[MAX_PATH];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    if (len <= 0 || len == sizeof path - 1) {
        kg_error_set(err, KG_INTERNAL, len < 0 ? errno : 0, "cannot read /proc/self/exe");
        return NULL;
    }
    path[len] = '\0';
    return kg_strdup(dirname(dirname(path)));
}

static char *
choose(const char *configured, const char *prefix, const char *installed)
{
    return configured ? kg_strdup(configured) : kg_asprintf("%s/%s", prefix, installed);
}

int
layout_find(struct layout *layout, const struct config *config, struct kg_error *err)
{
    KG_AUTO_FREE char *prefix = find_prefix(err);
    if (!prefix)
        return -1;
    layout->agent = choose(config->agent, prefix, KG_LIBEXEC "/kernelgate-agent");
    layout->enter = choose(NULL, prefix, KG_LIBEXEC "/kernelgate-enter.so");
    layout->kernelspec_dir = choose(config->kernelspec_dir, prefix, KG_SHARE "/kernelspec");
    layout->kernels_dir = choose(config->kernels_dir, prefix, KG_SHARE "/kernels");
    layout->console_dir = choose(config->console_dir, prefix, KG_SHARE "/console");
    return 0;
}

void
layout_fini(struct layout *layout)
{
    free(layout->agent);
    free(layout->enter);
    free(layout->kernelspec_dir);
    free(layout->kernels_dir);
    free(layout->console_dir);
}
