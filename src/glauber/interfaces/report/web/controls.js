// What does one press to play? Buttons, a speed and keys for any player.

import { make } from "./tokens.js";
import { SPEEDS } from "./player.js";

const SIGNS = { play: "▶", pause: "❚❚", back: "◀|", on: "|▶" };

/** "12,400": a number with its thousands apart. */
export function thousands(number) {
  return Math.round(number).toLocaleString("en");
}

/** "step 120 of 400"; for a living chain, which has no end, "step 120"; a generation has passes. */
export function whereText(player) {
  const open = !Number.isFinite(player.source.end());
  const here = `${unitOf(player)} ${thousands(player.at)}`;
  return open ? here : `${here} of ${thousands(player.end)}`;
}

const unitOf = (player) => player.source.unit ?? "step";

/** Step back, play or pause, step on, where one is, and the speed. */
export function playerControls(player, { where = whereText } = {}) {
  const button = (name, sign, onclick, kind = "plain") =>
    make("button", { type: "button", class: `${kind} icon`, "aria-label": name, title: name, onclick }, sign);
  const back = button("Step back", SIGNS.back, () => player.step(-1));
  const play = button("Play", SIGNS.play, () => player.toggle(), "main");
  const on = button("Step on", SIGNS.on, () => player.step(1));
  const here = make("span", { class: "where" });
  const working = make("span", { class: "working note", hidden: true }, "working …");
  const speed = speedSlider(player);
  const element = make("div", { class: "controls", role: "group", "aria-label": "Player" }, back, play, on, here, speed.element, working);

  function write() {
    const text = where(player);
    if (here.textContent !== text) here.textContent = text;
  }
  function change() {
    const name = player.playing ? "Pause" : "Play";
    if (play.getAttribute("aria-label") !== name) {
      play.setAttribute("aria-label", name);
      play.title = name;
      play.textContent = player.playing ? SIGNS.pause : SIGNS.play;
    }
    const busy = player.waiting && player.at < player.source.end();
    if (working.hidden === busy) working.hidden = !busy;
    speed.change();
    write();
  }
  player.watch({ moment: write, change });
  return element;
}

function speedSlider(player) {
  const slider = make("input", { type: "range", min: 0, max: SPEEDS.length - 1, step: 1, "aria-label": "Speed" });
  const text = make("span", { class: "value" });
  slider.addEventListener("input", () => {
    player.speed = SPEEDS[slider.value];
  });
  function change() {
    const nearest = SPEEDS.findIndex((speed) => speed >= player.speed);
    if (Number(slider.value) !== nearest) slider.value = nearest;
    const one = unitOf(player);
    const unit = `${player.speed === 1 ? one : one === "pass" ? "passes" : `${one}s`} a second`;
    const said = `${thousands(player.speed) === "1" && player.speed < 1 ? "½" : thousands(player.speed)} ${unit}`;
    if (text.textContent === said) return;
    text.textContent = said;
    slider.setAttribute("aria-valuetext", said);
  }
  return { element: make("span", { class: "speed" }, "Speed", slider, text), change };
}

/** The Step slider. */
export function stepSlider(player) {
  const slider = make("input", { type: "range", class: "steps-slider", min: 0, max: 1, step: 1, "aria-label": "Step" });
  slider.addEventListener("input", () => player.seek(Number(slider.value)));
  slider.addEventListener("keydown", (event) => {
    if (["ArrowUp", "ArrowDown"].includes(event.key) || !pressed(player, event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  function write() {
    const end = String(Math.max(1, player.end));
    if (slider.max !== end) slider.max = end;
    slider.value = player.at;
    slider.setAttribute("aria-valuetext", whereText(player));
  }
  player.watch({ moment: write, change: write });
  return slider;
}

/** All of it for a chain without bands: the buttons and the slider under them. */
export function chainControls(player, options = {}) {
  return make("div", { class: "chain-controls stack tight" }, playerControls(player, options), stepSlider(player));
}

/**
 * Space plays and pauses, left and right step, with shift by ten, Home and End go to the ends.
 * Answers true where the key was one of these. What has the focus comes first: a text box keeps
 * its keys, a button its space.
 */
export function playerKey(player, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const on = (selector) => event.target.closest?.(selector);
  if (on('input, textarea, select, [role="tab"], [contenteditable="true"]')) return false;
  if (event.key === " " && on('button, a, summary, [role="button"]')) return false;
  return pressed(player, event);
}

function pressed(player, event) {
  if (event.key === " ") player.toggle();
  else if (event.key === "ArrowLeft") player.step(event.shiftKey ? -10 : -1);
  else if (event.key === "ArrowRight") player.step(event.shiftKey ? 10 : 1);
  else if (event.key === "Home") player.seek(0);
  else if (event.key === "End") player.seek(player.end);
  else return false;
  return true;
}
