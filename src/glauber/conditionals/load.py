"""Which model is meant? A name, a folder or an object becomes something that studies can ask.

The one place where studies turn what they were given into a model.
"""

from dataclasses import replace
from pathlib import Path

from glauber.call import record_model
from glauber.conditionals.base import Conditionals, Model
from glauber.conditionals.base_model import BaseModel
from glauber.conditionals.causal_lm import CausalLM
from glauber.conditionals.diffusion_lm import DiffusionLM
from glauber.conditionals.families import FAMILIES, Family, Options
from glauber.conditionals.masked_lm import MaskedLM
from glauber.conditionals.own import Own
from glauber.conditionals.shelf import INVERSE_FOLDING, check_fetched
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
from glauber.result import one_of

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
        return record_model(_object(model, device, dtype, exact))
    choose_devices(device)
    if exact and dtype == "float64" and choose_device(device).type == "mps":
        device = "cpu"
    options = Options(kind, device, dtype, trust_remote_code, mask_token, shift, structure)
    families = (*FAMILIES, Family(_is_gguf, _load_gguf), Family(_is_any, _load_pretrained))
    family = next(family for family in families if family.matches(model))
    return record_model(family.load(model, options))


def _is_gguf(name: str) -> bool:
    return name.endswith(".gguf")


def _load_gguf(name: str, options: Options) -> CausalLM:
    """An autoregressive model from one GGUF file."""
    file = Path(name)
    _check_structure(name, options)
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


def _is_any(name: str) -> bool:
    return True


def _load_pretrained(name: str, options: Options) -> MaskedLM | CausalLM | DiffusionLM:
    """The model of a folder or a hub name, of a kind that its config allows."""
    _check_structure(name, options)
    name, carried = split_name(name)
    check_fetched(name)
    kind, token = options.kind, options.mask_token
    if token is None:
        token = carried.get("mask_token")
    if kind == "auto":
        kind = one_of("the kind", carried.get("kind", "auto"), KINDS)
    model = _load_kind(name, _kind(name, kind), replace(options, mask_token=token))
    named_kind = None if kind == "auto" or kind == kind_of(name) else kind
    model.name = join_name(name, {"kind": named_kind, "mask_token": token})
    return model


def _load_kind(name: str, kind: str, options: Options) -> MaskedLM | CausalLM | DiffusionLM:
    device, dtype, trust = options.device, options.dtype, options.trust_remote_code
    token, shift = options.mask_token, options.shift
    if kind == "diffusion":  # its code is not run, whatever is trusted
        return DiffusionLM.load(name, device=device, dtype=dtype, mask_token=token, shift=shift)
    if shift or device == SPLIT:
        option = "shift" if shift else f"device {SPLIT}"
        raise GlauberError(f"{option} is for diffusion LMs, and {name} is a {kind} LM.")
    if kind == "masked":
        return MaskedLM.load(
            name, device=device, dtype=dtype, trust_remote_code=trust, mask_token=token
        )
    if token is not None:
        raise GlauberError(f"{name} is an autoregressive LM: it has no mask token.")
    model = CausalLM.load(name, device=device, dtype=dtype, trust_remote_code=trust)
    model.check_causal()
    return model


def _check_structure(name: str, options: Options) -> None:
    if options.structure is not None:
        raise GlauberError(f"a structure is for {INVERSE_FOLDING}, and the model is {name}.")


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
