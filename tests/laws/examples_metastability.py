"""Small calls of the studies of traps and basins."""

import glauber

EXAMPLES = {
    "traps": lambda at: glauber.traps(
        at.run, window=20, stride=5, shortest=8, threshold=0.5, embedder="tokens"
    ),
    "quoted_traps": lambda at: glauber.quoted_traps(at.model),
    "basins": lambda at: glauber.basins(at.run, every=2, lag=2, clusters=3, embedder="tokens"),
}
