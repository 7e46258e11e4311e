# SPDX-License-Identifier: Apache-2.0
"""schemathesis asks the release build what docs/openapi.yaml allows and forbids, and goes from answer
to answer by the document's links. Every answer must be one that the document describes."""

import json
import os
import re
import subprocess
import sys
import urllib.parse

import pytest
import python_packages
from contract import OPERATIONS, PROJECT, resolve, validator
from kernelgate import RELEASE, Gateway
from web import Index

TAKES_LONG = True

FOLDER = PROJECT / "tests/component"


@pytest.fixture(scope="module")
def index():
    server = Index({"/data.csv": (200, {"Content-Type": "text/csv"}, b"a,b\n1,2\n")})
    server.add_wheel("numpy", "2.9")  # the document's example
    yield server
    server.close()


@pytest.fixture(scope="module")
def release(index, tmp_path_factory):
    gateway = Gateway(
        *python_packages.flags(tmp_path_factory.mktemp("kernels")),
        "--pool-size", "2", "--max-sessions", "10", "--evict", "idle",
        "--max-execution-time", "2", "--max-timeout", "20",
        "--pypi-index-url", index.simple, "--fetch-allow", "127.0.0.1",
        binary=RELEASE,
    )  # fmt: skip
    try:
        yield gateway.start()
    finally:
        gateway.clean_up()


# ---- The document's links, each once

# This gateway has no accounts; test_accounts.py and test_docs.py ask for theirs.
OF_ACCOUNTS = {it for it, operation in OPERATIONS.items() if "accounts" in operation["tags"]}
LINKS = [
    (operation["operationId"], status, name)
    for it, operation in OPERATIONS.items()
    if it not in OF_ACCOUNTS
    for status, response in operation["responses"].items()
    for name in resolve(response).get("links", {})
]


def ask(client, operation_id, parameters, body=None):
    """Sends an operation's example with these parameters; returns its body and the response."""
    (method, path), operation = next(
        it for it in OPERATIONS.items() if it[1]["operationId"] == operation_id
    )
    parameters = {"path": "sales.csv", **parameters} if "{path}" in path else dict(parameters)
    for name in re.findall(r"\{(\w+)\}", path):
        path = path.replace(f"{{{name}}}", urllib.parse.quote(parameters.pop(name)))
    contents = resolve(operation.get("requestBody", {})).get("content", {})
    for media_type, content in contents.items():
        body = content["example"] if body is None else body
        sent = {"json": body} if media_type == "application/json" else {"content": body}
        return body, client.request(method, path, params=parameters, **sent)
    return None, client.request(method, path, params=parameters)


def value_of(expression, parameters, body, response):
    """Evaluates a runtime expression of OpenAPI."""
    source, _, pointer = expression.partition("#")
    _, of, *rest = source.split(".")
    if source.startswith("$response.header."):
        return response.headers[rest[0]]
    if source.startswith("$request.path."):
        return parameters[rest[0]]
    assert of == "body"
    value = body if source == "$request.body" else response.json()
    for name in pointer.split("/")[1:]:
        value = value[int(name) if isinstance(value, list) else name]
    return value


@pytest.mark.parametrize("operation_id, status, name", LINKS, ids=lambda it: it)
def test_links_lead_on(release, operation_id, status, name):
    client = release.client
    release.delete_session("demo")
    release.create_session(session_id="demo")
    for file in "a.csv", "sales.csv":
        client.put(f"/api/v1/sessions/demo/files/{file}", content="a").raise_for_status()
    if operation_id == "listPackages":
        ask(client, "installPackages", {"id": "demo", "wait": 1})
    executed = client.post("/api/v1/execute", json={"code": "result 1", "session_id": "demo"})
    parameters = {
        "createSession": {},
        "execute": {},
        "executeSync": {},
        "installPackages": {"id": "demo", "wait": 1},
        "joinExecution": {"id": executed.headers["x-execution-id"]},
        "listExecutions": {"id": "demo"},
        "listFiles": {"id": "demo", "limit": 1},
        "listPackages": {"id": "demo"},
        "makeToken": {"id": "demo"},
        "putFile": {"id": "demo", "path": "a.csv" if status == "200" else "new/é b.csv"},
    }[operation_id]
    body, response = ask(client, operation_id, parameters)
    assert response.status_code == int(status), response.text

    documented = next(it for it in OPERATIONS.values() if it["operationId"] == operation_id)
    link = resolve(resolve(documented["responses"][status])["links"][name])
    found = {
        key: value_of(expression, parameters, body, response)
        for key, expression in link.get("parameters", {}).items()
    }
    sent = link.get("requestBody")
    if sent:
        sent = {
            key: value_of(text[1:-1], parameters, body, response) if text[0] == "{" else text
            for key, text in sent.items()
        }
    _, answer = ask(client, link["operationId"], found, sent)
    assert answer.status_code in (200, 201), answer.text


# ---- All that can be asked


@pytest.mark.parametrize("wait", [None, 1], ids=["stream", "one object"])
def test_a_package_that_is_nowhere(release, wait):
    """In the requests below, all packages are there already: pip takes a second."""
    release.create_session(session_id="demo")
    parameters, body = {"id": "demo"}, {"packages": ["kgnone"]}
    if wait:
        parameters["wait"] = str(wait)
    _, response = ask(release.client, "installPackages", parameters, body)
    operation = OPERATIONS["POST", "/api/v1/sessions/{id}/packages"]
    documented = resolve(operation["responses"][str(response.status_code)])["content"]
    schema = documented[response.headers["content-type"].split(";")[0]]["schema"]
    for text in [response.text] if wait else response.text.splitlines():
        validator(schema).validate(json.loads(text))
    assert "no wheel fits kgnone" in response.text


def test_every_answer_is_documented(release, index, tmp_path):
    answers = tmp_path / "answers"
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", FOLDER / "schemathesis.toml",
        "run", PROJECT / "docs/openapi.yaml", "--url", release.url,
        "--request-timeout", "60", "--exclude-tag", "accounts", "--exclude-operation-id", "watchFolder",
        # The scripted kernel has no savepoints, and 501 counts as an error of the server here.
        "--exclude-operation-id", "makeSavepoint", "--exclude-operation-id", "openBranch",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "openapi_hooks",
        "PYTHONPATH": f"{FOLDER}:{PROJECT / 'tests/support'}",
        "KGT_WEB": f"{index.url}/data.csv",
        "KGT_ANSWERS": str(answers),
    }
    result = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "cannot validate" not in result.stdout, result.stdout
    told = {tuple(line.split(" ", 1)) for line in answers.read_text().splitlines()}
    reached = {operation for status, operation in told if status in ("200", "201")}
    # In the examples a file is deleted when its session is gone; test_links_lead_on deletes one, and revokes
    # a token.
    # Those of a command need one that runs: test_docs.py. A terminal is a WebSocket: test_terminals.py.
    # A watch has no end: test_watch.py. Input needs code that waits for it: test_input.py.
    # Savepoints need a kernel that can fork: e2e/test_savepoints.py.
    # The same for calls of tools: e2e/test_tools.py.
    elsewhere = "/terminal", "/watch", "/executions/{id}/input", "/tool_results"
    forks = "/savepoints", "/branches"
    asked = {it for it in OPERATIONS if "{command}" not in it[1] and not it[1].endswith(elsewhere)}
    asked = {it for it in asked if it[0] == "GET" or not any(part in it[1] for part in forks)} - OF_ACCOUNTS
    assert {f"{method} {path}" for method, path in asked} - reached <= {
        "DELETE /api/v1/sessions/{id}/files/{path}",
        "DELETE /api/v1/sessions/{id}/tokens/{token}",
        "POST /api/v1/sessions/{id}/files",  # its files need names: test_docs.py
    }, result.stdout
