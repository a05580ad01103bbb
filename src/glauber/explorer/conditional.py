"""How sure is the model of one token, and what else could stand there?

Shared by stored runs and living chains. A page counts sites in the shown text: site 0 is the first
token behind the special ones, a prefix included. A model counts positions in the row of tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.conditionals.base import PAD, Conditionals
from glauber.conditionals.batching import in_parts
from glauber.errors import GlauberError
from glauber.metastability.holding import as_numbers, margins_from
from glauber.progress import check_count
from glauber.result import plain
from glauber.runs.run import text_span

TOP = 20  # tokens that are listed


@dataclass(frozen=True)
class Shown:
    """Which positions of a row of tokens a page shows: first <= position < last."""

    first: int
    last: int

    @classmethod
    def of(cls, vocabulary: Any, tokens: Any, free: Any) -> "Shown":
        """Of a chain that begins at tokens (length,) with free sites (length,) bool."""
        return cls(*text_span(_text(vocabulary), np.asarray(tokens), np.asarray(free)))

    def __len__(self) -> int:
        return self.last - self.first

    def position(self, site: int) -> int:
        """The position of a shown site."""
        check_count("site", site, least=0, most=10**12)
        if site >= len(self):
            raise GlauberError(f"there is no site {site}: the text has sites 0 to {len(self) - 1}.")
        return self.first + site

    def site(self, position: int) -> int:
        """The shown site at a position."""
        return position - self.first

    @property
    def positions(self) -> list[int]:
        """The positions of all shown sites."""
        return list(range(self.first, self.last))


def words(vocabulary: Any, tokens: Sequence[int]) -> dict[str, str]:
    """Each token's spelling as a text shows it, with a blank before where a word begins."""
    listed = [int(token) for token in tokens if token != PAD]
    return dict(zip(map(str, listed), _text(vocabulary).parts(listed), strict=True))


def _text(vocabulary: Any) -> Any:
    """What spells tokens: a run's own `Text`, or that of a model's vocabulary."""
    return getattr(vocabulary, "text", vocabulary)


def conditional_at(
    conditionals: Conditionals,
    vocabulary: Any,
    tokens: Any,
    position: int,
    temperature: float,
    *,
    whole: bool = False,
) -> dict[str, Any]:
    """The conditional at one position of tokens (length,), as a page shows it.

    Probabilities, entropy (nats) and holding are at that temperature. margin is the gap in score
    to the best other token, before the temperature; holding counts redraws of this site until it
    changes, 1 / (1 - p). whole adds the probabilities of the vocabulary, 0 where a token may not
    be proposed.
    """
    row = torch.as_tensor(tokens)
    site = torch.tensor([position], device=row.device)
    with torch.no_grad():
        asked = conditionals.scores(row[None], site[None])[0]  # (1, vocab)
    log_probs = torch.log_softmax(asked[0].double() / temperature, dim=-1).cpu()
    probs, token = log_probs.exp(), int(row[position])
    top = torch.topk(log_probs, min(TOP, int((asked > -torch.inf).sum()))).indices.tolist()
    spelled = words(vocabulary, [token, *top])
    kind = "exact" if asked.dtype == torch.float64 else "estimate"
    found = {
        "token": token,
        "text": spelled[str(token)],
        "temperature": temperature,
        "top": [
            {
                "token": one,
                "text": spelled[str(one)],
                "probability": float(probs[one]),
                "log_prob": plain(float(log_probs[one])),
            }
            for one in top
        ],
        "rest": max(0.0, 1.0 - float(probs[top].sum())),
        "n_tokens": int((asked > -torch.inf).sum()),
        "entropy": float(torch.special.entr(probs).sum()),
        "kind": kind,
        **_held(asked, row, site, temperature, kind),
    }
    return found | ({"probabilities": probs.tolist()} if whole else {})


def _held(
    asked: Tensor, row: Tensor, site: Tensor, temperature: float, kind: str
) -> dict[str, Any]:
    """Margin and holding of the token that stands there; none for one that is never drawn."""
    if bool(asked[0, row[site]] == -torch.inf):
        none = {"steps": None, "log10": None, "kind": kind}
        return {"margin": None, "holding": none, "note": "This token may never be proposed."}
    found = margins_from(asked, row, site, temperature=temperature)
    held, dtype = as_numbers(-float(found.log_leaving[0])), found.dtype
    return {
        "margin": plain(found.margin),
        "holding": {"steps": held["value"], "log10": held["log10"], "kind": kind},
        "note": f"Redraws of this site are counted, in expectation; scores are in {dtype}.",
    }


def sure_at(
    conditionals: Conditionals, tokens: Any, positions: Sequence[int], temperature: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-probability of the present token and entropy (positions,), each site hidden alone.

    NaN for a token that may never be proposed, such as a mask.
    """
    row = torch.as_tensor(tokens)
    found: list[Tensor] = []
    sites = torch.as_tensor(list(positions), dtype=torch.int64, device=row.device)
    for part in in_parts(sites, 3 * conditionals.vocab_size):
        with torch.no_grad():
            scores = conditionals.scores(row.repeat(len(part), 1), part[:, None])[:, 0].double()
        log_probs = torch.log_softmax(scores / temperature, dim=-1)
        own = log_probs.gather(1, row[part, None])[:, 0]
        own = own.masked_fill(own == -torch.inf, torch.nan)
        found.append(torch.stack([own, torch.special.entr(log_probs.exp()).sum(1)]).cpu())
    joined = torch.cat(found, dim=1).numpy() if found else np.empty((2, 0))
    return joined[0], joined[1]
