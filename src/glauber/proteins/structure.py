"""Where are the backbone atoms of a protein? A small reader of PDB files.

Of every residue N, CA, C and O; the first model and the first place of an atom count. Numbers that
a chain leaves out are positions without atoms, as ProteinMPNN counts them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from glauber.errors import GlauberError

ATOMS = ("N", "CA", "C", "O")
THREE = (
    "ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE",
    "LEU", "LYS", "MET", "PHE", "PRO", "SER", "THR", "TRP", "TYR", "VAL",
)  # fmt: skip
LETTERS = dict(zip(THREE, "ARNDCQEGHILKMFPSTWYV", strict=True))
MOST = 4000  # positions: every pair of them is measured

Residue = tuple[int, str]  # its number and the letter behind it
Chain = dict[Residue, tuple[str, dict[str, list[float]]]]  # name and atoms of each residue


@dataclass(frozen=True)
class Backbone:
    """The positions of the chosen chains, one chain behind the other."""

    sequence: str  # a letter for each position, X where it is unknown
    atoms: Tensor  # (positions, 4, 3) in Å, float32; 0 where there are none
    present: Tensor  # (positions,) bool: all four atoms are there
    chain: Tensor  # (positions,) the number of the chain, from 0
    number: Tensor  # (positions,) places along the chains, 100 between two

    @property
    def residues(self) -> str:
        """The sequence of the positions that have atoms."""
        return "".join(one for one, there in zip(self.sequence, self.present, strict=True) if there)


def read_backbone(file: str | Path, chains: str = "") -> Backbone:
    """The backbone in a PDB file, of the named chains (such as AB) or of all."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise GlauberError(f"there is no structure {file} that can be read.") from error
    found = _chains(lines, str(file))
    missing = [one for one in chains if one not in found]
    if missing:
        there = ", ".join(sorted(found))
        raise GlauberError(f"{file} has no chain {missing[0]}; it has {there}.")
    kept = {name: found[name] for name in sorted(found) if not chains or name in chains}
    return _laid_out(list(kept.values()), str(file))


def _chains(lines: Iterable[str], file: str) -> dict[str, Chain]:
    """Each chain's residues by their numbers."""
    found: dict[str, Chain] = {}
    for line in lines:
        if line.startswith("ENDMDL"):
            break
        selenium = line.startswith("HETATM") and line[17:20] == "MSE"
        if not line.startswith("ATOM") and not selenium:
            continue
        try:
            residue = (int(line[22:26]), line[26:27].strip())
            place = [float(line[first : first + 8]) for first in (30, 38, 46)]
        except ValueError as error:
            raise GlauberError(f"{file} is no PDB file: a line of atoms is broken.") from error
        name = "MET" if selenium else line[17:20]
        chain = found.setdefault(line[21:22], {})
        chain.setdefault(residue, (name, {}))[1].setdefault(line[12:16].strip(), place)
    if not found:
        raise GlauberError(f"{file} holds no atoms in the format of PDB files.")
    return found


def _laid_out(chains: list[Chain], file: str) -> Backbone:
    """The chains one behind the other, with the numbers that they leave out."""
    letters: list[str] = []
    atoms: list[list[list[float]]] = []
    which: list[int] = []
    numbers: list[int] = []
    for count, chain in enumerate(chains):
        for residue in _numbered(chain):
            name, there = chain.get(residue, ("", {}))
            letters.append(LETTERS.get(name, "X"))
            atoms.append([there.get(atom, [float("nan")] * 3) for atom in ATOMS])
            which.append(count)
            numbers.append(100 * count + len(numbers))
            if len(numbers) > MOST:
                raise GlauberError(f"{file} has more than {MOST} positions: choose some chains.")
    places = torch.tensor(atoms, dtype=torch.float32)
    present = places.isfinite().all(dim=2).all(dim=1)
    if int(present.sum()) < 2:
        raise GlauberError(f"{file} has fewer than two residues with N, CA, C and O.")
    laid = (places.nan_to_num(0.0), present, torch.tensor(which), torch.tensor(numbers))
    return Backbone("".join(letters), *laid)


def _numbered(chain: Chain) -> list[Residue]:
    """The residues in order, and those numbers between them that are not there."""
    there = {number for number, _ in chain}
    first, last = min(there), min(max(there), min(there) + MOST + 1)
    left_out = [(number, "") for number in range(first, last) if number not in there]
    return sorted([*chain, *left_out])
