# SPDX-License-Identifier: Apache-2.0
"""The files of a session over HTTP."""

import http.client
import urllib.parse


class Files:
    """The files of one session."""

    def __init__(self, gateway, session):
        self.gateway = gateway
        self.client = gateway.client
        self.base = f"/api/v1/sessions/{session}/files"

    def url(self, path):
        return f"{self.base}/{urllib.parse.quote(path)}"

    def put(self, path, content, **params):
        return self.client.put(self.url(path), content=content, params=params)

    def get(self, path, root=None, **headers):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        params = {"root": root} if root else None
        return self.client.get(self.url(path), headers=names, params=params)

    def head(self, path):
        return self.client.head(self.url(path))

    def delete(self, path, **params):
        return self.client.delete(self.url(path), params=params)

    def act(self, path, action, root=None, **fields):
        params = {"root": root} if root else None
        body = {"action": action, **fields}
        return self.client.post(self.url(path), json=body, params=params)

    def page(self, **params):
        response = self.client.get(self.base, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    def names(self, **params):
        return [file["path"] for file in self.page(**params)["files"]]

    def raw(self, method, target, body=None, headers=None):
        """Sends a request whose target no library normalises; returns the status and the body."""
        url = urllib.parse.urlsplit(self.gateway.url)
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content
