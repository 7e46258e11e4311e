// SPDX-License-Identifier: Apache-2.0
// A real MCP client for tests. Reads lines of JSON: first what it connects to {sdk, transport, url |
// command, key?}, where sdk is "1", "2-legacy" or "2-auto" and transport "http", "sse" or "stdio";
// then what it is to do {do, …}. Answers each with one line {result} or {error, code}.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const packages = createRequire(pathToFileURL(process.env.KG_NODE_ROOT + "/"));
const load = (name) => import(pathToFileURL(packages.resolve(name)));

async function modules(sdk) {
  if (sdk !== "1") {
    const all = await load("@modelcontextprotocol/client");
    const stdio = await load("@modelcontextprotocol/client/stdio");
    return { ...all, ...stdio };
  }
  const part = (path) => load(`@modelcontextprotocol/sdk/client/${path}.js`);
  return Object.assign({}, ...(await Promise.all(["index", "streamableHttp", "sse", "stdio"].map(part))));
}

function transportOf(all, plan) {
  const url = plan.url && new URL(plan.url);
  const requestInit = { headers: plan.key ? { Authorization: `Bearer ${plan.key}` } : {} };
  if (plan.transport === "stdio") {
    const [command, ...args] = plan.command;
    return new all.StdioClientTransport({ command, args });
  }
  if (plan.transport === "sse") return new all.SSEClientTransport(url, { requestInit });
  return new all.StreamableHTTPClientTransport(url, { requestInit });
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => JSON.parse((await lines.next()).value ?? "null");
const plan = await next();
const all = await modules(plan.sdk);
const options = plan.sdk === "2-auto" ? { versionNegotiation: { mode: "auto" } } : {};
let client;

async function connect() {
  client = new all.Client({ name: "kernelgate-tests", version: "1" }, options);
  await client.connect(transportOf(all, plan));
  const version = client.getNegotiatedProtocolVersion?.() ?? client.transport.protocolVersion;
  return { server: client.getServerVersion()?.name, instructions: client.getInstructions(), version };
}

// `progress` collects what is reported. `on_progress` is what happens when the first report with a message
// comes: "cancel" cancels the call, and {name, args} is one more call, which is made beside it.
async function call({ name, args, timeout, progress, on_progress }) {
  const told = [];
  const abort = new AbortController();
  let act = (on_progress && (() => (on_progress === "cancel" ? abort.abort("changed my mind") : call(on_progress))));
  const request = { signal: abort.signal, timeout: timeout ?? 60000, resetTimeoutOnProgress: true };
  const hear = (news) => {
    told.push(news);
    if (!act || !news.message) return;
    act();
    act = undefined;
  };
  if (progress || on_progress) request.onprogress = hear;
  const params = { name, arguments: args ?? {} };
  const started = Date.now();
  const result = await (plan.sdk === "1"
    ? client.callTool(params, undefined, request)
    : client.callTool(params, request));
  return { ...result, progress: told, ms: Date.now() - started };
}

const steps = {
  connect,
  call,
  tools: () => client.listTools(),
  prompts: () => client.listPrompts(),
  prompt: ({ name, args }) => client.getPrompt({ name, arguments: args }),
  resources: () => client.listResources(),
  templates: () => client.listResourceTemplates(),
  read: ({ uri }) => client.readResource({ uri }),
  complete: ({ params }) => client.complete(params),
  close: () => client.close(),
};

for (let step; (step = await next()); ) {
  let line;
  try {
    line = { result: (await steps[step.do](step)) ?? {} };
  } catch (error) {
    line = { error: error.message, code: error.code };
  }
  console.log(JSON.stringify(line));
}
process.exit(0);
