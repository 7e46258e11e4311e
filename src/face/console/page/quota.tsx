// SPDX-License-Identifier: Apache-2.0
// What the owner (the logged-in user, or the key's) uses, and may use.

import type { ComponentChildren } from "preact";

import { bytes, duration } from "./format";
import { type LimitName, mib, sourceOf, useLimits } from "./limits";

/** One sentence, for the view of an account. */
export function Quota() {
    const of = useLimits();
    if (!of) return null;
    const { max_sessions, max_requests_per_second, memory_mb } = of.limits;
    return (
        <p class="quiet note">
            {`Your account uses ${of.sessions} of ${max_sessions} sandboxes. Each may have ${memory_mb} MiB of memory.`}
            {max_requests_per_second > 0 &&
                ` You may send ${max_requests_per_second} requests per second.`}
        </p>
    );
}

/** All limits, each with the setting that sets it. */
export function AllLimits() {
    const of = useLimits();
    if (!of) return null;
    const { limits } = of;
    const seconds = (count: number) => duration(count * 1000);
    const row = (name: string, by: LimitName, value: ComponentChildren) => (
        <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
            <dd class="quiet">{sourceOf(of, by)}</dd>
        </div>
    );
    return (
        <section class="facts-of" aria-label="Limits">
            <h2>Your limits</h2>
            <dl class="facts">
                {row("Sandboxes", "max_sessions", limits.max_sessions)}
                {row("Memory per sandbox", "memory_mb", bytes(mib(limits.memory_mb)))}
                {row("Disk per sandbox", "disk_mb", bytes(mib(limits.disk_mb)))}
                {row("Processors per sandbox", "cpus", limits.cpus)}
                {row("Uploaded file", "max_upload_bytes", bytes(limits.max_upload_bytes))}
                {row("Default time limit", "max_execution_time", seconds(limits.max_execution_time))}
                {row("Longest time limit", "max_timeout", seconds(limits.max_timeout))}
                {row("Idle timeout", "idle_timeout", seconds(limits.idle_timeout))}
                {limits.max_session_lifetime > 0 &&
                    row("Longest lifetime", "max_session_lifetime", seconds(limits.max_session_lifetime))}
                {row("Savepoints per sandbox", "max_savepoints", limits.max_savepoints || "none")}
                {limits.tool_call_timeout !== undefined &&
                    row("Time limit of a tool call", "tool_call_timeout", seconds(limits.tool_call_timeout))}
                {limits.max_tool_calls !== undefined &&
                    row("Tool calls per execution", "max_tool_calls", limits.max_tool_calls)}
                {limits.max_tool_result !== undefined &&
                    row("Tool result as a value", "max_tool_result", bytes(limits.max_tool_result))}
                {limits.max_requests_per_second > 0 &&
                    row("Requests per second", "max_requests_per_second", limits.max_requests_per_second)}
            </dl>
        </section>
    );
}
