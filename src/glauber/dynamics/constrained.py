"""Chains that keep to a budget of changes, and sites that are tied to one token.

Budget: at most B sites may differ from the chain's own start. The heat bath on that ball: at site
i, with d other sites that differ, any token if d < B, else the start's own. While the budget is
kept such a forced site holds the start's token already (d is B there), so nothing changes and the
model is not evaluated; the event has log-probability 0 and entropy 0, those of a point mass.
Choosing among the m(x) movable sites only would need an acceptance of min(1, m(x) / m(y)) to keep
the distribution: fewer steps, but no more moves for the same number of model evaluations.

Ties: the sites of a group always have the same token, and a step redraws all of them, from

    log p(all = v | rest) = sum over j of log p(site j = v | sites before j = v, later ones hidden,
                                                rest),

the chain rule at temperature 1, exact where the conditionals have a joint distribution. It is then
divided by the temperature as scores are. It costs 1 + (k - 1) x (tokens) rows for k sites.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from glauber.dynamics.draws import Drawn, Fill
from glauber.dynamics.glauber import glauber, place
from glauber.dynamics.kernel import Info, Kernel, Noise, State
from glauber.dynamics.scans import Scan
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Conditionals, Model
from glauber.models.base_model import BaseModel
from glauber.models.batching import rows_at_once
from glauber.models.load import load
from glauber.texts.constraints import (
    Allow,
    Bias,
    Constraints,
    at_column,
    by_site,
    read_constraints,
)
from glauber.texts.starts import positions_of, starts

MOST_TOKENS = 256  # that a tied group may draw from: each costs a row for every site but one


@dataclass(frozen=True, eq=False)
class Group:
    """Sites that always have the same token."""

    columns: tuple[int, ...]
    tokens: Tensor  # (tokens,) int64: those that every site may hold
    bias: Tensor  # (tokens,) float64: the sum over the sites

    def scores(self, joint: Conditionals, tokens: Tensor) -> Tensor:
        """Scores (rows, vocab) float64 of the tokens of the whole group; -inf at others."""
        each = 8 * joint.vocab_size * len(self.columns) * len(self.tokens)
        log_probs = [self._some(joint, rows) for rows in tokens.split(rows_at_once(each))]
        scores = log_probs[0].new_full((len(tokens), joint.vocab_size), -torch.inf)
        scores[:, self.tokens] = torch.cat(log_probs) + self.bias
        return scores

    def _some(self, joint: Conditionals, tokens: Tensor) -> Tensor:
        """The chain rule, (rows, tokens)."""
        sites = torch.tensor(self.columns, device=tokens.device)
        total = _log_probs(joint, tokens, sites)[:, self.tokens]
        group_tokens = self.tokens.repeat(len(tokens))
        wide = tokens.repeat_interleave(len(self.tokens), dim=0)
        for slot in range(1, len(sites)):
            wide[:, sites[slot - 1]] = group_tokens
            log_prob = _log_probs(joint, wide, sites[slot:]).gather(1, group_tokens[:, None])
            total = total + log_prob.view_as(total)
        return total


def _log_probs(joint: Conditionals, tokens: Tensor, sites: Tensor) -> Tensor:
    """Of the first of the sites, all of them hidden: (rows, vocab) float64."""
    scores = joint.scores(tokens, sites.expand(len(tokens), -1))[:, 0]
    return torch.log_softmax(scores.to(tokens.device).double(), dim=-1)


@dataclass(frozen=True, eq=False)
class Limits:
    """A budget of changes and tied groups, for all chains of a run."""

    starts: Tensor  # (chains, length): tokens of every chain of the run, by its number
    budget: int | None = None
    groups: tuple[Group, ...] = ()
    joint: Conditionals | None = None  # over its whole vocabulary, for the chain rule

    @property
    def size(self) -> int:
        """Sites of the largest group."""
        return max((len(group.columns) for group in self.groups), default=1)

    @cached_property
    def members(self) -> Tensor:
        """The sites redrawn with a chosen one, (length, size), PAD after them; itself first."""
        length, device = self.starts.shape[1], self.starts.device
        members = torch.full((length, self.size), PAD, device=device)
        members[:, 0] = torch.arange(length, device=device)
        for group in self.groups:
            members[group.columns[0], : len(group.columns)] = torch.tensor(group.columns).to(device)
        return members

    @cached_property
    def leading(self) -> Tensor:
        """Sites that can be chosen, (length,) bool: of a group the first."""
        leading = torch.ones(self.starts.shape[1], dtype=torch.bool, device=self.starts.device)
        for group in self.groups:
            leading[list(group.columns[1:])] = False
        return leading

    def exhausts_budget(self, state: State, sites: Tensor) -> Tensor:
        """Whether the budget leaves the start's token only, (chains,), for sites (chains, size)."""
        if self.budget is None:
            return torch.zeros(len(sites), dtype=torch.bool, device=sites.device)
        differs = state.tokens != self.starts[state.chain]
        used = sites != PAD
        own = (differs.gather(1, sites.clamp(min=0)) & used).sum(dim=1)
        return differs.sum(dim=1) - own + used.sum(dim=1) > self.budget

    def is_forced(self, state: State) -> Callable[[int, bytes], bool]:
        """The same for the chains of a state and the rows of a memo, given as their keys."""
        starts = self.starts[state.chain].cpu().numpy().astype(np.int32)

        def is_full(chain: int, key: bytes) -> bool:
            differs = np.frombuffer(key, np.int32, starts.shape[1]) != starts[chain]
            # The hidden site is one of those that differ.
            return self.budget is not None and int(np.count_nonzero(differs)) > self.budget

        return is_full


@dataclass(frozen=True, eq=False)
class Ball:
    """The conditionals of a chain that may differ from its start (length,) at `budget` sites.

    For one hidden site a row, which is what the chain itself evaluates.
    """

    base: Conditionals
    start: Tensor
    budget: int

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        if sites.shape[1] > 1 or candidates is not None:
            raise GlauberError(
                "max-changes is known to studies that ask about whole conditionals of one site."
            )
        if tokens.shape[1] != len(self.start):
            raise GlauberError(
                f"max-changes counts from a start of {len(self.start)} tokens with the special "
                f"ones, but a text has {tokens.shape[1]}."
            )
        scores = self.base.scores(tokens, sites)
        start = self.start.to(tokens.device)
        differs = tokens != start
        others = differs.sum(dim=1) - differs.gather(1, sites)[:, 0].long()
        full = (others >= self.budget).to(scores.device)[:, None, None]
        every = torch.arange(self.vocab_size, device=scores.device)
        own = every == start[sites].to(scores.device)[..., None]
        # A start that is never proposed stays where it is until there is room to leave it.
        scores = torch.where(full & own & (scores == -torch.inf), 0.0, scores)
        return scores.masked_fill(full & ~own, -torch.inf)


def tied_group(
    conditionals: Conditionals, columns: tuple[int, ...], names: str, *, device: torch.device
) -> Group:
    """The group of these columns, with what all of its sites may hold."""
    sets, biases = zip(*(at_column(conditionals, column) for column in columns), strict=True)
    allowed = torch.stack(sets).all(dim=0)
    count = int(allowed.sum())
    if count == 0:
        raise GlauberError(f"the tied sites {names} have no allowed token in common.")
    if count > MOST_TOKENS:
        raise GlauberError(
            f"the tied sites {names} may hold {count:,} tokens, and each is weighed by itself: "
            f"allow at most {MOST_TOKENS} there."
        )
    bias = torch.stack(biases).sum(dim=0)[allowed]
    return Group(columns, allowed.nonzero()[:, 0].to(device), bias.to(device))


def constrained_kernel(
    conditionals: Conditionals,
    limits: Limits,
    *,
    scan: Scan,
    fill: Fill,
    one_shape: bool | None = None,
) -> Kernel:
    """The kernel of single-site dynamics, or of one group, that keeps to a budget and to ties.

    one_shape asks about forced sites with the others, as a recorded step must (default: on CUDA).
    """
    check_scan(scan)
    plain = glauber(conditionals, scan=scan, fill=fill)

    def step(state: State, noise: Noise) -> tuple[State, Info]:
        chosen = state._replace(free=state.free & limits.leading)
        leading = scan.choose(conditionals, chosen, noise.order)
        members = limits.members[leading[:, 0].clamp(min=0)]
        sites = members.masked_fill(leading == PAD, PAD)
        forced = limits.exhausts_budget(state, sites)
        all_rows = state.tokens.is_cuda if one_shape is None else one_shape
        if all_rows and not limits.groups:
            info = _unless(forced, _no_change(state, sites), plain.step(chosen, noise)[1])
        else:
            info = by_rows(chosen, noise, sites, forced)
        tokens = place(state.tokens, info.sites, info.tokens)
        return state._replace(tokens=tokens, step=state.step + 1), info

    def by_rows(state: State, noise: Noise, sites: Tensor, forced: Tensor) -> Info:
        """Evaluates the sites that can move, and no others."""
        info = _no_change(state, sites)
        left = ~forced
        for group in limits.groups:
            mine = left & (sites[:, 0] == group.columns[0])
            rows, left = mine.nonzero()[:, 0], left & ~mine
            if len(rows):
                drawn = _whole(limits, group, fill, state.rows(rows), noise.fill[rows, 0])
                _put(info, rows, drawn, len(group.columns))
        rows = left.nonzero()[:, 0]
        if len(rows):
            some = Noise(noise.order[rows], noise.fill[rows])
            redrawn = plain.step(state.rows(rows), some)[1]
            drawn = Drawn(
                redrawn.tokens, redrawn.log_prob_old, redrawn.log_prob_new, redrawn.entropy
            )
            _put(info, rows, drawn, 1)
        old = state.tokens.gather(1, sites.clamp(min=0))
        return info._replace(changed=(sites != PAD) & (info.tokens != old))

    if plain.lookup is None or limits.groups:
        return Kernel(plain.draw, step)
    return Kernel(plain.draw, step, lookup=plain.lookup._replace(is_forced=limits.is_forced))


def _no_change(state: State, sites: Tensor) -> Info:
    """A step that changes nothing: each site drawn from the point mass at its token."""
    used = sites != PAD
    none = torch.where(used, 0.0, torch.nan).double()
    present = torch.where(used, state.tokens.gather(1, sites.clamp(min=0)), PAD)
    still = torch.zeros_like(used)
    return Info(sites, present, still, none, none.clone(), none.clone(), used)


def _unless(forced: Tensor, unchanged: Info, info: Info) -> Info:
    """held in the chains that are forced, info in the others."""
    pairs = zip(unchanged, info, strict=True)
    return Info(*(torch.where(forced[:, None], still, moved) for still, moved in pairs))


def _put(info: Info, rows: Tensor, drawn: Drawn, count: int) -> None:
    """Writes a draw, (rows, 1) each, over the first `count` slots of those rows.

    The draw is that of the first slot; given it the others hold a point mass.
    """
    info.tokens[rows, :count] = drawn.tokens.expand(-1, count)
    info.log_prob_old[rows, 0] = drawn.log_prob_old[:, 0]
    info.log_prob_new[rows, 0] = drawn.log_prob_new[:, 0]
    info.entropy[rows, 0] = drawn.entropy[:, 0]


def _whole(limits: Limits, group: Group, fill: Fill, state: State, bits: Tensor) -> Drawn:
    """The token of a whole group, drawn: (chains, 1) each."""
    assert limits.joint is not None
    scores = group.scores(limits.joint, state.tokens)
    drawn = fill.draw(scores, state.temperature, bits, state.tokens[:, group.columns[0]])
    return Drawn(*(part[:, None] for part in drawn))


def check_scan(scan: Scan) -> None:
    """Refuses scans that choose several sites, or by the state."""
    if not scan.is_single_and_blind:
        raise GlauberError(
            "max-changes and ties keep their distribution with one site a step, chosen blindly, "
            f"but the scan is {scan.name}: take uniform or sweep."
        )


class Constrained(BaseModel):
    """A model with constraints, for the studies that take a model: see `constrain`."""

    def __init__(self, model: Model, constraints: Constraints, start: str | None) -> None:
        self.model, self.asked, self.start = model, constraints, start
        self.name, self.vocab_size, self.vocabulary = model.name, model.vocab_size, model.vocabulary
        self.longest, self.length, self.texts = model.longest, model.length, model.texts
        self.hidden_token, self.whole_vocabulary = model.hidden_token, model.whole_vocabulary
        known = f"{model.fingerprint} {json.dumps(constraints.to_dict())} {start}"
        self._fingerprint = hashlib.sha256(known.encode()).hexdigest()  # of model and constraints

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return self.model.device

    @property
    def dtype(self) -> str:
        """The precision of the model's weights."""
        return self.model.dtype

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        """The constrained scores (rows, k, vocab or candidates)."""
        return self.conditionals().scores(tokens, sites, candidates)

    def conditionals(
        self, *, standard_only: bool = True, forbid: Iterable[str] = ()
    ) -> Conditionals:
        """What a constrained chain draws from."""
        conditionals: Conditionals = self.model.conditionals(
            standard_only=standard_only, forbid=forbid
        )
        if self.asked.allowed or self.asked.bias:
            first = positions_of(self.vocabulary.text, [0])[0]
            conditionals = by_site(self.asked, conditionals, self.vocabulary, first)
        if self.asked.budget is None:
            return conditionals
        return Ball(conditionals, starts(self.model, [str(self.start)])[0][0], self.asked.budget)

    def to(self, *, device: str | None = None, dtype: str | None = None) -> "Constrained":
        """The same model and constraints on another device or in another precision."""
        return Constrained(self.model.to(device=device, dtype=dtype), self.asked, self.start)


def constrain(
    model: str | Conditionals,
    *,
    allow: Allow = "",
    bias: Bias = "",
    max_changes: int | None = None,
    start: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> Constrained:
    """A model that keeps to constraints, for margins, influence, couple and other such studies.

    allow, bias and max_changes are those of `sample`; max_changes counts from the text `start`.
    """
    constraints = read_constraints(allow=allow, bias=bias, max_changes=max_changes)
    if (constraints.budget is None) != (start is None):
        raise GlauberError("max_changes and the start that it counts from are given together.")
    loaded = load(model, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    result = Constrained(loaded, constraints, start)
    result.conditionals()  # refuses unknown tokens
    return result
