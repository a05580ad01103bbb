"""glauber drift: does the number of copies of a token tend to grow?"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.errors import GlauberError

if TYPE_CHECKING:
    from glauber.metastability.drift import DriftCertificate


def drift(
    token: Annotated[str, typer.Option(help="The token whose copies are counted.")],
    count: Annotated[int, typer.Option(help="Copies at the boundary of the basin, k.")],
    levels: Annotated[int, typer.Option(help="Levels above the boundary, m.")] = 2,
    samples: Annotated[int, typer.Option(help="States sampled at each level.")] = 200,
    model: options.Model = "bundled:english",
    length: Annotated[int, typer.Option(help="Tokens of a state, without special ones.")] = 20,
    temperature: options.Temperature = 1.0,
    source: options.From = None,
    settle: Annotated[
        int, typer.Option(help="Steps of the chain for the other sites (0: as in the passages).")
    ] = 0,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    json: options.Json = False,
) -> None:
    """Sample the drift of a token's copies at levels k to k+m, and say what it certifies."""
    _check(count, levels, samples, length, settle)
    from glauber.cli.reading import open_model, token_named
    from glauber.cli.screen import emit, out
    from glauber.conditionals.starts import passages, read_texts, starts
    from glauber.metastability.drift import drift_study

    opened, laws = open_model(model, device, dtype)
    number = token_named(opened, token)
    texts = [text for _, text in passages()] if source is None else read_texts(source)
    rows, frees = (part.to(opened.state_device) for part in starts(opened, texts, length=length))
    found = drift_study(
        laws,
        rows,
        frees[0],
        token=number,
        counts=range(count, count + levels + 1),
        samples=samples,
        temperature=temperature,
        n_steps=settle,
        seed=seed,
    )
    told = _plain(found) | {
        "token": token, "length": length, "temperature": temperature, "samples": samples,
        "others": f"{settle} chain steps from passages" if settle else "passages",
        "seed": seed, "model": opened.name,
    }  # fmt: skip
    if json:
        emit(told)
        return
    for line in _lines(told):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _plain(found: "DriftCertificate") -> dict[str, Any]:
    return {
        "levels": [
            {
                "count": level.count,
                "smallest": level.smallest,
                "median": level.median,
                "positive": level.positive,
                "positive_share": {
                    "value": level.positive_share(found.confidence),
                    "kind": "lower bound",
                    "confidence": found.confidence,
                },
                "kind": "estimate",
            }
            for level in found.levels
        ],
        "certificate": {
            "epsilon": found.epsilon,
            "descent": found.descent,
            "share": found.share,
            "confidence": found.confidence,
            "kind": found.kind,
        },
    }


def _lines(told: dict[str, Any]) -> list[str]:
    """The figures for the terminal, each with its kind."""
    n = told["samples"]
    lines = [
        f"drift of the copies of {told['token']!r} among {told['length']} tokens at temperature "
        f"{told['temperature']:g}; {n} states a level, other sites from {told['others']}",
        " copies  smallest   median  positive (estimates; the first row is the basin's boundary)",
    ]
    for level in told["levels"]:
        share = level["positive_share"]
        lines.append(
            f"{level['count']:>7}  {level['smallest']:8.4f} {level['median']:8.4f}  "
            f"{level['positive']} of {n}: at least {share['value']:.1%} of the sampled law "
            f"({share['kind']}, at {share['confidence']:.0%})"
        )
    return [*lines, _verdict(told)]


def _verdict(told: dict[str, Any]) -> str:
    first, last = told["levels"][0]["count"], told["levels"][-1]["count"]
    found = told["certificate"]
    if found["descent"] is None:
        falling = [str(each["count"]) for each in told["levels"] if each["smallest"] <= 0]
        return (
            f"no certificate: some sampled states with {', '.join(falling)} copies have a drift "
            "that is not positive, and one is enough"
        )
    return (
        f"from {last} copies down to {first} before climbing above {last}: chance at most "
        f"{found['descent']:.4g} ({found['kind']}: a bound if the drift is at least "
        f"{found['epsilon']:.4g} at every state of these levels; it is for at least "
        f"{found['share']:.1%} of the sampled law of each, at {found['confidence']:.0%} together)"
    )


def _check(count: int, levels: int, samples: int, length: int, settle: int) -> None:
    """Refuses impossible numbers before a model is loaded."""
    if samples < 1:
        raise GlauberError(f"the number of samples is {samples}, but it must be at least 1.")
    if not 1 <= count <= length:
        raise GlauberError(
            f"the count is {count}, but a text of {length} tokens holds 1 to {length} copies."
        )
    if levels < 0 or count + levels > length:
        raise GlauberError(
            f"there are {levels} levels above {count}, but a text of {length} tokens has "
            f"{length - count}."
        )
    if settle < 0:
        raise GlauberError(f"the number of steps is {settle}, but it cannot be negative.")
