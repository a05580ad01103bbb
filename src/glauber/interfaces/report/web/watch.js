// The player of a run inside a written page: everything is answered from what the page carries.
// A "moment" event on the document, { chain, step }, leads there; so does #chain=3&step=120.

import { storedLink } from "./link.js";
import { runPlayer } from "./runplayer.js";
import { themeOf } from "./theme.js";

/** Plays in `root` what `packed` holds: base64 of compressed JSON, as interfaces/report/watch.py writes it. */
export async function watch(root, packed) {
  themeOf(root, { remembered: false }); // the page around it follows the system
  const { run, film, curves, bands, chain } = await unpacked(packed);
  const answers = { run, film, curves, bands: ({ kind }) => bands[kind] };
  const tell = (number) => document.dispatchEvent(new CustomEvent("chain", { detail: number }));
  const asked = momentIn(location.hash);
  const begin = asked && asked.chain < run.chains ? asked : { chain, step: 0 };
  const onmoment = ({ chain: number, step }) => { root.dataset.at = `${number} ${step}`; };
  const speed = Math.min(1000, 10 * run.every); // ten states a second
  const made = await runPlayer(root, storedLink(answers), { ...begin, speed, onchoose: tell, onmoment });
  const go = ({ chain: number, step }) => {
    if (number >= run.chains) return;
    // A trap leads to where its text stands; in a thinned film, to the first state from there on.
    const trap = bands.traps.bands.find((band) => band.chain === number && band.first === step);
    made.goTo(number, Math.min(Math.ceil((trap?.at ?? step) / run.every) * run.every, run.steps));
    root.scrollIntoView({ block: "start" });
    root.focus({ preventScroll: true });
  };
  root.tabIndex = -1;
  document.addEventListener("moment", (event) => go(event.detail));
  document.addEventListener("choose", (event) => {
    if (event.detail < run.chains && event.detail !== made.chain) made.choose(event.detail);
  });
  addEventListener("hashchange", () => {
    const moment = momentIn(location.hash);
    if (moment) go(moment);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.moment");
    if (link && link.hash === location.hash) go(momentIn(link.hash)); // the address stays as it is
  });
  if (begin === asked) go(asked);
  return made;
}

function momentIn(hash) {
  const found = /^#chain=(\d+)&step=(\d+)$/.exec(hash);
  return found && { chain: Number(found[1]), step: Number(found[2]) };
}

async function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed.trim()), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).json();
}
