"""How are pieces made? Each (piece, seed) is a cell; finished ones are kept and not made again.

Cells run one after the other here, or are shared out as the cells of any sweep are. A cell depends
on the settings and the code alone, so it does not matter where it is run.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from glauber.disk import write_json
from glauber.errors import GlauberError
from glauber.json_text import parse_json
from glauber.papers.claims import Claim
from glauber.papers.evidence import Evidence, Planned
from glauber.papers.paper import Reproduction, over_seeds, pieces
from glauber.papers.settings import (
    FLAGS,
    Chains,
    Settings,
    check_folder,
    describe,
    digest,
    finished,
    list_chains,
    locked,
    source,
)
from glauber.progress import say
from glauber.result import Result
from glauber.sweeps import folder as sweeps
from glauber.sweeps.executors import Executor, Work, choose_executor, run_sweep
from glauber.sweeps.folder import Cell, Sweep

STUDY = "paper"
Place = tuple[str, int | None, str | None]  # on, workers, address


@dataclass(frozen=True)
class Asked:
    """Pieces and seeds, and what was given beside them."""

    names: list[str]
    seeds: tuple[int, ...]
    settings: Settings
    until: str = "answers"

    @property
    def cells(self) -> list[Settings]:
        """The settings of each piece and seed; of many pieces, each takes what it can."""
        found = []
        for name in self.names:
            own = replace(self.settings, piece=name)
            if len(self.names) > 1:
                left = {one: None for one in own.given if one not in pieces()[name].takes}
                device = own.device if "device" in pieces()[name].takes else "auto"
                own = replace(own, **left, device=device)  # type: ignore[arg-type]
            pieces()[name].check(name, own)
            found += [replace(own, seed=seed) for seed in self.seeds]
        return found

    @property
    def chains(self) -> list[Chains]:
        """Every run that the pieces need, each once."""
        needed = (one for cell in self.cells for one in pieces()[cell.piece].needs(cell))
        return list({one.digest: one for one in needed}.values())


def make(asked: Asked, out: str | Path | None, place: Place = ("local", None, None)) -> Result:
    """The pieces, in a folder that keeps everything; without one, nothing is kept."""
    _check_taken(asked)
    on, workers, address = place
    executor = choose_executor(on, workers=workers, address=address)
    _check_extras(asked, out)
    folder = Path(tempfile.mkdtemp(prefix="glauber-")) if out is None else check_folder(Path(out))
    asked = replace(asked, settings=replace(asked.settings, folder=folder.absolute()))
    try:
        made = _make(asked, None if on == "local" else executor)
        if out is not None and isinstance(made, Evidence | Reproduction):
            _write(made, folder)
        return made
    except OSError as error:
        raise GlauberError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        if out is None:
            rmtree(folder, ignore_errors=True)


def _write(made: Evidence | Reproduction, folder: Path) -> None:
    """The page and the JSON of what was made: index for all pieces, else by the piece's name."""
    whole = made if isinstance(made, Evidence) else Evidence((made,))
    whole.write_page(folder, "index" if made is whole else whole.pieces[0].name)


def _make(asked: Asked, executor: Executor | None) -> Result:
    needed = list_chains(asked.settings.folder, asked.chains)
    _say_cost(asked, needed)
    if asked.until != "answers":
        return _plan(asked, needed)
    if executor is not None:
        _share(asked, executor)
    made, missing = [], {}
    for number, name in enumerate(asked.names, 1):
        own = [cell for cell in asked.cells if cell.piece == name]
        try:
            made.append(over_seeds([_said(cell, number, asked) for cell in own]))
        except GlauberError as error:
            if asked.settings.piece != "all":
                raise
            say(f"{name} cannot be made: {error}")
            missing[name] = str(error)
    return made[0] if asked.settings.piece != "all" else Evidence(tuple(made), missing)


def _said(cell: Settings, number: int, asked: Asked) -> Reproduction:
    """The answer of a cell, after a line that says which one it is."""
    place = asked.seeds.index(cell.seed) + 1
    say(
        f"piece {number} of {len(asked.names)}, {cell.piece}, seed {cell.seed} ({place} of "
        f"{len(asked.seeds)}): {'kept' if answer_path(cell).is_file() else 'to make'}"
    )
    return answer(cell)


def _check_taken(asked: Asked) -> None:
    """Refuses what no piece takes, and what the one piece does not."""
    cells = asked.cells
    taken = {flag for cell in cells for flag in pieces()[cell.piece].takes}
    if wrong := [FLAGS[name] for name in asked.settings.given if name not in taken]:
        raise GlauberError(f"no piece takes {', '.join(wrong)}.")


def _check_extras(asked: Asked, out: str | Path | None) -> None:
    """Refuses one piece whose extra is missing; of all pieces, each says so in its place."""
    if asked.settings.piece == "all" or asked.until != "answers":
        return
    for cell in asked.cells:
        kept = out is not None and answer_path(replace(cell, folder=Path(out))).is_file()
        if not kept:
            pieces()[cell.piece].check_extras(cell)


def _say_cost(asked: Asked, needed: Sequence[Chains]) -> None:
    """What is still to do: runs, steps of chains, and the rest where it was measured."""
    left = [one for one in needed if not finished(asked.settings.folder, one)]
    cells = [cell for cell in asked.cells if not answer_path(cell).is_file()]
    say(
        f"{len(asked.names)} pieces x {len(asked.seeds)} seeds in {asked.settings.folder}: "
        f"{len(cells)} to make, which need {len(needed)} runs, of them {len(left)} to make with "
        f"{sum(one.work for one in left):,} steps of chains"
    )
    seconds = [pieces()[cell.piece].seconds for cell in cells]
    known = [one for one in seconds if one is not None]
    if known and asked.settings.scale == "small" and not asked.settings.given:
        unknown = len(seconds) - len(known)
        more = f", and {unknown} whose time is not known" if unknown else ""
        say(f"at most {sum(known) / 60:.1f} min on two cores, as measured on one machine{more}")


def _plan(asked: Asked, needed: Sequence[Chains]) -> Planned:
    """The runs, made where that was asked."""
    folder = asked.settings.folder
    for number, one in enumerate(needed, 1):
        if asked.until == "chains":
            say(f"run {number} of {len(needed)}: {describe(one)}")
            one.make(folder / "chains" / one.digest, device=asked.settings.device)
    rows = [
        {"folder": f"chains/{one.digest}", "chains": describe(one), "made": finished(folder, one)}
        for one in needed
    ]
    return Planned(rows, str(folder))


def answer_path(cell: Settings) -> Path:
    """Where the answer of a piece and seed is kept: one for each settings and code."""
    key = digest([cell.scale, cell.given, source()])
    return cell.folder / "answers" / f"{cell.piece}-seed-{cell.seed}-{key}.json"


def answer(cell: Settings) -> Reproduction:
    """The piece for one seed, as it is kept, or made and kept."""
    path = answer_path(cell)
    with locked(path):
        if not path.is_file():
            pieces()[cell.piece].check_extras(cell)
            made = pieces()[cell.piece].make(cell)
            pictures = {name: json.loads(one.to_json()) for name, one in made.pictures.items()}
            write_json(path, made.to_dict() | {"pictures": pictures})
    return read(parse_json(path.read_text(encoding="utf-8")))


def read(record: Mapping[str, Any]) -> Reproduction:
    """The answer of a file."""
    kept = {name: record[name] for name in ("name", "scale", "how", "rows", "pictures", "given")}
    kept |= {name: tuple(record[name]) for name in ("seeds", "differs", "ours")}
    claims = tuple(Claim.from_dict(one) for one in record["claims"])
    return Reproduction(**kept, model=record["model"], claims=claims)


def _share(asked: Asked, executor: Executor) -> None:
    """Makes what is missing as the cells of a sweep, wherever they run."""
    cells = [cell for cell in asked.cells if not answer_path(cell).is_file()]
    if not cells:
        return
    own = asked.settings
    settings = {
        "names": asked.names, "seeds": list(asked.seeds), "folder": str(own.folder),
        "scale": own.scale, "device": own.device,
        "given": {name: value for name, value in own.given.items()},
    }  # fmt: skip
    axes = {"piece": list(range(len(asked.names))), "seed": list(range(len(asked.seeds)))}
    place = own.folder / "cells" / digest([settings, source()])
    sweeps.begin(place, Sweep(STUDY, settings, axes))
    work = partial(open_cells, settings)
    found = run_sweep(place, work, executor=executor, progress=_report)
    for record in found.values():  # a machine without our disk has kept its own
        cell = _cell(settings, record)
        if record["answer"] is not None and not answer_path(cell).is_file():
            answer_path(cell).parent.mkdir(parents=True, exist_ok=True)
            write_json(answer_path(cell), record["answer"])
    rmtree(place, ignore_errors=True)


def _report(done: int, total: int) -> None:
    say(f"{done} of {total} pieces and seeds are made")


def open_cells(settings: dict[str, Any]) -> Work:
    """What a worker does with the cells that it is given."""

    def work(cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
        for cell in cells:
            own = _cell(settings, cell.values)
            try:
                answer(own)
            except GlauberError:  # said where the piece is asked for
                yield cell, {"answer": None}
                continue
            yield cell, {"answer": parse_json(answer_path(own).read_text(encoding="utf-8"))}

    return work


def _cell(settings: Mapping[str, Any], values: Mapping[str, Any]) -> Settings:
    """The settings of one cell of a sweep."""
    name, seed = settings["names"][values["piece"]], settings["seeds"][values["seed"]]
    given = dict(settings["given"])
    if "texts" in given:
        given["texts"] = tuple(given["texts"])
    whole = Settings(
        name, settings["scale"], 0, Path(settings["folder"]), device=settings["device"], **given
    )
    asked = Asked(list(settings["names"]), (seed,), whole)
    return next(cell for cell in asked.cells if cell.piece == name)
