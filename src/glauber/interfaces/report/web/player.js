// How is a film played? A player shows one step after another from a source of films, asks for
// the next stretch before it is needed, and answers every seek inside what it has by itself.
//
// A source is { film(first, count, every) -> Promise of a film, end() -> last step there is
// (Infinity for a living chain), growing() -> whether more may come (optional), chunk: frames
// asked for at once (optional), stride: steps between the states that there are (optional, 1),
// each: true where single steps come so slowly that a frame never skips one on purpose (optional) }.

import { Reel, Reels } from "./film.js";

export const SPEEDS = [0.5, 1, 2, 5, 10, 20, 30, 60, 100, 200, 500, 1000];
const STRIDES = [1, 2, 5, 10, 20, 50]; // steps a frame
const FRAMES = 30; // frames a second, at most
const LATE = 4; // frames that may be left out to catch up

/** Steps a frame at this many steps a second, a multiple of the source's own stride. */
export function strideOf(speed, least = 1) {
  return least * (STRIDES.find((stride) => speed / (least * stride) <= FRAMES) ?? STRIDES.at(-1));
}

/**
 * `at` is the step shown, `playing`, `speed` (steps a second), `waiting` (a film is on its way),
 * `error` (null or a sentence), `end` (the last step known). Watchers are
 * { moment({step, chains}), change(player) }.
 */
export class Player {
  #source;
  #reels = new Reels();
  #watchers = new Set();
  #age = 0; // of the source; answers to an older one are dropped
  #asked = new Map();
  #chasing = null;
  #wanted = 0;
  #speed;
  #owed = 0;
  #then = 0;
  #shown = null;

  constructor(source, { onmoment, onchange, speed = 10, step = 0 } = {}) {
    this.#source = source;
    this.#speed = speed;
    this.at = step;
    this.playing = false;
    this.waiting = false;
    this.error = null;
    this.progress = null;
    if (onmoment || onchange) this.watch({ moment: onmoment, change: onchange });
  }

  /** Calls `moment` and `change` from now on; returns what ends it. */
  watch(watcher) {
    this.#watchers.add(watcher);
    if (this.#shown && watcher.moment) watcher.moment(this.#shown);
    watcher.change?.(this);
    return () => this.#watchers.delete(watcher);
  }

  /** The moment shown last, or null. */
  get moment() {
    return this.#shown;
  }

  get source() {
    return this.#source;
  }

  /** The last step there is; for a living chain the last one reached. */
  get end() {
    const end = this.#source.end();
    return Number.isFinite(end) ? end : Math.max(this.at, this.#reels.last);
  }

  get speed() {
    return this.#speed;
  }

  set speed(speed) {
    this.#speed = Math.min(1000, Math.max(0.5, speed));
    this.#owed = 0;
    this.#told();
  }

  play() {
    if (this.playing) return;
    if (this.at >= this.#source.end() && !this.#growing()) this.seek(0);
    this.playing = true;
    this.error = null;
    this.#owed = 0;
    this.#then = performance.now();
    this.#told();
    requestAnimationFrame((now) => this.#tick(now));
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.waiting = false;
    this.#told();
  }

  toggle() {
    this.playing ? this.pause() : this.play();
  }

  /** Goes `by` states on (or back) and stays there. */
  step(by = 1) {
    this.pause();
    return this.seek((this.#chasing ? this.#wanted : this.at) + by * this.#stride());
  }

  /** Goes to a step; resolves once it is shown. Of several seeks the last one counts. */
  seek(step) {
    const stride = this.#stride();
    this.#wanted = Math.min(Math.max(0, Math.round(step / stride) * stride), this.#source.end());
    this.#owed = 0;
    if (this.#show(this.#wanted)) return Promise.resolve();
    if (!this.#chasing) {
      const chase = this.#chase().finally(() => {
        if (this.#chasing === chase) this.#chasing = null;
      });
      this.#chasing = chase;
    }
    return this.#chasing;
  }

  /** Shows another source from the same step on. */
  setSource(source, step = this.at) {
    this.#source = source;
    this.#drop(0);
    return this.seek(step);
  }

  /** Forgets what is known from a step on, because it will be otherwise, and shows the present anew. */
  forget(from = 0) {
    this.#drop(from);
    return this.seek(this.at);
  }

  /** Says that the source's end has moved. */
  grew() {
    this.#told();
  }

  close() {
    this.pause();
    this.#age++;
    this.#watchers.clear();
  }

  #drop(from) {
    this.#age++;
    this.#asked.clear();
    this.#reels.cut(from);
    this.#chasing = null;
  }

  #growing() {
    return this.#source.growing?.() ?? !Number.isFinite(this.#source.end());
  }

  #told() {
    for (const watcher of this.#watchers) watcher.change?.(this);
  }

  #tell(changes) {
    const same = Object.entries(changes).every(([name, value]) => this[name] === value);
    Object.assign(this, changes);
    if (!same) this.#told();
  }

  #show(step) {
    const reel = this.#reels.holding(step);
    if (!reel) return false;
    this.at = step;
    this.#shown = { step, chains: reel.seek(reel.frameOf(step)).moment() };
    for (const watcher of this.#watchers) watcher.moment?.(this.#shown);
    return true;
  }

  async #chase() {
    const age = this.#age;
    this.#tell({ waiting: true, error: null });
    while (age === this.#age) {
      const step = this.#wanted;
      if (this.#show(step)) break;
      const reel = await this.#ask(this.#startFor(step), this.#stride());
      if (age !== this.#age || !reel) return;
      if (reel.count === 0 && !this.progress && !this.#show(step)) {
        this.#show(reel.first);
        break;
      }
    }
    this.#tell({ waiting: false });
  }

  /** Where to begin so that a step and what changed in it are in the film. */
  #startFor(step) {
    const stride = this.#stride();
    const chunk = this.#chunk() * stride;
    const start = Math.floor(Math.max(0, step - 1) / chunk) * chunk;
    return Math.max(start, this.#reels.lastBefore(step, stride));
  }

  #stride() {
    return this.#source.stride ?? 1;
  }

  #chunk() {
    return this.#source.chunk ?? 200;
  }

  /** A film from a step on, as a reel among the others; null if it was refused. */
  #ask(first, every) {
    const key = `${first}/${every}`;
    if (!this.#asked.has(key)) {
      this.#asked.set(key, this.#load(first, every).finally(() => this.#asked.delete(key)));
    }
    return this.#asked.get(key);
  }

  async #load(first, every) {
    const age = this.#age;
    try {
      const film = await this.#source.film(first, this.#chunk(), every);
      if (age !== this.#age) return null;
      this.progress = film.replayed === undefined ? null : { done: film.replayed, of: film.of };
      const reel = this.progress ? { first, count: 0 } : this.#reels.keep(new Reel(film));
      this.#told();
      if (this.playing && this.#source.each) setTimeout(() => this.#prefetch(every), 0);
      return reel;
    } catch (error) {
      if (age === this.#age) {
        this.playing = false;
        this.#tell({ waiting: false, error: error.message });
      }
      return null;
    }
  }

  #tick(now) {
    if (!this.playing) return;
    const every = this.#source.each ? this.#stride() : strideOf(this.#speed, this.#stride());
    const interval = (1000 * every) / this.#speed;
    this.#owed = Math.min(this.#owed + (now - this.#then) / interval, LATE);
    this.#then = now;
    if (this.#owed >= 1 && !this.#chasing) this.#advance(Math.floor(this.#owed), every);
    if (this.playing) requestAnimationFrame((later) => this.#tick(later));
  }

  /** Shows the frame that is due, or the furthest one there is; asks for what comes next. */
  #advance(frames, every) {
    const end = this.#source.end();
    if (this.at >= end) return this.#growing() ? this.#tell({ waiting: true }) : this.pause();
    this.#owed -= frames;
    for (let f = frames; f > 0; f--) {
      if (this.#show(Math.min(this.at + f * every, end))) {
        if (this.waiting) this.#tell({ waiting: false });
        return this.#prefetch(every);
      }
    }
    this.#owed = Math.min(this.#owed + 1, 1);
    if (!this.waiting) this.#tell({ waiting: true });
    this.#prefetch(every);
  }

  /** Asks for the next film when less than half of one lies ahead. */
  #prefetch(every) {
    if (this.#asked.size) return;
    const end = this.#source.end();
    const ahead = this.#reels.reached(this.at, every);
    if (ahead >= end || ahead - this.at >= (this.#chunk() * every) / 2) return;
    if (end - ahead >= every) this.#ask(ahead, every);
    else if (!this.#reels.holding(end)) this.#ask(ahead, this.#stride());
  }
}
