# SPDX-License-Identifier: Apache-2.0
"""The shell that runs a kernel's cells: each exception is reported once, whatever it is.

Its classes have the names of their base classes: settings are for these, and libraries look for
`ZMQInteractiveShell`.
"""

import asyncio
import bdb
import builtins
import contextlib
import sys
import traceback
import types

import kernelgate_hints
import kernelgate_pictures
from ipykernel import displayhook, zmqshell
from ipykernel.zmqshell import system
from IPython.core import events
from IPython.core.autocall import IPyAutocall
from IPython.core.error import UsageError
from traitlets import Instance, Type, default

# How many frames of an exception are shown, at its beginning and at its end.
_FIRST_FRAMES, _LAST_FRAMES = 10, 20
# What the shell cannot work without.
_PARTS = (
    *("events", "kernel", "compile", "displayhook", "display_pub", "display_formatter"),
    *("display_trap", "builtin_trap", "history_manager", "payload_manager"),
    *("InteractiveTB", "SyntaxTB", "input_transformer_manager", "prefilter_manager"),
)


class ExitAutocall(IPyAutocall):
    """`exit` and `quit`: they end the cell, and nothing else."""

    rewrite = False

    def __call__(self, code=None, keep_kernel=None):
        raise SystemExit(code)


class ZMQShellDisplayHook(displayhook.ZMQShellDisplayHook):
    def write_format_data(self, format_dict, md_dict=None):
        super().write_format_data(self.shell.fit(format_dict), md_dict)

    def finish_displayhook(self):
        with self.shell.kernel.files.lent():
            super().finish_displayhook()


class ZMQDisplayPublisher(zmqshell.ZMQDisplayPublisher):
    def publish(self, data, *args, **options):
        super().publish(self.shell.fit(data), *args, **options)

    def _flush_streams(self):
        with self.shell.kernel.files.lent():
            super()._flush_streams()


class EventManager(events.EventManager):
    """Keeps what a callback has raised: the cell fails with it, unless it has failed by itself."""

    failure = None

    def trigger(self, event, *args, **kwargs):
        for function in self.callbacks[event][:]:
            try:
                function(*args, **kwargs)
            except (Exception, KeyboardInterrupt) as error:
                if self.failure is None:
                    self.failure = error
                print(f"Error in callback {function} (for {event}): {error!r}", file=sys.stderr)


class ZMQInteractiveShell(zmqshell.ZMQInteractiveShell):
    displayhook_class = Type(ZMQShellDisplayHook)
    display_pub_class = Type(ZMQDisplayPublisher)
    exiter = Instance(ExitAutocall)

    @default("exiter")
    def _default_exiter(self):
        return ExitAutocall(self)

    def init_events(self):
        super().init_events()
        old = self.events
        self.events = EventManager(self, old.callbacks)
        self.events.callbacks = old.callbacks

    def ask_exit(self):
        raise SystemExit(0)

    def fit(self, data):
        return kernelgate_pictures.fit(data, self.kernel.get_parent("shell"))

    # ---- A cell

    def begin_cell(self):
        self.shown = []  # the exceptions of which there are messages
        self.display_failure = None
        self.events.failure = None
        self._last_traceback = None
        self._last_traceback_during_displayhook = False

    def remember(self):
        self._parts = {name: getattr(self, name) for name in _PARTS}

    def put_back(self):
        """Undoes what code may have done to the shell."""
        for name, part in self._parts.items():
            if getattr(self, name, None) is None:
                setattr(self, name, part)
        for name, value in list(vars(self).items()):
            if value is None and callable(getattr(type(self), name, None)):
                delattr(self, name)
        if not isinstance(self.user_ns.get("_oh"), dict):  # as after `globals().clear()`
            self.init_user_ns()
        self.user_ns["__builtins__"] = builtins

    @contextlib.contextmanager
    def _tee(self, channel):
        """IPython 9.x keeps all that is printed, and fails where a stream is None."""
        yield

    async def run_code(self, code_obj, result=None, *, async_=False):
        """IPython's, but for SystemExit, interrupts of what is awaited, and damages."""
        __tracebackhide__ = "__ipython_bottom__"
        self.sys_excepthook, sys.excepthook = sys.excepthook, self.excepthook
        guard = self.kernel.guard
        try:
            try:
                if async_:
                    await eval(code_obj, self.user_global_ns, self.user_ns)
                else:
                    exec(code_obj, self.user_global_ns, self.user_ns)
            except asyncio.CancelledError as error:
                if self.kernel.is_interrupted:
                    raise KeyboardInterrupt().with_traceback(error.__traceback__.tb_next) from None
                raise
            finally:
                guard.put_back_builtins()
                sys.excepthook = self.sys_excepthook
        except BaseException as error:
            guard.put_back()
            self._fail(error, result)
            return True
        return False

    runcode = run_code

    def _fail(self, error, result):
        if isinstance(error, SystemExit):
            code = _exit_code(error.code)
            if result is not None:
                result.exit_code = code
                result.error_in_exec = error if code else None
            if code:
                self._showtraceback(SystemExit, error, [f"SystemExit: {_text(error)}"])
            return
        if result is not None:
            result.error_in_exec = error
        if isinstance(error, bdb.BdbQuit):
            return
        with contextlib.suppress(Exception):  # notes of any kind
            kernelgate_hints.add_note(error)
        with contextlib.suppress(Exception):  # code may replace all of these; see show_at_last()
            if isinstance(error, self.custom_exceptions):
                self.CustomTB(type(error), error, error.__traceback__)
            else:
                self.showtraceback(running_compiled_code=True)

    # ---- Exceptions

    def showtraceback(
        self,
        exc_tuple=None,
        filename=None,
        tb_offset=None,
        exception_only=False,
        running_compiled_code=False,
    ):
        """IPython 9.x prints exception groups, usage errors, and what it cannot format."""
        try:
            etype, value, tb = self._get_exc_info(exc_tuple)
        except ValueError:
            print("No traceback available to show.", file=sys.stderr)
            return
        how = filename, tb_offset, exception_only, running_compiled_code
        with _cut(value):
            lines = self._format(etype, value, _without_middle(_below_shell(tb)), *how)
        self._showtraceback(etype, value, lines)
        if self.call_pdb:
            self.debugger(force=True)

    def _format(self, etype, value, tb, filename, tb_offset, exception_only, is_run):
        try:
            if issubclass(etype, SyntaxError):
                if filename:
                    value.filename = filename
                frames = traceback.extract_tb(tb) if is_run else []
                return self.SyntaxTB.structured_traceback(etype, value, frames)
            if issubclass(etype, UsageError):
                return [f"UsageError: {value}"]
            if exception_only:
                return self.InteractiveTB.get_exception_only(etype, value)
            if _has_group(value):
                return traceback.format_exception(etype, value, tb)
            if hasattr(value, "_render_traceback_"):
                return value._render_traceback_()
            return self.InteractiveTB.structured_traceback(etype, value, tb, tb_offset=tb_offset)
        except Exception:
            return _format_plainly(etype, value, tb)

    def _showtraceback(self, etype, evalue, stb):
        hook = self.displayhook
        is_display = getattr(hook, "msg", None) is not None
        if is_display and self.display_failure is not None:
            print("\n".join(map(str, stb)), file=sys.stderr)
            return
        if is_display:
            self.display_failure = evalue
        with self.kernel.files.lent():
            pass  # in order with what was printed
        hook.session.send(
            hook.pub_socket,
            "error",
            {"traceback": [str(line) for line in stb], **describe(etype, evalue)},
            hook.parent_header,
            ident=hook.topic.replace(b"execute_result", b"error") if hook.topic else None,
        )
        self.shown.append(evalue)
        self._last_traceback = stb

    def _format_exception_for_storage(self, exception, *args, **options):
        """IPython 9.x formats each exception twice, the second time for a history that nobody reads."""
        lines = self._last_traceback or []
        return {**describe(type(exception), exception), "traceback": lines}

    def show_at_last(self, error):
        """Shows the exception with which a cell has failed, if nothing has."""
        if any(shown is error for shown in self.shown):
            return
        shown = type(error), error, error.__traceback__
        try:
            ZMQInteractiveShell.showtraceback(self, shown)
        except BaseException:
            ZMQInteractiveShell._showtraceback(self, *shown[:2], _format_plainly(*shown))

    # ---- Commands

    def system_piped(self, cmd):
        """ipykernel's, but for the input: nobody can type at the terminal that IPython gives to it."""
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        self.user_ns["_exit_code"] = system("exec </dev/null; " + self.var_expand(cmd, depth=1))

    system = system_piped


def describe(etype, value):
    return {"ename": getattr(etype, "__name__", str(etype)), "evalue": _text(value)}


def _text(value):
    try:
        return str(value)
    except BaseException:
        return "<exception str() failed>"


def _exit_code(code):
    """What the system would report."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _format_plainly(etype, value, tb):
    try:
        return traceback.format_exception(etype, value, tb)
    except BaseException:
        return [f"{etype.__name__}: {_text(value)}"]


def _has_group(value):
    for error in _chain(value):
        if isinstance(error, BaseExceptionGroup):
            return True
    return False


def _chain(value):
    """An exception, and those that it is a consequence of."""
    waiting, seen = [value], []
    while waiting:
        error = waiting.pop()
        if error is None or any(error is each for each in seen):
            continue
        seen.append(error)
        waiting += [error.__cause__, error.__context__]
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
    return seen


def _below_shell(tb):
    """The part of a traceback that is the user's."""
    below = tb
    while below is not None and below.tb_frame.f_code is not RUN_CODE:
        below = below.tb_next
    return below.tb_next if below is not None else tb


@contextlib.contextmanager
def _cut(value):
    """Takes the middle out of long tracebacks: IPython formats them for seconds, and nobody reads them."""
    tracebacks = [(error, error.__traceback__) for error in _chain(value)]
    for error, tb in tracebacks:
        error.__traceback__ = _without_middle(tb)
    try:
        yield
    finally:
        for error, tb in tracebacks:
            error.__traceback__ = tb


def _without_middle(tb):
    frames = []
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    left_out = len(frames) - _FIRST_FRAMES - _LAST_FRAMES
    if left_out <= 1:
        return frames[0] if frames else None
    kept = None
    note = _frame_named(f"<{left_out} more frames>")
    for each in reversed([*frames[:_FIRST_FRAMES], note, *frames[-_LAST_FRAMES:]]):
        kept = types.TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept


def _frame_named(name):
    try:
        exec(compile("raise Exception", name, "exec"), {})
    except Exception as error:
        return error.__traceback__.tb_next


RUN_CODE = ZMQInteractiveShell.run_code.__code__
