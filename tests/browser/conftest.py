# SPDX-License-Identifier: Apache-2.0
"""JupyterLab as people start it with the gateway, and pages of it in Chromium."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import httpx
import nbformat
import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from console_page import ConsolePage  # noqa: E402
from jupyter_wire import list_kernels  # noqa: E402
from kernelgate import LOG_SHOWN, Gateway, add_logs, free_port, wait_for  # noqa: E402
from notebook_page import NotebookPage, lab_command  # noqa: E402

KEY = "key-a"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """What gateways and JupyterLab did goes into the report of a test that fails."""
    report = yield
    if report.when == "call" and report.failed:
        add_logs(report, item.funcargs)
        if "lab" in item.funcargs:
            log = (item.funcargs["lab"].folder / "log").read_text("utf-8", "replace")
            report.sections.append(("JupyterLab", log[-LOG_SHOWN:]))
    return report


@contextlib.contextmanager
def run_gateway(*flags):
    running = Gateway("--jupyter-api", "--pool-size", "1", "--api-key", KEY, *flags, key=KEY)
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture(scope="session")
def gateway():
    """It is always on the same port, so that JupyterLab finds it again."""
    with run_gateway("--port", str(free_port())) as running:
        yield running


@pytest.fixture
def start_gateway():
    with contextlib.ExitStack() as stack:

        def start(*flags):
            start.started.append(stack.enter_context(run_gateway(*flags)))
            return start.started[-1]

        start.started = []
        yield start


@pytest.fixture(scope="session")
def lab(gateway, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    port = free_port()
    settings = folder / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"fetchNews": "false", "checkForUpdates": false}')  # no questions
    environment = {
        **os.environ,
        "HOME": str(folder),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    options = (
        f"--no-browser --allow-root --port={port} --ServerApp.port_retries=0 --IdentityProvider.token="
        " --expose-app-in-browser --ServerApp.disable_check_xsrf=True"
    )
    jupyter = f'jupyter() {{ exec {sys.executable} -m "jupyter$1" "${{@:2}}"; }}'
    command = ["bash", "-c", f"{jupyter}\n{lab_command(gateway.url, KEY)} {options}"]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    server = types.SimpleNamespace(url=f"http://127.0.0.1:{port}", folder=folder)
    try:
        wait_for(lambda: process.poll() is not None or answers(server), 120)
        yield server
    finally:
        process.terminate()
        process.wait(30)


def answers(server):
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(server.url + "/api", trust_env=False).status_code == 200


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        context = browser.new_context(viewport={"width": 1280, "height": 1600})
        context.set_default_timeout(60_000)
        yield context
        browser.close()


@pytest.fixture
def open_notebook(gateway, lab, chromium, request):
    """Opens a notebook with these cells; the same again is another tab on it."""
    pages = []

    def open_it(*cells):
        path = lab.folder / f"{request.node.name}.ipynb"
        if not path.exists():
            notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
            notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
            nbformat.write(notebook, path)
        pages.append(NotebookPage(chromium.new_page(), f"{lab.url}/doc/tree/{path.name}"))
        pages[-1].until_idle()
        return pages[-1]

    yield open_it
    for page in pages:
        if request.session.testsfailed:
            page.page.screenshot(path=lab.folder / "failed.png")
            print(f"{lab.folder}/failed.png: {page.page.inner_text('body')[-3000:]}")
        page.page.close()
    with httpx.Client(base_url=lab.url, timeout=60, trust_env=False) as client:
        for session in client.get("/api/sessions").json():
            assert client.delete(f"/api/sessions/{session['id']}").status_code == 204
    assert list_kernels(gateway) == {}


@pytest.fixture
def sandbox(gateway, request):
    name = re.sub(r"\W+", "-", request.node.name).strip("-")[:60]
    gateway.create_session(session_id=name)
    yield name
    gateway.client.delete(f"/api/v1/sessions/{name}")


@pytest.fixture
def tab(gateway, chromium, request):
    """Opens the console in a browser of its own: nothing is kept between the tests."""
    pages = []
    with contextlib.ExitStack() as stack:

        def open_it(to=gateway, **options):
            context = stack.enter_context(
                contextlib.closing(chromium.browser.new_context(**options))
            )
            context.set_default_timeout(60_000)
            pages.append(ConsolePage(context.new_page(), to))
            return pages[-1]

        before = request.session.testsfailed
        yield open_it
        for page in pages:
            if request.session.testsfailed > before and not page.page.is_closed():
                print(page.describe())
            assert page.faults == []
            assert page.hosts() <= {page.gateway.url.removeprefix("http://")}
