// SPDX-License-Identifier: Apache-2.0
// JupyterLab's client with the gateway at KG_URL as its server: terminals.
import assert from "node:assert/strict";
import { connect } from "./services.mjs";

const { kernels, terminals } = await connect();

// A terminal's client, and what it was shown.
function follow(terminal) {
  const client = { shown: "", waiting: null };
  terminal.messageReceived.connect((_, message) => {
    if (message.type === "stdout") client.shown += message.content[0];
    client.waiting?.();
  });
  client.until = async (wanted) => {
    while (!client.shown.includes(wanted)) await new Promise((resolve) => (client.waiting = resolve));
    client.shown = client.shown.slice(client.shown.indexOf(wanted) + wanted.length);
  };
  client.type = (text) => terminal.send({ type: "stdin", content: [text] });
  client.resize = (rows, cols) => terminal.send({ type: "set_size", content: [rows, cols, 0, 0] });
  return client;
}

assert.ok(terminals.isAvailable());
const first = await terminals.startNew({ cwd: "/tmp" });
const one = follow(first);

one.resize(30, 90);
one.type("stty size; pwd\n");
await one.until("30 90\r\n/tmp\r\n");

// ---- Programs, and what is typed to them

one.type("python -q\n");
await one.until(">>> ");
one.type("6*7\n");
await one.until("42\r\n");
one.type("\x04");
await one.until("$ ");
one.resize(40, 100);
one.type("stty size\n");
await one.until("40 100\r\n");
// What the shell has echoed does not say that the program is in the foreground.
one.type("bash -c 'trap \"echo c$((1))\" CONT; echo b$((1)); while :; do sleep 0.1; done'\n");
await one.until("b1\r\n");
one.type("\x1a");
await one.until("Stopped");
await one.until("$ ");
one.type("fg\n");
await one.until("c1\r\n");
one.type("\x03");
await one.until("^C");

// ---- Several clients, and those that come back

await terminals.refreshRunning();
assert.deepEqual([...terminals.running()].map((model) => model.name), [first.name]);
const second = terminals.connectTo({ model: first.model });
const other = follow(second);
await other.until("42\r\n"); // replayed
other.type("echo $((6*8))\n");
await one.until("48\r\n");
first.dispose();
second.dispose();
const again = terminals.connectTo({ model: { name: first.name } });
await follow(again).until("48\r\n");
await again.shutdown();
await terminals.refreshRunning();
assert.deepEqual([...terminals.running()], []);

// ---- In a kernel's session, which has its files

const kernel = await kernels.startNew({ name: "python3" });
await kernel.requestExecute({ code: "open('from_kernel', 'w').write('shared')" }).done;
const answer = await fetch(process.env.KG_URL + "/api/terminals", {
  method: "POST", // the manager has no option for it
  headers: { Authorization: `token ${process.env.KG_KEY}`, "Content-Type": "application/json" },
  body: JSON.stringify({ kernel_id: kernel.id }),
});
const beside = terminals.connectTo({ model: await answer.json() });
const third = follow(beside);
third.type("cat from_kernel; exit\n");
await third.until("shared");
await new Promise((resolve) => {
  beside.disposed.connect(resolve);
  if (beside.isDisposed) resolve();
});
await kernel.shutdown();
console.log("done");
process.exit(0);
