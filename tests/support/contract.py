# SPDX-License-Identifier: Apache-2.0
"""Checks responses against docs/openapi.yaml, and each line of every stream that a test reads."""

import json
import pathlib
import re

import httpx
import jsonschema_rs
import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[2]
OPENAPI = yaml.load((PROJECT / "docs/openapi.yaml").read_text(), yaml.CSafeLoader)
OPERATIONS = {
    (method.upper(), path): operation
    for path, item in OPENAPI["paths"].items()
    for method, operation in item.items()
    if method != "parameters"
}
NDJSON = "application/x-ndjson"


def resolve(value):
    """Resolves a `$ref` of the document; returns anything else unchanged."""
    if "$ref" not in value:
        return value
    found = OPENAPI
    for name in value["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return found


def send_example(client, method, path, id_):
    """Sends an operation's example about the session, execution, key or user `id_`."""
    body = resolve(OPERATIONS[method, path].get("requestBody", {})).get("content", {})
    known = "application/json", "application/octet-stream"
    json_, raw = (body[kind]["example"] if kind in body else None for kind in known)
    form = body.get("multipart/form-data", {"example": {}})["example"]
    files = [("file", (name, text.encode())) for name, text in form.items()]
    command = "over" if path.endswith("/output") else "shell"
    values = {"{id}": id_, "{path}": "docs.txt", "{name}": "numpy", "{command}": command, "{port}": "8501"}
    for name, value in values.items():
        path = path.replace(name, value)
    if path.endswith("/{token}"):
        made = client.get(path.removesuffix("/{token}")).json().get("tokens")
        path = path.replace("{token}", made[0]["token_id"] if made else "none")
    return client.request(method, path, json=json_, content=raw, files=files or None)


def validator(schema):
    """The validator of a schema of the document; compiled once."""
    return jsonschema_rs.Draft202012Validator({**schema, "components": OPENAPI["components"]})


class LineSchema:
    """The schema of a stream's lines: one of several, by `type`."""

    def __init__(self, schema):
        mapping = resolve(schema)["discriminator"]["mapping"]
        self.validators = {kind: validator({"$ref": ref}) for kind, ref in mapping.items()}

    def check(self, line):
        assert line.get("type") in self.validators, f"a line of no documented type: {line}"
        try:
            self.validators[line["type"]].validate(line)
        except jsonschema_rs.ValidationError as error:
            shown = json.dumps(line)[:2000]
            raise AssertionError(f"not as documented: {error.message}: {shown}") from None


def _streams():
    for (method, path), operation in OPERATIONS.items():
        content = resolve(operation["responses"].get("200", {})).get("content", {})
        if NDJSON in content:
            pattern = re.sub(r"\{\w+\}", "[^/]+", path)
            yield method, re.compile(f"{pattern}"), LineSchema(content[NDJSON]["schema"])


STREAMS = list(_streams())


def check_ending(lines):
    """An execution that a test reads from its first line has one error line if it did not end well."""
    done = lines[-1]
    if done["type"] != "done" or "execution_count" not in done:
        return
    kinds = [line["type"] for line in lines]
    if lines[0].get("seq") != 1 or "dropped" in kinds:
        return
    expected = 0 if done["status"] == "ok" else 1
    assert kinds.count("error") == expected, f"error lines of {done}: {kinds[-20:]}"


class CheckedStream(httpx.SyncByteStream):
    """A response's body that checks each line as it is read."""

    def __init__(self, stream, schema):
        self.stream = stream
        self.schema = schema
        self.heads = []  # type and seq of its lines; the last one whole

    def check(self, line):
        self.schema.check(line)
        if line["type"] == "keepalive":
            return
        last = line if line["type"] == "done" else {"type": line["type"], "seq": line.get("seq")}
        self.heads.append(last)
        check_ending(self.heads)

    def __iter__(self):
        begun = []  # of an incomplete line
        for data in self.stream:
            *ends, rest = data.split(b"\n")
            for end in ends:
                self.check(json.loads(b"".join([*begun, end])))
                begun = []
            begun.append(rest)
            yield data

    def close(self):
        self.stream.close()


# Streams of other protocols than ours, whose own clients are in the tests.
OTHERS = ("/execute",)


def check_stream(response):
    """Event hook of HTTP clients: checks the lines of a streamed response as they arrive."""
    if response.headers.get("content-type", "").split(";")[0] != NDJSON:
        return
    request = response.request
    if request.url.path in OTHERS:
        return
    found = [
        schema
        for method, pattern, schema in STREAMS
        if method == request.method and pattern.fullmatch(request.url.path)
    ]
    assert len(found) == 1, f"a stream that is not documented: {request.method} {request.url}"
    response.stream = CheckedStream(response.stream, found[0])
