// The way of messages: all that a term names, what caused them and what they caused, each with its brokers and their consumers.

import { h, fill, announce } from "./dom.js";
import { get, path, query } from "./api.js";
import { empty, field, heading, messageLink, mono, pill, select, shape, when } from "./parts.js";
import { count, full, states } from "./words.js";

const kinds = [["", "any id, or an ordering key"], ["message", "message id"], ["key", "ordering key"], ["aggregate", "aggregate's id"], ["correlation", "correlation id"],
  ["causation", "id of the cause"], ["trace", "trace id"], ["tenant", "tenant"], ["type", "event type"]];

// How bad a step is that no state of an open row says.
const levels = { published: "ok", abandoned: "bad", queued: "wait", running: "work", failing: "warn", dead_letter: "bad", done: "ok" };
const words = { dead_letter: "dead letter" };

const step = (name) => pill(levels[name] ?? states[name]?.[0] ?? "wait", words[name] ?? name);

export default async function trace({ root, where, signal }) {
  const term = where.params.get("term") ?? "", by = where.params.get("by") ?? "";
  const results = h("div", { class: "results" }, h("p", { class: "loading" }, "Looking…"));
  const form = h("form", { class: "filters", "aria-label": "Search", onsubmit: (e) => {
    e.preventDefault();
    location.hash = "#/trace" + query(Object.fromEntries(new FormData(form)));
  } },
  field("Term", h("input", { name: "term", value: term, autocomplete: "off", spellcheck: "false", placeholder: "order-42" })),
  field("It names", select("by", kinds, by)),
  h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Find")));
  fill(root, heading("The way of a message"), form, results);
  if (!term) return void fill(results, empty("Give an id or an ordering key.", "An id of a message, an aggregate, a correlation, a cause or a trace; or a key such as order-42 or ordering::order-42."));

  const names = Object.keys(await get("api/outbox", signal)).sort();
  const answers = await Promise.all(names.map((name) => get(path.database(name, "trace") + query({ term, by }), signal).catch((problem) => {
    if (problem.name === "AbortError" || problem.status === 401) throw problem;
    return { database: name, problem };
  })));
  const failed = answers.filter((a) => a.problem), found = answers.filter((a) => !a.problem);
  if (failed.length && failed.every((a) => a.problem.status === 400)) throw failed[0].problem;
  const messages = found.flatMap((a) => a.messages).sort((a, b) => new Date(a.created_at) - new Date(b.created_at));
  const gaps = [...failed.map((a) => `Database ${a.database} could not be asked: ${a.problem.message}`),
    ...found.flatMap((a) => a.unasked).map((u) => (u.consumer ? `Consumer ${u.consumer}` : `Database ${u.database}`) + ` could not be asked: ${u.error}`)];
  const notes = [gaps.length ? h("div", { class: "notice bad", role: "alert" }, [...new Set(gaps)].map((text) => h("p", null, shape("bad"), " ", text)), h("p", { class: "advice" }, "So this is not all.")) : null,
    found.some((a) => a.more) ? h("p", { class: "note" }, "There are more messages than are shown: give a term that names fewer.") : null];
  fill(results, notes, messages.length ? messages.map(way) : empty("No message.", found.map((a) => a.nothing).filter(Boolean).join(" ") || null));
  announce(messages.length === 1 ? "1 message" : `${count(messages.length)} messages`);
}

// way is one message.
function way(m) {
  const fact = (name, value) => (value ? h("div", null, h("dt", null, name), h("dd", null, value)) : null);
  const also = (value, by) => value && h("a", { class: "mono", href: "#/trace" + query({ term: value, by }) }, value);
  return h("article", { class: "panel way", "aria-label": `${m.type} ${m.message_id}` },
    h("header", null, h("h2", null, m.type), messageLink(m.database, m.message_id, m.message_id), m.by.length ? null : h("small", null, "of the same process")),
    h("dl", { class: "facts" }, fact("Written", h("time", { datetime: m.created_at, title: full(m.created_at) }, when(m.created_at))), fact("Database", m.database), fact("Ordering key", also(m.key, "key")),
      fact("Correlation", also(m.correlation_id, "correlation")), fact("Caused by", also(m.causation_id, "message"))),
    h("ol", { class: "timeline" }, m.rows.map(row), (m.not_kept ?? []).map(notKept)));
}

// notKept is a broker that has no row, or none any more.
function notKept(broker) {
  return h("li", { class: "wait" }, h("div", null, h("strong", null, broker, " "), pill("wait", "no row"),
    h("p", null, "It was delivered, after which its row is not kept, or it was not written for this broker.")));
}

function row(r) {
  return h("li", { class: levels[r.step] ?? states[r.step]?.[0] ?? "wait" }, h("div", null,
    h("strong", null, r.row.broker, " "), step(r.step), " ",
    h("p", null, sentence(r.says), r.row.broker_message_id ? [" The broker's id is ", mono(r.row.broker_message_id), "."] : null),
    r.row.last_error ? h("p", { class: "mono wrap" }, r.row.last_error.message) : null,
    r.remedy ? h("p", { class: "advice" }, sentence(r.remedy)) : null,
    r.consumers?.length ? h("ul", { class: "at-consumers" }, r.consumers.map(consumer)) : null));
}

function consumer(c) {
  return h("li", null, h("strong", null, c.consumer, " "), step(c.step), h("p", null, sentence(c.says)),
    c.last_error ? h("p", { class: "mono wrap" }, c.last_error) : null, c.remedy ? h("p", { class: "advice" }, sentence(c.remedy)) : null);
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1) + ".";
