"""One small call of each study of mixing."""

import glauber

EXAMPLES = {
    "influence": lambda at: glauber.influence(
        at.model, at.texts[0], samples=2, replacements=2, chains=2, against=[1.0, 2.0]
    ),
    "couple": lambda at: glauber.couple(
        at.model, at.texts, pairs=3, length=4, steps=20, temperature=5.0, lag=2, alpha=0.5
    ),
    "phase": lambda at: glauber.phase(
        at.model, at.texts, temperatures=[0.5, 5.0], lengths=[3, 4], pairs=2, steps=10
    ),
    "semantic_drift": lambda at: glauber.semantic_drift(at.run, embedder="tokens", every=5),
    "coherence": lambda at: glauber.coherence(at.run, every=5),
    "diagnose": lambda at: glauber.diagnose(at.run, burn_in=0),
    "unbiased": lambda at: glauber.unbiased(
        at.model, at.texts[0], pairs=3, temperature=20.0, steps=60, first=2, last=5, lag=2
    ),
    "scan_bias": lambda at: glauber.scan_bias(at.model, at.texts[0], sites=[1, 2], tokens=4),
}
