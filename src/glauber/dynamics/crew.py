"""How do chains that advance on their own keep track of their steps?

Each has made its own number of steps. What it has made beyond the steps shown is held in a ring of
`lead` columns: step t, counted from 0 for every chain, is held in column t mod lead.
"""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.dynamics.fills import Head, draw_with_head
from glauber.dynamics.glauber import SCORES
from glauber.dynamics.kernel import Info, Kernel, State
from glauber.dynamics.lookahead import chances, overhead, worthwhile
from glauber.dynamics.memo import HIDDEN, Answer, Memo
from glauber.dynamics.noise import uniform as as_uniform
from glauber.dynamics.run import AHEAD, later
from glauber.dynamics.scans import Scan

RECENT = 0.05  # weight of the last step in a chain's share of steps that changed a token

Wanted = dict[bytes, tuple[int, int]]  # a key, and the chain and column that ask for it


class Crew:
    """Chains that advance on their own, and the steps they have made beyond the ones shown."""

    def __init__(
        self,
        conditionals: Conditionals,
        state: State,
        steps: int,
        *,
        kernel: Kernel,
        scan: Scan,
        seeds: Tensor,
        memo: Memo,
        lookahead: int | None,
        lead: int,
    ) -> None:
        n_chains, length = state.tokens.shape
        self.conditionals, self.begun, self.steps = conditionals, state, steps
        self.kernel, self.scan, self.seeds = kernel, scan, seeds
        self.memo, self.lookahead, self.lead = memo, lookahead, min(lead, max(steps, 1))
        self.device = state.tokens.device
        self.overhead = overhead(self.device)
        self.heat = state.temperature.cpu().numpy()
        self.rows = np.empty((n_chains, length + 2), np.int32)  # a key with no site hidden
        self.rows[:, :-2] = state.tokens.cpu().numpy()
        self.rows[:, -2:] = self.heat[:, None].view(np.int32)
        self.at = [0] * n_chains  # steps that each chain has made
        self.moving = [0.5] * n_chains
        self.shown = 0  # steps shown
        self.horizon = 0  # steps whose noise is known
        self.tokens = state.tokens.cpu().numpy().copy()  # after the last step shown
        self.sites = np.empty((n_chains, self.lead), np.int64)
        self.u = np.empty((n_chains, self.lead))
        self.new = np.empty((n_chains, self.lead), np.int64)
        self.figures = np.empty((n_chains, self.lead, 3))

    def look_further(self) -> None:
        """Draws the noise of further steps, where there is room for them."""
        some = max(1, min(self.lead // 4, AHEAD // self.tokens.size))
        while self.horizon < self.steps and self.horizon + some <= self.shown + self.lead:
            count = min(some, self.steps - self.horizon)
            now = self.begun._replace(step=self.begun.step + self.horizon)
            seeds, wide = later(self.seeds, now, count)
            noise = self.kernel.draw(seeds, wide)
            sites = self.scan.choose(self.conditionals, wide, noise.order)
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
            key = self._walk(chain)
            if key is not None:
                wanted.setdefault(key, (chain, self.at[chain] % self.lead))
        return wanted

    def _walk(self, chain: int) -> bytes | None:
        row, sites, u = self.rows[chain], self.sites[chain], self.u[chain]
        answer_of = self.memo.answer
        for step in range(self.at[chain], self.horizon):
            column = step % self.lead
            site = sites[column]
            old = row[site]
            row[site] = HIDDEN
            key = row.tobytes()
            answer = answer_of(key, u[column], old)
            row[site] = old
            if answer is None:
                return key
            self.memo.hits += 1
            self._make(chain, column, answer)
        return None

    def _make(self, chain: int, column: int, answer: Answer) -> None:
        """Makes the next step of a chain: token, log_prob_old, log_prob_new, entropy."""
        site, token = self.sites[chain, column], answer[0]
        changed = bool(token != self.rows[chain, site])
        self.rows[chain, site] = token
        self.new[chain, column] = token
        self.figures[chain, column] = answer[1:]
        self.moving[chain] += RECENT * (changed - self.moving[chain])
        self.at[chain] += 1

    def ask(self, wanted: Wanted) -> None:
        """Asks the model for what is wanted and for what may be wanted soon; makes the steps."""
        self.memo.misses += len(wanted)
        asked = wanted | self._soon(wanted)
        keys = list(asked)
        chains, columns = (np.array(part) for part in zip(*asked.values(), strict=True))
        sites = self.sites[chains, columns]
        question = (
            self.rows[chains, :-2].astype(np.int64),
            sites[:, None],
            self.heat[chains],
            self.u[chains, columns],
            self.rows[chains, sites].astype(np.int64),
        )
        size = max(1, SCORES // self.conditionals.vocab_size)
        for some in (slice(first, first + size) for first in range(0, len(keys), size)):
            answers = self._ask(keys[some], *(self._send(part[some]) for part in question))
            for spot, answer in zip(list(wanted.values())[some], answers, strict=False):
                self._make(*spot, answer)

    def _ask(
        self,
        keys: list[bytes],
        tokens: Tensor,
        sites: Tensor,
        temperature: Tensor,
        u: Tensor,
        old: Tensor,
    ) -> Iterable[Answer]:
        """One call: the draw of each row; the memo keeps their heads."""
        scores = self.conditionals.scores(tokens, sites)[:, 0]
        drawn, head = draw_with_head(scores, temperature, u, old)
        figures = [part.cpu() for part in drawn]
        self.memo.store(keys, Head(*(part.cpu() for part in head)), figures[3].numpy())
        return zip(*(part.tolist() for part in figures), strict=True)

    def _soon(self, wanted: Wanted) -> Wanted:
        """Rows of the same chains' next steps that are worth asking for now."""
        if self.lookahead == 0:
            return {}
        offered: dict[bytes, tuple[float, int, int]] = {}
        for chain, _ in wanted.values():
            row = self.rows[chain].copy()
            likely = chances(self.moving[chain], self.lookahead)
            beyond = range(self.at[chain] + 1, self.horizon)
            for step, chance in zip(beyond, likely, strict=False):
                site = self.sites[chain, step % self.lead]
                old, row[site] = row[site], HIDDEN
                key = row.tobytes()
                row[site] = old
                if key not in wanted and key not in offered and key not in self.memo:
                    offered[key] = (chance, chain, step % self.lead)
        best = sorted(offered.items(), key=lambda item: -item[1][0])
        count = worthwhile(len(wanted), [chance for _, (chance, _, _) in best], self.overhead)
        return {key: (chain, column) for key, (_, chain, column) in best[:count]}

    def _send(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def show(self) -> tuple[State, Info]:
        """The next step that every chain has made."""
        column = self.shown % self.lead
        every = np.arange(len(self.at))
        sites, new = self.sites[:, column].copy(), self.new[:, column].copy()
        changed = self.tokens[every, sites] != new
        self.tokens[every, sites] = new
        self.shown += 1
        parts = (sites, new, changed, *self.figures[:, column].T.copy())
        info = Info(*(self._send(part[:, None]) for part in parts))
        state = self.begun._replace(
            tokens=self._send(self.tokens.copy()), step=self.begun.step + self.shown
        )
        return state, info
