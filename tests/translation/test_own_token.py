"""How far a position's own token moves its distribution, against one position at a time."""

import pytest
import torch

from glauber.foundation.errors import GlauberError
from glauber.translation.decoding import Decoding, decode, length_log_probs
from glauber.translation.model import FIRST_WORD, MASK
from glauber.translation.own_token import own_token
from tiny_translation import tiny, toy_pairs, toy_vocabulary

TEXTS = [source for source, _ in toy_pairs(6, seed=3)]


@torch.no_grad()
def test_the_distances_are_those_of_one_position_at_a_time():
    vocabulary = toy_vocabulary()
    model = tiny("refine", vocabulary.size, scale=3.0)
    found = own_token(model, vocabulary, TEXTS, n_steps=2)
    hidden, replaced, changed = [], [], []
    plain = Decoding("refine", 2, remask_repeats=False, drop_repeats=False)
    for text in TEXTS:
        source = torch.tensor([vocabulary.encode(text)])
        memory = model.encode(source)
        length = length_log_probs(model, memory, source).argmax(1) + 1
        draft = decode(model, memory, length, plain).tokens

        def words(site, token, draft=draft, memory=memory):
            other = draft.clone()
            other[0, site] = token
            return model.denoise(other, memory)[0, site, FIRST_WORD:].softmax(0)

        for site in range(int(length)):
            own = int(draft[0, site])
            seen, blind = words(site, own), words(site, MASK)
            best = max(
                (t for t in range(FIRST_WORD, vocabulary.size) if t != own),
                key=lambda token, blind=blind: float(blind[token - FIRST_WORD]),
            )
            hidden.append(float((seen - blind).clamp(min=0).sum()))
            replaced.append(float((seen - words(site, best)).clamp(min=0).sum()))
            changed.append(bool(seen.argmax() != blind.argmax()))
    assert found.n_positions == len(hidden)
    assert found.hidden.value == pytest.approx(sum(hidden) / len(hidden), abs=1e-6) and hidden
    assert found.replaced.value == pytest.approx(sum(replaced) / len(hidden), abs=1e-6)
    assert found.changed.value == pytest.approx(sum(changed) / len(changed))
    assert 0 < found.hidden.value != pytest.approx(found.replaced.value)
    assert found.hidden.interval[0] <= found.hidden.value <= found.hidden.interval[1]


def test_conditionals_are_not_moved_by_their_own_token():
    """A decoder whose positions read the source alone has no own token to read."""
    vocabulary = toy_vocabulary()

    class Blind(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model, self.shape, self.device = model, model.shape, model.device
            for name in ("encode", "project", "length_scores"):
                setattr(self, name, getattr(model, name))

        def denoise(self, draft, memory, site=None):
            return self.model.denoise(draft.clamp(max=MASK), memory, site)  # MASK everywhere

    found = own_token(Blind(tiny("refine", vocabulary.size)), vocabulary, TEXTS)
    assert (found.hidden.value, found.replaced.value, found.changed.value) == (0.0, 0.0, 0.0)


def test_what_has_no_own_token_is_refused():
    vocabulary = toy_vocabulary()
    with pytest.raises(GlauberError, match="only a translator of kind refine"):
        own_token(tiny("ar", vocabulary.size), vocabulary, TEXTS)
    with pytest.raises(GlauberError, match="at least 1 step and 1 text"):
        own_token(tiny("refine", vocabulary.size), vocabulary, [])
