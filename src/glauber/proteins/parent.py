"""What are a parent and its variants, as the model reads them?"""

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from glauber.conditionals.base import Model
from glauber.conditionals.starts import readable, starts
from glauber.conditionals.texts import Row, suffix_of
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.proteins.fasta import TABLES, as_file, check_letters, read_sequences
from glauber.proteins.mutations import Mutations, apply, are_mutations, differences, read_mutations
from glauber.proteins.order_scores import Changed
from glauber.result import counted, model_parts


class Parent(NamedTuple):
    """The parent as the model reads it."""

    model: Model
    tokens: Tensor  # (length,)
    sites: list[int]  # columns of its letters
    letters: list[str]
    name: str

    @property
    def spelled(self) -> str:
        return str(self.model.vocabulary.decode(self.tokens.tolist()))

    @property
    def kind(self) -> str:
        return f"exact up to rounding in {self.model.dtype}"

    def parts(self) -> Record:
        """What a signature says."""
        kind = "letters" if self.model.vocabulary.text.letters else "tokens"
        return {**model_parts(self.model), "parent": self.name or f"{len(self.letters)} {kind}"}


def read_parent(given: str | Path) -> Row:
    """The one sequence that was given, with its name."""
    if not isinstance(given, str | Path):
        raise GlauberError(f"the parent is {given!r:.60}, but it must be one sequence or a file.")
    found = read_sequences(given)
    if len(found) > 1:
        raise GlauberError(
            f"one parent is needed, but {counted(len(found), 'sequence')} were given."
        )
    return found[0]


def read_variants(given: Any, column: str | None) -> list[Row]:
    """What was given, each as mutations or as a whole sequence, with its name."""
    if isinstance(given, str | Path):
        path = as_file(given)
        if path is not None and suffix_of(path) in TABLES:
            return read_sequences(path, column=column)
        if path is None and not str(given).lstrip().startswith(">"):
            parts = [part.strip() for part in str(given).replace(";", ",").split(",")]
            if all(map(are_mutations, filter(None, parts))):
                given = [part for part in parts if part]
    return read_sequences(given)


def open_parent(model: Model, parent: Row) -> Parent:
    """The tokens and letters of a parent."""
    check_letters(model.vocabulary, parent.text, f"the parent {parent.id}".rstrip())
    tokens, free = starts(model, [parent.text])
    sites = free[0].nonzero()[:, 0].tolist()
    letters = [model.vocabulary.spell(int(tokens[0, site])) for site in sites]
    return Parent(model, tokens[0], sites, letters, parent.id)


def mutations_of(parent: Parent, given: Row) -> Mutations:
    """The mutations that a variant is, whichever way it was given."""
    if are_mutations(given.text):
        found = read_mutations(given.text)
        apply(parent.letters, found)
        return found
    name = f"the variant {given.id!r:.60}" if given.id else f"variant {given.number}"
    vocabulary = parent.model.vocabulary
    check_letters(vocabulary, given.text, name)
    (text,) = readable(vocabulary, [given.text], [name])
    letters = [vocabulary.spell(token) for token in vocabulary.pieces(text)]
    return differences(parent.letters, letters, name)


def changed_tokens(parent: Parent, mutations: Mutations) -> Changed:
    """The changed columns with their tokens, old and new."""
    sites = [parent.sites[one.position - 1] for one in mutations]
    allowed = parent.model.vocabulary.proposable()
    new = []
    for one in mutations:
        token = parent.model.vocabulary.token(one.new)
        if not bool(allowed[token]):
            raise GlauberError(f"the mutation {one} puts {one.new!r}, which is never proposed.")
        new.append(token)
    return Changed(tuple(sites), tuple(int(parent.tokens[site]) for site in sites), tuple(new))
