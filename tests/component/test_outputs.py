# SPDX-License-Identifier: Apache-2.0
"""The line for each kind of output, whatever a kernel sends."""

import base64
import io

import pytest
from component import cell
from kernelgate import wait_for
from PIL import Image


def picture(line):
    image = Image.open(io.BytesIO(base64.b64decode(line["image"], validate=True)))
    image.load()
    return image


def content(name):
    """A picture, in base64."""
    file = io.BytesIO()
    Image.new("RGB", (5, 4)).save(file, name)
    return base64.b64encode(file.getvalue()).decode()


def test_a_figure_is_one_display_line_with_a_png(run):
    bundle = f'{{"image/png":"{content("png")}\\n","text/plain":"<Figure>"}}'
    lines = run(f"display {bundle}")
    line = lines.one("display")
    assert line["format"] == "png" and picture(line).size == (5, 4)
    assert "image/png" not in line["data"] and line["data"]["text/plain"] == "<Figure>"
    assert [line["type"] for line in lines] == ["display", "done"]


def test_a_result_with_text_and_html(run):
    line = run('result {"text/plain":"a","text/html":"<table>"}').one("result")
    assert line["text"] == "a" and line["data"]["text/html"] == "<table>"
    assert "text/plain" not in line["data"]


def test_a_result_that_is_an_image(run):
    bundle = f'{{"image/png":"{content("png")}","text/plain":"<Image>"}}'
    line = run(f"result {bundle}").one("result")
    assert line["format"] == "png" and picture(line).size == (5, 4)
    assert line["execution_count"] == 1


@pytest.mark.parametrize("name", ["jpeg", "gif"])
def test_other_image_formats(run, name):
    line = run(f"display image/{name} {content(name)}").one("display")
    assert line["format"] == name and picture(line).size == (5, 4)


def test_svg_is_text(run):
    line = run('display image/svg+xml <svg xmlns="http://www.w3.org/2000/svg"/>').one("display")
    assert line["format"] == "svg" and line["image"].startswith("<svg")


def test_display_without_an_image_has_text(run):
    line = run('display {"text/plain":"<HTML>","text/html":"<b>x</b>"}').one("display")
    assert line["text"] == "<HTML>" and line["data"]["text/html"] == "<b>x</b>"
    assert "image" not in line


def test_displays_that_change(run):
    lines = run(
        cell(
            'display-id id1 {"text/plain":"one"}',
            'update-display id1 {"text/plain":"two"}',
        )
    ).of("display")
    assert [line["text"] for line in lines] == ["one", "two"]
    assert [bool(line.get("update")) for line in lines] == [False, True]
    assert lines[1]["display_id"] == "id1"


def test_clear_output(run):
    lines = run(cell("clear wait", "clear"))
    assert [line["wait"] for line in lines.of("clear")] == [True, False]


# ---- Text that is hard to carry


@pytest.mark.parametrize(
    "sent, text",
    [
        ("é ☃ 😀\\n", "é ☃ 😀\n"),
        ("a\\u0000b\\n", "a\0b\n"),
        ("a\\rb\\tc\\u001b[31m\\n", "a\rb\tc\x1b[31m\n"),
        ("[\\ud800]\\n", "[\ufffd]\n"),
        ("[\\udc80]\\n", "[\ufffd]\n"),
        ("\\u2028\\ufeff\\uffff\\n", "\u2028\ufeff\uffff\n"),
    ],
)
def test_text(run, sent, text):
    lines = run(f'print "{sent}"')
    assert lines.text() == text
    assert lines.status == "ok"


def test_json_that_strict_parsers_refuse(run):
    lines = run(
        'display {"application/json":{"nan":NaN,"inf":Infinity,"big":1'
        '{400*0},"key":"\\ud800"},"text/plain":"shown"}'
    )
    assert lines.one("display")["text"] == "shown"
    assert lines.status == "ok"


def test_long_text_is_split_on_character_boundaries(run):
    lines = run('print "{400000*aé☃😀}"')
    parts = lines.of("stdout")
    assert len(parts) > 3
    assert all(len(line["text"].encode()) <= 1 << 20 for line in parts)
    assert lines.text() == "aé☃😀" * 400_000


# ---- Much output


def accounted(lines, total):
    """Asserts that only what `dropped` lines count was lost; returns the size of the text."""
    received = len(lines.text())
    dropped = sum(line["bytes"] for line in lines.of("dropped"))
    assert received == total if not dropped else received < total <= received + dropped
    assert lines.status == "ok"
    return received


def test_one_message_of_20_mb(run):
    accounted(run("print {20000000*x}"), 20_000_001)
    assert run("print 1").text() == "1\n"


def test_30_mb_in_many_messages(run):
    assert accounted(run("flood 3000 10000"), 30_000_000) > 1_000_000
    assert run("print 1").text() == "1\n"


def test_displays_and_prints_come_in_order(run):
    lines = run("repeat 500 display text/plain {i}\nrepeat 500 print {i}")
    assert [line["text"] for line in lines.of("display")] == [str(i) for i in range(500)]
    assert lines.text() == "".join(f"{i}\n" for i in range(500))
    assert lines.kinds() == ["display", "stdout", "done"]


def test_a_large_message_is_a_dropped_line_in_its_place(run):
    lines = run(cell("print before", "display text/plain {12000000*x}", "print after"))
    assert lines.kinds() == ["stdout", "dropped", "stdout", "done"]
    dropped = lines.one("dropped")
    assert dropped["messages"] == 1 and 12_000_000 < dropped["bytes"] < 12_100_000


def test_a_reader_that_falls_behind_learns_what_it_lost(gateway, session):
    code = "repeat 40 display text/plain {500000*x}"
    with gateway.stream(code, session_id=session, timeout=600) as reader:
        # The execution ends while nobody reads: 20 MB do not fit into sockets and backlog.
        wait_for(lambda: not gateway.show_session(session)["is_busy"], timeout=60)
        lines = reader.rest()
    dropped = lines.of("dropped")
    assert dropped and all(line["bytes"] > 0 for line in dropped)
    assert len(lines.of("display")) + sum(line["messages"] for line in dropped) == 40
    assert lines.status == "ok"
