// Do two texts that share their noise become one?
//
// Both chains take the same random bits at every step, and the same temperature. Where they agree
// they tend to stay together; once they are the same text they are one chain.

import { choice, labelled, numberBox, numberOf, startForm, temperatureSlider, textBox } from "./forms.js";
import { Stage } from "./stage.js";
import { temperatureAt, trailsOf, withEdit } from "./trail.js";
import { make } from "./tokens.js";

const FIRST = "The cat sat on the mat.";
const SECOND = "The dog lay on the bed.";

export function pairView(page) {
  return new Pair(page);
}

class Pair {
  #page;
  #state = null;
  #stage = null;
  #met = null;
  #started = 0;

  constructor(page) {
    this.#page = page;
    page.say((page.state.notes ?? []).join(" "));
    this.form = pairForm(page, () => this.#start());
    this.temperature = temperatureSlider(page.state.temperature ?? 1, (value) => this.#heat(value));
    this.form.fields.append(this.temperature.field);
    this.place = make("div", {});
    this.element = make("div", { class: "stack" }, page.link.live ? this.form.element : null, this.place);
    if (page.state.text !== undefined && page.state.text2 !== undefined) this.#open(page.state);
  }

  get state() {
    return this.#state ?? { view: "pair" };
  }

  key(event) {
    return this.#stage?.key(event) ?? false;
  }

  close() {
    this.#started += 1;
    this.temperature.close();
    this.#stage?.close();
  }

  async #start() {
    const ticket = ++this.#started;
    this.#page.trouble(null);
    this.#page.say("Reading the texts.");
    try {
      await this.form.check();
      if (ticket !== this.#started) return;
      this.#page.say("");
      this.#open({ view: "pair", ...this.form.read(), chain: 0, temperature: this.temperature.value, edits: [], step: 0 });
      this.#stage.player.play();
    } catch (error) {
      if (ticket !== this.#started) return;
      this.#page.say("");
      this.#page.trouble(error.message);
    }
  }

  #open({ notes, ...given }) {
    const { about, link, say } = this.#page;
    this.#stage?.close();
    this.#met = null;
    const defaults = { model: about.models[0], seed: 0, chain: 0, scan: about.scans[0], temperature: 1, edits: [], step: 0 };
    this.#state = { ...defaults, ...given };
    this.said = make("p", { class: "meeting", role: "note" });
    this.#stage = new Stage(link, {
      trails: () => trailsOf(this.#state),
      step: this.#state.step,
      names: ["First text", "Second text"],
      marks: ["differs"],
      onmoment: (moment) => this.#moved(moment),
      onreplay: (done, of) => of > done && say(`Recomputing step ${done} of ${Math.max(of, this.#state.step)}.`),
      onerror: (sentence) => this.#trouble(sentence),
    });
    if (link.live) this.#stage.controls.append(this.temperature.field);
    this.#stage.texts.after(this.said);
    this.form.element.open = false;
    this.place.hidden = false;
    this.place.replaceChildren(make("div", { class: "stack" }, this.#stage.element, this.#stage.charts));
    this.#stage.player.seek(this.#state.step);
  }

  #trouble(sentence) {
    this.#page.trouble(sentence);
    this.place.hidden = Boolean(sentence) && !this.#stage.player.moment;
    if (this.place.hidden) this.form.element.open = true;
  }

  #moved({ step, chains }) {
    this.#state.step = step;
    this.#page.keep(this.state);
    const now = temperatureAt(trailsOf(this.#state)[0], step);
    if (!this.temperature.moving && now !== this.temperature.value) this.temperature.set(now);
    this.#tellDistance(step, chains);
  }

  /** How far they are apart, and when they met, in words and as a band under the time line. */
  #tellDistance(step, chains) {
    const { tracks, player } = this.#stage;
    const met = tracks.met !== null && tracks.met <= player.end ? tracks.met : null; // films come in advance
    const length = chains[0].tokens.length;
    const apart = tracks.apart[step];
    const together = met !== null && met <= step;
    const distance = together ? `They met after step ${met} and are one text since.` : `${apart} of ${length} tokens differ.`;
    if (apart !== undefined) this.said.textContent = distance;
    this.said.classList.toggle("together", together);
    if (met === null && this.#met === null) return;
    const bands = met === null ? [] : [{ chain: 0, first: met, last: player.end, name: "one text", text: `They met after step ${met}.` }];
    this.#stage.timeline.setBands("together", { state: "done", why: `${met}`, bands });
    if (met !== this.#met && together) this.#page.say(`The two texts met after step ${met}.`);
    if (met === null || together) this.#met = met;
  }

  async #heat(temperature) {
    if (!this.#stage) return;
    const step = this.#stage.player.at;
    const { edits, dropped } = withEdit(this.#state.edits, { step, temperature });
    this.#state.edits = edits;
    this.#page.say(`Temperature ${temperature} from step ${step} on.${dropped ? ` What was changed after step ${step} is dropped.` : ""}`);
    await this.#stage.changed(step, false);
    this.#page.keep(this.state);
  }
}

function pairForm(page, onstart) {
  const { about, link, state } = page;
  const english = about.models[0].startsWith("bundled:"); // another model may not read our texts
  const first = textBox(state.text ?? (english ? FIRST : ""), { rows: 2 });
  const second = textBox(state.text2 ?? (english ? SECOND : ""), { rows: 2 });
  const model = choice(about.models, state.model, () => count());
  const scan = choice(about.scans, state.scan);
  const seed = numberBox(state.seed ?? 0);
  const counted = make("p", { class: "note", role: "note" });
  const fields = make("div", { class: "fields" }, labelled("Model", model), labelled("Scan", scan), labelled("Seed", seed));
  const texts = make("div", { class: "texts two" }, labelled("First text", first, "wide"), labelled("Second text", second, "wide"));
  let asked = 0;
  const length = ({ value }) => link.ask("encode", { model: model.value, text: value });
  async function count() {
    const ticket = ++asked;
    const said = await Promise.all([length(first), length(second)]).then(compared, (error) => error.message);
    if (ticket === asked) counted.textContent = said;
  }
  async function check() {
    const found = await Promise.all([length(first), length(second)]);
    if (found[0].sites !== found[1].sites) throw new Error(compared(found));
  }
  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(count, 300);
  };
  first.addEventListener("input", later);
  second.addEventListener("input", later);
  if (link.live) later();
  const element = startForm("A new pair", onstart, texts, counted, fields);
  return {
    element,
    fields,
    check,
    read: () => ({ model: model.value, text: first.value, text2: second.value, scan: scan.value, seed: numberOf(seed, "Seed") }),
  };
}

/** How many tokens the two texts have: they need the same number. */
function compared([one, two]) {
  if (one.sites === two.sites) return `Both have ${one.sites} tokens.`;
  return `The first has ${one.sites} tokens, the second ${two.sites}: both need the same number.`;
}
