// SPDX-License-Identifier: Apache-2.0
// What a program needs to use this gateway: snippets with its address, to copy.

import { useState } from "preact/hooks";

import { address, getKey, getLogin } from "./api";
import { useCopy } from "./copy";

const HIDDEN = "•".repeat(12);
// Of those who have logged in with a password.
const MISSING = "YOUR_KEY";

interface Snippet {
    name: string;
    text: (key: string) => string;
}

const header = (key: string) => (key ? ` \\\n  -H 'Authorization: Bearer ${key}'` : "");

const SNIPPETS: Snippet[] = [
    {
        name: "curl",
        text: (key) =>
            `curl -N -X POST ${address}/api/v1/execute${header(key)} \\
  -d '{"code":"print(6 * 7)", "session_id":"demo"}'`,
    },
    {
        name: "Python",
        text: (key) => `import json
import urllib.request

request = urllib.request.Request(
    "${address}/api/v1/execute",
    data=json.dumps({"code": "print(6 * 7)", "session_id": "demo"}).encode(),
${key ? `    headers={"Authorization": "Bearer ${key}"},\n` : ""})
with urllib.request.urlopen(request) as lines:
    for line in lines:
        print(json.loads(line))`,
    },
    {
        name: "Code that calls your functions: Python",
        text: (key) => `import json
from urllib.request import Request, urlopen

def post(path, body):
    headers = ${key ? `{"Authorization": "Bearer ${key}"}` : "{}"}
    return urlopen(Request("${address}/api/v1" + path, json.dumps(body).encode(), headers))

def weather(city):  # runs here, whenever the code calls it
    return {"Oslo": 3, "Cairo": 39}[city]

code = "import tools; print(sum(tools.weather(city=c) for c in ('Oslo', 'Cairo')))"
answer = post("/execute", {"code": code, "tools": [{"name": "weather"}]})
results = f"/executions/{answer.headers['X-Execution-Id']}/tool_results"
for line in map(json.loads, answer):
    print(line)
    if line["type"] == "tool_call":
        result = {"call_id": line["call_id"], "result": weather(**line["arguments"])}
        post(results, {"results": [result]})`,
    },
    {
        name: "Background commands: curl",
        text: (key) => {
            const call = (path: string, rest: string) =>
                `curl${header(key)} \\\n  ${address}/api/v1/sessions${path} ${rest}`;
            const start = `{"command":"read x; echo got $x", "id":"work", "stdin":true, "background":true}`;
            return [
                call("", `-d '{"session_id":"demo"}'`),
                call("/demo/commands", `-d '${start}'`),
                call("/demo/commands", ""),
                call("/demo/commands/work/input", "--data-binary $'42\\n'"),
                call("/demo/commands/work/output", "-N"),
            ].join("\n\n");
        },
    },
    {
        name: "Terminal: Python, with pip install websockets",
        text: (key) => `import json, os, termios, threading, tty, urllib.request
from websockets.sync.client import connect

headers = ${key ? `{"Authorization": "Bearer ${key}"}` : "{}"}
urllib.request.urlopen(urllib.request.Request(
    "${address}/api/v1/sessions", b'{"session_id":"demo"}', headers))

def send_what_is_typed(terminal):
    while typed := os.read(0, 65536):
        terminal.send(typed)

before = termios.tcgetattr(0)
url = "${address.replace(/^http/, "ws")}/api/v1/sessions/demo/terminal?id=main"
with connect(url, additional_headers=headers) as terminal:
    terminal.send(json.dumps({"resize": os.get_terminal_size()}))
    threading.Thread(target=send_what_is_typed, args=[terminal], daemon=True).start()
    tty.setraw(0)
    try:
        for message in terminal:
            if isinstance(message, bytes):
                os.write(1, message)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)`,
    },
    {
        name: "MCP: Claude Code",
        text: (key) => {
            const secret = key ? ` \\\n  --header "Authorization: Bearer ${key}"` : "";
            return `claude mcp add --transport http kernelgate ${address}/mcp${secret}`;
        },
    },
    {
        name: "MCP: configuration file",
        text: (key) => {
            const headers = key ? { headers: { Authorization: `Bearer ${key}` } } : {};
            const server = { type: "http", url: `${address}/mcp`, ...headers };
            return JSON.stringify({ mcpServers: { kernelgate: server } }, null, 2);
        },
    },
    {
        name: "E2B: Python, with pip install e2b-code-interpreter",
        text: (key) => `from e2b_code_interpreter import Sandbox

gateway = {"api_url": "${address}", "sandbox_url": "${address}", "api_key": "${key || "any"}"}
with Sandbox.create(**gateway) as sandbox:
    print(sandbox.run_code("6 * 7").text)`,
    },
    {
        name: "E2B: environment",
        text: (key) =>
            ["API_URL", "SANDBOX_URL"].map((name) => `export E2B_${name}='${address}'\n`).join("") +
            `export E2B_API_KEY='${key || "any"}'`,
    },
    {
        name: "LiteLLM and OpenSandbox: environment",
        text: (key) =>
            `export OPEN_SANDBOX_API_BASE='${address}/v1'` +
            (key && `\nexport OPEN_SANDBOX_API_KEY='${key}'`),
    },
    {
        name: "JupyterLab",
        text: (key) =>
            `${key && `JUPYTER_GATEWAY_AUTH_TOKEN='${key}' `}jupyter lab --gateway-url ${address}`,
    },
];

function Copyable({ snippet, shown }: { snippet: Snippet; shown: boolean }) {
    const [told, copy] = useCopy("The browser blocked copying: show the key, select the text, and copy it.");
    const key = getKey() || (getLogin() ? MISSING : "");
    return (
        <section class="snippet">
            <div class="snippet-head">
                <h2>{snippet.name}</h2>
                <span role="status" class="quiet">
                    {told}
                </span>
                <button onClick={() => copy(snippet.text(key))} aria-label={`Copy ${snippet.name}`}>
                    Copy
                </button>
            </div>
            <pre tabIndex={0} aria-label={snippet.name}>
                {snippet.text(getKey() && !shown ? HIDDEN : key)}
            </pre>
        </section>
    );
}

export function Connect() {
    const [shown, setShown] = useState(false);
    return (
        <main>
            <div class="head">
                <h1>Connect</h1>
                <span class="space" />
                {getKey() && (
                    <button aria-pressed={shown} onClick={() => setShown(!shown)}>
                        {shown ? "Hide the key" : "Show the key"}
                    </button>
                )}
            </div>
            <p class="quiet">
                Ready to copy: these use the gateway at {address}
                {getKey() && " and the key that you logged in with"}.
                {!getKey() && getLogin() && (
                    <>
                        {" "}
                        Create a <a href="#/keys">key</a> for each program, and replace {MISSING} with
                        it.
                    </>
                )}
            </p>
            {SNIPPETS.map((snippet) => (
                <Copyable key={snippet.name} snippet={snippet} shown={shown} />
            ))}
        </main>
    );
}
