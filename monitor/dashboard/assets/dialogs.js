// Dialogs: what is about to be done, how many rows that is, and how far it has come.

import { h, fill, announce } from "./dom.js";
import { act, dryRun, post, path } from "./api.js";
import { trouble, field } from "./parts.js";
import { count, rows } from "./words.js";

// open shows a dialog and resolves when it is closed. The browser keeps the focus inside, and gives it back.
export function open(title, build) {
  return new Promise((resolve) => {
    const back = document.activeElement;
    const body = h("div", { class: "body" });
    const id = "dialog-title";
    const dialog = h("dialog", { "aria-labelledby": id },
      h("form", { method: "dialog", onsubmit: (e) => e.preventDefault() }, h("h2", { id }, title), body));
    dialog.addEventListener("close", () => {
      const result = dialog.result;
      dialog.remove();
      if (back?.isConnected) back.focus();
      resolve(result);
    });
    const close = (result) => { dialog.result = result; dialog.close(); };
    build({ dialog, body, close, form: dialog.firstChild });
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
  });
}

function buttons(...children) {
  return h("div", { class: "buttons" }, children);
}

const verbs = {
  requeue: { title: "Requeue", done: "requeued", what: "They become due at once, with a fresh budget of attempts, and take their old place in the order of their keys." },
  replay: { title: "Replay", done: "made pending again", what: "They are delivered once more under the same message id. Consumers that deduplicate will drop them." },
  abandon: { title: "Abandon", done: "abandoned", what: "They will not be delivered. Their keys go on with the next message. A requeue brings them back." , danger: true },
  acknowledge: { title: "Acknowledge", done: "acknowledged", what: "They stay abandoned and raise no alert any more. The next one that is abandoned does. Keys that wait for them keep waiting." },
  discard: { title: "Discard", done: "discarded", what: "They are removed for good and cannot be requeued. Keys that wait for them go on with the next message.", danger: true },
  unblock: { title: "Unblock", done: "unblocked", what: "A key goes on with the next message, without the one it waits for, and one that is named in the other priority class, too, if it is blocked there. What was abandoned stays abandoned." },
};

// actionDialog asks before an action, with the number of rows that it would change, and shows the progress. It resolves to the result, or to
// undefined where nothing was done.
export function actionDialog(database, action, subject) {
  const verb = verbs[action.action];
  return open(`${verb.title} ${subject}`, ({ dialog, body, close, form }) => {
    const stop = new AbortController();
    let busy = false;
    dialog.addEventListener("cancel", (e) => { if (busy) e.preventDefault(); });
    dialog.addEventListener("close", () => stop.abort());
    const reason = h("input", { name: "reason", autocomplete: "off", maxlength: 500, autofocus: true, required: verb.danger });
    const say = h("p", { class: "matched", role: "status" }, "Counting…");
    const go = h("button", { type: "submit", class: verb.danger ? "danger" : "primary", disabled: true }, verb.title);
    const cancel = h("button", { type: "button", onclick: () => close() }, "Cancel");
    const spot = h("div");
    fill(body, say, h("p", { class: "advice" }, verb.what), h("dl", { class: "filter" }, describe(database, action)),
      field(verb.danger ? "Reason (is stored with the rows and in the audit log)" : "Reason, for the audit log (may be empty)", reason), spot, buttons(cancel, go));

    const oneKey = action.action === "unblock" && action.key;
    const counted = oneKey ? Promise.resolve(null) : dryRun(database, action);
    counted.then((dry) => {
      if (!dry) return void (fill(say, "The rows behind this key go on."), go.disabled = false);
      const n = rows(dry.matched, dry.more);
      fill(say, h("strong", null, n), dry.matched === 1 ? " matches." : " match.");
      fill(go, dry.matched ? `${verb.title} ${n}` : verb.title);
      go.disabled = dry.matched === 0;
    }, (e) => fill(spot, trouble(e)));

    form.addEventListener("submit", async () => {
      if (busy || go.disabled) return;
      busy = true;
      go.disabled = cancel.disabled = reason.disabled = true;
      const bar = h("progress", { "aria-label": "Progress" });
      const how = h("p", { class: "matched", role: "status" }, "Working…");
      fill(spot, bar, how);
      try {
        const result = await act(database, { ...action, reason: reason.value.trim() }, (p) => {
          if (p.matched && !p.more) { bar.max = p.matched; bar.value = p.done; }
          fill(how, `${count(p.done)} of ${count(p.matched, p.more)} done`);
        }, stop.signal);
        const text = oneKey ? "The key goes on." : action.action === "unblock" ? `${count(result.changed ?? 0)} ${result.changed === 1 ? "key goes" : "keys go"} on.` : `${rows(result.changed ?? 0)} ${verb.done}.`;
        announce(text);
        const left = (result.matched ?? 0) - (result.changed ?? 0);
        fill(body, h("p", { class: "matched" }, h("strong", null, text)),
          left > 0 && !oneKey ? h("p", { class: "advice" }, `${rows(left)} are claimed or had changed meanwhile, and were left unchanged.`) : null,
          result.refused > 0 ? h("p", { class: "advice" }, `${rows(result.refused)} malformed, and left out, as a relay would abandon them again: correct them in the table, then requeue them with the error class malformed.`) : null,
          result.audit_id ? h("p", { class: "advice" }, "Recorded as entry ", h("a", { href: "#/audit", onclick: () => close(result) }, String(result.audit_id)), " of the audit log.") : null,
          buttons(h("button", { type: "button", class: "primary", onclick: () => close(result) }, "Done")));
        body.querySelector("button").focus();
      } catch (e) {
        if (e.name === "AbortError") return;
        fill(spot, trouble(e));
        cancel.disabled = false;
        fill(cancel, "Close");
        cancel.focus();
      }
      busy = false;
    });
  });
}

// describe says in words which rows are meant.
function describe(database, action) {
  const said = [["Database", database], ["Broker", action.broker || "all"], ["Status", action.status?.join(", ")], ["Type", action.type], ["Ordering key", action.key], ["Keys that begin with", action.key_prefix], ["Aggregate", action.aggregate], ["Correlation id", action.correlation], ["Tenant", action.tenant],
    ["Error class", action.error_class], ["Failure group", action.fingerprint], ["Message", action.message_ids?.join(", ")], ["Written from", action.since], ["Written before", action.until]];
  return said.filter(([, value]) => value).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)));
}

// pauseDialog asks for the reason and pauses a broker.
export function pauseDialog(database, broker) {
  return open(`Pause ${broker}`, ({ body, close, form }) => {
    const reason = h("input", { name: "reason", autocomplete: "off", maxlength: 500, required: true, autofocus: true });
    const go = h("button", { type: "submit", class: "primary" }, "Pause");
    const spot = h("div");
    fill(body, h("p", { class: "advice" }, "Nothing more is sent to it by any process until an operator resumes it. Rows go on being written and wait; a time to live goes on."),
      field("Reason, for whoever sees it paused", reason), spot, buttons(h("button", { type: "button", onclick: () => close() }, "Cancel"), go));
    form.addEventListener("submit", async () => {
      if (go.disabled) return;
      go.disabled = true;
      try {
        const { changed } = await (await post(path.database(database, `brokers/${encodeURIComponent(broker)}/pause`), { reason: reason.value.trim() })).json();
        announce(changed ? `${broker} is paused` : `${broker} was paused already`);
        close(true);
      } catch (e) {
        go.disabled = false;
        fill(spot, trouble(e));
      }
    });
  });
}

// resumeDialog asks once, because whoever paused it had a reason, and resumes.
export function resumeDialog(database, broker, pause) {
  return open(`Resume ${broker}`, ({ body, close, form }) => {
    const go = h("button", { type: "submit", class: "primary", autofocus: true }, "Resume");
    const spot = h("div");
    const who = pause ? `It was paused${pause.by ? ` by ${pause.by}` : ""}${pause.reason ? `: ${pause.reason}` : "."}` : "";
    fill(body, h("p", null, who), h("p", { class: "advice" }, "Its rows are sent in their order from now on."), spot,
      buttons(h("button", { type: "button", onclick: () => close() }, "Cancel"), go));
    form.addEventListener("submit", async () => {
      if (go.disabled) return;
      go.disabled = true;
      try {
        await post(path.database(database, `brokers/${encodeURIComponent(broker)}/resume`));
        announce(`${broker} is resumed`);
        close(true);
      } catch (e) {
        go.disabled = false;
        fill(spot, trouble(e));
      }
    });
  });
}
