// SPDX-License-Identifier: Apache-2.0
// A file's name, which downloads it. The key stays in a header.

import { useState } from "preact/hooks";

import { file, send } from "./api";

async function download(sessionId: string, path: string) {
    const blob = await (await send(file(sessionId, path))).blob();
    const link = document.createElement("a");
    // As bytes: a browser that shows it nevertheless does not run it.
    link.href = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
    link.download = path.split("/").pop()!;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export function FileLink({ sessionId, path }: { sessionId: string; path: string }) {
    const [error, setError] = useState("");
    const onClick = () => {
        setError("");
        download(sessionId, path).catch((failed) => setError(failed.message));
    };
    return (
        <>
            <button class="link" onClick={onClick} title={`Download ${path}`}>
                {path}
            </button>
            {error && (
                <span role="alert" class="error">
                    {" "}
                    {error}
                </span>
            )}
        </>
    );
}
