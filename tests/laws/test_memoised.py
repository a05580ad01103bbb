"""Chains that remember make the steps of chains that do not."""

import pytest
import torch

import conftest
from glauber.dynamics import scans
from glauber.dynamics.draws import greedy, gumbel_max
from glauber.dynamics.glauber import glauber
from glauber.dynamics.kernel import run, start
from glauber.dynamics.remembered import HEAD, Memo, entry_bytes, run_memoised
from glauber.foundation.errors import GlauberError
from glauber.models.base import Restricted
from glauber.models.masked_lm import MaskedLM
from glauber.models.table import Joint, Table

STEPS = 60


class Counted:
    """Conditionals that count the rows that they are asked for, and refuse twins in a batch."""

    def __init__(self, base):
        self.base, self.vocab_size, self.rows = base, base.vocab_size, 0

    def scores(self, tokens, sites, candidates=None):
        hidden = tokens.scatter(1, sites, -2)
        assert len(hidden.unique(dim=0)) == len(hidden)
        self.rows += len(tokens)
        return self.base.scores(tokens, sites, candidates)


def table_of(kind):
    conditionals = kind.random(5, 4, seed=4, strength=2.0)
    tokens = torch.randint(5, (7, 4), generator=torch.Generator().manual_seed(1))
    free = torch.ones(7, 4).bool()
    free[0, 1] = free[3, 0] = free[3, 3] = False
    return conditionals, tokens, free


def masked_lm():
    conditionals = MaskedLM(conftest.make_model(), conftest.make_tokenizer(), name="tiny")
    tokens, free = conditionals.vocabulary.encode([*conftest.TEXTS, *conftest.TEXTS[:2]])
    free[1, 3] = False
    return Restricted(conditionals, conditionals.vocabulary.proposable()), tokens, free


MODELS = {"joint": lambda: table_of(Joint), "table": lambda: table_of(Table), "lm": masked_lm}
HEAT = torch.tensor([0.2, 0.3, 0.5, 0.3, 1.0, 0.3, 4.0]).double()


@pytest.fixture(scope="module", params=MODELS)
def chains(request):
    """(conditionals, starting state, steps of the plain loop) over unequal chains."""
    conditionals, tokens, free = MODELS[request.param]()
    begun = start(tokens, free, temperature=HEAT)
    begun = begun._replace(step=torch.tensor([0, 5, 0, 2, 9, 0, 2**33]))
    return conditionals, begun, list(run(glauber(conditionals), begun, STEPS, seed=3))


def assert_same(steps, plain):
    """The same states and infos, bit by bit and of the same types."""
    steps = list(steps)
    assert len(steps) == len(plain)
    for (state, info), (state_due, info_due) in zip(steps, plain, strict=True):
        for part, due in zip((*state, *info), (*state_due, *info_due), strict=True):
            assert part.dtype == due.dtype and part.shape == due.shape
            both_nan = (part != part) & (due != due)
            assert bool(((part == due) | both_nan).all())


@pytest.mark.parametrize("lead", [1, 7, None])
@pytest.mark.parametrize("prefetch", [None, 0, 1, 5])
def test_same_steps(chains, prefetch, lead):
    conditionals, begun, plain = chains
    made = run_memoised(glauber(conditionals), begun, STEPS, seed=3, prefetch=prefetch, lead=lead)
    assert_same(made, plain)


@pytest.mark.parametrize("entries", [0, 1, 5])
@pytest.mark.parametrize("prefetch", [None, 5])
def test_a_memo_that_forgets_all_the_time(chains, entries, prefetch):
    conditionals, begun, plain = chains
    size = entries * entry_bytes(conditionals.vocab_size, begun.tokens.shape[1])
    memo = Memo(conditionals.vocab_size, begun.tokens.shape[1], budget=size)
    assert memo.capacity == entries
    assert_same(
        run_memoised(glauber(conditionals), begun, STEPS, seed=3, memo=memo, prefetch=prefetch),
        plain,
    )
    assert len(memo) <= entries and memo.hits + memo.misses == STEPS * len(begun.step)


def test_a_memo_shared_by_batches_of_chains(chains):
    conditionals, begun, plain = chains
    memo = Memo(conditionals.vocab_size, begun.tokens.shape[1])
    for rows in torch.arange(7).split(3):
        own = [
            (state.rows(rows), type(info)(*(part[rows] for part in info))) for state, info in plain
        ]
        assert_same(
            run_memoised(glauber(conditionals), begun.rows(rows), STEPS, seed=3, memo=memo), own
        )


def test_what_is_remembered_is_not_asked_for(chains):
    """A second run over the same steps asks only for draws that heads do not settle."""
    conditionals, begun, plain = chains
    counted = Counted(conditionals)
    memo = Memo(conditionals.vocab_size, begun.tokens.shape[1])
    assert_same(run_memoised(glauber(counted), begun, STEPS, seed=3, memo=memo, prefetch=0), plain)
    assert counted.rows == memo.misses < STEPS * 7
    first = counted.rows
    assert_same(run_memoised(glauber(counted), begun, STEPS, seed=3, memo=memo, prefetch=0), plain)
    # Only an old token that may not be proposed lies outside a head of the whole vocabulary.
    outside = sum(int(info.log_prob_old.isinf().sum()) for _, info in plain)
    assert conditionals.vocab_size <= HEAD and counted.rows - first <= outside


def test_each_chain_may_have_its_own_seed(chains):
    conditionals, begun, _ = chains
    seeds = torch.arange(7) + 2**40
    plain = list(run(glauber(conditionals), begun, 20, seed=seeds))
    assert_same(run_memoised(glauber(conditionals), begun, 20, seed=seeds), plain)


@pytest.mark.parametrize(
    "options",
    [
        {"scan": scans.sweep()},
        {"fill": gumbel_max()},
        {"fill": greedy()},
        {"scan": scans.block(2), "within": "product"},
        {"scan": scans.by_state("adaptive", "entropy")},
    ],
    ids=["sweep", "gumbel", "greedy", "block", "adaptive"],
)
def test_other_kernels(chains, options):
    conditionals, begun, _ = chains
    plain = list(run(glauber(conditionals, **options), begun, 6, seed=2))
    assert_same(run_memoised(glauber(conditionals, **options), begun, 6, seed=2), plain)


class Flat:
    """Conditionals over 500 tokens, so flat that most draws lie beyond the head; ties abound."""

    vocab_size = 500

    def scores(self, tokens, sites, candidates=None):
        assert candidates is None
        seen = tokens.scatter(1, sites, 0).sum(dim=1)[:, None] + torch.arange(500)
        return ((seen * 2654435761 % 97) // 9).float()[:, None] / 4


@pytest.mark.parametrize("temperature", [0.05, 0.5, 2.0])
def test_draws_beyond_the_head(temperature):
    begun = start(torch.zeros(6, 2).long(), torch.ones(6, 2).bool(), temperature=temperature)
    plain = list(run(glauber(Flat()), begun, 200, seed=1))
    memo = Memo(500, 2)
    assert_same(run_memoised(glauber(Flat()), begun, 200, seed=1, memo=memo), plain)
    assert memo.misses > 0


@pytest.mark.parametrize("n_chains", [1, 2, 3, 7])
@pytest.mark.parametrize("temperature", [0.01, 0.3, 1.0, 3.0])
def test_few_chains_that_remember_nothing(chains, n_chains, temperature):
    """What is drawn ahead counts only where its row is the right one."""
    conditionals, begun, _ = chains
    heat = torch.full((n_chains,), temperature, dtype=torch.float64)
    begun = begun.rows(slice(n_chains))._replace(temperature=heat)
    plain = list(run(glauber(conditionals), begun, 40, seed=5))
    for prefetch in (None, 3):
        memo = Memo(conditionals.vocab_size, begun.tokens.shape[1], budget=0)
        made = run_memoised(glauber(conditionals), begun, 40, seed=5, memo=memo, prefetch=prefetch)
        assert_same(made, plain)
        assert len(memo) == 0


class Apart:
    """Sites that do not depend on each other, over 500 tokens; counts its calls."""

    vocab_size = 500

    def __init__(self, slope):
        self.slope, self.calls = slope, 0

    def scores(self, tokens, sites, candidates=None):
        self.calls += 1
        scores = -self.slope * ((torch.arange(500) + 7 * sites) % 500)
        return scores[:, None].double()


def calls_of_one_chain(conditionals, steps, **options):
    """Calls for so many steps without a memo, and the share of steps that changed a token."""
    begun = start(torch.zeros(1, 60).long(), torch.ones(1, 60).bool())
    plain = list(run(glauber(conditionals), begun, steps, seed=2))
    conditionals.calls = 0
    memo = Memo(500, 60, budget=0)
    assert_same(
        run_memoised(glauber(conditionals), begun, steps, seed=2, memo=memo, **options), plain
    )
    moved = sum(int(info.changed) for _, info in plain) / steps
    return conditionals.calls, moved


def test_a_single_chain_shares_calls_between_steps():
    """No step needs the model twice, and what one call drew ahead guides the next one.

    Every step changes a token, so a row further on is wrong until its step has been drawn once;
    then every guess is right here. Two calls make five steps, of 1 and of 1 + 3 rows ahead.
    """
    calls, moved = calls_of_one_chain(Apart(0.001), 200, prefetch=0)
    assert calls == 200 and moved > 0.98
    calls, _ = calls_of_one_chain(Apart(0.001), 200, prefetch=3)
    assert calls < 0.45 * 200
    calls, moved = calls_of_one_chain(Apart(1.0), 400)  # as many rows as pay
    assert 0.4 < moved < 0.8 and calls < 0.7 * 400


def test_nobody_moves_without_a_lead(chains):
    conditionals, begun, _ = chains
    with pytest.raises(GlauberError, match="lead of 0"):
        next(run_memoised(glauber(conditionals), begun, 5, seed=0, lead=0))
