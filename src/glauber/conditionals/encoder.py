"""How fast can the BERT shape answer for a few hidden sites?

A forward pass laid by hand for the encoders that share BERT's layer (BERT, RoBERTa, XLM-R,
ELECTRA): queries, keys and values in one product, and the last layer only where a site is hidden.
The arithmetic is the model's own, so it equals transformers' answer up to rounding.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SHAPE_OF_BERT = ("bert", "roberta", "xlm-roberta", "electra")
FEWEST_ROWS = 16  # below this, CPU matrix products switch to other kernels and round differently


class Affine(NamedTuple):
    weight: Tensor
    bias: Tensor


class Layer(NamedTuple):
    """One encoder layer: d hidden units, f units in between."""

    queries_keys_values: Affine  # (3 d, d)
    attended: Affine  # (d, d)
    norm_attended: Affine  # (d,)
    between: Affine  # (f, d)
    out: Affine  # (d, f)
    norm_out: Affine  # (d,)


class Encoder:
    """Hidden states of the last layer at the hidden sites: (rows, k, d)."""

    def __init__(self, model: Any) -> None:
        body, config = model.base_model, model.config
        self.heads = config.num_attention_heads
        self.eps = config.layer_norm_eps
        # RoBERTa numbers its positions from the padding token's id plus one.
        self.first_position = (
            0 if config.model_type in ("bert", "electra") else body.embeddings.padding_idx + 1
        )
        self.embeddings = body.embeddings
        self.project = getattr(body, "embeddings_project", None)
        self.layers = [_layer(layer) for layer in body.encoder.layer]

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether this forward pass computes what the model does."""
        config = model.config
        return (
            config.model_type in SHAPE_OF_BERT
            and config.hidden_act == "gelu"
            and getattr(config, "position_embedding_type", "absolute") in (None, "absolute")
            and not getattr(config, "is_decoder", False)
        )

    def __call__(self, tokens: Tensor, sites: Tensor) -> Tensor:
        """tokens (rows, length), PAD behind shorter rows; sites (rows, k)."""
        if tokens.is_cuda:
            from glauber.conditionals import encoder_cuda

            return encoder_cuda.forward(self, tokens, sites)
        states = self.embed(tokens)
        for layer in self.layers[:-1]:
            states = self._whole(layer, states)
        return self._at_sites(self.layers[-1], states, sites)

    def embed(self, tokens: Tensor) -> Tensor:
        """Sum of word, position and type embeddings, normalised: (rows, length, d)."""
        first = self.first_position
        return self._sum(tokens, slice(first, first + tokens.shape[1]))

    def embed_at(self, tokens: Tensor, places: Tensor) -> Tensor:
        """The same for tokens that stand at the given places of their rows, counted from 0."""
        return self._sum(tokens, self.first_position + places)

    def _sum(self, tokens: Tensor, positions: Tensor | slice) -> Tensor:
        table = self.embeddings
        always = table.position_embeddings.weight[positions]
        always = always + table.token_type_embeddings.weight[0]
        states = F.embedding(tokens.clamp(min=0), table.word_embeddings.weight) + always
        states = table.LayerNorm(states)
        return states if self.project is None else self.project(states)

    def _whole(self, layer: Layer, states: Tensor) -> Tensor:
        """One layer at every position: (rows, length, d) -> the same."""
        together = F.linear(states, *layer.queries_keys_values)
        return self.finish(layer, states, self.attend(*together.chunk(3, dim=-1)))

    def _at_sites(self, layer: Layer, states: Tensor, sites: Tensor) -> Tensor:
        """The last layer where it is asked for: (rows, length, d) -> (rows, k, d)."""
        rows, k, width = len(sites), sites.shape[1], states.shape[-1]
        weight, bias = layer.queries_keys_values
        there = states[torch.arange(rows, device=sites.device)[:, None], sites.clamp(min=0)]
        there = _fill_up(there.reshape(rows * k, width))
        queries = F.linear(there, weight[:width], bias[:width])[: rows * k].view(rows, k, width)
        keys, values = F.linear(states, weight[width:], bias[width:]).chunk(2, dim=-1)
        mixed = self.attend(queries, keys, values)
        mixed = _fill_up(mixed.reshape(rows * k, width))
        return self.finish(layer, there, mixed)[: rows * k].view(rows, k, width)

    def finish(self, layer: Layer, states: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention: projection, feed-forward, and a norm after each."""
        width = states.shape[-1:]
        # In place where it can be: fresh memory costs as much as the arithmetic on it.
        states = F.linear(mixed, *layer.attended).add_(states)
        states = F.layer_norm(states, width, *layer.norm_attended, self.eps)
        between = torch.ops.aten.gelu_(F.linear(states, *layer.between))
        states = F.linear(between, *layer.out).add_(states)
        return F.layer_norm(states, width, *layer.norm_out, self.eps)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Softmax attention within each row: (rows, queries, d), from and to heads side by side."""
        mixed = F.scaled_dot_product_attention(
            self._split(queries), self._split(keys), self._split(values)
        )
        return mixed.transpose(1, 2).flatten(2)

    def _split(self, states: Tensor) -> Tensor:
        """(rows, length, d) -> (rows, heads, length, d / heads)."""
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _fill_up(rows: Tensor) -> Tensor:
    """At least FEWEST_ROWS rows, filled up with zeros."""
    return F.pad(rows, (0, 0, 0, max(0, FEWEST_ROWS - len(rows))))


def _layer(layer: Any) -> Layer:
    attention = layer.attention.self
    parts = (attention.query, attention.key, attention.value)
    return Layer(
        Affine(
            torch.cat([part.weight for part in parts]).contiguous(),
            torch.cat([part.bias for part in parts]),
        ),
        _affine(layer.attention.output.dense),
        _affine(layer.attention.output.LayerNorm),
        _affine(layer.intermediate.dense),
        _affine(layer.output.dense),
        _affine(layer.output.LayerNorm),
    )


def _affine(module: Any) -> Affine:
    return Affine(module.weight, module.bias)
