// SPDX-License-Identifier: Apache-2.0
// Dark or light: what the system says, until a person chooses.

export type Theme = "light" | "dark";
const CHOICE = "kernelgate.theme";
export const system = matchMedia("(prefers-color-scheme: dark)");

export function getTheme(): Theme {
    const chosen = localStorage.getItem(CHOICE);
    if (chosen === "light" || chosen === "dark") return chosen;
    return system.matches ? "dark" : "light";
}

export function setTheme(theme: Theme) {
    localStorage.setItem(CHOICE, theme);
}

export function showTheme() {
    document.documentElement.dataset.theme = getTheme();
}
