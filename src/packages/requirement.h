// SPDX-License-Identifier: Apache-2.0
// What names packages: requirements, as clients write them, and the file names of wheels, as the
// sandbox that downloads says them. Both untrusted.
#pragma once

#include "base.h"

enum { REQUIREMENT_MAX_LEN = 200, WHEEL_NAME_MAX = 200 };

// A requirement (PEP 508, of it: name, extras, version specifiers) in its normal form, to be freed:
// "Foo_Bar [x] >= 1.0" is "foo-bar[x]>=1.0". NULL with KG_INVALID, which says what is not taken.
char *requirement_normalise(const char *text, struct kg_error *err);
// The name in a normal form; to be freed.
char *requirement_name(const char *normal);
// Whether it stands for exactly one version.
bool requirement_is_pinned(const char *normal);
// A package's name in its normal form (PEP 503), to be freed; NULL where it is none.
char *package_name_normalise(const char *name, size_t len);
// name-version[-build]-python-abi-platform.whl
bool wheel_name_is_valid(const char *name);
