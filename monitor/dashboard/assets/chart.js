// Small charts of the last minutes, drawn as SVG. A chart is one accent colour on a base line; what it shows is said in words, too.

import { h } from "./dom.js";

const width = 300, height = 56, top = 4;

// best is the largest number, at least the floor.
function best(values, floor) {
  return values.reduce((max, v) => (v !== null && v > max ? v : max), floor);
}

// smooth takes the mean of neighbours, because a sample of two seconds jumps from batch to batch.
export function smooth(values, over = 3) {
  return values.map((v, i) => {
    if (v === null || v === undefined) return null;
    const part = values.slice(Math.max(0, i - over + 1), i + 1).filter((x) => x !== null && x !== undefined);
    return part.reduce((a, b) => a + b, 0) / part.length;
  });
}

// runs are the stretches without a gap, as lists of [index, value].
function runs(values) {
  const result = [];
  let run = [];
  values.forEach((v, i) => {
    if (v === null || v === undefined) {
      if (run.length) result.push(run);
      run = [];
    } else {
      run.push([i, v]);
    }
  });
  if (run.length) result.push(run);
  return result;
}

// chart draws a series: {label, values, slots, format, floor, kind}. The newest value is at the right edge; slots is how many fit. What
// the pointer is over is shown in words by whoever listens: data-chart names the chart, data-slots its slots.
export function chart({ id, label, values, slots, stepSeconds, format, floor = 1, kind = "accent", mark = null }) {
  const max = best(values, floor) * 1.05;
  const x = (i) => (width - ((values.length - 1 - i) * width) / (slots - 1)).toFixed(1);
  const y = (v) => (top + (height - top) * (1 - v / max)).toFixed(1);
  const paths = [];
  for (const run of runs(values)) {
    const line = run.map(([i, v]) => `${x(i)} ${y(v)}`).join("L");
    paths.push(h("path", { class: "area", d: `M${x(run[0][0])} ${height}L${line}L${x(run.at(-1)[0])} ${height}Z` }));
    paths.push(h("path", { class: "line", d: run.length > 1 ? `M${line}` : `M${line}h0.1` }));
  }
  const known = values.filter((v) => v !== null && v !== undefined);
  const now = known.length ? format(known.at(-1)) : "no sample yet";
  const most = known.length ? format(best(known, 0)) : "–";
  const shown = mark !== null && values[mark] !== undefined ? mark : null;
  const minutes = Math.round((slots * stepSeconds) / 60);
  const note = shown === null ? now : `${values[shown] === null ? "no sample" : format(values[shown])}, ${ageWords((values.length - 1 - shown) * stepSeconds)}`;
  return h("figure", { class: ["chart", kind] },
    h("figcaption", null, h("span", null, label), h("output", { "data-note": true }, note)),
    h("svg", {
      viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "data-chart": id, "data-slots": slots,
      "aria-label": `${label}, last ${minutes} minutes: now ${now}, highest ${most}`,
    },
    h("line", { class: "base", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
    paths,
    shown === null ? null : h("line", { class: "mark", x1: x(shown), x2: x(shown), y1: 0, y2: height })),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", null, `${minutes} min ago`), h("span", null, known.length ? `highest ${most}` : ""), h("span", null, "now")));
}

function ageWords(seconds) {
  if (seconds === 0) return "now";
  return seconds < 90 ? `${seconds} s ago` : `${Math.floor(seconds / 60)} min ${seconds % 60} s ago`;
}

// pointed is the index in values that a pointer is over, or null.
export function pointed(event, svg, length) {
  const box = svg.getBoundingClientRect();
  const slots = Number(svg.dataset.slots);
  const back = Math.round(((box.right - event.clientX) / box.width) * (slots - 1));
  const index = length - 1 - back;
  return index >= 0 && index < length ? index : null;
}
