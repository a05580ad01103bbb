// How does one run a chain oneself, and change it while it runs?
//
// A view is made by a function of page = { link, about, state, keep(state), say(sentence) }:
// state as decodeState gives it, keep replaces it in the address, say fills the status line.
// It returns { element, key(event) -> true where the key was used, close() }.

import { button, choice, labelled, numberBox, numberOf, startForm, temperatureSlider, textBox } from "./forms.js";
import { conditionalPanel, siteName } from "./panel.js";
import { Stage } from "./stage.js";
import { branchAt, frozenAt, temperatureAt, trailsOf, withEdit } from "./trail.js";
import { make, visible } from "./tokens.js";

const OWN = "The cat sat on the mat and looked out of the window.";

export function liveView(page) {
  return new Live(page);
}

class Live {
  #page;
  #state;
  #stage = null;
  #panel = null;

  constructor(page) {
    this.#page = page;
    page.say((page.state.notes ?? []).join(" "));
    this.form = chainForm(page, () => this.#start());
    this.temperature = temperatureSlider(page.state.temperature ?? 1, (value) => this.#heat(value));
    this.form.fields.append(this.temperature.field);
    const whom = [["both", "both chains"], ["edits", "the chain"], ["branch", "the branch"]];
    this.applies = choice(whom, "both", () => this.#showTemperature());
    this.appliesTo = labelled("Applies to", this.applies);
    this.place = make("div", {});
    this.element = make("div", { class: "stack" }, page.link.live ? this.form.element : null, this.place);
    if (page.state.text !== undefined || page.state.start) this.#open(page.state);
  }

  /** What is seen now, for the address. */
  get state() {
    return this.#state ?? { view: "live" };
  }

  key(event) {
    return this.#stage?.key(event) ?? false;
  }

  close() {
    this.temperature.close();
    this.#stage?.close();
  }

  #start() {
    try {
      this.#page.say("");
      this.#page.trouble(null);
      const given = { view: "live", ...this.form.read(), chain: 0, temperature: this.temperature.value, frozen: [], edits: [], step: 0 };
      this.#open(given);
      this.#stage.player.play();
    } catch (error) {
      this.#page.trouble(error.message);
    }
  }

  #open(given) {
    const { about, link, say } = this.#page;
    this.#stage?.close();
    const { notes, ...state } = given;
    this.#state = { ...defaults(about, state.start), ...state };
    this.#stage = new Stage(link, {
      trails: () => trailsOf(this.#state),
      step: this.#state.step,
      names: this.#names(),
      marks: ["frozen", "differs"],
      frozen: (c, step) => frozenAt(trailsOf(this.#state)[c], step),
      onpick: link.live ? (c, site) => this.#pick(c, site) : null,
      onmoment: ({ step }) => this.#moved(step),
      onsettle: (step) => this.#settled(step),
      onreplay: (done, of) => of > done && say(`Recomputing step ${done} of ${Math.max(of, this.#state.step)}.`),
      onerror: (sentence) => this.#trouble(sentence),
    });
    this.#layOut();
    const { player } = this.#stage;
    const { step } = this.#state;
    const there = () => player.error || step === 0 || say([...(notes ?? []), `Step ${step} is shown again.`].join(" "));
    player.seek(step).then(there);
  }

  /** A refusal is shown as such; before anything was seen the form is open again, with no player. */
  #trouble(sentence) {
    this.#page.trouble(sentence);
    this.place.hidden = Boolean(sentence) && !this.#stage.player.moment;
    if (this.place.hidden) this.form.element.open = true;
  }

  #names() {
    const { branch, start } = this.#state;
    const first = start ? `Chain, from chain ${start.chain} of the run after step ${start.step}` : "Chain";
    return branch ? [first, "Branch"] : [first];
  }

  /** Tokens before site 0: a chain that goes on from the run keeps the run's prefix. */
  get #prefix() {
    return this.#state.start ? (this.#page.about.run?.first_site ?? 0) : 0;
  }

  #layOut() {
    const { link } = this.#page;
    this.#panel = conditionalPanel({
      link,
      model: this.#state.model,
      prefix: this.#prefix,
      onput: (where, token, text) => this.#put(where, token, text),
      onfreeze: (where, freeze) => this.#freeze(where, freeze),
      onbranch: (where) => this.#branch(where.chain),
      onclose: () => this.#unpick(),
    });
    this.beside = make("div", { class: "beside chain-view" }, this.#stage.element, this.#panel.element, this.#stage.charts);
    if (link.live) this.#stage.controls.append(this.temperature.field, this.appliesTo);
    this.form.element.open = false;
    this.place.hidden = false;
    this.place.replaceChildren(this.beside);
    this.#showBranch();
  }

  /** The chain goes on: the address and the temperature slider follow. */
  #moved(step) {
    this.#state.step = step;
    this.#showTemperature();
    this.#page.keep(this.state);
  }

  #settled(step) {
    const where = this.#panel.where;
    if (where) this.#panel.show({ ...where, source: { trails: trailsOf(this.#state) }, step });
  }

  #pick(c, site) {
    const { player } = this.#stage;
    player.pause();
    this.#stage.choose(c, site);
    this.beside.classList.add("open");
    this.#panel.show({ source: { trails: trailsOf(this.#state) }, chain: c, step: player.at, site });
    if (matchMedia("(max-width: 60rem)").matches) this.#panel.element.scrollIntoView({ block: "nearest" });
  }

  #unpick() {
    this.beside.classList.remove("open");
    this.#stage.choose(0, null);
  }

  #put(where, token, text) {
    const step = this.#stage.player.at;
    this.#edit([trailName(where.chain)], { step, site: where.site, token });
    this.#changed(step, true, `“${visible(text)}” was put at ${siteName(where.site, this.#prefix)} after step ${step}.`);
  }

  #freeze(where, freeze) {
    const step = this.#stage.player.at;
    this.#edit([trailName(where.chain)], freeze ? { step, freeze: where.site } : { step, free: where.site });
    this.#changed(step, true, `${capital(siteName(where.site, this.#prefix))} is ${freeze ? "frozen" : "released"} from step ${step} on.`);
  }

  /** One more edit of some trails; what they did later is dropped, and that is said. */
  #edit(names, edit) {
    this.lost = "";
    for (const name of names.filter((one) => this.#state[one])) {
      const { edits, dropped } = withEdit(this.#state[name], edit);
      this.#state[name] = edits;
      if (dropped) this.lost = ` What was changed after step ${edit.step} is dropped.`;
    }
    if (this.#state.branch && !this.#state.branch.some((one) => "chain" in one)) this.#setBranch(undefined);
  }

  async #changed(step, shown, said) {
    this.#page.say(said + this.lost);
    this.#page.keep(this.state); // before the model answers: a link copied meanwhile has the edit
    await this.#stage.changed(step, shown);
    this.#page.keep(this.state);
  }

  #heat(temperature) {
    if (!this.#stage) return;
    const step = this.#stage.player.at;
    const names = this.applies.value === "both" ? ["edits", "branch"] : [this.applies.value];
    this.#edit(names, { step, temperature });
    this.#changed(step, false, `Temperature ${temperature} from step ${step} on.`);
  }

  #showTemperature() {
    if (this.temperature.moving || !this.#state) return;
    const trails = trailsOf(this.#state);
    const trail = this.applies.value === "branch" && trails[1] ? trails[1] : trails[0];
    const now = temperatureAt(trail, this.#state.step);
    if (now !== this.temperature.value) this.temperature.set(now);
  }

  /** A second chain from here on: the same text, the noise of another chain. */
  #branch(c) {
    const { player } = this.#stage;
    const step = player.at;
    const edits = [...this.#state.edits, ...(this.#state.branch ?? [])];
    const chain = 1 + Math.max(this.#state.chain, ...edits.map((one) => one.chain ?? 0));
    const was = Boolean(this.#state.branch);
    this.lost = "";
    this.#setBranch(branchAt(this.#state[trailName(c)], step, chain));
    this.#changed(step, false, `A branch ${was ? "replaces the earlier one" : "begins"} after step ${step}, with noise of its own.`);
  }

  #setBranch(edits) {
    const had = Boolean(this.#state.branch);
    this.#state.branch = edits;
    if (had !== Boolean(edits)) this.#stage.tracks.second(Boolean(edits));
    this.#stage.setNames(this.#names());
    this.#showBranch();
  }

  #showBranch() {
    const has = Boolean(this.#state.branch);
    this.appliesTo.hidden = !has;
    if (!has) this.applies.value = "both";
    if (!has || !this.#page.link.live) return;
    const head = this.#stage.head(1);
    if (!head.querySelector("button")) head.append(button("Remove branch", () => this.#unbranch(), { class: "plain push" }));
  }

  #unbranch() {
    const { player } = this.#stage;
    if (this.#panel.where?.chain === 1) {
      this.#panel.close();
      this.#unpick();
    }
    this.#setBranch(undefined);
    this.lost = "";
    this.#changed(player.at, false, "The branch is removed.");
  }
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const trailName = (c) => (c === 0 ? "edits" : "branch");
const usual = (about) => (about.scans.includes("uniform") ? "uniform" : about.scans[0]);

/** What a link leaves out; a chain that goes on from the run has the run's temperature and scan. */
function defaults(about, start) {
  const usually = { model: about.models[0], seed: 0, chain: 0, scan: usual(about), temperature: 1, frozen: [], edits: [], step: 0 };
  if (!start || !about.run) return usually;
  const { model, temperatures, scan, seed } = about.run;
  return { ...usually, model, scan: scan ?? usually.scan, seed: seed ?? 0, temperature: temperatures?.[start.chain] ?? 1, chain: start.chain };
}

/** Text, model, scan and seed; after a start it steps back behind a line that opens it again. */
function chainForm(page, onstart) {
  const { about, state } = page;
  const passages = about.passages.map(({ topic, text }, i) => [String(i), `${topic}: ${text.slice(0, 50)}…`]);
  const english = about.models[0].startsWith("bundled:"); // another model may not read our passages
  const text = textBox(state.text ?? (english ? (about.passages[0]?.text ?? OWN) : ""));
  const passage = choice([["", "your own"], ...passages], state.text === undefined && english && passages.length ? "0" : "", () => {
    if (passage.value) text.value = about.passages[Number(passage.value)].text;
  });
  text.addEventListener("input", () => (passage.value = ""));
  const model = choice(about.models, state.model);
  const scan = choice(about.scans, state.scan ?? usual(about));
  const seed = numberBox(state.seed ?? 0);
  const chosen = [labelled("Passage", passage, "passage"), labelled("Model", model), labelled("Scan", scan), labelled("Seed", seed)];
  const fields = make("div", { class: "fields" }, ...chosen);
  const element = startForm("A new chain", onstart, labelled("Text", text, "wide"), fields);
  return {
    element,
    fields,
    read: () => ({ model: model.value, text: text.value, scan: scan.value, seed: numberOf(seed, "Seed") }),
  };
}
