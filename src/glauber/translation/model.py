"""The translator: an encoder-decoder from two rows of tokens to scores, and its weights.

It has two kinds. `ar` reads the target so far through a causal mask and has a
key-value cache. `refine` sees a whole draft at once, has a positional-attention block in each
decoder layer (queries and keys are position embeddings, values the hidden states) and predicts the
length of the target.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from glauber.foundation.errors import GlauberError
from glauber.foundation.json_text import parse_json

PAD, UNKNOWN, BEGIN, END, MASK = range(5)  # the first tokens of every vocabulary
FIRST_WORD = 5  # tokens from here on are text


@dataclass(frozen=True)
class Shape:
    """The sizes of a translator; `kind` is ar or refine."""

    kind: str = "refine"
    vocab_size: int = 8000
    width: int = 256
    heads: int = 8
    n_encoder: int = 3
    n_decoder: int = 3
    inner: int = 640
    max_length: int = 128
    dropout: float = 0.1
    positional: bool = True  # a positional-attention block in each decoder layer (refine only)
    attend_masks: bool = True  # refine only; false: a hidden position is attended to by itself only
    relative: bool = False  # attention scores depend on distances (self-attention, but not of ar)

    def check(self) -> None:
        """Refuses sizes that no translator has."""
        if min(self.width, self.heads, self.n_encoder, self.n_decoder, self.inner) < 1:
            raise GlauberError("a translator needs at least 1 layer, 1 head and 1 hidden unit.")
        if self.width % self.heads:
            raise GlauberError(f"the width is {self.width}, but {self.heads} heads must divide it.")


class Memory(NamedTuple):
    """An encoded source: states (rows, length, width), visible (rows, 1, 1, length).

    projections: of each decoder layer the keys and values (rows, heads, length, width / heads) of
    its cross-attention, if several passes will read them.
    """

    states: Tensor
    visible: Tensor
    projections: tuple[tuple[Tensor, Tensor], ...] = ()

    def rows(self, chosen: Tensor) -> "Memory":
        """The memory of the chosen rows, in that order."""
        projections = tuple((keys[chosen], values[chosen]) for keys, values in self.projections)
        return Memory(self.states[chosen], self.visible[chosen], projections)


Cache = list[dict[str, Tensor]]  # of each decoder layer: keys and values (rows, heads, length, ...)


class Attention(nn.Module):
    """Multi-head attention."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.query = nn.Linear(shape.width, shape.width)
        self.key = nn.Linear(shape.width, shape.width)
        self.value = nn.Linear(shape.width, shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def split(self, hidden: Tensor) -> Tensor:
        """(rows, length, width) -> (rows, heads, length, width / heads)."""
        return hidden.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Split keys and values of the states (rows, length, width)."""
        return self.split(self.key(states)), self.split(self.value(states))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visible: Tensor | None = None,
        *,
        causal: bool = False,
    ) -> Tensor:
        """Split queries, keys and values -> (rows, length, width)."""
        dropout = self.dropout if self.training else 0.0
        if visible is not None and visible.dtype != torch.bool:  # added to the scores
            visible = visible.to(query.dtype)
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=visible, dropout_p=dropout, is_causal=causal
        )
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))
        return out

    def forward(self, states: Tensor, context: Tensor, visible: Tensor) -> Tensor:
        """Attention of the states over the context, both (rows, length, width)."""
        return self.attend(self.split(self.query(states)), *self.keys_values(context), visible)


class Inner(nn.Sequential):
    """The feed-forward block of a layer."""

    def __init__(self, shape: Shape):
        wide = nn.Linear(shape.width, shape.inner)
        super().__init__(wide, nn.GELU(), nn.Linear(shape.inner, shape.width))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each normalised before and added after."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.attention, self.inner = Attention(shape), Inner(shape)
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(2))
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, visible: Tensor) -> Tensor:
        """(rows, length, width) -> the same."""
        normed = self.norms[0](hidden)
        hidden = hidden + self.drop(self.attention(normed, normed, visible))
        return hidden + self.drop(self.inner(self.norms[1](hidden)))


class DecoderLayer(nn.Module):
    """Self-attention, positional attention if the shape has it, cross-attention, feed-forward."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.own, self.cross, self.inner = Attention(shape), Attention(shape), Inner(shape)
        placed = shape.kind == "refine" and shape.positional
        self.placed = Attention(shape) if placed else None
        self.norms = nn.ModuleList(nn.LayerNorm(shape.width) for _ in range(3 + placed))
        self.drop = nn.Dropout(shape.dropout)

    def forward(
        self, hidden: Tensor, positions: Tensor, visible: Tensor, memory: Memory, number: int
    ) -> Tensor:
        """All positions at once; hidden (rows, length, width), positions (1, length, width)."""
        normed = self.norms[0](hidden)
        hidden = hidden + self.drop(self.own(normed, normed, visible))
        if self.placed is not None:
            mixed = self._attend_by_position(self.placed, hidden, positions, visible)
            hidden = hidden + self.drop(mixed)
        normed = self.norms[1](hidden)
        if memory.projections:
            query = self.cross.split(self.cross.query(normed))
            mixed = self.cross.attend(query, *memory.projections[number], memory.visible)
        else:
            mixed = self.cross(normed, memory.states, memory.visible)
        hidden = hidden + self.drop(mixed)
        return hidden + self.drop(self.inner(self.norms[2](hidden)))

    def _attend_by_position(
        self, placed: Attention, hidden: Tensor, positions: Tensor, visible: Tensor
    ) -> Tensor:
        """Positional attention: queries and keys are the same in every row."""
        query, key = placed.split(placed.query(positions)), placed.split(placed.key(positions))
        value = placed.split(placed.value(self.norms[3](hidden)))
        query, key = (part.expand(len(hidden), -1, -1, -1) for part in (query, key))
        return placed.attend(query, key, value, visible)

    def follow(self, hidden: Tensor, memory: Memory, cache: dict[str, Tensor]) -> Tensor:
        """New positions (rows, new, width) after those in the cache, to which they are added."""
        normed, own, cross = self.norms[0](hidden), self.own, self.cross
        query, (key, value) = own.split(own.query(normed)), own.keys_values(normed)
        if "key" in cache:
            key = torch.cat([cache["key"], key], 2)
            value = torch.cat([cache["value"], value], 2)
        else:
            cache["memory_key"], cache["memory_value"] = cross.keys_values(memory.states)
        cache["key"], cache["value"] = key, value
        # One new position sees all of the cache; several are the whole target, under a causal mask.
        hidden = hidden + self.drop(own.attend(query, key, value, causal=query.shape[2] > 1))
        query = cross.split(cross.query(self.norms[1](hidden)))
        mixed = cross.attend(query, cache["memory_key"], cache["memory_value"], memory.visible)
        hidden = hidden + self.drop(mixed)
        return hidden + self.drop(self.inner(self.norms[2](hidden)))


MAX_DISTANCE = 32  # of relative positions; those further apart share a score


class DistanceScores(nn.Module):
    """A learnt score for each head and each distance of two positions."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.table = nn.Embedding(2 * MAX_DISTANCE + 1, shape.heads)

    def forward(self, visible: Tensor, length: int) -> Tensor:
        """Scores (rows, heads, length, length), -inf where not visible."""
        places = torch.arange(length, device=visible.device)
        apart = (places - places[:, None]).clamp(-MAX_DISTANCE, MAX_DISTANCE) + MAX_DISTANCE
        scores: Tensor = self.table(apart).permute(2, 0, 1)[None]
        return scores.masked_fill(~visible, -torch.inf)


class Translator(nn.Module):
    """The encoder-decoder; one table of embeddings serves source, target and output."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocab_size, shape.width)
        self.source_places = nn.Embedding(shape.max_length, shape.width)
        self.target_places = nn.Embedding(shape.max_length, shape.width)
        self.encoder = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.n_encoder))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.n_decoder))
        self.encoder_norm, self.norm = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.bias = nn.Parameter(torch.zeros(shape.vocab_size))
        self.drop = nn.Dropout(shape.dropout)
        self.length = nn.Linear(shape.width, 2 * shape.max_length + 1)
        self.source_distances = DistanceScores(shape) if shape.relative else None
        own = shape.relative and shape.kind == "refine"
        self.target_distances = DistanceScores(shape) if own else None
        self.apply(_initialise)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.words.weight.device

    def encode(self, source: Tensor) -> Memory:
        """source (rows, length), padded at the end -> its memory."""
        visible = (source != PAD)[:, None, None, :]
        hidden = self.drop(self.words(source) + self.source_places.weight[: source.shape[1]])
        near = visible
        if self.source_distances is not None:
            near = self.source_distances(visible, source.shape[1])
        for layer in self.encoder:
            hidden = layer(hidden, near)
        return Memory(self.encoder_norm(hidden), visible)

    def scores(self, hidden: Tensor) -> Tensor:
        """(rows, length, width) -> (rows, length, vocab)."""
        return F.linear(self.norm(hidden), self.words.weight, self.bias)

    def denoise(self, draft: Tensor, memory: Memory, site: int | Tensor | None = None) -> Tensor:
        """Scores (rows, length, vocab) of every position of a draft (rows, length), padded.

        Of one site only, (rows, 1, vocab), if it is given: the same in all rows, or one in each.
        """
        visible = self._visible(draft)
        positions = self.target_places.weight[: draft.shape[1]]
        hidden = self.drop(self.words(draft) + positions)
        for number, layer in enumerate(self.decoder):
            hidden = layer(hidden, positions[None], visible, memory, number)
        if isinstance(site, Tensor):
            return self.scores(hidden[torch.arange(len(hidden)), site][:, None])
        return self.scores(hidden if site is None else hidden[:, site : site + 1])

    def _visible(self, draft: Tensor) -> Tensor:
        """What each position of a draft attends to: (rows, 1, 1 or length, length), or scores."""
        visible = (draft != PAD)[:, None, None, :]
        if not self.shape.attend_masks:
            itself = torch.eye(draft.shape[1], dtype=torch.bool, device=draft.device)
            visible = visible & (draft != MASK)[:, None, None, :] | itself
        if self.target_distances is not None:
            return self.target_distances(visible, draft.shape[1])
        return visible

    def project(self, memory: Memory) -> Memory:
        """The memory with each decoder layer's keys and values, to be read by several passes."""
        layers = (layer for layer in self.decoder if isinstance(layer, DecoderLayer))
        projections = tuple(layer.cross.keys_values(memory.states) for layer in layers)
        return memory._replace(projections=projections)

    def follow(self, tokens: Tensor, memory: Memory, cache: Cache | None = None) -> Tensor:
        """Scores (rows, new, vocab) of what follows each of the new tokens (rows, new)."""
        cache = self.empty_cache() if cache is None else cache
        first = cache[0]["key"].shape[2] if cache[0] else 0
        positions = self.target_places.weight[first : first + tokens.shape[1]]
        hidden = self.drop(self.words(tokens) + positions)
        for layer, layer_cache in zip(self.decoder, cache, strict=True):
            assert isinstance(layer, DecoderLayer)
            hidden = layer.follow(hidden, memory, layer_cache)
        return self.scores(hidden)

    def empty_cache(self) -> Cache:
        """The cache of a target without tokens."""
        return [{} for _ in self.decoder]

    def length_scores(self, memory: Memory) -> Tensor:
        """Scores (rows, 2 max_length + 1) of target length - source length + max_length."""
        seen = memory.visible[:, 0, 0, :, None]
        mean = (memory.states * seen).sum(1) / seen.sum(1)
        scores: Tensor = self.length(mean)
        return scores


def _initialise(module: nn.Module) -> None:
    """Small normal weights, no biases."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02 if isinstance(module, nn.Embedding) else 0.04)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


BUNDLED = Path(__file__).resolve().parent.parent / "models" / "translation-en-es"


def save(model: Translator, folder: Path, name: str) -> None:
    """NAME.safetensors (fp16) and NAME.json, its shape."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: value.half().contiguous().cpu() for key, value in model.state_dict().items()}
    save_file(weights, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps(asdict(model.shape), indent=2) + "\n")


def is_file(path: Path) -> bool:
    """Whether the file exists; false for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def load(
    folder: Path, name: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Translator:
    """The model of that name, ready to translate."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path, shape = folder / f"{name}.safetensors", folder / f"{name}.json"
    if not is_file(path) or not is_file(shape):
        raise GlauberError(f"there is no translator {name} in {folder}.")
    try:
        model = Translator(Shape(**parse_json(shape.read_text(encoding="utf-8"))))
        model.load_state_dict(load_file(path))
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as problem:
        message = str(problem).splitlines()[0]
        raise GlauberError(f"{path} and {shape.name} are no translator: {message}") from problem
    return model.to(device, dtype).eval()
