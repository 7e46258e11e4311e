// SPDX-License-Identifier: Apache-2.0
// What the gateway says of itself to everybody: its state, and some of its metrics.

import type { ComponentChildren } from "preact";

import { address, ask, type Options } from "./api";
import { bytes, duration } from "./format";
import { forget, Plot, record } from "./plot";
import { usePolled } from "./polling";

const POLL_MS = 5000;
const MINUTE_MS = 60_000;

const SANDBOXES = "Sandboxes of all owners";
const EXECUTIONS = "Executions in the last minute";
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
    if (executions !== null) recordExecutions(executions);
    return {
        memory: sumOf(text, "process_resident_memory_bytes"),
        maxSessions: sumOf(text, "kernelgate_max_sessions"),
    };
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
    return (
        <div>
            <dt>{name}</dt>
            <dd>{children}</dd>
        </div>
    );
}

export function Gateway() {
    const { value: health } = usePolled("api/v1/health", POLL_MS, readHealth);
    const { value: metrics } = usePolled("metrics", POLL_MS, readMetrics);
    if (!health) return null;
    const { ready, target } = health.pool;
    const most = metrics?.maxSessions;
    return (
        <section class="gateway" aria-label="Gateway">
            <h2>This gateway</h2>
            <dl class="facts">
                <Plot
                    name={SANDBOXES}
                    now={most ? `${health.active_sessions} of ${most} (max-sessions)` : undefined}
                />
                {metrics && <Plot name={EXECUTIONS} />}
                <Fact name="Ready for new sandboxes">
                    {ready} of {target}
                </Fact>
                {metrics?.memory != null && <Fact name="Memory">{bytes(metrics.memory)}</Fact>}
                <Fact name="Uptime">{duration(health.uptime * 1000)}</Fact>
                <Fact name="Version">
                    {health.version}, {health.provisioner}
                </Fact>
            </dl>
            <p class="quiet note">
                <a href="licenses.txt">Licences of the software in this page</a>
            </p>
        </section>
    );
}
