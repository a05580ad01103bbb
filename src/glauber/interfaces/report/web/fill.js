// How are blanks filled, pass by pass, and how is a translation refined?
//
// Every pass is a frame of a film. The small number at a token is the pass that filled it; its
// colour is how sure the model was then. Correction sweeps after the last pass draw again.

import { choice, decimals, labelled, numberBox, numberOf, startForm, temperatureSlider, textBox } from "./forms.js";
import { playerControls, playerKey } from "./controls.js";
import { decodeColumn } from "./film.js";
import { Player } from "./player.js";
import { timeline } from "./timeline.js";
import { make, percent, sureLegend, tokenText, visible } from "./tokens.js";

const BLANKS = "The [MASK] walked slowly along the ___ and [MASK] at the [MASK] house.";
const ENGLISH = "A small dog runs across the meadow.";
const ORDERS = ["confidence", "margin", "entropy", "random", "left-to-right", "drawn"];
const COUNTS = ["1", "2", "4", "linear", "cosine", "threshold:0.9", "entropy-bound:0.1"];
const HINTS = {
  fill: "Write [MASK] or ___ for a blank of one token, [MASK:3] for three.",
  translate: "The source text. All of its translation is hidden first.",
};
const FASTEST = 30; // passes a second

export function fillView(page) {
  return new Fill(page);
}

class Fill {
  #page;
  #state = null;
  #player = null;
  #asked = 0;

  constructor(page) {
    this.#page = page;
    page.say((page.state.notes ?? []).join(" "));
    const { about, link, state } = page;
    this.form = fillForm(page, () => this.#start());
    this.place = make("div", { class: "stage" });
    this.element = make("div", { class: "stack" }, link.live ? this.form.element : null, this.place);
    if (state.text !== undefined) this.#open({ mode: "fill", model: about.models[0], step: 0, ...state });
  }

  key(event) {
    return this.#player !== null && playerKey(this.#player, event);
  }

  close() {
    this.#asked += 1;
    this.#player?.close();
  }

  #start() {
    try {
      this.#page.trouble(null);
      this.#open({ view: "fill", ...this.form.read(), step: 0 }, true);
    } catch (error) {
      this.#page.trouble(error.message);
    }
  }

  /** Asks for all passes at once and shows them; `play` from the first on. */
  async #open({ notes, ...state }, play = false) {
    const { link, say, keep, trouble } = this.#page;
    const ticket = ++this.#asked;
    this.#state = state;
    keep(state);
    say(state.mode === "translate" ? "Translating." : "Filling in.");
    try {
      const answer = await link.ask(...question(state));
      if (ticket !== this.#asked) return;
      this.#show(answer);
      await this.#player.seek(state.step);
      say([...(notes ?? []), ...(answer.notes ?? [])].join(" "));
      if (play) this.#player.play();
    } catch (error) {
      if (ticket !== this.#asked) return;
      say("");
      trouble(error.message);
      this.#clear();
    }
  }

  /** What was filled before does not stand under the refusal of another text. */
  #clear() {
    this.#player?.close();
    this.#player = null;
    this.place.replaceChildren();
    this.form.element.open = true;
  }

  #show(answer) {
    this.#player?.close();
    const { film } = answer;
    const player = new Player({ film: async () => film, end: () => film.count, chunk: film.count + 1, unit: "pass" }, { speed: 2 });
    this.#player = player;
    const passes = this.#state.mode === "translate" ? film.count : answer.passes;
    const placed = placings(film, maskTokens(film, answer.hidden));
    const text = passText(answer, placed, passes);
    const list = passList(film, placed, passes, (frame) => player.step(frame - player.at));
    const where = ({ at }) => (at <= passes ? `pass ${at} of ${passes}` : `correction sweep ${at - passes} of ${film.count - passes}`);
    player.watch({ change: () => player.speed > FASTEST && (player.speed = FASTEST) });
    const line = timeline(player, { label: "Pass" });
    if (film.count > passes) line.setBands("corrected", correction(passes, film.count));
    this.place.replaceChildren(
      make("div", { class: "card large" }, text.element, ...(this.#state.mode === "translate" ? [source(answer)] : [])),
      make("div", { class: "spread" }, playerControls(player, { where })),
      line.element,
      sureLegend(["hidden"]),
      list.element,
      make("p", { class: "note" }, numbered(this.#state.mode, film.count > passes)),
      result(answer),
    );
    this.form.element.open = false;
    player.watch({ moment: (moment) => this.#moved(moment, text, list) });
  }

  #moved({ step, chains }, text, list) {
    text.show(chains[0], step);
    list.mark(step);
    this.place.dataset.step = step;
    this.#state.step = step;
    this.#page.keep(this.#state);
  }
}

/** What is asked for a state: the name of the question and its arguments. */
function question({ mode, model, text, order, count, temperature, seed, correct, passes }) {
  if (mode === "translate") return ["translate", { text, steps: passes }];
  return ["fill", { model, text: masked(text), order, count, temperature, seed, correct }];
}

/** Underlines are blanks too. */
export function masked(text) {
  return text.replace(/_{2,}/g, "[MASK]");
}

/** The text of a pass: blanks where nothing stands yet, and at each token the pass that put it there. */
function passText({ film, hidden }, placed, passes) {
  const text = tokenText({ label: "Text" });
  text.element.classList.add("numbered");
  const masks = maskTokens(film, hidden);
  function show(chain, step) {
    const blank = new Set();
    chain.tokens.forEach((token, site) => masks.has(token) && blank.add(site));
    text.show({ ...chain, number: 0, frozen: new Set(), hidden: blank });
    for (const site of new Set(placed.map((one) => one.site))) {
      const last = placed.findLast((one) => one.site === site && one.frame <= step);
      const span = text.spanAt(site);
      if (!last || blank.has(site)) delete span.dataset.pass;
      else span.dataset.pass = passName(last.frame, passes);
    }
  }
  return { element: text.element, show };
}

/** The tokens that stand for a blank: those at the hidden sites before the first pass. */
function maskTokens(film, hidden) {
  return new Set(hidden ? hidden.map((site) => film.begin[0][site]) : film.begin[0]);
}

/** In the order of the passes: what came to stand where, and how sure the model was of it. */
function placings(film, masks) {
  const [frame, site, token, logProb] = ["frame", "site", "token", "log_prob"].map((name) => decodeColumn(film[name]));
  const now = [...film.begin[0]];
  const placed = [];
  for (let e = 0; e < frame.length; e++) {
    const fresh = token[e] !== now[site[e]] && !masks.has(token[e]);
    if (fresh) placed.push({ frame: frame[e], site: site[e], word: film.words[token[e]] ?? "", probability: Math.exp(logProb[e]) });
    now[site[e]] = token[e];
  }
  return placed;
}

const passName = (frame, passes) => (frame <= passes ? String(frame) : `c${frame - passes}`);

/** One line for each pass: its number, which leads there, and what it put with its probability. */
function passList(film, placed, passes, onpass) {
  const rows = Array.from({ length: film.count }, (_, i) => {
    const put = placed.filter((one) => one.frame === i + 1);
    const words = put.map(({ word, probability }) => make("span", {}, make("b", {}, visible(word)), ` ${percent(probability)}`));
    const name = i < passes ? `pass ${i + 1}` : `correction sweep ${i + 1 - passes}`;
    const press = make("button", { type: "button", class: "link", onclick: () => onpass(i + 1) }, name);
    return make("li", {}, press, ...(words.length ? words : [make("span", { class: "note" }, "nothing changed")]));
  });
  const element = make("ol", { class: "passes", "aria-label": "Passes" }, ...rows);
  function mark(step) {
    rows.forEach((row) => row.removeAttribute("aria-current"));
    rows[step - 1]?.setAttribute("aria-current", "step");
  }
  return { element, mark };
}

function correction(passes, last) {
  const text = `Correction sweeps after pass ${passes}.`;
  return { state: "done", bands: [{ chain: 0, first: passes, last, name: "correction", text }] };
}

function numbered(mode, corrected) {
  const said = `The small number is the pass that ${mode === "translate" ? "last changed a token" : "filled a blank"}.`;
  return corrected ? `${said} c1 is a token that the first correction sweep changed.` : said;
}

function source({ source_text: text }) {
  return make("p", { class: "note" }, `From: ${text}`);
}

/** The last text in one line to copy, its log-probability and how it was made. */
function result(answer) {
  const lines = [make("p", {}, answer.text)];
  const known = Number.isFinite(answer.log_prob);
  const anew = Number.isFinite(answer.fill_log_prob);
  const scored = `Log-probability of the filled tokens from left to right, given the rest: ${decimals(answer.fill_log_prob, 4)} nats (exact for this order up to rounding).`;
  const sure = `Log-probability of this way of filling it: ${decimals(answer.log_prob, 4)} nats (exact up to rounding).`;
  if (known) lines.push(make("p", { class: "note" }, sure));
  else if (anew) lines.push(make("p", { class: "note" }, scored));
  if (answer.signature) lines.push(make("p", { class: "note signature" }, answer.signature));
  return make("details", { class: "setup" }, make("summary", {}, "Result"), make("div", { class: "stack tight" }, ...lines));
}

function fillForm(page, onstart) {
  const { about, state } = page;
  const modes = [["fill", "blanks"], ["translate", "a translation, English to Spanish"]];
  const mode = choice(about.translator ? modes : modes.slice(0, 1), state.mode ?? "fill", () => show());
  const blanks = about.models[0].startsWith("bundled:") ? BLANKS : ""; // another model may not read ours
  const text = textBox(state.text ?? blanks);
  const model = choice(about.models, state.model);
  const order = choice(ORDERS, state.order ?? "confidence");
  const count = choice(COUNTS, state.count ?? "1");
  const temperature = temperatureSlider(state.temperature ?? 1, () => {}, 0); // 0 takes the likeliest token
  const seed = numberBox(state.seed ?? 0);
  const correct = numberBox(state.correct ?? 0, { max: 100 });
  const passes = numberBox(state.passes ?? 4, { min: 1, max: 100 });
  const hint = make("p", { class: "note" });
  const what = [labelled("Model", model), labelled("Order", order), labelled("Tokens a pass", count)];
  const how = [temperature.field, labelled("Seed", seed), labelled("Correction sweeps", correct)];
  const filling = make("div", { class: "fields" }, ...what, ...how);
  const translating = make("div", { class: "fields" }, labelled("Passes", passes));
  const modeField = make("div", { class: "fields", hidden: !about.translator }, labelled("Mode", mode));
  const element = startForm("A new text", onstart, modeField, labelled("Text", text, "wide"), hint, filling, translating);

  function show() {
    const translate = mode.value === "translate";
    filling.hidden = translate;
    translating.hidden = !translate;
    hint.textContent = translate ? HINTS.translate : HINTS.fill;
    if ([BLANKS, ENGLISH, ""].includes(text.value)) text.value = translate ? ENGLISH : blanks;
  }
  function read() {
    if (mode.value === "translate") return { mode: "translate", text: text.value, passes: numberOf(passes, "Passes") };
    const numbers = { temperature: temperature.value, seed: numberOf(seed, "Seed"), correct: numberOf(correct, "Correction sweeps") };
    return { mode: "fill", model: model.value, text: text.value, order: order.value, count: count.value, ...numbers };
  }
  show();
  return { element, read };
}
