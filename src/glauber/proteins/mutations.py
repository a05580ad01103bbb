"""How are changes of a sequence written? `S31T`, `A23G:Y45F`; residues are counted from 1.

A letter is what one token spells: a residue, or a word of a text (`cat2dog`). What stands in the
parent is part of the spelling, so that a wrong parent or a shifted count is noticed.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from glauber.errors import GlauberError
from glauber.proteins.regions import positions

ONE = re.compile(r"([^\d\s:,;]+)(\d+)([^\d\s:,;]+)")


class Mutation(NamedTuple):
    """One letter in the place of another; positions are counted from 1."""

    old: str
    position: int
    new: str

    def __str__(self) -> str:
        return f"{self.old}{self.position}{self.new}"


Mutations = tuple[Mutation, ...]


def spelled_mutations(mutations: Iterable[Mutation]) -> str:
    """The usual spelling, such as A23G:Y45F, in the order of positions."""
    return ":".join(str(one) for one in sorted(mutations, key=lambda one: one.position))


def are_mutations(text: str) -> bool:
    """Whether a text is meant as mutations and not as a sequence: one word with a number in it."""
    return len(text.split()) == 1 and any(one.isdigit() for one in text)


def read_mutations(text: str) -> Mutations:
    """The mutations of `A23G:Y45F`, in the order of positions."""
    found = [_read_one(part, text) for part in text.strip().split(":")]
    places = [one.position for one in found]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise GlauberError(f"the variant {text.strip()!r:.60} changes position {twice} twice.")
    return tuple(sorted(found, key=lambda one: one.position))


def _read_one(part: str, whole: str) -> Mutation:
    read = ONE.fullmatch(part)
    if read is None or len(read[2]) > 9:
        raise GlauberError(
            f"{part!r:.60} in the variant {whole.strip()!r:.60} is no mutation such as S31T: the "
            "parent's letter, the position from 1, the new letter."
        )
    return Mutation(read[1], int(read[2]), read[3])


def apply(parent: Sequence[str], mutations: Mutations) -> list[str]:
    """The letters of the parent with the mutations made; each must fit the parent."""
    found = list(parent)
    for one in mutations:
        check_position(one.position, len(parent), f"the mutation {one}")
        stands = parent[one.position - 1]
        if stands != one.old:
            raise GlauberError(
                f"the mutation {one} is about {one.old!r} at position {one.position}, but the "
                f"parent has {stands!r} there."
            )
        if one.new == one.old:
            raise GlauberError(f"the mutation {one} changes nothing.")
        found[one.position - 1] = one.new
    return found


def differences(parent: Sequence[str], other: Sequence[str], name: str) -> Mutations:
    """The mutations that make the other sequence, of the same length, from the parent."""
    if len(parent) != len(other):
        raise GlauberError(
            f"{name} has {len(other)} letters, but the parent has {len(parent)}: insertions and "
            "deletions have no score here."
        )
    both = enumerate(zip(parent, other, strict=True), 1)
    return tuple(Mutation(old, place, new) for place, (old, new) in both if old != new)


def check_position(position: int, length: int, what: str) -> None:
    """Refuses positions that the parent does not have."""
    if not 1 <= position <= length:
        raise GlauberError(
            f"{what} is about position {position}, but the parent has positions 1 to {length}."
        )


def read_positions(listed: str | Iterable[int], letters: Sequence[str]) -> list[int]:
    """Positions from 1 in rising order, of `97-109,31`, of loops such as H3, or of a list."""
    if isinstance(listed, str):
        residues = all(len(letter) == 1 for letter in letters)
        return positions("".join(letters) if residues else "X" * len(letters), listed)
    found = set()
    for one in listed:
        if isinstance(one, bool) or not hasattr(one, "__index__"):
            raise GlauberError(f"{one!r:.60} is no position: positions are whole numbers from 1.")
        check_position(int(one), len(letters), "the list of positions")
        found.add(int(one))
    if not found:
        raise GlauberError("no position was named: give some, such as 97-109,31.")
    return sorted(found)
