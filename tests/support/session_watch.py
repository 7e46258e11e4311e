# SPDX-License-Identifier: Apache-2.0
"""What changes in a folder of a session, as a stream of lines."""

import contextlib

from kernelgate import LineReader


class Watch(LineReader):
    """Of a stream whose first line has been read."""

    def __init__(self, response):
        super().__init__(response)
        self.started = self.next()
        assert self.started["type"] == "started"

    def event(self):
        """The next event, as (event, path), or (event, from, path)."""
        line = self.next()
        if line["type"] != "event":
            return (line["type"],)
        return (line["event"], *filter(None, [line.get("from")]), line["path"])

    def until(self, *event):
        """All events up to this one."""
        events = [self.event()]
        while events[-1] != event:
            assert events[-1] not in [("done",), ("draining",)], events
            events.append(self.event())
        return events


@contextlib.contextmanager
def watch(gateway, session, client=None, **params):
    client = client or gateway.client
    url = f"/api/v1/sessions/{session}/watch"
    with client.stream("GET", url, params=params) as response:
        if response.status_code != 200:
            response.read()
            raise AssertionError(f"{response.status_code} {response.text}")
        yield Watch(response)
