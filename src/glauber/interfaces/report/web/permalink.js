// What stands in the address behind #? Everything that a view needs to show the same thing again,
// as readable parameters: view=live&model=bundled:english&text=…&step=120&edits=30t0.5,45s3=1024.
// A part that cannot be read is left out, and state.notes says so.
//
// Edits are short: 30t0.5 a temperature, 45s3=1024 a token put at a site, 60f3 a site frozen,
// 80u3 one released, 90c2 the noise of another chain; the number in front is the step.

const MOST_EDITS = 2000;
const LONGEST_TEXT = 100000;

const EDITS = [
  [/^(\d+)t(\d+(?:\.\d+)?(?:e-?\d+)?)$/, (step, value) => ({ step, temperature: Number(value) })],
  [/^(\d+)s(\d+)=(\d+)$/, (step, site, token) => ({ step, site: Number(site), token: Number(token) })],
  [/^(\d+)f(\d+)$/, (step, site) => ({ step, freeze: Number(site) })],
  [/^(\d+)u(\d+)$/, (step, site) => ({ step, free: Number(site) })],
  [/^(\d+)c(\d+)$/, (step, chain) => ({ step, chain: Number(chain) })],
];

function writeEdit(edit) {
  if ("temperature" in edit) return `${edit.step}t${edit.temperature}`;
  if ("token" in edit) return `${edit.step}s${edit.site}=${edit.token}`;
  if ("freeze" in edit) return `${edit.step}f${edit.freeze}`;
  if ("free" in edit) return `${edit.step}u${edit.free}`;
  return `${edit.step}c${edit.chain}`;
}

function readEdit(part) {
  for (const [pattern, build] of EDITS) {
    const found = part.match(pattern);
    if (!found) continue;
    const edit = build(Number(found[1]), ...found.slice(2));
    if (Object.values(edit).every((value) => Number.isFinite(value) && value <= Number.MAX_SAFE_INTEGER)) return edit;
  }
  return null;
}

const wholeNumber = (raw) => {
  const value = Number(raw);
  return /^\d+$/.test(raw) && Number.isSafeInteger(value) ? value : undefined;
};
const number = (raw) => (/^\d+(\.\d+)?(e-?\d+)?$/.test(raw) && Number.isFinite(Number(raw)) ? Number(raw) : undefined);
const word = (raw) => (/^[\w.:/+-]{1,400}$/.test(raw) ? raw : undefined);
const anyText = (raw) => (raw.length <= LONGEST_TEXT ? raw : undefined);
const oneOf = (...words) => (raw) => (words.includes(raw) ? raw : undefined);
const separated = (raw) => (raw === "" ? [] : raw.split(","));

function editList(raw, notes) {
  const edits = [];
  for (const part of separated(raw)) {
    const edit = readEdit(part);
    const last = edits.length ? edits[edits.length - 1].step : 0;
    if (edit && edit.step >= last && edits.length < MOST_EDITS) edits.push(edit);
    else notes.push(`The edit ${quoted(part)} of the link was left out.`);
  }
  return edits;
}

function siteList(raw, notes) {
  const sites = separated(raw).map((part) => [part, wholeNumber(part)]);
  for (const [part, site] of sites) if (site === undefined) notes.push(`The site ${quoted(part)} of the link was left out.`);
  return sites.map(([, site]) => site).filter((site) => site !== undefined);
}

function moment(raw) {
  const found = raw.match(/^(\d+)@(\d+)$/);
  return found ? { chain: Number(found[1]), step: Number(found[2]) } : undefined;
}

const plain = (value) => String(value);
const list = (write) => ({ write: (values) => values.map(write).join(",") });
const part = (read, write = plain) => ({ read, write });

const CHAIN = {
  model: part(anyText),
  text: part(anyText),
  seed: part(wholeNumber),
  chain: part(wholeNumber),
  scan: part(word),
  temperature: part(number),
  step: part(wholeNumber),
  edits: part(editList, list(writeEdit).write),
};
const VIEWS = {
  run: {
    step: part(wholeNumber),
    chain: part(wholeNumber),
    every: part(wholeNumber),
    bands: part(oneOf("traps", "basins", "topics")),
  },
  live: {
    ...CHAIN,
    start: part(moment, ({ chain, step }) => `${chain}@${step}`),
    frozen: part(siteList, list(plain).write),
    branch: part(editList, list(writeEdit).write),
  },
  pair: { ...CHAIN, text2: part(anyText) },
  fill: {
    mode: part(oneOf("fill", "translate")),
    model: part(anyText),
    text: part(anyText),
    order: part(word),
    count: part(word),
    temperature: part(number),
    seed: part(wholeNumber),
    correct: part(wholeNumber),
    passes: part(wholeNumber),
    step: part(wholeNumber),
  },
};

/** The parameters of a state, readable: "view=live&model=bundled:english&…". */
export function encodeState(state) {
  const parts = [["view", state.view]];
  for (const [name, { write }] of Object.entries(VIEWS[state.view] ?? {})) {
    const value = state[name];
    if (value === undefined || value === null || (Array.isArray(value) && !value.length && name !== "branch")) continue;
    parts.push([name, write(value)]);
  }
  return parts.map(([name, value]) => `${name}=${escaped(value)}`).join("&");
}

/** The state that an address holds; what cannot be read is left out and told in `notes`. */
export function decodeState(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const notes = [];
  const view = given.get("view");
  if (!Object.hasOwn(VIEWS, view ?? "")) {
    if (view !== null) notes.push(`The link names a view ${quoted(view)} that this page does not have.`);
    return { notes };
  }
  const state = { view };
  for (const name of new Set(given.keys())) {
    if (name === "view") continue;
    const value = Object.hasOwn(VIEWS[view], name) ? VIEWS[view][name].read(given.get(name), notes) : undefined;
    if (value === undefined) notes.push(`The part ${quoted(name)} of the link was left out.`);
    else state[name] = value;
  }
  return { ...state, notes };
}

/** As URLSearchParams writes it, but commas, colons, slashes and = are left as they are. */
function escaped(value) {
  const written = new URLSearchParams([["", String(value)]]).toString().slice(1);
  return written.replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/").replaceAll("%3D", "=").replaceAll("%40", "@");
}

const quoted = (raw) => `"${raw.length > 30 ? `${raw.slice(0, 30)}…` : raw}"`;
