// Making and updating elements. Text is only ever set as text, never parsed as HTML: what a producer writes into a row is shown, not run.

const svgNames = new Set(["svg", "path", "line", "rect", "circle", "polyline", "polygon", "g", "title"]);

// visible writes what a browser would obey, or not show, as an escape: a right-to-left mark in an error must not turn around what stands
// beside it. Lines and tabs stay, for payloads.
export function visible(text) {
  return String(text).replace(/[\p{C}\u2028\u2029]/gu, (c) => (c === "\n" || c === "\t" ? c : `\\u{${c.codePointAt(0).toString(16)}}`));
}

// shown are the attributes that people read.
const shown = new Set(["title", "aria-label"]);

// h makes an element. Attributes that are null or false are left out, true is an empty one; "on…" is a listener, "class" may be a list.
export function h(name, attributes, ...children) {
  const element = svgNames.has(name) && name !== "title"
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class" && Array.isArray(value)) element.setAttribute("class", value.filter(Boolean).join(" "));
    else element.setAttribute(key, value === true ? "" : shown.has(key) ? visible(value) : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false)
    .map((c) => (c instanceof Node ? c : document.createTextNode(visible(c))));
}

// fill replaces what is in an element.
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

// morph makes the children of an element like the given ones and keeps the elements that are there, so that a page that is drawn again
// every two seconds loses neither focus nor selection nor what was unfolded. Children with the same data-key belong together. Listeners
// are not carried over: what is morphed listens at a parent that stays.
export function morph(element, ...children) {
  const wanted = nodes(children);
  const keyed = new Map();
  for (const child of element.children) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let at = element.firstChild;
  for (const want of wanted) {
    const key = want.dataset?.key;
    let have = key ? keyed.get(key) : at;
    if (have && !key && have.dataset?.key) have = null;
    if (have && alike(have, want)) {
      if (have === at) at = at.nextSibling;
      else element.insertBefore(have, at);
      update(have, want);
    } else {
      element.insertBefore(want, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName;
}

function update(have, want) {
  if (have.nodeType === Node.TEXT_NODE) {
    if (have.data !== want.data) have.data = want.data;
    return;
  }
  for (const { name } of [...have.attributes]) {
    if (!want.hasAttribute(name) && !(name === "open" && have.nodeName === "DETAILS")) have.removeAttribute(name);
  }
  for (const { name, value } of want.attributes) {
    if (have.getAttribute(name) !== value) have.setAttribute(name, value);
  }
  morph(have, ...want.childNodes);
}

// announce tells screen readers what happened.
export function announce(text) {
  const live = document.getElementById("live");
  live.textContent = live.textContent === text ? text + "\u00a0" : text;
}
