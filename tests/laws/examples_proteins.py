"""One small call of each study of the proteins; a text's tokens are letters too."""

import glauber
from glauber.models.table import Table


class Residues:
    """A rule over five residues of four kinds; no joint law fits it."""

    vocab_size, vocabulary, length = 4, "ACDE", 5
    table = Table.random(4, 5, seed=0)

    def scores(self, tokens, sites):
        return self.table.scores(tokens, sites)


EXAMPLES = {
    "mutate": lambda at: glauber.mutate(
        at.model,
        "the cat sat on the mat .",
        ["cat2dog", "cat2dog:mat6tree", "the1a:sat3ran:on4under"],
        orders=4,
    ),
    "scan_mutations": lambda at: glauber.scan_mutations(Residues(), "ACDEA", positions="2-4"),
    "design": lambda at: glauber.design(
        Residues(), "ACDEA", free="1-4", omit="C", allow="4:AD", max_mutations=2, designs=6
    ),
}
