# SPDX-License-Identifier: Apache-2.0
"""The tools that code may call: those of the client that has sent it, and those of MCP servers of the
gateway's.

    import tools
    tools.search(query="rain", limit=3)          # waits for the result: a Python value, or a ToolError
    await tools.aio.search(query="rain")         # the same for asyncio, so that gather() runs calls side by side
    tools.call("odd name", {"query": "rain"})    # by its name, whatever that is
    tools.github.search_issues(q="rain")         # of the MCP server that the gateway's operator calls github
    dir(tools), help(tools.search), tools.find("weather")

The module has two names: `tools`, unless there is a tools.py of your own, and `kernelgate_tools`.
The protocol is in src/tools/tool_link.h; the agent listens on the abstract socket that the environment
variable KERNELGATE_SOCKET names.
"""

import asyncio as _asyncio
import contextlib as _contextlib
import inspect as _inspect
import itertools as _itertools
import json as _json
import keyword as _keyword
import os as _os
import re as _re
import socket as _socket
import sys as _sys
import threading as _threading
import time as _time
import weakref as _weakref

__all__ = ["ResultFile", "ToolError", "aio", "call", "find"]

_GREETING = b'{"method": "tools", "params": {}}\n'
_LARGEST_LINE = 512 * 1024
_MOST_LINKS = 32  # of threads, in one process; all of a sandbox may have 64


class ToolError(Exception):
    """A call of a tool has failed. `code` says how: `tool_error` (the tool itself says so), `timeout`,
    `cancelled`, `invalid_request` (wrong arguments), `not_found`, …"""

    def __init__(self, message, code="tool_error"):
        super().__init__(message)
        self.code = code


class ResultFile(str):
    """The path of a file with a result that was too large for a value: JSON."""

    def load(self):
        """The result as a Python value."""
        with open(self, encoding="utf-8") as file:
            return _json.load(file)


# ---- Requests and answers as lines ----------------------------------------------------------


def _plain(value):
    """What json does not know, but a caller would expect it to: numbers and arrays of numpy, times, sets,
    tables of pandas."""
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return value.to_dict("records")
    for name in ("tolist", "isoformat"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, _os.PathLike):
        return _os.fspath(value)
    raise TypeError(f"a {type(value).__name__} cannot be an argument of a tool: use what JSON has")


def _line(request):
    try:
        text = _json.dumps(request, default=_plain, allow_nan=False)
    except ValueError as error:
        raise ToolError(f"arguments: {error}", "invalid_request") from None
    if len(text) >= _LARGEST_LINE:
        raise ToolError(
            f"the arguments are {len(text)} bytes as JSON; the limit is {_LARGEST_LINE}. Write them to a "
            "file and pass its name",
            "invalid_request",
        )
    return text.encode() + b"\n"


def _error_of(answer):
    message = answer.get("error") or answer.get("message") or "the call has failed"
    return ToolError(message, answer.get("code") or "tool_error")


def _result_of(answer):
    if "error" in answer or answer.get("type") == "error":
        raise _error_of(answer)
    if "file" in answer:
        return ResultFile(answer["file"])
    return answer["result"]


def _lost():
    return ToolError(
        "the gateway has ended or restarted while the call was under way: it is not known whether the tool "
        "has run",
        "lost",
    )


def _connect():
    name = _os.environ.get("KERNELGATE_SOCKET", "@kernelgate")
    link = _socket.socket(_socket.AF_UNIX)
    try:
        link.connect("\0" + name[1:] if name.startswith("@") else name)
        link.sendall(_GREETING)
    except OSError as error:
        link.close()
        raise ToolError(f"there is no gateway to call tools of: {error}", "not_found") from None
    return link


def _peek(link):
    """What a connection would say now: b"" at its end, None where it says nothing."""
    try:
        return link.recv(1, _socket.MSG_PEEK | _socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""


# ---- Calls that block: a connection each, which is used again -------------------------------


class _Link:
    def __init__(self):
        self._socket = _connect()
        self._file = self._socket.makefile("rb")
        self._ids = _itertools.count(1)

    def ask(self, request):
        """Sends a request and waits for its answer."""
        line, answer = _line({"id": next(self._ids), **request}), b""
        with _contextlib.suppress(OSError):  # who refuses the connection has said why
            self._socket.sendall(line)
        with _contextlib.suppress(OSError):
            answer = self._file.readline()
        if not answer:
            raise _lost()
        return _json.loads(answer)

    def is_usable(self):
        """Whether the gateway has not ended it meanwhile."""
        return _peek(self._socket) is None

    def close(self):
        """Withdraws the call, also where a fork holds the same connection."""
        with _contextlib.suppress(OSError):
            self._socket.shutdown(_socket.SHUT_RDWR)
        self._file.close()
        self._socket.close()


class _Pool:
    """Connections that no call uses. A fork starts with none: they are its parent's."""

    def __init__(self):
        self._lock = _threading.Lock()
        self._places = _threading.BoundedSemaphore(_MOST_LINKS)
        self._idle = []
        self._pid = _os.getpid()

    def ask(self, request):
        if self._pid != _os.getpid():
            self.__init__()
        with self._places:
            return self._ask(request)

    def _ask(self, request):
        link = self._take() or _Link()
        try:
            answer = link.ask(request)
        except ToolError as error:
            if error.code == "lost":
                link.close()
            else:
                self._put(link)
            raise
        except BaseException:  # an interrupt: the end of the connection withdraws the call
            link.close()
            raise
        self._put(link)
        return answer

    def _take(self):
        while True:
            with self._lock:
                if not self._idle:
                    return None
                link = self._idle.pop()
            if link.is_usable():
                return link
            link.close()

    def _put(self, link):
        with self._lock:
            if len(self._idle) < 8:
                self._idle.append(link)
                return
        link.close()


_pool = _Pool()


# ---- Calls of asyncio: one connection a loop ------------------------------------------------


class _AsyncLink:
    """Without a task: the loop's watch of the socket gives answers to the futures that wait."""

    def __init__(self, loop):
        self._loop = loop
        self._pid = _os.getpid()
        self._socket = _connect()
        self._socket.setblocking(False)
        self._in = bytearray()
        self._out = bytearray()
        self._ids = _itertools.count(1)
        self._waiting = {}
        self._reads = False

    def is_usable(self):
        return self._socket.fileno() >= 0 and self._pid == _os.getpid()

    def has_ended(self):
        """Nobody hears that while no call waits."""
        return not self._waiting and _peek(self._socket) == b""

    async def ask(self, request):
        number = next(self._ids)
        line = _line({"id": number, **request})
        future = self._waiting[number] = self._loop.create_future()
        self._watch()
        self._send(line)
        try:
            return await future
        finally:
            if self._waiting.pop(number, None) and self.is_usable():
                self._send(_line({"id": number, "method": "cancel"}))
            self._watch()

    def _watch(self):
        """Reads only while somebody waits, so that an idle loop can end."""
        reads = bool(self._waiting) and self.is_usable()
        if reads != self._reads and self._socket.fileno() >= 0:
            if reads:
                self._loop.add_reader(self._socket, self._read)
            else:
                self._loop.remove_reader(self._socket)
            self._reads = reads

    def _send(self, line):
        self._out += line
        if len(self._out) == len(line):
            self._flush()

    def _flush(self):
        try:
            sent = self._socket.send(self._out)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end()
            return
        del self._out[:sent]
        if self._out:
            self._loop.add_writer(self._socket, self._flush)
        else:
            self._loop.remove_writer(self._socket)

    def _read(self):
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._in += data
        *lines, self._in = self._in.split(b"\n")
        for line in lines:
            answer = _json.loads(line)
            future = self._waiting.pop(answer.get("id"), None)
            if future and not future.done():
                future.set_result(answer)
            elif "id" not in answer:  # about the connection, which ends
                self._fail(_error_of(answer))
        if not data:
            self._end()
        self._watch()

    def _fail(self, error):
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)

    def _end(self):
        self._fail(_lost())
        self._watch()
        self._loop.remove_writer(self._socket)
        self._socket.close()


_links = _weakref.WeakKeyDictionary()


async def _ask_async(request):
    loop = _asyncio.get_running_loop()
    link = _links.get(loop)
    if link is None or not link.is_usable() or link.has_ended():
        link = _links[loop] = _AsyncLink(loop)
    return await link.ask(request)


# ---- What code sees -------------------------------------------------------------------------


def _ask_list(**which):
    answer = _pool.ask({"method": "list", **which})
    if "tools" not in answer:
        raise _error_of(answer)
    return answer["tools"], answer.get("servers", ())


def _list():
    """All tools."""
    return _ask_list()[0]


_KEPT_S = 5  # tools of servers, of which there may be hundreds, and which change seldom
_OWN_KEPT_S = 1  # a call finds out itself what is there
_kept = {}  # by the server, "" for the client: when it was asked, and the answer


def _ask_kept(server, seconds):
    known = _kept.get(server)
    if not known or _time.monotonic() - known[0] >= seconds:
        known = _kept[server] = (_time.monotonic(), _ask_list(server=server))
    return known[1]


def _list_own(fresh=False):
    """The tools of the client, and the servers of the gateway."""
    return _ask_kept("", 0 if fresh else _OWN_KEPT_S)


def _list_near(name):
    """The tools among which one of that name can be."""
    known, servers = _list_own(True)
    server = name.partition(".")[0]
    if any(each["name"] == server for each in servers):
        known = [*known, *_ask_list(server=server)[0]]
    return known


def _list_server(server, fresh=False):
    """The tools of a server."""
    return _ask_kept(server, 0 if fresh else _KEPT_S)[0]


def _identifier(name):
    """The name as an attribute."""
    text = _re.sub(r"\W", "_", name)
    if text[:1].isdigit():
        text = "_" + text
    return text + "_" if _keyword.iskeyword(text) else text


_TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def _properties(tool):
    """Its arguments: what the schema says of each. Schemas are the client's, whatever they are."""
    properties = tool["input_schema"].get("properties")
    properties = properties if isinstance(properties, dict) else {}
    return {name: about if isinstance(about, dict) else {} for name, about in properties.items()}


def _required(tool):
    required = tool["input_schema"].get("required")
    return required if isinstance(required, list) else []


def _parameters(tool):
    required, properties = _required(tool), _properties(tool)
    for name in sorted(properties, key=lambda each: each not in required):
        if not name.isidentifier() or _keyword.iskeyword(name):
            continue
        about = properties[name]
        kind = about.get("type")
        yield _inspect.Parameter(
            name,
            _inspect.Parameter.KEYWORD_ONLY,
            default=_inspect.Parameter.empty if name in required else about.get("default"),
            annotation=_TYPES.get(kind if isinstance(kind, str) else "", _inspect.Parameter.empty),
        )


def _document(tool):
    lines = [tool.get("description") or "A tool without a description."]
    properties = _properties(tool)
    if properties:
        lines += ["", "Arguments:"]
    for name, about in properties.items():
        kind = about.get("type", "any value")
        lines.append(f"    {name} ({kind}): {about.get('description', '')}".rstrip().rstrip(":"))
    return "\n".join(lines)


def _own_name(tool):
    """A tool's name within its server, or that of a client's tool."""
    return tool["name"][len(tool["server"]) + 1 :] if tool.get("server") else tool["name"]


def _describe(function, tool):
    function.__name__ = function.__qualname__ = _identifier(_own_name(tool))
    function.__module__ = f"tools.{_identifier(tool['server'])}" if tool.get("server") else "tools"
    function.__doc__ = _document(tool)
    try:
        function.__signature__ = _inspect.Signature(list(_parameters(tool)))
    except (TypeError, ValueError):
        pass
    return function


def _call_request(name, arguments):
    if not isinstance(arguments, dict):
        raise TypeError("the arguments of a tool are a dict of names and values")
    for file in (_sys.stdout, _sys.stderr):  # what was printed comes before the call
        with _contextlib.suppress(Exception):
            file.flush()
    return {"method": "call", "name": name, "arguments": arguments}


def call(name, arguments=None, /, **more):
    """Calls the tool of that name, and returns its result."""
    return _result_of(_pool.ask(_call_request(name, {**(arguments or {}), **more})))


async def _call_async(name, arguments=None, /, **more):
    """Calls the tool of that name, and returns its result."""
    return _result_of(await _ask_async(_call_request(name, {**(arguments or {}), **more})))


def find(text=""):
    """The tools with all words of `text` in their name or description: a dict of the names, and what each
    is for."""
    words = text.lower().split()
    return {
        tool["name"]: tool.get("description", "")
        for tool in _list()
        if all(word in f"{tool['name']} {tool.get('description', '')}".lower() for word in words)
    }


def _function(tool, is_async):
    name = tool["name"]

    def blocking(*args, **arguments):
        _refuse_positions(name, args)
        return call(name, arguments)

    async def awaited(*args, **arguments):
        _refuse_positions(name, args)
        return await _call_async(name, arguments)

    return _describe(awaited if is_async else blocking, tool)


def _refuse_positions(name, args):
    if args:
        raise TypeError(f"{name}() takes arguments by name only, as in {name}(query=…)")


def _choose(known, name):
    for tool in known:
        if name in (_own_name(tool), _identifier(_own_name(tool))):
            return tool
    return None


class _Server:
    """The tools of an MCP server of the gateway's."""

    def __init__(self, name, is_async):
        self._name = name
        self._is_async = is_async

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        tool = _choose(_list_server(self._name), name) or _choose(_list_server(self._name, True), name)
        if tool is None:
            known = ", ".join(_own_name(each) for each in _list_server(self._name)[:20])
            state = next((each for each in _list_own()[1] if each["name"] == self._name), {})
            why = state.get("error") or (f"there are {known}" if known else "it offers none")
            raise AttributeError(f"the server {self._name} has no tool {name}: {why}")
        return _function(tool, self._is_async)

    def __dir__(self):
        return [_identifier(_own_name(tool)) for tool in _list_server(self._name, True)]

    def __repr__(self):
        return f"<the tools of the server {self._name}>"


def _find_in(own, name, is_async):
    known, servers = own
    tool = _choose(known, name)
    if tool:
        return _function(tool, is_async)
    for server in servers:
        if name in (server["name"], _identifier(server["name"])):
            return _Server(server["name"], is_async)
    return None


def _find(name, is_async):
    """For attributes: what looks for any, as in hasattr(), learns that there is none, also where no tools can
    be called."""
    if name.startswith("__") or (name.startswith("_") and name.endswith("_")):
        raise AttributeError(name)
    try:
        # Code that calls in a loop does not ask each time.
        found = _find_in(_list_own(), name, is_async) or _find_in(_list_own(True), name, is_async)
    except ToolError as error:
        raise AttributeError(f"there is no tool {name}: {error}") from None
    if found:
        return found
    known, servers = _list_own()
    names = [tool["name"] for tool in known[:20]] + [server["name"] for server in servers]
    why = "there are " + ", ".join(names) if names else "this execution was given none"
    raise AttributeError(f"there is no tool {name}: {why}")


def _names():
    known, servers = _list_own(True)
    return [_identifier(each["name"]) for each in [*known, *servers]]


class _Aio:
    """The same tools for asyncio."""

    call = staticmethod(_call_async)

    def __getattr__(self, name):
        return _find(name, True)

    def __dir__(self):
        return [*_names(), "call"]


aio = _Aio()


def __getattr__(name):
    return _find(name, False)


def __dir__():
    return _names() + __all__


# ---- kg-tool --------------------------------------------------------------------------------

_USAGE = """usage: kg-tool                       lists the tools that may be called now
       kg-tool NAME --help            says what one does, and its arguments
       kg-tool NAME [--ARGUMENT VALUE]...
       kg-tool NAME --json TEXT       arguments as a JSON object; - reads it from stdin

The result is printed as JSON; a string as it is. Exit status: 0, 1 (the call has failed), 2 (usage)."""


def _value(text, about):
    """A flag's value, by the schema: JSON, unless a string is wanted."""
    kinds = about.get("type")
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return text
    try:
        return _json.loads(text)
    except ValueError:
        return text


def _flags(args, properties):
    """The arguments of a command line. Raises ValueError."""
    arguments = {}
    while args:
        flag, equals, value = args.pop(0).partition("=")
        name = flag[2:]
        if name not in properties and name.replace("-", "_") in properties:
            name = name.replace("-", "_")
        if not flag.startswith("--") or not name:
            raise ValueError(f"{flag}: arguments are flags, as in --query rain")
        if name == "json" and "json" not in properties:
            text = value if equals else args.pop(0) if args else "-"
            more = _json.loads(_sys.stdin.read() if text == "-" else text)
            if not isinstance(more, dict):
                raise ValueError("--json: it must be an object")
            arguments.update(more)
            continue
        about = properties.get(name, {})
        if not equals and about.get("type") == "boolean" and (not args or args[0][:2] == "--"):
            value = "true"
        elif not equals:
            if not args:
                raise ValueError(f"{flag} needs a value")
            value = args.pop(0)
        item = about.get("items") if about.get("type") == "array" else None
        if isinstance(item, dict) and not value.lstrip().startswith("["):
            arguments.setdefault(name, []).append(_value(value, item))
        else:
            arguments[name] = _value(value, about)
    return arguments


def _print_help(tool):
    print(tool["name"] + ": " + (tool.get("description") or "no description"))
    for name, about in _properties(tool).items():
        needed = ", required" if name in _required(tool) else ""
        print(
            f"  --{name} ({about.get('type', 'any')}{needed})  {about.get('description', '')}".rstrip()
        )


def main(args):
    """Runs kg-tool's command line; returns the exit status."""
    if args[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return 0
    try:
        if not args:
            for tool in _list():
                first = (tool.get("description") or "").partition("\n")[0]
                print(f"{tool['name']}\t{first}".rstrip())
            return 0
        known = _list_near(args[0])
        tool = next((each for each in known if each["name"] == args[0]), None)
        if tool is None:
            names = ", ".join(each["name"] for each in known[:20]) or "none"
            print(f"kg-tool: there is no tool {args[0]}; there are: {names}", file=_sys.stderr)
            return 2
        if args[1:2] in (["-h"], ["--help"]):
            _print_help(tool)
            return 0
        result = call(tool["name"], _flags(args[1:], _properties(tool)))
    except ToolError as error:
        print(f"kg-tool: {error}", file=_sys.stderr)
        return 1
    except (ValueError, TypeError) as error:
        print(f"kg-tool: {error}", file=_sys.stderr)
        return 2
    print(result if isinstance(result, str) else _json.dumps(result, ensure_ascii=False))
    return 0
