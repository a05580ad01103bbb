// The pictures' code travels compressed: unpack it, then draw each figure in its place.
(async function () {
  const figures = Array.from(document.querySelectorAll("script[data-figure]"));
  const place = (figure) => document.getElementById(figure.dataset.figure);
  const say = (text) => figures.forEach((figure) => {
    place(figure).classList.add("missing");
    place(figure).textContent = text;
  });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const darker = JSON.parse(document.getElementById("dark").textContent);

  // A dark page draws ink as light and paper as dark; other colours get light enough to be seen.
  function light(colour) {
    if (colour in darker) return darker[colour];
    const rgb = /^#[0-9a-f]{6}$/i.test(colour)
      ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
      : /^rgba?\(/.test(colour) && colour.match(/[\d.]+/g).map(Number);
    if (!rgb) return colour;
    const [r, g, b, alpha] = rgb;
    if (alpha !== undefined) return `rgba(${r}, ${g}, ${b}, ${Math.min(1, 1.8 * alpha)})`;
    let seen = [r, g, b];
    while (luminance(seen) < 0.16) seen = seen.map((part) => part + 0.1 * (255 - part));
    return `rgb(${seen.map(Math.round).join(", ")})`;
  }

  function luminance(rgb) {
    const linear = (part) => (part <= 10 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2]);
  }

  // Colours stand under keys that say so; in a title, in its style. Texts are left alone.
  function themed(value, colour = false) {
    if (typeof value === "string") {
      if (colour) return light(value);
      return value.replace(/(<span style="[^"]*color: )(#\w{6})/g, (_, head, one) => head + light(one));
    }
    if (Array.isArray(value)) return value.map((one) => themed(one, colour));
    if (value === null || typeof value !== "object") return value;
    const named = (key) => colour || (/color/.test(key) && !/colorbar/.test(key));
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, themed(one, named(key))]));
  }

  // In a narrow picture a title gets more lines, and room for them; the legend goes below.
  function narrow(figure, width) {
    const { layout } = figure;
    const most = Math.floor((width - 20) / 7.2); // letters of a line
    const head = layout.title?.text ?? "";
    const title = wrapped(head, most);
    const more = 17 * (lines(title) - lines(head));
    const menus = (layout.updatemenus ?? []).map((menu) => ({ ...menu, buttons: menu.buttons.map((button) => {
      const [data, change] = button.args;
      return { ...button, args: [data, { ...change, "title.text": wrapped(change["title.text"] ?? "", most) }] };
    }) }));
    const legend = { ...layout.legend, yref: "container", y: 0.01, yanchor: "bottom" };
    const names = layout.showlegend === false ? 0 : figure.data.filter((one) => one.name && one.showlegend !== false).length;
    const below = 20 * Math.min(6, names);
    const data = figure.data.map((trace) => (crowded(trace, width) ? { ...trace, texttemplate: "" } : trace));
    return { ...figure, data, layout: {
      ...layout, legend, updatemenus: menus, title: { ...layout.title, text: title },
      height: layout.height + more + below, margin: { ...layout.margin, t: (layout.margin?.t ?? 0) + more },
    } };
  }

  // Whether texts in the cells of a heat map would run into each other; a touch shows them.
  function crowded(trace, width) {
    const rows = trace.texttemplate && (trace.text ?? trace.customdata);
    if (trace.type !== "heatmap" || !rows?.length) return false;
    const letters = trace.text ? Math.max(...trace.text.flat().flatMap((text) => text.split("<br>").map((line) => line.length))) : 4;
    return (0.65 * width) / rows[0].length < 6.5 * letters;
  }

  const lines = (text) => text.split("<br>").length;

  function wrapped(text, most) {
    const [, head, span, small, after] = /^(.*?)(<br><span[^>]*>)(.*)(<\/span>)$/s.exec(text) ?? [null, "", "", text, ""];
    const title = head && head.split("<br>").map((line) => filled(line, 0.82 * most)).join("<br>");
    return title + span + filled(small.replaceAll("<br>", " "), most) + after;
  }

  function filled(text, most) {
    const rows = [""];
    for (const word of text.split(" ")) {
      const longer = rows.at(-1) ? `${rows.at(-1)} ${word}` : word;
      if (longer.length > most && rows.at(-1)) rows.push(word);
      else rows[rows.length - 1] = longer;
    }
    return rows.join("<br>");
  }

  function look(given) {
    const { data, layout } = dark.matches ? themed(given) : structuredClone(given); // Plotly's own
    const clear = "rgba(0, 0, 0, 0)";
    const modebar = { bgcolor: clear, color: layout.legend?.font?.color, activecolor: layout.font?.color };
    return { data, layout: {
      ...layout, paper_bgcolor: clear, plot_bgcolor: layout.plot_bgcolor ?? clear, modebar,
      updatemenus: [], uirevision: "kept",
      title: { ...layout.title, y: 1 - 14 / (layout.height ?? 450) }, // whole also in low pictures
      // A finger that moves over a picture scrolls the page, until it is asked to zoom.
      dragmode: touch ? false : layout.dragmode,
    } };
  }

  // The menu of a figure as one that a keyboard reaches.
  function menu(at, given) {
    const buttons = given.layout.updatemenus?.[0]?.buttons;
    if (!buttons) return () => {};
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Chain");
    buttons.forEach((button, number) => select.add(new Option(button.label, String(number))));
    select.value = String(given.layout.updatemenus[0].active ?? 0);
    const choose = () => Plotly.update(at, ...(dark.matches ? themed : (x) => x)(buttons[+select.value].args));
    const chain = () => /^chain (\d+)$/.exec(buttons[+select.value].label)?.[1];
    select.addEventListener("change", () => {
      choose();
      if (chain()) document.dispatchEvent(new CustomEvent("choose", { detail: Number(chain()) }));
    });
    row(at).append(select);
    document.addEventListener("chain", (event) => {
      const number = buttons.findIndex((button) => button.label === `chain ${event.detail}`);
      if (number < 0 || select.value === String(number)) return;
      select.value = String(number);
      choose();
    });
    return choose;
  }

  function row(at) {
    if (!at.previousElementSibling?.classList.contains("choice")) {
      at.before(Object.assign(document.createElement("div"), { className: "choice" }));
    }
    return at.previousElementSibling;
  }

  function zoomButton(at, given) {
    if (!touch) return;
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Zoom" });
    button.addEventListener("click", () => {
      const on = button.textContent === "Zoom";
      button.textContent = on ? "Whole picture" : "Zoom";
      Plotly.relayout(at, on ? { dragmode: given.layout.dragmode ?? "zoom" } : { dragmode: false, ...limits(given.layout) });
    });
    row(at).append(button);
  }

  function limits(layout) {
    const axes = Object.entries(layout).filter(([key]) => /^[xy]axis\d*$/.test(key));
    return Object.fromEntries(axes.map(([key, axis]) => (
      axis.range ? [`${key}.range`, axis.range] : [`${key}.autorange`, axis.autorange ?? true]
    )));
  }

  async function draw(figure) {
    const at = place(figure);
    const whole = JSON.parse(figure.textContent);
    const given = at.clientWidth < 560 ? narrow(whole, at.clientWidth) : whole;
    // In a narrow picture the buttons would cover its title; dragging zooms there too.
    const wide = at.clientWidth > 480 && !touch;
    const config = {
      responsive: true, displaylogo: false, displayModeBar: wide && "hover", doubleClick: "reset",
    };
    const first = look(given);
    await Plotly.newPlot(at, first.data, first.layout, config);
    const choose = menu(at, given);
    zoomButton(at, given);
    dark.addEventListener("change", async () => {
      const { data, layout } = look(given);
      await Plotly.react(at, data, layout, config);
      choose();
    });
    at.on("plotly_click", ({ points: [point] }) => {
      const moment = /^chain (\d+) step (\d+)$/.exec(point.id ?? "");
      const detail = moment && { chain: +moment[1], step: +moment[2] };
      if (detail) document.dispatchEvent(new CustomEvent("moment", { detail }));
    });
  }

  if (typeof DecompressionStream === "undefined") {
    say("This browser is too old for the pictures: it cannot unpack compressed code.");
    return;
  }
  try {
    const packed = atob(document.getElementById("plotly").textContent.trim());
    const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(plain).text();
    document.head.appendChild(script);
    for (const figure of figures) await draw(figure);
  } catch (error) {
    say("The pictures cannot be drawn: " + error.message);
  }
})();
