# SPDX-License-Identifier: Apache-2.0
"""MCP clients behind one interface: the TypeScript SDKs (tests/mcp/client.mjs), Python's, and plain
HTTP."""

import asyncio
import base64
import concurrent.futures
import contextlib
import itertools
import json
import os
import subprocess
import threading
import time

import mcp_wire
from kernelgate import BINARY, PROJECT

NODE_ROOT = PROJECT / "build/node"
NODE = NODE_ROOT / "bin/node"


class McpError(Exception):
    """Raised by clients: a protocol error, or a cancelled call."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


class Result:
    """A tool's result as JSON, and the progress that was reported before it."""

    def __init__(self, value):
        self.value = value
        self.is_error = bool(value.get("isError"))
        self.progress = value.get("progress") or []
        self.structured = value.get("structuredContent")

    def of(self, kind):
        return [block for block in self.value["content"] if block["type"] == kind]

    @property
    def text(self):
        return "\n".join(block["text"] for block in self.of("text"))

    @property
    def json(self):
        return json.loads(self.of("text")[0]["text"])

    @property
    def session_id(self):
        return self.value["_meta"]["kernelgate/session_id"]

    def image(self):
        (block,) = self.of("image")
        assert block["mimeType"] == "image/png"
        data = base64.b64decode(block["data"], validate=True)
        assert data.startswith(b"\x89PNG")
        return data


class McpClient:
    """`call()` runs a tool; the other methods are the client's other requests.

    With `progress` a call collects what is reported. `on_progress` is what happens when the first report
    with a message comes: "cancel" cancels the call, and {name, args} is one more call, made beside it."""

    def call(self, name, arguments=None, **options):
        return Result(self.do("call", name=name, args=arguments or {}, **options))

    @property
    def stateless(self):
        """HTTP without MCP sessions: calls share only the sessions that they name."""
        return self.transport == "http" and self.info.get("version") == "2026-07-28"

    def tools(self):
        return {tool["name"]: tool for tool in self.do("tools")["tools"]}

    def __enter__(self):
        self.info = self.do("connect")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(McpError):
            self.do("close")
        self.end()


class NodeClient(McpClient):
    """`sdk` is "1", "2-legacy" or "2-auto"."""

    def __init__(self, sdk, transport, url=None, command=None, key=None):
        self.transport = transport
        plan = {"sdk": sdk, "transport": transport, "url": url, "command": command, "key": key}
        self.process = subprocess.Popen(
            [NODE, PROJECT / "tests/mcp/client.mjs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "KG_NODE_ROOT": str(NODE_ROOT)},
            text=True,
        )
        self._write(plan)

    def _write(self, value):
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def start(self, step, **fields):
        """Starts a long call; `finish()` returns its result."""
        self._write({"do": step, **fields})

    def finish(self):
        line = self.process.stdout.readline()
        assert line, "the client has ended"
        answer = json.loads(line)
        if "error" in answer:
            raise McpError(answer["error"], answer.get("code"))
        return answer["result"]

    def do(self, step, **fields):
        self.start(step, **fields)
        return self.finish()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()


class PythonClient(McpClient):
    """`mode` is "legacy" or "auto". The SDK needs a single task, which runs in a thread here."""

    def __init__(self, mode, transport, url=None, command=None, key=None):
        self.mode, self.transport, self.url, self.command = mode, transport, url, command
        self.key = key
        self.steps = None
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))
        self.ready = threading.Event()
        self.thread.start()
        self.ready.wait()

    def _target(self):
        from mcp import StdioServerParameters
        from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

        if self.transport == "http" and self.key:
            headers = {"Authorization": f"Bearer {self.key}"}
            return streamable_http_client(
                self.url, http_client=create_mcp_http_client(headers=headers)
            )
        if self.transport == "http":
            return self.url
        return StdioServerParameters(command=self.command[0], args=self.command[1:])

    async def _serve(self):
        self.steps = asyncio.Queue()
        self.ready.set()
        async with contextlib.AsyncExitStack() as stack:
            while (item := await self.steps.get()) is not None:
                step, fields, future = item
                try:
                    future.set_result(await getattr(self, f"_{step}")(stack, **fields))
                except Exception as error:  # noqa: BLE001 it is raised in the caller
                    future.set_exception(McpError(str(error), self._code(error)))

    @staticmethod
    def _code(error):
        return getattr(getattr(error, "error", None), "code", None)

    async def _connect(self, stack):
        from mcp import Client

        self.client = await stack.enter_async_context(Client(self._target(), mode=self.mode))
        return {
            "server": self.client.server_info.name,
            "instructions": self.client.instructions,
            "version": self.client.protocol_version,
        }

    async def _call(self, stack, name, args, timeout=60000, progress=False, on_progress=None):
        told, more = [], []

        async def tell(value, total, message):
            told.append({"progress": value, "total": total, "message": message})
            if not on_progress or not message or more:
                return
            if on_progress == "cancel":
                more.append(call.cancel())
            else:
                more.append(asyncio.ensure_future(self._call(stack, **on_progress)))

        started = time.monotonic()
        call = asyncio.ensure_future(
            self.client.call_tool(
                name,
                args,
                read_timeout_seconds=timeout / 1000,
                progress_callback=tell if progress or on_progress else None,
            )
        )
        try:
            result = self._dump(await call)
        except asyncio.CancelledError as error:
            raise McpError("cancelled", None) from error
        return {**result, "progress": told, "ms": (time.monotonic() - started) * 1000}

    @staticmethod
    def _dump(result):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def _tools(self, stack):
        return self._dump(await self.client.list_tools())

    async def _resources(self, stack):
        return self._dump(await self.client.list_resources())

    async def _read(self, stack, uri):
        return self._dump(await self.client.read_resource(uri))

    async def _prompt(self, stack, name, args):
        return self._dump(await self.client.get_prompt(name, args))

    async def _close(self, stack):
        await stack.aclose()

    def do(self, step, **fields):
        future = concurrent.futures.Future()
        self.loop.call_soon_threadsafe(self.steps.put_nowait, (step, fields, future))
        return future.result(120)

    def end(self):
        self.loop.call_soon_threadsafe(self.steps.put_nowait, None)
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.loop.close()


class WireClient(McpClient):
    """Plain HTTP, for tests of the gateway that need no SDK; in revision 2026-07-28 if `modern`."""

    transport = "http"

    def __init__(self, gateway, profile=None, key=None, modern=False):
        self.profile, self.modern = profile, modern
        self.ids = itertools.count(10)
        self.wire = None if modern else mcp_wire.Client(gateway, key=key, profile=profile)
        self.http = gateway.client_for(key) if modern else self.wire.http
        self.info = {"version": "2026-07-28" if modern else self.wire.version}
        self.threads = concurrent.futures.ThreadPoolExecutor()
        self.running = []

    def __enter__(self):
        return self

    def _request(self, method, **params):
        if self.modern:
            message = mcp_wire.modern(method, next(self.ids), **params)
            answer = mcp_wire.post_modern(None, message, self.profile, self.http)
        else:
            answer = self.wire.post(mcp_wire.request(method, next(self.ids), **params))
        assert answer.headers["content-type"] in ("application/json", "text/event-stream"), answer
        if answer.headers["content-type"] == "application/json":
            said = [answer.json()]
        else:
            said = mcp_wire.messages(mcp_wire.events(answer.text.split("\n")))
        if "error" in said[-1]:
            raise McpError(said[-1]["error"]["message"], said[-1]["error"]["code"])
        return said[-1]["result"]

    def _close(self):
        if self.wire:
            self.http.delete("/mcp", headers=self.wire.headers)

    def do(self, step, name=None, args=None, uri=None, params=None):
        named = {"name": name, "arguments": args or {}}
        steps = {
            "call": lambda: self._request("tools/call", **named),
            "prompt": lambda: self._request("prompts/get", **named),
            "complete": lambda: self._request("completion/complete", **params),
            "read": lambda: self._request("resources/read", uri=uri),
            "tools": lambda: self._request("tools/list"),
            "resources": lambda: self._request("resources/list"),
            "close": self._close,
        }
        return steps[step]()

    def start(self, step, **fields):
        """Starts a long call; `finish()` returns its result."""
        self.running.append(self.threads.submit(self.do, step, **fields))

    def finish(self):
        return self.running.pop(0).result(120)

    def end(self):
        self.threads.shutdown()
        self.http.close()


def client_of(sdk, transport, gateway=None, profile=None, key=None, flags=()):
    """`sdk` is that of NodeClient, or "python-legacy" or "python-auto". Over stdio it starts its
    own gateway."""
    url = None
    command = None
    if transport == "stdio":
        command = [BINARY, "mcp", *flags, *(["--profile", profile] if profile else [])]
    else:
        path = "/sse" if transport == "sse" else "/mcp"
        url = gateway.url + path + (f"?profile={profile}" if profile else "")
    if sdk.startswith("python-"):
        return PythonClient(sdk.removeprefix("python-"), transport, url, command, key)
    return NodeClient(sdk, transport, url, command, key)
