"""Where are a model's weights, are they sound, and on which device do they go?

Broken folders end in one sentence that names the file. Code that comes with a model is run only
if the caller allows it: `trust_remote_code` is never taken from a file.
"""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.shelf import is_cached, place_of
from glauber.errors import GlauberError
from glauber.result import one_of

PACKAGE = Path(__file__).resolve().parent.parent
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "int8": torch.float32,  # the products of the encoder in int8, the rest in float32
}
DEVICES = ("cpu", "cuda", "mps")
SPLIT = "cuda:split"  # the layers of one model on all GPUs of the machine, as many on each
MASK = "?mask_token="  # behind a name: the mask token of a model that names none itself
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "n_embd", "n_layer", "n_head", "n_positions", "dim", "n_layers",
    "n_heads", "hidden_dim", "embedding_size", "type_vocab_size",
)  # fmt: skip
HEAD_NAMES = {"masked": "masked LM", "causal": "autoregressive LM"}


def choose_device(device: str) -> torch.device:
    """The device of that name; `auto` takes CUDA, then MPS, then the CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        place = torch.device(device)
        if place.type not in DEVICES:
            raise RuntimeError(f"{place.type} is none of {DEVICES}")
        torch.empty(1, device=place)
    except Exception as error:  # each backend has its own
        raise GlauberError(f"the device {device} cannot be used on this machine.") from error
    return place


def choose_devices(device: str) -> list[torch.device]:
    """The devices over which the layers of a model are spread: one, or all GPUs of `cuda:split`."""
    if device != SPLIT:
        return [choose_device(device)]
    count = torch.cuda.device_count()
    if count < 2:
        raise GlauberError(f"{SPLIT} needs two GPUs or more, but this machine has {count}.")
    return [torch.device("cuda", at) for at in range(count)]


def check_device(device: str | None) -> None:
    """Refuses devices (`cuda:0,cuda:1` are two) that are not there, before anything is read."""
    for one in () if device is None else str(device).split(","):
        choose_devices(one)


def choose_dtype(dtype: str) -> torch.dtype:
    """The precision of that name."""
    return DTYPES[one_of("the dtype", dtype, DTYPES)]


def name_of(model: Any) -> str:
    """A name for a model that was given none: its config's, or `unnamed`."""
    return str(getattr(model.config, "_name_or_path", "") or "unnamed")


def longest_text(config: Any, tokenizer: Any) -> int:
    """The most tokens of a text with its special ones."""
    positions = int(getattr(config, "max_position_embeddings", None) or 2**30)
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet", "esm"):
        positions -= int(config.pad_token_id or 0) + 1  # positions are numbered from there
    return min(positions, int(tokenizer.model_max_length))


def in_precision(model: Any, place: torch.device, precision: torch.dtype) -> Any:
    """The model there in that precision.

    The frequencies of rotations stay in float32, as transformers loads them: half the bits would
    turn the hundredth token by a wrong angle.
    """
    names = [name for name, _ in model.named_buffers() if name.endswith("inv_freq")]
    kept = {name: model.get_buffer(name).to(place) for name in names}
    model = model.to(place, precision)
    for name, values in kept.items():
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, values)
    return model


def fingerprint_of(model: Any, tokenizer: Any) -> str:
    """SHA-256 over weights and vocabulary: equal exactly when the conditionals are."""
    digest = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    digest.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()


def from_pretrained(
    name: str, trust_remote_code: bool, *, kind: str = "masked", **how: Any
) -> tuple[Any, Any]:
    """The model and the tokenizer of that name, as transformers makes them."""
    place = place_of(name)
    if not reachable(place):
        raise GlauberError(_why(name, LookupError(name), kind))
    if Path(place).is_dir() and "gguf_file" not in how:
        check_folder(Path(place))
    try:
        model, tokenizer, report = _opened(place, kind, trust_remote_code=trust_remote_code, **how)
    except Exception as error:  # what a broken file raises depends on where it is broken
        raise GlauberError(_why(name, error, kind)) from error
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise GlauberError(
            f"{name} carries no {kind}-LM head: it lacks the weights {missing}."
            if kind == "masked"
            else f"{name} is not a whole {HEAD_NAMES[kind]}: it lacks the weights {missing}."
        )
    return model, tokenizer


def _opened(place: str, kind: str, **how: Any) -> tuple[Any, Any, Any]:
    """Model, tokenizer and what was missing, without a word on the terminal."""
    import transformers
    from transformers.utils import logging

    auto = {
        "masked": transformers.AutoModelForMaskedLM,
        "causal": transformers.AutoModelForCausalLM,
    }[kind]
    logging.disable_progress_bar()
    loud, _ = logging.get_verbosity(), logging.set_verbosity_error()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **how)
        model, report = auto.from_pretrained(place, dtype="auto", output_loading_info=True, **how)
    finally:
        logging.set_verbosity(loud)
    return model, tokenizer, report


def check_weights(model: Any, name: str) -> None:
    """Refuses weights that are not finite numbers: every answer of such a model is one too."""
    for key, weight in model.state_dict().items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise GlauberError(f"{name} has weights that are not finite numbers, in {key}.")


def kind_of(name: str) -> str:
    """Whether a model is masked, causal or a diffusion LM, by what its config names."""
    name = name.partition(MASK)[0]
    place = place_of(name)
    if not reachable(place):
        return "masked"
    try:
        from transformers import PreTrainedConfig

        from glauber.conditionals.forward.read_diffusion import NO_MASK, SHAPES, shape_of

        config, _ = PreTrainedConfig.get_config_dict(place)  # reads a file, runs nothing
        named = " ".join(config.get("architectures") or [])
    except Exception:  # the loader says what is wrong
        return "masked"
    if shape_of(config) in SHAPES or shape_of(config) in NO_MASK:
        return "diffusion"
    causal = "CausalLM" in named or "LMHeadModel" in named
    return "causal" if causal and "MaskedLM" not in named else "masked"


def reachable(name: str) -> bool:
    """Whether a folder or the hub has that model, at once; from_pretrained would try for a minute.

    A model that was downloaded before counts, with or without the hub.
    """
    if is_cached(name) or Path(name).is_dir():
        return True
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            HfApi().model_info(name, timeout=30)
    except Exception:  # each version of the hub's client has its own
        return False
    return True


class Safetensors:
    """The tensors of a folder's safetensors, read one by one to a device in a precision."""

    def __init__(self, folder: Path, precision: torch.dtype) -> None:
        from safetensors import safe_open

        self.folder, self.precision = folder, precision
        index, files = folder / "model.safetensors.index.json", sorted(folder.glob("*.safetensors"))
        if not files:
            raise GlauberError(f"{folder} holds no safetensors, and no other weights are read.")
        if index.is_file():
            files = [folder / name for name in sorted(set(_json(index)["weight_map"].values()))]
        self._opened = [safe_open(file, framework="pt") for file in files]
        self._file = {key: opened for opened in self._opened for key in opened.keys()}  # noqa: SIM118

    def __contains__(self, key: str) -> bool:
        return key in self._file

    def stored(self, key: str, *shape: int) -> Tensor:
        """The tensor as it is stored; its shape must be the one that the config tells."""
        if key not in self._file:
            raise GlauberError(f"{self.folder} is not a whole diffusion LM: it lacks {key}.")
        found: Tensor = self._file[key].get_tensor(key)
        if shape and tuple(found.shape) != shape:
            raise GlauberError(
                f"config.json of {self.folder} has other sizes than the weights: {key} is "
                f"{tuple(found.shape)}, not {shape}."
            )
        if not bool(torch.isfinite(found).all()):
            raise GlauberError(f"{self.folder} has weights that are not finite numbers, in {key}.")
        return found

    def fingerprint(self) -> str:
        """SHA-256 over the tensors, however they are cut into files."""
        digest = hashlib.sha256()
        for key in sorted(self._file):
            value = self._file[key].get_tensor(key)
            digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()


# ---- folders that are broken


def check_folder(folder: Path) -> None:
    """Refuses a folder whose config or weights cannot be what they claim to be."""
    _check_config(folder / "config.json")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            _json(folder / name)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        listed = _json(index).get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
            raise GlauberError(f"{index} is broken: it does not list the files of the weights.")
        for part in sorted(set(listed.values())):
            if not (folder / part).is_file():
                raise GlauberError(f"{index} names {part}, which is not there.")
    for path in sorted(folder.glob("*.safetensors")):
        try:
            _check_safetensors(path)
        except OSError as error:
            raise GlauberError(f"{path} cannot be read: {error.strerror or error}.") from error


def _check_config(path: Path) -> None:
    if not path.is_file():
        raise GlauberError(f"{path.parent} is no model: it holds no config.json.")
    config = _json(path)
    for key in SIZES:
        size = config.get(key)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise GlauberError(f"{path} is broken: {key} is {size!r}, not a size.")
    if config.get("vocab_size") == 0:
        raise GlauberError(f"{path} is broken: vocab_size is 0.")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise GlauberError(f"{path} is broken: it is not JSON.") from error
    if not isinstance(found, dict):
        raise GlauberError(f"{path} is broken: it is not a JSON object.")
    return found


def _check_safetensors(path: Path) -> None:
    """Refuses a file whose header is no header, or that is shorter than its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 2 <= length <= size - 8:
            raise GlauberError(f"{path} is broken: it is cut off or no safetensors file.")
        try:
            header = json.loads(file.read(length))
            ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
            whole = 8 + length + max(ends, default=0)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise GlauberError(f"{path} is broken: its header cannot be read.") from error
    if size < whole:
        raise GlauberError(f"{path} is cut off: it has {size:,} bytes of {whole:,}.")


def _why(name: str, error: Exception, kind: str) -> str:
    """One sentence on why a model could not be loaded."""
    text, what = str(error), HEAD_NAMES[kind]
    if "trust_remote_code" in text:
        return (
            f"{name} wants to run code of its own; allow it with trust_remote_code if you trust it."
        )
    if "AutoModelFor" in text:
        return f"{name} is not a {what}: transformers knows no such head for its shape."
    if name.startswith("bundled:") or Path(name).is_dir():
        return (
            f"the folder {name} holds no {what} that can be loaded ({_reason(name, text, error)})."
        )
    return (
        f"the model {name} was found neither as a folder nor on the hub; without the hub, "
        "download it elsewhere and give the path of its folder (it holds config.json), "
        "or use bundled:english."
    )


def _reason(name: str, text: str, error: Exception) -> str:
    """What is wrong in the folder, with the file where that is known."""
    folder = Path(name)
    pickled = next((path.name for path in sorted(folder.glob("*.bin"))), None)
    if "size mismatch" in text or "mismatched" in text or "ignore_mismatched_sizes" in text:
        return "config.json has other sizes than the weights"
    if pickled is not None and ("Unpickling" in type(error).__name__ or "weights_only" in text):
        return f"{pickled} holds more than weights, which could run code"
    first = (text.strip() or repr(error)).splitlines()[0]
    return first.rstrip(". ")[:200]
