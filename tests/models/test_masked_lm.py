import hashlib
import warnings
from copy import deepcopy

import pytest
import torch
import transformers

import conftest
from glauber.models.base import Restricted
from glauber.models.masked_lm import MaskedLM

SHAPES = [
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "albert",
    "electra",
    "deberta-v2",
    "deberta-v3",
    "mpnet",
    "modernbert",
    "esm",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_full_logits_are_never_formed(shape, tokenizer, texts):
    """The head sees as many rows as there are hidden sites (or FEWEST_ROWS), not the text."""
    laws = MaskedLM(conftest.make_model(shape), tokenizer)
    seen, head = [], laws._head
    laws._head = lambda states: (seen.append(states.numel() // states.shape[-1]), head(states))[1]
    tokens, _ = laws.vocabulary.encode([texts[1]] * 40)
    laws._batched.sizes(tokens.shape[1], 1)
    seen.clear()
    laws.scores(tokens, torch.full((40, 1), 3))
    assert 40 <= sum(seen) <= 40 + 16 * len(seen) and max(seen) <= 64


def test_special_and_unused_tokens_are_not_proposable(tiny_folder):
    laws = MaskedLM.load(str(tiny_folder))
    allowed = laws.vocabulary.proposable()
    names = [laws.vocabulary.text.spell(i) for i in range(len(allowed))]
    assert [n for n, ok in zip(names, allowed, strict=True) if not ok] == conftest.VOCABULARY[:7]
    tokens, _ = laws.vocabulary.encode(["the cat"])
    scores = Restricted(laws, allowed).scores(tokens, torch.tensor([[1]]))
    assert torch.equal(scores[0, 0] == -torch.inf, ~allowed)


def test_fingerprint_follows_weights_and_not_the_dtype(tiny_folder, tokenizer):
    one = MaskedLM.load(str(tiny_folder))
    other = MaskedLM.load(str(tiny_folder), dtype="float64")
    assert one.fingerprint == other.fingerprint
    assert len(bytes.fromhex(one.fingerprint)) == hashlib.sha256().digest_size
    from glauber.models.weights import fingerprint_of

    changed = one.model
    with torch.no_grad():
        changed.cls.predictions.bias[9] += 1e-3
    assert fingerprint_of(changed.state_dict(), tokenizer) != one.fingerprint


def quietly(model):
    """The model as conditionals, without the warning that its shape is not known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MaskedLM(model, conftest.make_tokenizer())


def two_threads(model, tokens):
    """Scores of one hidden site per row, on two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        return model.scores(tokens, torch.full((len(tokens), 1), 5))[:, 0]
    finally:
        torch.set_num_threads(before)


def test_a_long_text_is_scored_the_same_after_a_short_one():
    """BigBird's sparse attention, against a fresh model of transformers."""
    config = transformers.BigBirdConfig(
        **conftest.SIZES | dict(max_position_embeddings=96, block_size=4, num_random_blocks=1)
    )
    torch.manual_seed(0)
    plain = transformers.BigBirdForMaskedLM(config).eval()
    with torch.no_grad():
        for weight in plain.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    tokens = torch.randint(5, 40, (4, 64), generator=torch.Generator().manual_seed(1))
    model = quietly(deepcopy(plain))
    first = two_threads(model, tokens)
    two_threads(model, tokens[:, :12])
    assert torch.equal(two_threads(model, tokens), first)
    tokens[:, 5] = model.hidden_token
    with torch.no_grad():
        wanted = plain(tokens).logits[:, 5]
        full = plain(tokens[:, :12]).logits, plain(tokens).logits[:, 5]  # now in full attention
    torch.testing.assert_close(first, wanted, rtol=0, atol=1e-4)
    assert float((full[1] - wanted).abs().max()) > 1e-2


def test_a_model_that_draws_hashes_answers_the_same_each_time():
    """Reformer, on two threads and after a text of another length."""
    config = transformers.ReformerConfig(
        vocab_size=len(conftest.VOCABULARY),
        hidden_size=32,
        num_attention_heads=2,
        attention_head_size=16,
        feed_forward_size=64,
        attn_layers=["lsh", "lsh"],
        axial_pos_embds=False,
        max_position_embeddings=96,
        lsh_attn_chunk_length=8,
        is_decoder=False,
    )
    torch.manual_seed(0)
    model = quietly(transformers.ReformerForMaskedLM(config).eval())
    tokens = torch.randint(5, 40, (6, 64), generator=torch.Generator().manual_seed(1))
    state = torch.random.get_rng_state()
    first = two_threads(model, tokens)
    two_threads(model, tokens[:, :24])
    for _ in range(3):
        assert torch.equal(two_threads(model, tokens), first)
    assert torch.equal(torch.random.get_rng_state(), state)
