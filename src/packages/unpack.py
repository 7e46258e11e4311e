# SPDX-License-Identifier: Apache-2.0
"""Unpacks wheels for kernelgate, inside a sandbox of their own that has no network.

    unpack.py WHEEL FIRST

Writes what the wheel's files become, from its entry FIRST on, one after the other to PART: as many
as make a part, and at least one. The result is one JSON object on stdout: {"files": [{"path",
"size", "run"}], "next": FIRST of the next part, or null, "python": the tag of this interpreter}.

A wheel's folders go where `pip install --target` puts them (Binary distribution format, PyPA).
Each module comes with its byte code, since nobody can write beside it later.
"""

import configparser
import importlib.util
import io
import json
import marshal
import posixpath
import shutil
import struct
import sys
import warnings
import zipfile

PART = "/mnt/data/part"
PART_BYTES = 32 << 20
PART_FILES = 1000
PART_NAMES = 64 << 10  # bytes, about
SEEN_AT = "/mnt/data/.kg-packages/"  # where sessions import from
HASH_BASED, UNCHECKED = 0b01, 0b00  # PEP 552
SCRIPT = """#!{python}
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({function}())
"""


def place(name):
    """The path of a wheel's file below the set's folder; None: it is not wanted."""
    if "/__pycache__/" in f"/{name}":
        return None
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    kind, _, rest = rest.partition("/")
    if kind in ("purelib", "platlib", "data"):
        return rest
    return f"bin/{rest}" if kind == "scripts" else None


def compiled(path, source):
    """A module's byte code, which is not compared with its source; None: it does not compile."""
    try:
        code = compile(source, SEEN_AT + path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    head = importlib.util.MAGIC_NUMBER + struct.pack("<I", HASH_BASED | UNCHECKED)
    return head + importlib.util.source_hash(source) + marshal.dumps(code)


def contents_of(wheel, info):
    """(path, data or a stream, whether it is a program) of what one file of the wheel becomes."""
    path = place(info.filename)
    if not path or info.is_dir():
        return
    is_script = path.startswith("bin/")
    run = is_script or bool((info.external_attr >> 16) & 0o111)
    if not is_script and not path.endswith(".py"):
        yield path, wheel.open(info), run
        return
    data = wheel.read(info)
    if data.startswith(b"#!python"):
        data = b"#!" + sys.executable.encode() + b"\n" + data.partition(b"\n")[2]
    yield path, data, run
    code = compiled(path, data) if path.endswith(".py") else None
    if code:
        yield importlib.util.cache_from_source(path), code, False


def programs_of(wheel):
    """The programs that the wheel's entry points name."""
    found = {}
    names = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    for name in [name for name in names if name.count("/") == 1]:
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
        parser.optionxform = str
        parser.read_string(wheel.read(name).decode())
        for section in ("console_scripts", "gui_scripts"):
            for program, target in parser.items(section) if parser.has_section(section) else ():
                module, _, function = target.partition("[")[0].strip().partition(":")
                text = SCRIPT.format(
                    python=sys.executable,
                    module=module.strip(),
                    first=function.strip().partition(".")[0],
                    function=function.strip(),
                )
                found[f"bin/{posixpath.basename(program)}"] = text.encode()
    for path, text in found.items():
        yield path, text, True


def entries_of(wheel):
    """What can be asked for by number: each file of the wheel, and then its programs."""
    last_of_path = {place(info.filename): info for info in wheel.infolist()}
    programs = list(programs_of(wheel))
    for path, _, _ in programs:
        last_of_path.pop(path, None)
    for info in last_of_path.values():
        yield lambda info=info: contents_of(wheel, info)
    yield lambda: programs


def unpack(path, first):
    """Write one part."""
    files = []
    size = names = 0
    after = None
    with zipfile.ZipFile(path) as wheel, open(PART, "wb") as part:
        for number, entry in enumerate(entries_of(wheel)):
            if number < first:
                continue
            if files and (size >= PART_BYTES or len(files) >= PART_FILES or names >= PART_NAMES):
                after = number
                break
            for name, data, run in entry():
                before = size
                shutil.copyfileobj(io.BytesIO(data) if isinstance(data, bytes) else data, part)
                size = part.tell()
                names += len(name)
                files.append({"path": name, "size": size - before, "run": run})
    return {"files": files, "next": after, "python": sys.implementation.cache_tag}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    try:
        print(json.dumps(unpack(sys.argv[1], int(sys.argv[2]))))
    except OSError:
        raise  # the disk is full
    except Exception as why:  # what zipfile and configparser raise for other files
        sys.exit(f"ERROR: {posixpath.basename(sys.argv[1])} is not a wheel: {why}")
