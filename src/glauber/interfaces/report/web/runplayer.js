// What happened in a stored run? All chains, one of them large, played over the steps, with the
// curves and what was found. It stands alone: a tab of the page and a report both show it.
//
// A link that holds fewer states than steps says so: its answer to `run` has `every`, the steps
// between two of them.

import { make, sureLegend } from "./tokens.js";
import { Player } from "./player.js";
import { playerControls, playerKey, thousands } from "./controls.js";
import { timeline, bandName } from "./timeline.js";
import { curves } from "./curves.js";
import { largeChain, smallChains, chainPages } from "./chains.js";

const KINDS = ["traps", "basins", "topics"];
const EVENTS = 3000; // redraws in one film: small enough to seek at once
const MASK = /^\s*[[<]\|?mask\|?[\]>]$/i;
const POLL = { growing: 2000, finished: 5000, bands: 1000, curves: 6000 }; // ms

/** A source of films of some chains (null: all). `about()` is the run's latest description. */
export function runSource(link, about, chains = null) {
  const stride = about().every ?? 1;
  const end = () => Math.floor(about().steps / stride) * stride;
  const many = chains?.length ?? about().chains;
  const film = (first, count, every) => link.ask("film", { source: "run", first, count, every, chains });
  const chunk = Math.min(300, Math.max(40, Math.round(EVENTS / many)));
  const unit = about().kind === "generation" ? "pass" : "step";
  return { film, end, stride, chunk, unit, growing: () => link.live && !about().finished };
}

/** Looks again and again, after as many ms as `look` answers; 0 ends it. Returns what stops it. */
function repeat(look, pause = 0) {
  let over = false;
  let timer = setTimeout(again, pause);
  async function again() {
    const next = await look();
    if (next && !over) timer = setTimeout(again, next);
  }
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

/** Sentences of trouble by their place, shown together; null takes one away. */
function troubles(element) {
  const now = new Map();
  return (place, sentence) => {
    if (sentence) now.set(place, sentence);
    else now.delete(place);
    const text = [...new Set(now.values())].map((one) => one[0].toUpperCase() + one.slice(1)).join(" ");
    if (element.textContent !== text) element.textContent = text;
    element.hidden = text === "";
  };
}

class RunPlayer {
  #link;
  #options;
  #stops = [];
  #bands = new Map();
  #trouble;
  #played = false;

  constructor(link, about, options) {
    this.#link = link;
    this.#options = options;
    this.about = about;
    this.chain = Math.min(Math.max(0, options.chain ?? 0), about.chains - 1);
    this.view = parts(options);
    this.element = this.view.stage;
    this.#trouble = troubles(this.view.trouble);
    const turned = () => this.player.setSource(this.#source());
    this.pages = chainPages(about.chains, turned, (number) => this.choose(number));
    this.pages.show(this.chain);
    this.player = new Player(this.#source(), { step: options.step ?? 0, speed: options.speed ?? 10 });
    this.#build();
  }

  #build() {
    const { view, player } = this;
    const { onpick } = this.#options;
    this.large = largeChain({ onpick: onpick ? (site) => onpick(site, this.chain, player.at) : null });
    this.small = smallChains({ onchoose: (number) => this.choose(number) });
    this.line = timeline(player, { onband: (...chosen) => this.#goToBand(...chosen) });
    this.charts = curves(player);
    this.line.setChain(this.chain);
    this.charts.setChain(this.chain);
    for (const kind of KINDS) this.line.setBands(kind, { state: "working", bands: [] });
    view.left.prepend(this.large.element);
    view.controls.append(playerControls(player), this.line.element, view.found);
    view.charts.append(this.charts.element);
    if (this.about.chains > 1) view.small.append(make("h2", {}, this.about.kind === "generation" ? "All texts" : "All chains"), this.small.element, this.pages.element);
    this.#describe();
    player.watch({ moment: (moment) => this.#show(moment), change: () => this.#changed() });
  }

  /** Shows the first text, then asks for all that takes longer. */
  async start() {
    await this.player.seek(this.#options.step ?? 0);
    const kept = this.player.moment?.chains.some((chain) => chain.frozen.size);
    this.view.legend.replaceChildren(sureLegend(kept ? ["frozen"] : []));
    this.#trouble("run", this.about.damaged);
    this.#stops.push(repeat(() => this.#lookAtCurves()));
    this.#stops.push(...KINDS.map((kind) => repeat(() => this.#lookAtBands(kind))));
    if (this.#link.live) this.#stops.push(repeat(() => this.#lookAtRun(), POLL.growing));
    return this;
  }

  key(event) {
    return playerKey(this.player, event);
  }

  /** Shows another chain large. */
  async choose(number) {
    this.chain = number;
    this.large.choose(null);
    this.line.setChain(number);
    this.charts.setChain(number);
    this.view.found.hidden = true;
    this.say(`Chain ${number} is shown large.`);
    this.#options.onchoose?.(number);
    const there = this.player.moment?.chains.some((chain) => chain.number === number);
    if (this.pages.show(number) || !there) await this.player.setSource(this.#source());
    else this.#show(this.player.moment);
  }

  async goTo(chain, step) {
    this.player.pause();
    if (chain !== this.chain) await this.choose(chain);
    await this.player.seek(step);
  }

  say(sentence) {
    if (this.#options.say) this.#options.say(sentence);
    else this.view.said.textContent = sentence;
  }

  close() {
    this.#stops.forEach((stop) => stop());
    this.charts.close();
    this.player.close();
  }

  /** Films of the chains to be seen: this page of them and the large one. */
  #source() {
    const seen = this.pages.here();
    const all = this.about.chains <= seen.length;
    return runSource(this.#link, () => this.about, all ? null : [...new Set([...seen, this.chain])]);
  }

  #show({ step, chains: given }) {
    this.element.dataset.step = step;
    const chains = this.about.kind === "generation" ? given.map(withBlanks) : given;
    const one = chains.find((chain) => chain.number === this.chain);
    if (one) this.large.show(one);
    const here = this.pages.here();
    const seen = chains.filter((chain) => chain.number >= here[0] && chain.number <= here.at(-1));
    if (this.about.chains > 1) this.small.show(seen, this.chain, this.player.playing);
    this.#options.onmoment?.({ step, chain: this.chain });
  }

  #changed() {
    const { player, view } = this;
    this.#trouble("film", player.error);
    if (!player.playing && this.#played) this.#show(player.moment);
    this.#played = player.playing;
    const waits = player.playing && player.at >= player.end && player.source.growing();
    const sentence = waits ? "The run goes on: waiting for its next steps." : "";
    if (view.waits.textContent !== sentence) view.waits.textContent = sentence;
  }

  async #goToBand(kind, band, note) {
    const stride = this.about.every ?? 1; // of a thinned film the first state inside the band
    await this.goTo(band.chain, Math.ceil((band.at ?? band.first) / stride) * stride);
    const steps = `steps ${thousands(band.first)} to ${thousands(band.last)}`;
    const lines = [...(band.lines ?? []), note].filter(Boolean).map((text) => make("p", { class: "note" }, text));
    this.view.found.replaceChildren(make("h3", {}, `${band.name}, ${steps}`), make("p", {}, band.text ?? ""), ...lines);
    this.view.found.hidden = false;
    this.say(`Went to ${bandName(kind, band)}.`);
  }

  /** The run's description; the end of one that grows moves, and who was at the end stays there. */
  async #lookAtRun() {
    const { player } = this;
    try {
      const atEnd = !player.playing && player.at >= player.source.end();
      const before = this.about.steps;
      const fresh = await this.#link.ask("run", {});
      const other = fresh.chains !== this.about.chains && "Another run lies in this folder now: load the page again.";
      this.#trouble("run", other || fresh.damaged);
      if (other) return POLL.finished;
      this.about = { ...this.about, ...fresh };
      this.#describe();
      if (this.about.steps !== before) player.grew();
      if (atEnd && this.about.steps > before) player.seek(player.source.end());
    } catch (error) {
      this.#trouble("run", error.message);
    }
    return this.about.finished ? POLL.finished : POLL.growing;
  }

  async #lookAtBands(kind) {
    let answer;
    try {
      answer = { bands: [], ...(await this.#link.ask("bands", { kind })) };
    } catch (error) {
      answer = { state: "failed", why: error.message, bands: [] };
    }
    this.line.setBands(kind, answer);
    this.#bands.set(kind, answer.bands);
    this.small.setBands(this.#bands, this.player.end);
    if (answer.state === "working") return POLL.bands;
    return this.#link.live && !this.about.finished ? POLL.curves : 0;
  }

  async #lookAtCurves() {
    try {
      this.charts.show(await this.#link.ask("curves", { source: "run" }));
      this.#trouble("curves", null);
    } catch (error) {
      this.#trouble("curves", error.message);
    }
    return this.#link.live && !this.about.finished ? POLL.curves : 0;
  }

  #describe() {
    const { steps, planned, finished, model, summary } = this.about;
    const far = finished ? "" : `unfinished, ${thousands(planned - steps)} steps to go`;
    const sentence = [summary, summary?.includes(model) ? "" : model, far].filter(Boolean).join(", ");
    if (this.view.about.textContent !== sentence) this.view.about.textContent = sentence;
  }
}

/** A text that is being written: what is still hidden is shown as blanks. */
function withBlanks(chain) {
  const hidden = new Set();
  chain.tokens.forEach((token, site) => MASK.test(chain.words[token] ?? "") && hidden.add(site));
  return { ...chain, hidden };
}

function parts(options) {
  const view = {
    trouble: make("p", { class: "trouble", role: "alert", hidden: true }),
    about: make("p", { class: "note" }),
    controls: make("div", { class: "stack tight" }),
    legend: make("div", {}),
    found: make("div", { class: "found", hidden: true }),
    charts: make("section", { "aria-label": "Curves" }),
    small: make("section", { class: "stack", "aria-label": "All chains" }),
    waits: make("p", { class: "note", role: "status" }),
    said: make("p", { class: "unseen", role: "status" }),
  };
  const said = options.say ? [] : [view.said];
  view.left = make("div", { class: "stack" }, view.legend, view.controls, view.waits, view.charts);
  view.beside = make("div", { class: "beside" }, view.left);
  view.stage = make("div", { class: "stage" }, view.trouble, view.about, view.beside, view.small, ...said);
  return view;
}

/**
 * Plays a run in `root`. Options: `step`, `chain` and `speed` to begin with, `onpick(site, chain,
 * step)`, `onmoment({step, chain})`, `onchoose(chain)`, `say(sentence)`, `keys` (false: no keyboard).
 * Resolves to { player, element, choose(chain), goTo(chain, step), key(event), close() }.
 */
export async function runPlayer(root, link, options = {}) {
  const made = new RunPlayer(link, await link.ask("run", {}), options);
  root.classList.add("glauber");
  root.replaceChildren(made.element);
  if (options.keys !== false) {
    root.addEventListener("keydown", (event) => {
      if (!event.defaultPrevented && made.key(event)) event.preventDefault();
    });
  }
  return made.start();
}
