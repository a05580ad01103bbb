"""A stored run whose every event is given, so that what a reader should find is known."""

from pathlib import Path

import numpy as np

from conftest import make_tokenizer
from glauber.runs.folder_log import FolderLog
from glauber.runs.run import Run
from glauber.runs.spec import Spec


def crafted_run(
    folder: Path,
    start,
    sites,
    tokens,
    log_probs=None,
    entropy=None,
    temperature=1.0,
    save_tokenizer=None,
) -> Run:
    """The run from start (chains, n) whose step t writes tokens[:, t] at sites[:, t]."""
    start, sites, tokens = (np.asarray(part) for part in (start, sites, tokens))
    n_chains, n_steps = sites.shape
    rows, now, changed = np.arange(n_chains), start.copy(), []
    for step in range(n_steps):
        changed.append(now[rows, sites[:, step]] != tokens[:, step])
        now[rows, sites[:, step]] = tokens[:, step]
    log_probs = np.zeros(sites.shape) if log_probs is None else log_probs
    events = {
        "site": sites,
        "token": tokens,
        "changed": np.stack(changed, axis=1),
        "log_prob_old": log_probs,
        "log_prob_new": log_probs,
        "entropy": np.ones(sites.shape) if entropy is None else entropy,
    }
    spec = Spec("crafted", "0" * 12, "cpu", "float32", 0, n_steps, n_chains, temperature)
    save = save_tokenizer or make_tokenizer().save_pretrained
    free = np.ones(start.shape, bool)
    with FolderLog.create(folder, spec, start, free, save_tokenizer=save) as log:
        log.append({name: values[:, :, None] for name, values in events.items()})
    return Run(folder)
