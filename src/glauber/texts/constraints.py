"""Constraints: which tokens may stand where, how far a chain may go from its start, tied sites.

`Constraints` contains what a run keeps to, with sites as people count them. `BySite` is the part
that changes the conditionals: allowed tokens and biases by site. `Ball` is the rest of a single
chain: at most so many sites may differ from its start. docs/constraints.md derives the
distributions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import Record
from glauber.models.base import Conditionals, Restricted
from glauber.models.forward.checkpoint import Config
from glauber.models.vocabulary import Vocabulary
from glauber.texts.starts import read_sites

Token = str | int  # as it is spelled, or its number
Tokens = str | Sequence[Token]
Allow = Mapping[int, Tokens] | str
Bias = Mapping[int, Mapping[Token, float]] | str
Tie = Sequence[Sequence[int]] | str


@dataclass(frozen=True)
class Constraints:
    """What a run keeps to; sites are counted from 0, without special tokens and prefix."""

    allowed: Mapping[int, tuple[Token, ...]] = field(default_factory=dict)  # never another there
    bias: Mapping[int, tuple[tuple[Token, float], ...]] = field(default_factory=dict)
    budget: int | None = None  # sites that may differ from the chain's own start
    tied: tuple[tuple[int, ...], ...] = ()  # groups of sites that always have one token

    def __bool__(self) -> bool:
        return bool(self.allowed or self.bias or self.tied) or self.budget is not None

    @property
    def sites(self) -> list[int]:
        """Every site that is named."""
        return sorted({*self.allowed, *self.bias, *(site for group in self.tied for site in group)})

    def to_dict(self) -> Record:
        """As a run's header contains it, without what is absent."""
        record: Record = {
            "allowed": {str(site): list(tokens) for site, tokens in self.allowed.items()},
            "bias": {str(site): [list(pair) for pair in row] for site, row in self.bias.items()},
            "budget": self.budget,
            "tied": [list(group) for group in self.tied],
        }
        return {name: value for name, value in record.items() if value not in ({}, [], None)}

    @classmethod
    def from_dict(cls, record: Config | None) -> "Constraints":
        """Of a run's header; GlauberError for what `to_dict` does not write."""
        record = record or {}
        try:
            return read_constraints(
                allow={int(site): tokens for site, tokens in record.get("allowed", {}).items()},
                bias={int(site): dict(row) for site, row in record.get("bias", {}).items()},
                max_changes=record.get("budget"),
                tie=record.get("tied", ()),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise GlauberError("the constraints cannot be read.") from error


# ---- from what a person writes


def read_constraints(
    *, allow: Allow = "", bias: Bias = "", max_changes: int | None = None, tie: Tie = ""
) -> Constraints:
    """From the parameters of `sample`; refuses what contradicts itself. Needs no model."""
    if max_changes is not None:
        if not _is_whole(max_changes):
            raise GlauberError(
                f"max-changes is {max_changes!r:.60}, but it must be a whole number from 1."
            )
        if int(max_changes) == 0:
            raise GlauberError("max-changes is 0, so no token could ever change.")
    return Constraints(
        allowed={site: _tokens(text) for site, text in _by_site("allow", allow, "S|T").items()},
        bias={site: _biases(text) for site, text in _by_site("bias", bias, "S=1").items()},
        budget=None if max_changes is None else int(max_changes),
        tied=_groups(tie),
    )


def _is_whole(value: object) -> bool:
    """Whether a value is a whole number from 0."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and int(value) >= 0


def _by_site(name: str, sites_and_tokens: object, example: str) -> dict[int, object]:
    """The tokens of each site, from a mapping or from `3:…,5-7:…`."""
    if isinstance(sites_and_tokens, str):
        entries = [entry for entry in sites_and_tokens.split(",") if entry.strip()]
        pairs = [(entry.partition(":")[0], entry.partition(":")[2]) for entry in entries]
    elif isinstance(sites_and_tokens, Mapping):
        pairs = list(sites_and_tokens.items())
    else:
        raise GlauberError(
            f"{name} is {sites_and_tokens!r:.60}, but it must be such as {{3: 'S|T'}}."
        )
    by_site: dict[int, object] = {}
    for sites, tokens in pairs:
        if isinstance(tokens, str) and (not str(sites).strip() or not tokens.strip()):
            raise GlauberError(
                f"{name} is {sites_and_tokens!r:.60}, but it must be such as 3-5:{example}."
            )
        for site in read_sites(sites if isinstance(sites, str) else [sites]):
            if site in by_site:
                raise GlauberError(f"{name} names site {site} twice.")
            by_site[site] = tokens
    return by_site


def _tokens(listed: object) -> tuple[Token, ...]:
    spellings = [s.strip() for s in listed.split("|")] if isinstance(listed, str) else listed
    if not isinstance(spellings, Iterable):
        raise GlauberError(f"{listed!r:.60} is no list of tokens such as S|T.")
    tokens = tuple(spelling for spelling in spellings if spelling != "")
    if not tokens:
        raise GlauberError("a site has no allowed token, so nothing could ever be drawn there.")
    return tuple(map(_token, tokens))


def _biases(listed: object) -> tuple[tuple[Token, float], ...]:
    pairs: list[tuple[object, object]] = []
    if isinstance(listed, str):
        entries = [entry.rpartition("=") for entry in listed.split("|") if entry.strip()]
        pairs = [(token.strip(), value) for token, _, value in entries]
    elif isinstance(listed, Mapping):
        pairs = list(listed.items())
    if not pairs or any(token == "" for token, _ in pairs):
        raise GlauberError(f"{listed!r:.60} is no list of biases such as S=1|T=-0.5.")
    return tuple((_token(token), _finite(token, value)) for token, value in pairs)


def _token(token: object) -> Token:
    """A spelling, or a number from 0."""
    if isinstance(token, str) and token:
        return token
    if isinstance(token, str) or not _is_whole(token):
        raise GlauberError(f"{token!r:.60} is no token: give its spelling, or its number.")
    return int(cast(int, token))


def _finite(token: object, value: object) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(cast(float, value))
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise GlauberError(f"the bias of {token!r:.60} is {value!r}, but it must be a number.")
    return number


def _groups(tie: object) -> tuple[tuple[int, ...], ...]:
    """Groups from a list of lists, or from 3=9,4-6=10-12."""
    if isinstance(tie, str):
        groups = [group for part in tie.split(",") if part.strip() for group in _tie(part)]
    else:
        try:
            groups = [read_sites(list(group)) for group in cast(Sequence[Sequence[int]], tie)]
        except TypeError:
            raise GlauberError(f"tie is {tie!r:.60}, but it must be such as [[3, 9]].") from None
    seen: set[int] = set()
    for group in groups:
        if len(group) < 2:
            raise GlauberError("a tie is of two or more different sites, such as 3=9.")
        if seen & set(group):
            raise GlauberError(f"site {min(seen & set(group))} is in two ties: make them one.")
        seen |= set(group)
    return tuple(map(tuple, groups))


def _tie(part: str) -> list[list[int]]:
    ends = [read_sites(end) for end in part.split("=")]
    if len(ends) < 2 or not ends[0] or len({len(end) for end in ends}) > 1:
        raise GlauberError(f"{part.strip()!r} ties no sites: write 3=9, or 4-6=10-12.")
    return [sorted(set(sites)) for sites in zip(*ends, strict=True)]


# ---- in a model


@dataclass(frozen=True, eq=False)
class BySite:
    """The conditionals with allowed tokens, and with biases added to the scores, by site.

    which (columns,) says which row of allowed and bias belongs to a column of the tokens; row 0
    allows everything, and belongs to every column after the last.
    """

    base: Conditionals
    which: Tensor  # (columns,) int64
    allowed: Tensor  # (rows, vocab) bool
    bias: Tensor | None  # (rows, vocab) float64

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        scores = self.base.scores(tokens, sites, candidates)
        device = scores.device
        row = self.which.to(device)[sites.to(device).clamp(0, len(self.which) - 1)]
        allowed = _at_candidates(self.allowed.to(device), row, candidates)
        if self.bias is not None:  # in a coarse dtype a bias would be rounded away
            scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
            bias = self.bias.to(device, scores.dtype)
            scores = scores + _at_candidates(bias, row, candidates)
        return scores.masked_fill(~allowed, -torch.inf)


def _at_candidates(table: Tensor, row: Tensor, candidates: Tensor | None) -> Tensor:
    """The rows of a table, at the candidates where they are given: (rows, k, c)."""
    return table[row] if candidates is None else table[row[..., None], candidates]


def by_site(
    constraints: Constraints, base: Conditionals, vocabulary: Vocabulary, first: int
) -> BySite:
    """The conditionals with what a site allows and prefers; site 0 stands in column `first`."""
    sites = sorted({*constraints.allowed, *constraints.bias})
    which = torch.zeros(first + max(sites, default=-1) + 2, dtype=torch.int64)
    which[[first + site for site in sites]] = torch.arange(1, len(sites) + 1)
    allowed = torch.ones((len(sites) + 1, base.vocab_size), dtype=torch.bool)
    bias = torch.zeros(allowed.shape, dtype=torch.float64)
    device, known = proposable(base).device, proposable(base).cpu()
    for row, site in enumerate(sites, start=1):
        if site in constraints.allowed:
            tokens = _numbers(vocabulary, constraints.allowed[site], site, known)
            allowed[row] = torch.zeros_like(known).index_fill(0, torch.tensor(tokens), True)
        for token, value in constraints.bias.get(site, ()):
            bias[row, _numbers(vocabulary, [token], site, known)] += value
    biased = bias.to(device) if constraints.bias else None
    return BySite(base, which.to(device), allowed.to(device), biased)


def _numbers(
    vocabulary: Vocabulary, tokens: Iterable[Token], site: int, known: Tensor
) -> list[int]:
    """The numbers of tokens; letters written in a row are one token each."""
    numbers: list[int] = []
    for token in tokens:
        letters = vocabulary.text.letters
        if isinstance(token, int):
            numbers.append(token)
        elif len(token) > 1 and letters and all(letter in letters for letter in token):
            numbers += [vocabulary.token(letter) for letter in token]
        else:
            numbers.append(vocabulary.token(token))
    for number in numbers:
        if number >= len(known) or not bool(known[number]):
            raise GlauberError(
                f"site {site} is told of {vocabulary.spell(number)!r}, which is never proposed: "
                "it is forbidden, special or unused."
            )
    return numbers


def proposable(conditionals: Conditionals) -> Tensor:
    """Tokens that can be drawn anywhere, (vocab,) bool."""
    if isinstance(conditionals, BySite):
        return proposable(conditionals.base)
    if isinstance(conditionals, Restricted):
        return conditionals.allowed
    return torch.ones(conditionals.vocab_size, dtype=torch.bool)


def at_column(conditionals: Conditionals, column: int) -> tuple[Tensor, Tensor]:
    """What may be drawn in a column, (vocab,) bool, and its bias, (vocab,) float64."""
    allowed = proposable(conditionals)
    bias = torch.zeros(allowed.shape, dtype=torch.float64, device=allowed.device)
    if not isinstance(conditionals, BySite):
        return allowed, bias
    row = int(conditionals.which[min(column, len(conditionals.which) - 1)])
    allowed = allowed & conditionals.allowed[row]
    return allowed, bias if conditionals.bias is None else conditionals.bias[row]


# ---- in a start


def check_starts(
    constraints: Constraints,
    conditionals: Conditionals,
    vocabulary: Vocabulary,
    tokens: Tensor,
    free: Tensor,
    *,
    first: int,
    shortest: int,
) -> None:
    """Refuses constraints that the starts (chains, length) break, naming the site."""
    for site in constraints.sites:
        if site >= shortest:
            raise GlauberError(
                f"site {site} has a constraint, but a text has sites 0 to {shortest - 1} only."
            )
        frozen = not bool(free[:, first + site].all())
        if frozen and (site in constraints.bias or any(site in g for g in constraints.tied)):
            raise GlauberError(
                f"site {site} is frozen, so it can be neither biased nor tied to another."
            )
        if site in constraints.allowed:
            _check_allowed(conditionals, vocabulary, tokens, first + site, site)
    for group in constraints.tied:
        together = tokens[:, [first + site for site in group]]
        unequal = (together != together[:, :1]).any(dim=1).nonzero()[:, 0]
        if len(unequal):
            raise GlauberError(
                f"chain {int(unequal[0])} starts with different tokens at the tied sites "
                f"{'='.join(map(str, group))}."
            )
    _check_room(constraints, conditionals, tokens, free, first)


def _check_room(
    constraints: Constraints, conditionals: Conditionals, tokens: Tensor, free: Tensor, first: int
) -> None:
    """Refuses a budget within which no chain can move, or not leave tokens that are never drawn."""
    budget = constraints.budget
    if budget is None:
        return
    tied = sum(map(len, constraints.tied))
    if int(free.sum(dim=1).min()) == tied and budget < min(map(len, constraints.tied)):
        raise GlauberError(
            f"max-changes is {budget}, but every free site is tied to more, so nothing could move."
        )
    allowed = proposable(conditionals).cpu()
    strange = (free & ~allowed[tokens.clamp(min=0)]).sum(dim=1)
    if int(strange.max()) > budget:
        raise GlauberError(
            f"chain {int(strange.argmax())} starts with {int(strange.max())} tokens that are never "
            f"proposed, but max-changes is {budget}: it has no room to leave them."
        )


def _check_allowed(
    conditionals: Conditionals, vocabulary: Vocabulary, tokens: Tensor, column: int, site: int
) -> None:
    allowed = at_column(conditionals, column)[0].cpu()
    outside = (~allowed[tokens[:, column]]).nonzero()[:, 0]
    if len(outside):
        chain = int(outside[0])
        spelling = vocabulary.spell(int(tokens[chain, column]))
        raise GlauberError(
            f"chain {chain} starts with {spelling!r} at site {site}, which is not among the tokens "
            f"allowed there."
        )
