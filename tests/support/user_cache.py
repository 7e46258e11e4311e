# SPDX-License-Identifier: Apache-2.0
"""Files that take long to make and are alike in each work tree, in the user's cache folder, where
script/common and script/cluster keep what they make, too."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import time

FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
DAY_S = 24 * 3600
MAX_AGE_S = 7 * DAY_S  # they contain packages of distributions
UNUSED_S = 14 * DAY_S


def get(kind, name, key, write):
    """The path of such a file; if there is none, or it is old, `write(path, work)` makes it, with the help
    of an empty folder. Those that no work tree has used for long are removed. Of concurrent calls for one
    name one makes it, and the others wait."""
    folder = FOLDER / "kernelgate" / kind
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{key}"
    with open(folder / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_fresh(path):
            new, work = folder / f"{name}.new", folder / f"{name}.work"
            shutil.rmtree(work, ignore_errors=True)  # of a call that was killed
            work.mkdir()
            try:
                write(new, work)
            finally:
                shutil.rmtree(work)
            new.rename(path)
        # The time of its last use; that of its making stays.
        os.utime(path, (time.time(), path.stat().st_mtime))
        _remove_unused(folder, name)
    return path


def _is_fresh(path):
    with contextlib.suppress(FileNotFoundError):
        return time.time() - path.stat().st_mtime < MAX_AGE_S
    return False


def _remove_unused(folder, name):
    for path in folder.glob(f"{name}.*"):
        if path.suffix != ".lock" and time.time() - path.stat().st_atime > UNUSED_S:
            path.unlink()
