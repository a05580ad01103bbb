"""What determines a live chain: its trail, which is its start, its noise, and every edit.

The state after n steps is a function of the trail alone, so whatever a page shows can be computed
again from its address. An edit with step s changes the state after s steps: step s + 1 starts from
the edited state. Sites are counted in the shown text.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple, cast

from glauber.dynamics.scans import scan_named
from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count, check_seed
from glauber.models.base import check_temperature

STEPS = 10**6  # the most of a live chain
EDITS = 5000
CHARACTERS = 20_000
SITES = 2**24
CHAINS = 2**32 - 1  # the largest that the key of the noise can contain


class Edit(NamedTuple):
    """One change of a chain: kind is temperature, token, freeze, free or chain."""

    step: int
    kind: str
    value: float  # the temperature, the token, the site to freeze or release, the chain's number
    site: int = -1  # of a token


class TrailSegment(NamedTuple):
    """The steps from one edit to the next: the edits at its start, and a key of all so far."""

    first: int
    edits: tuple[Edit, ...]
    key: bytes


@dataclass(frozen=True)
class Trail:
    """Everything that determines a live chain."""

    model: str
    text: str | None = None
    start: tuple[int, int] | None = None  # chain and step of the opened run, instead of a text
    seed: int = 0
    chain: int = 0
    temperature: float = 1.0
    scan: str = "uniform"
    frozen: tuple[int, ...] = ()
    edits: tuple[Edit, ...] = ()

    @classmethod
    def of(cls, question: object) -> "Trail":
        """From a page's JSON; whatever is not a trail is refused in one sentence."""
        if not isinstance(question, Mapping):
            raise GlauberError(f"{question!r:.80} is no trail.")
        unknown = sorted(map(str, question.keys() - READERS.keys()))
        if unknown:
            raise GlauberError(f"a trail has no {unknown[0]!r:.40}.")
        if ("text" in question) == ("start" in question):
            raise GlauberError("a trail begins from a text, or from a start in the opened run.")
        if not isinstance(question.get("model"), str):
            raise GlauberError("a trail needs the name of a model.")
        values = {name: READERS[name](value) for name, value in question.items()}
        return cls(**values)  # type: ignore[arg-type]

    @property
    def offset(self) -> int:
        """Steps of the run before it: with the run's seed and chain, a trail continues the run."""
        return 0 if self.start is None else self.start[1]

    @cached_property
    def segments(self) -> list[TrailSegment]:
        """The trail cut at its edits. Trails that agree so far have the same keys so far."""
        digest = hashlib.sha256(repr(replace(self, edits=())).encode())
        groups = groupby(self.edits, lambda edit: edit.step)
        segments = []
        for step, edits in {0: (), **{step: tuple(edits) for step, edits in groups}}.items():
            digest.update(repr((step, edits)).encode())
            segments.append(TrailSegment(step, edits, digest.digest()))
        return segments

    @cached_property
    def ends(self) -> list[int]:
        """The step at which each segment ends."""
        return [*(segment.first for segment in self.segments[1:]), STEPS]


# ---- values of a page's JSON


def _count(name: str, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = cast("int", value)
        check_count(name, number, least=0, most=most)
        return number

    return read


def _seed(value: object) -> int:
    check_seed(cast("int", value))
    return cast("int", value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise GlauberError("the text is empty: there is no token to redraw.")
    if len(value) > CHARACTERS:
        raise GlauberError(
            f"the text has {len(value):,} characters, but a live chain takes at most "
            f"{CHARACTERS:,}."
        )
    return value


def _start(value: object) -> tuple[int, int]:
    if not isinstance(value, Mapping) or value.keys() != {"chain", "step"}:
        raise GlauberError("the start of a trail is a chain and a step of the opened run.")
    return _count("chain", 10**9)(value["chain"]), _count("step", 10**15)(value["step"])


def _temperature(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise GlauberError(f"the temperature is {value!r:.40}, but it must be a number.")
    check_temperature(value)
    return float(value)


def _scan(value: object) -> str:
    if not isinstance(value, str) or len(value) > 60:
        raise GlauberError(f"the scan is {value!r:.40}, but it must be a name such as uniform.")
    return scan_named(value).name


def _list(name: str, value: object, most: int) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise GlauberError(f"the {name} of a trail are {value!r:.40}, but they must be a list.")
    if len(value) > most:
        raise GlauberError(f"a trail has {len(value):,} {name}, but at most {most:,} are allowed.")
    return value


def _frozen(value: object) -> tuple[int, ...]:
    sites = _list("frozen sites", value, CHARACTERS)
    return tuple(sorted(set(map(_count("frozen site", SITES), sites))))


def _edit(value: object) -> Edit:
    if not isinstance(value, Mapping) or "step" not in value:
        raise GlauberError(f"{value!r:.80} is no edit: it needs a step.")
    step, site = (
        _count("step of an edit", STEPS - 1)(value["step"]),
        _count("site of an edit", SITES),
    )
    match sorted(value.keys() - {"step"}):
        case ["temperature"]:
            return Edit(step, "temperature", _temperature(value["temperature"]))
        case ["site", "token"]:
            token = _count("token of an edit", 2**31 - 1)(value["token"])
            return Edit(step, "token", token, site(value["site"]))
        case ["freeze" | "free" as kind]:
            return Edit(step, kind, site(value[kind]))
        case ["chain"]:
            return Edit(step, "chain", _count("chain of an edit", CHAINS)(value["chain"]))
    raise GlauberError(
        f"{dict(value)!r:.80} is no edit: it has a temperature, a site and a token, freeze, free "
        "or chain."
    )


def _edits(value: object) -> tuple[Edit, ...]:
    edits = tuple(map(_edit, _list("edits", value, EDITS)))
    for before, after in pairwise(edits):
        if after.step < before.step:
            raise GlauberError(
                f"an edit at step {after.step:,} comes after one at step {before.step:,}, but "
                "edits are listed in the order of their steps."
            )
    return edits


READERS: dict[str, Callable[[object], object]] = {
    "model": str,
    "text": _text,
    "start": _start,
    "seed": _seed,
    "chain": _count("chain", CHAINS),
    "temperature": _temperature,
    "scan": _scan,
    "frozen": _frozen,
    "edits": _edits,
}
