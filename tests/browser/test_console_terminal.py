# SPDX-License-Identifier: Apache-2.0
"""The console's terminals, and commands that live longer than the page: in Chromium, with real kernels."""

import re

import pytest
from kernelgate import wait_for
from playwright.sync_api import expect
from session_commands import Commands, start
from terminal_wire import SPEAKS


@pytest.fixture
def sandbox(gateway):
    name = gateway.create_session()
    yield name
    gateway.client.delete(f"/api/v1/sessions/{name}")


@pytest.fixture
def command(gateway, sandbox):
    return Commands(gateway, sandbox)


class TerminalPage:
    """The terminal's view in a tab."""

    def __init__(self, console):
        self.console = console
        self.page = console.page
        self.rows = self.page.locator(".xterm-rows")
        self.input = self.page.get_by_label("Terminal. Ctrl+M leaves it.")
        self.status = self.page.get_by_role("status")
        self.sockets = []
        self.page.on("websocket", lambda socket: self.sockets.append(socket))

    @property
    def living(self):
        return self.page.get_by_role("group", name="Terminals").get_by_role("button")

    def until_open(self):
        expect(self.input).to_be_focused()
        expect(self.rows).to_contain_text("$ ")

    def new(self):
        before = self.living.count()
        self.page.get_by_role("button", name="New terminal").click()
        expect(self.living).to_have_count(before + 1)
        self.until_open()

    def type(self, text):
        self.page.keyboard.type(text)

    def shows(self, text, **options):
        expect(self.rows).to_contain_text(text, **options)


@pytest.fixture
def opened(tab, sandbox):
    """Opens the view in a tab of its own."""

    def open_it(**options):
        console = tab(**options)
        console.enter(sandbox, "terminal")
        return TerminalPage(console)

    return open_it


@pytest.fixture
def terminal(opened):
    screen = opened()
    screen.new()
    return screen


# ---- Terminals


def test_a_shell(gateway, terminal):
    terminal.type("echo $((6*7)) $TERM\n")
    terminal.shows("42 xterm-256color")
    terminal.type("printf '\\033[38;2;255;0;0mtrue colour\\033[0m \\033[7mback\\033[0m\\n'\n")
    terminal.shows("true colour back")
    terminal.type("exit 7\n")
    expect(terminal.status).to_contain_text("The shell has ended with exit code 7.")
    terminal.page.get_by_role("button", name="Close").click()
    expect(terminal.page.get_by_text("No terminal is open.")).to_be_visible()
    [socket] = terminal.sockets
    assert gateway.key not in socket.url  # addresses are in logs


def test_vi(terminal, command):
    terminal.type("vi -u NONE a\n")
    terminal.shows("~")
    terminal.type("ihello")
    terminal.shows("hello")
    terminal.page.keyboard.press("Escape")
    terminal.type(":wq\n")
    terminal.shows("$ ")  # vi's screen has gone
    assert command.wait("cat a")["stdout"] == "hello\n"


def test_top(terminal):
    terminal.type("top -d 0.2\n")
    terminal.shows("%CPU")
    drawn = terminal.rows.inner_text()
    wait_for(lambda: terminal.rows.inner_text() != drawn)  # it draws again
    terminal.type("q")
    terminal.type("echo $((6*7))\n")
    terminal.shows("42")


def test_it_has_the_size_of_the_page(terminal):
    page = terminal.page

    def size():
        terminal.type("clear; echo size $(stty size) end\n")
        terminal.shows(re.compile(r"size \d+ \d+ end"))
        return [
            int(n) for n in re.search(r"size (\d+) (\d+) end", terminal.rows.inner_text()).groups()
        ]

    page.set_viewport_size({"width": 1200, "height": 900})
    wait_for(lambda: page.locator(".xterm-rows > div").count() == size()[0])
    rows, cols = size()
    page.set_viewport_size({"width": 800, "height": 700})
    wait_for(lambda: page.locator(".xterm-rows > div").count() < rows)
    wait_for(lambda: page.locator(".xterm-rows > div").count() == size()[0])
    assert size()[1] < cols


def test_interrupt_and_job_control(terminal):
    keyboard = terminal.page.keyboard
    terminal.type(SPEAKS)
    terminal.shows("b1")
    keyboard.press("Control+z")
    terminal.shows("Stopped")
    terminal.type("fg\n")
    terminal.shows("c1")
    keyboard.press("Control+c")
    terminal.shows("^C")
    terminal.type("echo $((6*7))\n")
    terminal.shows("42")


def test_a_flood(terminal):
    """The page stays usable, says what it has missed, and shows what comes after."""
    page = terminal.page
    terminal.type("yes flood\n")
    terminal.shows("flood")
    expect(terminal.status).to_contain_text("of output were missed")
    page.get_by_role("button", name="Dark").click()
    expect(page.get_by_role("button", name="Light")).to_be_visible()
    terminal.input.focus()
    page.keyboard.press("Control+c")
    terminal.shows("^C")
    terminal.type("echo $((6*7))\n")
    terminal.shows("42")


def test_a_page_that_is_loaded_again(terminal, opened, command):
    terminal.type("x=5; echo fir''st\n")
    terminal.shows("first")
    terminal.page.reload()
    terminal.until_open()
    terminal.shows("first")
    terminal.type("echo x is $x\n")
    terminal.shows("x is 5")
    terminal.page.close()

    def clients():
        return command.client.get(command.url).json()["commands"][0]["clients"]

    wait_for(lambda: clients() == 0)
    other = opened()
    expect(other.living).to_have_count(1)
    other.living.click()
    other.shows("x is 5")
    assert clients() == 1


def test_two_pages_in_one_terminal(terminal, opened):
    other = opened(viewport={"width": 700, "height": 600})
    other.living.click()
    other.until_open()
    terminal.type("echo o''ne\n")
    other.shows("one")
    other.type("echo ot''her $(tput cols 2>/dev/null || stty size)\n")
    terminal.shows("other")
    other.type("exit\n")
    expect(terminal.status).to_contain_text("exit code 0")


def test_several_terminals(terminal, command):
    page = terminal.page
    terminal.type("echo fir''st\n")
    terminal.shows("first")
    terminal.new()
    terminal.type("echo sec''ond\n")
    terminal.shows("second")
    expect(terminal.rows).not_to_contain_text("first")
    terminal.living.first.click()
    terminal.shows("first")
    start(command, name="theirs", terminal=True)
    theirs = terminal.living.filter(has_text="theirs")
    theirs.click()  # when it is there
    expect(theirs).to_have_attribute("aria-pressed", "true")
    terminal.until_open()
    page.get_by_role("button", name="End terminal").click()
    page.get_by_role("button", name="End it, with its programs?").click()
    expect(terminal.status).to_contain_text("The shell")
    page.get_by_role("button", name="Close").click()
    expect(terminal.living).to_have_count(2)


def test_one_too_many(terminal, command):
    for _ in range(64):
        if command.client.post(command.url, json={"terminal": True, "background": True}).is_error:
            break
    terminal.page.get_by_role("button", name="New terminal").click()
    expect(terminal.page.get_by_role("alert")).to_contain_text("no terminal left")
    terminal.input.focus()
    terminal.type("echo $((6*7))\n")
    terminal.shows("42")
    terminal.type("exit\n")
    before = terminal.living.count()
    expect(terminal.status).to_contain_text("exit code 0")
    expect(terminal.living).to_have_count(before - 1)
    terminal.new()
    expect(terminal.page.get_by_role("alert")).to_have_count(0)


def test_the_gateway_starts_again(gateway, terminal):
    terminal.type("x=5; echo fir''st\n")
    terminal.shows("first")
    gateway.kill()
    expect(terminal.status).to_contain_text("Trying again")
    gateway.start()
    expect(terminal.status).not_to_contain_text("Trying again")
    terminal.shows("first")
    terminal.type("echo x is $x\n")
    terminal.shows("x is 5")


def test_the_sandbox_ends(gateway, terminal, sandbox):
    gateway.delete_session(sandbox)
    expect(terminal.status).to_contain_text("The terminal was lost")


def test_for_screen_readers(terminal):
    page = terminal.page
    tree = page.locator(".xterm-accessibility-tree")
    expect(tree).to_have_count(0)
    page.get_by_label("For screen readers").check()
    terminal.input.focus()
    terminal.type("echo $((6*7)) lines\n")
    expect(tree.get_by_role("listitem").filter(has_text="42 lines").first).to_be_attached()
    expect(page.locator(".xterm-accessibility [aria-live=assertive]")).to_contain_text("42 lines")
    assert terminal.console.findings() == []
    page.reload()
    terminal.until_open()
    expect(tree.get_by_role("listitem").filter(has_text="42 lines").first).to_be_attached()
    page.get_by_label("For screen readers").uncheck()
    expect(tree).to_have_count(0)


def test_the_keyboard_leaves_it(terminal):
    page, keyboard = terminal.page, terminal.page.keyboard
    terminal.type("echo 42 > only-one; echo th''ere\n")
    terminal.shows("there")
    terminal.type("cat onl")
    keyboard.press("Tab")  # is the shell's
    terminal.type("\n")
    expect(terminal.input).to_be_focused()
    terminal.shows(re.compile("only-one.*42"))
    keyboard.press("Control+m")
    expect(page.get_by_role("button", name="New terminal")).to_be_focused()
    keyboard.press("Tab")
    expect(page.get_by_role("button", name="End terminal")).to_be_focused()


def test_copy_and_paste(opened):
    terminal = opened(permissions=["clipboard-read", "clipboard-write"])
    terminal.new()
    terminal.type("echo cop''ied\n")
    terminal.shows("copied")
    row = terminal.page.locator(".xterm-rows > div").filter(has_text=re.compile("^copied"))
    row.dblclick(position={"x": 12, "y": 6}, force=True)
    terminal.page.keyboard.press("Control+Shift+c")
    expect(terminal.status).to_contain_text("Copied")
    assert terminal.page.evaluate("navigator.clipboard.readText()") == "copied"
    terminal.page.evaluate("navigator.clipboard.writeText(\"echo pas''ted\")")
    terminal.page.keyboard.press("Control+Shift+v")
    terminal.type("\n")
    terminal.shows("pasted")


HOSTILE = r"""
printf '\033]0;pwned\007\033]2;pwned\007\033]52;c;cHduZWQ=\007'
printf '\033]8;;javascript:window.pwned=1\007click\033]8;;\007 \033]8;;/healthz?pwned\007here\033]8;;\007\n'
printf '<img src=x onerror=window.pwned=1>\033[21t\033[8;1;1t\033P$q"p\033\\end\n'
"""


def test_a_hostile_program(terminal, command):
    """What it writes is text: it has no access to the page, its title, or the clipboard."""
    page = terminal.page
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    assert command.client.put(
        command.url.replace("commands", "files/a.sh"), content=HOSTILE
    ).is_success
    terminal.type("bash a.sh\n")
    terminal.shows("<img src=x onerror=window.pwned=1>")
    row = page.locator(".xterm-rows > div").filter(has_text="click here").first
    for x in (12, 60):
        row.click(position={"x": x, "y": 6}, force=True)
    assert page.title() == "kernelgate"
    assert page.evaluate("window.pwned") is None
    assert len(page.context.pages) == 1 and dialogs == []
    assert page.locator(".screen [style*=url], .screen a, .screen img").count() == 0
