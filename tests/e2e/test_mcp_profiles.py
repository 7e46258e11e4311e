# SPDX-License-Identifier: Apache-2.0
"""The profiles with Python's own packages; all else is in tests/component/test_mcp_profiles.py."""

import base64
import io
import json

from kernelgate import wait_for
from mcp_clients import client_of
from PIL import Image

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


HUGE = """
import matplotlib.pyplot as plt
plt.figure(figsize=(120, 2)); plt.plot([1, 2]); plt.show()
"""


def test_pictures_that_models_take(gateway):
    """A larger one would end the conversation."""
    with client_of("1", "http", gateway) as client:

        def run(code, **arguments):
            result = client.call("run_python_code", {"code": code, **arguments})
            assert not result.is_error, result.text
            return result

        shown = run(HUGE)
        assert size_of(shown.image()) == (2000, 42) and "picture-1.png" in shown.text
        whole = run("from PIL import Image; print(Image.open('picture-1.png').size)").text
        width, height = json.loads(whole.replace("(", "[").replace(")", "]"))
        assert width > 9000 and height < 300
        read = client.call("read_file", {"path": "picture-1.png"})
        assert f"{width} x {height} pixels" in read.text and not read.of("image")
        fits = run(
            "Image.new('RGB', (2000, 2000)).save('fits.webp'); display(Image.new('L', (9, 9)))"
        )
        assert size_of(fits.image()) == (9, 9) and "shown with" not in fits.text
        assert client.call("read_file", {"path": "fits.webp"}).of("image")
        # No file is overwritten.
        run("display(Image.new('RGB', (9000, 9)))")
        assert "picture-2.png" in run("import os; print(os.listdir())").text
        # Over HTTP, in notebooks and in the console, pictures are what code has made.
        session = gateway.create_session()
        (line,) = gateway.execute(HUGE, session_id=session).of("display")
        assert size_of(base64.b64decode(line["image"]))[0] > 9000
        gateway.delete_session(session)


def size_of(image):
    return Image.open(io.BytesIO(image)).size


def test_what_cannot_be_shown_is_named(gateway):
    displays = {
        "Markdown('# title')": "# title",
        "Latex('$x$')": "$x$",
        "JSON({'a': [1]})": '{"a": [1]}',
        "HTML('<p>one</p><script>2</script>')": "one",
        "{'application/vnd.plotly.v1+json': {'data': []}, 'text/html': '<div></div>'}, raw=True": "Plotly",
        "{'application/pdf': 'JVBERi0='}, raw=True": "application/pdf",
        "pd.DataFrame({'a': [7]})": "0  7",
    }
    with client_of("1", "http", gateway) as client:
        client.call(
            "run_python_code", {"code": "from IPython.display import *; import pandas as pd"}
        )
        for code, said in displays.items():
            shown = client.call("run_python_code", {"code": f"display({code})"})
            assert said in shown.text and "without output" not in shown.text, shown.text
        values = client.call("run_python_code", {"code": "Markdown('# the last value')"})
        assert values.text == "# the last value"
