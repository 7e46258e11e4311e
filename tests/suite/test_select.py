# SPDX-License-Identifier: Apache-2.0
"""Which parts a command line of script/test selects."""

import importlib.util
import pathlib

import pytest

SUITE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def suite():
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.chdir(SUITE.parents[1])
    monkeypatch.syspath_prepend(SUITE)
    try:
        spec = importlib.util.spec_from_file_location("suite_main", SUITE / "__main__.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        monkeypatch.undo()


def names(selected):
    return [part.name for part in selected[0]]


def test_without_arguments_and_all(suite):
    default = names(suite.select([]))
    assert default == ["unit", "component", "e2e", "docker", "browser"]
    everything, may_leave_out = suite.select(["--all"])
    assert len(everything) == len(suite.PARTS) and may_leave_out
    assert not suite.select(["--all", "--again"])[1] and not suite.select([])[1]


def test_an_option_has_all_parts_that_begin_alike(suite):
    assert names(suite.select(["--tsan"])) == ["tsan", "tsan-e2e"]
    assert names(suite.select(["--fuzz", "--unit"])) == ["unit", "fuzz"]


def test_arguments_of_pytest(suite):
    parts, _ = suite.select(["-k", "timeout"])
    assert [part.name for part in parts] == ["component", "e2e", "e2e-seldom"]
    assert all(part.tests.tests[-2:] == ("-k", "timeout") for part in parts)
    path = "tests/component/test_http.py"
    (part,) = suite.select([path])[0]
    assert part.name == "component" and part.tests.tests == (path,)
    path = "tests/e2e/test_soak.py"
    parts = suite.select([path, "-x"])[0]
    assert [part.tests.tests[0] for part in parts] == [path, path]
    assert all(part.tests.tests[-1] == "-x" for part in parts)
    for folder in "browser", "load":
        file = next(iter((SUITE.parent / folder).glob("test_*.py"))).relative_to(SUITE.parents[1])
        assert folder in names(suite.select([str(file), "-k", "x"]))


def test_another_engine(suite):
    (part,) = suite.select(["--provisioner", "docker", "-k", "files"])[0]
    assert dict(part.tests.settings)["KERNELGATE_PROVISIONER"] == "docker"
    assert part.tests.tests == ("tests/e2e", "-k", "files")


@pytest.mark.parametrize(
    "arguments", [["--provisioner"], ["--unit", "-k", "x"], ["tests/e2e/test_no.py"], ["browser"]]
)
def test_what_cannot_be_done_is_refused(suite, arguments, capsys):
    with pytest.raises(SystemExit) as end:
        suite.select(arguments)
    assert end.value.code == 2 and "script/test: " in capsys.readouterr().err
