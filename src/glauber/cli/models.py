"""glauber models: what is in the box, and what a model looks like to the engine."""

from typing import Annotated, Any

import typer

from glauber.cli import options
from glauber.conditionals.weights import bundled_folder, bundled_names


def models(
    name: Annotated[str | None, typer.Argument(help="A model to look at closely.")] = None,
    json: options.Json = False,
) -> None:
    """List the bundled models, or look at one: shape, vocabulary, longest text, fingerprint."""
    found = _listed() if name is None else _looked_at(name)
    from glauber.cli.screen import emit, out

    if json:
        emit(found)
        return
    for key, value in found.items():
        listed = ", ".join(value) if isinstance(value, list) else value
        out.print(f"{key:>14}  {listed}", markup=False, highlight=False, soft_wrap=True)


def _listed() -> dict[str, Any]:
    from glauber.conditionals.masked_lm import HEADS

    names = [f"bundled:{name}" for name in bundled_names()]
    sizes = [sum(file.stat().st_size for file in bundled_folder(name).iterdir()) for name in names]
    return {
        "bundled": [
            f"{name} ({size / 1e6:.0f} MB)" for name, size in zip(names, sizes, strict=True)
        ],
        "known shapes": sorted(HEADS),
        "others": "any masked LM of transformers, by its name on the hub or its folder",
    }


def _looked_at(name: str) -> dict[str, Any]:
    from glauber.conditionals.masked_lm import MaskedLM

    model = MaskedLM.load(name, device="cpu")
    config = model.model.config
    return {
        "name": model.name,
        "shape": config.model_type,
        "layers": getattr(config, "num_hidden_layers", None),
        "width": getattr(config, "hidden_size", None),
        "vocabulary": model.vocab_size,
        "proposable": int(model.vocabulary.proposable().sum()),
        "longest": model.longest,
        "parameters": sum(weight.numel() for weight in model.model.parameters()),
        "hand-laid": model.encoder is not None,
        "fingerprint": model.fingerprint,
    }
