// SPDX-License-Identifier: Apache-2.0
// The page's theme, and what has to be drawn anew when it changes.

import { useEffect, useState } from "preact/hooks";

import { getTheme, setTheme, showTheme, system, type Theme } from "./theme_choice";

const listeners = new Set<() => void>();

function show() {
    showTheme();
    for (const call of listeners) call();
}
system.addEventListener("change", show);

export function toggleTheme() {
    setTheme(getTheme() === "dark" ? "light" : "dark");
    show();
}

export function useTheme(): Theme {
    const [theme, set] = useState(getTheme);
    useEffect(() => {
        const call = () => set(getTheme());
        listeners.add(call);
        return () => void listeners.delete(call);
    }, []);
    return theme;
}
