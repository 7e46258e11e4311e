// SPDX-License-Identifier: Apache-2.0
// A question before something that cannot be undone, in a dialog over the page.

import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Question {
    title: string;
    text: string;
    yes: string; // the button that does it
}

interface Asked extends Question {
    answer: (yes: boolean) => void;
}

function Dialog({ asked, onClose }: { asked: Asked; onClose: () => void }) {
    const dialog = useRef<HTMLDialogElement>(null);
    useLayoutEffect(() => dialog.current!.showModal(), []);
    const onAnswer = (yes: boolean) => {
        dialog.current!.close(); // gives the focus back
        onClose();
        asked.answer(yes);
    };
    return (
        <dialog
            ref={dialog}
            class="question"
            aria-labelledby="question-title"
            aria-describedby="question-text"
            onCancel={(event) => {
                event.preventDefault();
                onAnswer(false);
            }}
        >
            <h2 id="question-title">{asked.title}</h2>
            <p id="question-text">{asked.text}</p>
            <div class="actions">
                <button autofocus onClick={() => onAnswer(false)}>
                    Cancel
                </button>
                <button class="danger" onClick={() => onAnswer(true)}>
                    {asked.yes}
                </button>
            </div>
        </dialog>
    );
}

/** What asks, and resolves to whether the answer was yes; and the dialog, which the view renders. */
export function useQuestion(): [(question: Question) => Promise<boolean>, JSX.Element | null] {
    const [asked, setAsked] = useState<Asked | null>(null);
    const ask = (question: Question) =>
        new Promise<boolean>((answer) => setAsked({ ...question, answer }));
    return [ask, asked && <Dialog asked={asked} onClose={() => setAsked(null)} />];
}
