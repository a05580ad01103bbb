"""How are the same steps made with fewer passes through the model?

Chains advance on their own. A chain runs through the steps whose conditional is remembered and
joins the next batch with the first one that is not, so every row that reaches the model is new
work. All noise is keyed by (seed, chain, step) and a row's scores do not depend on its batch, so
the steps are those of `run`, to the bit where a row's scores are (on a CPU).
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from glauber.conditionals.base import Conditionals
from glauber.dynamics.crew import Crew
from glauber.dynamics.fills import Fill, inverse_cdf
from glauber.dynamics.glauber import Within, glauber
from glauber.dynamics.kernel import Info, State
from glauber.dynamics.memo import Memo
from glauber.dynamics.run import run
from glauber.dynamics.scans import Scan, uniform
from glauber.errors import GlauberError

LEAD = 1024  # steps that a chain may be ahead of the slowest one
HELD = 2**20  # chain steps held in all, so that many chains have a smaller lead


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
    crew = Crew(
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
