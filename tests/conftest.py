# SPDX-License-Identifier: Apache-2.0
"""The gateways under test, for all tests in Python. Each is checked when it ends: exit code, sanitizers,
leftovers."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid

import cluster
import docker_engine
import dockerd
import events
import leftovers
import pytest
import replicas
from jupyter_wire import start_kernel
from kernelgate import Gateway, add_logs, clean_up_all, gateways, wait_for
from session_savepoints import Savepoints


def pytest_configure(config):
    events.pytest_configure(config)
    config.addinivalue_line(
        "markers", "only(provisioner or runtime, why): what cannot be shown on another"
    )
    config.addinivalue_line(
        "markers", "not_on(provisioner or runtime, why): what does not hold there"
    )
    config.addinivalue_line(
        "markers", "seldom: long, and seldom broken; `script/test --all` runs it"
    )
    config.addinivalue_line("markers", "load: a bound on time, of the part `load`")
    config.addinivalue_line("markers", "threads: what ThreadSanitizer should see, too")
    config.addinivalue_line(
        "markers", "once: what no engine changes; it is run where none was chosen"
    )


def pytest_collection_modifyitems(config, items):
    """Runs tests for one engine only on that engine; elsewhere they are deselected and listed. Modules
    that say TAKES_LONG = True come first, so that none of them is left alone at the end."""
    items.sort(key=lambda item: not getattr(getattr(item, "module", None), "TAKES_LONG", False))
    left_out = {}
    for item in items:
        only = item.get_closest_marker("only")
        if only and only.args[0] not in (docker_engine.PROVISIONER, docker_engine.OCI_RUNTIME):
            left_out[item] = f"only {only.args[0]}, {only.args[1]}"
        if item.get_closest_marker("once") and docker_engine.IS_CHOSEN:
            left_out[item] = "once, no engine changes it"
        for mark in item.iter_markers("not_on"):
            if mark.args[0] in (docker_engine.PROVISIONER, docker_engine.OCI_RUNTIME):
                left_out[item] = f"not on {mark.args[0]}, {mark.args[1]}"
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
    config.kg_left_out = left_out


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """What gateways and pods did goes into the report of a test that fails: afterwards it is removed."""
    report = yield
    if report.when != "call" or not report.failed:
        return report
    used = item.funcargs
    if "start_replica" in used:
        report.sections.append(("pods", replicas.describe(used["start_replica"])))
    add_logs(report, used)
    return report


def pytest_terminal_summary(terminalreporter, config):
    left_out = getattr(config, "kg_left_out", {})
    if left_out:
        where = f"{docker_engine.PROVISIONER} {docker_engine.OCI_RUNTIME}".rstrip()
        terminalreporter.section(f"not on the provisioner {where}")
    for item, why in left_out.items():
        terminalreporter.write_line(f"{item.nodeid}: {why}")


@pytest.fixture(scope="session", autouse=True)
def engine():
    """The Docker Engine, if the tests run on it; a cluster must run already."""
    if docker_engine.PROVISIONER == "kubernetes":
        cluster.prepare()
    if docker_engine.PROVISIONER != "docker":
        yield None
        return
    if "KGT_DOCKER_HOST" in os.environ:  # already runs, with the image: Podman
        os.environ["DOCKER_HOST"] = os.environ["KGT_DOCKER_HOST"]
        yield None
        return
    running = dockerd.Dockerd(dockerd.KEPT)
    try:
        try:
            running.start()
            running.build_kernels()
        except (OSError, RuntimeError) as error:
            pytest.exit(f"no tests on docker: {error}", returncode=1)
        os.environ["DOCKER_HOST"] = running.host
        yield running
    finally:
        running.close()


@pytest.fixture
def mortal(engine):
    """The engine, for tests that kill it; it is started again for the next test."""
    yield engine
    if not engine.answers():
        engine.start()


@pytest.fixture(scope="module")
def quick(request):
    """Whether a module's gateways have quick_kernelspecs(): not if it sets WARM_KERNELS."""
    return not getattr(request.module, "WARM_KERNELS", False)


@pytest.fixture(scope="session")
def layer_flags():
    """What every gateway of a layer is started with; the layer's conftest.py can define its own."""
    return []


@pytest.fixture
def start_gateway(engine, quick, layer_flags):
    """Starts gateways with the test's own flags."""
    with gateways(quick, layer_flags) as start:
        yield start


@pytest.fixture
def small_folder():
    """Makes state folders on file systems of a size. It stands before `start_gateway` in a test's
    arguments: then a gateway has been cleaned up before its folder is unmounted."""
    with contextlib.ExitStack() as stack:

        def make(size):
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="kgs-", dir="/tmp"))
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "kgs", place], check=True)
            stack.callback(subprocess.run, ["umount", place], check=True)
            return tempfile.mkdtemp(prefix=os.path.basename(leftovers.PREFIX), dir=place)

        yield make


@pytest.fixture
def start_replica(start_gateway, tmp_path):
    """Starts replicas of one installation; at the end its pods and leases are removed."""
    with replicas.installation(start_gateway, tmp_path) as start:
        yield start


@pytest.fixture
def pair(start_replica):
    """Two replicas of the test's own, which know each other."""
    return replicas.pair_of(start_replica)


@pytest.fixture(scope="module")
def lasting_pair(engine, quick, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    with (
        gateways(quick) as start_gateway,
        replicas.installation(start_gateway, folder) as start_replica,
    ):
        yield replicas.pair_of(start_replica)


@pytest.fixture
def shared_pair(lasting_pair):
    """Two replicas for tests that end none of them."""
    yield lasting_pair
    first, second = lasting_pair
    for session_id in replicas.listed(first):
        first.delete_session(session_id)
    wait_for(lambda: replicas.listed(first) == replicas.listed(second) == [])


@pytest.fixture
def clients(start_gateway):
    """Makes clients by key, and closes them."""
    made = []

    def client(gateway, key):
        made.append(gateway.client_for(key))
        return made[-1]

    yield client
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def gateway_flags():
    """What a module's gateway is started with; a module can define its own."""
    return []


@pytest.fixture(scope="session")
def shared_gateways(engine):
    """One gateway for each set of flags, for all modules: tests keep apart by sessions and owners."""
    running = {}

    def get(*flags, quick):
        key = (flags, quick)
        if key not in running:
            running[key] = Gateway(*flags, quick=quick)
            running[key].start()
        return running[key]

    yield get
    clean_up_all(running.values())


@pytest.fixture(scope="module")
def gateway(request, shared_gateways, layer_flags, gateway_flags, quick):
    """The shared gateway with the module's flags, and a pool no larger than the machine. A module with
    OWN_GATEWAY = True has one for itself, which ends with it."""
    flags = ["--pool-size", "1", *layer_flags, *gateway_flags]
    if docker_engine.SHARED_FORK and "--kernelspec-dir" not in flags:
        flags += ["--kernel-start", "fork"]
        quick = False  # a zygote imports in advance only once
    if not getattr(request.module, "OWN_GATEWAY", False):
        shared = shared_gateways(*flags, quick=quick)
        yield shared
        shared.end_sessions()  # the next module may need all that the gateway allows
        return
    running = Gateway(*flags, quick=quick)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture
def session(gateway):
    """A session for one test."""
    session_id = gateway.create_session(session_id=f"t-{uuid.uuid4().hex[:12]}")
    yield session_id
    gateway.delete_session(session_id)


@pytest.fixture
def run(gateway, session):
    """Executes code in the test's session."""
    return lambda code, **fields: gateway.execute(code, session_id=session, **fields)


@pytest.fixture
def savepoints(gateway, session):
    """The savepoints and branches of the test's session."""
    return Savepoints(gateway, session)


@pytest.fixture
def kernel(gateway):
    """A kernel for one test, of a gateway with the Jupyter API."""
    kernel_id = start_kernel(gateway)
    yield kernel_id
    gateway.client.delete(f"/api/kernels/{kernel_id}")


@pytest.fixture
def own_gateway():
    """The flags of a gateway that a client starts itself, over stdio; it must leave nothing."""
    state_dir = tempfile.mkdtemp(prefix=leftovers.PREFIX)
    yield ["--state-dir", state_dir, "--pool-size", "1"]
    wait_for(lambda: not leftovers.find(state_dir), 60)
    shutil.rmtree(state_dir)
