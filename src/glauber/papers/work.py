"""Settings of a piece, its chains, and the folder that stores slow results.

chains.json          the chains that pieces need; `make_chains` runs them, on a bare machine too
chains/DIGEST/       runs: chains that several pieces need are run once, and resume
parts/NAME-DIGEST    other slow results, each written when it is complete
studies/NAME-DIGEST  folders of studies that resume by themselves, such as a phase diagram's
answers/             finished pieces, one file per seed

This module imports no more than sampling does, so that chains can be run on a machine that has only
torch and transformers; after they are copied back, the same command continues with them.
"""

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import glauber
from glauber.foundation.disk import write_json
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.progress import say
from glauber.foundation.study import counted, plain
from glauber.models.shelf import bundled_folder
from glauber.models.weights import split_name
from glauber.runs.run import Run

Scale = Literal["small", "paper"]
# Settings that a user may change, by their names on the command line.
FLAGS = {
    "model": "--model",
    "texts": "--from",
    "topics": "--id-column",
    "control": "--control",
    "temperature": "--temperature",
    "length": "--length",
    "copies": "--copies",
    "chains": "--chains",
    "steps": "--steps",
    "embedder": "--embedder",
    "scorer": "--scorer",
}
BUNDLED = "bundled"  # the embedder of the package, which is None in settings
CHAINS = "chains.json"
PAGE_SUFFIXES = (".html", ".json", ".png", ".csv")
FORMAT = 1  # of the chains; another number if the same settings give other bits
# Published models by what their configs say: type, layers, width and size of the vocabulary.
PUBLISHED = {
    ("bert", 12, 768, 30522): "bert-base-uncased",
    ("bert", 24, 1024, 30522): "bert-large-uncased",
    ("roberta", 12, 768, 50265): "roberta-base",
    ("roberta", 24, 1024, 50265): "roberta-large",
    ("modernbert", 22, 768, 50368): "answerdotai/ModernBERT-base",
}
OWNERS = ("google-bert/", "FacebookAI/")  # on the hub, of the same models by another name
WEIGHTS = ("config.json", "*.safetensors", "*.bin", "tokenizer.json", "vocab.txt")


@dataclass(frozen=True)
class Chains:
    """Chains that a piece needs: everything that determines them, as `glauber.sample` takes it."""

    model: str
    texts: tuple[str, ...] | None = None  # None: the bundled passages
    steps: int = 1000
    chains: int | None = None
    length: int | None = None
    temperature: float = 1.0
    seed: int = 0
    prefix: str = ""
    scan: str = "uniform"
    within: str | None = None
    trust_remote_code: bool = False

    @property
    def digest(self) -> str:
        """The name of their folder; independent of machine, device and version of torch."""
        return digest({**asdict(self), "model": weights(self.model), "format": FORMAT})

    @property
    def work(self) -> int:
        """Steps of all chains together."""
        return self.steps * (self.chains or len(self.texts or ()) or 8)

    def __str__(self) -> str:
        number = counted(self.chains, "chain") if self.chains else "all chains"
        return (
            f"{number} x {self.steps:,} steps of {self.model} at temperature "
            f"{self.temperature:g}, seed {self.seed}"
        )

    def place(self, folder: Path) -> Path:
        """Their run in the folder of the pieces."""
        return folder / "chains" / self.digest

    def finished(self, folder: Path) -> bool:
        """Whether the folder of the pieces contains them."""
        path = self.place(folder)
        return (path / "run.json").is_file() and Run(path).finished

    def make(self, path: Path, *, device: str = "auto") -> Run:
        """The run in that folder: read, resumed, or started."""
        from glauber.sampling.sample import resume, sample

        with locked(path):
            if (path / "run.json").is_file():
                if Run(path).finished:  # needs no device any more
                    return Run(path)
                return resume(path, device=None if device == "auto" else device)
            shutil.rmtree(path, ignore_errors=True)  # killed before the first step
            return sample(**asdict(self), device=device, out=path)


@dataclass(frozen=True)
class Request:
    """One piece and seed, with the settings that the user gave."""

    piece: str
    scale: Scale
    seed: int
    folder: Path
    given: dict[str, Any] = field(default_factory=dict)  # by names of FLAGS
    device: str = "auto"


class Settings:
    """The settings of a piece as attributes, and the stored work of its folder."""

    def __init__(self, request: Request, defaults: Mapping[str, object]):
        given = {name: value for name, value in request.given.items() if name in defaults}
        if given.get("embedder") == BUNDLED:
            given["embedder"] = None
        self.request, self.values = request, {**defaults, **given}
        self.seed, self.device = request.seed, request.device

    def __getattr__(self, name: str) -> Any:
        if name != "values" and name in self.values:
            return self.values[name]
        raise AttributeError(name)

    def chain_set(self, **changes: Any) -> Chains:
        """Chains with the settings of this piece, except for the changes."""
        names = [each.name for each in fields(Chains) if each.name in self.values]
        own = {name: self.values[name] for name in names}
        return Chains(**{**own, "seed": self.seed, **changes})

    def run(self, chains: Chains) -> Run:
        """The run of these chains, which all pieces of the folder share."""
        folder = self.request.folder
        listed = parse_json((folder / CHAINS).read_text(encoding="utf-8"))
        if chains.digest not in listed:
            raise LookupError(f"{self.request.piece} does not list these chains beforehand.")
        return chains.make(chains.place(folder), device=self.device)

    def part(self, name: str, key: Mapping[str, object], make: Callable[[], Any]) -> Any:
        """A slow result as JSON, computed once for all pieces with the same name and key.

        The key contains everything that determines the result: model, sizes, and the seed.
        """
        request = self.request
        path = request.folder / "parts" / f"{name}-{digest([key, source()])}.json"
        with locked(path):
            if not path.is_file():
                say(f"{request.piece}, seed {request.seed}: {name}")
                write_json(path, plain(make()))
            return parse_json(path.read_text(encoding="utf-8"))

    def place(self, name: str, key: Mapping[str, object]) -> Path:
        """The folder of a study that resumes by itself, for all pieces with this name and key."""
        path = self.request.folder / "studies" / f"{name}-{digest(key)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def check_folder(folder: Path) -> Path:
    """The folder, if it is new, empty or contains pieces already."""
    try:
        if folder.suffix.lower() in PAGE_SUFFIXES or folder.is_file():
            raise GlauberError(f"{folder} is a file: give a folder, which will contain a page.")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / CHAINS).is_file():
            raise GlauberError(f"the folder {folder} exists already and contains no pieces.")
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GlauberError(f"{folder} cannot be written: {reason}.") from error
    return folder


def list_chains(folder: Path, needed: Iterable[Chains]) -> list[Chains]:
    """Adds chains to the folder's list, each once, and returns them."""
    wanted = {chains.digest: chains for chains in needed}
    path = folder / CHAINS
    with locked(path):
        listed = parse_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if not path.is_file() or wanted.keys() - listed.keys():
            write_json(path, listed | {key: plain(asdict(each)) for key, each in wanted.items()})
    return list(wanted.values())


def make_chains(folder: str | Path, *, device: str = "auto") -> list[Run]:
    """Runs every listed chain of a folder; finished ones stay as they are.

    Needs no more than sampling does: on a machine with a GPU,
    `python -c "from glauber.papers.work import make_chains; make_chains('papers')"`.
    """
    path = Path(folder) / CHAINS
    if not path.is_file():
        raise GlauberError(f"{folder} has no list of chains: make one with --until plan.")
    listed = _read_chains(path)
    runs, failures = [], []
    for number, chains in enumerate(listed, 1):
        say(f"run {number} of {len(listed)}: {chains}")
        try:
            runs.append(chains.make(chains.place(Path(folder)), device=device))
        except GlauberError as error:  # the others can still be run
            failures.append(str(error))
    if failures:
        raise GlauberError(f"{len(failures)} of {len(listed)} runs cannot be made: {failures[0]}")
    return runs


def _read_chains(path: Path) -> list[Chains]:
    """A list that may be somebody else's: it names no path outside, and trusts no code."""
    try:
        listed = {}
        for key, record in parse_json(path.read_text(encoding="utf-8")).items():
            texts = None if record["texts"] is None else tuple(record["texts"])
            listed[key] = Chains(**(record | {"texts": texts}))
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise GlauberError(f"{path} is damaged: it is no list of chains.") from error
    for key, chains in listed.items():
        if not re.fullmatch("[0-9a-f]{16}", key) or chains.trust_remote_code:
            raise GlauberError(f"{path} is not ours: {key!r:.40} is refused.")
    return list(listed.values())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes from making the same file; released when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(value: object) -> str:
    """A short name for a JSON value."""
    text = json.dumps(plain(value), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def published_name(model: str) -> str | None:
    """The published model that a name or the config of a folder says it is; None of any other.

    A folder counts if type, layers, width and vocabulary are those of the published model, and its
    config names no other model as its origin. The weights themselves are not compared.
    """
    name, _ = split_name(model)
    for owner in OWNERS:
        name = name.removeprefix(owner)
    if not Path(name).is_dir():
        return name if name in PUBLISHED.values() else None
    try:
        config = parse_json((Path(name) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    keys = ("model_type", "num_hidden_layers", "hidden_size", "vocab_size")
    published = PUBLISHED.get(tuple(config.get(key) for key in keys))
    origin = str(config.get("_name_or_path") or "")
    if published is None or re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", origin) is None:
        return published
    return published if origin.split("/")[-1] == published.split("/")[-1] else None


@lru_cache(maxsize=64)
def weights(model: str) -> str:
    """A digest of a model in a folder; the name of a model on the hub."""
    folder = bundled_folder(model) if model.startswith("bundled:") else Path(model)
    if not folder.is_dir():
        return model
    return _digest_of_files([path for pattern in WEIGHTS for path in sorted(folder.glob(pattern))])


@lru_cache(maxsize=1)
def source() -> str:
    """A digest of this package with its weights: answers of other code are not reused."""
    package = Path(glauber.__file__).parent
    paths = (path for path in sorted(package.rglob("*")) if "__pycache__" not in path.parts)
    return _digest_of_files([path for path in paths if path.is_file()])


def _digest_of_files(paths: list[Path]) -> str:
    sha = hashlib.sha256()
    for path in paths:
        sha.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()[:16]
