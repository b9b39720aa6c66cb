// Blocked keys: which ordering keys wait for one message, why, until when, and what waits behind them.

import { h, fill } from "./dom.js";
import { get, path, query } from "./api.js";
import { actionDialog } from "./dialogs.js";
import { actionButton, databasePicker, empty, field, heading, messageLink, mono, pill, readOnlyNote, select, table, when } from "./parts.js";
import { count, rows } from "./words.js";

const reasons = {
  backoff: ["warn", "its first message failed and is tried again"],
  operator: ["bad", "its first message was abandoned: it waits for you"],
};

export default async function blocked({ root, where, signal, reload }) {
  const status = await get("api/outbox", signal);
  const names = Object.keys(status).sort();
  const database = where.params.get("database") ?? names[0];
  const broker = where.params.get("broker") ?? "";
  const brokers = Object.keys(status[database]?.brokers ?? {}).sort();
  const limit = where.params.get("limit") ?? "";
  const found = await get(path.database(database, "blocked") + query({ broker, limit }), signal);
  const { keys } = found;
  const act = async (action, subject) => { if (await actionDialog(database, action, subject)) reload(); };
  const pick = select("broker", [["", "all"], ...brokers.map((b) => [b, b])], broker);
  pick.addEventListener("change", () => { location.hash = "#/blocked" + query({ database, broker: pick.value }); });
  fill(root,
    heading("Blocked keys"),
    h("p", { class: "advice" }, "Messages of one ordering key are delivered in order. When one of them has to wait, those behind it wait, too; other keys go on. Those of a priority below 0 are a class with an order of its own."),
    h("div", { class: "filters" }, databasePicker(names, database, (name) => { location.hash = "#/blocked" + query({ database: name }); }), field("Broker", pick)),
    readOnlyNote(),
    keys.length ? totals(database, broker, found) : null,
    keys.length && found.blocked.keys > 0 ? inBulk(broker, act) : null,
    keys.length ? list(database, keys, act) : empty("No key waits.", "Keys whose first message failed or was abandoned would be here."));
}

// totals says how many keys wait and what they hold, listed or not.
function totals(database, broker, found) {
  const { keys, waiting, blocked } = found;
  const all = `${count(waiting.keys, waiting.keys_more)} ${waiting.keys === 1 && !waiting.keys_more ? "key waits" : "keys wait"}, with ${rows(waiting.rows, waiting.rows_more)} behind.`;
  const you = blocked.keys ? ` ${count(blocked.keys, blocked.keys_more)} of them ${blocked.keys === 1 && !blocked.keys_more ? "waits" : "wait"} for you, with ${rows(blocked.rows, blocked.rows_more)} behind.` : "";
  const more = keys.length < waiting.keys || waiting.keys_more
    ? [` The first ${count(keys.length)} are listed. `, keys.length < 10000 ? h("a", { href: "#/blocked" + query({ database, broker, limit: 10000 }) }, "List more") : null] : null;
  return h("p", { class: "note" }, all, you, more);
}

// inBulk acts on all keys that wait for an operator, or on those that a filter selects by their abandoned messages.
function inBulk(broker, act) {
  const input = (name, more) => h("input", { name, autocomplete: "off", ...more });
  const selected = () => {
    const v = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
    for (const bound of ["since", "until"]) if (v[bound]) v[bound] = new Date(v[bound]).toISOString();
    return { broker, type: "*", ...v };
  };
  const button = (action, text, more) => actionButton(text, { onclick: () => act({ action, ...selected() }, action === "unblock" ? "keys" : "the messages they wait for"), ...more });
  const form = h("form", { class: "filters", "aria-label": "Unblock by filter", onsubmit: (e) => e.preventDefault() },
    field("Type", input("type", { placeholder: "OrderPlaced or Order*" })), field("Keys that begin with", input("key_prefix")), field("Error class", input("error_class")), field("Failure group", input("fingerprint")),
    field("Written from", input("since", { type: "datetime-local", step: 1 })), field("Written before", input("until", { type: "datetime-local", step: 1 })),
    h("div", { class: "buttons" }, button("unblock", "Unblock…"), button("acknowledge", "Acknowledge…"), button("discard", "Discard…")));
  return h("details", { class: "by-filter" }, h("summary", null, "Many at once"),
    h("p", { class: "advice" }, "What the filter selects are the abandoned messages. The number is shown before anything is done. Acknowledge and discard are for all abandoned messages, also those without a key."), form);
}

function list(database, keys, act) {
  return table("Keys that wait", [
    { head: "Ordering key", cell: (k) => [h("a", { class: "mono", href: "#/messages?" + new URLSearchParams({ database, broker: k.broker, key: k.key }) }, k.key), k.class === "normal" ? null : h("small", { class: "block" }, k.class)], class: "key" },
    { head: "Broker", cell: (k) => k.broker },
    { head: "Why", cell: (k) => { const [level, text] = reasons[k.reason] ?? ["wait", k.reason]; return [pill(level, k.reason), h("small", { class: "block" }, text)]; } },
    { head: "Followers", cell: (k) => count(k.followers, k.more), class: "number" },
    { head: "Since", cell: (k) => when(k.since), class: "time" },
    { head: "Until", cell: (k) => (k.until ? when(k.until) : "you act"), class: "time" },
    { head: "Waits for", cell: (k) => [k.message_id ? messageLink(database, k.message_id) : mono("–"), k.last_error ? h("small", { class: "block clip", title: k.last_error.message }, k.last_error.message) : null] },
    { head: "Action", cell: (k) => h("div", { class: "buttons" }, k.reason === "operator" ? [
      actionButton("Unblock", { onclick: () => act({ action: "unblock", broker: k.broker, key: k.key }, k.key), "aria-label": `Unblock ${k.key}` }),
      actionButton("Discard", { onclick: () => act({ action: "discard", broker: k.broker, message_ids: [k.message_id] }, "the message it waits for"), "aria-label": `Discard the message ${k.key} waits for` }),
      actionButton("Requeue", { class: "primary", onclick: () => act({ action: "requeue", broker: k.broker, message_ids: [k.message_id] }, "the message it waits for"), "aria-label": `Requeue the message ${k.key} waits for` }),
    ] : k.message_id ? actionButton("Try now", { onclick: () => act({ action: "requeue", broker: k.broker, message_ids: [k.message_id] }, "the message it waits for"), "aria-label": `Try the message ${k.key} waits for now` }) : null) },
  ], keys);
}
