# SPDX-License-Identifier: Apache-2.0
"""Podman instead of Docker: where its API differs, and that sandboxes on it are the same.

Most of the tests are those of other files. `KGT_DOCKER_HOST=unix:///…/podman.sock` has pytest run
any other file on a Podman that has the image.
"""

import os

import podman
import pytest
from kernelgate import wait_for
from sandboxes import sandbox_of
from test_docker import (  # noqa: F401
    docker,
    meddle,
    taken_names,
    test_a_container_of_an_image_that_was_a_sandbox,
    test_a_name_that_a_half_made_container_of_ours_has,
    test_a_name_that_another_container_has,
    test_a_state_folder_that_was_emptied,
    test_containers_removed_by_hand,
    test_doctor,
    test_more_processors_than_there_are,
    test_the_end_of_a_half_made_container_is_reported_late,
)
from test_isolation import (  # noqa: F401
    inside,
    test_existing_files_cannot_be_written,
    test_no_capability_no_new_privileges_a_filter_and_no_root,
    test_no_route_out,
    test_only_two_places_can_be_written,
    test_system_calls_that_open_doors_are_refused,
    test_the_agent_can_be_neither_signalled_nor_read,
    test_the_two_places_are_bounded,
    test_too_much_memory_hurts_only_its_own_session,
)
from test_recovery import test_kill_9_of_a_container, test_kill_9_while_code_runs  # noqa: F401

pytestmark = pytest.mark.only("docker", "it is about an engine that speaks Docker's API")


@pytest.fixture(scope="module", autouse=True)
def service(engine):
    """Podman's service, which is the engine as long as the module runs."""
    running = podman.Podman()
    try:
        running.start().load_kernels(engine)
        os.environ["DOCKER_HOST"] = running.host
        yield running
    finally:
        os.environ["DOCKER_HOST"] = engine.host
        running.close()


def test_the_service_ends_and_comes_back(start_gateway, service):
    gateway = start_gateway("--pool-size", "0")
    gateway.execute("x = 41", session_id="s")
    service.stop()
    assert gateway.execute("print(x + 1)", session_id="s").text() == "42\n"
    service.start()
    wait_for(
        lambda: gateway.client.post("/api/v1/sessions", json={}).status_code == 200, timeout=30
    )
    # The end of an older container is noticed.
    sandbox_of(gateway, "s").kill_container()
    wait_for(lambda: gateway.client.get("/api/v1/sessions/s").status_code == 404, timeout=40)
