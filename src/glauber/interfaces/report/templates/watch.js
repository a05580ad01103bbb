// The run to be watched; where it cannot be, the page says so and the texts below stay.
(function () {
  const root = document.getElementById("player");
  root.parentElement.hidden = false;
  const player = {{ player | safe }};
  player.watch(root, document.getElementById("run").textContent).catch((error) => {
    root.textContent = "The run cannot be played here: " + error.message;
  });
})();
