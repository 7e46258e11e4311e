# SPDX-License-Identifier: Apache-2.0
"""Changes modules of others when they are imported.

It is imported in every Python of the environment, so it imports nothing that an interpreter has not
loaded at its start.
"""

import sys


class _Hook:
    """A finder and a loader as importlib describes them."""

    def __init__(self, name, before, after):
        self._name, self._before, self._after = name, before, after

    def find_spec(self, name, path, target=None):
        if name != self._name:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._before()
        self._loader.exec_module(module)
        self._after(module)


def at_import(name, after, before=lambda: None):
    """Calls `before()` and `after(module)` around the execution of a module that nobody has imported."""
    sys.meta_path.insert(0, _Hook(name, before, after))
