# SPDX-License-Identifier: Apache-2.0
"""MCP over plain HTTP: messages, event streams, and a client of each generation."""

import contextlib
import json
import re

BOTH = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
META = "io.modelcontextprotocol/"


def initialize(version="2025-11-25", id_=1, **capabilities):
    params = {"protocolVersion": version, "capabilities": capabilities}
    params["clientInfo"] = {"name": "test", "version": "1"}
    return {"jsonrpc": "2.0", "id": id_, "method": "initialize", "params": params}


def request(method, id_=2, **params):
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def call(tool, id_=2, token=None, **arguments):
    meta = {"_meta": {"progressToken": token}} if token is not None else {}
    return request("tools/call", id_, name=tool, arguments=arguments, **meta)


def cancelled(id_):
    params = {"requestId": id_}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def events(lines):
    """The events of a stream of lines: dicts of their fields; comments as {"": text}."""
    event = {}
    for line in lines:
        if not line:
            if event:
                yield event
            event = {}
        else:
            name, _, value = line.partition(":")
            event[name] = value.strip()


def messages(of):
    return [json.loads(event["data"]) for event in of if event.get("data")]


def gauge(gateway, name):
    return float(re.search(rf"^{name} (\S+)$", gateway.client.get("/metrics").text, re.M)[1])


class Client:
    """An initialize-based client over plain HTTP."""

    def __init__(self, gateway, version="2025-11-25", key=None, profile=None, **capabilities):
        self.http = gateway.client_for(key)
        if profile:
            self.http.params = {"profile": profile}
        self.headers = dict(BOTH)
        answer = self.post(initialize(version, **capabilities))
        assert answer.status_code == 200, answer.text
        self.info = result(answer)
        self.version = self.info["protocolVersion"]
        self.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        self.headers["MCP-Protocol-Version"] = self.version
        assert (
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
        )

    def post(self, message, **headers):
        return self.http.post("/mcp", json=message, headers={**self.headers, **headers})

    @contextlib.contextmanager
    def stream(self, method="POST", message=None, timeout=60, **headers):
        options = {"json": message} if message is not None else {}
        options["timeout"] = timeout
        if method == "GET":
            headers.setdefault("Accept", "text/event-stream")
        headers = {**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        with self.http.stream(method, "/mcp", headers=headers, **options) as response:
            response.events = events(response.iter_lines())
            yield response


def result(response):
    assert response.status_code == 200, response.text
    body = response.json()
    assert "result" in body, body
    return body["result"]


def error(response, status, code):
    assert response.status_code == status, response.text
    assert response.json()["error"]["code"] == code, response.text
    return response.json()["error"]


def modern(method, id_=1, version="2026-07-28", **params):
    meta = {META + "protocolVersion": version, META + "clientCapabilities": {}}
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": {"_meta": meta, **params}}


def post_modern(gateway, message, profile=None, client=None, **headers):
    params = message["params"]
    named = {"Mcp-Name": params.get("name") or params.get("uri")} if len(params) > 1 else {}
    headers = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": message["method"],
        **named,
        **headers,
    }
    headers = {k: v for k, v in headers.items() if v is not None}
    query = {"profile": profile} if profile else None
    client = client or gateway.client
    return client.post("/mcp", params=query, json=message, headers={**BOTH, **headers})
