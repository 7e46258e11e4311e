# SPDX-License-Identifier: Apache-2.0
"""Speeds up the first use of matplotlib, and adds a font for Chinese, Japanese and Korean.

A .pth file imports this in every Python of the environment, so it imports nothing that an interpreter
has not loaded at its start. When matplotlib's font manager is imported, it gets a prebuilt list of
fonts, and a fallback font after the families that code asks for.
"""

import os
import sys

FONT_LISTS = os.path.join(sys.prefix, "share", "kernelgate", "matplotlib")
FALLBACK_FAMILY = "WenQuanYi Micro Hei"


class _FontManagerHook:
    """A finder and a loader as importlib describes them."""

    def find_spec(self, name, path, target=None):
        if name != "matplotlib.font_manager":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        _provide_font_lists()
        self._loader.exec_module(module)
        _add_fallback(module)
        module._log.addFilter(_Once())


class _Once:
    """Passes each warning once; matplotlib repeats that of a missing font for every text it draws."""

    def __init__(self):
        self._seen = set()

    def filter(self, record):
        message = record.getMessage()
        return message not in self._seen and not self._seen.add(message)


def _provide_font_lists():
    # The environment is read-only and matplotlib locks the lists it reads, so it gets copies.
    import shutil

    import matplotlib

    try:
        for name in os.listdir(FONT_LISTS):
            target = os.path.join(matplotlib.get_cachedir(), name)
            if not os.path.exists(target):
                shutil.copyfile(os.path.join(FONT_LISTS, name), target)
    except OSError:
        pass  # Without a list matplotlib builds its own.


def _add_fallback(module):
    find = module.FontManager._find_fonts_by_props
    # The font has only one weight; asking for another would cause a warning.
    fallback = module.FontProperties(family=FALLBACK_FAMILY)

    def find_with_fallback(self, prop, fontext="ttf", directory=None, **kwargs):
        paths = find(self, prop, fontext, directory, **kwargs)
        try:
            path = self.findfont(fallback, fontext, directory, fallback_to_default=False)
        except ValueError:
            return paths
        return paths if path in paths else [*paths, path]

    module.FontManager._find_fonts_by_props = find_with_fallback


sys.meta_path.insert(0, _FontManagerHook())
