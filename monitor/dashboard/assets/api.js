// The HTTP API. Addresses are relative to where the dashboard is mounted.

const base = new URL("../", import.meta.url);

// me is who we are to the server, as it said last.
export const me = { name: "", role: "none", actions: false, csrf: "", version: "" };

// A Problem is an answer that is no success, in words: what happened, and what to do.
export class Problem extends Error {
  constructor(status, title, detail, advice) {
    super([title, detail].filter(Boolean).join(": "));
    Object.assign(this, { status, title, detail, advice });
  }
}

const advice = {
  0: "Is the relay running, and is this computer connected? This page tries again by itself where it is live.",
  400: "Correct what is named and try again.",
  401: "Sign in with a token.",
  403: "Ask for an operator token, or have it done on the command line: fanout messages, fanout broker.",
  404: "It may have been purged, or be in another database.",
  409: "Another operator was faster. Look again.",
  429: "Wait a moment and try again.",
  500: "The log of the relay says more.",
  503: "The database may be down or slow. Look at the overview, then try again.",
  504: "The database may be down or slow. Look at the overview, then try again.",
};

async function problem(response) {
  let body = {};
  try { body = await response.json(); } catch { /* not ours, a proxy's perhaps */ }
  return new Problem(response.status, body.title || `The server answered ${response.status}`, body.detail, advice[response.status] ?? advice[500]);
}

async function request(path, init) {
  let response;
  try {
    response = await fetch(new URL(path, base), { credentials: "same-origin", cache: "no-store", redirect: "error", ...init });
  } catch (cause) {
    if (cause.name === "AbortError") throw cause;
    throw new Problem(0, "The relay does not answer", "", advice[0]);
  }
  if (!response.ok) throw await problem(response);
  return response;
}

// query makes the part of an address after "?", without what is empty.
export function query(values) {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value !== "" && value !== null && value !== undefined) params.set(key, value);
  const text = params.toString();
  return text && "?" + text;
}

export async function get(path, signal) {
  return (await request(path, { signal })).json();
}

export async function post(path, body = {}, accept = "application/json", signal) {
  return request(path, {
    method: "POST", signal, body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "Accept": accept, "X-Fanout-CSRF": me.csrf },
  });
}

export const path = {
  database: (database, rest) => `api/outbox/${encodeURIComponent(database)}/${rest}`,
};

// act does an action and tells of its progress line by line; it returns the last line's result.
export async function act(database, action, progress, signal) {
  const response = await post(path.database(database, "actions"), action, "application/x-ndjson", signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", result = null;
  const line = (text) => {
    if (!text.trim()) return;
    const said = JSON.parse(text);
    if (said.error || said.problem || (said.status && said.title)) {
      const p = said.problem ?? said;
      throw new Problem(p.status ?? 500, p.title ?? "It stopped half-way", p.detail ?? p.error, advice[500]);
    }
    if (said.result) result = said.result;
    else progress(said);
  };
  for (;;) {
    const { value, done } = await reader.read();
    rest += value ?? "";
    const lines = rest.split("\n");
    rest = lines.pop();
    lines.forEach(line);
    if (done) break;
  }
  line(rest);
  if (!result) throw new Problem(0, "The answer ended early", "some rows may have been changed", "See the audit log, and do it again: what is done already is left alone.");
  return result;
}

// dryRun counts what an action would change.
export async function dryRun(database, action) {
  return (await post(path.database(database, "actions"), { ...action, dry_run: true })).json();
}

export async function whoAmI() {
  Object.assign(me, await get("api/me"));
  return me;
}

export async function login(token) {
  await post("api/login", { token });
  return whoAmI();
}

export async function logout() {
  await post("api/logout");
  return whoAmI();
}
