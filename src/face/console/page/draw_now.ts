// SPDX-License-Identifier: Apache-2.0
// Draws at once what a call changes: the next key is for what is then shown, however fast it comes.

import { options } from "preact";

export function drawNow(change: () => void) {
    const usual = options.debounceRendering;
    let draw: (() => void) | undefined;
    options.debounceRendering = (call) => void (draw = call);
    try {
        change();
        draw?.();
    } finally {
        if (usual) options.debounceRendering = usual;
        else delete options.debounceRendering;
    }
}
