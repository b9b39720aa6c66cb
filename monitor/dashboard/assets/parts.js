// Pieces that several pages are made of.

import { h } from "./dom.js";
import { Problem, me } from "./api.js";
import { ago, full, states, statusMeans } from "./words.js";

// A shape goes with each colour, so that nothing depends on telling colours apart.
const shapes = {
  ok: ["path", { d: "M3 8.5l3.2 3.2L13 5" , fill: "none", stroke: "currentColor", "stroke-width": 2.4, "stroke-linecap": "round", "stroke-linejoin": "round" }],
  warn: ["path", { d: "M8 2l6.5 12h-13z", fill: "currentColor" }],
  bad: ["path", { d: "M5 1.5h6l3.5 3.5v6L11 14.5H5L1.5 11V5z", fill: "currentColor" }],
  paused: ["path", { d: "M3.5 2.5h3.4v11H3.5zM9.1 2.5h3.4v11H9.1z", fill: "currentColor" }],
  wait: ["circle", { cx: 8, cy: 8, r: 5, fill: "none", stroke: "currentColor", "stroke-width": 2.4 }],
  work: ["path", { d: "M4 2.5l9 5.5-9 5.5z", fill: "currentColor" }],
};

export function shape(name) {
  const [tag, attributes] = shapes[name] ?? shapes.wait;
  return h("svg", { viewBox: "0 0 16 16", width: 12, height: 12, "aria-hidden": "true", class: "shape" }, h(tag, attributes));
}

export function pill(level, word) {
  return h("span", { class: ["pill", level] }, shape(level), word);
}

const statusLevel = { pending: "wait", processing: "work", failed: "warn", published: "ok", abandoned: "bad" };

export function statusPill(status) {
  return h("span", { class: ["pill", statusLevel[status]], title: statusMeans[status] }, shape(statusLevel[status]), status);
}

// statePill shows what happens next to a row that is not finished.
export function statePill(state) {
  const [level, means] = states[state] ?? ["wait", ""];
  return state ? h("span", { class: ["pill", level], title: means }, shape(level), state) : null;
}

// when shows a time as seen from now; the exact one is in its title.
export function when(value, text = ago(value)) {
  return value ? h("time", { datetime: value, title: full(value) }, text) : "–";
}

export function mono(text) {
  return h("span", { class: "mono" }, text);
}

// shortId keeps the end of an id: those made at about the same time begin alike.
export function shortId(id) {
  return id.length > 13 ? "…" + id.slice(-12) : id;
}

export function messageLink(database, id, text = shortId(id)) {
  return h("a", { class: "mono", href: `#/messages/${encodeURIComponent(database)}/${encodeURIComponent(id)}`, title: id }, text);
}

// trouble shows what went wrong in words, and what to do about it.
export function trouble(problem, again) {
  if (!(problem instanceof Problem)) console.error(problem);
  return h("div", { class: "notice bad", role: "alert" },
    h("p", null, shape("bad"), " ", problem instanceof Problem ? problem.message : `This page failed: ${problem.message}`),
    problem.advice ? h("p", { class: "advice" }, problem.advice) : null,
    again ? h("button", { type: "button", onclick: again }, "Try again") : null);
}

export function empty(text, more) {
  return h("div", { class: "empty" }, h("p", null, text), more ? h("p", { class: "advice" }, more) : null);
}

// table makes one with a caption for screen readers; columns are {head, cell, class, wide}. On a phone each row becomes a block in
// which cells name their column.
export function table(caption, columns, list, rowClass) {
  return h("div", { class: "scroll" }, h("table", null,
    h("caption", { class: "visually-hidden" }, caption),
    h("thead", null, h("tr", null, columns.map((c) => h("th", { scope: "col", class: c.class }, c.head)))),
    h("tbody", null, list.map((item) => h("tr", { class: rowClass?.(item) },
      columns.map((c) => h("td", { class: c.class, "data-head": c.head }, c.cell(item))))))));
}

// field is a labelled control of a form.
export function field(label, control, hint) {
  return h("label", { class: "field" }, h("span", null, label), control, hint ? h("small", null, hint) : null);
}

export function select(name, options, chosen) {
  return h("select", { name }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
}

// actionButton can be pressed by operators only; it says so to others instead of failing when pressed.
export function actionButton(text, attributes) {
  const why = me.actions ? null : me.role === "viewer" ? "Your token may look, not act" : "Actions need an operator token";
  return h("button", { type: "button", ...attributes, disabled: !me.actions || attributes?.disabled, title: why ?? attributes?.title }, text);
}

// readOnlyNote says once per page why the buttons are grey.
export function readOnlyNote() {
  if (me.actions) return null;
  return h("p", { class: "note" }, me.role === "viewer"
    ? "You are signed in to look. Actions need an operator token."
    : "This page is read-only here: no operator tokens are configured, or you are not signed in as one.");
}

// databases picks the one a page is about; there is no choice where there is one only.
export function databasePicker(names, chosen, change) {
  if (names.length < 2) return null;
  return field("Database", h("select", { name: "database", onchange: (e) => change(e.target.value) },
    names.map((n) => h("option", { value: n, selected: n === chosen }, n))));
}

export function heading(text, ...more) {
  return h("div", { class: "heading" }, h("h1", { tabindex: -1 }, text), more);
}
