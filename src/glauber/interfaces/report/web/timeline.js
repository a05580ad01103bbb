// Where in the run is one, and what was found there? A slider over the steps, and under it the
// traps, basins and topics of one chain as coloured stretches that lead to their texts.

import { make } from "./tokens.js";
import { stepSlider, thousands } from "./controls.js";

const COLOURS = 6;

/** "trap, chain 3, steps 120 to 400"; a basin and a topic have names of their own. */
export function bandName(kind, band) {
  const what = { traps: "trap", topics: `topic ${band.name}` }[kind] ?? band.name;
  return `${what}, chain ${band.chain}, steps ${band.first} to ${band.last}`;
}

/** A colour for each name, in the order in which the names come. */
export function bandColours(bands) {
  const names = [...new Set(bands.map((band) => band.name))];
  return (band) => (band.color ? "band" : `band${names.indexOf(band.name) % COLOURS}`);
}

/** The colour that the charts give to a basin or a topic. */
export function paint(element, band) {
  if (band.color) element.style.setProperty("--band", band.color);
}

/**
 * The slider with its bands. `setBands(kind, answer)` takes what `bands` answered, `setChain`
 * says whose bands are shown, `onband(kind, band, note)` is called when one is chosen; the note says
 * how all of its kind were found.
 */
export function timeline(player, { onband = () => {}, label = "Step" } = {}) {
  const rows = new Map();
  const bands = make("div", { class: "bands" });
  const slider = make("div", { class: "row" }, make("span", { class: "kind", "aria-hidden": "true" }, label), stepSlider(player));
  const element = make("div", { class: "timeline bands" }, slider, bands);
  let chain = null;
  let end = 1;

  function setBands(kind, answer) {
    if (!rows.has(kind)) {
      const row = bandRow(kind, (band, note) => onband(kind, band, note));
      rows.set(kind, row);
      bands.append(row.element);
    }
    rows.get(kind).fill(answer, chain, end);
    rows.get(kind).point(player.at / end);
  }

  function setChain(number) {
    chain = number;
    rows.forEach((row) => row.fill(row.answer, chain, end));
  }

  function moved() {
    rows.forEach((row) => row.point(player.at / end));
  }

  function change() {
    const now = Math.max(1, player.end);
    if (now === end) return;
    end = now;
    rows.forEach((row) => row.fill(row.answer, chain, end));
    moved();
  }
  player.watch({ moment: moved, change });
  return { element, setBands, setChain };
}

const WAITING = { working: "looking for them …", none: "none", failed: "could not be found" };

function bandRow(kind, onchoose) {
  const now = make("span", { class: "now", "aria-hidden": "true" });
  const track = make("div", { class: "track", role: "group", "aria-label": kind });
  const element = make("div", { class: "row" }, make("span", { class: "kind" }, kind), make("div", { class: "inset" }, track));
  const row = { element, answer: null, fill, point };
  let drawn = "";

  function point(share) {
    now.style.transform = `translateX(${(100 * Math.min(1, share)).toFixed(3)}%)`;
  }

  function fill(answer, chain, end) {
    row.answer = answer;
    const mine = answer.bands.filter((band) => chain === null || band.chain === chain);
    const key = JSON.stringify([answer.state, answer.why, answer.bands.length, chain, end, mine]);
    if (key === drawn) return;
    drawn = key;
    const colour = bandColours(answer.bands);
    const buttons = mine.map((band) => bandButton(kind, band, colour(band), end, () => onchoose(band, answer.note)));
    track.replaceChildren(...buttons, ...(mine.length ? [] : [message(answer, chain)]), now);
    if (buttons.length) buttons[0].tabIndex = 0;
  }
  rove(track);
  return row;
}

function message(answer, chain) {
  if (answer.state !== "done" || !answer.bands.length) {
    const why = answer.why || (answer.state === "done" && answer.note) || "";
    return make("span", { class: "note", title: why }, why || WAITING[answer.state] || "none");
  }
  return make("span", { class: "note" }, `none in chain ${chain}`);
}

function bandButton(kind, band, colour, end, onchoose) {
  const name = bandName(kind, band);
  const button = make("button", { type: "button", class: colour, tabindex: -1, "aria-label": name });
  button.title = [band.name, `steps ${thousands(band.first)} to ${thousands(band.last)}`, band.text].filter(Boolean).join("\n");
  button.append(make("span", {}, band.name));
  paint(button, band);
  button.style.left = `${(100 * band.first) / end}%`;
  button.style.width = `${(100 * Math.max(band.last - band.first, 0)) / end}%`;
  button.addEventListener("click", () => {
    button.parentElement.querySelectorAll("button").forEach((one) => one.setAttribute("aria-pressed", one === button));
    onchoose();
  });
  return button;
}

/** One stop for the Tab key; arrows go from band to band. */
function rove(track) {
  track.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const buttons = [...track.querySelectorAll("button")];
    const next = buttons[buttons.indexOf(event.target) + (by ?? 0)];
    if (!by || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
