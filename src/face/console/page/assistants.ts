// SPDX-License-Identifier: Apache-2.0
// The completion of the editors of a notebook, one for each kernel.

import { useEffect, useMemo, useRef } from "preact/hooks";

import type { Session } from "./api";
import { assist, type Assistant } from "./completion";
import { KernelChannel } from "./kernel_channel";
import type { Notebook } from "./notebook";

/** Returns the assistant of a kernel. */
export function useAssistants(
    notebook: Notebook,
    session: Session | null,
    languageOf: (kernel: string) => string,
    usual: string,
) {
    const channel = useMemo(() => new KernelChannel(notebook.sessionId), [notebook]);
    const known = useRef(new Map<string, Assistant>());
    const latest = useRef({ session, languageOf, usual });
    latest.current = { session, languageOf, usual };
    useEffect(() => {
        notebook.onRun = () => channel.close(); // the output would come over it, too
        return () => {
            notebook.onRun = () => {};
            channel.close();
        };
    }, [channel]);
    return (kernel: string) => {
        let assistant = known.current.get(kernel);
        if (!assistant) {
            // The session's first kernel is the one that Jupyter's API has.
            const asks = () => {
                const { session, usual } = latest.current;
                const [first] = Object.keys(session?.kernels ?? {});
                return !notebook.runs.running && first === (kernel || usual);
            };
            assistant = assist(channel, () => latest.current.languageOf(kernel), asks);
            known.current.set(kernel, assistant);
        }
        return assistant;
    };
}
