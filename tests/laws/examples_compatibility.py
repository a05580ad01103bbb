"""One small call of each study of compatibility, and of the two certificates of metastability."""

import glauber

EXAMPLES = {
    "rectangles": lambda at: glauber.rectangles(at.model, at.texts, count=12, length=5, top=10),
    "single_mask": lambda at: glauber.single_mask(
        at.model, at.texts, count=3, length=5, top=3, chains=3, steps=40
    ),
    "entropy_production": lambda at: glauber.entropy_production(at.run, burn_in=10),
    "potential": lambda at: glauber.potential(at.run, states=20, burn_in=10),
    "score": lambda at: glauber.score(at.model, at.texts),
    "likelihood_bound": lambda at: glauber.likelihood_bound(
        at.model, at.texts, samples=3, orders=2
    ),
    "margins": lambda at: glauber.margins(at.model, at.texts[0], temperature=0.5),
    "drift": lambda at: glauber.drift(
        at.model, at.texts, token="the", count=1, levels=1, samples=6, length=5
    ),
}
