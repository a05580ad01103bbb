"""Chains whose events are drawn without a model, so that what a log should contain is known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glauber.runs.folder_log import FolderLog
from glauber.runs.log import FIELDS, Events, MemoryLog
from glauber.runs.spec import Spec


@dataclass(frozen=True)
class Chains:
    """The tokens before the first step, and events that follow from them."""

    spec: Spec
    tokens: np.ndarray
    free: np.ndarray
    events: Events
    rejects: bool

    @property
    def n_slots(self) -> int:
        return self.events["site"].shape[2]

    def part(self, first: int, last: int) -> Events:
        """The events of the steps first <= step < last."""
        return {name: values[:, first:last] for name, values in self.events.items()}

    def memory_log(self, **options: Any) -> MemoryLog:
        options = {"rejects": self.rejects} | options
        return MemoryLog(self.spec, self.tokens, self.free, self.n_slots, **options)

    def create(self, folder: Path, **options: Any) -> FolderLog:
        options = {"rejects": self.rejects, "save_tokenizer": save_tokenizer} | options
        return FolderLog.create(folder, self.spec, self.tokens, self.free, self.n_slots, **options)

    def tokens_after(self) -> list[np.ndarray]:
        """The tokens after 0, 1, … steps, by a plain loop."""
        states = [self.tokens.astype(np.int32)]
        sites, tokens = self.events["site"], self.events["token"]
        for step in range(sites.shape[1]):
            state = states[-1].copy()
            for chain in range(len(state)):
                for site, token in zip(sites[chain, step], tokens[chain, step], strict=True):
                    if site >= 0:
                        state[chain, site] = token
            states.append(state)
        return states


def save_tokenizer(folder: Path) -> None:
    """Two small files in the place of a tokenizer."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    (folder / "tokenizer_config.json").write_text("{}")


def synthetic_chains(
    n_chains: int,
    n_steps: int,
    n_slots: int = 1,
    *,
    length: int = 9,
    rejects: bool = False,
    empty: float = 0.0,
    seed: int = 0,
) -> Chains:
    """Chains of texts of different lengths; a share of the slots is empty."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(max(1, length // 2), length + 1, size=n_chains)
    lengths[0] = length
    inside = np.arange(length) < lengths[:, None]
    tokens = np.where(inside, rng.integers(1000, size=(n_chains, length)), -1).astype(np.int32)
    shape = (n_chains, n_steps, n_slots)
    vacant = rng.random(shape) < empty
    events = {
        "site": (rng.random(shape) * lengths[:, None, None]).astype(np.int32),
        "token": rng.integers(1000, size=shape).astype(np.int32),
        "changed": rng.random(shape) < 0.5,
        "log_prob_old": (-9 * rng.random(shape)).astype(np.float32),
        "log_prob_new": (-9 * rng.random(shape)).astype(np.float32),
        "entropy": (5 * rng.random(shape)).astype(np.float32),
        "accepted": rng.random(shape) < 0.5,
    }
    for name, values in events.items():
        values[vacant] = FIELDS[name][1]
    spec = Spec("synthetic", "0" * 12, "cpu", "float32", seed, n_steps, n_chains, 1.0)
    return Chains(spec, tokens, inside, events, rejects)
