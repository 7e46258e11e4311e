# SPDX-License-Identifier: Apache-2.0
"""What to do about exceptions that are the sandbox's doing, as a note that is shown with them."""

import errno
import os
import socket
import sys

# Packages whose modules have another name.
_PACKAGES = {
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "pptx": "python-pptx",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_CAUSES = 20
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH)


def add_note(error):
    """Adds a note to an exception if it is known what helps."""
    note = _module(error) or (None if _has_way_out() else _network(error))
    if note and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _module(error):
    if not isinstance(error, ModuleNotFoundError) or not isinstance(error.name, str):
        return None
    name = error.name.partition(".")[0]
    if not name.isidentifier() or name in sys.modules or name in sys.stdlib_module_names:
        return None
    package = _PACKAGES.get(name, name.replace("_", "-"))
    if name in _PACKAGES:
        which = f"The package {package} has the module {name}:"
    else:
        which = f"If a package has the module {name},"
    return (
        f"{which} `%pip install {package}` adds it, as the tool install_packages (MCP) does, and "
        f'POST /api/v1/sessions/SESSION/packages {{"packages":["{package}"]}}.'
    )


def _has_way_out():
    return any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in os.environ)


def _network(error):
    """Libraries wrap the system's error in their own; one that was raised while it was handled is another."""
    for _ in range(_CAUSES):  # code may make a circle of them
        if error is None:
            break
        if isinstance(error, socket.gaierror) or getattr(error, "errno", None) in _UNREACHABLE:
            return (
                "There is no network in this sandbox. Upload what the code needs, or let the gateway fetch it: "
                "POST /api/v1/sessions with file_urls. Packages are installed by `%pip install`."
            )
        is_of_a_connection = isinstance(error, OSError) or "Connect" in type(error).__name__
        error = error.__cause__ or (error.__context__ if is_of_a_connection else None)
    return None
