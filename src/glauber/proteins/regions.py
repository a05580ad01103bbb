"""Which residues are meant? Ranges such as 97-109, or the loops of an antibody by name.

Residues are counted from 1. The loops H1 to H3 and L1 to L3 need a numbering of the sequence,
which ANARCII gives (extra `proteins`); ranges need nothing.
"""

import contextlib
import io
import re
from functools import cache
from typing import Any

import torch

from glauber.errors import GlauberError
from glauber.extras import need
from glauber.result import one_of

SCHEMES = ("imgt", "kabat")
# The first and last number of each loop; numbers with letters behind them lie between.
LOOPS = {
    "imgt": {name: span for kind in "HL" for name, span in (
        (f"{kind}1", (27, 38)), (f"{kind}2", (56, 65)), (f"{kind}3", (105, 117)),
    )},
    "kabat": {
        "H1": (31, 35), "H2": (50, 65), "H3": (95, 102),
        "L1": (24, 34), "L2": (50, 56), "L3": (89, 97),
    },
}  # fmt: skip
CHAINS = {"H": "heavy", "K": "light", "L": "light"}


def positions(sequence: str, name: str, scheme: str = "imgt") -> list[int]:
    """The residues (from 1, rising) of ranges and loops such as `97-109` or `H1,H3,60`."""
    one_of("the numbering scheme", scheme, SCHEMES)
    found: set[int] = set()
    for part in name.replace(" ", "").split(","):
        if part.upper() in LOOPS[scheme]:
            found |= set(_loop(sequence, part.upper(), scheme))
        else:
            found |= set(_range(sequence, part))
    return sorted(found)


def check_loops(name: str) -> None:
    """Says what a loop by its name lacks, before any model is loaded."""
    if any(part.strip().upper() in LOOPS["imgt"] for part in name.split(",")):
        need("proteins", "a loop by its name", otherwise="give ranges such as 97-109")


def _range(sequence: str, part: str) -> range:
    read = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
    if read is None:
        raise GlauberError(
            f"{part!r} names no residues: give ranges such as 97-109, or loops from H1 to L3."
        )
    first = int(read[1])
    last = first if read[2] is None else int(read[2])
    if not 1 <= first <= last <= len(sequence):
        raise GlauberError(
            f"the residues {part} are not there: the sequence has residues 1 to {len(sequence)}."
        )
    return range(first, last + 1)


def _loop(sequence: str, name: str, scheme: str) -> list[int]:
    check_loops(name)
    chain, numbers = numbering(sequence, scheme)
    wanted = "heavy" if name[0] == "H" else "light"
    if CHAINS[chain] != wanted:
        raise GlauberError(
            f"{name} is a loop of a {wanted} chain, but this is a {CHAINS[chain]} one."
        )
    first, last = LOOPS[scheme][name]
    found = [residue for residue, number in numbers.items() if first <= number <= last]
    if not found:
        raise GlauberError(f"the sequence has no residues in {name} by {scheme}.")
    return found


@cache
def numbering(sequence: str, scheme: str = "imgt") -> tuple[str, dict[int, int]]:
    """The chain (H, K or L), and each numbered residue (from 1) with its number in the scheme.

    By ANARCII, a network that reads the sequence: an estimate, of few errors on variable domains.
    """
    answer = _anarcii(sequence, scheme)
    chain = str(answer.get("chain_type"))
    if answer.get("error") or chain not in CHAINS:
        raise GlauberError("the sequence is not numbered as an antibody's: give ranges instead.")
    here = [number for (number, _), residue in answer["numbering"] if residue != "-"]
    first = int(answer["query_start"]) + 1
    return chain, {residue: int(number) for residue, number in enumerate(here, start=first)}


def _anarcii(sequence: str, scheme: str) -> dict[str, Any]:
    """ANARCII's answer for one sequence; it prints and sets torch's threads, which is undone."""
    threads = torch.get_num_threads()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            numberer = _numberer()
            answer = numberer.number([sequence])
            answer = answer if scheme == "imgt" else numberer.to_scheme(scheme)
    finally:
        torch.set_num_threads(threads)
    found: dict[str, Any] = next(iter(answer.values()))
    return found


@cache
def _numberer() -> Any:
    from anarcii import Anarcii

    return Anarcii(seq_type="antibody", mode="accuracy", cpu=True, ncpu=1, batch_size=1)
