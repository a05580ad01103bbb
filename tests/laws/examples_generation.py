"""One small call of each study of generation."""

import glauber

EXAMPLES = {
    "parallel_cost": lambda at: glauber.parallel_cost(
        at.texts[0], at.model, sites="1,2,5", samples=8, top=10
    ),
}
