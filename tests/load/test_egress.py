# SPDX-License-Identifier: Apache-2.0
"""What the way out of a sandbox costs."""

import component
from kernelgate import wait_for
from web import Web

TUNNEL = """
import socket, time
idle = socket.create_connection(("127.0.0.1", 3128))
idle.sendall(b"CONNECT 127.0.0.1:PORT HTTP/1.1\\r\\n\\r\\n")
print(idle.recv(100).decode(), flush=True)
time.sleep(3600)
"""


def test_an_idle_tunnel_costs_no_processor_time(start_gateway):
    web = Web()
    flags = "--network", "egress", "--fetch-allow", "127.0.0.1"
    gateway = start_gateway(*component.FLAGS, *flags)
    session = gateway.create_session()
    url = f"/api/v1/sessions/{session}/files/"
    gateway.client.put(url + "tunnel.py", content=TUNNEL.replace("PORT", str(web.port)))
    gateway.execute("spawn exec python3 tunnel.py >answer", session_id=session)
    wait_for(lambda: gateway.client.get(url + "answer").text.startswith("HTTP/1.1 200"))
    # If the gateway watched a descriptor that nobody reads, this would be near 1.
    assert gateway.processor_share() < 0.1
    web.close()
