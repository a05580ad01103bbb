"""Does the CUDA pass compute what the CPU pass does, for everything that can be described?

Here it runs on CPU tensors: by PyTorch's operators, or by its kernels where Triton is there and
TRITON_INTERPRET=1.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from glauber.models.base import PAD
from glauber.models.batching import row_bytes
from glauber.models.forward import attention_cuda
from glauber.models.forward.attention_cuda import INTERPRETED, Tables
from glauber.models.forward.description import (
    Affine,
    Description,
    Embedding,
    Head,
    Layer,
    Norm,
    Relative,
    Rotary,
)
from glauber.models.forward.encoder import Encoder
from glauber.models.forward.encoder_cuda import forward
from glauber.models.forward.layout import Recording, layout_of, pad

VOCAB, PLACES, HIDDEN = 40, 200, 3
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


class Parts:
    """Random weights of one width."""

    def __init__(self, width=64, heads=2, dtype=torch.float64, seed=0):
        self.width, self.heads, self.dtype = width, heads, dtype
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64).to(self.dtype)

    def affine(self, out, into, bias=True):
        return Affine(self.normal(out, into) / into**0.5, self.normal(out) / 2 if bias else None)

    def norm(self, *, bias=True, centred=True, weight=True):
        return Norm(
            1 + self.normal(self.width) / 4 if weight else None,
            self.normal(self.width) / 4 if bias else None,
            1e-5,
            centred,
        )

    def layer(self, *, activation="gelu", gated=False, bias=True, inner=96, **more):
        width, size = self.width, self.width // self.heads
        return Layer(
            self.affine(3 * width, width, bias),
            self.affine(width, width, bias),
            self.affine((1 + gated) * inner, width, bias),
            self.affine(width, inner, bias),
            activation,
            scale=size**-0.5,
            gated=gated,
            **more,
        )

    def behind(self, **more):
        return self.layer(norm_attended=self.norm(), norm_out=self.norm(), **more)

    def before(self, *, first=False, **more):
        norm = self.norm(bias=False)
        return self.layer(
            norm_before=None if first else norm, norm_between=self.norm(bias=False), **more
        )

    def rotary(self):
        size = self.width // self.heads
        angles = torch.arange(PLACES)[:, None] * 50.0 ** -torch.linspace(0, 1, size // 2)
        return Rotary(angles.cos().to(self.dtype), angles.sin().to(self.dtype))

    def relative(self, rows=9, *, keys=False, queries=False, bias=False):
        size = self.width // self.heads
        apart = torch.arange(-(PLACES - 1), PLACES)
        return Relative(
            (apart.sign() * apart.abs().float().sqrt().int() + rows // 2).clamp(0, rows - 1).long(),
            self.normal(self.heads, rows, size) / size**0.5 if keys else None,
            self.normal(self.heads, rows, size) / size**0.5 if queries else None,
            self.normal(self.heads, rows) if bias else None,
        )

    def described(self, layers, *, last=None, **embedding):
        embedding = {"places": self.normal(PLACES, self.width), "norm": self.norm(), **embedding}
        table = Embedding(self.normal(VOCAB, self.width), **embedding)
        head = Head(Affine(self.normal(VOCAB, self.width), None))
        return Description(table, layers, self.heads, last, head, PLACES)


def bert(p):
    return p.described([p.behind(), p.behind()])


def albert(p):
    layer = p.behind(activation="gelu_new")
    width = p.width
    p.width = 16
    few = {"places": p.normal(PLACES, 16), "norm": p.norm(), "words": p.normal(VOCAB, 16)}
    p.width = width
    words = few.pop("words")
    found = p.described([layer] * 3, **few, project=p.affine(width, 16))
    return found._replace(embedding=found.embedding._replace(words=words))


def mpnet(p):
    relative = p.relative(bias=True)
    return p.described([p.behind(relative=relative), p.behind(relative=relative)])


def deberta(p):
    layers = [p.behind(relative=p.relative(keys=True, queries=True)) for _ in range(2)]
    return p.described(layers, places=None)


def deberta_wide(p):  # more rows than distances
    kinds = ({"keys": True}, {"queries": True}, {"keys": True, "queries": True, "bias": True})
    layers = [p.behind(relative=p.relative(rows=401, **kind)) for kind in kinds]
    return p.described(layers, places=None, last=p.norm())


def modernbert(p):
    rotary = p.rotary()
    layers = [
        p.before(first=at == 0, gated=True, bias=False, rotary=rotary, window=at % 2 * 3 or None)
        for at in range(3)
    ]
    return p.described(layers, places=None, last=p.norm(bias=False))


def esm(p):
    layers = [p.before(rotary=p.rotary()) for _ in range(2)]
    embedding = {"places": None, "norm": None, "hidden_token": HIDDEN, "kept": 0.88}
    return p.described(layers, **embedding, last=p.norm())


def rms(p):
    """Root-mean-square norms, norms of queries and keys, silu with a gate; norms on both sides."""
    norms = [p.norm(centred=False, bias=False) for _ in range(6)]
    names = ["norm_before", "norm_attended", "norm_between", "norm_out"]
    layer = p.layer(
        activation="silu",
        gated=True,
        bias=False,
        norm_queries=norms[4],
        norm_keys=norms[5],
        **dict(zip(names, norms, strict=False)),
    )
    return p.described([layer, layer._replace(activation="relu", gated=True)])


def bare(p):
    """No norms but the last; an activation that has no kernel."""
    return p.described([p.layer(activation="quick_gelu"), p.layer(activation="relu")])


SHAPES = (bert, albert, mpnet, deberta, deberta_wide, modernbert, esm, rms, bare)


def rows_of(lengths, sites=2, seed=0):
    """Tokens with PAD behind, and sites of each row: columns of a wider table, as callers have."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, VOCAB, (len(lengths), max(lengths)), generator=generator)
    tokens[torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]] = PAD
    chosen = [torch.randperm(n, generator=generator)[:sites] for n in lengths]
    found = torch.stack([F.pad(row, (1, 1), value=10**6) for row in chosen])[:, 1:-1]
    tokens.scatter_(1, found, HIDDEN)
    return tokens, found


def reference(described, tokens, sites):
    """Row by row on the CPU."""
    encoder = Encoder(described)
    lengths = (tokens != PAD).sum(1).tolist()
    found = [encoder(tokens[i : i + 1, :n], sites[i : i + 1])[0] for i, n in enumerate(lengths)]
    return torch.stack(found)


def precisions():
    return (torch.float32,) if INTERPRETED else (torch.float64,)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("lengths", [(7, 7, 7), (5, 9, 3, 9)], ids=["even", "packed"])
def test_cuda_pass_is_the_cpu_pass(shape, lengths):
    for dtype in precisions():
        described = shape(Parts(dtype=dtype))
        tokens, sites = rows_of(lengths)
        due = reference(described, tokens, sites)
        for layout in (None, pad(tokens)):
            found = forward(described, tokens, sites, layout=layout)
            # Root-mean-square norms are formed in float32 in every precision.
            limit = 1e-5 if shape is rms else TOLERANCE[dtype]
            assert float((found - due).abs().max()) < limit


@pytest.mark.parametrize("shape", [bert, mpnet, deberta, modernbert, esm])
@pytest.mark.parametrize("width", [64, 32, 48, 256])
def test_long_rows_and_odd_heads(shape, width):
    """Beyond a block of keys, windows that leave blocks out, heads of sizes 32, 16, 24 and 128."""
    for dtype in precisions():
        described = shape(Parts(width, dtype=dtype))
        tokens, sites = rows_of((150, 4, 131), sites=3)
        due = reference(described, tokens, sites)
        found = forward(described, tokens, sites)
        assert float((found - due).abs().max()) < TOLERANCE[dtype]


def test_the_kernel_gets_sites_that_lie_in_order(monkeypatch):
    """It counts on rows of sites that follow each other; callers have columns of wider tables."""
    given = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *args, **_: given.append(args[6])

    power = SimpleNamespace(next_power_of_2=lambda n: 1 << (n - 1).bit_length())
    monkeypatch.setattr(attention_cuda, "triton", power)
    monkeypatch.setattr(
        attention_cuda, "kernels", SimpleNamespace(attention=Kernel()), raising=False
    )
    tokens, sites = rows_of((7, 5))
    p = Parts()
    queries, keys = p.normal(4, 64), p.normal(12, 64)
    assert not sites.is_contiguous()
    layer, parts = p.before(rotary=p.rotary()), (queries, keys, keys)
    attention_cuda._by_kernel(layer, parts, 2, layout_of(tokens), sites, Tables())
    assert given[0].is_contiguous() and torch.equal(given[0], sites)


def test_tables_of_distances_are_kept():
    (dtype,) = precisions()
    described, tables = deberta(Parts(dtype=dtype)), Tables()
    tokens, sites = rows_of((9, 6))
    one = forward(described, tokens, sites, tables=tables)
    assert len(tables) == 2  # a layer each
    assert torch.equal(forward(described, tokens, sites, tables=tables), one)
    assert len(tables) == 2
    forward(described, *rows_of((40, 6)), tables=tables)
    assert len(tables) == 4


def test_hidden_sites_may_be_missing():
    (dtype,) = precisions()
    described = bert(Parts(dtype=dtype))
    tokens, sites = rows_of((9, 6))
    missing = sites.clone()
    missing[0, 1] = PAD
    found, due = (forward(described, tokens, at) for at in (missing, sites))
    assert torch.allclose(found[0, 0], due[0, 0]) and torch.allclose(found[1], due[1])


def test_a_layout_holds_every_token_once():
    tokens, sites = rows_of((5, 9, 2))
    layout = layout_of(tokens)
    assert layout.n_tokens == 16 and layout.longest == 9
    assert layout.begins.tolist() == [0, 5, 14]
    packed = tokens[layout.row, layout.place]
    assert PAD not in packed
    assert torch.equal(packed[layout.at(sites)], tokens.gather(1, sites))
    assert layout_of(tokens[:1, :5]).row is None


def test_a_recording_gives_the_layouts_again(monkeypatch):
    short, long = rows_of((5, 9, 2))[0], rows_of((9, 9, 3))[0]
    with Recording() as recording:
        for _ in range(3):
            recording.repeat(reading=False)
            first, second = layout_of(short), layout_of(long)
        recording.repeat(reading=True)
        monkeypatch.setattr("glauber.models.forward.layout.capturing", lambda _: True)
        assert layout_of(short) is first and layout_of(long) is second
        assert layout_of(long).row is None  # a call more than before: padded
    assert layout_of(short).row is None


def test_memory_of_a_row_grows_with_what_it_holds():
    parts = Parts()
    plain, wide, related = (
        row_bytes(parts.described([layer]), 200, 1, 2)
        for layer in (
            parts.behind(),
            parts.behind(gated=True, inner=960),
            parts.behind(relative=parts.relative(401, keys=True, queries=True)),
        )
    )
    assert wide - plain > 200 * 3 * 800 * 2
    assert related - plain >= 2 * 2 * 200 * 399 * 2  # two terms, two heads, every distance
