"""Which conditionals were worked out before, and is what is kept of them enough for a draw?

A draw by inverse CDF goes through the tokens in order of decreasing score, so the most probable
ones settle almost every draw. An entry keeps that head: tokens, log-probabilities and cumulative
masses as the fill worked them out, and the entropy. What it answers is therefore what the fill
gives, to the bit. A draw beyond the head, or an old token beyond it, is not answered.

An entry belongs to a row with its hidden site and to one temperature. Heads of scores could serve
every temperature only with the log-sum of the tail at each of them, which a head does not tell.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.conditionals.batching import rows_at_once
from glauber.dynamics.fills import Drawn, Head, draw_with_head
from glauber.dynamics.kernel import State

HEAD = 48  # tokens kept: with 20 bytes each, an entry is under a kilobyte
BUDGET = 256 * 2**20  # bytes
HIDDEN = -2  # stands at the hidden site of a key: no token, and not PAD

# token, log_prob_old, log_prob_new, entropy
Answer = tuple[int, float, float, float]


class Memo:
    """Heads of conditionals of one model, of rows of one width, within a budget of bytes.

    When it is full, a new entry takes the place of one not used since the hand last came by
    (the clock rule). For one thread at a time.
    """

    def __init__(self, vocab_size: int, length: int, *, budget: int = BUDGET) -> None:
        size = min(HEAD, vocab_size)
        self.capacity = budget // entry_bytes(vocab_size, length)
        self.hits = 0  # steps that were answered here
        self.misses = 0  # steps for which the model was asked
        self._slots: dict[bytes, int] = {}
        self._keys: list[bytes] = []  # of each slot
        self._used = bytearray(self.capacity)
        self._hand = 0
        self._tokens: NDArray[np.int32] = np.empty((self.capacity, size), np.int32)
        self._log_probs: NDArray[np.float64] = np.empty((self.capacity, size))
        self._mass: NDArray[np.float64] = np.empty((self.capacity, size))
        self._entropy: NDArray[np.float64] = np.empty(self.capacity)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: bytes) -> bool:
        return key in self._slots

    @property
    def rate(self) -> float:
        """Share of the steps so far that were answered here."""
        return self.hits / max(1, self.hits + self.misses)

    def answer(self, key: bytes, u: float, old: int) -> Answer | None:
        """What the fill would give for u and the old token, if the head tells."""
        slot = self._slots.get(key)
        if slot is None:
            return None
        head, tokens = self._mass[slot], self._tokens[slot]
        place = head.searchsorted(u, "right")  # the first token whose cumulative mass exceeds u
        if place == len(head):
            return None
        token, new = int(tokens[place]), float(self._log_probs[slot, place])
        before = new
        if token != old:
            held = (tokens == old).nonzero()[0]
            if not len(held):
                return None
            before = float(self._log_probs[slot, held[0]])
        self._used[slot] = 1
        return token, before, new, float(self._entropy[slot])

    def store(self, keys: list[bytes], head: Head, entropy: NDArray[np.float64]) -> None:
        """Keeps heads (rows, size or more) and entropies (rows,) under their keys."""
        fresh = [row for row, key in enumerate(keys) if key not in self._slots]
        fresh = fresh[: self.capacity]
        if not fresh:
            return
        slots = [self._take(keys[row]) for row in fresh]
        size = self._tokens.shape[1]
        self._tokens[slots] = head.tokens[fresh, :size].numpy()
        self._log_probs[slots] = head.log_probs[fresh, :size].numpy()
        self._mass[slots] = head.mass[fresh, :size].numpy()
        self._entropy[slots] = entropy[fresh]

    def _take(self, key: bytes) -> int:
        """A slot for that key: a new one, or the first from the hand on that was not used."""
        if len(self._keys) < self.capacity:
            slot = len(self._keys)
            self._keys.append(key)
        else:
            while self._used[self._hand]:
                self._used[self._hand] = 0
                self._hand = (self._hand + 1) % self.capacity
            slot = self._hand
            self._hand = (slot + 1) % self.capacity
            del self._slots[self._keys[slot]]
            self._keys[slot] = key
        self._slots[key] = slot
        return slot


class Redraws:
    """Draws one site of each chain by inverse CDF, on a CPU; what a memo tells is not asked."""

    def __init__(self, conditionals: Conditionals, *, budget: int = BUDGET // 4) -> None:
        self.conditionals, self.budget = conditionals, budget
        self._memos: dict[int, Memo] = {}  # by the width of the rows

    def __call__(self, state: State, sites: Tensor, u: Tensor) -> Drawn:
        """(chains, 1) each, for sites (chains, 1) and uniforms u (chains,)."""
        memo = self._memo(state.tokens.shape[1])
        old = state.tokens.gather(1, sites)[:, 0]
        keys = _keys(state, sites)
        asked = zip(keys, u.tolist(), old.tolist(), strict=True)
        answers = [memo.answer(*question) for question in asked]
        missing = [row for row, answer in enumerate(answers) if answer is None]
        size = rows_at_once(4 * self.conditionals.vocab_size)
        for first in range(0, len(missing), size):
            some = torch.tensor(missing[first : first + size])
            scores = self.conditionals.scores(state.tokens[some], sites[some])[:, 0]
            drawn, head = draw_with_head(scores, state.temperature[some], u[some], old[some])
            memo.store([keys[row] for row in some.tolist()], head, drawn.entropy.numpy())
            for row, *answer in zip(some.tolist(), *(x.tolist() for x in drawn), strict=True):
                answers[row] = (answer[0], answer[1], answer[2], answer[3])
        tokens, *figures = zip(*(answer for answer in answers if answer is not None), strict=True)
        parts = (torch.tensor(part, dtype=torch.float64)[:, None] for part in figures)
        return Drawn(torch.tensor(tokens)[:, None], *parts)

    def _memo(self, length: int) -> Memo:
        if length not in self._memos:
            self._memos[length] = Memo(self.conditionals.vocab_size, length, budget=self.budget)
        return self._memos[length]


def _keys(state: State, sites: Tensor) -> list[bytes]:
    """Tokens with the site hidden, and temperature, of each chain."""
    rows = state.tokens.scatter(1, sites, HIDDEN).int().numpy()
    heat = state.temperature.numpy()
    return [row.tobytes() + at.tobytes() for row, at in zip(rows, heat, strict=True)]


def entry_bytes(vocab_size: int, length: int) -> int:
    """Bytes that one entry takes, its key and its share of the index included."""
    head = min(HEAD, vocab_size) * (4 + 8 + 8) + 8
    key = 48 + 4 * (length + 2)  # a bytes object over the tokens and the temperature
    # A slot's number (32), its place in the list (10), its flag, and a dict while it grows, which
    # holds up to six index entries and six entries of 24 bytes for each key, the old dict included.
    return head + key + 32 + 10 + 1 + 6 * 4 + 6 * 24
