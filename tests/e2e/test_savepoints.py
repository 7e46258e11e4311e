# SPDX-License-Identifier: Apache-2.0
"""Savepoints and branches of real kernels: what they have, what they do not touch, how they end."""

import concurrent.futures

import pytest
from kernelgate import HELD, problem, wait_for
from mcp_clients import WireClient, client_of
from sandboxes import lives, sandbox_of
from session_savepoints import Savepoints, known, value

# Twenty kinds of variables, and a cell whose result is equal wherever they are.
KINDS = r"""
import asyncio, collections, contextvars, dataclasses, datetime, decimal, fractions, functools, io, itertools
import pathlib, random, re, sqlite3, string, tempfile
import numpy as np, pandas as pd, matplotlib.pyplot as plt

@dataclasses.dataclass
class Point:
    x: int
    y: int = 2

def counter():
    n = 0
    def step():
        nonlocal n
        n += 1
        return n
    return step

number, text, raw, nothing = 2**70, "äöü 🎈", b"\x00\xff", None
listed = [1, [2, {"three": {4}}]]
point, step, doubled = Point(1), counter(), lambda value: value * 2 + number
generator = (n * n for n in itertools.count(3)); next(generator)
frame = pd.DataFrame({"a": np.arange(1000), "b": list("xyzab") * 200})
array = np.linspace(0, 1, 500).reshape(20, 25)
default = collections.defaultdict(list, {"k": [1]})
moment, money, third = datetime.datetime(2026, 1, 2), decimal.Decimal("1.10"), fractions.Fraction(1, 3)
pattern, path = re.compile(r"(\d+)"), pathlib.Path("/mnt/data/kinds")
seeded = np.random.default_rng(7); seeded.random(3)
drawn = random.Random(7); drawn.random()
variable = contextvars.ContextVar("variable", default=1); variable.set(5)
memory = io.StringIO(); memory.write("kept")
opened = open("/mnt/data/kinds.txt", "w+"); opened.write("0123456789"); opened.flush(); opened.seek(4)
frame.to_parquet("/mnt/data/kinds.parquet")
step(); step()
"""
SEEN = r"""
(number, text, raw, nothing, listed, point, step(), doubled(1), next(generator), frame["a"].sum(),
 frame["b"].value_counts().to_dict(), float((array @ array.T).sum()), dict(default), moment, money, third,
 pattern.search("a12").group(), str(path), float(seeded.random()), drawn.random(), variable.get(),
 memory.getvalue(), opened.read(2), opened.tell(), pd.read_parquet("/mnt/data/kinds.parquet").shape)
"""


# ---- Savepoints


def test_undo(run, savepoints):
    run("import pandas as pd\nframe = pd.DataFrame({'a': range(5)})")
    made = savepoints.make(name="loaded")
    assert made["name"] == "loaded" and made["kernel"] == "python" and made["execution_count"] == 1
    assert made["lost"] == [] and made["savepoint"].startswith("sp_")
    run("frame.drop(frame.index, inplace=True)")
    assert value(run, "len(frame)") == "0"
    assert known(savepoints.restore(made["savepoint"])) == known(made)
    assert value(run, "len(frame)") == "5"
    run("del frame")
    savepoints.restore(made["savepoint"])  # it stays
    lines = run("len(frame)")
    assert lines.one("result")["text"] == "5" and lines.done["execution_count"] == 2
    assert savepoints.shown() == {"savepoints": [known(made)], "dropped": []}
    savepoints.drop(made["savepoint"])
    assert savepoints.ids() == [] and value(run, "len(frame)") == "5"
    savepoints.restore(made["savepoint"], 404, "not_found")


def test_all_kinds_of_variables(run, savepoints):
    run(KINDS)
    made = savepoints.make()
    seen = value(run, SEEN)
    savepoints.branch("first", **{"from": made["savepoint"]})
    assert value(run, SEEN, branch="first") == seen
    assert value(run, SEEN, branch="first") != seen  # generators and offsets go on
    savepoints.restore(made["savepoint"])
    assert value(run, SEEN) == seen
    savepoints.branch("second", branch="first")  # a branch of a branch, from now
    assert value(run, "step()", branch="second") == value(run, "step()", branch="first") == "5"
    for name in "first", "second":  # what code uses of a kernel works in it
        lines = run("import sys\nprint('out'); print('err', file=sys.stderr)\n!echo shell", branch=name)
        assert lines.text().split() == ["out", "shell"] and lines.text("stderr") == "err\n"
        assert run("plt.plot([1, 2]); plt.show()", branch=name).one("display")["format"] == "png"
        assert value(run, "await asyncio.sleep(0.01, 'awaited')", branch=name) == "'awaited'"
        assert run("1 / 0", branch=name).one("error")["ename"] == "ZeroDivisionError"


@pytest.mark.once
def test_random_numbers_differ(run, savepoints):
    run("import random, uuid, os, tempfile, numpy as np\nnp.random.rand()")
    made = savepoints.make()
    code = "(random.random(), float(np.random.rand()), uuid.uuid4(), os.urandom(4), tempfile.mktemp())"
    seen = [value(run, code)]
    for name in "abc":
        savepoints.branch(name, **{"from": made["savepoint"]})
        seen.append(value(run, code, branch=name))
    parts = [each.strip("()").split(", ") for each in seen]
    assert all(len({part[i] for part in parts}) == 4 for i in range(len(parts[0])))


def test_what_is_lost_is_said(run, savepoints):
    run(
        "import socket, subprocess, threading, time\nkept = 1\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True, name='mine').start()\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "child = subprocess.Popen(['sleep', '1000'])"
    )
    made = savepoints.make()
    assert made["lost"] == ["1 thread", "1 network socket", "1 child process"]
    savepoints.branch("b", **{"from": made["savepoint"]})
    assert value(run, "kept", branch="b") == "1"
    assert value(run, "[t for t in threading.enumerate() if t.name == 'mine']", branch="b") == "[]"
    assert run("listener.accept()", branch="b").status == "error"
    # The parent's have not noticed.
    assert value(run, "child.poll() is None and listener.getsockname()[1] > 0") == "True"


@pytest.mark.once
def test_one_before_a_cell(run, savepoints):
    run("x = 1")
    lines = run("x = 2", savepoint=True)
    id_ = lines.done["savepoint"]
    assert savepoints.ids() == [id_]
    savepoints.restore(id_)
    assert value(run, "x") == "1" and "savepoint" not in run("x").done


@pytest.mark.once
def test_the_bound(run, savepoints):
    run("x = 0")
    named = savepoints.make(name="first")["savepoint"]
    ends = [run(f"x = {i}", savepoint=True).done for i in range(1, 101)]
    made = [end["savepoint"] for end in ends]
    assert savepoints.ids() == [named, *made[-7:]]
    listed = savepoints.list()
    assert [each["savepoint"] for each in listed["dropped"]] == made[-23:-7]
    assert all("max-savepoints" in each["reason"] for each in listed["dropped"])
    assert [id_ for end in ends for id_ in end.get("savepoints_dropped", [])] == made[:-7]
    assert "savepoints_dropped" not in run("x").done
    savepoints.restore(named)
    assert value(run, "x") == "0"
    assert int(value(run, "len([n for n in __import__('os').listdir('/proc') if n.isdigit()])")) < 20


@pytest.mark.once
def test_named_ones_are_not_dropped(run, savepoints):
    run("x = 0")
    for i in range(8):
        savepoints.make(name=str(i))
    assert "max-savepoints" in savepoints.make(409, "too_many_savepoints")
    savepoints.drop(savepoints.ids()[0])
    savepoints.make()


@pytest.mark.once
@pytest.mark.parametrize("way", ["savepoint", "branch", "branch from a savepoint"])
def test_two_of_one_name(run, savepoints, way):
    run("x = 1")
    made = savepoints.make(name="one")
    fields = {"from": made["savepoint"]} if "from" in way else {}
    path = "savepoints" if way == "savepoint" else "branches"

    def ask(_):
        body = {"name": "same", **fields}
        return savepoints.client.post(f"{savepoints.url}/{path}", json=body, timeout=60)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(ask, range(4)))
    assert sorted(each.status_code for each in responses) == [201, 409, 409, 409]
    for each in responses:
        if each.status_code != 201:
            assert '"same"' in problem(each, 409, "name_exists")["detail"]
    assert "same" in (savepoints.names() if path == "savepoints" else savepoints.branches())
    if path == "branches":
        savepoints.end("same")
        savepoints.branch("same", **fields)
    else:
        assert "one" in savepoints.make(409, "name_exists", name="one")
        savepoints.drop(savepoints.ids()[0])
        savepoints.make(name="one")  # the name is free again


# ---- When


@pytest.mark.once
def test_a_busy_kernel(gateway, session, run, savepoints):
    run("x = 1")
    made = savepoints.make()
    with gateway.stream(HELD, session_id=session) as reader:
        reader.next_of("stdout")
        savepoints.make(409, "kernel_busy")
        savepoints.branch("b", 409, "kernel_busy")
        problem(
            gateway.client.post(
                "/api/v1/execute", json={"code": "1", "session_id": session, "savepoint": True}
            ),
            409, "kernel_busy",
        )  # fmt: skip
        savepoints.restore(made["savepoint"])
        assert reader.rest().status == "interrupted"
    assert value(run, "x") == "1"


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "restart"])
def test_a_kernel_that_has_ended(gateway, session, run, savepoints, end):
    run("import os\nx = 41")
    made = savepoints.make()
    savepoints.branch("b")
    if end == "restart":
        gateway.client.post(f"/api/v1/sessions/{session}/restart").raise_for_status()
    else:
        assert run(end).status == "died"
        assert value(run, "x", branch="b") == "41"
    assert run("x").status == "error"
    savepoints.restore(made["savepoint"])
    assert value(run, "x + 1") == "42"


def test_the_next_gateway(start_gateway):
    gateway = start_gateway()
    session = gateway.create_session()
    savepoints = Savepoints(gateway, session)
    run = lambda code, **fields: gateway.execute(code, session_id=session, **fields)
    run("x = 1")
    made, lost = savepoints.make(name="kept"), savepoints.make()
    savepoints.branch("b")
    run("x = 2")
    run("x = 3", branch="b")
    gateway.kill()
    gateway.start()
    savepoints = Savepoints(gateway, session)
    # It is refused, and not empty, until the session has been asked what runs in it.
    wait_for(lambda: gateway.client.get(f"{savepoints.url}/savepoints").status_code != 429)
    assert savepoints.ids() == [made["savepoint"], lost["savepoint"]]
    assert savepoints.shown()["savepoints"][0] == known(made)
    assert value(run, "x", branch="b") == "3"
    savepoints.restore(made["savepoint"])
    assert value(run, "x") == "1" and list(savepoints.branches()) == ["b"]
    gateway.delete_session(session)


@pytest.mark.only("oci", "the others have no forked kernels")
@pytest.mark.not_on("runsc", "it has none either")
@pytest.mark.parametrize("way", ["exec", "fork"])
def test_kernels_by_fork_and_by_exec(start_gateway, way):
    gateway = start_gateway("--kernel-start", way)
    session = gateway.create_session()
    savepoints = Savepoints(gateway, session)
    for x in 1, 2:
        gateway.execute(f"x = {x}", session_id=session)
        savepoints.make(name=str(x))
    for id_, x in zip(savepoints.ids(), "12", strict=True):
        savepoints.restore(id_)
        assert gateway.execute("x", session_id=session).one("result")["text"] == x
    gateway.delete_session(session)


# ---- Branches


def test_three_models_and_the_best(run, savepoints):
    run("import numpy as np\nx = np.linspace(0, 1, 50); y = 3 * x**2 + 1")
    loaded = savepoints.make(name="loaded")["savepoint"]
    for degree in 1, 2, 3:
        savepoints.branch(f"degree-{degree}", **{"from": loaded})
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        code = "fit = np.polyfit(x, y, {0}); float(abs(np.polyval(fit, x) - y).max())"
        errors = list(pool.map(lambda n: float(value(run, code.format(n), branch=f"degree-{n}")), (1, 2, 3)))
    assert errors[0] > 0.1 and errors[1] < 1e-9
    assert run("fit").status == "error"  # the main kernel has none
    assert set(savepoints.branches()) == {"degree-1", "degree-2", "degree-3"}
    savepoints.promote("degree-2")
    assert value(run, "len(fit)") == "3"
    for degree in 1, 3:
        savepoints.end(f"degree-{degree}")
    assert savepoints.branches() == {} and savepoints.ids() == [loaded]


def test_branches_do_not_touch_each_other(gateway, session, run, savepoints):
    run("x = [1]")
    for name in "ab":
        savepoints.branch(name)
    run("x.append('a')", branch="a")
    assert value(run, "x", branch="b") == "[1]" == value(run, "x")
    with gateway.stream(
        "print('on')\nwhile True: pass", session_id=session, branch="a", timeout=60
    ) as reader:
        url = f"/api/v1/executions/{reader.response.headers['x-execution-id']}/interrupt"
        reader.next_of("stdout")
        gateway.client.post(url).raise_for_status()
        assert reader.rest().status == "interrupted"
    assert value(run, "x", branch="a") == "[1, 'a']"
    assert run("while True: pass", branch="b", timeout=0.5).status == "timeout"
    assert value(run, "x", branch="b") == "[1]"
    assert run("import os; os._exit(1)", branch="a").status == "died"
    assert value(run, "x") == "[1]" == value(run, "x", branch="b")
    assert run("x", branch="a").status == "error"  # it was replaced by a new one
    savepoints.end("a")
    problem_ = {"code": "1", "session_id": session, "branch": "a"}
    problem(gateway.client.post("/api/v1/execute", json=problem_), 404, "not_found")


@pytest.mark.only("oci", "counts the memory of its control group")
@pytest.mark.not_on("runsc", "its kernel chooses the process that ends")
def test_out_of_memory_in_a_branch(run, savepoints):
    run("x = 1")
    savepoints.branch("b")
    made = savepoints.make(name="kept")
    lines = run(
        "data = bytearray(10 << 30)\nfor i in range(0, len(data), 4096): data[i] = 1", branch="b", timeout=60
    )
    assert lines.status in ("died", "error")
    assert value(run, "x") == "1"
    listed = savepoints.list()
    gone = [each["savepoint"] for each in listed["dropped"]]
    assert savepoints.ids() == [made["savepoint"]] or gone == [made["savepoint"]]


@pytest.mark.not_on("runsc", "gVisor does not say what a process shares")
def test_memory_of_each(gateway, run, savepoints):
    """It is what a branch has of its own, and what the main kernel has overwritten since a savepoint."""
    run("import numpy as np\nframe = np.ones(64 << 20, np.uint8)")
    made = savepoints.make()["savepoint"]
    savepoints.branch("idle")
    savepoints.branch("own")
    run("mine = np.ones(32 << 20, np.uint8)", branch="own")

    def near(**wanted):
        memory = savepoints.memory()
        return all(low <= memory[name] <= low + 25 for name, low in wanted.items())

    wait_for(lambda: near(**{made: 0.5, "idle": 2, "own": 34}), timeout=60)
    assert savepoints.memory()["idle"] < 25
    run("frame[:] = 2")  # now the savepoint has the old one with the branches, which share it
    savepoints.end("idle"), savepoints.end("own")
    wait_for(lambda: near(**{made: 64.5}), timeout=60)
    metrics = gateway.client.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line[0] != "#")
    assert float(values["kernelgate_savepoints"]) >= 1
    assert float(values["kernelgate_savepoints_memory_bytes"]) >= 64 << 20
    assert float(values["kernelgate_branches"]) + float(values["kernelgate_branches_memory_bytes"]) >= 0
    savepoints.drop(made)


LARGE = """
import os, numpy as np, pandas as pd
frame = pd.DataFrame(np.arange(1 << 27, dtype=float).reshape(-1, 16))
assert frame.memory_usage().sum() >= 1 << 30
total = float(frame[3].sum())
"""


@pytest.mark.seldom
@pytest.mark.only("oci", "a sandbox needs 3 GB")
def test_a_large_frame(start_gateway):
    """A GiB is equal in a branch and after a restore, and there once as long as nobody writes."""
    gateway = start_gateway("--memory-mb", "2560", "--pool-size", "0")
    session = gateway.create_session()
    run = lambda code, **fields: gateway.execute(code, session_id=session, timeout=120, **fields)
    savepoints = Savepoints(gateway, session)
    total = value(run, LARGE + "total")
    made = savepoints.make(name="loaded")
    for name in "ab":
        savepoints.branch(name, **{"from": made["savepoint"]})
        assert value(run, "float(frame[3].sum()), frame.shape", branch=name) == f"({total}, (8388608, 16))"
    usage = gateway.client.get(f"/api/v1/sessions/{session}").json()["usage"]
    assert usage["memory_bytes"] < 3 << 29
    run("frame.iloc[:1000] = 0")
    run("frame = None", branch="a")
    savepoints.restore(made["savepoint"])
    assert value(run, "float(frame[3].sum()), float(frame[0].head(2).sum())") == f"({total}, 16.0)"
    assert value(run, "float(frame[3].sum())", branch="b") == total
    gateway.delete_session(session)


@pytest.mark.not_on("kubernetes", "a pod has processes of its own")
@pytest.mark.not_on("runsc", "its processes are not the machine's")
def test_the_end_of_a_session(gateway):
    session = gateway.create_session()
    run = lambda code, **fields: gateway.execute(code, session_id=session, **fields)
    savepoints = Savepoints(gateway, session)
    run("import subprocess; _ = subprocess.Popen(['sleep', '1000']); open('a', 'w').write('1')")
    made = savepoints.make(files=True)["savepoint"]
    for name in "ab":
        savepoints.branch(name, **{"from": made})
        run("import subprocess; _ = subprocess.Popen(['sleep', '1000'])", branch=name)
    savepoints.branch("c", branch="a")
    pids = sandbox_of(gateway, session).pids()
    assert len(pids) >= 8
    gateway.delete_session(session)
    assert not [pid for pid in pids if lives(pid)]
    Savepoints(gateway, session).make(404, "session_not_found")


# ---- Over MCP


LOAD = """
import time, pandas as pd
loads = globals().get("loads", 0) + 1
frame = pd.DataFrame({"city": ["Bern", "Genf", "Chur"] * 1000, "sum": ["1 200", "35", "4"] * 1000})
"""
SPOILS = "frame.dropna(inplace=True); frame['sum'] = frame.pop('sum').str.extract('(\\d)')[0].astype(int)"
REPAIRS = "frame['sum'] = frame['sum'].str.replace(' ', '').astype(int)"
LOOKS = "int(frame['sum'].astype(int).sum()), loads"


@pytest.mark.once
def test_an_agents_loop(gateway):
    """As an agent with the official SDK goes on: it tries, looks at the result, takes it back, and tries again."""
    with client_of("python-auto", "http", gateway) as client:
        first = client.call("run_python_code", {"code": LOAD})
        call = lambda tool, **fields: client.call(tool, {"session_id": first.session_id, **fields})
        run = lambda code, **fields: call("run_python_code", code=code, **fields)
        loaded = call("create_savepoint", name="loaded").structured["savepoint"]
        assert not run(SPOILS).is_error
        wanted = "(1239000, 1)"
        assert run(LOOKS).text != wanted  # it sees that digits are lost, and the texts are gone
        assert run(REPAIRS).is_error
        undone = call("restore_savepoint", savepoint=loaded)
        assert not undone.is_error and loaded in undone.text
        assert not run(REPAIRS).is_error
        assert run(LOOKS).text == wanted  # of one load
        # It compares two ways from here on, and keeps what it has.
        for branch, code in ("median", "frame.groupby('city')['sum'].median()"), ("first", "frame.head(2)"):
            assert not run(f"kept = {code}; kept", branch=branch).is_error
        assert run("len(kept)", branch="median").text == "3" and run("len(kept)", branch="first").text == "2"
        assert run("'kept' in globals(), loads").text == "(False, 1)"
        call("close_session")


@pytest.mark.once
def test_an_agent_that_takes_back_what_it_did(gateway):
    with WireClient(gateway) as client:
        assert {"create_savepoint", "restore_savepoint"} <= set(client.tools())
        load = "import time, pandas as pd\nloaded_at = time.time()\nframe = pd.DataFrame({'a': range(1000)})"
        client.call("run_python_code", {"code": load})
        before = client.call("run_python_code", {"code": "loaded_at, frame['a'].sum()"}).text
        made = client.call("create_savepoint", {"name": "loaded"})
        assert made.structured["savepoint"] in made.text and made.structured["name"] == "loaded"
        client.call("run_python_code", {"code": "frame['a'] = frame['a'].astype(str)"})
        spoiled = client.call("run_python_code", {"code": "frame['a'].sum() / 2"})
        assert spoiled.is_error and "TypeError" in spoiled.text
        assert not client.call("restore_savepoint").is_error
        assert client.call("run_python_code", {"code": "loaded_at, frame['a'].sum()"}).text == before
        # Two tries beside one another, which leave the session as it is.
        for branch, factor in ("double", 2), ("triple", 3):
            code = {"code": f"frame['a'] *= {factor}; int(frame['a'].sum())", "branch": branch}
            assert client.call("run_python_code", code).text == str(499500 * factor)
        again = {"code": "int(frame['a'].max())", "branch": "double"}
        assert client.call("run_python_code", again).text == "1998"
        assert client.call("run_python_code", {"code": "loaded_at, frame['a'].sum()"}).text == before
        for name, arguments in (
            ("restore_savepoint", {"savepoint": "sp_none"}),
            ("run_python_code", {"code": "1", "branch": "a b"}),
        ):
            assert client.call(name, arguments).is_error
        client.call("close_session")


@pytest.mark.once
def test_bad_requests(gateway, session, run, savepoints):
    run("x = 1")
    for fields in {"savepoint": True}, {"branch": "b"}, {"savepoint": 1}, {"branch": 1}:
        body = {"code": "1", **fields}
        problem(gateway.client.post("/api/v1/execute", json=body), 400, "invalid_request")
    for body in {"name": ""}, {"name": 1}, {"name": "x" * 65}, {"name": "a\nb"}, {"other": 1}, {"kernel": 1}:
        savepoints.make(400, "invalid_request", **body)
    savepoints.make(404, "not_found", kernel="javascript")
    savepoints.make(404, "not_found", branch="none")
    savepoints.make(404, "unknown_kernel", kernel="cobol")
    for name in "", "a b", "python", "sp_abc", "x" * 33:
        savepoints.branch(name, 400, "invalid_request")
    savepoints.branch("b", 404, "not_found", **{"from": "sp_none"})
    savepoints.branch("b")
    savepoints.branch("b", 409, "name_exists")
    savepoints.end("python", 400, "invalid_request")
    savepoints.promote("python", 400, "invalid_request")
    for method in savepoints.end, savepoints.promote:
        method("none", 404, "not_found")
    savepoints.restore("none", 404, "not_found")
    savepoints.drop("python", 404, "not_found")
    Savepoints(gateway, "nobody").make(404, "session_not_found")


@pytest.mark.once
def test_a_kernel_without_savepoints(gateway, session, savepoints):
    gateway.execute("1", session_id=session, language="javascript")
    assert "javascript" in savepoints.make(501, "not_supported", kernel="javascript")
