# SPDX-License-Identifier: Apache-2.0
"""Keys that are added and revoked in their file while the gateway runs."""

import os
import threading

import mcp_wire
from kernelgate import problem, wait_for

WAITS = "print on\nwait {0}\nprint {0} came"


def replace(path, text):
    """Replaces a file as editors do: readers see the old or the new one."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    fresh.rename(path)


def status(client):
    return client.get("/api/v1/sessions").status_code


def test_keys_come_and_go_while_requests_run(start_gateway, clients, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\n")
    flags = ("--api-keys-file", str(keys), "--pool-size", "0", "--max-sessions", "4")
    gateway = start_gateway(*flags, key="key-of-alice")
    alice = gateway.client
    session = gateway.create_session(session_id="kept")
    url = alice.put(f"/api/v1/sessions/{session}/files/page.txt", content=b"hi").json()["url"]
    tools = mcp_wire.Client(gateway, key="key-of-alice")
    tools.http.timeout = 600
    answers = []
    message = mcp_wire.call("run_code", code=WAITS.format("second"), session_id="of-mcp")
    calling = threading.Thread(target=lambda: answers.append(tools.post(message)))

    with gateway.stream(WAITS.format("first"), session_id=session, timeout=600) as running:
        assert running.next_of("stdout")["text"] == "on\n"
        calling.start()
        ready = "/api/v1/sessions/of-mcp/files/ready"
        wait_for(lambda: alice.put(ready, content=b"").status_code == 201)

        # An owner is added, and shares the limits with alice from now on.
        bob = clients(gateway, "key-of-bob")
        assert status(bob) == 401
        replace(keys, "alice:key-of-alice\nbob:key-of-bob\n")
        wait_for(lambda: status(bob) == 200)
        assert gateway.execute("print 1", client=bob).text() == "1\n"
        problem(alice.post("/api/v1/sessions", json={}), 429, "max_sessions")

        # alice's last key is revoked: no new request is accepted, by HTTP or MCP.
        replace(keys, "bob:key-of-bob\n")
        wait_for(lambda: status(alice) == 401)
        problem(alice.post("/api/v1/execute", json={"code": "result 1"}), 401, "unauthorized")
        assert tools.post(mcp_wire.request("ping")).status_code == 401
        assert bob.get("/api/v1/sessions").json()["sessions"] == {}

        # Running code continues, and links to files work as long as their session exists.
        assert clients(gateway, None).get(url).content == b"hi"
        assert calling.is_alive() and not answers

        # With a new key the same owner finds her sessions again.
        replace(keys, "bob:key-of-bob\nalice:another-key\n")
        again = clients(gateway, "another-key")
        wait_for(lambda: status(again) == 200)
        assert status(alice) == 401
        assert set(again.get("/api/v1/sessions").json()["sessions"]) == {session, "of-mcp"}
        for name, of in (("first", session), ("second", "of-mcp")):
            assert again.put(f"/api/v1/sessions/{of}/files/{name}", content=b"").status_code == 201
        lines = running.rest()
        assert lines.text().endswith("first came\n") and lines.status == "ok"
    calling.join()
    last = mcp_wire.messages(mcp_wire.events(answers[0].text.splitlines()))[-1]
    assert "second came" in str(last["result"]["content"])

    # The MCP session belongs to the owner, not to the key.
    tools.http.headers["Authorization"] = "Bearer another-key"
    assert mcp_wire.result(tools.post(mcp_wire.request("ping"))) == {}
    tools.http.close()
    log = gateway.log()
    assert not any(key in log for key in ("key-of-alice", "key-of-bob", "another-key"))


def test_a_broken_file_changes_nothing(start_gateway, clients, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice:key-of-alice\n")
    gateway = start_gateway("--api-keys-file", str(keys), "--pool-size", "0", key="key-of-alice")
    bob = clients(gateway, "key-of-bob")
    replace(keys, "bob:key-of-bob\nkey-of-alice\n")
    wait_for(lambda: f"{keys}, line 2: expected owner:key" in gateway.log())
    keys.unlink()
    wait_for(lambda: f"cannot open {keys}: No such file" in gateway.log())
    assert (status(gateway.client), status(bob)) == (200, 401)
    keys.write_text("bob:key-of-bob\n")
    wait_for(lambda: (status(gateway.client), status(bob)) == (401, 200))
    assert "key-of" not in gateway.log()


def test_a_mounted_secret_is_replaced(start_gateway, clients, tmp_path):
    """A Secret is mounted as a link to a link; the kubelet swaps the second one."""

    def publish(version, text):
        folder = tmp_path / f"..{version}"
        folder.mkdir()
        (folder / "keys").write_text(text)
        (tmp_path / "..data_tmp").symlink_to(folder.name)
        os.rename(tmp_path / "..data_tmp", tmp_path / "..data")

    publish(1, "alice:key-of-alice\n")
    (tmp_path / "keys").symlink_to("..data/keys")
    flags = ("--api-keys-file", str(tmp_path / "keys"), "--pool-size", "0")
    gateway = start_gateway(*flags, key="key-of-alice")
    for version in range(2, 5):
        client = clients(gateway, f"key-{version}")
        assert status(client) == 401
        publish(version, f"alice:key-{version}\n")
        wait_for(lambda client=client: status(client) == 200)
        assert status(gateway.client) == 401
