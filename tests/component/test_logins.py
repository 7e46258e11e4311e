# SPDX-License-Identifier: Apache-2.0
"""Logins by name and password, registration, and changes of passwords."""

import concurrent.futures
import os
import pty
import re
import socket
import subprocess
import termios
import time

import pytest
from account_commands import Accounts
from kernelgate import BINARY, problem, wait_for

PASSWORD = "correct horse"


@pytest.fixture
def accounts(tmp_path):
    made = Accounts(tmp_path / "accounts.db")
    made.do("user", "add", "alice")
    made.password("alice", PASSWORD)
    return made


@pytest.fixture
def gateway(start_gateway, accounts):
    return start_gateway(*accounts.flags, "--max-sessions", "10", "--jupyter-api")


def ask(client, path="login", **body):
    return client.post(f"/api/v1/{path}", json=body)


def log_in(client, user="alice", password=PASSWORD):
    """Logs in; from then on the client sends the cookie, and the token, as the console does."""
    response = ask(client, name=user, password=password)
    assert response.status_code == 200, response.text
    client.headers["X-CSRF-Token"] = response.json()["csrf_token"]
    return response


def change_password(client, **body):
    return client.put("/api/v1/password", json=body)


def status(client):
    return client.get("/api/v1/sessions").status_code


def test_a_login(gateway, accounts, clients):
    page, key = clients(gateway, None), clients(gateway, accounts.key("alice"))
    problem(page.get("/api/v1/login"), 401, "unauthorized")
    response = log_in(page)
    cookie = response.headers["set-cookie"]
    assert re.fullmatch(
        r"kernelgate_login=\w+; Path=/; HttpOnly; SameSite=Strict; Max-Age=604800", cookie
    )
    quota = {"max_sessions": 10, "max_requests_per_second": 0, "max_memory_mb": 512}
    me = {"user": "alice", "administrator": False, "has_password": True}
    me |= {"sessions": 0, "quota": quota}
    token = page.headers["X-CSRF-Token"]
    assert response.json() == page.get("/api/v1/login").json() == {**me, "csrf_token": token}
    assert key.get("/api/v1/login").json() == {**me, "csrf_token": None}

    # It is the owner that the keys are of; and no key that the account lists.
    session = gateway.create_session(page, session_id="of-alice")
    assert list(key.get("/api/v1/sessions").json()["sessions"]) == [session]
    assert gateway.execute("print 1", client=page, session_id=session).text() == "1\n"
    assert key.get("/api/v1/keys").json()["total"] == page.get("/api/v1/keys").json()["total"] == 1

    # Without the token, or with that of another login, it changes nothing; nor does Jupyter's API
    # take it.
    other = clients(gateway, None)
    log_in(other)
    others = other.headers["X-CSRF-Token"]
    assert others != token
    for wrong in "", others, token[:-1]:
        page.headers["X-CSRF-Token"] = wrong
        problem(page.delete(f"/api/v1/sessions/{session}"), 403, "csrf_token_required")
        assert status(page) == 200
    del page.headers["X-CSRF-Token"]
    problem(ask(page, "logout"), 403, "csrf_token_required")
    assert page.get("/api/kernels").status_code == 401
    page.headers["X-CSRF-Token"] = token

    response = ask(page, "logout")
    assert response.status_code == 200 and "Max-Age=0" in response.headers["set-cookie"]
    assert not page.cookies
    page.cookies.set("kernelgate_login", cookie.split("=", 1)[1].split(";")[0])
    assert [status(page), status(other), status(key)] == [401, 200, 200]
    problem(ask(key, "logout"), 400, "invalid_request")
    log = gateway.log()
    assert "logged in" in log and "logged out" in log
    assert PASSWORD not in log and "kgk_" not in log


def test_secure_behind_tls(gateway, clients):
    page = clients(gateway, None)
    page.headers["X-Forwarded-Proto"] = "https"
    cookie = log_in(page).headers["set-cookie"]
    assert cookie.startswith("__Host-kernelgate_login=") and cookie.endswith("; Secure")
    page.headers["Cookie"] = cookie.split(";")[0]  # which httpx keeps to itself without TLS
    assert status(page) == 200
    cookie = ask(page, "logout").headers["set-cookie"]
    assert cookie.startswith("__Host-kernelgate_login=;") and "Max-Age=0" in cookie


def test_wrong_passwords(gateway, accounts, clients):
    page = clients(gateway, None)
    accounts.do("user", "add", "keys-only")
    accounts.do("user", "add", "bob")
    accounts.password("bob", PASSWORD)
    accounts.do("user", "disable", "bob")
    answers = [
        ask(page, name=name, password=password)
        for name, password in [
            ("alice", "wrong horse"), ("alice", ""), ("Alice", PASSWORD), ("keys-only", ""),
            ("keys-only", PASSWORD), ("bob", PASSWORD), ("nobody", PASSWORD), ("' OR 1=1", PASSWORD),
            ("x" * 1000, PASSWORD),
        ]
    ]  # fmt: skip
    for answer in answers:
        problem(answer, 401, "unauthorized")
        assert answer.json()["detail"] == "the name or the password is wrong"
        assert "set-cookie" not in answer.headers
    for body in ({}, {"name": "alice"}, {"password": "x"}, {"name": 1, "password": "x"},
                 {"name": "alice", "password": PASSWORD, "x": 1}):  # fmt: skip
        problem(ask(page, **body), 400, "invalid_request")
    log = gateway.log()
    assert "a login failed user=alice network=127.0.0.1" in log
    assert 'a login failed user="(not a name)"' in log and "' OR" not in log and "xxx" not in log

    # A name is limited: the right password is not even looked at. Other names are not.
    for _ in range(8):
        problem(ask(page, name="alice", password="wrong horse"), 401, "unauthorized")
    answer = ask(page, name="alice", password=PASSWORD)
    problem(answer, 429, "rate_limited")
    assert "too many logins with this name failed" in answer.json()["detail"]
    accounts.password("keys-only", PASSWORD)
    log_in(page, "keys-only")


def log_in_from(page, url, name="alice", password=PASSWORD, **headers):
    body = {"name": name, "password": password}
    return page.post(f"{url}/api/v1/login", json=body, headers=headers)


def own_address():
    """One of this machine's, which is not loopback."""
    [address, *_] = subprocess.run(
        ["hostname", "-I"], capture_output=True, text=True, check=True
    ).stdout.split()
    return address


def forwarded_for(text):
    return {"X-Forwarded-For": text}


@pytest.fixture
def everywhere(start_gateway, accounts):
    """A gateway that listens everywhere; its addresses by loopback, and by another one of the machine."""
    flags = ("--host", "0.0.0.0", "--allowed-hosts", "*")
    gateway = start_gateway(*accounts.flags, *flags)
    port = gateway.url.rpartition(":")[2]
    return gateway, f"http://127.0.0.1:{port}", f"http://{own_address()}:{port}"


def fail(page, url, name, **headers):
    answer = log_in_from(page, url, name, "wrong horse", **headers)
    problem(answer, 401, "unauthorized")


def assert_is_limited(answer):
    problem(answer, 429, "rate_limited")
    assert "from your network" in answer.json()["detail"]


# Failures count within a minute of the gateway: each of these has one for itself.


def test_a_network_is_limited(everywhere, clients):
    gateway, _, remote = everywhere
    page = clients(gateway, None)
    for i in range(60):
        fail(page, remote, f"u{i}")
    # What others than proxies say changes nothing, nor does another header.
    assert_is_limited(log_in_from(page, remote))
    assert_is_limited(log_in_from(page, remote, **forwarded_for("203.0.113.78")))
    assert_is_limited(log_in_from(page, remote, **{"X-Real-IP": "203.0.113.79"}))
    assert f"a login failed user=u0 network={own_address()}" in gateway.log()


def test_a_network_behind_a_proxy_is_limited(everywhere, clients):
    """Proxies on loopback say whom they speak for."""
    gateway, local, _ = everywhere
    page = clients(gateway, None)
    first, second = forwarded_for("203.0.113.77"), forwarded_for("203.0.113.77, 203.0.113.78")
    for i in range(60):
        fail(page, local, f"v{i}", **first)
    assert_is_limited(log_in_from(page, local, **first))
    assert log_in_from(page, local, **second).status_code == 200
    assert log_in_from(page, local).status_code == 200


def test_loopback_is_no_network(everywhere, clients):
    gateway, local, _ = everywhere
    page, second = clients(gateway, None), forwarded_for("203.0.113.78")
    for i in range(60):
        fail(page, local, f"w{i}")
    assert log_in_from(page, local).status_code == 200

    # A name fails ten times from one network, and its user still logs in from another one.
    for _ in range(10):
        fail(page, local, "alice", **second)
    problem(log_in_from(page, local, **second), 429, "rate_limited")
    assert log_in_from(page, local).status_code == 200


def test_trusted_proxies(start_gateway, accounts, clients, tmp_path):
    address = own_address()
    gateway = start_gateway(
        *accounts.flags, "--host", "0.0.0.0", "--allowed-hosts", "*",
        "--trusted-proxies", f"198.51.100.0/24,{address}",
    )  # fmt: skip
    url = gateway.url.replace("0.0.0.0", address).replace("127.0.0.1", address)
    page = clients(gateway, None)
    headers = forwarded_for("203.0.113.1, 203.0.113.77, 198.51.100.3")
    problem(log_in_from(page, url, "alice", "wrong horse", **headers), 401, "unauthorized")
    assert "a login failed user=alice network=203.0.113.77" in gateway.log()
    refused = subprocess.run(
        [BINARY, "serve", "--state-dir", str(tmp_path), *accounts.flags, "--trusted-proxies", "nginx"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == 1 and 'trusted-proxies: "nginx" is neither' in refused.stderr


def set_password(accounts, line):
    command = [BINARY, "user", "passwd", "alice", *accounts.flags]
    return subprocess.run(command, input=line, capture_output=True, check=False, timeout=60)


def type_password(accounts, line, expected_status):
    """In a terminal, which is afterwards as it was; returns what it shows."""
    main, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    with subprocess.Popen(
        [BINARY, "user", "passwd", "alice", *accounts.flags], stdin=terminal, stderr=terminal
    ) as typed:
        assert b"New password: " in os.read(main, 100)
        os.write(main, line)
        try:
            assert typed.wait(60) == expected_status
        finally:
            typed.kill()
    assert termios.tcgetattr(terminal) == before
    os.close(terminal)
    shown = os.read(main, 1000)
    os.close(main)
    return shown


def test_changes_of_passwords(gateway, accounts, clients):
    page, other = clients(gateway, None), clients(gateway, None)
    key = clients(gateway, accounts.key("alice"))
    log_in(page), log_in(other)
    for body in ({}, {"new_password": "battery staple"}, {"new_password": "short", "old_password": PASSWORD},
                 {"new_password": "x" * 1025, "old_password": PASSWORD},
                 {"new_password": "battery staple", "old_password": "wrong horse"}):  # fmt: skip
        problem(change_password(page, **body), 400, "invalid_request")
        problem(change_password(key, **body), 400, "invalid_request")
    assert status(other) == 200
    response = change_password(page, old_password=PASSWORD, new_password="battery staple")
    assert response.status_code == 200, response.text
    page.headers["X-CSRF-Token"] = response.json()["csrf_token"]
    assert [status(page), status(other), status(key)] == [200, 401, 200]
    gateway.create_session(page)
    problem(ask(other, name="alice", password=PASSWORD), 401, "unauthorized")
    log_in(other, password="battery staple")

    # By the shell, also as one types it. All logins end.
    accounts.password("alice", "third password")
    assert [status(page), status(other), status(key)] == [401, 401, 200]
    assert "10 to 1024 bytes" in accounts.refused("user", "passwd", "alice")
    assert "there is no user" in subprocess.run(
        [BINARY, "user", "passwd", "nobody", *accounts.flags],
        input="third password", capture_output=True, text=True, check=False, timeout=60,
    ).stderr  # fmt: skip
    assert b"fourth" not in type_password(accounts, b"fourth password\n", 0)
    log_in(page, password="fourth password")
    assert b"cancelled" in type_password(accounts, b"not this one, or\x03", 1)  # Ctrl-C
    assert "it has a NUL byte" in set_password(accounts, b"fifth\0password\n").stderr.decode()
    assert "must be UTF-8" in set_password(accounts, b"fifth \xff password\n").stderr.decode()
    assert set_password(accounts, b"fifth password\r\nmore\n").returncode == 0
    log_in(page, password="fifth password")

    # A key is enough for the first password of its user.
    accounts.do("user", "add", "bob")
    bob = clients(gateway, accounts.key("bob"))
    assert bob.get("/api/v1/login").json()["has_password"] is False
    assert change_password(bob, new_password=PASSWORD).json()["has_password"] is True
    log_in(page, "bob")


def test_administrators_set_passwords(gateway, accounts, clients):
    accounts.do("user", "add", "root")
    accounts.do("user", "role", "root", "administrator")
    root, alice, page = (
        clients(gateway, key) for key in (accounts.key("root"), accounts.key("alice"), None)
    )
    body = {"password": "from above, for now"}
    log_in(page)
    problem(alice.put("/api/v1/users/alice/password", json=body), 403, "administrators_only")
    problem(page.put("/api/v1/users/alice/password", json=body), 403, "administrators_only")
    problem(root.put("/api/v1/users/nobody/password", json=body), 404, "not_found")
    problem(
        root.put("/api/v1/users/alice/password", json={"password": "x"}), 400, "invalid_request"
    )
    response = root.put("/api/v1/users/alice/password", json=body)
    assert response.json() == {
        "user": "alice", "administrator": False, "has_password": True, "csrf_token": None,
        "sessions": 0,
        "quota": {"max_sessions": 5, "max_requests_per_second": 0, "max_memory_mb": 512},
    }  # fmt: skip
    assert "set-cookie" not in response.headers
    assert status(page) == 401
    log_in(page, password=body["password"])
    users = {it["name"]: it["has_password"] for it in root.get("/api/v1/users").json()["users"]}
    assert users == {"alice": True, "root": False}
    assert 'what="password set" by=root of=alice' in gateway.log()

    # An administrator who has logged in needs the token, like anybody.
    accounts.password("root", PASSWORD)
    log_in(page, "root")
    assert page.get("/api/v1/users").json()["total"] == 2
    del page.headers["X-CSRF-Token"]
    problem(page.delete("/api/v1/users/alice"), 403, "csrf_token_required")


def test_the_first_user(start_gateway, tmp_path, clients):
    accounts = Accounts(tmp_path / "accounts.db")
    gateway = start_gateway(*accounts.flags)
    wait_for(lambda: "there are no users" in gateway.log())
    token = re.search(r"administrator token=([a-z2-7]{32})\n", gateway.log())[1]
    page, late = clients(gateway, None), clients(gateway, None)

    def state():
        return page.get("/api/v1/registration").json()

    def register(client, name, **more):
        return ask(client, "registration", name=name, password=PASSWORD, **more)

    assert state() == {"open": False, "first": True}
    problem(register(page, "root"), 403, "registration_closed")
    problem(register(page, "root", token=token[:-1]), 401, "unauthorized")
    problem(register(page, "", token=token), 400, "invalid_request")
    problem(ask(page, "registration", name="root", password="short", token=token), 400,
            "invalid_request")  # fmt: skip

    # At once from many: there is one first user.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        names = [f"root-{i}" for i in range(8)]
        answers = list(
            pool.map(lambda name: register(clients(gateway, None), name, token=token), names)
        )
    [made] = [answer for answer in answers if answer.status_code == 200]
    assert made.json()["administrator"] is True and made.json()["csrf_token"]
    assert all(it.status_code in (200, 401, 403) for it in answers), answers
    assert state() == {"open": False, "first": False}
    problem(register(late, "eve", token=token), 401, "unauthorized")
    [row] = accounts.rows("user", "list")
    assert row[0] == made.json()["user"] and row[6] == "administrator"
    page.cookies = made.cookies
    assert page.get("/api/v1/users").json()["total"] == 1

    # Another start has no token; until all users are gone.
    gateway.stop()
    gateway.start()
    assert gateway.log().count("there are no users") == 1
    accounts.do("user", "remove", row[0])
    wait_for(lambda: gateway.log().count("there are no users") == 2)


def test_open_registration(start_gateway, accounts, clients):
    gateway = start_gateway(*accounts.flags, "--registration", "open", "--max-sessions", "2")
    page = clients(gateway, None)
    assert page.get("/api/v1/registration").json() == {"open": True, "first": False}
    problem(
        ask(page, "registration", name="alice", password="battery staple"), 400, "invalid_request"
    )
    problem(ask(page, "registration", name="default", password=PASSWORD), 400, "invalid_request")
    response = ask(page, "registration", name="carol", password=PASSWORD)
    assert response.json()["user"] == "carol" and response.json()["administrator"] is False
    page.headers["X-CSRF-Token"] = response.json()["csrf_token"]
    gateway.create_session(page)
    problem(ask(page, "sessions"), 429, "max_sessions")  # half of two
    problem(page.get("/api/v1/users"), 403, "administrators_only")
    log_in(clients(gateway, None))

    # Nobody makes any number of accounts, or learns in this way which names there are; and a name
    # is not limited by that.
    answers = [ask(page, "registration", name="dora", password=PASSWORD) for _ in range(8)]
    assert [it.status_code for it in answers] == [200, *[400] * 6, 429]
    problem(ask(page, "registration", name="erik", password=PASSWORD), 429, "rate_limited")
    log_in(clients(gateway, None), "dora")


def test_nobody_registers_as_another_owner(start_gateway, accounts, clients, tmp_path):
    """Whoever has a name has the sessions of its owner."""
    keys = tmp_path / "keys"
    keys.write_text("robot:key-of-the-robot\nbot:another-key\n")
    flags = (*accounts.flags, "--registration", "open")
    gateway = start_gateway(*flags, "--api-keys-file", str(keys))
    page, bot = clients(gateway, None), clients(gateway, "another-key")
    gateway.create_session(bot)
    gateway.create_session(clients(gateway, accounts.key("alice")))
    accounts.do("user", "remove", "alice")
    # Its key is gone, its session is not.
    keys.write_text("robot:key-of-the-robot\n")
    wait_for(lambda: status(bot) == 401)
    for name in "robot", "bot", "alice":
        answer = ask(page, "registration", name=name, password=PASSWORD)
        problem(answer, 400, "invalid_request")
        assert answer.json()["detail"] == f"there is a user {name} already"
        assert "set-cookie" not in answer.headers
    assert accounts.rows("user", "list") == []
    assert ask(page, "registration", name="carol", password=PASSWORD).status_code == 200


def test_a_flood_of_logins_is_bounded(gateway, accounts, clients):
    """At most 16 have something to do; the others are refused before they reach the database."""
    key, page = clients(gateway, accounts.key("alice")), clients(gateway, None)
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(ask, page, name=f"u{i}", password=PASSWORD) for i in range(60)]
        assert status(key) == 200
        statuses = [each.result().status_code for each in asked]
    assert set(statuses) == {401, 429} and statuses.count(401) >= 16
    log_in(page)


def test_clients_that_leave(gateway, accounts, clients):
    """In each state of a login; the queue goes on, and they are limited like the others."""
    body = b'{"name":"alice","password":"correct horse"}'
    head = b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    address = gateway.url.removeprefix("http://").split(":")
    for delay in [0, 0.01, 0.05, 0.1, 0.2] * 4:
        with socket.create_connection((address[0], int(address[1]))) as client:
            client.sendall(head + body)
            time.sleep(delay)  # any state is a right one
    accounts.do("user", "add", "bob")
    accounts.password("bob", PASSWORD)
    log_in(clients(gateway, None), "bob")


def logins_ended(gateway):
    """How many logins were answered, or were left by their clients."""
    text = gateway.client.get("/metrics").text
    row = r'^kernelgate_http_requests_total\{.*route="/api/v1/login".*\} (\d+)'
    return sum(map(int, re.findall(row, text, re.M)))


def test_clients_that_do_not_wait_are_limited(gateway, accounts, clients):
    body = b'{"name":"alice","password":"wrong horse"}'
    head = b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    address = gateway.url.removeprefix("http://").split(":")
    for n in range(10):
        with socket.create_connection((address[0], int(address[1]))) as client:
            client.sendall(head + body)
        wait_for(lambda n=n: logins_ended(gateway) > n)
    page = clients(gateway, None)
    problem(ask(page, name="alice", password=PASSWORD), 429, "rate_limited")


def test_a_change_of_an_old_password_is_refused(gateway, accounts, clients):
    """While a change compares the old password, an administrator sets another one."""
    accounts.do("user", "add", "root")
    accounts.do("user", "role", "root", "administrator")
    root, alice = clients(gateway, accounts.key("root")), clients(gateway, accounts.key("alice"))
    for i in range(5):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            own = pool.submit(
                change_password, alice, old_password=PASSWORD, new_password="battery staple"
            )
            time.sleep(0.01 * i)  # any moment of the comparison is a right one
            above = root.put("/api/v1/users/alice/password", json={"password": "from above, now"})
        # Either it was too late, or it was replaced.
        assert above.status_code == 200 and own.result().status_code in (200, 400), own.result()
        problem(ask(clients(gateway, None), name="alice", password="battery staple"), 401,
                "unauthorized")  # fmt: skip
        log_in(clients(gateway, None), password="from above, now")
        accounts.password("alice", PASSWORD)
