# SPDX-License-Identifier: Apache-2.0
"""Speeds up the first use of matplotlib, and gives matplotlib and reportlab fonts for other scripts.

A .pth file imports this in every Python of the environment, so it imports nothing that an interpreter
has not loaded at its start. When matplotlib's font manager is imported, it gets a prebuilt list of
fonts, and fallback fonts after the families that code asks for. kernelgate_reportlab does the same for
reportlab.
"""

import os
import sys

import kernelgate_imports

FONT_LISTS = os.path.join(sys.prefix, "share", "kernelgate", "matplotlib")
FOLDER = "/usr/share/fonts/truetype"
_SCRIPTS = (
    "Arabic", "Hebrew", "Thai", "Devanagari", "Bengali", "Tamil", "Telugu", "Gujarati", "Gurmukhi",
    "Kannada", "Malayalam", "Oriya", "Sinhala", "Khmer", "Lao", "Myanmar", "Ethiopic", "Georgian",
    "Armenian",
)  # fmt: skip
# (regular, bold) of what draws characters that a font lacks, in the order in which they are tried.
FALLBACKS = (
    ("dejavu/DejaVuSans.ttf", "dejavu/DejaVuSans-Bold.ttf"),
    *((f"noto/NotoSans{name}-Regular.ttf", f"noto/NotoSans{name}-Bold.ttf") for name in _SCRIPTS),
    ("wqy/wqy-microhei.ttc", "wqy/wqy-microhei.ttc"),  # Chinese, Japanese, Korean
    ("ancient-scripts/Symbola_hint.ttf", "ancient-scripts/Symbola_hint.ttf"),  # emoji
)
BOLD = 600


def fallback_files(bold):
    """The files of those fallback fonts that there are."""
    paths = [os.path.join(FOLDER, pair[bold]) for pair in FALLBACKS]
    return [path for path in paths if os.path.exists(path)]


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


def _is_bold(module, prop):
    weight = module.FontProperties._from_any(prop).get_weight()
    return module.weight_dict.get(weight, weight) >= BOLD


def _add_fallback(module):
    find = module.FontManager._find_fonts_by_props
    of_file = getattr(module, "FontPath", lambda path, index: path)  # not in older versions
    fallbacks = [[of_file(path, 0) for path in fallback_files(bold)] for bold in (False, True)]

    def find_with_fallback(self, prop, fontext="ttf", directory=None, **kwargs):
        paths = find(self, prop, fontext, directory, **kwargs)
        if fontext == "afm":
            return paths
        names = {os.path.basename(path) for path in paths}  # matplotlib has DejaVu Sans, too
        more = fallbacks[_is_bold(module, prop)]
        return [*paths, *(path for path in more if os.path.basename(path) not in names)]

    module.FontManager._find_fonts_by_props = find_with_fallback


def _finish(module):
    _add_fallback(module)
    module._log.addFilter(_Once())


def warn(message):
    """Warns where code of the user has caused it, once for each place."""
    import warnings

    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_code.co_filename.startswith(sys.prefix):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _shorten_warnings(module):
    """matplotlib names all fonts that it has tried."""

    def warn_on_missing_glyph(codepoint, fontnames):
        names = sorted(fontnames.split(", "))
        some = [name for name in names if not name.startswith("Noto Sans ")]
        if len(some) < len(names):
            some.append("Noto Sans of all scripts")
        character = chr(codepoint).encode("ascii", "namereplace").decode("ascii")
        warn(f"Glyph {codepoint} ({character}) missing from font(s) {', '.join(some)}.")

    module.warn_on_missing_glyph = warn_on_missing_glyph


def _change_reportlab(module):
    import kernelgate_reportlab

    kernelgate_reportlab.change(module)


kernelgate_imports.at_import("matplotlib.font_manager", _finish, before=_provide_font_lists)
kernelgate_imports.at_import("matplotlib._text_helpers", _shorten_warnings)
kernelgate_imports.at_import("reportlab.pdfbase.pdfmetrics", _change_reportlab)
