// SPDX-License-Identifier: Apache-2.0
// JupyterLab's client with the gateway at KG_URL as its server: kernels, messages, comms.
import assert from "node:assert/strict";
import { connect } from "./services.mjs";

const { kernels, specs, sockets } = await connect();

const outputs = (future) => {
  const seen = [];
  future.onIOPub = (message) => seen.push(message);
  return seen;
};
const textOf = (messages) =>
  messages
    .filter((message) => message.header.msg_type === "stream")
    .map((message) => message.content.text)
    .join("");

async function run(kernel, code) {
  const future = kernel.requestExecute({ code, allow_stdin: true });
  const seen = outputs(future);
  const reply = await future.done;
  return { reply: reply.content, text: textOf(seen) };
}

// Starts code, and waits until it prints.
async function start(kernel, code) {
  const future = kernel.requestExecute({ code });
  const seen = outputs(future);
  await new Promise((resolve) => {
    future.onIOPub = (message) => {
      seen.push(message);
      if (textOf(seen)) resolve();
    };
  });
  return future;
}

assert.equal(specs.specs.default, "python3");
assert.ok(specs.specs.kernelspecs.javascript);

const kernel = await kernels.startNew({ name: "python3" });
assert.equal((await kernel.info).language_info.name, "python");
assert.deepEqual(
  sockets.map((socket) => socket.protocol),
  ["v1.kernel.websocket.jupyter.org"],
);
await kernels.refreshRunning();
assert.deepEqual(
  [...kernels.running()].map((model) => model.id),
  [kernel.id],
);

// ---- Execution

assert.deepEqual(await run(kernel, "x = 20\nprint(x + 1)"), {
  reply: { status: "ok", execution_count: 1, user_expressions: {}, payload: [] },
  text: "21\n",
});
assert.equal((await run(kernel, "1/0")).reply.ename, "ZeroDivisionError");

const asking = kernel.requestExecute({ code: "print(input('who? '))", allow_stdin: true });
const answered = outputs(asking);
asking.onStdin = (message) => {
  assert.equal(message.content.prompt, "who? ");
  kernel.sendInputReply({ status: "ok", value: "me" }, message.header);
};
await asking.done;
assert.equal(textOf(answered), "me\n");

const completed = await kernel.requestComplete({ code: "prin", cursor_pos: 4 });
assert.ok(completed.content.matches.includes("print"));
const inspected = await kernel.requestInspect({ code: "print", cursor_pos: 5, detail_level: 0 });
assert.ok(inspected.content.found);

// ---- Comms with buffers, opened by either side

const bytes = (view) => [...new Uint8Array(view.buffer ?? view, view.byteOffset, view.byteLength)];
const next = (comm) => new Promise((resolve) => (comm.onMsg = resolve));

await run(
  kernel,
  `
from ipykernel.comm import Comm
def opened(comm, message):
    @comm.on_msg
    def reply(message):
        comm.send({"count": len(message["buffers"])}, buffers=[bytes(b)[::-1] for b in message["buffers"]])
get_ipython().kernel.comm_manager.register_target("echo", opened)`,
);
const comm = kernel.createComm("echo");
await comm.open().done;
const large = Uint8Array.from({ length: 1_000_000 }, (_, i) => i % 251);
const reply = next(comm);
await comm.send({}, {}, [Uint8Array.of(0, 255, 10).buffer, large.buffer]).done;
const echoed = await reply;
assert.deepEqual(echoed.content.data, { count: 2 });
assert.deepEqual(bytes(echoed.buffers[0]), [10, 255, 0]);
assert.deepEqual(bytes(echoed.buffers[1]), [...large].reverse());

const offered = new Promise((resolve) =>
  kernel.registerCommTarget("page", (_, message) => resolve(message)),
);
await run(kernel, "made = Comm(target_name='page', data={'a': 1}, buffers=[bytes(range(256))])");
const open = await offered;
assert.deepEqual(open.content.data, { a: 1 });
assert.deepEqual(bytes(open.buffers[0]), Array.from({ length: 256 }, (_, i) => i));

// ---- Interrupt, restart, shutdown

const endless = await start(kernel, "print('go', flush=True)\nwhile True: pass");
await kernel.interrupt();
assert.equal((await endless.done).content.ename, "KeyboardInterrupt");
assert.equal((await run(kernel, "print(x)")).text, "20\n");

const states = [];
kernel.statusChanged.connect((_, status) => states.push(status));
await kernel.restart();
assert.equal((await run(kernel, "print('x' in globals())")).text, "False\n");
// The client itself says "restarting"; "autorestarting" is what it makes of a death of the kernel.
assert.ok(states.includes("restarting") && !states.includes("autorestarting"), states.join());

const other = kernels.connectTo({ model: kernel.model });
assert.equal((await run(other, "print('other')")).text, "other\n");
other.dispose();

await kernel.shutdown();
await kernels.refreshRunning();
assert.deepEqual([...kernels.running()], []);
assert.ok(kernel.isDisposed);
await assert.rejects(kernels.startNew({ name: "no-such-kernel" }), { message: /no-such-kernel/ });
console.log("done");
process.exit(0);
