"""glauber prefixes: what frozen prefixes pull the text towards."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from glauber.cli import options
from glauber.cli.topics import Labels, read_labels


def prefixes(
    prefix: Annotated[
        list[str] | None,
        typer.Option(help="A prefix; several: give it several times (default: the paper's five)."),
    ] = None,
    model: options.Model = "bundled:english",
    source: options.From = None,
    chains: options.Chains = 16,
    length: options.Length = 16,
    steps: options.Steps = 200,
    temperature: options.Temperature = 1.0,
    seed: options.Seed = 0,
    labels: Labels = "topics",
    scorer: Annotated[str, typer.Option(help="similarity, or an NLI model.")] = "similarity",
    every: Annotated[int, typer.Option(help="One look every so many steps.")] = 16,
    device: options.Device = "auto",
    out: Annotated[Path | None, typer.Option(help="HTML file of the picture.")] = None,
    json: options.Json = False,
) -> None:
    """Run many chains behind each frozen prefix and tell its topics and words against none."""
    from glauber.cli.screen import answer, say
    from glauber.conditionals.masked_lm import MaskedLM
    from glauber.conditionals.starts import read_texts
    from glauber.landscape.prefixes import PREFIXES, prefix_runs, prefix_study
    from glauber.landscape.scorers import load_scorer
    from glauber.runs.signature import signature

    listed = read_labels(labels)
    texts = None if source is None else read_texts(source)
    runs = dict(
        prefix_runs(
            MaskedLM.load(model, device=device),
            tuple(prefix or PREFIXES),
            texts=texts,
            chains=chains,
            length=length,
            steps=steps,
            temperature=temperature,
            seed=seed,
            starting=lambda name: say(f"chains behind {name or 'no prefix'} …", quiet=json),
        )
    )
    loaded = load_scorer(scorer, listed, device=device)
    found = prefix_study(runs, loaded, every=every)
    told = asdict(found) | {"signature": signature(runs[""].spec)}
    for plain, pull in zip(told["pulls"], found.pulls, strict=True):
        plain["towards"] = pull.towards
    if out is not None:
        from glauber.figures.page import write_picture
        from glauber.plots.prefixes import plot_prefixes

        write_picture(plot_prefixes(found), path=out)
    answer(told, _lines(told), json=json, picture=out)


def _lines(told: dict[str, Any]) -> list[str]:
    lines = [
        f"topics and words that each prefix pulls towards, against {told['n_chains']} chains "
        "without one (estimates, 95% intervals each by itself; the prefix is not read)"
    ]
    for pull in told["pulls"]:
        lines += [pull["prefix"], f"  topics  {_topics(pull)}", f"  words   {_words(pull)}"]
        lines += [f"  text    {pull['examples'][0]}"]
    return [*lines, told["signature"]]


def _topics(pull: dict[str, Any]) -> str:
    parts = []
    for label in pull["towards"]:
        mean = pull["pull"][label]
        low, high = mean["interval"]
        parts.append(f"{label} {mean['value']:+.2f} ({low:+.2f} to {high:+.2f})")
    return ", ".join(parts) or "none that can be told from zero"


def _words(pull: dict[str, Any]) -> str:
    parts = [
        f"{word['word']} {word['log_odds']:+.1f} +- {word['standard_error']:.1f}"
        + ("" if word["sure"] else " (?)")
        for word in pull["words"][:6]
    ]
    return ", ".join(parts) or "none"
