// How does a page reach what answers it? A link is { ask(name, args) -> Promise, live, kind }.
// Three of them: a server beside the page, the kernel of a notebook, and a page in one file,
// which answers from what it carries. A refused question rejects with an Error of one sentence.

import { decodeColumn, encodeColumn, Reel } from "./film.js";

export function httpLink(base) {
  async function ask(name, args = {}) {
    let response;
    try {
      response = await fetch(`${base}ask/${name}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(args),
      });
    } catch {
      throw new Error("The explorer does not answer: was it stopped?");
    }
    const answer = await response.json().catch(() => ({ error: `The explorer answered ${response.status}.` }));
    if (!response.ok || answer.error) throw new Error(answer.error ?? `The explorer answered ${response.status}.`);
    return answer;
  }
  return { ask, live: true, kind: "server" };
}

/** Questions as messages to the kernel, { id, name, args }; answers come back as { id, answer }. */
export function widgetLink(model) {
  const waiting = new Map();
  const own = Math.random().toString(36).slice(2); // two cells may show one page: both hear every answer
  let last = 0;
  model.on("msg:custom", (message) => {
    const asked = waiting.get(message?.id);
    if (!asked) return;
    waiting.delete(message.id);
    if (message.answer?.error) asked.reject(new Error(message.answer.error));
    else asked.resolve(message.answer);
  });
  function ask(name, args = {}) {
    const id = `${own}-${(last += 1)}`;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      model.send({ id, name, args });
    });
  }
  return { ask, live: true, kind: "notebook" };
}

/** Answers by name: values, or functions of what is asked. */
export function storedLink(answers) {
  async function ask(name, args = {}) {
    if (!(name in answers)) throw new Error("This page was saved: it shows what was stored and asks no model.");
    const found = answers[name];
    return typeof found === "function" ? found(args) : found;
  }
  return { ask, live: false, kind: "saved" };
}

/** Answers the question `film` from one film: any stretch of it, at the nearest stride that it has. */
export function storedFilm(film) {
  const reel = new Reel(film);
  return ({ first = 0, count = film.count, every = 1, chains = null }) => {
    const by = Math.max(1, Math.round(every / film.every));
    const start = Math.min(film.count, Math.max(0, Math.floor((first - film.first) / film.every)));
    const frames = Math.max(0, Math.min(count, Math.floor((film.count - start) / by)));
    // Two living chains may have one number: they share their noise.
    const places = chains === null ? film.chains.map((_, c) => c) : chains.map((number) => film.chains.indexOf(number)).filter((c) => c >= 0);
    reel.seek(start);
    return {
      first: film.first + start * film.every,
      every: by * film.every,
      count: frames,
      chains: places.map((c) => film.chains[c]),
      lengths: places.map((c) => film.lengths[c]),
      begin: places.map((c) => [...reel.tokens[c]]),
      begin_log_prob: places.map((c) => encodeColumn("float32", reel.logProb[c])),
      frozen: places.map((c) => film.frozen[c]),
      ...events(reel, places, { start, frames, by }),
      words: film.words,
      end: film.first + film.count * film.every,
    };
  };
}

/** The columns of a stretch: of each site the last event in every `by` frames. */
function events(reel, places, { start, frames, by }) {
  const found = { frame: [], chain: [], site: [], token: [], log_prob: [], entropy: [] };
  for (let frame = 1; frame <= frames; frame++) {
    const last = new Map();
    const from = reel.starts[start + (frame - 1) * by + 1];
    const to = reel.starts[start + frame * by + 1];
    for (let e = from; e < to; e++) last.set(`${reel.chain[e]},${reel.site[e]}`, e);
    for (const e of last.values()) {
      const chain = places.indexOf(reel.chain[e]);
      if (chain < 0) continue;
      const values = [frame, chain, reel.site[e], reel.token[e], reel.drawn.logProb[e], reel.drawn.entropy[e]];
      Object.values(found).forEach((column, i) => column.push(values[i]));
    }
  }
  const kind = (name) => (name === "log_prob" || name === "entropy" ? "float32" : "int32");
  return Object.fromEntries(Object.entries(found).map(([name, values]) => [name, encodeColumn(kind(name), values)]));
}

/** A film whose columns were made smaller for a file, { dtype, gzip }, as any other film. */
export async function unpacked(film) {
  const columns = Object.entries(film).filter(([, value]) => value?.gzip !== undefined);
  const plain = await Promise.all(columns.map(async ([name, { dtype, gzip }]) => [name, { dtype, data: await inflated(gzip) }]));
  return { ...film, ...Object.fromEntries(plain) };
}

async function inflated(packed) {
  const bytes = decodeColumn({ dtype: "uint8", data: packed });
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const whole = new Uint8Array(await new Response(stream).arrayBuffer());
  return encodeColumn("uint8", whole).data;
}
