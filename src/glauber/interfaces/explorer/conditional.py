"""How sure the model is of one token, and what else could be there.

Shared by stored runs and live chains. A page counts sites in the shown text: site 0 is the first
token after the special ones, a prefix included. A model counts positions in the row of tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.foundation.errors import GlauberError
from glauber.foundation.progress import check_count
from glauber.foundation.study import plain
from glauber.interfaces.explorer.questions import Answer
from glauber.models.base import PAD, Conditionals
from glauber.models.batching import in_parts
from glauber.models.vocabulary import Text, Vocabulary
from glauber.runs.film import column
from glauber.runs.run import text_span
from glauber.studies.metastability.margins import log_to_json, margins_from

TOP = 20  # tokens that are listed


class Shown(NamedTuple):
    """Which positions of a row of tokens a page shows: first <= position < last."""

    first: int
    last: int

    @classmethod
    def of(
        cls, vocabulary: Text | Vocabulary, tokens: NDArray[np.int64], free: NDArray[np.bool_]
    ) -> "Shown":
        """Of a chain that begins at tokens (length,) with free sites (length,)."""
        return cls(*text_span(_text(vocabulary), np.asarray(tokens), np.asarray(free)))

    @property
    def positions(self) -> range:
        """The positions of all shown sites."""
        return range(self.first, self.last)

    def position(self, site: int) -> int:
        """The position of a shown site."""
        check_count("site", site, least=0, most=10**12)
        if site >= len(self.positions):
            raise GlauberError(
                f"there is no site {site}: the text has sites 0 to {len(self.positions) - 1}."
            )
        return self.first + site


class Moment(NamedTuple):
    """A chain after a step, and what it draws from."""

    conditionals: Conditionals
    vocabulary: Text
    tokens: Tensor  # (length,)
    free: NDArray[np.bool_]  # (length,)
    shown: Shown
    temperature: float
    notes: Sequence[str] = ()


class Source(ABC):
    """Chains that a page shows; each method answers one question (`film`, `curves` and these)."""

    @abstractmethod
    def moment(self, source: object, chain: int, step: int) -> AbstractContextManager[Moment]:
        """A chain after a step, while nobody else uses the model."""

    def conditional(
        self, source: object, chain: int, step: int, site: int, whole: bool = False
    ) -> Answer:
        """The conditional at a site of a chain after a step."""
        with self.moment(source, chain, step) as now:
            position = now.shown.position(site)
            answer = conditional_at(
                now.conditionals,
                now.vocabulary,
                now.tokens,
                position,
                now.temperature,
                whole=whole,
            )
        note = " ".join([answer["note"], *now.notes])
        return {"site": site, "frozen": not now.free[position], **answer, "note": note}

    def sure(self, source: object, chain: int, step: int) -> Answer:
        """How sure the model is of every shown token of a chain after a step."""
        with self.moment(source, chain, step) as now:
            log_prob, entropy = sure_at(
                now.conditionals, now.tokens, now.shown.positions, now.temperature
            )
        return {"log_prob": column(log_prob), "entropy": column(entropy)}


def words(vocabulary: Text | Vocabulary, tokens: Sequence[int]) -> dict[str, str]:
    """Each token's spelling as a text shows it, with a blank before where a word begins."""
    listed = [int(token) for token in tokens if token != PAD]
    return dict(zip(map(str, listed), _text(vocabulary).parts(listed), strict=True))


def _text(vocabulary: Text | Vocabulary) -> Text:
    """What spells tokens: a run's own `Text`, or that of a model's vocabulary."""
    return vocabulary.text if isinstance(vocabulary, Vocabulary) else vocabulary


def conditional_at(
    conditionals: Conditionals,
    vocabulary: Text | Vocabulary,
    tokens: Tensor,
    position: int,
    temperature: float,
    *,
    whole: bool = False,
) -> Answer:
    """The conditional at one position of tokens (length,), as a page shows it.

    Probabilities, entropy (nats) and holding are at that temperature. margin is the difference in
    score to the best other token, before the temperature; holding counts redraws of this site until
    it changes, 1 / (1 - p). whole adds the probabilities of the vocabulary, 0 where a token may not
    be proposed.
    """
    site = torch.tensor([position], device=tokens.device)
    with torch.no_grad():
        scores = conditionals.scores(tokens[None], site[None])[0]  # (1, vocab)
    log_probs = torch.log_softmax(scores[0].double() / temperature, dim=-1).cpu()
    probs, token = log_probs.exp(), int(tokens[position])
    n_tokens = int((scores > -torch.inf).sum())
    top = torch.topk(log_probs, min(TOP, n_tokens)).indices.tolist()
    spellings = words(vocabulary, [token, *top])
    answer: Answer = {
        "token": token,
        "text": spellings[str(token)],
        "temperature": temperature,
        "top": [
            {
                "token": likely,
                "text": spellings[str(likely)],
                "probability": float(probs[likely]),
                "log_prob": plain(float(log_probs[likely])),
            }
            for likely in top
        ],
        "rest": max(0.0, 1.0 - float(probs[top].sum())),
        "n_tokens": n_tokens,
        "entropy": float(torch.special.entr(probs).sum()),
        "kind": "exact" if scores.dtype == torch.float64 else "estimate",
        "margin": None,
        "holding": {"steps": None, "log10": None},
        "note": "This token may never be proposed.",
    }
    if bool(scores[0, token] > -torch.inf):
        margins = margins_from(scores, tokens, site, temperature=temperature)
        steps = plain(log_to_json(-float(margins.log_leaving[0]), answer["kind"]))
        answer["margin"] = plain(margins.margin)
        answer["holding"] = {"steps": steps["value"], "log10": steps["log10"]}
        answer["note"] = (
            f"Redraws of this site are counted, in expectation; scores are in {margins.dtype}."
        )
    answer["holding"]["kind"] = answer["kind"]
    return answer | ({"probabilities": probs.tolist()} if whole else {})


def sure_at(
    conditionals: Conditionals, tokens: Tensor, positions: Sequence[int], temperature: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-probability of the present token and entropy (positions,), each site hidden alone.

    NaN for a token that may never be proposed, such as a mask.
    """
    columns = [torch.empty((2, 0))]
    sites = torch.as_tensor(list(positions), dtype=torch.int64, device=tokens.device)
    for part in in_parts(sites, 3 * conditionals.vocab_size):
        with torch.no_grad():
            rows = tokens.repeat(len(part), 1)
            scores = conditionals.scores(rows, part[:, None])[:, 0].double()
        log_probs = torch.log_softmax(scores / temperature, dim=-1)
        own = log_probs.gather(1, tokens[part, None])[:, 0]
        own = own.masked_fill(own == -torch.inf, torch.nan)
        columns.append(torch.stack([own, torch.special.entr(log_probs.exp()).sum(1)]).cpu())
    log_prob, entropy = torch.cat(columns, dim=1).numpy()
    return log_prob, entropy
