# SPDX-License-Identifier: Apache-2.0
"""Users and keys in a database, which the shell changes while the gateway runs."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import sqlite3
import subprocess
import threading
import time

import httpx
import mcp_wire
import pytest
from account_commands import Accounts
from component import HELD, cell
from kernelgate import BINARY, problem, wait_for

TAKES_LONG = True


@pytest.fixture
def accounts(tmp_path):
    return Accounts(tmp_path / "accounts.db")


def status(client):
    return client.get("/api/v1/sessions").status_code


def test_two_owners_and_a_revoked_key(start_gateway, accounts, clients):
    accounts.do("user", "add", "alice")
    first, second = accounts.key("alice", "laptop"), accounts.key("alice", "of an agent")
    gateway = start_gateway(*accounts.flags, "--api-key", "fixed", key="fixed")
    alice = clients(gateway, first)
    tools = mcp_wire.Client(gateway, key=second)
    assert [status(gateway.client), status(alice), status(clients(gateway, None))] == [
        200,
        200,
        401,
    ]

    # Another user, made while the gateway runs, sees nothing of the first one.
    accounts.do("user", "add", "bob")
    bob = clients(gateway, accounts.key("bob"))
    session = gateway.create_session(alice, session_id="of-alice")
    assert list(alice.get("/api/v1/sessions").json()["sessions"]) == [session]
    for other in (bob, gateway.client):
        assert other.get("/api/v1/sessions").json()["sessions"] == {}
        problem(other.get(f"/api/v1/sessions/{session}"), 404, "session_not_found")
    assert mcp_wire.result(tools.post(mcp_wire.request("ping"))) == {}

    # A revoked key is refused as soon as the command has ended, by MCP, too; others stay valid.
    accounts.do("key", "revoke", second)
    assert tools.post(mcp_wire.request("ping")).status_code == 401
    assert status(alice) == 200
    tools.http.headers["Authorization"] = f"Bearer {first}"
    assert mcp_wire.result(tools.post(mcp_wire.request("ping"))) == {}

    # So are all keys of a user that is disabled, until it is enabled.
    accounts.do("user", "disable", "alice")
    assert [status(alice), status(bob), status(gateway.client)] == [401, 200, 200]
    assert tools.post(mcp_wire.request("ping")).status_code == 401
    accounts.do("user", "enable", "alice")
    assert list(alice.get("/api/v1/sessions").json()["sessions"]) == [session]
    accounts.do("user", "remove", "alice")
    assert [status(alice), status(bob)] == [401, 200]
    tools.http.close()
    log = gateway.log()
    assert not any(key in log for key in (first, second))


def test_revocations_are_never_late(start_gateway, accounts, clients):
    accounts.do("user", "add", "alice")
    gateway = start_gateway(*accounts.flags)
    for _ in range(20):
        key = accounts.key("alice")
        alice = clients(gateway, key)
        assert status(alice) == 200
        accounts.do("key", "revoke", key)
        assert status(alice) == 401


def test_a_command_beside_changes_over_http(start_gateway, accounts, clients):
    """Each change is seen at once, whoever makes it, while others are made."""
    for user in ("alice", "bob"):
        accounts.do("user", "add", user)
    gateway = start_gateway(*accounts.flags, "--account-changes-per-minute", "0")
    bob, ending = clients(gateway, accounts.key("bob")), threading.Event()

    def rotate():
        made = 0
        while not ending.is_set():
            key = bob.post("/api/v1/keys").json()
            page = clients(gateway, key["key"])
            assert status(page) == 200
            assert bob.delete(f"/api/v1/keys/{key['id']}").status_code == 200
            assert status(page) == 401
            made += 1
        return made

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        rotating = pool.submit(rotate)
        try:
            for _ in range(10):
                alice = clients(gateway, accounts.key("alice"))
                assert status(alice) == 200
                accounts.do("user", "disable", "alice")
                assert status(alice) == 401
                accounts.do("user", "enable", "alice")
                assert status(alice) == 200
                accounts.do("key", "revoke", alice.headers["Authorization"].split()[1])
                assert status(alice) == 401
            wait_for(lambda: rotating.done() or accounts.rows("key", "list", "bob"))
        finally:
            ending.set()
        assert rotating.result() > 0


def test_changes_of_a_user_are_limited(start_gateway, accounts, clients):
    for user in ("root", "alice", "bob"):
        accounts.do("user", "add", user)
    accounts.do("user", "role", "root", "administrator")
    accounts.password("alice", "correct horse")
    gateway = start_gateway(*accounts.flags, "--account-changes-per-minute", "3")
    root, alice, bob = (clients(gateway, accounts.key(user)) for user in ("root", "alice", "bob"))
    problem(alice.post("/api/v1/keys", json={"nome": "x"}), 400, "invalid_request")
    made = [alice.post("/api/v1/keys").json()["id"] for _ in range(3)]
    refused = alice.post("/api/v1/keys")
    detail = problem(refused, 429, "rate_limited")["detail"]
    assert "alice made 3 keys within a minute" in detail
    assert "account-changes-per-minute" in detail
    [wait] = refused.headers.get_list("Retry-After")
    assert 1 <= int(wait) <= 60 and f"try again in {wait} s" in detail

    # What ends a key is not limited, nor are others, logins, administrators and commands.
    for id_ in made:
        assert alice.delete(f"/api/v1/keys/{id_}").status_code == 200
    problem(alice.post("/api/v1/keys"), 429, "rate_limited")
    assert status(alice) == 200 and alice.get("/api/v1/keys").json()["total"] == 1
    assert bob.post("/api/v1/keys").status_code == 200
    for _ in range(5):
        assert root.post("/api/v1/keys").status_code == 200
        assert root.post("/api/v1/users/alice/keys").status_code == 200
        accounts.key("alice")

    # Logins have the same limit, and so do changes of passwords; wrong passwords do not use it up.
    login = {"name": "alice", "password": "correct horse"}
    page = clients(gateway, None)
    problem(page.post("/api/v1/login", json={**login, "password": "x"}), 401, "unauthorized")
    pages = [clients(gateway, None) for _ in range(3)]
    entered = [it.post("/api/v1/login", json=login) for it in pages]
    assert [it.status_code for it in entered] == [200] * 3
    refused = page.post("/api/v1/login", json=login)
    assert "alice made 3 logins" in problem(refused, 429, "rate_limited")["detail"]
    assert refused.headers.get_list("Retry-After") != ["1"]
    body = {"old_password": "correct horse", "new_password": "battery staple"}
    problem(alice.put("/api/v1/password", json=body), 429, "rate_limited")
    pages[0].headers["X-CSRF-Token"] = entered[0].json()["csrf_token"]
    assert pages[0].post("/api/v1/logout").status_code == 200


def test_users_who_registered_share_a_limit(start_gateway, accounts, clients):
    accounts.do("user", "add", "alice")
    flags = ("--registration", "open", "--account-changes-per-minute", "1")
    gateway = start_gateway(*accounts.flags, *flags)
    for i in range(8):  # as many as one network may try, and some that are put in
        register(clients(gateway, None), f"stranger-{i}")
    for i in range(8, 11):
        accounts.do("user", "add", f"stranger-{i}")
    accounts.sql("UPDATE users SET registered = 1 WHERE name LIKE 'stranger-%'")
    keys = [accounts.key(f"stranger-{i}") for i in range(11)]
    answers = [clients(gateway, key).post("/api/v1/keys") for key in keys]
    assert [it.status_code for it in answers] == [200] * 10 + [429]
    detail = problem(answers[-1], 429, "rate_limited")["detail"]
    assert "users who registered themselves made 10 keys" in detail
    assert clients(gateway, accounts.key("alice")).post("/api/v1/keys").status_code == 200
    # An administrator takes one of them out of that.
    accounts.do("user", "role", "stranger-10", "user")
    assert clients(gateway, keys[10]).post("/api/v1/keys").status_code == 200


def test_users_who_registered_are_one_owner(start_gateway, accounts, clients):
    """Anybody can make another user; nobody gets more by that."""
    accounts.do("user", "add", "alice")
    flags = ("--registration", "open", "--max-sessions", "4", "--max-connections", "16")
    gateway = start_gateway(*accounts.flags, *flags)
    alice = clients(gateway, accounts.key("alice"))
    strangers = [clients(gateway, None) for _ in range(3)]
    for i, page in enumerate(strangers):
        register(page, f"stranger-{i}")
    for page in strangers[:2]:
        gateway.create_session(page)
    refused = problem(strangers[2].post("/api/v1/sessions", json={}), 429, "max_sessions")
    assert "registered users have 2 sessions together" in refused["detail"]
    for _ in range(2):
        gateway.create_session(alice)

    keys = [page.post("/api/v1/keys").json()["key"] for page in strangers]
    with contextlib.ExitStack() as stack:
        answers = []
        while len(answers) < 16 and 429 not in answers:
            client = clients(gateway, keys[len(answers) % 3])
            answers.append(stack.enter_context(client).get("/api/v1/sessions").status_code)
        assert answers[-1] == 429 and set(answers[:-1]) == {200} and len(answers) <= 9
        with contextlib.closing(gateway.client_for(accounts.key("alice"))) as another:
            assert status(another) == 200
    # An administrator takes one of them out of that.
    accounts.do("user", "role", "stranger-2", "user")
    gateway.delete_session(next(iter(alice.get("/api/v1/sessions").json()["sessions"])), alice)
    gateway.create_session(clients(gateway, keys[2]))


def test_a_registered_user_evicts_registered_users(start_gateway, accounts, clients):
    accounts.do("user", "add", "alice")
    flags = ("--registration", "open", "--max-sessions", "4", "--evict", "idle")
    gateway = start_gateway(*accounts.flags, *flags)
    alice = clients(gateway, accounts.key("alice"))
    pages = [clients(gateway, None) for _ in range(3)]
    gateway.create_session(alice, session_id="oldest")
    for i, page in enumerate(pages):
        register(page, f"stranger-{i}")
        gateway.create_session(page, session_id=f"of-{i}")
    assert [list(page.get("/api/v1/sessions").json()["sessions"]) for page in (alice, *pages)] == [
        ["oldest"], [], ["of-1"], ["of-2"],
    ]  # fmt: skip


def register(page, name):
    answer = page.post("/api/v1/registration", json={"name": name, "password": "correct horse"})
    if answer.is_success:
        page.headers["X-CSRF-Token"] = answer.json()["csrf_token"]
    return answer


def test_the_number_of_registered_users(start_gateway, accounts, clients):
    accounts.do("user", "add", "root")
    accounts.do("user", "role", "root", "administrator")
    flags = ("--registration", "open", "--max-registered-users", "2")
    gateway = start_gateway(*accounts.flags, *flags)
    root = clients(gateway, accounts.key("root"))
    for name in ("alice", "bob"):
        assert register(clients(gateway, None), name).status_code == 200
    refused = register(clients(gateway, None), "carol")
    assert "max-registered-users" in problem(refused, 403, "registration_closed")["detail"]
    assert [row[6] for row in accounts.rows("user", "list")] == [
        "registered", "registered", "administrator",
    ]  # fmt: skip
    listed = {user["name"]: user for user in root.get("/api/v1/users").json()["users"]}
    assert [name for name, user in listed.items() if user["registered"]] == ["alice", "bob"]

    # Administrators make others, and make room by a role, or by removing one.
    assert root.post("/api/v1/users", json={"name": "dora"}).status_code == 200
    assert root.patch("/api/v1/users/alice", json={"administrator": False}).status_code == 200
    assert register(clients(gateway, None), "carol").status_code == 200
    assert root.delete("/api/v1/users/bob").status_code == 200
    assert register(clients(gateway, None), "erik").status_code == 200


def test_unused_accounts_are_removed(start_gateway, accounts, clients):
    accounts.do("user", "add", "root")
    flags = ("--registration", "open", "--unused-accounts-days", "30")
    gateway = start_gateway(*accounts.flags, *flags)
    pages = {name: clients(gateway, None) for name in ("alice", "bob", "carol")}
    for name, page in pages.items():
        assert register(page, name).status_code == 200
    assert pages["bob"].post("/api/v1/keys").status_code == 200
    assert [status(page) for page in pages.values()] == [200] * 3
    day = 24 * 3600 * 1000
    accounts.sql(f"UPDATE users SET created_ms = created_ms - 31 * {day} WHERE name <> 'carol'")
    assert register(clients(gateway, None), "dora").status_code == 200
    assert status(pages["alice"]) == 200  # whose first login is not over
    accounts.sql(f"UPDATE keys SET expires_ms = expires_ms - 31 * {day} WHERE expires_ms > 0")
    assert register(clients(gateway, None), "erik").status_code == 200
    names = [row[0] for row in accounts.rows("user", "list")]
    assert names == ["bob", "carol", "dora", "erik", "root"]
    assert "nobody used again after they were made users=1" in gateway.log()
    problem(register(clients(gateway, None), "alice"), 400, "invalid_request")


def test_the_commands(accounts):
    accounts.do("user", "add", "alice")
    key = accounts.key("alice", "laptop")
    [[user, state, keys, made, *_]] = accounts.rows("user", "list")
    assert (user, state, keys) == ("alice", "enabled", "1 keys") and made.endswith("Z")
    [[id_, user, name, made, used]] = accounts.rows("key", "list", "alice")
    assert (user, name, used) == ("alice", "laptop", "never") and key.startswith(f"kgk_{id_}_")
    assert accounts.refused("user", "add", "alice") == "kernelgate: there is a user alice already"
    assert "is reserved" in accounts.refused("user", "add", "default")
    assert "there is no user bob" in accounts.refused("key", "add", "bob")
    assert "there is no key" in accounts.refused("key", "revoke", "aaaaaaaaaa")
    assert key[-32:].encode() not in accounts.path.read_bytes()
    for words in (["user"], ["user", "add"], ["key", "nonsense"], ["user", "add", "a", "b"]):
        assert accounts.run(*words).returncode == 2, words
    unset = subprocess.run(
        [BINARY, "user", "list"], capture_output=True, text=True, cwd=accounts.path.parent
    )
    assert unset.returncode == 1 and "set accounts-file" in unset.stderr


def test_commands_at_once_make_the_file(tmp_path):
    """All of them open a file that none of them has finished making."""
    for i in range(10):
        accounts = Accounts(tmp_path / f"{i}.db")
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            added = [pool.submit(accounts.do, "user", "add", f"user-{n}") for n in range(6)]
        assert [each.result() for each in added] == [""] * 6
        assert len(accounts.rows("user", "list")) == 6


def test_keys_over_http(start_gateway, accounts, clients):
    for user in ("alice", "bob"):
        accounts.do("user", "add", user)
    gateway = start_gateway(*accounts.flags, "--api-key", "fixed", key="fixed")
    old = accounts.key("alice", "old")
    alice, bob = clients(gateway, old), clients(gateway, accounts.key("bob"))
    made = alice.post("/api/v1/keys", json={"name": "größer"})
    assert made.status_code == 200 and made.headers["cache-control"] == "no-store"
    made = made.json()
    again = clients(gateway, made["key"])
    assert status(again) == 200
    listed = alice.get("/api/v1/keys").json()
    assert listed["total"] == 2 and made["key"] not in str(listed)
    assert [key["name"] for key in listed["keys"]] == ["old", "größer"]

    # Nobody else has them.
    assert [key["name"] for key in bob.get("/api/v1/keys").json()["keys"]] == [""]
    problem(bob.delete(f"/api/v1/keys/{made['id']}"), 404, "not_found")
    for response in (gateway.client.get("/api/v1/keys"), gateway.client.post("/api/v1/keys")):
        problem(response, 404, "not_found")
    problem(clients(gateway, None).get("/api/v1/keys"), 401, "unauthorized")

    # Rotation: the new key revokes the old one, then itself.
    assert again.delete(f"/api/v1/keys/{old.split('_')[1]}").status_code == 200
    assert [status(alice), status(again)] == [401, 200]
    problem(again.delete(f"/api/v1/keys/{old.split('_')[1]}"), 404, "not_found")
    assert again.delete(f"/api/v1/keys/{made['id']}").status_code == 200
    assert status(again) == 401

    for body in ({"name": 1}, {"nome": "x"}, {"name": "a\nb"}, {"name": "x" * 65}, []):
        problem(bob.post("/api/v1/keys", json=body), 400, "invalid_request")
    assert bob.post("/api/v1/keys").json()["name"] == ""
    assert gateway.execute("print 1", client=bob).text() == "1\n"


def test_administrators(start_gateway, accounts, clients):
    for user in ("root", "alice"):
        accounts.do("user", "add", user)
    gateway = start_gateway(*accounts.flags, "--api-key", "fixed", key="fixed")
    root, alice = (clients(gateway, accounts.key(user)) for user in ("root", "alice"))
    requests = (
        ("GET", "/api/v1/users", None),
        ("POST", "/api/v1/users", {"name": "bob"}),
        ("PATCH", "/api/v1/users/alice", {"administrator": True}),
        ("POST", "/api/v1/users/root/keys", {}),
        ("DELETE", "/api/v1/users/root", None),
        ("DELETE", "/api/v1/users/root/sessions", None),
    )
    for client in (root, alice, gateway.client):
        for method, path, body in requests:
            problem(client.request(method, path, json=body), 403, "administrators_only")
    assert accounts.refused("user", "role", "root", "king").startswith("kernelgate: invalid role")
    accounts.do("user", "role", "root", "administrator")
    problem(alice.get("/api/v1/users"), 403, "administrators_only")

    # A user and its key, over HTTP alone.
    made = root.post("/api/v1/users", json={"name": "bob", "max_sessions": 1})
    assert made.json()["name"] == "bob"
    key = root.post("/api/v1/users/bob/keys", json={"name": "first"}).json()["key"]
    bob = clients(gateway, key)
    assert status(bob) == 200
    listed = {user["name"]: user for user in root.get("/api/v1/users").json()["users"]}
    assert listed["bob"]["max_sessions"] == 1 and listed["bob"]["keys"] == 1
    assert {name for name, user in listed.items() if user["administrator"]} == {"root"}
    assert root.patch("/api/v1/users/bob", json={"disabled": True}).status_code == 200
    assert status(bob) == 401
    assert root.patch("/api/v1/users/bob", json={"disabled": False}).status_code == 200
    assert status(bob) == 200
    assert root.delete("/api/v1/users/bob").status_code == 200
    assert status(bob) == 401

    for body in ({}, {"name": "root"}, {"name": "default"}, {"name": "x", "max_sessions": -1}):
        problem(root.post("/api/v1/users", json=body), 400, "invalid_request")
    changed = root.patch("/api/v1/users/alice", json={"max_memory_mb": 128})
    assert changed.status_code == 200
    listed = {user["name"]: user for user in root.get("/api/v1/users").json()["users"]}
    assert listed["alice"]["max_memory_mb"] == 128
    for body in ({"name": "x"}, {"disabled": 1}, {"max_requests_per_second": "2"},
                 {"max_memory_mb": 63}, {"max_memory_mb": 64.5}):  # fmt: skip
        problem(root.patch("/api/v1/users/alice", json=body), 400, "invalid_request")
    problem(root.delete("/api/v1/users/bob"), 404, "not_found")
    assert key not in gateway.log()


def audit(gateway):
    """The fields of the lines that say who has done what with accounts."""
    lines = re.findall(r"the accounts were (?:changed|used) (.+)", gateway.log())
    return [{k: q or v for k, q, v in re.findall(r'(\w+)=(?:"([^"]*)"|(\S+))', x)} for x in lines]


def test_the_audit_log(start_gateway, accounts, clients):
    for user in ("root", "alice"):
        accounts.do("user", "add", user)
        accounts.password(user, "correct horse")
    accounts.do("user", "role", "root", "administrator")
    gateway = start_gateway(*accounts.flags)
    key = accounts.key("root")
    root, alice = clients(gateway, key), clients(gateway, None)
    body = {"name": "root", "password": "wrong horse"}
    assert alice.post("/api/v1/login", json=body).status_code == 401
    entered = alice.post("/api/v1/login", json={"name": "alice", "password": "correct horse"})
    alice.headers["X-CSRF-Token"] = entered.json()["csrf_token"]
    login = alice.cookies["kernelgate_login"].split("_")[1]
    made = alice.post("/api/v1/keys", json={"name": "of an agent"}).json()
    assert alice.delete(f"/api/v1/keys/{made['key']}").status_code == 200  # the whole key
    body = {"name": "bob", "max_sessions": 1}
    assert root.post("/api/v1/users", json=body).status_code == 200
    for_bob = root.post("/api/v1/users/bob/keys", json={"name": "secret name"}).json()
    body = {"disabled": True, "max_requests_per_second": 2.5}
    assert root.patch("/api/v1/users/bob", json=body).status_code == 200
    assert root.delete("/api/v1/users/bob/sessions").json()["ended"] == 0
    assert root.delete("/api/v1/users/bob").status_code == 200
    problem(alice.delete("/api/v1/users/root"), 403, "administrators_only")
    assert alice.post("/api/v1/logout").status_code == 200

    here = {"network": "127.0.0.1"}
    by_alice = {"by": "alice", "with": login, **here}
    by_root = {"by": "root", "with": key.split("_")[1], **here}
    assert audit(gateway) == [
        {"what": "logged in", "by": "alice", "of": "alice", "key": login, **here},
        {"what": "key made", "key": made["id"], **by_alice},
        {"what": "key revoked", "key": made["id"], **by_alice},
        {"what": "user made", "of": "bob", "changed": "max_sessions=1", **by_root},
        {"what": "key made", "of": "bob", "key": for_bob["id"], **by_root},
        {
            "what": "user changed", "of": "bob",
            "changed": "disabled=true, max_requests_per_second=2.5", **by_root,
        },
        {"what": "sessions ended", "of": "bob", **by_root},
        {"what": "user removed", "of": "bob", **by_root},
        {"what": "logged out", **by_alice},
    ]  # fmt: skip
    log = gateway.log()
    assert "a login failed user=root network=127.0.0.1" in log
    for secret in (made["key"], for_bob["key"], "secret name", "of an agent", "horse"):
        assert secret not in log, secret


def test_an_administrator_ends_the_sessions_of_a_user(start_gateway, accounts, clients):
    """One that is disabled: what runs ends as if the user had ended the sessions."""
    for user in ("root", "alice", "bob"):
        accounts.do("user", "add", user)
    accounts.do("user", "role", "root", "administrator")
    gateway = start_gateway(*accounts.flags)
    root, alice, bob = (clients(gateway, accounts.key(user)) for user in ("root", "alice", "bob"))

    def sessions():
        users = root.get("/api/v1/users").json()["users"]
        return {user["name"]: user["sessions"] for user in users}

    gateway.create_session(bob, session_id="of-bob")
    gateway.create_session(alice, session_id="commands")
    assert sessions() == {"alice": 1, "bob": 1, "root": 0}
    command = {"command": "echo begun; sleep 1000", "timeout": 600}
    with (
        gateway.stream(cell("print begun", "hang"), alice, timeout=600) as running,
        alice.stream("POST", "/api/v1/sessions/commands/commands", json=command) as shell,
    ):
        lines = shell.iter_lines()
        assert "begun" in next(lines)
        assert running.next()["text"] == "begun\n"
        assert sessions() == {"alice": 2, "bob": 1, "root": 0}
        assert root.patch("/api/v1/users/alice", json={"disabled": True}).status_code == 200
        assert status(alice) == 401
        assert sessions()["alice"] == 2  # they go on
        response = root.delete("/api/v1/users/alice/sessions")
        assert response.json() == {"message": "Sessions ended", "ended": 2}
        rest = running.rest()
        assert rest.status == "died" and "ended by an administrator" in str(rest)
        assert '"status":"died"' in list(lines)[-1]
    assert sessions() == {"alice": 0, "bob": 1, "root": 0}
    assert root.patch("/api/v1/users/alice", json={"disabled": False}).status_code == 200
    assert alice.get("/api/v1/sessions").json()["sessions"] == {}
    assert list(bob.get("/api/v1/sessions").json()["sessions"]) == ["of-bob"]
    assert root.delete("/api/v1/users/alice/sessions").json()["ended"] == 0
    problem(root.delete("/api/v1/users/nobody/sessions"), 404, "not_found")
    problem(bob.delete("/api/v1/users/alice/sessions"), 403, "administrators_only")


def test_without_accounts_there_are_no_routes(gateway):
    for method in ("GET", "POST"):
        problem(gateway.client.request(method, "/api/v1/keys"), 404, "not_found")


def test_quotas_of_users(start_gateway, accounts, clients):
    for user in ("alice", "bob"):
        accounts.do("user", "add", user)
    gateway = start_gateway(*accounts.flags, "--max-sessions", "4")
    alice, bob = (clients(gateway, accounts.key(user)) for user in ("alice", "bob"))

    def use(client):
        login = client.get("/api/v1/login").json()
        return login["sessions"], login["quota"]

    usual = {"max_sessions": 2, "max_requests_per_second": 0, "max_memory_mb": 512}
    assert use(alice) == (0, usual)  # half of four, since there are two owners
    accounts.do("user", "quota", "alice", "max-sessions=1")
    gateway.create_session(alice, session_id="first")
    assert use(alice) == (1, {**usual, "max_sessions": 1})
    known = alice.get("/api/v1/limits").json()
    assert known["limits"]["max_sessions"] == known["sessions"] == 1
    assert known["set_by"] == {"max_sessions": "max-sessions of its account"}
    assert use(bob) == (0, usual)
    refused = problem(alice.post("/api/v1/sessions", json={}), 429, "max_sessions")
    assert "already has 1 session (max-sessions of its account)" in refused["detail"]
    gateway.create_session(bob)
    gateway.create_session(bob)  # half of four
    problem(bob.post("/api/v1/sessions", json={}), 429, "max_sessions")

    accounts.do("user", "quota", "alice", "max-sessions=2", "max-requests-per-second=0.5")
    refused = wait_for(
        lambda: next((r for r in [alice.get("/api/v1/sessions")] if r.is_error), None), interval=0
    )
    problem(refused, 429, "rate_limited")
    assert status(bob) == 200
    [row, _] = accounts.rows("user", "list")
    assert row[4:6] == ["max-sessions=2", "max-requests-per-second=0.5"]
    accounts.do("user", "quota", "alice", "max-sessions=2")
    gateway.create_session(alice)
    accounts.do(
        "user", "quota", "alice", "max-sessions=2", "max-requests-per-second=9", "max-memory-mb=64"
    )
    assert accounts.rows("user", "list")[0][4:] == [
        "max-sessions=2", "max-requests-per-second=9", "user", "max-memory-mb=64",
    ]  # fmt: skip
    own = {"max_sessions": 2, "max_requests_per_second": 9, "max_memory_mb": 64}
    assert use(alice) == (2, own)
    assert "max-memory-mb must be 0, or 64" in accounts.refused(
        "user", "quota", "alice", "max-memory-mb=63"
    )
    for limit in ("max-sessions=-1", "max-sessions=1.5", "max-sessions", "sessions=1"):
        assert "invalid limit" in accounts.refused("user", "quota", "alice", limit)
    assert "max-sessions must be" in accounts.refused(
        "user", "quota", "alice", "max-sessions=10001"
    )


def test_last_use_is_recorded(start_gateway, accounts, clients):
    accounts.do("user", "add", "alice")
    key = accounts.key("alice")
    gateway = start_gateway(*accounts.flags)
    assert status(clients(gateway, key)) == 200
    wait_for(lambda: accounts.rows("key", "list")[0][4].endswith("Z"))


def break_file(accounts):
    """Replaces it, as SQLite may not read again what it has in memory."""
    broken = accounts.path.with_name("broken")
    broken.write_bytes(os.urandom(accounts.path.stat().st_size))
    broken.rename(accounts.path)


BAD = {
    "damaged": (break_file, "is damaged"),
    "newer": (lambda accounts: accounts.sql("PRAGMA user_version = 1000"), "version 1000"),
    "missing": (lambda accounts: accounts.path.unlink(), "No such file or directory"),
}


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("running", [True, False])
def test_a_file_that_cannot_be_used(start_gateway, accounts, clients, how, running):
    do, why = BAD[how]
    accounts.do("user", "add", "alice")
    key = accounts.key("alice")
    flags = (*accounts.flags, "--api-key", "fixed")
    if not running:
        do(accounts)
        if how == "missing":
            accounts.path.mkdir()
            why = "unable to open database file"
    gateway = start_gateway(*flags, key="fixed")
    alice = clients(gateway, key)
    if running:
        assert status(alice) == 200
        do(accounts)
    detail = problem(alice.get("/api/v1/sessions"), 503, "accounts_unavailable")["detail"]
    assert why in detail and str(accounts.path) in detail
    assert why in gateway.log()
    assert why in accounts.refused("user", "list")
    assert status(gateway.client) == 200
    assert status(clients(gateway, "wrong")) == 401
    assert gateway.execute("print 1").text() == "1\n"


def test_a_locked_file(start_gateway, accounts, clients):
    accounts.do("user", "add", "alice")
    key = accounts.key("alice")
    gateway = start_gateway(*accounts.flags, "--api-key", "fixed", key="fixed")
    alice = clients(gateway, key)
    assert status(alice) == 200
    database = sqlite3.connect(accounts.path, isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    assert "is locked by another program" in accounts.refused("user", "add", "bob")
    assert [status(alice), status(gateway.client)] == [200, 200]
    database.execute("ROLLBACK")
    database.close()
    accounts.do("user", "add", "bob")


def test_a_full_disk(small_folder, start_gateway, clients):
    folder = pathlib.Path(small_folder("256k"))
    accounts = Accounts(folder / "accounts.db")
    accounts.do("user", "add", "alice")
    accounts.password("alice", "correct horse")
    key = accounts.key("alice")
    gateway = start_gateway(*accounts.flags, "--api-key", "fixed", key="fixed")
    alice, page = clients(gateway, key), clients(gateway, None)
    login = {"name": "alice", "password": "correct horse"}
    assert status(alice) == 200
    with open(folder / "ballast", "wb", buffering=0) as ballast, pytest.raises(OSError):
        while True:
            ballast.write(b"x" * 512)
    assert "no space is left for accounts-file" in accounts.refused("user", "add", "bob")
    problem(page.post("/api/v1/login", json=login), 507, "disk_full")  # which is written
    assert [status(alice), status(gateway.client)] == [200, 200]
    wait_for(lambda: "cannot write when keys were used last" in gateway.log())
    assert [status(alice), status(gateway.client)] == [200, 200]
    (folder / "ballast").unlink()
    assert page.post("/api/v1/login", json=login).status_code == 200
    accounts.do("key", "revoke", key)
    assert [status(alice), status(gateway.client)] == [401, 200]


def test_streams_of_a_revoked_key(start_gateway, accounts, clients):
    """They stay open, and bring the results of what was begun before; nothing new is begun."""
    accounts.do("user", "add", "alice")
    key, other = accounts.key("alice"), accounts.key("alice")
    gateway = start_gateway(*accounts.flags)
    alice, old = clients(gateway, other), clients(gateway, None)
    tools = mcp_wire.Client(gateway, key=key)
    with (
        old.stream("GET", "/sse", params={"api_key": key}) as stream,
        tools.stream("GET", timeout=1) as notifications,
    ):
        coming = mcp_wire.events(stream.iter_lines())
        endpoint = next(coming)["data"]
        assert old.post(endpoint, json=mcp_wire.initialize("2024-11-05")).status_code == 202
        assert "result" in next(coming)["data"]
        call = mcp_wire.call("run_python_code", code=HELD, session_id="held")
        assert old.post(endpoint, json=call).status_code == 202
        wait_for(lambda: alice.get("/api/v1/sessions/held").json().get("is_busy"))
        accounts.do("key", "revoke", key)
        assert old.post(endpoint, json=mcp_wire.request("ping")).status_code == 401
        assert tools.post(mcp_wire.request("ping")).status_code == 401
        gateway.release("held", alice)
        later = (json.loads(event["data"]) for event in coming if "data" in event)
        answer = next(message for message in later if "method" not in message)
        assert answer["id"] == call["id"] and not answer["result"].get("isError"), answer
        with pytest.raises(httpx.ReadTimeout):  # and not the end of the stream
            list(notifications.events)
    tools.http.close()


def test_a_gateway_that_is_killed_while_it_writes(start_gateway, accounts, clients):
    """What it has acknowledged is there when the next one begins."""
    accounts.do("user", "add", "alice")
    first = accounts.key("alice")
    gateway = start_gateway(*accounts.flags, "--account-changes-per-minute", "0")
    made = {}

    def make_keys(client):
        with contextlib.suppress(httpx.TransportError):
            for _ in range(30):  # a user may have 100 keys
                answer = client.post("/api/v1/keys")
                assert answer.status_code == 200, answer.text
                made[answer.json()["id"]] = answer.json()["key"]

    for _ in range(5):
        before = len(made)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            making = [pool.submit(make_keys, clients(gateway, first)) for _ in range(3)]
            wait_for(lambda before=before: len(made) > before + 2, interval=0.001)
            time.sleep(random.uniform(0, 0.02))  # any moment of a write is the right one
            gateway.kill()
        for each in making:
            each.result()
        assert accounts.sql("PRAGMA integrity_check") == [("ok",)]
        gateway.start()
        alice = clients(gateway, first)
        kept = {key["id"] for key in alice.get("/api/v1/keys").json()["keys"]}
        assert made.keys() <= kept
        assert status(clients(gateway, random.choice(list(made.values())))) == 200
        for id_ in kept - {first.split("_")[1]}:  # there may be a hundred
            assert alice.delete(f"/api/v1/keys/{id_}").status_code == 200
        made.clear()


def test_kills_in_the_middle_of_writes(start_gateway, accounts, clients):
    accounts.do("user", "add", "alice")
    started = time.monotonic()
    keys = {accounts.key("alice")}
    takes = time.monotonic() - started
    gateway = start_gateway(*accounts.flags)
    for turn in range(40):
        command = [BINARY, "key", "add", "alice", *accounts.flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as adding:
            try:
                adding.wait(random.uniform(0.3, 1.1) * takes)
            except subprocess.TimeoutExpired:
                adding.kill()
            line = adding.stdout.read()
        keys |= {line.strip()} if line.endswith("\n") else set()
        if turn % 10 == 5:
            gateway.kill()
            gateway.start()
        assert status(clients(gateway, random.choice(sorted(keys)))) == 200
    assert accounts.sql("PRAGMA integrity_check") == [("ok",)]
    assert all(status(clients(gateway, key)) == 200 for key in keys)
    ids = {row[0] for row in accounts.rows("key", "list")}
    assert {key.split("_")[1] for key in keys} <= ids
