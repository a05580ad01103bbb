"""Where does a trail begin, and can its edits be made?"""

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from glauber.conditionals.base import PAD, Conditionals, Model, Restricted
from glauber.conditionals.causal_lm import CausalLM
from glauber.conditionals.starts import check_length, starts
from glauber.dynamics.glauber import glauber
from glauber.dynamics.scans import scan_named
from glauber.errors import GlauberError, GlauberWarning
from glauber.explorer.conditional import Shown
from glauber.explorer.models import Models
from glauber.explorer.trail import Trail
from glauber.result import counted

CHECKED = 256  # trails that are known to be sound

# chain and step of the opened run -> tokens (length,), free (length,), vocabulary
FromRun = Callable[[int, int], tuple[Any, Any, Any]]


class Begun(NamedTuple):
    """The beginning of a trail: tokens and free sites (length,), and what of them is shown."""

    tokens: NDArray[np.int64]
    free: NDArray[np.bool_]
    shown: Shown


class Beginnings:
    """From trails to the states that they begin in."""

    def __init__(self, models: Models, from_run: FromRun | None = None) -> None:
        self.models, self._from_run = models, from_run
        self._sound: OrderedDict[bytes, None] = OrderedDict()

    def __call__(self, trail: Trail) -> Begun:
        """Tokens and free sites before the first edit."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlauberWarning)  # `read` says it once
            return self.read(trail)

    def read(self, trail: Trail) -> Begun:
        """The same, with a warning where a text had to be repaired."""
        model = self.models[self.models.check(trail.model)]
        if isinstance(model, CausalLM):
            raise GlauberError(
                f"{model.name} is an autoregressive LM: each token that could stand at a site "
                "costs a pass, so it cannot be run live."
            )
        tokens, free = self._start(model, trail)
        shown = Shown.of(model.vocabulary, tokens, free)
        for site in trail.frozen:
            free[shown.position(site)] = False
        return Begun(tokens, free, shown)

    def _start(self, model: Model, trail: Trail) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        if trail.text is not None:
            rows = starts(model, [trail.text])
            return rows[0][0].numpy(), rows[1][0].numpy()
        if self._from_run is None or trail.start is None:
            raise GlauberError("no run is open here: begin from a text.")
        tokens, free, vocabulary = self._from_run(*trail.start)
        row = np.asarray(tokens, np.int64)
        row = row[: int((row != PAD).sum())]
        known = int(row.max()) < model.vocab_size
        if not known or any(vocabulary.spell(t) != model.vocabulary.spell(t) for t in set(row)):
            raise GlauberError(f"{model.name} has another vocabulary than the opened run.")
        check_length(model, torch.from_numpy(row)[None])
        return row.copy(), np.asarray(free, np.bool_)[: len(row)].copy()

    def check(self, trail: Trail) -> None:
        """Refuses edits that no state of the trail allows."""
        key = trail.segments[-1].key
        if key in self._sound:
            self._sound.move_to_end(key)
            return
        begun = self(trail)
        conditionals = self.models.conditionals(trail.model)
        glauber(conditionals, scan=scan_named(trail.scan))  # refuses what it cannot draw
        _check_edits(trail, begun, conditionals)
        self._sound[key] = None
        if len(self._sound) > CHECKED:
            self._sound.popitem(last=False)


def allowed(conditionals: Conditionals) -> NDArray[np.bool_]:
    """Which tokens can be drawn, (vocab,)."""
    if isinstance(conditionals, Restricted):
        return conditionals.allowed.cpu().numpy()
    return np.ones(conditionals.vocab_size, np.bool_)


def _check_edits(trail: Trail, begun: Begun, conditionals: Conditionals) -> None:
    free, drawn = begun.free.copy(), allowed(conditionals)
    fewest = scan_named(trail.scan).fewest
    for edit in (None, *trail.edits):
        if edit is not None and edit.kind == "token":
            begun.shown.position(edit.site)
            if edit.value >= len(drawn) or not drawn[int(edit.value)]:
                raise GlauberError(f"the token {edit.value} cannot be put: it is never drawn.")
        elif edit is not None and edit.kind in ("freeze", "free"):
            free[begun.shown.position(int(edit.value))] = edit.kind == "free"
        if free.sum() < fewest:
            raise GlauberError(
                f"the scan {trail.scan} needs {counted(fewest, 'free site')}, but "
                f"{counted(int(free.sum()), 'site')} of the text would be left."
            )
