// SPDX-License-Identifier: Apache-2.0
// The terminals of a session: those that live, one of them on the screen.

import { useEffect, useRef, useState } from "preact/hooks";

import { ask, type Command, send, session } from "./api";
import { useCopy } from "./copy";
import { bytes } from "./format";
import { usePolled } from "./polling";
import { useQuestion } from "./question";
import type { Screen } from "./screen";
import { type LinkState, TerminalLink } from "./terminal_link";
import { useTheme } from "./theme";

const POLL_MS = 3000;
const READS_ALOUD = "kernelgate.screen-reader";
const ENDING = {
    title: "End this terminal?",
    text: "Programs that are running in it are ended, too.",
    yes: "End terminal",
};
const NEW = { terminal: true, background: true };

/** What this tab has on its screen is kept for a reload. */
const keptName = (id: string) => `kernelgate.terminal.${id}`;

const STATES: Record<LinkState["kind"], (state: LinkState) => string> = {
    connecting: () => "Connecting…",
    open: () => "",
    lost: ({ text }) => `${text} Trying again…`,
    ended: ({ text }) => text,
};

function describe(state: LinkState): string {
    const missed = `${bytes(state.missed)} of output was skipped because it came faster than the page could show it.`;
    return [STATES[state.kind](state), state.missed > 0 && missed].filter(Boolean).join(" ");
}

interface ScreenProps {
    sessionId: string;
    commandId: string;
    readsAloud: boolean;
    onState: (state: LinkState) => void;
    onLeave: () => void;
    onCopy: (text: string) => void;
}

function ScreenView({ sessionId, commandId, readsAloud, onState, onLeave, onCopy }: ScreenProps) {
    const box = useRef<HTMLDivElement>(null);
    const screen = useRef<Screen | null>(null);
    const events = useRef({ onState, onLeave, onCopy });
    events.current = { onState, onLeave, onCopy };
    const [failure, setFailure] = useState("");
    const theme = useTheme();
    useEffect(() => {
        let link: TerminalLink | undefined;
        let left = false;
        const open = ({ Screen }: typeof import("./screen")) => {
            if (left) return;
            const made = new Screen(
                box.current!,
                {
                    onInput: (typed) => link?.send(typed),
                    onResize: () => link?.resize(),
                    onFocus: () => link?.resize(), // another page may have set its own
                    onLeave: () => events.current.onLeave(),
                    onCopy: (text) => events.current.onCopy(text),
                },
                readsAloud,
            );
            screen.current = made;
            link = new TerminalLink(sessionId, commandId, made, (state) =>
                events.current.onState(state),
            );
            made.focus();
        };
        import("./screen").then(open, () =>
            setFailure("The terminal could not be loaded: reload the page."),
        );
        return () => {
            left = true;
            link?.leave();
            screen.current?.dispose();
            screen.current = null;
        };
    }, [sessionId, commandId]);
    useEffect(() => screen.current?.showTheme(), [theme]);
    useEffect(() => screen.current?.readAloud(readsAloud), [readsAloud]);
    return (
        <div class="screen" role="group" aria-label="Screen of the terminal">
            {failure && (
                <p role="alert" class="error">
                    {failure}
                </p>
            )}
            <div ref={box} />
        </div>
    );
}

export function Terminals({ id }: { id: string }) {
    const { value, error, refresh } = usePolled<{ commands: Command[] }>(
        session(id, "commands"),
        POLL_MS,
    );
    const [current, setCurrent] = useState(() => sessionStorage.getItem(keptName(id)) ?? "");
    const [state, setState] = useState<LinkState | null>(null);
    const [failure, setFailure] = useState("");
    const [askFirst, question] = useQuestion();
    const [readsAloud, setReadsAloud] = useState(() => localStorage.getItem(READS_ALOUD) === "on");
    const [told, copy] = useCopy("The browser blocked copying: use its menu.");
    const leaving = useRef<HTMLButtonElement>(null);
    const all = (value?.commands ?? []).filter((of) => of.terminal);
    const living = all
        .filter((of) => of.running)
        .sort((a, b) => a.started_at.localeCompare(b.started_at));
    const nameOf = (of: Command) => of.command || of.command_id.replace(/^_/, "Terminal ");
    const show = (commandId: string) => {
        if (commandId) sessionStorage.setItem(keptName(id), commandId);
        else sessionStorage.removeItem(keptName(id));
        setState(null);
        setFailure("");
        setCurrent(commandId);
        refresh();
    };
    const attempt = async (act: () => Promise<void>) => {
        setFailure("");
        try {
            await act();
        } catch (failed) {
            setFailure((failed as Error).message);
        }
        refresh();
    };
    const onNew = () =>
        attempt(async () => {
            const made = await ask<{ command_id: string }>(session(id, "commands"), {
                method: "POST",
                body: NEW,
            });
            show(made.command_id);
        });
    const onEnd = async () => {
        if (state?.kind === "ended") return show("");
        if (!(await askFirst(ENDING))) return;
        void attempt(async () => {
            await send(session(id, "commands", current), { method: "DELETE" });
        });
    };
    const onReadAloud = (yes: boolean) => {
        localStorage.setItem(READS_ALOUD, yes ? "on" : "off");
        setReadsAloud(yes);
    };
    const ended = state?.kind === "ended";
    return (
        <div class="terminals">
            <div class="actions">
                <div class="actions" role="group" aria-label="Terminals">
                    {living.map((of) => (
                        <button
                            key={of.command_id}
                            aria-pressed={of.command_id === current}
                            onClick={() => show(of.command_id)}
                        >
                            {nameOf(of)}
                        </button>
                    ))}
                </div>
                <button ref={leaving} class={current ? "" : "primary"} onClick={onNew}>
                    New terminal
                </button>
                {current && (
                    <button class={ended ? "" : "danger"} onClick={() => void onEnd()}>
                        {ended ? "Close" : "End terminal"}
                    </button>
                )}
                <span class="space" />
                <label class="check">
                    <input
                        type="checkbox"
                        checked={readsAloud}
                        onChange={(event) => onReadAloud(event.currentTarget.checked)}
                    />
                    Screen reader mode
                </label>
            </div>
            {(failure || (error && !value)) && (
                <p role="alert" class="error">
                    {failure || error!.message}
                </p>
            )}
            {current ? (
                <>
                    <ScreenView
                        key={current}
                        sessionId={id}
                        commandId={current}
                        readsAloud={readsAloud}
                        onState={setState}
                        onLeave={() => leaving.current!.focus()}
                        onCopy={(text) => void copy(text)}
                    />
                    <p class="quiet note">
                        <span role="status">{told || (state && describe(state))}</span>{" "}
                        Ctrl+M moves out of the terminal, Ctrl+Shift+C copies, Ctrl+Shift+V pastes.
                    </p>
                </>
            ) : (
                <div class="empty">
                    <p>No terminal is open.</p>
                    <p class="quiet">
                        A terminal keeps running when you close this page. You can open it again here,
                        and in several pages at a time.
                    </p>
                </div>
            )}
            {question}
        </div>
    );
}
