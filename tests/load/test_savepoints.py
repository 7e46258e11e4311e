# SPDX-License-Identifier: Apache-2.0
"""What savepoints and branches may take: of memory and of time."""

import statistics
import time

from session_savepoints import value

WARM_KERNELS = True
MIB = 1 << 20
BRANCHES = 5


def used(gateway, session):
    return gateway.client.get(f"/api/v1/sessions/{session}").json()["usage"]["memory_bytes"] / MIB


def test_idle_branches_and_savepoints(gateway, session, run, savepoints):
    run("import numpy as np, pandas as pd\nframe = pd.DataFrame(np.ones((1 << 20, 16)))")
    before = used(gateway, session)
    for i in range(BRANCHES):
        savepoints.branch(str(i))
        assert value(run, "float(frame[0].sum())", branch=str(i)) == "1048576.0"
    assert (used(gateway, session) - before) / BRANCHES < 25
    before = used(gateway, session)
    for _ in range(BRANCHES):
        savepoints.make()
    assert (used(gateway, session) - before) / BRANCHES < 10


def test_times(run, savepoints):
    """With a frame of 128 MiB: how long the kernel is held, and how soon it is back."""
    run("import numpy as np, pandas as pd\nframe = pd.DataFrame(np.ones((1 << 20, 16)))")
    makes, restores = [], []
    for _ in range(5):
        began = time.monotonic()
        made = savepoints.make()["savepoint"]
        makes.append(time.monotonic() - began)
        began = time.monotonic()
        savepoints.restore(made)
        assert value(run, "float(frame[0].sum())") == "1048576.0"
        restores.append(time.monotonic() - began)
    assert statistics.median(makes) < 0.3 and statistics.median(restores) < 0.8, (makes, restores)
