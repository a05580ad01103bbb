"""What does a rectangle look like to a reader? Four sentences, and two ways round that disagree."""

from collections.abc import Callable
from dataclasses import dataclass

from glauber.compatibility.rectangles import Rectangles
from glauber.conditionals.vocabulary import Vocabulary


@dataclass(frozen=True)
class Reading:
    """One rectangle in words: the four corners as sentences, and the two ways round."""

    delta: float
    sites: tuple[int, int]
    changes: tuple[tuple[str, str], tuple[str, str]]  # (a, a') and (b, b'), as they are spelled
    corners: tuple[str, str, str, str]  # a b; a' b; a b'; a' b'
    one_way: float  # log-ratio from a b to a' b' by way of a' b
    other_way: float  # by way of a b'; the two are equal under a joint law


def read_rectangle(found: Rectangles, which: int, words: Vocabulary) -> Reading:
    """The rectangle of that number in words."""
    ratios = found.log_ratios[which].tolist()
    sites = found.sites[which].tolist()
    spell: Callable[[int], str] = words.text.spell
    olds = found.tokens[which, sites].tolist()
    news = found.values[which].tolist()
    first, second = ((spell(old), spell(new)) for old, new in zip(olds, news, strict=True))
    ab, a_new, b_new, both = (words.decode(row.tolist()) for row in found.corners[which])
    return Reading(
        delta=float(found.delta[which]),
        sites=(sites[0], sites[1]),
        changes=(first, second),
        corners=(ab, a_new, b_new, both),
        one_way=ratios[0] + ratios[1],
        other_way=ratios[2] + ratios[3],
    )
