"""Loops by name are those of the literature; ranges need no package."""

import sys

import pytest
import torch

from glauber.foundation.errors import GlauberError
from glauber.studies.proteins import positions
from glauber.studies.proteins.positions import numbering, spelled_positions

# Trastuzumab, with the loops that IMGT/mAb-DB and the Kabat definition give.
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYY"
    "CSRWGGDGFYAMDYWGQGTLVTVSS"
)
LIGHT = (
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPP"
    "TFGQGTKVEIK"
)
LOOPS = {
    "imgt": [
        (HEAVY, "H1", "GFNIKDTY"), (HEAVY, "H2", "IYPTNGYT"), (HEAVY, "H3", "SRWGGDGFYAMDY"),
        (LIGHT, "L1", "QDVNTA"), (LIGHT, "L2", "SAS"), (LIGHT, "L3", "QQHYTTPPT"),
    ],
    "kabat": [
        (HEAVY, "H1", "DTYIH"), (HEAVY, "H2", "RIYPTNGYTRYADSVKG"), (HEAVY, "H3", "WGGDGFYAMDY"),
        (LIGHT, "L1", "RASQDVNTAVA"), (LIGHT, "L2", "SASFLYS"), (LIGHT, "L3", "QQHYTTPPT"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("scheme", LOOPS)
def test_the_loops_of_trastuzumab(scheme, capsys):
    threads = torch.get_num_threads()
    for sequence, name, expected in LOOPS[scheme]:
        found = spelled_positions(sequence, name, scheme)
        assert "".join(sequence[residue - 1] for residue in found) == expected
    assert torch.get_num_threads() == threads
    assert capsys.readouterr().out == ""


def test_residues_before_the_domain_are_counted():
    assert spelled_positions("MGWSC" + HEAVY, "H3") == list(range(102, 115))


def test_ranges_and_names_together():
    assert (
        spelled_positions(HEAVY, "97-109") == spelled_positions(HEAVY, "h3") == list(range(97, 110))
    )
    assert spelled_positions(HEAVY, "3, 1-2,H3,100") == [1, 2, 3, *range(97, 110)]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("97-121", "residues 1 to 120"),
        ("0-3", "residues 1 to 120"),
        ("9-3", "not there"),
        ("H4", "names no residues"),
        ("", "names no residues"),
        ("L3", "light chain, but this is a heavy"),
    ],
)
def test_what_is_not_there_is_said(name, sentence):
    with pytest.raises(GlauberError, match=sentence):
        spelled_positions(HEAVY, name)


def test_another_protein_has_no_loops():
    with pytest.raises(GlauberError, match="not numbered as an antibody"):
        spelled_positions(
            "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVV", "H3"
        )
    with pytest.raises(GlauberError, match="numbering scheme"):
        spelled_positions(HEAVY, "H3", "chothia")


def test_without_the_package_ranges_still_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "anarcii", None)
    monkeypatch.setattr(positions, "_numberer", positions._numberer.__wrapped__)
    numbering.cache_clear()
    assert spelled_positions(HEAVY, "97-98") == [97, 98]
    with pytest.raises(GlauberError, match=r"pip install 'glauber\[proteins\]', or give ranges"):
        spelled_positions(HEAVY, "H3")
