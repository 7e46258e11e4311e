# SPDX-License-Identifier: Apache-2.0
"""Debian's nginx with the files in deploy/nginx, and clients that reach it by names."""

import contextlib
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile

import contract
import httpx
import leftovers
from kernelgate import PROJECT, free_port, wait_for

# Debian's configuration, which includes conf.d.
DEBIAN = pathlib.Path("/etc/nginx/nginx.conf")


class Nginx:
    """nginx set up as docs/docker.md says, in a folder of its own instead of /. Its clients ask for that
    name, with that key."""

    def __init__(self, entry, backends, name, key):
        self.name, self.key = name, key
        self.root = pathlib.Path(tempfile.mkdtemp(prefix=f"{leftovers.PREFIX}nginx-"))
        self.port, self.tls_port = free_port(), free_port()
        self.ours = self.root / "etc/nginx/kernelgate"
        self.process = None
        for folder in ("etc/nginx/conf.d", "var/log/nginx", "var/www/html", "run"):
            (self.root / folder).mkdir(parents=True)
        shutil.copytree(PROJECT / "deploy/nginx", self.ours)
        (self.root / "etc/nginx/conf.d/kernelgate.conf").symlink_to(f"../kernelgate/{entry}")
        (self.ours / "backend.conf").write_text(backends)
        shutil.copy(DEBIAN.with_name("mime.types"), self.root / "etc/nginx")
        for file in self.ours.glob("*.conf"):
            file.write_text(self._moved(file.read_text()))
        temporary = "".join(f"{name}_temp_path /run/{name};" for name in ("client_body", "proxy"))
        text = re.sub("^user .*", "user root;", DEBIAN.read_text(), flags=re.M)
        text = text.replace("http {", f"http {{ {temporary}")
        (self.root / "etc/nginx/nginx.conf").write_text(self._moved(text))

    def _moved(self, text):
        """Replaces the machine's folders and ports by those of this instance."""
        text = re.sub(r"(?<= )/(?=(etc/nginx|var/log|var/www|run)/)", f"{self.root}/", text)
        text = re.sub(r"(listen (?:\[::\]:)?)80\b", rf"\g<1>{self.port}", text)
        return re.sub(r"(listen (?:\[::\]:)?)443\b", rf"\g<1>{self.tls_port}", text)

    def start(self):
        self.process = subprocess.Popen(
            ["nginx", "-c", self.root / "etc/nginx/nginx.conf", "-e", self.root / "stderr",
             "-g", "daemon off;"],
        )  # fmt: skip
        wait_for(lambda: self.process.poll() is not None or accepts(self.port))
        assert self.process.poll() is None, self.logs()
        return self

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0
        # Since 1.25 there is another way to say this one, which 1.22 does not have.
        lines = [line for line in self.logs().splitlines() if '"listen ... http2"' not in line]
        assert not [line for line in lines if "[warn]" in line or "[alert]" in line], self.logs()
        shutil.rmtree(self.root)

    def client(self, address="127.0.0.1", scheme="http", http2=False):
        """A client that connects from that loopback address."""
        port, verify = self.port, True
        if scheme == "https":
            port, verify = self.tls_port, ssl.create_default_context(cafile=self.authority)
        return httpx.Client(
            base_url=f"{scheme}://{self.name}:{port}", headers={"Authorization": f"Bearer {self.key}"},
            transport=ToLoopback(self.name, local_address=address, verify=verify, http2=http2), timeout=60,
            event_hooks={"response": [contract.check_stream]},
        )  # fmt: skip

    @property
    def authority(self):
        """The certificate of who has signed the server's."""
        return self.root / "authority.pem"

    def make_certificate(self, *names):
        """A certificate for the server's name, and for others."""
        wanted = ",".join(f"DNS:{name}" for name in (self.name, *names))
        key = self.root / "authority.key"
        sign("-subj", "/CN=authority", "-out", self.authority, "-keyout", key)
        sign(
            "-subj", f"/CN={self.name}", "-extensions", "v3_req", "-addext", f"subjectAltName={wanted}",
            "-CA", self.authority, "-CAkey", key,
            "-out", self.ours / "tls/fullchain.pem", "-keyout", self.ours / "tls/privkey.pem",
        )  # fmt: skip

    def logs(self):
        files = [*self.root.glob("var/log/nginx/*"), self.root / "stderr"]
        return "".join(file.read_text() for file in files if file.exists())


class ToLoopback(httpx.HTTPTransport):
    """Sends all requests to this machine, with that name."""

    def __init__(self, name, **options):
        super().__init__(**options)
        self._name = name

    def handle_request(self, request):
        request.extensions["sni_hostname"] = self._name
        request.headers["Host"] = self._name
        request.url = request.url.copy_with(host="127.0.0.1")
        return super().handle_request(request)


def accepts(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def sign(*arguments):
    """Makes a key, and a certificate that it, or an authority, has signed."""
    kind = "-nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1".split()
    command = ["openssl", "req", "-x509", *kind, *arguments]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
