// What people type, made into what the API understands.

// uuidOf finds a UUID in what was pasted, with or without hyphens; empty where there is none.
export function uuidOf(text) {
  const plain = text.match(/[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}/i);
  if (!plain) return "";
  const hex = plain[0].replaceAll("-", "").toLowerCase();
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
