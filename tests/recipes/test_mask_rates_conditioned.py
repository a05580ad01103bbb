"""The loss on text that conditions on the mask: exact where everything is known."""

import numpy as np
import torch

from glauber.exact.blocks.masks import given_mask
from glauber.exact.space import Space, conditional
from glauber.models.table import Joint
from recipes.mask_rates_conditioned import Corrected, losses, rates
from recipes.mask_rates_training import Text


def test_the_rate_of_a_token_is_all_that_its_mask_tells():
    """p(x_K | the rest, K) is p(x_K | the rest) times the rates of the hidden tokens."""
    space, r = Space(3, 3), np.array([0.1, 0.3, 0.6])
    p = Joint.random(3, 3, seed=4).probabilities().numpy()
    states = space.states().numpy()
    for block in ((0,), (0, 2)):
        hidden = np.isin(np.arange(3), block)
        chance = np.where(hidden, r[states], 1 - r[states]).prod(axis=1)
        weights = conditional(p, space, block) * r[states[:, hidden]].prod(axis=1)
        expected = conditional(weights, space, block)
        np.testing.assert_allclose(given_mask(p, chance, space, block), expected, atol=1e-14)


def test_rates_have_the_share_as_their_mean_over_the_text():
    stream = torch.tensor([5] * 70 + [6] * 25 + [7] * 5 + [3] * 10)
    seen = torch.bincount(stream, minlength=8).double() + 1
    text = Text(stream, torch.arange(5), -(seen / seen.sum()).log().float())
    chances = rates(text, 0.2)
    words = stream[stream > 4]
    assert abs(chances[words].mean() - 0.2) < 1e-6 and chances[7] > chances[6] > chances[5]


class Scores(torch.nn.Module):
    """A network that knows one distribution, whatever it reads."""

    def __init__(self, scores):
        super().__init__()
        self.roberta_prelayernorm = self.LayerNorm = self.embeddings = self.encoder = self
        self.logits = scores

    def forward(self, x=None, input_ids=None):
        states = x if input_ids is None else input_ids[..., None].float()
        return states if input_ids is not None else [states]

    def lm_head(self, states):
        return self.logits.expand(len(states), -1)


def test_the_loss_adds_the_logarithm_of_the_rate():
    """By hand; and taking log r off a model's scores is the other way round."""
    logits, added = torch.tensor([0.5, -1.0, 0.2]), torch.tensor([0.2, 0.4, 0.9]).log()
    tokens = torch.tensor([[0, 1, 2], [2, 1, 1]])
    hidden = torch.tensor([[True, False, True], [False, True, False]])
    network = Scores(logits)
    network.LayerNorm = torch.nn.Identity()
    found = losses(network, tokens, hidden, torch.tensor(0), added)
    by_hand = -(logits + added).log_softmax(0)[tokens[hidden]].mean()
    torch.testing.assert_close(found, by_hand)
    states = torch.zeros(2, 4)
    torch.testing.assert_close(Corrected(network, added).lm_head(states)[0], logits - added)
