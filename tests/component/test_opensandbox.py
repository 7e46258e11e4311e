# SPDX-License-Identifier: Apache-2.0
"""OpenSandbox's protocol over plain HTTP: the lifecycle, code, commands, files; and what strangers try.
Its own clients are in tests/e2e/test_opensandbox_clients.py."""

import contextlib
import datetime
import http.client
import json
import threading

import component
import httpx
import pytest
from component import HELD, cell
from kernelgate import Gateway, wait_for

KEY_HEADER = "OPEN-SANDBOX-API-KEY"
IMAGE = {"uri": "opensandbox/code-interpreter:v1.1.0"}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A gateway with two owners, a and b."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("a:key-a\nb:key-b\n")
    running = Gateway(*component.FLAGS, "--api-keys-file", str(keys), key="key-a")
    try:
        yield running.start()
    finally:
        running.clean_up()


def client_of(gateway, key):
    headers = {KEY_HEADER: key} if key else {}
    return httpx.Client(base_url=gateway.url, headers=headers, timeout=60, trust_env=False)


@pytest.fixture
def owner(keyed):
    with client_of(keyed, "key-a") as client:
        yield client


@pytest.fixture
def other(keyed):
    with client_of(keyed, "key-b") as client:
        yield client


def create(client, **fields):
    body = {"image": IMAGE, "entrypoint": ["/x"], "timeout": 300, "resourceLimits": {}, **fields}
    answer = client.post("/v1/sandboxes", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()


class Execd:
    """A sandbox's endpoint, as a client of OpenSandbox uses it."""

    def __init__(self, client, id_, port=44772):
        self.id = id_
        answer = client.get(f"/v1/sandboxes/{id_}/endpoints/{port}")
        assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
        endpoint = answer.json()
        self.address = f"http://{endpoint['endpoint']}"
        self.path = f"/v1/sandboxes/{id_}/proxy/{port}"
        self.headers = endpoint["headers"]
        self.client = httpx.Client(
            base_url=self.address, headers=self.headers, timeout=60, trust_env=False
        )

    def events(self, path, **body):
        """The events of a stream, without pings and times."""
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = []
        for part in answer.text.split("\n\n")[:-1]:
            assert part.startswith("data: ") and "\n" not in part
            event = json.loads(part[6:])
            assert event.pop("timestamp") > 1_700_000_000_000
            if event["type"] != "ping":
                found.append(event)
        return found

    def code(self, code, **context):
        return self.events("/code", code=code, context={"language": "script", **context})


@pytest.fixture
def sandbox(owner):
    made = Execd(owner, create(owner)["id"])
    yield made
    made.client.close()
    owner.delete(f"/v1/sandboxes/{made.id}")


def refused(answer, status, code):
    """The message of an error, which has OpenSandbox's shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"code", "message"} and body["code"] == code, body
    return body["message"]


def of(events, kind):
    return [event for event in events if event["type"] == kind]


# ---- The lifecycle


def test_a_sandbox_is_a_session(keyed, owner):
    made = create(owner, metadata={"name": "one"})
    assert made["status"]["state"] == "Running" and made["entrypoint"] == ["/x"]
    shown = owner.get(f"/v1/sandboxes/{made['id']}").json()
    assert shown["image"] == IMAGE and shown["metadata"] == {"name": "one"}
    session = keyed.show_session(made["id"])
    assert session["metadata"] == {"name": "one"} and session["ends_at"] == shown["expiresAt"]
    keyed.execute("set x 1", session_id=made["id"])
    assert of(Execd(owner, made["id"]).code("get x"), "stdout")[0]["text"] == "1\n"
    assert owner.delete(f"/v1/sandboxes/{made['id']}").status_code == 204
    message = refused(owner.get(f"/v1/sandboxes/{made['id']}"), 404, "SANDBOX_NOT_FOUND")
    assert made["id"] in message
    refused(owner.delete(f"/v1/sandboxes/{made['id']}"), 404, "SANDBOX_NOT_FOUND")


def test_a_session_is_a_sandbox(keyed, owner):
    session = keyed.create_session()
    shown = owner.get(f"/v1/sandboxes/{session}").json()
    assert shown["status"]["state"] == "Running" and shown["image"]["uri"] and shown["entrypoint"]
    assert "expiresAt" not in shown
    keyed.delete_session(session)


def test_it_lives_until_its_timeout_used_or_not(keyed, owner):
    def seconds(sandbox):
        times = [sandbox["expiresAt"], sandbox["createdAt"]]
        ends, began = (datetime.datetime.fromisoformat(it.replace("Z", "+00:00")) for it in times)
        return (ends - began).total_seconds()

    made = create(owner, timeout=7200)
    assert seconds(made) == 7200
    assert keyed.show_session(made["id"])["expires_at"] == made["expiresAt"]
    url = f"/v1/sandboxes/{made['id']}/renew-expiration"
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=9)
    answer = owner.post(url, json={"expiresAt": later.isoformat()})
    assert answer.status_code == 200, answer.text
    shown = owner.get(f"/v1/sandboxes/{made['id']}").json()
    assert 8.9 * 3600 < seconds(shown) < 9.1 * 3600
    for text in (
        "tomorrow", "2026-11-29", "2026-11-29T12:00:00", "2026-13-29T12:00:00Z",
        "2026-11-29T12:00:00.Z", "2026-11-29T12:00:00+1:00", "2026-11-29T12:00:00+24:00",
        "2026-1-29T12:00:00Z", "",
    ):  # fmt: skip
        assert "RFC 3339" in refused(
            owner.post(url, json={"expiresAt": text}), 400, "INVALID_REQUEST"
        )
    past = owner.post(url, json={"expiresAt": "2020-01-01T00:00:00Z"})
    assert "from now" in refused(past, 400, "INVALID_REQUEST")
    assert "missing" in refused(owner.post(url, json={}), 400, "INVALID_REQUEST")
    owner.delete(f"/v1/sandboxes/{made['id']}")


def test_the_longest_life_is_a_setting(start_gateway):
    gateway = start_gateway("--max-session-lifetime", "60")
    body = {"image": {"uri": "python:3.11"}, "timeout": 61}
    answer = gateway.client.post("/v1/sandboxes", json=body)
    assert "max-session-lifetime" in refused(answer, 400, "INVALID_REQUEST")


def test_lists(keyed, owner, other):
    made = [create(owner, metadata={"n": str(i), "list": "a&b=c"})["id"] for i in range(3)]
    foreign = create(other, metadata={"n": "0", "list": "a&b=c"})["id"]
    url = "/v1/sandboxes"
    wanted = {"metadata": "list=a%26b%3Dc"}
    found = owner.get(url, params=wanted).json()
    assert [item["id"] for item in found["items"]] == made[::-1]
    assert found["pagination"] == {
        "page": 1, "pageSize": 20, "totalItems": 3, "totalPages": 1, "hasNextPage": False,
    }  # fmt: skip
    pages = [owner.get(url, params={**wanted, "pageSize": 2, "page": n}).json() for n in (1, 2, 3)]
    assert [[item["id"] for item in page["items"]] for page in pages] == [made[:0:-1], made[:1], []]
    assert [page["pagination"]["hasNextPage"] for page in pages] == [True, False, False]
    assert [
        it["id"] for it in owner.get(url, params={"metadata": "n=1&list=a%26b%3Dc"}).json()["items"]
    ] == made[1:2]
    for states, n in ((["running"], 3), (["Paused"], 0), (["Paused", "RUNNING"], 3)):
        found = owner.get(url, params={**wanted, "state": states}).json()
        assert len(found["items"]) == n, states
    assert [it["id"] for it in other.get(url, params=wanted).json()["items"]] == [foreign]
    for params in (
        {"page": "0"}, {"page": "-1"}, {"pageSize": "0"}, {"pageSize": "x"}, {"pageSize": "99999"},
        {"metadata": "a"}, {"metadata": "%zz=1"}, {"metadata": "=1"},
    ):  # fmt: skip
        refused(owner.get(url, params=params), 400, "INVALID_REQUEST")
    for id_ in made:
        owner.delete(f"{url}/{id_}")
    other.delete(f"{url}/{foreign}")


def test_metadata_are_patched(owner, sandbox):
    url = f"/v1/sandboxes/{sandbox.id}/metadata"
    assert owner.patch(url, json={"a": "1", "b": "2"}).json()["metadata"] == {"a": "1", "b": "2"}
    assert owner.patch(url, json={"a": None, "c": "3", "d": None}).json()["metadata"] == {
        "b": "2",
        "c": "3",
    }
    refused(owner.patch(url, json={"a": 1}), 400, "INVALID_REQUEST")
    refused(owner.patch(url, json=[]), 400, "INVALID_REQUEST")
    assert owner.get(f"/v1/sandboxes/{sandbox.id}").json()["metadata"] == {"b": "2", "c": "3"}


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"image": None}, "image is missing"),
        ({"image": "python"}, "image is missing"),
        ({"image": {"uri": "ubuntu"}}, "python"),
        ({"image": {"uri": "python" * 100}}, "512"),
        ({"entrypoint": "x"}, "entrypoint"),
        ({"entrypoint": [1]}, "entrypoint"),
        ({"entrypoint": ["x" * 5000]}, "entrypoint"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "60"}, "timeout"),
        ({"timeout": 10**12}, "timeout"),
        ({"env": {"A": 1}}, "env"),
        ({"env": {"A=B": "1"}}, "env"),
        ({"env": {"A": "x" * 20000}}, "env"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"resourceLimits": {"cpu": 1}}, "resourceLimits"),
        ({"resourceLimits": {"gpu": "1"}}, "gpu"),
        ({"platform": {"os": "windows", "arch": "amd64"}}, "platform"),
        ({"networkPolicy": {"defaultAction": "allow"}}, "networkPolicy"),
        ({"networkPolicy": {"defaultAction": "deny", "egress": [{"target": "a"}]}}, "networkPolicy"),
        ({"networkPolicy": "deny"}, "networkPolicy"),
        ({"snapshotId": "s"}, "snapshotId"),
        ({"volumes": [{"name": "v"}]}, "volumes"),
        ({"lifecycle": {"preStart": {}}}, "lifecycle"),
        ({"credentialProxy": {"enabled": True}}, "credentialProxy"),
    ],
    ids=lambda it: json.dumps(it)[:60] if isinstance(it, dict) else None,
)  # fmt: skip
def test_what_cannot_be_is_refused(owner, fields, said):
    body = {"image": IMAGE, "entrypoint": ["/x"], "resourceLimits": {}, **fields}
    before = owner.get("/v1/sandboxes").json()["pagination"]["totalItems"]
    answer = owner.post("/v1/sandboxes", json=body)
    assert said in refused(answer, 400, "INVALID_REQUEST")
    assert owner.get("/v1/sandboxes").json()["pagination"]["totalItems"] == before


def test_what_the_gateway_decides_is_accepted(owner):
    made = create(
        owner, timeout=None, resourceLimits={"cpu": "500m", "memory": "2Gi", "gpu": "0"},
        networkPolicy={"defaultAction": "deny", "egress": []}, secureAccess=True, volumes=[],
        extensions={"a": "b"}, env={"A": "1"}, snapshotId=None,
    )  # fmt: skip
    assert "expiresAt" not in made
    assert of(Execd(owner, made["id"]).code("getenv A"), "stdout")[0]["text"] == "1\n"
    owner.delete(f"/v1/sandboxes/{made['id']}")


def test_what_is_not_served_says_so(owner, sandbox):
    url = f"/v1/sandboxes/{sandbox.id}"
    for path in "pause", "resume", "snapshots":
        assert refused(owner.post(f"{url}/{path}"), 409, "NOT_SUPPORTED")
    refused(sandbox.client.post("/session", json={}), 400, "NOT_SUPPORTED")
    policy = Execd(owner, sandbox.id, 18080)
    for method in "GET", "POST", "PATCH", "DELETE":
        assert "network" in refused(policy.client.request(method, "/policy"), 400, "NOT_SUPPORTED")
    policy.client.close()
    for method in "GET", "POST", "PUT", "PATCH", "DELETE":
        refused(owner.request(method, f"{url}/nothing"), 404, "NOT_FOUND")
        refused(sandbox.client.request(method, "/nothing"), 404, "NOT_FOUND")


def test_it_is_the_same_after_a_restart(start_gateway):
    gateway = start_gateway()
    with client_of(gateway, None) as client:
        made = create(client, metadata={"a": "b"})
        execd = Execd(client, made["id"])
        execd.code("set x 5")
        before = client.get(f"/v1/sandboxes/{made['id']}").json()
        gateway.kill()
        gateway.start()
    with client_of(gateway, None) as client:
        assert client.get(f"/v1/sandboxes/{made['id']}").json() == before
        # The endpoint's header is still valid.
        with httpx.Client(base_url=gateway.url, headers=execd.headers, trust_env=False) as again:
            url = f"/v1/sandboxes/{made['id']}/proxy/44772"
            assert again.get(f"{url}/ping").status_code == 200
            body = {"code": "get x", "context": {"language": "script"}}
            assert '"text":"5\\n"' in again.post(f"{url}/code", json=body).text
    execd.client.close()


# ---- Code


def test_code(sandbox):
    events = sandbox.code(cell("print out", "stderr err", "result 4"))
    assert [event["type"] for event in events] == [
        "init", "stdout", "stderr", "result", "status", "execution_count", "execution_complete",
    ]  # fmt: skip
    assert events[0]["text"] and events[1]["text"] == "out\n" and events[2]["text"] == "err\n"
    assert events[3]["results"] == {"text": "4"} and events[5]["execution_count"] == 1
    assert events[6]["execution_time"] >= 0
    events = sandbox.code('display {"image/png":"iVBORw0KGgo=","text/plain":"F","text/html":"<b>"}')
    shown = {"image/png": "iVBORw0KGgo=", "text/html": "<b>", "text/plain": "F"}
    assert of(events, "result")[0]["results"] == shown
    strange = 'a"b\\c\u2028\u0000 é 𝄞'
    assert of(sandbox.code(f"print {json.dumps(strange)}"), "stdout")[0]["text"] == strange


def test_an_error_is_the_end(sandbox):
    events = sandbox.code(cell("print on", "error NameError no x"))
    assert of(events, "error")[0]["error"]["ename"] == "NameError"
    assert of(events, "error")[0]["error"]["evalue"] == "no x"
    assert of(events, "error")[0]["error"]["traceback"]
    assert not of(events, "execution_complete") and of(events, "status")[0]["text"] == "error"
    assert "KernelDied" in of(sandbox.code("die 3"), "error")[0]["error"]["ename"]
    assert of(sandbox.code("result 5"), "result")[0]["results"] == {"text": "5"}


def test_code_is_interrupted(keyed, sandbox):
    ids, said = [], threading.Event()

    def run():
        body = {"code": cell("print on", "hang")}
        with sandbox.client.stream("POST", "/code", json=body) as answer:
            for line in answer.iter_lines():
                event = json.loads(line[6:]) if line else {"type": "none"}
                if event["type"] == "init":
                    ids.append(event["text"])
                if event["type"] == "stdout":
                    said.set()
                if event["type"] == "error":
                    ids.append(event["error"]["ename"])

    for name in "execution", "context":
        ids.clear()
        said.clear()
        thread = threading.Thread(target=run)
        thread.start()
        assert said.wait(60)
        id_ = ids[0] if name == "execution" else "script"
        answer = sandbox.client.delete("/code", params={"id": id_})
        assert answer.status_code == 200 and answer.content == b""
        thread.join(60)
        assert ids[1] == "KeyboardInterrupt"
    refused(sandbox.client.delete("/code"), 400, "INVALID_REQUEST")
    refused(sandbox.client.delete("/code", params={"id": "none"}), 404, "NOT_FOUND")


def test_a_client_that_leaves_interrupts_its_code(keyed, sandbox):
    with sandbox.client.stream("POST", "/code", json={"code": HELD}) as answer:
        lines = answer.iter_lines()
        while "on" not in next(lines):
            pass
    wait_for(lambda: not keyed.show_session(sandbox.id)["is_busy"])
    assert of(sandbox.code("print next"), "stdout")[0]["text"] == "next\n"


def test_contexts(sandbox):
    made = sandbox.client.post("/code/context", json={"language": "script"}).json()
    default = {"id": "script", "language": "script"}
    assert made["language"] == "script" and made["id"] != "script"
    sandbox.code("set y 5")
    sandbox.code("set y 6", id=made["id"])
    assert of(sandbox.code("get y"), "stdout")[0]["text"] == "5\n"
    assert of(sandbox.code("get y", id=made["id"]), "stdout")[0]["text"] == "6\n"
    listed = sandbox.client.get("/code/contexts", params={"language": "script"}).json()
    assert listed == [default, made]
    assert sandbox.client.get(f"/code/contexts/{made['id']}").json() == made
    answer = sandbox.client.delete(f"/code/contexts/{made['id']}")
    assert answer.status_code == 200 and answer.content == b""
    refused(sandbox.client.delete(f"/code/contexts/{made['id']}"), 404, "NOT_FOUND")
    for language, left in {"script-message": [default], "script": []}.items():
        sandbox.client.post("/code/context", json={"language": "script-message"})
        answer = sandbox.client.delete("/code/contexts", params={"language": language})
        assert answer.status_code == 200, answer.text
        assert sandbox.client.get("/code/contexts", params={"language": "script"}).json() == left
    assert of(sandbox.code("get y"), "stdout") == []  # the default one is made anew
    for answer in (
        sandbox.client.get("/code/contexts/none"),
        sandbox.client.post("/code", json={"code": "print 1", "context": {"id": "none"}}),
    ):
        assert "none" in refused(answer, 404, "NOT_FOUND")
    for body in (
        {"code": "print 1", "context": {"language": "cobol"}},
        {"code": "print 1", "context": "script"},
        {"code": 1},
        {"context": {"language": "script"}},
        [],
    ):
        refused(sandbox.client.post("/code", json=body), 400, "INVALID_REQUEST")
    assert "script" in refused(
        sandbox.client.post("/code/context", json={"language": "cobol"}), 400, "INVALID_REQUEST"
    )


def test_much_output_and_a_slow_client(sandbox):
    with sandbox.client.stream("POST", "/code", json={"code": "flood 3000 4000"}) as answer:
        text = "".join(
            json.loads(line[6:])["text"]
            for line in answer.iter_lines()
            if line.startswith('data: {"type":"stdout"')
        )
    assert len(text) == 3000 * 4000


# ---- Commands


def test_lines_of_a_command(sandbox):
    command = "printf 'a\\n\\nb\\r\\nc\\rd'; printf 'e\\n' >&2"
    events = sandbox.events("/command", command=command)
    assert events[0]["type"] == "init" and events[-1]["type"] == "execution_complete"
    assert [event["text"] for event in of(events, "stdout")] == ["a", "\n", "b", "c", "d"]
    assert [event["text"] for event in of(events, "stderr")] == ["e"]
    long = sandbox.events("/command", command="head -c 100000 /dev/zero | tr '\\0' x")
    assert "".join(event["text"] for event in of(long, "stdout")) == "x" * 100000


def test_how_a_command_ends(sandbox):
    failed = sandbox.events("/command", command="exit 3")[-1]["error"]
    assert failed == {"ename": "CommandExecError", "evalue": "3", "traceback": ["3"]}
    assert sandbox.events("/command", command="kill -9 $$")[-1]["error"]["evalue"] == "137"
    slow = sandbox.events("/command", command="sleep 600", timeout=200)
    assert of(slow, "status")[0]["text"] == "timeout" and of(slow, "error")
    given = sandbox.events(
        "/command",
        argv=["sh", "-c", 'pwd; echo "$A" "$1"', "x", "a  b"],
        cwd="/tmp",
        envs={"A": "1"},
    )
    assert [event["text"] for event in of(given, "stdout")] == ["/tmp", "1 a  b"]
    for body in (
        {}, {"command": 1}, {"command": "a", "argv": ["a"]}, {"argv": []}, {"argv": [""]},
        {"argv": ["a\0b"]}, {"command": "id", "uid": 0}, {"command": "id", "gid": 0},
        {"command": "id", "timeout": -1}, {"command": "id", "timeout": "1"},
        {"command": "id", "envs": {"A": 1}}, {"command": "id", "background": 1},
        {"command": "id", "cwd": "/none"},
    ):  # fmt: skip
        answer = sandbox.client.post("/command", json=body)
        assert answer.status_code == 400 and answer.json()["message"], (body, answer.text)


def test_a_command_in_the_background(sandbox):
    command = "echo one; echo two >&2; while [ ! -e go ]; do sleep 0.05; done; echo three; exit 4"
    init, complete = sandbox.events("/command", command=command, background=True)
    assert complete == {"type": "execution_complete", "execution_time": 0}
    id_ = init["text"]
    status = sandbox.client.get(f"/command/status/{id_}").json()
    assert status["running"] and status["content"] == command and "exit_code" not in status

    def logs(cursor=None):
        params = {} if cursor is None else {"cursor": cursor}
        answer = sandbox.client.get(f"/command/{id_}/logs", params=params)
        assert answer.status_code == 200, answer.text
        return answer.text, int(answer.headers["execd-commands-tail-cursor"])

    wait_for(lambda: logs()[1] == 8)
    text, cursor = logs()
    assert sorted(text.splitlines()) == ["one", "two"]
    assert logs(cursor) == ("", 8) and logs(4) == (text[4:], 8) and logs(99) == ("", 8)
    sandbox.client.post("/command", json={"command": "touch go"})
    wait_for(lambda: not sandbox.client.get(f"/command/status/{id_}").json()["running"])
    assert sandbox.client.get(f"/command/status/{id_}").json()["exit_code"] == 4
    assert logs(cursor) == ("three\n", 14)
    for path in "/command/status/none", "/command/none/logs", "/command/NONE/logs":
        refused(sandbox.client.get(path), 404, "NOT_FOUND")
    refused(
        sandbox.client.get(f"/command/{id_}/logs", params={"cursor": "x"}), 400, "INVALID_REQUEST"
    )
    refused(sandbox.client.delete("/command", params={"id": "none"}), 404, "NOT_FOUND")
    refused(sandbox.client.delete("/command"), 404, "NOT_FOUND")


def test_metrics(sandbox):
    metrics = sandbox.client.get("/metrics").json()
    assert set(metrics) == {
        "cpu_count",
        "cpu_used_pct",
        "mem_total_mib",
        "mem_used_mib",
        "timestamp",
    }
    assert metrics["cpu_count"] > 0 and 0 <= metrics["cpu_used_pct"] <= 100


# ---- Files


def upload(sandbox, *files):
    parts = []
    for metadata, data in files:
        parts.append(("metadata", ("metadata", json.dumps(metadata), "application/json")))
        parts.append(("file", ("f", data, "application/octet-stream")))
    return sandbox.client.post("/files/upload", files=parts)


def info(sandbox, *paths):
    return sandbox.client.get("/files/info", params={"path": paths})


def download(sandbox, path, **params):
    headers = {"Range": params.pop("range_")} if "range_" in params else {}
    params = {"path": path, **params}
    return sandbox.client.get("/files/download", params=params, headers=headers)


def test_files(sandbox):
    base = f"/tmp/{sandbox.id}"
    sent = upload(
        sandbox,
        ({"path": f"{base}/d/a.txt", "mode": 640}, b"one\ntwo\nthree"),
        ({"path": "b"}, b""),
    )
    assert sent.status_code == 200 and sent.content == b"", sent.text
    found = info(sandbox, f"{base}/d/a.txt", "b", base).json()
    assert set(found) == {f"{base}/d/a.txt", "b", base}
    first = found[f"{base}/d/a.txt"]
    assert (first["type"], first["size"], first["mode"]) == ("file", 13, 640)
    assert first["path"] == f"{base}/d/a.txt" and found["b"]["path"] == "/mnt/data/b"
    assert found[base]["type"] == "directory"
    assert download(sandbox, f"{base}/d/a.txt").content == b"one\ntwo\nthree"
    part = download(sandbox, f"{base}/d/a.txt", range_="bytes=4-6")
    assert (part.status_code, part.content) == (206, b"two")
    assert part.headers["content-range"] == "bytes 4-6/13"
    refused(download(sandbox, f"{base}/d/a.txt", range_="bytes=99-"), 416, "INVALID_RANGE")
    assert download(sandbox, f"{base}/d/a.txt", offset=2, limit=1).text == "two\n"
    assert download(sandbox, f"{base}/d/a.txt", offset=3).text == "three"
    assert download(sandbox, f"{base}/d/a.txt", limit=2).text == "one\ntwo\n"
    assert download(sandbox, f"{base}/d/a.txt", offset=9).text == ""
    refused(download(sandbox, f"{base}/d/a.txt", offset=0), 400, "INVALID_REQUEST")
    made = sandbox.client.post("/directories", json={f"{base}/e/f": {"mode": 700}, f"{base}/d": {}})
    assert made.status_code == 200, made.text
    moves = [{"src": f"{base}/d/a.txt", "dest": f"{base}/e/f/c.txt"}]
    assert sandbox.client.post("/files/mv", json=moves).status_code == 200
    refused(sandbox.client.post("/files/mv", json=moves), 404, "NOT_FOUND")
    chmod = {f"{base}/e/f/c.txt": {"mode": 600, "owner": None, "group": ""}}
    assert sandbox.client.post("/files/permissions", json=chmod).status_code == 200
    listed = sandbox.client.get("/directories/list", params={"path": base, "depth": 9}).json()
    assert {(it["path"], it["mode"]) for it in listed} == {
        (f"{base}/d", 755), (f"{base}/e", 755), (f"{base}/e/f", 700), (f"{base}/e/f/c.txt", 600),
    }  # fmt: skip
    shallow = sandbox.client.get("/directories/list", params={"path": base}).json()
    assert [it["path"] for it in shallow] == [f"{base}/d", f"{base}/e"]
    assert sandbox.client.get("/directories/list", params={"path": base, "depth": 0}).json() == []
    replaced = sandbox.client.post(
        "/files/replace", params={"verbose": "true"},
        json={f"{base}/e/f/c.txt": {"old": "t", "new": "TT"}, "b": {"old": "x", "new": ""}},
    )  # fmt: skip
    assert replaced.json() == {f"{base}/e/f/c.txt": {"replacedCount": 2}, "b": {"replacedCount": 0}}
    assert download(sandbox, f"{base}/e/f/c.txt").text == "one\nTTwo\nTThree"
    assert info(sandbox, f"{base}/e/f/c.txt").json()[f"{base}/e/f/c.txt"]["mode"] == 600
    gone = sandbox.client.delete("/files", params={"path": [f"{base}/e/f/c.txt", "b", "none"]})
    assert gone.status_code == 200, gone.text
    assert "folder" in refused(
        sandbox.client.delete("/files", params={"path": base}), 400, "INVALID_PATH"
    )
    for _ in range(2):
        assert sandbox.client.delete("/directories", params={"path": base}).status_code == 200
    refused(info(sandbox, base), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    "pattern, found",
    [
        ("*.py", ["a.py", "d/b.py", "d/e/c.py"]),
        ("**", ["a.py", "d/b.py", "d/e/c.py", "d/x.txt"]),
        ("d/*.py", ["d/b.py"]),
        ("d/**/*.py", ["d/b.py", "d/e/c.py"]),
        ("**/c.*", ["d/e/c.py"]),
        ("[ab].py", ["a.py", "d/b.py"]),
        ("[!ab].py", ["d/e/c.py"]),
        ("?.txt", ["d/x.txt"]),
        ("none", []),
    ],
)
def test_search(sandbox, pattern, found):
    names = "a.py", "d/b.py", "d/e/c.py", "d/x.txt"
    assert upload(sandbox, *(({"path": f"s/{name}"}, b"") for name in names)).status_code == 200
    params = {"path": "/mnt/data/s", "pattern": pattern}
    answer = sandbox.client.get("/files/search", params=params).json()
    assert sorted(it["path"] for it in answer) == [f"/mnt/data/s/{name}" for name in found]


def test_many_files_are_listed_in_pages(sandbox):
    sandbox.events("/command", command="mkdir m && cd m && seq 2500 | xargs touch")
    found = sandbox.client.get("/files/search", params={"path": "m", "pattern": "*"}).json()
    assert len(found) == 2500
    listed = sandbox.client.get("/directories/list", params={"path": "m"}).json()
    assert len(listed) == 2500


def test_a_replacement_that_would_be_huge(sandbox):
    assert upload(sandbox, ({"path": "a"}, b"a" * 100_000)).status_code == 200
    body = {"a": {"old": "a", "new": "b" * 100_000}}
    refused(sandbox.client.post("/files/replace", json=body), 413, "UPLOAD_TOO_LARGE")
    assert info(sandbox, "a").json()["a"]["size"] == 100_000


def test_a_pattern_that_takes_long(sandbox):
    make = "mkdir p && cd p && seq -f '%200.0f' 900 | tr ' ' a | xargs touch"
    sandbox.events("/command", command=make)
    params = {"path": "p", "pattern": "**" + "*a" * 16 + "*?" * 14 + "/b"}
    answer = sandbox.client.get("/files/search", params=params)
    assert "pattern" in refused(answer, 400, "INVALID_REQUEST")


def test_a_chunked_upload(sandbox):
    def body():
        yield b'--b\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n'
        yield b'Content-Type: application/json\r\n\r\n{"path":"big"}\r\n--b\r\n'
        yield b'Content-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        for _ in range(40):
            yield b"x" * 65536
        yield b"\r\n--b--\r\n"

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = sandbox.client.post("/files/upload", content=body(), headers=headers)
    assert answer.status_code == 200, answer.text
    assert info(sandbox, "big").json()["big"]["size"] == 40 * 65536


# ---- What strangers and tenants try


PATHS = (
    "../x",
    "/tmp/../etc/passwd",
    "a/../../b",
    "..",
    "/proc/1/mem",
    "/run/kg/door",
    ".kg-packages/x",
    "a" * 2000,
)


@pytest.mark.parametrize("path", PATHS, ids=lambda it: it[:20])
def test_paths_that_lead_elsewhere(sandbox, path):
    client = sandbox.client
    for answer in (
        info(sandbox, path),
        download(sandbox, path),
        client.delete("/files", params={"path": path}),
        client.delete("/directories", params={"path": path}),
        client.get("/directories/list", params={"path": path}),
        client.get("/files/search", params={"path": path}),
        client.post("/directories", json={path: {}}),
        client.post("/files/permissions", json={path: {"mode": 644}}),
        client.post("/files/mv", json=[{"src": path, "dest": "b"}]),
        client.post("/files/mv", json=[{"src": "b", "dest": path}]),
        client.post("/files/replace", json={path: {"old": "a", "new": "b"}}),
        upload(sandbox, ({"path": path}, b"x")),
        upload(sandbox, ({"path": "fine"}, b"x"), ({"path": path}, b"x")),
    ):
        refused(answer, 400, "INVALID_PATH")
    refused(info(sandbox, "fine"), 404, "NOT_FOUND")  # nothing of an upload with a bad path


def test_bodies_of_files_that_are_refused(sandbox):
    client = sandbox.client
    refused(upload(sandbox, ({"path": "a\nb"}, b"")), 400, "INVALID_PATH")
    for metadata in (
        {},
        {"path": ""},
        {"path": 1},
        [],
        {"path": "a", "mode": 888},
        {"path": "a", "owner": "root"},
    ):
        refused(upload(sandbox, (metadata, b"")), 400, "INVALID_REQUEST")
    alone = [("metadata", ("metadata", '{"path":"a"}', "application/json"))]
    refused(client.post("/files/upload", files=alone), 400, "INVALID_REQUEST")
    refused(client.post("/files/upload", json={}), 400, "INVALID_REQUEST")
    for mode in 8, 1000, -1, "644", 6.5, 78:
        refused(
            client.post("/files/permissions", json={"a": {"mode": mode}}), 400, "INVALID_REQUEST"
        )
    refused(client.post("/directories", json={"a": {"owner": "root"}}), 400, "INVALID_REQUEST")
    refused(client.post("/directories", json={"a": 1}), 400, "INVALID_REQUEST")
    refused(client.post("/directories", json=[]), 400, "INVALID_REQUEST")
    for body in {}, [1], [{"src": "a"}], [{"src": 1, "dest": "b"}]:
        refused(client.post("/files/mv", json=body), 400, "INVALID_REQUEST")
    for item in 1, {}, {"old": "", "new": "a"}, {"old": "a"}, {"old": "a", "new": 1}:
        refused(client.post("/files/replace", json={"a": item}), 400, "INVALID_REQUEST")
    many = {f"d{i}": {} for i in range(101)}
    assert "100" in refused(client.post("/directories", json=many), 400, "INVALID_REQUEST")
    for path in "/files/info", "/files/download", "/directories/list", "/files/search":
        assert "path" in refused(client.get(path), 400, "INVALID_REQUEST")
    for pattern in "*a" * 20, "a" * 300:
        params = {"path": "/", "pattern": pattern}
        refused(client.get("/files/search", params=params), 400, "INVALID_REQUEST")
    refused(
        client.get("/directories/list", params={"path": "/", "depth": "x"}), 400, "INVALID_REQUEST"
    )


def test_a_link_is_not_followed(sandbox):
    sandbox.events("/command", command="ln -s /etc out; ln -s /etc/passwd file")
    refused(sandbox.client.get("/directories/list", params={"path": "out"}), 400, "INVALID_PATH")
    for path in "out/passwd", "file":
        assert download(sandbox, path).status_code == 400
    assert info(sandbox, "file").json()["file"]["type"] == "symlink"


def test_without_and_with_wrong_keys(keyed, sandbox):
    url = f"/v1/sandboxes/{sandbox.id}"
    with (
        client_of(keyed, None) as nobody,
        client_of(keyed, "wrong") as wrong,
        client_of(keyed, "kgs_wrong") as forged,
    ):
        for client in nobody, wrong, forged:
            refused(client.post("/v1/sandboxes", json={"image": IMAGE}), 401, "UNAUTHORIZED")
            refused(client.get(url), 401, "UNAUTHORIZED")
            refused(client.delete(url), 401, "UNAUTHORIZED")
            refused(client.get(f"{url}/endpoints/44772"), 401, "UNAUTHORIZED")
            refused(client.get(f"{url}/proxy/44772/ping"), 401, "UNAUTHORIZED")
            body = {"code": "write stolen x"}
            refused(client.post(f"{url}/proxy/44772/code", json=body), 401, "UNAUTHORIZED")
    # Keys are taken in the other headers, too; the other faces do not take this one.
    with client_of(keyed, None) as client:
        assert client.get(url, headers={"Authorization": "Bearer key-a"}).status_code == 200
        assert client.get(url, headers={"X-API-Key": "key-a"}).status_code == 200
        assert client.get("/api/v1/sessions", headers={KEY_HEADER: "key-a"}).status_code == 401
    refused(info(sandbox, "stolen"), 404, "NOT_FOUND")


def test_another_owner(other, sandbox):
    url = f"/v1/sandboxes/{sandbox.id}"
    for method, path in (
        ("GET", ""), ("DELETE", ""), ("PATCH", "/metadata"), ("POST", "/renew-expiration"),
        ("GET", "/endpoints/44772"), ("GET", "/endpoints/8080"), ("GET", "/proxy/44772/ping"),
        ("POST", "/proxy/44772/code"), ("POST", "/proxy/44772/command"),
        ("GET", "/proxy/44772/files/download?path=a"), ("GET", "/proxy/44772/metrics"),
        ("POST", "/pause"), ("GET", "/nothing"),
    ):  # fmt: skip
        body = {} if method in ("POST", "PATCH") else None
        refused(other.request(method, url + path, json=body), 404, "SANDBOX_NOT_FOUND")
    assert sandbox.client.get("/ping").status_code == 200


def test_what_an_endpoints_token_may_do(keyed, owner, sandbox):
    """It is for what execd answers of its own sandbox, and for nothing else."""
    token = sandbox.headers[KEY_HEADER]
    foreign = create(owner)["id"]
    assert Execd(owner, sandbox.id).headers == sandbox.headers  # it is always the same
    with client_of(keyed, token) as client:
        for method, url in (
            ("POST", "/v1/sandboxes"), ("GET", "/v1/sandboxes"),
            ("GET", f"/v1/sandboxes/{sandbox.id}"), ("DELETE", f"/v1/sandboxes/{sandbox.id}"),
            ("POST", f"/v1/sandboxes/{sandbox.id}/renew-expiration"),
            ("GET", f"/v1/sandboxes/{sandbox.id}/endpoints/44772"),
            ("GET", f"/v1/sandboxes/{foreign}/proxy/44772/ping"),
            ("POST", f"/v1/sandboxes/{foreign}/proxy/44772/code"),
            ("GET", "/v1/sandboxes/none/proxy/44772/ping"),
        ):  # fmt: skip
            body = {"code": "print 1"} if method == "POST" else None
            refused(client.request(method, url, json=body), 403, "TOKEN_SCOPE")
        bearer = {"Authorization": f"Bearer {token}"}
        assert client.get("/api/v1/sessions", headers=bearer).status_code == 403
        assert (
            client.get(f"/api/v1/sessions/{sandbox.id}/tokens", headers=bearer).status_code == 403
        )
    owner.delete(f"/v1/sandboxes/{foreign}")


def test_the_token_ends_with_its_sandbox(owner):
    made = Execd(owner, create(owner)["id"])
    assert made.client.get("/ping").status_code == 200
    owner.delete(f"/v1/sandboxes/{made.id}")
    refused(made.client.get("/ping"), 401, "UNAUTHORIZED")
    refused(made.client.post("/code", json={"code": "print 1"}), 401, "UNAUTHORIZED")
    # Nor is it for a later session of that name.
    owner.post("/api/v1/sessions", json={"session_id": made.id}, headers={"X-API-Key": "key-a"})
    refused(made.client.get("/ping"), 401, "UNAUTHORIZED")
    owner.delete(f"/v1/sandboxes/{made.id}")
    made.client.close()


def test_bodies_that_are_too_large_or_broken(owner, sandbox):
    refused(owner.post("/v1/sandboxes", content=b"{"), 400, "INVALID_REQUEST")
    refused(owner.post("/v1/sandboxes", content=b'{"a":1,"a":2}'), 400, "INVALID_REQUEST")
    refused(owner.post("/v1/sandboxes", content=b"\xff"), 400, "INVALID_REQUEST")
    refused(owner.post("/v1/sandboxes", content=b"[" * 100), 400, "INVALID_REQUEST")
    refused(sandbox.client.post("/code", json={"code": "x" * (2 << 20)}), 413, "CODE_TOO_LARGE")
    refused(
        sandbox.client.post("/command", json={"command": "x" * (200 << 10)}), 413, "CODE_TOO_LARGE"
    )
    connection = http.client.HTTPConnection("127.0.0.1", owner.base_url.port, timeout=60)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/v1/sandboxes")
        connection.putheader(KEY_HEADER, "key-a")
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 413 and json.loads(answer.read())["code"] == "UPLOAD_TOO_LARGE"


# ---- Other ports


def test_the_endpoint_of_another_port(keyed, owner, sandbox):
    server = (
        "exec python3 -c \"import http.server as h; h.HTTPServer(('127.0.0.1', 8123), "
        'h.SimpleHTTPRequestHandler).serve_forever()"'
    )
    sandbox.events("/command", command=server, background=True)
    sandbox.events("/command", command="echo served > index.html")
    answer = owner.get(f"/v1/sandboxes/{sandbox.id}/endpoints/8123")
    endpoint = answer.json()
    host, _, port = endpoint["endpoint"].rpartition(":")
    assert host.startswith("8123-") and host.endswith(".localhost")
    with httpx.Client(base_url=keyed.url, trust_env=False) as stranger:
        at = {"Host": endpoint["endpoint"]}
        (name, token), *others = endpoint["headers"].items()
        assert not others
        wait_for(lambda: stranger.get("/", headers={**at, name: token}).text == "served\n")
        assert stranger.get("/", headers=at).status_code == 403
        assert stranger.get("/", headers={**at, name: token[:-2]}).status_code in (401, 403)
        # It is for ports, and for nothing else.
        ping = stranger.get(f"{sandbox.path}/ping", headers={KEY_HEADER: token})
        refused(ping, 403, "TOKEN_SCOPE")
    for port in "0", "65536", "x", "-1":
        answer = owner.get(f"/v1/sandboxes/{sandbox.id}/endpoints/{port}")
        refused(answer, 400, "INVALID_REQUEST")
