// Messages that a filter finds, newest first, page by page.

import { h, fill, announce } from "./dom.js";
import { get, path, query } from "./api.js";
import { databasePicker, empty, field, heading, messageLink, mono, select, statePill, statusPill, table, trouble, when } from "./parts.js";
import { count, statuses, waitsFor } from "./words.js";

const filters = ["broker", "status", "type", "key", "aggregate", "correlation", "tenant", "trace", "error_class", "since", "until"];

export default async function messages({ root, where, signal, fail }) {
  const status = await get("api/outbox", signal);
  const names = Object.keys(status).sort();
  const database = where.params.get("database") ?? names[0];
  const brokers = Object.keys(status[database]?.brokers ?? {}).sort();
  const chosen = Object.fromEntries(filters.map((f) => [f, where.params.get(f) ?? ""]));
  if (chosen.status === "pending,processing,failed") chosen.status = "open";

  const results = h("div", { class: "results" });
  fill(root, heading("Messages"), filterForm(database, names, brokers, chosen), results);

  let shown = [], cursor = "", scanned = 0;
  const more = h("button", { type: "button" }, "Older messages");
  const load = async () => {
    more.disabled = true;
    const asked = { ...chosen, since: iso(chosen.since), until: iso(chosen.until), status: chosen.status === "open" ? "pending,processing,failed" : chosen.status, cursor, limit: 50 };
    const page = await get(path.database(database, "messages") + query(asked), signal);
    const before = shown.length;
    shown = shown.concat(page.messages);
    cursor = page.next ?? "";
    scanned += page.scanned ?? page.messages.length;
    draw();
    announce(`${page.messages.length} messages`);
    if (before) results.querySelectorAll("tbody tr")[before]?.querySelector("a")?.focus();
  };
  const draw = () => {
    more.disabled = false;
    fill(results,
      shown.length ? list(database, shown) : empty(cursor ? `No match among the ${count(scanned)} rows looked at. There are older ones.` : "No message matches.", cursor ? null : "Loosen the filter, or look in another database."),
      h("div", { class: "after" }, cursor ? more : shown.length ? h("span", null, "No older ones.") : null,
        h("small", null, `${count(shown.length)} shown, ${count(scanned)} looked at`)));
  };
  more.addEventListener("click", () => load().catch((e) => fill(results.lastChild, trouble(e, () => load().catch(fail)))));
  await load();
}

const iso = (local) => (local ? new Date(local).toISOString() : "");

export function list(database, records) {
  return table("Messages, newest first", [
    { head: "Written", cell: (m) => when(m.created_at), class: "time" },
    { head: "Message", cell: (m) => messageLink(database, m.message_id) },
    { head: "Type", cell: (m) => m.type },
    { head: "Ordering key", cell: (m) => (m.key ? mono(m.key) : "–"), class: "key" },
    { head: "Broker", cell: (m) => m.broker },
    { head: "Status", cell: (m) => statusPill(m.status) },
    { head: "State", cell: (m) => (m.state ? [statePill(m.state), waits(database, m)] : "–") },
    { head: "Attempts", cell: (m) => count(m.attempts ?? 0), class: "number" },
    { head: "Last error", cell: (m) => (m.last_error ? h("span", { class: "clip", title: m.last_error.message }, m.last_error.message) : "–"), class: "error" },
  ], records);
}

// waits says behind which message a deferred row waits, and until when.
function waits(database, m) {
  const d = m.deferral;
  if (!d) return null;
  return h("small", { class: "block", title: waitsFor(m) },
    d.message_id !== m.message_id ? ["behind ", messageLink(database, d.message_id), " "] : null,
    d.until ? when(d.until) : d.reason === "operator" ? "until you act" : null);
}

function filterForm(database, names, brokers, chosen) {
  const input = (name, more) => h("input", { name, value: chosen[name], autocomplete: "off", ...more });
  const form = h("form", { class: "filters", "aria-label": "Filter", onsubmit: (e) => {
    e.preventDefault();
    location.hash = "#/messages" + query({ database, ...Object.fromEntries(new FormData(form)) });
  } },
  databasePicker(names, database, (name) => { location.hash = "#/messages" + query({ database: name }); }),
  field("Broker", select("broker", [["", "all"], ...brokers.map((b) => [b, b])], chosen.broker)),
  field("Status", select("status", [["", "all"], ["open", "not finished"], ...statuses.map((s) => [s, s])], chosen.status)),
  field("Type", input("type", { placeholder: "OrderPlaced or Order*" })),
  field("Ordering key", input("key", { placeholder: "order-42" })),
  field("Aggregate", input("aggregate", { placeholder: "order-42" })),
  field("Correlation id", input("correlation")),
  field("Tenant", input("tenant")),
  field("Trace id", input("trace")),
  field("Error class", input("error_class")),
  field("Written from", input("since", { type: "datetime-local", step: 1 })),
  field("Written before", input("until", { type: "datetime-local", step: 1 })),
  h("div", { class: "buttons" }, h("button", { type: "submit" }, "Filter"), h("a", { class: "button quiet", href: "#/messages" + query({ database }) }, "Clear")));
  return form;
}
