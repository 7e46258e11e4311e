# SPDX-License-Identifier: Apache-2.0
"""What kernelgate adds to ipykernel: messages that always encode, variables, environment.

kernel.json and ipython_kernel_config.py name these functions; the user's namespace never does.
"""

import json
import os

from IPython import get_ipython
from jupyter_client.session import json_packer

_saved_env = {}


def pack(obj):
    """Encode a message as jupyter_client does, with U+FFFD for what UTF-8 cannot hold."""
    try:
        return json_packer(obj)
    except UnicodeEncodeError:
        return json_packer(_encodable(obj))


def _encodable(obj):
    if isinstance(obj, str):
        return obj.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(obj, dict):
        return {_encodable(key): _encodable(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [_encodable(value) for value in obj]
    return obj


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
