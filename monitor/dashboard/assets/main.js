// The frame around the pages: which page an address shows, who is signed in, the theme and the keyboard.

import { h, fill, announce } from "./dom.js";
import { me, whoAmI, Problem } from "./api.js";
import { trouble } from "./parts.js";
import { loginForm, signOut } from "./login.js";
import { theme, shortcuts } from "./chrome.js";
import overview from "./overview.js";
import messages from "./messages.js";
import message from "./message.js";
import trace from "./trace.js";
import failures from "./failures.js";
import blocked from "./blocked.js";
import workers from "./workers.js";
import audit from "./audit.js";

const pages = new Map(Object.entries({ overview, messages, trace, failures, blocked, workers, audit })); // an object would know "constructor", too
const titles = { overview: "Overview", messages: "Messages", message: "Message", trace: "Search", failures: "Failures", blocked: "Blocked keys", workers: "Workers", audit: "Audit" };

const main = document.getElementById("content");
let leave = null; // ends what the page that is shown has going on
let first = true;

// parse reads an address such as #/messages/default/1234?broker=x.
export function parse(hash) {
  const [place, search] = hash.replace(/^#\/?/, "").split("?");
  const parts = place.split("/").filter(Boolean).map(decodeURIComponent);
  const params = new URLSearchParams(search);
  if (!parts.length) return { page: "overview", params };
  if (parts[0] === "messages" && parts.length === 3) return { page: "message", database: parts[1], id: parts[2], params };
  return { page: pages.has(parts[0]) && parts.length === 1 ? parts[0] : null, params };
}

async function show() {
  leave?.abort();
  const here = new AbortController();
  leave = here;
  let where;
  try { where = parse(location.hash); } catch { where = { page: null, params: new URLSearchParams() }; }
  const title = titles[where.page] ?? "Not found";
  document.title = `${title} – Fanout`;
  for (const link of document.querySelectorAll("nav.pages a")) {
    const current = link.dataset.page === where.page || (where.page === "message" && link.dataset.page === "messages");
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const again = () => show();
  const fail = (problem) => {
    if (here.signal.aborted || problem.name === "AbortError") return;
    if (problem instanceof Problem && problem.status === 401) return askForToken();
    fill(main, trouble(problem, again));
  };
  const moved = !first;
  first = false;
  try {
    if (me.role === "none") return askForToken();
    const draw = where.page === "message" ? message : pages.get(where.page);
    if (!draw) {
      fill(main, h("h1", { tabindex: -1 }, "There is no such page"), h("p", null, h("a", { href: "#/" }, "To the overview")));
    } else {
      await draw({ root: main, where, signal: here.signal, fail, reload: again });
    }
  } catch (problem) {
    fail(problem);
  }
  if (here.signal.aborted || !moved) return;
  main.querySelector("h1")?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  announce(title);
}

function askForToken() {
  drawWho();
  loginForm(main, start);
}

function drawWho() {
  const who = document.getElementById("who");
  const signed = me.role !== "none" && me.name;
  fill(who, signed ? [h("span", { title: `Signed in as ${me.role}` }, me.name, " ", h("small", null, me.role)),
    h("button", { type: "button", class: "quiet", onclick: () => signOut(start) }, "Sign out")]
    : me.role === "viewer" && !me.actions ? h("small", { title: "No operator tokens are configured, or you are not signed in" }, "read-only") : null);
}

async function start() {
  try {
    await whoAmI();
  } catch (problem) {
    if (problem.status === 401) Object.assign(me, { name: "", role: "none", actions: false });
    else return void fill(main, trouble(problem, start));
  }
  drawWho();
  await show();
}

const search = document.getElementById("search");
search.addEventListener("submit", (e) => {
  e.preventDefault();
  const term = search.elements.term.value.trim();
  if (term) location.hash = "#/trace?" + new URLSearchParams({ term });
});

theme();
shortcuts(() => show());
window.addEventListener("hashchange", show);
document.querySelector("a.skip").addEventListener("click", (e) => {
  e.preventDefault(); // the hash is the page's address
  main.focus();
});
start();
