# SPDX-License-Identifier: Apache-2.0
"""Faults of a kernel that a real one shows once in a hundred: what is said of them, and that the session
works afterwards."""

import os
import re
import signal

import pytest
from component import STUBBORN, SideBySide, cell
from kernelgate import wait_for
from sandboxes import sandbox_of


def works(gateway, session, kernel="script"):
    lines = gateway.execute("result 2", session_id=session, kernel=kernel)
    return lines.one("result")["text"] == "2" and lines.status == "ok"


def counter(gateway, name):
    text = gateway.client.get("/metrics").text
    found = re.search(rf"^kernelgate_{re.escape(name)} (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def grows(gateway, name):
    """A function that says whether the counter has grown since; others' tests may let it grow, too."""
    before = counter(gateway, name)
    return lambda: counter(gateway, name) > before


# ---- What waits for a bound of the product: all at once

# As soon as the cell has printed a line it is interrupted; before that its process is stopped.
INTERRUPT, STOP = "interrupt", "stop"

SLOW = {
    # a cell, its fields
    "lost reply": (cell("print said", "no-reply"), {}),
    "lost reply of an error": (cell("print said", "no-reply", "error ValueError lost"), {}),
    "lost idle": (cell("print said", "no-idle"), {"timeout": 1}),
    "both lost": (cell("print said", "no-reply", "no-idle"), {"timeout": 1}),
    "deaf": (STUBBORN, {INTERRUPT: True}),
    "deaf until the timeout": (STUBBORN, {"timeout": 2}),
    "deaf by message": (STUBBORN, {INTERRUPT: True, "kernel": "script-message"}),
    "stopped": (cell("print stopped", "hang"), {INTERRUPT: True, STOP: True}),
    "reply lost by an interrupt": (
        cell("print on", "catch", "hang", "no-reply"),
        {INTERRUPT: True},
    ),
}


def run_slow(gateway, session, code, fields):
    """Returns the lines, whether a variable was kept, and whether the next cell works."""
    fields = {**fields, "session_id": session}
    kernel = fields.setdefault("kernel", "script")
    interrupts, stops = fields.pop(INTERRUPT, False), fields.pop(STOP, False)
    gateway.execute("set x 1", session_id=session, kernel=kernel)
    with gateway.stream(code, **fields) as reader:
        reader.next()
        if stops:
            os.kill(sandbox_of(gateway, session).kernel(), signal.SIGSTOP)
        if interrupts:
            gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        lines = reader.rest()
    kept = gateway.execute("get x", session_id=session, kernel=kernel).status == "ok"
    worked = works(gateway, session, kernel)
    gateway.delete_session(session)
    return lines, kept, worked


@pytest.fixture(scope="module")
def ended(gateway):
    runs = SideBySide(lambda session, code, fields: run_slow(gateway, session, code, fields))
    for name, (code, fields) in SLOW.items():
        runs.begin(name, code, fields)
    yield runs
    runs.close()


def test_lost_reply(ended):
    """The execution ends by itself, but nobody can say that it is `ok`; the kernel is the same."""
    lines, kept, worked = ended["lost reply"]
    assert lines.kinds() == ["stdout", "error", "done"] and lines.text() == "said\n"
    assert lines.one("error")["error"] == "KernelError: the kernel did not say how the code ended"
    assert lines.status == "error"
    assert kept and worked and not lines.done.get("kernel_restarted")


def test_lost_reply_of_an_error(ended):
    lines, kept, worked = ended["lost reply of an error"]
    assert lines.one("error")["error"] == "ValueError: lost" and lines.status == "error"
    assert kept and worked


@pytest.mark.parametrize("name", ["lost idle", "both lost"])
def test_lost_idle(ended, name):
    """More output may come until idle, so the execution runs until its timeout; and since a kernel that
    is done does not heed interrupts, it is replaced."""
    lines, kept, worked = ended[name]
    assert lines.kinds() == ["stdout", "error", "done"]
    assert lines.one("error")["error"] == (
        "TimeoutError: the execution took longer than 1 s (timeout of the request)"
    )
    assert (lines.status, lines.done["kernel_restarted"]) == ("timeout", True)
    assert worked and not kept


@pytest.mark.parametrize("name", ["deaf", "deaf by message", "stopped"])
def test_interrupt_that_is_ignored(ended, name):
    lines, kept, worked = ended[name]
    assert lines.kinds() == ["stdout", "error", "done"]
    assert lines.text() == f"{name.split()[0]}\n"
    assert lines.one("error")["error"].startswith("KeyboardInterrupt: the code did not react")
    assert (lines.status, lines.done["kernel_restarted"]) == ("interrupted", True)
    assert worked and not kept


def test_timeout_that_is_ignored(ended):
    lines, kept, worked = ended["deaf until the timeout"]
    assert lines.one("error")["ename"] == "TimeoutError"
    assert (lines.status, lines.done["kernel_restarted"]) == ("timeout", True)
    assert worked and not kept


def test_interrupt_that_loses_the_reply(ended):
    lines, kept, worked = ended["reply lost by an interrupt"]
    assert lines.status == "interrupted" and not lines.done.get("kernel_restarted")
    assert kept and worked


# ---- Replies and idle statuses


def test_idle_before_the_reply(gateway, session):
    code = cell("idle", "print after idle", "take go", "error ValueError late")
    with gateway.stream(code, session_id=session) as reader:
        assert reader.next()["text"] == "after idle\n"
        gateway.release(session)
        lines = reader.rest()
    assert lines.one("error")["error"] == "ValueError: late"
    assert (lines.status, lines.done["execution_count"]) == ("error", 1)
    assert works(gateway, session)


def test_output_between_the_reply_and_idle(gateway, session):
    code = cell("reply", "print after", "take go", "print much later")
    with gateway.stream(code, session_id=session) as reader:
        assert reader.next()["text"] == "after\n"
        gateway.release(session)
        assert reader.rest().text() == "after\nmuch later\n"
    assert works(gateway, session)


def test_output_after_the_end(gateway, session, run):
    """It belongs to no execution: it is dropped and counted."""
    assert run(cell("print in time", "background", "take go", "print late")).text() == "in time\n"
    has_come = grows(gateway, "kernel_late_messages_total")
    gateway.release(session)
    wait_for(has_come)
    assert run("print next").text() == "next\n"


FAILED = '{"status":"error","ename":"E","evalue":"v","traceback":[],"execution_count":7}'


def test_second_reply(gateway, session, run):
    lines = run(cell("reply", f"again {FAILED}", "print after"))
    assert lines.kinds() == ["stdout", "done"]
    assert (lines.status, lines.done["execution_count"]) == ("ok", 1)
    assert works(gateway, session)


def test_reply_after_the_end(gateway, session, run):
    """It is not taken for that of the cell that runs then."""
    run(cell("background", "take go", f"again {FAILED}", "write said"))
    with gateway.stream(cell("print on", "wait said", "print off"), session_id=session) as reader:
        assert reader.next()["text"] == "on\n"
        gateway.release(session)
        lines = reader.rest()
    assert lines.text() == "on\noff\n"
    assert (lines.status, lines.done["execution_count"]) == ("ok", 2)


def test_idle_twice(gateway, session, run):
    status = 'send iopub status {"execution_state":"%s"}'
    lines = run(cell(status % "busy", "print one", status % "idle", "print two", status % "idle"))
    assert lines.text() == "one\ntwo\n" and lines.status == "ok"
    assert works(gateway, session)


@pytest.mark.parametrize("state", ["starting", "restarting", "dead", "nonsense"])
def test_other_statuses(gateway, session, run, state):
    lines = run(cell(f'send iopub status {{"execution_state":"{state}"}}', "print here"))
    assert lines.kinds() == ["stdout", "done"] and lines.status == "ok"
    assert works(gateway, session)


# ---- Messages that are not what they should be


@pytest.mark.parametrize(
    "parent", ['{"msg_id":"other","session":"other"}', "{}", '{"msg_id":null}', '{"msg_id":[1]}']
)
def test_foreign_parent(gateway, session, run, parent):
    """Nothing of it is the cell's, whatever else it is."""
    lines = run(
        cell("print mine", f"parent {parent}", "print other", "result other", f"again {FAILED}")
    )
    assert lines.kinds() == ["stdout", "done"] and lines.text() == "mine\n"
    assert lines.status == "ok"
    assert works(gateway, session)


def test_parent_of_the_cell_before(gateway, session, run):
    first = run("print first").headers["x-execution-id"]
    lines = run(cell("parent last", "print to the first", "result first"))
    assert lines.kinds() == ["done"]
    assert gateway.client.get(f"/api/v1/executions/{first}").text.count("first") == 1


BAD = {
    "signature": cell("bad-signature", "print lost"),
    "signature of a reply": cell("bad-signature", f"again {FAILED}"),
    "content that is not JSON": "send iopub stream nonsense",
    "content that is a list": "send iopub stream []",
    "content that is cut": 'send iopub stream {"name":"stdout","text":"a',
    "reply that is not JSON": "send shell execute_reply nonsense",
    "header that is not JSON": cell("parent nonsense", "print lost", "parent own"),
    "no frames": 'frames iopub [""]',
    "one frame": 'frames iopub ["stream"]',
    "delimiter only": 'frames iopub ["<IDS|MSG>"]',
    "too few frames": 'frames iopub ["stream","<IDS|MSG>","","{}","{}","{}"]',
    "no signature": 'frames iopub ["stream","<IDS|MSG>","","{}","{}","{}","{}"]',
    "one frame on shell": 'frames shell ["a"]',
}


@pytest.mark.parametrize("code", BAD.values(), ids=BAD)
def test_messages_that_are_dropped_and_counted(gateway, session, run, code):
    is_counted = grows(gateway, "kernel_bad_messages_total")
    lines = run(cell(code, "print here"))
    assert lines.kinds() == ["stdout", "done"] and lines.text() == "here\n"
    assert lines.status == "ok" and is_counted()
    assert works(gateway, session)


@pytest.mark.parametrize(
    "code",
    [
        'send iopub stream {"name":"stdout"}',
        'send iopub stream {"name":"stdout","text":3}',
        "send iopub nonsense {}",
        "send iopub stream {}",
        "send shell nonsense {}",
        'send shell complete_reply {"status":"ok"}',
        "send control interrupt_reply {}",
        'send stdin input_request {"prompt":"x"}',
        'send iopub update_display_data {"data":3,"transient":4}',
        'metadata {"a":{"b":[1]}}',
    ],
)
def test_messages_that_mean_nothing(gateway, session, run, code):
    lines = run(cell(code, "print here"))
    assert lines.text() == "here\n" and lines.status == "ok"
    assert not lines.of("result") and not lines.of("error")
    assert works(gateway, session)


def test_text_that_is_not_valid_is_repaired(gateway, session, run):
    lines = run(
        cell(
            r'print "a\ud800b"',
            "display application/json [NaN,Infinity,-Infinity,1]",
            r'result "\ud83d\ude00\u0000"',
            r'send iopub error {"ename":"E\udc00","evalue":"\ud800","traceback":["\udfff"]}',
            'reply {"status":"error"}',
        )
    )
    assert lines.text() == "a\ufffdb"
    assert lines.one("display")["data"] == {"application/json": [None, None, None, 1]}
    assert lines.one("error")["error"] == "E\ufffd: \ufffd"
    assert lines.one("error")["traceback"] == ["\ufffd"]
    assert lines.one("result")["text"] == "😀\0"
    assert works(gateway, session)


# ---- Too much


def test_message_above_the_bound(start_gateway):
    gateway = start_gateway("--max-output-bytes", "65536")
    lines = gateway.execute(
        cell("print before", "print {3000000*x}", "result {3000000*y}", "print after"),
        session_id="s",
    )
    assert lines.kinds() == ["stdout", "dropped", "stdout", "done"] and lines.status == "ok"
    assert lines.text() == "before\nafter\n"
    sizes = [(line["messages"], line["bytes"]) for line in lines.of("dropped")]
    assert len(sizes) == 2 and all(n == 1 and size >= 3_000_000 for n, size in sizes)
    assert works(gateway, "s")


def test_flood_with_a_slow_reader(start_gateway):
    """5 MB for a client that reads nothing: the kernel goes on; what is lost is counted."""
    gateway = start_gateway("--max-output-bytes", "65536")
    with gateway.stream(cell("flood 5000 1000", "write done"), session_id="s") as reader:
        path = "/api/v1/sessions/s/files/done"
        wait_for(lambda: gateway.client.head(path).status_code == 200)
        lines = reader.rest()
    assert lines.status == "ok"
    dropped = sum(line["bytes"] for line in lines.of("dropped"))
    assert dropped + len(lines.text()) >= 5_000_000
    assert works(gateway, "s")


def test_flood_that_is_interrupted(gateway, session):
    with gateway.stream("flood 1e9 1000", session_id=session) as reader:
        reader.next()
        gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
        lines = reader.rest()
    assert lines.status == "interrupted" and not lines.done.get("kernel_restarted")
    assert works(gateway, session)


# ---- Ends

ENDS = {
    "die 3": "KernelDied: the kernel's process ended with code 3",
    "die 0": "KernelDied: the kernel's process ended with code 0",
    "kill 9": "KernelDied: the kernel's process was ended by signal 9 (KILL)",
    "kill 11": "KernelDied: the kernel's process was ended by signal 11 (SEGV)",
    "oom": "OutOfMemory: the kernel used more memory than its sandbox may have (512 MiB, setting memory-mb)",
}


@pytest.mark.parametrize("end", ENDS)
def test_end_during_a_cell(gateway, session, run, end):
    run(cell("set x 1", "write kept k"))
    with gateway.stream(cell("print before", "take go", end), session_id=session) as reader:
        assert reader.next()["text"] == "before\n"
        gateway.release(session)
        lines = reader.rest()
    assert lines.one("error")["error"] == ENDS[end]
    assert (lines.status, lines.done["kernel_restarted"]) == ("died", True)
    assert run("read kept").text() == "k" and run("get x").status == "error"


@pytest.mark.parametrize("times", range(20))
def test_output_just_before_the_end(gateway, session, run, times):
    lines = run(cell("repeat 5 print {i}", "die 3"))
    assert lines.text() == "0\n1\n2\n3\n4\n"
    assert lines.one("error")["ename"] == "KernelDied" and lines.status == "died"


def test_much_output_just_before_the_end(gateway, session, run):
    """More than the sockets hold on its way."""
    lines = run(cell("flood 3000 1000", "print last", "die 3"))
    assert len(lines.text()) == 3_000_005 and lines.text().endswith("last\n")
    assert lines.status == "died"


@pytest.mark.parametrize("times", range(5))
def test_reply_just_before_the_end(run, times):
    """The cell has said how it ended, whatever happens to the kernel then."""
    lines = run(cell("print said", "reply", "idle", "die 3"))
    assert lines.kinds() == ["stdout", "done"] and lines.status == "ok"


def test_end_between_the_reply_and_idle(gateway, session, run):
    with gateway.stream(
        cell("reply", "print on", "take go", "die 3"), session_id=session
    ) as reader:
        assert reader.next()["text"] == "on\n"
        gateway.release(session)
        lines = reader.rest()
    assert lines.one("error")["ename"] == "KernelDied"
    assert (lines.status, lines.done["kernel_restarted"]) == ("died", True)
    assert works(gateway, session)


def test_end_after_a_cell(gateway, session, run):
    """The cell is not the one that has failed, nor is the next."""
    assert run(cell("set x 1", "background", "take go", "die 3")).status == "ok"
    has_ended = grows(gateway, 'kernel_deaths_total{cause="exit"}')
    gateway.release(session)
    wait_for(has_ended)
    assert run("get x").one("error")["ename"] == "NameError"
    assert works(gateway, session)


def test_end_with_cells_in_the_queue(gateway, session):
    """They run in the kernel that replaces it."""
    with gateway.stream(cell("print on", "take go", "die 3"), session_id=session) as first:
        assert first.next()["text"] == "on\n"
        with gateway.stream("print second", session_id=session) as second:
            gateway.release(session)
            assert first.rest().status == "died"
            lines = second.rest()
    assert lines.text() == "second\n" and lines.status == "ok"


def test_exit(gateway, session, run):
    """What a kernel says about its own end is not a failure; the rest of the cell does not run."""
    lines = run(cell("set x 1", "print bye", "exit", "print never"))
    assert lines.text() == "bye\n" and not lines.of("error")
    assert (lines.status, lines.done["kernel_restarted"]) == ("ok", True)
    assert run("get x").status == "error"
