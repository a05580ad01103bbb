"""Which sequences count as designs of a parent? Free positions, what may stand there, how many.

A position may always keep what its parent has: `omit` and `allow` are about what mutations bring.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from glauber.conditionals.base import Model
from glauber.conditionals.texts import Row
from glauber.conditionals.vocabulary import Vocabulary
from glauber.errors import GlauberError
from glauber.proteins.diversity import check_room
from glauber.proteins.mutations import read_positions
from glauber.proteins.parent import Parent, open_parent

Residues = Mapping[int, str] | str


class Asked(NamedTuple):
    """A parent with its free positions, before a model has read it."""

    parent: Row
    positions: list[int]
    allowed: dict[int, str]


class Space(NamedTuple):
    """Where the designs of a parent lie."""

    parent: Parent
    positions: list[int]  # that may change, counted from 1
    choices: list[list[int]]  # the other tokens that each of them may take
    budget: int
    size: int  # designs that there are
    forbid: list[str]
    allow: dict[int, list[int]]  # as the engine counts: sites from 0

    @property
    def columns(self) -> list[int]:
        return [self.parent.sites[position - 1] for position in self.positions]

    @property
    def tokens(self) -> Any:
        """What the parent has at the free positions, (positions,)."""
        return self.parent.tokens[self.columns].numpy()


def read_asked(given: Row, free: Any, allow: Residues, omit: str) -> Asked:
    """Reads positions and residues; nothing of it needs a model."""
    every = range(1, len(given.text) + 1)
    positions = list(every) if free is None else read_positions(free, given.text)
    allowed: dict[int, str] = {}
    for where, residues in _by_position(allow):
        for position in read_positions(where, given.text):
            if position in allowed:
                raise GlauberError(f"allow names position {position} twice.")
            if position not in positions:
                raise GlauberError(
                    f"position {position} has allowed residues, but it is not free: name it in "
                    "free too."
                )
            if not set(residues) - set(omit):
                raise GlauberError(
                    f"position {position} may change to {residues} only, which is omitted."
                )
            allowed[position] = residues
    return Asked(given, positions, allowed)


def _by_position(allow: Any) -> Iterator[tuple[Any, str]]:
    """(positions, residues) of `30-35:ST,99:AG` or of {30: "ST"}."""
    wrong = GlauberError(f"allow is {allow!r:.60}, but it must be such as 30-35:ST,99:AG.")
    if isinstance(allow, str):
        parts = [part.partition(":")[::2] for part in allow.split(",") if part.strip()]
    elif isinstance(allow, Mapping):
        parts = list(allow.items())
    else:
        raise wrong
    for where, residues in parts:
        spelled = read_residues("allow", residues)
        if not spelled or not str(where).strip():
            raise wrong
        yield (where if isinstance(where, str) else [where]), spelled


def read_residues(name: str, given: Any) -> str:
    """The letters of CM, C|M, or C,M, or of a list of them."""
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, Sequence) or not all(isinstance(one, str) for one in listed):
        raise GlauberError(f"{name} is {given!r:.60}, but it must be letters of residues.")
    return "".join(one for one in "".join(listed) if one not in ",| ")


def check_model(opened: Model) -> None:
    if not opened.vocabulary.text.letters:
        raise GlauberError(
            f"design counts residues, one letter each, but {opened.name} reads words: `glauber "
            "sample` with --allow and --max-changes keeps texts to constraints."
        )


def design_space(
    model: Model, asked: Asked, omit: str, mutations: int | None, designs: int, distance: int
) -> Space:
    """What may stand where, with the parent's own residues; refuses what cannot be."""
    parent = open_parent(model, asked.parent)
    vocabulary, known = model.vocabulary, model.vocabulary.proposable()
    for position in asked.positions:
        letter = parent.letters[position - 1]
        if not known[vocabulary.token(letter)]:
            raise GlauberError(
                f"the parent has {letter!r} at position {position}, which is never drawn: leave "
                "that position out of the free ones."
            )
    never = {_token(vocabulary, known, one, "omit") for one in omit}
    usual = set(known.nonzero()[:, 0].tolist()) - never
    stay = {int(parent.tokens[parent.sites[position - 1]]) for position in asked.positions} & never
    choices, allow = [], {}
    for position in asked.positions:
        own = int(parent.tokens[parent.sites[position - 1]])
        named = asked.allowed.get(position)
        other = usual if named is None else _tokens(vocabulary, known, named) - never
        choices.append(sorted(other - {own}))
        if named is not None or stay:
            allow[position - 1] = sorted(other | {own})
    budget = min(mutations or len(choices), len(choices))
    name = parent.name or "the parent"
    size = check_room(list(map(len, choices)), budget, designs, distance, f"{name:.60}")
    forbid = [vocabulary.spell(token) for token in sorted(never - stay)]
    return Space(parent, asked.positions, choices, budget, size, forbid, allow)


def _tokens(vocabulary: Vocabulary, known: Any, residues: str) -> set[int]:
    return {_token(vocabulary, known, one, "allow") for one in residues}


def _token(vocabulary: Vocabulary, known: Any, residue: str, what: str) -> int:
    letters = vocabulary.text.letters
    if residue not in letters or not known[vocabulary.token(residue)]:
        raise GlauberError(f"{what} names {residue!r}, which is no residue that the model draws.")
    return int(vocabulary.token(residue))
