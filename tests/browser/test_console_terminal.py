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
    terminal.shows("$ ")  # top drops what is typed before that
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
    slower = page.context.new_cdp_session(page)
    slower.send("Emulation.setCPUThrottlingRate", {"rate": 8})
    terminal.type("yes flood\n")
    terminal.shows("flood")
    expect(terminal.status).to_contain_text("of output was skipped")
    slower.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    page.get_by_role("button", name="Dark").click()
    expect(page.get_by_role("button", name="Light")).to_be_visible()
    terminal.input.focus()
    page.keyboard.press("Control+c")
    terminal.shows("^C")
    terminal.type("echo $((6*7))\n")
    terminal.shows("42")


def test_what_the_gateway_has_left_out(opened):
    """The end of it is shown when nothing more comes."""
    terminal = opened()
    lost = []

    def connect(socket):
        server = socket.connect_to_server()
        server.on_message(lambda message: lost.append(message) if loses else socket.send(message))
        sockets.append(socket)

    loses, sockets = False, []
    terminal.page.route_web_socket("**/terminal?**", connect)
    terminal.new()
    loses = True
    terminal.type("echo $((6*7))\n")
    wait_for(lambda: terminal.page.evaluate("1") and any(b"42" in message for message in lost))
    expect(terminal.rows).not_to_contain_text("42")
    loses = False
    sockets[-1].send('{"dropped_bytes":2048}')
    expect(terminal.status).to_contain_text("2 KiB of output was skipped")
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


def test_a_program_draws_again(terminal):
    """What it has drawn may be older than what is replayed."""
    draws = "trap 'echo dr$((6*7))awn' WINCH; seq 20000; echo be''gun; while :; do sleep 0.1; done"
    terminal.type(f'bash -c "{draws.replace("$", chr(92) + "$")}"\n')
    terminal.shows("begun")
    expect(terminal.rows).not_to_contain_text("dr42awn")
    terminal.page.reload()
    terminal.shows("dr42awn")


def test_a_replay_is_not_answered(terminal):
    """Nobody waits any more for what a program has asked the screen: the shell would take it as typed."""
    asks = r'printf "\033[6n\033[c"; read -rsd c x; echo ${#x} an""swered'
    terminal.type(f"bash -c '{asks}'\n")
    terminal.shows(re.compile(r"\d answered"))
    terminal.page.reload()
    terminal.shows("answered")
    terminal.type("echo cl''ean\n")
    terminal.shows("clean")
    expect(terminal.rows).not_to_contain_text(re.compile(r"\d[Rc]echo"))
    expect(terminal.rows).to_contain_text("$ echo cl''ean")


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
    terminal.console.answer("End terminal")
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
    page.get_by_label("Screen reader mode").check()
    terminal.input.focus()
    terminal.type("echo $((6*7)) lines\n")
    expect(tree.get_by_role("listitem").filter(has_text="42 lines").first).to_be_attached()
    expect(page.locator(".xterm-accessibility [aria-live=assertive]")).to_contain_text("42 lines")
    assert terminal.console.findings() == []
    page.reload()
    terminal.until_open()
    expect(tree.get_by_role("listitem").filter(has_text="42 lines").first).to_be_attached()
    page.get_by_label("Screen reader mode").uncheck()
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


# ---- Commands


class CommandsPage:
    """The commands' view in a tab."""

    def __init__(self, console):
        self.console, self.page = console, console.page
        self.runs = console.cells

    def run(self, command, takes_input=False):
        """Returns it at once."""
        count = self.runs.count()
        self.page.get_by_label("Accept input").set_checked(takes_input)
        self.page.get_by_label("Command", exact=True).fill(command)
        self.page.keyboard.press("Enter")
        expect(self.runs).to_have_count(count + 1)
        return self.runs.nth(count)


@pytest.fixture
def commands(tab, sandbox):
    """Opens the view in a tab of its own."""

    def open_it():
        console = tab()
        console.enter(sandbox, "commands")
        return CommandsPage(console)

    return open_it


def status(run, text):
    expect(run.locator(".status")).to_contain_text(text)


def test_a_command_outlives_its_page(commands, command):
    view = commands()
    run = view.run("echo begun; while [ ! -e go ]; do sleep 0.1; done; echo over >&2; exit 3")
    expect(run.locator(".stdout")).to_have_text("begun\n")
    view.page.reload()
    expect(view.runs.locator(".stdout")).to_have_text("begun\n")
    status(view.runs, "running")
    view.page.close()
    wait_for(lambda: command.client.get(command.url).json()["commands"][0]["clients"] == 0)
    view = commands()
    expect(view.runs.locator(".stdout")).to_have_text("begun\n")
    command.wait("touch go")
    expect(view.runs.locator(".stderr")).to_have_text("over\n")
    status(view.runs, "exit code 3")
    view.page.reload()
    status(view.runs, "exit code 3")  # the gateway knows how it has ended
    expect(view.runs.locator(".stderr")).to_have_text("over\n")
    view.page.get_by_role("button", name="Remove").click()
    expect(view.runs).to_have_count(0)
    with view.page.expect_response("**/commands"):
        view.page.reload()
    expect(view.page.get_by_label("Command", exact=True)).to_be_visible()
    expect(view.runs).to_have_count(0)


def test_input_and_signals(commands):
    view = commands()
    run = view.run("cat; echo ended", takes_input=True)
    run.get_by_role("button", name="Input").click()
    run.get_by_label("Line of input").fill("hello")
    view.page.keyboard.press("Enter")
    expect(run.locator(".stdout")).to_have_text("hello\n")
    run.get_by_role("button", name="Close input").click()
    expect(run.locator(".stdout")).to_have_text("hello\nended\n")
    run = view.run("trap 'echo got' USR1; echo ready; while :; do sleep 0.1; done")
    expect(run.locator(".stdout")).to_have_text("ready\n")
    run.get_by_label("Send a signal").select_option("USR1")
    expect(run.locator(".outputs")).to_contain_text("got\n")
    run.get_by_role("button", name="Input").click()
    assert view.console.findings() == []
    run.get_by_label("Line of input").fill("x")
    view.page.keyboard.press("Enter")
    expect(run.get_by_role("alert")).to_contain_text("stdin")
    run.get_by_role("button", name="Stop").click()
    status(run, "SIGTERM")


def test_many_commands(commands, command):
    """A browser has few connections to a host: the page follows three, and stays usable."""
    for i in range(6):
        start(command, f"echo number {i}; sleep 1000", f"c{i}")
    view = commands()
    expect(view.runs).to_have_count(6)
    expect(view.runs.nth(5)).to_contain_text("number 5\n")
    run = view.run("echo $((6*7))")
    expect(run.locator(".stdout")).to_have_text("42\n")
    view.runs.nth(0).get_by_role("button", name="Show output").click()
    expect(view.runs.nth(0).locator(".stdout")).to_have_text("number 0\n")
    late = start(command, "echo late; exit 4", "late")
    late.ended()
    expect(view.runs).to_have_count(8)
    status(view.runs.last, "exit code 4")
    view.runs.last.get_by_role("button", name="Show output").click()
    expect(view.runs.last.locator(".stdout")).to_have_text("late\n")
