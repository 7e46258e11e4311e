# SPDX-License-Identifier: Apache-2.0
"""What kernelgate adds to ipykernel: messages that always encode, output in pieces, variables,
environment, packages that come later.

kernel.json and ipython_kernel_config.py name these functions; the user's namespace never does.
"""

import io
import json
import os
import sys

import zmq
from ipykernel import iostream
from IPython import get_ipython
from jupyter_client.jsonutil import json_clean, json_default

# Of one message: none grows with the output of 0.2 seconds. Whoever else uses the gateway waits for
# one piece at a time; larger ones also cost more for each byte, since they leave the caches.
_PIECE_CHARS = 24 * 1024
# Printed and not handed to the socket yet: what comes out of a flood at once, on everybody's way.
_UNSENT_CHARS = 24 * 1024

_saved_env = {}


class OutStream(iostream.OutStream):
    """Sends what was printed in pieces, and waits where it is printed faster than it is taken."""

    def __init__(self, session, pub_thread, name, *args, **options):
        # When its queue is full the socket makes its thread wait, instead of dropping silently.
        pub_thread.socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._unsent_chars = 0
        super().__init__(session, pub_thread, name, *args, **options)

    def write(self, string):
        written = super().write(string)
        self._unsent_chars += written or 0
        if self._unsent_chars > _UNSENT_CHARS:
            self.flush()
        return written

    def _flush_buffers(self):
        self._unsent_chars = 0
        for parent, text in super()._flush_buffers():
            for start in range(0, len(text), _PIECE_CHARS):
                yield parent, text[start : start + _PIECE_CHARS]


def warm_up():
    """Pay what first executions would: imports, the first figure, the first table."""
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd

    figure = plt.figure()
    figure.add_subplot().plot(np.arange(3))
    figure.savefig(io.BytesIO(), format="png")
    plt.close(figure)
    pd.DataFrame({"a": [1]})._repr_html_()


def pack(obj):
    """Encode a message as jupyter_client does; what JSON and UTF-8 cannot hold is replaced."""
    try:
        return _dump(obj).encode()
    except (TypeError, ValueError):  # not JSON, or a lone surrogate
        return _encodable(_dump(json_clean(obj))).encode()


def _dump(obj):
    return json.dumps(obj, default=json_default, ensure_ascii=False, allow_nan=False)


def _encodable(text):
    # Surrogate pairs become the characters that they stand for, lone surrogates U+FFFD.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def set_variables(text):
    """Put the members of a JSON object into the user's namespace."""
    get_ipython().user_ns.update(json.loads(_encodable(text)))


def set_env(text):
    """Set environment variables from a JSON object, until restore_env()."""
    restore_env()
    for name, value in json.loads(_encodable(text)).items():
        previous = os.environ.get(name)
        os.environ[name] = value
        _saved_env[name] = previous


def restore_env():
    """Put back what set_env() changed."""
    while _saved_env:
        name, value = _saved_env.popitem()
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class _LaterFolders:
    """Makes Python forget that a folder of PYTHONPATH was missing, once it is there."""

    def __init__(self):
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self._missing = [path for path in paths if path and not os.path.isdir(path)]

    def find_spec(self, name, path=None, target=None):
        for folder in [folder for folder in self._missing if os.path.isdir(folder)]:
            sys.path_importer_cache.pop(folder, None)
            self._missing.remove(folder)
        return None  # the finders after this one go on


def load_ipython_extension(shell):
    """Let a flood of output wait for its reader, where ipykernel would drop messages silently."""
    sys.meta_path.insert(0, _LaterFolders())
    thread = shell.kernel.iopub_thread
    thread.schedule(lambda: thread.socket.setsockopt(zmq.XPUB_NODROP, 1))
