// SPDX-License-Identifier: Apache-2.0
// Copying a text, and what to say of it for a moment.

import { useState } from "preact/hooks";

export function useCopy(): [told: string, copy: (text: string) => Promise<void>] {
    const [told, setTold] = useState("");
    const copy = async (text: string) => {
        try {
            await navigator.clipboard.writeText(text);
            setTold("Copied");
        } catch {
            setTold("The browser does not allow it: copy by hand.");
        }
        setTimeout(() => setTold(""), 3000);
    };
    return [told, copy];
}
