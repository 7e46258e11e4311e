// SPDX-License-Identifier: Apache-2.0
// The limits of the owner, which is the logged-in user or the key's, and what sets each of them.

import { usePolled } from "./polling";

const POLL_MS = 15_000;
const MIB = 1 << 20;

export interface Limits {
    sessions: number; // that the owner has now
    limits: {
        max_sessions: number;
        memory_mb: number;
        disk_mb: number;
        cpus: number;
        pids: number;
        max_upload_bytes: number;
        max_code_bytes: number;
        max_output_bytes: number;
        max_execution_time: number;
        max_timeout: number;
        idle_timeout: number;
        max_session_lifetime: number;
        max_savepoints: number;
        max_requests_per_second: number;
        // These are missing with an older replica.
        tool_call_timeout?: number;
        max_tool_calls?: number;
        max_tool_result?: number;
    };
    set_by: Partial<Record<LimitName, string>>;
}

export type LimitName = keyof Limits["limits"];

/** Null while they are not known, and with an older gateway. */
export const useLimits = (): Limits | null => usePolled<Limits>("api/v1/limits", POLL_MS).value;

/** What sets a limit, for people: a setting's name, or a few words. */
export const sourceOf = (of: Limits, name: LimitName): string =>
    (of.set_by[name] ?? name.replaceAll("_", "-")).replace("setting ", "").replace(" its ", " your ");

export const mib = (count: number) => count * MIB;
