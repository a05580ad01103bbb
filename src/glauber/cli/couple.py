"""glauber couple: do two chains that share their randomness meet, and when?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glauber.cli import options
from glauber.errors import GlauberError

if TYPE_CHECKING:
    from torch import Tensor

    from glauber.conditionals.base import Conditionals
    from glauber.conditionals.masked_lm import MaskedLM

LENGTH = 10  # tokens of the bundled passages, if no length is given
MOMENTS = 400  # distances kept, at most about


def couple(
    texts: Annotated[
        list[str] | None, typer.Argument(help="Two texts of one length (default: passages).")
    ] = None,
    model: options.Model = "bundled:english",
    source: options.From = None,
    pairs: Annotated[int, typer.Option(help="Pairs of chains.")] = 12,
    length: options.Length = None,
    temperature: options.Temperature = 1.0,
    steps: Annotated[int, typer.Option(help="Budget: steps within which a pair may meet.")] = 400,
    seed: options.Seed = 0,
    how: Annotated[
        str, typer.Option(help="Coupling: maximal, inverse-cdf or gumbel-max.")
    ] = "maximal",
    alpha: Annotated[
        float | None, typer.Option(help="Largest influence of a site, for the contraction bound.")
    ] = None,
    measure_alpha: Annotated[
        bool, typer.Option("--measure-alpha", help="Sample alpha on the first text.")
    ] = False,
    lag: Annotated[
        int | None, typer.Option(help="Also bound total variation by couplings of this lag.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Distance that t_mix asks for.")] = 0.25,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="Pairs moved together (default: by memory).")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    out: Annotated[Path | None, typer.Option(help="HTML file of the pictures.")] = None,
    json: options.Json = False,
) -> None:
    """Run pairs of chains together until they meet: times, distances, and what they bound."""
    _check(texts or [], source, pairs, steps)
    _check_numbers(length, lag, epsilon, alpha, seed)
    from glauber.cli.coupled import Report, show
    from glauber.cli.reading import open_model
    from glauber.cli.screen import counted
    from glauber.conditionals.base import check_temperature
    from glauber.conditionals.starts import read_texts
    from glauber.mixing.coupling import coalesce
    from glauber.mixing.joint_draws import joint_draw_named
    from glauber.mixing.lagged import lagged

    joint_draw_named(how)  # refuses unknown names before the model is loaded
    check_temperature(temperature)
    lines = texts or (None if source is None else read_texts(source))
    opened, laws = open_model(model, device, dtype)
    left, right, free = _starts(opened, lines, pairs, length, seed, one_pair=bool(texts))
    given = dict(free=free, temperature=temperature, seed=seed, budget=steps, how=how)
    with counted(pairs, steps, quiet=json) as hear:
        found = coalesce(
            laws, left, right, together=batch_size, every=-(-steps // MOMENTS), progress=hear,
            **given,  # type: ignore[arg-type]
        )  # fmt: skip
    later = None
    if lag is not None:
        # Two given texts are two laws of the start; the bound is on the chain from the first.
        begun = left if texts else right
        with counted(pairs, steps, quiet=json) as hear:
            later = lagged(
                laws, left, begun, lag=lag, together=batch_size, progress=hear,
                **given,  # type: ignore[arg-type]
            )  # fmt: skip
    kind = "given"
    if measure_alpha and alpha is None:
        alpha, kind = _sampled_alpha(laws, left[0], free[0], temperature, seed), "lower bound"
    report = Report(
        found=found, lagged=later, alpha=alpha, alpha_kind=kind, steps=steps, epsilon=epsilon,
        texts=_spelled(opened, left, right), n_sites=free.sum(dim=1).tolist(),
        temperature=temperature,
        seed=seed, model=opened.name,
        start="the first text" if texts else "a passage drawn at random",
    )  # fmt: skip
    show(report, out, json=json)


def _starts(
    model: "MaskedLM", texts: list[str] | None, pairs: int, length: int | None, seed: int, *,
    one_pair: bool,
) -> "tuple[Tensor, Tensor, Tensor]":  # fmt: skip
    """Left and right tokens and free sites (pairs, length); one_pair repeats the first two."""
    from glauber.conditionals.starts import passages, starts
    from glauber.mixing.passages import passage_pairs

    if texts is None:
        texts, length = [text for _, text in passages()], length or LENGTH
    rows, free = (part.to(model.state_device) for part in starts(model, texts, length=length))
    chosen = passage_pairs(len(rows), pairs, seed=seed).to(rows.device)
    if one_pair:
        chosen = chosen.sort(dim=1).values
    _check_lengths(free.sum(dim=1)[chosen])
    return rows[chosen[:, 0]], rows[chosen[:, 1]], free[chosen[:, 0]]


def _spelled(model: "MaskedLM", left: "Tensor", right: "Tensor") -> list[tuple[str, str]]:
    """The two texts of each pair."""
    sides = [[model.vocabulary.decode(row[row >= 0].tolist()) for row in s] for s in (left, right)]
    return list(zip(*sides, strict=True))


def _check_lengths(lengths: "Tensor") -> None:
    """Refuses pairs (pairs, 2) of unequal lengths, which could never become one text."""
    unequal = (lengths[:, 0] != lengths[:, 1]).nonzero()[:, 0].tolist()
    if unequal:
        one, two = lengths[unequal[0]].tolist()
        raise GlauberError(
            f"the texts of pair {unequal[0] + 1} have {one} and {two} tokens, but a pair needs "
            "equal lengths: set --length to cut them."
        )


def _sampled_alpha(
    laws: "Conditionals", tokens: "Tensor", free: "Tensor", temperature: float, seed: int
) -> float:
    from glauber.mixing.contexts import sampled_contexts
    from glauber.mixing.influence import influence

    contexts = sampled_contexts(
        laws, tokens, free, n_contexts=4, temperature=temperature, seed=seed
    )
    return influence(laws, contexts, temperature=temperature).alpha


def _check(texts: list[str], source: Path | None, pairs: int, steps: int) -> None:
    """Refuses impossible questions before a model is loaded."""
    if texts and source is not None:
        raise GlauberError("give two texts or a file of texts, not both.")
    if texts and len(texts) != 2:
        raise GlauberError(f"a pair needs two texts, but {len(texts)} were given.")
    if pairs < 1:
        raise GlauberError(f"the number of pairs is {pairs}, but it must be at least 1.")
    if steps < 1:
        raise GlauberError(f"the budget is {steps} steps, but it must be at least 1.")


def _check_numbers(
    length: int | None, lag: int | None, epsilon: float, alpha: float | None, seed: int
) -> None:
    if length is not None and length < 1:
        raise GlauberError(f"the length is {length}, but it must be at least 1.")
    if lag is not None and lag < 1:
        raise GlauberError(f"the lag is {lag} steps, but it must be at least 1.")
    if not 0 < epsilon < 1:
        raise GlauberError(f"epsilon is {epsilon}, but it must lie between 0 and 1.")
    if alpha is not None and not alpha >= 0:
        raise GlauberError(f"alpha is {alpha}, but an influence cannot be negative.")
    if not 0 <= seed < 2**63:
        raise GlauberError(f"the seed is {seed}, but it must be between 0 and 2^63 - 1.")
