"""A stored run whose every event is given, so that what a reader should find is known."""

from pathlib import Path

import numpy as np

from conftest import make_tokenizer
from glauber.runs.run import Run
from glauber.runs.spec import Spec
from glauber.runs.store import create, seal
from glauber.runs.writer import Writer


def crafted_run(
    folder: Path, start, sites, tokens, log_probs=None, entropy=None, temperature=1.0
) -> Run:
    """The run from start (chains, n) whose step t writes tokens[:, t] at sites[:, t]."""
    start, sites, tokens = (np.asarray(part) for part in (start, sites, tokens))
    n_chains, n_steps = sites.shape
    folder.mkdir()
    create(folder, start, np.ones(start.shape, bool), 1)
    make_tokenizer().save_pretrained(folder / "tokenizer")
    seal(folder, Spec("crafted", "0" * 12, "cpu", "float32", 0, n_steps, n_chains, temperature))
    rows, now, changed, marks = np.arange(n_chains), start.copy(), [], {}
    with Writer(folder) as writer:
        for step in range(n_steps):
            changed.append(now[rows, sites[:, step]] != tokens[:, step])
            now[rows, sites[:, step]] = tokens[:, step]
            if (step + 1) % writer.every == 0:
                marks[step + 1] = now.copy()
        log_probs = np.zeros(sites.shape) if log_probs is None else log_probs
        entropy = np.ones(sites.shape) if entropy is None else entropy
        events = {
            "site": sites, "token": tokens, "changed": np.stack(changed, axis=1),
            "log_prob_old": log_probs, "log_prob_new": log_probs, "entropy": entropy,
        }  # fmt: skip
        writer.append({name: values[:, :, None] for name, values in events.items()}, marks)
        writer.finish()
    return Run(folder)
