// SPDX-License-Identifier: Apache-2.0
// Where the page is: the part of its address after #.

import { useEffect, useState } from "preact/hooks";

export type Tab = "console" | "terminal" | "files" | "packages" | "commands" | "ports";
export const TABS: Tab[] = ["console", "terminal", "files", "packages", "commands", "ports"];

export type Route =
    | { view: "sandboxes" | "keys" | "users" | "connect" }
    | { view: "session"; id: string; tab: Tab };

function parse(hash: string): Route {
    const parts = hash.replace(/^#\/?/, "").split("/");
    const view = (["keys", "users", "connect"] as const).find((name) => name === parts[0]);
    if (view) return { view };
    if (parts[0] === "sandboxes" && /^[\w-]{1,64}$/.test(parts[1] ?? "")) {
        const tab = TABS.find((name) => name === parts[2]) ?? "console";
        return { view: "session", id: parts[1]!, tab };
    }
    return { view: "sandboxes" };
}

export const linkTo = (id: string, tab: Tab = "console") => `#/sandboxes/${id}/${tab}`;

export const getRoute = () => parse(location.hash);

export function useRoute(): Route {
    const [route, set] = useState(getRoute);
    useEffect(() => {
        const onChange = () => set(getRoute());
        addEventListener("hashchange", onChange);
        return () => removeEventListener("hashchange", onChange);
    }, []);
    return route;
}
