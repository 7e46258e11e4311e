# SPDX-License-Identifier: Apache-2.0
"""A client of a kernel's debugger: DAP requests in Jupyter's messages, as JupyterLab sends them."""

import itertools

from jupyter_wire import one


class DebugClient:
    def __init__(self, channels):
        self.channels = channels
        self._numbers = itertools.count(1)
        self.ask("initialize", clientID="test", adapterID="", linesStartAt1=True, pathFormat="path")
        self.ask("attach")

    def reply(self, command, **arguments):
        request = {"type": "request", "command": command, "arguments": arguments}
        request["seq"] = next(self._numbers)
        sent = self.channels.send("debug_request", request, channel="control")
        return one(self.channels.until_idle(sent), "debug_reply")["content"]

    def ask(self, command, **arguments):
        """The body of a reply that says success."""
        reply = self.reply(command, **arguments)
        assert reply["success"], reply
        return reply.get("body")

    def break_at(self, code, line):
        """Sets a breakpoint in a cell; returns the path that the cell has for the debugger."""
        cell = self.ask("dumpCell", code=code)["sourcePath"]
        self.ask("setBreakpoints", source={"path": cell}, breakpoints=[{"line": line}])
        self.ask("configurationDone")
        return cell

    def wait_for(self, condition):
        """Reads until that holds for all that has come since `seen` was cleared."""
        while not condition(self.channels.seen):
            self.channels.seen.append(self.channels.next())

    def stopped_thread(self):
        """Waits for a stop; returns the thread's id."""

        def stops(seen):
            return [it["content"] for it in seen if it["content"].get("event") == "stopped"]

        self.wait_for(stops)
        stop = stops(self.channels.seen)[0]
        self.channels.seen.clear()
        return stop["body"]["threadId"]

    def frames(self, thread):
        return self.ask("stackTrace", threadId=thread)["stackFrames"]
