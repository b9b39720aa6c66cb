// Numbers, times and states in words.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

// count shows a number of rows; "+" where counting stopped there.
export function count(n, more) {
  return grouped.format(n ?? 0) + (more ? "+" : "");
}

export function rows(n, more) {
  return count(n, more) + (n === 1 && !more ? " row" : " rows");
}

export function rate(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0/s";
  return (n < 10 ? n.toFixed(1) : grouped.format(n)) + "/s";
}

export function percent(n) {
  if (!n) return "0 %";
  return n < 0.01 ? "< 1 %" : Math.round(n * 100) + " %";
}

// duration in the largest unit that fits, so that it is read at a glance.
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, seconds);
  if (s === 0) return "0 s";
  if (s < 1) return Math.max(1, Math.round(s * 1000)) + " ms";
  if (s < 10) return s.toFixed(1).replace(/\.0$/, "") + " s";
  if (s < 90) return Math.round(s) + " s";
  if (s < 90 * 60) return Math.round(s / 60) + " min";
  if (s < 36 * 3600) {
    const hours = Math.floor(s / 3600), minutes = Math.round((s % 3600) / 60);
    return hours < 6 && minutes && minutes < 60 ? `${hours} h ${minutes} min` : Math.round(s / 3600) + " h";
  }
  return Math.round(s / 86400) + " days";
}

const pad = (n) => String(n).padStart(2, "0");

// clock is the time of day, with the date where it is another day.
export function clock(value, seconds = true, now = new Date()) {
  const t = new Date(value);
  const day = t.toDateString() === now.toDateString() ? "" : `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} `;
  return day + `${pad(t.getHours())}:${pad(t.getMinutes())}` + (seconds ? `:${pad(t.getSeconds())}` : "");
}

export function full(value) {
  const t = new Date(value);
  const ms = String(t.getMilliseconds()).padStart(3, "0");
  return `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} ${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}.${ms}`;
}

// ago is a time seen from now, also one to come.
export function ago(value, now = Date.now()) {
  const s = (now - new Date(value).getTime()) / 1000;
  if (Math.abs(s) < 2) return "just now";
  return s > 0 ? `${duration(Math.round(s))} ago` : `in ${duration(Math.round(-s))}`;
}

export const statuses = ["pending", "processing", "failed", "published", "abandoned"];

export const statusMeans = {
  pending: "waits for its first attempt",
  processing: "claimed by a worker",
  failed: "an attempt failed; it is tried again",
  published: "the broker confirmed it",
  abandoned: "not sent; only an operator sends it again",
};

// waiting is what is not finished.
export function waiting(broker) {
  const capped = broker.capped ?? [];
  const open = ["pending", "processing", "failed"];
  return {
    n: open.reduce((sum, s) => sum + (broker.counts?.[s] ?? 0), 0),
    more: open.some((s) => capped.includes(s)),
  };
}

// How each state of an open row is shown: how bad it is, and what it means.
export const states = {
  due: ["wait", "the next claim may take it"],
  claimed: ["work", "a worker has claimed it"],
  backoff: ["warn", "it is tried again when its time comes"],
  scheduled: ["wait", "it is not to be sent before its time"],
  behind: ["wait", "another message of its ordering key goes first"],
  blocked: ["bad", "its ordering key waits for an operator, behind an abandoned message"],
  paused: ["paused", "its broker is paused"],
  unavailable: ["bad", "its broker or destination is unavailable"],
  unconfigured: ["warn", "no relay delivers to its broker: add it to the configuration"],
  stranded: ["bad", "nothing but a repair makes it due: requeue it"],
};

// waitsFor says in a sentence for what an open row waits: its state, and the message that goes first where that is known.
export function waitsFor(m, now = Date.now()) {
  const means = states[m.state]?.[1], d = m.deferral;
  if (!means) return "";
  const other = d && d.message_id !== m.message_id;
  if (m.state === "blocked" && other) return `Behind message ${d.message_id}, abandoned${d.since ? ` ${ago(d.since, now)}` : ""}: unblock the key, or requeue or discard that message.`;
  return means[0].toUpperCase() + means.slice(1) + "." + (m.state === "behind" && other ? ` That is message ${d.message_id}.` : "");
}

// Behind, from here on: a lag that a person would want to know of.
const behindSeconds = 60;

// verdict says in a sentence how a broker is, how bad that is (ok, warn, bad, paused), in a word, and what to do.
export function verdict(name, b, now = new Date()) {
  const wait = waiting(b), waits = rows(wait.n, wait.more);
  const behind = Math.max(b.lag_seconds ?? 0, 0);
  const failing = { n: b.counts?.failed ?? 0, more: (b.capped ?? []).includes("failed") };
  const abandoned = { n: b.unacknowledged ?? b.counts?.abandoned ?? 0, more: b.unacknowledged_more ?? (b.capped ?? []).includes("abandoned") };
  const since = b.breaker_since ?? b.last_published;
  const sinceWords = b.breaker_since ? ` since ${clock(since, false, now)}` : b.not_kept ? "" : since ? `, nothing delivered since ${clock(since, false, now)}` : ", nothing delivered yet";
  if (b.paused) {
    const p = b.paused;
    return {
      level: "paused", word: "Paused",
      text: `${name} is paused since ${clock(p.since, false, now)}${p.by ? ` by ${p.by}` : ""}${p.reason ? `: ${p.reason}` : ""}. ${waits} ${wait.n === 1 ? "waits" : "wait"}.`,
      advice: "Nothing is sent to it, and nothing is lost, until an operator resumes it.",
    };
  }
  if (b.unknown) {
    return {
      level: wait.n ? "warn" : "ok", word: "Not configured",
      text: `${name} is in no configuration here, and ${waits} ${wait.n === 1 ? "waits" : "wait"} for it.`,
      advice: "Add it to the configuration of a relay, or abandon its rows.",
    };
  }
  if (b.breaker === "open" || (b.breaker === "half-open" && wait.n > 0)) {
    const oldest = Math.max(behind, b.oldest_pending_seconds ?? 0);
    return {
      level: "bad", word: "Unavailable",
      text: (wait.n ? `${name} is ${duration(oldest)} behind: ` : `${name}: `) + `broker unavailable${sinceWords}.` + (wait.n ? ` ${waits} ${wait.n === 1 ? "waits" : "wait"}.` : ""),
      advice: "Look at the broker. Its rows keep their attempts and are sent by themselves when it answers again.",
    };
  }
  const places = b.unavailable_destinations ?? [];
  if (places.length) {
    return {
      level: "bad", word: "Partly unavailable",
      text: `${name} refuses ${places.slice(0, 3).join(", ")}${places.length > 3 ? ` and ${places.length - 3} more` : ""}. ${waits} ${wait.n === 1 ? "waits" : "wait"}.`,
      advice: "Does the topic or stream exist, and may we write to it? Other destinations go on.",
    };
  }
  if (behind >= behindSeconds && wait.n) {
    if (b.not_kept && b.published_per_second == null) { // delivered rows are gone, and no relay runs in this process that would know
      return { level: "warn", word: "Behind", text: `${name} is ${duration(behind)} behind: ${waits} wait. Whether it catches up is not known here, as delivered rows are not kept.`,
        advice: "Look whether the lag grows in the chart, and at Workers." };
    }
    const speed = b.published_per_second ?? 0;
    const left = speed > 0 && !wait.more ? `, about ${duration(wait.n / speed)} to go at ${rate(speed)}` : "";
    return speed > 0
      ? { level: "warn", word: "Behind", text: `${name} is ${duration(behind)} behind and catching up: ${waits} wait${left}.`, advice: "If the lag grows in the chart, add workers or relays." }
      : { level: "bad", word: "Stuck", text: `${name} is ${duration(behind)} behind and nothing is being delivered${b.last_published ? ` since ${clock(b.last_published, false, now)}` : ""}. ${waits} wait.`,
        advice: "Does a relay run? See Workers, then its log." };
  }
  if (b.blocked_keys) {
    const one = b.blocked_keys === 1 && !b.blocked_keys_more;
    return {
      level: "bad", word: "Blocked",
      text: `${name}: ${count(b.blocked_keys, b.blocked_keys_more)} ordering ${one ? "key waits" : "keys wait"} for an operator, with ${rows(b.held ?? 0, b.held_more)} behind.`,
      advice: "Blocked keys shows the abandoned messages they wait for: unblock the keys, or requeue or discard those messages.",
    };
  }
  if (failing.n || abandoned.n) {
    const parts = [];
    if (failing.n) parts.push(`${count(failing.n, failing.more)} failed and ${failing.n === 1 ? "is" : "are"} tried again`);
    if (abandoned.n) parts.push(`${count(abandoned.n, abandoned.more)} ${abandoned.n === 1 ? "was" : "were"} abandoned`);
    return { level: "warn", word: "Failures", text: `${name}: ${parts.join(", ")}.`, advice: "Failures shows them by cause; requeue them there once it is repaired, or acknowledge what you have seen." };
  }
  return { level: "ok", word: "Healthy", text: wait.n ? `${name} keeps up, ${duration(behind)} behind.` : `${name} keeps up.`, advice: "" };
}

const order = { bad: 0, paused: 1, warn: 2, ok: 3 };

// late is what there is to say of a consumer that does not record what is published for it.
function late(c) {
  if (c.error) return { level: "warn", word: "Unknown", text: `Whether the consumer ${c.name} is behind is not known: ${c.error}.`, advice: "See its database." };
  if (c.silent || c.behind_seconds < behindSeconds) return null;
  return { level: "bad", word: "Behind", text: `The consumer ${c.name} has not recorded the last ${rows(c.waiting, c.waiting_more)} of ${c.broker}, for ${duration(c.behind_seconds)}.`, advice: "Does it run? Its messages stay at the broker until it does." };
}

// headline is what to read first: the worst first, or one sentence that all is well.
export function headline(status, consumers = [], now = new Date()) {
  const lines = [];
  let brokers = 0;
  const databases = Object.entries(status);
  for (const [database, d] of databases) {
    if (d.status === "error") {
      lines.push({ level: "bad", word: "Database", text: `Database ${database} does not answer: ${d.error}`, advice: "Its rows wait. Other databases go on." });
      continue;
    }
    if (d.relays === 0) {
      const waits = Object.values(d.brokers ?? {}).some((b) => waiting(b).n > 0);
      lines.push({ level: waits ? "bad" : "warn", word: "No relay", text: `No relay runs on database ${database}${d.silent_relays ? `: ${count(d.silent_relays)} fell silent, killed or cut off` : ""}.`, advice: "Start one: fanout relay. Rows wait for it, and nothing is lost." });
    }
    for (const [name, b] of Object.entries(d.brokers ?? {})) {
      brokers++;
      const v = verdict(databases.length > 1 ? `${name} (${database})` : name, b, now);
      if (v.level !== "ok") lines.push({ ...v, database, broker: name });
    }
  }
  lines.push(...consumers.map(late).filter(Boolean));
  lines.sort((a, b) => order[a.level] - order[b.level]);
  if (lines.length) return lines;
  const all = brokers === 0 ? "No rows yet, and no broker." : brokers === 1 ? "The broker keeps up." : `All ${brokers} brokers keep up.`;
  return [{ level: "ok", word: "Healthy", text: all, advice: "" }];
}
