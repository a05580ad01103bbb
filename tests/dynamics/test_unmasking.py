"""Unmasking: joint laws, plans written out by hand and a public procedure as oracles."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from glauber.dynamics import candidates
from glauber.dynamics.candidates import ORDERS
from glauber.dynamics.kernel import Info, State, start
from glauber.dynamics.schedules import REMASKS
from glauber.dynamics.unmasking import Unmasking, unmask
from glauber.foundation.errors import GlauberError
from glauber.models import batching
from glauber.models.load import load
from glauber.models.own import Own
from glauber.models.table import Joint

JOINT = Joint.random(3, 3, seed=1)
PLACE_VALUES = torch.tensor([9, 3, 1])
BLANKS = ["the cat sat on the mat .", "is it red or blue !", "a big dog ran"]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return load(str(tiny_folder))


def all_hidden(n_chains: int, length: int, hidden_token: int, temperature: float = 1.0) -> State:
    tokens = torch.full((n_chains, length), hidden_token)
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    return start(tokens, everywhere, temperature=temperature, greedy=True)


def texts_hidden(model: Any, n_chains: int, temperature: float) -> State:
    """Chains of three lengths with every token of their texts hidden."""
    tokens, free = model.vocabulary.encode([BLANKS[i % 3] for i in range(n_chains)])
    tokens = tokens.masked_fill(free, model.hidden_token)
    return start(tokens, free, temperature=temperature, greedy=True)


def cut(state: State) -> State:
    """The state without the columns behind its longest text."""
    longest = int((state.tokens >= 0).sum(1).max())
    return state._replace(tokens=state.tokens[:, :longest], free=state.free[:, :longest])


def passes(
    conditionals: Any, state: State, hidden_token: int, seed: int = 3, **parts: Any
) -> list[tuple[State, Info]]:
    how = Unmasking(**parts)
    return list(unmask(conditionals, state, how, hidden_token=hidden_token, seed=seed))


def still_hidden(made: list[tuple[State, Info]], hidden_token: int) -> list[list[int]]:
    """How many sites of each chain are hidden after each pass."""
    return [(state.tokens == hidden_token).sum(1).tolist() for state, _ in made]


def distance_to_joint(tokens: Tensor) -> float:
    """The chi-square statistic (26 degrees of freedom) of texts of JOINT."""
    counts = torch.bincount((tokens * PLACE_VALUES).sum(1), minlength=27)
    wanted = len(tokens) * JOINT.probabilities()
    return float(((counts - wanted) ** 2 / wanted).sum())


BEYOND_CHANCE = 54.05  # the 0.999 quantile of chi-square with 26 degrees of freedom


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "drawn"])
@pytest.mark.parametrize("count", ["1", "linear"])
def test_one_at_a_time_gives_the_joint_law(order: str, count: str) -> None:
    made = passes(JOINT, all_hidden(6000, 3, 3), 3, order=order, count=count)
    assert distance_to_joint(made[-1][0].tokens) < BEYOND_CHANCE


def test_choosing_by_what_was_drawn_does_not_give_it_nor_does_filling_at_once() -> None:
    for parts in ({"order": "drawn"}, {"count": "3"}):
        made = passes(JOINT, all_hidden(6000, 3, 3), 3, **parts)
        assert distance_to_joint(made[-1][0].tokens) > 10 * BEYOND_CHANCE


MANY_WAYS = [
    {"count": "threshold:0.4"},
    {"order": "random", "count": "cosine", "passes": 4, "remask": "conf", "top_p": 0.9},
    {"order": "entropy", "count": "entropy-bound:2", "correct": 1, "between": True},
]


@pytest.mark.parametrize("parts", MANY_WAYS)
def test_texts_do_not_depend_on_the_batch(model: Any, parts: dict[str, Any]) -> None:
    state, texts = texts_hidden(model, 64, 0.9), {}
    for size, n_chains in ((1, 6), (7, 14), (64, 64)):
        some = [cut(state.rows(part)) for part in torch.arange(n_chains).split(size)]
        made = [passes(model.conditionals(), part, model.hidden_token, **parts) for part in some]
        rows = [row for one in made for row in one[-1][0].tokens]
        texts[size] = pad_sequence(rows, batch_first=True, padding_value=-1)
    assert torch.equal(texts[1], texts[64][:6])
    assert torch.equal(texts[7], texts[64][:14])
    assert len(texts[64].unique(dim=0)) > 50


def test_scores_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    law = peaked([0.9, 0.3] * 5)
    whole = passes(law, all_hidden(50, 10, 5), 5, order="random", top_p=0.8)
    monkeypatch.setattr(batching, "HELD", 7 * 4 * 10 * law.vocab_size)
    monkeypatch.setattr(candidates, "TOGETHER", 3 * law.vocab_size)
    law.rows.clear()
    parts = passes(law, all_hidden(50, 10, 5), 5, order="random", top_p=0.8)
    assert law.rows[:8] == [7] * 7 + [1]  # at first, seven rows of ten sites have room
    assert all(torch.equal(a.tokens, b.tokens) for (a, _), (b, _) in zip(whole, parts, strict=True))


def test_only_blanks_change_and_only_words_are_put_there(model: Any) -> None:
    tokens, free = model.vocabulary.encode(BLANKS)
    blanks = free & (torch.arange(tokens.shape[1]) % 2 == 1)
    begin = start(tokens.masked_fill(blanks, model.hidden_token), blanks, temperature=3.0)
    proposable = model.vocabulary.proposable()
    for remask in ("none", "cap:0.5", "planned:2"):
        made = passes(model.conditionals(), begin, model.hidden_token, remask=remask, correct=1)
        for state, _ in made:
            assert torch.equal(state.tokens[~blanks], tokens[~blanks])
        assert bool(proposable[made[-1][0].tokens[blanks]].all())


@pytest.mark.parametrize(
    "count, n_passes, left",
    [
        ("linear", 4, [7, 4, 2, 0]),  # 10 // 4 = 2 a pass, the first 10 mod 4 = 2 one more
        ("linear", 3, [6, 3, 0]),
        ("linear", None, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        ("linear", 25, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        ("cosine", 4, [9, 7, 3, 0]),  # 10 cos(pi j / 8) = 9.2, 7.1, 3.8, 0
        ("cosine", 1, [0]),
        ("4", None, [6, 2, 0]),
    ],
)
def test_plans_are_kept(count: str, n_passes: int | None, left: list[int]) -> None:
    made = passes(Alike(), all_hidden(2, 10, 5), 5, count=count, passes=n_passes)
    assert still_hidden(made, 5) == [[n, n] for n in left]
    for state, info in made:
        assert torch.equal(info.sites >= 0, info.changed)
        placed = info.tokens[info.changed & (info.tokens != 5)]
        assert torch.equal(placed, state.tokens[info.changed & (info.tokens != 5)])


def test_plans_count_by_block() -> None:
    # Blocks of 4, 4 and 2 sites, each over three passes: 2 1 1, 2 1 1, 1 1.
    made = passes(Alike(), all_hidden(1, 10, 5), 5, count="linear", passes=3, block=4)
    assert [n for (n,) in still_hidden(made, 5)] == [8, 7, 6, 4, 3, 2, 1, 0]
    first = made[2][0].tokens[0]
    assert bool((first[:4] != 5).all()) and bool((first[4:] == 5).all())


class Alike:
    """Five tokens, equally likely everywhere, or as the score of each site says."""

    vocab_size = 5

    def __init__(self, scores: Tensor | None = None) -> None:
        self.by_site = torch.zeros(64, 5, dtype=torch.float64) if scores is None else scores
        self.rows: list[int] = []  # of each call

    def scores(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None = None) -> Tensor:
        self.rows.append(len(tokens))
        return self.by_site[sites.clamp(min=0)]


def peaked(probs: list[float]) -> Alike:
    """Site i gives token i mod 5 the probability probs[i], and the others what is left, alike."""
    scores = torch.tensor([[(1 - p) / 4] * 5 for p in probs], dtype=torch.float64)
    for site, p in enumerate(probs):
        scores[site, site % 5] = p
    return Alike(scores.log())


def test_a_threshold_fills_all_sites_that_reach_it_and_the_first_of_the_order() -> None:
    law = peaked([0.5, 0.95, 0.3, 0.9, 0.89])
    for order, first in (("confidence", [1, 3]), ("left-to-right", [0, 1, 3])):
        (_, info), *_ = passes(law, all_hidden(1, 5, 5), 5, order=order, count="threshold:0.899")
        assert info.sites[0][info.sites[0] >= 0].tolist() == first
    made = passes(law, all_hidden(1, 5, 5), 5, count="threshold:0.899")
    assert [n for (n,) in still_hidden(made, 5)] == [3, 2, 1, 0]


def test_an_entropy_bound_fills_the_longest_head_within_it() -> None:
    probs = [0.5, 0.95, 0.3, 0.9, 0.89]
    law = peaked(probs)
    entropy = [float(-(p * p.log()).sum()) for p in law.by_site.exp()]
    for order in ("entropy", "left-to-right"):
        sites = sorted(range(5), key=lambda s: entropy[s] if order == "entropy" else s)
        for bound in (0.0, 0.2, 0.5, 1.2, 9.0):
            heads = [sites[:m] for m in range(1, 6)]
            spread = [sum(e := [entropy[s] for s in head]) - max(e) for head in heads]
            wanted = max((h for h, x in zip(heads, spread, strict=True) if x <= bound), key=len)
            (_, info), *_ = passes(
                law, all_hidden(1, 5, 5), 5, order=order, count=f"entropy-bound:{bound}"
            )
            assert info.sites[0][info.sites[0] >= 0].tolist() == sorted(wanted)


def test_orders_go_by_their_keys() -> None:
    # Likeliest 0.5, 0.45, 0.6; margins 0.05, 0.2, 0.22; entropies 0.69, 1.18, 1.01 nats.
    probs = [[0.5, 0.45, 0.05 - 2e-9, 1e-9, 1e-9], [0.45, 0.25, 0.1, 0.1, 0.1],
             [0.6, 0.38, 0.02 - 2e-9, 1e-9, 1e-9]]  # fmt: skip
    law = Alike(torch.tensor(probs, dtype=torch.float64).log())
    wanted = {
        "confidence": [2, 0, 1], "margin": [2, 1, 0], "entropy": [2, 0, 1],
        "left-to-right": [0, 1, 2],
    }  # fmt: skip
    for order, sites in wanted.items():
        made = passes(law, all_hidden(1, 3, 5), 5, order=order, count=1)
        assert [int(info.sites.max()) for _, info in made] == sites
    made = passes(law, all_hidden(500, 3, 5), 5, order="drawn", count=1)
    first = made[0][1]
    assert float(first.log_prob_new.nan_to_num(0).sum(1).exp().min()) > 0.09
    made = passes(law, all_hidden(3000, 3, 5), 5, order="random", count=1)
    firsts = torch.bincount(made[0][1].sites.amax(1), minlength=3) / 3000
    assert float((firsts - 1 / 3).abs().max()) < 4 * (2 / 9 / 3000) ** 0.5


@pytest.mark.parametrize(
    "remask, rates",
    [
        # 12 sites over 4 passes: h = 12 9 6 3 0, sigma_max of passes 2 and 3 is 6/3 and 3/6.
        ("cap:0.3", [0, 0.3, 0.3, 0]),
        ("cap:0.8", [0, 0.8, 0.5, 0]),
        ("rescale:0.4", [0, 0.4, 0.2, 0]),
    ],
)
def test_sites_are_hidden_again_at_their_rate(remask: str, rates: list[float]) -> None:
    made = passes(Alike(), all_hidden(3000, 12, 5), 5, passes=4, remask=remask)
    filled, n_filled = 0, 0
    for (state, info), rate, left in zip(made, rates, [9, 6, 3, 0], strict=True):
        again = (info.tokens == 5).sum(1)
        n_filled = int(filled * 3000) if isinstance(filled, int) else int(filled.sum())
        spread = (n_filled * rate * (1 - rate)) ** 0.5
        assert abs(int(again.sum()) - n_filled * rate) <= 4 * spread
        hidden = (state.tokens == 5).sum(1)
        assert torch.equal(hidden, again.clamp(min=left))
        filled = 12 - hidden


def test_what_was_placed_with_doubt_is_hidden_again_more_often() -> None:
    law = peaked([0.9, 0.3] * 6)
    made = passes(law, all_hidden(6000, 12, 5), 5, order="random", passes=4, remask="conf")
    before, (_, info) = made[0][0], made[1]
    filled, again = before.tokens != 5, info.tokens == 5
    p = before.memory.double().exp()
    weights = torch.where(filled, (-p).exp(), 0.0)
    sigma = 1.0 * weights / weights.sum(1, keepdim=True)  # sigma_max = min(1, 6 / 3)
    assert set(p[filled].mul(1000).round().int().unique().tolist()) == {25, 175, 300, 900}
    for kind in (p > 0.5, (p < 0.5) & filled):
        wanted, spread = sigma[kind].sum(), (sigma * (1 - sigma))[kind].sum().sqrt()
        assert abs(float(again[kind].sum() - wanted)) < 4 * float(spread)


def test_a_loop_keeps_nine_tenths_filled() -> None:
    made = passes(Alike(), all_hidden(2000, 30, 5), 5, passes=20, remask="loop:0.05,0.55,0.1")
    again = torch.tensor([int((info.tokens == 5).sum()) for _, info in made])
    # t = 1 - j/20: filled down to 3 of 30 at t = 0.55 (j = 9); the loop lasts for j = 10 to 18.
    assert again[:9].tolist() == [0] * 9 and again[18:].tolist() == [0, 0]
    wanted = 2000 * 27 * 0.05
    assert float((again[9:18] - wanted).abs().max()) < 6 * wanted**0.5
    hidden = torch.tensor(still_hidden(made, 5)).double()
    assert hidden[:9].amax(1).tolist() == [27, 24, 21, 18, 15, 12, 9, 6, 3]
    assert hidden[9:18].amin().item() == 3 and hidden[18:].amax(1).tolist() == [1, 0]


def test_a_plan_holds_what_was_placed_with_the_largest_probability() -> None:
    law = peaked([0.9, 0.3] * 5)
    for eta in (0, 1, 20):
        made = passes(law, all_hidden(400, 10, 5), 5, passes=5, remask=f"planned:{eta}")
        assert still_hidden(made, 5) == [[left] * 400 for left in (8, 6, 4, 2, 0)]
        revised = sum(int((info.tokens == 5).sum()) for _, info in made)
        assert (revised > 0) == (eta > 0)
    for (before, _), (after, info) in pairwise(made):
        again = info.tokens == 5
        kept = (before.tokens != 5) & ~again
        worst = torch.where(again, before.memory, -torch.inf).amax(1)
        least = torch.where(kept, before.memory, torch.inf).amin(1)
        assert bool((worst <= least).all())
        assert bool((after.tokens[kept] == before.tokens[kept]).all())


def test_a_token_that_is_placed_again_is_remembered_with_its_new_probability() -> None:
    law = peaked([0.9, 0.3] * 5)
    made = passes(law, all_hidden(400, 10, 5), 5, passes=5, remask="planned:20")
    expected, again = torch.full((400, 10), torch.nan), 0
    for state, info in made:
        rows, slots = ((info.sites >= 0) & (info.tokens != 5)).nonzero(as_tuple=True)
        sites, placed = info.sites[rows, slots], info.log_prob_new[rows, slots].float()
        earlier = expected[rows, sites]
        again += int((~earlier.isnan() & (earlier != placed)).sum())
        expected[rows, sites] = placed
        filled = state.tokens != 5
        assert torch.equal(state.memory[filled], expected[filled])
    assert again > 0


def low_confidence_by_hand(
    model: Any, tokens: Tensor, hidden: Tensor, n_passes: int, block: int
) -> Tensor:
    """LLaDA's low-confidence remasking at temperature 0, of one text (length,), one loop a line."""
    tokens = tokens.clone()
    places = hidden.nonzero()[:, 0].tolist()
    for first in range(0, len(places), block):
        part = places[first : first + block]
        base, rest = divmod(len(part), n_passes)
        for j in range(n_passes):
            masked = [i for i in places if tokens[i] == model.hidden_token]
            if not any(i in part for i in masked):
                break
            logits = model.conditionals().scores(tokens[None], torch.tensor([masked]))[0]
            x0, p = logits.argmax(-1), logits.double().softmax(-1)
            confidence = {
                i: float(p[n, x0[n]]) if i in part else -1.0 for n, i in enumerate(masked)
            }
            best = sorted(masked, key=lambda i: -confidence[i])
            for i in best[: base + (j < rest)]:
                tokens[i] = x0[masked.index(i)]
    return tokens


@pytest.mark.parametrize("n_passes, block", [(3, 99), (5, 99), (2, 3)])
def test_temperature_zero_is_the_low_confidence_procedure(
    model: Any, n_passes: int, block: int
) -> None:
    tokens, free = model.vocabulary.encode(["a big dog ran under the old tree and the bird flew"])
    hidden = free & (torch.arange(tokens.shape[1]) % 4 > 0)
    begin = start(tokens.masked_fill(hidden, 4), hidden, temperature=0.0, greedy=True)
    wanted = low_confidence_by_hand(model, begin.tokens[0], hidden[0], n_passes, block)
    for order in ("confidence", "drawn"):
        made = passes(model.conditionals(), begin, 4, order=order, passes=n_passes, block=block)
        assert made[-1][0].tokens[0].tolist() == wanted.tolist()
    assert bool((wanted != 4).all())


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("remask", ["conf", "planned:1"])
def test_a_generation_goes_on_from_its_events(model: Any, remask: str, temperature: float) -> None:
    how = Unmasking(order="random", passes=4, remask=remask, correct=1, between=True)
    begin, token = texts_hidden(model, 6, temperature), model.hidden_token
    whole = list(unmask(model.conditionals(), begin, how, hidden_token=token, seed=5))
    placed = torch.zeros(begin.tokens.shape)
    for _, info in whole[:2]:
        assert info.sites.shape[1] == how.slots(begin.tokens.shape[1])
        for chain, slot in (info.sites >= 0).nonzero().tolist():
            placed[chain, info.sites[chain, slot]] = info.log_prob_new[chain, slot].float()
    held = whole[1][0].tokens
    state = start(held, begin.free, temperature=temperature, step=2, greedy=True)
    state = state._replace(memory=placed)
    asked: Any = {"hidden_token": token, "seed": 5, "begin": begin.free}
    *_, (after, _) = unmask(model.conditionals(), state, how, **asked)
    assert torch.equal(after.tokens, whole[-1][0].tokens)


def test_only_an_unmasking_knows_the_temperature_zero() -> None:
    tokens, free = torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.bool)
    with pytest.raises(GlauberError, match="positive finite"):
        start(tokens, free, temperature=0.0)
    with pytest.raises(GlauberError, match="positive finite"):
        start(tokens, free, temperature=-1.0, greedy=True)


def test_a_hidden_site_is_spelled() -> None:
    own = Own(JOINT)
    assert own.hidden_token == JOINT.hidden_token == 3
    assert own.vocabulary.decode([0, 3, 1]) == "0[MASK]1"
    assert not own.vocabulary.proposable().shape[0] > 3


BAD: list[tuple[dict[str, Any], str]] = [
    ({"order": "best"}, "the order is best, but it must be one of random, "),
    ({"count": "0"}, "0 tokens are filled a pass, but it must be at least 1"),
    ({"count": "-2"}, "-2 tokens are filled a pass"),
    ({"count": "square"}, "the count is square, but it must be one of a number"),
    ({"count": "linear:3"}, "the count is linear:3"),
    ({"count": "threshold"}, "the count is threshold, but"),
    ({"count": "threshold:0"}, r"the threshold is 0, but it must lie in \(0, 1\]"),
    ({"count": "threshold:1.5"}, r"the threshold is 1.5, but it must lie in \(0, 1\]"),
    ({"count": "threshold:nan"}, "the threshold is nan"),
    ({"count": "entropy-bound:-0.1"}, r"the entropy bound \(gamma\) is -0.1 nats"),
    ({"passes": 0}, "the number of passes is 0, but it must be at least 1"),
    ({"block": 0}, "the size of a block is 0, but it must be at least 1"),
    ({"remask": "twice"}, "the remasking is twice, but it must be one of none, cap:0.1"),
    ({"remask": "cap"}, "the remasking is cap, but"),
    ({"remask": "cap:x"}, "the remasking is cap:x, but"),
    ({"remask": "cap:-1"}, "eta of the remasking is -1, but it must be 0 or above"),
    ({"remask": "rescale:2"}, "eta of the remasking is 2, but it is at most 1"),
    ({"remask": "loop:0.1,0.2,0.5"}, "the loop is on from 0.2 to 0.5, but time runs from 1"),
    ({"remask": "cap:0.1", "count": "threshold:0.9"}, "so the count must be linear or cosine"),
    ({"remask": "planned:1", "count": 4}, "so the count must be linear or cosine"),
    ({"top_k": 0}, r"the number of tokens kept \(top-k\) is 0, but"),
    ({"top_p": 0.0}, r"the mass kept \(top-p\) is 0.0, but it must lie in \(0, 1\]"),
    ({"correct": -1}, "the number of correction sweeps is -1, but"),
    ({"correct_block": 0}, "the size of a corrected block is 0, but"),
]


@pytest.mark.parametrize("parts, sentence", BAD)
def test_bad_values_end_in_one_sentence(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GlauberError, match=sentence) as said:
        Unmasking(**parts).check()
    assert "\n" not in str(said.value) and str(said.value).endswith(".")


@pytest.mark.parametrize("remask", REMASKS.split(", "))
@pytest.mark.parametrize("count", ["linear", "cosine"])
def test_every_plan_ends_with_a_whole_text(remask: str, count: str) -> None:
    for block in (None, 4):
        state = all_hidden(40, 9, 5)
        made = passes(Alike(), state, 5, count=count, passes=3, block=block, remask=remask)
        assert set(still_hidden(made, 5)[-1]) == {0}
        by_block = 9 if remask.startswith("loop") else 7  # the last block has one site
        assert len(made) == (3 if block is None else by_block)
