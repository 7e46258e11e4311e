# SPDX-License-Identifier: Apache-2.0
"""E2B's control plane, as its clients see it in raw HTTP: the life of sandboxes, lists, tokens, strangers."""

import datetime
import urllib.parse

import component
import httpx
import pytest
from component import HELD
from kernelgate import Gateway, problem, wait_for

KEY = "key-of-e2b"


@pytest.fixture(scope="module")
def keyed():
    running = Gateway(*component.FLAGS, "--api-key", KEY, key=KEY)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture
def bare(keyed, clients):
    """A client that sends no credential by itself."""
    stranger = clients(keyed, None)
    stranger.headers.pop("Authorization", None)
    return stranger


@pytest.fixture
def client(keyed, clients):
    """As the SDKs: the key is in X-API-KEY."""
    own = clients(keyed, None)
    own.headers["X-API-KEY"] = KEY
    return own


@pytest.fixture
def sandbox(keyed, client):
    made = create(client)
    yield made
    client.delete(f"/sandboxes/{made['sandboxID']}")


def create(client, path="/v2/sandboxes", **body):
    answer = client.post(path, json={"templateID": "base", **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(answer, status, words=""):
    """The error of an answer, which has the shape that the SDKs read."""
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert error["code"] == status and words in error["message"]
    return error


def shown(client, sandbox):
    answer = client.get(f"/sandboxes/{sandbox['sandboxID']}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def lifetime(detail):
    start, end = (datetime.datetime.fromisoformat(detail[it]) for it in ("startedAt", "endAt"))
    return (end - start).total_seconds()


# ---- Life --------------------------------------------------------------------------------------


def test_a_sandbox_is_a_session(keyed, client):
    made = create(client, timeout=100, metadata={"user": "one"}, envVars={"A": "b"})
    session = keyed.client.get(f"/api/v1/sessions/{made['sandboxID']}").json()
    assert session["metadata"] == {"user": "one"} and session["ends_at"]
    detail = shown(client, made)
    assert detail["metadata"] == {"user": "one"} and detail["state"] == "running"
    assert detail["templateID"] == "base" and 99 <= lifetime(detail) <= 101
    assert detail["cpuCount"] >= 1 and detail["memoryMB"] > 0 and detail["diskSizeMB"] > 0
    assert detail["envdAccessToken"] == made["envdAccessToken"]
    assert client.delete(f"/sandboxes/{made['sandboxID']}").status_code == 204
    refused(client.delete(f"/sandboxes/{made['sandboxID']}"), 404, "was not found")
    refused(client.get(f"/sandboxes/{made['sandboxID']}"), 404, "was not found")
    problem(keyed.client.get(f"/api/v1/sessions/{made['sandboxID']}"), 404, "session_not_found")


def test_the_id_is_a_name_of_a_host(sandbox):
    assert sandbox["sandboxID"].isalnum() and sandbox["sandboxID"].islower()
    assert len(f"49983-{sandbox['sandboxID']}") <= 63


def test_default_timeouts(client):
    for path, seconds in ("/v2/sandboxes", 300), ("/sandboxes", 15):
        made = create(client, path, secure=True)
        assert seconds - 1 <= lifetime(shown(client, made)) <= seconds + 1
        client.delete(f"/sandboxes/{made['sandboxID']}")


def test_it_ends_at_its_timeout(client):
    made = create(client, timeout=1)
    wait_for(lambda: client.get(f"/sandboxes/{made['sandboxID']}").status_code == 404)


def test_timeouts_are_changed(client, sandbox):
    url = f"/sandboxes/{sandbox['sandboxID']}"
    assert client.post(f"{url}/timeout", json={"timeout": 1000}).status_code == 204
    assert 990 <= lifetime(shown(client, sandbox)) <= 1100
    assert client.post(f"{url}/timeout", json={"timeout": 50}).status_code == 204
    assert lifetime(shown(client, sandbox)) <= 160
    # These two only move the end away.
    assert client.post(f"{url}/refreshes", json={"duration": 5}).status_code == 204
    assert lifetime(shown(client, sandbox)) >= 49
    for path in f"/v2{url}/connect", f"{url}/connect":
        answer = client.post(path, json={"timeout": 5})
        assert answer.status_code == 200
        assert answer.json()["envdAccessToken"] == sandbox["envdAccessToken"]
        assert lifetime(shown(client, sandbox)) >= 49
    assert client.post(f"/v2{url}/connect", json={"timeout": 2000}).status_code == 200
    assert lifetime(shown(client, sandbox)) >= 1990
    for body in {"timeout": -1}, {"timeout": "5"}, {"timeout": 10**9}, []:
        refused(client.post(f"{url}/timeout", json=body), 400)
    refused(client.post("/sandboxes/none/timeout", json={"timeout": 5}), 404)


def test_the_longest_life_is_a_setting(start_gateway):
    gateway = start_gateway("--max-session-lifetime", "60")
    body = {"templateID": "base", "timeout": 61}
    refused(gateway.client.post("/v2/sandboxes", json=body), 400, "max-session-lifetime")


def test_metrics(client, sandbox):
    (sample,) = client.get(f"/sandboxes/{sandbox['sandboxID']}/metrics").json()
    url = f"/sandboxes/{sandbox['sandboxID']}/metrics"
    now = sample["timestampUnix"]
    for range_, n in ({"start": now - 9, "end": now + 600}, 1), ({"end": now - 9}, 0), ({"start": now + 600}, 0):
        assert len(client.get(url, params=range_).json()) == n
    assert sample["memTotal"] > 0 and sample["cpuCount"] >= 1 and sample["timestampUnix"] > 0


# ---- Lists -------------------------------------------------------------------------------------


def quoted(**pairs):
    """Metadata as the SDKs write it: each part is quoted before the whole is."""
    quote = urllib.parse.quote
    return urllib.parse.urlencode({quote(name): quote(value) for name, value in pairs.items()})


def test_lists(client):
    group = {"group": "a b&c=d/é"}
    made = [create(client, metadata={**group, "number": str(i)})["sandboxID"] for i in range(3)]
    query = {"metadata": quoted(**group)}

    def listed(**more):
        answer = client.get("/v2/sandboxes", params=query | more)
        assert answer.status_code == 200, answer.text
        return [it["sandboxID"] for it in answer.json()], answer.headers.get("x-next-token")

    assert listed() == (made[::-1], None)  # the newest first
    assert listed(order="asc") == (made, None)
    assert listed(metadata=quoted(number="1", **group)) == ([made[1]], None)
    assert listed(metadata=quoted(number="9", **group)) == ([], None)
    assert listed(state="paused") == ([], None)
    assert listed(state="paused,running")[0] == made[::-1]
    assert listed(startedAfter="2100-01-01T00:00:00+01:00") == ([], None)
    assert listed(startedAfter="2020-01-01T00:00:00.123456Z")[0] == made[::-1]
    assert listed(startedAfter=shown(client, {"sandboxID": made[2]})["startedAt"]) == ([made[2]], None)
    assert listed(template="other") == ([], None)
    for order in "asc", "desc":
        pages, token = [], ""
        while token is not None:
            page, token = listed(limit=1, order=order, nextToken=token)
            pages += page
        assert pages == (made if order == "asc" else made[::-1])
    for bad in {"limit": 0}, {"limit": "x"}, {"order": "up"}, {"startedAfter": "today"}, {"metadata": "a"}:
        refused(client.get("/v2/sandboxes", params=bad), 400)
    for each in made:
        client.delete(f"/sandboxes/{each}")
    assert listed() == ([], None)


def test_sessions_of_other_faces_are_not_listed(keyed, client):
    session = keyed.create_session()
    assert session not in client.get("/sandboxes").text
    keyed.delete_session(session)


# ---- What cannot be had ------------------------------------------------------------------------


def test_what_is_not_there_is_refused_by_name(client, sandbox):
    for field, words in (
        ({"autoPause": True}, "paused"),
        ({"volumeMounts": [{"name": "a", "path": "/b"}]}, "volumes"),
        ({"mcp": {"x": {}}}, "MCP"),
        ({"autoResume": {"enabled": True}}, "paused"),
        ({"templateID": "desktop"}, "desktop"),
        ({"envVars": {"A": 1}}, "env"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"templateID": 5}, "templateID"),
        ({"network": {"maskRequestHost": "x"}}, "maskRequestHost"),
    ):
        answer = client.post("/v2/sandboxes", json={"templateID": "base", **field})
        refused(answer, 404 if words == "desktop" else 400, words)
    for field in {"allow_internet_access": True}, {"allow_internet_access": False}, {"unknown": 1}:
        client.delete(f"/sandboxes/{create(client, **field)['sandboxID']}")
    url = f"/sandboxes/{sandbox['sandboxID']}"
    for path in f"{url}/pause", f"{url}/snapshots", f"{url}/fork", "/secrets", "/volumes", "/v3/templates":
        assert refused(client.post(path, json={}), 501)["message"]
    refused(client.put(f"{url}/network", json={}), 501, "network")


def test_a_full_gateway_says_when_to_come_again(start_gateway):
    gateway = start_gateway("--max-sessions", "1")
    create(gateway.client)
    answer = gateway.client.post("/v2/sandboxes", json={"templateID": "base"})
    refused(answer, 429)
    assert int(answer.headers["retry-after"]) >= 1


# ---- Strangers ---------------------------------------------------------------------------------


def test_keys(bare):
    for headers in {}, {"X-API-KEY": "wrong"}, {"X-API-KEY": "e2b_" + b"wrong".hex()}:
        for method, path in ("POST", "/v2/sandboxes"), ("GET", "/sandboxes"), ("GET", "/sandboxes/x"):
            refused(bare.request(method, path, json={}, headers=headers), 401)
    # SDKs until 2.45 take only keys of this form.
    old = {"X-API-KEY": "e2b_" + KEY.encode().hex()}
    assert bare.get("/sandboxes", headers=old).status_code == 200


def test_a_login_does_not_count(bare):
    refused(bare.get("/sandboxes", headers={"Cookie": "kernelgate_login=" + KEY}), 401)


def run(client, sandbox, code, headers, **body):
    headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49999", **headers}
    return client.post("/execute", json={"code": code, **body}, headers=headers)


def test_tokens(client, bare, sandbox):
    envd = {"X-Access-Token": sandbox["envdAccessToken"]}
    assert '"end_of_execution"' in run(bare, sandbox, "print hi", envd).text
    # What is given to visitors of ports runs no code, and no token reaches another sandbox.
    traffic = {"E2B-Traffic-Access-Token": sandbox["trafficAccessToken"]}
    refused(run(bare, sandbox, "print hi", traffic), 403)
    other = create(client)
    refused(run(bare, other, "print hi", envd), 403)
    for headers in {}, {"X-Access-Token": "wrong"}, {"X-Access-Token": sandbox["envdAccessToken"][:-2]}:
        refused(run(bare, sandbox, "print hi", headers), 401)
    refused(bare.get("/sandboxes", headers={"X-API-KEY": sandbox["envdAccessToken"]}), 403)
    client.delete(f"/sandboxes/{other['sandboxID']}")


def test_an_ended_sandbox_is_not_found(client, bare):
    made = create(client)
    named = {"E2b-Sandbox-Id": made["sandboxID"]}
    token = {"X-Access-Token": made["envdAccessToken"]}
    assert bare.get("/health", headers=named).status_code == 204
    assert bare.get("/health", headers=named | {"E2b-Sandbox-Port": "49999"}).status_code == 200
    client.delete(f"/sandboxes/{made['sandboxID']}")
    refused(bare.get("/health", headers=named), 502, "was not found")
    refused(run(bare, made, "print hi", token), 502, "was not found")
    refused(run(client, made, "print hi", {}), 502, "was not found")


def test_hosts(keyed, bare, sandbox):
    """By name, the host says which sandbox is meant, whatever the header says."""
    port = urllib.parse.urlsplit(keyed.url).port
    token = {"X-Access-Token": sandbox["envdAccessToken"]}

    def send(host, **headers):
        headers = {"Host": f"{host}:{port}", **token, **headers}
        return bare.post("/execute", json={"code": "print hi"}, headers=headers)

    host = f"49999-{sandbox['sandboxID']}.localhost"
    assert '"hi' in send(host).text
    assert '"hi' in send(host, **{"E2b-Sandbox-Id": "other"}).text
    assert '"hi' in send(host.upper()).text
    refused(send("49999-other.localhost", **{"E2b-Sandbox-Id": sandbox["sandboxID"]}), 502)
    assert bare.get("/sandboxes", headers={"Host": f"api.localhost:{port}", "X-API-KEY": KEY}).is_success
    assert sandbox["domain"] == f"localhost:{port}"


def test_public_ports(keyed, client, bare):
    """Whoever knows its host may use a port, unless that was not wanted; then a token opens it."""
    port = urllib.parse.urlsplit(keyed.url).port
    for public in True, False:
        made = create(client, network={"allowPublicTraffic": public})
        host = {"Host": f"8000-{made['sandboxID']}.localhost:{port}"}
        traffic = {"E2B-Traffic-Access-Token": made["trafficAccessToken"]}
        wrong = {"E2B-Traffic-Access-Token": made["trafficAccessToken"] + "x"}
        assert bare.get("/", headers=host | traffic).status_code == 502  # nothing listens there
        assert bare.get("/", headers=host).status_code == (502 if public else 403)
        assert bare.get("/", headers=host | wrong).status_code == (502 if public else 403)
        client.delete(f"/sandboxes/{made['sandboxID']}")


# ---- Repetitions -------------------------------------------------------------------------------


def test_an_idempotency_key(client):
    def ask(key, **body):
        headers = {"Idempotency-Key": key}
        return client.post("/v2/sandboxes", json={"templateID": "base", **body}, headers=headers)

    first = ask("key-1", metadata={"a": "1", "b": "2"})
    again = ask("key-1", metadata={"b": "2", "a": "1"})
    assert first.status_code == again.status_code == 201 and first.json() == again.json()
    error = refused(ask("key-1", metadata={"a": "2"}), 409)
    assert error["error_code"] == "idempotency_request_mismatch"
    other = ask("key-2").json()
    assert other["sandboxID"] != first.json()["sandboxID"]
    for bad in "", "A", "x" * 256, "a b":
        refused(ask(bad), 400, "Idempotency-Key")
    assert "key-1" not in client.get("/v2/sandboxes").text
    for each in first.json(), other:
        client.delete(f"/sandboxes/{each['sandboxID']}")
    assert ask("key-1").json()["sandboxID"] != first.json()["sandboxID"]  # that one has ended


# ---- Code --------------------------------------------------------------------------------------


def ask(client, sandbox, method, path, **options):
    headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "E2b-Sandbox-Port": "49999"}
    return client.request(method, path, headers=headers, **options)


def test_contexts_with_the_traffic_token(bare, sandbox):
    """The SDKs send no other one with these."""
    bare.headers["E2B-Traffic-Access-Token"] = sandbox["trafficAccessToken"]
    made = ask(bare, sandbox, "POST", "/contexts", json={})
    assert made.status_code == 200 and made.json()["language"] == "script"
    listed = ask(bare, sandbox, "GET", "/contexts").json()
    # The default ones are there, also before they are used.
    assert {it["id"] for it in listed} == {"script", "script-message", made.json()["id"]}
    assert ask(bare, sandbox, "POST", f"/contexts/{made.json()['id']}/restart").text == "null"
    assert ask(bare, sandbox, "DELETE", f"/contexts/{made.json()['id']}").text == "null"
    for method, path in ("DELETE", ""), ("POST", "/restart"):
        answer = ask(bare, sandbox, method, f"/contexts/{made.json()['id']}{path}")
        assert answer.status_code == 404 and answer.text.endswith("not found")
    for body in {"language": 5}, {"language": "klingon"}, {"cwd": 5}, {"cwd": "relative"}, []:
        refused(ask(bare, sandbox, "POST", "/contexts", json=body), 400)
    bare.headers["E2B-Traffic-Access-Token"] = "wrong"
    refused(ask(bare, sandbox, "GET", "/contexts"), 401)


def test_bad_code(client, sandbox):
    for body in (
        {},
        {"code": 5},
        {"code": "a", "env_vars": {"A": 5}},
        {"code": "a", "context_id": 5},
        {"code": "a", "context_id": "script", "language": "script"},
        {"code": "a", "language": "klingon"},
        {"code": "a\0b"},
    ):
        refused(run(client, sandbox, headers={}, **{"code": None, **body}), 400)
    answer = run(client, sandbox, "print hi", {}, context_id="none")
    assert (answer.status_code, answer.text) == (404, "Context none not found")
    assert answer.headers["content-type"].startswith("text/plain")
    assert '"hi' in run(client, sandbox, "print hi", {}, context_id="script").text


def test_an_answer_is_cut_when_its_sandbox_ends(client):
    """Only then do the SDKs ask whether it is there."""
    made = create(client)
    headers = {"E2b-Sandbox-Id": made["sandboxID"]}
    with client.stream("POST", "/execute", json={"code": HELD}, headers=headers) as answer:
        lines = answer.iter_lines()
        while "on" not in next(lines):
            pass
        assert client.delete(f"/sandboxes/{made['sandboxID']}").status_code == 204
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)


def test_what_was_lost_is_said(start_gateway):
    gateway = start_gateway("--max-output-bytes", "65536")
    made = create(gateway.client)
    text = run(gateway.client, made, f"print {'x' * 200_000}", {}).text
    assert "bytes of output were lost" in text and text.endswith('{"type":"end_of_execution"}\n')
