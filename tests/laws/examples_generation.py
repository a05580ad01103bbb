"""One small call of each study of generation."""

import glauber

EXAMPLES = {
    "parallel_cost": lambda at: glauber.parallel_cost(
        at.model, at.texts[0], sites="1,2,5", samples=8, top=10
    ),
}
