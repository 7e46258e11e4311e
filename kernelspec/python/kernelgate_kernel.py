# SPDX-License-Identifier: Apache-2.0
"""kernelgate's additions to ipykernel: messages that always encode, variables, environment,
packages installed later, a debugger that is loaded when it is used.

kernel.json and ipython_kernel_config.py use these functions; the user's namespace has none of them.
"""

import io
import json
import math
import numbers
import os
import sys
import threading

import kernelgate_debugger
import kernelgate_pip
import kernelgate_tables
import zmq
from IPython import get_ipython
from jupyter_client.jsonutil import json_clean, json_default

# Not json.dumps(): code may replace that.
_dump = json.JSONEncoder(default=json_default, ensure_ascii=False, allow_nan=False).encode
_load = json.JSONDecoder().decode

_saved_env = {}
_folder_is_set = False

kernelgate_debugger.replace()


def warm_up():
    """Do in advance what would delay the first execution: imports, a first figure, a first table."""
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd

    figure = plt.figure()
    figure.add_subplot().plot(np.arange(3))
    figure.savefig(io.BytesIO(), format="png")
    plt.close(figure)
    pd.DataFrame({"a": [1]})._repr_html_()


def pack(obj):
    """Encode a message as jupyter_client does; values that JSON or UTF-8 cannot hold are replaced."""
    try:
        return _dump(obj).encode()
    except (TypeError, ValueError):  # not JSON, or a lone surrogate
        return _encodable(_dump(json_clean(_with_nulls(obj)))).encode()


def unpack(data):
    if isinstance(data, bytes):
        data = data.decode("utf-8", "replace")
    return _load(data)


def _with_nulls(obj):
    """jupyter_client 8.x makes strings of the numbers that JSON does not have."""
    if isinstance(obj, numbers.Real) and not isinstance(obj, numbers.Integral):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, dict):
        return {key: _with_nulls(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [_with_nulls(value) for value in obj]
    return obj


def _encodable(text):
    # Surrogate pairs become the characters that they encode, lone surrogates U+FFFD.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def set_folder(text):
    """Go to the folder that a JSON object names, which is made if it is missing, and set HOME. Once: a
    gateway that takes the kernel over asks again, and code may have gone elsewhere."""
    global _folder_is_set
    if _folder_is_set:
        return
    place = _load(_encodable(text))
    folder = place["folder"]
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    if "home" in place:
        os.environ["HOME"] = place["home"]
        kernelgate_tables.show_tables(get_ipython())
    get_ipython().history_manager.dir_hist[:] = [folder]  # where `%cd -` can go back to
    _folder_is_set = True


def set_variables(text):
    """Put the members of a JSON object into the user's namespace."""
    get_ipython().user_ns.update(_load(_encodable(text)))


def set_env(text):
    """Set environment variables from a JSON object, until restore_env()."""
    restore_env()
    for name, value in _load(_encodable(text)).items():
        previous = os.environ.get(name)
        os.environ[name] = value
        _saved_env[name] = previous


def restore_env():
    """Undo the changes of set_env()."""
    while _saved_env:
        name, value = _saved_env.popitem()
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class _LaterFolders:
    """Makes Python notice folders of PYTHONPATH that did not exist when it started."""

    def __init__(self):
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self._missing = [path for path in paths if path and not os.path.isdir(path)]

    def find_spec(self, name, path=None, target=None):
        for folder in [folder for folder in self._missing if os.path.isdir(folder)]:
            sys.path_importer_cache.pop(folder, None)
            self._missing.remove(folder)
        return None  # the other finders continue


def _wake_by_callback(iopub):
    """Lets the thread that sends messages wake itself by a callback of its loop.

    ipykernel lets it use the pipe by which others wake it for each of its messages. That holds 2,000
    wake-ups: one print of some megabytes after the other fills it, and the thread then waits for itself.
    """
    schedule = iopub.schedule

    def schedule_in_order(function):
        if threading.current_thread() is iopub.thread:
            iopub._events.append(function)
            iopub.io_loop.add_callback(iopub._handle_event, None)
        else:
            schedule(function)

    iopub.schedule = schedule_in_order


def load_ipython_extension(shell):
    """Make a flood of output wait for its reader; ipykernel would drop messages silently, or hang."""
    sys.meta_path.insert(0, _LaterFolders())
    kernelgate_pip.register_magics(shell)
    if os.access("/bin/bash", os.X_OK):
        os.environ.setdefault("SHELL", "/bin/bash")  # what `!` uses
    attach(shell.kernel.iopub_thread)


def attach(iopub):
    """For each process of a kernel: to the thread that sends its messages."""
    _wake_by_callback(iopub)
    iopub.schedule(lambda: iopub.socket.setsockopt(zmq.XPUB_NODROP, 1))
