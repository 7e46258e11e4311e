# SPDX-License-Identifier: Apache-2.0
"""Servers on this machine for the gateway's requests: files, and a package index."""

import hashlib
import http.server
import io
import threading
import urllib.parse
import zipfile


class Web:
    """Serves `answers[path]`: (status, headers, body), or a function that returns these."""

    def __init__(self, answers=None, host="127.0.0.1"):
        self.answers = dict(answers or {})
        self.asked = []
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path = urllib.parse.urlsplit(self.path).path
                web.asked.append(path)
                answer = web.answers.get(path, (404, {}, b"no"))
                if callable(answer):
                    answer(self)
                    return
                status, headers, body = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://{host}:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def wheel(name, version, files, requires=()):
    """Returns the bytes of a wheel."""
    info = f"{name}-{version}.dist-info"
    content = dict(files)
    needs = "".join(f"Requires-Dist: {item}\n" for item in requires)
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    content[f"{info}/METADATA"] = about
    tags = "Root-Is-Purelib: true\nTag: py3-none-any\n"
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: t\n{tags}"
    record = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    content[f"{info}/RECORD"] = record
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return data.getvalue()


class Index(Web):
    """A package index (PEP 503), at `url`/simple/."""

    @property
    def simple(self):
        return f"{self.url}/simple/"

    def add(self, file, data):
        """Adds a file of a package."""
        name = file.split("-")[0].lower().replace("_", "-")
        digest = hashlib.sha256(data).hexdigest()
        self.answers[f"/files/{file}"] = (200, {}, data)
        page = f"/simple/{name}/"
        old = self.answers.get(page, (200, {}, b""))[2]
        link = f'<a href="/files/{file}#sha256={digest}">{file}</a>\n'
        self.answers[page] = (200, {"Content-Type": "text/html"}, old + link.encode())

    def add_wheel(self, name, version, requires=()):
        module = f"VERSION = {version!r}\n"
        data = wheel(name, version, {f"{name}/__init__.py": module}, requires)
        self.add(f"{name}-{version}-py3-none-any.whl", data)
