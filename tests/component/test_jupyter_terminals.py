# SPDX-License-Identifier: Apache-2.0
"""Jupyter's terminals: their resource, and terminado's protocol."""

import contextlib
import json

import pytest
import websockets.sync.client
from kernelgate import wait_for


class Terminal:
    """A client that speaks as terminado's page does."""

    def __init__(self, socket):
        self.socket = socket
        self.shown = ""
        assert json.loads(socket.recv(20)) == ["setup", {}]

    def read(self):
        kind, *rest = json.loads(self.socket.recv(20))
        if kind == "stdout":
            self.shown += rest[0]
        return kind, *rest

    def until(self, wanted):
        while wanted not in self.shown:
            assert self.read()[0] == "stdout"
        self.shown = self.shown.partition(wanted)[2]

    def say(self, *message):
        self.socket.send(json.dumps(message))


@contextlib.contextmanager
def connected(gateway, name):
    url = gateway.url.replace("http", "ws", 1) + f"/terminals/websocket/{name}"
    with websockets.sync.client.connect(url, max_size=None, ping_interval=None) as socket:
        yield Terminal(socket)


def start(gateway, **body):
    response = gateway.client.post("/api/terminals", json=body)
    assert response.status_code == 200, response.text
    model = response.json()
    assert set(model) == {"name", "last_activity"}
    assert response.headers["location"] == f"/api/terminals/{model['name']}"
    return model["name"]


def listed(gateway):
    return [each["name"] for each in gateway.client.get("/api/terminals").json()]


def test_in_a_session(gateway, session):
    name = start(gateway, session_id=session, cwd="/tmp")
    assert name.startswith(f"{session}.") and listed(gateway) == [name]
    assert gateway.client.get(f"/api/terminals/{name}").json()["name"] == name
    with connected(gateway, name) as one, connected(gateway, name) as other:
        one.say("set_size", 30, 90, 600, 800)
        one.say("stdin", "stty size; pwd; printf '\\303\\244\\n\\377'\n")
        for client in (one, other):
            client.until("30 90\r\n/tmp\r\nä\r\n\ufffd")
        other.say("set_size", 0, 0, 0, 0)  # of a page that is hidden
        other.say("something", "new")
        other.say("stdin", "stty size; exit\n")
        one.until("30 90\r\n")
        while (last := one.read())[0] == "stdout":
            pass
        assert last == ("disconnect", 1)
        with pytest.raises(websockets.ConnectionClosedOK):
            one.read()
    assert wait_for(lambda: not listed(gateway)) and refused(gateway, f"{session}.none") == 404
    assert gateway.client.get(f"/api/terminals/{name}").status_code == 404


def refused(gateway, name):
    with pytest.raises(websockets.InvalidStatus) as error, connected(gateway, name):
        pass
    body = json.loads(error.value.response.body)
    assert body["message"]
    return error.value.response.status_code


def test_in_the_session_of_a_kernel(gateway):
    kernel = gateway.client.post("/api/kernels").json()["id"]
    name = start(gateway, kernel_id=kernel)
    with connected(gateway, name) as client:
        client.say("stdin", "echo $((6*7))\n")
        client.until("42\r\n")
        assert gateway.client.delete(f"/api/terminals/{name}").status_code == 204
        while client.read()[0] == "stdout":
            pass
    assert wait_for(lambda: not listed(gateway))
    assert gateway.client.get(f"/api/kernels/{kernel}").status_code == 200
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_in_a_session_of_its_own(gateway):
    """It is no kernel, and ends with its terminal."""
    kernels = gateway.client.get("/api/kernels").json()
    name = start(gateway)
    session = name.partition(".")[0]
    assert gateway.client.get("/api/kernels").json() == kernels
    assert gateway.client.get(f"/api/v1/sessions/{session}").status_code == 200
    with connected(gateway, name) as client:
        client.say("stdin", "cat\n")
        assert gateway.client.delete(f"/api/terminals/{name}").status_code == 204
        while client.read()[0] == "stdout":
            pass
    assert gateway.client.get(f"/api/v1/sessions/{session}").status_code == 404


def test_what_is_not_there(gateway, session):
    for name in ("1", f"{session}.", f"{session}.A", ".a", "none.a", f"{session}.a.b", "ä"):
        response = gateway.client.get(f"/api/terminals/{name}")
        assert (response.status_code, bool(response.json()["message"])) == (404, True)
        assert gateway.client.delete(f"/api/terminals/{name}").status_code == 404
    assert gateway.client.delete(f"/api/terminals/{session}.a").status_code == 404
    response = gateway.client.post("/api/terminals", json={"session_id": "none"})
    assert response.status_code == 404
    response = gateway.client.post("/api/terminals", json={"session_id": session, "cwd": "/none"})
    assert response.status_code == 400 and "/none" in response.json()["message"]
    response = gateway.client.post("/api/terminals", json={"cwd": 1})
    assert response.status_code == 400
    assert gateway.client.get(f"/terminals/websocket/{session}.a").status_code == 426


def test_bad_words(gateway, session):
    name = start(gateway, session_id=session)
    for bad in ("{}", "[]", "[1]", '["stdin"]', '["stdin",1]', "[[[]]]", "x"):
        with connected(gateway, name) as client:
            client.socket.send(bad)
            with pytest.raises(websockets.ConnectionClosedError) as closed:
                while True:
                    client.read()
            assert closed.value.rcvd.code == 1007
