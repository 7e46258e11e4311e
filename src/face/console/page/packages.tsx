// SPDX-License-Identifier: Apache-2.0
// The Python packages of a session: what is there, and installing more with their progress.

import { useState } from "preact/hooks";

import { readLines, send, session } from "./api";
import { Execution } from "./execution";
import { counted } from "./format";
import { Outputs } from "./output";
import { usePolled } from "./polling";

interface Package {
    name: string;
    status: string;
    version?: string;
    message?: string;
}

export function Packages({ id }: { id: string }) {
    const { value, error, refresh } = usePolled<{ packages: Package[] }>(
        session(id, "packages"),
        10_000,
    );
    const [progress, setProgress] = useState<Execution | null>(null);
    const [, draw] = useState(0);
    const [failure, setFailure] = useState("");
    const [filter, setFilter] = useState("");
    const busy = progress !== null && !progress.done;
    const onSubmit = async (event: Event) => {
        event.preventDefault();
        const form = event.target as HTMLFormElement;
        const packages = String(new FormData(form).get("packages")).split(/[\s;]+/).filter(Boolean);
        if (!packages.length || busy) return;
        const lines = new Execution();
        setFailure("");
        setProgress(lines);
        try {
            const response = await send(session(id, "packages"), {
                method: "POST",
                body: { packages },
            });
            await readLines(response, (line) => {
                lines.add(line);
                draw((count) => count + 1);
            });
            const failed = lines.done?.packages?.find((each: Package) => each.message);
            if (failed) setFailure(failed.message);
            else form.reset();
            if (!lines.done) lines.lose("The connection was lost. The installation continues in the sandbox.");
        } catch (failed) {
            lines.lose("No package was installed.");
            setFailure((failed as Error).message);
        }
        draw((count) => count + 1);
        refresh();
    };
    const found = (value?.packages ?? [])
        .filter((each) => each.name.includes(filter.toLowerCase()))
        .sort((a, b) => a.name.localeCompare(b.name));
    return (
        <div class="packages">
            <form class="new" onSubmit={onSubmit}>
                <input
                    name="packages"
                    class="grow"
                    aria-label="Packages to install"
                    placeholder="humanize==4.11.0 tinydb"
                    autocomplete="off"
                    spellcheck={false}
                />
                <button type="submit" class="primary" disabled={busy}>
                    {busy ? "Installing…" : "Install"}
                </button>
            </form>
            {(failure || error) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            {progress && <Outputs execution={progress} sessionId={id} />}
            <p>
                <input
                    aria-label="Filter packages"
                    placeholder="Filter"
                    value={filter}
                    onInput={(event) => setFilter(event.currentTarget.value)}
                />{" "}
                <span class="quiet">{value ? counted(found.length, "package") : "Loading…"}</span>
            </p>
            {found.length > 0 && (
                <table class="list">
                    <thead>
                        <tr>
                            <th scope="col">Package</th>
                            <th scope="col">Version</th>
                            <th scope="col">State</th>
                        </tr>
                    </thead>
                    <tbody>
                        {found.map((each) => (
                            <tr key={each.name}>
                                <th scope="row">{each.name}</th>
                                <td data-label="Version">{each.version ?? ""}</td>
                                <td>{[each.status, each.message].filter(Boolean).join(": ")}</td>
                            </tr>
                        ))}
                    </tbody>
                </table>
            )}
        </div>
    );
}
