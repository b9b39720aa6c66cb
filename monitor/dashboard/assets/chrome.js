// The theme and the keyboard.

import { h, fill, announce } from "./dom.js";
import { open } from "./dialogs.js";

const store = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { if (value === null) localStorage.removeItem(key); else localStorage.setItem(key, value); } catch { /* forbidden: it lasts as long as the page */ } },
};

const looks = { system: ["◐", "as the system has it"], light: ["☀", "light"], dark: ["☾", "dark"] };
const nextLook = { system: "light", light: "dark", dark: "system" };

export function theme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const draw = () => {
    const now = root.dataset.theme ?? "system";
    button.textContent = looks[now][0];
    button.setAttribute("aria-label", `Theme: ${looks[now][1]}`);
    button.title = `Theme: ${looks[now][1]} (t)`;
    return now;
  };
  button.addEventListener("click", () => {
    const next = nextLook[draw()];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    store.set("fanout.theme", next === "system" ? null : next);
    draw();
    announce(`Theme: ${looks[next][1]}`);
  });
  draw();
}

const places = { o: ["#/", "Overview"], m: ["#/messages", "Messages"], f: ["#/failures", "Failures"], b: ["#/blocked", "Blocked keys"], w: ["#/workers", "Workers"], a: ["#/audit", "Audit"] };
const others = { "/": "Find messages by an id or an ordering key", r: "Load this page again", t: "Change the theme", "?": "Show this list", Escape: "Close a dialog" };

// shortcuts are single letters, so they can be switched off: speech control types letters, too.
export function shortcuts(reload) {
  let going = 0;
  const off = () => store.get("fanout.shortcuts") === "off";
  document.getElementById("help").addEventListener("click", () => help(off));
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || off()) return;
    if (e.target.closest?.("input, select, textarea, dialog")) return;
    const afterG = Date.now() - going < 1500;
    going = 0;
    if (afterG && places[e.key]) location.hash = places[e.key][0];
    else if (e.key === "g") going = Date.now();
    else if (e.key === "/") find(e);
    else if (e.key === "r") reload();
    else if (e.key === "t") document.getElementById("theme").click();
    else if (e.key === "?") help(off);
  });
}

// find goes to the field for searches.
function find(e) {
  e.preventDefault();
  document.querySelector("[data-find]").focus();
}

function help(off) {
  return open("Keyboard shortcuts", ({ body, close }) => {
    const key = (text) => h("kbd", null, text);
    const row = (keys, text) => h("div", null, h("dt", null, keys), h("dd", null, text));
    const box = h("input", { type: "checkbox", checked: !off(), onchange: () => store.set("fanout.shortcuts", box.checked ? null : "off") });
    fill(body,
      h("dl", { class: "keys" }, Object.entries(places).map(([k, [, text]]) => row([key("g"), " ", key(k)], text)), Object.entries(others).map(([k, text]) => row(key(k === "Escape" ? "Esc" : k), text))),
      h("label", { class: "check" }, box, "Shortcuts of single letters are on"),
      h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", autofocus: true, onclick: () => close() }, "Close")));
  });
}
