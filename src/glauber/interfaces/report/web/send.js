// How does one pass on what is seen? As a link, or as one file.

import { button } from "./forms.js";
import { encodeState } from "./permalink.js";
import { make } from "./tokens.js";

/** The buttons "Copy link" and, where something answers, "Save page"; `state` gives what is seen now. */
export function sendButtons({ link, state, say }) {
  const group = make("div", { class: "spread" }, button("Copy link", () => copyLink(link, state(), say)));
  if (link.live) group.append(button("Save page", (event) => savePage(link, state(), say, event.currentTarget)));
  return group;
}

async function copyLink(link, state, say) {
  const hash = `#${encodeState(state)}`;
  const address = link.kind === "server" ? location.href.split("#")[0] + hash : hash;
  try {
    await navigator.clipboard.writeText(address);
    say(`The link is copied: ${link.kind === "server" ? "it" : "glauber explore --link"} shows this again.`);
  } catch {
    say(`The browser does not let this page copy. The link: ${address}`);
  }
}

async function savePage(link, state, say, pressed) {
  pressed.disabled = true;
  say("The page is being written.");
  try {
    const { name, html } = await link.ask("save", { state });
    download(name, html);
    say(`Saved as ${name}.`);
  } catch (error) {
    say(error.message);
  } finally {
    pressed.disabled = false;
  }
}

function download(name, html) {
  const address = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
