# SPDX-License-Identifier: Apache-2.0
"""The route that serves the console's files: what it sends, and what it cannot be made to send."""

import base64
import gzip
import hashlib
import pathlib
import subprocess

import component
import pytest
from kernelgate import Gateway, problem

STYLE = b"body { margin: 0 }"
PAGE = b"<!doctype html><title>page</title><style>%s</style>" % STYLE + b"x" * 100_000
CHART = b"<!doctype html><title>chart</title>"
SCRIPT = b"export const a = 1;" * 100


def write(folder, name, content, compressed=True):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if compressed:
        pathlib.Path(f"{path}.gz").write_bytes(gzip.compress(content))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed") / "console"
    write(folder, "index.html", PAGE)
    write(folder, "frame.html", b"<!doctype html>")
    write(folder, "assets/main-ABCD.js", SCRIPT)
    write(folder, "assets/plain-ABCD.css", b"a{}", compressed=False)
    write(folder, "assets/empty-ABCD.js", b"", compressed=False)
    write(folder, "assets/chart-ABCD.html", CHART)
    (folder / "assets/chart-ABCD.html").unlink()  # it is there compressed only
    write(folder, ".hidden", b"hidden")
    write(folder, "deeper/still/a.js", b"deep")
    write(folder.parent, "secret.txt", b"secret", compressed=False)
    return folder


@pytest.fixture(scope="module")
def served(folder):
    running = Gateway(*component.FLAGS, "--api-key", "k", "--console-dir", str(folder))
    try:
        yield running.start()
    finally:
        running.clean_up()


def get(gateway, path, method="GET", **headers):
    headers = {"Accept-Encoding": "identity", **headers}
    return gateway.client.request(method, path, headers=headers)


def test_the_address_leads_to_the_page_without_a_key(served):
    for path in ("/", "/console"):
        assert get(served, path).status_code == 404
        response = get(served, path, Accept="text/html,application/xhtml+xml")
        assert (response.status_code, response.headers["location"]) == (302, "console/")
    response = get(served, "/console/")
    assert response.status_code == 200 and response.content == PAGE
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert get(served, "/console/index.html").content == PAGE


def test_the_policy_of_the_page_and_of_its_frames(served):
    headers = get(served, "/console/").headers
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
    assert policy["connect-src"] == policy["frame-src"] == "'self'"
    digest = base64.b64encode(hashlib.sha256(STYLE).digest()).decode()
    assert policy["style-src"] == f"'self' 'sha256-{digest}'"  # the page's own
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'" and policy["trusted-types"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    policy = get(served, "/console/frame.html").headers["content-security-policy"]
    assert policy.startswith("sandbox ") and "allow-same-origin" not in policy
    assert "allow-top-navigation" not in policy and "allow-forms" not in policy
    policy = get(served, "/console/assets/chart-ABCD.html").headers["content-security-policy"]
    assert policy == "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"


def test_assets_are_kept_for_long_and_pages_are_asked_for_again(served):
    response = get(served, "/console/assets/main-ABCD.js")
    assert response.content == SCRIPT
    assert response.headers["content-type"].startswith("text/javascript")
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    page = get(served, "/console/")
    assert page.headers["cache-control"] == "no-cache"
    again = get(served, "/console/", **{"If-None-Match": f'"x", {page.headers["etag"]}'})
    assert again.status_code == 304 and not again.content
    assert again.headers["etag"] == page.headers["etag"]
    assert get(served, "/console/", **{"If-None-Match": '"x"'}).status_code == 200


def test_compressed_files_are_sent_to_those_who_accept_them(served):
    plain = get(served, "/console/")
    for accepted in ("gzip", "br;q=1.0, gzip;q=0.8", "deflate , GZIP"):
        response = get(served, "/console/", **{"Accept-Encoding": accepted})
        assert response.headers["content-encoding"] == "gzip", accepted
        assert response.content == PAGE
        assert response.headers["etag"] != plain.headers["etag"]
        assert response.headers["vary"] == "Accept-Encoding"
    for accepted in ("", "gzip;q=0", "gzip; q=0.00, br", "xgzip", "gzipped"):
        response = get(served, "/console/", **{"Accept-Encoding": accepted})
        assert "content-encoding" not in response.headers, accepted
        assert response.content == PAGE
    response = get(served, "/console/assets/plain-ABCD.css", **{"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers and response.content == b"a{}"


def test_a_file_that_is_there_compressed_only(served):
    for accepted in ("gzip", "identity"):
        response = get(served, "/console/assets/chart-ABCD.html", **{"Accept-Encoding": accepted})
        assert response.status_code == 200 and response.content == CHART
        assert response.headers["content-encoding"] == "gzip"
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    empty = get(served, "/console/assets/empty-ABCD.js", **{"Accept-Encoding": "gzip"})
    assert empty.status_code == 200 and "content-encoding" not in empty.headers


def test_head(served):
    response = get(served, "/console/", "HEAD")
    assert response.status_code == 200 and not response.content
    assert response.headers["content-length"] == str(len(PAGE))
    problem(get(served, "/console/", "POST"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "assets/../../secret.txt",
        "assets/..%2f..%2fsecret.txt", "/etc/passwd", "%2fetc%2fpasswd", "assets", "assets/",
        "index.html.gz", ".hidden", "deeper/still/a.js", "index.html/", "index.html%00.js", "nothing",
    ],
)  # fmt: skip
def test_nothing_else_can_be_had(served, path):
    command = ["curl", "-s", "--path-as-is", "-w", "\n%{http_code}", f"{served.url}/console/{path}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.endswith(("\n404", "\n400")), text
    assert "secret" not in text.split("\n")[0] and "root:" not in text


def test_other_names_of_the_machine_are_refused(served):
    problem(get(served, "/console/", Host="evil.example"), 403, "forbidden_host")


def test_a_console_that_was_not_built(start_gateway, tmp_path):
    running = start_gateway("--console-dir", str(tmp_path / "missing"))
    for path in ("/console/", "/console/assets/main.js"):
        response = get(running, path)
        assert response.status_code == 404
        assert response.headers["content-type"] == "text/plain; charset=utf-8"
        assert "script/setup" in response.text and "missing" in response.text
    assert get(running, "/api/v1/sessions").status_code == 200


def test_a_console_with_too_much_is_not_served(start_gateway, tmp_path):
    write(tmp_path, "index.html", PAGE)
    for number in range(200):
        write(tmp_path, f"assets/{number}.js", b"", compressed=False)
    running = start_gateway("--console-dir", str(tmp_path))
    assert "128 files" in get(running, "/console/").text


def test_it_can_be_switched_off(start_gateway, folder):
    running = start_gateway("--console=false", "--console-dir", str(folder))
    for path in ("/", "/console", "/console/"):
        problem(get(running, path, Accept="text/html"), 404, "not_found")
