// SPDX-License-Identifier: Apache-2.0
// Pages of a PDF file as pictures: no link, form or script of it does anything. Loaded when it is
// needed, since it is larger than the rest of the page.

import { useEffect, useRef, useState } from "preact/hooks";

import { getDocument, type PDFDocumentProxy, VerbosityLevel } from "pdfjs-dist";
// @ts-expect-error: the package has no types for it.
import * as worker from "pdfjs-dist/build/pdf.worker.mjs";

// The page's policy allows no worker, whose address would be a script's: it runs here.
(globalThis as { pdfjsWorker?: unknown }).pdfjsWorker = worker;

const PAGES_MAX = 20;
const PIXELS_MAX = 4_000_000; // of one page
const WIDTH = 1600;

async function draw(pdf: PDFDocumentProxy, number: number, canvas: HTMLCanvasElement) {
    const page = await pdf.getPage(number);
    const natural = page.getViewport({ scale: 1 });
    const fits = Math.sqrt(PIXELS_MAX / (natural.width * natural.height));
    const viewport = page.getViewport({ scale: Math.min(WIDTH / natural.width, fits) });
    canvas.width = viewport.width;
    canvas.height = viewport.height;
    await page.render({ canvas, viewport }).promise;
}

export function Pdf({ data, name }: { data: ArrayBuffer; name: string }) {
    const [pages, setPages] = useState(0);
    const [failure, setFailure] = useState("");
    const pdf = useRef<PDFDocumentProxy | null>(null);
    const box = useRef<HTMLDivElement>(null);
    useEffect(() => {
        const task = getDocument({
            data: data.slice(0), // which it takes
            enableXfa: false,
            useWasm: false,
            verbosity: VerbosityLevel.ERRORS,
        });
        task.promise.then(
            (opened) => {
                pdf.current = opened;
                setPages(opened.numPages);
            },
            (error) => setFailure((error as Error).message),
        );
        return () => void task.destroy();
    }, [data]);
    useEffect(() => {
        let left = false;
        const drawAll = async () => {
            for (const [i, canvas] of [...box.current!.querySelectorAll("canvas")].entries())
                if (!left) await draw(pdf.current!, i + 1, canvas);
        };
        if (pages) drawAll().catch((error) => left || setFailure((error as Error).message));
        return () => void (left = true);
    }, [pages]);
    const shown = Math.min(pages, PAGES_MAX);
    return (
        <div class="pdf" ref={box}>
            {failure && <p class="quiet">This file cannot be shown: {failure}</p>}
            {Array.from({ length: shown }, (_, i) => (
                <canvas key={i} role="img" aria-label={`${name}, page ${i + 1} of ${pages}`} />
            ))}
            {pages > shown && <p class="quiet">The first {shown} of {pages} pages are shown.</p>}
        </div>
    );
}
