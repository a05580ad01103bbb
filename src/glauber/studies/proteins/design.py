"""Designs near a parent that a model likes: new, apart from each other, ranked.

Chains start at the parent and redraw its free positions under the constraints of the engine
(docs/constraints.md), so that every state satisfies them. They are looked at once a sweep, and a
state is a design if it is not the parent and differs enough from the designs before it.

A design changes some of n free positions of its parent, at most `budget` of them; position i may
take c_i other residues. So there are e_1(c) + … + e_budget(c) designs, with e_j the elementary
symmetric polynomial: the sum over all j positions of the product of their choices. A position may
always have what its parent has: `omit` and `allow` are about what mutations bring.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from glauber.dynamics.kernel import Annealing
from glauber.foundation.checks import Whole
from glauber.foundation.disk import check_new
from glauber.foundation.errors import GlauberError
from glauber.foundation.parameters import ModelOrName, Seed, WhereAndDtype
from glauber.foundation.progress import say, track
from glauber.foundation.study import counted, internal, needed, reported, study
from glauber.models.base import Model
from glauber.models.load import load
from glauber.sampling.advance import Session, advance_chains
from glauber.sampling.plan import Plan, plan, read_temperature
from glauber.sampling.sample import begin
from glauber.studies.proteins.positions import (
    Mutation,
    read_positions,
    spell_mutations,
)
from glauber.studies.proteins.sequences import SequenceResult, read_sequences, write_bytes
from glauber.studies.proteins.variants import Parent, Variant, Variants, open_parent, score_variants
from glauber.texts.read import Row, fasta
from glauber.texts.starts import spell_sites

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_DESIGNS = 10_000  # of one parent: each is compared with all others
N_TEMPERATURES = 8  # from hot to cold, where only the two ends are given
STAGE_SWEEPS = 10  # at each temperature
MAX_PRINTED = 20  # designs
MAX_DRAWN = 8  # parents whose designs are drawn
FORGOTTEN = 0.95  # of the way to what is kept in the end: then the parent is forgotten
MIN_LOOKS = 4  # below which nothing is said about forgetting

Integers = NDArray[np.int64]
Residues = Mapping[int, str] | str


@study
def design(
    model: ModelOrName = "antibody",
    parents: Annotated[
        str | Path | Sequence[str] | None, "A sequence, or a FASTA file, also by gzip."
    ] = None,
    *,
    free: Annotated[
        Sequence[int] | str | None,
        "Positions that may change, such as 97-109,31 or H3, counted from 1 (default: all).",
    ] = None,
    omit: Annotated[str, "Residues that no mutation brings in, such as C."] = "",
    allow: Annotated[
        Residues, "The only residues that a position may change to, such as 30-35:ST,99:AG."
    ] = "",
    max_mutations: Annotated[
        int | None, "Positions that may differ from the parent.", Whole()
    ] = None,
    temperature: Annotated[
        float | Sequence[float], "One, or from hot to cold and again, such as 2,0.5."
    ] = 1.0,
    designs: Annotated[int, "Designs of each parent.", Whole(1, MAX_DESIGNS)] = 200,
    min_distance: Annotated[int, "Positions at which two designs differ, at least.", Whole()] = 1,
    chains: Annotated[int, "Chains that start at each parent.", Whole(1, 10**6)] = 16,
    steps: Annotated[int, "Steps of each chain, at most.", Whole(1, 10**12)] = 5000,
    orders: Annotated[
        int,
        "Orders of a design's score; all of them, exactly, where that costs no more rows.",
        Whole(1, 10**6),
    ] = 32,
    seed: Seed = 0,
    batch_size: Annotated[
        int | None, "Chains advanced together (default: all).", Whole(1, 10**12)
    ] = None,
    keep_run: Annotated[
        str | Path | None, "New folder for the chains' run, of one parent at one temperature."
    ] = None,
    **where: Unpack[WhereAndDtype],
) -> "Designs":
    """Design variants of proteins: new, apart from each other, ranked, within constraints.

    Chains of the model start at each parent and redraw its free positions until they met enough
    designs. A position may always keep what its parent has. Designs are ranked by the log-ratio to
    the parent, mean over the orders in which the changed residues can be filled in, with the
    standard deviation over these orders. --out writes .fasta, .csv, .parquet, .html (a page) or a
    folder with all of it.
    """
    temperatures, omit = read_temperatures(temperature), read_residues("omit", omit)
    if parents is None:
        needed("parent", parents)
    rows = read_sequences(parents)  # type: ignore[arg-type]
    if len(rows) > 1:
        rows = [row._replace(id=row.id or f"parent{row.number}") for row in rows]
    requests = [read_request(row, free, allow, omit) for row in rows]
    folder = None if keep_run is None else Path(str(keep_run))
    if folder is not None:
        if len(rows) > 1 or len(temperatures) > 1:
            raise GlauberError("a run is kept of one parent at one temperature only.")
        check_new(folder)
    loaded = load(model, exact=True, **where)
    if not loaded.vocabulary.text.letters:
        raise GlauberError(
            f"design counts residues, one letter each, but {loaded.name} reads words: `glauber "
            "sample` with --allow and --max-changes keeps texts to constraints."
        )
    spaces = [  # every parent is checked before any work
        design_space(loaded, request, omit, max_mutations, designs, min_distance)
        for request in requests
    ]
    families = []
    for number, space in enumerate(spaces):
        selection = DiverseSelection(space.tokens, designs, min_distance)
        planned = _plan(space, temperatures, chains, seed + number)
        history = _explore(planned, space, selection, steps, batch_size, folder)
        families.append(_rank(space, selection, history, orders, seed + number))
    return Designs(
        model=loaded.name,
        requested=designs,
        min_distance=min_distance,
        seed=seed,
        families=families,
    )


def read_temperatures(temperature: float | Sequence[float]) -> list[float]:
    """The temperatures that chains go through: one, those given, or a ladder between two."""
    temperatures = read_temperature(temperature)
    if isinstance(temperatures, float):
        return [temperatures]
    if any(hot <= cold for hot, cold in pairwise(temperatures)):
        raise GlauberError("temperatures of an annealing fall from hot to cold, such as 2,0.5.")
    if len(temperatures) == 2:
        return np.geomspace(temperatures[0], temperatures[1], N_TEMPERATURES).tolist()
    return temperatures


# ---- which sequences count as designs of a parent


class DesignRequest(NamedTuple):
    """A parent with its free positions, before a model has read it."""

    parent: Row
    positions: list[int]
    allowed: dict[int, str]


class DesignSpace(NamedTuple):
    """Where the designs of a parent lie."""

    parent: Parent
    positions: list[int]  # that may change, counted from 1
    choices: list[list[int]]  # the other tokens that each of them may take
    budget: int
    size: int  # possible designs
    forbid: list[str]
    allow: dict[int, list[int]]  # as the engine counts: sites from 0

    @property
    def columns(self) -> list[int]:
        return [self.parent.sites[position - 1] for position in self.positions]

    @property
    def tokens(self) -> Integers:
        """The parent's tokens at the free positions, (positions,)."""
        return np.asarray(self.parent.tokens[self.columns].numpy())

    @property
    def name(self) -> str:
        return self.parent.name or "the parent"


def read_request(
    parent: Row, free: Sequence[int] | str | None, allow: Residues, omit: str
) -> DesignRequest:
    """Reads positions and residues; nothing of it needs a model."""
    every = list(range(1, len(parent.text) + 1))
    positions = every if free is None else read_positions(free, parent.text)
    allowed: dict[int, str] = {}
    for spelled, residues in _residues_by_position(allow):
        for position in read_positions(spelled, parent.text):
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
    return DesignRequest(parent, positions, allowed)


def _residues_by_position(allow: Residues) -> Iterator[tuple[str | list[int], str]]:
    """(positions, residues) of `30-35:ST,99:AG` or of {30: "ST"}."""
    error = GlauberError(f"allow is {allow!r:.60}, but it must be such as 30-35:ST,99:AG.")
    if isinstance(allow, str):
        entries = [part.partition(":")[::2] for part in allow.split(",") if part.strip()]
    elif isinstance(allow, Mapping):
        entries = list(allow.items())  # type: ignore[arg-type]
    else:
        raise error
    for positions, residues in entries:
        spelled = read_residues("allow", residues)
        if not spelled or not str(positions).strip():
            raise error
        yield (positions if isinstance(positions, str) else [positions]), spelled


def read_residues(name: str, residues: str | Sequence[str]) -> str:
    """The letters of CM, C|M, or C,M, or of a list of them."""
    listed = [residues] if isinstance(residues, str) else residues
    if not isinstance(listed, Sequence) or not all(isinstance(part, str) for part in listed):
        raise GlauberError(f"{name} is {residues!r:.60}, but it must be letters of residues.")
    return "".join(letter for letter in "".join(listed) if letter not in ",| ")


def design_space(
    model: Model,
    request: DesignRequest,
    omit: str,
    max_mutations: int | None,
    designs: int,
    distance: int,
) -> DesignSpace:
    """What each position may take, with the parent's own residues; refuses what cannot be."""
    parent, positions = open_parent(model, request.parent), request.positions
    vocabulary, proposable = model.vocabulary, model.vocabulary.proposable()

    def token(residue: str, name: str) -> int:
        known = residue in vocabulary.text.letters and proposable[vocabulary.token(residue)]
        if not known:
            raise GlauberError(
                f"{name} names {residue!r}, which is no residue that the model draws."
            )
        return int(vocabulary.token(residue))

    for position in positions:
        letter = parent.letters[position - 1]
        if not proposable[vocabulary.token(letter)]:
            raise GlauberError(
                f"the parent has {letter!r} at position {position}, which is never drawn: leave "
                "that position out of the free ones."
            )
    own = {position: int(parent.tokens[parent.sites[position - 1]]) for position in positions}
    omitted = {token(residue, "omit") for residue in omit}
    usual = set(proposable.nonzero()[:, 0].tolist()) - omitted
    omitted_of_parent = (
        set(own.values()) & omitted
    )  # omitted residues that the parent has at free positions
    choices, allow = [], {}
    for position in positions:
        residues, others = request.allowed.get(position), usual
        if residues is not None:
            others = {token(residue, "allow") for residue in residues} - omitted
        choices.append(sorted(others - {own[position]}))
        if residues is not None or omitted_of_parent:
            allow[position - 1] = sorted(others | {own[position]})
    budget = min(max_mutations or len(choices), len(choices))
    name = f"{parent.name or 'the parent':.60}"
    size = _check_size([len(tokens) for tokens in choices], budget, designs, distance, name)
    forbid = [vocabulary.spell(token) for token in sorted(omitted - omitted_of_parent)]
    return DesignSpace(parent, positions, choices, budget, size, forbid, allow)


def count_designs(choices: Sequence[int], budget: int) -> int:
    """Sequences that differ from the parent at 1 to `budget` positions, exactly."""
    counts = [1] + [0] * min(budget, len(choices))  # counts[j] = e_j of the positions so far
    for choice in choices:
        for j in range(len(counts) - 1, 0, -1):
            counts[j] += choice * counts[j - 1]
    return sum(counts[1:])


def most_apart(choices: Sequence[int], budget: int, distance: int) -> int:
    """An upper bound of how many designs can differ from each other at `distance` positions.

    Without any distance - 1 of the positions they are still different (Singleton), so there are no
    more than sequences over the other positions; those with the fewest choices bound most.
    """
    movable = sorted(choice for choice in choices if choice)
    every = count_designs(movable, budget)
    if distance > min(len(movable), 2 * budget):
        return min(every, 1)
    return min(every, 1 + count_designs(movable[: len(movable) - distance + 1], budget))


def _check_size(choices: Sequence[int], budget: int, designs: int, distance: int, name: str) -> int:
    """The number of possible designs; refuses to look for more than can be."""
    every, most = count_designs(choices, budget), most_apart(choices, budget, distance)
    if every == 0:
        raise GlauberError(
            f"no free position of {name} may take another residue, so there is no design."
        )
    request = f"{counted(designs, 'design')} of {name} were asked for, but"
    if every < designs:
        raise GlauberError(
            f"{request} the free positions, their residues and the number of mutations allow "
            f"{every:,} only."
        )
    if most < designs:
        raise GlauberError(
            f"{request} no more than {most:,} can differ from each other at {distance} positions "
            "(an upper bound)."
        )
    return every


# ---- chains that look for designs


class FirstVisit(NamedTuple):
    """Where a design was met first."""

    tokens: Integers  # at the free positions
    chain: int
    step: int


@dataclass
class DiverseSelection:
    """Designs in the order in which chains met them, each new and apart from those before."""

    parent: Integers  # (positions,) tokens
    requested: int
    distance: int  # at how many positions two of them differ, at least
    visits: list[FirstVisit] = field(default_factory=list)
    looks: int = 0  # states that were compared

    @property
    def full(self) -> bool:
        return len(self.visits) >= self.requested

    @cached_property
    def _rows(self) -> Integers:
        return np.empty((self.requested, len(self.parent)), np.int64)

    def offer(self, rows: Integers, step: int) -> None:
        """Takes what is new among the chains' states (chains, positions), chain by chain."""
        for chain, row in enumerate(rows):
            if self.full:
                return
            self.looks += 1
            others = self._rows[: len(self.visits)]
            near = len(others) and int((others != row).sum(axis=1).min()) < self.distance
            if not near and bool((row != self.parent).any()):
                self._rows[len(self.visits)] = row
                self.visits.append(FirstVisit(row.copy(), chain, step))


def _plan(space: DesignSpace, temperatures: list[float], chains: int, seed: int) -> Plan:
    """Chains that start at the parent and satisfy the constraints of its designs."""
    parent, n_free = space.parent, len(space.positions)
    free = {position - 1 for position in space.positions}
    planned = plan(
        parent.model,
        [parent.text],
        steps=0,
        temperature=temperatures[0],
        seed=seed,
        chains=chains,
        freeze=sorted(set(range(len(parent.letters))) - free),
        forbid=space.forbid,
        allow=space.allow,
        max_changes=space.budget if space.budget < n_free else None,
    )
    return replace(planned, annealing=Annealing(temperatures, STAGE_SWEEPS * n_free))


def _explore(
    planned: Plan,
    space: DesignSpace,
    selection: DiverseSelection,
    steps: int,
    batch_size: int | None,
    folder: Path | None,
) -> "ChainHistory":
    """Advances the chains until enough designs are met or the steps are spent."""
    annealing, every, n_chains = planned.annealing, len(space.positions), planned.spec.chains
    assert annealing is not None
    free = spell_sites(space.positions)
    say(f"{space.name}: {space.size:,} possible designs at positions {free}")
    parent_shares = [np.ones(n_chains)]
    with begin(planned, folder) as log, track("designs", selection.requested) as bar:
        while log.steps < steps and not selection.full:
            done, more = log.steps, annealing.stage
            if len(annealing.temperatures) == 1:
                # As many as the missing designs need if all are new, and never too few.
                missing = selection.requested - len(selection.visits)
                more = max(every * -(-missing // n_chains), done // 2 // every * every)
            last = min(done + more, steps)
            log.describe(replace(planned.spec, steps=last))
            session = Session(lambda now: bar(to=len(selection.visits), note=f"step {now.step:,}"))
            advance_chains(planned, log, batch_size=batch_size, session=session, until=last)
            for step, tokens in log.states(every, done + 1):
                rows = tokens[:, space.columns].astype(np.int64)
                parent_shares.append((rows == space.tokens).mean(axis=1))
                if annealing.temperature(step - 1) == annealing.temperatures[-1]:
                    selection.offer(rows, step)
            bar(to=len(selection.visits), note=f"step {last:,}")
        changed = np.asarray(log.read("changed").any(axis=2))
    if not selection.visits:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise GlauberError(
            f"{counted(n_chains, 'chain')} met no design in {changed.shape[1]:,} steps: take more "
            "steps, or a higher temperature."
        )
    return ChainHistory(
        temperatures=list(annealing.temperatures),
        steps_between_looks=every,
        looked_at=selection.looks,
        kept=np.stack(parent_shares, axis=1),
        changed=changed,
    )


def _rank(
    space: DesignSpace,
    selection: DiverseSelection,
    history: "ChainHistory",
    orders: int,
    seed: int,
) -> "ParentDesigns":
    """The designs of a parent, scored over orders, the best first."""
    parent, visits = space.parent, selection.visits
    spell, letters = parent.model.vocabulary.spell, parent.letters
    by_mutations: dict[str, int] = {}
    for number, visit in enumerate(visits):
        changes = zip(space.positions, visit.tokens, space.tokens, strict=True)
        mutations = [
            Mutation(letters[position - 1], position, spell(int(token)))
            for position, token, own in changes
            if token != own
        ]
        by_mutations[spell_mutations(mutations)] = number
    rows = [Row(text, number=number) for number, text in enumerate(by_mutations, 1)]
    unnamed = parent._replace(name="")
    scored = score_variants(unnamed, rows, orders=orders, pll=False, seed=seed)
    nearest = nearest_distances(np.stack([visit.tokens for visit in visits]))
    name, digits = (parent.name or "parent").split()[0], len(str(len(visits)))
    designs = []
    for rank, variant in enumerate(scored.variants, 1):
        number = by_mutations[variant.mutations]
        designs.append(
            Design(
                **vars(variant) | {"name": f"{name}-{rank:0{digits}}"},
                rank=rank,
                nearest=nearest[number],
                chain=visits[number].chain,
                step=visits[number].step,
            )
        )
    alphabet = sorted({token for row in space.choices for token in row} | {*space.tokens.tolist()})
    return ParentDesigns(
        name=parent.name or "parent",
        parent=parent.text,
        positions=space.positions,
        max_mutations=space.budget,
        design_space=space.size,
        alphabet=[spell(token) for token in alphabet],
        designs=designs,
        history=history,
        scored=scored,
    )


def _distances(rows: Integers) -> Iterator[Integers]:
    """The distances of each row to all rows, (rows,) each."""
    return ((rows != row).sum(axis=1) for row in rows)


def nearest_distances(rows: Integers) -> list[int | None]:
    """The distance of each row to the nearest other one; None where there is no other."""
    if len(rows) < 2:
        return [None]
    return [
        int(np.delete(distances, number).min()) for number, distances in enumerate(_distances(rows))
    ]


# ---- the result


@dataclass(frozen=True, eq=False, kw_only=True)
class Design(Variant):
    """A sequence near its parent, with its score compared with the parent's, in nats."""

    rank: int
    nearest: int | None  # positions that differ from the nearest other design
    chain: int  # that met it first
    step: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ChainHistory:
    """What the chains did until they were stopped."""

    kind: str = "estimate"
    temperatures: list[float]  # one after the other and again
    steps_between_looks: int
    looked_at: int  # states that were compared with the designs before them
    kept: NDArray[np.float64] = internal()  # (chains, looks) share of positions as in the parent
    changed: NDArray[np.bool_] = internal()  # (chains, steps) whether a step changed anything

    @reported
    def chains(self) -> int:
        return len(self.changed)

    @reported
    def steps(self) -> int:
        return int(self.changed.shape[1])

    @reported
    def changed_by_chain(self) -> NDArray[np.float64]:
        """The share of steps that changed a residue, by chain."""
        return np.asarray(self.changed.mean(axis=1))

    @reported
    def parent_kept(self) -> NDArray[np.float64]:
        """The share of the free positions as in the parent at each look, mean over chains."""
        return np.asarray(self.kept.mean(axis=0))

    @reported
    def trapped_chains(self) -> int:
        """Chains that changed nothing in the second half of their steps."""
        return int((~self.changed[:, self.steps // 2 :].any(axis=1)).sum())

    @reported
    def steps_until_parent_forgotten(self) -> int | None:
        """Steps until the share kept, mean over chains, did 95% of its fall to its later mean.

        The later mean is that over the second half of the looks. None where half of the chains
        stay the same there: what they keep shows where they are stuck.
        """
        shares = self.parent_kept
        if len(shares) < MIN_LOOKS or 2 * self.trapped_chains >= self.chains:
            return None
        later = shares[len(shares) // 2 :].mean()
        forgotten = shares - later <= (1 - FORGOTTEN) * (1 - later)
        return int(forgotten.argmax()) * self.steps_between_looks


@dataclass(frozen=True, eq=False, kw_only=True)
class ParentDesigns:
    """The designs of one parent, the best first."""

    name: str
    parent: str
    positions: list[int]  # that could change, counted from 1
    max_mutations: int
    design_space: int  # possible designs, exactly
    alphabet: list[str] = internal()
    designs: list[Design]
    history: ChainHistory
    scored: Variants = internal()

    @property
    def short(self) -> str:
        return self.name.split()[0]

    @cached_property
    def _letters(self) -> Integers:
        """The letter of each design at each free position, by its place in the alphabet."""
        places = {letter: number for number, letter in enumerate(self.alphabet)}
        return np.array(
            [[places[design.sequence[i - 1]] for i in self.positions] for design in self.designs]
        )

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The share of each letter at each free position, (positions, alphabet)."""
        return np.asarray((self._letters[:, :, None] == range(len(self.alphabet))).mean(axis=0))

    @reported
    def frequencies(self) -> dict[int, dict[str, float]]:
        """The share of each letter that occurs, by position."""
        return {
            position: {
                letter: float(share)
                for letter, share in zip(self.alphabet, row, strict=True)
                if share > 0
            }
            for position, row in zip(self.positions, self.shares, strict=True)
        }

    @reported
    def pairs_by_distance(self) -> list[int]:
        """How many pairs of designs differ at 0, 1, 2, … positions."""
        counts = np.zeros(len(self.positions) + 1, np.int64)
        for number, distances in enumerate(_distances(self._letters)):
            counts += np.bincount(distances[number + 1 :], minlength=len(counts))
        return list(counts.tolist())

    @reported
    def mean_distance(self) -> float | None:
        """Between two designs, over all pairs: exact."""
        counts = self.pairs_by_distance
        return float(np.dot(counts, range(len(counts))) / sum(counts)) if sum(counts) else None

    def lines(self) -> Iterable[str]:
        history = self.history
        ends = dict.fromkeys((history.temperatures[0], history.temperatures[-1]))
        yield (
            f"{counted(len(self.designs), 'design')} of {self.short}, at most "
            f"{counted(self.max_mutations, 'mutation')} at positions "
            f"{spell_sites(self.positions)}; {self.design_space:,} are possible (exact)"
        )
        yield (
            f"met by {counted(history.chains, 'chain')} in {history.steps:,} steps each at "
            f"temperature {' to '.join(f'{end:g}' for end in ends)}, in {history.looked_at:,} looks"
        )
        from glauber.foundation.tables import table

        yield from table(
            [
                {
                    "rank": design.rank,
                    "score": f"{design.mean_over_orders.value:.2f}",
                    "order SD": f"{design.order_sd.value:.2f}",
                    "wild-type fill": f"{design.scores['wild_type_fill']:.2f}",
                    "distance": design.changes,
                    "nearest": design.nearest,
                    "mutations": design.mutations,
                }
                for design in self.designs[:MAX_PRINTED]
            ]
        )
        if len(self.designs) > MAX_PRINTED:
            yield f"… and {len(self.designs) - MAX_PRINTED:,} more; --out writes all of them"
        yield "score: log-ratio to the parent in nats, mean over orders, with its SD over orders"
        if self.mean_distance is not None:
            yield f"two designs differ at {self.mean_distance:.1f} positions in the mean (exact)"
        if (forgotten := history.steps_until_parent_forgotten) is not None:
            yield f"the parent was forgotten after about {forgotten:,} steps (an estimate)"
        yield (
            f"{np.mean(history.changed_by_chain):.0%} of steps changed a residue; "
            f"{counted(history.trapped_chains, 'chain')} changed none in the second half"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Designs(SequenceResult):
    """Designs of each parent, ranked by their mean over orders."""

    model: str
    unit: str = "nats"  # The unit of every score
    requested: int  # designs of each parent
    min_distance: int
    seed: int
    families: list[ParentDesigns]

    @reported
    def notes(self) -> list[str]:
        """Where the steps did not bring as many designs as were requested."""
        apart = f" that differ at {self.min_distance} positions" if self.min_distance > 1 else ""
        return [
            f"Only {len(family.designs):,} of {self.requested:,} designs of {family.short} were "
            f"met in {family.history.steps:,} steps{apart}: take more steps or chains, or a higher "
            "temperature."
            for family in self.families
            if len(family.designs) < self.requested
        ]

    def records(self) -> Iterable[Row]:
        """Each design under its name, with score, spread over orders, distance and mutations."""
        for family in self.families:
            for design in family.designs:
                header = (
                    f"{design.name} {design.header} distance={design.changes} "
                    f"mutations={design.mutations}"
                )
                yield Row(design.sequence, header)

    def lines(self) -> Iterable[str]:
        for family in self.families:
            yield from family.lines()
        yield from self.notes

    def table(self) -> Iterable[dict[str, object]]:
        """One row per design."""
        return [
            {"parent": family.name} | design.row()
            for family in self.families
            for design in family.designs
        ]

    def figures(self) -> "dict[str, go.Figure]":
        """The pictures of each of the first parents."""
        from glauber.interfaces.plots.proteins import design_figures

        several = len(self.families) > 1
        return {
            f"{name}-{number}" if several else name: figure
            for number, family in enumerate(self.families[:MAX_DRAWN], 1)
            for name, figure in design_figures(family, with_name=several).items()
        }

    def write(self, path: str | Path) -> Path:
        """As sequences are written; a folder also contains designs.fasta, .parquet and a page."""
        from glauber.interfaces.report.page import page, write_text

        folder = super().write(path)
        if folder.is_dir():
            write_bytes(folder / "designs.fasta", fasta(self.records()).encode())
            super().write(folder.parent / folder.name / "designs.parquet")
            shown = page("result.html", figures=self.figures(), text=str(self))
            write_text(folder / "page.html", shown)
        return folder
