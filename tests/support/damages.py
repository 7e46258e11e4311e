# SPDX-License-Identifier: Apache-2.0
"""What code may do to the interpreter that runs it, for tests of what the next cells then say."""

HEAD = """
import asyncio, builtins, io, json, os, signal, sys, threading, time
ip = get_ipython()
def fail(*args, **options): raise OSError
"""

NAMES = (
    *("compile", "exec", "eval", "open", "len", "isinstance", "repr", "type", "getattr", "str"),
    *("dict", "super", "Exception", "KeyboardInterrupt", "__import__", "__build_class__"),
)

# By name: the code, and its status where that is not `ok`. What they break is whole in the next cell.
UNDONE = {
    **{f"{name} is None": f"sys.{name} = None" for name in ("stdout", "stderr", "stdin")},
    **{f"{name} is closed": f"sys.{name}.close()" for name in ("stdout", "stderr", "stdin")},
    **{f"{name} is deleted": f"del sys.{name}" for name in ("stdout", "stderr", "stdin")},
    "stdout is an object": "sys.stdout = object()",
    "stderr's write raises": "class W: write = flush = fail\nsys.stderr = W()",
    "stdout without flush": (
        "class Tee:\n"
        "    def __init__(self, file): self.file = file\n"
        "    def write(self, text): return self.file.write(text)\n"
        "sys.stdout = Tee(sys.stdout)"
    ),
    "print is deleted": "del builtins.print",
    **{f"{name} is None": f"builtins.{name} = None" for name in NAMES},
    **{f"{name} raises": f"builtins.{name} = fail" for name in NAMES[4:9]},
    "hooks raise": "sys.excepthook = threading.excepthook = sys.unraisablehook = fail",
    "the display hook raises": "sys.displayhook = fail",
    "showtraceback says nothing": "ip.showtraceback = lambda *args, **options: None",
    "showtraceback raises": "ip.showtraceback = ip._showtraceback = fail",
    "no tracebacks": "ip.InteractiveTB = ip.SyntaxTB = None",
    "a handler of exceptions says nothing": "ip.set_custom_exc((Exception,), lambda *a, **o: None)",
    "a handler of exceptions raises": "ip.set_custom_exc((Exception,), fail)",
    "handled exceptions are None": "ip.custom_exceptions = None",
    "traceback's functions are None": "import traceback\ntraceback.format_exception = None",
    "the loop is closed": ("asyncio.get_event_loop().close()", "error"),
    "no loop is set": "asyncio.set_event_loop(None)",
    "another loop is set": "asyncio.set_event_loop(asyncio.new_event_loop())",
    "the loop is stopped": "asyncio.get_event_loop().stop()",
    "SIGINT is ignored": "signal.signal(signal.SIGINT, signal.SIG_IGN);",
    "SIGINT kills": "signal.signal(signal.SIGINT, signal.SIG_DFL);",
    "little recursion": (
        "for limit in range(30, 300):\n"
        "    try: sys.setrecursionlimit(limit); break\n"
        "    except RecursionError: pass"
    ),
    "much recursion": "sys.setrecursionlimit(2**31 - 1)",
    "0, 1 and 2 are closed": "for number in range(3): os.close(number)",
    "all files are closed": ("os.closerange(0, 1000)", "died"),
    "no modules": "sys.modules.clear()",
    "other modules": "sys.modules = {}",
    "no paths": "sys.path.clear(); sys.meta_path.clear(); sys.path_hooks.clear()",
    "time's functions are None": "time.time = time.monotonic = time.sleep = None",
    "threading's are None": "threading.Lock = threading.current_thread = threading.Event = None",
    "os's are None": "os.getpid = os.read = os.write = None",
    "json's are None": "json.dumps = json.loads = json.JSONEncoder = json.JSONDecoder = None",
    "json's raise": "json.dumps = json.loads = fail",
    "no garbage collector": "import gc; gc.disable(); gc.set_threshold(1)",
    "tracing raises": ("sys.settrace(fail)", "error"),
    "profiling raises": ("sys.setprofile(fail)", "error"),
    "no more files": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "no more memory": "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**20, 2**20))",
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "no logs": "import logging; logging.shutdown(); logging.disable(50)",
    "the folder is gone": "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
    "no environment": "os.environ.clear()",
    "no __builtins__": "del __builtins__",
    "__builtins__ is None": "__builtins__ = None",
    "reset": "ip.reset()",
    "no variables": "globals().clear()",
    "IPython's names are None": "In = Out = _ = __ = get_ipython = exit = quit = _oh = _ih = None",
    "the namespace is new": "ip.user_ns = {}",
    "no formatter": "ip.display_formatter = None",
    "parts are None": ("ip.events = ip.kernel = ip.displayhook = ip.display_pub = None", "error"),
    "more parts are None": "ip.compile = ip.payload_manager = None",
    "no history": ("ip.history_manager = None", "error"),
    "methods are None": "ip.run_cell = ip.run_code = ip.transform_cell = ip._showtraceback = None",
    "no exit functions": "import atexit; atexit._clear()",
    "numpy raises": "import numpy; numpy.seterr(all='raise'); numpy.ndarray = None",
    "few digits": "sys.set_int_max_str_digits(640)",
    "threads do not take turns": "sys.setswitchinterval(100)",
    "a transformer of syntax raises": "class T: visit = fail\nip.ast_transformers.append(T())",
    "a value cannot be shown": ("class V: __repr__ = fail\nV()", "error"),
    "a value's HTML cannot be shown": ("class V: _repr_html_ = fail\nV()", "error"),
    "a value shows no string": ("class V: __repr__ = lambda self: 5\nV()", "error"),
    "a value is huge": "class V: __repr__ = lambda self: 'x' * 20_000_000\nV()",
    "an exception cannot be shown": (
        "class E(Exception): __str__ = __repr__ = fail\nraise E",
        "error",
    ),
    "an exception shows itself": (
        "class E(Exception): _render_traceback_ = fail\nraise E",
        "error",
    ),
}

AWAITS = "await __import__('asyncio').sleep(0); 3"
SHOWS = {"1 + 1": "OSError", AWAITS: "OSError"}

# What holds for the next cells, too: their exceptions.
KEPT = {
    "a formatter raises": ("ip.display_formatter.format = fail", SHOWS),
    "a transformer of text raises": (
        "ip.input_transformers_cleanup.append(fail)",
        {"1 / 0": "OSError", "print(1)": "OSError", **SHOWS},
    ),
    **{
        f"a callback of {event} raises": (
            f"ip.events.register('{event}', fail)",
            {"print(1)": "OSError", **SHOWS},
        )
        for event in ("pre_run_cell", "pre_execute")
    },
}
