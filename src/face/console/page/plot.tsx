// SPDX-License-Identifier: Apache-2.0
// Small line plots of numbers that change, with what the page has seen of them.

const KEPT_MS = 5 * 60_000;
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
function lineOf(samples: Sample[], top: number): string {
    const end = samples[samples.length - 1]!.time;
    return samples
        .map(({ time, value }, i) => {
            const x = WIDTH * (1 - (end - time) / KEPT_MS);
            const y = HEIGHT - 1 - (HEIGHT - 2) * (value / top);
            const joined = i > 0 && time - samples[i - 1]!.time < GAP_MS;
            const point = `${x.toFixed(2)} ${y.toFixed(2)}`;
            return joined ? `L${point}` : `M${point}h0`; // a dot, if no line follows
        })
        .join("");
}

interface Props {
    name: string;
    /** The number as text. */
    show?: (value: number) => string;
    /** The last number as text, if more can be said of it. */
    now?: string;
}

/** An entry of a <dl>: the name, the last value, and the plot. Nothing if there are no values. */
export function Plot({ name, show = String, now }: Props) {
    const samples = histories.get(name);
    const last = samples?.[samples.length - 1];
    if (!samples || !last) return null;
    const values = samples.map((sample) => sample.value);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const value = now ?? show(last.value);
    const range = `between ${show(least)} and ${show(most)} in the last minutes`;
    return (
        <div class="plot">
            <dt>{name}</dt>
            <dd>
                {value}
                <svg
                    role="img"
                    aria-label={`${name}: ${value}, ${range}`}
                    viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
                    preserveAspectRatio="none"
                >
                    <path d={lineOf(samples, Math.max(most, 1))} vector-effect="non-scaling-stroke" />
                </svg>
            </dd>
        </div>
    );
}
