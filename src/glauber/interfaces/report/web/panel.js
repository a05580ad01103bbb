// What does the model say about one token? Its whole conditional as bars, and what one can do there.

import { button, decimals, labelled } from "./forms.js";
import { make, visible } from "./tokens.js";

/**
 * The region "Conditional". show({ source, chain, step, site }) asks what stands there; `model` is the
 * name of the model whose tokens are searched, `prefix` how many tokens stand before site 0. Handlers get that place back: onput(where, token, text),
 * onfreeze(where, freeze), onbranch(where), onclose(). A handler that is absent has no button.
 */
export function conditionalPanel({ link, model, prefix = 0, onput, onfreeze, onbranch, onclose = () => {} }) {
  const body = make("div", { class: "conditional-body" });
  const element = make("section", { class: "conditional card", hidden: true, "aria-label": "Conditional" }, body);
  let where = null;
  let asked = 0;

  async function show(next) {
    where = next;
    const ticket = ++asked;
    element.hidden = false;
    element.setAttribute("aria-busy", "true");
    if (!body.firstChild) body.append(make("p", { class: "note" }, "Asking the model …"));
    try {
      const answer = await link.ask("conditional", next);
      if (ticket === asked) draw(answer);
    } catch (error) {
      if (ticket === asked) body.replaceChildren(make("div", { class: "spread" }, make("p", {}, error.message), closing()));
    } finally {
      if (ticket === asked) element.removeAttribute("aria-busy");
    }
  }

  function draw(answer) {
    const place = where;
    const putting = onput ? candidate(answer, (token, text) => onput(place, token, text)) : null;
    const searched = body.querySelector("input[type=search]")?.value ?? "";
    const focused = nameOf(body.contains(document.activeElement) ? document.activeElement : null);
    body.replaceChildren(
      make("div", { class: "spread" }, heading(answer, prefix), closing()),
      facts(answer, place.step),
      actions(answer, place, putting),
      ...(putting ? [putting.said, search(link, model, searched, putting.choose)] : []),
      bars(answer, putting?.choose),
    );
    if (focused) [...body.querySelectorAll("button, input")].find((one) => nameOf(one) === focused)?.focus();
  }

  function actions(answer, place, putting) {
    const row = make("div", { class: "spread" }, putting?.press);
    if (onfreeze) row.append(button(answer.frozen ? "Release" : "Freeze", () => onfreeze(place, !answer.frozen)));
    if (onbranch) row.append(button("Branch", () => onbranch(place)));
    return row;
  }

  const closing = () => button("Close", () => { close(); onclose(); }, { class: "plain push" });

  function close() {
    asked += 1;
    where = null;
    element.hidden = true;
    body.replaceChildren();
  }

  return { element, show, close, get where() { return where; } };
}

/** "site 3", counted without the prefix as everywhere else. */
export const siteName = (site, prefix = 0) => (site < prefix ? `token ${site} of the prefix` : `site ${site - prefix}`);

function heading(answer, prefix) {
  const place = `${siteName(answer.site, prefix)}${answer.frozen ? ", frozen" : ""}`;
  return make("h3", {}, make("span", { class: "word" }, visible(answer.text)), " ", make("small", {}, place));
}

/** Entropy, margin and how long it stays, and whether these are exact. */
function facts(answer, step) {
  const { steps, log10 } = answer.holding ?? {};
  const held = Number.isFinite(steps) ? decimals(steps) : log10 === undefined ? "–" : `10^${decimals(log10)}`;
  const rows = [
    ["Entropy", `${decimals(answer.entropy)} nats`],
    ["Margin", answer.margin === null ? "–" : decimals(answer.margin)],
    ["Redraws until it changes", answer.frozen ? `none: frozen (free: ${held})` : held],
  ];
  const list = make("dl", { class: "facts" });
  for (const [name, value] of rows) list.append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  const kind = answer.kind === "exact" ? "exact" : "estimates";
  const said = `After step ${step}, at temperature ${decimals(answer.temperature)}; these numbers are ${kind}. ${answer.note ?? ""}`;
  return make("div", {}, list, make("p", { class: "note" }, said));
}

/** The likeliest tokens and the rest; a bar is a button where a token can be put. */
function bars(answer, choose) {
  const list = make("ol", { class: "bars", "aria-label": "Likeliest tokens" });
  const spell = spelling(answer.top);
  for (const one of answer.top) list.append(bar({ ...one, word: spell(one.text) }, one.token === answer.token, choose));
  const others = answer.n_tokens - answer.top.length;
  if (others > 0) list.append(bar({ word: `${others.toLocaleString("en")} others`, probability: answer.rest }, false, null));
  return list;
}

function bar({ token, text, word, probability }, present, choose) {
  const rest = token === undefined;
  const parts = [
    make("span", { class: "word" }, word),
    make("span", { class: "track" }, make("span", { class: "fill" })),
    make("span", { class: "percent" }, rest ? share(probability, true) : share(probability)),
  ];
  parts[1].firstChild.style.width = `${Math.min(100, 100 * probability)}%`;
  const attributes = { class: "bar", "data-probability": probability, "data-token": token };
  const name = `${word}, ${share(probability)}${present ? ", stands there" : ""}`;
  const pressed = { type: "button", "aria-label": name, "aria-pressed": "false", onclick: () => choose(token, text) };
  const row = choose && !rest ? make("button", { ...attributes, ...pressed }, ...parts) : make("div", attributes, ...parts);
  return make("li", { class: present ? "present" : rest ? "rest" : null }, row);
}

/** The token that "Put" puts: chosen by a bar or by a search. */
function candidate(answer, put) {
  const said = make("p", { class: "note" }, "To put another token, choose its bar or search for it.");
  let chosen = null;
  const press = button("Put", () => put(chosen.token, chosen.text), { disabled: true });
  function choose(token, text) {
    chosen = { token, text };
    press.disabled = token === answer.token;
    said.textContent = press.disabled ? `“${visible(text)}” stands there already.` : `Put “${visible(text)}” in its place?`;
    for (const row of said.parentElement.querySelectorAll("button[data-token]")) {
      row.setAttribute("aria-pressed", String(row.dataset.token === String(token)));
    }
  }
  return { press, said, choose };
}

/** A box that finds any token that the model may propose. */
function search(link, model, before, choose) {
  const found = make("div", { class: "matches" });
  let asked = 0;
  let waiting = 0;
  async function look(query) {
    const ticket = ++asked;
    if (!query) return found.replaceChildren();
    try {
      const { tokens } = await link.ask("tokens", { model, query, count: 20 });
      if (ticket !== asked) return;
      const spell = spelling(tokens);
      const pressed = (token) => ({ "data-token": token, "aria-pressed": "false" });
      const buttons = tokens.map(({ token, text }) => button(spell(text), () => choose(token, text), pressed(token)));
      found.replaceChildren(...(buttons.length ? buttons : [make("span", { class: "note" }, "No token is spelled so.")]));
    } catch (error) {
      if (ticket === asked) found.replaceChildren(make("span", { class: "note" }, error.message));
    }
  }
  const box = make("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  box.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => look(box.value.trim()), 120);
  });
  if (before) {
    box.value = before;
    look(before.trim());
  }
  return make("div", {}, labelled("Another token", box, "wide"), found);
}

/** Where words begin with a blank, a piece that continues a word is shown as …ing. */
function spelling(tokens) {
  const blanks = tokens.some(({ text }) => text.startsWith(" "));
  return (text) => (blanks && /^[\p{L}\p{N}]/u.test(text) ? `…${visible(text)}` : visible(text));
}

const nameOf = (element) => element && (element.getAttribute("aria-label") ?? element.textContent);

/** In percent; what is left over by rounding is never said to be nothing. */
function share(probability, rest = false) {
  const hundred = 100 * probability;
  if ((rest || hundred > 0) && hundred < 0.01) return "<0.01%";
  return `${hundred.toFixed(hundred < 1 ? 2 : 1)}%`;
}
