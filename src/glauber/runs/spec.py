"""How was a run made? The readable header of a run's folder, `run.json`."""

import json
import os
import platform
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from glauber.conditionals.base import check_temperature
from glauber.conditionals.constraints import Constraints
from glauber.conditionals.starts import spell_sites
from glauber.errors import GlauberError
from glauber.json_text import parse_json
from glauber.runs.integrity import COPIES, damaged, digest_of_json, is_sealed, sealed

FORMAT = 4  # with digests; 1 (chains), 2 (generations) and 3 (constraints) had none
HEADER = "run.json"
LONGEST = 40  # characters of a prefix in a signature
DRAFT = ".glauber-draft"  # how the names of files and folders end that are not finished yet


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
    format: int = FORMAT
    forbid: list[str] = field(default_factory=list)  # tokens never proposed, as they are spelled
    standard_only: bool = False  # of a protein alphabet only the standard residues; not before 0.2
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
    if spec.within == "sequential" and not spec.scan.startswith("block"):
        del parts["within"]  # says nothing where one site is redrawn at a time
    if spec.unmasking is not None:  # no redraws of sites that a scan picks
        del parts["scan"], parts["within"], parts["fill"]
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
    """The entries of `run.json`; those that came later are there only where they say something."""
    record = asdict(spec) | {"format": FORMAT}
    for name in ("forbid", "unmasking", "constraints", "names", "own"):
        if not record[name]:
            del record[name]
    return record


CHANGING = ("steps", "versions", "device", "format")  # what a writer that goes on may change


def spec_digest(spec: Spec) -> str:
    """The digest of what never changes about a run, so that parts of two runs are told apart."""
    return digest_of_json({k: v for k, v in record_of(spec).items() if k not in CHANGING})


def write_spec(folder: Path, spec: Spec) -> None:
    """Writes `run.json` atomically, in the present format, and then its copy."""
    write_twice(folder / HEADER, sealed(record_of(spec)))


def read_spec(folder: Path, name: str = HEADER) -> Spec:
    """The spec of a run's folder; refuses damaged and newer ones."""
    try:
        if not (folder / name).is_file():
            if name in COPIES and (folder / COPIES[name]).is_file():
                raise damaged(folder, f"{name} is missing", restored(folder, name))
            raise GlauberError(f"{folder} is not a run: it has no {name}.")
        found = parse_json((folder / name).read_text(encoding="utf-8"))
        number = int(found["format"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise damaged(folder, f"{name} cannot be read", restored(folder, name)) from error
    if ("digest" in found or number == FORMAT) and not is_sealed(found):
        why = f"{name} is not what was written"
        raise damaged(folder, why, restored(folder, name))
    if number > FORMAT:
        raise GlauberError(
            f"the run {folder} has format {number}, but this version of glauber reads up to "
            f"{FORMAT}: use a newer glauber."
        )
    return spec_of(folder, found)


def spec_of(folder: Path, record: dict[str, Any]) -> Spec:
    """The spec with these entries; refuses entries that are missing or wrong."""
    _check_entries(folder, record)
    return Spec(**{f.name: record[f.name] for f in fields(Spec) if f.name in record})


def restored(folder: Path, name: str) -> str:
    """What can be done about a damaged small file, if anything."""
    try:
        copy = parse_json((folder / COPIES[name]).read_bytes())
        there = isinstance(copy, dict) and is_sealed(copy)
    except (KeyError, OSError, ValueError, RecursionError):
        there = False
    return f"`glauber repair {folder}` restores it if its copy is of this run" if there else ""


def check_trust(folder: Path, spec: Spec, trusted: bool) -> None:
    """A run can ask for trust; only the reader gives it. Nothing is loaded before."""
    name = spec.model
    if name in ("", "unnamed"):
        raise GlauberError(
            f"the run {folder} was made from a model without a name: give the model itself "
            "(model=…)."
        )
    if spec.trust_remote_code and not trusted:
        raise GlauberError(
            f"the run {folder} asks to run code that comes with the model {name}: allow it "
            "with trust_remote_code (--trust-remote-code) if you trust both."
        )
    home, place = folder.resolve(), Path(os.path.realpath(name))
    if not trusted and place.exists() and (place == home or home in place.parents):
        raise GlauberError(
            f"the run {folder} names a model inside its own folder: allow it with "
            "trust_remote_code (--trust-remote-code) if you trust where the run comes from."
        )


KINDS: dict[str, Any] = {
    "seed": int, "steps": int, "chains": int, "temperature": (float, int, list), "frozen": list,
    "length": (int, type(None)), "special_tokens": bool, "trust_remote_code": bool,
    "versions": dict, "format": int, "forbid": list, "standard_only": bool,
    "unmasking": (dict, type(None)), "constraints": (dict, type(None)),
    "names": list, "own": bool,
}  # fmt: skip


def _check_entries(folder: Path, found: dict[str, Any]) -> None:
    """Refuses a header that lacks an entry or has one of another kind."""
    for one in fields(Spec):
        needed = one.default is MISSING and one.default_factory is MISSING
        if one.name not in found and not needed:
            continue
        if one.name not in found:
            raise damaged(folder, f"{HEADER} lacks entries")
        if not isinstance(found[one.name], KINDS.get(one.name, str)):
            raise damaged(folder, f"{one.name} in {HEADER} is wrong")
    try:
        Constraints.from_dict(found.get("constraints"))
    except GlauberError as error:
        raise damaged(folder, f"constraints in {HEADER} is wrong") from error
    values = found["temperature"]
    several = values if isinstance(values, list) else [values] * max(1, found["chains"])
    try:
        if found["chains"] < 1 or found["steps"] < 0 or len(several) != found["chains"]:
            raise GlauberError("")
        for value in set(several):
            if value != 0 or not found.get("unmasking"):
                check_temperature(value)
    except (GlauberError, TypeError) as error:
        raise damaged(folder, f"a number in {HEADER} is wrong") from error


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically: a reader, or a power cut, sees the old file or the new."""
    content = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    replace_files({path: content.encode()}, path.parent)


def write_twice(path: Path, value: Any) -> None:
    """Writes a small file of a run, and then its copy."""
    write_json(path, value)
    write_json(path.with_name(COPIES[path.name]), value)


def replace_files(files: dict[Path, bytes], root: Path, known: set[Path] | None = None) -> None:
    """Replaces files below root, each whole: their content is on the disk before their name is.

    known are folders whose own names are on the disk already; those that are new are added.
    """
    for folder in {path.parent for path in files}:
        folder.mkdir(parents=True, exist_ok=True)
    _side_by_side(lambda one: _replace_file(*one), list(files.items()))
    known = set() if known is None else known
    inside = {one for path in files for one in path.parents if root in one.parents} - known
    sync(*{path.parent for path in files} | {one.parent for one in inside})
    known |= inside


def _replace_file(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}{DRAFT}")
    try:
        draft.write_bytes(content)
        _sync(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def sync(*places: Path) -> None:
    """Makes files, or the names that folders hold, outlast a power cut."""
    _side_by_side(_sync, places)


def _side_by_side(work: Callable[[Any], None], things: Sequence[Any]) -> None:
    """Does something to each thing; a disk takes many in one go."""
    if len(things) < 2:
        for one in things:
            work(one)
        return
    with ThreadPoolExecutor(min(16, len(things)), "glauber-disk") as pool:
        list(pool.map(work, things))


def _sync(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
