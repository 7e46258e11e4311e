// SPDX-License-Identifier: Apache-2.0
// Builds the console: node build.mjs PACKAGES TARGET. PACKAGES has node_modules, as package-lock.json
// names them; TARGET gets index.html, with the page's style, frame.html, and the assets with their
// hashes in their names, each also compressed. Frames of charts are there compressed only.

import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const source = dirname(fileURLToPath(import.meta.url));
const [packages, target] = process.argv.slice(2).map((path) => resolve(path));
const esbuild = createRequire(join(packages, "package.json"))("esbuild");
const modules = join(packages, "node_modules");

async function write(name, content) {
    const path = join(target, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, content);
    await writeFile(`${path}.gz`, gzipSync(content, { level: 9 }));
}

const sha256 = (content) => createHash("sha256").update(content).digest();
const shortHash = (content) => sha256(content).toString("hex").slice(0, 8);
const read = (name) => readFile(join(source, name), "utf8");
const minify = async (name, loader) =>
    (await esbuild.transform(await read(name), { loader, minify: true })).code.trim();

/** The document of a frame: its script and style are inline, and its policy names the script's hash. */
async function frameDocument(name, script, style) {
    if (/<\/script|<!--|\r|\0/i.test(script)) throw new Error(`${name}: HTML would read its script differently`);
    return (await read(name))
        .replace("SCRIPT_HASH", () => `sha256-${sha256(script).toString("base64")}`)
        .replace("/* style */", () => style)
        .replace("/* script */", () => script);
}

// What others wrote comes with its licences.
const INSIDE = ["delaunator", "robust-predicates"]; // of the file that d3-delaunay ships

/** The packages of which a bundle has files. */
function packagesOf({ inputs }) {
    const found = Object.keys(inputs).map((input) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1]);
    return found.flatMap((name) => (name === "d3-delaunay" ? [name, ...INSIDE] : name ? [name] : []));
}

async function licencesOf(names) {
    const notices = [];
    for (const name of [...new Set(names)].sort()) {
        const { version, license } = JSON.parse(await readFile(join(modules, name, "package.json")));
        const text = await readFile(join(modules, name, "LICENSE"), "utf8").catch(() => "");
        notices.push(`${name} ${version} (${license})\n\n${text.trim()}\n`);
    }
    return notices.join(`\n${"-".repeat(80)}\n\n`);
}

// The frame of a chart has its library, and nobody needs it before the first chart. It is a file of its own
// that is kept compressed only. It has the licences of its packages, and the notices of what the makers of
// Plotly have bundled with it, which are nowhere else.
const charts = {};
const chartPackages = [];
for (const library of ["plotly", "vega"]) {
    const bundled = await esbuild.build({
        absWorkingDir: source,
        entryPoints: [`chart_${library}.ts`],
        bundle: true,
        minify: true,
        format: "iife",
        target: "es2022",
        nodePaths: [modules],
        legalComments: "eof",
        metafile: true,
        write: false,
    });
    const script = bundled.outputFiles[0].text.trim();
    const bundledPackages = packagesOf(bundled.metafile);
    const licences = await licencesOf(bundledPackages);
    if (licences.includes("-->")) throw new Error(`${library}: a licence would end its comment`);
    const frame = await frameDocument("chart.html", script, await minify("chart.css", "css"));
    const text = frame.replace("licences", () => licences);
    charts[library] = `assets/chart-${library}-${shortHash(text)}.html`;
    chartPackages.push(...bundledPackages);
    await mkdir(join(target, "assets"), { recursive: true });
    await writeFile(join(target, `${charts[library]}.gz`), gzipSync(text, { level: 9 }));
}

// xterm.js writes <style> elements and style attributes, which the page's policy refuses. As an element
// of ours, and by the object model, the same styles are allowed.
const STYLES = [
    [/\.createElement\("style"\)/g, 3, '.createElement("kernelgate-style")'],
    [/(\w+)\.setAttribute\("style",/g, 1, "$1.style.cssText=("],
];
const withoutInlineStyles = {
    name: "without-inline-styles",
    setup(build) {
        build.onLoad({ filter: /[/]@xterm[/]xterm[/]lib[/]xterm\.mjs$/ }, async ({ path }) => {
            let contents = await readFile(path, "utf8");
            for (const [pattern, count, by] of STYLES) {
                const found = contents.match(pattern)?.length ?? 0;
                if (found !== count) throw new Error(`${path}: ${found} of ${pattern}, not ${count}`);
                contents = contents.replace(pattern, by);
            }
            return { contents, loader: "js" };
        });
    },
};

const built = await esbuild.build({
    absWorkingDir: source,
    entryPoints: ["main.tsx", "page.css"],
    plugins: [withoutInlineStyles],
    outdir: join(target, "assets"),
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    bundle: true,
    splitting: true,
    minify: true,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    nodePaths: [modules],
    legalComments: "none",
    define: {
        "process.env.NODE_ENV": '"production"',
        CHART_DOCUMENTS: JSON.stringify(charts),
    },
    metafile: true,
    write: false,
});
const isScript = (file) => file.path.endsWith(".js");
for (const file of built.outputFiles.filter(isScript))
    await write(`assets/${basename(file.path)}`, file.contents);

// What runs before the page's code is a script of its own.
const early = await esbuild.build({
    absWorkingDir: source,
    entryPoints: ["start.ts"],
    outdir: join(target, "assets"),
    entryNames: "[name]-[hash]",
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2022",
    write: false,
});
for (const file of early.outputFiles) await write(`assets/${basename(file.path)}`, file.contents);

// Those who have not chosen see their system's theme before any script has run.
const [css] = built.outputFiles.filter((file) => file.path.endsWith(".css"));
const dark = /:root\[data-theme=("?)dark\1\](\{[^}]*\})/.exec(css.text);
const style = `${css.text.trim()}@media (prefers-color-scheme:dark){:root:not([data-theme])${dark[2]}}`;

const names = [...built.outputFiles, ...early.outputFiles].map((file) => basename(file.path));
const asset = (pattern) => `assets/${names.find((name) => pattern.test(name))}`;

const icon = await readFile(join(source, "icon.svg"));
const iconName = `assets/icon-${shortHash(icon)}.svg`;
await write(iconName, icon);

// What the first view's code imports is fetched with it, and not after it.
const isMain = ([, output]) => output.entryPoint === "main.tsx";
const [, main] = Object.entries(built.metafile.outputs).find(isMain);
const preloads = main.imports
    .filter(({ kind }) => kind === "import-statement")
    .map(({ path }) => `<link rel="modulepreload" href="assets/${basename(path)}" />`);

const page = (await read("index.html"))
    .replace("<!-- preloads -->", preloads.join("\n        "))
    .replace("icon.svg", iconName)
    .replace("start.js", asset(/^start-.*\.js$/))
    .replace("/* style */", () => style)
    .replace("main.js", asset(/^main-.*\.js$/));
await write("index.html", page);

const frame = await frameDocument(
    "frame.html",
    await minify("frame_script.ts", "ts"),
    await minify("frame.css", "css"),
);
await write("frame.html", frame);

await write("licenses.txt", await licencesOf([...packagesOf(built.metafile), ...chartPackages]));
