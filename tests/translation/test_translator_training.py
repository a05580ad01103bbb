"""Does training learn, and does a killed training go on to the same weights?"""

import dataclasses
import sys

import numpy as np
import pytest
import torch

from glauber.foundation.errors import GlauberError
from glauber.translation import training
from glauber.translation.data import Corpus
from glauber.translation.decoding import Decoding, translate_texts
from glauber.translation.model import FIRST_WORD, MASK, PAD, Attention, Shape, Translator
from glauber.translation.training import TrainingPlan, _draft_from, corrupt, train
from tiny_translation import toy_pairs, toy_vocabulary

PLAN = TrainingPlan(n_steps=6, n_pairs=16, warmup=2, corruption="mixed")


def fresh(kind, size, width=32, dropout=0.1):
    torch.manual_seed(0)
    return Translator(Shape(kind, size, width, 2, 1, 1, 2 * width, max_length=64, dropout=dropout))


def test_attention_has_the_dropout_of_the_settings():
    """In training only: with probability 0.5 a weight is 0, else twice as large."""
    torch.manual_seed(0)
    shape, states = Shape(width=8, heads=2, dropout=0.5), torch.randn(1, 6, 8)
    attention, visible = Attention(shape), torch.ones(1, 1, 1, 6, dtype=torch.bool)
    with torch.no_grad():
        outputs = torch.stack([attention.train()(states, states, visible) for _ in range(4000)])
        expected = attention.eval()(states, states, visible)
        assert attention(states, states, visible).equal(expected)
    error = outputs.std(0) / 4000**0.5  # of the mean; 48 numbers
    assert (error > 0).all() and ((outputs.mean(0) - expected).abs() < 5 * error).all()


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", ["ar", "refine"])
@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_a_killed_training_goes_on_to_the_same_weights(kind, optimizer, tmp_path, monkeypatch):
    vocabulary = toy_vocabulary()
    corpus = Corpus.of(toy_pairs(60), vocabulary)
    plan = dataclasses.replace(PLAN, optimizer=optimizer)
    whole = fresh(kind, vocabulary.size)
    curve = train(whole, corpus, plan)

    def kill(*state):
        if state[-1] == 4:
            raise Killed  # before the checkpoint of step 4 is written: that of step 2 is there
        save(*state)

    path, save = tmp_path / "checkpoint.pt", training._save
    monkeypatch.setattr(training, "_save", kill)
    with pytest.raises(Killed):
        train(fresh(kind, vocabulary.size), corpus, plan, checkpoint=path, every=2)
    monkeypatch.undo()
    torch.rand(7)  # what else the process drew must not matter
    again = fresh(kind, vocabulary.size)
    assert train(again, corpus, plan, checkpoint=path, every=2) == curve
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name


def test_a_checkpoint_of_another_plan_is_refused(tmp_path):
    vocabulary = toy_vocabulary()
    corpus = Corpus.of(toy_pairs(30), vocabulary)
    path = tmp_path / "checkpoint.pt"
    train(fresh("ar", vocabulary.size), corpus, TrainingPlan(1, 8), checkpoint=path)
    with pytest.raises(GlauberError, match="another plan"):
        train(fresh("ar", vocabulary.size), corpus, TrainingPlan(2, 8), checkpoint=path)


@pytest.mark.parametrize(("kind", "n_steps"), [("ar", 350), ("refine", 450)])
def test_20_pairs_are_learnt_by_heart(kind, n_steps):
    vocabulary = toy_vocabulary()
    pairs = toy_pairs(20, longest=4)
    model = fresh(kind, vocabulary.size, width=48, dropout=0.0)
    plan = TrainingPlan(
        n_steps, 20, peak=4e-3, warmup=20, joined=False, corruption="mixed", smoothing=0.0
    )
    curve = train(model, Corpus.of(pairs, vocabulary), plan)
    assert curve[-1][0] == plan.n_steps and curve[-1][1] < 0.2
    own = Decoding(n_steps=4, n_lengths=3, judge="itself")
    decoding = Decoding("ar", n_beams=1) if kind == "ar" else own
    made = translate_texts(model, vocabulary, [s for s, _ in pairs], decoding=decoding)
    right = sum(one.text == target for one, (_, target) in zip(made, pairs, strict=True))
    assert right >= 18


@pytest.mark.parametrize("kind", ["ar", "refine"])
def test_one_product_for_queries_keys_and_values_is_three(kind):
    """Training asks for them together, decoding one by one."""
    model = fresh(kind, 60, dropout=0.0).double()
    source, target = torch.randint(FIRST_WORD, 60, (2, 5, 7))
    said = []
    for mode in (model.train, model.eval):
        mode()
        memory = model.encode(source)
        read = model.denoise if kind == "refine" else model.follow
        said.append(read(target, memory))
    torch.testing.assert_close(said[0], said[1], rtol=0, atol=1e-12)


def test_the_next_stage_does_not_see_repeats_and_what_was_least_sure():
    torch.manual_seed(0)
    target = torch.randint(FIRST_WORD, 60, (400, 20))
    target[:, 15:] = PAD
    scores = torch.randn(400, 20, 60) * 3
    sure, guess = scores[..., FIRST_WORD:].log_softmax(-1)[:, :15].max(-1)
    guess += FIRST_WORD
    repeats = torch.zeros_like(guess, dtype=torch.bool)
    repeats[:, 1:] = guess[:, 1:] == guess[:, :-1]
    plain = _draft_from(scores, target, 0.0)
    assert torch.equal(plain[:, :15], guess.masked_fill(repeats, MASK)) and repeats.any()
    shown_all = _draft_from(scores, target, 0.0, repeats=False)
    assert torch.equal(shown_all[:, :15], guess) and (shown_all[:, 15:] == PAD).all()
    draft = _draft_from(scores, target, 0.5)
    assert (draft[:, 15:] == PAD).all()
    hidden = (draft[:, :15] == MASK) & ~repeats
    shown = draft[:, :15] != MASK
    assert torch.equal(draft[:, :15][shown], guess[shown])
    for row in range(400):  # nothing that is shown is less sure than something hidden again
        if hidden[row].any():
            assert sure[row][hidden[row]].max() <= sure[row][shown[row]].min()
    # floor(15 u / 2) with u uniform has the mean 3.27 and the standard deviation 2.17.
    assert int(hidden.sum(1).max()) <= 7
    assert abs(float(hidden.sum(1).double().mean()) - 3.27) < 4 * 2.17 / 400**0.5


@torch.no_grad()
def test_the_loss_is_paper_bs_if_nothing_is_added():
    """(L.59) and its mean over the stages, with log-probabilities by hand; then each addition."""
    torch.manual_seed(1)
    model = fresh("refine", 40, dropout=0.0).double()
    source, target = torch.randint(FIRST_WORD, 40, (2, 3, 6))
    target[0, 4:] = PAD
    draft = corrupt(target, 40, kind="random", kept=0.15)
    paper = TrainingPlan(stages=1, remask=0.0, remask_repeats=False, smoothing=0, length_weight=0)
    memory = model.encode(source)

    def by_hand(read, smoothing=0.0):
        sites = [(row, site) for row in range(3) for site in range(6) if target[row, site] != PAD]
        rows = model.denoise(read, memory)
        losses = []
        for row, site in sites:
            log_probs = rows[row, site] - rows[row, site].exp().sum().log()
            own, mean = log_probs[target[row, site]], log_probs.mean()
            losses.append(-(1 - smoothing) * own - smoothing * mean)
        return sum(losses) / len(losses)

    def loss(**changes):
        plan = dataclasses.replace(paper, **changes)
        return float(training.refine_loss(model, source, target, draft, plan))

    first = by_hand(draft)
    assert loss() == pytest.approx(float(first), rel=1e-6)
    output = model.denoise(draft, memory)[..., FIRST_WORD:].argmax(-1) + FIRST_WORD
    second = by_hand(output.masked_fill(target == PAD, PAD))
    assert loss(stages=2) == pytest.approx(float(first + second) / 2, rel=1e-6)
    assert loss(smoothing=0.3) == pytest.approx(float(by_hand(draft, 0.3)), rel=1e-6)
    longer = [4 - 6 + 64, 64, 64]
    sizes = model.length_scores(memory).log_softmax(1)
    length = -sum(float(sizes[row, right]) for row, right in enumerate(longer)) / 3
    assert loss(length_weight=0.5) == pytest.approx(float(first) + 0.5 * length, rel=1e-6)


def test_adafactor_is_that_of_t5x():
    """Its formula, in NumPy: a factored matrix and a vector, for five steps."""
    rng, plan = np.random.default_rng(0), TrainingPlan(optimizer="adafactor", peak=3e-3)
    weights = {"matrix": rng.normal(size=(4, 3)), "vector": rng.normal(size=5) * 1e-4}
    module = torch.nn.ParameterDict(
        {name: torch.tensor(value, dtype=torch.double) for name, value in weights.items()}
    )
    optimizer = training._optimizer(module, plan)
    rows, columns, squares = np.zeros(4), np.zeros(3), np.zeros(5)
    for step in range(1, 6):
        optimizer.param_groups[0]["lr"] = rate = plan.rate(step * 100)
        slopes = {name: rng.normal(size=value.shape) * 1e-5 for name, value in weights.items()}
        for name, slope in slopes.items():
            module[name].grad = torch.tensor(slope, dtype=torch.double)
        optimizer.step()
        decay = 1 - step**-0.8
        size = slopes["matrix"] ** 2 + 1e-30
        rows = decay * rows + (1 - decay) * size.mean(1)
        columns = decay * columns + (1 - decay) * size.mean(0)
        squares = decay * squares + (1 - decay) * (slopes["vector"] ** 2 + 1e-30)
        second = {"matrix": np.outer(rows, columns) / rows.mean(), "vector": squares}
        for name, weight in weights.items():
            update = slopes[name] / np.sqrt(second[name])
            update /= max(1.0, np.sqrt((update**2).mean()))
            weights[name] = weight - rate * max(1e-3, np.sqrt((weight**2).mean())) * update
            assert module[name].detach().numpy() == pytest.approx(weights[name], rel=1e-9)


def test_the_gradient_is_limited_as_the_plan_says(monkeypatch):
    limits = []
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda _, limit: limits.append(limit))
    vocabulary = toy_vocabulary()
    corpus = Corpus.of(toy_pairs(30), vocabulary)
    for clip in (0.5, 0.0):
        train(fresh("ar", vocabulary.size), corpus, TrainingPlan(2, 8, clip=clip))
    assert limits == [0.5, 0.5]


def test_corruption_keeps_its_share():
    target = torch.randint(FIRST_WORD, 5000, (400, 50))
    target[:, 40:] = PAD
    torch.manual_seed(0)
    draft = corrupt(target, 5000, kind="random", kept=0.15)
    assert (draft[:, 40:] == PAD).all()
    # 16,000 coins: three standard errors are 0.009; a random token is right once in 5,000.
    assert float((draft == target)[:, :40].float().mean()) == pytest.approx(0.15, abs=0.009)
    masked = corrupt(target, 5000, kind="mask", kept=0.15)[:, :40]
    assert ((masked == MASK) | (masked == target[:, :40])).all()
    shares = (corrupt(target, 5000, kind="mask", kept=None)[:, :40] == MASK).float().mean(1)
    assert float(shares.min()) < 0.1 and float(shares.max()) > 0.9


def test_cmlm_masks_a_uniform_number_and_learns_those_alone():
    torch.manual_seed(0)
    target = torch.randint(FIRST_WORD, 60, (4000, 12))
    target[:, 10:] = PAD
    draft = corrupt(target, 60, kind="cmlm")
    hidden = draft == MASK
    assert torch.equal(draft[~hidden], target[~hidden]) and not hidden[:, 10:].any()
    # 4,000 draws of 10 counts: a share of 0.1 has the standard error 0.0047; each site is as likely
    # (5.5 of 10 on average).
    counts = hidden.sum(1).bincount(minlength=11)[1:] / 4000
    assert (counts - 0.1).abs().max() < 4 * 0.0047
    assert (hidden[:, :10].float().mean(0) - 0.55).abs().max() < 4 * 0.0079
    model = fresh("refine", 60, dropout=0.0)
    plan = TrainingPlan(corruption="cmlm", stages=1)
    source, target, draft = target[:3, :10], target[3:6, :10], draft[3:6, :10]
    shown = draft != MASK
    loss = training.refine_loss(model, source, target, draft, plan)
    other = target.masked_fill(shown, 7)  # labels of what is shown are never asked for
    assert shown.any() and torch.equal(
        loss, training.refine_loss(model, source, other, draft, plan)
    )
    with pytest.raises(GlauberError, match="has 1 stage"):
        TrainingPlan(corruption="cmlm", stages=2).check()


def test_plans_that_cannot_be_trained_with():
    for plan in (
        TrainingPlan(0),
        TrainingPlan(corruption="none"),
        TrainingPlan(optimizer="none"),
        TrainingPlan(remask=1.5),
        TrainingPlan(kept=2),
        TrainingPlan(smoothing=-0.1),
        TrainingPlan(clip=-1.0),
        TrainingPlan(peak=1e-6),
    ):
        with pytest.raises(GlauberError):
            plan.check()


def test_the_rate_warms_up_and_cools_down():
    """Linear from the last rate, not from 0, to the peak; then half a cosine back to it."""
    plan = TrainingPlan(n_steps=100, warmup=10, peak=1.0, last=0.01)
    expected = [0.01 + 0.099 * step for step in range(11)]
    assert [plan.rate(step) for step in range(11)] == pytest.approx(expected)
    assert plan.rate(55) == pytest.approx(0.505) and plan.rate(100) == pytest.approx(0.01)


def test_training_needs_no_terminal(monkeypatch):
    """A bare GPU machine has torch and sentencepiece, but not what draws bars."""
    for name in ("rich", "rich.console", "plotly", "pandas", "typer"):
        monkeypatch.setitem(sys.modules, name, None)
    vocabulary = toy_vocabulary()
    curve = train(
        fresh("ar", vocabulary.size), Corpus.of(toy_pairs(30), vocabulary), TrainingPlan(2, 8)
    )
    assert [step for step, _ in curve] == [1, 2]
