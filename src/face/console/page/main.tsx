// SPDX-License-Identifier: Apache-2.0
// The page: the logged-in user, the part of the page that is open, and its view.

import { type FunctionComponent, render } from "preact";
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
import { askEarly, forgetEarly } from "./early";
import { forgetRegistration, Login } from "./login";
import { getRoute, useRoute } from "./route";
import { Sandboxes } from "./sandboxes";
import type { SessionView as View } from "./session";
import { toggleTheme, useTheme } from "./theme";

const LOOK_AGAIN_MS = 5000;
const LOAD_REST_MS = 500;

type Access = "unknown" | "refused" | "granted" | "unreachable";

const isStatus = (error: unknown, status: number) =>
    error instanceof ApiError && error.status === status;

/** Asks who is logged in and, without accounts, whether the key is accepted: both at the same time. */
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

/** Whether the user has an account with keys; null: not known yet. A key of the settings has none. */
function useHasKeys(access: Access): boolean | null {
    const [has, setHas] = useState<boolean | null>(null);
    useEffect(() => {
        setHas(access === "granted" && !getLogin() ? false : null);
        if (access !== "granted" || !getLogin()) return;
        const left = new AbortController();
        const look = async () => {
            try {
                await ask("api/v1/keys", { signal: left.signal });
                setHas(true);
            } catch (error) {
                if (left.signal.aborted) return;
                const refused = error instanceof ApiError && [401, 403, 404].includes(error.status);
                if (refused) setHas(false);
                else setTimeout(look, LOOK_AGAIN_MS);
            }
        };
        void look();
        return () => left.abort();
    }, [access]);
    return has;
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

/** Views that few need at first, and that are loaded when they are opened. */
const LATER: Record<string, () => Promise<FunctionComponent>> = {
    connect: () => import("./connect").then((it) => it.Connect),
    keys: () => import("./keys").then((it) => it.Keys),
    users: () => import("./users").then((it) => it.Users),
};

function Later({ view }: { view: string }) {
    const [View, setView] = useState<FunctionComponent | null>(null);
    const [failure, setFailure] = useState("");
    useEffect(() => {
        LATER[view]!().then(
            (loaded) => setView(() => loaded),
            () => setFailure("This view could not be loaded: reload the page."),
        );
    }, []);
    if (View) return <View />;
    return <main aria-busy={!failure}>{failure && <p role="alert">{failure}</p>}</main>;
}

const NAMES: Record<string, string> = { keys: "Keys", users: "Users" };

const Brand = () => (
    <a class="brand" href="#/">
        kernelgate
    </a>
);

/** The bar before somebody has logged in. index.html has it, too. */
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
    const hasKeys = useHasKeys(access);
    const isAdministrator = getLogin()?.administrator === true;
    const accounts = [...(hasKeys ? ["keys"] : []), ...(isAdministrator ? ["users"] : [])];
    const refused =
        (route.view === "keys" && hasKeys === false) || (route.view === "users" && !isAdministrator);
    const view = refused ? "sandboxes" : route.view;
    const SessionView = useSessionView(access === "granted", route.view === "session");
    const [failure, setFailure] = useState("");
    useEffect(() => setFailure(""), [access]);
    useEffect(() => {
        if (access === "granted" && refused) location.replace("#/");
    }, [access, refused]);
    const onLeave = async () => {
        setFailure("");
        try {
            if (!getKey()) await send("api/v1/logout", { method: "POST" });
        } catch (error) {
            if (!(error instanceof ApiError && error.status === 401)) {
                setFailure(`You are still logged in. Logging out failed: ${(error as Error).message}`);
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
                        <h1>Can’t reach the gateway</h1>
                        <p role="alert">The gateway is not responding. Trying again…</p>
                    </main>
                )}
                {access === "refused" && <Login onEnter={again} />}
            </>
        );
    return (
        <>
            <Bar view={view} accounts={accounts} onLeave={onLeave} />
            {failure && <p role="alert">{failure}</p>}
            {view === "sandboxes" && <Sandboxes />}
            {view in LATER && <Later key={view} view={view} />}
            {route.view === "session" && !SessionView && <main aria-busy="true" />}
            {route.view === "session" && SessionView && (
                <SessionView key={route.id} id={route.id} tab={route.tab} />
            )}
        </>
    );
}

render(<Page />, document.getElementById("page")!);
