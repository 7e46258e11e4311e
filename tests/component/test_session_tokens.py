# SPDX-License-Identifier: Apache-2.0
"""Tokens of sessions: what each scope allows, and everything else that a holder may try."""

import base64
import concurrent.futures
import contextlib
import json

import component
import mcp_wire
import pytest
import websockets
from account_commands import Accounts
from component import cell
from contract import OPERATIONS, send_example
from kernelgate import Gateway, problem, wait_for
from terminal_wire import terminal
from workers import held_workers

SCOPES = "read", "run", "files:read", "files", "terminal", "ports"
# By the scopes that allow them; what is not here refuses tokens.
ALLOWED = {
    ("POST", "/api/v1/execute"): {"run"},
    ("POST", "/api/v1/execute_sync"): {"run"},
    ("GET", "/api/v1/executions/{id}"): {"read", "run"},
    ("POST", "/api/v1/executions/{id}/interrupt"): {"run"},
    ("POST", "/api/v1/executions/{id}/input"): {"run"},
    ("POST", "/api/v1/executions/{id}/tool_results"): {"run"},
    ("GET", "/api/v1/sessions/{id}"): {"read", "run"},
    ("POST", "/api/v1/sessions/{id}/interrupt"): {"run"},
    ("POST", "/api/v1/sessions/{id}/restart"): {"run"},
    ("POST", "/api/v1/sessions/{id}/touch"): {"run"},
    ("POST", "/api/v1/sessions/{id}/commands"): {"run"},
    ("GET", "/api/v1/sessions/{id}/commands"): {"read", "run"},
    ("GET", "/api/v1/sessions/{id}/commands/{command}"): {"read", "run"},
    ("DELETE", "/api/v1/sessions/{id}/commands/{command}"): {"run"},
    ("GET", "/api/v1/sessions/{id}/commands/{command}/output"): {"read", "run"},
    ("POST", "/api/v1/sessions/{id}/commands/{command}/input"): {"run"},
    ("POST", "/api/v1/sessions/{id}/commands/{command}/signal"): {"run"},
    ("POST", "/api/v1/sessions/{id}/commands/{command}/resize"): {"run"},
    ("GET", "/api/v1/sessions/{id}/terminal"): {"terminal"},
    ("GET", "/api/v1/sessions/{id}/ports"): {"ports"},
    ("POST", "/api/v1/sessions/{id}/ports/{port}"): {"ports"},
    ("POST", "/api/v1/sessions/{id}/complete"): {"run"},
    ("POST", "/api/v1/sessions/{id}/inspect"): {"run"},
    ("POST", "/api/v1/sessions/{id}/savepoints"): {"run"},
    ("GET", "/api/v1/sessions/{id}/savepoints"): {"read", "run"},
    ("DELETE", "/api/v1/sessions/{id}/savepoints/{savepoint}"): {"run"},
    ("POST", "/api/v1/sessions/{id}/savepoints/{savepoint}/restore"): {"run"},
    ("POST", "/api/v1/sessions/{id}/branches"): {"run"},
    ("GET", "/api/v1/sessions/{id}/branches"): {"read", "run"},
    ("DELETE", "/api/v1/sessions/{id}/branches/{branch}"): {"run"},
    ("POST", "/api/v1/sessions/{id}/branches/{branch}/promote"): {"run"},
    ("POST", "/api/v1/sessions/{id}/packages"): {"run"},
    ("GET", "/api/v1/sessions/{id}/packages"): {"read", "run"},
    ("GET", "/api/v1/sessions/{id}/packages/{name}"): {"read", "run"},
    ("GET", "/api/v1/sessions/{id}/files"): {"files:read", "files"},
    ("GET", "/api/v1/sessions/{id}/files/{path}"): {"files:read", "files"},
    ("PUT", "/api/v1/sessions/{id}/files/{path}"): {"files"},
    ("DELETE", "/api/v1/sessions/{id}/files/{path}"): {"files"},
    ("POST", "/api/v1/sessions/{id}/files/{path}"): {"files"},
    ("POST", "/api/v1/sessions/{id}/files"): {"files"},
    ("GET", "/api/v1/sessions/{id}/watch"): {"files:read", "files"},
}
PUBLIC = {path for (_, path), it in OPERATIONS.items() if it.get("security") == []}


def make(gateway, session, *scope, client=None, **fields):
    """Makes a token, and returns all that is said of it."""
    body = {"scope": list(scope), **fields}
    answer = (client or gateway.client).post(f"/api/v1/sessions/{session}/tokens", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


@pytest.fixture(scope="module")
def keyed():
    flags = "--jupyter-api", "--api-key", "key-of-all"
    running = Gateway(*component.FLAGS, *flags, key="key-of-all")
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture
def own(keyed):
    session = keyed.create_session()
    yield session
    keyed.delete_session(session)


@pytest.fixture
def holder(keyed, own, clients):
    """A client with a token of these scopes."""

    def hold(*scope, **fields):
        return clients(keyed, make(keyed, own, *scope, **fields)["token"])

    return hold


def execute(client, session, code):
    return client.post("/api/v1/execute_sync", json={"code": code, "session_id": session})


def test_what_is_allowed(keyed, own, holder):
    runs, reads, files, sees = holder("run"), holder("read"), holder("files"), holder("files:read")
    assert execute(runs, own, "result 5").json()["data"]["texts"] == ["5"]
    url = f"/api/v1/sessions/{own}"
    assert files.put(f"{url}/files/a.txt", content=b"kept").status_code == 201
    for client in files, sees:
        assert client.get(f"{url}/files/a.txt").content == b"kept"
        assert [it["path"] for it in client.get(f"{url}/files").json()["files"]] == ["a.txt"]
    body = {"command": "cat a.txt; sleep 600", "id": "one", "background": True}
    assert runs.post(f"{url}/commands", json=body).status_code == 201
    with reads.stream("GET", f"{url}/commands/one/output") as answer:
        lines = map(json.loads, answer.iter_lines())
        assert next(line for line in lines if line["type"] == "stdout")["text"] == "kept"
    with runs.stream("POST", "/api/v1/execute", json={"code": "print on", "session_id": own}) as it:
        assert it.read()
        execution = it.headers["x-execution-id"]
    assert '"on' in reads.get(f"/api/v1/executions/{execution}").text
    assert reads.get(url).json()["session_id"] == own
    files.post(f"{url}/files/b", json={"action": "mkdir"}).raise_for_status()
    with sees.stream("GET", f"{url}/watch") as answer:
        assert json.loads(next(answer.iter_lines()))["type"] == "started"
    # As every key: in the other header, and in the query of GET.
    token = make(keyed, own, "read")["token"]
    bare = {"headers": {"X-API-Key": token, "Authorization": ""}}
    assert reads.get(url, **bare).status_code == 200
    assert reads.get(url, headers={"Authorization": ""}, params={"api_key": token}).is_success
    problem(reads.get(url, headers={"Authorization": ""}), 401, "unauthorized")


def test_only_the_owner_makes_a_port_public(keyed, own, holder):
    url = f"/api/v1/sessions/{own}/ports/8501"
    client = holder("ports")
    assert client.post(url).json()["expires_at"]
    for public in True, False:
        refused = client.post(url, json={"public": public})
        assert "public" in problem(refused, 403, "token_scope")["detail"]
    assert keyed.client.post(url, json={"public": True}).json()["public"]


def test_a_terminal(keyed, own):
    token = make(keyed, own, "terminal")["token"]
    with terminal(keyed, own, api_key=token) as screen:
        screen.type("echo a$((1+1))b\n")
        screen.until(b"a2b")
    token = make(keyed, own, "run")["token"]
    with (
        pytest.raises(websockets.InvalidStatus) as refused,
        terminal(keyed, own, api_key=token),
    ):
        pass
    assert refused.value.response.status_code == 403


def test_a_terminal_ends_with_its_token(keyed, own):
    made = make(keyed, own, "terminal")
    with terminal(keyed, own, api_key=made["token"]) as screen:
        screen.type("echo a$((1+1))b\n")
        screen.until(b"a2b")
        keyed.client.delete(f"/api/v1/sessions/{own}/tokens/{made['token_id']}").raise_for_status()
        with contextlib.suppress(websockets.ConnectionClosed):
            screen.type("echo again\n")
            while True:
                screen.read()
        assert screen.socket.close_code is not None


@pytest.mark.parametrize("scope", SCOPES)
def test_every_route(keyed, own, holder, scope):
    """Each operation of the document, with each scope: those beyond it are 403, and name what is needed."""
    client = holder(scope)
    for method, path in OPERATIONS:
        if path in PUBLIC or path.startswith(("/api/v1/keys", "/api/v1/users", "/api/v1/log")):
            continue
        if path.startswith(("/api/v1/password", "/api/v1/registration")):
            continue  # as those before: this gateway has no accounts
        if scope in ALLOWED.get((method, path), ()):
            continue
        refused = problem(send_example(client, method, path, own), 403, "token_scope")
        needed = ALLOWED.get((method, path))
        assert not needed or any(f"scope {name}" in refused["detail"] for name in needed), path
    assert keyed.show_session(own)["session_id"] == own


def test_all_scopes_are_no_key(keyed, own, clients):
    client = clients(keyed, make(keyed, own, *SCOPES)["token"])
    url = f"/api/v1/sessions/{own}"
    for method, path in (
        ("GET", "/api/v1/sessions"),
        ("POST", "/api/v1/sessions"),
        ("PATCH", url),
        ("DELETE", url),
        ("POST", f"{url}/tokens"),
        ("GET", f"{url}/tokens"),
        ("DELETE", f"{url}/tokens/{'a' * 16}"),
        ("GET", f"{url}/executions"),
        ("GET", "/api/v1/kernelspecs"),
        ("POST", "/mcp"),
        ("GET", "/sse"),
        ("GET", "/api/kernels"),
        ("GET", "/api/sessions"),
        ("GET", "/api/contents"),
        ("GET", "/api/terminals"),
        ("GET", "/api/kernelspecs"),
        ("GET", "/api/me"),
    ):
        for headers in (
            {},
            {"Authorization": client.headers["authorization"].replace("Bearer", "token")},
        ):
            body = {} if method in ("POST", "PATCH") else None
            answer = client.request(method, path, json=body, headers=headers)
            assert answer.status_code in (401, 403, 404), (method, path, answer.text)
            if answer.status_code == 404:
                assert path == "/api/me" or "no route" in answer.text, (path, answer.text)
    with pytest.raises(AssertionError, match="token_scope"):
        mcp_wire.Client(keyed, key=client.headers["authorization"].split()[1])
    assert keyed.show_session(own)["session_id"] == own


def test_another_session(keyed, own, clients):
    other = keyed.create_session(session_id="other-one")
    keyed.client.put(f"/api/v1/sessions/{other}/files/a", content=b"x").raise_for_status()
    lines = keyed.execute("print secret", session_id=other)
    execution = keyed.client.get(f"/api/v1/sessions/{other}/executions").json()["executions"][0]
    client = clients(keyed, make(keyed, own, *SCOPES)["token"])
    for method, path in ALLOWED:
        if path.startswith("/api/v1/sessions/"):
            for name in other, "no-such-one":
                refused = problem(send_example(client, method, path, name), 403, "token_scope")
                assert refused["detail"] == f"this token is for the session {own} only"
    for name in other, "a-new-one":
        problem(execute(client, name, "print 1"), 403, "token_scope")
    id_ = execution["execution_id"]
    problem(client.get(f"/api/v1/executions/{id_}"), 403, "token_scope")
    problem(client.post(f"/api/v1/executions/{id_}/interrupt"), 403, "token_scope")
    assert lines.text() == "secret\n"
    assert set(keyed.client.get("/api/v1/sessions").json()["sessions"]) >= {own, other}
    assert "a-new-one" not in keyed.client.get("/api/v1/sessions").json()["sessions"]
    keyed.delete_session(other)


def test_bodies_that_name_another_session(keyed, own, clients):
    """What the check reads is what the handler reads."""
    client = clients(keyed, make(keyed, own, "run")["token"])
    for body in (
        '{"code":"print 1"}',
        '{"code":"print 1","session_id":null}',
        '{"code":"print 1","session_id":["OWN"]}',
        '{"code":"print 1","session\\u005fid":"other"}',
        '{"code":"print 1","env":{"session_id":"OWN"},"session_id":"other"}',
        '{"code":"{\\"session_id\\":\\"OWN\\"}","session_id":"other"}',
    ):
        problem(
            client.post("/api/v1/execute_sync", content=body.replace("OWN", own)),
            403,
            "token_scope",
        )
    for body in (
        '{"session_id":"OWN","code":"print 1","session_id":"other"}',
        '{"session_id":"OWN","code":"print 1","session\\u005fid":"other"}',
        '{"session_id":"OWN","code":"print 1"',
    ):
        problem(
            client.post("/api/v1/execute_sync", content=body.replace("OWN", own)),
            400,
            "invalid_request",
        )
    large = json.dumps({"code": "print 1", "variables": {"a": "x" * (1 << 20)}, "session_id": own})
    problem(client.post("/api/v1/execute_sync", content=large), 413, "upload_too_large")
    medium = json.dumps({"code": "print 1", "session_id": own, "env": {}}) + " " * (300 << 10)
    assert client.post("/api/v1/execute_sync", content=medium).is_success


def test_an_earlier_session_of_the_name(keyed, clients):
    def run(client, text):
        body = {"code": f"print {text}", "session_id": "again"}
        with client.stream("POST", "/api/v1/execute", json=body) as answer:
            answer.read()
            return answer.headers["x-execution-id"]

    keyed.create_session(session_id="again")
    before = run(keyed.client, "secret")
    old = clients(keyed, make(keyed, "again", "read", "run")["token"])
    keyed.delete_session("again")
    problem(old.get("/api/v1/sessions/again"), 401, "unauthorized")
    keyed.create_session(session_id="again")
    new = clients(keyed, make(keyed, "again", "read", "run")["token"])
    problem(old.get("/api/v1/sessions/again"), 401, "unauthorized")
    problem(execute(old, "again", "print 1"), 401, "unauthorized")
    assert "secret" in keyed.client.get(f"/api/v1/executions/{before}").text
    problem(new.get(f"/api/v1/executions/{before}"), 403, "token_scope")
    assert "mine" in new.get(f"/api/v1/executions/{run(new, 'mine')}").text
    keyed.delete_session("again")


def test_a_session_that_ends_while_a_body_is_read(keyed, clients):
    """Bodies that wait for a worker: the token is for no later session of that name."""
    url = "/api/v1/sessions/again"
    late = {"code": "result 5", "session_id": "again", "variables": {"x": "x" * 900_000}}
    form = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n%s\r\n--b--\r\n'
    requests = [
        ("/api/v1/execute_sync", "application/json", json.dumps(late).encode()),
        (f"{url}/files", "multipart/form-data; boundary=b", form % (b"x" * 900_000)),
        (f"{url}/commands", "application/json", b'{"command":"touch made"}' + b" " * 900_000),
    ]
    keyed.create_session(session_id="again")
    old = clients(keyed, make(keyed, "again", "run", "files")["token"])
    assert execute(old, "again", f"print {'x' * 100_000}").is_success  # so there are workers
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        with held_workers(keyed) as wait_for_workers:
            answers = [
                pool.submit(old.post, path, content=body, headers={"Content-Type": kind})
                for path, kind, body in requests
            ]
            all_bytes = sum(len(body) for _, _, body in requests)
            wait_for_workers()
            wait_for(lambda: keyed.budget_held("http_body_bytes") >= all_bytes)
            keyed.delete_session("again")
            made = pool.submit(keyed.create_session, session_id="again")
            wait_for(lambda: keyed.client.get(url).is_success)
        assert made.result() == "again"
        for answer in answers:
            problem(answer.result(), 401, "unauthorized")
    assert keyed.client.get(url).json()["execution_count"] == 0
    assert keyed.client.get(f"{url}/files").json()["files"] == []
    keyed.delete_session("again")


def test_tokens_end(keyed, own, clients):
    made = make(keyed, own, "read", expires_in=2)
    client = clients(keyed, made["token"])
    url = f"/api/v1/sessions/{own}"
    assert client.get(url).is_success
    wait_for(lambda: client.get(url).status_code == 401)
    assert "expired" in problem(client.get(url), 401, "unauthorized")["detail"]
    assert keyed.client.get(f"{url}/tokens").json() == {"tokens": []}


def test_tokens_are_listed_and_revoked(keyed, own, clients):
    url = f"/api/v1/sessions/{own}/tokens"
    first, second = make(keyed, own, "read", "files"), make(keyed, own, "run", expires_in=60)
    listed = keyed.client.get(url).json()["tokens"]
    assert [it["token_id"] for it in listed] == [first["token_id"], second["token_id"]]
    assert [it["scope"] for it in listed] == [["read", "files"], ["run"]]
    assert "token" not in listed[0] and first["session_id"] == own
    client = clients(keyed, first["token"])
    assert client.get(f"/api/v1/sessions/{own}").is_success
    answer = keyed.client.delete(f"{url}/{first['token_id']}")
    assert answer.json() == {"message": f"Token {first['token_id']} revoked"}
    problem(client.get(f"/api/v1/sessions/{own}"), 401, "unauthorized")
    problem(keyed.client.delete(f"{url}/{first['token_id']}"), 404, "not_found")
    assert clients(keyed, second["token"]).get(f"/api/v1/sessions/{own}").is_success
    log = keyed.log()
    assert first["token_id"] in log and first["token"] not in log and second["token"] not in log


def test_their_number_is_bounded(keyed, own):
    for _ in range(32):
        last = make(keyed, own, "read")
    url = f"/api/v1/sessions/{own}/tokens"
    refused = keyed.client.post(url, json={"scope": ["read"]})
    assert "revoke one" in problem(refused, 429, "session_busy")["detail"]
    keyed.client.delete(f"{url}/{last['token_id']}").raise_for_status()
    make(keyed, own, "read")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scope": []},
        {"scope": "read"},
        {"scope": ["read", 1]},
        {"scope": ["read", "all"]},
        {"scope": {"read": 1}},
        {"scope": ["read"], "expires_in": 0},
        {"scope": ["read"], "expires_in": 2592001},
        {"scope": ["read"], "owner": "other"},
    ],
    ids=range(9),
)
def test_bodies_that_are_none(keyed, own, body):
    problem(keyed.client.post(f"/api/v1/sessions/{own}/tokens", json=body), 400, "invalid_request")


def test_forged_tokens(keyed, own, clients):
    token = make(keyed, own, "read")["token"]
    raw = base64.urlsafe_b64decode(token[4:] + "=" * (-len(token[4:]) % 4))
    run = raw.replace(str(1 << 16).encode(), str(1 << 17).encode())
    longer = raw[:-3] + b"99\0"
    forged = [
        token[:-1],
        token + "A",
        token.upper(),
        token[:4] + token[5:],
        "kgs_",
        "kgs_" + "A" * 5000,
    ]
    for bytes_ in run, longer, raw[:32], raw[1:], raw + b"\0", bytes(32) + raw[32:]:
        forged.append("kgs_" + base64.urlsafe_b64encode(bytes_).decode().rstrip("="))
    for each in forged:
        if each != token:
            client = clients(keyed, each)
            problem(client.get(f"/api/v1/sessions/{own}"), 401, "unauthorized")
            client.close()
    assert clients(keyed, token).get(f"/api/v1/sessions/{own}").is_success


def test_owners(start_gateway, clients, tmp_path):
    """A token is for its owner's session, and ends with the owner's last key."""
    keys = tmp_path / "keys"
    keys.write_text("ann:key-of-ann\nbob:key-of-bob\n")
    gateway = start_gateway("--api-keys-file", str(keys), key="key-of-ann")
    bob = clients(gateway, "key-of-bob")
    for client in gateway.client, bob:
        gateway.create_session(client, session_id="same")
    client = clients(gateway, make(gateway, "same", "files")["token"])
    client.put("/api/v1/sessions/same/files/anns", content=b"x").raise_for_status()
    assert bob.get("/api/v1/sessions/same/files").json()["files"] == []
    problem(bob.get("/api/v1/sessions/same/tokens/x"), 405, "method_not_allowed")
    made = bob.get("/api/v1/sessions/same/tokens").json()
    assert made == {"tokens": []}
    keys.with_name("new").write_text("bob:key-of-bob\n")
    keys.with_name("new").rename(keys)
    wait_for(lambda: client.get("/api/v1/sessions/same/files").status_code == 401)


def test_accounts(start_gateway, clients, tmp_path):
    accounts = Accounts(tmp_path / "accounts.db")
    accounts.do("user", "add", "ann")
    gateway = start_gateway(*accounts.flags, key=accounts.key("ann"))
    session = gateway.create_session()
    client = clients(gateway, make(gateway, session, "read")["token"])
    url = f"/api/v1/sessions/{session}"
    for _ in range(5):
        assert client.get(url).is_success
        accounts.do("user", "disable", "ann")
        problem(client.get(url), 401, "unauthorized")
        accounts.do("user", "enable", "ann")
    for path in "keys", "users", "login":
        problem(client.get(f"/api/v1/{path}"), 403, "token_scope")
    accounts.do("user", "remove", "ann")
    problem(client.get(url), 401, "unauthorized")


def test_without_keys(gateway, session, clients):
    """Where everybody may do everything, a token is still what it says, so that clients can be tried."""
    client = clients(gateway, make(gateway, session, "read")["token"])
    assert client.get(f"/api/v1/sessions/{session}").is_success
    problem(client.get("/api/v1/sessions"), 403, "token_scope")
    problem(execute(client, session, "print 1"), 403, "token_scope")
    assert clients(gateway, "kgs_no-token").get("/api/v1/sessions").is_success
    away = {"X-Forwarded-For": "203.0.113.7"}
    problem(client.get(f"/api/v1/sessions/{session}", headers=away), 403, "forbidden_host")


def test_public_routes_ignore_tokens(keyed, own, holder):
    url = holder("files").put(f"/api/v1/sessions/{own}/files/a.txt", content=b"x").json()["url"]
    client = holder("read")
    assert client.get(url).content == b"x"  # its signature counts
    assert client.get("/api/v1/health").is_success
    problem(client.get(f"/files/{own}/a.txt"), 403, "forbidden_link")


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_next_gateway_knows_them(start_gateway, clients, end):
    gateway = start_gateway("--keep-sandboxes", "--api-key", "secret", key="secret")
    session = gateway.create_session(session_id="kept")
    kept, revoked = make(gateway, session, "read"), make(gateway, session, "read")
    gateway.client.delete(f"/api/v1/sessions/kept/tokens/{revoked['token_id']}").raise_for_status()
    listed = gateway.client.get("/api/v1/sessions/kept/tokens").json()
    getattr(gateway, end)()
    gateway.start()
    wait_for(lambda: gateway.client.get("/api/v1/sessions/kept").is_success)
    assert gateway.client.get("/api/v1/sessions/kept/tokens").json() == listed
    assert clients(gateway, kept["token"]).get("/api/v1/sessions/kept").is_success
    late = clients(gateway, revoked["token"])
    problem(late.get("/api/v1/sessions/kept"), 401, "unauthorized")
    gateway.delete_session(session)


def test_a_stream_outlives_its_token(keyed, own, clients):
    """As a revoked key, it begins nothing; what has begun goes on."""
    made = make(keyed, own, "run")
    client = clients(keyed, made["token"])
    body = {"code": cell("print 1", "wait go"), "session_id": own}
    with client.stream("POST", "/api/v1/execute", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        keyed.client.delete(f"/api/v1/sessions/{own}/tokens/{made['token_id']}").raise_for_status()
        problem(client.post("/api/v1/execute", json=body), 401, "unauthorized")
        keyed.release(own)
        assert json.loads(list(lines)[-1])["status"] == "ok"
