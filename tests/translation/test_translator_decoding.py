"""Is every way of decoding the same as its plain, slow version?"""

from functools import partial

import pytest
import torch

from glauber.foundation.errors import GlauberError
from glauber.translation.data import pad_rows
from glauber.translation.decoding import (
    FORBIDDEN,
    ORDERS,
    Decoding,
    DecodingNoise,
    beam_search,
    decode,
    greedy,
    inverse_cdf,
    key,
    length_log_probs,
    lengths_around,
    likely_lengths,
    limits,
    stutters,
    sundae_pass,
    teacher_score,
    translate_texts,
    without_repeats,
)
from glauber.translation.model import BEGIN, END, FIRST_WORD, MASK, PAD
from tiny_translation import sources, tiny, toy_pairs, toy_vocabulary

own = partial(Decoding, judge="itself")
ROWS = sources(12)
LENGTHS = torch.tensor([3, 7, 5, 1, 9, 4, 6, 8, 2, 5, 7, 10])


@pytest.fixture(scope="module")
def vocabulary():
    return toy_vocabulary()


def test_one_token_a_pass_is_sequential_decoding():
    model = tiny("refine")
    for row, length in zip(ROWS, LENGTHS.tolist(), strict=True):
        memory = model.encode(torch.tensor([row]))
        draft = [MASK] * length
        for site in range(length):
            scores = model.denoise(torch.tensor([draft]), memory)[0, site]
            draft[site] = int(scores[FIRST_WORD:].argmax()) + FIRST_WORD
        decoding = Decoding("left-to-right", length)
        made = decode(model, memory, torch.tensor([length]), decoding)
        assert made.tokens[0].tolist() == draft
        assert made.n_passes.tolist() == [length]


def test_confident_first_writes_the_most_confident_of_the_hidden():
    model = tiny("refine")
    memory = model.encode(torch.tensor([ROWS[0]]))
    draft = torch.full((1, 6), MASK)
    for _ in range(6):
        best, said = model.denoise(draft, memory)[..., FIRST_WORD:].log_softmax(-1).max(-1)
        site = best.masked_fill(draft != MASK, -torch.inf).argmax()
        draft[0, site] = said[0, site] + FIRST_WORD
    made = decode(model, memory, torch.tensor([6]), Decoding("confident-first", 6))
    assert made.tokens.tolist() == draft.tolist()


def test_easy_first_predicts_every_position_again_given_the_easier_ones():
    """By hand, one position at a time: the ranking of the first pass stays, the words do not."""
    model, n_steps, changed = tiny("refine", scale=1.5), 5, 0
    for row, length in zip(ROWS, LENGTHS.tolist(), strict=True):
        memory, words, hand = model.encode(torch.tensor([row])), [MASK] * length, []
        first = model.denoise(torch.tensor([words]), memory)[0, :, FIRST_WORD:].log_softmax(-1)
        ranked = sorted(range(length), key=lambda site: -float(first[site].max().detach()))
        for step in range(n_steps):
            said = []
            for site in range(length):
                easier = ranked[: ranked.index(site)] if step else []
                draft = [words[other] if other in easier else MASK for other in range(length)]
                scores = model.denoise(torch.tensor([draft]), memory)[0, site]
                said.append(int(scores[FIRST_WORD:].argmax()) + FIRST_WORD)
            changed += step > 0 and said != words
            words = said
            hand.append(said)
        made = decode(model, memory, torch.tensor([length]), Decoding("easy-first", n_steps))
        seen = [step[0].tolist() for step in made.trace]
        assert seen == hand[: len(seen)] and all(step == seen[-1] for step in hand[len(seen) :])
    assert changed > 5  # words written in the first pass are written anew


@pytest.mark.parametrize(
    ("order", "remask"), [("refine", 0.0), ("refine-remask", 0.5), ("refine-remask", 1.0)]
)
def test_refinement_hides_repeats_and_what_it_is_least_sure_of(order, remask):
    """By hand, one row at a time, without ever stopping early."""
    model, n_steps = tiny("refine", scale=1.5), 6
    for row, length in zip(ROWS, LENGTHS.tolist(), strict=True):
        memory, draft, hand = model.encode(torch.tensor([row])), [MASK] * length, []
        for step in range(1, n_steps + 1):
            scores = model.denoise(torch.tensor([draft]), memory).detach()
            laws = scores[0, :, FIRST_WORD:].log_softmax(-1)
            said = [int(law.argmax()) + FIRST_WORD for law in laws]
            hand.append(said)
            n_hidden = int(length * remask * (n_steps - step) / n_steps)
            doubtful = sorted(range(length), key=lambda site: float(laws[site].max()))[:n_hidden]
            repeats = [site for site in range(1, length) if said[site] == said[site - 1]]
            draft = [MASK if i in {*doubtful, *repeats} else t for i, t in enumerate(said)]
        # The paper's own hides repeats alone, whatever the fraction of the other is.
        decoding = Decoding(order, n_steps, remask=remask if order == "refine-remask" else 0.9)
        made = decode(model, memory, torch.tensor([length]), decoding)
        seen = [step[0].tolist() for step in made.trace]
        assert seen == hand[: len(seen)] and all(step == seen[-1] for step in hand[len(seen) :])


def noise_of(rows, lengths):
    keys = [key(row, length, 0) for row, length in zip(rows, lengths.tolist(), strict=True)]
    return DecodingNoise(7, torch.tensor(keys), 60)


SCHEDULES = [
    *(Decoding(order, 4) for order in ORDERS),
    Decoding(n_steps=9),
    Decoding("refine", 9),
    Decoding(n_steps=9, remask_repeats=False, drop_repeats=False),
    Decoding(n_steps=5, initial="random"),
    Decoding("sundae", 7, initial="mask"),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("scale", [1.5, 6.0])
def test_a_batch_gives_what_each_row_gives_alone(schedule, scale):
    model, noise = tiny("refine", scale=scale), noise_of(ROWS, LENGTHS)
    together = decode(model, model.encode(pad_rows(ROWS)), LENGTHS, schedule, noise=noise)
    for row, tokens in enumerate(ROWS):
        memory, one = model.encode(torch.tensor([tokens])), torch.tensor([row])
        alone = decode(model, memory, LENGTHS[one], schedule, noise=noise.rows(one))
        width, passes = alone.tokens.shape[1], int(alone.n_passes)
        assert together.tokens[row, :width].tolist() == alone.tokens[0].tolist()
        assert (together.tokens[row, width:] == PAD).all()
        assert int(together.n_passes[row]) == passes == len(alone.trace)
        for step in range(len(together.trace)):
            seen = alone.trace[min(step, passes - 1)][0]
            assert together.trace[step][row, :width].tolist() == seen.tolist()
        assert together.score[row] == pytest.approx(float(alone.score[0]), abs=1e-6)


def test_rows_stop_on_their_own():
    """Rows of one batch need unequal numbers of passes, and end where one at a time ends."""
    model = tiny("refine", scale=1.5)
    made = decode(model, model.encode(pad_rows(ROWS)), LENGTHS, Decoding(n_steps=30))
    assert len(set(made.n_passes.tolist())) > 2
    assert len(made.trace) == int(made.n_passes.max())


def test_random_tokens_come_from_the_seed_alone():
    model = tiny("refine")
    memory = model.encode(pad_rows(ROWS))
    with pytest.raises(GlauberError, match="need noise"):
        decode(model, memory, LENGTHS, Decoding(initial="random"))
    first = noise_of(ROWS, LENGTHS).tokens(2000)
    assert torch.equal(first, noise_of(ROWS, LENGTHS).tokens(2000))
    assert not torch.equal(first, noise_of(ROWS, LENGTHS)._replace(seed=8).tokens(2000))
    assert int(first.min()) == FIRST_WORD and int(first.max()) == 59
    # 24,000 draws from 55 words: the variance of the mean of uniform integers.
    error = (55**2 / 12 / first.numel()) ** 0.5
    assert abs(float(first.double().mean()) - (FIRST_WORD + 59) / 2) < 4 * error


def test_sundae_draws_from_the_tempered_distribution():
    scores = torch.tensor([0.3, -1.0, 2.0, 0.0, 1.1])
    fill = (torch.arange(20000) + 0.5)[None] / 20000  # every quantile once
    drawn = inverse_cdf((scores / 0.5).repeat(1, 20000, 1), fill)[0].bincount(minlength=5) / 20000
    torch.testing.assert_close(drawn, (scores / 0.5).softmax(0), rtol=0, atol=1e-4)
    special = torch.zeros(FIRST_WORD)
    after, _ = sundae_pass(
        torch.cat([special, scores]).repeat(1, 20000, 1),
        torch.full((1, 20000), MASK),
        fill=fill,
        coin=torch.ones(1, 20000),
        first=True,
        draws=True,
    )
    drawn = (after[0] - FIRST_WORD).bincount(minlength=5) / 20000
    torch.testing.assert_close(drawn, (scores / 0.3).softmax(0), rtol=0, atol=1e-4)


def test_a_settling_pass_of_sundae_moves_the_doubtful_half():
    model = tiny("refine")
    memory = model.encode(torch.tensor([ROWS[0]]))
    draft = torch.tensor([[9, 12, 20, 33, 41]])
    log_probs = model.denoise(draft, memory)[..., FIRST_WORD:].float().log_softmax(-1)[0]
    doubt = log_probs[range(5), draft[0] - FIRST_WORD].argsort()
    after, sure = sundae_pass(
        model.denoise(draft, memory), draft,
        fill=torch.zeros(1, 5), coin=torch.zeros(1, 5), first=False, draws=False,
    )  # fmt: skip
    likely = log_probs.argmax(1) + FIRST_WORD
    for rank, site in enumerate(doubt.tolist()):
        assert after[0, site] == (likely[site] if rank < 3 else draft[0, site])
        assert sure[0, site] == log_probs[site, after[0, site] - FIRST_WORD]


OPTIONS = [
    *(own(order, 3, n_hypotheses=4) for order in ORDERS if order != "easy-first"),
    own("easy-first", 3, 2, length="ratio"),  # untrained predictors love long ones
    own(n_steps=3, initial="random"),
    own(n_steps=3, length="ratio", ratio=1.3),
    own("ar", n_beams=1),
    own("ar", n_beams=3),
]


@pytest.mark.parametrize("decoding", OPTIONS, ids=str)
def test_texts_together_and_alone(decoding, vocabulary):
    model = tiny("ar" if decoding.decoder == "ar" else "refine", vocabulary.size)
    texts = [source for source, _ in toy_pairs(9, seed=5)]
    together = translate_texts(model, vocabulary, texts, decoding=decoding)
    alone = [translate_texts(model, vocabulary, [text], decoding=decoding)[0] for text in texts]
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    assert [one.trace for one in together] == [one.trace for one in alone]
    assert len({one.tokens for one in together}) > 1
    if decoding.decoder != "ar":
        assert all(len(one.trace) == one.n_passes for one in together)
        assert all(len({len(step) for step in one.trace}) == 1 for one in together)


def test_another_seed_gives_other_drafts(vocabulary):
    model, texts = tiny("refine", vocabulary.size), [source for source, _ in toy_pairs(9, seed=5)]
    options = [own("sundae", 2, 1, n_hypotheses=1, seed=seed) for seed in (0, 0, 1)]
    made = [
        [one.tokens for one in translate_texts(model, vocabulary, texts, decoding=decoding)]
        for decoding in options
    ]
    assert made[0] == made[1] != made[2]


def test_more_hypotheses_never_score_less(vocabulary):
    model, texts = tiny("refine", vocabulary.size), [source for source, _ in toy_pairs(9, seed=5)]
    few, many = (
        translate_texts(model, vocabulary, texts, decoding=own("sundae", 4, 2, n_hypotheses=n))
        for n in (1, 6)
    )
    assert all(b.score >= a.score - 1e-6 for a, b in zip(few, many, strict=True))
    assert any(b.score > a.score + 1e-6 for a, b in zip(few, many, strict=True))


def test_lengths_by_ratio_and_by_oracle(vocabulary):
    model, texts = tiny("refine", vocabulary.size), ["the cat sees the dog.", "a bird."]
    source = pad_rows([vocabulary.encode(text) for text in texts])
    memory, read = model.encode(source), (source != PAD).sum(1)
    assert lengths_around(2 * read[:, None], 3, most=63).tolist() == [
        [2 * n, 2 * n - 1, 2 * n + 1] for n in read.tolist()
    ]
    decoding = own(n_lengths=1, length="ratio", ratio=2.0, drop_repeats=False)
    made = translate_texts(model, vocabulary, texts, decoding=decoding)
    assert [len(one.tokens) for one in made] == (2 * read).tolist()
    decoding = own(n_lengths=1, length="oracle", drop_repeats=False)
    made = translate_texts(model, vocabulary, texts, decoding=decoding, reference_lengths=[3, 11])
    assert [len(one.tokens) for one in made] == [3, 11]
    with pytest.raises(GlauberError, match="reference of each text"):
        translate_texts(model, vocabulary, texts, decoding=decoding)
    laws = length_log_probs(model, memory, source)
    assert torch.allclose(laws.exp().sum(1), torch.ones(2))
    for row, n in enumerate(read.tolist()):  # the predictor speaks of the difference
        raw = model.length_scores(memory)[row, 64 - n + 1 : 64 - n + 64].float()
        assert torch.allclose(laws[row], raw.log_softmax(0))
    predicted = likely_lengths(laws, 63)
    assert [sorted(row) for row in predicted.tolist()] == [list(range(1, 64))] * 2


def test_refinement_stops_at_a_fixed_point():
    model = tiny("refine", scale=1.0)
    memory = model.encode(pad_rows(ROWS))
    made = decode(model, memory, LENGTHS, Decoding(n_steps=50))
    assert int(made.n_passes.max()) < 50
    assert torch.equal(made.trace[-1], made.trace[-2])
    again = torch.where(stutters(made.trace[-1]), MASK, made.trace[-1])
    said = model.denoise(again, memory)[..., FIRST_WORD:].argmax(-1) + FIRST_WORD
    assert torch.equal(torch.where(again == PAD, PAD, said), made.trace[-1])


def test_the_cache_changes_nothing():
    model = tiny("ar")
    memory = model.encode(pad_rows(ROWS))
    target = pad_rows(sources(12, seed=1)).clamp(min=FIRST_WORD)
    whole = model.follow(target, memory)
    cache = model.empty_cache()
    parts = [model.follow(target[:, i : i + 1], memory, cache) for i in range(target.shape[1])]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-9)


def without_cache(model, row):
    """Greedy search that reads the whole target again for each token."""
    memory = model.encode(torch.tensor([row]))
    tokens = [BEGIN]
    while len(tokens) <= int(limits(memory, 64)):
        scores = model.follow(torch.tensor([tokens]), memory)[0, -1]
        scores[list(FORBIDDEN)] = -torch.inf
        if int(scores.argmax()) == END:
            break
        tokens.append(int(scores.argmax()))
    return tokens[1:]


def test_cached_greedy_is_uncached_greedy_and_a_beam_of_one():
    model = tiny("ar")
    with torch.no_grad():
        model.bias[END] = 1.5
    memory = model.encode(pad_rows(ROWS))
    slow = [without_cache(model, row) for row in ROWS]
    for found in (greedy(model, memory), beam_search(model, memory, 1)):
        assert [[t for t in row if t != PAD] for row in found.tokens.tolist()] == slow
    assert len({len(row) for row in slow}) > 1


def test_a_beam_that_holds_everything_finds_the_best_of_all():
    model = tiny("ar", 8, scale=3.0)
    with torch.no_grad():
        model.bias[END] = 2.0
    memory = model.encode(torch.tensor([[5, 6]]))
    found = beam_search(model, memory, 400)
    tokens = [token for token in found.tokens[0].tolist() if token != PAD]

    @torch.no_grad()
    def mean(words):
        log_probs = model.follow(torch.tensor([[BEGIN, *words]]), memory)[0].log_softmax(-1)
        return float(sum(log_probs[i, w] for i, w in enumerate([*words, END]))) / (len(words) + 1)

    words = range(FIRST_WORD, 8)
    every = [[], *([a] for a in words), *([a, b] for a in words for b in words)]
    every += [[a, b, c] for a in words for b in words for c in words]
    assert mean(tokens) == pytest.approx(float(found.score[0]), abs=1e-5)
    assert mean(tokens) >= max(map(mean, every)) - 1e-5


def test_repeats_go_at_the_end():
    tokens = torch.tensor([[7, 7, 8, 8, 8, 7, PAD], [5, 6, 5, 6, 6, PAD, PAD]])
    expected = [[7, 8, 7, PAD, PAD, PAD, PAD], [5, 6, 5, 6, PAD, PAD, PAD]]
    assert without_repeats(tokens).tolist() == expected


def test_a_search_that_must_end_scores_its_end():
    """The greedy score is the mean log-probability of the tokens and END, also of a forced one."""
    model = tiny("ar")
    with torch.no_grad():
        model.bias[END] = -50.0  # never by itself
    found = greedy(model, model.encode(torch.tensor([ROWS[0]])))
    tokens = found.tokens[0][found.tokens[0] != PAD].tolist()
    memory = model.encode(torch.tensor([ROWS[0]]))
    log_probs = model.follow(torch.tensor([[BEGIN, *tokens]]), memory)[0].float().log_softmax(-1)
    said = log_probs[range(len(tokens) + 1), [*tokens, END]]
    assert len(tokens) == int(limits(memory, 64))
    assert float(found.score[0]) == pytest.approx(float(said.mean().detach()), abs=1e-4)


def test_bad_input_is_said_in_one_sentence(vocabulary):
    model = tiny("refine", vocabulary.size)
    for text, words in {
        "  ": "empty",
        "the \udcff": "not UTF-8",
        "the ☃": "does not know the character '☃'",
        "the cat " * 40: "at most 63",
    }.items():
        with pytest.raises(GlauberError, match=words):
            translate_texts(model, vocabulary, [text], decoding=own())
    for decoding, words in {
        own(n_steps=0): "at least 1",
        own(n_steps=10**9): "more than 10,000",
        own("ar", n_beams=10**9): "more than 10,000",
        own("sundae", n_hypotheses=10**9): "more than 10,000",
        own(seed=-1): "seed is -1",
        own(remask=-0.1): "remask is -0.1",
        own("nonsense"): "one of",
        own("ar"): "does not fit",
        own(n_lengths=0): "n lengths is 0",
        own(n_hypotheses=0): "n hypotheses is 0",
        own(n_lengths=64): "only 63 lengths",
        own(length="guess"): "predicted, ratio, oracle",
        own(length="ratio", ratio=0.0): "above 0",
        own(initial="words"): "one of mask, random",
        own("easy-first", initial="random"): "fills masks",
    }.items():
        with pytest.raises(GlauberError, match=words):
            translate_texts(model, vocabulary, ["the cat"], decoding=decoding)


def test_the_teacher_reads_a_draft_as_it_would_write_it():
    teacher = tiny("ar")
    memory = teacher.encode(pad_rows(ROWS))
    drafts = pad_rows([row[: 2 + number] for number, row in enumerate(ROWS)]).clamp(min=0)
    drafts = torch.where(drafts != PAD, drafts.clamp(min=FIRST_WORD), PAD)
    read = teacher_score(teacher, drafts, memory)
    for row, draft in enumerate(drafts.tolist()):
        said = [token for token in draft if token != PAD] + [END]
        cache, token, total = teacher.empty_cache(), BEGIN, 0.0
        one = memory.rows(torch.tensor([row]))
        for after in said:
            scores = teacher.follow(torch.tensor([[token]]), one, cache)[0, -1].detach()
            total += float(scores.log_softmax(-1)[after])
            token = after
        assert float(read[row]) == pytest.approx(total / len(said), abs=1e-5)


def test_the_judge_keeps_what_it_likes_best(vocabulary):
    model, teacher = tiny("refine", vocabulary.size), tiny("ar", vocabulary.size)
    texts = [source for source, _ in toy_pairs(9, seed=5)]
    decoding = own("refine", 3, 1, length="oracle")
    tried = {length: [length] * len(texts) for length in (4, 3, 5)}
    alone = {
        length: translate_texts(
            model, vocabulary, texts, decoding=decoding, reference_lengths=known
        )
        for length, known in tried.items()
    }
    decoding = own("refine", 3, 3, length="oracle", judge="teacher")
    chosen = translate_texts(
        model, vocabulary, texts, decoding=decoding, reference_lengths=tried[4], teacher=teacher
    )
    for row, (text, one) in enumerate(zip(texts, chosen, strict=True)):
        memory = teacher.encode(pad_rows([vocabulary.encode(text)]))
        drafts = [alone[length][row].tokens for length in tried]
        scores = [float(teacher_score(teacher, torch.tensor([draft]), memory)) for draft in drafts]
        assert one.tokens == drafts[scores.index(max(scores))]
        assert one.score == pytest.approx(max(scores), abs=1e-5)
    with pytest.raises(GlauberError, match="there is none"):
        translate_texts(model, vocabulary, texts, decoding=decoding, reference_lengths=tried[4])
    with pytest.raises(GlauberError, match="judge is 'nobody'"):
        translate_texts(model, vocabulary, texts, decoding=own(judge="nobody"))


def test_a_projected_memory_gives_the_same_scores():
    model = tiny("refine")
    memory = model.encode(pad_rows(ROWS))
    draft = pad_rows(sources(12, seed=1))
    projected = model.project(memory)
    order = torch.arange(12).flip(0)
    assert torch.allclose(model.denoise(draft, projected), model.denoise(draft, memory))
    assert torch.allclose(
        model.denoise(draft[order], projected.rows(order)), model.denoise(draft, memory)[order]
    )
