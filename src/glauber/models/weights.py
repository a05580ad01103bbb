"""Where a model's weights are, whether they are sound, and on which device they go.

Broken folders end in one sentence that names the file. Code that comes with a model is run only
if the caller allows it: `trust_remote_code` is never taken from a file.
"""

import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glauber.foundation.errors import GlauberError, GlauberWarning
from glauber.foundation.json_text import parse_json
from glauber.foundation.study import one_of
from glauber.models.forward.checkpoint import Config, hash_of
from glauber.models.shelf import is_cached, is_folder, place_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig as PreTrainedConfig
    from transformers import PreTrainedModel as PreTrainedModel
    from transformers import PreTrainedTokenizerBase as PreTrainedTokenizerBase

PACKAGE = Path(__file__).resolve().parent.parent
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
    "int8": torch.float32,  # the products of the encoder in int8, the rest in float32
}
DEVICES = ("cpu", "cuda", "mps")
SPLIT = "cuda:split"  # the layers of one model on all GPUs of the machine, as many on each
OPTIONS = ("kind", "mask_token")  # what a name may carry: NAME?kind=masked&mask_token=TOKEN
SIZES = (  # keys of a config.json that must be numbers of something
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "n_embd"),
    *("intermediate_size", "max_position_embeddings", "n_layer", "n_head", "n_positions", "dim"),
    *("n_layers", "n_heads", "hidden_dim", "embedding_size", "type_vocab_size"),
)
DEBERTA_HEAD = (
    "The heads that Microsoft published for DeBERTa were trained with an enhanced mask decoder, "
    "which transformers does not have, and predict poorly without it; heads trained with "
    "transformers are not affected."
)
HEAD_NAMES = {"masked": "masked LM", "causal": "autoregressive LM"}


def choose_device(device: str) -> torch.device:
    """The device of that name; `auto` takes CUDA, then MPS, then the CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        target = torch.device(device)
        if target.type not in DEVICES:
            raise RuntimeError(f"{target.type} is none of {DEVICES}")
        torch.empty(1, device=target)
    except Exception as error:  # each backend has its own
        raise GlauberError(f"the device {device} cannot be used on this machine.") from error
    return target


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
    for name in () if device is None else str(device).split(","):
        choose_devices(name)


def choose_dtype(dtype: str, *, exact: bool = False) -> torch.dtype:
    """The precision of that name; int8 is refused for what is exact: measured or certified."""
    one_of("the dtype", dtype, DTYPES)
    if exact:
        check_exact(dtype)
    return DTYPES[dtype]


def check_exact(dtype: str) -> None:
    """Refuses precisions that are not those of a model's weights."""
    if dtype == "int8":
        raise GlauberError("int8 is for drawing samples only: use float32 or float64 here.")


def name_of(model: "PreTrainedModel") -> str:
    """A name for a model that was given none: its config's, or `unnamed`."""
    return str(getattr(model.config, "_name_or_path", "") or "unnamed")


def split_name(name: str) -> tuple[str, dict[str, str]]:
    """A model's name and the options that it carries: NAME?kind=masked&mask_token=TOKEN."""
    key = "|".join(OPTIONS)
    plain, *options = re.split(rf"[?&](?=(?:{key})=)", name)
    return plain, dict(option.split("=", 1) for option in options)


def join_name(name: str, options: Mapping[str, object]) -> str:
    """What `split_name` splits; options that are None are left out."""
    carried = [f"{key}={options[key]}" for key in OPTIONS if options.get(key) is not None]
    return f"{name}?{'&'.join(carried)}" if carried else name


def check_tokenizer(tokenizer: "PreTrainedTokenizerBase", size: int, name: str) -> None:
    """Refuses a tokenizer that is missing, or that does not belong to a model of that size."""
    if not set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids):
        raise GlauberError(
            f"{name} has no tokenizer: copy the model's tokenizer files (tokenizer.json, or "
            "vocab.txt and the like) into its folder."
        )
    mask = tokenizer.mask_token_id
    if mask is not None and not 0 <= mask < size:
        raise GlauberError(
            f"the tokenizer of {name} gives its mask token the number {mask}, but the model has "
            f"tokens 0 to {size - 1} only: the two do not belong together."
        )


def copy_of(model: "PreTrainedModel") -> "PreTrainedModel":
    """A copy that shares its weights, for calls that change a model."""
    shared = (*model.parameters(), *model.buffers())
    return deepcopy(model, {id(values): values for values in shared})


def ask_for_positions(model: "PreTrainedModel", name: str) -> int | None:
    """The most tokens for which the model's tables have positions; None without such tables.

    Found by asking for a text of one repeated token: a table of positions is then the one in which
    successive rows are looked up. A model that cannot answer in its dtype is refused.
    """
    if model.device.type == "meta":
        return None
    model = copy_of(model)  # BigBird gives up its sparse attention for good after a short text
    looked_up: list[tuple[Tensor, int]] = []
    for module in model.modules():
        if type(module).__name__.endswith("Embedding") and hasattr(module, "weight"):
            module.register_forward_pre_hook(
                lambda table, inputs: looked_up.append((inputs[0], len(table.weight)))
            )
    token = next(i for i in range(5, -1, -1) if i != getattr(model.config, "pad_token_id", None))
    tokens = torch.full((1, 6), min(token, model.config.vocab_size - 1), device=model.device)
    try:
        with torch.no_grad():
            scores = model(input_ids=tokens).logits
    except Exception as error:  # each architecture fails in its own way
        dtype = str(model.dtype).removeprefix("torch.")
        reason = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")[:200]
        raise GlauberError(
            f"{name} ({model.config.model_type}) cannot score a text in {dtype} ({reason})."
        ) from error
    if scores.shape[-1] < model.config.vocab_size:
        raise GlauberError(
            f"{name} scores {scores.shape[-1]} tokens, but its config.json says that it has "
            f"{model.config.vocab_size}."
        )
    remaining = [_positions_left(rows, size, tokens.shape[1]) for rows, size in looked_up]
    return min((count for count in remaining if count is not None), default=None)


def _positions_left(rows: object, size: int, length: int) -> int | None:
    """How many positions a table of that size has, if these rows of it are positions."""
    if not isinstance(rows, Tensor) or rows.is_floating_point() or rows.numel() < length:
        return None
    first = rows.reshape(-1)[:length].tolist()
    successive = list(range(first[0], first[0] + length))
    return size - first[0] if first == successive else None


def longest_text(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", name: str) -> int:
    """The most tokens of a text with its special ones."""
    positions = ask_for_positions(model, name)
    if positions is None:
        positions = int(getattr(model.config, "max_position_embeddings", None) or 2**30)
    return min(positions, int(tokenizer.model_max_length))


def in_precision(
    model: "PreTrainedModel", device: torch.device, precision: torch.dtype
) -> "PreTrainedModel":
    """The model there in that precision.

    The frequencies of rotations stay in float32, as transformers loads them: half the bits would
    turn the hundredth token by a wrong angle.
    """
    names = [name for name, _ in model.named_buffers() if name.endswith("inv_freq")]
    frequencies = {name: model.get_buffer(name).to(device) for name in names}
    model = model.to(device, precision)
    for name, values in frequencies.items():
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, values)
    return model


def fingerprint_of(tensors: Mapping[str, Tensor], tokenizer: "PreTrainedTokenizerBase") -> str:
    """SHA-256 over weights and vocabulary: equal exactly when the conditionals are."""
    digest = hash_of(tensors)
    digest.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()


def from_pretrained(
    name: str, trust_remote_code: bool, *, kind: str = "masked", gguf_file: str | None = None
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The model and the tokenizer of that name, as transformers makes them."""
    folder = place_of(name)
    if not reachable(folder):
        raise GlauberError(_why(name, LookupError(name), kind))
    if is_folder(folder) and gguf_file is None:
        check_folder(Path(folder))
    file_options = {} if gguf_file is None else {"gguf_file": gguf_file}
    try:
        import transformers

        heads = transformers.AutoModelForMaskedLM, transformers.AutoModelForCausalLM
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, trust_remote_code=trust_remote_code, **file_options
            )
            model, report = heads[kind == "causal"].from_pretrained(
                folder,
                dtype="auto",
                output_loading_info=True,
                trust_remote_code=trust_remote_code,
                **file_options,
            )
    except Exception as error:  # what a broken file raises depends on where it is broken
        raise GlauberError(_why(name, error, kind)) from error
    if report["missing_keys"]:
        if any(key.startswith("lm_predictions.") for key in report["unexpected_keys"]):
            raise GlauberError(
                f"{name} stores its masked-LM head as lm_predictions.*, which transformers reads "
                f'only with "legacy": false in config.json: set that to load it. {DEBERTA_HEAD}'
            )
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        what = "carries no masked-LM head"
        if kind == "causal":
            what = f"is not a whole {HEAD_NAMES[kind]}"
        raise GlauberError(f"{name} {what}: it lacks the weights {missing}.")
    if kind == "masked" and getattr(model.config, "legacy", True) is False:
        warnings.warn(f"{name}: {DEBERTA_HEAD}", GlauberWarning, stacklevel=3)
    check_tokenizer(tokenizer, model.config.vocab_size, name)
    for role in ("bos", "eos", "sep"):  # transformers reads them, and Funnel's config has none
        if not hasattr(model.config, f"{role}_token_id"):
            setattr(model.config, f"{role}_token_id", None)
    return model, tokenizer


@contextmanager
def quiet() -> Iterator[None]:
    """transformers without a word on the terminal, where it has been imported."""
    logging = sys.modules.get("transformers.utils.logging")
    if logging is None:
        yield
        return
    logging.disable_progress_bar()
    loud, _ = logging.get_verbosity(), logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(loud)


def check_weights(model: "PreTrainedModel", name: str) -> None:
    """Refuses weights that are not finite numbers: every answer of such a model is one too."""
    for key, weight in model.state_dict().items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise GlauberError(f"{name} has weights that are not finite numbers, in {key}.")


def kind_of(name: str) -> str:
    """Whether a model is masked, causal or a diffusion LM, by what its config names."""
    folder = place_of(split_name(name)[0])
    if not reachable(folder):
        return "masked"
    try:
        from glauber.models.forward.families import DIFFUSION, NO_MASK, shape_of

        if is_folder(folder):
            config = _read_json(Path(folder) / "config.json")
        else:
            from transformers import PreTrainedConfig

            config = PreTrainedConfig.get_config_dict(folder)[0]
        shape = shape_of(config)
    except Exception:  # the loader says what is wrong
        return "masked"
    return "diffusion" if shape in DIFFUSION or shape in NO_MASK else _head_kind(config)


def _head_kind(config: Config) -> str:
    """masked or causal: the head that the config names, by transformers' lists of both."""
    heads = config.get("architectures") or []
    if any("MaskedLM" in head for head in heads):
        return "masked"
    from transformers.models.auto import modeling_auto

    masked = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if any(head in masked.values() for head in heads):
        return "masked"
    if any(head in causal.values() or "CausalLM" in head for head in heads):
        return "causal"
    shape = config.get("model_type")
    return "causal" if shape not in masked and shape in causal else "masked"


def reachable(name: str) -> bool:
    """Whether a folder or the hub has that model, at once; from_pretrained would try for a minute.

    A model that was downloaded before counts, with or without the hub.
    """
    if is_cached(name) or is_folder(name):
        return True
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            HfApi().model_info(name, timeout=30)
    except Exception:  # each version of the hub's client has its own
        return False
    return True


# ---- folders that are broken


def check_folder(folder: Path) -> None:
    """Refuses a folder whose config or weights cannot be what they claim to be."""
    from safetensors import SafetensorError, safe_open

    _check_config(folder / "config.json")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            _read_json(folder / name)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        listed = _read_json(index).get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(v, str) for v in listed.values()):
            raise GlauberError(f"{index} is broken: it does not list the files of the weights.")
        for part in sorted(set(listed.values())):
            if not (folder / part).is_file():
                raise GlauberError(f"{index} names {part}, which is not there.")
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt"):  # the header, and the length that it says
                pass
        except SafetensorError as error:
            reason = str(error).rstrip(".")
            raise GlauberError(
                f"{path} is cut off or is not a safetensors file ({reason})."
            ) from error
        except OSError as error:
            raise GlauberError(f"{path} cannot be read: {error.strerror or error}.") from error


def _check_config(path: Path) -> None:
    if not path.is_file():
        raise GlauberError(f"{path.parent} is no model: it holds no config.json.")
    config = _read_json(path)
    senses = [key for key in ("vision_config", "audio_config") if config.get(key)]
    if senses:
        raise GlauberError(
            f"{path.parent} is a multimodal model (config.json has a {senses[0]}): only models of "
            "text alone can be used."
        )
    for key in SIZES:
        size = config.get(key)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise GlauberError(f"{path} is broken: {key} is {size!r}, not a size.")
    if config.get("vocab_size") == 0:
        raise GlauberError(f"{path} is broken: vocab_size is 0.")


def _read_json(path: Path) -> Config:
    """The object in a file; nothing runs."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise GlauberError(f"{path} is broken: it is not JSON.") from error
    if not isinstance(content, dict):
        raise GlauberError(f"{path} is broken: it is not a JSON object.")
    return content


def _why(name: str, error: Exception, kind: str) -> str:
    """One sentence on why a model could not be loaded."""
    text, what = str(error), HEAD_NAMES[kind]
    if "trust_remote_code" in text:
        path = Path(place_of(name)) / "config.json"
        classes = _read_json(path).get("auto_map") if path.is_file() else None
        classes = sorted(classes) if isinstance(classes, dict) else []
        if classes and not {"AutoModelForMaskedLM", "AutoModelForCausalLM"} & set(classes):
            return (
                f"{name} is not a {what} that transformers knows, and the code that comes with it "
                f"offers {', '.join(classes)} only."
            )
        return (
            f"{name} wants to run code of its own; allow it with trust_remote_code if you trust it."
        )
    if "AutoModelFor" in text:
        return f"{name} is not a {what}: transformers knows no such head for its shape."
    if name.startswith("bundled:") or is_folder(name):
        reason = _reason(Path(name), text, error)
        return f"the folder {name} holds no {what} that can be loaded ({reason})."
    return (
        f"the model {name} was found neither as a folder nor on the hub; without the hub, "
        "download it elsewhere and give the path of its folder (it holds config.json), "
        "or use bundled:english."
    )


def _reason(folder: Path, text: str, error: Exception) -> str:
    """What is wrong in the folder, with the file where that is known."""
    pickled = next((path.name for path in sorted(folder.glob("*.bin"))), None)
    if "size mismatch" in text or "mismatched" in text or "ignore_mismatched_sizes" in text:
        return "config.json has other sizes than the weights"
    if pickled is not None and ("Unpickling" in type(error).__name__ or "weights_only" in text):
        return f"{pickled} holds more than weights, which could run code"
    first = (text.strip() or repr(error)).splitlines()[0]
    return first.rstrip(". ")[:200]
