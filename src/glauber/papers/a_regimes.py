"""Paper A, the temperature regimes: barely moving, wandering among basins, noise."""

from typing import Any

from glauber.conditionals.masked_lm import MaskedLM
from glauber.figures.metastability import plot_regimes
from glauber.metastability.regimes import Regime, regime
from glauber.papers.reproduction import Reproduction, Scale
from glauber.papers.traps import CONDITIONS
from glauber.runs.embedding import load_embedder
from glauber.sampling.sample import sample

PUBLISHED = {
    0.01: "barely moves",
    0.1: "barely moves",
    1.0: "wanders among basins",
    10.0: "noise",
    100.0: "noise",
}
SIZES: dict[Scale, tuple[int, int]] = {"small": (6, 600), "paper": (30, 10_000)}  # chains, steps


def make(scale: Scale, *, seed: int) -> Reproduction:
    """How chains move at each temperature, with the text that one of them ended in."""
    found = CONDITIONS[scale]
    model, embedder = MaskedLM.load(found.model), load_embedder(found.embedder, **found.how)
    chains, steps = SIZES[scale]
    regimes, rows = [], []
    for temperature, words in PUBLISHED.items():
        run = sample(
            model,
            steps=steps,
            chains=chains,
            length=found.length,
            temperature=temperature,
            seed=seed,
        )
        regimes.append(regime(run, embedder.embed))
        rows.append(_row(regimes[-1], run.text(), words) | {"model": model.name})
    how = (
        f"{chains} chains of {steps:,} steps from the bundled passages, cut to {found.length} "
        "tokens; the same starts and seed at every temperature; shares over the second half"
    )
    pictures = {"shares": plot_regimes(regimes)}
    return Reproduction("A-regimes", scale, how, rows, seed, pictures)


def _row(found: Regime, text: str, words: str) -> dict[str, Any]:
    return {
        "temperature": found.temperature,
        "steps that change a token": found.changed,
        "start tokens kept": found.kept,
        "entropy, nats": found.entropy,
        "log-probability of draws": found.log_prob,
        "1 - cosine per 50 steps": found.pace,
        "steps within a trap": found.stuck,
        "kind": found.kind,
        "chain 0 ends in": text,
        "published": words,
    }
