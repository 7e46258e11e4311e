// SPDX-License-Identifier: Apache-2.0
// JupyterLab's client with the gateway at KG_URL as its server: sessions of notebooks.
import assert from "node:assert/strict";
import { connect } from "./services.mjs";

const { kernels, sessions: makeManager } = await connect();
const manager = makeManager();
await manager.ready;

async function run(session, code) {
  const future = session.kernel.requestExecute({ code });
  let text = "";
  future.onIOPub = (message) => (text += message.content.text ?? "");
  await future.done;
  return text;
}
const running = async () => {
  await manager.refreshRunning();
  return [...manager.running()];
};

const options = { path: "a.ipynb", name: "a.ipynb", type: "notebook", kernel: { name: "python3" } };
const session = await manager.startNew(options);
assert.equal(await run(session, "x = 41\nprint(x)"), "41\n");
assert.deepEqual(
  (await running()).map(({ id, path, type, kernel }) => [id, path, type, kernel.id]),
  [[session.id, "a.ipynb", "notebook", session.kernel.id]],
);

// The same path again is the same session, in another tab.
const again = await makeManager().startNew(options);
assert.deepEqual([again.id, again.kernel.id], [session.id, session.kernel.id]);
assert.equal(await run(again, "x += 1\nprint(x)"), "42\n");
again.dispose();

await session.setPath("folder/b.ipynb");
await session.setName("b.ipynb");
assert.equal((await manager.findByPath("folder/b.ipynb")).id, session.id);
assert.equal(await manager.findByPath("a.ipynb"), undefined);

const first = session.kernel.id;
await session.changeKernel({ name: "python3" });
assert.notEqual(session.kernel.id, first);
assert.equal(await run(session, "print('x' in globals())"), "False\n");
await kernels.refreshRunning();
assert.deepEqual(
  [...kernels.running()].map((model) => model.id),
  [session.kernel.id],
);

await session.shutdown();
assert.deepEqual(await running(), []);
await kernels.refreshRunning();
assert.deepEqual([...kernels.running()], []);
await assert.rejects(
  manager.startNew({ ...options, kernel: { name: "no-such-kernel" } }),
  { message: /no-such-kernel/ },
);
console.log("done");
process.exit(0);
