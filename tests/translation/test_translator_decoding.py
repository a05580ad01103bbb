"""Is every way of decoding the same as its plain, slow version?"""

import pytest
import torch

from glauber.errors import GlauberError
from glauber.translation.data import padded
from glauber.translation.decode import ORDERS, Schedule, decode, stutters, without_repeats
from glauber.translation.model import BEGIN, END, FIRST_WORD, MASK, PAD
from glauber.translation.search import NEVER, beam_search, greedy, limits
from glauber.translation.translate import Way, translate
from tiny_translation import sources, tiny, toy_pairs, toy_vocabulary

ROWS = sources(12)
LENGTHS = torch.tensor([3, 7, 5, 1, 9, 4, 6, 8, 2, 5, 7, 10])


def test_one_token_a_pass_is_sequential_decoding():
    model = tiny("refine")
    for row, length in zip(ROWS, LENGTHS.tolist(), strict=True):
        memory = model.encode(torch.tensor([row]))
        draft = [MASK] * length
        for site in range(length):
            scores = model.denoise(torch.tensor([draft]), memory)[0, site]
            draft[site] = int(scores[FIRST_WORD:].argmax()) + FIRST_WORD
        schedule = Schedule(length, "left-to-right")
        made = decode(model, memory, torch.tensor([length]), schedule)
        assert made.tokens[0].tolist() == draft
        assert made.n_passes == length


def test_easy_first_writes_the_most_confident_of_the_hidden():
    model = tiny("refine")
    memory = model.encode(torch.tensor([ROWS[0]]))
    draft = torch.full((1, 6), MASK)
    for _ in range(6):
        best, said = model.denoise(draft, memory)[..., FIRST_WORD:].log_softmax(-1).max(-1)
        site = best.masked_fill(draft != MASK, -torch.inf).argmax()
        draft[0, site] = said[0, site] + FIRST_WORD
    made = decode(model, memory, torch.tensor([6]), Schedule(6, "easy-first"))
    assert made.tokens.tolist() == draft.tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_a_batch_gives_what_each_row_gives_alone(order):
    model = tiny("refine")
    schedule = Schedule(4, order)
    together = decode(model, model.encode(padded(ROWS)), LENGTHS, schedule)
    for row, tokens in enumerate(ROWS):
        alone = decode(
            model, model.encode(torch.tensor([tokens])), LENGTHS[row : row + 1], schedule
        )
        width = alone.tokens.shape[1]
        assert together.tokens[row, :width].tolist() == alone.tokens[0].tolist()
        assert (together.tokens[row, width:] == PAD).all()
        assert together.score[row] == pytest.approx(float(alone.score[0]), abs=1e-6)


@pytest.mark.parametrize("way", [Way(n_steps=3), Way("ar", n_beams=1), Way("ar", n_beams=3)])
def test_texts_together_and_alone(way):
    vocabulary = toy_vocabulary()
    model = tiny("ar" if way.decoder == "ar" else "refine", vocabulary.size)
    texts = [source for source, _ in toy_pairs(9, seed=5)]
    together = translate(model, vocabulary, texts, way=way)
    alone = [translate(model, vocabulary, [text], way=way)[0] for text in texts]
    assert [one.tokens for one in together] == [one.tokens for one in alone]
    assert len({one.tokens for one in together}) > 1


def test_refinement_stops_at_a_fixed_point():
    model = tiny("refine", scale=1.0)
    memory = model.encode(padded(ROWS))
    made = decode(model, memory, LENGTHS, Schedule(50))
    assert made.n_passes < 50
    assert torch.equal(made.trace[-1], made.trace[-2])
    again = torch.where(stutters(made.trace[-1]), MASK, made.trace[-1])
    said = model.denoise(again, memory)[..., FIRST_WORD:].argmax(-1) + FIRST_WORD
    assert torch.equal(torch.where(again == PAD, PAD, said), made.trace[-1])


def test_the_cache_changes_nothing():
    model = tiny("ar")
    memory = model.encode(padded(ROWS))
    target = padded(sources(12, seed=1)).clamp(min=FIRST_WORD)
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
        scores[list(NEVER)] = -torch.inf
        if int(scores.argmax()) == END:
            break
        tokens.append(int(scores.argmax()))
    return tokens[1:]


def test_cached_greedy_is_uncached_greedy_and_a_beam_of_one():
    model = tiny("ar")
    with torch.no_grad():
        model.bias[END] = 1.5
    memory = model.encode(padded(ROWS))
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


def test_bad_input_is_said_in_one_sentence():
    vocabulary = toy_vocabulary()
    model = tiny("refine", vocabulary.size)
    for text, words in {
        "  ": "empty",
        "the ☃": "does not know the character '☃'",
        "the cat " * 40: "at most 63",
    }.items():
        with pytest.raises(GlauberError, match=words):
            translate(model, vocabulary, [text])
    for way, words in {
        Way(n_steps=0): "at least 1",
        Way("nonsense"): "one of",
        Way("ar"): "does not fit",
        Way(n_lengths=0): "at least 1 length",
    }.items():
        with pytest.raises(GlauberError, match=words):
            translate(model, vocabulary, ["the cat"], way=way)
