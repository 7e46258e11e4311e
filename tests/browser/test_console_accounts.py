# SPDX-License-Identifier: Apache-2.0
"""The console's views of keys and users, against a gateway with a database of accounts."""

import contextlib
import re

import pytest
from account_commands import Accounts
from kernelgate import Gateway, wait_for
from playwright.sync_api import expect

HOSTILE = "<img src=x onerror=alert(1)>\"'"


class Users(Accounts):
    """The users of a gateway, made in the shell."""

    def __init__(self, gateway, path):
        super().__init__(path)
        self.gateway = gateway

    def user(self, name, administrator=False):
        """Returns a key of the new user."""
        self.do("user", "add", name)
        if administrator:
            self.do("user", "role", name, "administrator")
        return self.key(name, "first")

    def status(self, key):
        """Of a request with this key."""
        with contextlib.closing(self.gateway.client_for(key)) as client:
            return client.get("/api/v1/sessions").status_code


@pytest.fixture(scope="module")
def accounts(tmp_path_factory):
    accounts = Accounts(tmp_path_factory.mktemp("accounts") / "accounts.db")
    running = Gateway("--pool-size", "0", *accounts.flags, "--api-key", "fixed")
    try:
        yield Users(running.start(), accounts.path)
    finally:
        running.clean_up()


@pytest.fixture
def enter(accounts, tab):
    """Opens a view with a key."""

    def open_it(view, key, **options):
        console = tab(accounts.gateway, **options)
        console.open(f"#/{view}")
        console.log_in(key)
        expect(console.page.get_by_role("navigation", name="Main")).to_be_visible()
        return console

    return open_it


def row(page, name):
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))


def tab_to(page, name):
    """Presses Tab until the control of that name has the focus."""
    control = page.get_by_role("button", name=name).or_(page.get_by_label(name, exact=True))
    for _ in range(40):
        page.keyboard.press("Tab")
        if control.evaluate("each => each === document.activeElement"):
            return
    pytest.fail(f"{name} cannot be reached with Tab")


def test_a_key_is_made_used_and_revoked(accounts, enter):
    """By keyboard alone."""
    console = enter("keys", accounts.user("anna"))
    page = console.page
    expect(row(page, "first")).to_be_visible()
    tab_to(page, "Name of the new key")
    page.keyboard.type("for n8n")
    page.keyboard.press("Enter")
    made = page.get_by_label("The key", exact=True).inner_text().strip()
    assert accounts.status(made) == 200
    expect(row(page, "for n8n")).not_to_contain_text("never")
    tab_to(page, "Done")
    page.keyboard.press("Enter")
    expect(page.get_by_label("The key", exact=True)).to_have_count(0)
    assert made not in page.content()
    tab_to(page, "Revoke for n8n")
    page.keyboard.press("Enter")
    assert accounts.status(made) == 200  # not before it is confirmed
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Revoke for n8n")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(row(page, "for n8n")).to_have_count(0)
    assert accounts.status(made) == 401


def test_the_key_of_the_tab_is_revoked(accounts, enter):
    key = accounts.user("bert")
    console = enter("keys", key)
    page = console.page
    expect(row(page, "first")).to_contain_text("used by this tab")
    page.get_by_role("button", name="Revoke first").click()
    expect(page.get_by_role("dialog")).to_contain_text("You are logged in with this key")
    console.answer("Revoke key")
    expect(page.get_by_label("API key")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_text("The gateway no longer accepts this key.")
    assert accounts.status(key) == 401


def test_names_of_keys_are_text(accounts, enter):
    page = enter("keys", accounts.user("carl")).page
    page.get_by_label("Name of the new key").fill(HOSTILE)
    page.get_by_role("button", name="New key").click()
    expect(row(page, HOSTILE)).to_be_visible()
    assert page.locator("main img").count() == 0


def test_who_sees_which_views(accounts, tab):
    """A key of the settings has no account; users do not see other users, and land on the first view."""
    for key, seen in ("fixed", []), (accounts.user("dora"), ["Keys"]):
        console = tab(accounts.gateway)
        console.open("#/users")
        console.log_in(key)
        expect(console.page.get_by_role("heading", name="Sandboxes")).to_be_visible()
        expect(console.page).to_have_url(re.compile("/console/#/$"))
        links = console.page.get_by_role("navigation").get_by_role("link")
        expect(links).to_have_text(["Sandboxes", *seen, "Connect"])
        assert not any(url.endswith("/api/v1/users") for url in console.requests())


def test_owners_are_apart_in_every_view(accounts, enter):
    """Whoever knows the address of another owner's sandbox sees that there is none."""
    name = "of-hanna"
    key, other = accounts.user("hanna"), accounts.user("ivan")
    console = enter(f"sandboxes/{name}/console", key)
    expect(console.run("print('of hanna')").locator(".text")).to_have_text("of hanna")
    with contextlib.closing(accounts.gateway.client_for(key)) as client:
        client.put(f"/api/v1/sessions/{name}/files/hers.txt", content=b"x").raise_for_status()
    page = enter("", other).page
    expect(
        page.get_by_text("You have no sandboxes.")
    ).to_be_visible()  # what follows has been answered
    expect(page.get_by_text(name)).to_have_count(0)
    for tab_name, answers in (("console", 1), ("files", 2), ("packages", 2), ("commands", 1)):
        page.goto(f"{accounts.gateway.url}/console/#/sandboxes/{name}/{tab_name}")
        expect(page.get_by_text("There is no sandbox with this name")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(answers)
        expect(page.get_by_text("of hanna")).to_have_count(0)
        expect(page.get_by_text("hers.txt")).to_have_count(0)
    page.goto(f"{accounts.gateway.url}/console/#/keys")
    expect(page.get_by_role("rowheader")).to_have_count(1)
    page.goto(f"{accounts.gateway.url}/console/#/users")
    expect(page.get_by_role("heading", name="Sandboxes")).to_be_visible()
    expect(page.get_by_text("hanna")).to_have_count(0)
    with contextlib.closing(accounts.gateway.client_for(key)) as client:
        client.delete(f"/api/v1/sessions/{name}")


def test_an_administrator_manages_users(accounts, enter):
    console = enter("users", accounts.user("root", administrator=True))
    page = console.page
    expect(page.get_by_role("link", name="Users")).to_be_visible()
    page.get_by_role("button", name="New user").click()
    form = page.get_by_role("form", name="New user")
    form.get_by_label("Name").fill("erik")
    form.get_by_label("Sandboxes at a time").fill("3")
    form.get_by_role("button", name="Save").click()
    expect(row(page, "erik").get_by_role("cell", name="0 of 3", exact=True)).to_be_visible()
    expect(page.get_by_text("Registration is closed")).to_be_visible()
    page.get_by_role("button", name="New key for erik").click()
    key = page.get_by_label("The key", exact=True).inner_text().strip()
    assert accounts.status(key) == 200
    page.get_by_role("button", name="Edit erik").click()
    form = page.get_by_role("form", name="User erik")
    expect(form.get_by_label("Sandboxes at a time")).to_have_value("3")
    form.get_by_label("Requests per second").fill("2.5")
    form.get_by_label("Memory per sandbox (MiB)").fill("128")
    form.get_by_label("Disabled").check()
    form.get_by_label("Administrator").check()
    form.get_by_role("button", name="Save").click()
    expect(row(page, "erik")).to_contain_text("administrator, disabled")
    expect(row(page, "erik")).to_contain_text("2.5")
    expect(row(page, "erik")).to_contain_text("128")
    assert accounts.status(key) == 401
    page.get_by_role("button", name="Edit erik").click()
    page.get_by_role("form", name="User erik").get_by_label("Disabled").uncheck()
    page.get_by_role("form", name="User erik").get_by_role("button", name="Save").click()
    expect(row(page, "erik")).not_to_contain_text("disabled")
    assert accounts.status(key) == 200
    expect(row(page, "root")).to_contain_text("administrator")
    expect(page.get_by_role("button", name="Remove root")).to_have_count(0)  # oneself
    page.get_by_role("button", name="Remove erik").click()
    expect(page.get_by_role("dialog")).to_contain_text("The account and 1 key are deleted.")
    console.answer("Cancel")
    page.get_by_role("button", name="Remove erik").click()
    console.answer("Remove user")
    expect(row(page, "erik")).to_have_count(0)
    assert "erik" not in accounts.do("user", "list")


def test_an_administrator_ends_sandboxes(accounts, enter):
    """Of a user who is disabled; the button is there while there are any."""
    key = accounts.user("kurt")
    with contextlib.closing(accounts.gateway.client_for(key)) as client:
        for _ in range(2):
            accounts.gateway.create_session(client)
    accounts.do("user", "disable", "kurt")
    console = enter("users", accounts.user("abbot", administrator=True))
    page = console.page
    expect(row(page, "kurt").get_by_role("cell", name="2", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="End sandboxes of abbot")).to_have_count(0)
    end = page.get_by_role("button", name="End sandboxes of kurt")
    end.click()
    console.answer("Cancel")
    end.click()
    expect(page.get_by_role("dialog")).to_contain_text("2 sandboxes will end.")
    console.answer("End sandboxes")
    expect(row(page, "kurt").get_by_role("cell", name="0", exact=True)).to_be_visible()
    expect(end).to_have_count(0)
    accounts.do("user", "enable", "kurt")
    with contextlib.closing(accounts.gateway.client_for(key)) as client:
        assert client.get("/api/v1/sessions").json()["sessions"] == {}


def test_the_keys_view_shows_the_quota(accounts, enter):
    key = accounts.user("lena")
    accounts.do("user", "quota", "lena", "max-sessions=4", "max-memory-mb=128")
    page = enter("keys", key).page
    expect(
        page.get_by_text("uses 0 of 4 sandboxes. Each may have 128 MiB of memory.")
    ).to_be_visible()
    limits = "max-sessions=4", "max-memory-mb=128", "max-requests-per-second=50"
    accounts.do("user", "quota", "lena", *limits)
    with contextlib.closing(accounts.gateway.client_for(key)) as client:
        session = accounts.gateway.create_session(client)
        more = "uses 1 of 4 sandboxes. Each may have 128 MiB of memory."
        expect(page.get_by_text(f"{more} You may send 50 requests per second.")).to_be_visible()
        page.get_by_role("link", name="Sandboxes").click()
        expect(page.get_by_text("1 of 4, from max-sessions of your account.")).to_be_visible()
        memory = page.get_by_role("region", name="Limits").locator("div", has_text="Memory")
        expect(memory).to_contain_text("128 MiBmax-memory-mb of your account")
        client.delete(f"/api/v1/sessions/{session}").raise_for_status()


def test_what_the_gateway_refuses_is_told(accounts, enter):
    page = enter("users", accounts.user("boss", administrator=True)).page
    page.get_by_role("button", name="New user").click()
    form = page.get_by_role("form", name="New user")
    form.get_by_label("Name").fill("boss")
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("boss")
    expect(form.get_by_label("Name")).to_have_value("boss")  # nothing that was typed is lost


# ---- Names and passwords

PASSWORD = "correct horse"


def log_in(page, name, password=PASSWORD):
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.keyboard.press("Enter")


@pytest.fixture
def registering(tmp_path, start):
    """A gateway without users, where anybody may register; and its accounts."""
    accounts = Accounts(tmp_path / "accounts.db")
    gateway = start(*accounts.flags, "--registration", "open")
    return gateway, Users(gateway, accounts.path)


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:

        def start_it(*flags):
            running = Gateway("--pool-size", "0", *flags)
            stack.callback(running.clean_up)
            return running.start()

        yield start_it


def test_the_first_user_and_another_one(registering, tab):
    gateway, accounts = registering
    wait_for(lambda: "administrator token=" in gateway.log())
    token = gateway.log().split("administrator token=")[1].split()[0]
    console = tab(gateway)
    page = console.page
    console.open()
    expect(page.get_by_text("The first account becomes an administrator.")).to_be_visible()
    expect(page.get_by_label("Setup token")).to_be_focused()
    assert console.findings() == []
    page.get_by_label("Setup token").fill("not it")
    log_in(page, "root")
    expect(page.get_by_role("alert")).to_have_text("The setup token is wrong.")
    expect(page.get_by_label("Name", exact=True)).to_have_value("root")
    page.get_by_label("Setup token").fill(token)
    log_in(page, "root")
    expect(page.get_by_role("banner")).to_contain_text("root")
    expect(page.get_by_role("link", name="Users")).to_be_visible()

    # The cookie is all that the browser keeps, and no script can read it.
    [cookie] = page.context.cookies()
    assert cookie["name"] == "kernelgate_login" and cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""
    kept = page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")
    assert cookie["value"] not in kept and PASSWORD not in kept

    # It is enough for another tab, and after a reload; what changes something has its token.
    page.get_by_role("button", name="New sandbox").click()
    expect(page.get_by_label("Code. Shift and Enter")).to_be_visible()
    cell = console.run("print(6 * 7)")
    expect(cell).to_contain_text("42")
    page.reload()
    expect(page.get_by_role("banner")).to_contain_text("root")
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.get_by_role("banner")).to_contain_text("root")

    # Another person registers, and sees nothing of the first one.
    second = tab(gateway)
    second.open()
    second.page.get_by_role("button", name="Create an account").click()
    expect(second.page.get_by_label("Setup token")).to_have_count(0)
    log_in(second.page, "root")
    expect(second.page.get_by_role("alert")).to_contain_text("there is a user root already")
    log_in(second.page, "eva")
    expect(second.page.get_by_role("banner")).to_contain_text("eva")
    expect(second.page.get_by_role("link", name="Keys")).to_be_visible()
    expect(second.page.get_by_role("link", name="Users")).to_have_count(0)
    expect(second.page.get_by_text("You have no sandboxes.")).to_be_visible()
    expect(second.page.get_by_role("row")).to_have_count(0)

    # Logging out is over when the gateway has done it.
    page.route("**/api/v1/logout", lambda route: route.abort())
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("alert")).to_contain_text("You are still logged in")
    assert page.context.cookies()
    page.unroute("**/api/v1/logout")

    # It ends the login in all tabs of this browser. What the page asked when it was loaded is old.
    with page.expect_request("**/api/v1/registration"):
        page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    assert page.context.cookies() == []
    other.reload()
    expect(other.get_by_label("Name", exact=True)).to_be_visible()
    assert accounts.sql("SELECT count(*) FROM keys") == [(1,)]  # eva's


def test_a_terminal_by_a_login(accounts, tab):
    """Its WebSocket has the cookie instead of a key."""
    accounts.do("user", "add", "tess")
    accounts.password("tess", PASSWORD)
    page = tab(accounts.gateway).page
    page.goto(f"{accounts.gateway.url}/console/")
    log_in(page, "tess")
    page.get_by_label("Name of the new sandbox").fill("of-tess")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Terminal").click()
    page.get_by_role("button", name="New terminal").click()
    rows = page.locator(".xterm-rows")
    expect(rows).to_contain_text("$ ")
    page.keyboard.type("echo $((6*7))\n")
    expect(rows).to_contain_text("42")


def test_logging_in_by_keyboard(accounts, tab):
    accounts.do("user", "add", "fritz")
    accounts.password("fritz", PASSWORD)
    console = tab(accounts.gateway)
    page = console.page
    console.open("#/keys")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    assert console.findings() == []
    page.keyboard.type("fritz")
    page.keyboard.press("Tab")
    page.keyboard.type("wrong horse")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("the name or the password is wrong")
    page.keyboard.type(PASSWORD)  # in place of the wrong one, which is selected
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()

    # Another password ends the logins of other browsers, not this one.
    second = tab(accounts.gateway)
    second.open()
    log_in(second.page, "fritz")
    expect(second.page.get_by_role("banner")).to_contain_text("fritz")
    form = page.get_by_role("form", name="Password")
    form.get_by_label("Current password").fill("wrong horse")
    form.get_by_label("New password").fill("battery staple")
    page.keyboard.press("Enter")
    expect(form.get_by_role("alert")).to_contain_text("old_password")
    form.get_by_label("Current password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(form.get_by_role("status")).to_contain_text("Your password has been changed.")
    page.get_by_label("Name of the new key").fill("after that")
    page.get_by_role("button", name="New key").click()
    expect(row(page, "after that")).to_be_visible()
    expect(second.page.get_by_label("Name", exact=True)).to_be_visible()
    expect(second.page.get_by_role("alert")).to_have_text("You have been logged out.")

    # Snippets have no key, since the page knows none.
    page.get_by_role("link", name="Connect").click()
    expect(page.get_by_label("curl", exact=True)).to_contain_text("Bearer YOUR_KEY")


def test_a_form_has_the_focus_as_soon_as_it_is_there(accounts, enter):
    """Were it taken later, typed text could go to another field than the person's."""
    page = enter("users", accounts.user("prompt", administrator=True)).page
    expect(row(page, "prompt")).to_be_visible()
    focused = page.evaluate(
        """() => new Promise((done) => {
            new MutationObserver(() => {
                const form = document.querySelector("form.panel");
                if (form) done(form.contains(document.activeElement));
            }).observe(document.body, { childList: true, subtree: true });
            [...document.querySelectorAll("button")]
                .find((button) => button.textContent === "New user")
                .click();
        })"""
    )
    assert focused


def test_an_administrator_sets_a_password(accounts, enter, tab):
    page = enter("users", accounts.user("chief", administrator=True)).page
    page.get_by_role("button", name="New user").click()
    form = page.get_by_role("form", name="New user")
    form.get_by_label("Name").fill("gerd")
    form.get_by_label("Password").fill(PASSWORD)
    form.get_by_role("button", name="Save").click()
    expect(row(page, "gerd")).to_be_visible()
    second = tab(accounts.gateway)
    second.open()
    log_in(second.page, "gerd")
    expect(second.page.get_by_role("banner")).to_contain_text("gerd")
    page.get_by_role("button", name="Edit gerd").click()
    form = page.get_by_role("form", name="User gerd")
    expect(form.get_by_label("New password")).to_have_value("")
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)
    second.page.reload()
    expect(second.page.get_by_role("banner")).to_contain_text("gerd")  # the password has stayed
    page.get_by_role("button", name="Edit gerd").click()
    form.get_by_label("New password").fill("battery staple")
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)
    expect(second.page.get_by_role("alert")).to_have_text("You have been logged out.")


@pytest.mark.parametrize(
    "name, options",
    [
        ("light", {"viewport": {"width": 1280, "height": 800}}),
        ("dark", {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 390, "height": 844}}),
    ],
)
def test_the_views_are_accessible(accounts, registering, enter, tab, name, options):
    def look(console, view):
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert console.page.evaluate(overflow) <= 0, view
        assert console.findings() == [], view
        console.shoot(f"{view}-{name}")

    gateway, others = registering
    console = tab(gateway, **options)
    console.open()
    expect(console.page.get_by_label("Setup token")).to_be_visible()
    look(console, "first-user")
    others.do("user", "add", "first")
    wait_for(lambda: not gateway.client.get("/api/v1/registration").json()["first"])
    console.page.reload()
    expect(console.page.get_by_role("button", name="Create an account")).to_be_visible()
    look(console, "login")
    console.page.get_by_role("button", name="Create an account").click()
    expect(console.page.get_by_label("Setup token")).to_have_count(0)
    look(console, "registration")
    key = accounts.user(f"reader-{name}", administrator=True)
    with contextlib.closing(accounts.gateway.client_for(key)) as client:
        session = accounts.gateway.create_session(client)  # which can be ended
    for view, button in ("keys", "New key"), ("users", "New user"):
        console = enter(view, key, **options)
        page = console.page
        page.get_by_role("button", name=button, exact=True).click()
        shown = (
            page.get_by_label("The key", exact=True) if view == "keys" else page.get_by_role("form")
        )
        expect(shown).to_be_visible()
        expect(page.get_by_role("rowheader").first).to_be_visible()
        look(console, view)
    page.get_by_role("button", name="Cancel").click()
    end = page.get_by_role("button", name=f"End sandboxes of reader-{name}")
    end.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    look(console, "users-end")
    console.answer("End sandboxes")
    expect(row(page, f"reader-{name}")).to_contain_text("0")
    with contextlib.closing(accounts.gateway.client_for(key)) as client:
        wait_for(lambda: client.get(f"/api/v1/sessions/{session}").status_code == 404)
