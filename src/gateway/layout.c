// SPDX-License-Identifier: Apache-2.0
// Finds the agent, the kernelspecs and the kernels' environments.

#include <libgen.h>
#include <string.h>
#include <unistd.h>

#include "gateway.h"

enum { MAX_PATH = 4096 };

static char *
binary_dir(void)
{
    char path[MAX_PATH];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    path[len < 0 ? 0 : len] = '\0';
    return kg_strdup(dirname(path));
}

// The configured path; else what is installed beside the binary; else the project's own.
static char *
choose(const char *configured, char *installed, const char *project)
{
    KG_AUTO_FREE char *taken = installed;
    if (configured)
        return kg_strdup(configured);
    if (access(taken, F_OK) == 0)
        return KG_STEAL(taken);
    return kg_strdup(project);
}

void
layout_find(struct layout *layout, const struct config *config)
{
    KG_AUTO_FREE char *bin = binary_dir();
    KG_AUTO_FREE char *beside = kg_asprintf("%s/kernelgate-agent", bin);
    layout->agent = choose(config->agent, kg_strdup(beside), beside);
    KG_AUTO_FREE char *agent = kg_strdup(layout->agent);
    layout->enter = kg_asprintf("%s/kernelgate-enter.so", dirname(agent));
    layout->kernelspec_dir =
        choose(config->kernelspec_dir, kg_asprintf("%s/../share/kernelgate/kernelspec", bin),
               KG_PROJECT_DIR "/kernelspec");
    layout->kernels_dir =
        choose(config->kernels_dir, kg_asprintf("%s/../share/kernelgate/kernels", bin),
               KG_PROJECT_DIR "/build/kernels");
    layout->console_dir =
        choose(config->console_dir, kg_asprintf("%s/../share/kernelgate/console", bin),
               KG_PROJECT_DIR "/build/console");
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
