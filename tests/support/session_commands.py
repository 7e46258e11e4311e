# SPDX-License-Identifier: Apache-2.0
"""Commands in a session's sandbox over HTTP."""

import contextlib
import json

from kernelgate import Lines, wait_for


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


class Known:
    """One command by its id."""

    def __init__(self, commands, name):
        self.client, self.name = commands.client, name
        self.url = f"{commands.url}/{name}"

    def show(self):
        response = self.client.get(self.url)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, what, status=200, **request):
        response = self.client.post(f"{self.url}/{what}", **request)
        assert response.status_code == status, response.text
        return response.json()

    def give(self, data, status=200, **params):
        return self.post("input", status, content=data, params=params)

    def signal(self, name, status=200):
        return self.post("signal", status, json={"signal": name})

    @contextlib.contextmanager
    def joined(self):
        """An iterator over its lines."""
        with self.client.stream("GET", f"{self.url}/output") as response:
            assert response.status_code == 200, response.read()
            assert response.headers["x-command-id"] == self.name
            yield map(json.loads, response.iter_lines())

    def output(self):
        """All its lines, when it has ended."""
        with self.joined() as lines:
            return list(lines)

    def ended(self):
        return wait_for(lambda: not self.show()["running"])


def start(commands, command=None, name=None, **fields):
    """Starts one in the background."""
    body = {"command": command, "id": name, "background": True, **fields}
    response = commands.client.post(commands.url, json=body)
    assert response.status_code == 201, response.text
    answer = response.json()
    assert answer["pid"] > 1 and response.headers["x-command-id"] == answer["command_id"]
    assert name in (None, answer["command_id"])
    return Known(commands, answer["command_id"])
