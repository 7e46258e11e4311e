// SPDX-License-Identifier: Apache-2.0
// The script of a frame that draws charts of Vega and Vega-Lite (Altair). Their expressions are
// interpreted, not compiled: the frame's policy forbids to evaluate text as code.

import { Error as ERRORS, loader, logger, parse, View } from "vega";
import { expressionInterpreter } from "vega-interpreter";
import { compile } from "vega-lite";
import { Handler } from "vega-tooltip";

import { drawWith, tellBlocked } from "./chart_frame";

/** Loads nothing, and lets no link lead anywhere. Pictures may be in the specification. */
function makeLoader() {
    const refuse = () => {
        tellBlocked();
        return Promise.reject(new Error("the console loads nothing from elsewhere"));
    };
    const made = loader();
    made.load = refuse;
    made.http = refuse;
    made.file = refuse;
    made.sanitize = (uri, { context }: { context?: string } = {}) =>
        context === "image" && /^data:image\//i.test(uri)
            ? Promise.resolve({ href: uri })
            : context === "href"
              ? Promise.reject(new Error("links are not followed"))
              : refuse();
    return made;
}

/** Keeps the first error: Vega reports those of its data flow, and goes on. */
function makeLogger() {
    const made = logger(ERRORS);
    const kept: { error: string } = { error: "" };
    made.error = (...parts: readonly any[]) => {
        kept.error ||= parts.map((part) => part?.message ?? String(part)).join(" ");
        return made;
    };
    return { made, kept };
}

let shown: View | null = null;

drawWith(async (box, spec, type) => {
    const { made, kept } = makeLogger();
    shown?.finalize();
    box.replaceChildren();
    box.className = "vega";
    const compiled = type === "vega-lite" ? compile(spec, { logger: made }).spec : spec;
    shown = new View(parse(compiled, undefined, { ast: true }), {
        container: box,
        expr: expressionInterpreter,
        hover: true,
        loader: makeLoader(),
        logger: made,
        renderer: "svg",
        tooltip: new Handler().call,
    });
    await shown.runAsync();
    if (kept.error) throw new Error(kept.error);
});
