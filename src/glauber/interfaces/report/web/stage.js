// Where do living chains play? Their texts, the controls, the curves that grow along, and, while
// nothing moves, colours that say how sure the model is now instead of when it last drew.

import { playerControls, playerKey } from "./controls.js";
import { curves } from "./curves.js";
import { decodeColumn } from "./film.js";
import { Player } from "./player.js";
import { timeline } from "./timeline.js";
import { Tracks, windowOf } from "./tracks.js";
import { trailSource } from "./trail.js";
import { make, sureLegend, tokenText } from "./tokens.js";

const SETTLE = 120; // milliseconds after the last movement before the model is asked again
const THEN = "How sure the model was when it last drew a token:";
const NOW = "How sure the model is of each token now:";
const REDRAW = 250; // milliseconds between two drawings of the curves

/** A player of chains without an end: its time line goes as far as one has seen. */
class LivingPlayer extends Player {
  seen = 0;

  get end() {
    const end = this.source.end();
    return Number.isFinite(end) ? end : Math.max(this.at, this.seen);
  }
}

/**
 * `trails()` gives the trails shown now; `names` is one for each text. `frozen(c, step)` gives the
 * frozen sites of a chain; onpick(c, site), onmoment(moment), onsettle(step), onreplay(done, of) and
 * onerror(sentence, or null once it is over) are told.
 */
export class Stage {
  #link;
  #options;
  #texts = [];
  #settling = 0;
  #drawing = 0;
  #exact = null; // { step, logProb of each chain } where the colours are those of now
  #ticket = 0;
  #error = null;

  constructor(link, options) {
    this.#link = link;
    this.#options = options;
    this.tracks = new Tracks();
    const last = link.live ? Infinity : options.step;
    this.source = trailSource(link, options.trails, this.tracks, { onreplay: options.onreplay, last });
    this.player = new LivingPlayer(this.source, { speed: 30, step: options.step });
    this.texts = make("div", { class: "texts large" });
    this.legend = sureLegend(options.marks ?? []);
    this.curves = curves(this.player);
    this.curves.setChain(0);
    this.charts = this.curves.element; // apart from the element: a panel may come between
    this.timeline = timeline(this.player, { onband: (_, band) => this.player.seek(band.first) });
    this.controls = make("div", { class: "steer" }, playerControls(this.player));
    const parts = [this.texts, this.controls, this.timeline.element, this.legend];
    this.element = make("div", { class: "stage", "data-step": options.step }, ...parts);
    this.setNames(options.names);
    this.player.watch({ moment: (moment) => this.#show(moment), change: () => this.#changed() });
  }

  /** One text for each name; those of the first stay. */
  setNames(names) {
    while (this.#texts.length > names.length) this.#texts.pop().card.remove();
    while (this.#texts.length < names.length) this.#addText(this.#texts.length);
    names.forEach((name, c) => (this.#texts[c].title.textContent = name));
    this.texts.classList.toggle("two", names.length > 1);
    const differs = this.legend.querySelector('[data-mark="differs"]');
    if (differs) differs.hidden = names.length < 2;
    if (this.player.moment) this.#show(this.player.moment);
  }

  /** Room beside a text's name, for a button. */
  head(c) {
    return this.#texts[c].head;
  }

  choose(c, site) {
    this.#texts.forEach((text, i) => text.text.choose(i === c ? site : null));
  }

  /** Says that the trails were changed: what comes after `step` will be otherwise, or from it on. */
  async changed(step, shown) {
    this.tracks.cut(step);
    this.player.seen = step;
    this.source.changed();
    this.#exact = null;
    this.#ticket += 1;
    await this.player.forget(shown ? step : step + 1);
    this.#settle();
    this.#redraw();
  }

  key(event) {
    return playerKey(this.player, event);
  }

  close() {
    clearTimeout(this.#settling);
    clearTimeout(this.#drawing);
    this.#ticket += 1;
    this.source.changed();
    this.player.close();
    this.curves.close();
  }

  #addText(c) {
    const { onpick } = this.#options;
    const text = tokenText({ onpick: onpick ? (site) => onpick(c, site) : null, label: `Chain ${c}` });
    const title = make("h3", {});
    const head = make("div", { class: "spread" }, title);
    const card = make("div", { class: "card" }, head, text.element);
    this.#texts.push({ card, head, title, text });
    this.texts.append(card);
  }

  #show(moment) {
    this.element.dataset.step = moment.step;
    this.player.seen = Math.max(this.player.seen, moment.step);
    const exact = this.#exact?.step === moment.step ? this.#exact : null;
    const chains = this.#texts.map((_, c) => moment.chains[c] ?? moment.chains[0]);
    const differs = chains.length > 1 ? differingSites(chains[0].tokens, chains[1].tokens) : null;
    chains.forEach((chain, c) => {
      const frozen = this.#options.frozen?.(c, moment.step) ?? chain.frozen;
      const logProb = exact?.logProb[c] ?? chain.logProb;
      this.#texts[c].text.show({ ...chain, number: c, frozen, logProb, differs });
    });
    this.legend.firstChild.textContent = exact ? NOW : THEN;
    this.#options.onmoment?.(moment);
    if (!exact) this.#settle();
    this.#redraw();
  }

  #changed() {
    const { player } = this;
    if (player.error !== this.#error) this.#options.onerror?.(player.error);
    this.#error = player.error;
    if (!player.playing && !player.waiting) this.#settle();
    this.#redraw();
  }

  /** Once nothing moves, the model is asked how sure it is now. */
  #settle() {
    clearTimeout(this.#settling);
    if (this.player.playing) return;
    this.#settling = setTimeout(() => this.#settled(), SETTLE);
  }

  async #settled() {
    const { player } = this;
    if (player.playing || player.waiting || !player.moment) return;
    const { step } = player.moment;
    if (this.#exact?.step === step) return;
    this.#options.onsettle?.(step);
    const ticket = ++this.#ticket;
    const logProb = await this.#sure(step).catch(() => null);
    if (!logProb || ticket !== this.#ticket || player.playing || player.at !== step) return;
    this.#exact = { step, logProb };
    this.#show(player.moment);
  }

  async #sure(step) {
    if (!this.#link.live) return null;
    const source = { trails: this.#options.trails() };
    const answers = [];
    for (let chain = 0; chain < source.trails.length; chain++) answers.push(await this.#link.ask("sure", { source, chain, step }));
    return answers.map((answer) => decodeColumn(answer.log_prob));
  }

  #redraw() {
    if (this.#drawing) return;
    this.#drawing = setTimeout(() => {
      this.#drawing = 0;
      if (Math.min(this.player.end, this.tracks.known) > 0) this.curves.show(curvesOf(this.tracks, this.player.end));
    }, REDRAW);
  }
}

const CURVES = {
  changed: "Steps that changed a token",
  entropy: "How open the draws were, in nats",
  left: "What is left of the start",
  apart: "Tokens that differ",
};

/** What is known of the chains, as the curves take it: the first one in colour, the second thin. */
function curvesOf(tracks, last) {
  const steps = tracks.steps(last);
  const series = {};
  if (tracks.chains.length > 1) series.apart = { mean: steps.map((step) => tracks.apart[step] ?? null) };
  for (const name of ["changed", "entropy", "left"]) {
    const [mean, ...chains] = tracks.chains.map((_, c) => tracks.values(c, name, steps));
    series[name] = { mean, chains };
  }
  const notes = [`Shares and entropies are means over the last ${windowOf(steps)} steps, fewer at the start.`];
  if (tracks.chains.length > 1) notes.push("Numbers and thick lines are the first chain's, thin lines the second's.");
  return { steps, series, names: CURVES, notes };
}

function differingSites(a, b) {
  const sites = new Set();
  for (let i = 0; i < Math.max(a.length, b.length); i++) if (a[i] !== b[i]) sites.add(i);
  return sites;
}
