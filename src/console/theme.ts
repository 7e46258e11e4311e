// SPDX-License-Identifier: Apache-2.0
// Dark or light: what the system says, until a person chooses.

import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";
const CHOICE = "kernelgate.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

export function getTheme(): Theme {
    const chosen = localStorage.getItem(CHOICE);
    if (chosen === "light" || chosen === "dark") return chosen;
    return system.matches ? "dark" : "light";
}

function show() {
    document.documentElement.dataset.theme = getTheme();
    for (const call of listeners) call();
}
system.addEventListener("change", show);

export function toggleTheme() {
    localStorage.setItem(CHOICE, getTheme() === "dark" ? "light" : "dark");
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
show();
