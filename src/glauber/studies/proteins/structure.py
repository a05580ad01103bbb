"""The backbone of a protein from a PDB or mmCIF file, as ProteinMPNN counts its positions.

Of every residue N, CA, C and O; the first model and the first alternative location of an atom
count. Numbers that a chain skips are positions without atoms. Files are read by gemmi.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need

ATOMS = ("N", "CA", "C", "O")
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
MAX_POSITIONS = 4000  # every pair of them is measured
CHAIN_BREAK = 100  # places between two chains

Atoms = dict[str, list[float]]  # the place of each atom, in Å
Chain = dict[tuple[int, str], tuple[str, Atoms]]  # letter and atoms by number and insertion code


@dataclass(frozen=True)
class Backbone:
    """The positions of the chosen chains, one chain after the other."""

    sequence: str  # a letter for each position, X where it is unknown
    atoms: Tensor  # (positions, 4, 3) in Å, float32; 0 where there are none
    present: Tensor  # (positions,) bool: all four atoms are known
    chain: Tensor  # (positions,) the number of the chain, from 0
    number: Tensor  # (positions,) places along the chains, 100 between two

    @property
    def residues(self) -> str:
        """The sequence of the positions that have atoms."""
        positions = zip(self.sequence, self.present, strict=True)
        return "".join(letter for letter, present in positions if present)


def read_backbone(file: str | Path, chains: str = "") -> Backbone:
    """The backbone in a PDB or mmCIF file, of the named chains (such as AB) or of all."""
    need("proteins", "reading a structure", of=["gemmi"])
    residues = _read_residues(Path(file))
    if missing := [name for name in chains if name not in residues]:
        names = ", ".join(sorted(residues))
        raise GlauberError(f"{file} has no chain {missing[0]}; it has {names}.")
    letters: list[str] = []
    atoms: list[list[list[float]]] = []
    chain: list[int] = []
    for count, name in enumerate(sorted(set(chains) or residues)):
        numbers = {number for number, _ in residues[name]}
        skipped = (n for n in range(min(numbers), max(numbers)) if n not in numbers)
        gaps = [(n, "") for n in islice(skipped, MAX_POSITIONS + 1)]
        for key in sorted([*residues[name], *gaps]):
            letter, known = residues[name].get(key, ("X", {}))
            letters.append(letter)
            atoms.append([known.get(atom, [torch.nan] * 3) for atom in ATOMS])
            chain.append(count)
    if len(letters) > MAX_POSITIONS:
        raise GlauberError(f"{file} has more than {MAX_POSITIONS} positions: choose some chains.")
    places = torch.tensor(atoms, dtype=torch.float32)
    present = places.isfinite().all(dim=2).all(dim=1)
    if int(present.sum()) < 2:
        raise GlauberError(f"{file} has fewer than two residues with N, CA, C and O.")
    number = torch.arange(len(chain)) + CHAIN_BREAK * torch.tensor(chain)
    return Backbone("".join(letters), places.nan_to_num(0.0), present, torch.tensor(chain), number)


def _read_residues(file: Path) -> dict[str, Chain]:
    """The residues of each chain.

    Of what is not part of the chain by itself (HETATM) only selenomethionine counts, as methionine.
    """
    import gemmi

    if not file.is_file():
        raise GlauberError(f"there is no structure {file} that can be read.")
    try:
        structure = gemmi.read_structure(str(file))
        if structure.input_format == gemmi.CoorFormat.Pdb:
            _check_numbers(file)
    except (OSError, RuntimeError, ValueError) as error:
        raise GlauberError(f"{file} cannot be read as a structure: {error}.") from error
    chains: dict[str, Chain] = {}
    for chain in structure[0] if len(structure) else ():
        for residue in chain:
            if residue.het_flag == "H" and residue.name != "MSE":
                continue
            info = gemmi.find_tabulated_residue("MET" if residue.name == "MSE" else residue.name)
            code = info.one_letter_code if info.is_amino_acid() else "X"
            key = int(residue.seqid.num or 0), residue.seqid.icode.strip()
            letter = code if code in AMINO_ACIDS else "X"
            places = chains.setdefault(chain.name, {}).setdefault(key, (letter, {}))[1]
            for atom in residue:
                places.setdefault(atom.name, atom.pos.tolist())
    if not chains:
        raise GlauberError(f"{file} contains no atoms of a chain in the format of PDB or mmCIF.")
    return chains


def _check_numbers(file: Path) -> None:
    """Refuses atoms of a PDB file without a number or a place, which gemmi reads as 0."""
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        if line.startswith(("ATOM", "HETATM")):
            try:
                int(line[22:26]), *(float(line[at : at + 8]) for at in (30, 38, 46))
            except ValueError as error:
                raise ValueError(f"the atom of line {number} is broken") from error
