"""Which sequences near a parent does a model like? Chains on the ball, until there are enough.

Chains start at the parent and redraw its free positions under the constraints of the engine
(docs/constraints.md), so that every state keeps to them. They are looked at once a sweep, and a
state is a design if it is not the parent and differs enough from the designs before it.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from glauber.conditionals.load import load
from glauber.conditionals.starts import spell_sites
from glauber.conditionals.texts import Row
from glauber.disk import check_new
from glauber.errors import GlauberError
from glauber.parameters import Device, Dtype, ModelOrName, Seed, Trust
from glauber.progress import Advance, check_count, check_seed, say, track
from glauber.proteins.design_space import (
    Residues,
    Space,
    check_model,
    design_space,
    read_asked,
    read_residues,
)
from glauber.proteins.designs import Design, Designs, Family, Walk
from glauber.proteins.diversity import Met, Picked, nearest
from glauber.proteins.fasta import read_sequences
from glauber.proteins.mutate import mutate
from glauber.proteins.mutations import Mutation, apply, spelled_mutations
from glauber.proteins.variants import Variants
from glauber.result import counted, model_parts, needed, signature, study
from glauber.runs.log import Log
from glauber.sampling.advance import Session, advance_chains, check_batch_size
from glauber.sampling.plan import Plan, plan, read_temperature
from glauber.sampling.sample import begin

MOST = 10_000  # designs of one parent: each is compared with all others
RUNGS = 8  # temperatures from hot to cold, where only the two ends are given
SWEEPS = 10  # at each of them


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
    max_mutations: Annotated[int | None, "Positions that may differ from the parent."] = None,
    temperature: Annotated[
        float | Sequence[float], "One, or from hot to cold and again, such as 2,0.5."
    ] = 1.0,
    designs: Annotated[int, "Designs of each parent."] = 200,
    min_distance: Annotated[int, "Positions at which two designs differ, at least."] = 1,
    chains: Annotated[int, "Chains that start at each parent."] = 16,
    steps: Annotated[int, "Steps of each chain, at most."] = 5000,
    orders: Annotated[
        int, "Orders of a design's score; all of them, exactly, where that costs no more rows."
    ] = 32,
    seed: Seed = 0,
    batch_size: Annotated[int | None, "Chains advanced together (default: all)."] = None,
    keep_run: Annotated[
        str | Path | None, "New folder for the chains' run, of one parent at one temperature."
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> Designs:
    """Design variants of proteins: new, apart from each other, ranked, within constraints.

    Chains of the model start at each parent and redraw its free positions until they met enough
    designs. A position may always keep what its parent has. Designs are ranked by the log-ratio to
    the parent, mean over the orders in which the changed residues can be filled in, with the
    standard deviation over these orders. --out writes .fasta, .csv, .parquet, .html (a page) or a
    folder with all of it.
    """
    ladder, omit = read_ladder(temperature), read_residues("omit", omit)
    _check_numbers(designs, min_distance, chains, steps, orders, max_mutations)
    check_seed(seed)
    check_batch_size(batch_size)
    given = _named(read_sequences(needed("parent", parents)))  # type: ignore[arg-type]
    asked = [read_asked(one, free, allow, omit) for one in given]
    _check_run(keep_run, given, ladder)
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    check_model(opened)
    spaces = [
        design_space(opened, one, omit, max_mutations, designs, min_distance) for one in asked
    ]  # every parent is checked before any work
    families = [
        _family(
            space, ladder, Picked(space.tokens, designs, min_distance), chains=chains, steps=steps,
            orders=orders, seed=seed + number, batch_size=batch_size, folder=keep_run,
        )
        for number, space in enumerate(spaces)
    ]  # fmt: skip
    how = {
        "parents": len(families), "free": "all" if free is None else free, "omit": omit or None,
        "allow": str(allow) or None, "max_mutations": max_mutations, "temperature": temperature,
        "min_distance": min_distance, "chains": chains, "orders": orders, "seed": seed,
    }  # fmt: skip
    said = signature(**model_parts(opened), **how)
    return Designs(families, opened.name, designs, min_distance, seed, said)


def _check_numbers(
    designs: int, distance: int, chains: int, steps: int, orders: int, mutations: int | None
) -> None:
    check_count("number of designs", designs, most=MOST)
    check_count("least distance between designs", distance)
    check_count("number of chains", chains, most=10**6)
    check_count("number of steps", steps, most=10**12)
    check_count("number of orders", orders, most=10**6)
    if mutations is not None:
        check_count("number of mutations", mutations)


def read_ladder(given: Any) -> list[float]:
    """The temperatures that chains go through: one, those given, or a ladder between two."""
    found = read_temperature(given)
    if isinstance(found, float):
        return [found]
    if any(hot <= cold for hot, cold in pairwise(found)):
        raise GlauberError("temperatures of an annealing fall from hot to cold, such as 2,0.5.")
    return np.geomspace(found[0], found[1], RUNGS).tolist() if len(found) == 2 else found


def _named(given: list[Row]) -> list[Row]:
    """Several parents all have names."""
    if len(given) == 1:
        return given
    return [row._replace(id=row.id or f"parent{row.number}") for row in given]


def _check_run(run: str | Path | None, given: list[Row], ladder: list[float]) -> None:
    if run is None:
        return
    if len(given) > 1 or len(ladder) > 1:
        raise GlauberError("a run is kept of one parent at one temperature only.")
    check_new(Path(str(run)))


# ---- the chains


def _family(
    space: Space,
    ladder: list[float],
    picked: Picked,
    *,
    chains: int,
    steps: int,
    orders: int,
    seed: int,
    batch_size: int | None,
    folder: str | Path | None,
) -> Family:
    """The designs of one parent: met by chains, scored and ranked."""
    parent = space.parent
    frozen = sorted(set(range(len(parent.letters))) - {one - 1 for one in space.positions})
    planned = plan(
        parent.model, [parent.spelled], steps=0, temperature=ladder[0], seed=seed, chains=chains,
        freeze=frozen, forbid=space.forbid, allow=space.allow,
        max_changes=space.budget if space.budget < len(space.positions) else None,
    )  # fmt: skip
    free = spell_sites(space.positions)
    say(f"{parent.name or 'the parent'}: {space.size:,} possible designs at positions {free}")
    run_folder = None if folder is None else Path(str(folder))
    with begin(planned, run_folder) as log, track("designs", picked.wanted) as bar:
        walk = _walk(planned, log, space, ladder, picked, steps, batch_size, bar)
    if not picked.met:
        if run_folder is not None:
            shutil.rmtree(run_folder, ignore_errors=True)
        raise GlauberError(
            f"{counted(chains, 'chain')} met no design in {walk.steps:,} steps: take more steps, "
            "or a higher temperature."
        )
    texts = [_mutations(space, met) for met in picked.met]
    spelled = [spelled_mutations(one) for one in texts]
    scored = mutate(parent.model, parent.spelled, spelled, orders=orders, pll=False, seed=seed)
    assert isinstance(scored, Variants)
    found = _ranked(space, picked.met, texts, scored)
    alphabet = sorted({one for row in space.choices for one in row} | set(space.tokens.tolist()))
    letters = [parent.model.vocabulary.spell(token) for token in alphabet]
    return Family(
        parent.name or "parent", parent.spelled, space.positions, letters, space.budget,
        space.size, found, walk, scored,
    )  # fmt: skip


def _walk(
    planned: Plan,
    log: Log,
    space: Space,
    ladder: list[float],
    picked: Picked,
    steps: int,
    batch_size: int | None,
    bar: Advance,
) -> Walk:
    """Advance the chains until enough designs are met or the steps are spent.

    An annealing is a temperature that depends on the step: it is the same in all steps of a stage,
    while the start that the budget counts from and the noise, keyed by (seed, chain, step), go on.
    """
    every, done, rung = len(space.positions), 0, 0
    kept = [np.ones(planned.spec.chains)]
    while done < steps and not picked.full:
        here = ladder[rung % len(ladder)]
        more = SWEEPS * every if len(ladder) > 1 else _block(picked, planned, every, done)
        last = min(done + more, steps)
        log.describe(replace(planned.spec, steps=last))
        stage = replace(planned, spec=replace(planned.spec, temperature=here))
        session = Session(lambda now: bar(to=len(picked.met), note=f"step {now.step:,}"))
        advance_chains(stage, log, batch_size=batch_size, session=session, until=last)
        for step, tokens in log.states(every, done + 1):
            rows = tokens[:, space.columns].astype(np.int64)
            kept.append((rows == space.tokens).mean(axis=1))
            if here == ladder[-1]:
                picked.look(rows, step, here)
        done, rung = last, rung + 1
        bar(to=len(picked.met), note=f"step {done:,}")
    changed = np.asarray(log.read("changed").any(axis=2))
    return Walk(np.stack(kept, axis=1), changed, every, ladder, SWEEPS * every, picked.looks)


def _block(picked: Picked, planned: Plan, every: int, done: int) -> int:
    """Steps to go on with: what the missing designs need if all are new, and never too few."""
    missing = picked.wanted - len(picked.met)
    sweeps = -(-missing // planned.spec.chains)
    return max(every * sweeps, done // 2 // every * every)


def _mutations(space: Space, met: Met) -> tuple[Mutation, ...]:
    spell, letters = space.parent.model.vocabulary.spell, space.parent.letters
    return tuple(
        Mutation(letters[position - 1], position, spell(int(token)))
        for position, token, own in zip(space.positions, met.row, space.tokens, strict=True)
        if token != own
    )


def _ranked(
    space: Space, met: list[Met], texts: list[tuple[Mutation, ...]], scored: Variants
) -> list[Design]:
    """The designs, the best first."""
    apart = nearest(np.stack([one.row for one in met]))
    number = {spelled_mutations(one): i for i, one in enumerate(texts)}
    name = (space.parent.name or "parent").split()[0]
    digits = len(str(len(met)))
    found = []
    for rank, variant in enumerate(scored.variants, 1):
        i = number[variant.mutations]
        found.append(
            Design(
                name=f"{name}-{rank:0{digits}}",
                rank=rank,
                sequence="".join(apply(space.parent.letters, texts[i])),
                scored=variant,
                swaps=scored.swaps[rank - 1],
                distance=len(texts[i]),
                nearest=apart[i],
                chain=met[i].chain,
                step=met[i].step,
            )
        )
    return found
