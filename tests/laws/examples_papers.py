"""Small calls of the papers' pieces."""

import glauber

EXAMPLES = {"paper": lambda at: glauber.paper("B-lemma3")}
