"""One small call of every study about Ising models."""

import glauber

EXAMPLES = {
    "ising.fit": lambda at: glauber.ising.fit(sites=3, samples=500),
    "ising.covariance": lambda at: glauber.ising.covariance(sites=3, adaptive=True),
    "ising.errors": lambda at: glauber.ising.errors(sites=3, samples=[500, 1000], repetitions=2),
    "ising.bound": lambda at: glauber.ising.bound(sequences=[1000], masks=1000),
    "ising.gap": lambda at: glauber.ising.gap(sites=4, clique=3, couplings=[0, 0.3], search=True),
    "ising.amplification": lambda at: glauber.ising.amplification(
        sites=2, couplings=[0.2], repetitions=3
    ),
    "ising.race": lambda at: glauber.ising.race(couplings=[0.5], blocks=[1, 4], budget=50),
    "ising.separation": lambda at: glauber.ising.separation(),
}
