// What has a living chain done so far? A record of every step, gathered from its films: whether
// it changed a token, the entropy where it drew, what is left of the start, and how far two
// chains are apart. The curves are made of it.

import { decodeColumn } from "./film.js";

const WINDOW = 40; // steps over which shares and entropies are averaged, at least

export class Tracks {
  /** Nothing known yet; `start` is the first state of each chain once a film from step 0 came. */
  constructor() {
    this.known = -1;
    this.start = null;
    this.chains = [];
    this.apart = []; // sites where the first two chains differ, after each step
  }

  /** The steps of a film (every step, from at most the last known one on). */
  add(film) {
    if (film.first > Math.max(this.known, 0)) return;
    if (film.first === 0) this.start ??= film.begin.map((ids) => [...ids]);
    if (!this.start) return;
    const tokens = film.begin.map((ids) => [...ids]);
    while (this.start.length < tokens.length) this.start.push([...this.start[0]]);
    tokens.forEach((_, c) => (this.chains[c] ??= { changed: [], entropy: [], left: [] }));
    this.#run(film, tokens);
    this.known = Math.max(this.known, film.first + film.count);
  }

  /** Forgets what came after a step, because it will be otherwise. */
  cut(step) {
    this.known = Math.min(this.known, step);
    for (const { changed, entropy, left } of this.chains) {
      for (const values of [changed, entropy, left]) values.length = Math.min(values.length, this.known + 1);
    }
    this.apart.length = Math.min(this.apart.length, this.known + 1);
  }

  /** A second chain that was the first one until now, or none. */
  second(has) {
    this.chains.length = Math.min(this.chains.length, 1);
    if (this.start) this.start.length = 1;
    if (!has || !this.chains.length) return void (this.apart = []);
    const { changed, entropy, left } = this.chains[0];
    this.chains.push({ changed: [...changed], entropy: [...entropy], left: [...left] });
    this.start.push([...this.start[0]]);
    this.apart = left.map(() => 0);
  }

  /** The first step from which on two chains are the same, or null. */
  get met() {
    const step = this.apart.indexOf(0);
    return step < 0 ? null : step;
  }

  /** At most `points` steps up to the given one, for a chart. */
  steps(last, points = 300) {
    const end = Math.min(last, this.known);
    const by = Math.max(1, Math.ceil(end / points));
    const steps = [];
    for (let step = 0; step < end; step += by) steps.push(step);
    return [...steps, Math.max(0, end)];
  }

  /** A quantity of a chain at these steps; shares and entropies as the mean of the steps before. */
  values(chain, name, steps) {
    const values = this.chains[chain]?.[name] ?? [];
    if (name === "left") return steps.map((step) => values[step] ?? null);
    return steps.map((step) => mean(values, Math.max(1, step - windowOf(steps) + 1), step));
  }

  #run(film, tokens) {
    const [frame, chain, site, token, entropy] = ["frame", "chain", "site", "token", "entropy"].map((name) => decodeColumn(film[name]));
    const left = tokens.map((ids, c) => ids.filter((id, i) => id === this.start[c][i]).length);
    let apart = tokens.length > 1 ? differing(tokens[0], tokens[1]) : 0;
    this.#note(film.first, tokens, left, apart, null);
    for (let f = 1, e = 0; f <= film.count; f++) {
      const drawn = tokens.map(() => ({ changed: 0, entropy: null }));
      for (; e < frame.length && frame[e] <= f; e++) {
        const [c, s] = [chain[e], site[e]];
        const was = tokens[c][s];
        apart += tokens.length > 1 ? (token[e] !== tokens[1 - c]?.[s]) - (was !== tokens[1 - c]?.[s]) : 0;
        left[c] += (token[e] === this.start[c][s]) - (was === this.start[c][s]);
        if (token[e] !== was) drawn[c].changed = 1;
        if (!Number.isNaN(entropy[e])) drawn[c].entropy = entropy[e];
        tokens[c][s] = token[e];
      }
      this.#note(film.first + f, tokens, left, apart, drawn);
    }
  }

  #note(step, tokens, left, apart, drawn) {
    this.chains.forEach((record, c) => {
      if (c >= tokens.length) return;
      record.left[step] = left[c] / tokens[c].length;
      if (drawn) [record.changed[step], record.entropy[step]] = [drawn[c].changed, drawn[c].entropy];
      else record.changed[step] ??= null;
    });
    if (tokens.length > 1) this.apart[step] = apart;
  }
}

/** Over how many steps shares and entropies are averaged where a chart has these steps. */
export const windowOf = (steps) => Math.max(WINDOW, steps.length > 1 ? steps[1] - steps[0] : 1);

export function differing(a, b) {
  let count = Math.abs(a.length - b.length);
  for (let i = 0; i < Math.min(a.length, b.length); i++) count += a[i] !== b[i];
  return count;
}

function mean(values, first, last) {
  let [sum, count] = [0, 0];
  for (let i = first; i <= last; i++) {
    if (values[i] === null || values[i] === undefined) continue;
    sum += values[i];
    count += 1;
  }
  return count ? sum / count : null;
}
