// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over a stored corpus, without libFuzzer: for ctest and compilers without it.

#include <dirent.h>
#include <stdio.h>

#include "base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_INPUT_BYTES = 64 << 20 };

static size_t
replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return 0;
    size_t n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        KG_AUTO_FREE char *path = kg_asprintf("%s/%s", folder, entry->d_name);
        KG_AUTO_BUF input = {0};
        struct kg_error err = {0};
        if (file_read(path, MAX_INPUT_BYTES, &input, &err) < 0) {
            fprintf(stderr, "%s\n", err.message);
            abort();
        }
        LLVMFuzzerTestOneInput((const uint8_t *)input.data, input.len);
        n++;
    }
    closedir(dir);
    return n;
}

int
main(int argc, char **argv)
{
    size_t n = 0;
    for (int i = 1; i < argc; i++)
        n += replay_folder(argv[i]);
    printf("%zu inputs replayed\n", n);
    return n > 0 ? 0 : 1; // an empty corpus proves nothing
}
