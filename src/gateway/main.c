// SPDX-License-Identifier: Apache-2.0
// Finds the command.

#include <malloc.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "gateway.h"
#include "server_keeper.h"

static const char usage[] =
    "kernelgate runs code in Jupyter kernels inside locked-down containers, over HTTP.\n"
    "\n"
    "usage: kernelgate COMMAND [FLAGS]\n"
    "\n"
    "  serve     listen for requests\n"
    "  mcp       speak MCP on stdin and stdout\n"
    "  doctor    say whether sandboxes work on this machine, and what is missing\n"
    "  user      add, list, disable, enable and remove users of accounts\n"
    "  key       add, list and revoke their keys\n"
    "  packages  add, list and remove packages that all sessions get\n"
    "  version   print the version\n"
    "\n"
    "kernelgate COMMAND --help lists the flags.\n";

static int
command_version(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        puts("usage: kernelgate version\n\nPrints the version.");
        return 0;
    }
    puts("kernelgate " KG_VERSION);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", command_serve},       {"mcp", command_mcp},           {"doctor", command_doctor},
    {"user", command_user},         {"key", command_key},           {"version", command_version},
    {"packages", command_packages}, {"--version", command_version},
};

// Large buffers come and go: each is a mapping of its own, which goes back to the system when it is
// freed, however the heap around it looks. Workers share two arenas, which would otherwise grow to
// eight for each processor.
static void
set_up_memory(void)
{
    enum { OWN_MAPPING = 128 << 10, ARENAS = 2 };
    mallopt(M_MMAP_THRESHOLD, OWN_MAPPING);
    mallopt(M_TRIM_THRESHOLD, 2 * OWN_MAPPING);
    mallopt(M_ARENA_MAX, ARENAS);
}

int
main(int argc, char **argv)
{
    set_up_memory();
    if (sodium_init() < 0) {
        fputs("kernelgate: libsodium does not start\n", stderr);
        return 1;
    }
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, SERVER_KEEPER_COMMAND) == 0)
        return server_keeper_main(argc - 1, argv + 1);
    for (size_t i = 0; i < KG_ARRAY_LEN(commands); i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    bool asked =
        strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
    if (!asked && *name)
        fprintf(stderr, "kernelgate: there is no command %s\n\n", name);
    fputs(usage, asked ? stdout : stderr);
    return asked ? 0 : 2;
}
