// Runs before the page is drawn, so that a chosen theme does not flash in the other one.
// Storage may be forbidden; then the system's theme is used.
try {
  const chosen = localStorage.getItem("fanout.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* no storage */ }
