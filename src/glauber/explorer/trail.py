"""What determines a living chain? Its trail: where it begins, its noise, and every edit.

The state after n steps is a function of the trail alone, so whatever a page shows can be worked
out again from its address. An edit with step s changes the state after s steps: step s + 1 is made
from what it leaves. Sites are counted in the shown text.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from glauber.conditionals.base import check_temperature
from glauber.dynamics.scans import scan_named
from glauber.errors import GlauberError
from glauber.progress import check_count, check_seed

STEPS = 10**6  # a living chain is followed so far
EDITS = 5000
CHARACTERS = 20_000
SITES = 2**24
CHAINS = 2**32 - 1  # what the key of the noise holds

KEYS = {"model", "text", "start", "seed", "chain", "temperature", "scan", "frozen", "edits"}


class Edit(NamedTuple):
    """One change of a chain: kind is temperature, token, freeze, free or chain."""

    step: int
    kind: str
    value: float  # the temperature, the token, the site to freeze or release, the chain's number
    site: int = -1  # of a token

    @classmethod
    def of(cls, given: Any) -> "Edit":
        """From a page's JSON."""
        if not isinstance(given, Mapping) or "step" not in given:
            raise GlauberError(f"{given!r:.80} is no edit: it needs a step.")
        step = _whole("step of an edit", given["step"], STEPS - 1)
        match sorted(given.keys() - {"step"}):
            case ["temperature"]:
                return cls(step, "temperature", _temperature(given["temperature"]))
            case ["site", "token"]:
                token = _whole("token of an edit", given["token"], 2**31 - 1)
                return cls(step, "token", token, _whole("site of an edit", given["site"], SITES))
            case ["freeze" | "free" as kind]:
                return cls(step, kind, _whole("site of an edit", given[kind], SITES))
            case ["chain"]:
                return cls(step, "chain", _whole("chain of an edit", given["chain"], CHAINS))
        raise GlauberError(
            f"the edit {dict(given)!r:.80} is none: it has a temperature, a site and a token, "
            "freeze, free or chain."
        )

    def to_dict(self) -> dict[str, Any]:
        if self.kind == "token":
            return {"step": self.step, "site": self.site, "token": self.value}
        return {"step": self.step, self.kind: self.value}


class Segment(NamedTuple):
    """The steps from one edit to the next: which edits open it, and a key of all so far."""

    first: int
    edits: tuple[Edit, ...]
    key: bytes


@dataclass(frozen=True)
class Trail:
    """Everything that determines a living chain."""

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
    def of(cls, given: Any) -> "Trail":
        """From a page's JSON; whatever is not a trail is refused in one sentence."""
        if not isinstance(given, Mapping):
            raise GlauberError(f"{given!r:.80} is no trail.")
        unknown = sorted(map(str, given.keys() - KEYS))
        if unknown:
            raise GlauberError(f"a trail has no {unknown[0]!r:.40}.")
        if ("text" in given) == ("start" in given):
            raise GlauberError("a trail begins from a text, or from a start in the opened run.")
        if not isinstance(given.get("model"), str):
            raise GlauberError("a trail needs the name of a model.")
        seed = given.get("seed", 0)
        check_seed(seed)
        return cls(
            model=given["model"],
            text=_text(given["text"]) if "text" in given else None,
            start=_start(given["start"]) if "start" in given else None,
            seed=seed,
            chain=_whole("chain", given.get("chain", 0), CHAINS),
            temperature=_temperature(given.get("temperature", 1.0)),
            scan=_scan(given.get("scan", "uniform")),
            frozen=_frozen(given.get("frozen", [])),
            edits=_edits(given.get("edits", [])),
        )

    def to_dict(self) -> dict[str, Any]:
        """What `of` reads."""
        begin: dict[str, Any] = {"text": self.text}
        if self.start is not None:
            begin = {"start": dict(zip(("chain", "step"), self.start, strict=True))}
        return {
            "model": self.model,
            **begin,
            "seed": self.seed,
            "chain": self.chain,
            "temperature": self.temperature,
            "scan": self.scan,
            "frozen": list(self.frozen),
            "edits": [edit.to_dict() for edit in self.edits],
        }

    @property
    def offset(self) -> int:
        """Steps of the run before it: with the run's seed and chain, a trail goes on as the run."""
        return 0 if self.start is None else self.start[1]

    @cached_property
    def segments(self) -> list[Segment]:
        """The trail cut at its edits. Trails that agree so far have the same keys so far."""
        begin = self.to_dict() | {"edits": []}
        digest = hashlib.sha256(json.dumps(begin).encode())
        cut = [(step, tuple(some)) for step, some in groupby(self.edits, key=lambda e: e.step)]
        if not cut or cut[0][0] > 0:
            cut.insert(0, (0, ()))
        found = []
        for step, edits in cut:
            digest.update(repr(edits).encode())
            found.append(Segment(step, edits, digest.digest()))
        return found

    @cached_property
    def ends(self) -> list[int]:
        """The step at which each segment ends."""
        return [*(one.first for one in self.segments[1:]), STEPS]


def _whole(name: str, value: Any, most: int) -> int:
    check_count(name, value, least=0, most=most)
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise GlauberError("the text is empty: there is no token to redraw.")
    if len(value) > CHARACTERS:
        raise GlauberError(
            f"the text has {len(value):,} characters, but a living chain takes at most "
            f"{CHARACTERS:,}."
        )
    return value


def _start(value: Any) -> tuple[int, int]:
    if not isinstance(value, Mapping) or value.keys() != {"chain", "step"}:
        raise GlauberError("the start of a trail is a chain and a step of the opened run.")
    return _whole("chain", value["chain"], 10**9), _whole("step", value["step"], 10**15)


def _temperature(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise GlauberError(f"the temperature is {value!r:.40}, but it must be a number.")
    check_temperature(value)
    return float(value)


def _scan(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 60:
        raise GlauberError(f"the scan is {value!r:.40}, but it must be a name such as uniform.")
    return scan_named(value).name


def _list(name: str, value: Any, most: int) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise GlauberError(f"the {name} of a trail are {value!r:.40}, but they must be a list.")
    if len(value) > most:
        raise GlauberError(f"a trail has {len(value):,} {name}, but at most {most:,} are followed.")
    return list(value)


def _frozen(value: Any) -> tuple[int, ...]:
    sites = _list("frozen sites", value, CHARACTERS)
    return tuple(sorted({_whole("frozen site", site, SITES) for site in sites}))


def _edits(value: Any) -> tuple[Edit, ...]:
    edits = tuple(Edit.of(one) for one in _list("edits", value, EDITS))
    for before, after in pairwise(edits):
        if after.step < before.step:
            raise GlauberError(
                f"an edit at step {after.step:,} stands behind one at step {before.step:,}, but "
                "edits are listed in the order of their steps."
            )
    return edits
