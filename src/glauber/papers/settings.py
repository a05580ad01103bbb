"""What can a piece be asked, and where does it keep what is slow?

A piece lives in a folder:

chains.json          the chains that were asked for; `make_chains` makes them, on a bare machine too
chains/DIGEST/       runs: the same chains are made once, whichever piece needs them, and resume
parts/NAME-DIGEST    other slow results, each written when it is finished
studies/NAME-DIGEST  folders of studies that resume by themselves, such as a phase diagram's
answers/             finished pieces, a file for each seed

Nothing here imports more than sampling does, so that chains can be made on a machine that has
only torch and transformers; copied back, the same command goes on with them.
"""

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import glauber
from glauber.conditionals.shelf import bundled_folder
from glauber.disk import write_json
from glauber.errors import GlauberError
from glauber.extras import need
from glauber.json_text import parse_json
from glauber.progress import say
from glauber.result import counted, plain
from glauber.runs.run import Run

Scale = Literal["small", "paper"]
Given = TypeVar("Given")
# What a piece may take beside scale and seeds, by its name on the command line.
FLAGS = {
    "model": "--model", "texts": "--from", "temperature": "--temperature", "chains": "--chains",
    "steps": "--steps", "embedder": "--embedder", "scorer": "--scorer", "device": "--device",
}  # fmt: skip
BUNDLED = "bundled"  # the embedder in the package, which a default has as none
TOKENS = "tokens"  # the embedder that compares tokens
CHAINS = "chains.json"
FILES = (".html", ".json", ".png", ".csv")
FORMAT = 1  # of the chains: another number where the same settings give other bits
WEIGHTS = ("config.json", "*.safetensors", "*.bin", "tokenizer.json", "vocab.txt")


@dataclass(frozen=True)
class Chains:
    """Chains that a piece needs: everything that determines them, as `glauber.sample` takes it."""

    model: str
    texts: tuple[str, ...] | None = None  # none: the bundled passages
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
        """The name of their folder; it depends on no machine, device or version of torch."""
        return digest({**asdict(self), "model": weights(self.model), "format": FORMAT})

    @property
    def work(self) -> int:
        """Steps of all chains together."""
        return self.steps * (self.chains or len(self.texts or ()) or 8)

    def make(self, folder: Path, *, device: str = "auto") -> Run:
        """The run in that folder: as it is there, resumed, or begun."""
        from glauber.sampling.sample import resume, sample

        with locked(folder):
            if (folder / "run.json").is_file():
                if Run(folder).finished:  # wherever it was made, it needs no device any more
                    return Run(folder)
                return resume(folder, device=None if device == "auto" else device)
            shutil.rmtree(folder, ignore_errors=True)  # killed before it had begun
            return sample(**asdict(self), device=device, out=folder)


@dataclass(frozen=True)
class Settings:
    """What a piece is asked: its scale, its seed, its folder, and what was given beside them."""

    piece: str
    scale: Scale
    seed: int
    folder: Path
    model: str | None = None
    texts: tuple[str, ...] | None = None
    temperature: float | None = None
    chains: int | None = None
    steps: int | None = None
    embedder: str | None = None
    scorer: str | None = None
    device: str = "auto"

    @property
    def given(self) -> dict[str, Any]:
        """What was given in place of the scale's own defaults; not the device."""
        found = {name: getattr(self, name) for name in FLAGS if name != "device"}
        return {name: value for name, value in found.items() if value is not None}

    def over(self, defaults: Given) -> Given:
        """The defaults of a scale, a dataclass or a dict, with what was given in their place."""
        if isinstance(defaults, dict):
            return {**defaults, **self._of(defaults)}  # type: ignore[return-value]
        names = [each.name for each in fields(defaults)]  # type: ignore[arg-type]
        return replace(defaults, **self._of(names))  # type: ignore[type-var]

    def _of(self, names: Iterable[str]) -> dict[str, Any]:
        found = self.given
        if self.embedder is not None:  # what another one asks for beside its name goes with it
            found |= {"embedder": None if self.embedder == BUNDLED else self.embedder, "how": {}}
        return {name: value for name, value in found.items() if name in names}

    def run(self, chains: Chains) -> Run:
        """The run of these chains, which every piece of this folder shares."""
        listed = parse_json((self.folder / CHAINS).read_text(encoding="utf-8"))
        if chains.digest not in listed:
            raise LookupError(f"{self.piece} asks for chains that its `needs` does not list.")
        return chains.make(self.folder / "chains" / chains.digest, device=self.device)

    def part(self, name: str, key: dict[str, Any], make: Callable[[], Any]) -> Any:
        """A slow result as JSON has it, made once for all that have the same name and key.

        The key holds everything that determines the result: model, sizes, and the seed.
        """
        path = self.folder / "parts" / f"{name}-{digest([key, source()])}.json"
        with locked(path):
            if not path.is_file():
                say(f"{self.piece}, seed {self.seed}: {name}")
                write_json(path, plain(make()))
            return parse_json(path.read_text(encoding="utf-8"))

    def place(self, name: str, key: dict[str, Any]) -> Path:
        """The folder of a study that resumes by itself, for all that have the same name and key."""
        path = self.folder / "studies" / f"{name}-{digest(key)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def no_chains(settings: Settings) -> list[Chains]:
    """Of a piece that needs no stored chains."""
    return []


def no_extras(settings: Settings) -> tuple[str, ...]:
    """Of a piece that needs the core alone."""
    return ()


def embeddings(settings: Settings) -> tuple[str, ...]:
    """Of a piece that reads meaning, unless tokens are given as the embedder."""
    return () if settings.embedder == TOKENS else ("embeddings",)


def scoring(settings: Settings) -> tuple[str, ...]:
    """Of a piece that has BLEU."""
    return ("translation",)


@dataclass(frozen=True)
class Piece:
    """A table or figure: what it shows, how it is made, and what it can be asked."""

    shows: str
    make: Callable[[Settings], Any]  # -> Reproduction
    takes: tuple[str, ...] = ()  # of FLAGS
    needs: Callable[[Settings], list[Chains]] = no_chains  # every run that `make` asks for
    seconds: float | None = None  # at the small scale on two cores, measured
    extras: Callable[[Settings], tuple[str, ...]] = no_extras  # without which `make` fails

    def check(self, name: str, settings: Settings) -> None:
        """Refuses what the piece does not take, in one sentence."""
        asked = [*settings.given, *(["device"] if settings.device != "auto" else [])]
        if wrong := [FLAGS[one] for one in asked if one not in self.takes]:
            known = ", ".join([*(FLAGS[one] for one in self.takes), "--scale and --seeds"])
            raise GlauberError(f"{name} does not take {', '.join(wrong)}: it takes {known}.")

    def check_extras(self, settings: Settings) -> None:
        """Says which extra making the piece lacks, before anything is made for it."""
        for extra in self.extras(settings):
            tokens = extra == "embeddings" and "embedder" in self.takes
            otherwise = "give tokens as the embedder" if tokens else None
            need(extra, settings.piece, otherwise=otherwise)


def check_folder(folder: Path) -> Path:
    """The folder, if it is new, empty or holds pieces already."""
    try:
        if folder.suffix.lower() in FILES or folder.is_file():
            raise GlauberError(f"{folder} is a file: give a folder, which will hold a page.")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / CHAINS).is_file():
            raise GlauberError(f"the folder {folder} exists already and holds no pieces.")
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GlauberError(f"{folder} cannot be written: {reason}.") from error
    return folder


def list_chains(folder: Path, needed: Iterable[Chains]) -> list[Chains]:
    """Adds chains to the folder's list, each once, and returns those asked for."""
    wanted = {one.digest: one for one in needed}
    path = folder / CHAINS
    with locked(path):
        there = parse_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if not path.is_file() or wanted.keys() - there.keys():
            write_json(path, there | {key: plain(asdict(one)) for key, one in wanted.items()})
    return list(wanted.values())


def make_chains(folder: str | Path, *, device: str = "auto") -> list[Run]:
    """Makes every listed chain of a folder; those that are finished stay as they are.

    Needs no more than sampling does: on a machine with a GPU,
    `python -c "from glauber.papers.settings import make_chains; make_chains('papers')"`.
    """
    path = Path(folder) / CHAINS
    if not path.is_file():
        raise GlauberError(f"{folder} has no list of chains: make one with --until plan.")
    listed = _read_chains(path)
    runs, missed = [], []
    for number, (key, chains) in enumerate(listed.items(), 1):
        say(f"run {number} of {len(listed)}: {describe(chains)}")
        try:
            runs.append(chains.make(Path(folder) / "chains" / key, device=device))
        except GlauberError as error:  # the others can still be made
            missed.append(str(error))
    if missed:
        raise GlauberError(f"{len(missed)} of {len(listed)} runs cannot be made: {missed[0]}")
    return runs


def _read_chains(path: Path) -> dict[str, Chains]:
    """A list that may be somebody else's: it names no place outside, and trusts no code."""
    try:
        found = {}
        for key, given in parse_json(path.read_text(encoding="utf-8")).items():
            texts = None if given["texts"] is None else tuple(given["texts"])
            found[key] = Chains(**(given | {"texts": texts}))
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise GlauberError(f"{path} is damaged: it is no list of chains.") from error
    for key, one in found.items():
        if not re.fullmatch("[0-9a-f]{16}", key) or one.trust_remote_code:
            raise GlauberError(f"{path} is not ours: {key!r:.40} is refused.")
    return found


def describe(chains: Chains) -> str:
    """One run in words."""
    n = chains.chains
    many = f"{counted(n, 'chain') if n else 'all chains'} x {chains.steps:,} steps"
    return f"{many} of {chains.model} at temperature {chains.temperature:g}, seed {chains.seed}"


def finished(folder: Path, chains: Chains) -> bool:
    """Whether these chains are there already."""
    place = folder / "chains" / chains.digest
    return (place / "run.json").is_file() and Run(place).finished


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else makes the same thing in the meantime; a process that dies lets it go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(value: Any) -> str:
    """A short name for a value that JSON can hold."""
    text = json.dumps(plain(value), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def weights(model: str) -> str:
    """The content of a model in a folder; the name of one on the hub."""
    folder = bundled_folder(model) if model.startswith("bundled:") else Path(model)
    if not folder.is_dir():
        return model
    return content([path for pattern in WEIGHTS for path in sorted(folder.glob(pattern))])


@lru_cache(maxsize=1)
def source() -> str:
    """The content of this package, weights and all: an answer of other code is not reused."""
    package = Path(glauber.__file__).parent
    found = (path for path in sorted(package.rglob("*")) if "__pycache__" not in path.parts)
    return content([path for path in found if path.is_file()])


def content(paths: list[Path]) -> str:
    """A short name for what these files hold."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]
