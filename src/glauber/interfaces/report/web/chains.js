// What do all chains say at one moment? Many small texts, and one large.

import { make, tokenText } from "./tokens.js";
import { bandColours, paint } from "./timeline.js";

export const MOST = 30; // small texts on one page

/** The chain shown large, under its name; with `onpick(site)` its tokens can be picked. */
export function largeChain({ onpick = null, title = (chain) => `Chain ${chain.number}` } = {}) {
  const text = tokenText({ onpick, label: "Text of the large chain" });
  const name = make("h2", {});
  const element = make("section", { class: "card large stack", "aria-label": "One chain" }, name, text.element);
  function show(chain) {
    const said = title(chain);
    if (name.textContent !== said) name.textContent = said;
    text.show(chain);
  }
  return { element, show, choose: text.choose, spanAt: text.spanAt };
}

/** Small texts; `show(chains, chosen)` takes the chains of a moment, `onchoose(number)` a click. */
export function smallChains({ onchoose, title = (chain) => `Chain ${chain.number}` }) {
  const element = make("div", { class: "many", role: "group", "aria-label": "All chains" });
  const cells = [];
  let strips = () => [];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const cell = cells.find((one) => one.button === entry.target);
      if (!cell) continue;
      cell.seen = entry.isIntersecting;
      if (cell.seen && cell.late) cell.text.show(cell.late);
      cell.late = null;
    }
  }, { rootMargin: "100px" });

  function addCell() {
    const name = make("span", { class: "name" });
    const text = tokenText({ tag: "span" });
    const strip = make("span", { class: "strips", "aria-hidden": "true" });
    const button = make("button", { type: "button", class: "one" }, name, text.element, strip);
    const cell = { button, name, text, strip, number: null, seen: true, late: null };
    seen.observe(button);
    button.addEventListener("click", () => onchoose(cell.number));
    element.append(button);
    cells.push(cell);
  }

  /** While it plays (`hurried`) texts out of sight wait until they come into sight. */
  function show(chains, chosen, hurried = false) {
    while (cells.length > chains.length) {
      const { button } = cells.pop();
      seen.unobserve(button);
      button.remove();
    }
    while (cells.length < chains.length) addCell();
    chains.forEach((chain, i) => showCell(cells[i], chain, chosen, hurried));
  }

  function showCell(cell, chain, chosen, hurried) {
    cell.late = hurried && !cell.seen ? chain : null;
    if (!cell.late) cell.text.show(chain);
    const pressed = String(chain.number === chosen);
    if (cell.button.getAttribute("aria-pressed") !== pressed) cell.button.setAttribute("aria-pressed", pressed);
    if (cell.number === chain.number) return;
    cell.number = chain.number;
    cell.name.textContent = title(chain);
    cell.button.setAttribute("aria-label", `${title(chain)}: show it large`);
    cell.strip.replaceChildren(...strips(chain.number));
  }

  /** Bands as thin strips under each text: `found` maps a kind to its bands. */
  function setBands(found, end) {
    const colours = new Map([...found].map(([kind, bands]) => [kind, bandColours(bands)]));
    strips = (number) =>
      [...found].map(([kind, bands]) => {
        const mine = bands.filter((band) => band.chain === number);
        return make("span", { class: "strip" }, ...mine.map((band) => stretch(band, colours.get(kind)(band), end)));
      });
    cells.forEach((cell) => cell.strip.replaceChildren(...strips(cell.number)));
  }
  return { element, show, setBands };
}

function stretch(band, colour, end) {
  const piece = make("i", { class: colour });
  paint(piece, band);
  piece.style.left = `${(100 * band.first) / Math.max(1, end)}%`;
  piece.style.width = `${(100 * (band.last - band.first)) / Math.max(1, end)}%`;
  return piece;
}

/** Pages through many chains: `onpage()` after a turn, `onchoose(number)` for one that is typed. */
export function chainPages(count, onpage, onchoose) {
  const pages = Math.ceil(count / MOST);
  const said = make("span", { class: "note" });
  const back = make("button", { type: "button", class: "plain", onclick: () => turn(-1) }, "Earlier chains");
  const on = make("button", { type: "button", class: "plain", onclick: () => turn(1) }, "Later chains");
  const box = make("input", { type: "number", min: 0, max: count - 1, "aria-label": "Chain shown large" });
  box.addEventListener("change", () => box.value !== "" && box.checkValidity() && onchoose(Number(box.value)));
  const typed = make("span", { class: "spread push note" }, "Show chain", box);
  const element = make("div", { class: "spread", hidden: pages < 2 }, back, on, said, typed);
  let page = -1;

  /** Turns to the page of a chain; whether it was another. */
  function show(number) {
    const wanted = Math.floor(number / MOST);
    if (wanted === page) return false;
    page = wanted;
    back.disabled = page === 0;
    on.disabled = page === pages - 1;
    const numbers = here();
    said.textContent = `chains ${numbers[0]} to ${numbers.at(-1)} of ${count}`;
    return true;
  }
  function turn(by) {
    if (show(Math.min(Math.max(0, page + by), pages - 1) * MOST)) onpage();
  }
  function here() {
    const first = Math.max(0, page) * MOST;
    return Array.from({ length: Math.min(MOST, count - first) }, (_, i) => first + i);
  }
  return { element, here, show };
}
