// SPDX-License-Identifier: Apache-2.0
// One sandbox: what it uses, what can be done with it, and its tabs.

import { useEffect, useMemo, useState } from "preact/hooks";

import { ApiError, send, type Session, session } from "./api";
import { Commands } from "./commands";
import { Console } from "./console";
import { Files } from "./files";
import { alsoRuns, bytes, duration } from "./format";
import { mib, sourceOf, useLimits } from "./limits";
import { Notebook } from "./notebook";
import { Packages } from "./packages";
import { usePolled } from "./polling";
import { Ports } from "./ports";
import { useQuestion } from "./question";
import { linkTo, type Tab, TABS } from "./route";
import { ending, restarting, stateOf } from "./sandboxes";
import { nameOf, SessionName } from "./session_name";
import { Terminals } from "./terminals";

const POLL_MS = 3000;
const TITLES: Record<Tab, string> = {
    console: "Console",
    terminal: "Terminal",
    files: "Files",
    packages: "Packages",
    commands: "Commands",
    ports: "Ports",
};

function Usage({ of }: { of: Session }) {
    const known = useLimits();
    if (!of.usage) return null;
    const most = (name: "memory_mb" | "disk_mb") => known && ` of ${bytes(mib(known.limits[name]))}`;
    const from = (name: "memory_mb" | "disk_mb") =>
        known ? `, with the limit of ${sourceOf(known, name)}` : "";
    return (
        <>
            <span title={`Memory${from("memory_mb")}`}>
                {bytes(of.usage.memory_bytes)}
                {most("memory_mb")}
            </span>
            <span title={`Disk${from("disk_mb")}`} class="wide">
                {bytes(of.usage.disk_bytes)}
                {most("disk_mb")} on disk
            </span>
            <span title="Processor time" class="wide">
                CPU {of.usage.cpu_seconds.toFixed(1)} s
            </span>
        </>
    );
}

export function SessionView({ id, tab }: { id: string; tab: Tab }) {
    const { value: of, error, refresh } = usePolled<Session>(session(id), POLL_MS);
    const notebook = useMemo(() => new Notebook(id), [id]);
    const [failure, setFailure] = useState("");
    const [ask, question] = useQuestion();
    useEffect(() => () => notebook.stop(), [notebook]);
    const act = async (method: string, ...rest: string[]) => {
        setFailure("");
        try {
            await send(session(id, ...rest), { method });
            if (method === "DELETE") location.hash = "#/";
        } catch (failed) {
            setFailure((failed as Error).message);
        }
        refresh();
    };
    const name = of ? nameOf(of) : id;
    const gone = error instanceof ApiError && error.status === 404;
    return (
        <main class="session">
            <div class="head">
                <SessionName id={id} of={gone ? null : of} onChange={refresh} />
                {of && !gone && (
                    <p class="usage">
                        <span class={`state ${stateOf(of)}`}>{stateOf(of)}</span>
                        <Usage of={of} />
                        {alsoRuns(of) && <span>{alsoRuns(of)}</span>}
                        {!of.is_busy && (
                            <span>
                                ends in {duration(Date.parse(of.expires_at) - Date.now())} without activity
                            </span>
                        )}
                    </p>
                )}
                <span class="space" />
                {of && !gone && (
                    <div class="actions" role="group" aria-label="Sandbox">
                        <button
                            onClick={async () => {
                                if (await ask(restarting([name]))) void act("POST", "restart");
                            }}
                        >
                            Restart kernels
                        </button>
                        <button
                            class="danger"
                            onClick={async () => {
                                if (await ask(ending([name]))) void act("DELETE");
                            }}
                        >
                            End
                        </button>
                    </div>
                )}
            </div>
            {gone && (
                <p role="alert" class="note">
                    There is no sandbox with this name, or it has ended. Running code here starts a
                    new one.
                </p>
            )}
            {(failure || (error && !gone)) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            <nav class="tabs" aria-label="Sandbox">
                {TABS.map((name) => (
                    <a key={name} href={linkTo(id, name)} aria-current={tab === name ? "page" : undefined}>
                        {TITLES[name]}
                    </a>
                ))}
            </nav>
            {tab === "console" && <Console notebook={notebook} session={of} />}
            {tab === "terminal" && <Terminals id={id} />}
            {tab === "files" && <Files id={id} />}
            {tab === "packages" && <Packages id={id} />}
            {tab === "commands" && <Commands id={id} />}
            {tab === "ports" && <Ports id={id} />}
            {question}
        </main>
    );
}
