"""Positions and changes of a sequence: `97-109`, loops such as H3, `S31T`, `A23G:Y45F`.

Residues are counted from 1. A letter is what one token spells: a residue, or a word of a text
(`cat2dog`). A mutation spells the parent's letter too, so that a wrong parent or a shifted count
is noticed. The loops H1 to H3 and L1 to L3 need a numbering of the sequence, which ANARCII gives
(extra `proteins`); ranges need nothing.
"""

import contextlib
import io
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import torch

from glauber.foundation.errors import GlauberError
from glauber.foundation.study import one_of

if TYPE_CHECKING:
    from anarcii import Anarcii

MUTATION = re.compile(r"([^\d\s:,;]+)(\d{1,9})([^\d\s:,;]+)")
SCHEMES = ("imgt", "kabat")
# The first and last number of each loop; numbers with insertion letters lie between.
IMGT_SPANS = {"1": (27, 38), "2": (56, 65), "3": (105, 117)}
LOOPS = {
    "imgt": {f"{kind}{number}": span for kind in "HL" for number, span in IMGT_SPANS.items()},
    "kabat": {
        "H1": (31, 35),
        "H2": (50, 65),
        "H3": (95, 102),
        "L1": (24, 34),
        "L2": (50, 56),
        "L3": (89, 97),
    },
}
CHAINS = {"H": "heavy", "K": "light", "L": "light"}


# ---- mutations


class Mutation(NamedTuple):
    """One letter replaced by another; positions are counted from 1."""

    old: str
    position: int
    new: str

    def __str__(self) -> str:
        return f"{self.old}{self.position}{self.new}"


Mutations = tuple[Mutation, ...]


def spell_mutations(mutations: Iterable[Mutation]) -> str:
    """The usual spelling, such as A23G:Y45F, in the order of positions."""
    return ":".join(map(str, sorted(mutations, key=lambda mutation: mutation.position)))


def are_mutations(text: str) -> bool:
    """Whether a text is meant as mutations and not as a sequence: one word with a number in it."""
    return len(text.split()) == 1 and any(letter.isdigit() for letter in text)


def read_mutations(text: str) -> Mutations:
    """The mutations of `A23G:Y45F`, in the order of positions."""
    mutations = []
    for part in text.strip().split(":"):
        match = MUTATION.fullmatch(part)
        if match is None:
            raise GlauberError(
                f"{part!r:.60} in the variant {text.strip()!r:.60} is no mutation such as S31T: "
                "the parent's letter, the position from 1, the new letter."
            )
        mutations.append(Mutation(match[1], int(match[2]), match[3]))
    positions = [mutation.position for mutation in mutations]
    for position in positions:
        if positions.count(position) > 1:
            raise GlauberError(
                f"the variant {text.strip()!r:.60} changes position {position} twice."
            )
    return tuple(sorted(mutations, key=lambda mutation: mutation.position))


def apply_mutations(parent: Sequence[str], mutations: Mutations) -> list[str]:
    """The letters of the parent with the mutations made; each must fit the parent."""
    letters = list(parent)
    for mutation in mutations:
        position = mutation.position
        _check_position(position, len(parent), f"the mutation {mutation}")
        letter = parent[position - 1]
        if letter != mutation.old:
            raise GlauberError(
                f"the mutation {mutation} is about {mutation.old!r} at position {position}, but "
                f"the parent has {letter!r} there."
            )
        if mutation.new == mutation.old:
            raise GlauberError(f"the mutation {mutation} changes nothing.")
        letters[position - 1] = mutation.new
    return letters


def differences(parent: Sequence[str], other: Sequence[str], name: str) -> Mutations:
    """The mutations that make the other sequence, of the same length, from the parent."""
    if len(parent) != len(other):
        raise GlauberError(
            f"{name} has {len(other)} letters, but the parent has {len(parent)}: insertions and "
            "deletions have no score here."
        )
    pairs = enumerate(zip(parent, other, strict=True), 1)
    return tuple(Mutation(old, position, new) for position, (old, new) in pairs if old != new)


# ---- positions


def read_positions(listed: str | Iterable[int], letters: Sequence[str]) -> list[int]:
    """Positions from 1 in rising order, of `97-109,31`, of loops such as H3, or of a list."""
    if isinstance(listed, str):
        residues = all(len(letter) == 1 for letter in letters)
        return spelled_positions("".join(letters) if residues else "X" * len(letters), listed)
    positions = set()
    for position in listed:
        if isinstance(position, bool) or not hasattr(position, "__index__"):
            raise GlauberError(
                f"{position!r:.60} is no position: positions are whole numbers from 1."
            )
        _check_position(int(position), len(letters), "the list of positions")
        positions.add(int(position))
    if not positions:
        raise GlauberError("no position was named: give some, such as 97-109,31.")
    return sorted(positions)


def _check_position(position: int, length: int, what: str) -> None:
    if not 1 <= position <= length:
        raise GlauberError(
            f"{what} is about position {position}, but the parent has positions 1 to {length}."
        )


def spelled_positions(sequence: str, text: str, scheme: str = "imgt") -> list[int]:
    """The residues (from 1, rising) of ranges and loops such as `97-109` or `H1,H3,60`."""
    one_of("the numbering scheme", scheme, SCHEMES)
    positions: set[int] = set()
    for part in text.replace(" ", "").split(","):
        is_loop = part.upper() in LOOPS[scheme]
        positions |= set(
            _loop(sequence, part.upper(), scheme) if is_loop else _range(sequence, part)
        )
    return sorted(positions)


def _range(sequence: str, part: str) -> range:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
    if match is None:
        raise GlauberError(
            f"{part!r} names no residues: give ranges such as 97-109, or loops from H1 to L3."
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= len(sequence):
        raise GlauberError(
            f"the residues {part} are not there: the sequence has residues 1 to {len(sequence)}."
        )
    return range(first, last + 1)


# ---- antibody loops


def check_loops(positions: str) -> None:
    """Refuses a loop by its name without the package that it needs, before a model is loaded."""
    if any(part.strip().upper() in LOOPS["imgt"] for part in positions.split(",")):
        from glauber.foundation.extras import need

        need(
            "proteins",
            "a loop by its name",
            of=["anarcii"],
            otherwise="give ranges such as 97-109",
        )


def _loop(sequence: str, name: str, scheme: str) -> list[int]:
    check_loops(name)
    chain, numbers = numbering(sequence, scheme)
    wanted = "heavy" if name[0] == "H" else "light"
    if CHAINS[chain] != wanted:
        raise GlauberError(
            f"{name} is a loop of a {wanted} chain, but this is a {CHAINS[chain]} one."
        )
    first, last = LOOPS[scheme][name]
    residues = [residue for residue, number in numbers.items() if first <= number <= last]
    if not residues:
        raise GlauberError(f"the sequence has no residues in {name} by {scheme}.")
    return residues


@cache
def numbering(sequence: str, scheme: str = "imgt") -> tuple[str, dict[int, int]]:
    """The chain (H, K or L), and each numbered residue (from 1) with its number in the scheme.

    By ANARCII, a network that reads the sequence: an estimate, of few errors on variable domains.
    """
    answer = _ask_anarcii(sequence, scheme)
    chain = str(answer.get("chain_type"))
    if answer.get("error") or chain not in CHAINS:
        raise GlauberError("the sequence is not numbered as an antibody's: give ranges instead.")
    numbers = [number for (number, _), residue in answer["numbering"] if residue != "-"]
    first = int(answer["query_start"]) + 1
    return chain, {residue: int(number) for residue, number in enumerate(numbers, start=first)}


class Numbered(TypedDict, total=False):
    """What ANARCII says of a sequence."""

    chain_type: str
    error: str
    query_start: int
    numbering: list[tuple[tuple[int, str], str]]


def _ask_anarcii(sequence: str, scheme: str) -> Numbered:
    """ANARCII's answer for one sequence; it prints and sets torch's threads, which is undone."""
    threads = torch.get_num_threads()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            numberer = _numberer()
            answers = numberer.number([sequence])
            answers = answers if scheme == "imgt" else numberer.to_scheme(scheme)
    finally:
        torch.set_num_threads(threads)
    answer: Numbered = next(iter(answers.values()))
    return answer


@cache
def _numberer() -> "Anarcii":
    from anarcii import Anarcii

    return Anarcii(seq_type="antibody", mode="accuracy", cpu=True, ncpu=1, batch_size=1)
