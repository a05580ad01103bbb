"""How a run is made: everything that decides its trajectory, apart from the starting tokens."""

import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

from glauber.dynamics.scans import scan_named
from glauber.foundation.disk import digest_of_json
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import has_type
from glauber.foundation.progress import check_seed
from glauber.models.base import check_temperature
from glauber.texts.constraints import Constraints
from glauber.texts.starts import spell_sites

LONGEST = 40  # characters of a prefix in a signature


@dataclass(frozen=True)
class Spec:
    """Everything that decides a trajectory, apart from the starting tokens."""

    model: str  # empty: an object without a name, which must be given again to resume
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
    def different_temperatures(self) -> list[float]:
        """The one temperature of all chains, or that of each."""
        return self.temperature if isinstance(self.temperature, list) else [self.temperature]

    @property
    def temperatures(self) -> list[float]:
        """The temperature of each chain."""
        several = isinstance(self.temperature, list)
        return self.different_temperatures * (1 if several else self.chains)

    @property
    def budget(self) -> int | None:
        """Sites that may differ from a chain's own start; None where nobody counts them."""
        return Constraints.from_dict(self.constraints).budget

    @property
    def signature(self) -> str:
        """The spec in one line, short enough to paste next to a result."""
        return signature(self)


def signature(spec: Spec) -> str:
    """A run's spec in one line, short enough to paste next to a result."""
    unmasking = {k: v for k, v in (spec.unmasking or {}).items() if v and v != "none"}
    prefix = " ".join(spec.prefix.replace("|", " ").split())
    one_site = (
        not spec.unmasking and spec.within == "sequential" and scan_named(spec.scan).size == 1
    )
    entries = {
        "model": spec.model or "an object",
        "weights": spec.fingerprint[:12] or "unknown",
        "temperature": ",".join(f"{temperature:g}" for temperature in spec.different_temperatures),
        # A generation draws at no sites that a scan picks; with one site all kinds are the same.
        "scan": None if spec.unmasking else spec.scan,
        "within": None if spec.unmasking or one_site else spec.within,
        "fill": None if spec.unmasking else spec.fill,
        "constraints": ",".join(
            f"{name}={value}" if isinstance(value, int) else name
            for name, value in (spec.constraints or {}).items()
        ),
        "length": spec.length,
        "prefix": prefix if len(prefix) <= LONGEST else f"{prefix[: LONGEST - 1]}…",
        "freeze": None if spec.unmasking else spell_sites(spec.frozen),
        "forbid": ",".join(spec.forbid),
        **unmasking,
        "chains": spec.chains,
        "steps": spec.steps,
        "seed": spec.seed,
        "device": f"{spec.device}/{spec.dtype}",
        "glauber": spec.versions.get("glauber", "?"),
        "torch": spec.versions.get("torch", "?"),
    }
    return "|".join(f"{k}:{v}" for k, v in entries.items() if v is not None and v != "")


def refuse_ties(spec: Spec, what: str) -> None:
    """Refuses a run with tied sites, for figures of single sites."""
    if Constraints.from_dict(spec.constraints).tied:
        raise GlauberError(
            f"{what} is known for steps that redraw one site, but this run has tied sites."
        )


def versions() -> dict[str, str]:
    """The versions that the bits of a trajectory may depend on."""
    from glauber import __version__

    libraries = {name: version(name) for name in ("torch", "transformers", "tokenizers")}
    own = {"glauber": __version__, "python": platform.python_version()}
    return own | libraries | {"machine": platform.machine()}


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
    entries = {name: value for name, value in record.items() if name in hints}
    for name, value in entries.items():
        if not has_type(value, hints[name]):
            raise ValueError(f"{name} is wrong")
    try:
        spec = Spec(**entries)
        check_seed(spec.seed)
        Constraints.from_dict(spec.constraints)
        for temperature in set(spec.different_temperatures):
            if temperature != 0 or not spec.unmasking:
                check_temperature(temperature)
    except (GlauberError, TypeError) as error:
        raise ValueError(str(error)) from error
    wrong_count = isinstance(spec.temperature, list) and len(spec.temperature) != spec.chains
    if spec.chains < 1 or spec.steps < 0 or wrong_count:
        raise ValueError("a number is wrong")
    return spec


def is_call(record: object) -> bool:
    """Whether this is a call as `Call.to_dict` gives it."""
    entries = record if isinstance(record, dict) else {}
    arguments = entries.get("arguments")
    return entries.keys() == {"study", "arguments"} and (
        isinstance(entries["study"], str) and has_type(arguments, dict[str, Any])
    )


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
