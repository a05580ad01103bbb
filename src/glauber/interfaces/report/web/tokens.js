// What stands in a text, and how sure was the model of each token? One element for each token,
// coloured by the probability it was drawn with; only what differs from before is touched.

export const LEVELS = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9]; // probabilities between two colours
const NAMES = ["changed", "frozen", "hidden", "differs", "chosen"];

/** An element with attributes and children; a string child is text, never markup. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The colour of a log-probability: 0 (unsure) to 6 (sure), or -1 where it is unknown. */
export function sureLevel(logProb) {
  if (Number.isNaN(logProb)) return -1;
  const probability = Math.exp(logProb);
  let level = 0;
  while (level < LEVELS.length && probability >= LEVELS[level]) level++;
  return level;
}

/** A probability in words: "37%", "under 1%". */
export function percent(probability) {
  if (Number.isNaN(probability)) return "unknown";
  if (probability > 0 && probability < 0.01) return "under 1%";
  return `${Math.round(100 * probability)}%`;
}

/** A word as it is shown: no blank before it, line breaks and bare blanks visible. */
export function visible(word) {
  const shown = word.replace(/^ /, "").replace(/\n/g, "↵").replace(/\t/g, "⇥");
  return shown.trim() === "" ? "␣" : shown;
}

/**
 * One text. `show(chain)` takes a chain of a moment: {number, tokens, words, logProb, changed,
 * frozen} and, if wanted, `hidden` (sites shown as blanks) and `differs` (sites marked so).
 * With `onpick(site)` every token is a button; arrow keys go from one to the next.
 */
export function tokenText({ onpick = null, label = "Text", tag = "p", chosen = null } = {}) {
  const element = make(tag, { class: "text", role: onpick ? "group" : null, "aria-label": onpick ? label : null });
  const cells = [];
  let focus = 0;
  let last = null;
  let picked = chosen;

  function show(chain) {
    last = chain;
    if (String(chain.number) !== element.dataset.chain) element.dataset.chain = chain.number;
    resize(chain.tokens.length);
    for (let site = 0; site < cells.length; site++) update(cells[site], chain, site);
  }

  function resize(length) {
    while (cells.length > length) {
      const cell = cells.pop();
      cell.gap.remove();
      cell.span.remove();
    }
    const fresh = document.createDocumentFragment();
    while (cells.length < length) fresh.append(...addCell(cells.length));
    if (fresh.childNodes.length) element.append(fresh);
    if (focus >= length) setFocus(Math.max(0, length - 1));
  }

  function addCell(site) {
    const gap = document.createTextNode("");
    const span = make("span", { class: "token", "data-site": site });
    if (onpick) {
      span.setAttribute("role", "button");
      span.tabIndex = site === focus ? 0 : -1;
    }
    cells.push({ gap, span, token: null, word: null, mark: null });
    return [gap, span];
  }

  function update(cell, chain, site) {
    const token = chain.tokens[site];
    const word = chain.words[token] ?? "";
    if (token !== cell.token || word !== cell.word) write(cell, token, word, site);
    const level = chain.hidden?.has(site) ? -1 : sureLevel(chain.logProb[site]);
    const mark =
      (level + 1) |
      (chain.changed.has(site) << 4) |
      (chain.frozen.has(site) << 5) |
      ((chain.hidden?.has(site) ?? false) << 6) |
      ((chain.differs?.has(site) ?? false) << 7) |
      ((site === picked) << 8);
    if (mark !== cell.mark) paint(cell, mark, level);
  }

  function write(cell, token, word, site) {
    const gap = site > 0 && /^\s/.test(word) ? " " : "";
    if (cell.gap.data !== gap) cell.gap.data = gap;
    cell.span.textContent = visible(word);
    cell.span.dataset.token = token;
    Object.assign(cell, { token, word });
  }

  function paint(cell, mark, level) {
    const names = NAMES.filter((_, bit) => mark & (1 << (bit + 4)));
    cell.span.className = ["token", level < 0 ? "unknown" : `sure${level}`, ...names].join(" ");
    if (onpick) cell.span.setAttribute("aria-pressed", mark & (1 << 8) ? "true" : "false");
    cell.mark = mark;
  }

  function setFocus(site) {
    if (cells[focus]) cells[focus].span.tabIndex = -1;
    focus = site;
    if (cells[focus]) cells[focus].span.tabIndex = 0;
  }

  /** Marks the picked site, or none. */
  function choose(site) {
    picked = site;
    if (site !== null && onpick) setFocus(site);
    if (last) show(last);
  }

  function siteOf(event) {
    const span = event.target.closest?.(".token");
    return span && element.contains(span) ? Number(span.dataset.site) : -1;
  }

  function onkey(event) {
    const site = siteOf(event);
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -cells.length, End: cells.length }[event.key];
    if (site < 0 || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.key === "Enter" || event.key === " ") onpick(site);
    else if (by) {
      setFocus(Math.min(Math.max(0, site + by), cells.length - 1));
      cells[focus].span.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  if (onpick) {
    element.addEventListener("click", (event) => {
      const site = siteOf(event);
      if (site < 0) return;
      setFocus(site);
      onpick(site);
    });
    element.addEventListener("keydown", onkey);
  }
  return { element, show, choose, spanAt: (site) => cells[site]?.span ?? null };
}

/** What the colours and marks mean, in words. `marks` are those that can occur beside "changed". */
export function sureLegend(marks = []) {
  const steps = [...LEVELS.keys(), LEVELS.length].map((level) => make("i", { class: `sure${level}` }));
  const extra = { frozen: "kept as it is", hidden: "not filled yet", differs: "not the same in both" };
  return make(
    "div",
    { class: "legend" },
    make("span", {}, "How sure the model was when it last drew a token:"),
    make("span", { class: "scale" }, "under 1% ", make("span", { class: "steps", "aria-hidden": "true" }, ...steps), " over 90%"),
    make("span", {}, make("span", { class: "token unknown" }, "no colour"), ": not drawn yet"),
    make("span", {}, make("span", { class: "token changed" }, "underlined"), ": changed last"),
    ...marks.map((name) => make("span", { "data-mark": name }, make("span", { class: `token ${name}` }, name), `: ${extra[name]}`)),
  );
}
