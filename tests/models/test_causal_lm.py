import pytest
import torch
import transformers

import conftest
import glauber
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD
from glauber.models.causal_lm import CausalLM, NextToken


@pytest.fixture
def control(tokenizer):
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        vocab_size=len(conftest.VOCABULARY),
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=40,
        bos_token_id=2,
        eos_token_id=3,
    )
    model = transformers.GPT2LMHeadModel(config).double()
    tokenizer = conftest.make_tokenizer()
    tokenizer.bos_token = "[CLS]"
    return CausalLM(model, tokenizer, name="control")


def test_log_joint_is_the_sum_of_the_next_token_laws(control):
    tokens = torch.tensor([[9, 12, 20, 8], [11, 7, PAD, PAD]])
    expected = []
    for row in tokens:
        row = row[row != PAD]
        total = 0.0
        for t in range(len(row)):
            before = torch.cat([torch.tensor([2]), row[:t]])[None]
            laws = control.model(input_ids=before).logits[0, -1].log_softmax(-1)
            total += float(laws[row[t]])
        expected.append(total)
    torch.testing.assert_close(control.log_joint(tokens), torch.tensor(expected).double())


def test_rectangles_of_the_control_close(control):
    """Delta of the spec, from four conditionals, is zero for a law with a joint."""
    a, other_a, b, other_b = 9, 15, 20, 30
    base = torch.tensor([[8, a, 13, b, 10]])

    def ratio(site: int, new: int, old: int, elsewhere: int, value: int) -> torch.Tensor:
        tokens = base.clone()
        tokens[0, elsewhere] = value
        scores = control.scores(tokens, torch.tensor([[site]]), torch.tensor([[[new, old]]]))
        return scores[0, 0, 0] - scores[0, 0, 1]

    left = ratio(1, other_a, a, 3, b) + ratio(3, other_b, b, 1, other_a)
    right = ratio(3, other_b, b, 1, a) + ratio(1, other_a, a, 3, other_b)
    assert abs(float(left - right)) < 1e-12
    assert abs(float(ratio(1, other_a, a, 3, b) - ratio(1, other_a, a, 3, other_b))) > 1e-3


def test_what_stands_at_the_hidden_site_does_not_matter(control):
    candidates = torch.tensor([[[9, 10, 11]]])
    one = control.scores(torch.tensor([[8, 9, 13]]), torch.tensor([[1]]), candidates)
    other = control.scores(torch.tensor([[8, 22, 13]]), torch.tensor([[1]]), candidates)
    assert torch.equal(one, other)


def test_proposals_are_the_next_token_laws(control):
    tokens = torch.tensor([[9, 12, 20, 8], [11, 7, PAD, PAD], [11, 7, 9, 30]])
    sites = torch.tensor([[0], [1], [3]])
    scores = NextToken(control).scores(tokens, sites)
    for row, (site,) in enumerate(sites.tolist()):
        before = torch.cat([torch.tensor([2]), tokens[row, :site]])[None]
        expected = control.model(input_ids=before).logits[0, -1]
        torch.testing.assert_close(scores[row, 0], expected)
    chosen = torch.tensor([[[3, 4]]] * 3)
    some = NextToken(control).scores(tokens, sites, chosen)
    assert torch.equal(some, scores.gather(-1, chosen))


def test_every_token_is_a_candidate_if_none_is_named(control):
    tokens, sites = torch.tensor([[9, 12, 20, 8], [11, 7, 9, PAD]]), torch.tensor([[2], [0]])
    whole = control.scores(tokens, sites)
    assert whole.shape == (2, 1, control.vocab_size)
    some = control.scores(tokens, sites, torch.tensor([[[4, 9]], [[30, 5]]]))
    torch.testing.assert_close(some, whole.gather(-1, torch.tensor([[[4, 9]], [[30, 5]]])))
    log_probs = whole.log_softmax(-1)
    allowed = control.vocabulary.proposable()
    limited = control.conditionals().scores(tokens, sites)
    assert torch.equal(limited[..., ~allowed].isneginf().all(), torch.tensor(True))
    torch.testing.assert_close(limited[..., allowed], whole[..., allowed])
    assert torch.isfinite(log_probs).all()


def test_an_opening_token_of_the_tokenizer_is_not_said_twice(control):
    bare, opened = torch.tensor([[9, 12, 20]]), torch.tensor([[2, 9, 12, 20]])
    torch.testing.assert_close(control.log_joint(bare), control.log_joint(opened))
    mixed = control.log_joint(torch.tensor([[2, 9, 12, 20], [9, 12, 20, 8]]))
    assert torch.equal(mixed[:1], control.log_joint(opened))


def test_an_autoregressive_folder_is_a_model_of_every_study(control, tmp_path):
    """Recognised by its config; chains are the same for any batch."""
    control.model.float().save_pretrained(tmp_path / "gpt")
    control.vocabulary.tokenizer.save_pretrained(tmp_path / "gpt")
    model = glauber.load(str(tmp_path / "gpt"), device="cpu")
    assert isinstance(model, CausalLM) and not model.whole_vocabulary
    assert model.fingerprint == glauber.load(model).fingerprint
    texts = ["the cat sat on it", "a dog ran"]
    run = glauber.sample(model, texts, steps=6, temperature=0.7)
    assert run.spec.model == model.name and run.steps == 6
    split = glauber.sample(model, texts, steps=6, temperature=0.7, batch_size=1)
    assert (split.tokens() == run.tokens()).all()
    chosen = glauber.sample(model, texts, steps=3, scan="adaptive:entropy", freeze="0")
    assert (
        chosen.steps == 3
        and (chosen.tokens()[~chosen.free] == chosen.tokens(0)[~chosen.free]).all()
    )
    found = glauber.rectangles(model, ["the cat sat on it"], count=4, length=5)
    assert found.certified.value == 0 and found.delta.max() < 1e-4
    assert model.to(dtype="float64").dtype == "float64"


def test_refusals(control):
    tokens = torch.tensor([[8, 9, 13]])
    with pytest.raises(GlauberError, match="one hidden site"):
        control.scores(tokens, torch.tensor([[1, 2]]), torch.zeros(1, 2, 3, dtype=torch.int64))
