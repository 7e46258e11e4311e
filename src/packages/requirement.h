// SPDX-License-Identifier: Apache-2.0
// Names of packages: requirements, which clients write, and file names of wheels, which a sandbox
// reports. Both are untrusted.
#pragma once

#include <jansson.h>

#include "base.h"

enum { REQUIREMENT_MAX_LEN = 200, WHEEL_NAME_MAX = 200 };

// Returns the normal form of a requirement (of PEP 508: name, extras, version specifiers), to be
// freed: "Foo_Bar [x] >= 1.0" becomes "foo-bar[x]>=1.0". NULL with KG_INVALID if it is anything
// else.
char *requirement_normalise(const char *text, struct kg_error *err);
enum { REQUIREMENTS_MAX = 32 };
// Reads what people and models write for a list of requirements, and returns an array of their
// normal forms: of an array of strings, each of which may have several requirements, with commas,
// blanks or line ends between them, and `pip install` before them. NULL with KG_INVALID, naming
// what is wrong, if there is none, more than REQUIREMENTS_MAX, or anything else.
json_t *requirements_read(const json_t *value, struct kg_error *err);
// The package name of a requirement in its normal form; to be freed.
char *requirement_name(const char *normal);
// Whether a requirement in its normal form allows exactly one version.
bool requirement_is_pinned(const char *normal);
// A package's name in its normal form (PEP 503), to be freed; NULL: not a valid name.
char *package_name_normalise(const char *name, size_t len);
// Whether it has the form name-version[-build]-python-abi-platform.whl.
bool wheel_name_is_valid(const char *name);
