# SPDX-License-Identifier: Apache-2.0
"""What a session has besides: metadata, by which lists are filtered, an absolute end, and counts of what runs."""

import datetime
import json
import time
import uuid

import pytest
from component import cell
from kernelgate import problem, wait_for

HELD = {"command": "sleep 600", "background": True}


def time_of(shown, member):
    return datetime.datetime.fromisoformat(shown[member])


def ids(gateway, **query):
    answer = gateway.client.get("/api/v1/sessions", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.json()["total"] == len(answer.json()["sessions"])
    return set(answer.json()["sessions"])


def change(gateway, session, **fields):
    return gateway.client.patch(f"/api/v1/sessions/{session}", json=fields)


# ---- Metadata


@pytest.fixture
def tagged(gateway):
    """Two sessions of one task, and its name."""
    task = uuid.uuid4().hex
    metadata = [{"task": task, "user": "ada"}, {"task": task, "user": "jürgen"}]
    made = [gateway.create_session(metadata=it) for it in metadata]
    yield task, *made
    for session in made:
        gateway.delete_session(session)


def test_metadata_are_shown_and_filter_lists(gateway, session, tagged):
    task, one, two = tagged
    assert gateway.show_session(session)["metadata"] == {}
    assert gateway.show_session(two)["metadata"] == {"task": task, "user": "jürgen"}
    assert ids(gateway, metadata=json.dumps({"task": task})) == {one, two}
    assert ids(gateway, metadata=json.dumps({"task": task, "user": "jürgen"})) == {two}
    assert ids(gateway, metadata=json.dumps({"task": task, "user": "ada "})) == set()
    assert {session, one, two} <= ids(gateway, metadata="{}")


def test_metadata_are_replaced(gateway, tagged):
    task, one, two = tagged
    answer = change(gateway, one, metadata={"task": task, "state": "done"})
    assert answer.status_code == 200 and answer.json()["metadata"] == {
        "task": task,
        "state": "done",
    }
    assert ids(gateway, metadata=json.dumps({"task": task, "user": "ada"})) == set()
    assert change(gateway, two, metadata={}).json()["metadata"] == {}
    # Who opens it again changes nothing.
    gateway.create_session(session_id=one, metadata={"task": "other"}, max_lifetime=5)
    shown = gateway.show_session(one)
    assert shown["metadata"] == {"task": task, "state": "done"} and shown["ends_at"] is None


def test_lists_by_kernel_and_state(gateway, session):
    gateway.execute("set x 1", session_id=session)
    assert session in ids(gateway, kernel="script")
    assert session in ids(gateway, busy="false") and session not in ids(gateway, busy="true")
    with gateway.stream(cell("print 1", "wait go"), session_id=session) as reader:
        reader.next_of("stdout")
        assert session in ids(gateway, busy="true") and session not in ids(gateway, busy="false")
        gateway.release(session)
        assert reader.rest().status == "ok"


@pytest.mark.parametrize(
    "query, status, code",
    [
        ({"metadata": "task"}, 400, "invalid_request"),
        ({"metadata": '["a"]'}, 400, "invalid_request"),
        ({"metadata": '{"a":1}'}, 400, "invalid_request"),
        ({"metadata": '{"a":"1","a":"2"}'}, 400, "invalid_request"),
        ({"kernel": "cobol"}, 404, "unknown_kernel"),
        ({"busy": "1"}, 400, "invalid_request"),
    ],
)
def test_filters_that_are_none(gateway, query, status, code):
    problem(gateway.client.get("/api/v1/sessions", params=query), status, code)


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        {"a": 1},
        {"a": None},
        {"": "x"},
        {"a\n": "x"},
        {"a" * 65: "x"},
        {"a": "x" * 513},
        {str(i): "" for i in range(33)},
        {str(i): "x" * 512 for i in range(8)},
    ],
    ids=range(9),
)
def test_metadata_that_are_none(gateway, session, metadata):
    for answer in (
        gateway.client.post("/api/v1/sessions", json={"metadata": metadata}),
        change(gateway, session, metadata=metadata),
    ):
        assert "metadata" in problem(answer, 400, "invalid_request")["detail"]


def test_the_largest_metadata(gateway, session):
    largest = {f"{i:064}": "x" * 448 for i in range(8)}  # 4096 bytes
    assert change(gateway, session, metadata=largest).json()["metadata"] == largest
    most = {str(i): "ä" for i in range(32)}
    assert change(gateway, session, metadata=most).json()["metadata"] == most


def test_changes_that_are_none(gateway, session):
    for fields in {"env": {}}, {"idle_timeout": 0}, {"max_lifetime": "1"}, {"max_lifetime": 0.5}:
        problem(change(gateway, session, **fields), 400, "invalid_request")
    problem(change(gateway, "nobodys", metadata={}), 404, "session_not_found")


# ---- The end


def test_a_session_ends_whatever_it_does(gateway):
    session = gateway.create_session(max_lifetime=2)
    shown = gateway.show_session(session)
    lifetime = time_of(shown, "ends_at") - time_of(shown, "created_at")
    assert lifetime.total_seconds() == pytest.approx(2, abs=0.1)
    assert shown["expires_at"] == shown["ends_at"]
    gateway.client.post(f"/api/v1/sessions/{session}/commands", json=HELD).raise_for_status()
    with gateway.stream(cell("print 1", "hang"), session_id=session) as reader:
        lines = reader.rest()
    assert lines.status == "died" and "max_lifetime" in lines.one("error")["error"]
    problem(gateway.client.get(f"/api/v1/sessions/{session}"), 404, "session_not_found")


def test_the_end_is_moved(gateway):
    session = gateway.create_session(max_lifetime=600)
    assert change(gateway, session, max_lifetime=1200, idle_timeout=60).status_code == 200
    shown = gateway.show_session(session)
    lifetime = time_of(shown, "ends_at") - time_of(shown, "created_at")
    assert lifetime.total_seconds() == pytest.approx(1200, abs=0.1)
    idle = time_of(shown, "expires_at") - time_of(shown, "last_activity")
    assert idle.total_seconds() == pytest.approx(60, abs=0.1)
    time.sleep(1.1)
    refused = problem(change(gateway, session, max_lifetime=1), 400, "invalid_request")
    assert "older than that" in refused["detail"]
    assert change(gateway, session, max_lifetime=2).status_code == 200
    wait_for(lambda: session not in ids(gateway))


def test_the_setting_bounds_it(start_gateway):
    gateway = start_gateway("--max-session-lifetime", "3")
    for body in {"max_lifetime": 4}, {"max_lifetime": 31536000}:
        refused = problem(
            gateway.client.post("/api/v1/sessions", json=body), 400, "invalid_request"
        )
        assert refused["detail"] == "max_lifetime must be 1 to 3 seconds"
    session = gateway.create_session()
    problem(change(gateway, session, max_lifetime=4), 400, "invalid_request")
    shown = gateway.show_session(session)
    lifetime = time_of(shown, "ends_at") - time_of(shown, "created_at")
    assert lifetime.total_seconds() == pytest.approx(3, abs=0.1)
    with gateway.stream(cell("print 1", "hang"), session_id=session) as reader:
        assert reader.rest().status == "died"


# ---- Another gateway


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_next_gateway_knows_it_all(start_gateway, end):
    gateway = start_gateway("--keep-sandboxes")
    session = gateway.create_session(metadata={"a": "1"}, max_lifetime=600)
    changed = gateway.create_session(metadata={"a": "1"})
    change(gateway, changed, metadata={"b": "2"}, max_lifetime=15, idle_timeout=900)  # above a restart
    known = "metadata", "created_at", "ends_at"
    before = [{it: gateway.show_session(id_)[it] for it in known} for id_ in (session, changed)]
    getattr(gateway, end)()
    gateway.start()
    wait_for(lambda: ids(gateway) == {session, changed})
    after = [{it: gateway.show_session(id_)[it] for it in known} for id_ in (session, changed)]
    assert after == before
    assert ids(gateway, metadata='{"b":"2"}') == {changed}
    wait_for(lambda: ids(gateway) == {session})  # the other one is at its end
    gateway.delete_session(session)


# ---- Counts


def test_commands_and_terminals_are_counted(gateway, session):
    shown = gateway.show_session(session)
    assert (shown["commands"], shown["terminals"]) == (0, 0)
    path = f"/api/v1/sessions/{session}/commands"
    for fields in {"id": "one"}, {"id": "two"}, {"id": "tty", "terminal": True}:
        gateway.client.post(path, json={**HELD, **fields}).raise_for_status()

    def counts():
        listed = gateway.client.get("/api/v1/sessions").json()["sessions"][session]
        return listed["commands"], listed["terminals"]

    wait_for(lambda: counts() == (2, 1))
    metrics = gateway.client.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line[0] != "#")
    assert float(values["kernelgate_commands_running"]) >= 2
    assert float(values["kernelgate_terminals"]) >= 1
    gateway.client.delete(f"{path}/two").raise_for_status()
    gateway.client.delete(f"{path}/tty").raise_for_status()
    wait_for(lambda: counts() == (1, 0))
