# SPDX-License-Identifier: Apache-2.0
"""Savepoints and branches of a session, as a client uses them."""

import re

from contract import OPERATIONS, resolve, validator
from kernelgate import problem


def value(run, code, **fields):
    """The result of a cell that succeeds."""
    lines = run(code, **fields)
    assert lines.status == "ok", lines
    return lines.one("result")["text"]


def check_answer(method, path, response):
    """Against docs/openapi.yaml."""
    for (its_method, its_path), operation in OPERATIONS.items():
        pattern = re.sub(r"\{\w+\}", "[^/]+", its_path)
        if its_method == method and re.fullmatch(pattern, path):
            documented = resolve(operation["responses"][str(response.status_code)])
            kind = response.headers["content-type"].split(";")[0]
            validator(documented["content"][kind]["schema"]).validate(response.json())
            return
    raise AssertionError(f"{method} {path} is not documented")


def known(savepoint):
    """A savepoint without what changes."""
    return {**savepoint, "memory_bytes": None}


class Savepoints:
    def __init__(self, gateway, session, client=None):
        self.client = client or gateway.client
        self.url = f"/api/v1/sessions/{session}"

    def _send(self, method, path, status, code=None, **body):
        json = body if method == "POST" else None
        response = self.client.request(method, f"{self.url}/{path}", json=json, timeout=60)
        if path.split("/")[-1]:  # else the path is another one's
            check_answer(method, f"{self.url}/{path}", response)
        if code:
            return problem(response, status, code)["detail"]
        assert response.status_code == status, f"{response.status_code} {response.text}"
        return response.json()

    def make(self, *refused, **body):
        return self._send("POST", "savepoints", *(refused or (201,)), **body)

    def list(self):
        return self._send("GET", "savepoints", 200)

    def shown(self):
        """The list without what may have changed since."""
        listed = self.list()
        return {**listed, "savepoints": [known(each) for each in listed["savepoints"]]}

    def memory(self):
        """MiB that each savepoint and branch has of its own, as the sandbox last said."""
        found = {each["savepoint"]: each["memory_bytes"] for each in self.list()["savepoints"]}
        found |= {name: each["memory_bytes"] for name, each in self.branches().items()}
        return {name: (bytes_ or 0) / 2**20 for name, bytes_ in found.items()}

    def ids(self):
        return [each["savepoint"] for each in self.list()["savepoints"]]

    def names(self):
        return [each["name"] for each in self.list()["savepoints"]]

    def drop(self, id_, *refused):
        return self._send("DELETE", f"savepoints/{id_}", *(refused or (200,)))

    def restore(self, id_, *refused):
        return self._send("POST", f"savepoints/{id_}/restore", *(refused or (200,)))

    def branch(self, name, *refused, **body):
        return self._send("POST", "branches", *(refused or (201,)), name=name, **body)

    def branches(self):
        return {each.pop("branch"): each for each in self._send("GET", "branches", 200)["branches"]}

    def end(self, name, *refused):
        return self._send("DELETE", f"branches/{name}", *(refused or (200,)))

    def promote(self, name, *refused):
        return self._send("POST", f"branches/{name}/promote", *(refused or (200,)))
