// SPDX-License-Identifier: Apache-2.0
// Numbers, with small line plots of what the page has seen of them while they change.

import { duration } from "./format";

const KEPT_MS = 5 * 60_000;
const SHOWN_MS = 60_000; // at least
const GAP_MS = 20_000;
const WIDTH = 100;
const HEIGHT = 30;

interface Sample {
    time: number;
    value: number;
}

/** By name. They stay while the page is open, so that a view that comes back has them. */
const histories = new Map<string, Sample[]>();

/** Adds a value to the history of this name, and returns the history. */
export function record(name: string, value: number): readonly Sample[] {
    const time = Date.now();
    const kept = (histories.get(name) ?? []).filter((sample) => sample.time > time - KEPT_MS);
    kept.push({ time, value });
    histories.set(name, kept);
    return kept;
}

export function forget(name: string) {
    histories.delete(name);
}

/** The line ends at the right. It is broken where the page did not look, for example in a hidden tab. */
function lineOf(samples: Sample[], span: number, top: number): string {
    const end = samples[samples.length - 1]!.time;
    return samples
        .map(({ time, value }, i) => {
            const x = WIDTH * (1 - (end - time) / span);
            const y = HEIGHT - 1 - (HEIGHT - 2) * (value / top);
            const joined = i > 0 && time - samples[i - 1]!.time < GAP_MS;
            const point = `${x.toFixed(2)} ${y.toFixed(2)}`;
            return joined ? `L${point}` : `M${point}h0`; // a dot, if no line follows
        })
        .join("");
}

interface Props {
    name: string;
    /** The last number as text, if more can be said of it. */
    now?: string;
}

/** An entry of a <dl>: the name, the last value, and a plot if the value has changed. Nothing if there are
 * no values. */
export function Plot({ name, now }: Props) {
    const samples = histories.get(name);
    const last = samples?.[samples.length - 1];
    if (!samples || !last) return null;
    const values = samples.map((sample) => sample.value);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const value = now ?? String(last.value);
    const span = Math.max(SHOWN_MS, last.time - samples[0]!.time);
    const range = `${least} to ${most} in the last ${duration(span)}`;
    return (
        <div class="plot">
            <dt>{name}</dt>
            <dd>{value}</dd>
            {least < most && (
                <dd>
                    <svg
                        role="img"
                        aria-label={`${name}: ${value}, ${range}`}
                        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
                        preserveAspectRatio="none"
                    >
                        <path d={lineOf(samples, span, most)} vector-effect="non-scaling-stroke" />
                    </svg>
                    <span class="quiet">{range}</span>
                </dd>
            )}
        </div>
    );
}
