// The overview: what is wrong in a sentence, and a panel for each broker of each database, live.

import { h, fill, morph } from "./dom.js";
import { get, me } from "./api.js";
import { chart, pointed, smooth } from "./chart.js";
import { pauseDialog, resumeDialog } from "./dialogs.js";
import { heading, pill, shape, readOnlyNote, trouble, when } from "./parts.js";
import { count, clock, duration, headline, percent, rate, rows, verdict, waiting } from "./words.js";

const every = 2000;
const consumersEvery = 10; // turns

export default async function overview({ root, signal, fail }) {
  const view = h("div", { class: "overview" });
  let status = null, history = null, consumers = [], turns = 0, mark = null, problem = null, at = null;

  const draw = () => morph(view, page({ status, history, consumers, mark, problem, at }));
  const load = async () => {
    try {
      [status, history] = await Promise.all([get("api/outbox", signal), get("api/outbox/history", signal)]);
      if (turns++ % consumersEvery === 0) consumers = (await get("api/outbox/consumers", signal)).consumers;
      problem = null;
      at = new Date();
    } catch (e) {
      if (e.name === "AbortError") return;
      if (e.status === 401 || !status) throw e;
      problem = e; // what was known stays on the page
    }
    draw();
  };

  await load();
  if (signal.aborted) return;
  fill(root, view);
  live(load, signal, fail);

  view.addEventListener("click", async (e) => {
    const button = e.target.closest("button[data-do]");
    if (!button) return;
    const { database, broker } = button.dataset;
    const paused = status[database]?.brokers?.[broker]?.paused;
    const done = button.dataset.do === "pause" ? await pauseDialog(database, broker) : await resumeDialog(database, broker, paused);
    if (done && !signal.aborted) load().catch(fail);
  });
  // The pointer moves one mark through all charts, so that what happened at one time can be compared.
  view.addEventListener("pointermove", (e) => {
    const svg = e.target.closest("svg[data-chart]");
    const length = history?.series?.[0]?.pending?.length ?? 0;
    const now = svg ? pointed(e, svg, length) : null;
    if (now !== null) mark = length - 1 - now;
    else mark = null;
    draw();
  });
  view.addEventListener("pointerleave", () => { mark = null; draw(); });
}

// live calls load again and again while the page can be seen.
function live(load, signal, fail) {
  let timer = 0;
  const next = () => { timer = setTimeout(turn, every); };
  const turn = async () => {
    if (signal.aborted || document.hidden) return;
    try { await load(); } catch (e) { return void fail(e); }
    if (!signal.aborted) next();
  };
  const seen = () => { clearTimeout(timer); if (!document.hidden) turn(); };
  document.addEventListener("visibilitychange", seen, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  next();
}

function page({ status, history, consumers, mark, problem, at }) {
  const databases = Object.entries(status).sort(([a], [b]) => a.localeCompare(b));
  const lines = headline(status, consumers);
  return [
    h("div", { class: ["headline", lines[0].level] },
      heading(lines[0].text, h("p", { class: ["fresh", problem && "stale"] }, problem ? `Not up to date since ${clock(at)}` : `Live, ${clock(at)}`)),
      lines[0].advice ? h("p", { class: "advice" }, lines[0].advice) : null,
      lines.length > 1 ? h("ul", null, lines.slice(1).map((l) => h("li", { class: l.level }, shape(l.level), h("span", null, l.text, l.advice ? h("small", null, " ", l.advice) : null)))) : null),
    problem ? trouble(problem) : null,
    readOnlyNote(),
    databases.map(([name, d]) => h("section", { "data-key": "db " + name, "aria-label": `Database ${name}` },
      databases.length > 1 || d.status === "error" ? h("h2", { class: "database" }, "Database ", h("span", { class: "mono" }, name)) : null,
      d.status === "error" ? h("div", { class: "notice bad" }, h("p", null, shape("bad"), " It does not answer: ", d.error), h("p", { class: "advice" }, "Its rows wait in it. Is it up, and does the relay reach it?"))
        : h("div", { class: "panels" }, Object.entries(d.brokers ?? {}).map(([broker, b]) => panel(name, broker, b, series(history, name, broker), history?.step_seconds ?? 2, mark))))),
  ];
}

function series(history, database, broker) {
  return history?.series?.find((s) => s.database === database && s.broker === broker) ?? null;
}

function panel(database, name, b, s, step, back) {
  const v = verdict(name, b), wait = waiting(b), capped = b.capped ?? [];
  const to = (page, more = {}) => `#/${page}?` + new URLSearchParams({ database, broker: name, ...more });
  const n = (state) => count(b.counts?.[state], capped.includes(state));
  return h("article", { class: ["panel", v.level], "data-key": `broker ${name}`, "data-broker": name, "aria-label": `Broker ${name}` },
    h("header", null, h("h3", null, name), pill(v.level, v.word), h("span", { class: "grow" }), pauseButton(database, name, b)),
    b.paused ? h("p", { class: "banner" }, shape("paused"), h("span", null, "Paused ", when(b.paused.since), b.paused.by ? ` by ${b.paused.by}` : "", b.paused.reason ? [": ", h("q", null, b.paused.reason)] : null)) : null,
    h("dl", { class: "figures" },
      figure("Waiting", h("a", { href: to("messages", { status: "pending,processing,failed" }) }, count(wait.n, wait.more)), "Rows that are not finished"),
      figure("Oldest", duration(b.oldest_pending_seconds), "Age of the oldest row that is not finished"),
      figure("Lag", duration(b.lag_seconds), "How long the rows that are due have been waiting"),
      figure("Delivered", rate(b.published_per_second), "Rows confirmed by the broker per second")),
    charts(database, name, s, step, back),
    h("dl", { class: "states" },
      state("pending", n("pending")), state("processing", n("processing")),
      state("failed", h("a", { href: to("failures") }, n("failed")), b.counts?.failed > 0 && "warn"),
      state("abandoned", h("a", { href: to("failures") }, n("abandoned")), b.counts?.abandoned > 0 && "warn"),
      state("published", n("published")), state("retry rate", percent(b.retry_rate), b.retry_rate > 0.05 && "warn"),
      b.blocked_keys ? state("blocked keys", h("a", { href: to("blocked") }, count(b.blocked_keys, b.blocked_keys_more)), "bad") : null,
      b.held ? state("behind them", count(b.held, b.held_more), "bad") : null,
      b.scheduled ? state("scheduled", count(b.scheduled, b.scheduled_more)) : null,
      b.deferred ? state("deferred", h("a", { href: to("blocked") }, count(b.deferred, capped.includes("deferred")))) : null,
      b.breaker ? state("breaker", b.breaker, b.breaker !== "closed" && "bad") : null,
      b.listener ? state("listener", b.listener) : null),
    lastError(b));
}

function pauseButton(database, broker, b) {
  const what = b.paused ? "resume" : "pause";
  return h("button", {
    type: "button", "data-do": what, "data-database": database, "data-broker": broker, disabled: !me.actions, class: b.paused ? "primary" : null,
    title: me.actions ? null : "Actions need an operator token", "aria-label": `${b.paused ? "Resume" : "Pause"} ${broker}`,
  }, b.paused ? "Resume" : "Pause");
}

function figure(name, value, means) {
  return h("div", { title: means }, h("dt", null, name), h("dd", null, value));
}

function state(name, value, level) {
  return h("div", { class: level || null }, h("dt", null, name), h("dd", null, value));
}

function charts(database, name, s, step, back) {
  if (!s) return h("p", { class: "advice" }, "No samples of this broker yet.");
  const slots = Math.round(600 / step);
  const published = smooth(s.published_per_second);
  const mark = back === null ? null : published.length - 1 - back;
  const failing = (s.failed_per_second ?? []).some((v) => v > 0);
  return h("div", { class: "charts" },
    chart({ id: `${database} ${name} rate`, label: "Delivered per second", values: published, slots, stepSeconds: step, format: rate, mark }),
    chart({ id: `${database} ${name} lag`, label: "Lag", values: s.lag_seconds, slots, stepSeconds: step, format: duration, floor: 5, kind: "lag", mark }),
    failing ? chart({ id: `${database} ${name} failed`, label: "Failed attempts per second", values: smooth(s.failed_per_second), slots, stepSeconds: step, format: rate, kind: "failed", mark }) : null);
}

function lastError(b) {
  const e = b.last_error;
  if (!e) return h("p", { class: "last" }, "No error among the rows that are kept.", b.last_published ? [" Last delivery ", when(b.last_published), "."] : null);
  return h("details", { class: "last" },
    h("summary", null, "Last error ", when(e.at), e.class ? [", ", h("strong", null, e.class)] : null, ": ", h("span", { class: "clip" }, e.message)),
    h("p", { class: "mono wrap" }, e.message), e.attempt ? h("p", { class: "advice" }, `At attempt ${e.attempt}.`) : null,
    b.last_published ? h("p", { class: "advice" }, "Last delivery ", when(b.last_published), ".") : null);
}
