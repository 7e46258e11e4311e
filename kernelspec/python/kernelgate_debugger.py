# SPDX-License-Identifier: Apache-2.0
"""ipykernel's debugger, loaded when a client asks for it first.

It imports debugpy: 140 modules, a quarter of the processor time of a kernel's start. replace() puts
this module in the place of ipykernel.debugger.
"""

import asyncio
import importlib
import importlib.util
import sys

from IPython import get_ipython

NAME = "ipykernel.debugger"

_is_debugpy_available = importlib.util.find_spec("debugpy") is not None  # ipykernel looks at it


def replace():
    """Called before ipykernel makes its kernel."""
    sys.modules.setdefault(NAME, sys.modules[__name__])


def _load():
    """Returns ipykernel's own module."""
    if sys.modules.get(NAME) is sys.modules[__name__]:
        del sys.modules[NAME]
    return importlib.import_module(NAME)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_load(), name)


def _go_on_after_interrupts(pydevd):
    """A thread that is interrupted at a breakpoint keeps the mark that it is to stop, so it would stop at its
    next line for ever, without an event (debugpy 1.8)."""
    from _pydevd_bundle.pydevd_thread_lifecycle import internal_run_thread

    wait = pydevd.PyDB._do_wait_suspend

    def wait_until_resumed(self, thread, *args):
        try:
            return wait(self, thread, *args)
        except KeyboardInterrupt:
            internal_run_thread(thread, pydevd.set_additional_thread_info)
            raise

    pydevd.PyDB._do_wait_suspend = wait_until_resumed


class Debugger:
    """Takes the place of ipykernel's: the methods that a kernel calls, all in its control thread."""

    def __init__(
        self,
        log,
        debugpy_stream,
        event_callback,
        shell_socket,
        session,
        kernel_modules,
        just_my_code=False,
        filter_internal_frames=True,
    ):
        self.log = log
        self.debugpy_stream = debugpy_stream
        self.event_callback = event_callback
        self.shell_socket = shell_socket
        self.session = session
        self.kernel_modules = kernel_modules
        self.just_my_code = just_my_code
        self.filter_internal_frames = filter_internal_frames
        self._debugger = None
        self._is_made = asyncio.Event()

    def _make(self):
        before = set(sys.modules)
        self._debugger = _load().Debugger(
            self.log,
            self.debugpy_stream,
            self.event_callback,
            self.shell_socket,
            self.session,
            self.kernel_modules,
            self.just_my_code,
            self.filter_internal_frames,
        )
        loaded = [sys.modules[name] for name in sys.modules.keys() - before]
        files = [getattr(module, "__file__", None) for module in loaded]
        self.kernel_modules.extend(filter(None, files))  # it does not step into itself
        _go_on_after_interrupts(sys.modules["pydevd"])
        get_ipython().events.register("pre_run_cell", self._trace_again)
        self._is_made.set()

    @property
    def tcp_client(self):
        return self._debugger.tcp_client

    def _trace_again(self, _):
        """Python ends the tracing of a thread in which an interrupt has hit the tracing itself."""
        if self._debugger.is_started and not sys.gettrace():
            sys.modules["debugpy"].trace_this_thread(True)

    async def process_request(self, message):
        if not self._debugger:
            self._make()
        response = {
            "type": "response",
            "request_seq": message.get("seq"),
            "command": message.get("command"),
        }
        # debugpy answers when a thread has gone on, so not at all if none is stopped; and ipykernel
        # waits, and handles no other request of the control channel (ipykernel 7.x).
        if response["command"] == "continue" and not self._debugger.stopped_threads:
            return {**response, "success": True, "body": {"allThreadsContinued": True}}
        try:
            return await self._debugger.process_request(message)
        except Exception as error:  # ipykernel would send no reply (7.x)
            reason = f"{type(error).__name__}: {error}"
            return {**response, "success": False, "message": reason}

    async def handle_stopped_event(self):
        await self._is_made.wait()
        await self._debugger.handle_stopped_event()
