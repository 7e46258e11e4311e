# SPDX-License-Identifier: Apache-2.0
"""How a cell ends and what is said of it: the table in docs/api.md, "How it ends"."""

import pytest
from component import cell

ERROR = 'send iopub error {"ename":"E","evalue":"shown","traceback":["trace","E: shown"]}'
SAYS = '{"status":"error","ename":"Told","evalue":"by the reply","traceback":["t"]}'
ENDS = {
    # the cell, its status, its error line, what it prints on stderr
    "well": ("print 1", "ok", None, ""),
    "error": ("error ValueError x", "error", "ValueError: x", ""),
    "error that only the reply has": (f"reply {SAYS}", "error", "Told: by the reply", ""),
    "error without a name": ('reply {"status":"error"}', "error", "", ""),
    "error that only iopub has": (cell(ERROR, "no-reply"), "error", "E: shown", ""),
    "error that was shown": (cell(ERROR, "print after"), "ok", None, "trace\nE: shown\n"),
    "error that was shown before another one": (
        cell(ERROR, "error ValueError x"),
        "error",
        "ValueError: x",
        "trace\nE: shown\n",
    ),
    "error without a traceback that was shown": (
        'send iopub error {"ename":"E","evalue":"v"}',
        "ok",
        None,
        "E: v\n",
    ),
    "large error": (
        cell('send iopub error {"ename":"E","evalue":"{100000*x}"}', f"reply {SAYS}"),
        "error",
        "E: " + 100_000 * "x",
        "",
    ),
    "death after a large error": (
        cell('send iopub error {"ename":"E","evalue":"{100000*x}"}', "die 3"),
        "died",
        "E: " + 100_000 * "x",
        "",
    ),
    "no reply": (
        "no-reply",
        "error",
        "KernelError: the kernel did not say how the code ended",
        "",
    ),
    "unknown status": (
        'reply {"status":"fine"}',
        "error",
        "KernelError: the kernel did not say what has failed",
        "",
    ),
    "reply without a status": (
        "reply {}",
        "error",
        "KernelError: the kernel did not say what has failed",
        "",
    ),
    "skipped": (
        'reply {"status":"aborted"}',
        "interrupted",
        "ExecutionAborted: the kernel has skipped the code, because earlier code has failed",
        "",
    ),
    "death": ("die 3", "died", "KernelDied: the kernel's process ended with code 3", ""),
    "death after an error": (
        cell(ERROR, "die 3"),
        "died",
        "KernelDied: the kernel's process ended with code 3",
        "trace\nE: shown\n",
    ),
}


@pytest.mark.parametrize(("code", "status", "error", "stderr"), ENDS.values(), ids=ENDS)
def test_end(run, code, status, error, stderr):
    lines = run(code)
    assert lines.status == status
    assert [line["error"] for line in lines.of("error")] == ([] if error is None else [error])
    assert lines.text("stderr") == stderr
    assert run("print next").text() == "next\n"


def test_the_error_is_the_last_line_of_output(run):
    lines = run(cell(ERROR, "print after", f"reply {SAYS}"))
    assert lines.kinds() == ["stdout", "error", "done"]


def test_a_reply_without_a_count_does_not_reset_it(gateway, session, run):
    run("print 1")
    assert run('send shell execute_reply {"status":"ok"}').status == "ok"
    assert gateway.show_session(session)["kernels"]["script"]["execution_count"] == 1


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("print 1", None),
        ("error ValueError x", None),
        ("exit", 0),
        ("die 0", 0),
        ("die 3", 3),
        ("kill 9", 137),
        ("kill 11", 139),
        ('reply {"status":"ok","exit_code":0}', 0),
        ('reply {"status":"error","ename":"SystemExit","evalue":"3","exit_code":3}', 3),
        ('reply {"status":"error","exit_code":-1}', 255),
        ('reply {"status":"error","exit_code":"3"}', None),
    ],
)
def test_exit_code(run, code, exit_code):
    assert run(code).done.get("exit_code") == exit_code


def test_exit_code_in_one_answer(gateway):
    data = gateway.client.post("/api/v1/execute_sync", json={"code": "die 3"}).json()["data"]
    assert (data["status"], data["exit_code"]) == ("died", 3)


def test_an_error_that_a_kernel_repeats_is_bounded(run):
    """Each but the last goes to stderr."""
    lines = run(cell(f"repeat 200 {ERROR}", f"reply {SAYS}"))
    assert lines.one("error")["error"] == "E: shown"
    assert lines.text("stderr") == 199 * "trace\nE: shown\n"


def test_interrupts_of_what_waits(gateway, session):
    with gateway.stream(cell("print on", "hang"), session_id=session) as first:
        first.next()
        with gateway.stream("print never", session_id=session) as second:
            gateway.client.post(f"/api/v1/sessions/{session}/interrupt")
            lines = second.rest()
        assert first.rest().one("error")["ename"] == "KeyboardInterrupt"
    assert lines.status == "interrupted"
    assert lines.one("error")["error"] == (
        "KeyboardInterrupt: the code was interrupted before it began"
    )


def test_restart(gateway, session):
    with gateway.stream(cell("print on", "hang"), session_id=session) as reader:
        reader.next()
        gateway.client.post(f"/api/v1/sessions/{session}/restart")
        lines = reader.rest()
    assert lines.status == "interrupted"
    assert lines.one("error")["error"] == "KernelRestarted: the kernel was restarted"


def test_the_session_says_why_its_kernel_was_replaced(gateway, session, run):
    def kernel():
        return gateway.show_session(session)["kernels"]["script"]

    run("print 1")
    assert "replaced" not in kernel()
    for end, reason in (
        (
            "oom",
            "OutOfMemory: the kernel used more memory than its sandbox may have (512 MiB, setting memory-mb)",
        ),
        ("die 3", "KernelDied: the kernel's process ended with code 3"),
    ):
        run(end)
        assert kernel()["replaced"]["reason"] == reason
    gateway.client.post(f"/api/v1/sessions/{session}/restart")
    assert kernel()["replaced"]["reason"] == "KernelRestarted: the kernel was restarted"
