# SPDX-License-Identifier: Apache-2.0
"""Pictures: those that are too large for a request's client are made smaller, and the original is kept in
a file; show() shows figures of the backend Agg, too.

A client says so in its execute_request's content, `{"kernelgate": {"max_image_side": 2000}}`: models
refuse a whole conversation for a picture with more pixels than they take.
"""

import base64
import io
import itertools
import os
import struct
import sys

import kernelgate_imports
from IPython import get_ipython
from IPython.display import display

# Of a picture in both types, clients see the first.
_SCALED = {"image/png": "PNG", "image/jpeg": "JPEG"}


def fit(data, request):
    """A MIME bundle, with smaller pictures if the request asks for them."""
    wish = request.get("content", {}).get("kernelgate", {})
    side = wish.get("max_image_side") if isinstance(wish, dict) else None
    if not isinstance(side, int) or side <= 0:
        return data
    mime = next((mime for mime in _SCALED if mime in data), None)
    if mime is None:
        return data
    try:
        smaller = _smaller(data[mime], mime, side)
    except Exception as error:
        print(f"a picture could not be made smaller: {error!r}", file=sys.stderr)
        return data
    if smaller is None:
        return data
    return {**{name: value for name, value in data.items() if name not in _SCALED}, mime: smaller}


def _smaller(value, mime, side):
    if mime == "image/png" and _png_fits(value, side):
        return None
    from PIL import Image

    original = value if isinstance(value, bytes) else base64.b64decode(value)
    with Image.open(io.BytesIO(original)) as picture:
        before = picture.size
        if max(before) <= side:
            return None
        picture.thumbnail((side, side))
        out = io.BytesIO()
        picture.save(out, _SCALED[mime])
    after = f"{picture.width} x {picture.height}"
    where = _keep(original, _SCALED[mime].lower())
    print(
        f"a picture of {before[0]} x {before[1]} pixels is shown with {after}, so that models take it; "
        f"the whole picture is {where}",
        file=sys.stderr,
    )
    return base64.b64encode(out.getvalue()).decode()


def _png_fits(value, side):
    """Without Pillow, which takes a while to import."""
    head = value[:24] if isinstance(value, bytes) else base64.b64decode(value[:32])
    return head[12:16] == b"IHDR" and max(struct.unpack(">II", head[16:24])) <= side


def _keep(original, ending):
    for number in itertools.count(1):
        name = f"picture-{number}.{ending}"
        try:
            with open(name, "xb") as file:
                file.write(original)
            return f"in the file {name}"
        except FileExistsError:
            continue
        except OSError as error:
            if os.path.exists(name):
                os.unlink(name)
            return f"lost: {error.strerror}"


# ---- Agg


def _show_figures_of_agg(backend_bases):
    """matplotlib draws nothing in show() with the backend Agg, and says nothing where there is no screen."""
    show = backend_bases.FigureManagerBase.show

    def show_or_display(manager):
        import matplotlib
        from IPython.core import pylabtools

        if matplotlib.get_backend().lower() != "agg":
            return show(manager)
        figure = manager.canvas.figure
        if type(figure) not in get_ipython().display_formatter.formatters["image/png"]:
            pylabtools.select_figure_formats(get_ipython(), {"png"})
        display(figure)
        backend_bases.Gcf.destroy(manager)

    backend_bases.FigureManagerBase.show = show_or_display


kernelgate_imports.at_import("matplotlib.backend_bases", _show_figures_of_agg)
