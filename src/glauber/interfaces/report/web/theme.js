// Which colours? Those of the system, until somebody chooses others; what was chosen is remembered.

const KEY = "glauber-theme"; // also the event that tells of a change

/** Keeps `root.dataset.theme` at dark or light. `set` chooses; `remembered` also reads what was chosen. */
export function themeOf(root, { remembered = true } = {}) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = remembered ? remember() : null;
  function write() {
    root.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    document.dispatchEvent(new Event(KEY));
  }
  system.addEventListener("change", write);
  write();
  return {
    get other() {
      return root.dataset.theme === "dark" ? "light" : "dark";
    },
    set(theme) {
      chosen = theme;
      remember(theme);
      write();
    },
  };
}

/** The word that this browser keeps, after keeping `theme` where it is given; it may refuse to. */
function remember(theme = null) {
  try {
    if (theme) localStorage.setItem(KEY, theme);
    const kept = localStorage.getItem(KEY);
    return ["dark", "light"].includes(kept) ? kept : null;
  } catch {
    return null;
  }
}
