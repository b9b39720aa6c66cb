// Signing in by token. The server keeps it in a cookie that no script can read.

import { h, fill, announce } from "./dom.js";
import { login, logout } from "./api.js";
import { field, heading, trouble } from "./parts.js";

export function loginForm(root, done) {
  const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, spellcheck: "false" });
  const spot = h("div");
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const form = h("form", { class: "login", onsubmit: async (e) => {
    e.preventDefault();
    button.disabled = true;
    try {
      const who = await login(token.value.trim());
      announce(`Signed in as ${who.name}`);
      await done();
    } catch (problem) {
      if (problem.status === 401 || problem.status === 403) problem.advice = "Tokens are in the configuration, under monitor: viewer_tokens and operator_tokens.";
      fill(spot, trouble(problem));
      button.disabled = false;
      token.select();
    }
  } },
  field("Token", token, "Of an operator to act, of a viewer to look."), spot, button);
  fill(root, h("section", { class: "narrow" }, heading("Sign in"), form));
  token.focus();
}

export async function signOut(done) {
  try { await logout(); } catch { /* the next answer tells */ }
  await done();
}
