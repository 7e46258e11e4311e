# SPDX-License-Identifier: Apache-2.0
"""Tools that real code calls, and that its client answers: from Python, asyncio, threads, children, shells, Deno."""

import contextlib
import json
import time

import pytest
from kernelgate import problem, wait_for
from tool_client import ToolClient, errors_of

WEATHER = {
    "name": "weather",
    "description": "The weather of a city.\nIn degrees.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "its name"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
}
ADD = {
    "name": "add",
    "description": "Adds two numbers",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}

# What the next call says after a gateway was killed, as soon as it is noticed and another one has come.
AFTER_THE_END = "draining", "not_found", "lost"


def weather(city, days=1):
    return [{"city": city, "day": day, "degrees": len(city) + day} for day in range(days)]


@pytest.fixture
def client(gateway, session):
    return ToolClient(
        gateway,
        session,
        {"weather": weather, "add": lambda a, b: a + b, "odd-name!": lambda **more: more},
        [WEATHER, ADD, {"name": "odd-name!"}],
    )


def test_a_call(client):
    lines = client.run("import tools\ntools.weather(city='Oslo', days=2)")
    assert lines.status == "ok"
    assert "'degrees': 5" in lines.one("result")["text"]
    called, ended = lines.one("tool_call"), lines.one("tool_result")
    assert called["name"] == "weather" and called["arguments"] == {"city": "Oslo", "days": 2}
    assert (ended["call_id"], ended["status"]) == (called["call_id"], "ok")


def test_what_code_sees(client):
    code = """
import tools, inspect
print(dir(tools))
print(tools.find("degrees"))
print(inspect.signature(tools.weather))
help(tools.weather)
print(tools.call("odd-name!", {"x y": 1}), tools.odd_name_(z=2))
"""
    text = client.run(code).text()
    assert "'add'" in text and "'odd_name_'" in text and "'weather'" in text
    assert "{'weather': 'The weather of a city.\\nIn degrees.'}" in text
    assert "(*, city: str, days: int = 1)" in text
    assert "city (string): its name" in text
    assert "{'x y': 1} {'z': 2}" in text


def test_wrong_arguments_are_not_sent(client):
    for code, message in {
        "tools.weather(days=1)": 'arguments: "city" is missing',
        "tools.weather(city=1)": "arguments.city: must be a string, not an integer",
        "tools.weather(city='x', days=8)": "arguments.days: must be at most 7",
        "tools.weather(city='x', when=1)": 'arguments: there is no "when"',
        "tools.call('none')": 'there is no tool "none"',
    }.items():
        lines = client.run(f"import tools\n{code}")
        assert [message in error for error in errors_of(lines)] == [True], (code, lines)
    assert client.calls == []
    [error] = errors_of(client.run("tools.weather('Oslo')"))
    assert error.startswith("TypeError: weather() takes arguments by name only")
    [error] = errors_of(client.run("tools.none"))
    assert "there is no tool none: there are weather, add, odd-name!" in error


def test_an_error_of_the_tool(client):
    lines = client.run("import tools\ntools.call('odd-name!', {'city': object()})")
    assert "cannot be an argument of a tool" in errors_of(lines)[0]
    client.tools["add"] = lambda a, b: 1 / 0
    lines = client.run(
        "try:\n    tools.add(a=1, b=2)\nexcept tools.ToolError as error:\n    print(error, error.code)"
    )
    assert lines.text() == "ZeroDivisionError: division by zero tool_error\n"


def test_fifty_side_by_side(client):
    code = """
import asyncio, tools
sums = await asyncio.gather(*[tools.aio.add(a=n, b=1) for n in range(50)])
sum(sums)
"""
    with client.stream(code) as reader:
        execution = reader.response.headers["x-execution-id"]
        calls = [reader.next_of("tool_call") for _ in range(50)]
        results = [(call["call_id"], client.result_of(call)) for call in reversed(calls)]
        client.answer(execution, *results)
        lines = reader.rest()
    assert lines.one("result")["text"] == "1275"


def test_from_threads_children_and_shells(client):
    code = """
import concurrent.futures, json, subprocess, sys, tools
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    print(sorted(threads.map(lambda n: tools.add(a=n, b=n), range(8))))
child = "import kernelgate_tools as t; print(t.add(a=20, b=22))"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True))
def sh(line):
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    print(done.returncode, done.stdout, done.stderr)
sh("kg-tool add --a 1 --b 2.5")
sh("kg-tool weather --city 'New York'")
sh("echo '{\\"a\\": 3, \\"b\\": 4}' | kg-tool add --json -")
sh("kg-tool add --a x --b 1")
sh("kg-tool missing")
sh("kg-tool")
sh("kg-tool weather --help")
"""
    text = client.run(code).text()
    assert "[0, 2, 4, 6, 8, 10, 12, 14]" in text
    assert "stdout='42\\n'" in text
    assert "0 3.5\n" in text and '0 [{"city": "New York", "day": 0' in text and "0 7\n" in text
    assert "1  kg-tool: arguments.a: must be a number, not a string\n" in text
    assert "2  kg-tool: there is no tool missing; there are: weather, add, odd-name!\n" in text
    assert "0 weather\tThe weather of a city.\nadd\tAdds two numbers\nodd-name!\n" in text
    assert "--city (string, required)  its name" in text


def test_a_module_of_the_users_own_wins(client, run):
    run("open('tools.py', 'w').write('mine = 1')")
    lines = client.run(
        "import tools, kernelgate_tools; (tools.mine, kernelgate_tools.add(a=1, b=1))"
    )
    assert lines.one("result")["text"] == "(1, 2)"


def test_without_tools(gateway, session, run):
    lines = run("import tools; [name for name in dir(tools) if name.islower() and name != 'aio']")
    assert lines.one("result")["text"] == "['call', 'find']"
    empty = ToolClient(gateway, session, {}, [])
    assert empty.run("tools.find()").one("result")["text"] == "{}"
    [error] = errors_of(empty.run("tools.search(q=1)"))
    assert "there is no tool search: this execution was given none" in error
    [error] = errors_of(run("tools.call('search')"))
    assert "no code that has tools runs now" in error


def test_an_interrupt_while_a_call_waits(client, gateway, run):
    code = "import tools\ntry:\n    tools.add(a=1, b=2)\nfinally:\n    print('cleaned up')"
    with client.stream(code) as reader:
        call = reader.next_of("tool_call")
        execution = reader.response.headers["x-execution-id"]
        gateway.client.post(f"/api/v1/executions/{execution}/interrupt")
        lines = reader.rest()
    assert lines.status == "interrupted" and "cleaned up" in lines.text()
    assert lines.one("tool_result")["status"] == "cancelled"
    late = gateway.client.post(
        f"/api/v1/executions/{execution}/tool_results",
        json={"results": [{"call_id": call["call_id"], "result": 3}]},
    )
    problem(late, 409, "tool_call_ended")
    assert client.run("tools.add(a=1, b=2)").one("result")["text"] == "3"


def test_waiting_does_not_use_up_the_time_limit(client):
    with client.stream("import tools\ntools.add(a=1, b=2)", timeout=2) as reader:
        call = reader.next_of("tool_call")
        time.sleep(3)  # more than the code has
        client.answer(
            reader.response.headers["x-execution-id"], (call["call_id"], {"result": "late"})
        )
        lines = reader.rest()
    assert lines.status == "ok" and lines.one("result")["text"] == "'late'"
    assert client.run("import time; time.sleep(60)", timeout=1).status == "timeout"


def test_a_large_result_becomes_a_file(client):
    client.tools["weather"] = lambda city, days=1: ["x" * 1000] * 2000
    code = "r = tools.weather(city='x')\nprint(r[:23], len(r.load()), type(r).__name__)"
    lines = client.run("import tools\n" + code)
    assert lines.text() == "/mnt/data/tool-results/ 2000 ResultFile\n"


def test_a_client_that_comes_back_sees_what_waits(client, gateway):
    code = "import tools\ntools.add(a=tools.add(a=1, b=2), b=3)"
    with client.stream(code, on_disconnect="continue") as reader:
        first = reader.next_of("tool_call")
        execution = reader.response.headers["x-execution-id"]
    url = f"/api/v1/executions/{execution}?after={first['seq']}"
    with gateway.client.stream("GET", url) as response:
        lines = response.iter_lines()
        again = json.loads(next(lines))
        assert again == first
        client.answer(execution, (again["call_id"], {"result": 3}))
        second = next(line for line in map(json.loads, lines) if line["type"] == "tool_call")
        client.answer(execution, (second["call_id"], {"result": 6}))
        rest = [json.loads(line) for line in lines]
    assert rest[-1]["status"] == "ok" and any(line.get("text") == "6" for line in rest)


def test_by_execute_sync(client):
    code = """
import tools
print("before")
total = sum(tools.add(a=n, b=0) for n in range(3))
print("after", total)
total
"""
    answers = client.run_sync(code)
    assert [answer["status"] for answer in answers] == ["tool_calls"] * 3 + ["ok"]
    assert answers[0]["texts"] == ["before\n"] and answers[1]["texts"] == []
    assert answers[-1]["texts"] == ["after 3\n", "3"]


PRINTS_WHILE_A_CALL_WAITS = """
import threading, time, tools
got = []
thread = threading.Thread(target=lambda: got.append(tools.add(a=1, b=2)))
thread.start()
for n in range(2000):
    print(n, flush=True)
    time.sleep(0.01)
    if got:
        break
print("got", *got)
"""


def test_code_that_keeps_printing_while_a_call_waits(client):
    answers = client.run_sync(PRINTS_WHILE_A_CALL_WAITS)
    assert [answer["status"] for answer in answers] == ["tool_calls", "ok"]
    assert answers[0]["texts"][0].startswith("0\n") and answers[1]["texts"][-1].endswith("got 3\n")


def test_many_threads(client):
    """More than there may be connections: some wait for others."""
    code = """
import concurrent.futures, tools
with concurrent.futures.ThreadPoolExecutor(100) as threads:
    results = list(threads.map(lambda n: tools.add(a=n, b=1), range(300)))
print(results == list(range(1, 301)))
"""
    lines = client.run(code)
    assert lines.text() == "True\n", lines[-3:]


def test_what_json_does_not_have(client):
    """It costs only the call that has it."""
    code = """
import asyncio, tools
async def code_of(value):
    try:
        return await tools.aio.call("odd-name!", {"value": value})
    except tools.ToolError as error:
        return error.code, str(error)[:30]
bad = [2**70, "a\\0b", "\\ud800", float("nan")]
answers = await asyncio.gather(*map(code_of, [*bad, 1]))
print(*answers, sep="\\n")
for value in bad:
    try:
        tools.call("odd-name!", value=value)
    except tools.ToolError as error:
        print(error.code)
print(tools.call("odd-name!", value=2))
"""
    lines = client.run(code)
    text = lines.text().splitlines()
    assert [line.partition("'")[2][:15] for line in text[:4]] == ["invalid_request"] * 4, text
    assert text[4:] == ["{'value': 1}", *["invalid_request"] * 4, "{'value': 2}"]


def test_what_looks_for_any_attribute(client):
    lines = client.run(
        "import tools, copy\n"
        "print(hasattr(tools, 'none'), getattr(tools, '_repr_html_', 1), hasattr(tools, '__wrapped__'))\n"
        "tools"
    )
    assert lines.text() == "False 1 False\n"
    assert "kernelgate_tools" in lines.one("result")["text"]
    lines = client.run(
        "import os\nos.environ['KERNELGATE_SOCKET'] = '@nobody'\n"
        "import subprocess, sys\n"
        "child = 'import tools\\nprint(hasattr(tools, \"x\"))\\ntry:\\n tools.find()\\nexcept tools.ToolError as e: print(e.code)'\n"
        "print(subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout)\n"
        "del os.environ['KERNELGATE_SOCKET']"
    )
    assert lines.text() == "False\nnot_found\n\n"


def test_calls_of_asyncio_that_are_not_wanted_any_more(client):
    code = """
import asyncio, tools
try:
    await asyncio.wait_for(asyncio.gather(*[tools.aio.add(a=n, b=1) for n in range(300)]), 0.5)
except asyncio.TimeoutError:
    print("too late")
print(await tools.aio.add(a=1, b=2))
"""
    with client.stream(code) as reader:
        execution = reader.response.headers["x-execution-id"]
        calls = [reader.next_of("tool_call") for _ in range(256)]
        while True:
            last = reader.next_of("tool_call")
            if last["arguments"] == {"a": 1, "b": 2}:
                break
            calls.append(last)
        client.answer(execution, (last["call_id"], {"result": 3}))
        lines = reader.rest()
    ended = [line["status"] for line in lines.of("tool_result")]
    assert ended == ["cancelled"] * len(calls) + ["ok"]
    assert lines.text() == "too late\n3\n"


def test_an_interrupt_of_asyncio(client, gateway):
    code = "import tools\nawait tools.aio.add(a=1, b=2)"
    with client.stream(code) as reader:
        reader.next_of("tool_call")
        execution = reader.response.headers["x-execution-id"]
        gateway.client.post(f"/api/v1/executions/{execution}/interrupt")
        lines = reader.rest()
    assert lines.status == "interrupted"
    assert lines.one("tool_result")["status"] == "cancelled"
    assert client.run("await tools.aio.add(a=1, b=2)").one("result")["text"] == "3"


def test_a_fork_does_not_keep_a_call(client, gateway):
    """The parent's connection is withdrawn although its child has it, too; and the child has its own."""
    code = """
import os, threading, time, tools
tools.find()
def call():
    try: tools.add(a=1, b=2)
    except BaseException as error: print(type(error).__name__)
before = threading.active_count()
if (child := os.fork()) == 0:
    tools.add(a=5, b=5)
    time.sleep(60)
    os._exit(0)
try: tools.add(a=3, b=4)
finally: os.kill(child, 9), os.waitpid(child, 0)
"""
    with client.stream(code) as reader:
        calls = [reader.next_of("tool_call") for _ in range(2)]
        execution = reader.response.headers["x-execution-id"]
        own = next(call for call in calls if call["arguments"]["a"] == 5)
        client.answer(execution, (own["call_id"], {"result": 10}))
        gateway.client.post(f"/api/v1/executions/{execution}/interrupt")
        lines = reader.rest()
    assert sorted(line["status"] for line in lines.of("tool_result")) == ["cancelled", "ok"]
    assert client.run("tools.add(a=1, b=2)").one("result")["text"] == "3"


def test_schemas_of_any_form(gateway, session):
    """What describes tools is the client's: it may be wrong, and is still called."""
    schemas = [
        {"properties": [1], "required": True},
        {"properties": {"a": 1, "class": {"type": {}}}},
    ]
    described = [{"name": f"t{i}", "input_schema": schema} for i, schema in enumerate(schemas)]
    client = ToolClient(gateway, session, {"t0": dict, "t1": dict}, described)
    code = """
import inspect, subprocess, tools
print(tools.t0(x=1), tools.t1(a=2), inspect.signature(tools.t1))
help(tools.t0)
for line in "kg-tool t0 --help", "kg-tool t1 --help", "kg-tool t1 --a 1 --class 2":
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    print(done.returncode, done.stdout + done.stderr)
"""
    text = client.run(code).text()
    assert text.startswith("{'x': 1} {'a': 2} (*, a")
    assert text.count("\n0 ") == 3 and '{"a": 1, "class": 2}' in text


@pytest.mark.once
def test_a_gateway_that_is_killed(start_gateway):
    """A call that waits fails at once; connections of before are not used again."""
    gateway = start_gateway("--pool-size", "0", "--keep-sandboxes")
    session = gateway.create_session()
    client = ToolClient(gateway, session, {"add": lambda a, b: a + b}, [ADD])
    code = """
import concurrent.futures, tools
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    list(threads.map(lambda n: tools.add(a=n, b=1), range(8)))
print("ready")
try:
    tools.add(a=1, b=2)
except tools.ToolError as error:
    open("said", "w").write(error.code)
try:
    print(await tools.aio.add(a=1, b=2))
except tools.ToolError as error:
    open("then", "w").write(f"{error.code}: {error}")
"""
    with contextlib.suppress(Exception), client.stream(code) as reader:
        execution = reader.response.headers["x-execution-id"]
        while (line := reader.next()).get("text") != "ready\n":
            if line["type"] == "tool_call":
                client.answer(execution, (line["call_id"], client.result_of(line)))
        reader.next_of("tool_call")
        gateway.kill()
        reader.rest()
    gateway.start()
    files = f"/api/v1/sessions/{session}/files"
    wait_for(lambda: gateway.client.get(f"{files}/then").status_code == 200)
    assert gateway.client.get(f"{files}/said").text == "lost"
    assert gateway.client.get(f"{files}/then").text.partition(":")[0] in AFTER_THE_END
    lines = client.run("(tools.add(a=2, b=3), await tools.aio.add(a=1, b=2))")
    assert lines.one("result")["text"] == "(5, 3)"
    gateway.delete_session(session)


def test_what_was_printed_comes_before_the_call(client):
    code = """
import tools
for n in range(100):
    print(n)
    tools.add(a=n, b=0)
"""
    lines = client.run(code)
    shown = ""
    for line in lines:
        if line["type"] == "stdout":
            shown += line["text"]
        elif line["type"] == "tool_call":
            assert shown.split()[-1:] == [str(line["arguments"]["a"])]


# ---- JavaScript -----------------------------------------------------------------------------


@pytest.fixture
def deno(client):
    """Runs JavaScript; returns what it prints and its last value."""

    def run(code, **fields):
        lines = client.run(code, kernel="javascript", **fields)
        assert lines.status == "ok", lines
        return lines.text() + "".join(line["text"] for line in lines.of("result"))

    return run


def test_javascript(client, deno):
    assert (
        deno("(await tools.weather({city: 'Oslo', days: 2})).map((day) => day.degrees)")
        == "[ 4, 5 ]"
    )
    assert deno(
        "await tools.call('odd-name!', {'x y': [1n, new Set([2]), new Float32Array(1)]})"
    ) == ('{ "x y": [ 1, [ 2 ], [ 0 ] ] }')
    assert (
        deno("(await tools.list()).map((tool) => tool.name)") == '[ "weather", "add", "odd-name!" ]'
    )
    assert deno("Object.keys(await tools.find('Degrees weather'))") == '[ "weather" ]'
    assert client.calls[0]["arguments"] == {"city": "Oslo", "days": 2}
    # It is one more connection at most, whatever is done beside it.
    code = "(await Promise.all([...Array(50).keys()].map((n) => tools.add({a: n, b: 1})))).reduce((a, b) => a + b)"
    assert deno(code) == "1275"


def test_errors_in_javascript(client, deno):
    client.tools["add"] = lambda a, b: 1 / 0
    code = """
async function said(call) {
  try { return await call() } catch (error) { return `${error.name} ${error.code}: ${error.message}` }
}
console.log(await said(() => tools.weather({days: 1})))
console.log(await said(() => tools.none()))
console.log(await said(() => tools.add({a: 1, b: 2})))
console.log(await said(() => tools.call("odd-name!", {a: NaN})))
console.log(await said(() => tools.call("odd-name!", {a: 2n ** 70n})))
console.log(await said(() => tools.call("odd-name!", {a: "a\\0b"})))
console.log(await said(() => tools.call("odd-name!", {a: "x".repeat(1 << 20)})))
console.log(await said(() => tools.weather("Oslo")))
try { await tools.none() } catch (error) { console.log(error instanceof tools.ToolError) }
console.log(await tools, JSON.stringify({tools}), `${tools}`)
"""
    lines = deno(code).splitlines()
    for line, start in zip(lines, [
        'ToolError invalid_request: arguments: "city" is missing',
        'ToolError not_found: there is no tool "none"',
        "ToolError tool_error: ZeroDivisionError: division by zero",
        "ToolError invalid_request: arguments: NaN is not JSON",
        "ToolError invalid_request: arguments: 1180591620717411303424n is not JSON",
        "ToolError invalid_request: the call is not valid JSON: ",
        "ToolError invalid_request: the arguments are 1048",
        "TypeError undefined: weather() takes its arguments as one object",
        "true",
        "tools: await tools.list() says which there are",
    ], strict=True):  # fmt: skip
        assert line.startswith(start), (line, start)


def test_a_large_result_in_javascript(client, deno):
    client.tools["weather"] = lambda city, days=1: ["ä" * 1000] * 2000
    code = "const r = await tools.weather({city: 'x'}); [r.path.slice(0, 23), `${r}` === r.path, (await r.load()).length]"
    assert deno(code) == '[ "/mnt/data/tool-results/", true, 2000 ]'
    client.tools["weather"] = lambda city, days=1: ["ä" * 1000] * 400
    assert deno("(await tools.weather({city: 'x'})).join('').length") == "400000"


@pytest.mark.parametrize(
    "declaration",
    [
        "const tools = 7",
        "let tools = 7",
        "var tools = 7",
        "tools = 7",
        "globalThis.tools = 7",
    ],
)
def test_tools_of_the_users_own(deno, declaration):
    assert deno(declaration + "; tools") == "7"
    assert deno("tools") == "7"


def test_a_function_or_variable_of_that_name(deno):
    assert deno("function tools() { return 7 }\ntools()") == "7"
    assert deno("tools()") == "7"
    assert deno("tools.search", variables={"tools": {"search": 8}}) == "8"


def test_an_interrupt_in_javascript(client, gateway, deno):
    assert deno("(await tools.list()).length") == "3"
    code = "await Promise.all([tools.add({a: 1, b: 2}), tools.add({a: 3, b: 4})])"
    with client.stream(code, kernel="javascript") as reader:
        for _ in range(2):
            reader.next_of("tool_call")
        execution = reader.response.headers["x-execution-id"]
        gateway.client.post(f"/api/v1/executions/{execution}/interrupt")
        lines = reader.rest()
    assert lines.status == "interrupted"
    assert [line["status"] for line in lines.of("tool_result")] == ["cancelled"] * 2
    assert deno("await tools.add({a: 1, b: 2})") == "3"
    code = "await tools.call('add', {a: 1, b: 2}, {signal: AbortSignal.timeout(100)}).catch((error) => error.name)"
    with client.stream(code, kernel="javascript") as reader:
        lines = reader.rest()
    assert lines.one("tool_result")["status"] == "cancelled"
    assert lines.one("result")["text"] == '"TimeoutError"'


# An interrupt ends a whole turn of Deno's event loop: what the turn has read or written is done, and nobody learns
# of it. Here the operation of that name does so when it is told to.
LOSES = """
const connect = Deno.connect;
Deno.connect = async (options) => {
  const connection = await connect(options);
  const { read, write } = connection;
  const losing = (name, operation) => async (bytes) => {
    const n = await operation.call(connection, bytes);
    return globalThis.lost === name ? await new Promise(() => {}) : n;
  };
  connection.read = losing("read", read);
  connection.write = losing("write", write);
  return connection;
};
"""


@pytest.mark.parametrize("operation", ["read", "write"])
def test_an_interrupt_loses_what_was_under_way(client, deno, operation):
    deno(LOSES)
    assert deno("await tools.add({a: 1, b: 2})") == "3"
    waits = "new Promise((resolve) => setTimeout(() => resolve('lost'), 1000))"
    code = (
        f"globalThis.lost = '{operation}'; await Promise.race([tools.add({{a: 1, b: 2}}), {waits}])"
    )
    assert deno(code) == {"read": '"lost"', "write": "3"}[operation]
    assert deno("globalThis.lost = null; await tools.add({a: 2, b: 2})", timeout=10) == "4"
    assert deno("(await Promise.all([1, 2].map((n) => tools.add({a: n, b: 1})))).length") == "2"


@pytest.mark.once
def test_javascript_and_a_gateway_that_is_killed(start_gateway):
    gateway = start_gateway("--pool-size", "0", "--keep-sandboxes")
    session = gateway.create_session()
    client = ToolClient(gateway, session, {"add": lambda a, b: a + b}, [ADD])
    code = """
try { await tools.add({a: 1, b: 2}) } catch (error) { await Deno.writeTextFile("said", error.code) }
try { await tools.add({a: 1, b: 2}) } catch (error) { await Deno.writeTextFile("then", error.code) }
"""
    with contextlib.suppress(Exception), client.stream(code, kernel="javascript") as reader:
        reader.next_of("tool_call")
        gateway.kill()
        reader.rest()
    gateway.start()
    files = f"/api/v1/sessions/{session}/files"
    wait_for(lambda: gateway.client.get(f"{files}/then").status_code == 200)
    assert gateway.client.get(f"{files}/said").text == "lost"
    assert gateway.client.get(f"{files}/then").text in AFTER_THE_END
    lines = client.run("await tools.add({a: 1, b: 2})", kernel="javascript")
    assert lines.one("result")["text"] == "3"
    gateway.delete_session(session)


@pytest.mark.once
@pytest.mark.parametrize("way", ["exec", "fork"])
def test_the_name_of_the_socket(start_gateway, way):
    """The environment of a forked kernel is not that of a child of the agent."""
    gateway = start_gateway("--kernel-start", way, "--pool-size", "0")
    session = gateway.create_session()
    code = "import os, subprocess\nprint(os.environ['KERNELGATE_SOCKET'])\n!echo $KERNELGATE_SOCKET"
    assert gateway.execute(code, session_id=session).text().split() == ["@kernelgate"] * 2
    client = ToolClient(gateway, session, {"add": lambda a, b: a + b}, [ADD])
    url = f"/api/v1/sessions/{session}/commands?wait=1"
    command = "import os, kernelgate_tools; print(os.environ['KERNELGATE_SOCKET'], kernelgate_tools.find())"
    answer = gateway.client.post(url, json={"command": f'python3 -c "{command}"'}).json()
    assert answer["stdout"] == "@kernelgate {}\n", answer
    assert client.run("import tools; tools.add(a=1, b=2)").one("result")["text"] == "3"
