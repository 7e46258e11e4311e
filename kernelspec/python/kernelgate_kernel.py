# SPDX-License-Identifier: Apache-2.0
"""What kernelgate adds to ipykernel: messages that always encode, output in pieces, variables,
environment.

kernel.json and ipython_kernel_config.py name these functions; the user's namespace never does.
"""

import json
import os

from ipykernel import iostream
from IPython import get_ipython
from jupyter_client.jsonutil import json_clean, json_default

_PIECE_CHARS = 256 * 1024

_saved_env = {}


class OutStream(iostream.OutStream):
    """Sends what was printed in pieces: no message grows with the output of 0.2 seconds."""

    def _flush_buffers(self):
        for parent, text in super()._flush_buffers():
            for start in range(0, len(text), _PIECE_CHARS):
                yield parent, text[start : start + _PIECE_CHARS]


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
