// SPDX-License-Identifier: Apache-2.0
// Times and sizes as people read them.

export function duration(ms: number): string {
    const seconds = Math.max(0, Math.round(ms / 1000));
    if (seconds < 60) return `${seconds} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min`;
    const hours = Math.floor(minutes / 60);
    if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
    return `${Math.floor(hours / 24)} days`;
}

export function shortDuration(ms: number): string {
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
    return duration(ms);
}

export const counted = (n: number, name: string, names = `${name}s`) => `${n} ${n === 1 ? name : names}`;

/** What runs in a session beside its kernels; empty if that is nothing, or not known. */
export function alsoRuns(of: { commands?: number | null; terminals?: number | null }): string {
    return [of.terminals && counted(of.terminals, "terminal"), of.commands && counted(of.commands, "command")]
        .filter(Boolean)
        .join(", ");
}

export function bytes(count: number): string {
    const units = ["bytes", "KiB", "MiB", "GiB"];
    let unit = 0;
    while (count >= 1024 && unit < units.length - 1) {
        count /= 1024;
        unit++;
    }
    return `${count >= 100 ? Math.round(count) : Math.round(count * 10) / 10} ${units[unit]}`;
}
