# SPDX-License-Identifier: Apache-2.0
"""reportlab: fonts for all scripts, without a setting.

What the font that code asks for lacks is drawn with fallback fonts, from right to left and with the
letters' forms where the script has these; reportlab alone draws black boxes, and says nothing. Characters
that no font has cause a warning. The fonts of the system can be used by name: `setFont("NotoSansThai", 12)`,
`fontName="NotoSerif"`.
"""

import functools
import os
import unicodedata

import kernelgate_fonts
import kernelgate_imports

_FOLDERS = ("dejavu", "noto", "wqy", "ancient-scripts")
# The scripts whose letters change with their neighbours are in here.
_FIRST_SHAPED, _LAST_SHAPED = 0x0590, 0x2000
_RIGHT_TO_LEFT = ("R", "AL")
MAX_NAMES = 10


def change(pdfmetrics):
    """Called with the module reportlab.pdfbase.pdfmetrics when it is imported."""
    find = pdfmetrics.findFontAndRegister

    def load_or_find(name):
        return _load(name) or find(name)

    pdfmetrics.findFontAndRegister = load_or_find
    for name in _files():
        if "-" not in name:
            pdfmetrics.registerFontFamily(name, *_styles(name))
    _change_width(pdfmetrics.Font)
    kernelgate_imports.at_import(
        "reportlab.pdfbase.ttfonts", lambda module: _change_width(module.TTFont)
    )
    kernelgate_imports.at_import(
        "reportlab.pdfgen.textobject", lambda module: _change_drawing(module.PDFTextObject)
    )


# ---- Fonts by name --------------------------------------------------------------------------------


@functools.cache
def _files():
    """The paths of the fonts by name: NotoSansThai, NotoSansThai-Bold."""
    paths = {}
    for folder in _FOLDERS:
        folder = os.path.join(kernelgate_fonts.FOLDER, folder)
        for file in sorted(os.listdir(folder) if os.path.isdir(folder) else ()):
            stem, ending = os.path.splitext(file)
            if ending in (".ttf", ".ttc"):
                name = stem.removesuffix("-Regular").removesuffix("_hint")
                paths[name.replace("Oblique", "Italic")] = os.path.join(folder, file)
    return paths


def _styles(family):
    """Its fonts for normal, bold, italic and both; another one for each that it lacks."""
    styles = [family]
    for style, other in (("Bold", 0), ("Italic", 0), ("BoldItalic", 1)):
        name = f"{family}-{style}"
        styles.append(name if name in _files() else styles[other])
    return styles


def _load(name):
    """Registers a font of the system, and returns it. None: there is none of that name."""
    path = _files().get(str(name))
    if path is None:
        return None
    from reportlab.pdfbase import pdfmetrics, ttfonts

    try:
        font = ttfonts.TTFont(str(name), path)
    except ttfonts.TTFError:  # for example outlines that reportlab does not know
        return None
    pdfmetrics.registerFont(font)
    return font


@functools.cache
def _fallbacks(bold):
    """The names of the fallback fonts, in their order."""
    names = {path: name for name, path in _files().items()}
    paths = kernelgate_fonts.fallback_files(bold)
    return [names[path] for path in paths if path in names]


# ---- Which font draws what ------------------------------------------------------------------------


def _lacks(font, text):
    """Whether the font has no glyphs for a part of the text. Those of CID fonts are not known."""
    if font._dynamicFont:
        return not font.face.charToGlyph.keys() >= set(map(ord, text))
    if font._multiByte or font.face.requiredEncoding or text.isascii():
        return False
    try:
        text.encode(font.encName)
    except UnicodeEncodeError:
        return True
    return False


@functools.cache
def _font_for(character, asked, bold):
    """The name of the first font that has the character: `asked`, or a fallback. None: no font has it."""
    from reportlab.pdfbase import pdfmetrics

    if character.isspace() or unicodedata.category(character) == "Cc":
        return asked
    for name in (asked, *_fallbacks(bold)):
        if not _lacks(pdfmetrics.getFont(name), character):
            return name
    return None


def _modifies(character, name):
    """Whether it belongs to the character before it, which this font draws."""
    from reportlab.pdfbase import pdfmetrics

    modifies = unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")
    return modifies and not _lacks(pdfmetrics.getFont(name), character)


def _in_display_order(text):
    """The text from left to right, unless code has done that already: then it has Arabic letters as forms."""
    from bidi.algorithm import get_display  # the one that mirrors brackets

    is_rtl = any(unicodedata.bidirectional(character) in _RIGHT_TO_LEFT for character in text)
    has_forms = any("\ufb50" <= character <= "\ufefc" for character in text)
    return get_display(text) if is_rtl and not has_forms else text


class _Run:
    """Text of one font and direction, as the characters with those that modify each."""

    def __init__(self, name, rtl):
        self.name, self.rtl, self.clusters = name, rtl, []

    def text(self):
        """In the order of reading: what shapes it finds the direction itself."""
        return "".join(reversed(self.clusters) if self.rtl else self.clusters)


def _runs(text, asked):
    """From left to right. Characters that no font has stay with the font that was asked for."""
    bold = "bold" in asked.lower()
    runs, missing = [], []
    for character in _in_display_order(text):
        if runs and _modifies(character, runs[-1].name):
            runs[-1].clusters[-1] += character
            continue
        name = _font_for(character, asked, bold)
        if name is None and unicodedata.category(character) == "Cf":
            continue  # it would not be seen
        if name is None:
            missing.append(character)
        rtl = unicodedata.bidirectional(character) in _RIGHT_TO_LEFT
        if not runs or (runs[-1].name, runs[-1].rtl) != (name or asked, rtl):
            runs.append(_Run(name or asked, rtl))
        runs[-1].clusters.append(character)
    if missing:
        _warn(missing)
    return runs


def _warn(missing):
    """Once for a text."""
    names = [f"{each} ({unicodedata.name(each, 'no name')})" for each in dict.fromkeys(missing)]
    kernelgate_fonts.warn(
        f"No font has {', '.join(names[:MAX_NAMES])}: the PDF has a box there. Upload a font that has it, and "
        "use it: pdfmetrics.registerFont(TTFont('name', 'file.ttf'))"
    )


def _is_shaped(text):
    return any(_FIRST_SHAPED <= ord(character) < _LAST_SHAPED for character in text)


def _glyphs(text, name, size):
    """What reportlab draws for the text, and its width."""
    from reportlab.lib.abag import ABag
    from reportlab.pdfbase import pdfmetrics, ttfonts

    font = pdfmetrics.getFont(name)
    if font._dynamicFont and _is_shaped(text) and hasattr(ttfonts, "shapeFragWord"):
        fragment = ABag(fontName=name, fontSize=size), text
        shaped = ttfonts.shapeFragWord([0, fragment])[1][1]
        if isinstance(shaped, ttfonts.ShapedStr):
            return shaped, sum(each.x_advance for each in shaped.__shapeData__) * size / 1000
    return text, font.kernelgate_width(text, size)


@functools.lru_cache(4096)
def _parts(text, asked, size):
    """((name of a font, text, width), …) from left to right. None: there is nothing to change."""
    from reportlab.pdfbase import pdfmetrics

    font = pdfmetrics.getFont(asked)
    if not _lacks(font, text) and not (font._dynamicFont and _is_shaped(text)):
        return None
    return tuple((run.name, *_glyphs(run.text(), run.name, size)) for run in _runs(text, asked))


# ---- What reportlab calls -------------------------------------------------------------------------


def _is_plain(text):
    return isinstance(text, str) and not hasattr(text, "__shapeData__")


def _change_width(kind):
    kind.kernelgate_width = plain_width = kind.stringWidth

    def width(self, text, size, encoding="utf8"):
        parts = _parts(str(text), self.fontName, size) if _is_plain(text) else None
        if parts is None:
            return plain_width(self, text, size, encoding)
        return sum(width for _, _, width in parts)

    kind.stringWidth = width


def _change_drawing(kind):
    draw_plain = kind._formatText

    def draw(self, text):
        parts = _parts(str(text), self._fontname, self._fontsize) if _is_plain(text) else None
        if parts is None:
            return draw_plain(self, text)
        asked, code = self._fontname, []
        for name, part, _ in parts:
            code += [_switch(self, name), draw_plain(self, part)]
        return " ".join([*code, _switch(self, asked)])

    kind._formatText = draw


def _switch(text, name):
    """The operators that make it the font of a text object; of fonts with subsets reportlab adds them."""
    from reportlab.lib.rl_accel import fp_str
    from reportlab.pdfbase import pdfmetrics

    if text._fontname == name:
        return ""
    text._fontname, text._curSubset = name, -1
    if pdfmetrics.getFont(name)._dynamicFont:
        return ""
    internal = text._canvas._doc.getInternalFontName(name)
    return f"{internal} {fp_str(text._fontsize)} Tf {fp_str(text._leading)} TL"
