// One message: its row of each broker side by side, what happened when, and how what each broker gets differs.

import { h, fill } from "./dom.js";
import { get, me, path } from "./api.js";
import { actionDialog } from "./dialogs.js";
import { actionButton, heading, mono, readOnlyNote, shape, statePill, statusPill, trouble, when } from "./parts.js";
import { clock, count, duration, full, states, waitsFor } from "./words.js";
import { contents } from "./contents.js";

export default async function message({ root, where, signal, reload }) {
  const { database, id } = where;
  const { rows } = await get(path.database(database, `messages/${encodeURIComponent(id)}`), signal);
  const first = rows[0];
  const spot = h("div", { class: "contents" });
  const showContents = h("button", { type: "button", disabled: !me.actions, title: me.actions ? null : "Payloads are shown to operators only" }, "Show what each broker gets");
  showContents.addEventListener("click", async () => {
    showContents.disabled = true;
    try {
      const full = await get(path.database(database, `messages/${encodeURIComponent(id)}?payload=1`), signal);
      fill(spot, contents(full.rows));
    } catch (e) {
      showContents.disabled = false;
      fill(spot, trouble(e));
    }
  });
  const act = async (broker, action, subject) => {
    if (await actionDialog(database, { action, broker, message_ids: [id] }, subject)) reload();
  };
  fill(root,
    h("p", { class: "crumbs" }, h("a", { href: "#/messages?database=" + encodeURIComponent(database) }, "Messages"), " › ", database),
    heading(first.type, h("p", { class: "mono id" }, id)),
    facts(database, first),
    readOnlyNote(),
    h("h2", null, rows.length === 1 ? "One broker" : `${rows.length} brokers`),
    h("div", { class: "fan" }, rows.map((m) => card(m, act))),
    h("h2", null, "Contents"),
    h("p", { class: "advice" }, "Payloads may hold personal data; they are fetched only when you ask."), showContents, spot);
}

function facts(database, m) {
  const all = (name, value) => [name, value];
  const byKey = (value) => h("a", { class: "mono", href: "#/messages?" + new URLSearchParams({ database, key: value }) }, value);
  const said = [
    all("Stream", m.stream && mono(m.stream)), all("Ordering key", m.key && byKey(m.key)),
    all("Aggregate", m.aggregate_id && mono([m.aggregate_type, m.aggregate_id].filter(Boolean).join(" "))), all("Written", full(m.created_at)),
    all("Correlation", m.correlation_id && mono(m.correlation_id)), all("Causation", m.causation_id && mono(m.causation_id)), all("Tenant", m.tenant_id && mono(m.tenant_id)),
  ];
  return h("dl", { class: "facts" }, said.filter(([, v]) => v).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function card(m, act) {
  const seen = m.last_error?.acknowledged;
  const can = { discard: m.status === "abandoned", acknowledge: m.status === "abandoned" && !seen, requeue: m.status === "failed" || m.status === "abandoned", replay: m.status === "published", abandon: m.status === "pending" || m.status === "failed" };
  const subject = `${m.type} for ${m.broker}`;
  const button = (action, text, more) => (can[action] ? actionButton(text, { onclick: () => act(m.broker, action, subject), "aria-label": `${text} for ${m.broker}`, ...more }) : null);
  return h("article", { class: "panel", "aria-label": `Broker ${m.broker}` },
    h("header", null, h("h3", null, m.broker), statusPill(m.status), statePill(m.state), h("span", { class: "grow" })),
    h("ol", { class: "timeline" }, timeline(m).map((e) => h("li", { class: e.level },
      shape(e.shape ?? e.level), h("div", null, h("strong", null, e.what), e.at ? h("span", { class: "at" }, h("time", { datetime: e.at, title: full(e.at) }, clock(e.at)), e.after ? ` · ${e.after}` : "") : null,
        e.more ? h("p", null, e.more) : null)))),
    m.last_error ? h("div", { class: "error-box" }, h("strong", null, m.last_error.class || "error"), h("p", { class: "mono wrap" }, m.last_error.message)) : null,
    h("dl", { class: "states" },
      detail("attempts", count(m.attempts ?? 0)), m.crashes ? detail("crashes", count(m.crashes)) : null, detail("payload", bytes(m.payload_bytes)), detail("shard", m.shard ?? 0),
      m.priority ? detail("priority", m.priority) : null, m.broker_message_id ? detail("broker's id", mono(m.broker_message_id)) : null, detail("row", m.id)),
    h("div", { class: "buttons" }, button("requeue", "Requeue", { class: "primary" }), button("replay", "Replay"), button("acknowledge", "Acknowledge"), button("discard", "Discard"), button("abandon", "Abandon")));
}

function detail(name, value) {
  return h("div", null, h("dt", null, name), h("dd", null, value));
}

const stateTitles = {
  due: "Waits for a worker", claimed: "Claimed by a worker", backoff: "Next attempt", scheduled: "Waits for its time", behind: "Waits for an earlier message", blocked: "Waits for an operator",
  paused: "Waits until its broker is resumed", unavailable: "Waits until its broker is available", unconfigured: "Its broker is not configured", stranded: "Stranded",
};

// next is when the state of an open row ends, where that is a time.
function next(m) {
  switch (m.state) {
    case "claimed": return m.locked_until;
    case "backoff": return m.deferral?.until ?? m.locked_until;
    case "scheduled": return m.available_at;
    case "behind": return m.deferral?.until;
    default: return null;
  }
}

// timeline is what is known of a row's life, in order. A row keeps its last error only, so earlier attempts are a number.
export function timeline(m) {
  const events = [];
  const after = (at) => {
    const s = (new Date(at) - new Date(m.created_at)) / 1000;
    return s >= 0.0005 ? "+" + duration(s) : "";
  };
  const add = (at, what, level, more) => events.push({ at, what, level, more, after: at && at !== m.created_at ? after(at) : "" });
  add(m.created_at, "Written", "wait");
  if (m.available_at && new Date(m.available_at) - new Date(m.created_at) > 1000) add(m.available_at, "Due", "wait", "It was not to be sent before.");
  const e = m.last_error;
  if (e?.at) {
    const earlier = (e.attempt ?? 1) - 1;
    add(e.at, e.class === "operator" ? "Abandoned by an operator" : e.attempt ? `Attempt ${e.attempt} failed` : "An attempt failed", "warn", earlier > 0 ? `${earlier} earlier ${earlier === 1 ? "attempt" : "attempts"} failed, too.` : "");
  }
  if (m.published_at) add(m.published_at, "Published", "ok", "The broker confirmed it.");
  else if (m.status === "abandoned") add(m.finished_at, "Abandoned", "bad", m.last_error?.acknowledged ? "An operator has acknowledged it. Only an operator sends it again." : "Only an operator sends it again.");
  events.sort((a, b) => new Date(a.at) - new Date(b.at));
  if (m.state) add(next(m), stateTitles[m.state] ?? m.state, states[m.state]?.[0] ?? "wait", m.state === "claimed" ? [m.locked_by ? [mono(m.locked_by), ". "] : "", "The lease expires then; if the worker crashed, another one claims the message."] : waitsFor(m));
  if (m.expires_at && !m.finished_at) add(m.expires_at, "Expires", "wait", "It is abandoned if it is not delivered by then.");
  return events;
}

function bytes(n) {
  if (n === undefined || n === null) return "–";
  if (n < 1024) return `${n} B`;
  return n < 1024 * 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1024 / 1024).toFixed(1)} MiB`;
}
