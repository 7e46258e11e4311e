// SPDX-License-Identifier: Apache-2.0
// What the first page says to those who have no sandbox: what one is, and three ways to begin.

import { useState } from "preact/hooks";

import { ask } from "./api";
import { linkTo, type Tab } from "./route";

const WAYS: { tab: Tab; title: string; text: string }[] = [
    {
        tab: "console",
        title: "Run some code",
        text: "Write code in cells. Tables, figures and charts appear below each.",
    },
    {
        tab: "files",
        title: "Work with a file",
        text: "Upload a table or a document, look at it here, and read it from code.",
    },
    {
        tab: "terminal",
        title: "Open a terminal",
        text: "A shell in the same container, with the same files and packages.",
    },
];

/** Starts a sandbox and goes to it. */
export async function startSandbox(body: Record<string, unknown>, tab?: Tab) {
    const made = await ask<{ data: { session_id: string } }>("api/v1/sessions", {
        method: "POST",
        body,
    });
    location.hash = linkTo(made.data.session_id, tab);
}

export function Welcome({ onError }: { onError: (message: string) => void }) {
    const [starting, setStarting] = useState<Tab | null>(null);
    const onStart = async (tab: Tab) => {
        setStarting(tab);
        try {
            await startSandbox({}, tab);
        } catch (error) {
            onError((error as Error).message);
            setStarting(null);
        }
    };
    return (
        <section class="welcome" aria-label="Start a sandbox">
            <h2>Start a sandbox</h2>
            <p>
                You have no sandboxes. A sandbox is an isolated container with its own kernels,
                files and packages. Code runs in it safely, and it is deleted after some time
                without use.
            </p>
            <div class="ways">
                {WAYS.map(({ tab, title, text }) => (
                    <button
                        key={tab}
                        class="way"
                        disabled={starting !== null}
                        aria-busy={starting === tab}
                        onClick={() => onStart(tab)}
                    >
                        <strong>{starting === tab ? "Starting…" : title}</strong>
                        <span class="quiet">{text}</span>
                    </button>
                ))}
            </div>
            <p class="quiet">
                Programs can use sandboxes, too: <a href="#/connect">Connect</a> has commands for
                curl, Python, MCP clients and JupyterLab.
            </p>
        </section>
    );
}
