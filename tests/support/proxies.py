# SPDX-License-Identifier: Apache-2.0
"""Caddy and Traefik with the files in deploy/, moved to ports and a folder of their own."""

import os
import pathlib
import shutil
import ssl
import subprocess
import tempfile

import contract
import httpx
import leftovers
from kernelgate import PROJECT, free_port, wait_for
from nginx import ToLoopback, accepts, sign

NAME = "kernelgate.example"
PORTS_DOMAIN = f"ports.{NAME}"


class Proxy:
    """Subclasses write their configuration into `root`, and say how the program is started."""

    program = None
    folder = None  # of the configuration, as the documentation installs it

    def __init__(self, backend):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix=f"{leftovers.PREFIX}proxy-"))
        self.port, self.tls_port = free_port(), free_port()
        self.authority = self.root / "authority.pem"
        self.process = None
        (self.root / "ports").mkdir()
        self._make_certificate()
        self.configure(backend)

    def _make_certificate(self):
        key = self.root / "authority.key"
        sign("-subj", "/CN=authority", "-out", self.authority, "-keyout", key)
        sign(
            "-subj", f"/CN={NAME}", "-extensions", "v3_req",
            "-addext", f"subjectAltName=DNS:{NAME},DNS:*.{PORTS_DOMAIN}",
            "-CA", self.authority, "-CAkey", key,
            "-out", self.root / "ports/fullchain.pem", "-keyout", self.root / "ports/privkey.pem",
        )  # fmt: skip

    def moved(self, file, *changes):
        """The text of a file of the project, with our folder and these changes, each of which applies."""
        text = (PROJECT / file).read_text()
        for old, new in changes:
            assert old in text, f"{file} has no {old}"
            text = text.replace(old, new)
        return text.replace(self.folder, str(self.root))

    def start(self):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self.command(), env=environment, cwd=self.root, stdout=log, stderr=log
            )
        wait_for(lambda: self.process.poll() is not None or accepts(self.tls_port))
        assert self.process.poll() is None, self.log()
        return self

    def stop(self):
        self.process.terminate()
        status, log = self.process.wait(60), self.log()
        shutil.rmtree(self.root)
        assert status == 0, log

    def log(self):
        return (self.root / "log").read_text()

    def trust(self):
        return ssl.create_default_context(cafile=self.authority)

    def client(self, key, name=NAME, scheme="https", http2=False):
        port = self.tls_port if scheme == "https" else self.port
        return httpx.Client(
            base_url=f"{scheme}://{name}:{port}", headers={"Authorization": f"Bearer {key}"} if key else {},
            transport=ToLoopback(name, verify=self.trust(), http2=http2), timeout=60,
            event_hooks={"response": [contract.check_stream]},
        )  # fmt: skip


class Caddy(Proxy):
    program = "caddy"
    folder = "/etc/caddy"

    def configure(self, backend):
        ours = f"https_port {self.tls_port}\n\thttp_port {self.port}\n\tadmin off\n\tdebug\n\t"
        certificate = "\ttls /etc/caddy/ports/fullchain.pem /etc/caddy/ports/privkey.pem\n"
        text = self.moved(
            "deploy/caddy/Caddyfile",
            ("{\n\t# Queries", f"{{\n\t{ours}# Queries"),
            ("127.0.0.1:16010 {", f"{backend} {{"),
            (f"\n{NAME} {{\n", f"\n{NAME} {{\n{certificate}"),
        )
        (self.root / "Caddyfile").write_text(text)

    def command(self):
        return [self.program, "run", "--config", self.root / "Caddyfile"]


class Traefik(Proxy):
    program = str(PROJECT / "build/traefik/bin/traefik")
    folder = "/etc/traefik"

    def configure(self, backend):
        static = self.moved(
            "deploy/traefik/traefik.yml",
            ('":80"', f'":{self.port}"'),
            ('":443"', f'":{self.tls_port}"'),
        )
        # Certificates are those of the file: nobody gives one to a test.
        (self.root / "traefik.yml").write_text(static.partition("certificatesResolvers:")[0])
        routes = self.moved(
            "deploy/traefik/kernelgate.yml",
            ("http://127.0.0.1:16010", f"http://{backend}"),
            ("{certResolver: letsencrypt}", "{}"),
        )
        (self.root / "kernelgate.yml").write_text(routes)

    def start(self):
        super().start()
        with self.client(None) as client:
            wait_for(lambda: self._has_routes(client))
        return self

    @staticmethod
    def _has_routes(client):
        """It listens before it has read its routes and certificates."""
        try:
            return client.get("/").text != "404 page not found\n"
        except httpx.ConnectError:
            return False

    def command(self):
        return [self.program, f"--configFile={self.root}/traefik.yml"]
