# SPDX-License-Identifier: Apache-2.0
"""The documentation says what the code does: settings, routes, answers."""

import collections
import json
import re
import subprocess

import httpx
import pytest
import python_packages
from account_commands import Accounts
from component import cell
from contract import NDJSON, OPENAPI, OPERATIONS, check_stream, resolve, send_example, validator
from kernelgate import BINARY, PROJECT, Gateway


def check(instance, schema):
    validator(schema).validate(instance)


# ---- Modules and version


def built_modules():
    lines = (PROJECT / "src/layers").read_text().splitlines()
    return [name for line in lines if line[0] != "#" for name in line.split()]


def first_block(heading):
    return (PROJECT / "docs/ARCHITECTURE.md").read_text().split(heading)[1].split("```")[1]


def test_modules_are_those_that_are_built():
    block = first_block("\n## Modules\n")
    named = re.findall(r"^([a-z_]+(?:/[a-z0-9]+)*)  ", block, re.MULTILINE)
    assert sorted(named) == sorted(built_modules())


Box = collections.namedtuple("Box", "top bottom left right modules")


def boxes_of(rows):
    """{title: Box} of a drawing: +-- title ---+ above, | modules | in each row, +---+ below."""
    boxes = {}
    for top, row in enumerate(rows):
        for found in re.finditer(r"\+-- (\w+) -+\+", row):
            left, right = found.start(), found.end() - 1
            edge = "+" + "-" * (right - left - 1) + "+"
            bottom = next(i for i in range(top + 1, len(rows)) if rows[i][left : right + 1] == edge)
            inside = rows[top + 1 : bottom]
            assert all(line[left] == line[right] == "|" for line in inside), found[1]
            modules = " ".join(line[left + 1 : right] for line in inside).split()
            boxes[found[1]] = Box(top, bottom, left, right, modules)
    return boxes


def arrows_of(rows, boxes):
    """(from, to) of a drawing: a line begins below boxes, and ends with each v above a box."""

    def box_at(y, x):
        for title, box in boxes.items():
            if box.top <= y <= box.bottom and box.left <= x <= box.right:
                return title
        return None

    line = {
        (y, x)
        for y, row in enumerate(rows)
        for x, char in enumerate(row)
        if char != " " and not box_at(y, x)
    }
    while line:
        cells, found = set(), [line.pop()]
        while found:
            y, x = found.pop()
            cells.add((y, x))
            beside = {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)} & line
            line -= beside
            found += beside
        assert all(rows[y][x] in "|-+v" for y, x in cells)
        above = {box_at(y - 1, x) for y, x in cells} - {None}
        below = {box_at(y + 1, x) for y, x in cells if rows[y][x] == "v"}
        assert above and below and None not in below, sorted(cells)[0]
        yield from ((one, other) for one in above for other in below)


def uses_of_modules():
    """(from, to) of each include of another module's header."""
    headers = {path.name: path.parent for path in (PROJECT / "src").rglob("*.h")}
    for path in (PROJECT / "src").rglob("*.[ch]"):
        for name in re.findall(r'^ *# *include "(\w+\.h)"', path.read_text(), re.MULTILINE):
            if name in headers and not (path.parent / name).exists():
                yield tuple(
                    str(folder.relative_to(PROJECT / "src"))
                    for folder in (path.parent, headers[name])
                )


def reachable(arrows):
    """All pairs of which one leads to the other."""
    pairs = set(arrows)
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs


def test_the_picture_shows_which_groups_use_which():
    rows = first_block("\n## The picture\n").strip("\n").splitlines()
    rows = [row.ljust(max(map(len, rows))) for row in rows]
    boxes = boxes_of(rows)
    groups = {module: title for title, box in boxes.items() for module in box.modules}
    assert sorted(m for box in boxes.values() for m in box.modules) == sorted(built_modules())
    drawn = set(arrows_of(rows, boxes))
    assert all(boxes[one].bottom < boxes[other].top for one, other in drawn)
    real = {(groups[one], groups[other]) for one, other in uses_of_modules()}
    real = {(one, other) for one, other in real if one != other}
    assert drawn <= real, drawn - real
    assert real <= reachable(drawn), real - reachable(drawn)


def test_the_version_is_that_of_the_binary():
    said = subprocess.run([BINARY, "version"], capture_output=True, text=True, check=True).stdout
    assert said == f"kernelgate {OPENAPI['info']['version']}\n"
    assert f"\nVersion {OPENAPI['info']['version']}." in (PROJECT / "README.md").read_text()


# ---- Settings


def test_settings_are_those_of_the_binary():
    command = [BINARY, "serve", "--help=markdown"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    page = (PROJECT / "docs/settings.md").read_text()
    assert table.startswith("| setting |")
    assert f"<!-- table -->\n{table}<!-- end of table -->\n" in page


def test_the_example_of_env_sets_the_key_alone():
    """A gateway in the project's folder reads .env as Compose does; what it leaves out are defaults."""
    lines = (PROJECT / ".env.example").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == ["API_KEY="]
    told = dict(re.findall(r"^# (\w+)=(.*)", "\n".join(lines), re.MULTILINE))
    compose = (PROJECT / "docker-compose.yml").read_text()
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]+)\}", compose))
    assert defaults and told == {**defaults, "COMPOSE_PROFILES": "production"}


# ---- Routes


def test_routes_are_those_of_the_code():
    source, *headers = (
        (PROJECT / "src" / name).read_text()
        for name in ("face/api/routes.h", "face/api/api.h", "session/file_links.h")
    )
    constants = dict(re.findall(r'#define (\w+) ("/[^"]*")', "".join(headers)))
    found = re.findall(r"    ROUTE\(([A-Z]+), ([^,]+),", source)
    # The last parameter may hold slashes, for which OpenAPI has no form.
    routes = {
        (method, constants.get(path, path).strip('"').replace("...}", "}"))
        for method, path in found
    }
    assert routes
    assert routes == set(OPERATIONS)


def test_the_list_of_routes_is_complete():
    """A row of docs/api.md has methods and a path, and may have another one: `…/packages/{name}`."""
    table = (PROJECT / "docs/api.md").read_text().split("| route | does |\n|---|---|\n")[1]
    plain = re.compile(r"\{\w+\}")  # the names of parameters are for the reader
    listed = set()
    for row in table.split("\n\n")[0].splitlines():
        words = re.findall(r"[^`, |]+", plain.sub("{}", row.split(" | ")[0]))
        first, *more = [word for word in words if "/" in word]
        if first in ("/mcp", "/sse", "/console/"):
            continue  # not in the document
        paths = [first, *(f"{first}/{word.rpartition('/')[2]}" for word in more)]
        methods = {word for word in words if word.isupper()} - {"HEAD"}  # which GET implies
        listed |= {(method, path) for method in methods for path in paths}
    assert listed == {(method, plain.sub("{}", path)) for method, path in OPERATIONS}


def test_codes_are_those_of_the_code():
    source = (PROJECT / "src/base/error.c").read_text()
    statuses = {code: int(number) for number, code in re.findall(r'\{(\d{3}), "(\w+)"', source)}
    documented = OPENAPI["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]
    table = (PROJECT / "docs/api.md").read_text().split("\n## Errors\n")[1].split("\n## ")[0]
    listed = {
        code: int(status)
        for status, codes in re.findall(r"^\| (\d{3}) \| ([^|]+) \|", table, re.MULTILINE)
        for code in re.findall(r"`(\w+)`", codes)
    }
    assert listed == {code: statuses[code] for code in documented}
    for (method, path), operation in OPERATIONS.items():
        for status, response in operation["responses"].items():
            for code in re.findall(r"`(\w+)`", resolve(response)["description"]):
                if code in statuses:
                    assert statuses[code] == int(status), (method, path, code)


WEBSOCKET = "GET", "/api/v1/sessions/{id}/terminal"
MAKERS = ("PUT", "files/{path}"), ("POST", "tokens"), ("POST", "files")
ENDLESS = "GET", "/api/v1/sessions/{id}/watch"
# Needs code that waits for it: test_input.py.
INPUT = "POST", "/api/v1/executions/{id}/input"
# The same: e2e/test_tools.py.
TOOL_RESULTS = "POST", "/api/v1/executions/{id}/tool_results"
# Need a kernel that can fork: Savepoints in tests/support checks the answers of e2e/test_savepoints.py.
FORKS = {
    (method, path)
    for method, path in OPERATIONS
    if method != "GET" and ("/savepoints" in path or "/branches" in path)
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """One with accounts, whose routes are documented, too."""
    accounts = Accounts(tmp_path_factory.mktemp("accounts") / "accounts.db")
    accounts.do("user", "add", "docs")
    accounts.do("user", "role", "docs", "administrator")
    accounts.do("user", "add", "other")
    flags = (*python_packages.flags(tmp_path_factory.mktemp("kernels")), *accounts.flags)
    running = Gateway(*flags, "--registration", "open", key=accounts.key("docs"))
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture(scope="module")
def ids(gateway):
    """A session, an execution, a key and a user that paths can name."""
    gateway.create_session(session_id="docs")
    for name, command in {"shell": "cat", "over": "true"}.items():  # see send_example()
        body = {"id": name, "command": command, "background": True, "terminal": True}
        gateway.client.post("/api/v1/sessions/docs/commands", json=body).raise_for_status()
    execution = gateway.execute("result 1", session_id="docs").headers["x-execution-id"]
    key = gateway.client.post("/api/v1/keys").json()["id"]
    yield {"sessions": "docs", "executions": execution, "keys": key, "users": "other"}
    gateway.delete_session("docs")


def instances(media_type, text):
    """What the schema of an answer describes."""
    if media_type == "text/plain":
        return [text]
    lines = text.splitlines() if media_type == NDJSON else [text]
    return [json.loads(line) for line in lines]


def ask(gateway, method, path, ids):
    """Sends what the document gives as an example, and checks the answer against it."""
    operation = OPERATIONS[method, path]
    collection = path.removeprefix("/api/v1/").split("/")[0]
    response = send_example(gateway.client, method, path, ids.get(collection, ids["sessions"]))
    assert str(response.status_code) in operation["responses"], response.text
    documented = resolve(operation["responses"][str(response.status_code)])
    media_type = response.headers["content-type"].split(";")[0]
    content = documented["content"]
    schema = content.get(media_type, content.get("*/*"))["schema"]
    for instance in instances(media_type, response.text):
        check(instance, schema)
    for name in documented.get("headers", {}):
        assert name in response.headers
    return response


@pytest.mark.parametrize(
    "method, path",
    # What makes a file comes first, what ends a session last. A key cannot log out: test_logins.py.
    # WebSockets are in test_terminals.py, watches in test_watch.py, input in test_input.py.
    sorted(
        OPERATIONS.keys() - {("POST", "/api/v1/logout"), WEBSOCKET, ENDLESS, INPUT, TOOL_RESULTS} - FORKS,
        key=lambda it: ({"PUT": 0, "DELETE": 2}.get(it[0], 1), -len(it[1]), it),
    ),
    ids=str,
)
def test_answers_are_as_documented(gateway, ids, method, path):
    made = (method, path.removeprefix("/api/v1/sessions/{id}/")) in MAKERS
    assert ask(gateway, method, path, ids).status_code == (201 if made else 200)
    if method == "DELETE" and path.endswith("{id}"):
        gateway.create_session(session_id=ids["sessions"])


@pytest.mark.parametrize(
    "method, path",
    sorted(each for each in OPERATIONS.keys() - {WEBSOCKET} if "{id}" in each[1]),
    ids=str,
)
def test_unknown_ids_are_answered_as_documented(gateway, method, path):
    unknown = dict.fromkeys(("sessions", "executions", "keys", "users"), "unknown")
    assert ask(gateway, method, path, unknown).status_code == 404


@pytest.mark.parametrize(
    "code",
    [
        cell("print out", "stderr err", "result 2"),
        "error ZeroDivisionError division by zero",
        cell("png figure.png", 'display {"image/png":"iVBORw0KGgo=","text/plain":"<Figure>"}'),
        "clear wait",
        cell('display-id d {"text/plain":"a"}', 'update-display d {"text/plain":"b"}'),
        "write a.txt text",
        "die 1",
    ],
    ids=["streams", "error", "figure", "clear", "update", "file", "death"],
)
def test_lines_are_as_documented(gateway, code):
    request = {"code": code}
    check(request, {"$ref": "#/components/schemas/ExecuteRequest"})
    lines = gateway.execute(**request)
    assert len(lines) > 1
    for line in lines:
        check(line, {"$ref": "#/components/schemas/Line"})
    answer = gateway.client.post("/api/v1/execute_sync", json=request).json()
    check(answer, {"$ref": "#/components/schemas/GatheredAnswer"})


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"stdout","seq":1}',
        b'{"type":"stdout","seq":1,"text":"","new":1}',
        b'{"type":"new"}',
    ],
    ids=["member missing", "member unknown", "type unknown"],
)
def test_lines_that_are_not_as_documented_fail_every_test(line):
    good = b'{"type":"stdout","seq":1,"text":"1"}\n'
    request = httpx.Request("POST", "http://localhost/api/v1/execute")

    def read(*parts):
        response = httpx.Response(
            200, headers={"content-type": NDJSON}, content=iter(parts), request=request
        )
        check_stream(response)
        return list(response.iter_lines())

    assert len(read(good, good[:9], good[9:])) == 2
    with pytest.raises(AssertionError):
        read(good, line[:9], line[9:] + b"\n", good)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs"])
def test_links_lead_somewhere(page):
    pages = [PROJECT / page] if page.endswith(".md") else sorted((PROJECT / page).glob("*.md"))
    assert pages
    for path in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def named_tests(page):
    """Pairs of a file and a test in it: in each row or paragraph a file precedes its tests."""
    for part in re.split(r"\n\n|\n(?=[|-])", page):
        file = None
        for name, ending in re.findall(r"`((?:tests/\w+/)?test_\w+)(\.py|\.c)?`", part):
            if ending:
                file = name + ending
            else:
                yield file, name


def test_the_tests_that_security_names_are_there():
    named = set(named_tests((PROJECT / "docs/security.md").read_text()))
    there = set()
    folders = "tests/component/*.py", "tests/e2e/*.py", "tests/load/*.py", "tests/browser/*.py"
    for pattern in *folders, "tests/unit/*.c":
        for path in PROJECT.glob(pattern):
            prefix = "tests/browser/" if path.parent.name == "browser" else ""
            found = re.findall(r"^(?:def )?(test_\w+)\(", path.read_text(), re.MULTILINE)
            there |= {(prefix + path.name, name) for name in found}
    assert named and named <= there, named - there
