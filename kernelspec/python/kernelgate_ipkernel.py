# SPDX-License-Identifier: Apache-2.0
"""The kernel: every cell gets a reply that says how it ended, and every interrupt acts."""

import asyncio
import contextlib
import contextvars
import functools
import logging
import os
import signal
import sys
import threading

import kernelgate_guard
import kernelgate_savepoints
import kernelgate_shell
import kernelgate_streams
from ipykernel import ipkernel
from IPython.core.error import StdinNotImplementedError
from IPython.core.interactiveshell import _asyncio_runner
from traitlets import Type

NOBODY = "nobody can answer here: pass the value in the code, as a variable or in a file"


class IPythonKernel(ipkernel.IPythonKernel):
    shell_class = Type(kernelgate_shell.ZMQInteractiveShell)
    is_interrupted = False
    _task = None
    _wanted = None

    def __init__(self, **members):
        super().__init__(**members)
        self.guard = kernelgate_guard.Guard(self.shell.user_module)

    @functools.cached_property
    def files(self):
        return kernelgate_streams.StandardFiles(self._stdout, self._stderr)

    def start(self):
        super().start()
        self._keep_errors_of_the_loop()
        self.shell.remember()
        signal.signal(signal.SIGINT, self._on_sigint)
        sys.unraisablehook = self._on_unraisable
        self.own = kernelgate_savepoints.Own(self.parent)

    def take(self, old):
        """In a fork of the process of `old`, whose shell this kernel has."""
        self.guard = old.guard
        self.files.take_over(old.files)

    def when_idle(self, function):
        """Calls a function when the request that is being handled has been answered."""
        self._wanted = function

    async def dispatch_shell(self, msg, /, subshell_id=None, *, concurrent=False):
        await super().dispatch_shell(msg, subshell_id, concurrent=concurrent)
        if self._wanted is None or subshell_id is not None or concurrent:
            return
        function, self._wanted = self._wanted, None
        try:
            function()
        except Exception:
            self.log.exception("what was to be done between two requests has failed")

    def _keep_errors_of_the_loop(self):
        """They are for the gateway. ipykernel 7.x writes them to descriptor 2, which is the user's by now."""
        tornado, general = logging.getLogger("tornado"), logging.getLogger("tornado.general")
        general.propagate, general.handlers = False, tornado.handlers
        file = open(self._stderr._original_stdstream_copy, "w", buffering=1, closefd=False)
        for handler in tornado.handlers:
            handler.setStream(file)

    # ---- Interrupts

    def set_parent(self, ident, parent, channel="shell"):
        if channel == "shell":
            self.is_interrupted = False  # from now on a client can mean this request
        super().set_parent(ident, parent, channel)

    def pre_handler_hook(self):
        # ipykernel 7.x loses interrupts until here, and lets them end a request without a reply.
        if self.get_parent("shell")["header"]["msg_type"] == "execute_request":
            self.saved_sigint_handler = signal.signal(signal.SIGINT, self._on_sigint)
        else:
            super().pre_handler_hook()

    def _on_sigint(self, number, frame):
        """While no code runs, or while it awaits something."""
        self.is_interrupted = True
        if self._task is None:
            return
        while frame is not None:
            if frame.f_code is kernelgate_shell.RUN_CODE:
                raise KeyboardInterrupt
            frame = frame.f_back
        # ipykernel 7.x does not wake the loop, so its cell ends when something else does.
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def _on_unraisable(self, unraisable):
        """An interrupt during a destructor, which can raise nothing, is raised in the code around it."""
        if unraisable.exc_type is not KeyboardInterrupt or sys.gettrace():
            sys.__unraisablehook__(unraisable)
            return
        sys._getframe(1).f_trace = _raise_interrupt
        sys.settrace(_ignore)  # without it no frame is traced

    @contextlib.contextmanager
    def _interruptible(self):
        """An interrupt raises KeyboardInterrupt, also if it came while the cell was on its way here."""
        if threading.current_thread() is not threading.main_thread():  # of a subshell
            yield
            return
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self.is_interrupted:
                raise KeyboardInterrupt
            yield
        finally:
            signal.signal(signal.SIGINT, self._on_sigint)

    # ---- A cell

    async def do_execute(
        self,
        code,
        silent,
        store_history=True,
        user_expressions=None,
        allow_stdin=False,
        *,
        cell_meta=None,
        cell_id=None,
    ):
        if not self.iopub_thread.thread.is_alive():
            os._exit(os.EX_SOFTWARE)  # nothing that code prints would arrive
        options = {
            "store_history": store_history,
            "silent": silent,
            "cell_id": cell_id,
            "cell_meta": cell_meta,
        }
        try:
            reply = await self._execute(code, options, allow_stdin)
            if reply["status"] == "ok":
                reply["user_expressions"] = self.shell.user_expressions(user_expressions or {})
            return reply
        except BaseException as error:
            # Code has damaged what reports its exceptions.
            content = {"traceback": [], **kernelgate_shell.describe(type(error), error)}
            self.send_response(self.iopub_socket, "error", content, ident=self._topic("error"))
            return {"status": "error", "execution_count": self.shell.execution_count - 1, **content}

    async def _execute(self, code, options, allow_stdin):
        shell = self.shell
        result = failure = None
        count = shell.execution_count
        shell.begin_cell()
        self._forward_input(allow_stdin)
        self.files.give()
        try:
            with self._interruptible():
                result = await self._run(code, options)
        except BaseException as error:
            failure = error
            if self.is_interrupted or isinstance(error, KeyboardInterrupt):
                failure = KeyboardInterrupt()  # before the user's code: no frame of it is his
        finally:
            self._put_back()
            self.files.take()
        if failure is not None and options["store_history"] and shell.execution_count == count:
            shell.execution_count += 1
        reply = self._reply(result, failure)
        reply["payload"] = shell.payload_manager.read_payload()
        shell.payload_manager.clear_payload()
        return reply

    def _put_back(self):
        self.guard.put_back()
        self.shell.put_back()
        self._restore_input()
        asyncio.get_running_loop()._stopping = False  # code may stop loops, but not the kernel's

    async def _run(self, code, options):
        shell = self.shell
        transformed, failed = code, None
        try:
            transformed = shell.transform_cell(code)
        except Exception:
            failed = sys.exc_info()
        prepared = {"transformed_cell": transformed, "preprocessing_exc_tuple": failed}
        if shell.loop_runner is _asyncio_runner and shell.should_run_async(code, **prepared):
            return await self._run_async(shell.run_cell_async(code, **prepared, **options), options)
        return shell.run_cell(code, **options)

    async def _run_async(self, cell, options):
        context = contextvars.copy_context()
        task = asyncio.get_running_loop().create_task(cell, context=context)
        result = None
        if threading.current_thread() is threading.main_thread():
            self._task = task
            signal.signal(signal.SIGINT, self._on_sigint)
        try:
            result = await task
        finally:
            self._task = None
            # What the cell has set is there in the next one.
            for variable, value in context.items():
                if variable.get(None) is not value:
                    variable.set(value)
            self.shell.events.trigger("post_execute")
            if not options["silent"]:
                self.shell.events.trigger("post_run_cell", result)
        return result

    def _reply(self, result, failure):
        shell = self.shell
        error = failure
        if error is None:
            error = result.error_before_exec or result.error_in_exec
        error = error or shell.display_failure or shell.events.failure
        reply = {
            "status": "ok",
            "execution_count": shell.execution_count - 1,
            "user_expressions": {},
        }
        exit_code = getattr(result, "exit_code", None)
        if exit_code is not None:
            reply["exit_code"] = exit_code
        if error is not None:
            shell.show_at_last(error)
            reply |= {
                "status": "error",
                "traceback": [str(line) for line in shell._last_traceback or []],
                **kernelgate_shell.describe(type(error), error),
            }
        return reply

    # ---- Input

    def raw_input(self, prompt=""):
        if not self._allow_stdin:
            raise StdinNotImplementedError(f"input() was called, but {NOBODY}")
        return super().raw_input(prompt)

    def getpass(self, prompt="", stream=None, **options):
        if not self._allow_stdin:
            raise StdinNotImplementedError(f"getpass() was called, but {NOBODY}")
        return super().getpass(prompt, stream, **options)


def _raise_interrupt(frame, event, arg):
    sys.settrace(None)
    frame.f_trace = None
    raise KeyboardInterrupt


def _ignore(frame, event, arg):
    return None
