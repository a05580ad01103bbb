"""Does a text full of one token hold on to it? The drift at sampled states of each level."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from glauber.conditionals.base import Model, check_temperature
from glauber.conditionals.load import load
from glauber.conditionals.starts import starts
from glauber.errors import GlauberError
from glauber.json_text import Record
from glauber.metastability.token_basin import DriftCertificate, LevelDrift, drift_study
from glauber.parameters import Device, Dtype, ModelOrName, Seed, Temperature, Texts, Trust
from glauber.progress import check_count, check_memory, check_seed, say
from glauber.result import Result, model_parts, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

MOST = 10**6  # samples of a level
STEPS = 10**7  # of the chain for the other sites


@study
def drift(
    model: ModelOrName = "bundled:english",
    texts: Texts = None,
    *,
    token: Annotated[str, "The token whose copies are counted."],
    count: Annotated[int, "Copies at the boundary of the basin, k."],
    levels: Annotated[int, "Levels above the boundary, m."] = 2,
    samples: Annotated[int, "States sampled at each level."] = 200,
    length: Annotated[int, "Tokens of a state, without special ones."] = 20,
    temperature: Temperature = 1.0,
    settle: Annotated[int, "Steps of the chain for the other sites (0: as in the texts)."] = 0,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: Trust = False,
) -> "DriftStudy":
    """Sample the drift of a token's copies at levels k to k+m, and say what it certifies.

    D(x) = 1/n sum_i (pi_i(w given the rest) - 1[x_i = w]) at states with exactly so many copies at
    random sites, the others from texts (paper A, table 2). If D is at least epsilon > 0 at every
    state of the levels, a chain comes down from k+m to k before it climbs above k+m with chance at
    most ((1 - epsilon) / (1 + epsilon))^m; from samples this is an estimate.
    """
    _check_numbers(count, levels, samples, length, settle)
    check_seed(seed)
    check_temperature(temperature)
    check_memory(64 * samples * length, f"{samples:,} states of {length} tokens")
    opened = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, exact=True
    )
    number = _token_named(opened, token)
    rows, free = (part.to(opened.state_device) for part in starts(opened, texts, length=length))
    say(
        f"{samples * (levels + 1):,} states of {length} tokens: "
        f"{samples * (levels + 1) * length:,} rows through the model"
        + (f", and {settle:,} steps of {samples:,} chains a level" if settle else "")
    )
    found = drift_study(
        opened.conditionals(),
        rows,
        free[0],
        token=number,
        counts=range(count, count + levels + 1),
        samples=samples,
        temperature=temperature,
        n_steps=settle,
        seed=seed,
    )
    made = signature(
        **model_parts(opened), token=token, length=length, temperature=float(temperature),
        samples=samples, settle=settle, seed=seed,
    )  # fmt: skip
    return DriftStudy(
        **vars(found), token=token, length=length, temperature=float(temperature),
        settle=settle, seed=seed, name=opened.name, signature=made,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class DriftStudy(DriftCertificate, Result):
    """The drift of one token's copies, level by level, and what it certifies."""

    token: str
    length: int
    temperature: float
    settle: int
    seed: int
    name: str  # of the model
    signature: str

    @property
    def samples(self) -> int:
        """States at each level."""
        return len(self.levels[0].drifts)

    @property
    def others(self) -> str:
        """Where the tokens at the other sites come from."""
        return f"{self.settle} chain steps from texts" if self.settle else "texts"

    def to_dict(self) -> Record:
        parts = ("token", "length", "temperature", "samples", "others", "seed")
        certificate = ("epsilon", "descent", "share", "confidence", "kind")
        return {
            "model": self.name,
            **{name: getattr(self, name) for name in parts},
            "levels": [self._level(level) for level in self.levels],
            "certificate": plain({name: getattr(self, name) for name in certificate}),
            "signature": self.signature,
        }

    def _level(self, level: LevelDrift) -> Record:
        share = {
            "value": level.positive_share(self.confidence),
            "kind": "lower bound",
            "confidence": self.confidence,
        }
        found = {name: getattr(level, name) for name in ("count", "smallest", "median", "positive")}
        return found | {"positive_share": share, "kind": "estimate"}

    def lines(self) -> Iterable[str]:
        yield (
            f"drift of the copies of {self.token!r} among {self.length} tokens at temperature "
            f"{self.temperature:g}; {self.samples} states a level, other sites from {self.others}"
        )
        yield " copies  smallest   median  positive (estimates; the first row is the boundary)"
        for level in self.levels:
            share = level.positive_share(self.confidence)
            yield (
                f"{level.count:>7}  {level.smallest:8.4f} {level.median:8.4f}  "
                f"{level.positive} of {self.samples}: at least {share:.1%} of the sampled law "
                f"(lower bound, at {self.confidence:.0%})"
            )
        yield self.verdict

    @property
    def verdict(self) -> str:
        """What the drift certifies, in one sentence."""
        first, last = self.levels[0].count, self.levels[-1].count
        if self.descent is None:
            falling = [str(level.count) for level in self.levels if level.smallest <= 0]
            return (
                f"no certificate: some sampled states with {', '.join(falling)} copies have a "
                "drift that is not positive, and one is enough"
            )
        return (
            f"from {last} copies down to {first} before climbing above {last}: chance at most "
            f"{self.descent:.4g} ({self.kind}: a bound if the drift is at least "
            f"{self.epsilon:.4g} at every state of these levels; it is for at least "
            f"{self.share:.1%} of the sampled law of each, at {self.confidence:.0%} together)"
        )

    def frame(self) -> "pandas.DataFrame":
        """One row per sampled state."""
        import pandas

        return pandas.DataFrame(
            {
                "copies": np.repeat([level.count for level in self.levels], self.samples),
                "drift": np.concatenate([level.drifts for level in self.levels]),
            }
        )

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.metastability import plot_drift

        return {"levels": plot_drift(self)}


def _check_numbers(count: int, levels: int, samples: int, length: int, settle: int) -> None:
    """Refuses impossible numbers before a model is loaded."""
    check_count("number of samples", samples, most=MOST)
    check_count("length", length, most=MOST)
    check_count("count", count)
    check_count("number of levels", levels, least=0)
    check_count("number of steps", settle, least=0, most=STEPS)
    if count > length:
        raise GlauberError(
            f"the count is {count}, but a text of {length} tokens holds 1 to {length} copies."
        )
    if count + levels > length:
        raise GlauberError(
            f"there are {levels} levels above {count}, but a text of {length} tokens has "
            f"{length - count}."
        )


def _token_named(model: Model, name: str) -> int:
    """The token that is spelled so, by itself or as the vocabulary writes it."""
    vocabulary = model.vocabulary
    if not isinstance(name, str):
        raise GlauberError(f"the token is {name!r:.60}, but it must be a text.")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise GlauberError(f"the token {name!a} is not UTF-8 text.") from None
    pieces = vocabulary.tokenizer(name, add_special_tokens=False)["input_ids"]
    known = vocabulary.tokenizer.get_vocab()
    token = known.get(name, pieces[0] if len(pieces) == 1 else None)
    if token is None or not bool(vocabulary.proposable()[token]):
        raise GlauberError(
            f"{name!r} is not a single token of the vocabulary of {model.name} that may be drawn."
        )
    return int(token)
