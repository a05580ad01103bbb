// The page inside a notebook: everything is asked of the kernel.

import { mount } from "./app.js";
import { widgetLink } from "./link.js";
import { decodeState } from "./permalink.js";

export function render({ model, el }) {
  const root = document.createElement("div");
  root.style.minHeight = "auto"; // a cell is as high as what stands in it
  el.append(root);
  mount(root, widgetLink(model), decodeState(model.get("link")));
}
