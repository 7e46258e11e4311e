# SPDX-License-Identifier: Apache-2.0
"""The parts of the suite: what each runs, what must be there before, and what its result depends on."""

import dataclasses
import os
import pathlib
import re

# What a preparation ends with where the distribution does not have what a part needs.
UNAVAILABLE = 77
PROJECT = pathlib.Path(__file__).resolve().parents[2]
WORKERS = os.cpu_count()
# Tests run as root, for containers. The proxy and the certificates of the network are kept.
NETWORK = re.compile(
    r"(https?|ftp|all|no)_proxy|(pip|npm_config|deno|ssl_cert|go(proxy|sumdb|nosumdb))[a-z_]*"
    r"|node_extra_ca_certs|requests_ca_bundle|curl_ca_bundle",
    re.IGNORECASE,
)
AS_ROOT = []
if os.geteuid() != 0:
    kept = (f"{name}={value}" for name, value in os.environ.items() if NETWORK.fullmatch(name))
    AS_ROOT = ["sudo", "env", *kept]
VENV = "build/venv/bin/python"
DEV = "build/dev/bin/kernelgate"
RELEASE = "build/release/bin/kernelgate"
# What the gateway is built from.
PRODUCT = ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", "kernelspec", "docs/openapi.yaml")
SUPPORT = ("tests/conftest.py", "tests/support", "script/common", "script/setup", "pytest.ini")


@dataclasses.dataclass(frozen=True)
class Ctest:
    """Programs that ctest runs from the build folder of a preset."""

    preset: str
    arguments: tuple = ()
    launcher: tuple = ()

    def command(self, report, workers, only=()):
        names = ["-R", f"^({'|'.join(map(re.escape, only))})$"] if only else list(self.arguments)
        return [
            *AS_ROOT, *self.launcher, "ctest", "--test-dir", f"build/{self.preset}", "-j", str(workers),
            "--output-on-failure", "--output-junit", str(report), *names,
        ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Pytest:
    """Tests in Python; `settings` are of the environment, and `launcher` runs the command."""

    tests: tuple
    settings: tuple = ()
    python: str = VENV
    launcher: tuple = ()
    alone: bool = False  # one test at a time

    def temporary(self, report):
        """The folder of its tests' files. In the folder that all runs share, pytest takes other users' rights
        away whenever it starts, and gateways of other parts are other users."""
        return f"/tmp/kgp-{os.getpid()}-{report.stem}"

    def command(self, report, workers, only=()):
        settings = {"KERNELGATE_BIN": str(PROJECT / DEV), **dict(self.settings)}
        settings |= {name: os.environ[name] for name in ("KGT_RUN", "KGT_EVENTS")}
        # A module's tests share what it has made: they stay in one process.
        spread = (
            ["-n", str(workers), "--dist", "loadfile"] if workers > 1 and not self.alone else []
        )
        return [
            *AS_ROOT, *self.launcher, "env", *(f"{name}={value}" for name, value in settings.items()),
            self.python, "-m", "pytest", "-p", "no:cacheprovider", "--junit-xml", str(report),
            "--basetemp", self.temporary(report),
            *spread, *(only or self.tests),
        ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that writes a JUnit file. What it finds is not a matter of chance: it has no second try."""

    arguments: tuple

    def command(self, report, workers, only=()):
        return [part.format(report=report, workers=workers) for part in self.arguments]


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    what: str  # for --help
    tests: Ctest | Pytest | Program
    prepare: str  # with the functions of script/common
    inputs: tuple  # files and folders
    tools: tuple = ()  # packages of the distribution, beside those that all parts use
    by_default: bool = False
    wide: bool = False  # it uses all processors; else one
    # How many tests run at a time, where that is another number: those of some parts mostly wait.
    at_a_time: int = 0
    after: str = ""  # a command that cleans up
    may_be_empty: bool = False  # arguments may select none of its tests
    folder: pathlib.Path = PROJECT  # where its tests are named from

    @property
    def workers(self):
        return self.at_a_time or (WORKERS if self.wide else 1)

    @property
    def option(self):
        """Parts whose names begin alike have one option: `--tsan` runs `tsan` and `tsan-e2e`."""
        return self.name.partition("-")[0]


ON_RELEASE = (("KERNELGATE_BIN", str(PROJECT / RELEASE)),)


def engine(**settings):
    return tuple(settings.items())


def tests(folder, names):
    return tuple(f"tests/{folder}/test_{name}.py" for name in names.split())


E2E = (
    *PRODUCT,
    *SUPPORT,
    "tests/e2e",
    "tests/mcp",
    "tests/jupyter",
    "tests/e2b",
    "tests/opensandbox",
    "tests/kernelspec",
    "deploy",
    "docs",
    "README.md",
    ".env.example",
)
COMPONENT = (
    *PRODUCT, *SUPPORT, "tests/component", "tests/suite", "tests/interop", "tests/fresh", "tests/mcp", "tests/mcp_fixtures",
    "tests/kernelspec", "docs", "script", "deploy", "README.md", "CONTRIBUTING.md", ".env.example",
)  # fmt: skip
DOCKER = (*E2E, "Dockerfile", "docker-compose.yml", ".dockerignore")
BASE = "script/setup; make_test_environment; build dev"
NODE = "make_node_environment; make_jupyter_environment"
E2B = "make_e2b_environment"
CHROMIUM = "install_packages chromium vim-tiny procps; make_browser_environment; make_port_apps"
CLUSTER = tests(
    "e2e",
    "kubernetes deployment cluster_faults replicas replica_races replica_takeover replica_tools execute"
    " sessions commands files terminals packages pool recovery failures isolation egress mcp_cluster"
    " e2b_replicas savepoints savepoints_descriptors savepoints_failures savepoints_files savepoints_jupyter tools",
)
UNDER_VALGRIND = (
    "accounts agent api auth base config docker door egress http kubernetes loop mcp_tools metrics"
    " packages provisioner rpc sandbox session"
).split()

PARTS = (
    Part(
        "unit", "unit tests and corpus replays, under sanitizers",
        Ctest("dev"), BASE,
        ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", "tests/unit", "tests/fuzz", "script/include-graph"),
        by_default=True, wide=True,
    ),
    Part(
        "component", "the gateway with a scripted kernel in a sandbox without a container",
        Pytest(("tests/component", "tests/suite", "tests/interop", *tests("fresh", "common guard"))),
        f"{BASE}; {NODE}; make_traefik_environment",
        COMPONENT, by_default=True, wide=True, at_a_time=2 * WORKERS,
    ),
    Part(
        "e2e", "end to end: real kernels in real containers, by runc",
        Pytest(("tests/e2e", "-m", "not seldom")), f"{BASE}; {NODE}; {E2B}; install_packages vim-tiny procps", E2E,
        ("vim-tiny", "procps"),
        by_default=True, wide=True, at_a_time=WORKERS + 1,
    ),
    Part(
        "docker", "what the Docker Engine does differently, on an engine of its own",
        Pytest(tests("e2e", "docker inodes isolation recovery savepoints savepoints_descriptors savepoints_failures savepoints_files savepoints_jupyter terminals tools"), engine(KERNELGATE_PROVISIONER="docker")),
        f"{BASE}; {NODE}; install_docker; as_root {VENV} tests/support/dockerd.py",
        DOCKER, ("docker.io", "docker-cli"), by_default=True,
    ),
    Part(
        "docker-compose", "the images, and docker-compose.yml with nginx",
        Pytest(tests("e2e", "compose"), engine(KERNELGATE_PROVISIONER="docker")),
        f"{BASE}; {NODE}; install_docker; as_root {VENV} tests/support/dockerd.py", DOCKER,
        ("docker.io", "docker-cli"),
    ),
    Part(
        "browser", "the console and ports, in Chromium",
        Pytest(("tests/browser", "-m", "not load and not seldom"), ON_RELEASE, "build/browser/bin/python"),
        f"{BASE}; {NODE}; {CHROMIUM}", (*PRODUCT, *SUPPORT, "tests/browser"), ("chromium", "vim-tiny", "procps"), by_default=True,
        at_a_time=2,
    ),
    Part(
        "browser-seldom", "JupyterLab with the gateway for its kernels, in Chromium",
        Pytest(("tests/browser", "-m", "seldom"), ON_RELEASE, "build/browser/bin/python"),
        f"{BASE}; {NODE}; {CHROMIUM}", (*PRODUCT, *SUPPORT, "tests/browser"), ("chromium", "vim-tiny", "procps"),
        at_a_time=2,
    ),
    Part(
        "e2e-seldom", "the same: the door over TCP, and random kills",
        Pytest(("tests/e2e", "-m", "seldom")), f"{BASE}; {NODE}; {E2B}; make_e2b_frameworks", E2E, wide=True,
    ),
    Part(
        "runsc", "core and isolation with runsc (gVisor), where the distribution has it",
        Pytest(tests("e2e", "commands execute files isolation runsc savepoints savepoints_descriptors savepoints_failures savepoints_files savepoints_jupyter terminals"), engine(KERNELGATE_OCI_RUNTIME="runsc")),
        f"{BASE}; apt-cache show runsc >/dev/null || exit {UNAVAILABLE}; install_packages runsc", E2E, ("runsc",), wide=True,
    ),
    Part(
        "crun", "isolation and forked kernels with crun",
        Pytest(
            tests("e2e", "forked_kernels isolation"), engine(KERNELGATE_OCI_RUNTIME="crun"),
            launcher=("tests/support/cgroups_v1",),
        ),
        f"{BASE}; install_packages crun", E2E, ("crun",), wide=True,
    ),
    Part(
        "kubernetes", "a cluster of one node, which is built once (script/cluster)",
        Pytest(CLUSTER, engine(KERNELGATE_PROVISIONER="kubernetes"), launcher=("script/cluster", "in")),
        f"{BASE}; {NODE}; install_packages libfaketime; script/cluster up --until $PPID", (*DOCKER, "tests/kubernetes", "script/cluster"),
        ("containerd",), after="script/cluster down",
    ),
    Part(
        "tsan", "unit tests of modules with work for other threads, under ThreadSanitizer",
        # With full address randomization, gcc's ThreadSanitizer finds no room for its shadow memory. The
        # modules of those that are left out do all of their work on the loop.
        Ctest(
            "tsan", ("-E", r"^fuzz|^unit\.(agent|docker|door|egress|kubernetes|privileges|provisioner|sandbox)$"),
            ("setarch", "-R"),
        ),
        f"{BASE}; build tsan", ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", "tests/unit"), wide=True,
    ),
    Part(
        "tsan-e2e", "the work for other threads that no unit test starts, under ThreadSanitizer",
        Pytest(
            ("tests/component", "-m", "threads"),
            engine(KERNELGATE_BIN=str(PROJECT / "tests/support/gateway_under_tsan")),
        ),
        f"{BASE}; {NODE}; build tsan", COMPONENT,
    ),
    Part(
        "valgrind", "unit tests, and the agents that they start, under valgrind",
        Program(("script/valgrind", "--junit-xml={report}", *UNDER_VALGRIND)),
        f"{BASE}; install_packages valgrind; build valgrind",
        ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", "tests/unit", "script/valgrind"),
        ("valgrind",), wide=True,
    ),
    Part(
        "fuzz", "each fuzz target for 20 seconds, with clang's libFuzzer",
        Program(("tests/fuzz/run.py", "build/fuzz/bin", "--junit-xml={report}")),
        f"{BASE}; install_packages clang libclang-rt-dev; build fuzz",
        ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", "tests/fuzz"), ("clang",), wide=True,
    ),
    Part(
        "analyze", "gcc's -fanalyzer and clang-tidy",
        Program(("tests/suite/analyze", "{report}")), f"{BASE}; install_packages clang-tidy",
        ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", ".clang-tidy", "script/clang-tidy"),
        ("clang-tidy",), wide=True,
    ),
    Part(
        "fresh", "script/server in new root folders of Debian 12 and 13",
        Pytest(tests("fresh", "debian")), f"{BASE}; install_packages debootstrap",
        ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", "kernelspec", "script", *SUPPORT, "tests/fresh"),
    ),
    Part(
        "load", "bounds on time, pace, memory and processor time: the release build, alone",
        Pytest(("tests/load",), ON_RELEASE, alone=True), BASE,
        (*PRODUCT, *SUPPORT, "tests/load", "bench"), wide=True,
    ),
    Part(
        "load-browser", "how soon people see something",
        Pytest(("tests/browser", "-m", "load"), ON_RELEASE, "build/browser/bin/python", alone=True),
        f"{BASE}; {NODE}; {CHROMIUM}", (*PRODUCT, *SUPPORT, "tests/browser"), ("chromium",), wide=True,
    ),
)  # fmt: skip
