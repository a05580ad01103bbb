"""What a stored run drew from is what it goes on with, and what studies ask."""

import pytest
import torch
import transformers

import alphabets
from conftest import SIZES
from glauber.foundation.errors import GlauberError
from glauber.models.masked_lm import MaskedLM
from glauber.sampling.advance import Session
from glauber.sampling.reopened import drawn_from, reopen
from glauber.sampling.sample import resume, sample
from resealed import said_otherwise

TEXTS = ["EVQLVESGGG", "LAGVSERTID"]
ODD = set("XBUZO.-")


@pytest.fixture(scope="module")
def protein(tmp_path_factory):
    folder = tmp_path_factory.mktemp("esm")
    tokenizer = alphabets.esm(folder)
    torch.manual_seed(3)
    sizes = SIZES | {"vocab_size": len(tokenizer), "pad_token_id": 1}
    config = transformers.EsmConfig(
        **sizes, mask_token_id=tokenizer.mask_token_id, position_embedding_type="rotary",
        token_dropout=True, emb_layer_norm_before=False,
    )  # fmt: skip
    transformers.EsmForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def proposed(conditionals, vocabulary):
    """The spellings that have a chance at a site."""
    tokens = vocabulary.encode([TEXTS[0]])[0]
    scores = conditionals.scores(tokens, torch.tensor([[3]]))[0, 0]
    return {vocabulary.spell(int(token)) for token in torch.isfinite(scores).nonzero()}


def stopped(protein, folder, **how):
    """A run of 60 steps that stopped at once."""
    session = Session()
    session.stopping = True
    return sample(protein, TEXTS, steps=60, temperature=2.0, out=folder, session=session, **how)


def of_before(run):
    """The header as it was written before non-standard residues were left out."""
    return said_otherwise(run.folder, standard_only=False)


def drawn(run):
    return {run.vocabulary.spell(int(one)) for one in set(run.read("token").ravel())}


def test_a_run_of_before_goes_on_with_the_tokens_that_it_drew_from(protein, tmp_path):
    old = of_before(stopped(protein, tmp_path / "old"))
    assert proposed(drawn_from(old).conditionals, reopen(old).model.vocabulary) == (
        set(alphabets.RESIDUES) | ODD
    )
    assert drawn(resume(old)) & ODD
    new = stopped(protein, tmp_path / "new").folder
    assert proposed(drawn_from(new).conditionals, reopen(new).model.vocabulary) == set(
        alphabets.RESIDUES
    )
    assert not drawn(resume(new)) & ODD


def test_forbidden_and_special_tokens_are_those_of_the_run(protein, tmp_path):
    some = stopped(protein, tmp_path / "some", forbid="A,G")
    spelled = proposed(drawn_from(some).conditionals, reopen(some).model.vocabulary)
    assert spelled == set(alphabets.RESIDUES) - {"A", "G"}
    every = stopped(protein, tmp_path / "every", special_tokens=True, forbid="A")
    spelled = proposed(drawn_from(every).conditionals, reopen(every).model.vocabulary)
    assert "A" not in spelled and {"<mask>", "X"} <= spelled


def test_what_was_drawn_coarsely_is_asked_in_float32_and_says_so(protein, tmp_path):
    run = stopped(protein, tmp_path / "run", dtype="bfloat16")
    found = drawn_from(run)
    assert "drawn in bfloat16" in found.notes[0] and "float32" in found.notes[0]
    tokens, sites = reopen(run).tokens, torch.tensor([[2], [3]])
    precise = MaskedLM.load(protein, device="cpu").conditionals()
    assert torch.equal(found.conditionals.scores(tokens, sites), precise.scores(tokens, sites))
    with pytest.raises(GlauberError, match="bfloat16"):
        drawn_from(run, model=MaskedLM.load(protein, device="cpu", dtype="bfloat16"))
    assert not drawn_from(stopped(protein, tmp_path / "plain")).notes
