"""Where are a model's weights, can they be read, and on which device do they go?"""

import hashlib
from pathlib import Path
from typing import Any

import torch

from glauber.errors import GlauberError

PACKAGE = Path(__file__).resolve().parent.parent
MODELS = PACKAGE / "models"


def bundled_names() -> list[str]:
    """Names that `bundled:NAME` accepts."""
    return sorted(folder.name for folder in MODELS.iterdir() if (folder / "config.json").is_file())


def bundled_folder(name: str) -> Path:
    """The folder of `bundled:NAME`."""
    short = name.removeprefix("bundled:")
    if short not in bundled_names():
        known = ", ".join(f"bundled:{known}" for known in bundled_names())
        raise GlauberError(f"there is no model {name} in the package; there is {known}.")
    return MODELS / short


def choose_device(device: str) -> torch.device:
    """The device of that name; `auto` takes CUDA, then MPS, then the CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise GlauberError(f"the device {device} cannot be used on this machine.") from error
    return place


def fingerprint_of(model: Any, tokenizer: Any) -> str:
    """SHA-256 over weights and vocabulary: equal exactly when the conditionals are."""
    digest = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    digest.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()


def from_pretrained(name: str, trust_remote_code: bool) -> tuple[Any, Any]:
    """The masked LM and the tokenizer of that name, as transformers makes them."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer
    from transformers.utils import logging

    place = str(bundled_folder(name)) if name.startswith("bundled:") else name
    if not reachable(place):
        raise GlauberError(_why(name, LookupError(name)))
    logging.disable_progress_bar()
    loud, _ = logging.get_verbosity(), logging.set_verbosity_error()
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=trust_remote_code)
        model, report = AutoModelForMaskedLM.from_pretrained(
            place, dtype="auto", trust_remote_code=trust_remote_code, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise GlauberError(_why(name, error)) from error
    finally:
        logging.set_verbosity(loud)
    if report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise GlauberError(f"{name} carries no masked-LM head: it lacks the weights {missing}.")
    return model, tokenizer


def reachable(name: str) -> bool:
    """Whether a folder or the hub has that model, at once; from_pretrained would try for a minute.

    A model that was downloaded before counts, with or without the hub.
    """
    if Path(name).is_dir():
        return True
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):
            HfApi().model_info(name, timeout=30)
    except Exception:  # each version of the hub's client has its own
        return False
    return True


def _why(name: str, error: Exception) -> str:
    """One sentence on why a model could not be loaded."""
    if "trust_remote_code" in str(error):
        return (
            f"{name} wants to run code of its own; allow it with trust_remote_code if you trust it."
        )
    if "AutoModelForMaskedLM" in str(error):
        return f"{name} is not a masked LM: transformers knows no masked-LM head for its shape."
    if Path(name).is_dir():
        first = (str(error).strip() or repr(error)).splitlines()[0]
        return f"the folder {name} holds no masked LM that transformers can load ({first})."
    return (
        f"the model {name} was found neither as a folder nor on the hub; without the hub, "
        "download it elsewhere and give the path of its folder (it holds config.json), "
        "or use bundled:english."
    )
