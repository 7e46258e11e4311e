# SPDX-License-Identifier: Apache-2.0
"""`pip install` where there is no network: the gateway installs, as it does for its own clients.

The programs pip, pip3 and uv of the environment, `python -m pip` and the magics %pip and %uv come here.
What needs no index (`pip list`, …) is left to the real pip, and so is what only that can do where the
sandbox has a way out. The protocol is in src/agent/tenant.h; the agent listens on SOCKET.
"""

import contextlib
import glob
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time

SOCKET = "\0kernelgate"
TARGET = "/mnt/data/.kg-own"  # for wheels that the session itself has
FOLDERS = (TARGET, "/mnt/data/.kg-packages")
# What runs the real pip on purpose sets this, for `python -m pip`.
REAL = "KERNELGATE_REAL_PIP"

_AT_A_TIME = 32  # requirements that the gateway takes in one request
_BUSY_SECONDS = 30
_LATER = ("session_busy", "draining")  # errors after which the same request may succeed
_OTHER_WAYS = "Packages are installed by POST /api/v1/sessions/SESSION/packages or the tool install_packages (MCP)."

# Options that change nothing here; of the second kind a value follows.
_IGNORED = {
    *("--user", "--no-user", "--no-cache-dir", "--no-cache", "--break-system-packages", "--system"),
    *("--disable-pip-version-check", "--no-input", "--no-color", "--prefer-binary", "--isolated"),
    *(
        "--no-warn-script-location",
        "--no-warn-conflicts",
        "--compile",
        "--no-compile",
        "-y",
        "--yes",
    ),
    *(
        "--no-build-isolation",
        "--use-pep517",
        "--require-virtualenv",
        "--debug",
        "-v",
        "-vv",
        "-vvv",
    ),
    *("--verbose", "--no-python-version-warning", "--compile-bytecode", "--no-progress"),
}
_IGNORED_WITH_VALUE = {
    *("--root-user-action", "--progress-bar", "--timeout", "--default-timeout", "--retries"),
    *("--cache-dir", "--upgrade-strategy", "--only-binary", "--exists-action", "--log", "--color"),
    *("--use-feature", "--use-deprecated", "--trusted-host", "--keyring-provider", "--link-mode"),
}
# Of the real pip, before its command.
_GLOBAL_WITH_VALUE = {
    *_IGNORED_WITH_VALUE,
    "--proxy",
    "--cert",
    "--client-cert",
    "--python",
    "--log-file",
}
_NEED_AN_INDEX = ("download", "wheel", "index", "search")
# What pip says of the gateway's own ways.
_NOISE = re.compile(
    r"Would install |Saved |Successfully downloaded |Looking in |Collecting \S+ ?@ |Processing /"
    r"|Requirement already satisfied"
)


class Refusal(Exception):
    """What is not possible here, in a sentence for people."""


class _ForRealPip(Exception):
    """What needs nothing from the gateway."""


# ---- What is asked for ----------------------------------------------------------------------


class _Plan:
    """The arguments of `pip install`."""

    def __init__(self):
        self.requirements = []
        self.wheels = []
        self.quiet = self.upgrade = False

    def read(self, args):
        args = list(args)
        while args:
            arg = args.pop(0)
            name, equals, value = arg.partition("=")
            if arg == "--":
                for each in args:
                    self._take(each)
                return self
            if not arg.startswith("-") or arg == "-":
                self._take(arg)
            elif arg in ("-r", "--requirement", "--requirements") or name == "--requirement":
                self._take_file(value if equals else _value(arg, args))
            elif arg.startswith("-r") and not arg.startswith("--"):
                self._take_file(arg[2:])
            else:
                self._take_option(arg, name, bool(equals), args)
        if not self.requirements and not self.wheels and not self._read_file:
            raise Refusal(
                "You must give at least one requirement to install (see pip help install)"
            )
        return self

    _read_file = False

    def _take_option(self, arg, name, has_value, args):
        if arg in ("--no-index", "-h", "--help"):
            raise _ForRealPip
        if arg == "--quiet" or re.fullmatch("-q+", arg):
            self.quiet = True
        elif arg in ("-U", "--upgrade"):
            self.upgrade = True
        elif re.fullmatch("-[Uq]+", arg):
            self.upgrade = self.quiet = True
        elif name in _IGNORED_WITH_VALUE:
            if not has_value:
                _value(arg, args)
        elif name not in _IGNORED:
            raise Refusal(_why_not(name))

    def _take(self, text):
        """A requirement, or the name of a file."""
        text = text.strip()
        if text.endswith(".whl") and "://" not in text and " @ " not in text:
            found = glob.glob(os.path.expanduser(text)) or [text]
            for path in found:
                if not os.path.isfile(path):
                    raise Refusal(f"there is no file {path}")
            self.wheels += found
        elif "://" in text or re.search(r"(?<=[\w\]])\s*@", text):
            raise Refusal(
                f"{text}: packages come from the gateway's index by their names, not from URLs"
            )
        elif os.sep in text or text.startswith(".") or text.endswith((".tar.gz", ".tgz", ".zip")):
            raise Refusal(
                f"{text}: folders and archives of sources are not built here; install a wheel (.whl), or "
                "add the folder to sys.path"
            )
        else:
            requirement = _without_marker(text)
            if requirement:
                self.requirements.append(requirement)

    def _take_file(self, path):
        if "://" in path:
            raise Refusal(f"{path}: a file of requirements must be in the sandbox")
        self._read_file = True
        try:
            with open(os.path.expanduser(path), encoding="utf-8-sig", errors="replace") as file:
                text = file.read()
        except OSError as error:
            raise Refusal(f"Could not open requirements file: {error}") from None
        for line in text.replace("\\\n", " ").splitlines():
            line = re.sub(r"(^|\s)#.*", "", line).strip()
            nested = re.match(r"(?:-r|--requirement)[\s=]*(.+)", line)
            if nested:
                self._take_file(os.path.join(os.path.dirname(path), nested[1]))
            elif line.startswith("-"):
                name = re.split(r"[\s=]", line)[0]
                if name not in _IGNORED | _IGNORED_WITH_VALUE:
                    raise Refusal(f"{path}: {_why_not(name)}")
            elif " --" in line:
                raise Refusal(f"{path}: options of a requirement are not possible here: {line}")
            elif line:
                self._take(line)


def _value(option, args):
    if not args:
        raise Refusal(f"{option} option requires 1 argument")
    return args.pop(0)


def _why_not(option):
    if option in ("-e", "--editable"):
        return "-e: folders of sources are not built here; add the folder to sys.path instead"
    if option in (
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "--index",
        "--default-index",
    ):
        return f"{option}: packages come from the gateway's index, which its administrator chooses"
    if option in ("-t", "--target", "--prefix", "--root"):
        return f"{option}: packages are installed for the whole session; leave the option out"
    if option in ("-c", "--constraint", "--constraints"):
        return f"{option}: write the versions into the requirements instead, as in 'name<2'"
    return f"the option {option} is not possible here; give names and versions, as in 'name>=1,<2'"


def _without_marker(text):
    """The requirement, if its marker holds here; else None."""
    text, semicolon, marker = text.partition(";")
    if not semicolon:
        return text.strip()
    try:
        from pip._vendor.packaging import markers
    except ImportError:
        from packaging import markers
    try:
        holds = markers.Marker(marker.strip()).evaluate({"extra": ""})
    except ValueError as error:
        raise Refusal(f"{text};{marker}: {error}") from None
    return text.strip() if holds else None


# ---- The gateway ----------------------------------------------------------------------------


def has_way_out():
    """Whether this sandbox has `network` `egress`."""
    return any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in os.environ)


def ask(method, params, on_line):
    """Asks the gateway; returns the last line of its answer, a dict. Raises ConnectionError if nobody
    listens, or nobody answers any more."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(SOCKET)
        link.sendall(json.dumps({"method": method, "params": params}).encode() + b"\n")
        with link.makefile("r", encoding="utf-8", errors="replace", newline="\n") as answer:
            for text in answer:
                line = json.loads(text)
                if line["type"] in ("result", "error"):
                    return line
                on_line(line)
    raise ConnectionAbortedError("the gateway has not answered to the end")


class _Words:
    """Shows what pip says in the gateway's sandbox, line by line."""

    def __init__(self, quiet):
        self._quiet = quiet
        self._rest = ""
        self._said = set()
        self.said_installed = False

    def take(self, line):
        text = line.get("text", "")
        if line["type"] == "progress":
            text = text.rstrip("\n") + "\n"
        *lines, self._rest = (self._rest + text).split("\n")
        for each in lines:
            self._show(each)

    def end(self):
        if self._rest:
            self._show(self._rest)

    def _show(self, text):
        is_error = text.startswith(("ERROR:", "WARNING:", "error:"))
        if text.startswith("Successfully installed "):
            self.said_installed = True
        if (
            (self._quiet and not text.startswith("ERROR:"))
            or _NOISE.match(text)
            or text in self._said
        ):
            return
        self._said.add(text)
        print(text, file=sys.stderr if is_error else sys.stdout, flush=True)


def _install(requirements, plan):
    """Installs some requirements; returns the exit code. Raises ConnectionError as ask() does."""
    before = _versions(requirements)
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        words = _Words(plan.quiet)
        answer = ask("packages", {"packages": requirements}, words.take)
        words.end()
        if answer.get("code") not in _LATER or time.monotonic() > end:
            break
        time.sleep(0.5)
    if answer["type"] == "error":
        raise Refusal(answer["message"])
    _report(answer["packages"], before, words.said_installed, plan)
    return 0 if answer["status"] == "ok" else 1


def _report(packages, before, said_installed, plan):
    new, failures = [], []
    for package in packages:
        name, version = package["name"], package.get("version", "")
        if package["status"] == "failed":
            failures.append(package.get("message", f"{name} was not installed"))
        elif before.get(name) != version:
            new.append(f"{name}-{version}" if version else name)
        elif not plan.quiet:
            print(f"Requirement already satisfied: {name} ({version})")
            if plan.upgrade:
                print(
                    f"  A newer version is installed if you ask for it: pip install '{name}>{version}'"
                )
    if new and not said_installed and not plan.quiet and not failures:
        print("Successfully installed", *new)
    sys.stdout.flush()
    for message in dict.fromkeys(failures):
        print(f"ERROR: {message}", file=sys.stderr)


def _versions(requirements):
    """The versions that are installed, by the names in their normal form."""
    from importlib import metadata

    versions = {}
    for text in requirements:
        name = re.match(r"[\w.-]*", text)[0]
        try:
            versions[re.sub(r"[-_.]+", "-", name).lower()] = metadata.version(name)
        except (metadata.PackageNotFoundError, ValueError):
            continue
    return versions


# ---- Wheels of this sandbox -----------------------------------------------------------------


def _needs_of(wheel):
    """What a wheel requires, as requirements whose markers hold here."""
    import email
    import zipfile

    try:
        with zipfile.ZipFile(wheel) as archive:
            [name] = [
                n for n in archive.namelist() if re.fullmatch(r"[^/]*\.dist-info/METADATA", n)
            ]
            message = email.message_from_bytes(archive.read(name))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise Refusal(f"{wheel} is not a wheel: {error}") from None
    needs = (_without_marker(text) for text in message.get_all("Requires-Dist", []))
    return [re.sub(r"[()]", "", need) for need in needs if need]


def _install_wheels(plan):
    import tempfile

    with tempfile.TemporaryDirectory(dir=os.path.dirname(TARGET), prefix=".kg-pip-") as folder:
        options = ["--no-index", "--no-deps", "--no-compile", "--upgrade", f"--target={TARGET}"]
        options += ["--disable-pip-version-check", *(["--quiet"] if plan.quiet else [])]
        return subprocess.run(
            [sys.executable, "-m", "pip", "install", *options, *plan.wheels],
            env={**os.environ, REAL: "1", "TMPDIR": folder},
            check=False,
        ).returncode


# ---- Command lines --------------------------------------------------------------------------


def _command(args):
    """The real pip's command among its arguments, and the arguments without it."""
    at = 0
    while at < len(args) and args[at].startswith("-"):
        at += 2 if args[at] in _GLOBAL_WITH_VALUE else 1
    return (args[at], [*args[:at], *args[at + 1 :]]) if at < len(args) else (None, args)


def _plan(args):
    """What the gateway should do for these arguments of pip. Raises Refusal and _ForRealPip."""
    if os.environ.get(REAL):
        raise _ForRealPip
    command, rest = _command(args)
    if command in _NEED_AN_INDEX:
        raise Refusal(f"pip {command}: there is no network in this sandbox. {_OTHER_WAYS}")
    if command != "install":
        raise _ForRealPip
    return _Plan().read(rest)


def _carry_out(plan):
    requirements = list(plan.requirements)
    for wheel in plan.wheels:
        requirements += _needs_of(wheel)
    code = 0
    for at in range(0, len(requirements), _AT_A_TIME):
        code = code or _install(requirements[at : at + _AT_A_TIME], plan)
    return code or (_install_wheels(plan) if plan.wheels else 0)


def _real(args):
    from pip._internal.cli.main import main as real_main

    sys.argv[0] = "pip"
    return real_main(args)


def main(args):
    """Runs pip's command line; returns the exit code."""
    try:
        return _carry_out(_plan(args))
    except _ForRealPip:
        return _real(args)
    except (Refusal, OSError) as error:
        if has_way_out():
            return _real(args)
        print(f"ERROR: {_why(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ERROR: Operation cancelled by user", file=sys.stderr)
        return 130


def _why(error):
    if isinstance(error, Refusal):
        return error
    return f"the gateway does not answer requests of this sandbox ({error}). {_OTHER_WAYS}"


def _pip_of_uv(args):
    """The arguments of pip that are the same as these of uv. Raises _ForRealPip where there are none."""
    if args[:1] != ["pip"] or len(args) < 2 or args[1] in ("compile", "sync", "tree"):
        raise _ForRealPip
    rest, given = [], list(args[1:])
    while given:
        arg = given.pop(0)
        name, equals, _ = arg.partition("=")
        if name not in ("--system", "--offline", "--python", "-p"):
            rest.append(arg)
        elif name in ("--python", "-p") and not equals:
            del given[:1]
    return rest


def uv(args):
    """Runs uv's command line, as far as it is pip's; another uv on the PATH does all else."""
    try:
        return main(_pip_of_uv(args))
    except _ForRealPip:
        pass
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        other = os.path.join(folder, "uv")
        if os.access(other, os.X_OK) and os.path.dirname(other) != os.path.join(sys.prefix, "bin"):
            os.execv(other, [other, *args])
    print("ERROR: uv is not installed here: only `uv pip install NAME` works.", file=sys.stderr)
    return 2


# ---- python -m pip --------------------------------------------------------------------------


class _Finder:
    """Finds this module in the place of pip.__main__."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "pip.__main__":
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, __file__)


def _runs_pip(argv):
    """Whether this command line of Python is `python [OPTION…] -m pip …`."""
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-", "--"):
        option = argv[at]
        at += 1
        if option.startswith("--"):
            at += option == "--check-hash-based-pycs"
            continue
        for i, letter in enumerate(option[1:], 2):
            if letter == "m":
                return (option[i:] or "".join(argv[at : at + 1])) == "pip"
            if letter == "c":
                return False
            if letter in "WX":
                at += not option[i:]
                break
    return False


def catch():
    """Called at the start of an interpreter whose arguments have the word pip."""
    if _runs_pip(sys.orig_argv) and not os.environ.get(REAL):
        sys.meta_path.insert(0, _Finder)


# ---- Magics ---------------------------------------------------------------------------------


def _for_shell(line):
    """Whether a shell has to read this line: pipes, redirections, several commands."""
    try:
        words = list(shlex.shlex(line, posix=True, punctuation_chars="|;&"))
        return any(set(word) <= set("|;&") for word in words if word) or bool(
            re.search(r"(^|\s)\d?>", line)
        )
    except ValueError:
        return True


def _installed():
    """The folders that describe what was installed into this session."""
    found = set()
    for folder in FOLDERS:
        with contextlib.suppress(OSError):
            found |= {os.path.join(folder, name) for name in os.listdir(folder)}
    return {path for path in found if path.endswith(".dist-info")}


def _modules_of(folder):
    try:
        with open(os.path.join(folder, "RECORD"), encoding="utf-8") as file:
            tops = {line.partition(",")[0].partition("/")[0].partition(".")[0] for line in file}
    except OSError:
        return set()
    return {top for top in tops if top.isidentifier()}


def _note_restart(before, loaded):
    """Names what is loaded in another version than the one that is installed now."""
    old = []
    for folder in sorted(_installed() - before):
        if _modules_of(folder) & loaded:
            name, _, version = os.path.basename(folder)[: -len(".dist-info")].rpartition("-")
            old.append(f"{name} {version}")
    if old:
        print(f"Note: restart the kernel to use {', '.join(old)}: another version is loaded.")


def _carry_out_here(program, line):
    """Does in this process what the gateway can do; returns the exit code, None where a program has to."""
    if _for_shell(line):
        return None
    words = shlex.split(line, comments=True)
    try:
        if program == "uv":
            words = _pip_of_uv(words)
        return _carry_out(_plan(words))
    except _ForRealPip:
        return None
    except (Refusal, OSError) as error:
        if has_way_out():
            return None
        print(f"ERROR: {_why(error)}", file=sys.stderr)
        return 1


def run_magic(shell, program, line):
    """%pip and %uv."""
    import importlib

    before = _installed()
    # A namespace package has no file of its own.
    loaded = {name for name, module in sys.modules.items() if getattr(module, "__file__", None)}
    try:
        code = _carry_out_here(program, line)
        if code is None:
            shell.system(f"{shlex.quote(os.path.join(sys.prefix, 'bin', program))} {line}")
        else:
            shell.user_ns["_exit_code"] = code
    finally:
        importlib.invalidate_caches()
    _note_restart(before, loaded)


def register_magics(shell):
    """Adds %pip, %pip3 and %uv in the place of IPython's."""

    def pip(line):
        """Installs packages for this session: %pip install NAME…"""
        run_magic(shell, "pip", line)

    def uv(line):
        """Installs packages for this session: %uv pip install NAME…"""
        run_magic(shell, "uv", line)

    for name, function in {"pip": pip, "pip3": pip, "uv": uv}.items():
        shell.register_magic_function(function, "line", name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
