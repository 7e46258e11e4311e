# SPDX-License-Identifier: Apache-2.0
"""An MCP server of the standard library alone, over stdio or HTTP, that does what a test tells it: it answers,
hangs, lies, sends too much, dies, changes its list.

    mcp_stand_in.py stdio
    mcp_stand_in.py http PORT
"""

import json
import os
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

READ = {"readOnlyHint": True}
BIG = 100 << 20


def tool(name, annotations=READ, /, **properties):
    return {
        "name": name,
        "description": f"Does {name}",
        "inputSchema": {"type": "object", "properties": properties},
        "annotations": annotations,
    }


TOOLS = [
    tool("echo", value={}),
    tool("texts", values={"type": "array"}),
    tool("picture"),
    tool("fail", text={"type": "string"}),
    tool("refuse", text={"type": "string"}),
    tool("environment"),
    tool("add_tool", READ, name={"type": "string"}),
    tool("sleep", seconds={"type": "number"}),
    tool("hang"),
    tool("large", size={"type": "integer"}),
    tool("flood"),
    tool("deep"),
    tool("lie"),
    tool("die"),
    tool("ask"),
    tool("leave_child"),
    tool("write", {}),
    tool("delete", {"readOnlyHint": False}),
]


class Server:
    """The state of one session; `say` sends a message of the server's own."""

    def __init__(self, say=None):
        self.say = say or (lambda message: None)
        self.more = []
        self.answers = []
        self.cancelled = []
        self.hanging = []  # ids of calls that are never answered

    def handle(self, message):
        """The answer, None, or a text as it is."""
        if "method" not in message:
            self.answers.append(message)
            return None
        method, params, number = message["method"], message.get("params") or {}, message.get("id")
        if number is None:
            if method == "notifications/cancelled":
                self.cancelled.append(params["requestId"])
            return None
        answer = {"jsonrpc": "2.0", "id": number}
        if method == "initialize":
            version = os.environ.get("STAND_IN_VERSION") or params["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "stand-in", "version": "1"}
            return answer | {
                "result": {
                    "protocolVersion": version,
                    "capabilities": capabilities,
                    "serverInfo": info,
                }
            }
        if method == "tools/list":
            return answer | {"result": self.list(params.get("cursor"))}
        if method == "tools/call":
            return self.call(answer, params["name"], params.get("arguments") or {})
        return answer | {"error": {"code": -32601, "message": f"no {method}"}}

    def list(self, cursor):
        """Pages of seven."""
        endless = os.environ.get("STAND_IN_LIST") == "endless"
        known = TOOLS + [tool(name) for name in self.more]
        start = int(cursor or 0)
        if endless:
            return {
                "tools": [tool(f"t{start}", text={"description": "x" * 3000})],
                "nextCursor": str(start + 1),
            }
        page = {"tools": known[start : start + 7]}
        return page | ({"nextCursor": str(start + 7)} if start + 7 < len(known) else {})

    def call(self, answer, name, arguments):
        text = lambda value: {"type": "text", "text": value}
        if name == "echo":
            value = arguments.get("value")
            return answer | {
                "result": {"content": [text(json.dumps(value))], "structuredContent": value}
            }
        if name == "texts":
            return answer | {"result": {"content": [text(each) for each in arguments["values"]]}}
        if name == "picture":
            blocks = [
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {
                    "type": "resource",
                    "resource": {"uri": "a:b", "mimeType": "text/x", "blob": "aGk="},
                },
                {"type": "resource_link", "uri": "c:d", "name": "n"},
            ]
            return answer | {"result": {"content": blocks}}
        if name == "fail":
            return answer | {"result": {"isError": True, "content": [text(arguments["text"])]}}
        if name == "refuse":
            return answer | {"error": {"code": -1, "message": arguments["text"]}}
        if name == "environment":
            found = {"environment": dict(os.environ), "uid": os.getuid(), "pid": os.getpid()}
            return answer | {"result": {"content": [], "structuredContent": found}}
        if name == "add_tool":
            self.more.append(arguments["name"])
            self.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        if name == "sleep":
            time.sleep(arguments["seconds"])
        if name == "hang":
            self.hanging.append(answer["id"])
            time.sleep(3600)
        if name == "large":
            return answer | {"result": {"content": [text("x" * arguments["size"])]}}
        if name == "flood":
            return b'{"jsonrpc": "2.0", "id": ' + b"1" * BIG
        if name == "deep":
            return (
                b'{"id": %d, "result": {"content": ' % answer["id"]
                + b"[" * 50000
                + b"]" * 50000
                + b"}}"
            )
        if name == "lie":
            for lie in (
                {"jsonrpc": "2.0", "id": 99999, "result": {"content": [text("not asked")]}},
                {"jsonrpc": "2.0", "id": "1", "result": 1},
                {"jsonrpc": "2.0", "id": answer["id"], "nothing": 1},
                {"method": 7},
                {},
            ):
                self.say(lie)
        if name == "die":
            os._exit(3)
        if name == "ask":
            for number, method in enumerate(("ping", "sampling/createMessage", "roots/list")):
                self.say({"jsonrpc": "2.0", "id": f"q{number}", "method": method, "params": {}})
            time.sleep(0.3)
            return answer | {
                "result": {"content": [], "structuredContent": {"answers": self.answers}}
            }
        if name == "leave_child":
            if (pid := os.fork()) == 0:
                os.setsid()
                time.sleep(3600)
            return answer | {"result": {"content": [], "structuredContent": {"pid": pid}}}
        return answer | {"result": {"content": [text(f"did {name}")]}}


# ---- stdio ----------------------------------------------------------------------------------


def serve_stdio():
    lock = threading.Lock()

    def say(message):
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        with lock:
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()

    server = Server(say)
    print("a banner, as programs print it", flush=True)
    print("and an error", file=sys.stderr, flush=True)

    def work(message):
        answer = server.handle(message)
        if answer is not None:
            say(answer)

    for line in sys.stdin.buffer:
        threading.Thread(target=work, args=(json.loads(line),), daemon=True).start()
    os._exit(0)


# ---- HTTP -----------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """`mode` of the server: json, events, cut (a stream that breaks before its answer), no_get."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer takes 40 ms: its head and its body are two writes

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        shared = self.server
        shared.requests.append((message, dict(self.headers)))
        if shared.status:
            self.answer(shared.status, b"no", Location="http://127.0.0.1:1/elsewhere")
            return
        session = self.headers.get("Mcp-Session-Id")
        if message.get("method") == "initialize":
            session = uuid.uuid4().hex
            shared.initialized = time.monotonic()
            shared.sessions[session] = Server(lambda said: shared.say(session, said))
        server = shared.sessions.get(session)
        if not server and shared.unknown == 400:
            error = {"code": -32000, "message": "Bad Request: no valid session"}
            body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
            self.answer(400, body, Content_Type="application/json")
            return
        if not server:
            self.answer(404)
            return
        answer = server.handle(message)
        if answer is None:
            self.answer(202)
            return
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        if shared.mode == "json" or message["method"] == "initialize":
            self.answer(200, body, Content_Type="application/json", Mcp_Session_Id=session)
        else:
            self.stream(session, body)

    def stream(self, session, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b": a comment\n\nid: e1\nretry: 50\ndata:\n\n")
        self.wfile.flush()
        if self.server.mode == "cut":
            self.server.kept[session] = body
        else:
            self.wfile.write(b"id: e2\nevent: message\ndata: " + body + b"\n\n")
        self.close_connection = True

    def do_GET(self):
        session = self.headers.get("Mcp-Session-Id")
        self.server.gets.append(dict(self.headers))
        if self.server.mode == "no_get":
            self.answer(405)
            return
        if session not in self.server.sessions:
            self.answer(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if self.headers.get("Last-Event-ID"):
            self.wfile.write(b"id: e2\ndata: " + self.server.kept.pop(session) + b"\n\n")
            return
        self.wfile.write(b":\n\n")
        self.wfile.flush()
        self.server.listeners[session] = self.wfile
        while not self.server.ended.wait(0.05) and session in self.server.sessions:
            pass

    def do_DELETE(self):
        self.server.deleted.append(self.headers.get("Mcp-Session-Id"))
        self.answer(200)


class HttpServer(ThreadingHTTPServer):
    """Runs in a thread of the test, which sees what it got."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, mode="events", port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.mode = mode
        self.status = 0  # of all answers, if set
        self.initialized = 0  # when it was, the last time
        self.unknown = 404  # of requests in a session that is not known
        self.requests, self.gets, self.deleted = [], [], []
        self.sessions, self.listeners, self.kept = {}, {}, {}
        self.ended = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, *args):
        pass

    def say(self, session, message):
        listener = self.listeners.get(session)
        if listener:
            body = message if isinstance(message, bytes) else json.dumps(message).encode()
            listener.write(b"data: " + body + b"\n\n")
            listener.flush()

    def forget(self):
        """As a server that was started again."""
        self.sessions.clear()

    def stop(self):
        self.ended.set()
        self.shutdown()
        self.server_close()

    def methods(self):
        return [message.get("method") for message, _ in self.requests]


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        serve_stdio()
    server = HttpServer(port=int(sys.argv[2]))
    print(server.url, flush=True)
    threading.Event().wait()
