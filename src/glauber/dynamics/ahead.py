"""How are the same steps made with fewer passes through the model?

Chains advance on their own. A chain runs through the steps whose conditional is remembered and
joins the next batch with the first one that is not, so every row that reaches the model is new
work. All noise is keyed by (seed, chain, step) and a row's scores do not depend on its batch, so
the steps are those of `run`, to the bit where a row's scores are (on a CPU).
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.dynamics.fills import Fill, draw_with_head, inverse_cdf
from glauber.dynamics.glauber import SCORES, Within, glauber
from glauber.dynamics.kernel import Info, Kernel, State
from glauber.dynamics.lookahead import chances, overhead, worthwhile
from glauber.dynamics.memo import HIDDEN, Memo
from glauber.dynamics.noise import uniform as as_uniform
from glauber.dynamics.run import later, run
from glauber.dynamics.scans import Scan, uniform
from glauber.errors import GlauberError

LEAD = 1024  # steps that a chain may be ahead of the slowest one
HELD = 2**20  # chain steps held in all, so that many chains have a smaller lead
RECENT = 0.05  # weight of the last step in a chain's share of steps that changed a token


def remembers(scan: Scan, fill: Fill) -> bool:
    """Whether such steps can be made from a memo: one site a step, chosen without the model."""
    return scan.name in ("uniform", "sweep") and fill.name == "inverse-cdf"


def ahead(
    conditionals: Conditionals,
    state: State,
    steps: int,
    *,
    seed: int | Tensor,
    memo: Memo | None = None,
    scan: Scan | None = None,
    fill: Fill | None = None,
    within: Within = "sequential",
    lookahead: int | None = None,
    lead: int | None = None,
) -> Iterator[tuple[State, Info]]:
    """Each of the next steps, as `run(glauber(conditionals, …), state, steps, seed=seed)`.

    memo        shared by all who ask the same conditionals (default: one of its own)
    lookahead   steps of a chain asked about beyond the next; by default as many as pay, 0 is none
    lead        steps that a chain may be ahead of the slowest one

    Kernels that cannot be remembered go through `run`.
    """
    scan, fill = scan or uniform(), fill or inverse_cdf()
    kernel = glauber(conditionals, scan=scan, fill=fill, within=within)
    n_chains, length = state.tokens.shape
    if not remembers(scan, fill):
        yield from run(kernel, state, steps, seed=seed)
        return
    if lead is not None and lead < 1:
        raise GlauberError(f"a lead of {lead} steps would let no chain move.")
    crew = _Crew(
        conditionals,
        state,
        steps,
        kernel=kernel,
        scan=scan,
        seeds=torch.as_tensor(seed, device=state.step.device),
        memo=Memo(conditionals.vocab_size, length) if memo is None else memo,
        lookahead=lookahead,
        lead=lead or max(16, min(LEAD, HELD // n_chains)),
    )
    while crew.shown < steps:
        crew.look_further()
        wanted = crew.walk()
        if wanted:
            crew.ask(wanted)
        while crew.shown < min(crew.at):
            yield crew.show()


class _Crew:
    """Chains that advance on their own, and the steps they have made beyond the ones shown.

    Step t (counted from 0 for every chain) is held in column t mod lead until it is shown.
    """

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
        n_chains, self.length = state.tokens.shape
        self.conditionals, self.begun, self.steps = conditionals, state, steps
        self.kernel, self.scan, self.seeds = kernel, scan, seeds
        self.memo, self.lookahead, self.lead = memo, lookahead, min(lead, max(steps, 1))
        self.device = state.tokens.device
        self.overhead = overhead(self.device)
        self.heat = state.temperature.cpu().numpy()
        self.rows = np.empty((n_chains, self.length + 2), np.int32)  # a key with no site hidden
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
        some = max(1, self.lead // 4)
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

    def walk(self) -> dict[bytes, tuple[int, int]]:
        """Moves every chain through its remembered steps: what the others ask for next.

        A key, and the chain and column that ask for it. Of chains that ask for the same, the
        first is named; the others find the answer in the memo.
        """
        wanted: dict[bytes, tuple[int, int]] = {}
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

    def _make(self, chain: int, column: int, answer: tuple[int, float, float, float]) -> None:
        """Makes the next step of a chain: token, log_prob_old, log_prob_new, entropy."""
        site, token = self.sites[chain, column], answer[0]
        changed = token != self.rows[chain, site]
        self.rows[chain, site] = token
        self.new[chain, column] = token
        self.figures[chain, column] = answer[1:]
        self.moving[chain] += RECENT * (changed - self.moving[chain])
        self.at[chain] += 1

    def ask(self, wanted: dict[bytes, tuple[int, int]]) -> None:
        """Asks the model for what is wanted and for what may be wanted soon; makes the steps."""
        self.memo.misses += len(wanted)
        asked = wanted | self._soon(wanted)
        size = max(1, SCORES // self.conditionals.vocab_size)
        for first in range(0, len(asked), size):
            keys = list(asked)[first : first + size]
            self._ask(keys, [asked[key] for key in keys], min(size, len(wanted) - first))

    def _ask(self, keys: list[bytes], asked: list[tuple[int, int]], needed: int) -> None:
        """One call: the first `needed` of the rows are steps to make."""
        chains, columns = (np.array(part) for part in zip(*asked, strict=True))
        sites, u = self.sites[chains, columns], self.u[chains, columns]
        old = self.rows[chains, sites].astype(np.int64)
        tokens = self.rows[chains, :-2].astype(np.int64)
        scores = self.conditionals.scores(self._send(tokens), self._send(sites[:, None]))[:, 0]
        drawn, head = draw_with_head(
            scores, self._send(self.heat[chains]), self._send(u), self._send(old)
        )
        figures = [part.cpu().numpy() for part in drawn]
        self.memo.store(keys, type(head)(*(part.cpu() for part in head)), figures[3])
        answers = zip(*(part[:needed].tolist() for part in figures), strict=True)
        for (chain, column), answer in zip(asked, answers, strict=False):
            self._make(chain, column, answer)

    def _soon(self, wanted: dict[bytes, tuple[int, int]]) -> dict[bytes, tuple[int, int]]:
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
