# SPDX-License-Identifier: Apache-2.0
"""Commands in a session's sandbox over HTTP."""

import contextlib

from kernelgate import Lines


class Commands:
    """Runs commands in one session."""

    def __init__(self, gateway, session):
        self.client = gateway.client
        self.url = f"/api/v1/sessions/{session}/commands"

    @contextlib.contextmanager
    def stream(self, command, **fields):
        with self.client.stream("POST", self.url, json={"command": command, **fields}) as response:
            if response.status_code != 200:
                response.read()
                raise AssertionError(f"{response.status_code} {response.text}")
            yield response

    def __call__(self, command, **fields):
        with self.stream(command, **fields) as response:
            lines = Lines(response)
            for text in response.iter_lines():
                lines.add(text)
        return lines

    def wait(self, command, **fields):
        response = self.client.post(
            self.url, params={"wait": 1}, json={"command": command, **fields}
        )
        assert response.status_code == 200, response.text
        return response.json()

    def problem(self, command, status, code, **fields):
        response = self.client.post(self.url, json={"command": command, **fields})
        assert response.status_code == status, response.text
        assert response.json()["code"] == code
        return response.json()["detail"]
