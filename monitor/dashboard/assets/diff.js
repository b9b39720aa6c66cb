// What differs between two JSON values, line by line, for people.

const same = "same", left = "left", right = "right";

// diff returns lines {mark, depth, text}: mark is same, left (only there) or right. Objects are compared by name, lists by place.
export function diff(a, b) {
  const lines = [];
  compare(lines, 0, "", a, b, "");
  return lines;
}

const isObject = (v) => v !== null && typeof v === "object" && !Array.isArray(v);
const isList = Array.isArray;

function compare(lines, depth, name, a, b, comma) {
  const both = (isObject(a) && isObject(b)) || (isList(a) && isList(b));
  if (!both) {
    if (JSON.stringify(a) === JSON.stringify(b)) {
      print(lines, same, depth, name, a, comma);
    } else {
      print(lines, left, depth, name, a, comma);
      print(lines, right, depth, name, b, comma);
    }
    return;
  }
  const [open, close] = isList(a) ? "[]" : "{}";
  const names = isList(a)
    ? Array.from({ length: Math.max(a.length, b.length) }, (_, i) => i)
    : [...Object.keys(a), ...Object.keys(b).filter((k) => !(k in a))];
  const label = (k) => (isList(a) ? "" : JSON.stringify(k) + ": ");
  if (!names.length) return void lines.push({ mark: same, depth, text: name + open + close + comma });
  lines.push({ mark: same, depth, text: name + open });
  names.forEach((k, i) => {
    const end = i < names.length - 1 ? "," : "";
    const inA = isList(a) ? k < a.length : Object.hasOwn(a, k);
    const inB = isList(b) ? k < b.length : Object.hasOwn(b, k);
    if (inA && inB) compare(lines, depth + 1, label(k), a[k], b[k], end);
    else print(lines, inA ? left : right, depth + 1, label(k), inA ? a[k] : b[k], end);
  });
  lines.push({ mark: same, depth, text: close + comma });
}

// print writes a whole value in lines of one mark.
function print(lines, mark, depth, name, value, comma) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  text.split("\n").forEach((line, i, all) => {
    const indent = line.length - line.trimStart().length;
    lines.push({ mark, depth: depth + indent / 2, text: (i === 0 ? name : "") + line.trimStart() + (i === all.length - 1 ? comma : "") });
  });
}

// sides lays the lines out in two columns: lines that are there on one side only stand beside a gap, or beside each other where one value
// took the place of another.
export function sides(lines) {
  const result = [];
  let lefts = [], rights = [];
  const flush = () => {
    for (let i = 0; i < Math.max(lefts.length, rights.length); i++) result.push({ left: lefts[i] ?? null, right: rights[i] ?? null });
    lefts = [];
    rights = [];
  };
  for (const line of lines) {
    if (line.mark === left) {
      if (rights.length) flush();
      lefts.push(line);
    } else if (line.mark === right) {
      rights.push(line);
    } else {
      flush();
      result.push({ left: line, right: line });
    }
  }
  flush();
  return result;
}

export function summary(lines) {
  const lefts = lines.filter((l) => l.mark === left).length, rights = lines.filter((l) => l.mark === right).length;
  return { left: lefts, right: rights, same: lefts + rights === 0 };
}
