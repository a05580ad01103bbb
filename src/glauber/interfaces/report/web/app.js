// What is the whole page? Its head, a tab for each view, and the one that is open.
//
// A view is made by a function of page = { link, about, state, keep(state), say(sentence),
// trouble(sentence), open(state) } and returns { element, key(event) -> true where the key was
// used, close() }. What `keep` is given stands in the address, so that the same is shown again.

import { make } from "./tokens.js";
import { themeOf } from "./theme.js";
import { decodeState, encodeState } from "./permalink.js";
import { sendButtons } from "./send.js";
import { runView } from "./runview.js";
import { liveView } from "./live.js";
import { pairView } from "./pair.js";
import { fillView } from "./fill.js";

const VIEWS = {
  run: { name: "Run", make: runView },
  live: { name: "Chain", make: liveView },
  pair: { name: "Pair", make: pairView },
  fill: { name: "Fill in", make: fillView },
};
const THEMES = { dark: "Dark", light: "Light" };
const SETTLE = 300; // ms between two changes of the address

/** Builds the page in `root`, as the address says or else `state`. A notebook's address is not ours. */
export async function mount(root, link, state = {}) {
  const own = link.kind !== "notebook";
  const first = own && location.hash.length > 1 ? decodeState(location.hash) : state;
  root.classList.add("glauber", "page");
  const parts = layout(root, themeOf(root));
  let about;
  try {
    about = await link.ask("about", {});
  } catch (error) {
    parts.trouble(error.message);
    return;
  }
  const address = own ? addressLine() : { write: () => {} };
  const kept = {};
  let open = null;

  function show(next) {
    const view = about.views.includes(next.view) ? next.view : about.views[0];
    const old = open;
    open = null;
    old?.made.close();
    const now = { ...(next.view === view ? next : {}), view };
    kept[view] = now;
    const page = { link, about, state: now, keep, say: mine(parts.say), trouble: mine(parts.trouble), open: show };
    parts.trouble(null);
    parts.say("");
    parts.choose(view);
    const made = VIEWS[view].make(page);
    open = { view, made };
    parts.view.replaceChildren(made.element);
    address.write(now);

    /** A view that was left says nothing more, though its answers still come. */
    function mine(act) {
      return (given) => (open && open.made !== made ? undefined : act(given));
    }
    function keep(changed) {
      if (open && open.made !== made) return;
      kept[view] = { ...changed, view };
      address.write(kept[view]);
    }
  }

  /** Opens what an address says; what it says wrongly is told. */
  function follow(next) {
    show(next);
    if (next.notes?.length) parts.say(next.notes.join(" "));
  }

  parts.build(about, {
    choose: (view) => show(kept[view] ?? { view }),
    send: sendButtons({ link, state: () => kept[open.view], say: parts.say }),
  });
  (own ? document : root).addEventListener("keydown", (event) => {
    if (!event.defaultPrevented && open?.made.key(event)) event.preventDefault();
  });
  if (own && about.run) document.title = `${about.run.name}: glauber explore`;
  if (own) addEventListener("hashchange", () => follow(decodeState(location.hash)));
  follow(first);
}

/** The address behind #, written a few times a second (browsers refuse more) and after each press. */
function addressLine() {
  let timer = null;
  let latest = null;
  function flush() {
    clearTimeout(timer);
    timer = null;
    if (latest !== null) history.replaceState(null, "", `#${encodeState(latest)}`);
    latest = null;
  }
  for (const name of ["click", "keyup", "pagehide"]) addEventListener(name, flush);
  return {
    write(state) {
      latest = state;
      timer ??= setTimeout(flush, SETTLE);
    },
  };
}

function layout(root, theme) {
  const said = make("p", { class: "said note", role: "status" });
  const alarm = make("p", { class: "trouble", role: "alert", hidden: true });
  const title = make("h1", {}, "glauber");
  const about = make("span", { class: "note" });
  const buttons = make("div", { class: "spread push" });
  const tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
  const view = make("div", { id: "view", role: "tabpanel", class: "view" });
  const head = make("div", { class: "head" }, make("div", { class: "spread" }, title, about, buttons), tabs, alarm, said);
  root.replaceChildren(head, view);
  let made = [];

  function build(found, { choose, send }) {
    about.textContent = found.run ? [found.run.name, found.run.title].filter(Boolean).join(": ") : "";
    buttons.append(send, themeSwitch(theme));
    made = found.views.map((name) => tab(name, () => choose(name)));
    tabs.replaceChildren(...made);
    tabs.addEventListener("keydown", (event) => walk(event, made));
  }
  function mark(name) {
    for (const one of made) {
      const selected = one.dataset.view === name;
      one.setAttribute("aria-selected", selected);
      one.tabIndex = selected ? 0 : -1;
      if (selected) view.setAttribute("aria-labelledby", one.id);
    }
  }
  function say(sentence) {
    if (said.textContent !== sentence) said.textContent = sentence;
  }
  function trouble(sentence) {
    alarm.textContent = sentence ? sentence[0].toUpperCase() + sentence.slice(1) : "";
    alarm.hidden = !sentence;
  }
  return { view, build, choose: mark, say, trouble };
}

function tab(name, onclick) {
  const attributes = { type: "button", role: "tab", id: `tab-${name}`, "data-view": name, "aria-controls": "view" };
  return make("button", { ...attributes, "aria-selected": "false", onclick }, VIEWS[name].name);
}

function walk(event, tabs) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const next = tabs[tabs.indexOf(event.target) + (by ?? 0)];
  if (!by || !next) return;
  event.preventDefault();
  next.focus();
  next.click();
}

/** Dark or light, by one press. */
function themeSwitch(theme) {
  const button = make("button", { type: "button", class: "plain", onclick: () => theme.set(theme.other) });
  const write = () => (button.textContent = THEMES[theme.other]);
  document.addEventListener("glauber-theme", write);
  write();
  return button;
}
