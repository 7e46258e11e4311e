# SPDX-License-Identifier: Apache-2.0
"""ipykernel's debugger, loaded when a client asks for it first.

It imports debugpy: 140 modules, a quarter of the processor time of a kernel's start. replace() puts
this module in the place of ipykernel.debugger.
"""

import asyncio
import importlib
import importlib.util
import sys

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
        self._is_made.set()

    @property
    def tcp_client(self):
        return self._debugger.tcp_client

    async def process_request(self, message):
        if not self._debugger:
            self._make()
        return await self._debugger.process_request(message)

    async def handle_stopped_event(self):
        await self._is_made.wait()
        await self._debugger.handle_stopped_event()
