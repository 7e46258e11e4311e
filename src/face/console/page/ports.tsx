// SPDX-License-Identifier: Apache-2.0
// The ports of a session: what listens, links that open one in a tab, and who may.

import { useState } from "preact/hooks";

import { ask, session } from "./api";
import { usePolled } from "./polling";

interface Port {
    port: number;
    address: string;
    public: boolean;
    url: string | null; // null: not reachable from this browser
}

/** Opens a new link in a tab. The tab is there at once, since a browser stops one that appears later, and
 * knows nothing of this page. */
async function openPort(path: string) {
    const opened = window.open("about:blank");
    if (opened) opened.opener = null;
    try {
        const { url } = await ask<{ url: string }>(path, { method: "POST" });
        if (!opened) throw new Error("The browser blocked the new tab: allow pop-ups for this page.");
        opened.location.replace(url);
    } catch (error) {
        opened?.close();
        throw error;
    }
}

export function Ports({ id }: { id: string }) {
    const { value, error, refresh } = usePolled<{ ports: Port[] }>(session(id, "ports"), 3000);
    const [failure, setFailure] = useState("");
    const attempt = async (act: () => Promise<unknown>) => {
        setFailure("");
        try {
            await act();
        } catch (failed) {
            setFailure((failed as Error).message);
        }
        refresh();
    };
    const row = (of: Port) => {
        const path = session(id, "ports", String(of.port));
        const body = { public: !of.public };
        return (
            <tr key={of.port}>
                <th scope="row">{of.port}</th>
                <td data-label="Address">{of.address}</td>
                <td data-label="Open to">{of.public ? "everyone" : "only you"}</td>
                <td>
                    {of.url ? (
                        <>
                            <button
                                class="small"
                                aria-label={`Open port ${of.port}`}
                                onClick={() => attempt(() => openPort(path))}
                            >
                                Open
                            </button>{" "}
                            <button
                                class="plain small"
                                aria-label={`Make ${of.public ? "private" : "public"}: port ${of.port}`}
                                onClick={() => attempt(() => ask(path, { method: "POST", body }))}
                            >
                                {of.public ? "Make private" : "Make public"}
                            </button>
                        </>
                    ) : (
                        <span class="quiet">not reachable from this browser</span>
                    )}
                </td>
            </tr>
        );
    };
    return (
        <div class="ports">
            {(failure || error) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            {!value && !error && <p class="quiet">Loading…</p>}
            {value?.ports.length === 0 && (
                <p class="empty quiet">
                    No ports are open. Start a server in this sandbox, such as Streamlit or Vite, and
                    it appears here.
                </p>
            )}
            {value && value.ports.length > 0 && (
                <table class="list">
                    <thead>
                        <tr>
                            <th scope="col">Port</th>
                            <th scope="col">Address</th>
                            <th scope="col">Open to</th>
                            <td />
                        </tr>
                    </thead>
                    <tbody>{value.ports.map(row)}</tbody>
                </table>
            )}
        </div>
    );
}
