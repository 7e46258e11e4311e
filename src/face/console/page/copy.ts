// SPDX-License-Identifier: Apache-2.0
// Copying a text, and what to say of it for a moment; `refused` where the browser does not allow it.

import { useState } from "preact/hooks";

export function useCopy(refused: string): [told: string, copy: (text: string) => Promise<void>] {
    const [told, setTold] = useState("");
    const copy = async (text: string) => {
        try {
            await navigator.clipboard.writeText(text);
            setTold("Copied");
        } catch {
            setTold(refused);
        }
        setTimeout(() => setTold(""), 3000);
    };
    return [told, copy];
}
