// Workers: the processes that deliver, when they were last heard of, and what they have claimed.

import { h, fill } from "./dom.js";
import { get, path, query } from "./api.js";
import { databasePicker, empty, heading, mono, pill, table, when } from "./parts.js";
import { count } from "./words.js";

export default async function workers({ root, where, signal }) {
  const status = await get("api/outbox", signal);
  const names = Object.keys(status).sort();
  const database = where.params.get("database") ?? names[0];
  const { instances } = await get(path.database(database, "workers"), signal);
  const leases = instances.flatMap((i) => (i.work ?? []).map((w) => ({ ...w, instance: i })));
  const silent = instances.filter((i) => i.silent).length;
  fill(root,
    heading("Workers", h("p", { class: "fresh" }, `${count(instances.length)} ${instances.length === 1 ? "process" : "processes"}${silent ? `, ${silent} silent` : ""}`)),
    h("div", { class: "filters" }, databasePicker(names, database, (name) => { location.hash = "#/workers" + query({ database: name }); })),
    instances.length ? table("Processes", [
      { head: "Name", cell: (i) => [h("strong", null, i.name), h("small", { class: "block mono" }, i.id)] },
      { head: "State", cell: (i) => (i.unreadable ? [pill("bad", "unreadable row"), h("small", { class: "block" }, i.unreadable)] : i.silent ? pill("bad", "gone") : pill("ok", "alive")) },
      { head: "Last heard of", cell: (i) => when(i.seen_at), class: "time" },
      { head: "Started", cell: (i) => when(i.started_at), class: "time" },
      { head: "Host", cell: (i) => i.host },
      { head: "Process", cell: (i) => i.pid, class: "number" },
      { head: "Version", cell: (i) => mono(i.version || "–") },
      { head: "Unavailable", cell: (i) => (i.unavailable ?? []).map((u) => u.destination ? `${u.broker}: ${u.destination}` : u.broker).join(", ") || "–" },
      { head: "Batches", cell: (i) => count((i.work ?? []).length), class: "number" },
    ], instances, (i) => (i.silent ? "silent" : null)) : empty("No relay works on this database.", "Start one: fanout relay. Rows wait for it, and nothing is lost."),
    silent ? h("p", { class: "note" }, "A process that is gone was killed or is cut off from the database. What it had claimed is claimed again when the lease expires; it leaves this list after a day.") : null,
    h("h2", null, "Claimed"),
    h("p", { class: "advice" }, "Batches that workers had claimed when they were last heard of, every 30 seconds."),
    leases.length ? table("Claimed batches", [
      { head: "Worker", cell: (w) => mono(w.worker) }, { head: "Broker", cell: (w) => w.broker }, { head: "Shard", cell: (w) => w.shard, class: "number" },
      { head: "Rows", cell: (w) => count(w.rows), class: "number" }, { head: "Since", cell: (w) => when(w.since), class: "time" },
    ], leases) : empty("Nothing is claimed."));
}
