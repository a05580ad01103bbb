"""One small call of each study of the proteins; a text's tokens are letters too."""

import glauber

EXAMPLES = {
    "mutate": lambda at: glauber.mutate(
        at.model,
        "the cat sat on the mat .",
        ["cat2dog", "cat2dog:mat6tree", "the1a:sat3ran:on4under"],
        orders=4,
    ),
}
