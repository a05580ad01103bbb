// The pictures' code travels compressed: unpack it, then draw each figure in its place.
(async function () {
  const figures = Array.from(document.querySelectorAll("script[data-figure]"));
  const place = (figure) => document.getElementById(figure.dataset.figure);
  const say = (text) => figures.forEach((figure) => {
    place(figure).classList.add("missing");
    place(figure).textContent = text;
  });
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
    for (const figure of figures) {
      const { data, layout } = JSON.parse(figure.textContent);
      // In a narrow picture the buttons would cover its title; dragging zooms there too.
      const wide = place(figure).clientWidth > 480;
      const config = { responsive: true, displaylogo: false, displayModeBar: wide && "hover" };
      await Plotly.newPlot(place(figure), data, layout, config);
    }
  } catch (error) {
    say("The pictures cannot be drawn: " + error.message);
  }
})();
