"""Does the sampler write texts with the exact law, for every order, count and way of hiding again?

`exact.exact_law` follows every path and shares no code with the sampler. For n texts and a law p,
whatever the truth is,

    E TV <= 1/2 sum_x sqrt(p_x (1 - p_x) / n)        (Jensen),
    P(TV > E TV + t) <= exp(-2 n t^2)                (McDiarmid: one text moves TV by at most 1/n),

so with t = sqrt(log(FAMILY / 1e-4) / 2n) all comparisons of this file together raise a false alarm
with a probability below 1e-4.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from glauber.dynamics.candidates import ORDERS
from glauber.dynamics.kernel import start
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.exact import Procedure, exact_law, exact_passes, total_variation
from glauber.models.table import Joint, Table

TEXTS = 8_000
FAMILY = 400  # at least as many as there are comparisons; the last test counts
MODELS = {  # (3 sites, 3 tokens): the orders differ; (4 sites, 2 tokens): two may be hidden again
    "joint": (Joint.random(3, 3, seed=360, strength=1.5), Joint.random(2, 4, seed=0, strength=1.5)),
    "table": (Table.random(3, 3, seed=10, strength=1.5), Table.random(2, 4, seed=7, strength=2.5)),
}
COUNTS = (
    {"count": "1"}, {"count": "2"}, {"passes": 2}, {"count": "cosine", "passes": 2},
    {"count": "threshold:0.55"}, {"count": "entropy-bound:0.7"},
)  # fmt: skip
PLANS = ({"passes": 6}, {"count": "cosine", "passes": 5})
REMASKS = ("cap:0.4", "rescale:0.6", "conf", "loop:0.1,0.8,0.2")
FILLED = [{"order": order, **count} for order, count in itertools.product(ORDERS, COUNTS)]
HIDDEN_AGAIN = [
    {"order": order, "remask": remask, **plan}
    for order, remask, plan in itertools.product(ORDERS, REMASKS, PLANS)
] + [{"remask": f"planned:{eta}", **plan} for eta, plan in itertools.product((0, 0.5, 1), PLANS)]
LAWS = [
    {"temperature": 0.6, "count": "2"},
    {"temperature": 0.0, "order": "random", "count": "2"},
    {"temperature": 0.0, "order": "entropy", "count": "threshold:0.6"},
    {"temperature": 0.0, "remask": "planned:1", "count": "cosine", "passes": 5},
    {"temperature": 0.0, "remask": "conf", "order": "left-to-right"},
    {"temperature": 0.7, "top_p": 0.8, "order": "margin"},
    {"top_k": 2, "order": "entropy", "count": "entropy-bound:0.3"},
    {"top_k": 2, "top_p": 0.7, "order": "drawn", "remask": "conf"},
    {"top_k": 1, "order": "random", "passes": 2},
]  # fmt: skip
BLOCKS = [
    {"block": 2, "order": "random", "passes": 1},
    {"block": 2, "order": "entropy"},
    {"block": 2, "order": "drawn", "count": "threshold:0.5"},
    {"block": 2, "order": "confidence", "count": "entropy-bound:0.5"},
    {"block": 3, "order": "random", "remask": "cap:0.5", "passes": 3},
    {"block": 3, "order": "left-to-right", "remask": "planned:1", "passes": 3},
]
CORRECTED = [
    {"count": "3", "correct": 1}, {"count": "3", "correct": 2, "correct_block": 2},
    {"order": "drawn", "correct": 1, "between": True},
    {"passes": 2, "correct": 1, "correct_block": 2, "between": True, "temperature": 0.7},
    {"count": "threshold:0.55", "correct": 1, "between": True}, {"top_k": 2, "correct": 1},
]  # fmt: skip
HELD = [
    {"count": "2"}, {"order": "random", "remask": "planned:1"},
    {"remask": "planned:1", "correct": 1, "between": True},
]  # fmt: skip
CASES = FILLED + HIDDEN_AGAIN + LAWS + BLOCKS + CORRECTED


def tolerance(law, texts=TEXTS):
    mean = float(np.sqrt(law * (1 - law).clip(0) / texts).sum()) / 2
    return mean + math.sqrt(math.log(FAMILY / 1e-4) / (2 * texts))


def model_of(name, how):
    """Hiding by confidence needs two filled sites to choose from, blocks of three a fourth site."""
    return MODELS[name][how.get("remask") == "conf" or how.get("block") == 3]


def written(model, how, tokens, free, seed=0):
    """The texts (TEXTS, length) that the sampler writes, and the passes of each."""
    procedure = Unmasking(**{part: how[part] for part in how if part != "temperature"})
    begun = tokens.masked_fill(free, model.vocab_size).repeat(TEXTS, 1)
    heat = how.get("temperature", 1.0)
    state = start(begun, free.repeat(TEXTS, 1), temperature=heat, greedy=True)
    passed = torch.zeros(TEXTS, dtype=torch.int64)
    for after, _ in unmask(model, state, procedure, hidden_token=model.vocab_size, seed=seed):
        passed += (state.tokens == model.vocab_size).any(dim=1)
        state = after
    return state.tokens, passed


def frequencies(texts, vocab_size):
    places = vocab_size ** torch.arange(texts.shape[1] - 1, -1, -1)
    count = torch.bincount((texts * places).sum(1), minlength=vocab_size ** texts.shape[1])
    return count.numpy() / len(texts)


def whole(model):
    return torch.zeros(model.length, dtype=torch.int64), torch.ones(model.length, dtype=torch.bool)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", CASES, ids=lambda how: " ".join(map(str, how.values())))
def test_texts_have_the_exact_law(name, how):
    model = model_of(name, how)
    texts, passed = written(model, how, *whole(model))
    law = exact_law(model, *whole(model), Procedure(**how))
    assert total_variation(frequencies(texts, model.vocab_size), law) < tolerance(law)
    if "remask" not in how and "between" not in how:
        passes = exact_passes(model, *whole(model), Procedure(**how))
        found = np.bincount(passed.numpy(), minlength=len(passes)) / TEXTS
        assert len(found) == len(passes)
        assert total_variation(found, passes) < tolerance(passes)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", HELD, ids=str)
def test_fixed_tokens_stay_and_are_looked_at(name, how):
    model = MODELS[name][1]
    tokens, free = torch.tensor([0, 1, 0, 0]), torch.tensor([True, False, True, True])
    texts, _ = written(model, how, tokens, free)
    assert bool((texts[:, 1] == 1).all())
    law = exact_law(model, tokens, free, Procedure(**how))
    assert total_variation(frequencies(texts[:, free], 2), law) < tolerance(law)


def test_the_comparison_could_tell_the_procedures_apart():
    # What a sampler with another order writes is outside by twice the tolerance, where it differs:
    # of a joint law 10 of the 30 pairs are equal, since one at a time gives that law in any order.
    for name, wanted in (("joint", 18), ("table", 25)):
        model = MODELS[name][0]
        laws = [
            exact_law(model, *whole(model), Procedure(order=order, count=count))
            for order, count in itertools.product(ORDERS, ("1", "2"))
        ]
        pairs = itertools.chain(itertools.combinations(laws[::2], 2),
                                itertools.combinations(laws[1::2], 2))  # fmt: skip
        told = sum(total_variation(p, q) > 2 * tolerance(p) for p, q in pairs)
        assert told >= wanted


def test_the_family_is_counted():
    both = sum("remask" not in how and "between" not in how for how in CASES)
    assert len(MODELS) * (len(CASES) + both + len(HELD)) <= FAMILY
