# SPDX-License-Identifier: Apache-2.0
"""Hooks that complement docs/openapi.yaml, in schemathesis' own process (SCHEMATHESIS_HOOKS).

KGT_WEB is a server on this machine, the only one that these tests contact. KGT_ANSWERS is a file
that gets a line for each response: its status and its operation.
"""

import json
import os

import schemathesis
from contract import NDJSON


@schemathesis.deserializer(NDJSON)
def lines_of(context, response):
    return [json.loads(line) for line in response.content.splitlines()]


# Values that this test's gateway accepts where the document allows any; without them most requests
# would be refused because of their kernel. Requests that violate the schemas are sent all the same.
TAKEN = {
    ("ExecuteRequest", "kernel"): {"enum": ["script"]},
    ("ExecuteRequest", "language"): {"enum": ["script"]},
    ("ExecuteRequest", "timeout"): {"maximum": 20},
    ("ExecuteRequest", "savepoint"): {"enum": [False]},
    ("SessionRequest", "kernel"): {"enum": ["script"]},
    ("SessionRequest", "language"): {"enum": ["script"]},
    ("SessionRequest", "idle_timeout"): {"minimum": 60},
    ("SessionRequest", "max_lifetime"): {"minimum": 86400},
    ("CommandRequest", "timeout"): {"maximum": 20},
    ("PackagesRequest", "packages"): {"items": {"enum": ["numpy", "numpy>=2"]}},
}
PATH = {"type": "string", "pattern": "^[a-zé ]{1,9}(/[a-z]{1,9})?$"}


def each_line(value):
    """Applies the document's NDJSON schemas to each line."""
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, (dict, list)):
            each_line(inner)
    if isinstance(value, dict) and NDJSON in value:
        value[NDJSON] = {"schema": {"type": "array", "items": value[NDJSON]["schema"]}}


@schemathesis.hook
def before_load_schema(context, raw_schema):
    each_line(raw_schema)
    components = raw_schema["components"]
    for (name, field), more in TAKEN.items():
        components["schemas"][name]["properties"][field].update(more)
    components["parameters"]["FilePath"]["schema"] = PATH


@schemathesis.hook
def before_call(context, case, kwargs):
    """Lets files be fetched from the test's server only."""
    fields = case.body if isinstance(case.body, dict) else {}
    here = os.environ["KGT_WEB"]
    if isinstance(urls := fields.get("file_urls"), list):
        fields["file_urls"] = [here if isinstance(url, str) else url for url in urls]
    if isinstance(files := fields.get("files"), list):
        fields["files"] = [{**it, "url": here} if isinstance(it, dict) else it for it in files]


@schemathesis.hook
def after_call(context, case, response):
    with open(os.environ["KGT_ANSWERS"], "a", encoding="utf-8") as file:
        file.write(f"{response.status_code} {case.operation.label}\n")
