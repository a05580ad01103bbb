// What does a text look like after each step? A film holds the states of some chains over a
// stretch of steps: the first state and what was redrawn since. A reel runs it forward and back.

const EVENTS = 2_000_000; // redraws kept in memory
const KINDS = { int32: Int32Array, float32: Float32Array, uint8: Uint8Array };

/** The numbers of a column `{dtype, data}`; a plain list is taken as it is. */
export function decodeColumn(column) {
  if (Array.isArray(column)) return Float64Array.from(column, (value) => value ?? NaN);
  const text = atob(column.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new KINDS[column.dtype](bytes.buffer);
}

/** A column of numbers as it travels: the other way round, for pages that make their own films. */
export function encodeColumn(dtype, values) {
  const bytes = new Uint8Array(KINDS[dtype].from(values).buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) {
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  }
  return { dtype, data: btoa(text) };
}

/**
 * The states of a film, one at a time. `frame` is the one shown: frame 0 is the state after step
 * `first`, frame f the state after step `first + f * every`. `tokens`, `logProb` and `entropy`
 * hold one array for each chain, changed in place by `seek`.
 */
export class Reel {
  constructor(film) {
    this.first = film.first;
    this.every = film.every ?? 1;
    this.count = film.count;
    this.chains = film.chains;
    this.words = film.words;
    this.end = film.end;
    this.frozen = film.frozen.map((sites) => new Set(sites));
    this.tokens = film.begin.map((ids) => Int32Array.from(ids));
    this.logProb = film.begin_log_prob.map((column) => Float32Array.from(decodeColumn(column)));
    this.entropy = this.tokens.map((ids) => new Float32Array(ids.length).fill(NaN));
    this.frame = 0;
    this.#readEvents(film);
  }

  /** The last step of this film. */
  get last() {
    return this.first + this.count * this.every;
  }

  /** The frame of a step, or -1 where this film has none. */
  frameOf(step) {
    const frame = (step - this.first) / this.every;
    return Number.isInteger(frame) && frame >= 0 && frame <= this.count ? frame : -1;
  }

  /** Goes to a frame, forward or back: what stands there does not depend on the way taken. */
  seek(frame) {
    while (this.frame < frame) this.#forward();
    while (this.frame > frame) this.#back();
    return this;
  }

  /** For each chain the sites whose token differs from the frame before; none at frame 0. */
  changed() {
    const sets = this.chains.map(() => new Set());
    for (let e = this.starts[this.frame]; e < this.starts[this.frame + 1]; e++) {
      if (this.token[e] !== this.before.token[e]) sets[this.chain[e]].add(this.site[e]);
    }
    return sets;
  }

  /** The shown state, one entry for each chain; its arrays are the reel's own, not copies. */
  moment() {
    const changed = this.changed();
    return this.chains.map((number, c) => ({
      number,
      tokens: this.tokens[c],
      words: this.words,
      logProb: this.logProb[c],
      entropy: this.entropy[c],
      changed: changed[c],
      frozen: this.frozen[c],
    }));
  }

  /** Forgets every state after a step. */
  cut(step) {
    const count = Math.max(0, Math.floor((step - this.first) / this.every));
    if (count < this.count) {
      this.seek(Math.min(this.frame, count));
      this.count = count;
    }
  }

  #readEvents(film) {
    for (const name of ["chain", "site", "token"]) this[name] = decodeColumn(film[name]);
    this.drawn = { logProb: decodeColumn(film.log_prob), entropy: decodeColumn(film.entropy) };
    const n = this.token.length;
    this.before = {
      token: new Int32Array(n),
      logProb: new Float32Array(n),
      entropy: new Float32Array(n),
    };
    const frames = decodeColumn(film.frame);
    this.starts = new Int32Array(this.count + 2);
    for (let f = 1, e = 0; f <= this.count + 1; f++) {
      while (e < n && frames[e] < f) e++;
      this.starts[f] = e;
    }
    this.starts[1] = 0; // an event in frame 0 would be part of the first state
    this.#recordBefore();
  }

  /** What each event replaces, found by running through the film once. */
  #recordBefore() {
    for (let e = 0; e < this.token.length; e++) {
      const [c, s] = [this.chain[e], this.site[e]];
      this.before.token[e] = this.tokens[c][s];
      this.before.logProb[e] = this.logProb[c][s];
      this.before.entropy[e] = this.entropy[c][s];
      this.#put(e, this.token, this.drawn);
    }
    this.frame = this.count;
    this.seek(0);
  }

  #forward() {
    this.frame++;
    for (let e = this.starts[this.frame]; e < this.starts[this.frame + 1]; e++) {
      this.#put(e, this.token, this.drawn);
    }
  }

  #back() {
    for (let e = this.starts[this.frame + 1] - 1; e >= this.starts[this.frame]; e--) {
      this.#put(e, this.before.token, this.before);
    }
    this.frame--;
  }

  #put(e, token, { logProb, entropy }) {
    const [c, s] = [this.chain[e], this.site[e]];
    this.tokens[c][s] = token[e];
    this.logProb[c][s] = logProb[e];
    this.entropy[c][s] = entropy[e];
  }
}

/** The reels in memory, the oldest first. */
export class Reels {
  #all = [];

  /** The last step of any; 0 without one. */
  get last() {
    return Math.max(0, ...this.#all.map((reel) => reel.last));
  }

  /** The reel that has a step, one that knows what changed there if possible. */
  holding(step) {
    const found = this.#all.filter((reel) => reel.frameOf(step) >= 0);
    return found.find((reel) => reel.first < step) ?? found[0];
  }

  /** Where the reels with this stride that end before a step end last; 0 without one. */
  lastBefore(step, every) {
    const ends = this.#all.filter((reel) => reel.every === every && reel.last < step);
    return Math.max(0, ...ends.map((reel) => reel.last));
  }

  /** How far one can go on from a step, so many steps at a time. */
  reached(step, every) {
    let at = step;
    const onward = (reel) => every % reel.every === 0 && reel.frameOf(at) >= 0 && reel.last >= at + every;
    for (let reel = this.#all.find(onward); reel; reel = this.#all.find(onward)) {
      at += Math.floor((reel.last - at) / every) * every;
    }
    return at;
  }

  /** Adds a reel in place of a shorter one; the oldest go when there are too many. */
  keep(reel) {
    const same = (old) => old.first === reel.first && old.every === reel.every && old.count <= reel.count;
    this.#all = [...this.#all.filter((old) => !same(old)), reel];
    let events = this.#all.reduce((sum, one) => sum + one.token.length, 0);
    while (events > EVENTS && this.#all.length > 2) events -= this.#all.shift().token.length;
    return reel;
  }

  /** Forgets every state from a step on. */
  cut(from) {
    this.#all = this.#all.filter((reel) => reel.first < from);
    this.#all.forEach((reel) => reel.cut(from - 1));
  }
}
