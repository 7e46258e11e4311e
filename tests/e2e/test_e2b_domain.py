# SPDX-License-Identifier: Apache-2.0
"""E2B's SDKs by E2B_DOMAIN: names of a domain, TLS and HTTP/2, by deploy/nginx."""

import sys

import pytest
from e2b_clients import run_script
from kernelgate import Gateway, free_port
from nginx import Nginx
from resolver import Resolver

TAKES_LONG = True
pytestmark = pytest.mark.once
KEY = "key-of-e2b"
DOMAIN = "ports.kernelgate.example"


@pytest.fixture(scope="module")
def gateway(engine, quick):
    running = Gateway(
        "--pool-size", "1", "--ports-domain", DOMAIN, "--api-key", KEY, key=KEY, port=free_port(), quick=quick
    )  # fmt: skip
    try:
        yield running.start()
    finally:
        running.clean_up()


@pytest.fixture(scope="module")
def nginx(gateway):
    backend = f"map $uri $kernelgate_backend {{ default 127.0.0.1:{gateway.port}; }}"
    running = Nginx("kernelgate-tls.conf", backend, DOMAIN, KEY)
    running.make_certificate(f"*.{DOMAIN}")
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture(scope="module")
def resolver(tmp_path_factory):
    running = Resolver(DOMAIN, tmp_path_factory.mktemp("resolver"))
    yield running
    running.close()


@pytest.fixture
def run(gateway, nginx, resolver, tmp_path):
    """Runs a script that knows the domain, the key and who has signed the certificate, and nothing else."""
    environment = {
        "E2B_DOMAIN": f"{DOMAIN}:{nginx.tls_port}",
        "E2B_API_KEY": KEY,
        "SSL_CERT_FILE": str(nginx.authority),
        "NODE_EXTRA_CA_CERTS": str(nginx.authority),
    }

    def run(name, python=None, **more):
        run_script(name, gateway, environment | more, tmp_path, python, resolver.launcher)

    return run


def test_python(run, nginx):
    run("python_sdk.py", sys.executable)
    assert 'POST /process.Process/Start HTTP/2.0" 200' in nginx.logs()


@pytest.mark.parametrize(
    "subject", ["life", "code", "contexts", "files", "commands", "terminals", "ports"]
)
def test_javascript(run, subject):
    run(f"{subject}.mjs")


def test_litellm(run, nginx):
    """It has a client of its own, which makes the sandbox's name from the domain in the answer."""
    url = f"https://api.{DOMAIN}:{nginx.tls_port}"
    run("../opensandbox/run_litellm.py", sys.executable, KG_PROVIDER="e2b", KG_URL=url, KG_KEY=KEY)
