"""Attention of a CUDA device, for every description: rows without padding, by one Triton kernel.

Up to SHORT tokens the keys of a row are one block in registers; longer rows go block by block,
within a layer's window only. Rotations are applied as queries and keys are read. Terms of the
distance are formed for all distances by cuBLAS and read askew. What the kernel does not take
(float64, heads of odd sizes, no Triton) PyTorch's own operators do, row by row of a padded view.
"""

import os
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glauber.models.batching import rows_at_once
from glauber.models.forward.layout import Layout, capturing

if TYPE_CHECKING:
    from glauber.models.forward.description import Layer, Relative, Rotary

try:
    import triton

    from glauber.models.forward import encoder_kernels as kernels
except ImportError:  # PyTorch for CPU or Windows brings none
    triton = None

SHORT = 128  # longest row whose keys are one block
SIZES = (16, 32, 64, 128)  # of heads, for the kernel
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # the kernels run on a CPU, in Python
STEP = 16  # tables of distances are made for lengths in such steps

Tables = dict[tuple[int, int], "Distances"]


class Distances(NamedTuple):
    """A layer's terms of every distance i - j of rows up to some length.

    They stand in column i - j + middle, or columns[i - j + middle] where buckets are fewer.
    """

    keys: Tensor | None  # (heads, columns, s)
    queries: Tensor | None  # (heads, columns, s)
    bias: Tensor | None  # (heads, columns)
    columns: Tensor | None  # (distances,) int64
    middle: int
    relative: "Relative"  # held, so that its id is nobody else's


def attend(
    layer: "Layer",
    projected: tuple[Tensor, Tensor, Tensor],
    heads: int,
    layout: Layout,
    *,
    sites: Tensor | None = None,
    tables: Tables,
) -> Tensor:
    """Attention of queries on keys and values, (tokens, d) each; parts of wider rows are fine.

    sites (rows, k) say where the queries (rows k, d) stand; without them, one at every place.
    """
    size = projected[0].shape[1] // heads
    if not (has_kernels(projected[0]) and size in SIZES):
        return _by_torch(layer, projected, heads, layout, sites, tables)
    if layer.rotary is not None and size < 32:  # halves are too narrow for a product
        projected = (*_turn(layer.rotary, projected, heads, layout, sites), projected[2])
        layer = layer._replace(rotary=None)
    return _by_kernel(layer, projected, heads, layout, sites, tables)


def has_kernels(states: Tensor) -> bool:
    """Whether our kernels take it."""
    if triton is None or states.dtype == torch.float64:
        return False
    return states.is_cuda or INTERPRETED


def _by_kernel(
    layer: "Layer",
    projected: tuple[Tensor, Tensor, Tensor],
    heads: int,
    layout: Layout,
    sites: Tensor | None,
    tables: Tables,
) -> Tensor:
    queries, keys, values = projected
    rows, n_q = len(layout.lengths), layout.longest if sites is None else sites.shape[1]
    mixed = torch.empty_like(queries, memory_format=torch.contiguous_format)
    size = queries.shape[1] // heads
    state = size, queries.element_size()
    blocks = block_sizes(n_q, layout.longest, state, layer.rotary is not None)
    by_query = by_key = bias = columns = None
    middle = 0
    if layer.relative is not None:
        at = distances(layer.relative, layout.longest, tables, capturing(queries))
        by_query, by_key = _terms(queries, at.keys), _terms(keys, at.queries)
        bias, columns, middle = at.bias, at.columns, at.middle
    terms = next((term for term in (by_query, by_key, bias) if term is not None), queries)
    cos, sin = (queries, queries) if layer.rotary is None else layer.rotary
    window = layer.window if layer.window is not None and layout.longest > layer.window else None
    n_blocks = -(-n_q // blocks["Q"])
    kernels.attention[(rows * n_blocks, heads)](
        queries, keys, values, mixed, layout.begins, layout.lengths,
        layout.begins if sites is None else sites.contiguous(), cos, sin,
        *(queries if term is None else term for term in (by_query, by_key, columns, bias)),
        n_q, n_blocks, len(queries), len(keys), terms.shape[-1], middle, window or 0,
        queries.stride(0), keys.stride(0), values.stride(0), mixed.stride(0), layer.scale,
        D=size, TF32=queries.dtype != torch.float32,
        AT_SITES=sites is not None, ROTARY=layer.rotary is not None, WINDOW=window is not None,
        BY_QUERY=by_query is not None, BY_KEY=by_key is not None, BIAS=bias is not None,
        COLUMNS=columns is not None, **blocks,
    )  # fmt: skip
    return mixed


def block_sizes(n_q: int, longest: int, state: tuple[int, int], turned: bool) -> dict[str, int]:
    """Queries and keys of a block, and the warps that share it: the fastest on an H200.

    state holds the size of a head and the bytes of a number.
    """
    most = max(16, triton.next_power_of_2(n_q))
    size, itemsize = state
    if size * itemsize > 256 and longest > 32:  # smaller cards have no room for more
        return {"Q": min(most, 32), "K": 32, "ONE": False, "num_warps": 4, "num_stages": 2}
    if longest > SHORT:
        keys = 32 if size <= 32 else 64
        return {"Q": min(most, 64), "K": keys, "ONE": False, "num_warps": 4, "num_stages": 2}
    keys = max(16, triton.next_power_of_2(longest))
    if keys > 32:
        return {"Q": min(most, 64), "K": keys, "ONE": True, "num_warps": 4}
    # Halves of the queries side by side, unless every half would turn all keys again.
    return {"Q": min(most, 32 if turned else 16), "K": keys, "ONE": True, "num_warps": 1}


def distances(relative: "Relative", longest: int, tables: Tables, passing: bool) -> Distances:
    """The tables for rows of that length; stored, except while a graph is recorded."""
    length = min(-(-longest // STEP) * STEP, relative.places)
    table = tables.get((id(relative), length))
    if table is None:
        table = _distances(relative, length)
        if not passing:
            tables[id(relative), length] = table
    return table


def _distances(relative: "Relative", length: int) -> Distances:
    middle = relative.places - 1
    rows = relative.rows[middle - length + 1 : middle + length]
    table = relative.keys if relative.keys is not None else relative.queries
    if table is not None and relative.bias is None and table.shape[1] < 2 * length:
        return Distances(*relative[1:], rows, length - 1, relative)
    rows = F.pad(rows, (0, 1))  # an even number, for the products
    keys, queries, bias = (None if table is None else table[:, rows] for table in relative[1:])
    return Distances(keys, queries, bias, None, length - 1, relative)


def _terms(states: Tensor, table: Tensor | None) -> Tensor | None:
    """The product of each state with each distance: (heads, tokens, columns)."""
    if table is None:
        return None
    return states.unflatten(1, (len(table), -1)).transpose(0, 1) @ table.mT


def _turn(
    rotary: "Rotary",
    projected: tuple[Tensor, Tensor, Tensor],
    heads: int,
    layout: Layout,
    sites: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Queries and keys of the list, turned."""
    places = layout.place
    if places is None:
        rows, length = layout.shape
        places = torch.arange(length, device=projected[0].device).repeat(rows)
    at_queries = places if sites is None else sites.clamp(min=0).flatten()
    return turn(rotary, projected[0], at_queries, heads), turn(rotary, projected[1], places, heads)


def turn(rotary: "Rotary", states: Tensor, places: Tensor, heads: int) -> Tensor:
    """States (..., d) at places (...), turned."""
    # At least in float32; in float64 the states are rounded before where transformers does so.
    wide = torch.promote_types(states.dtype, torch.float32)
    cos, sin = (table[places][..., None, :].to(wide) for table in rotary)
    rounded = states.to(torch.promote_types(rotary.cos.dtype, torch.float32))
    first, second = rounded.unflatten(-1, (heads, -1)).chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.flatten(-2).to(states.dtype)


# ---- by PyTorch's operators


def _by_torch(
    layer: "Layer",
    projected: tuple[Tensor, Tensor, Tensor],
    heads: int,
    layout: Layout,
    sites: Tensor | None,
    tables: Tables,
) -> Tensor:
    queries, keys, values = projected
    (rows, length), width = layout.shape, queries.shape[1]
    if layout.row is not None:
        length = layout.longest
        every = torch.arange(length, device=keys.device)
        at = (layout.begins[:, None] + every).clamp(max=layout.n_tokens - 1)
        keys, values = keys[at], values[at]
        queries = queries[at] if sites is None else queries
    wide = [x.reshape(rows, -1, width) for x in (queries, keys, values)]
    at_sites = None if sites is None else sites.clamp(min=0)
    row_bytes = 4 * heads * wide[0].shape[1] * length * queries.element_size()
    size = rows_at_once(row_bytes, queries.device)
    mixed = torch.cat(
        [
            _rows(
                layer,
                [x[begin : begin + size] for x in wide],
                heads,
                layout.lengths[begin : begin + size],
                None if at_sites is None else at_sites[begin : begin + size],
                tables,
            )
            for begin in range(0, rows, size)
        ]
    )
    if sites is None and layout.row is not None:
        return mixed[layout.row, layout.place]
    return mixed.flatten(0, 1)


def _rows(
    layer: "Layer",
    projected: list[Tensor],
    heads: int,
    lengths: Tensor,
    sites: Tensor | None,
    tables: Tables,
) -> Tensor:
    """Rows of one padded length: (rows, queries, d)."""
    queries, keys, values = projected
    every = torch.arange(keys.shape[1], device=keys.device)
    if layer.rotary is not None:
        queries = turn(layer.rotary, queries, every if sites is None else sites, heads)
        keys = turn(layer.rotary, keys, every, heads)
    queries, keys, values = (
        x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (queries, keys, values)
    )
    apart = ((every[None] if sites is None else sites)[..., None] - every)[:, None]  # i - j
    unseen = (every >= lengths[:, None])[:, None, None]
    if layer.window is not None:
        unseen = unseen | (apart.abs() > layer.window)
    added = torch.zeros_like(unseen, dtype=queries.dtype).masked_fill(unseen, float("-inf"))
    if layer.relative is not None:
        added = added + _relate(layer.relative, queries, keys, apart, tables)
    mixed = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=added, scale=layer.scale
    )
    return mixed.transpose(1, 2).flatten(2)


def _relate(
    relative: "Relative", queries: Tensor, keys: Tensor, apart: Tensor, tables: Tables
) -> Tensor:
    """What depends on the distance: (rows or 1, heads, queries, keys)."""
    at = distances(relative, keys.shape[2], tables, capturing(keys))
    column = apart + at.middle
    if at.columns is not None:
        column = at.columns[column]
    everywhere = column.expand(*queries.shape[:3], keys.shape[2])
    terms = []
    if at.keys is not None:
        terms.append((queries @ at.keys.mT).gather(3, everywhere))
    if at.queries is not None:
        terms.append((keys @ at.queries.mT).mT.gather(2, everywhere))
    if at.bias is not None:
        terms.append(at.bias[:, column[:, 0]].transpose(0, 1))
    return sum(terms[1:], start=terms[0])
