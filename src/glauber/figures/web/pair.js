// Do two texts that share their noise become one?
//
// A view is made by a function of page = { link, about, state, keep(state), say(sentence) }:
// state as decodeState gives it, keep replaces it in the address, say fills the status line.
// It returns { element, key(event) -> true where the key was used, close() }.

export function pairView(page) {
  const element = document.createElement("section");
  return { element, key: () => false, close: () => {} };
}
