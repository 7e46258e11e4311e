# SPDX-License-Identifier: Apache-2.0
"""Faults of a kernel in the silent requests around an execution: the startup code, variables, and the
environment before it and after it."""

import pytest
from component import KERNELS, SideBySide, cell, kernelspecs
from kernelgate import wait_for

# The kernelspec's member, and what the kernel does instead of it.
DEATH = "die 3 {json}"
FAULTS = {
    "startup-error": {"startup": "error ValueError no"},
    "startup-no-reply": {"startup": cell("print hidden", "no-reply")},
    "startup-death": {"startup": "die 3"},
    "variables-error": {"variables": "error ValueError {json}"},
    "variables-no-reply": {"variables": cell("set-variables {json}", "no-reply")},
    "variables-no-idle": {"variables": cell("set-variables {json}", "no-idle")},
    "variables-output": {"variables": cell("print hidden", "set-variables {json}")},
    "variables-death": {"variables": DEATH},
    "variables-hang": {"variables": cell("set-variables {json}", "hang")},
    "env-error": {"env": "error ValueError {json}"},
    "env-death": {"env": DEATH},
    "restore-error": {"env_restore": "error ValueError {json}"},
    "restore-no-reply": {"env_restore": cell("restore-env {json}", "no-reply")},
    "restore-no-idle": {"env_restore": cell("restore-env {json}", "no-idle")},
    "restore-death": {"env_restore": cell("take go", "die 3")},
}
DIED = "KernelDied: the kernel's process ended with code 3"


@pytest.fixture(scope="module")
def gateway_flags(tmp_path_factory):
    folder = kernelspecs(tmp_path_factory.mktemp("specs"), **FAULTS)
    return ["--kernelspec-dir", folder, "--kernels-dir", str(KERNELS)]


@pytest.fixture(scope="module")
def ended(gateway):
    """The lines of one execution with each fault, and of the next, which has neither variables nor env."""

    def run(session, kernel):
        options = {"session_id": session, "kernel": kernel}
        fields = {
            "variables": {"x": 1},
            "env": {"A": "1"},
            "timeout": 2 if "hang" in kernel else 60,
        }
        first = gateway.execute(cell("print ran", "getenv A"), **fields, **options)
        second = gateway.execute(cell("print next", "getenv A"), timeout=60, **options)
        gateway.delete_session(session)
        return first, second

    runs = SideBySide(run)
    for name in FAULTS.keys() - {"restore-death"}:
        runs.begin(name, name)
    yield runs
    runs.close()


@pytest.mark.parametrize("kernel", ["startup-error", "variables-error", "env-error"])
def test_error(ended, kernel):
    """The code does not run, and its execution reports the error; the kernel is the same."""
    first, second = ended[kernel]
    assert first.kinds() == ["error", "done"] and first.one("error")["ename"] == "ValueError"
    assert first.status == "error" and not first.done.get("kernel_restarted")
    if kernel != "startup-error":  # which comes before each execution until it has succeeded
        assert second.text() == "next\nNone\n" and second.status == "ok"


@pytest.mark.parametrize("kernel", ["startup-no-reply", "variables-no-reply"])
def test_lost_reply(ended, kernel):
    """Whether it has done what it should is not known, so the code does not run."""
    first, _ = ended[kernel]
    assert first.kinds() == ["error", "done"] and first.one("error")["ename"] == "SetupError"
    assert first.status == "error"


@pytest.mark.parametrize("kernel", ["variables-no-idle", "variables-output"])
def test_reply_without_idle_or_with_output(ended, kernel):
    """The reply suffices, and output is not the execution's."""
    first, second = ended[kernel]
    assert first.kinds() == ["stdout", "done"] and first.text() == "ran\n1\n"
    assert second.text() == "next\nNone\n"


@pytest.mark.parametrize("kernel", ["startup-death", "variables-death", "env-death"])
def test_death(ended, kernel):
    first, second = ended[kernel]
    assert first.one("error")["error"] == DIED
    assert (first.status, first.done["kernel_restarted"]) == ("died", True)
    if kernel != "startup-death":
        assert second.text() == "next\nNone\n" and second.status == "ok"


def test_hang(ended):
    """It counts in the execution's time, and an interrupt ends it."""
    first, second = ended["variables-hang"]
    assert first.kinds() == ["error", "done"] and first.status == "timeout"
    assert second.text() == "next\nNone\n" and second.status == "ok"


@pytest.mark.parametrize("kernel", ["restore-error", "restore-no-reply", "restore-no-idle"])
def test_restore(ended, kernel):
    """Of what comes after the code, nothing is the execution's, nor the next one's."""
    first, second = ended[kernel]
    assert first.text() == "ran\n1\n" and first.status == "ok"
    assert second.kinds() == ["stdout", "done"] and second.status == "ok"
    assert second.text() == ("next\n1\n" if kernel == "restore-error" else "next\nNone\n")


def test_death_after_an_execution(gateway):
    """The execution has ended. The next one waits in the kernel behind what dies."""
    options = {"session_id": "restore", "kernel": "restore-death"}
    assert gateway.execute("getenv A", env={"A": "1"}, **options).text() == "1\n"
    with gateway.stream("print second", **options) as reader:
        gateway.release("restore")
        lines = reader.rest()
    assert lines.one("error")["error"] == DIED and lines.status == "died"
    assert gateway.execute("print third", **options).text() == "third\n"
    gateway.delete_session("restore")


def test_warmup(start_gateway, tmp_path):
    """A kernel that dies as it warms up is not for a session; one that fails is."""
    for name, warmup in ("dies", "die 3"), ("fails", "error ValueError no"):
        folder = tmp_path / name
        specs = kernelspecs(folder, warm={"warmup": warmup})
        gateway = start_gateway(
            "--kernelspec-dir", specs, "--default-kernel", "warm", "--pool-size", "1"
        )
        if name == "dies":
            wait_for(
                lambda gateway=gateway: "ended or hung during its warm-up" in gateway.log(), 60
            )
            assert gateway.pool()["ready"] == 0
        else:
            gateway.fill_pool()
        assert gateway.execute("print here").text() == "here\n"
