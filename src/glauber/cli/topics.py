"""glauber topics: what a run's texts are about over time, and whether a topic comes back."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glauber.cli import options

if TYPE_CHECKING:
    from glauber.landscape.topics import TopicScores

Scorers = Annotated[
    list[str] | None,
    typer.Option(
        "--scorer", help="similarity (default), or an NLI model; several: give it several times."
    ),
]
Labels = Annotated[
    str, typer.Option(help="Labels with commas, topics or sentiments (the bundled lists).")
]


def topics(
    run: options.RunFolder,
    track: Annotated[str | None, typer.Option(help="The label to follow (default: first).")] = None,
    labels: Labels = "topics",
    scorer: Scorers = None,
    embedder: Annotated[
        str | None,
        typer.Option(help="Embedding model of similarity (default: the one in the package)."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Topics of the starts; chains take them in turn (default: by passage)."),
    ] = None,
    every: Annotated[
        int | None, typer.Option(help="One look every so many steps (default: 50 looks).")
    ] = None,
    judged: Annotated[
        bool, typer.Option("--judge", help="Also tell the accuracy on labelled passages.")
    ] = False,
    device: options.Device = "auto",
    out: Annotated[Path | None, typer.Option(help="HTML file of the pictures.")] = None,
    json: options.Json = False,
) -> None:
    """Follow what a run's texts are about, and tell how often a topic comes back."""
    from glauber.cli.screen import answer, looking
    from glauber.landscape.judgement import judge
    from glauber.landscape.recurrence import agreement, check_several, recurrence, seeds_of
    from glauber.landscape.scorers import load_scorer
    from glauber.landscape.topics import looks_apart, place_of, topic_scores
    from glauber.runs.run import Run
    from glauber.runs.signature import signature

    listed = read_labels(labels)
    followed = listed[0] if track is None else track
    place_of(followed, listed)
    opened = Run(run)
    looks_apart(opened, every)
    check_several(opened.n_chains)
    begun = seeds_of(opened) if seeds is None else _in_turn(seeds, opened.n_chains)
    found, verdicts = [], []
    for name in scorer or ["similarity"]:
        loaded = load_scorer(name, listed, embedder=embedder, device=device)
        with looking(quiet=json) as listener:
            found.append(topic_scores(opened, loaded, every=every, listener=listener))
        verdicts.append(asdict(judge(loaded)) if judged else None)
    told = {
        "tables": [asdict(recurrence(each, followed, seeds=begun)) for each in found],
        "judged": verdicts,
        "agreement": [asdict(agreement(found[0], each, followed)) for each in found[1:]],
        "scores": [_plain(each) for each in found],
        "run": str(run), "signature": signature(opened.spec),
    }  # fmt: skip
    if out is not None:
        _draw(found, followed, begun, out)
    answer(told, _lines(told), json=json, picture=out)


def read_labels(listed: str) -> list[str]:
    """The labels of a list with commas, or of a bundled list."""
    from glauber.landscape.descriptions import SENTIMENTS, TOPICS
    from glauber.landscape.topics import check_labels

    bundled = {"topics": list(TOPICS), "sentiments": list(SENTIMENTS)}
    return list(check_labels(bundled.get(listed) or listed.split(",")))


def _in_turn(listed: str, n_chains: int) -> list[str]:
    names = [name.strip() for name in listed.split(",")]
    return [names[chain % len(names)] for chain in range(n_chains)]


def _plain(found: "TopicScores") -> dict[str, Any]:
    """Mean scores over chains at each look; the scores of each chain would be long."""
    means = found.values.mean(axis=0)  # (looks, labels)
    columns = {label: means[:, place].tolist() for place, label in enumerate(found.labels)}
    return {"scorer": found.scorer, "steps": found.steps.tolist(), "means": columns}


def _draw(found: "list[TopicScores]", track: str, seeds: list[str] | None, out: Path) -> None:
    from glauber.figures.page import write_picture
    from glauber.plots.recurrence import plot_recurrence
    from glauber.plots.topic_river import plot_topic_river

    pictures = [
        drawn
        for each in found
        for drawn in (
            plot_topic_river(each, first=track),
            plot_recurrence(each, track, seeds=seeds),
        )
    ]
    write_picture(*pictures, path=out)


def _lines(told: dict[str, Any]) -> list[str]:
    lines = []
    for table, verdict in zip(told["tables"], told["judged"], strict=True):
        lines += recurrence_lines(table)
        lines += [] if verdict is None else [judgement_line(verdict)]
    lines += [
        f"{each['scorers'][0]} and {each['scorers'][1]} name the same label for "
        f"{each['same_label']:.0%} of the texts (estimate)"
        for each in told["agreement"]
    ]
    return [*lines, told["signature"]]


def recurrence_lines(table: dict[str, Any]) -> list[str]:
    """The table for the terminal."""
    head = (
        f"{table['track']} by {table['scorer']}; baseline {table['baseline']:.3f}, looks every "
        f"{table['every']} steps up to {table['n_steps']:,} (estimates, 95% intervals in --json)"
    )
    columns = (
        f"{'began with':>12}  chains  {'start':>6} {'end':>6}  {'own topic':>13}  crossed (95%)"
        "       peak   dwell  away"
    )
    return [head, columns, *(_row(row) for row in table["rows"])]


def _row(row: dict[str, Any]) -> str:
    own = "-".rjust(13)
    if row["seed_start"] is not None:
        own = f"{row['seed_start']['value']:.3f} -> {row['seed_end']['value']:.3f}"[:14]
    low, high = row["crossed_interval"]
    return (
        f"{row['seed']:>12}  {row['n_chains']:>6}  {row['tracked_start']['value']:>6.3f} "
        f"{row['tracked_end']['value']:>6.3f}  {own:>14}  "
        f"{row['crossed']:>3} ({low:>4.0%} to {high:>4.0%})  {row['peak']:>5.3f}  "
        f"{_time(row['dwell']):>5} {_time(row['away']):>5}"
    )


def _time(median: dict[str, Any]) -> str:
    return "open" if median["value"] is None else f"{median['value']:,.0f}"


def judgement_line(verdict: dict[str, Any]) -> str:
    """How far a scorer can be trusted, in one line."""
    low, high = verdict["interval"]
    return (
        f"on {verdict['n_texts']} labelled sentences that it was not calibrated on: accuracy "
        f"{verdict['accuracy']:.3f} (estimate, 95% interval {low:.3f} to {high:.3f}; chance "
        f"{verdict['chance']:.3f}), log-loss {verdict['log_loss']['value']:.3f} (chance "
        f"{verdict['chance_log_loss']:.3f})"
    )
