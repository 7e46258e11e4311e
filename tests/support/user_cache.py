# SPDX-License-Identifier: Apache-2.0
"""Files that take long to make and are alike in each work tree, in the user's cache folder, where
script/cluster keeps Kubernetes, too."""

import contextlib
import fcntl
import os
import pathlib
import time

FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MAX_AGE_S = 7 * 24 * 3600  # they contain packages of distributions


def get(kind, name, key, write):
    """The path of such a file; if there is none, or it is old, `write(path)` makes it. Of each name
    only the last one is kept. Of concurrent calls one makes it, and the others wait."""
    folder = FOLDER / "kernelgate" / kind
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{key}"
    with open(folder / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime < MAX_AGE_S:
                return path
        new = folder / f"{name}.new"
        write(new)
        for left in folder.glob(f"{name}.*"):
            if left not in (new, folder / f"{name}.lock"):
                left.unlink()
        new.rename(path)
    return path
