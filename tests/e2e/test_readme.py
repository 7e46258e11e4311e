# SPDX-License-Identifier: Apache-2.0
"""The README's commands, pasted from top to bottom into one shell, print what stands below them."""

import collections
import dataclasses
import json
import re
import subprocess

import pytest
from kernelgate import BINARY, PROJECT, Gateway

pytestmark = pytest.mark.once
TEXT = (PROJECT / "README.md").read_text()
MAX_LINES = 200
# Blocks that are not run here, by their first two words. The README says before each what it needs.
NOT_RUN = {
    "script/server ": "it would serve on the real port until it is stopped; tests/fresh/test_debian.py runs it",
    "claude mcp": "it needs Claude Code; test_mcp_clients.py has clients that can be installed here",
    "jupyter lab": "it needs JupyterLab; tests/browser/test_jupyterlab.py starts it in this way",
}


@dataclasses.dataclass
class Block:
    line: int
    commands: str
    printed: str | None  # what the README shows below it

    @property
    def reason(self):
        """Why it is not run, or None."""
        return next((NOT_RUN[it] for it in NOT_RUN if self.commands.startswith(it)), None)


def blocks_of(text):
    """The blocks of commands, each with the block of output that follows it at once."""
    fenced = r"^```{kind}\n(.*?)^```\n"
    pattern = fenced.format(kind="sh") + r"(?:\n" + fenced.format(kind="") + ")?"
    return [
        Block(text[: found.start()].count("\n") + 2, found[1], found[2])
        for found in re.finditer(pattern, text, re.MULTILINE | re.DOTALL)
    ]


BLOCKS = blocks_of(TEXT)


def pattern_of(printed):
    """What may differ from what the README shows: ids and times; `…` is any text of a line."""
    varying = {
        r"sess_[a-z2-7]{16}": r"sess_[a-z2-7]{16}",
        r'(?<="duration_ms":)[\d.]+': r"[\d.]+",
        "…": r"[^\n]*",
    }
    found = re.compile("|".join(f"({it})" for it in varying))
    parts, end = [], 0
    for match in found.finditer(printed):
        parts += [re.escape(printed[end : match.start()]), [*varying.values()][match.lastindex - 1]]
        end = match.end()
    return re.compile("".join(parts) + re.escape(printed[end:]))


def paste(blocks, folder, port):
    """Runs blocks in one bash; returns what each has printed. A command that fails ends the shell, and so
    does an answer of the gateway that is an error."""
    lines = [
        "set -euo pipefail",
        'curl() { command curl -sS --fail --max-time 240 "$@"; }',
    ]
    for number, block in enumerate(blocks):
        script = folder / f"block-{number}.sh"
        script.write_text(
            re.sub(r"\b(localhost|127\.0\.0\.1):16010\b", rf"\1:{port}", block.commands)
        )
        lines.append(f'. "{script}" >"{folder}/printed-{number}" 2>"{folder}/said-{number}"')
    ended = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        env={"PATH": f"{PROJECT / 'build/venv/bin'}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)},
    )  # fmt: skip
    printed = []
    for number, block in enumerate(blocks):
        path, said = folder / f"printed-{number}", folder / f"said-{number}"
        assert path.exists(), f"not reached: the block in line {block.line}; {ended.stderr}"
        printed.append(path.read_text())
        last = number + 1 == len(blocks) or not (folder / f"printed-{number + 1}").exists()
        assert not last or ended.returncode == 0, (
            f"the block in line {block.line} failed:\n{block.commands}\n{printed[-1]}\n{said.read_text()}"
        )
    return printed


Pasted = collections.namedtuple("Pasted", "port folder printed")


@pytest.fixture(scope="module")
def pasted(engine, tmp_path_factory):
    """The gateway's port, the folder, and what each block that can be run here has printed there."""
    folder = tmp_path_factory.mktemp("readme")
    gateway = Gateway("--pool-size", "1")
    try:
        port = gateway.start().url.rpartition(":")[2]
        blocks = [block for block in BLOCKS if not block.reason]
        yield Pasted(
            port, folder, dict(zip((it.line for it in blocks), paste(blocks, folder, port)))
        )
        left = gateway.client.get("/api/v1/sessions").json()["sessions"]
        assert left == {}, f"the README's commands left sessions: {left}"
    finally:
        gateway.clean_up()


def block_with(word):
    found = [block for block in BLOCKS if word in block.commands]
    assert len(found) == 1, f"{len(found)} blocks with {word}"
    return found[0]


def test_what_is_not_run_is_there():
    reasons = [block.reason for block in BLOCKS if block.reason]
    assert sorted(reasons) == sorted(NOT_RUN.values())
    assert len(BLOCKS) > len(NOT_RUN) + 5
    for words in NOT_RUN.keys() - {"script/server "}:
        before = TEXT.partition(f"\n\n```sh\n{words}")[0].rpartition("\n\n")[2]
        assert re.search(r"[Ww]ith [^.]+ installed:$", before), f"what {words} needs: {before}"
    # No other block of the README escapes: each is commands, or output right below them.
    fences = len(re.findall(r"^```", TEXT, re.MULTILINE))
    assert fences == 2 * sum(1 + (block.printed is not None) for block in BLOCKS)


@pytest.mark.parametrize(
    "block", [it for it in BLOCKS if it.printed], ids=lambda it: f"line {it.line}"
)
def test_blocks_print_what_the_readme_shows(pasted, block):
    printed = pasted.printed[block.line]
    assert pattern_of(block.printed).fullmatch(printed), f"{printed}\ninstead of\n{block.printed}"


def test_no_answer_is_an_error_that_nobody_shows(pasted):
    for line, printed in pasted.printed.items():
        block = next(it for it in BLOCKS if it.line == line)
        if not block.printed:
            assert '"type":"error"' not in printed and '"errors":[{' not in printed, printed


def test_files_that_the_readme_makes(pasted):
    folder = pasted.folder
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "summary.html").read_text().startswith("<table")


def test_what_blocks_without_output_do(pasted):
    printed = pasted.printed[block_with("humanize").line]
    assert "month,amount\\nJanuary,120\\n" in printed
    lines = [json.loads(line) for line in printed.splitlines()]
    installed = [line for line in lines if "packages" in line]
    assert [it["status"] for it in installed[0]["packages"]] == ["installed"]
    assert [line["text"] for line in lines if line["type"] == "result"] == ["47"]
    assert pasted.printed[block_with("e2b_code_interpreter").line] == "45\n"
    made = pasted.printed[block_with("tokens").line]
    assert "?kernelgate_token=" in made and '"token":"kgs_' in made


def test_other_output_is_not_taken_for_it():
    pattern = pattern_of(
        '{"seq":1,"duration_ms":3.1,"session_id":"sess_aaaaaaaaaaaaaaaa"}\n{"a":"…b"}\n'
    )
    same = '{"seq":1,"duration_ms":24,"session_id":"sess_qtiblrgpmk3jgxcn"}\n{"a":"xb"}\n'
    assert pattern.fullmatch(same)
    for old, new in (
        ("1", "2"),
        ("24", '"24"'),
        ("sess_", "kgs_"),
        ("xb", "xc"),
        ("xb", "x\nb"),
        ("}\n{", "}{"),
    ):
        assert not pattern.fullmatch(same.replace(old, new, 1)), new


@pytest.mark.parametrize(
    "commands", ["false; true", "curl localhost:16010/nowhere", "false | true", "echo $NOT_SET"]
)
def test_a_block_that_fails_is_found(pasted, tmp_path, commands):
    lines = {1: "true", 7: commands, 9: "true"}
    blocks = [Block(line, words + "\n", None) for line, words in lines.items()]
    with pytest.raises(AssertionError, match="the block in line 7 failed"):
        paste(blocks, tmp_path, pasted.port)


def test_its_length():
    assert len(TEXT.splitlines()) <= MAX_LINES


def test_its_figures_are_those_of_the_page():
    section = TEXT.split("\n## Figures\n")[1].split("\n## ")[0]
    page = (PROJECT / "docs/figures.md").read_text()
    rows = re.findall(r"^\| (?!\||---)(.+)\|$", section, re.MULTILINE)
    figures = [it for row in rows for it in re.findall(r"\d[\d.,]* (?:ms|MB/s|MiB)", row)]
    assert len(rows) == 6 and len(figures) >= 6
    for figure in figures:
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}", page), (
            f"{figure} is not in docs/figures.md"
        )


def test_commands_in_the_text():
    """Those of the binary; in a checkout it is the release build that they name."""
    named = re.findall(r"`build/release/bin/kernelgate ([^`]+)`", TEXT)
    assert set(named) == {"serve --help", "doctor"}
    for words in named:
        ended = subprocess.run(
            [BINARY, *words.split()], capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
