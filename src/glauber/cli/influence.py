"""glauber influence: which token sways which, and what follows for the speed of mixing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.numbers import numbers

if TYPE_CHECKING:
    from glauber.mixing.averaged import AveragedInfluence
    from glauber.mixing.influence import Influence


def influence(
    text: Annotated[str, typer.Argument(help="The sentence.")],
    model: options.Model = "bundled:english",
    temperature: options.Temperature = 1.0,
    samples: Annotated[
        int, typer.Option(help="Contexts: the text, and states of chains from it.")
    ] = 4,
    replacements: Annotated[int, typer.Option(help="Tokens tried at each site.")] = 4,
    against: Annotated[
        str, typer.Option(help="Temperatures of the averaged influence, such as 0.5,1,2.")
    ] = "",
    chains: Annotated[int, typer.Option(help="Chains of the averaged influence.")] = 8,
    sweeps: Annotated[int, typer.Option(help="Steps of a chain, in multiples of the length.")] = 5,
    epsilon: Annotated[float, typer.Option(help="Distance that t_mix asks for.")] = 0.25,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    out: Annotated[Path | None, typer.Option(help="HTML file of the pictures.")] = None,
    json: options.Json = False,
) -> None:
    """Measure the influence between the tokens of a text, and what it promises for mixing."""
    temperatures = numbers(against, "temperatures") or [temperature]
    from glauber.cli.reading import open_model, read_text, spelled
    from glauber.mixing.averaged import averaged_influence
    from glauber.mixing.contexts import sampled_contexts
    from glauber.mixing.influence import influence as measure

    opened, laws = open_model(model, device, dtype)
    tokens, free = read_text(opened, text)
    contexts = sampled_contexts(
        laws, tokens, free, n_contexts=samples, n_values=replacements, temperature=temperature,
        n_sweeps=sweeps, seed=seed,
    )  # fmt: skip
    found = measure(laws, contexts, temperature=temperature)
    mixing_time = found.mixing_time(epsilon)
    averages = [
        averaged_influence(
            laws, tokens, free, temperature=each, n_chains=chains, n_sweeps=sweeps, seed=seed
        )
        for each in temperatures
    ]
    words = spelled(opened, tokens, found.sites)
    if out is not None:
        _draw(found, averages, words, out)
    from glauber.cli.screen import answer

    told = _plain(found, averages, words) | {
        "mixing_time": {"value": mixing_time, "epsilon": epsilon, "kind": "estimate"},
        "contexts": {
            "n_contexts": samples, "n_values": replacements, "n_sweeps": sweeps, "seed": seed,
            "from": "the text and states of chains that started from it",
        },
        "model": opened.name,
    }  # fmt: skip
    answer(told, _lines(told), json=json, picture=out)


def _plain(
    found: "Influence", averages: "list[AveragedInfluence]", words: list[str]
) -> dict[str, Any]:
    import math

    return {
        "temperature": found.temperature,
        "tokens": words,
        "influence": {"value": found.total_variation.tolist(), "kind": found.kind},
        "oscillation": {"value": found.oscillation.tolist(), "kind": found.kind},
        "column_sums": {"value": found.column_sums.tolist(), "kind": found.kind},
        "alpha": {"value": found.alpha, "kind": found.kind},
        "threshold": {"value": found.threshold, "kind": found.threshold_kind},
        "averaged": [
            {
                "temperature": one.temperature,
                "value": one.mean,
                "standard_error": None if math.isnan(one.standard_error) else one.standard_error,
                "kind": "estimate",
            }
            for one in averages
        ],
    }


def _lines(told: dict[str, Any]) -> list[str]:
    """The figures for the terminal, each with its kind."""
    seen = told["contexts"]
    kind = told["alpha"]["kind"]
    width = max(len(word) for word in told["tokens"])
    sums = zip(told["tokens"], told["column_sums"]["value"], strict=True)
    lines = [
        f"influence that each token exerts on all others, at temperature {told['temperature']:g} "
        f"({kind}s, from {seen['n_contexts']} contexts and {seen['n_values']} replacements a site)",
        *(f"  {word:>{width}}  {value:6.3f}" for word, value in sums),
        f"alpha, the largest of these: {told['alpha']['value']:.4g} ({kind})",
        f"contraction threshold temperature, from tanh(delta / (4 tau)): "
        f"{told['threshold']['value']:.4g} ({told['threshold']['kind']})",
        _mixing_line(told),
    ]
    for one in told["averaged"]:
        error = one["standard_error"]
        spread = "" if error is None else f" +- {error:.2g}"
        lines.append(
            f"influence met on average along a chain at temperature {one['temperature']:g}: "
            f"{one['value']:.4g}{spread} ({one['kind']})"
        )
    return lines


def _mixing_line(told: dict[str, Any]) -> str:
    time = told["mixing_time"]
    if time["value"] is None:
        return f"t_mix({time['epsilon']:g}): alpha is not below 1, so the theorem promises nothing"
    return f"t_mix({time['epsilon']:g}): {time['value']:,} steps ({time['kind']})"


def _draw(
    found: "Influence", averages: "list[AveragedInfluence]", words: list[str], out: Path
) -> None:
    from glauber.figures.page import write_picture
    from glauber.plots.averaged import plot_averaged
    from glauber.plots.influence import plot_influence

    pictures = [plot_influence(found, words)]
    if len(averages) > 1:
        pictures.append(plot_averaged(averages))
    write_picture(*pictures, path=out)
