"""How a run is made: everything that decides its trajectory, apart from the starting tokens."""

import os
import platform
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from glauber.conditionals.base import check_temperature
from glauber.conditionals.constraints import Constraints
from glauber.conditionals.starts import spell_sites
from glauber.disk import digest_of_json
from glauber.dynamics.scans import scan_named
from glauber.errors import GlauberError
from glauber.progress import check_seed

LONGEST = 40  # characters of a prefix in a signature


@dataclass(frozen=True)
class Spec:
    """Everything that decides a trajectory, apart from the starting tokens."""

    model: str  # empty: an object without a name, which must be given again to go on
    fingerprint: str
    device: str
    dtype: str
    seed: int
    steps: int
    chains: int
    temperature: float | list[float]  # of all chains, or one of each
    scan: str = "uniform"
    within: str = "sequential"
    fill: str = "inverse-cdf"
    length: int | None = None
    prefix: str = ""
    frozen: list[int] = field(default_factory=list)
    special_tokens: bool = False
    trust_remote_code: bool = False  # the run asks for it; whoever opens it gives it, or does not
    versions: dict[str, str] = field(default_factory=dict)
    forbid: list[str] = field(default_factory=list)  # tokens never proposed, as they are spelled
    standard_only: bool = False  # of a protein alphabet, only the standard residues
    unmasking: dict[str, Any] | None = None  # of a generation: how its hidden sites are filled
    constraints: dict[str, Any] | None = None  # that every chain keeps to: `Constraints`
    names: list[str] = field(default_factory=list)  # of the chains' texts, where a file names them
    own: bool = False  # the model is a rule of the user's own: its name leads to nothing

    @property
    def temperatures(self) -> list[float]:
        """The temperature of each chain."""
        several = isinstance(self.temperature, list)
        return list(self.temperature) if several else [self.temperature] * self.chains  # type: ignore[arg-type, list-item]

    @property
    def budget(self) -> int | None:
        """Sites that may differ from a chain's own start; None where nobody counts them."""
        return Constraints.from_dict(self.constraints).budget

    @property
    def signature(self) -> str:
        """The spec in one line, short enough to paste beside a result."""
        return signature(self)


def signature(spec: Spec) -> str:
    """A run's spec in one line, short enough to paste beside a result."""
    parts = {
        "model": spec.model or "an object",
        "weights": spec.fingerprint[:12] or "unknown",
        "temperature": ",".join(f"{one:g}" for one in _shown(spec)),
        "scan": spec.scan,
        "within": spec.within,
        "fill": spec.fill,
        **({"constraints": _kept_to(spec)} if spec.constraints else {}),
        **({"length": str(spec.length)} if spec.length else {}),
        **({"prefix": _one_line(spec.prefix)} if spec.prefix else {}),
        **({"freeze": spell_sites(spec.frozen)} if spec.frozen and not spec.unmasking else {}),
        **({"forbid": ",".join(spec.forbid)} if spec.forbid else {}),
        **{k: str(v) for k, v in (spec.unmasking or {}).items() if v and v != "none"},
        "chains": str(spec.chains),
        "steps": str(spec.steps),
        "seed": str(spec.seed),
        "device": f"{spec.device}/{spec.dtype}",
        "glauber": spec.versions.get("glauber", "?"),
        "torch": spec.versions.get("torch", "?"),
    }
    if spec.unmasking is not None:  # no redraws of sites that a scan picks
        del parts["scan"], parts["within"], parts["fill"]
    elif spec.within == "sequential" and scan_named(spec.scan).size == 1:
        del parts["within"]  # with one site a step all kinds are the same
    return "|".join(f"{key}:{value}" for key, value in parts.items())


def refuse_ties(spec: Spec, what: str) -> None:
    """Refuses a run with tied sites, for figures of single sites."""
    if Constraints.from_dict(spec.constraints).tied:
        raise GlauberError(
            f"{what} is known for steps that redraw one site, but this run has tied sites."
        )


def _kept_to(spec: Spec) -> str:
    """The kinds of a run's constraints, and their numbers where they are numbers."""
    found = spec.constraints or {}
    return ",".join(f"{k}={v}" if isinstance(v, int) else k for k, v in found.items())


def _one_line(text: str) -> str:
    """A text as a signature can hold it: short, without what parts signatures."""
    bare = " ".join(text.replace("|", " ").split())
    return bare if len(bare) <= LONGEST else f"{bare[: LONGEST - 1]}…"


def _shown(spec: Spec) -> list[float]:
    return spec.temperatures if isinstance(spec.temperature, list) else [spec.temperature]


def versions() -> dict[str, str]:
    """The versions that the bits of a trajectory may depend on."""
    names = ("torch", "transformers", "tokenizers")
    found = {"glauber": _own_version(), "python": platform.python_version()}
    return found | {name: version(name) for name in names} | {"machine": platform.machine()}


def _own_version() -> str:
    from glauber import __version__

    return __version__


def record_of(spec: Spec) -> dict[str, Any]:
    """The entries of a spec in run.json; optional ones only where they say something."""
    record = asdict(spec)
    for name in ("forbid", "unmasking", "constraints", "names", "own"):
        if not record[name]:
            del record[name]
    return record


CHANGING = ("steps", "versions", "device")  # what may change when a run is resumed


def spec_digest(spec: Spec) -> str:
    """A digest of what never changes about a run."""
    return digest_of_json({k: v for k, v in record_of(spec).items() if k not in CHANGING})


def spec_of(record: dict[str, Any]) -> Spec:
    """The spec with these entries; a ValueError if one is missing or wrong."""
    hints = get_type_hints(Spec)
    for one in fields(Spec):
        required = one.default is MISSING and one.default_factory is MISSING
        if required and one.name not in record:
            raise ValueError(f"{one.name} is missing")
        if one.name in record and not _fits(record[one.name], hints[one.name]):
            raise ValueError(f"{one.name} is wrong")
    spec = Spec(**{one.name: record[one.name] for one in fields(Spec) if one.name in record})
    temperatures = _shown(spec)
    wrong_count = isinstance(spec.temperature, list) and len(temperatures) != spec.chains
    if spec.chains < 1 or spec.steps < 0 or wrong_count:
        raise ValueError("a number is wrong")
    try:
        check_seed(spec.seed)
        Constraints.from_dict(spec.constraints)
        for value in set(temperatures):
            if value != 0 or not spec.unmasking:
                check_temperature(value)
    except GlauberError as error:
        raise ValueError(str(error)) from error
    return spec


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value that was read from JSON has the type of a field."""
    if hint is Any:
        return True
    if isinstance(hint, UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(
            _fits(item, get_args(hint)[1]) for item in value.values()
        )
    if hint in (int, float):
        numbers = (int, float) if hint is float else (int,)
        return isinstance(value, numbers) and not isinstance(value, bool)
    return isinstance(value, NoneType if hint is None else hint)


def check_trust(folder: Path | None, spec: Spec, trusted: bool) -> None:
    """Refuse to run code that a run asks for, unless whoever opens it trusts it."""
    run = "the run" if folder is None else f"the run {folder}"
    if spec.model in ("", "unnamed"):
        raise GlauberError(
            f"{run} was made from a model without a name: give the model itself (model=…)."
        )
    if trusted:
        return
    if spec.trust_remote_code:
        raise GlauberError(
            f"{run} asks to run code that comes with the model {spec.model}: allow it with "
            "trust_remote_code (--trust-remote-code) if you trust both."
        )
    path = Path(os.path.realpath(spec.model))
    if folder is not None and path.exists() and folder.resolve() in (path, *path.parents):
        raise GlauberError(
            f"{run} names a model inside its own folder: allow it with trust_remote_code "
            "(--trust-remote-code) if you trust where the run comes from."
        )
