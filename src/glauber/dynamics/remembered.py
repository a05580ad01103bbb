"""The same steps with fewer passes through the model: memory and looking ahead.

Chains advance on their own. A chain runs through the steps whose conditional is remembered and
joins the next batch with the first one that is not, so every row that reaches the model is new
work. All noise is keyed by (seed, chain, step) and a row's scores do not depend on its batch, so
the steps are those of `kernel.run`, to the bit where a row's scores are (on a CPU).

What is remembered: a draw by inverse CDF goes through the tokens in order of decreasing score, so
the most probable ones settle almost every draw. An entry of the memo is that head: tokens,
log-probabilities and cumulative masses as the draw computed them, and the entropy. What it answers
is therefore what the draw gives, to the bit. A draw beyond the head, or an old token beyond it, is
not answered. An entry belongs to a row with its hidden site and to one temperature. Heads of scores
could serve every temperature only with the log-sum of the tail at each of them, which a head does
not contain.

Looking ahead: each chain has made its own number of steps. What it has made beyond the steps handed
out is in a ring of `lead` columns: step t, counted from 0 for every chain, is in column t mod lead.
A model call costs about `overhead + rows`, in rows, so rows of later steps are asked for with it
(prefetched) where they are likely to be used. The sites and the noise of the next steps are known
in advance; a row asked for j steps ahead is the right one if the tokens of the steps before were
guessed right. A step is guessed to change nothing, until its own row was prefetched: then what
was drawn there is the guess, since the same noise mostly draws the same token in a row that
differs at a site or two (a fixed-point iteration over the next steps). Nothing is ever wrong:
what was drawn ahead, and what the memo contains, counts only for the row that it was asked for.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.dynamics.draws import Drawn, Head, draw_with_head
from glauber.dynamics.kernel import (
    DRAWN_AT_ONCE,
    HIDDEN,
    Info,
    Kernel,
    Lookup,
    State,
    later,
    row_keys,
    run,
)
from glauber.dynamics.noise import uniform as as_uniform
from glauber.foundation.errors import GlauberError
from glauber.models.base import PAD, Conditionals
from glauber.models.batching import rows_at_once

HEAD = 48  # tokens kept: with 20 bytes each, an entry is under a kilobyte
BUDGET = 256 * 2**20  # bytes
LEAD = 1024  # steps that a chain may be ahead of the slowest one
HELD = 2**20  # chain steps held in all, so that many chains have a smaller lead
RECENT = 0.05  # weight of the last step in a chain's share of steps that changed a token
LEAST = 0.1  # a row with a smaller chance of being used is not prefetched
MOST = 64  # rows that a batch is filled up to, at most

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
        self.misses = 0  # steps for which the model was evaluated
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
        rank = head.searchsorted(u, "right")  # the first token whose cumulative mass exceeds u
        if rank == len(head):
            return None
        token, new = int(tokens[rank]), float(self._log_probs[slot, rank])
        before = new
        if token != old:
            ranks_of_old = (tokens == old).nonzero()[0]
            if not len(ranks_of_old):
                return None
            before = float(self._log_probs[slot, ranks_of_old[0]])
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

    def draw(self, conditionals: Conditionals, state: State, sites: Tensor, u: Tensor) -> Drawn:
        """One site of each chain drawn by inverse CDF, on a CPU: (chains, 1) each.

        sites are (chains, 1), u (chains,) uniform numbers.
        """
        old = state.tokens.gather(1, sites)[:, 0]
        keys = row_keys(state, sites)
        questions = zip(keys, u.tolist(), old.tolist(), strict=True)
        answers = [self.answer(*question) for question in questions]
        missing = [row for row, answer in enumerate(answers) if answer is None]
        size = rows_at_once(4 * conditionals.vocab_size)
        for first in range(0, len(missing), size):
            some = torch.tensor(missing[first : first + size])
            scores = conditionals.scores(state.tokens[some], sites[some])[:, 0]
            drawn, head = draw_with_head(scores, state.temperature[some], u[some], old[some])
            self.store([keys[row] for row in some.tolist()], head, drawn.entropy.numpy())
            for row, *answer in zip(some.tolist(), *(x.tolist() for x in drawn), strict=True):
                answers[row] = (answer[0], answer[1], answer[2], answer[3])
        tokens, *figures = zip(*(answer for answer in answers if answer is not None), strict=True)
        columns = (torch.tensor(part, dtype=torch.float64)[:, None] for part in figures)
        return Drawn(torch.tensor(tokens)[:, None], *columns)


def entry_bytes(vocab_size: int, length: int) -> int:
    """Bytes that one entry takes, its key and its share of the index included."""
    head = min(HEAD, vocab_size) * (4 + 8 + 8) + 8
    key = 48 + 4 * (length + 2)  # a bytes object over the tokens and the temperature
    # A slot's number (32), its place in the list (10), its flag, and a dict while it grows, which
    # holds up to six index entries and six entries of 24 bytes for each key, the old dict included.
    return head + key + 32 + 10 + 1 + 6 * 4 + 6 * 24


class Asking(NamedTuple):
    chain: int
    column: int
    old: int  # the token at the hidden site
    chance: float = 1.0  # of being used


class Prefetched(NamedTuple):
    key: bytes
    old: int
    answer: Answer


Wanted = dict[bytes, Asking]  # by key


def run_memoised(
    kernel: Kernel,
    state: State,
    steps: int,
    *,
    seed: int | Tensor,
    memo: Memo | None = None,
    prefetch: int | None = None,
    lead: int | None = None,
) -> Iterator[tuple[State, Info]]:
    """Each of the next steps, as `run(kernel, state, steps, seed=seed)` makes them.

    memo      shared by all who ask the same conditionals (default: one of its own)
    prefetch  steps of a chain asked about beyond the next; by default as many as pay, 0 is none
    lead      steps that a chain may be ahead of the slowest one

    Kernels without a `lookup` go through `run`.
    """
    lookup = kernel.lookup
    if lookup is None:
        yield from run(kernel, state, steps, seed=seed)
        return
    if lead is not None and lead < 1:
        raise GlauberError(f"a lead of {lead} steps would let no chain move.")
    n_chains, length = state.tokens.shape
    if memo is None:
        memo = Memo(lookup.conditionals.vocab_size, length)
    seeds = torch.as_tensor(seed, device=state.step.device)
    lead = lead or max(16, min(LEAD, HELD // n_chains))
    scheduler = Scheduler(kernel, lookup, state, steps, seeds, memo, prefetch, lead)
    while scheduler.handed_out < steps:
        scheduler.draw_noise()
        wanted = scheduler.walk()
        if wanted:
            scheduler.ask(wanted)
        while scheduler.handed_out < min(scheduler.at):
            yield scheduler.hand_out()


class Scheduler:
    """Chains that advance on their own, and the steps made beyond those handed out."""

    def __init__(
        self,
        kernel: Kernel,
        lookup: Lookup,
        state: State,
        steps: int,
        seeds: Tensor,
        memo: Memo,
        prefetch: int | None,
        lead: int,
    ) -> None:
        n_chains, length = state.tokens.shape
        self.kernel, self.lookup, self.conditionals = kernel, lookup, lookup.conditionals
        self.begun, self.steps, self.seeds = state, steps, seeds
        self.is_forced = lookup.is_forced(state)
        self.memo, self.prefetch, self.lead = memo, prefetch, min(lead, max(steps, 1))
        self.device = state.tokens.device
        self.overhead = overhead(self.device)
        self.temperature = state.temperature.cpu().numpy()
        self.rows = np.empty((n_chains, length + 2), np.int32)  # a key with no site hidden
        self.rows[:, :-2] = state.tokens.cpu().numpy()
        self.rows[:, -2:] = self.temperature[:, None].view(np.int32)
        self.at = [0] * n_chains  # steps that each chain has made
        self.moving = [0.5] * n_chains
        self.sure = [0.5] * n_chains  # recent share of drawn guesses that were right
        self.ahead: list[dict[int, Prefetched]] = [{} for _ in range(n_chains)]  # by column
        self.handed_out = 0  # steps handed out
        self.horizon = 0  # steps whose noise is known
        self.tokens = state.tokens.cpu().numpy().copy()  # after the last step handed out
        self.sites = np.empty((n_chains, self.lead), np.int64)
        self.u = np.empty((n_chains, self.lead))
        self.new = np.empty((n_chains, self.lead), np.int64)
        self.figures = np.empty((n_chains, self.lead, 3))

    def draw_noise(self) -> None:
        """Draws the noise of further steps, where there is room for them."""
        some = max(1, min(self.lead // 4, DRAWN_AT_ONCE // self.tokens.size))
        while self.horizon < self.steps and self.horizon + some <= self.handed_out + self.lead:
            count = min(some, self.steps - self.horizon)
            now = self.begun._replace(step=self.begun.step + self.horizon)
            seeds, wide = later(self.seeds, now, count)
            noise = self.kernel.draw(seeds, wide)
            sites = self.lookup.sites(wide, noise)
            columns = np.arange(self.horizon, self.horizon + count) % self.lead
            self.sites[:, columns] = sites.view(count, -1).T.cpu().numpy()
            self.u[:, columns] = as_uniform(noise.fill[:, 0]).view(count, -1).T.cpu().numpy()
            self.horizon += count

    def walk(self) -> Wanted:
        """Moves every chain through its remembered steps: what the others ask for next.

        Of chains that ask for the same, the first is named; the others find it in the memo.
        """
        wanted: Wanted = {}
        for chain in range(len(self.at)):
            request = self._walk(chain)
            if request is not None:
                wanted.setdefault(*request)
        return wanted

    def _walk(self, chain: int) -> tuple[bytes, Asking] | None:
        row, sites = self.rows[chain], self.sites[chain]
        for step in range(self.at[chain], self.horizon):
            column = step % self.lead
            if sites[column] == PAD:
                self._skip(chain, column)
                continue
            key, old = _hidden(row, sites[column])
            answer = self._lookup(chain, column, key, old)
            if answer is None:
                return key, Asking(chain, column, old)
            self.memo.hits += 1
            self._make(chain, column, answer)
        return None

    def _lookup(self, chain: int, column: int, key: bytes, old: int) -> Answer | None:
        """What a step gives in that row, if it was drawn ahead, or the memo or the budget tells."""
        if self.is_forced(chain, key):
            return old, 0.0, 0.0, 0.0
        drawn = self.ahead[chain].get(column)
        if drawn is not None and drawn.key == key and drawn.old == old:
            return drawn.answer
        return self.memo.answer(key, self.u[chain, column], old)

    def _make(self, chain: int, column: int, answer: Answer) -> None:
        """Makes the next step of a chain: token, log_prob_old, log_prob_new, entropy."""
        site, token = self.sites[chain, column], answer[0]
        changed = bool(token != self.rows[chain, site])
        self.rows[chain, site] = token
        self.new[chain, column] = token
        self.figures[chain, column] = answer[1:]
        self.moving[chain] += RECENT * (changed - self.moving[chain])
        self.ahead[chain].pop(column, None)
        self.at[chain] += 1

    def _skip(self, chain: int, column: int) -> None:
        """Makes a step that redraws no site."""
        self.new[chain, column] = PAD
        self.figures[chain, column] = np.nan
        self.at[chain] += 1

    def ask(self, wanted: Wanted) -> None:
        """Evaluates what is wanted and what may be wanted soon; makes the steps."""
        self.memo.misses += len(wanted)
        requested = wanted | self._prefetch(wanted)
        keys, askings = list(requested), list(requested.values())
        question = self._question(keys, askings)
        size = rows_at_once(4 * self.conditionals.vocab_size, self.device)
        answers: list[Answer] = []
        for some in (slice(first, first + size) for first in range(0, len(keys), size)):
            answers += self._ask(keys[some], *(self._send(part[some]) for part in question))
        for key, (chain, column, old, _), answer in zip(keys, askings, answers, strict=True):
            if key in wanted:
                self._judge(chain, column, answer[0])
                self._make(chain, column, answer)
            else:
                self.ahead[chain][column] = Prefetched(key, old, answer)

    def _question(
        self, keys: list[bytes], askings: list[Asking]
    ) -> tuple[NDArray[np.generic], ...]:
        """Tokens, sites, temperature, u and old token of each row; no token is hidden."""
        chains, columns, old = (np.array(part) for part in list(zip(*askings, strict=True))[:3])
        sites = self.sites[chains, columns]
        rows = np.frombuffer(b"".join(keys), np.int32).reshape(len(keys), -1)
        tokens = rows[:, :-2].astype(np.int64)
        tokens[np.arange(len(keys)), sites] = old
        return tokens, sites[:, None], self.temperature[chains], self.u[chains, columns], old

    def _judge(self, chain: int, column: int, token: int) -> None:
        """Takes note of whether what was drawn ahead, in another row, was the right guess."""
        drawn = self.ahead[chain].get(column)
        if drawn is not None:
            self.sure[chain] += RECENT * ((drawn.answer[0] == token) - self.sure[chain])

    def _ask(self, keys: list[bytes], *question: Tensor) -> Iterable[Answer]:
        """One call: the draw of each row; the memo keeps their heads."""
        tokens, sites, temperature, u, old = question
        scores = self.conditionals.scores(tokens, sites)[:, 0]
        drawn, head = draw_with_head(scores, temperature, u, old)
        figures = [part.cpu() for part in drawn]
        self.memo.store(keys, Head(*(part.cpu() for part in head)), figures[3].numpy())
        return zip(*(part.tolist() for part in figures), strict=True)

    def _prefetch(self, wanted: Wanted) -> Wanted:
        """Rows of the same chains' next steps that are worth asking for now."""
        if self.prefetch == 0 or len(wanted) >= MOST:
            return {}
        offered: Wanted = {}
        for asking in wanted.values():
            offered = self._likely(asking.chain) | offered
        fresh = (item for item in offered.items() if item[0] not in wanted)
        best = sorted(fresh, key=lambda item: -item[1].chance)
        count = worthwhile(len(wanted), [asking.chance for _, asking in best], self.overhead)
        return dict(best[:count])

    def _likely(self, chain: int) -> Wanted:
        """Rows of a chain's next steps if every guess is right, while that is likely enough."""
        row, likely = self.rows[chain].copy(), Wanted()
        at, most = self.at[chain], MOST if self.prefetch is None else self.prefetch
        chance = 1.0
        for step in range(at, min(at + most + 1, self.horizon)):
            column = step % self.lead
            site = self.sites[chain, column]
            if site == PAD:
                continue
            if step > at:
                key, old = _hidden(row, site)
                answer = self._lookup(chain, column, key, old)
                if answer is not None:
                    row[site] = answer[0]
                    continue
                likely.setdefault(key, Asking(chain, column, old, chance))
            drawn = self.ahead[chain].get(column)
            if drawn is not None:
                row[site] = drawn.answer[0]
            if self.prefetch is None:
                chance *= 1.0 - self.moving[chain] if drawn is None else self.sure[chain]
                if chance < LEAST:
                    break
        return likely

    def _send(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def hand_out(self) -> tuple[State, Info]:
        """The next step that every chain has made."""
        column = self.handed_out % self.lead
        sites, new = self.sites[:, column].copy(), self.new[:, column].copy()
        redrawn = sites != PAD
        rows = redrawn.nonzero()[0]
        changed = np.zeros_like(redrawn)
        changed[rows] = self.tokens[rows, sites[rows]] != new[rows]
        self.tokens[rows, sites[rows]] = new[rows]
        self.handed_out += 1
        columns = (sites, new, changed, *self.figures[:, column].T.copy(), redrawn)
        info = Info(*(self._send(part[:, None]) for part in columns))
        state = self.begun._replace(
            tokens=self._send(self.tokens.copy()), step=self.begun.step + self.handed_out
        )
        return state, info


def _hidden(row: NDArray[np.int32], site: int) -> tuple[bytes, int]:
    """The key of a row with that site hidden, and the token at it."""
    old = int(row[site])
    row[site] = HIDDEN
    key = row.tobytes()
    row[site] = old
    return key, old


def overhead(device: torch.device) -> float:
    """What a call costs besides its rows, in rows.

    On one core and the bundled model at 20 tokens, calls of 1, 2, 4, 8 and 16 rows take 17.6, 21,
    28, 40 and 71 ms: about four rows and the rows. On a GPU a few rows cost as much as one.
    """
    return 8.0 * MOST if device.type == "cuda" else 4.0 * torch.get_num_threads()


def worthwhile(needed: int, offered: list[float], cost: float) -> int:
    """How many of the offered rows (chances, decreasing) to ask for with the needed ones.

    Batches end at powers of two, which is how calls on a CPU are cut.
    """
    if needed >= MOST:
        return 0
    useful, best, chosen = float(needed), needed / (cost + _whole(needed)), 0
    for added, chance in enumerate(offered[: MOST - needed], start=1):
        useful += chance
        value = useful / (cost + _whole(needed + added))
        if value > best:
            best, chosen = value, added
    return chosen


def _whole(rows: int) -> int:
    """The next power of two."""
    return 1 << (rows - 1).bit_length()
