# SPDX-License-Identifier: Apache-2.0
"""What real code shows: figures, tables, text that is hard to carry, and much of it."""

import base64
import hashlib
import io
import os
import pathlib
import signal
import time

import pytest
from kernelgate import HELD, wait_for
from PIL import Image
from sandboxes import sandbox_of

WARM_KERNELS = True

FIGURE = "import matplotlib.pyplot as plt\n"


def picture(line):
    image = Image.open(io.BytesIO(base64.b64decode(line["image"], validate=True)))
    image.load()
    return image


def test_a_figure_is_one_display_line_with_a_png(run):
    lines = run(FIGURE + "plt.plot([1, 2, 3]);")
    line = lines.one("display")
    assert line["format"] == "png" and picture(line).width > 300
    assert "image/png" not in line["data"] and "Figure" in line["data"]["text/plain"]
    assert [line["type"] for line in lines] == ["display", "done"]


def test_figures_come_at_the_end_of_the_code_or_where_they_are_shown(run):
    lines = run(FIGURE + "plt.plot([1]);\nprint('after')")
    assert lines.kinds() == ["stdout", "display", "done"]
    lines = run("plt.plot([1]);\nplt.show()\nprint('after')")
    assert lines.kinds() == ["display", "stdout", "done"]
    assert len(run("for i in range(2): plt.figure(); plt.plot([i])").of("display")) == 2
    assert len(run("%matplotlib inline\nplt.plot([1]);").of("display")) == 1


@pytest.mark.parametrize("first", ["", FIGURE], ids=["before", "after"])
def test_figures_of_the_backend_agg(run, first):
    """It has no screen, and scripts choose it for that."""
    run("%reset -f")
    lines = run(
        first + "import matplotlib; matplotlib.use('Agg')\n" + FIGURE + "plt.plot([1]); plt.show()"
    )
    assert lines.of("display")[0]["format"] == "png" and lines.status == "ok"
    lines = run("plt.plot([2]); plt.savefig('kept.png'); plt.show(); print(plt.get_fignums())")
    assert len(lines.of("display")) == 1 and lines.text() == "[]\n"
    lines = run("plt.switch_backend('module://matplotlib_inline.backend_inline'); plt.plot([1]);")
    assert len(lines.of("display")) == 1


@pytest.mark.parametrize(
    "setup",
    [
        "",
        "import seaborn; seaborn.set_theme()\n",
        "plt.rcParams['font.sans-serif'] = ['SimHei']\n",
        "plt.rcParams['font.family'] = 'serif'\n",
    ],
    ids=["plain", "seaborn", "SimHei", "serif"],
)
def test_cjk_text_renders(run, setup):
    code = "plt.figure(figsize=(1, 1)); plt.axis('off'); plt.text(0, 0, '{}', fontsize=30);"
    run(FIGURE + setup)
    hashes = set()
    for text in "漢字あ한":
        lines = run(code.format(text))
        assert "missing" not in lines.text("stderr")
        hashes.add(hashlib.sha256(picture(lines.one("display")).tobytes()).hexdigest())
    assert len(hashes) == 4, "glyphs look the same: these are boxes"


def test_nothing_warns_at_the_first_figure(run):
    lines = run(FIGURE + "import seaborn\nplt.title('漢字', weight='bold'); plt.plot([-1, 1]);")
    assert lines.text("stderr") == ""


def test_a_data_frame_is_a_result_with_text_and_html(run):
    line = run("import pandas as pd\npd.DataFrame({'a': [1, 2]})").one("result")
    assert line["text"].split() == ["a", "0", "1", "1", "2"]
    assert "<table" in line["data"]["text/html"]
    assert "text/plain" not in line["data"]


def test_a_result_that_is_an_image(run):
    line = run("from PIL import Image\nImage.new('RGB', (3, 2), 'red')").one("result")
    assert line["format"] == "png" and picture(line).size == (3, 2)
    assert line["execution_count"] == 1


def test_displays_that_change(run):
    lines = run("h = display('one', display_id='id1')\nh.update('two')").of("display")
    assert [line["text"] for line in lines] == ["'one'", "'two'"]
    assert [bool(line.get("update")) for line in lines] == [False, True]
    assert lines[1]["display_id"] == "id1"


def test_clear_output(run):
    lines = run("from IPython.display import clear_output\nclear_output(wait=True); clear_output()")
    assert [line["wait"] for line in lines.of("clear")] == [True, False]


# ---- Text that is hard to carry


def test_text(run):
    for code, text in (
        (r"print('é ☃ 😀')", "é ☃ 😀\n"),
        (r"print('a\0b')", "a\0b\n"),
        (r"print('a\rb\tc\x1b[31m')", "a\rb\tc\x1b[31m\n"),
        (r"print('[\ud800]')", "[\ufffd]\n"),
        (r"print('[\udc80]')", "[\ufffd]\n"),
        (r"print('\u2028\ufeff\uffff')", "\u2028\ufeff\uffff\n"),
    ):
        lines = run(code)
        assert (lines.text(), lines.status) == (text, "ok"), code


def test_raw_bytes(gateway, session, run):
    # ipykernel reads the descriptor in another thread, which an execution does not wait for.
    code = r"import os; os.write(1, b'<\xff\xfe>\n')" + HELD
    with gateway.stream(code, session_id=session) as reader:
        while "<\ufffd\ufffd>" not in reader.lines.text():
            reader.next_of("stdout")
        gateway.release(session)
        assert reader.rest().status == "ok"
    assert run("print('next')").text().endswith("next\n")


def test_json_that_strict_parsers_refuse(run):
    lines = run(
        "display({'application/json': {'nan': float('nan'), 'inf': float('inf'), 'big': 10**400,"
        " 'key': '\\ud800'}, 'text/plain': 'shown'}, raw=True)"
    )
    assert lines.one("display")["text"] == "shown"
    assert lines.text("stderr") == ""
    assert lines.status == "ok"


def test_exceptions_whose_text_cannot_be_encoded(run):
    lines = run(r"raise Exception('\ud800')")
    assert lines.one("error")["ename"] == "Exception"
    assert lines.status == "error"
    assert run("print('alive')").text() == "alive\n"


def test_exceptions_without_a_text(run):
    # ipykernel fails to report these, and never sends its reply: that is not waited for.
    code = "class E(Exception):\n    def __str__(self): raise self\nraise E"
    assert run(code, timeout=60).status != "timeout"
    assert run("print('alive')").text() == "alive\n"


# ---- Much output


def accounted(lines, total):
    """Asserts that only what `dropped` lines count was lost; returns the size of the text."""
    received = len(lines.text())
    dropped = sum(line["bytes"] for line in lines.of("dropped"))
    whole = received == total if not dropped else received < total <= received + dropped
    assert whole, f"{received} of {total} bytes arrived, {dropped} were reported as dropped"
    assert lines.status == "ok"
    return received


def test_one_line_of_20_mb(gateway, run):
    accounted(run("print('x' * 20_000_000)"), 20_000_001)
    assert run("print(1)").text() == "1\n"


def test_60_mb_in_prints_of_a_megabyte(gateway, run):
    """The kernel's thread that sends output woke itself up for each message, until that blocked it."""
    lines = run("for i in range(60): print('x' * 1000000)\nprint('last')", timeout=120)
    assert lines.status == "ok", lines.done
    assert lines.text().endswith("x\nlast\n")


# Prints at a signal, then says `end` until there is another one. Its value is how often it said so.
PRINTS_WHEN_SIGNALED = """
import itertools, pathlib, signal, time
signals = []
signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))
print('on', flush=True)
while not signals: time.sleep(0.02)
pathlib.Path('began').touch()
for number in range(60_000): print(f'{number:0999}')
pathlib.Path('ended').touch()
for number in itertools.count():
    if len(signals) > 1: break
    print('end', flush=True)
    time.sleep(0.02)
number
"""


def stopped_printing(pid, marker):
    """Whether a process has made the file, or has had next to no processor time for a second."""

    def seconds():
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    before = seconds()
    time.sleep(1)
    return marker.exists() or seconds() - before < 0.1


@pytest.mark.once
def test_60_mb_in_lines_while_nobody_reads(start_gateway):
    """The gateway stands still until the kernel has printed all, or waits for it."""
    gateway = start_gateway()
    session = gateway.create_session()
    with gateway.stream(PRINTS_WHEN_SIGNALED, session_id=session, timeout=600) as reader:
        assert reader.next_of("stdout")["text"] == "on\n"
        kernel = sandbox_of(gateway, session).kernel()
        folder = pathlib.Path(f"/proc/{kernel}/cwd")
        gateway.signal(signal.SIGSTOP)
        try:
            os.kill(kernel, signal.SIGUSR1)
            wait_for((folder / "began").exists)
            wait_for(lambda: stopped_printing(kernel, folder / "ended"))
        finally:
            gateway.signal(signal.SIGCONT)
        while "end" not in reader.next_of("stdout")["text"]:
            pass
        os.kill(kernel, signal.SIGUSR1)
        lines = reader.rest()
    n_ends = int(lines.one("result")["text"])
    accounted(lines, len("on\n") + 60_000_000 + n_ends * len("end\n"))


def test_displays_and_prints_come_in_order(run):
    """Also when the timer that flushes printed text is due in between."""
    lines = run("for i in range(2000): display(i); print(i)", timeout=120)
    shown = {"display": "<{}>", "stdout": "{}"}
    text = "".join(
        shown[line["type"]].format(line["text"]) for line in lines if line["type"] in shown
    )
    assert text == "".join(f"<{i}>{i}\n" for i in range(2000))
