// SPDX-License-Identifier: Apache-2.0
// What clients name packages by, and what a sandbox says that it resolved them to.
#include <assert.h>
#include <string.h>

#include "requirement.h"
#include "wheels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_requirement(const char *text)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *normal = requirement_normalise(text, &err);
    if (!normal) {
        assert(err.code == KG_INVALID);
        return;
    }
    // Nothing that a command line could take for something else; and normal once is normal twice.
    assert(normal[0] != '-' && !strpbrk(normal, " \t\n/@;$'\"\\"));
    KG_AUTO_FREE char *again = requirement_normalise(normal, &err);
    assert(again && strcmp(again, normal) == 0);
    KG_AUTO_FREE char *name = requirement_name(normal);
    KG_AUTO_FREE char *same = package_name_normalise(name, strlen(name));
    assert(same && strcmp(same, name) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    KG_AUTO_FREE char *text = kg_strndup((const char *)data, size);
    struct kg_error err = {0};
    check_requirement(text);
    if (wheel_name_is_valid(text))
        assert(!strchr(text, '/') && text[0] != '.');
    json_auto_t *resolution = resolution_parse((const char *)data, size, &err);
    size_t i;
    json_t *wheel;
    json_array_foreach(json_object_get(resolution, "wheels"), i, wheel)
        assert(wheel_name_is_valid(json_string_value(json_object_get(wheel, "file"))));
    return 0;
}
