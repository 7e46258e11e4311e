// SPDX-License-Identifier: Apache-2.0
// A web server in a sandbox, by the name that getHost() gives: HTTP, and a WebSocket.
import assert from "node:assert/strict";
import { inSandbox, watched } from "./sdk.mjs";

const PORT = 8000;
const SERVER = `
import asyncio, tornado.web, tornado.websocket

class Page(tornado.web.RequestHandler):
    def post(self):
        self.write(f"{self.request.method} {self.request.uri} {self.request.body.decode()}")

class Echo(tornado.websocket.WebSocketHandler):
    def on_message(self, message):
        self.write_message(message.upper())

async def main():
    tornado.web.Application([("/echo", Echo), ("/.*", Page)]).listen(${PORT}, "127.0.0.1")
    print("serving", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
`;

async function serve(sandbox) {
  let said = "";
  const ready = watched(() => said.includes("serving"));
  await sandbox.files.write("server.py", SERVER);
  await sandbox.commands.run("python server.py", {
    background: true,
    timeoutMs: 0,
    onStdout: (it) => {
      said += it;
      ready.tell();
    },
  });
  await ready.found;
}

function echo(url, message) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    socket.onopen = () => socket.send(message);
    socket.onerror = () => reject(new Error(`${url} has failed`));
    socket.onmessage = (event) => {
      socket.close();
      resolve(event.data);
    };
  });
}

await inSandbox(async (sandbox) => {
  await serve(sandbox);
  const host = sandbox.getHost(PORT);
  const page = await fetch(`https://${host}/a?b=c`, { method: "POST", body: "hello" });
  assert.equal(await page.text(), "POST /a?b=c hello");
  assert.equal(await echo(`wss://${host}/echo`, "hello"), "HELLO");
});

// A sandbox whose ports are not public: whoever has its token gets in.
await inSandbox(
  async (sandbox) => {
    await serve(sandbox);
    const url = `https://${sandbox.getHost(PORT)}/`;
    const headers = { "e2b-traffic-access-token": sandbox.trafficAccessToken };
    assert.equal((await fetch(url, { method: "POST" })).status, 403);
    assert.equal((await fetch(url, { method: "POST", headers })).status, 200);
  },
  { network: { allowPublicTraffic: false } },
);
