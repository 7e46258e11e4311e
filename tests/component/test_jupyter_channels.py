# SPDX-License-Identifier: Apache-2.0
"""WebSockets to a kernel's channels: both framings, several clients, handshakes, bad input."""

import contextlib
import json
import os
import struct

import httpx
import pytest
import websocket
from component import HELD, cell, exact
from jupyter_wire import (
    Channels,
    connections,
    encode_v1,
    handshake,
    list_kernels,
    of,
    one,
    start_and_connect,
    start_kernel,
    text,
    wait_until_left,
)
from kernelgate import wait_for


@pytest.fixture(scope="module")
def gateway_flags():
    return ["--jupyter-api"]


@pytest.fixture(scope="module")
def kernel(gateway):
    """One kernel, for all tests that do not restart or end it."""
    return start_kernel(gateway)


@pytest.fixture(params=[True, False], ids=["v1", "legacy"])
def client(request, gateway, kernel):
    with Channels(gateway, kernel, v1=request.param) as client:
        yield client


# ---- Executing


def test_the_first_result(client):
    messages = client.run("result 2")
    assert one(messages, "execute_result")["content"]["data"]["text/plain"] == "2"
    assert [it["content"]["execution_state"] for it in of(messages, "status")] == [
        "busy",
        "idle",
    ]
    assert one(messages, "execute_reply")["channel"] == "shell"
    assert one(messages, "execute_input")["content"]["code"] == "result 2"


def test_kernel_info(client):
    messages = client.until_idle(client.send("kernel_info_request", {}))
    assert one(messages, "kernel_info_reply")["content"]["language_info"]["name"] == "script"


def test_the_subprotocol_is_chosen(client):
    assert client.ws.subprotocol == ("v1.kernel.websocket.jupyter.org" if client.v1 else None)


def test_outputs(client):
    code = cell(
        "print " + exact("é</\u2028\n"), "stderr e", "display text/plain 5",
        "error ZeroDivisionError division by zero",
    )  # fmt: skip
    messages = client.run(code)
    assert text(messages) == "é</\u2028\n" and text(messages, "stderr") == "e\n"
    assert one(messages, "display_data")["content"]["data"]["text/plain"] == "5"
    assert one(messages, "error")["content"]["ename"] == "ZeroDivisionError"
    assert one(messages, "execute_reply")["content"]["status"] == "error"


def test_a_large_message(client):
    """Beyond what is copied: parts go out as they are."""
    messages = client.run(f"# {'x' * 300_000}\ndisplay text/plain {{900000*x}}")
    assert one(messages, "execute_input")["content"]["code"].count("x" * 300_000) == 1
    assert one(messages, "display_data")["content"]["data"]["text/plain"] == "x" * 900_000


def test_input(client):
    running = client.execute("input who? ", allow_stdin=True)
    asked = client.until(lambda message: message["channel"] == "stdin")[-1]
    assert asked["content"]["prompt"] == "who? " and asked["parent_header"]["msg_id"] == running
    client.send("input_reply", {"value": "me"}, "stdin", parent_header=asked["header"])
    assert text(client.until_idle(running)) == "me\n"
    # One that nobody waits for is ignored.
    client.send("input_reply", {"value": "me"}, "stdin")
    assert text(client.run("print 1")) == "1\n"


@pytest.mark.parametrize("size", [3, 200_000])
def test_buffers_both_ways(client, size):
    buffers = [os.urandom(size), b"", bytes(range(256))]
    content = {"comm_id": "c", "target_name": "echo", "data": {}}
    client.send("comm_open", content, buffers=buffers)
    message = client.until(lambda message: message["header"]["msg_type"] == "comm_msg")[-1]
    assert message["content"]["data"] == {"lengths": [size, 0, 256], "echo": {}}
    assert message["buffers"] == [buffer[::-1] for buffer in buffers]


def test_messages_of_open_webui(gateway, kernel):
    """It sends neither date nor buffers, and at once; smolagents sends no channel either."""
    with Channels(gateway, kernel, v1=False) as client:
        for left_out in [{"buffers"}, {"buffers", "channel", "metadata"}]:
            header = {
                "msg_id": "m",
                "msg_type": "execute_request",
                "username": "u",
                "date": "",
            }
            message = {
                "header": {**header, "session": client.session, "version": "5.3"},
                "parent_header": {},
                "metadata": {},
                "content": {"code": "print <\\/ 1"},
                "buffers": {},
                "channel": "shell",
            }
            sent = {name: value for name, value in message.items() if name not in left_out}
            client.ws.send(json.dumps(sent).replace("</", "<\\/"))
            assert text(client.until_idle("m")) == "<\\/ 1\n"


def test_a_queue_of_requests_keeps_its_order(client):
    """More than a kernel and the gateway take at a time: JupyterLab's "run all" sends all cells."""
    client.run("remove done", stop_on_error=False)
    sent = [client.execute(f"append done {i}") for i in range(700)]
    client.until_idle(sent[-1])
    assert text(client.run("read done")) == "".join(f"{i}\n" for i in range(700))


def test_a_message_in_fragments(client):
    """With a ping between them, which is answered."""
    code = json.dumps({"code": "print 7"})
    header = {"msg_id": "f", "msg_type": "execute_request", "session": client.session}
    message = {
        "channel": "shell", "header": header, "parent_header": {}, "metadata": {},
        "content": json.loads(code), "buffers": [],
    }  # fmt: skip
    data = encode_v1(message) if client.v1 else json.dumps(message).encode()
    kind = websocket.ABNF.OPCODE_BINARY if client.v1 else websocket.ABNF.OPCODE_TEXT
    pieces = [data[i : i + 7] for i in range(0, len(data), 7)]
    for i, piece in enumerate(pieces):
        opcode = websocket.ABNF.OPCODE_CONT if i else kind
        client.ws.send_frame(websocket.ABNF(i == len(pieces) - 1, 0, 0, 0, opcode, 1, piece))
        if i == 1:
            client.ws.ping("here")
    assert client.ws.recv_data(control_frame=True) == (
        websocket.ABNF.OPCODE_PONG,
        b"here",
    )
    assert text(client.until_idle("f")) == "7\n"


def test_requests_with_a_rate(start_gateway):
    """Messages count as requests of their owner; those above the rate wait."""
    gateway = start_gateway("--jupyter-api", "--max-requests-per-second", "20")
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        sent = [client.execute(f"set x {i}") for i in range(60)]
        client.until_idle(sent[-1])
        assert text(client.run("get x")) == "59\n"


# ---- Several clients


def test_replies_are_for_who_asked_and_outputs_for_all(gateway, kernel):
    with (
        Channels(gateway, kernel) as one_client,
        Channels(gateway, kernel, v1=False) as other,
    ):
        assert connections(gateway, kernel) == 2
        running = one_client.execute("print both")
        assert one(one_client.until_idle(running), "execute_reply")
        seen = other.until(lambda message: message["content"].get("execution_state") == "idle")
        assert text(seen) == "both\n" and not of(seen, "execute_reply")
    wait_until_left(gateway, kernel)


def test_outputs_of_the_rest_api_are_seen(gateway, kernel):
    with Channels(gateway, kernel) as client:
        client.run("result 1")
        gateway.execute("print from REST", session_id=kernel)
        client.until(lambda message: message["content"].get("text") == "from REST\n")


def test_a_refused_handshake_replaces_nothing(gateway, kernel):
    with Channels(gateway, kernel, query="?session_id=abc") as client:
        path = f"/api/kernels/{kernel}/channels?session_id=abc"
        assert gateway.client.get(path).status_code == 426
        assert text(client.run("print 1")) == "1\n"


def test_at_most_32_clients(gateway):
    kernel = start_kernel(gateway)
    clients = [Channels(gateway, kernel) for _ in range(32)]
    assert handshake(gateway, kernel).status_code == 429
    clients.pop().__exit__()
    wait_for(lambda: connections(gateway, kernel) == 31)
    clients.append(Channels(gateway, kernel))
    for client in clients:
        client.__exit__()
    gateway.client.delete(f"/api/kernels/{kernel}")


# ---- Clients that say nothing


def outlive_a_session(gateway):
    """Takes longer than the idle-timeout, by one that is not used."""
    other = gateway.create_session(session_id="other")
    wait_for(lambda: gateway.client.get(f"/api/v1/sessions/{other}").status_code == 404)


def test_a_forgotten_client_does_not_keep_its_kernel(start_gateway):
    gateway = start_gateway("--jupyter-api", "--idle-timeout", "3", "--jupyter-hold-time", "1")
    _, forgotten = start_and_connect(gateway)
    with forgotten as client:
        assert client.closing_status() == 1001
    kernel, client = start_and_connect(gateway)
    with client:
        running = client.execute(cell(HELD, "print done"))
        client.until(lambda message: message["content"].get("text") == "on\n")
        for _ in range(2):
            outlive_a_session(gateway)
        gateway.release(kernel)
        assert text(client.until_idle(running)) == "done\n"


def test_a_connected_client_keeps_its_kernel(start_gateway):
    gateway = start_gateway("--jupyter-api", "--idle-timeout", "3")
    _, client = start_and_connect(gateway)
    with client:
        client.run("set x 5")
        for _ in range(2):
            outlive_a_session(gateway)
        assert text(client.run("get x")) == "5\n"


# ---- Ends


def test_the_kernels_end_closes_its_connections(gateway):
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        client.run("result 1")
        gateway.client.delete(f"/api/kernels/{kernel}")
        assert client.closing_status() == 1001


def test_the_gateways_end_closes_them(start_gateway):
    gateway = start_gateway("--jupyter-api", "--keep-sandboxes")
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        client.run("set x 7")
        gateway.stop()
        assert client.closing_status() == 1001
    gateway.start()
    wait_for(lambda: list_kernels(gateway)[kernel]["execution_state"] == "idle")
    with Channels(gateway, kernel) as client:
        assert text(client.run("get x")) == "7\n"
    gateway.client.delete(f"/api/kernels/{kernel}")  # it would be kept again


def test_a_dying_kernel_is_replaced(gateway):
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel) as client:
        client.run("set x 1")
        client.execute("die 3")
        for state in "restarting", "idle":  # by the gateway: the kernel may have said it too early
            client.until(
                lambda it, state=state: (
                    it["content"].get("execution_state") == state and not it["parent_header"]
                )
            )
        assert one(client.run("get x"), "error")["content"]["ename"] == "NameError"
    gateway.client.delete(f"/api/kernels/{kernel}")


def test_a_client_closes(gateway, kernel):
    client = Channels(gateway, kernel)
    client.run("result 1")
    client.ws.send_close(1000, b"done")
    assert client.closing_status() == 1000
    assert client.ws.sock.recv(1) == b""
    client.ws.shutdown()


# ---- Handshakes


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Upgrade": None, "Connection": None}, 426),
        ({"Upgrade": "h2c"}, 426),
        ({"Connection": "keep-alive"}, 426),
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ"}, 400),
        ({"Sec_WebSocket_Key": "AAAA"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_refused_handshakes(gateway, kernel, headers, status):
    before = connections(gateway, kernel)
    assert handshake(gateway, kernel, **headers).status_code == status
    assert connections(gateway, kernel) == before


def test_a_handshake_with_a_huge_head(gateway, kernel):
    assert handshake(gateway, kernel, X_Huge="x" * 1_000_000).status_code == 400
    assert connections(gateway, kernel) == 0
    with Channels(gateway, kernel) as client:
        assert text(client.run("print 1")) == "1\n"


def test_the_kernel_must_exist(gateway):
    for unknown in "11111111-2222-4333-8444-555555555555", "x", "..":
        assert handshake(gateway, unknown).status_code == 404


def test_the_pages_of_allowed_origins_may_connect(start_gateway):
    gateway = start_gateway("--jupyter-api", "--allowed-origins", "https://lab.example")
    kernel = start_kernel(gateway)
    with Channels(gateway, kernel, origin="https://lab.example") as client:
        assert text(client.run("print 1")) == "1\n"
    with Channels(gateway, kernel, origin=gateway.url):
        pass
    assert handshake(gateway, kernel, Origin="https://other.example").status_code == 403


def test_the_upgrade_is_no_way_around_http(gateway, kernel):
    """Without an upgrade the connection serves further requests."""
    with httpx.Client(base_url=gateway.url, trust_env=False) as client:
        assert client.get(f"/api/kernels/{kernel}/channels").status_code == 426
        assert client.get("/api").status_code == 200


# ---- Bad input

HEADER = {"msg_id": "m", "msg_type": "execute_request", "session": "s"}
GOOD = {
    "channel": "shell", "header": HEADER, "parent_header": {}, "metadata": {},
    "content": {"code": "1"}, "buffers": [],
}  # fmt: skip


def v1_with_offsets(*offsets):
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"shell{}{}{}{}"


@pytest.mark.parametrize(
    "data, status",
    [
        (b"", 1008),
        (b"\x06", 1008),
        (struct.pack("<Q", 2**63), 1008),
        (struct.pack("<Q", 6), 1008),
        (v1_with_offsets(0, 1, 2, 3, 4, 5), 1008),
        (v1_with_offsets(56, 61, 63, 65, 67, 2**64 - 1), 1008),
        (v1_with_offsets(56, 61, 60, 65, 67, 69), 1008),
        (v1_with_offsets(56, 61, 63, 65, 67, 69), 1008),  # no msg_id
        (encode_v1({**GOOD, "channel": "iopub"}), 1008),
        (encode_v1({**GOOD, "channel": "x"}), 1008),
        (encode_v1({**GOOD, "buffers": [b""] * 60}), 1008),
        (encode_v1({**GOOD, "header": {**HEADER, "session": ""}}), 1008),
        (encode_v1({**GOOD, "content": 5}), 1007),
        (encode_v1(GOOD).replace(b'{"code": "1"}', b'{"code": "1"'), 1008),
        (encode_v1(GOOD).replace(b'{"code": "1"}', b'{"code": "1",'), 1007),
        (encode_v1(GOOD).replace(b'{"code": "1"}', b'{"code": 01 }'), 1007),
    ],
)
def test_bad_messages_in_v1(gateway, kernel, data, status):
    with Channels(gateway, kernel) as client:
        client.ws.send_binary(data)
        assert client.closing_status() == status
    with Channels(gateway, kernel) as client:
        assert text(client.run("print 1")) == "1\n"


@pytest.mark.parametrize(
    "data, status",
    [
        ("", 1008),
        ("5", 1008),
        ("{", 1008),
        ('{"header":', 1008),
        ('{"header":{}}', 1008),
        (json.dumps({**GOOD, "channel": "iopub"}), 1008),
        (json.dumps({**GOOD, "channel": 5}), 1008),
        (json.dumps({**GOOD, "content": []}), 1007),
        (b"", 1008),
        (struct.pack(">I", 2**32 - 1), 1008),
        (struct.pack(">2I", 1, 0), 1008),
        (struct.pack(">3I", 2, 12, 2**32 - 1) + b"{}", 1008),
        (struct.pack(">3I", 2, 14, 12) + b"{}", 1008),
    ],
)
def test_bad_messages_in_legacy(gateway, kernel, data, status):
    with Channels(gateway, kernel, v1=False) as client:
        client.ws.send_binary(data) if isinstance(data, bytes) else client.ws.send(data)
        assert client.closing_status() == status
    with Channels(gateway, kernel, v1=False) as client:
        assert text(client.run("print 1")) == "1\n"


@pytest.mark.parametrize(
    "frame, status",
    [
        (b"\x83\x80\0\0\0\0", 1002),  # an opcode that does not exist
        (b"\xc2\x80\0\0\0\0", 1002),  # a reserved bit
        (b"\x82\x00", 1002),  # not masked
        (b"\x80\x80\0\0\0\0", 1002),  # continues nothing
        (b"\x09\x80\0\0\0\0", None),  # a ping in fragments
        (b"\x89\xfe\x00\x7e\0\0\0\0", None),  # a ping of 126 bytes
        (b"\x81\x82\0\0\0\0\xc3\x28", 1007),  # not UTF-8
        # A head is looked at when the first byte after it has come.
        (b"\x82\xff" + struct.pack("!Q", 1 << 40) + b"\0\0\0\0x", 1009),
        (b"\x02\xff" + struct.pack("!Q", 10 << 20) + b"\0\0\0\0" + b"\0" * (10 << 20)
         + b"\x80\xff" + struct.pack("!Q", 10 << 20) + b"\0\0\0\0x", 1009),
    ],
)  # fmt: skip
def test_bad_frames(gateway, kernel, frame, status):
    with Channels(gateway, kernel) as client:
        client.ws.sock.sendall(frame)
        assert client.closing_status() == status


@pytest.mark.parametrize("data", [b"", b"x"], ids=["empty", "tiny"])
def test_fragments_without_an_end(gateway, kernel, data):
    """A message may have 16,384."""
    fragment = struct.pack("!BB4x", 0, 0x80 | len(data)) + data
    with Channels(gateway, kernel) as client:
        client.ws.sock.sendall(b"\x02\x80\0\0\0\0" + fragment * 16_383)
        client.ws.ping("here")
        assert client.ws.recv_data(control_frame=True)[1] == b"here"
        client.ws.sock.sendall(fragment + b"x")
        assert client.closing_status() == 1008


def test_unfinished_messages_of_an_owner_are_bounded_together(gateway, kernel):
    """10 MB each are announced, and less is sent; small messages still pass."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Channels(gateway, kernel)) for _ in range(4)]
        for client in clients:
            client.ws.sock.sendall(b"\x82\xff" + struct.pack("!Q", 10_000_000) + b"\0\0\0\0" + b"x")
            other = stack.enter_context(Channels(gateway, kernel))
            assert text(other.run("print 1")) == "1\n"
        assert clients[-1].closing_status() == 1013
        clients[0].ws.sock.close()
        wait_for(lambda: takes_ten_megabytes(gateway, kernel))


def takes_ten_megabytes(gateway, kernel):
    with Channels(gateway, kernel) as client:
        try:
            return text(client.run("print 2\n#" + "x" * 9_900_000)) == "2\n"
        except (OSError, AssertionError, websocket.WebSocketException):
            return False


def test_a_length_beyond_63_bits_is_cut(gateway, kernel):
    with Channels(gateway, kernel) as client:
        client.ws.sock.sendall(b"\x82\xff" + b"\xff" * 8 + b"\0\0\0\0")
        assert client.closing_status() is None
