"""The study `paper`: tables, figures and theorems of the two papers, with verdicts on their claims.

The pieces are declared in the modules below, in the order of the papers. Each
pair of a piece and a seed is a cell; finished cells are stored and not made again. Cells run here
one after the other, or are distributed like the cells of any sweep; a cell depends on its settings
and on the code alone.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

from glauber.foundation.checks import Whole
from glauber.foundation.disk import write_json
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json
from glauber.foundation.parameters import Device, Texts, check_temperatures
from glauber.foundation.progress import check_count, check_seed, say
from glauber.foundation.study import one_of, study
from glauber.models.shelf import is_folder
from glauber.models.weights import check_device
from glauber.papers.page import Evidence, Listing
from glauber.papers.piece import Piece, Reproduction, pooled_over_seeds
from glauber.papers.work import (
    FLAGS,
    Chains,
    Request,
    check_folder,
    digest,
    list_chains,
    locked,
    source,
)
from glauber.sampling.sweeps import folder as sweeps
from glauber.sampling.sweeps.executors import Executor, Work, choose_executor, run_sweep
from glauber.sampling.sweeps.folder import Cell, Sweep
from glauber.texts.read import Corpus
from glauber.texts.starts import read_texts

MODULES = ("paper_a", "paper_a_traps", "paper_b", "translation", "translation_measures")
STAGES = ("answers", "chains", "plan")
MAX_SEEDS = 10_000


@study
def paper(
    piece: Annotated[str, "A piece such as A-table1; all, or list."] = "list",
    texts: Texts = None,
    *,
    scale: Annotated[str, "small (the bundled model) or paper (the models of the hub)."] = "small",
    seeds: Annotated[
        int | str | Sequence[int], "Seeds such as 0-9; the piece is made with each, and pooled."
    ] = 0,
    model: Annotated[
        str | Sequence[str] | None,
        "Model, or several with commas for A-table1 and A-table4 (default: those of the scale).",
    ] = None,
    temperature: Annotated[
        float | Sequence[float] | None,
        "Temperature, or several for A-table2, such as 0.5,1 (default: that of the scale).",
        check_temperatures,
    ] = None,
    length: Annotated[
        int | None, "Tokens of each text (default: that of the scale).", Whole()
    ] = None,
    copies: Annotated[
        int | None, "A-table2: copies of '!' at the boundary of the basin.", Whole()
    ] = None,
    chains: Annotated[
        int | None, "Number of chains, pairs or trials (default: that of the scale)."
    ] = None,
    steps: Annotated[int | None, "Number of steps (default: that of the scale)."] = None,
    embedder: Annotated[str | None, "Sentence embedder; bundled is the package's."] = None,
    scorer: Annotated[
        str | None,
        "Topic scorer: similarity, or an entailment model; of B-table3 comet or bleurt:FOLDER.",
    ] = None,
    control: Annotated[
        str | None, "Control of A-table1: an autoregressive LM, or left-to-right."
    ] = None,
    device: Device = "auto",
    on: Annotated[str, "Where pieces and seeds run: local, processes or ray."] = "local",
    workers: Annotated[int | None, "Processes or Ray workers (default: one per core)."] = None,
    address: Annotated[str | None, "Address of a Ray cluster (default: this machine's)."] = None,
    until: Annotated[str, "answers; chains to stop after sampling; plan to only list them."] = (
        "answers"
    ),
    out: Annotated[
        str | Path | None, "Folder that stores all results (command line: papers/)."
    ] = None,
) -> "Reproduction | Evidence | Listing":
    """Make a table or figure of the papers again, and test its published claims.

    A is "Mixing Times of Glauber Dynamics on Masked Language Models", B is "Promises and Pitfalls
    of Generative Masked Language Modeling". Each published claim gets a verdict: agrees, disagrees
    or cannot tell. Slow results are stored in the folder: a piece that was stopped resumes to the
    same bits, and pieces that need the same chains share them. `list` names the pieces; `all` makes
    every one and a page, index.html.
    """
    one_of("the scale", scale, ("small", "paper"))
    one_of("until", until, STAGES)
    one_of("the piece", piece, [*pieces(), "all", "list"])
    corpus = _read_texts(texts)
    with_topics = piece == "all" or (piece != "list" and "topics" in pieces()[piece].small)
    options: dict[str, Any] = {
        "model": _read_models(model),
        "texts": corpus and tuple(corpus),
        "topics": tuple(corpus.ids) if corpus and with_topics and any(corpus.ids) else None,
        "control": control,
        "temperature": tuple(temperature) if isinstance(temperature, list) else temperature,
        "length": length,
        "copies": copies,
        "chains": chains,
        "steps": steps,
        "embedder": embedder,
        "scorer": scorer,
    }
    settings = {name: value for name, value in options.items() if value is not None}
    for name in ("chains", "steps"):
        if name in settings:
            check_count(f"number of {name}", settings[name])
    check_device(device)
    executor = choose_executor(on, workers=workers, address=address)
    request = Request(piece, scale, 0, Path(out or ""), settings, device)  # type: ignore[arg-type]
    numbers = read_seeds(seeds)
    if piece == "list":
        return _list_pieces(request, out)
    order = Order(list(pieces()) if piece == "all" else [piece], numbers, request, until)
    return make(order, out, None if on == "local" else executor)


def pieces() -> dict[str, Piece]:
    """Every piece by its name."""
    listed: dict[str, Piece] = {}
    for module in MODULES:
        listed |= import_module(f"glauber.papers.{module}").PIECES
    return dict(sorted(listed.items()))


def _list_pieces(request: Request, out: str | Path | None) -> Listing:
    if request.given:
        flags = ", ".join(FLAGS[name] for name in request.given)
        raise GlauberError(f"list takes no {flags}: name a piece, or all.")
    if out is not None and Path(out).is_file():
        raise GlauberError(f"{out} is a file: give a folder.")
    return Listing("pieces", [{"piece": n, "shows": each.shows} for n, each in pieces().items()])


def _read_texts(texts: str | Path | Sequence[str] | None) -> Corpus | None:
    if texts is None:
        return None
    corpus = read_texts(texts)
    if corpus.unknown != "skip":
        raise GlauberError("a paper's texts are read with unknown=skip: leave unknown out.")
    return corpus.sound()


def _read_models(model: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    """One model, or several from a list or with commas; a folder may have commas in its name."""
    if model is None or (isinstance(model, str) and ("," not in model or is_folder(model))):
        return model
    if not isinstance(model, str | list | tuple):
        raise GlauberError("a piece takes models by their names, not as objects.")
    names = model.split(",") if isinstance(model, str) else list(model)
    names = [name.strip() for name in names]
    if not names or not all(names) or len(set(names)) < len(names):
        raise GlauberError("a model is empty or given twice.")
    return names[0] if len(names) == 1 else tuple(names)


def read_seeds(seeds: int | str | Sequence[int]) -> tuple[int, ...]:
    """Seeds from a number, from 0-9,12, or from a list; each once."""
    ranges: list[object] = list(seeds.split(",")) if isinstance(seeds, str) else []
    ranges = ranges or (list(seeds) if isinstance(seeds, list | tuple | range) else [seeds])
    numbers: list[int] = []
    for part in ranges:
        ends = str(part).strip().split("-")
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise GlauberError(f"{seeds!r} is not a list of seeds such as 0-9 or 1,4.")
        numbers += range(int(ends[0]), int(ends[-1]) + 1)
    if not 0 < len(numbers) <= MAX_SEEDS:
        raise GlauberError(f"{seeds!r} are {len(numbers)} seeds: give between 1 and {MAX_SEEDS:,}.")
    for seed in numbers:
        check_seed(seed)
    return tuple(dict.fromkeys(numbers))


@dataclass(frozen=True)
class Order:
    """The pieces and seeds to make, with the settings that were given."""

    names: list[str]
    seeds: tuple[int, ...]
    request: Request
    until: str = "answers"

    @property
    def cells(self) -> list[Request]:
        """The request of each piece and seed; of many pieces, each takes the settings it has."""
        cells = []
        for name in self.names:
            piece, own = pieces()[name], replace(self.request, piece=name)
            if len(self.names) > 1:
                taken = {key: value for key, value in own.given.items() if key in piece.takes}
                device = own.device if "model" in piece.small else "auto"
                own = replace(own, given=taken, device=device)
            piece.check(own)
            cells += [replace(own, seed=seed) for seed in self.seeds]
        return cells

    @property
    def chains(self) -> list[Chains]:
        """Every run that the pieces need, each once."""
        needed: dict[str, Chains] = {}
        for cell in self.cells:
            try:
                needed |= {chains.digest: chains for chains in pieces()[cell.piece].needs(cell)}
            except GlauberError:  # of all pieces, the others are made
                if self.request.piece != "all":
                    raise
        return list(needed.values())

    def check(self, out: str | Path | None) -> None:
        """Refuses settings that no piece has, and one piece whose dependencies are missing."""
        cells = self.cells
        known = {name for cell in cells for name in pieces()[cell.piece].takes}
        if wrong := [FLAGS[name] for name in self.request.given if name not in known]:
            raise GlauberError(f"no piece takes {', '.join(wrong)}.")
        if self.request.piece == "all" or self.until != "answers":
            return  # of all pieces, each is checked when it is made
        for cell in cells:
            if out is None or not answer_path(replace(cell, folder=Path(out))).is_file():
                pieces()[cell.piece].check_extras(cell)


def make(
    order: Order, out: str | Path | None, executor: Executor | None = None
) -> Reproduction | Evidence | Listing:
    """The pieces, in a folder that stores everything; without one, nothing is stored."""
    order.check(out)
    folder = Path(tempfile.mkdtemp(prefix="glauber-")) if out is None else check_folder(Path(out))
    order = replace(order, request=replace(order.request, folder=folder.absolute()))
    try:
        result = _make(order, executor)
        if out is not None and not isinstance(result, Listing):
            evidence = result if isinstance(result, Evidence) else Evidence((result,))
            name = "index" if evidence is result else evidence.pieces[0].name
            evidence.write_page(folder, name, {key: each.shows for key, each in pieces().items()})
        return result
    except OSError as error:
        raise GlauberError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        if out is None:
            rmtree(folder, ignore_errors=True)


def _make(order: Order, executor: Executor | None) -> Reproduction | Evidence | Listing:
    needed = list_chains(order.request.folder, order.chains)
    _say_cost(order, needed)
    if order.until != "answers":
        return _list_runs(order, needed)
    if executor is not None:
        _distribute(order, executor)
    answers, missing = [], {}
    for number, name in enumerate(order.names, 1):
        try:
            cells = [cell for cell in order.cells if cell.piece == name]
            answers.append(pooled_over_seeds([_answer(cell, number, order) for cell in cells]))
        except GlauberError as error:
            if order.request.piece != "all":
                raise
            say(f"{name} cannot be made: {error}")
            missing[name] = str(error)
    return answers[0] if order.request.piece != "all" else Evidence(tuple(answers), missing)


def _say_cost(order: Order, needed: Sequence[Chains]) -> None:
    """Reports the runs and steps of chains that are left, and the time if it was measured."""
    folder = order.request.folder
    left = [chains for chains in needed if not chains.finished(folder)]
    cells = [cell for cell in order.cells if not answer_path(cell).is_file()]
    say(
        f"{len(order.names)} pieces x {len(order.seeds)} seeds in {folder}: {len(cells)} to make, "
        f"which need {len(needed)} runs, of them {len(left)} to make with "
        f"{sum(chains.work for chains in left):,} steps of chains"
    )
    seconds = [pieces()[cell.piece].seconds for cell in cells]
    known = [second for second in seconds if second is not None]
    if known and order.request.scale == "small" and not order.request.given:
        unknown = len(seconds) - len(known)
        more = f", and {unknown} whose time is not known" if unknown else ""
        say(f"at most {sum(known) / 60:.1f} min on two cores, as measured on one machine{more}")


def _list_runs(order: Order, needed: Sequence[Chains]) -> Listing:
    """The runs, which are made first if that was asked for."""
    folder = order.request.folder
    for number, chains in enumerate(needed, 1):
        if order.until == "chains":
            say(f"run {number} of {len(needed)}: {chains}")
            chains.make(chains.place(folder), device=order.request.device)
    rows = [
        {
            "folder": f"chains/{chains.digest}",
            "chains": str(chains),
            "made": chains.finished(folder),
        }
        for chains in needed
    ]
    n_finished = sum(chains.finished(folder) for chains in needed)
    return Listing("runs", rows, f"{n_finished} of {len(rows)} runs are made")


def answer_path(cell: Request) -> Path:
    """The file of the answer for a piece and seed: one for each settings and code."""
    key = digest([cell.scale, cell.given, source()])
    return cell.folder / "answers" / f"{cell.piece}-seed-{cell.seed}-{key}.json"


def _answer(cell: Request, number: int, order: Order) -> Reproduction:
    rank = order.seeds.index(cell.seed) + 1
    say(
        f"piece {number} of {len(order.names)}, {cell.piece}, seed {cell.seed} ({rank} of "
        f"{len(order.seeds)}): {'stored' if answer_path(cell).is_file() else 'to make'}"
    )
    return answer(cell)


def answer(cell: Request) -> Reproduction:
    """The piece for one seed, read from its file, or made and stored."""
    path = answer_path(cell)
    with locked(path):
        if not path.is_file():
            pieces()[cell.piece].check_extras(cell)
            write_json(path, pieces()[cell.piece].make(cell).stored())
    return Reproduction.from_stored(parse_json(path.read_text(encoding="utf-8")))


def _distribute(order: Order, executor: Executor) -> None:
    """Makes what is missing as the cells of a sweep, wherever they run."""
    if all(answer_path(cell).is_file() for cell in order.cells):
        return
    request = order.request
    settings = {
        "names": order.names,
        "seeds": list(order.seeds),
        "folder": str(request.folder),
        "scale": request.scale,
        "device": request.device,
        "given": request.given,
    }
    axes = {"piece": list(range(len(order.names))), "seed": list(range(len(order.seeds)))}
    sweep_folder = request.folder / "cells" / digest([settings, source()])
    sweeps.begin(sweep_folder, Sweep("paper", settings, axes))
    records = run_sweep(
        sweep_folder,
        partial(open_cells, settings),
        executor=executor,
        progress=lambda done, total: say(f"{done} of {total} pieces and seeds are made"),
    )
    for record in records.values():  # a machine without our disk has stored its own
        path = answer_path(_cell(settings, record))
        if record["answer"] is not None and not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, record["answer"])
    rmtree(sweep_folder, ignore_errors=True)


def open_cells(settings: dict[str, Any]) -> Work:
    """The work of a worker on its cells."""

    def work(cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any]]]:
        for cell in cells:
            request = _cell(settings, cell.values)
            try:
                answer(request)
            except GlauberError:  # reported when the piece is read
                yield cell, {"answer": None}
                continue
            yield cell, {"answer": parse_json(answer_path(request).read_text(encoding="utf-8"))}

    return work


def _cell(settings: Mapping[str, Any], values: Mapping[str, object]) -> Request:
    """The request of one cell of a sweep."""
    name, seed = settings["names"][values["piece"]], settings["seeds"][values["seed"]]
    options = dict(settings["given"])
    options |= {key: tuple(options[key]) for key in ("texts", "topics") if key in options}
    folder, device = Path(settings["folder"]), settings["device"]
    request = Request(name, settings["scale"], 0, folder, options, device)
    cells = Order(list(settings["names"]), (seed,), request).cells
    return next(cell for cell in cells if cell.piece == name)
