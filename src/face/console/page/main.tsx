// SPDX-License-Identifier: Apache-2.0
// The page: who is here, where they are, and the view of it.

import { render } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

import {
    ApiError,
    ask,
    getKey,
    getLogin,
    type Login as Who,
    send,
    setKey,
    setLogin,
    whenRefused,
} from "./api";
import { Connect } from "./connect";
import { askEarly, forgetEarly } from "./early";
import { Keys } from "./keys";
import { forgetRegistration, Login } from "./login";
import { getRoute, useRoute } from "./route";
import { Sandboxes } from "./sandboxes";
import type { SessionView as View } from "./session";
import { toggleTheme, useTheme } from "./theme";
import { Users } from "./users";

const LOOK_AGAIN_MS = 5000;
const LOAD_REST_MS = 500;

type Access = "unknown" | "refused" | "granted" | "unreachable";

const isStatus = (error: unknown, status: number) =>
    error instanceof ApiError && error.status === status;

/** Learns who one is; without accounts, whether one may enter. Asks both at once. */
async function enter() {
    setLogin(null);
    forgetEarly();
    const allowed = askEarly("api/v1/kernelspecs");
    if (getRoute().view === "sandboxes") void askEarly("api/v1/sessions");
    try {
        setLogin(await ask<Who>("api/v1/login"));
    } catch (error) {
        if (!isStatus(error, 404)) throw error;
        await allowed;
    }
}

let entering: Promise<void> | null = enter(); // while the first view is drawn

function useAccess() {
    const [access, set] = useState<Access>("unknown");
    const [attempt, setAttempt] = useState(0);
    useLayoutEffect(() => {
        whenRefused(() => set("refused"));
        (entering ?? enter()).then(
            () => {
                forgetRegistration();
                set("granted");
            },
            (error) => {
                forgetEarly();
                if (isStatus(error, 401)) return set("refused");
                set("unreachable");
                setTimeout(() => setAttempt(attempt + 1), 2000);
            },
        );
        entering = null;
    }, [attempt]);
    return { access, again: () => setAttempt(attempt + 1), leave: () => set("refused") };
}

/** Of keys and users: which one may see. There are none without accounts. */
function useAccounts(access: Access) {
    const [seen, setSeen] = useState<string[]>([]);
    useEffect(() => {
        setSeen([]);
        if (access !== "granted" || !getLogin()) return;
        const left = new AbortController();
        const look = async (name: string) => {
            try {
                await ask(`api/v1/${name}`, { signal: left.signal });
                setSeen((before) => [...before, name].sort());
            } catch (error) {
                const refused = error instanceof ApiError && [401, 403, 404].includes(error.status);
                if (!refused && !left.signal.aborted) setTimeout(look, LOOK_AGAIN_MS, name);
            }
        };
        for (const name of ["keys", "users"]) void look(name);
        return () => left.abort();
    }, [access]);
    return seen;
}

/** The view of a sandbox, which is most of the page's code: it is loaded after the first view. */
function useSessionView(allowed: boolean, wanted: boolean) {
    const [view, setView] = useState<typeof View | null>(null);
    useEffect(() => {
        if (!allowed) return;
        const load = () => void import("./session").then((it) => setView(() => it.SessionView));
        const timer = setTimeout(load, wanted ? 0 : LOAD_REST_MS);
        return () => clearTimeout(timer);
    }, [allowed, wanted]);
    return view;
}

const NAMES: Record<string, string> = { keys: "Keys", users: "Users" };

const Brand = () => (
    <a class="brand" href="#/">
        kernelgate
    </a>
);

/** The bar of those who are not in. index.html has it, too. */
const PlainBar = () => (
    <header class="bar">
        <Brand />
    </header>
);

interface BarProps {
    view: string;
    accounts: string[];
    onLeave: () => void;
}

function Bar({ view, accounts, onLeave }: BarProps) {
    const theme = useTheme();
    const current = (name: string) => (view === name ? "page" : undefined);
    return (
        <header class="bar">
            <Brand />
            <nav aria-label="Main">
                <a href="#/" aria-current={current("sandboxes")}>
                    Sandboxes
                </a>
                {accounts.map((name) => (
                    <a key={name} href={`#/${name}`} aria-current={current(name)}>
                        {NAMES[name]}
                    </a>
                ))}
                <a href="#/connect" aria-current={current("connect")}>
                    Connect
                </a>
            </nav>
            <button class="plain" onClick={toggleTheme}>
                {theme === "dark" ? "Light" : "Dark"}
            </button>
            {getLogin() && <span class="quiet user">{getLogin()!.user}</span>}
            {(getKey() || getLogin()) && (
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
    const accounts = useAccounts(access);
    const SessionView = useSessionView(access === "granted", route.view === "session");
    const [failure, setFailure] = useState("");
    useEffect(() => setFailure(""), [access]);
    const onLeave = async () => {
        setFailure("");
        try {
            if (!getKey()) await send("api/v1/logout", { method: "POST" });
        } catch (error) {
            if (!(error instanceof ApiError && error.status === 401)) {
                setFailure(`You are still logged in: ${(error as Error).message}`);
                return;
            }
        }
        setKey("");
        setLogin(null);
        sessionStorage.clear(); // the cells, too
        leave();
    };
    if (access !== "granted")
        return (
            <>
                <PlainBar />
                {access === "unknown" && <main aria-busy="true" />}
                {access === "unreachable" && (
                    <main class="narrow">
                        <h1>Not reachable</h1>
                        <p role="alert">The gateway does not answer. Trying again…</p>
                    </main>
                )}
                {access === "refused" && <Login onEnter={again} />}
            </>
        );
    return (
        <>
            <Bar view={route.view} accounts={accounts} onLeave={onLeave} />
            {failure && <p role="alert">{failure}</p>}
            {route.view === "sandboxes" && <Sandboxes />}
            {route.view === "keys" && <Keys />}
            {route.view === "users" && <Users />}
            {route.view === "connect" && <Connect />}
            {route.view === "session" && !SessionView && <main aria-busy="true" />}
            {route.view === "session" && SessionView && (
                <SessionView key={route.id} id={route.id} tab={route.tab} />
            )}
        </>
    );
}

render(<Page />, document.getElementById("page")!);
