# SPDX-License-Identifier: Apache-2.0
"""Speeds up the first use of matplotlib, and adds a font for Chinese, Japanese and Korean.

A .pth file imports this in every Python of the environment, so it imports nothing that an interpreter
has not loaded at its start. When matplotlib's font manager is imported, it gets a prebuilt list of
fonts, and a fallback font after the families that code asks for.
"""

import os
import sys

import kernelgate_imports

FONT_LISTS = os.path.join(sys.prefix, "share", "kernelgate", "matplotlib")
FALLBACK_FAMILY = "WenQuanYi Micro Hei"


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


def _finish(module):
    _add_fallback(module)
    module._log.addFilter(_Once())


kernelgate_imports.at_import("matplotlib.font_manager", _finish, before=_provide_font_lists)
