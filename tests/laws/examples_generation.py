"""One small call of each study of generation."""

import glauber

EXAMPLES = {
    "calibrate": lambda at: glauber.calibrate(
        at.model, at.texts * 4, length=6, error=0.5, passes=1, samples=4, written=3
    ),
    "generate": lambda at: glauber.generate(
        at.model, length="4-6", prefix="the", chains=3, correct=1, out=at.folder / "run"
    ),
    "infill": lambda at: glauber.infill(at.model, "the [MASK:1-2] sat on [MASK] .", chains=2),
    "correction": lambda at: glauber.correction(
        at.model, at.texts[0], sites="1,2,4", correct=(0, 1), chains=4
    ),
    "frontier": lambda at: glauber.frontier(
        at.model, at.texts, length=4, chains=3, orders="confidence"
    ),
    "parallel_cost": lambda at: glauber.parallel_cost(
        at.model, at.texts[0], sites="1,2,5", samples=8, top=10
    ),
}
