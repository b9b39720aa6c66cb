// Failures: what failed or was abandoned, grouped by cause, and sent again one by one, group by group or by filter.

import { h, fill } from "./dom.js";
import { get, path, query } from "./api.js";
import { actionDialog } from "./dialogs.js";
import { actionButton, databasePicker, empty, field, heading, messageLink, readOnlyNote, select, when } from "./parts.js";
import { count, rows } from "./words.js";

export default async function failures({ root, where, signal, reload }) {
  const status = await get("api/outbox", signal);
  const names = Object.keys(status).sort();
  const database = where.params.get("database") ?? names[0];
  const broker = where.params.get("broker") ?? "";
  const brokers = Object.keys(status[database]?.brokers ?? {}).sort();
  const found = await get(path.database(database, "failures") + query({ broker }), signal);
  const go = (more) => { location.hash = "#/failures" + query({ database, broker, ...more }); };
  const act = async (action, subject) => { if (await actionDialog(database, action, subject)) reload(); };
  const groups = [...found.groups].sort((a, b) => b.count - a.count);
  const pick = select("broker", [["", "all"], ...brokers.map((b) => [b, b])], broker);
  pick.addEventListener("change", () => go({ broker: pick.value }));
  fill(root,
    heading("Failures", h("p", { class: "fresh" }, `${rows(found.scanned ?? 0, found.more)} looked at`)),
    h("div", { class: "filters" }, databasePicker(names, database, (name) => { location.hash = "#/failures" + query({ database: name }); }), field("Broker", pick)),
    readOnlyNote(),
    found.more ? h("p", { class: "note" }, "There are more failures than are looked at: the newest 10,000 of each broker are grouped. Counts are of those; a group is requeued as a whole.") : null,
    groups.length ? h("div", { class: "groups" }, groups.map((g) => group(database, g, act))) : empty("Nothing has failed.", "Rows that failed or were abandoned would be here, grouped by their cause."),
    byFilter(brokers, broker, act));
}

function group(database, g, act) {
  const statuses = Object.entries(g.by_status ?? {}).filter(([, n]) => n > 0).map(([s, n]) => `${count(n)} ${s}`).join(", ");
  const types = Object.entries(g.types ?? {}).sort((a, b) => b[1] - a[1]).map(([t, n]) => `${t} (${count(n)})`);
  const base = { broker: g.broker, fingerprint: g.fingerprint };
  const abandonable = (g.by_status?.failed ?? 0) > 0;
  return h("article", { class: "panel group", "data-fingerprint": g.fingerprint, "aria-label": `${g.class} at ${g.broker}` },
    h("header", null, h("h2", null, h("span", { class: "big" }, count(g.count)), " ", g.class || "error", h("small", null, ` at ${g.broker}`)), h("span", { class: "grow" }),
      h("div", { class: "buttons" },
        actionButton("Requeue one", { onclick: () => act({ action: "requeue", broker: g.broker, message_ids: [g.sample[0]] }, "one of this group"), title: "Try the newest of them first", disabled: !g.sample?.length }),
        actionButton("Requeue all", { class: "primary", onclick: () => act({ action: "requeue", ...base }, "this group") }),
        (g.by_status?.abandoned ?? 0) > 0 ? [actionButton("Acknowledge", { onclick: () => act({ action: "acknowledge", ...base }, "this group"), title: "They raise no alert any more" }),
          actionButton("Discard", { onclick: () => act({ action: "discard", ...base }, "this group"), title: "Remove them for good; their keys go on" })] : null,
        abandonable ? actionButton("Abandon", { onclick: () => act({ action: "abandon", ...base }, "this group") }) : null)),
    h("p", { class: "cause mono wrap" }, g.message),
    h("dl", { class: "states" }, detail("status", statuses), detail("first", when(g.first_at)), detail("last", when(g.last_at)), g.keys ? detail("ordering keys", count(g.keys)) : null, detail("types", types.slice(0, 4).join(", ") + (types.length > 4 ? ` and ${types.length - 4} more` : ""))),
    h("p", { class: "samples" }, "For example ", (g.sample ?? []).map((id, i) => [i ? ", " : "", messageLink(database, id)])));
}

function detail(name, value) {
  return h("div", null, h("dt", null, name), h("dd", null, value || "–"));
}

function byFilter(brokers, broker, act) {
  const input = (name, more) => h("input", { name, autocomplete: "off", ...more });
  const form = h("form", { class: "filters", "aria-label": "Requeue by filter", onsubmit: (e) => {
    e.preventDefault();
    const v = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
    for (const bound of ["since", "until"]) if (v[bound]) v[bound] = new Date(v[bound]).toISOString();
    const { status, ...rest } = v;
    act({ action: "requeue", ...rest, status: status ? [status] : ["failed", "abandoned"] }, "by filter");
  } },
  field("Broker", select("broker", [["", "all"], ...brokers.map((b) => [b, b])], broker)),
  field("Status", select("status", [["", "failed and abandoned"], ["failed", "failed"], ["abandoned", "abandoned"]], "")),
  field("Type", input("type", { placeholder: "OrderPlaced or Order*" })), field("Ordering key", input("key")), field("Error class", input("error_class")),
  field("Written from", input("since", { type: "datetime-local", step: 1 })), field("Written before", input("until", { type: "datetime-local", step: 1 })),
  h("div", { class: "buttons" }, actionButton("Requeue…", { type: "submit" })));
  return h("section", { class: "by-filter" }, h("h2", null, "Requeue by filter"), h("p", { class: "advice" }, "The number of rows is shown before anything is done."), form);
}
