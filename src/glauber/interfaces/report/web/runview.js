// The Run tab: a stored run, and what the model says about a token that one picks in it.

import { make } from "./tokens.js";
import { conditionalPanel } from "./panel.js";
import { runPlayer } from "./runplayer.js";

export { runPlayer };

const SETTLE = 150; // ms after the last movement before the model is asked again

/** The player, the conditional of a picked token beside it, a branch into the Chain tab. */
export function runView(page) {
  const element = make("section", {});
  let made = null;
  let closed = false;
  let settling = 0;

  async function open() {
    const { step, chain } = page.state;
    const onpick = page.link.live ? pick : null;
    made = await runPlayer(element, page.link, { step, chain, keys: false, say: page.say, onpick, onmoment, onchoose: shut });
    made.view.beside.append(panel.element);
    if (closed) made.close();
  }
  function onmoment({ step, chain }) {
    page.keep({ view: "run", step, chain });
    clearTimeout(settling);
    if (panel.where && panel.where.step !== step) settling = setTimeout(askAgain, SETTLE);
  }
  function askAgain() {
    if (panel.where && !made.player.playing) panel.show({ ...panel.where, step: made.player.at });
  }
  function pick(site, chain, step) {
    made.player.pause();
    made.large.choose(site);
    made.view.beside.classList.add("open");
    panel.show({ source: "run", chain, step, site });
  }
  function shut() {
    made.view.beside.classList.remove("open");
    made.large.choose(null);
    panel.close();
  }
  const branch = ({ chain, step }) => page.open({ view: "live", model: page.about.run?.model, start: { chain, step } });
  const goesOn = page.link.live && page.about.run?.kind !== "generation"; // which is no chain
  const panel = conditionalPanel({ link: page.link, prefix: page.about.run?.first_site ?? 0, onbranch: goesOn ? branch : null, onclose: shut });
  open().catch((error) => page.trouble(error.message));
  return {
    element,
    key: (event) => made?.key(event) ?? false,
    close() {
      closed = true;
      clearTimeout(settling);
      made?.close();
    },
  };
}
