// What determines a living chain, and how does an edit change it? Pure functions of trails.
// A trail's edits are ordered by step; one at step n changes the state after n steps.

import { decodeColumn } from "./film.js";

const same = (a, b) => {
  if ("temperature" in a) return "temperature" in b;
  if ("token" in a) return "token" in b && a.site === b.site;
  if ("freeze" in a || "free" in a) return (a.freeze ?? a.free) === (b.freeze ?? b.free) && ("freeze" in b || "free" in b);
  return "chain" in b && !("token" in b);
};

/** The edits with one more; what came later is dropped, and one like it at the same step replaced. */
export function withEdit(edits, edit) {
  const earlier = edits.filter((one) => one.step <= edit.step);
  const kept = earlier.filter((one) => one.step < edit.step || !same(edit, one));
  return { edits: [...kept, edit], dropped: edits.length - earlier.length };
}

export function temperatureAt(trail, step) {
  const set = trail.edits.filter((one) => "temperature" in one && one.step <= step);
  return set.length ? set[set.length - 1].temperature : trail.temperature;
}

/** The sites of a trail that are frozen after a step. */
export function frozenAt(trail, step) {
  const sites = new Set(trail.frozen);
  for (const edit of trail.edits) {
    if (edit.step > step) break;
    if ("freeze" in edit) sites.add(edit.freeze);
    if ("free" in edit) sites.delete(edit.free);
  }
  return sites;
}

/** A second trail: the first one's until `step`, then the noise of another chain. */
export function branchAt(edits, step, chain) {
  return [...edits.filter((one) => one.step <= step), { step, chain }];
}

/** The trails that a state of the live view or of the pair view stands for. */
export function trailsOf(state) {
  const { model, seed, chain, temperature, scan } = state;
  const begin = (text) => (state.start ? { start: state.start } : { text });
  const trail = (text, edits) => ({ model, ...begin(text), seed, chain, temperature, scan, frozen: state.frozen ?? [], edits });
  if (state.view === "pair") return [trail(state.text, state.edits ?? []), trail(state.text2, state.edits ?? [])];
  const first = trail(state.text, state.edits ?? []);
  return state.branch ? [first, trail(state.text, state.branch)] : [first];
}

const MOST = 10000; // steps asked for at once; the server refuses more than twice as many

/**
 * The films of some trails, as a player takes them. Every step is asked for and recorded in `tracks`,
 * from the beginning on; a player that shows every tenth step gets a thinned film. A server that
 * has to make up the way answers with what it replayed so far and is asked again; `onreplay(step, of)`
 * is told. After `changed()` answers that are still on their way are not recorded.
 */
export function trailSource(link, trails, tracks, { onreplay = () => {}, last = Infinity } = {}) {
  let age = 0;
  let far = last; // a page in one file knows where its film ends
  async function slice(first, count, begun) {
    for (;;) {
      const answer = await link.ask("film", { source: { trails: trails() }, first, count, every: 1 });
      if (Number.isFinite(far)) far = Math.max(far, answer.end ?? 0);
      if (begun !== age) return answer;
      if (answer.count > 0 || answer.replayed === undefined) {
        tracks.add(answer);
        return answer;
      }
      onreplay(answer.replayed, answer.of);
    }
  }
  async function catchUp(first) {
    const begun = age;
    while (tracks.known < first && begun === age) {
      const known = Math.max(0, tracks.known);
      const { count } = await slice(known, Math.min(MOST, Math.max(1, first - known)), begun);
      if (!count) return;
      onreplay(Math.min(first, tracks.known), first);
    }
  }
  async function film(first, count, every = 1) {
    const begun = age;
    await catchUp(first);
    let made = await slice(first, count * every, begun); // once if nobody waits any more
    while (made.count < every && begun === age) {
      const more = await slice(made.first + made.count, count * every, begun);
      if (!more.count) break;
      made = joined(made, more);
    }
    return every === 1 ? made : thinned(made, every);
  }
  return { film, end: () => far, chunk: 40, each: true, changed: () => (age += 1) };
}

const COLUMNS = ["frame", "chain", "site", "token", "log_prob", "entropy"];

/** Two films of which the second goes on where the first ends, as one. */
function joined(film, more) {
  const columns = COLUMNS.map((name) => {
    const after = Array.from(decodeColumn(more[name]), (value) => (name === "frame" ? value + film.count : value));
    return [name, [...decodeColumn(film[name]), ...after]];
  });
  const words = { ...film.words, ...more.words };
  return { ...film, ...Object.fromEntries(columns), words, count: film.count + more.count, end: more.end };
}

/** A film of every step as one of every tenth, say; what is left over is left to the next. */
function thinned(film, every) {
  const frame = decodeColumn(film.frame);
  const count = Math.floor(film.count / every);
  const kept = frame.findIndex((f) => f > count * every);
  const n = kept < 0 ? frame.length : kept;
  const columns = COLUMNS.map((name) => [name, Array.from(decodeColumn(film[name]).subarray(0, n))]);
  const made = { ...film, ...Object.fromEntries(columns), every, count };
  return { ...made, frame: made.frame.map((f) => Math.ceil(f / every)) };
}
