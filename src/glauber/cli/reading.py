"""What a command works on: a model by its name, and one text in its tokens."""

from typing import TYPE_CHECKING

from glauber.errors import GlauberError

if TYPE_CHECKING:
    from torch import Tensor

    from glauber.conditionals.base import Conditionals
    from glauber.conditionals.masked_lm import MaskedLM


def open_model(name: str, device: str, dtype: str) -> "tuple[MaskedLM, Conditionals]":
    """The model, and its conditionals over the tokens that may be proposed."""
    from glauber.conditionals.base import Restricted
    from glauber.conditionals.masked_lm import MaskedLM

    refuse_int8(dtype)
    model = MaskedLM.load(name, device=device, dtype=dtype)
    return model, Restricted(model, model.vocabulary.proposable().to(model.state_device))


def refuse_int8(dtype: str) -> None:
    """What is measured or certified needs the model's own precision."""
    if dtype == "int8":
        raise GlauberError("int8 is for drawing samples only: use float32 or float64 here.")


def read_text(model: "MaskedLM", text: str) -> "tuple[Tensor, Tensor]":
    """Tokens and free sites (length,) of one text."""
    from glauber.conditionals.starts import starts

    tokens, free = starts(model, [text])
    return tokens[0].to(model.state_device), free[0].to(model.state_device)


def spelled(model: "MaskedLM", tokens: "Tensor", sites: tuple[int, ...]) -> list[str]:
    """The tokens at the sites, as the vocabulary spells them."""
    return [model.vocabulary.text.spell(int(tokens[site])) for site in sites]


def token_named(model: "MaskedLM", name: str) -> int:
    """The token that is spelled so, by itself or as the vocabulary writes it."""
    vocabulary = model.vocabulary
    pieces = vocabulary.tokenizer(name, add_special_tokens=False)["input_ids"]
    known = vocabulary.tokenizer.get_vocab()
    token = known.get(name, pieces[0] if len(pieces) == 1 else None)
    if token is None or not bool(vocabulary.proposable()[token]):
        raise GlauberError(
            f"{name!r} is not a single token of the vocabulary of {model.name} that may be drawn."
        )
    return int(token)
