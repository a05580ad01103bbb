"""How is a run of an earlier format read, which has no digests? By what cannot be otherwise."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glauber.errors import DamagedRun
from glauber.runs.integrity import EVENTS, Checked, Commit, damaged
from glauber.runs.replay import contradiction
from glauber.runs.spec import Spec
from glauber.runs.store import FIELDS, chunk_file, fields_of

if TYPE_CHECKING:
    import zarr


class Replayed(Checked):
    """The arrays of a run without digests; a replay from mark to mark sees lost and swapped parts.

    Figures that are wrong but possible stay unseen; zarr's own checksums see flipped bits.
    """

    def __init__(self, folder: Path, group: "zarr.Group", commit: Commit, spec: Spec) -> None:
        super().__init__(folder, group, commit)
        self.gaps = spec.unmasking is not None  # any slot may be empty
        self.fields = fields_of(group)
        arrays = {name: self.array(name) for name in (*FIELDS, "tokens", "free")}
        if arrays["site"].shape[1] < commit.steps:
            raise damaged(folder, "committed steps are missing")
        try:
            every = int(group.attrs["steps_between_marks"])  # type: ignore[arg-type]
            chains = {arrays[name].shape[0] for name in (*FIELDS, "free")}
            same = arrays["tokens"].shape[1:] == arrays["free"].shape
            sound = every > 0 and chains == {spec.chains} and same
        except (KeyError, TypeError, ValueError, IndexError):
            sound = False
        if not sound:
            raise damaged(folder, f"the arrays of {EVENTS} do not fit each other")
        self.commit = replace(commit, every=every)

    def events(self, name: str, first: int, last: int) -> NDArray[Any]:
        values = super().events(name, first, last)
        if name == "site" and values.size:
            if not self.gaps and (values[:, :, 0] < 0).any():
                raise damaged(self.folder, "committed steps are missing")
            if values.max() >= self.array("free").shape[1]:
                raise damaged(self.folder, "an event lies outside the texts")
        if name == "changed" and values.size:
            for place in range(first // self.commit.every, -(-last // self.commit.every)):
                if not (self.folder / chunk_file(name, place)).is_file():
                    self.check_part(place)  # it is not there while nothing changes
        return values

    def check_part(self, place: int) -> None:
        first, last = self.commit.span(place)
        why = self._fault(place, first, last)
        if why is not None:
            raise damaged(self.folder, f"steps {first} to {last} {why}")

    def _fault(self, place: int, first: int, last: int) -> str | None:
        """What is wrong with some steps behind a mark, all of them or the first ones."""
        part = {name: super(Replayed, self).events(name, first, last) for name in self.fields}
        start = self.mark(place).astype(np.int64)
        whole = last % self.commit.every == 0
        end = self.mark(place + 1).astype(np.int64) if whole else None
        return contradiction(part, start, end, self.free(), gaps=self.gaps)

    def confirmed_steps(self) -> int:
        """The longest beginning that a replay confirms.

        Whole chunks are confirmed by the mark behind them. Of the last one those steps are taken
        that are filled in and follow from each other; of a generation, which has gaps, none.
        """
        for place in range(self.commit.places):
            first, last = self.commit.span(place)
            try:
                filled = last if last % self.commit.every == 0 else self._filled(first, last)
                if filled == first or self._fault(place, first, filled) is not None:
                    return first
            except DamagedRun:
                return first
        return filled if self.commit.places else 0

    def _filled(self, first: int, last: int) -> int:
        """Where steps begin of which something was not written yet."""
        if self.gaps:
            return first
        site, entropy = (super(Replayed, self).events(n, first, last) for n in ("site", "entropy"))
        there = ((site >= 0) & (entropy >= 0)).any(axis=2).all(axis=0)
        return first + int(np.argmin(np.append(there, False)))
