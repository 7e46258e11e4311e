// SPDX-License-Identifier: Apache-2.0
// The page: who is here, where they are, and the view of it.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";

import { ApiError, ask, getKey, setKey, whenRefused } from "./api";
import { Connect } from "./connect";
import { Login } from "./login";
import { useRoute } from "./route";
import { Sandboxes } from "./sandboxes";
import { SessionView } from "./session";
import { toggleTheme, useTheme } from "./theme";

type Access = "unknown" | "refused" | "granted" | "unreachable";

function useAccess() {
    const [access, set] = useState<Access>("unknown");
    const [attempt, setAttempt] = useState(0);
    useEffect(() => {
        whenRefused(() => set("refused"));
        ask("api/v1/kernelspecs").then(
            () => set("granted"),
            (error) => {
                if (error instanceof ApiError && error.status === 401) return;
                set("unreachable");
                setTimeout(() => setAttempt(attempt + 1), 2000);
            },
        );
    }, [attempt]);
    return { access, again: () => setAttempt(attempt + 1), leave: () => set("refused") };
}

function Bar({ view, onLeave }: { view: string; onLeave: () => void }) {
    const theme = useTheme();
    const current = (name: string) => (view === name ? "page" : undefined);
    return (
        <header class="bar">
            <a class="brand" href="#/">
                kernelgate
            </a>
            <nav aria-label="Main">
                <a href="#/" aria-current={current("sandboxes")}>
                    Sandboxes
                </a>
                <a href="#/connect" aria-current={current("connect")}>
                    Connect
                </a>
            </nav>
            <button class="plain" onClick={toggleTheme}>
                {theme === "dark" ? "Light" : "Dark"}
            </button>
            {getKey() && (
                <button class="plain" onClick={onLeave}>
                    Log out
                </button>
            )}
        </header>
    );
}

function Page() {
    const { access, again, leave } = useAccess();
    const route = useRoute();
    const onLeave = () => {
        setKey("");
        sessionStorage.clear(); // the cells, too
        leave();
    };
    if (access === "unknown") return <main aria-busy="true" />;
    if (access === "unreachable")
        return (
            <main class="narrow">
                <h1>kernelgate</h1>
                <p role="alert">The gateway does not answer. Trying again…</p>
            </main>
        );
    if (access === "refused") return <Login onKey={again} />;
    return (
        <>
            <Bar view={route.view} onLeave={onLeave} />
            {route.view === "sandboxes" && <Sandboxes />}
            {route.view === "connect" && <Connect />}
            {route.view === "session" && (
                <SessionView key={route.id} id={route.id} tab={route.tab} />
            )}
        </>
    );
}

render(<Page />, document.getElementById("page")!);
