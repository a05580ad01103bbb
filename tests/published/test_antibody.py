"""Real weights: the antibody model of the PyPI wheel antiberty 0.1.3."""

import pytest
import torch

from glauber.models.masked_lm import MaskedLM
from glauber.studies.proteins.single_mutants import scan_mutations
from published_weights import published

TRASTUZUMAB = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYY"
    "CSRWGGDGFYAMDYWGQGTLVTVSS"
)


@pytest.mark.weights
@pytest.mark.download
def test_recovers_the_heavy_chain_of_trastuzumab(tmp_path):
    """Each residue hidden in turn: at least 0.83 of them are the model's first guess."""
    published("antibody", tmp_path / "antibody")
    model = MaskedLM.load(str(tmp_path / "antibody"))
    tokens, free = model.vocabulary.encode([TRASTUZUMAB])
    sites = free[0].nonzero()
    assert len(sites) == len(TRASTUZUMAB) == 120
    scores = model.scores(tokens.expand(len(sites), -1), sites)
    guessed = scores[:, 0].argmax(dim=-1)
    share = (guessed == tokens[0, sites[:, 0]]).double().mean()
    print(f"recovered {share:.4f}")
    assert share >= 0.83
    assert model.vocabulary.decode(tokens[0]) == TRASTUZUMAB
    assert torch.equal(model.vocabulary.proposable().nonzero()[:, 0], torch.arange(5, 25))
    # Single mutants are what transformers' own pass says, with the site hidden in the parent.
    found = scan_mutations(model, TRASTUZUMAB, positions="97-99")
    for position, ours in zip((97, 98, 99), found.scores, strict=True):
        hidden = tokens.clone()
        hidden[0, position] = model.hidden_token
        with torch.no_grad():
            theirs = model.model(input_ids=hidden).logits[0, position, 5:25].double()
        stands = theirs[tokens[0, position] - 5]
        assert (torch.from_numpy(ours) - (theirs - stands)).abs().max() < 1e-5 * theirs.abs().max()
    assert str(found.ranking[0][0]) == "S97A"  # the germline's residue
