# SPDX-License-Identifier: Apache-2.0
"""Queries the Docker Engine that gateways use if KERNELGATE_PROVISIONER is docker.

dockerd.py runs the engine; conftest.py starts it and sets DOCKER_HOST.
"""

import json
import os

import cluster
import httpx

PROVISIONER = os.environ.get("KERNELGATE_PROVISIONER", "oci")
# For the provisioner oci; "" leaves the choice to the gateway.
OCI_RUNTIME = os.environ.get("KERNELGATE_OCI_RUNTIME", "")
# Whether the tests are run for an engine or runtime, beside those of the default ones.
IS_CHOSEN = PROVISIONER != "oci" or bool(OCI_RUNTIME)
# "tcp": the gateways dial the agents; "": what the engine has by itself.
DOOR = os.environ.get("KERNELGATE_DOOR", "")
# "fork" or "exec"; "": the gateway's default.
KERNEL_START = os.environ.get("KERNELGATE_KERNEL_START", "")
# Whether gateways that many tests share fork their kernels, as most users' do: not where the run has
# chosen otherwise.
SHARED_FORK = PROVISIONER == "oci" and not OCI_RUNTIME and not DOOR and not KERNEL_START
LABEL = "kernelgate.gateway"


def gateway_environment():
    """The engine settings of a test's gateway."""
    if PROVISIONER == "docker":
        return {"KERNELGATE_PROVISIONER": "docker", "DOCKER_HOST": os.environ["DOCKER_HOST"]}
    if PROVISIONER == "kubernetes":
        return cluster.gateway_environment()
    settings = {
        "KERNELGATE_OCI_RUNTIME": OCI_RUNTIME,
        "KERNELGATE_DOOR": DOOR,
        "KERNELGATE_KERNEL_START": KERNEL_START,
        # By fork as by exec there are only those sandboxes that a test has asked for.
        "KERNELGATE_POOL_BARE": "0",
    }
    return {name: value for name, value in settings.items() if value}


def socket_path():
    return os.environ["DOCKER_HOST"].removeprefix("unix://")


class Engine:
    def __init__(self):
        self._client = httpx.Client(
            transport=httpx.HTTPTransport(uds=socket_path()),
            base_url="http://docker/v1.41",
            timeout=60,
        )

    def ask(self, method, path, **options):
        response = self._client.request(method, path, **options)
        assert response.status_code < 400, f"{method} {path}: {response.text}"
        return response.json() if response.content else None

    def containers(self, label=LABEL):
        """The containers with a label, running or not."""
        filters = json.dumps({"label": [label]})
        return self.ask("GET", "/containers/json", params={"all": 1, "filters": filters})

    def pid(self, name):
        """The pid of the container's first process, or 0."""
        response = self._client.get(f"/containers/{name}/json")
        return response.json()["State"]["Pid"] if response.status_code == 200 else 0

    def kill(self, name):
        self.ask("POST", f"/containers/{name}/kill")

    def remove(self, name):
        """Removes a container, as `docker rm -f` does."""
        self.ask("DELETE", f"/containers/{name}", params={"force": 1, "v": 1})
