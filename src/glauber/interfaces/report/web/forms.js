// What are the parts of a form? Each is labelled, and reads as what it holds.

import { make } from "./tokens.js";

export function button(name, onclick, attributes = {}) {
  return make("button", { type: "button", class: "plain", onclick, ...attributes }, name);
}

/** A label above its control, whose name it is and nothing more (a select's words are inside too). */
export function labelled(name, control, kind = "") {
  control.setAttribute("aria-label", name);
  return make("label", { class: `field ${kind}`.trim() }, name, control);
}

/** A select of words, or of [value, word] pairs; a value that is not among them is added. */
export function choice(words, value, onchange = () => {}) {
  const pairs = words.map((word) => (Array.isArray(word) ? word : [word, word]));
  if (value !== undefined && !pairs.some(([one]) => one === value)) pairs.push([value, value]);
  const select = make("select", { onchange }, ...pairs.map(([one, word]) => make("option", { value: one }, word)));
  select.value = value ?? pairs[0]?.[0] ?? "";
  return select;
}

export function numberBox(value, { min = 0, max = 2 ** 31 - 1, step = 1 } = {}) {
  const box = make("input", { type: "number", min, max, step, required: true, inputmode: "numeric" });
  box.value = String(value);
  return box;
}

export function textBox(value, { rows = 3, placeholder = "" } = {}) {
  const box = make("textarea", { rows, placeholder, spellcheck: "false" });
  box.value = value;
  return box;
}

/** A number box's value; an Error of one sentence where it holds none. */
export function numberOf(box, name) {
  if (box.value === "" || !box.checkValidity()) throw new Error(`${name}: ${box.validationMessage || "a number is missing."}`);
  return Number(box.value);
}

const COLDEST = 0.05; // a chain needs more than 0
const DRAG = 120; // milliseconds between two movements of a slider that are told

/**
 * The temperature as a slider with its value beside it. `onmove(value)` is told some times a second
 * while it is dragged, and where it ends; `moving` says that something is still to be told.
 */
export function temperatureSlider(value, onmove = () => {}, least = COLDEST) {
  const shown = make("span", { class: "value" }, decimals(value));
  const input = make("input", { type: "range", min: least, max: Math.max(2, value), step: 0.01, "aria-label": "Temperature" });
  let waiting = 0;
  input.value = String(value);
  input.addEventListener("input", () => {
    shown.textContent = decimals(Number(input.value));
    waiting ||= setTimeout(() => {
      waiting = 0;
      onmove(Number(input.value));
    }, DRAG);
  });
  const field = make("label", { class: "field" }, "Temperature", make("span", { class: "sliding" }, input, shown));
  function set(next) {
    if (next > Number(input.max)) input.max = String(next);
    if (Number(input.value) !== next) input.value = String(next);
    shown.textContent = decimals(next);
  }
  return {
    field,
    set,
    get value() {
      return Number(input.value);
    },
    get moving() {
      return waiting !== 0;
    },
    close: () => clearTimeout(waiting),
  };
}

/** A form behind a line that opens and closes it; Enter in a box and the button Start start it. */
export function startForm(title, onstart, ...parts) {
  const form = make("form", { class: "stack" }, ...parts, make("div", {}, make("button", { class: "main", type: "submit" }, "Start")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onstart();
  });
  return make("details", { class: "card setup", open: true }, make("summary", {}, title), form);
}

/** A few figures of a number, without needless zeros. */
export function decimals(value, figures = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(figures)));
}
