"""Diffusion LMs of the hub: tiny folders, with their definitions in NumPy as the oracle."""

import json
import sys

import numpy as np
import pytest
import torch
import transformers

from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD
from glauber.models.diffusion_lm import DiffusionLM
from glauber.models.forward.checkpoint import Safetensors, spread
from glauber.models.forward.description import move_to
from glauber.models.forward.encoder_cuda import forward
from glauber.models.forward.families import describe
from glauber.models.load import load
from glauber.models.masked_lm import MaskedLM
from tiny_diffusion import (
    END,
    MASK,
    WORDS,
    dream,
    dream_logits,
    llada,
    llada_logits,
    mdlm,
    mdlm_logits,
    tokenizer_of,
    write,
)

FAMILIES = {
    "llada": (llada, llada_logits),
    "dream": (dream, dream_logits),
    "mdlm": (mdlm, mdlm_logits),
}
LENGTH = 11
CLOSE = 3e-6  # of the largest score: some tens of roundings in float32


def asked(vocab, rows=5, k=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocab, (rows, LENGTH), generator=generator)
    sites = torch.rand(rows, LENGTH, generator=generator).argsort(dim=1)[:, :k]
    return tokens, sites


def scores_by_definition(logits, config, weights, model, tokens, sites):
    """Scores (rows, k, vocab) by the definition, with the sites hidden."""
    hidden = tokens.scatter(1, sites, model.hidden_token).numpy()
    pairs = zip(hidden, sites.numpy(), strict=True)
    return np.stack([logits(config, weights, row)[at] for row, at in pairs])


def assert_scores_are_defined(logits, folder, config, weights):
    model, (tokens, sites) = load(str(folder)), asked(len(WORDS))
    due = scores_by_definition(logits, config, weights, model, tokens, sites)
    assert np.abs(model.scores(tokens, sites).numpy() - due).max() < CLOSE * np.abs(due).max()
    assert 1 < np.abs(due).max() < 30  # neither nothing nor saturated


DEFINED = {
    "llada": ("llada", {}),
    "llada in shards": ("llada", {"shards": 3}),
    "grouped": ("llada", {"kv_heads": 2}),
    "one key": ("llada", {"kv_heads": 1}),
    "tied llada": ("llada", {"tied": True}),
    "block groups": ("llada", {"groups": 2}),
    "dream": ("dream", {}),
    "dream in shards": ("dream", {"shards": 3}),
    "tied dream": ("dream", {"tied": True}),
    "mdlm": ("mdlm", {}),
    "mdlm in shards": ("mdlm", {"shards": 3}),
}


@pytest.mark.parametrize("case", DEFINED)
def test_scores_are_those_of_the_definition(case, tmp_path):
    family, how = DEFINED[case]
    write, logits = FAMILIES[family]
    assert_scores_are_defined(logits, *write(tmp_path / "m", **how))


def test_a_checkpoint_in_bfloat16_is_read(tmp_path):
    folder, config, weights = llada(tmp_path / "m", dtype=torch.bfloat16, shards=2)
    rounded = {key: torch.tensor(w).bfloat16().float().numpy() for key, w in weights.items()}
    assert_scores_are_defined(llada_logits, folder, config, rounded)


def test_the_same_layers_without_a_shift(tmp_path):
    """Trained to speak of the place itself: what stands at i - 1 is of i - 1."""
    tokens, sites = asked(len(WORDS))
    change = {"model_type": "a2d-qwen2", "architectures": ["A2DQwen2LMHeadModel"]}
    folder, config, weights = dream(tmp_path / "plain", change=change)
    plain = load(str(folder))
    hidden = tokens.scatter(1, sites, plain.hidden_token)
    for row, at, scores in zip(hidden.numpy(), sites, plain.scores(tokens, sites), strict=True):
        shifted = dream_logits(config, weights, row)
        inner = at < LENGTH - 1
        assert np.abs(scores[inner].numpy() - shifted[at[inner] + 1]).max() < 1e-5
    assert not plain.shifted


def test_dreams_layers_are_transformers_qwen_without_a_mask(tmp_path):
    """transformers' own module with the same names of tensors, every place seeing every place."""
    folder, config, weights = dream(tmp_path / "m")
    kept = {key: value for key, value in config.items() if key not in ("model_type", "rope_theta")}
    rope = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    theirs = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**kept, rope_parameters=rope))
    named = {key: torch.tensor(value) for key, value in weights.items()}
    theirs.load_state_dict(named)  # refuses a name too few or too many
    model, (tokens, sites) = load(str(folder)), asked(len(WORDS))
    hidden = tokens.scatter(1, sites, model.hidden_token)
    visible = torch.zeros(len(tokens), 1, LENGTH, LENGTH)
    with torch.no_grad():
        logits = theirs.eval()(input_ids=hidden, attention_mask=visible).logits
    rows, left = torch.arange(len(tokens))[:, None], (sites - 1).clamp(min=0)
    assert (model.scores(tokens, sites) - logits[rows, left]).abs().max() < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_does_not_depend_on_its_batch(family, tmp_path):
    model = load(str(FAMILIES[family][0](tmp_path / "m")[0]))
    tokens, sites = asked(len(WORDS), rows=9)
    tokens[4:, 8:], sites[4:] = PAD, sites[4:].clamp(max=7)
    whole = model.scores(tokens, sites)
    alone = torch.cat([model.scores(tokens[i : i + 1], sites[i : i + 1]) for i in range(9)])
    assert torch.equal(whole, alone)
    garbage = tokens.scatter(1, sites, 7)
    assert torch.equal(model.scores(garbage, sites), whole)


@pytest.mark.parametrize("family", FAMILIES)
def test_other_precisions_are_near(family, tmp_path):
    folder = str(FAMILIES[family][0](tmp_path / "m")[0])
    model, (tokens, sites) = load(folder), asked(len(WORDS))
    scores, spread_of = model.scores(tokens, sites).double(), model.scores(tokens, sites).std()
    half = load(folder, dtype="bfloat16")
    assert half.dtype == "bfloat16"
    assert half.scores(tokens, sites).dtype == torch.bfloat16
    assert (half.scores(tokens, sites).double() - scores).abs().max() < 0.15 * spread_of
    exact = model.to(dtype="float64")
    assert exact.dtype == "float64"
    assert (exact.scores(tokens, sites) - scores).abs().max() < 1e-4
    assert model.fingerprint == half.fingerprint == exact.fingerprint


@pytest.mark.int8
@pytest.mark.parametrize("family", FAMILIES)
def test_int8_is_near(family, tmp_path):
    folder = str(FAMILIES[family][0](tmp_path / "m")[0])
    model, (tokens, sites) = load(folder), asked(len(WORDS))
    scores = model.scores(tokens, sites)
    rounded = load(folder, dtype="int8")
    assert (rounded.scores(tokens, sites) - scores).abs().mean() < 0.1 * scores.std()


def test_pseudo_likelihoods_are_packed_as_they_are_scored(tmp_path):
    model = load(str(llada(tmp_path / "m")[0]))
    tokens, sites = asked(len(WORDS), k=1)
    scores = torch.log_softmax(model.scores(tokens, sites).double(), -1)[:, 0]
    due = scores.gather(1, tokens.gather(1, sites))[:, 0]
    assert torch.allclose(model.packed.log_probs(tokens, sites[:, 0]), due, atol=1e-5)
    assert load(str(dream(tmp_path / "d")[0])).packed is None  # its scores stand elsewhere


def test_what_studies_ask_of_a_model(tmp_path):
    folder = llada(tmp_path / "m")[0]
    model = load(str(folder))
    end, mask = len(WORDS), len(WORDS) + 1
    assert isinstance(model, DiffusionLM)
    assert (model.hidden_token, model.longest, model.ends) == (mask, 64, [end])
    allowed = model.conditionals().allowed
    assert allowed[:end].all()
    assert allowed[end]  # where a text stops is part of what it writes
    assert not allowed[mask]
    assert not model.conditionals(forbid=[END]).allowed[end]
    assert model.vocabulary.decode([0, mask, 2, end]) == f"a {MASK} cat"
    shards = llada(tmp_path / "cut", shards=3)[0]
    assert load(str(shards)).fingerprint == model.fingerprint
    assert load(str(llada(tmp_path / "other", seed=9)[0])).fingerprint != model.fingerprint
    assert load(model).to(device="cpu").fingerprint == model.fingerprint


def test_the_mask_token_of_mdlm_is_the_row_behind_its_tokenizer(tmp_path):
    model = load(str(mdlm(tmp_path / "m")[0]))
    assert model.hidden_token == len(WORDS) + 1
    assert model.vocabulary.spell(model.hidden_token) == "[MASK]"
    assert not model.conditionals().allowed[model.hidden_token]


def test_nothing_of_a_folder_is_run(tmp_path):
    folder, *_ = llada(tmp_path / "m")
    (folder / "modeling_llada.py").write_text("raise SystemExit('ran')")
    (folder / "tokenization_llada.py").write_text("raise SystemExit('ran')")
    before = set(sys.modules)
    load(str(folder), trust_remote_code=True)
    assert not [name for name in set(sys.modules) - before if "llada" in name.lower()]


def test_a_tokenizer_of_merges_is_qwens(tmp_path):
    """Dream's folder has vocab.json and merges.txt, and code that says how to read them."""
    folder, *_ = dream(tmp_path / "m", tokenizer=None)
    letters = {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ.,!")}
    (folder / "vocab.json").write_text(json.dumps(letters | {"at": 30}))
    (folder / "merges.txt").write_text("#version: 0.2\na t\n")
    added = {"content": "<|mask|>", "special": True, "normalized": False, "lstrip": False}
    added |= {"rstrip": False, "single_word": False}
    config = {
        "added_tokens_decoder": {str(len(WORDS) + 1): added},
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "mask_token": "<|mask|>",
        "model_max_length": 60,
        "tokenizer_class": "DreamTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    model = load(str(folder))
    assert model.vocabulary.pieces("a cat") == [0, 26, 2, 30]
    assert model.hidden_token == len(WORDS) + 1


# ---- layers on several devices


def test_layers_are_spread_in_order():
    one, two = torch.device("cpu"), torch.device("meta")
    assert spread(5, [one, two]) == [one, one, one, two, two]
    assert spread(3, [one]) == [one] * 3


def test_states_go_where_the_layers_are(tmp_path):
    """On one device as without a split; a meta device finds whatever is left behind."""
    folder, config, _ = llada(tmp_path / "m")
    cpu, meta = torch.device("cpu"), torch.device("meta")
    weights, (tokens, sites) = Safetensors(folder), asked(len(WORDS))
    tokens[2:, 8:], sites[2:] = PAD, sites[2:].clamp(max=7)
    whole = describe(config, weights, [cpu], torch.float64)
    split = describe(config, weights, [cpu, meta], torch.float64)
    assert [layer.device.type for layer in split.layers] == ["cpu", "meta"]
    assert split.embedding.words.device == cpu
    assert split.norm.weight.device == split.head.scores.weight.device == meta
    found = forward(split, tokens, sites)
    assert found.device == meta
    assert found.shape == forward(whole, tokens, sites).shape
    back = move_to(whole, cpu, torch.float64)
    assert torch.equal(forward(back, tokens, sites), forward(whole, tokens, sites))


def test_a_split_needs_gpus(tmp_path):
    folder = str(llada(tmp_path / "m")[0])
    with pytest.raises(GlauberError, match="needs two GPUs or more, but this machine has 0"):
        load(folder, device="cuda:split")


# ---- what is refused


def test_a_shift_against_the_config_is_refused(tmp_path):
    shifted, plain = str(dream(tmp_path / "d")[0]), str(llada(tmp_path / "l")[0])
    assert load(shifted, shift=True).shifted
    with pytest.raises(GlauberError, match="one place to the left of it: shift=False would read"):
        load(shifted, shift=False)
    with pytest.raises(GlauberError, match="at the site itself: shift=True would read"):
        load(plain, shift=True)


@pytest.mark.parametrize("kind", ["masked", "causal"])
def test_a_diffusion_lm_is_not_read_as_another(kind, tmp_path):
    with pytest.raises(GlauberError, match=f"is a diffusion LM and cannot be read as a {kind} LM"):
        load(str(dream(tmp_path / "d")[0]), kind=kind)


def test_a_missing_mask_token_is_asked_for(tmp_path):
    words = (*WORDS, END, "<|m|>")
    folder, *_ = llada(
        tmp_path / "m", change={"mask_token_id": None}, tokenizer=tokenizer_of(words)
    )
    with pytest.raises(GlauberError, match="has no mask token: say which it is by"):
        load(str(folder))
    number = len(WORDS) + 1
    for given in ("<|m|>", number, str(number)):
        model = load(str(folder), mask_token=given)
        assert model.hidden_token == number
        assert load(model.name).hidden_token == number  # a run keeps the name alone
    assert not model.conditionals().allowed[number]
    with pytest.raises(GlauberError, match="'nothing' is no token of"):
        load(str(folder), mask_token="nothing")
    with pytest.raises(GlauberError, match="is 999, but it has"):
        load(str(folder), mask_token=999)


def test_models_without_a_mask_are_refused(tmp_path):
    for shape, name in (("diffusion_gemma", "DiffusionGemma"), ("DUO", "DUO")):
        folder, *_ = llada(tmp_path / shape, change={"model_type": shape})
        with pytest.raises(GlauberError, match=f"is {name}, which replaces tokens by others"):
            load(str(folder))
    causal = tmp_path / "gpt2"
    transformers.GPT2Config(architectures=["GPT2LMHeadModel"]).save_pretrained(causal)
    with pytest.raises(GlauberError, match="autoregressive LM: it has no mask token and says"):
        load(str(causal), kind="diffusion")
    with pytest.raises(GlauberError, match="autoregressive LM: it has no mask token"):
        load(str(causal), mask_token="a")


def test_a_masked_lm_that_writes_is_a_masked_lm(tiny_folder):
    assert isinstance(load(str(tiny_folder), kind="diffusion"), MaskedLM)
    with pytest.raises(GlauberError, match="shift is for diffusion LMs"):
        load(str(tiny_folder), shift=True)


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("llada", {"architectures": ["LLaDAMoEModelLM"]}, "has architectures"),
        ("llada", {"block_type": "sequential"}, "has block_type 'sequential'"),
        ("llada", {"attention_layer_norm": True}, "has attention_layer_norm True"),
        ("llada", {"mlp_hidden_size": 50}, "has other sizes than the weights"),
        ("llada", {"n_layers": 3}, "lacks model.transformer.blocks.2"),
        ("llada", {"n_heads": 5}, "5 heads do not share a width of 32"),
        ("llada", {"n_layers": None}, "n_layers is None, not a size"),
        ("dream", {"architectures": ["DreamForCausalLM"]}, "has architectures"),
        ("dream", {"rope_scaling": {"type": "yarn"}}, "has rope_scaling"),
        ("mdlm", {"time_conditioning": True}, "has time_conditioning True"),
    ],
)
def test_what_cannot_be_read_is_said(family, change, said, tmp_path):
    folder, *_ = FAMILIES[family][0](tmp_path / "m", change=change)
    with pytest.raises(GlauberError, match=said):
        load(str(folder))


def test_broken_weights_are_refused(tmp_path):
    folder, config, weights = llada(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(GlauberError, match="holds no safetensors"):
        load(str(folder))
    weights["model.transformer.wte.weight"][3, 3] = np.nan

    write(folder, config, weights)
    with pytest.raises(GlauberError, match=r"not finite numbers, in model.transformer.wte.weight"):
        load(str(folder))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(GlauberError, match="brings no tokenizer"):
        load(str(folder))
