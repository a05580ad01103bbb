"""Where do a translator's weights lie? A folder with one vocabulary and models by name."""

import json
from dataclasses import asdict
from pathlib import Path

import torch

from glauber.errors import GlauberError
from glauber.translation.model import Shape, Translator
from glauber.translation.vocabulary import Vocabulary

BUNDLED = Path(__file__).resolve().parent.parent / "models" / "translation-en-es"
VOCABULARY = "vocabulary.model"


def save(model: Translator, folder: Path, name: str) -> None:
    """NAME.safetensors (fp16) and NAME.json, its shape."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: value.half().contiguous().cpu() for key, value in model.state_dict().items()}
    save_file(weights, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps(asdict(model.shape), indent=2) + "\n")


def load(
    folder: Path, name: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Translator:
    """The model of that name, ready to translate."""
    from safetensors.torch import load_file

    path = folder / f"{name}.safetensors"
    if not path.is_file() or not (folder / f"{name}.json").is_file():
        raise GlauberError(f"there is no translator {name} in {folder}.")
    shape = Shape(**json.loads((folder / f"{name}.json").read_text()))
    model = Translator(shape)
    model.load_state_dict(load_file(path))
    return model.to(device, dtype).eval()


def load_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary that the models of a folder share."""
    return Vocabulary.read(folder / VOCABULARY)
