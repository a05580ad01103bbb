"""glauber ising gap: how mixing slows and the parallel error grows with dependency, exactly."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.ising_options import Clique, Couplings, Field, Picture, Sites, strengths
from glauber.cli.numbers import numbers

if TYPE_CHECKING:
    from glauber.exact.samplers.dependency import Dependency


def gap(
    sites: Sites = 10,
    clique: Clique = 4,
    field: Field = 0.0,
    couplings: Couplings = "0,0.1,0.2,0.3,0.5,0.7",
    blocks: Annotated[str, typer.Option(help="Block sizes k, such as 1,2,4.")] = "1,2,4",
    random: Annotated[
        int | None,
        typer.Option(help="Seed of a random model instead; J then multiplies its couplings."),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Look for better masks than uniform ones (N <= 10).")
    ] = False,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="With --search: masks that see the state (N <= 7).")
    ] = False,
    out: Picture = None,
    json: options.Json = False,
) -> None:
    """Print the spectral gap of k-block dynamics and the parallel error, against J."""
    from glauber.cli.screen import emit, say
    from glauber.cli.screen import out as screen
    from glauber.errors import GlauberError
    from glauber.exact.ising import Ising
    from glauber.exact.samplers.dependency import dependency_sweep

    if sites < 1:
        raise GlauberError(f"there are {sites} sites, but at least one is needed.")
    if random is None:
        model = Ising.clique(sites, clique, coupling=1.0, field=field)
    else:
        model = Ising.random(sites, seed=random, strength=1.0)
    ks = [int(k) for k in numbers(blocks, "block sizes", whole=True)]
    found = dependency_sweep(model, strengths(couplings), ks)
    told: dict[str, Any] = {
        "sites": sites,
        "model": f"random with seed {random}" if random is not None else f"clique of {clique}",
        "field": field if random is None else None,
        "couplings": [_strength(one) for one in found],
        "masks": _better_masks(model, found, ks, adaptive) if search else None,
    }
    if out is not None:
        from glauber.figures.page import write_picture
        from glauber.plots.dependency import plot_dependency

        write_picture(plot_dependency(found), path=out)
    if json:
        emit(told)
        return
    for line in _gap_lines(told):
        screen.print(line, markup=False, highlight=False, soft_wrap=True)
    if out is not None:
        say(f"the picture is in {out}")


def _strength(one: "Dependency") -> dict[str, Any]:
    return {
        "coupling": one.coupling,
        "gaps": [
            {"k": k, "value": gap.value, "error": gap.error, "kind": gap.kind}
            for k, gap in one.gaps.items()
        ],
        "above_line": one.above_line,
        "parallel": {
            "total_variation": one.parallel.total_variation,
            "divergence": one.parallel.divergence,
            "largest_marginal": one.parallel.marginal,
            "kind": "exact",
        },
        "one_pass": {
            "total_variation": {"value": one.one_pass.at_most, "kind": "upper bound"},
            "at_least": {"value": one.one_pass.at_least, "kind": "lower bound"},
            "divergence": {"value": one.one_pass.divergence, "kind": "exact"},
        },
    }


def _better_masks(
    model: Any, found: "list[Dependency]", ks: list[int], adaptive: bool
) -> list[dict[str, Any]]:
    """The best weights over all blocks of each size, at the last coupling."""
    from glauber.exact.ising import Ising
    from glauber.exact.samplers.adaptive_masks import adaptive_masks
    from glauber.exact.samplers.masks import Masks
    from glauber.exact.samplers.masks_search import best_masks
    from glauber.exact.space import Space

    law = Ising(model.fields, model.couplings * found[-1].coupling).probabilities
    rows = []
    for k in ks:
        blocks = Masks.uniform(model.n_sites, k).blocks
        space = Space(2, model.n_sites)
        best = best_masks(law, space, blocks)
        seeing = adaptive_masks(law, space, best.masks).gap if adaptive else None
        ranked = sorted(zip(best.masks.weights.tolist(), blocks, strict=True), reverse=True)
        rows.append(
            {
                "k": k, "coupling": found[-1].coupling, "uniform": best.uniform.value,
                "found": {"value": best.gap.value, "kind": "lower bound"},
                "best": {"value": best.at_most, "kind": "upper bound"},
                "adaptive": {"value": seeing, "kind": "lower bound"},
                "heaviest": [{"sites": list(block), "weight": w} for w, block in ranked[:5]],
            }
        )  # fmt: skip
    return rows


def _gap_lines(told: dict[str, Any]) -> list[str]:
    ks = [gap["k"] for gap in told["couplings"][0]["gaps"]]
    heads = "".join(f"{f'gap k={k}':>14}" for k in ks)
    lines = [
        f"{told['sites']} sites, {told['model']}; gaps are exact up to the error in --json",
        f"{'J':>6}{heads}{'parallel law':>16}{'one pass':>24}",
    ]
    for one in told["couplings"]:
        shown = "".join(
            f"{gap['value']:>14.6g}" if gap["value"] > gap["error"] else f"{'< 1e-12':>14}"
            for gap in one["gaps"]
        )
        far, once = one["parallel"]["total_variation"], one["one_pass"]
        between = f"{once['at_least']['value']:.4f} to {once['total_variation']['value']:.4f}"
        lines.append(f"{one['coupling']:>6g}{shown}{far:>16.4f}{between:>24}")
    lines.append(
        "parallel law: total variation from p of the law that the parallel sampler keeps (exact); "
        "one pass: from p to the nearest product law (bounds)"
    )
    for one in told["masks"] or []:
        heavy = ", ".join(f"{tuple(m['sites'])}: {m['weight']:.3f}" for m in one["heaviest"])
        lines.append(
            f"k = {one['k']} at J = {one['coupling']:g}: uniform masks {one['uniform']:.6g}, found "
            f"{one['found']['value']:.6g} (lower bound on the best), none above "
            f"{one['best']['value']:.6g} (upper bound); heaviest {heavy}"
        )
        if one["adaptive"]["value"] is not None:
            lines.append(
                f"k = {one['k']}, masks that see the state: {one['adaptive']['value']:.6g} "
                "(lower bound on the best of these)"
            )
    return lines
