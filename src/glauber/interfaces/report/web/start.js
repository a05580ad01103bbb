// The page beside a server: everything is asked there.

import { mount } from "./app.js";
import { httpLink } from "./link.js";

mount(document.getElementById("page"), httpLink("./"));
