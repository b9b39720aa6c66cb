// What each broker gets of a message, and how two of them differ.

import { h, fill } from "./dom.js";
import { diff, sides, summary } from "./diff.js";

// contents shows the payloads of the rows: two of them side by side where there are several.
export function contents(rows) {
  const forms = rows.map(form);
  const box = h("div");
  if (forms.length === 1) return fill(box, single(forms[0]));
  // The internal form holds most.
  const sorted = [...forms].sort((a, b) => b.bytes - a.bytes);
  const pick = (value) => h("select", null, forms.map((f) => h("option", { value: f.broker, selected: f === value }, f.broker)));
  const left = pick(sorted[0]), right = pick(sorted[1]);
  const spot = h("div");
  const draw = () => fill(spot, compare(forms.find((f) => f.broker === left.value), forms.find((f) => f.broker === right.value)));
  left.addEventListener("change", draw);
  right.addEventListener("change", draw);
  draw();
  return fill(box, forms.length > 2 ? h("div", { class: "filters" }, h("label", { class: "field" }, h("span", null, "Left"), left), h("label", { class: "field" }, h("span", null, "Right"), right)) : null, spot);
}

function form(row) {
  const text = row.payload_text ?? null;
  let value;
  try { value = text === null ? undefined : JSON.parse(text); } catch { value = undefined; }
  let headers = row.headers;
  if (typeof headers === "string" && headers) try { headers = JSON.parse(headers); } catch { /* shown as it is */ }
  return { broker: row.broker, text, value, base64: row.payload, bytes: row.payload_bytes ?? 0, headers, contentType: row.content_type };
}

function single(f) {
  return h("div", null, h("h3", null, f.broker), f.value !== undefined ? code(JSON.stringify(f.value, null, 2)) : code(f.text ?? f.base64 ?? (f.bytes ? `${f.bytes.toLocaleString("en")} bytes: too large to be shown` : "")), headers(f));
}

function code(text) {
  return h("pre", { tabindex: 0, "aria-label": "Payload" }, text);
}

function headers(f) {
  if (!f.headers || !Object.keys(f.headers).length) return null;
  return h("details", null, h("summary", null, `Headers of ${f.broker}`), code(typeof f.headers === "string" ? f.headers : JSON.stringify(f.headers, null, 2)));
}

function compare(a, b) {
  if (a.value === undefined || b.value === undefined) return h("div", { class: "fan" }, single(a), single(b));
  const lines = diff(a.value, b.value);
  const total = summary(lines);
  const words = total.same ? "Both get the same." : `${total.left} ${total.left === 1 ? "line" : "lines"} for ${a.broker} only, ${total.right} for ${b.broker} only.`;
  const cell = (line, side, broker, other) => {
    const only = line && line.mark !== "same";
    return h("td", { class: [side, only && "only", !line && "gap", line?.mark === "same" && side === "right" && "repeat"] },
      line ? [h("span", { class: "sign" }, only ? h("span", { class: "visually-hidden" }, `only ${broker}: `) : null, h("span", { "aria-hidden": "true" }, only ? (side === "left" ? "−" : "+") : " ")), h("code", { class: "d" + Math.min(line.depth, 12) }, line.text)] : h("span", { class: "visually-hidden" }, `not for ${broker}`));
  };
  return h("div", null, h("p", null, words),
    h("div", { class: "scroll" }, h("table", { class: "diff" }, h("caption", { class: "visually-hidden" }, `What ${a.broker} gets beside what ${b.broker} gets`),
      h("thead", null, h("tr", null, h("th", { scope: "col" }, a.broker, " ", h("small", null, a.contentType)), h("th", { scope: "col" }, b.broker, " ", h("small", null, b.contentType)))),
      h("tbody", null, sides(lines).map((s) => h("tr", null, cell(s.left, "left", a.broker), cell(s.right, "right", b.broker)))))),
    headers(a), headers(b));
}
