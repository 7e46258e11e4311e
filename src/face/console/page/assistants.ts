// SPDX-License-Identifier: Apache-2.0
// The completion of the editors of a notebook, one for each kernel.

import { useRef } from "preact/hooks";

import type { Session } from "./api";
import { assist, type Assistant } from "./completion";
import type { Notebook } from "./notebook";

/** Returns the assistant of a kernel. */
export function useAssistants(
    notebook: Notebook,
    session: Session | null,
    languageOf: (kernel: string) => string,
    usual: string,
) {
    const known = useRef(new Map<string, Assistant>());
    const latest = useRef({ session, languageOf, usual });
    latest.current = { session, languageOf, usual };
    return (kernel: string) => {
        let assistant = known.current.get(kernel);
        if (!assistant) {
            const asked = () => {
                const { session, usual } = latest.current;
                const { shown } = notebook.branches;
                if (notebook.runs.isRunning(shown) || !session) return null;
                const { branch } = notebook.branches.placeOf({ kernel }, shown);
                const name = kernel || usual;
                if (branch) return { branch };
                return name in session.kernels ? { kernel: name } : null;
            };
            assistant = assist(notebook.sessionId, () => latest.current.languageOf(kernel), asked);
            known.current.set(kernel, assistant);
        }
        return assistant;
    };
}
