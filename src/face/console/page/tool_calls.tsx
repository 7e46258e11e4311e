// SPDX-License-Identifier: Apache-2.0
// The calls of tools that an execution has made: the name of each, how long it took, how it ended.

import type { ToolCalls as Calls } from "./execution";
import { bytes, counted, shortDuration } from "./format";

const OUTCOMES: Record<string, string> = {
    error: "failed",
    timeout: "not answered in time",
    cancelled: "cancelled",
};

function summary(calls: Calls) {
    const waiting = calls.shown.filter((call) => call.status === undefined).length;
    const notes = [waiting && `${waiting} waiting`, calls.failed && `${calls.failed} failed`];
    const text = notes.filter(Boolean).join(", ");
    return counted(calls.total, "tool call") + (text && `: ${text}`);
}

export function ToolCalls({ calls }: { calls: Calls }) {
    if (calls.total === 0) return null;
    const earlier = calls.total - calls.shown.length;
    return (
        <details class="tool-calls">
            <summary>{summary(calls)}</summary>
            <table>
                <thead>
                    <tr>
                        <th>Tool</th>
                        <th>Outcome</th>
                        <th>Time</th>
                        <th>Result</th>
                    </tr>
                </thead>
                <tbody>
                    {calls.shown.map((call) => (
                        <tr key={call.id}>
                            <td>{call.name}</td>
                            <td>{call.status === undefined ? "waiting" : (OUTCOMES[call.status] ?? "done")}</td>
                            <td>{call.ms === undefined ? "" : shortDuration(call.ms)}</td>
                            <td>{call.size === undefined ? "" : bytes(call.size)}</td>
                        </tr>
                    ))}
                </tbody>
            </table>
            {earlier > 0 && <p class="quiet note">{earlier} earlier calls are not listed.</p>}
        </details>
    );
}
