# SPDX-License-Identifier: Apache-2.0
"""Tools of clients: what hostile code says on the agent's socket, what clients send wrongly, and what ends in the
middle. tests/e2e/test_tools.py has real code."""

import concurrent.futures
import contextlib
import json
import re

import pytest
from component import HELD, STUBBORN, cell
from kernelgate import problem, wait_for
from sandboxes import sandbox_of
from slow_reader import SlowReader
from tool_client import Caller, ToolClient, flooding, outcomes

ECHO = {"name": "echo"}
ADD = {
    "name": "add",
    "description": "Adds",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
LINE_MAX = 512 * 1024


@pytest.fixture
def client(gateway, session):
    return ToolClient(gateway, session, {}, [ECHO, ADD])


@pytest.fixture
def caller(gateway, session):
    """Makes connections of code in the test's session, which is none of a kernel's."""
    made = []

    def make(**options):
        made.append(Caller(sandbox_of(gateway, session).agent, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@contextlib.contextmanager
def holding(client, gateway, code=HELD, **fields):
    """Yields a reader of code that runs until it is released, and the execution's id."""
    with client.stream(code, **fields) as reader:
        reader.next_of("stdout")
        yield reader, reader.response.headers["x-execution-id"]
        if reader.lines[-1]["type"] != "done":
            gateway.release(client.session)
            reader.rest()


def give(gateway, execution, *results, **more):
    body = {"results": [{"call_id": call, **result} for call, result in results], **more}
    return gateway.client.post(f"/api/v1/executions/{execution}/tool_results", json=body)


# ---- What code says -------------------------------------------------------------------------


def test_a_call_and_its_answers(gateway, client, caller):
    before = outcomes(gateway)
    code = caller()
    with holding(client, gateway) as (reader, execution):
        assert [tool["name"] for tool in code.list()["tools"]] == ["echo", "add"]
        for result in {"result": {"ä": [1, None, 0.5]}}, {"result": None}, {"error": "too wet"}:
            number = code.call("echo", {"x": 1})
            call = reader.next_of("tool_call")
            assert (call["name"], call["arguments"]) == ("echo", {"x": 1})
            client.answer(execution, (call["call_id"], result))
            expected = {
                "id": number,
                **result,
                **({"code": "tool_error"} if "error" in result else {}),
            }
            assert code.next() == expected
            line = reader.next_of("tool_result")
            assert line["status"] == ("error" if "error" in result else "ok")
            assert line["bytes"] == len(json.dumps(result.get("result"), ensure_ascii=False, separators=(",", ":")).encode()) or line["status"] == "error"  # fmt: skip
    assert "no code that has tools runs now" in code.ask("echo", {})["error"]
    assert code.list() == {"id": 0, "tools": [], "servers": []}
    after = outcomes(gateway)
    assert {name: after[name] - before.get(name, 0) for name in after} == {
        "ok": 2, "error": 1, "timeout": 0, "cancelled": 0, "refused": 0,
    }  # fmt: skip


REFUSED = {
    # Of what has an id the connection goes on.
    b'{"id":1,"method":"call","name":"none","arguments":{}}': ("not_found", 'there is no tool "none"'),
    b'{"id":1,"method":"call","name":"","arguments":{}}': ("not_found", 'there is no tool ""'),
    b'{"id":1,"method":"call","name":"a\\"b\\\\%s\xc3\xa4","arguments":{}}': ("not_found", "there is no tool"),
    b'{"id":1,"method":"call","name":"' + "ä".encode() * 9000 + b'","arguments":{}}': ("not_found", "there is no tool"),
    b'{"id":1,"method":"call","name":"x' + "ä".encode() * 9000 + b'","arguments":{}}': ("not_found", "there is no tool"),
    b'{"id":1,"method":"call","name":"echo"}': ("invalid_request", "must be an object"),
    b'{"id":1,"method":"call","name":"echo","arguments":[]}': ("invalid_request", "must be an object"),
    b'{"id":1,"method":"call","name":"echo","arguments":null}': ("invalid_request", "must be an object"),
    b'{"id":1,"method":"call","name":"add","arguments":{"a":1}}': ("invalid_request", 'arguments: "b" is missing'),
    b'{"id":1,"method":"call","name":1,"arguments":{}}': ("invalid_request", "a request is"),
    b'{"id":1,"method":"call","arguments":{}}': ("invalid_request", "a request is"),
    b'{"id":1,"method":"shutdown"}': ("invalid_request", "a request is"),
    b'{"id":1,"method":7}': ("invalid_request", "a request is"),
    b'{"id":1}': ("invalid_request", "a request is"),
    b'{"id":1,"id":2,"method":"list"}': ("invalid_request", "duplicate"),
    b'{"id":1,"method":"call","name":"echo","arguments":{"a":1,"a":2}}': ("invalid_request", "duplicate"),
    b'{"id":1,"method":"call","name":"echo","arguments":{"a":123456789012345678901}}': ("invalid_request", "too big integer"),
    b'{"id":1,"method":"call","name":"echo","arguments":{"a":1e999}}': ("invalid_request", "overflow"),
    b'{"id":1,"method":"call","name":"echo","arguments":{"a":NaN}}': ("invalid_request", "not valid JSON"),
    b'{"id":1,"method":"call","name":"echo","arguments":{"a":"\\u0000"}}': ("invalid_request", "not valid JSON"),
    b'{"id":1,"method":"call","name":"echo","arguments":{"a":"\\ud800"}}': ("invalid_request", "not valid JSON"),
    b'{"id":1,"method":"call","name":"echo","arguments":{"a":"\xff"}}': ("invalid_request", "not valid JSON"),
    b'{"id":1,"method":"list"}\x00': ("invalid_request", "not valid JSON"),
    b'{"id":1,"method":"list"}}': ("invalid_request", "not valid JSON"),
    b'{"id":1,"method":"call","name":"echo","arguments":' + b'{"a":' * 70 + b"1" + b"}" * 71: ("invalid_request", "nest too deeply"),
    b'{"id":1,"method":"call","name":"echo","arguments":' + b"[" * 9000: ("invalid_request", "nest too deeply"),
    b'{"id":1,"method":"call","name":"echo","arguments":{"a":[{}' + b",{}" * 99000 + b"]}}": ("invalid_request", "too many values"),
}  # fmt: skip
ENDS = [
    b"\n", b"[]\n", b"1\n", b"null\n", b'"x"\n', b"GET / HTTP/1.1\r\n", b"{}\n", b'{"method":"list"}\n',
    b'{"id":"1","method":"list"}\n', b'{"id":1.5,"method":"list"}\n', b'{"id":null,"method":"list"}\n',
    b'{"id":99999999999999999999,"method":"list"}\n', b'{"kernel":"python"}\n', b"\x00\n", b"\xff\n",
    b'["id",1]\n', b'{"\\u0069d":1,"method":"call"}\n', b'{"id"\n', b'{"id":\n', b"{\n",
]  # fmt: skip


def test_what_is_refused(gateway, client, caller):
    code = caller()
    with holding(client, gateway) as (reader, _):
        for line, (kind, message) in REFUSED.items():
            code.raw(line + b"\n")
            answer = code.next()
            assert answer and answer["id"] == 1, (line[:80], answer)
            assert answer["code"] == kind and message in answer["error"], (line[:80], answer)
        for line in ENDS:
            other = caller()
            other.raw(line)
            answer = other.next()
            assert list(answer) == ["error", "code"] and answer["code"] == "invalid_request", line
            assert other.next() is None, line
        code.call("echo", {})  # which has heard nothing of all that
        reader.next_of("tool_call")
    assert len(reader.lines.of("tool_call")) == 1


def test_ids(gateway, client, caller):
    """They are the code's: whatever they are, nothing else depends on them."""
    code = caller()
    with holding(client, gateway) as (reader, execution):
        for number in 0, -1, 2**63 - 1, -(2**63), 7, 7, 7:
            code.send(id=number, method="call", name="echo", arguments={"of": number})
        calls = [reader.next_of("tool_call") for _ in range(7)]
        code.send(id=7, method="cancel")
        assert reader.next_of("tool_result")["status"] == "cancelled"
        code.send(id=7, method="cancel")
        code.send(id=12345, method="cancel")
        for number in 7, 7, 7, 0:
            code.send(id=number, method="cancel")
        ended = {reader.next_of("tool_result")["call_id"] for _ in range(3)}
        waiting = [call for call in calls if call["arguments"]["of"] not in (0, 7)]
        assert ended < {call["call_id"] for call in calls} - {call["call_id"] for call in waiting}
        client.answer(execution, *[(call["call_id"], {"result": 1}) for call in waiting])
        assert {code.next()["id"] for _ in waiting} == {-1, 2**63 - 1, -(2**63)}


def test_lines_at_the_limit(gateway, client, caller):
    def line(length):
        start, end = b'{"id":1,"method":"call","name":"echo","arguments":{"a":"', b'"}}'
        return start + b"x" * (length - len(start) - len(end)) + end

    with holding(client, gateway) as (reader, execution):
        code = caller()
        code.raw(line(LINE_MAX) + b"\n")
        call = reader.next_of("tool_call")
        assert len(call["arguments"]["a"]) > LINE_MAX - 100
        client.answer(execution, (call["call_id"], {"result": len(call["arguments"]["a"])}))
        assert code.next()["result"] > LINE_MAX - 100
        code.raw(line(LINE_MAX + 1) + b"\n")
        answer = code.next()
        assert answer["id"] == 1 and "at most 512 KiB" in answer["error"]
        for endless in line(LINE_MAX + 1)[:-3] + b"x" * 500000, b"x" * 1200000:
            code = caller()
            with contextlib.suppress(OSError):
                code.raw(endless)
            assert "at most 512 KiB" in code.next()["error"]
            assert code.next() is None


def test_byte_by_byte(gateway, client, caller):
    code = caller(greeting=b"")
    with holding(client, gateway) as (reader, execution):
        data = b'{"method": "tools", "params": {}}\n{"id":1,"method":"call","name":"echo","arguments":{}}\n{"id":2,"me'
        for at in range(len(data)):
            code.raw(data[at : at + 1])
        call = reader.next_of("tool_call")
        client.answer(execution, (call["call_id"], {"result": "x"}))
        assert code.next() == {"id": 1, "result": "x"}


ENDLESS = [
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"oneOf": [{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"not": {"$ref": "#"}}]},
    {"not": {"$ref": "#"}},
]


def test_schemas_that_never_end(gateway, session, caller):
    client = ToolClient(
        gateway,
        session,
        {},
        [{"name": f"t{i}", "input_schema": each} for i, each in enumerate(ENDLESS)],
    )
    code = caller()
    with holding(client, gateway):
        for i in range(len(ENDLESS)):
            answer = code.ask(f"t{i}", {"a": 1})
            assert answer["code"] == "invalid_request" and "too complex" in answer["error"], (
                ENDLESS[i]
            )


def test_300_at_once(gateway, client, caller):
    """256 wait at a time; the others follow, and are heard when they are cancelled."""
    code = caller()
    with holding(client, gateway) as (reader, execution):
        for n in range(300):
            code.call("echo", {"n": n})
        calls = [reader.next_of("tool_call") for _ in range(256)]
        assert [call["arguments"]["n"] for call in calls] == list(range(256))
        code.send(id=1, method="cancel")  # the first one
        code.send(id=300, method="cancel")  # the last one, which does not wait yet
        ended = reader.next_of("tool_result")
        assert (ended["call_id"], ended["status"]) == (calls[0]["call_id"], "cancelled")
        calls.append(reader.next_of("tool_call"))
        assert calls[-1]["arguments"]["n"] == 256
        for at in range(1, 257):
            client.answer(execution, (calls[at]["call_id"], {"result": at}))
        rest = [reader.next_of("tool_call") for _ in range(299 - 257)]
        assert rest[-1]["arguments"]["n"] == 298
        client.answer(execution, *[(call["call_id"], {"result": 0}) for call in rest])
        answers = [code.next() for _ in range(298)]
        assert sorted(answer["id"] for answer in answers) == list(range(2, 300))
    assert "session_busy" not in str(answers)


def test_code_that_leaves_a_full_connection(gateway, client, caller):
    code, other = caller(), caller()
    with holding(client, gateway) as (reader, _):
        for n in range(280):
            code.call("echo", {"n": n})
        for _ in range(256):
            reader.next_of("tool_call")
        code.close()
        for _ in range(256):
            assert reader.next_of("tool_result")["status"] == "cancelled"
        other.call("echo", {"n": "other"})
        assert reader.next_of("tool_call")["arguments"] == {"n": "other"}


def test_answers_that_are_not_read(gateway, client, caller):
    """Their memory is bounded: then code gets errors, and its connection still works."""
    code = caller()
    with holding(client, gateway) as (reader, execution):
        for n in range(48):
            code.call("echo", {"n": n})
        calls = [reader.next_of("tool_call") for _ in range(48)]
        for call in calls:
            client.answer(execution, (call["call_id"], {"result": "x" * 1000000}))
        assert gateway.budget_held("tool_call_bytes") > 10 << 20
        answers = [code.next() for _ in range(48)]
        n_given = sum("result" in answer for answer in answers)
        assert 16 <= n_given < 48
        assert {a["code"] for a in answers if "error" in a} == {"session_busy"}
        number = code.call("echo", {})
        client.answer(execution, (reader.next_of("tool_call")["call_id"], {"result": 1}))
        assert code.next() == {"id": number, "result": 1}
    code.close()
    wait_for(lambda: gateway.budget_held("tool_call_bytes") == 0)
    assert gateway.budget_held("execution_waiting_bytes") == 0


def test_many_connections(gateway, client, session, caller):
    """64 of a sandbox, also where all come at once; and each of them can leave."""
    agent = sandbox_of(gateway, session).agent
    with holding(client, gateway) as (reader, _), contextlib.ExitStack() as stack:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            callers = list(pool.map(lambda _: Caller(agent), range(64)))
            for each in callers:
                stack.callback(each.close)
            lists = list(pool.map(lambda each: each.list(), callers))
        assert [len(each["tools"]) for each in lists] == [2] * 64
        refused = caller()
        assert refused.next()["code"] == "session_busy" and refused.next() is None
        for each in callers[:32]:
            each.call("echo", {})
        for _ in range(32):
            reader.next_of("tool_call")
        for each in callers:
            each.close()
        for _ in range(32):
            assert reader.next_of("tool_result")["status"] == "cancelled"
        wait_for(lambda: caller().list() is not None)


def test_the_name_of_the_socket(gateway, session, run):
    assert run("getenv KERNELGATE_SOCKET").text() == "@kernelgate\n"
    command = {"command": "echo $KERNELGATE_SOCKET"}
    url = f"/api/v1/sessions/{session}/commands?wait=1"
    assert gateway.client.post(url, json=command).json()["stdout"] == "@kernelgate\n"


# ---- Whose calls they are -------------------------------------------------------------------

CALL = """
import json, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect("\\0kernelgate")
link.sendall(b'{"method": "tools", "params": {}}\\n')
link.sendall(json.dumps({"id": 1, "method": "call", "name": sys.argv[1], "arguments": {}}).encode() + b"\\n")
print(link.makefile().readline(), end="")
"""


@pytest.fixture
def script(gateway, session):
    gateway.client.put(f"/api/v1/sessions/{session}/files/call.py", content=CALL.encode())
    return "/usr/bin/python3 call.py"


def test_of_a_kernel_and_of_a_command(gateway, session, script):
    client = ToolClient(gateway, session, {"mine": lambda: "yours"}, [{"name": "mine"}])
    answer = json.loads(client.run(f"sh {script} mine").text())
    assert answer == {"id": 1, "result": "yours"}
    assert json.loads(client.run(f"sh {script} other").text())["code"] == "not_found"
    url = f"/api/v1/sessions/{session}/commands?wait=1"
    with holding(client, gateway) as (reader, execution):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            command = pool.submit(gateway.client.post, url, json={"command": f"{script} mine"})
            call = reader.next_of("tool_call")
            client.answer(execution, (call["call_id"], {"result": "a command's"}))
            assert json.loads(command.result().json()["stdout"])["result"] == "a command's"


def test_two_kernels_of_a_session(gateway, session, script, caller):
    """Each has the tools of its own execution; what belongs to neither kernel has none, while both have some."""
    first = ToolClient(gateway, session, {"one": lambda: 1}, [{"name": "one"}])
    second = ToolClient(gateway, session, {"two": lambda: 2}, [{"name": "two"}])
    code = caller()
    with first.stream(HELD) as one:
        one.next_of("stdout")
        assert [tool["name"] for tool in code.list()["tools"]] == ["one"]
        lines = second.run(cell(f"sh {script} two", f"sh {script} one"), kernel="script-message")
        answers = [json.loads(line) for line in lines.text().splitlines()]
        assert answers[0] == {"id": 1, "result": 2} and answers[1]["code"] == "not_found"
        with second.stream("print on\ntake go2", kernel="script-message") as two:
            two.next_of("stdout")
            assert code.list()["tools"] == []
            assert code.ask("one", {})["code"] == "not_found"
            gateway.client.put(f"/api/v1/sessions/{session}/files/go2", content=b"")
            two.rest()
        gateway.release(session)
        one.rest()


def test_results_of_others(gateway, session, client, caller):
    other_session = gateway.create_session()
    other = ToolClient(gateway, other_session, {}, [ECHO])
    code = caller()
    with holding(client, gateway) as (_, mine), holding(other, gateway) as (reader, theirs):
        foreign = Caller(sandbox_of(gateway, other_session).agent)
        foreign.call("echo", {})
        call = reader.next_of("tool_call")["call_id"]
        problem(give(gateway, mine, (call, {"result": 1})), 404, "not_found")
        for invented in f"{mine}-1", f"{theirs}-2", f"{theirs}-0", f"{theirs}-01", f"{theirs}-1x", theirs, "", f"{theirs}-99999999999999999999", f"{theirs}--1", "ä" * 500:  # fmt: skip
            problem(give(gateway, theirs, (invented, {"result": 1})), 404, "not_found")
        # All or none.
        problem(
            give(gateway, theirs, (call, {"result": 1}), (f"{theirs}-2", {"result": 1})),
            404,
            "not_found",
        )
        problem(give(gateway, "none", (call, {"result": 1})), 404, "not_found")
        assert give(gateway, theirs, (call, {"result": 1})).status_code == 200
        assert foreign.next() == {"id": 1, "result": 1}
        assert (
            "tool_result"
            in problem(give(gateway, theirs, (call, {"result": 1})), 409, "tool_call_ended")[
                "detail"
            ]
        )
        foreign.close()
        assert code.ask("none", {})["code"] == "not_found"
    problem(give(gateway, theirs, (call, {"result": 1})), 409, "tool_call_ended")
    gateway.delete_session(other_session)


def test_other_keys_and_tokens(start_gateway, clients, tmp_path):
    (tmp_path / "keys").write_text("alice:key-of-alice\nbob:key-of-bob\n")
    gateway = start_gateway("--api-keys-file", str(tmp_path / "keys"), key="key-of-alice")
    session = gateway.create_session()
    client = ToolClient(gateway, session, {}, [ECHO])

    def token(*scope):
        answer = gateway.client.post(f"/api/v1/sessions/{session}/tokens", json={"scope": scope})
        return clients(gateway, answer.json()["token"])

    with holding(client, gateway) as (reader, execution):
        code = Caller(sandbox_of(gateway, session).agent)
        for _ in range(2):
            code.call("echo", {})
        one, two = reader.next_of("tool_call")["call_id"], reader.next_of("tool_call")["call_id"]
        url = f"/api/v1/executions/{execution}/tool_results"

        def body(call):
            return {"results": [{"call_id": call, "result": 1}]}

        problem(clients(gateway, "key-of-bob").post(url, json=body(one)), 404, "not_found")
        problem(clients(gateway, "wrong").post(url, json=body(one)), 401, "unauthorized")
        problem(token("read").post(url, json=body(one)), 403, "token_scope")
        assert token("run").post(url, json=body(one)).status_code == 200
        assert client.answer(execution, (two, {"result": 2}))
        assert [code.next() for _ in range(2)] == [{"id": 1, "result": 1}, {"id": 2, "result": 2}]
        code.close()


# ---- What clients send ----------------------------------------------------------------------

RESULTS = "results must be a list of 1 to 256 results"
SHAPE = 'results[0] must be {"call_id", "result": any value} or {"call_id", "error": a string}'
BODIES = [
    (b"", "the body is empty"),
    (b"{", "not valid JSON"),
    (b"[]", "object"),
    (b"{}", "results is missing"),
    (b'{"results":null}', "results is missing"),
    (b'{"results":{}}', RESULTS),
    (b'{"results":[]}', RESULTS),
    (json.dumps({"results": [{"call_id": str(n), "result": 1} for n in range(257)]}).encode(), RESULTS),
    (b'{"results":[1]}', SHAPE),
    (b'{"results":[{}]}', SHAPE),
    (b'{"results":[{"call_id":"CALL"}]}', SHAPE),
    (b'{"results":[{"call_id":7,"result":1}]}', SHAPE),
    (b'{"results":[{"result":1}]}', SHAPE),
    (b'{"results":[{"call_id":"CALL","result":1,"error":"x"}]}', SHAPE),
    (b'{"results":[{"call_id":"CALL","error":null}]}', SHAPE),
    (b'{"results":[{"call_id":"CALL","error":{"message":"x"}}]}', SHAPE),
    (b'{"results":[{"call_id":"CALL","result":1,"name":"echo"}]}', SHAPE),
    (b'{"results":[{"call_id":"CALL","result":1},{"call_id":"CALL","error":"x"}]}', "has two results"),
    (b'{"results":[{"call_id":"CALL","result":1}],"wait":1}', "wait"),
    (b'{"results":[{"call_id":"CALL","result":1}],"more":1}', "more"),
]  # fmt: skip


def test_bad_results(gateway, client, caller):
    code = caller()
    with holding(client, gateway) as (reader, execution):
        code.call("echo", {})
        call = reader.next_of("tool_call")["call_id"]
        url = f"/api/v1/executions/{execution}/tool_results"
        for body, message in BODIES:
            answer = gateway.client.post(url, content=body.replace(b"CALL", call.encode()))
            assert message in problem(answer, 400, "invalid_request")["detail"], body
        problem(gateway.client.post(url, content=b"x" * (20 << 20)), 413, "upload_too_large")
        assert gateway.client.get(url).status_code == 405
        client.answer(execution, (call, {"result": "at last"}))
        assert code.next()["result"] == "at last"


DEFINITIONS = [
    ({}, "tools must be a list of at most 256 tools"),
    ("echo", "tools must be a list of at most 256 tools"),
    ([{"name": f"t{n}"} for n in range(257)], "tools must be a list of at most 256 tools"),
    ([{"name": "t", "description": "x" * LINE_MAX}], "tools: their descriptions have more than 512 KiB"),
    (["echo"], "tools[0].name must be 1 to 128 printable ASCII characters, without spaces"),
    ([{}], "tools[0].name must be"),
    ([{"name": 1}], "tools[0].name must be"),
    ([{"name": ""}], "tools[0].name must be"),
    ([{"name": "x" * 129}], "tools[0].name must be"),
    ([{"name": "two words"}], "tools[0].name must be"),
    ([{"name": "ü"}], "tools[0].name must be"),
    ([{"name": "a\nb"}], "tools[0].name must be"),
    ([{"name": "a\u007f"}], "tools[0].name must be"),
    ([ECHO, ADD, ECHO], 'tools[2]: there are two tools named "echo"'),
    ([ECHO, {"name": "a", "description": 1}], "tools[1].description must be a string"),
    ([{"name": "a", "input_schema": True}], "tools[0].input_schema must be a JSON Schema: an object"),
    ([{"name": "a", "input_schema": [1]}], "tools[0].input_schema must be a JSON Schema: an object"),
    ([{"name": "a", "parameters": {}}], 'tools[0]: unknown field "parameters"; a tool has name, description and input_schema'),
    ([{"name": "a", "ü" * 40: {}}], "tools[0]: unknown field"),
    ([{"name": "a", "input_schema": {"enum": [{}] * 99000}}], "tools: their schemas have too many values"),
]  # fmt: skip


def test_bad_definitions(gateway, session):
    for route in "execute", "execute_sync":
        for tools, message in DEFINITIONS:
            body = {"code": "print x", "session_id": session, "tools": tools}
            answer = gateway.client.post(f"/api/v1/{route}", json=body)
            assert message in problem(answer, 400, "invalid_request")["detail"], str(tools)[:80]
    good = [
        {"name": "x" * 128, "description": None, "input_schema": None},
        {"name": "!#$%&'()*+,-./:;<=>?@[]^_`{|}~"},
    ]
    for tools in None, [], good:
        assert gateway.execute("print x", session_id=session, tools=tools).status == "ok"


def test_large_results(gateway, client, caller):
    """Beyond the setting, they are files; so many values as a body of code may have are taken."""
    code = caller()
    with holding(client, gateway) as (reader, execution):
        number = code.call("add", {"a": 1, "b": 2})
        value = list(range(600000))
        client.answer(execution, (reader.next_of("tool_call")["call_id"], {"result": value}))
        answer = code.next()
        assert answer["id"] == number and re.fullmatch(
            "/mnt/data/tool-results/add-[a-z2-7]{8}.json", answer["file"]
        )
        path = answer["file"].removeprefix("/mnt/data/")
        url = f"/api/v1/sessions/{client.session}/files"
        assert gateway.client.get(f"{url}/{path}").json() == value
        # Where it cannot be written, the code learns why.
        gateway.client.delete(f"{url}/tool-results")
        gateway.client.put(f"{url}/tool-results", content=b"a file")
        code.call("echo", {})
        client.answer(
            execution, (reader.next_of("tool_call")["call_id"], {"result": "x" * 1100000})
        )
        answer = code.next()
        assert (
            "the result of echo is too large for a value, and could not be written"
            in answer["error"]
        )
        # One that is just as large as it may be.
        code.call("echo", {})
        client.answer(
            execution, (reader.next_of("tool_call")["call_id"], {"result": "x" * ((1 << 20) - 2)})
        )
        assert len(code.next()["result"]) == (1 << 20) - 2
    wait_for(lambda: gateway.budget_held("tool_call_bytes") == 0)


def test_a_slow_client_learns_of_calls_whose_lines_it_lost(start_gateway):
    """Only the first lines of calls are kept beyond the bound on output."""
    gateway = start_gateway("--max-output-bytes", "1000000")
    session = gateway.create_session()
    flood = "flood 800 10000"
    code = cell(flood, "write full x", "take go", flood, "write done x", "take go")
    body = {"code": code, "session_id": session, "tools": [ECHO], "timeout": 600}
    reader = SlowReader(gateway, "POST", "/api/v1/execute", body)
    files = f"/api/v1/sessions/{session}/files"
    caller = Caller(sandbox_of(gateway, session).agent)
    wait_for(lambda: gateway.client.get(f"{files}/full").status_code == 200)
    for n in range(80):
        caller.call("echo", {"n": n})
    url = f"/api/v1/executions/{reader.headers['x-execution-id']}"
    with gateway.client.stream("GET", url) as response:
        lines = map(json.loads, response.iter_lines())
        next(line for line in lines if line["type"] == "tool_call" and line["arguments"]["n"] == 79)
    gateway.release(session)
    wait_for(lambda: gateway.client.get(f"{files}/done").status_code == 200)
    seen, chunks = [], reader.chunks()
    for chunk in chunks:
        seen += [json.loads(line) for line in chunk.splitlines()]
        calls = [line["arguments"]["n"] for line in seen if line["type"] == "tool_call"]
        if len(calls) == 80:
            break
    assert sorted(calls) == list(range(80))
    assert "dropped" in {line["type"] for line in seen}
    gateway.release(session)
    assert b'"type":"done"' in b"".join(chunks)
    for each in reader, caller:
        each.close()
    gateway.delete_session(session)


# ---- Settings -------------------------------------------------------------------------------


@pytest.fixture
def strict(start_gateway):
    return start_gateway(
        "--tool-call-timeout", "1", "--max-tool-calls", "3", "--max-tool-result", "1024"
    )


def test_settings_are_named(strict, tmp_path):
    session = strict.create_session()
    client = ToolClient(strict, session, {}, [ECHO])
    code = Caller(sandbox_of(strict, session).agent)
    with holding(client, strict) as (reader, execution):
        assert code.ask("echo", {}) == {
            "error": "echo was not answered within 1 s (setting tool-call-timeout)",
            "code": "timeout",
        }
        assert reader.next_of("tool_result")["status"] == "timeout"
        late = reader.lines.one("tool_call")["call_id"]
        problem(give(strict, execution, (late, {"result": 1})), 409, "tool_call_ended")
        code.call("echo", {})
        client.answer(execution, (reader.next_of("tool_call")["call_id"], {"result": "x" * 1023}))
        assert code.next()["file"].startswith("/mnt/data/tool-results/echo-")
        code.call("echo", {})
        assert code.next()["code"] == "timeout"
        answer = code.ask("echo", {})
        assert answer["code"] == "rate_limited"
        assert answer["error"] == "an execution may make 3 calls of tools (setting max-tool-calls)"
    assert outcomes(strict) == {"ok": 1, "error": 0, "timeout": 2, "cancelled": 0, "refused": 1}
    code.close()


def test_execute_sync_that_is_never_answered(strict):
    session = strict.create_session()
    strict.client.put(f"/api/v1/sessions/{session}/files/call.py", content=CALL.encode())
    body = {
        "code": cell("sh /usr/bin/python3 call.py echo", "print over"),
        "session_id": session,
        "tools": [ECHO],
    }
    answer = strict.client.post("/api/v1/execute_sync", json=body).json()["data"]
    assert answer["status"] == "tool_calls" and answer["session_id"] == session
    assert [call["name"] for call in answer["tool_calls"]] == ["echo"]
    url = f"/api/v1/executions/{answer['execution_id']}"
    with strict.client.stream("GET", url) as response:
        lines = [json.loads(line) for line in response.iter_lines()]
    assert lines[-1]["status"] == "ok" and lines[-2]["text"] == "over\n"
    assert '"code":"timeout"' in lines[-3]["text"]


def test_the_time_limit_rests_no_longer_than_max_timeout(start_gateway):
    gateway = start_gateway("--max-timeout", "2")
    session = gateway.create_session()
    gateway.client.put(f"/api/v1/sessions/{session}/files/call.py", content=CALL.encode())
    client = ToolClient(gateway, session, {}, [ECHO])
    with client.stream(cell("sh /usr/bin/python3 call.py echo"), timeout=1) as reader:
        lines = reader.rest()
    assert lines.status == "timeout" and lines[-1]["duration_ms"] >= 3000
    assert lines.one("tool_result")["status"] == "cancelled"


# ---- execute_sync ---------------------------------------------------------------------------


def test_answers_one_after_the_other(gateway, session, script):
    client = ToolClient(gateway, session, {}, [ECHO])
    client.tools["echo"] = lambda: "answered"
    steps = (
        "print a",
        f"sh {script} echo",
        "print b",
        f"sh {script} echo",
        f"sh {script} none",
        "error E over",
    )
    answers = client.run_sync(cell(*steps))
    assert [answer["status"] for answer in answers] == ["tool_calls", "tool_calls", "error"]
    assert answers[0]["texts"] == ["a\n"]
    assert json.loads(answers[1]["texts"][0]) == {"id": 1, "result": "answered"}
    assert answers[1]["texts"][1:] == ["b\n"]
    assert answers[2]["errors"][0]["error"] == "E: over"
    seqs = [line["seq"] for answer in answers for line in answer["outputs"]]
    assert seqs == list(range(1, len(seqs) + 1))  # each line once, but for the last one, `done`


def test_a_stream_beside_it(gateway, session, client, caller):
    """wait gives what no such answer has had, whoever reads the stream."""
    code = caller()
    with holding(client, gateway) as (reader, execution):
        code.call("echo", {"n": 1})
        first = reader.next_of("tool_call")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(
                client.answer, execution, (first["call_id"], {"result": 1}), wait=True
            )
            assert reader.next_of("tool_result")["status"] == "ok"
            code.next()
            code.call("echo", {"n": 2})
            second = reader.next_of("tool_call")
            said = waiting.result()["data"]
            assert said["texts"] == ["on\n"] and said["tool_calls"][0]["arguments"] == {"n": 2}
            waiting = pool.submit(
                client.answer, execution, (second["call_id"], {"result": 1}), wait=True
            )
            reader.next_of("tool_result")
            gateway.release(session)
            reader.rest()
            said = waiting.result()["data"]
    assert said["status"] == "ok" and said["texts"] == []


def test_a_client_that_leaves_while_it_waits(gateway, session, client, caller):
    code = caller()
    body = {"code": HELD, "session_id": session, "tools": [ECHO]}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(gateway.client.post, "/api/v1/execute_sync", json=body)
        wait_for(lambda: code.list()["tools"])
        code.call("echo", {})
        answer = first.result().json()["data"]
    assert answer["status"] == "tool_calls"
    execution = answer["execution_id"]
    results = [{"call_id": answer["tool_calls"][0]["call_id"], "result": 1}]
    url = f"/api/v1/executions/{execution}/tool_results"
    with gateway.client_for(None) as leaving, pytest.raises(Exception, match="timed out"):
        leaving.post(url, json={"results": results, "wait": True}, timeout=0.5)
    assert code.next() == {"id": 1, "result": 1}
    with gateway.client.stream("GET", f"/api/v1/executions/{execution}") as response:
        lines = [json.loads(line) for line in response.iter_lines()]
    assert lines[-1]["status"] == "interrupted"


# ---- Ends in the middle ---------------------------------------------------------------------


def test_an_interrupt(gateway, session, client, caller):
    code = caller()
    with client.stream(HELD) as reader:
        reader.next_of("stdout")
        for _ in range(3):
            code.call("echo", {})
        for _ in range(3):
            reader.next_of("tool_call")
        execution = reader.response.headers["x-execution-id"]
        gateway.client.post(f"/api/v1/executions/{execution}/interrupt")
        for _ in range(3):
            answer = code.next()
            assert (answer["code"], answer["error"]) == (
                "cancelled",
                "the execution was interrupted",
            )
        assert reader.rest().status == "interrupted"
    assert [line["status"] for line in reader.lines.of("tool_result")] == ["cancelled"] * 3


def test_calls_while_code_is_being_stopped(gateway, session, client, caller):
    code = caller()
    with client.stream(STUBBORN) as reader:
        reader.next_of("stdout")
        execution = reader.response.headers["x-execution-id"]
        gateway.client.post(f"/api/v1/executions/{execution}/interrupt")
        answer = code.ask("echo", {})
        assert answer["code"] == "kernel_busy" and "being stopped" in answer["error"]
        lines = reader.rest()  # the kernel was killed
    assert lines.status == "interrupted" and lines.done["kernel_restarted"] is True
    assert code.ask("echo", {})["code"] == "not_found"


@pytest.mark.parametrize("end", ["die 9", "kill 9", "exit", "print x"])
def test_code_that_ends_while_calls_wait(gateway, session, client, caller, end):
    code = caller()
    with client.stream(cell("print on", "take go", end)) as reader:
        reader.next_of("stdout")
        code.call("echo", {})
        call = reader.next_of("tool_call")["call_id"]
        gateway.release(session)
        lines = reader.rest()
    assert code.next() == {"id": 1, "error": "the execution has ended", "code": "cancelled"}
    assert lines.one("tool_result")["status"] == "cancelled"
    assert lines[-1]["type"] == "done"
    execution = reader.response.headers["x-execution-id"]
    problem(give(gateway, execution, (call, {"result": 1})), 409, "tool_call_ended")


def test_a_restart_of_the_kernel(gateway, session, client, caller):
    code = caller()
    with client.stream(HELD) as reader:
        reader.next_of("stdout")
        code.call("echo", {})
        reader.next_of("tool_call")
        assert gateway.client.post(f"/api/v1/sessions/{session}/restart").status_code == 200
        assert reader.rest().one("tool_result")["status"] == "cancelled"
    assert code.next()["code"] == "cancelled"
    with holding(client, gateway) as (reader, execution):
        code.call("echo", {})
        client.answer(execution, (reader.next_of("tool_call")["call_id"], {"result": 2}))
        assert code.next() == {"id": 2, "result": 2}


def test_the_session_ends(gateway):
    session = gateway.create_session()
    client = ToolClient(gateway, session, {}, [ECHO])
    with client.stream(HELD) as reader:
        reader.next_of("stdout")
        codes = [Caller(sandbox_of(gateway, session).agent) for _ in range(3)]
        for code in codes:
            code.call("echo", {})
            reader.next_of("tool_call")
        # One result is being written to a file.
        execution = reader.response.headers["x-execution-id"]
        call = reader.lines[-1]["call_id"]
        client.answer(execution, (call, {"result": "x" * (1 << 21)}))
        gateway.delete_session(session)
        lines = reader.rest()
    assert lines.status == "died"
    for code in codes:
        answer = code.next()
        assert answer is None or "file" in answer or "code" in answer
        code.close()
    wait_for(lambda: gateway.budget_held("tool_call_bytes") == 0)


def test_a_gateway_that_is_killed(start_gateway):
    """Code learns that its call is lost, at once; and there are no tools until other code brings some."""
    gateway = start_gateway("--keep-sandboxes")
    session = gateway.create_session()
    client = ToolClient(gateway, session, {}, [ECHO])
    with contextlib.suppress(Exception), client.stream(HELD) as reader:
        reader.next_of("stdout")
        code = Caller(sandbox_of(gateway, session).agent)
        code.call("echo", {})
        call = reader.next_of("tool_call")["call_id"]
        execution = reader.response.headers["x-execution-id"]
        gateway.kill()
        reader.rest()
    assert code.next() is None
    other = Caller(sandbox_of(gateway, session).agent)
    assert other.next()["code"] == "draining"
    gateway.start()
    gateway.release(session)  # the code of before
    problem(give(gateway, execution, (call, {"result": 1})), 404, "not_found")
    code = Caller(sandbox_of(gateway, session).agent)
    assert "no code that has tools runs now" in code.ask("echo", {})["error"]
    with holding(client, gateway) as (reader, execution):
        code.call("echo", {})
        client.answer(execution, (reader.next_of("tool_call")["call_id"], {"result": 2}))
        assert code.next() == {"id": 2, "result": 2}
    code.close()
    gateway.delete_session(session)


def test_a_flood_of_calls(gateway, client, caller):
    """Others are served meanwhile. tests/load/test_tools.py bounds its pace."""
    code = caller()
    with holding(client, gateway), flooding(code):
        for _ in range(20):
            before = outcomes(gateway)["refused"]
            assert gateway.client.get("/healthz").status_code == 200
            wait_for(lambda before=before: outcomes(gateway)["refused"] > before)
