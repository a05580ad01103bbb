"""Made-up backbones with ideal bonds: a hairpin and a helix, as long as one likes."""

import math
from pathlib import Path

import gemmi
import numpy as np

STRAND, TURN, HELIX, LOOP = (-120.0, 130.0), (55.0, 38.0), (-57.0, -47.0), (-80.0, 150.0)
# The designed sequence FSD-1 (Dahiyat and Mayo 1997), which folds into a hairpin and a helix.
SEQUENCE = "QQYTAKIKGRTFRNEKELRDFIEKFKGR"
ANGLES = [STRAND] * 6 + [TURN] * 2 + [STRAND] * 4 + [LOOP] * 2 + [HELIX] * 14


def placed(a, b, c, length, angle, torsion):
    """The atom behind a, b, c at that distance, angle and torsion (degrees)."""
    angle, torsion = math.radians(angle), math.radians(torsion)
    forward = (c - b) / np.linalg.norm(c - b)
    normal = np.cross(b - a, forward)
    normal /= np.linalg.norm(normal)
    frame = np.stack([forward, np.cross(normal, forward), normal], axis=1)
    bent = math.sin(angle)
    step = [-math.cos(angle), bent * math.cos(torsion), bent * math.sin(torsion)]
    return c + length * frame @ np.array(step)


def backbone(angles):
    """(residues, 4, 3) of N, CA, C and O with these phi and psi."""
    n, ca = np.zeros(3), np.array([1.458, 0.0, 0.0])
    c = placed(np.array([0.0, 1.0, 0.0]), n, ca, 1.525, 111.0, -60.0)
    found = []
    for number, (_, psi) in enumerate(angles):
        following = placed(n, ca, c, 1.329, 117.2, psi)
        found.append([n, ca, c, placed(following, ca, c, 1.231, 120.1, 180.0)])
        phi = angles[min(number + 1, len(angles) - 1)][0]
        alpha = placed(ca, c, following, 1.458, 121.7, 180.0)
        n, ca, c = following, alpha, placed(c, following, alpha, 1.525, 111.0, phi)
    return np.array(found)


def write(file: Path, chains, *, left_out=()) -> Path:
    """A PDB file of chains: (letter, sequence, atoms); left_out are numbers without a residue."""
    lines, serial = [], 0
    for letter, sequence, atoms in chains:
        for number, (residue, places) in enumerate(zip(sequence, atoms, strict=True), start=1):
            if number in left_out:
                continue
            code = gemmi.expand_one_letter(residue, gemmi.ResidueKind.AA)
            for name, (x, y, z) in zip(("N", "CA", "C", "O"), places, strict=True):
                serial += 1
                lines.append(
                    f"ATOM  {serial:>5}  {name:<3} {code} {letter}{number:>4}    "
                    f"{x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00           {name[0]}"
                )
    file.write_text("\n".join([*lines, "END", ""]))
    return file


def hairpin(file: Path) -> Path:
    """The structure that ships with the tests."""
    return write(file, [("A", SEQUENCE, backbone(ANGLES))])
