// How do the chains move on the whole? Curves over the steps with a line at the present one.
// Click or drag the line to go somewhere, drag across to zoom, double-click for all of it.

import { uPlot } from "./vendor/uplot.js";
import { make } from "./tokens.js";
import { thousands } from "./controls.js";

const HEIGHT = 150;

/** The value of a CSS variable where an element stands: dark and light differ. */
function ink(element, name) {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

/** The last index whose step is not after the given one. */
function indexAt(steps, step) {
  let [low, high] = [0, steps.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (steps[middle] <= step) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** A number of three figures, "–" where there is none. */
function short(value) {
  return value === null || value === undefined || Number.isNaN(value) ? "–" : value.toPrecision(3);
}

/**
 * One curve for each series of what `curves` answered; `show(answer)` draws it or draws it anew,
 * `setChain(index)` says which chain stands out among the thin lines.
 */
export function curves(player, { charts = null } = {}) {
  const grid = make("div", { class: "curves" });
  const notes = make("p", { class: "note" });
  const whole = make("button", { type: "button", class: "plain", hidden: true, onclick: () => zoom(null) }, "All steps");
  const hint = make("span", { class: "note push" }, "Click to go there, drag across to zoom, double-click for all steps.");
  const head = make("div", { class: "spread", hidden: true }, notes, hint, whole);
  const element = make("div", { class: "stack" }, grid, head);
  let drawn = [];
  let chosen = null;

  function show(answer) {
    const names = charts ?? Object.keys(answer.series);
    const key = JSON.stringify([names, names.map((name) => answer.series[name].chains?.length ?? 0)]);
    if (element.dataset.key === key) drawn.forEach((chart) => chart.fill(answer));
    else {
      drawn.forEach((chart) => chart.close());
      drawn = names.map((name) => chartOf(player, name, answer, { zoom, chosen: () => chosen }));
      grid.replaceChildren(...drawn.map((chart) => chart.element));
      element.dataset.key = key;
    }
    notes.textContent = (answer.notes ?? []).join(" ");
    head.hidden = drawn.length === 0;
    moved();
  }

  function zoom(range) {
    whole.hidden = range === null;
    drawn.forEach((chart) => chart.zoom(range));
    moved();
  }

  function moved() {
    drawn.forEach((chart) => chart.point(player.at));
  }

  function setChain(index) {
    chosen = index;
    drawn.forEach((chart) => chart.redraw());
  }

  const repaint = () => drawn.forEach((chart) => chart.redraw());
  document.addEventListener("glauber-theme", repaint);
  player.watch({ moment: moved });
  function close() {
    document.removeEventListener("glauber-theme", repaint);
    drawn.forEach((chart) => chart.close());
  }
  return { element, show, setChain, close };
}

function chartOf(player, name, answer, { zoom, chosen }) {
  const value = make("span", { class: "value" });
  const place = make("div", { class: "plot" });
  const title = answer.names?.[name] ?? name;
  const element = make("figure", { "aria-label": title }, make("figcaption", {}, title, value), place);
  const line = make("div", { class: "present", "aria-hidden": "true" });
  const many = answer.series[name].chains?.length ?? 0;
  let own = false; // a change of scale of our own making
  let range = null;

  let plot = null;
  plot = new uPlot(options(place, many, chosen, { ready, scaled, drawn: () => point(player.at) }), data(answer, name), place);
  const sized = new ResizeObserver(() => {
    if (place.clientWidth) plot.setSize({ width: place.clientWidth, height: HEIGHT });
    point(player.at);
  });
  sized.observe(place);
  plot.over.append(line);
  draggable(plot, line, (step) => player.seek(step));

  function ready(u) {
    u.over.addEventListener("click", (event) => {
      const x = event.clientX - u.over.getBoundingClientRect().left;
      if (u.select.width < 4) player.seek(u.posToVal(x, "x"));
    });
    u.over.addEventListener("dblclick", () => zoom(null));
  }

  function scaled(u, scale) {
    if (scale !== "x" || own || u.status === 0 || !u.over) return;
    const { min, max } = u.scales.x;
    const [first, last] = [u.data[0][0], u.data[0].at(-1)];
    if (min > first || max < last) zoom({ min, max });
  }

  function setRange(next) {
    range = next;
    own = true;
    const steps = plot.data[0];
    plot.setScale("x", next ?? { min: steps[0], max: Math.max(steps.at(-1), steps[0] + 1) });
    queueMicrotask(() => {
      own = false;
    });
  }

  function fill(fresh) {
    own = true;
    plot.setData(data(fresh, name), true);
    setRange(range);
  }

  function point(step) {
    if (!plot) return;
    const x = plot.valToPos(step, "x");
    const width = plot.bbox.width / devicePixelRatio; // known to the plot: no layout is forced
    const inside = Number.isFinite(x) && x >= -1 && x <= width + 1;
    line.style.visibility = inside ? "visible" : "hidden";
    if (inside) line.style.transform = `translateX(${x.toFixed(1)}px)`;
    const shown = short(plot.data[1][indexAt(plot.data[0], step)]);
    if (value.textContent !== shown) value.textContent = shown;
  }

  function close() {
    sized.disconnect();
    plot.destroy();
  }
  return { element, fill, point, zoom: setRange, redraw: () => plot.redraw(false, true), close };
}

/** Steps, the mean, then the chains one by one. */
function data(answer, name) {
  const { mean, chains = [] } = answer.series[name];
  return [answer.steps, mean, ...(chains ?? [])];
}

function options(place, many, chosen, { ready, scaled, drawn }) {
  const css = (name) => () => ink(place, name);
  const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const thin = Array.from({ length: many }, (_, index) => ({
    stroke: (u) => ink(place, chosen() === index ? "--ink" : "--faint-curve"),
    width: 1,
    points: { show: false },
  }));
  return {
    width: place.clientWidth || 320,
    height: HEIGHT,
    padding: [8, 18, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 6 } },
    scales: { x: { time: false }, y: { range: (u, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.05 : 1] } },
    axes: [
      { ...axis, size: 28, space: 60, values: (u, steps) => steps.map((step) => (Number.isInteger(step) ? thousands(step) : "")), grid: { show: false } },
      { ...axis, size: 44, space: 34 },
    ],
    series: [{}, { stroke: css("--curve"), width: 2, points: { show: false } }, ...thin],
    hooks: { ready: [ready], setScale: [scaled], draw: [drawn] },
  };
}

/** The line at the present step follows the pointer that takes hold of it. */
function draggable(plot, line, onstep) {
  line.addEventListener("mousedown", (event) => {
    event.stopPropagation(); // no zoom, and no selection of text
    event.preventDefault();
  });
  line.addEventListener("click", (event) => event.stopPropagation());
  line.addEventListener("pointerdown", (event) => {
    line.setPointerCapture(event.pointerId);
    event.stopPropagation();
    event.preventDefault();
  });
  line.addEventListener("pointermove", (event) => {
    if (!line.hasPointerCapture(event.pointerId)) return;
    const x = event.clientX - plot.over.getBoundingClientRect().left;
    onstep(Math.max(0, plot.posToVal(x, "x")));
  });
}
