"""Constrained chains follow the enumerated law, and every engine makes the same steps."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import glauber
from glauber.dynamics.constrained import Ball, constrained_kernel
from glauber.dynamics.cuda import multi_step
from glauber.dynamics.draws import Drawn, Fill
from glauber.dynamics.glauber import glauber as kernel_of
from glauber.dynamics.kernel import Noise, run, start
from glauber.dynamics.remembered import run_memoised
from glauber.exact.space import Space
from glauber.exact.transition import transition_matrix
from glauber.foundation.errors import GlauberError
from glauber.models.table import Joint
from glauber.runs.export import forced_steps
from glauber.sampling.advance import begin_at, choose, new_memo, step_stream
from glauber.sampling.plan import plan
from glauber.sampling.reopened import drawn_from, evaluate_again
from glauber.studies.mixing.diagnostics import mobility
from glauber.texts.constraints import Constraints, read_constraints

VOCAB, LENGTH = 3, 4
SPACE = Space(VOCAB, LENGTH)
JOINT = Joint.random(VOCAB, LENGTH, seed=1, strength=1.2)
BIAS = {1: {"0": 0.7, "2": -0.4}, 3: {"1": 1.1}}
ALLOW = {0: ["0", "2"], 2: ["0", "1"]}
SIZES = ((64, 0), (7, 0), (1, 0), (64, 64), (7, 64))  # chains together, MiB of memo
START = "0101"  # in the allowed set; sites 0 and 2 are equal, and so are 1 and 3
CASES = {
    "allowed": dict(allow=ALLOW),
    "bias": dict(bias=BIAS),
    **{f"budget {n}": dict(max_changes=n) for n in (1, 2, 3, 4)},
    "a pair": dict(tie="0=2"),
    "two pairs": dict(tie="0-1=2-3"),
    "three": dict(tie=[[1, 3, 0]]),
    "biased pair": dict(tie="1=3", bias=BIAS),
    "pair within a budget": dict(tie="0=2", max_changes=2),
    "all": dict(allow=ALLOW, bias=BIAS, max_changes=3, tie="1=3"),
    "all, and a frozen site": dict(allow=ALLOW, bias=BIAS, max_changes=2, tie="1=3", freeze="2"),
}


def begin_of(name):
    return {"three": "0020"}.get(name, START)  # where sites 0, 1 and 3 are equal


def enumerated(
    joint, begin, temperature, *, allow=None, bias=None, max_changes=None, tie="", freeze=""
):
    """The joint law at a temperature, given the constraints: (states,), by listing the states.

    Written from the words of the constraints alone: nothing of the engine is used.
    """
    begin = [int(letter) for letter in begin]
    pairs = {"": [], "0=2": [(0, 2)], "1=3": [(1, 3)], "0-1=2-3": [(0, 2), (1, 3)]}
    ties = pairs[tie] if isinstance(tie, str) else [(1, 3), (3, 0)]
    weights = []
    for state in itertools.product(range(joint.vocab_size), repeat=joint.length):
        log = float(joint.log_weights[state])
        log += sum(
            v for s, row in (bias or {}).items() for t, v in row.items() if state[s] == int(t)
        )
        inside = all(str(state[site]) in tokens for site, tokens in (allow or {}).items())
        inside &= all(state[i] == state[j] for i, j in ties)
        far = sum(a != b for a, b in zip(state, begin, strict=True))
        inside &= max_changes is None or far <= max_changes
        inside &= all(state[int(site)] == begin[int(site)] for site in freeze)
        weights.append(math.exp(log / temperature) if inside else 0.0)
    return np.array(weights) / sum(weights)


def told(scores, temperature, bits, old):
    """A fill that takes the token it is told, and reports its chance: to push states through."""
    log_probs = torch.log_softmax(scores.double() / temperature[:, None], dim=-1)
    new = log_probs.gather(1, bits[:, None])[:, 0]
    return Drawn(bits, log_probs.gather(1, old[:, None])[:, 0], new, torch.zeros_like(new))


def pushed(planned):
    """The matrix of each choice of a site by a plan's kernel: every state, every token.

    What a step reports as its chance is taken, and where it leads; a step that draws nothing is
    counted for the token that stands there.
    """
    fill, limits = Fill("told", told), planned.limits
    if limits is None:
        kernel = kernel_of(planned.conditionals, scan=planned.scan, fill=fill)
        leading = planned.free[0]
    else:
        kernel = constrained_kernel(planned.conditionals, limits, scan=planned.scan, fill=fill)
        leading = planned.free[0] & limits.leading
    n_units = int(leading.sum())
    inside = [i for i, row in enumerate(SPACE.states().tolist()) if keeps(planned, row)]
    matrix = np.zeros((n_units, SPACE.size, SPACE.size))
    for unit, token in itertools.product(range(n_units), range(VOCAB)):
        states = SPACE.states()[inside]
        free, chain = planned.free[:1].expand_as(states), torch.zeros(len(states)).long()
        begun = start(states, free, chain=chain, temperature=planned.spec.temperature)
        order = int((unit + 0.5) / n_units * 2**53) << 11
        order -= 2**64 if order >= 2**63 else 0
        noise = Noise(torch.full((len(states), 1), order), torch.full((len(states), 1), token))
        after, info = kernel.step(begun, noise)
        chance = info.log_prob_new[:, 0].exp() * (info.tokens[:, 0] == token)
        np.add.at(matrix[unit], (inside, SPACE.index(after.tokens).numpy()), chance.numpy())
    return matrix, inside


def keeps(planned, row):
    """Whether a state keeps to the constraints of a plan, as `enumerated` reads them."""
    asked, begin = planned.constraints, planned.tokens[0].tolist()
    fine = all(str(row[site]) in tokens for site, tokens in asked.allowed.items())
    fine &= all(len({row[site] for site in group}) == 1 for group in asked.tied)
    fine &= (
        asked.budget is None or sum(a != b for a, b in zip(row, begin, strict=True)) <= asked.budget
    )
    return fine and all(row[i] == begin[i] for i in range(LENGTH) if not planned.free[0, i])


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("name", CASES)
def test_the_exact_law_is_stationary(name, temperature):
    """The kernel's own matrix keeps the enumerated law to 1e-12, reversibly, and stays in it.

    So does that of each single choice, hence a sweep.
    """
    case, begin = CASES[name], begin_of(name)
    planned = plan(JOINT, [begin], steps=1, temperature=temperature, **case)
    each, inside = pushed(planned)
    law = enumerated(JOINT, begin, temperature, **case)
    for one in each:
        np.testing.assert_allclose(law @ one, law, atol=1e-12)
    matrix = each.mean(axis=0)
    assert sorted(inside) == np.flatnonzero(law).tolist()
    np.testing.assert_allclose(matrix[inside].sum(axis=1), 1, atol=1e-12)
    assert matrix[inside][:, law == 0].sum() == 0
    flow = law[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-12)
    reached = np.linalg.matrix_power(matrix[np.ix_(inside, inside)] > 0, 40)
    assert reached.all()  # so the law is the only one


def test_the_exact_law_test_can_fail():
    """Without the bias, or with another budget, the law is not stationary."""
    planned = plan(JOINT, [START], steps=1, **CASES["all"])
    matrix = pushed(planned)[0].mean(axis=0)
    other = enumerated(JOINT, START, 1.0, **(CASES["all"] | {"bias": {}}))
    assert np.abs(other @ matrix - other).max() > 1e-3


# ---- the engine


def ends(steps):
    for state, _ in steps:
        last = state
    return last.tokens


def chance(tokens, law):
    """p-value of Pearson's chi-square; states that are not expected never come."""
    seen = np.bincount(SPACE.index(tokens).numpy(), minlength=SPACE.size)
    due = law * len(tokens)
    assert seen[law == 0].sum() == 0
    often, rare = due >= 5, (due > 0) & (due < 5)
    seen, due = (np.append(part[often], part[rare].sum()) for part in (seen, due))
    seen, due = seen[due > 0], due[due > 0]
    return chi2.sf(((seen - due) ** 2 / due).sum(), len(due) - 1)


@pytest.mark.parametrize("name", ["budget 2", "all"])
def test_long_chains_follow_the_law(name):
    """Independent chains after so many steps that their start is forgotten, by chi-square."""
    planned = plan(JOINT, [begin_of(name)], steps=1, chains=4000, **CASES[name])
    begun = begin_at(planned, planned.tokens, torch.arange(4000))
    law = enumerated(JOINT, begin_of(name), 1.0, **CASES[name])
    assert chance(ends(run(planned.kernel, begun, 60, seed=3)), law) > 1e-3
    some = run_memoised(planned.kernel, begun.rows(slice(1000)), 60, seed=4)
    assert chance(ends(some), law) > 1e-3
    warmer = enumerated(JOINT, begin_of(name), 1.5, **CASES[name])
    assert chance(ends(run(planned.kernel, begun, 60, seed=3)), warmer) < 1e-6


def events(run):
    return {name: run.read(name) for name in run.fields}


def assert_same(one, other):
    assert one.fields == other.fields
    for name, values in events(one).items():
        np.testing.assert_array_equal(values, other.read(name), err_msg=name)


def made(planned, size, memo):
    """The infos of all chains, in batches of that size: (steps, chains, slots) each."""
    memory = new_memo(planned, memo)
    parts = []
    for rows in torch.arange(planned.spec.chains).split(size):
        begun = begin_at(planned, planned.tokens[rows], rows)
        steps = step_stream(planned, begun, planned.spec.steps, memo=memory)
        parts.append([torch.stack(part) for part in zip(*(info for _, info in steps), strict=True)])
    return [torch.cat(part, dim=1) for part in zip(*parts, strict=True)]


@pytest.mark.parametrize("name", ["bias", "budget 2", "all"])
def test_every_engine_makes_the_same_steps(name):
    """Remembered and plain, in batches of 1 (prefetched without a memo), 7 and 64: bit by bit."""
    planned = plan(
        JOINT,
        [begin_of(name)],
        steps=8,
        chains=64 if name == "budget 2" else 10,
        seed=2,
        **CASES[name],
    )
    engines = {choose(planned, size, 1, new_memo(planned, memo)) for size, memo in SIZES}
    tied = bool(planned.constraints.tied)
    assert engines == ({"plain"} if tied else {"plain", "memoised", "prefetched"})
    first, *others = (made(planned, size, memo) for size, memo in SIZES)
    for other in others:
        for part, same in zip(first, other, strict=True):
            assert torch.equal(part.nan_to_num(nan=9), same.nan_to_num(nan=9))


def test_a_sweep_goes_through_sites_and_groups():
    run = glauber.sample(JOINT, [START], steps=6, scan="sweep", tie="1=3", max_changes=3)
    assert run.read("site")[0].tolist() == [[0, -1], [1, 3], [2, -1]] * 2


def test_several_steps_in_one_pass_are_the_same():
    """What a GPU does for few chains, on a CPU: forced sites asked along, several steps a pass."""
    planned = plan(JOINT, [START, "1121"], steps=1, max_changes=2, bias=BIAS)
    begun = begin_at(planned, planned.tokens, torch.arange(2))
    one = list(run(planned.kernel, begun, 50, seed=3))
    how = dict(scan=planned.scan, fill=planned.fill, one_shape=True)
    kernel = constrained_kernel(planned.conditionals, planned.limits, **how)
    other = list(multi_step(kernel, begun, 50, seed=3, per_pass=8, window=16))
    for (state, info), (same, told_too) in zip(one, other, strict=True):
        assert torch.equal(state.tokens, same.tokens)
        for part, again in zip(info, told_too, strict=True):
            assert torch.equal(part, again)


@pytest.mark.parametrize("n_chains", [1, 2, 8])
def test_each_chain_counts_from_its_own_start(n_chains):
    starts = ["0101", "2222", "0000", "1212", "0120", "2021", "1111", "0210"][:n_chains]
    stored = glauber.sample(JOINT, starts, steps=300, temperature=3.0, max_changes=1, seed=1)
    begin, furthest = stored.tokens(0), np.zeros(n_chains, int)
    for _, tokens in stored.states():
        furthest = np.maximum(furthest, (tokens != begin).sum(axis=1))
    assert (furthest == 1).all()
    forced = (stored.read("entropy") == 0) & (stored.read("log_prob_new") == 0)
    assert 0.3 < forced.mean() < 0.9 and not stored.read("changed")[forced].any()


def test_constraints_hold_over_a_million_steps():
    """20,000 chains of 50 steps, each state looked at."""
    case = CASES["all"] | {"max_changes": 2}
    planned = plan(JOINT, [START], steps=1, chains=20_000, temperature=5.0, **case)
    begun = begin_at(planned, planned.tokens, torch.arange(20_000))
    moved = 0
    for state, info in run(planned.kernel, begun, 50, seed=9):
        tokens = state.tokens
        assert bool((tokens[:, 0] != 1).all() and (tokens[:, 2] != 2).all())
        assert bool((tokens[:, 1] == tokens[:, 3]).all())
        assert int((tokens != begun.tokens).sum(dim=1).max()) <= 2
        moved += int(info.changed.any(dim=1).sum())
    assert moved > 100_000


class Potts:
    """A rule of one's own over 25 letters: random fields, and couplings of neighbours."""

    vocabulary = "ACDEFGHIKLMNPQRSTVWYXBZUO"
    vocab_size, length = 25, 6

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.field = torch.randn(6, 25, generator=generator).double()
        self.pair = torch.randn(5, 25, 25, generator=generator).double()

    def scores(self, tokens, sites):
        site, row = sites[:, 0], torch.arange(len(tokens))
        found = self.field[site].clone()
        left, right = site > 0, site < 5
        before = tokens[row, (site - 1).clamp(min=0)]
        behind = tokens[row, (site + 1).clamp(max=5)]
        found[left] += self.pair[site[left] - 1, before[left]]
        found[right] += self.pair[site[right], :, behind[right]]
        return found[:, None]

    def log_weight(self, state):
        return sum(float(self.field[i, t]) for i, t in enumerate(state)) + sum(
            float(self.pair[i, a, b]) for i, (a, b) in enumerate(itertools.pairwise(state))
        )


def test_a_protein_alphabet_of_ones_own():
    """Few residues by site and two changes: the chain's law is that of the listed sequences."""
    rule, letters = Potts(), Potts.vocabulary
    sets = {0: "AS", 1: "CDE", 2: "STY", 3: "GK", 4: "WYF", 5: "AC"}
    begin, n_chains = "ACTGWA", 4000
    allow = ",".join(f"{site}:{tokens}" for site, tokens in sets.items())
    planned = plan(rule, [begin], steps=1, chains=n_chains, allow=allow, max_changes=2,
                   bias={2: {"Y": 1.5}}, temperature=2.0)  # fmt: skip
    last = ends(
        run(planned.kernel, begin_at(planned, planned.tokens, torch.arange(n_chains)), 150, seed=8)
    )
    weights = {}
    for state in itertools.product(*sets.values()):
        if sum(a != b for a, b in zip(state, begin, strict=True)) <= 2:
            log = rule.log_weight([letters.index(one) for one in state]) + 1.5 * (state[2] == "Y")
            weights["".join(state)] = math.exp(log / 2.0)
    law = np.array(list(weights.values())) / sum(weights.values())
    texts = ["".join(letters[t] for t in row) for row in last.tolist()]
    assert set(texts) <= set(weights)
    seen = np.array([texts.count(state) for state in weights]) / n_chains
    mean = 0.5 * np.sqrt(law * (1 - law) / n_chains).sum()  # of the total variation, about
    assert np.abs(seen - law).sum() / 2 < mean + 6 / (2 * math.sqrt(n_chains))


# ---- runs


def test_a_run_remembers_its_constraints(tmp_path):
    how = dict(allow="0:0|2,2:01", bias="1:0=0.7|2=-0.4", max_changes=3, tie="1=3")
    stored = glauber.sample(JOINT, [START], chains=3, steps=30, out=tmp_path / "run", **how)
    again = Constraints.from_dict(glauber.Run(tmp_path / "run").spec.constraints)
    assert again == read_constraints(**how) and again
    assert again.to_dict() == stored.spec.constraints
    longer = glauber.extend(stored, steps=60, model=JOINT)
    whole = glauber.sample(JOINT, [START], chains=3, steps=60, memo=0, **how)
    assert_same(longer, whole)
    assert "constraints:allowed,bias,budget=3,tied" in stored.signature
    assert glauber.sample(JOINT, [START], steps=1).spec.constraints is None


@pytest.mark.parametrize(
    ("how", "said"),
    {
        "1": (dict(max_changes=0), "no token could ever change"),
        "2": (dict(max_changes=-1), "whole number from 1"),
        "3": (dict(max_changes=True), "whole number from 1"),
        "4": (dict(max_changes=1, scan="block:2"), "take uniform or sweep"),
        "5": (dict(tie="0=2", scan="adaptive:entropy"), "take uniform or sweep"),
        "6": (dict(allow={0: []}), "no allowed token"),
        "7": (dict(allow="0"), "must be such as"),
        "8": (dict(allow="0:0,0:1"), "site 0 twice"),
        "9": (dict(allow="0:7"), "not a single token"),
        "10": (dict(allow={0: [9]}), "never proposed"),
        "11": (dict(allow="0:1", forbid="1"), "never proposed"),
        "12": (dict(allow="0:1|2"), "starts with '0' at site 0"),
        "13": (dict(allow="0:1|2", freeze="0"), "starts with '0' at site 0"),
        "14": (dict(allow="9:1"), "sites 0 to 3 only"),
        "15": (dict(bias="0:1=many"), "must be a number"),
        "16": (dict(bias="0:1=inf"), "must be a number"),
        "17": (dict(bias="0:1=1", freeze="0"), "is frozen"),
        "18": (dict(tie="0=1"), "different tokens at the tied sites 0=1"),
        "19": (dict(tie="0=2", freeze="0"), "is frozen"),
        "20": (dict(tie="0"), "ties no sites"),
        "21": (dict(tie="0=0"), "two or more different sites"),
        "22": (dict(tie="0=2,2=3"), "in two ties"),
        "23": (dict(tie="0-1=2"), "ties no sites"),
        "24": (dict(tie="0=2", allow="0:0|1,2:0|2", forbid="0"), "never proposed"),
        "25": (dict(tie="0-1=2-3", max_changes=1), "nothing could move"),
        "26": (dict(forbid="0,1", max_changes=3), "no room to leave"),
        "27": (dict(allow=5), "must be such as"),
        "28": (dict(tie=5), "must be such as"),
    }.values(),
)
def test_bad_input_gets_one_sentence(how, said, tmp_path):
    with pytest.raises(GlauberError, match=said) as caught:
        glauber.sample(JOINT, [START], steps=2, out=tmp_path / "run", **how)
    assert str(caught.value).count(". ") == 0 and not (tmp_path / "run").exists()


def test_too_many_tokens_for_a_tie(tiny_folder):
    from glauber.dynamics import constrained as room

    model = glauber.load(str(tiny_folder))
    text = ["the cat sat on the mat"]
    run = glauber.sample(model, text, steps=40, tie="0=4", allow="0:the|a|cat,4:the|a", seed=3)
    last = run.tokens()[0]
    assert last[1] == last[5] and (run.read("site")[0, :, 1] >= 0).any()
    before, room.MOST_TOKENS = room.MOST_TOKENS, 3
    try:
        with pytest.raises(GlauberError, match="allow at most 3 there"):
            glauber.sample(model, text, steps=2, tie="0=4")
    finally:
        room.MOST_TOKENS = before


# ---- what studies know of it


def test_the_ball_is_what_the_engine_draws_from():
    """The conditionals that certificates ask have the engine's matrix, state by state."""
    case = dict(allow=ALLOW, bias=BIAS, max_changes=2)
    planned = plan(JOINT, [START], steps=1, temperature=0.7, **case)
    matrix, inside = pushed(planned)
    ball = Ball(planned.conditionals, planned.tokens[0], 2)
    exact = np.asarray(transition_matrix(ball, SPACE, temperature=0.7).todense())
    np.testing.assert_allclose(exact[inside], matrix.mean(axis=0)[inside], atol=1e-14)


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    """A cold run of four chains from two starts within one change, and a tied one."""
    place = tmp_path_factory.mktemp("cold")
    how = dict(steps=600, chains=4, temperature=0.35, seed=6)
    begin = ["0101", "2121"]
    budget = glauber.sample(JOINT, begin, out=place / "budget", max_changes=1, **how)
    return budget, glauber.sample(JOINT, begin, out=place / "tied", tie="1=3", **how)


def test_traps_hold_as_long_as_the_matrix_says(cold):
    found = glauber.traps(cold[0], detector="hamming", shortest=20, model=JOINT).catalogues[0]
    assert len(found.traps) > 2
    for trap in found.traps:
        begin = cold[0].tokens(0)[trap.chain]
        text = "".join(map(str, begin))
        planned = plan(JOINT, [text], steps=1, temperature=0.35, max_changes=1)
        here = int(SPACE.index(torch.from_numpy(trap.tokens)[None]))
        stays = pushed(planned)[0].mean(axis=0)[here, here]
        assert trap.margins.holding_time == pytest.approx(1 / (1 - stays), rel=1e-9)
        changed = trap.tokens != begin
        np.testing.assert_array_equal(np.isinf(trap.margins.gaps), changed.any() & ~changed)
    glauber.traps(cold[0], detector="hamming", shortest=20, model=JOINT).to_dict()


def test_what_was_recorded_is_what_is_asked_again(cold):
    run = cold[0]
    drawn = drawn_from(run, model=JOINT)
    old, entropy = evaluate_again(run, drawn.conditionals, 100)
    np.testing.assert_allclose(old, run.read("log_prob_old")[:, 100:, 0], atol=1e-5)
    np.testing.assert_allclose(entropy, run.read("entropy")[:, 100:, 0], atol=1e-5)
    still = forced_steps(run)
    assert 0.2 < still.mean() < 0.9 and not run.read("log_prob_new")[still].any()
    rate = glauber.entropy_production(run).rate
    assert rate.interval is not None and rate.interval[0] == 0  # there is a joint distribution


def test_forced_sites_are_not_settled(cold):
    """A site that had no choice while the budget was spent says nothing about the model."""
    run, first = cold[0], 550
    chain, step = np.nonzero(~forced_steps(run)[:, first:])
    asked = np.zeros(run.free.shape, bool)
    asked[chain, run.read("site", first)[chain, step, 0]] = True
    assert not asked.all()  # some site was only redrawn while the budget was spent
    settled = np.array(mobility(run, first).sites_settled)
    assert (settled <= asked.mean(axis=1)).all()
    glauber.diagnose(run)


@pytest.mark.parametrize("study", ["traps", "entropy_production", "potential"])
def test_tied_sites_are_refused(cold, study):
    with pytest.raises(GlauberError, match="this run has tied sites"):
        getattr(glauber, study)(cold[1])


def test_a_potential_within_a_budget_is_refused(cold):
    with pytest.raises(GlauberError, match="a rule of its own"):
        glauber.potential(cold[0])


def test_a_potential_knows_what_a_site_allows(tiny_folder):
    """A site with one token has no neighbours, and the others only allowed ones."""
    run = glauber.sample(
        str(tiny_folder), ["the cat sat on the mat"], steps=200, chains=3, temperature=0.7,
        freeze="3-5", allow="0:the,1:cat|dog,2:sat|ran", seed=2,
    )  # fmt: skip
    found = glauber.potential(run, neighbours=2)
    pairs = itertools.product(("cat", "dog"), ("sat", "ran"))
    assert set(found.texts) <= {f"the {one} {two} on the mat" for one, two in pairs}
    assert np.isfinite(found.potential).all() and np.isfinite(found.pll).all()


def test_a_model_under_constraints_answers_studies():
    model = glauber.constrain(JOINT, allow="2:0|1", max_changes=1, start=START)
    study = glauber.margins(model, "2101")  # the budget is spent at site 0
    assert np.isinf(study.margins.gaps).tolist() == [False, True, True, True]
    assert study.margins.leaving.tolist()[1:] == [0, 0, 0] and study.margins.leaving[0] > 0
    assert study.to_dict()["mean_gap"]["value"] == pytest.approx(study.margins.gaps[0])
    met = glauber.couple(model, ["0101", "2101"], pairs=4, steps=300)
    assert not np.isnan(met.times).any()
    for study, how in (("influence", {}), ("rectangles", dict(count=2, length=4))):
        with pytest.raises(GlauberError):
            getattr(glauber, study)(model, START if study == "influence" else [START], **how)
    with pytest.raises(GlauberError, match="records its constraints"):
        glauber.sample(model, [START], steps=1)
    with pytest.raises(GlauberError, match="given together"):
        glauber.constrain(JOINT, max_changes=1)
    with pytest.raises(GlauberError, match="counts from a start of 4 tokens"):
        Ball(JOINT, torch.zeros(4), 1).scores(torch.zeros(1, 3).long(), torch.zeros(1, 1).long())


def test_writing_knows_what_a_site_allows(tiny_folder):
    model = glauber.constrain(str(tiny_folder), allow="1:cat|dog", bias="2:ran=50")
    texts = glauber.generate(model, length=4, chains=6, temperature=3.0).texts
    assert all(text.split()[1] in ("cat", "dog") and text.split()[2] == "ran" for text in texts)
    near = glauber.constrain(str(tiny_folder), max_changes=1, start="the cat sat on")
    with pytest.raises(GlauberError, match="whole conditionals of one site"):
        glauber.generate(near, length=4)
