// SPDX-License-Identifier: Apache-2.0
// What the gateway says of itself to everybody: its state, and some of its metrics as plots.

import { address, ask, type Options } from "./api";
import { bytes, duration } from "./format";
import { forget, Plot, record } from "./plot";
import { usePolled } from "./polling";

const POLL_MS = 5000;
const MINUTE_MS = 60_000;

const SANDBOXES = "Sandboxes of all owners";
const READY = "Ready in the pool";
const EXECUTIONS = "Executions in the last minute";
const MEMORY = "Memory of the gateway";
const TOTAL = "Executions since the start"; // not shown

interface Health {
    version: string;
    provisioner: string;
    active_sessions: number;
    pool: { ready: number; target: number };
    uptime: number;
}

async function readHealth(where: string, options: Options): Promise<Health> {
    const health = await ask<Health>(where, options);
    record(SANDBOXES, health.active_sessions);
    record(READY, health.pool.ready);
    return health;
}

/** The sum of a metric's series in Prometheus's text format; null if it has none. */
function sumOf(text: string, metric: string): number | null {
    const series = [...text.matchAll(new RegExp(`^${metric}(?:\\{.*\\})? (\\S+)`, "gm"))];
    return series.length ? series.reduce((sum, [, value]) => sum + Number(value), 0) : null;
}

function recordExecutions(total: number) {
    const before = record(TOTAL, total);
    if (before.some((sample) => sample.value > total)) forget(TOTAL); // the gateway has restarted
    const since = before.find((sample) => sample.time >= Date.now() - MINUTE_MS)!;
    record(EXECUTIONS, Math.max(0, total - since.value));
}

/** Without the key: the gateway wants none for this, and a proxy that refuses it says nothing of ours. */
async function readMetrics(where: string, { signal }: Options) {
    const response = await fetch(`${address}/${where}`, {
        signal: signal ?? null,
        cache: "no-store",
        credentials: "omit",
    });
    if (!response.ok) throw new Error(`The gateway answered ${response.status}.`);
    const text = await response.text();
    const executions = sumOf(text, "kernelgate_executions_total");
    const memory = sumOf(text, "process_resident_memory_bytes");
    if (executions !== null) recordExecutions(executions);
    if (memory !== null) record(MEMORY, memory);
    return { executions, memory };
}

export function Gateway() {
    const { value: health } = usePolled("api/v1/health", POLL_MS, readHealth);
    usePolled("metrics", POLL_MS, readMetrics);
    if (!health) return null;
    const { ready, target } = health.pool;
    return (
        <section class="gateway" aria-label="Gateway">
            <dl class="plots">
                <Plot name={SANDBOXES} />
                <Plot name={READY} now={`${ready} of ${target}`} />
                <Plot name={EXECUTIONS} />
                <Plot name={MEMORY} show={bytes} />
            </dl>
            <dl class="facts">
                <div>
                    <dt>Running for</dt>
                    <dd>{duration(health.uptime * 1000)}</dd>
                </div>
                <div>
                    <dt>Version</dt>
                    <dd>
                        {health.version}, {health.provisioner}
                    </dd>
                </div>
            </dl>
        </section>
    );
}
