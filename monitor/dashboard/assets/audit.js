// The audit log: who did what to which rows, when, and why.

import { h, fill, announce } from "./dom.js";
import { get, path, query } from "./api.js";
import { databasePicker, empty, heading, mono, pill, table, trouble, when } from "./parts.js";
import { count } from "./words.js";

const pageSize = 50;

export default async function audit({ root, where, signal, fail }) {
  const status = await get("api/outbox", signal);
  const names = Object.keys(status).sort();
  const database = where.params.get("database") ?? names[0];
  const results = h("div", { class: "results" });
  let shown = [], ended = false;
  const more = h("button", { type: "button" }, "Older entries");
  const load = async () => {
    const { entries } = await get(path.database(database, "audit") + query({ before: shown.at(-1)?.id ?? "", limit: pageSize }), signal);
    shown = shown.concat(entries);
    ended = entries.length < pageSize;
    announce(`${entries.length} entries`);
    fill(results, shown.length ? list(shown) : empty("No actions yet.", "Every action of an operator is recorded here, from this page, the command line and Go."),
      h("div", { class: "after" }, ended ? null : more));
  };
  more.addEventListener("click", () => load().catch((e) => fill(results.lastChild, trouble(e, () => load().catch(fail)))));
  fill(root, heading("Audit"), h("div", { class: "filters" }, databasePicker(names, database, (name) => { location.hash = "#/audit" + query({ database: name }); })), results);
  await load();
}

function list(entries) {
  return table("Actions, newest first", [
    { head: "When", cell: (e) => when(e.started_at), class: "time" },
    { head: "Who", cell: (e) => [e.actor || "unknown", h("small", null, ` ${e.via ?? ""}`)] },
    { head: "Action", cell: (e) => h("strong", null, e.action) },
    { head: "Broker", cell: (e) => e.broker || "all" },
    { head: "Rows", cell: (e) => count(e.rows ?? 0), class: "number" },
    { head: "How it ended", cell: (e) => (e.failure ? [pill("bad", "failed"), h("small", { class: "block wrap" }, e.failure)] : e.ended_at ? pill("ok", "done") : pill("warn", "not ended")) },
    { head: "Reason", cell: (e) => e.reason || "–", class: "error" },
    { head: "Filter", cell: (e) => words(e.filter), class: "key" },
    { head: "Entry", cell: (e) => e.id, class: "number" },
  ], entries);
}

function words(filter) {
  const parts = Object.entries(filter ?? {}).filter(([, v]) => v !== "" && v !== null && !(Array.isArray(v) && !v.length))
    .map(([k, v]) => h("span", { class: "block" }, `${k.replaceAll("_", " ")}: `, mono(Array.isArray(v) ? v.slice(0, 3).join(", ") + (v.length > 3 ? ` and ${v.length - 3} more` : "") : String(v))));
  return parts.length ? parts : "–";
}
