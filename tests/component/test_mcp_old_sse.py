# SPDX-License-Identifier: Apache-2.0
"""MCP over HTTP+SSE, as before 2025-03-26."""

import json
import re
import socket

import httpx
from kernelgate import wait_for
from mcp_wire import call, events, initialize, request


def test_the_old_transport(start_gateway):
    gateway = start_gateway("--api-key", "a key+")
    with gateway.client_for(None) as http:
        assert http.get("/sse").status_code == 401
        with http.stream("GET", "/sse", params={"api_key": "a key+"}) as stream:
            coming = events(stream.iter_lines())
            endpoint = next(coming)
            assert endpoint["event"] == "endpoint"

            def ask(message):
                sent = httpx.post(gateway.url + endpoint["data"], json=message)
                assert sent.status_code == 202, sent.text
                return json.loads(next(coming)["data"])

            assert ask(initialize("2024-11-05"))["result"]["protocolVersion"] == "2024-11-05"
            answer = ask(call("run_python_code", token=5, code="print one\ntake go"))
            assert answer["method"] == "notifications/progress"
            ask(call("write_file", 3, path="go", content=""))
            while answer.get("id") != 2:
                answer = json.loads(next(coming)["data"])
            assert answer["result"]["content"][0]["text"] == "one\n"
            bad = httpx.post(gateway.url + endpoint["data"], content=b"garbage")
            assert bad.status_code == 400
        gone = httpx.post(gateway.url + endpoint["data"], json=request("ping"))
        assert gone.status_code in (202, 404)
        wait_for(
            lambda: (
                httpx.post(gateway.url + endpoint["data"], json=request("ping")).status_code == 404
            )
        )


def test_a_client_of_the_old_sse_that_does_not_read_loses_its_session(gateway):
    port = int(gateway.url.rsplit(":", 1)[1])
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port))
        slow.sendall(f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = b""
        while b"session_id=" not in head:
            head += slow.recv(4096)
        url = "/messages/?session_id=" + re.search(rb"session_id=(\w+)", head)[1].decode()
        assert gateway.client.post(url, json=initialize("2025-03-26")).status_code == 202
        batch = [request("tools/list", i) for i in range(64)]
        for _ in range(100):
            answer = gateway.client.post(url, json=batch)
            if answer.status_code != 202:
                break
        wait_for(lambda: gateway.client.post(url, json=request("ping")).status_code == 404)
