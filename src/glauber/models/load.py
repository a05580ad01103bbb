"""`load`: a name, a folder or an object becomes a model that every study can use."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from glauber.foundation.call import record_model
from glauber.foundation.errors import GlauberError
from glauber.foundation.study import one_of
from glauber.models.base import Conditionals, Model
from glauber.models.base_model import BaseModel
from glauber.models.shelf import (
    FAMILIES,
    INVERSE_FOLDING,
    Options,
    bundled_folder,
    check_fetched,
)
from glauber.models.weights import (
    SPLIT,
    check_exact,
    choose_device,
    choose_devices,
    choose_dtype,
    join_name,
    kind_of,
    reachable,
    split_name,
)

if TYPE_CHECKING:
    from glauber.models.causal_lm import CausalLM

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
        if (mask_token, shift, structure) != (None, None, None):
            raise GlauberError(
                "mask_token, shift and structure are for a model that is given by its name."
            )
        return record_model(_of_object(model, device, dtype, exact))
    choose_devices(device)
    if exact and dtype == "float64" and choose_device(device).type == "mps":
        device = "cpu"
    options = Options(kind, device, dtype, trust_remote_code, mask_token, shift, structure)
    return record_model(_of_name(model, options))


def check_name(model: object) -> None:
    """Refuse a name that leads to no model, before anything is begun for it."""
    if not isinstance(model, str | Path):
        return
    name = str(model)
    if name.startswith("bundled:"):
        bundled_folder(name)
    elif any(family.matches(name) for family in FAMILIES):
        return
    elif not (Path(name).is_file() if name.endswith(".gguf") else reachable(split_name(name)[0])):
        raise GlauberError(
            f"there is no model {name or repr(name)}: neither a folder nor on the hub."
        )


def _of_name(name: str, options: Options) -> Model:
    for family in FAMILIES:
        if family.matches(name):
            return family.load(name, options)
    if options.structure is not None:
        raise GlauberError(f"a structure is for {INVERSE_FOLDING}, and the model is {name}.")
    return _load_gguf(name, options) if name.endswith(".gguf") else _load(name, options)


def _load_gguf(name: str, options: Options) -> "CausalLM":
    """An autoregressive model from one GGUF file."""
    from glauber.models.causal_lm import CausalLM

    file = Path(name)
    if not file.is_file():
        raise GlauberError(f"there is no file {file}.")
    model = CausalLM.load(
        str(file.parent),
        gguf_file=file.name,
        device=options.device,
        dtype=options.dtype,
        trust_remote_code=options.trust_remote_code,
    )
    model.name = str(file)
    return model


def _load(name: str, options: Options) -> BaseModel:
    """The model of a folder or a hub name, of a kind that its config allows."""
    name, carried = split_name(name)
    check_fetched(name)
    kind, token = options.kind, options.mask_token
    if token is None:
        token = carried.get("mask_token")
    if kind == "auto":
        kind = one_of("the kind", carried.get("kind", "auto"), KINDS)
    stored_kind = kind_of(name)
    model = _load_kind(name, _kind(name, kind, stored_kind), replace(options, mask_token=token))
    named_kind = None if kind in ("auto", stored_kind) else kind
    model.name = join_name(name, {"kind": named_kind, "mask_token": token})
    return model


def _load_kind(name: str, kind: str, options: Options) -> BaseModel:
    device, dtype, trust = options.device, options.dtype, options.trust_remote_code
    token, shift = options.mask_token, options.shift
    if kind == "diffusion":
        from glauber.models.diffusion_lm import DiffusionLM  # its code is never run

        return DiffusionLM.load(name, device=device, dtype=dtype, mask_token=token, shift=shift)
    if shift or device == SPLIT:
        option = "shift" if shift else f"device {SPLIT}"
        raise GlauberError(f"{option} is for diffusion LMs, and {name} is a {kind} LM.")
    if kind == "masked":
        from glauber.models.masked_lm import MaskedLM

        return MaskedLM.load(
            name, device=device, dtype=dtype, trust_remote_code=trust, mask_token=token
        )
    if token is not None:
        raise GlauberError(f"{name} is an autoregressive LM: it has no mask token.")
    from glauber.models.causal_lm import CausalLM

    model = CausalLM.load(name, device=device, dtype=dtype, trust_remote_code=trust)
    model.check_causal()
    return model


def _kind(name: str, kind: str, stored: str) -> str:
    """The kind to load, where the one that the config names does not contradict."""
    if kind == "auto":
        return stored
    if stored == "diffusion" and kind != "diffusion":
        raise GlauberError(f"{name} is a diffusion LM and cannot be read as a {kind} LM.")
    if stored == "causal" and kind == "diffusion":
        raise GlauberError(
            f"{name} is an autoregressive LM: it has no mask token and says nothing about hidden "
            "sites, so it is no diffusion LM."
        )
    return stored if kind == "diffusion" else kind  # a masked LM that writes is a masked LM


def _of_object(rule: Conditionals, device: str, dtype: str, exact: bool) -> Model:
    """A model of the object, on the device."""
    if not hasattr(rule, "scores") or not hasattr(rule, "vocab_size"):
        raise GlauberError(
            f"{type(rule).__name__} is no model: it needs vocab_size and scores, or a name."
        )
    if isinstance(rule, BaseModel):
        model = rule
    else:
        from glauber.models.own import Own

        model = Own(rule)
    if exact:
        check_exact(model.dtype)
    converted = exact and dtype == "float64"
    if dtype not in ("float32", model.dtype) and not converted:
        raise GlauberError(f"{model.name} computes in {model.dtype}, not in {dtype}.")
    return model.to(
        device=None if device == "auto" else device, dtype="float64" if converted else None
    )


def kind_of_model(model: Model) -> str:
    """masked, causal or diffusion; custom for a rule of the user's own."""
    from glauber.models.diffusion_lm import DiffusionLM
    from glauber.models.masked_lm import MaskedLM

    if not model.whole_vocabulary:
        return "causal"
    if isinstance(model, DiffusionLM):
        return "diffusion"
    return "masked" if isinstance(model, MaskedLM) else "custom"


def count_parameters(model: Model) -> int | None:
    """The number of weights; None of a rule that has none to count."""
    from glauber.models.causal_lm import CausalLM
    from glauber.models.diffusion_lm import DiffusionLM
    from glauber.models.masked_lm import MaskedLM

    if isinstance(model, DiffusionLM):
        return model.parameters
    if isinstance(model, MaskedLM):
        return model.weights.parameters
    if isinstance(model, CausalLM):
        return sum(weight.numel() for weight in model.model.parameters())
    return None
