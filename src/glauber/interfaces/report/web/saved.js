// A page in one file: everything is answered from what it carries.

import { mount } from "./app.js";
import { storedFilm, storedLink, unpacked } from "./link.js";
import { make } from "./tokens.js";

export async function open(root, carried) {
  const answers = { ...carried.answers };
  if (carried.film) answers.film = storedFilm(await unpacked(carried.film));
  if (carried.bands) answers.bands = ({ kind }) => carried.bands[kind];
  mount(root, storedLink(answers), carried.state);
  root.firstElementChild.append(make("p", { class: "note" }, carried.note));
}
