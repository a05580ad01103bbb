"""Which texts do chains begin from? The one place where texts become tokens and free sites."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glauber.conditionals.base import PAD
from glauber.conditionals.weights import PACKAGE
from glauber.errors import GlauberError


@lru_cache
def passages() -> list[tuple[str, str]]:
    """(topic, text) of each bundled starting passage, topics taking turns."""
    lines = (PACKAGE / "data" / "passages.tsv").read_text(encoding="utf-8").splitlines()
    return [(topic, text) for topic, text in (line.split("\t") for line in lines)]


def starts(
    model: Any,
    texts: str | Path | Sequence[str] | None = None,
    *,
    chains: int | None = None,
    length: int | None = None,
    prefix: str = "",
    freeze: Sequence[int] | str = (),
) -> tuple[Tensor, Tensor]:
    """Starting tokens and free sites (chains, length) of texts, a file, or the bundled passages.

    chains  number of chains; they take the texts in turn (default: one per text)
    length  tokens of each text without the special ones; shorter texts are left out
    prefix  text put before each start and never redrawn; it does not count in length
    freeze  further sites never redrawn, counted from 0 without the special tokens
    """
    texts = [text.strip() for text in read_texts(texts)]
    if not texts or not all(texts):
        raise GlauberError("a starting text is empty: there is no token to redraw.")
    vocabulary = model.vocabulary
    before = vocabulary.count(prefix) if prefix else 0
    if length is not None:
        texts = [text for text in texts if vocabulary.count(text) >= length]
        if not texts:
            raise GlauberError(f"no starting text has {length} tokens or more.")
    if chains is not None:
        texts = [texts[i % len(texts)] for i in range(chains)]
    joined = [f"{prefix} {text}" if prefix else text for text in texts]
    tokens, free = vocabulary.encode(joined, length=None if length is None else before + length)
    _check_length(model, tokens)
    _freeze(free, before, read_sites(freeze))
    return tokens, free


def read_texts(texts: str | Path | Sequence[str] | None) -> list[str]:
    """The texts that were given: a string is one text, a Path a file with one text a line."""
    if texts is None:
        return [text for _, text in passages()]
    if isinstance(texts, str):
        return [texts]
    return _read_file(texts) if isinstance(texts, Path) else list(texts)


def _read_file(path: Path) -> list[str]:
    """The lines of a file of texts, without empty ones."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise GlauberError(f"{path} cannot be read: {reason}.") from error
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise GlauberError(f"{path} holds no text.")
    return found


def read_sites(listed: str | Sequence[int]) -> list[int]:
    """Sites from a list such as 0,3,4."""
    if not isinstance(listed, str):
        return list(listed)
    try:
        return [int(site) for site in listed.split(",") if site.strip()]
    except ValueError:
        raise GlauberError(f"{listed!r} is not a list of sites such as 0,3,4.") from None


def _check_length(model: Any, tokens: Tensor) -> None:
    longest = tokens.shape[1]
    if longest > model.longest:
        chain = int((tokens != PAD).sum(dim=1).argmax())
        raise GlauberError(
            f"text {chain + 1} has {longest} tokens with the special ones, but {model.name} reads "
            f"at most {model.longest}: shorten it, or set a length."
        )


def _freeze(free: Tensor, before: int, frozen: Sequence[int]) -> None:
    """Takes the first `before` sites and the frozen ones out of the free sites, in place."""
    rank = free.cumsum(dim=1) - 1  # place of each site without the special tokens
    inside = free.sum(dim=1).min()
    for site in frozen:
        if not 0 <= site < int(inside):
            raise GlauberError(f"site {site} cannot be frozen: it is outside a text.")
    held = (rank < before) | torch.isin(rank, torch.tensor(list(frozen), dtype=rank.dtype))
    free &= ~held
    if not bool(free.any(dim=1).all()):
        raise GlauberError("the prefix and frozen sites freeze every site of a text.")
