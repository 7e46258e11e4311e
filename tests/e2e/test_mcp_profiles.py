# SPDX-License-Identifier: Apache-2.0
"""The profiles with Python's own packages; all else is in tests/component/test_mcp_profiles.py."""

from kernelgate import wait_for
from mcp_clients import client_of

FIGURE = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"


def test_code_sandbox(own_gateway):
    """Over stdio, as its users have it."""
    with client_of("1", "stdio", profile="code-sandbox", flags=own_gateway) as client:
        assert "run_python_code" in client.tools()
        run = lambda code: client.call("run_python_code", {"code": code})  # noqa: E731
        assert run("x = 1\nprint('  hello  ')").text == "hello"
        failed = run("print('before'); x").json
        assert failed["exit_code"] == 1 and "NameError" in failed["stderr"]
        assert failed["stdout"] == "before\n"
        silent = run("y = 1")
        assert not silent.is_error and "without output" in silent.text
        assert run(FIGURE).image()
        (resource,) = client.do("resources")["resources"][:1]
        assert resource["uri"] == "sandbox://environments"
        text = client.do("read", uri="sandbox://environments")["contents"][0]["text"]
        assert '"installed_libraries"' in text and "pandas" in text


def test_how_code_ends(gateway):
    """By exit codes, as of a program; what comes after an exit does not run."""
    with client_of("1", "sse", gateway, "mcp-sandbox") as client:
        sandbox = {"sandbox_id": client.call("create_sandbox", {}).json["sandbox_id"]}

        def run(code):
            return client.call("execute_python_code", {**sandbox, "code": code}).json

        for code, exit_code in (
            ("import sys; print('a'); sys.exit(3)\nprint('b')", 3),
            ("print('a'); exit()\nprint('b')", 0),
            ("print('a'); sys.exit(0)", 0),
            ("print('a'); raise ExceptionGroup('g', [ValueError(1)])", 1),
            ("print('a'); sys.stdout = None", 0),
            ("print('a')", 0),
            ("import os; print('a', flush=True); os._exit(7)", 7),
            ("import os; print('a', flush=True); os.kill(os.getpid(), 9)", 137),
        ):
            ended = run(code)
            assert (ended["exit_code"], ended["stdout"]) == (exit_code, "a\n"), (code, ended)
        gateway.delete_session(sandbox["sandbox_id"])


def test_run_code_says_what_an_exit_was(gateway):
    with client_of("1", "http", gateway) as client:
        ok = client.call("run_code", {"code": "import sys; print('a'); sys.exit()"})
        assert not ok.is_error and "a" in ok.text
        failed = client.call("run_code", {"code": "import sys; sys.exit('no data')"})
        assert failed.is_error and "SystemExit" in failed.text and "no data" in failed.text


def test_mcp_sandbox_installs_from_the_real_index(gateway):
    with client_of("1", "sse", gateway, "mcp-sandbox") as client:

        def tool(called, /, **arguments):
            result = client.call(called, arguments)
            assert not result.is_error, result.text
            return result.json

        sandbox = {"sandbox_id": tool("create_sandbox")["sandbox_id"]}
        package = {**sandbox, "package_name": "humanize==4.12.3"}
        done = [tool("install_package_in_sandbox", **package)]

        def has_ended():
            if done[-1]["status"] == "installing":
                done.append(tool("check_package_installation_status", **package))
            return done[-1]["status"] != "installing"

        wait_for(has_ended, 300)
        end = done[-1]
        assert (end["status"], end["complete"], end["success"]) == ("success", True, True), end
        assert "4.12.3" in end["message"] and end["end_time"].endswith("Z")
        code = "import humanize; print(humanize.intcomma(174152))"
        assert tool("execute_python_code", **sandbox, code=code)["stdout"] == "174,152\n"
        (listed,) = [entry for entry in tool("list_sandboxes") if sandbox.items() <= entry.items()]
        assert "humanize" in listed["installed_packages"]
        checked = tool("check_package_installation_status", **sandbox, package_name="Humanize")
        assert checked["status"] == "success"
        gateway.delete_session(sandbox["sandbox_id"])
