"""Inverse folding: ProteinMPNN on a backbone as conditionals (Dauparas et al., Science 2022).

ProteinMPNN writes a sequence onto a structure in any order. A site that is written last is drawn
from its conditional given all other residues and the structure. Sites that are hidden together are
each written as if the others were still to come, so none of them sees another.

What a visible residue passes on depends on which residues were written before it. Here they are
written along the chain; `order` shuffles them by a seed, and the answer then differs a little.

The backbone comes from a PDB or mmCIF file, read by gemmi. Of every residue N, CA, C and O; the
first model and the first alternative location of an atom count. Numbers that a chain skips are
positions without atoms.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from glauber.foundation.errors import GlauberError
from glauber.foundation.extras import need
from glauber.foundation.json_text import Record, parse_json
from glauber.models.base import hide
from glauber.models.base_model import OnePass
from glauber.models.batching import ACTIVATIONS, ExactRows, PaddedRows
from glauber.models.own import symbols
from glauber.models.shelf import INVERSE_FOLDING, Options, cached_folder, check_fetched
from glauber.models.weights import choose_device, choose_dtype

ATOMS = ("N", "CA", "C", "O")
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
MAX_POSITIONS = 4000  # every pair of them is measured
CHAIN_BREAK = 100  # places between two chains
LETTERS = "ACDEFGHIKLMNPQRSTVWYX"
HIDDEN = len(LETTERS)
SCALE = 30.0  # by which the sum over neighbours is divided
# Pairs of atoms whose distances describe an edge, in the order of the weights; B is CB.
PAIRS = "NN CC OO BB AN AC AO AB NC NO NB BC BO OC NA CA OA BA CN ON BN CB OB CO".split()  # noqa: SIM905
CODERS = {"encoder": 3, "decoder": 3}  # layers of each

Atoms = dict[str, list[float]]  # the place of each atom, in Å
Chain = dict[tuple[int, str], tuple[str, Atoms]]  # letter and atoms by number and insertion code
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Backbone:
    """The positions of the chosen chains, one chain after the other."""

    sequence: str  # a letter for each position, X where it is unknown
    atoms: Tensor  # (positions, 4, 3) in Å, float32; 0 where there are none
    present: Tensor  # (positions,) bool: all four atoms are known
    chain: Tensor  # (positions,) the number of the chain, from 0
    number: Tensor  # (positions,) places along the chains, 100 between two

    @property
    def residues(self) -> str:
        """The sequence of the positions that have atoms."""
        positions = zip(self.sequence, self.present, strict=True)
        return "".join(letter for letter, present in positions if present)


def read_backbone(file: str | Path, chains: str = "") -> Backbone:
    """The backbone in a PDB or mmCIF file, of the named chains (such as AB) or of all."""
    need("proteins", "reading a structure", of=["gemmi"])
    residues = _read_residues(Path(file))
    if missing := [name for name in chains if name not in residues]:
        names = ", ".join(sorted(residues))
        raise GlauberError(f"{file} has no chain {missing[0]}; it has {names}.")
    letters: list[str] = []
    atoms: list[list[list[float]]] = []
    chain: list[int] = []
    for count, name in enumerate(sorted(set(chains) or residues)):
        numbers = {number for number, _ in residues[name]}
        skipped = (n for n in range(min(numbers), max(numbers)) if n not in numbers)
        gaps = [(n, "") for n in islice(skipped, MAX_POSITIONS + 1)]
        for key in sorted([*residues[name], *gaps]):
            letter, known = residues[name].get(key, ("X", {}))
            letters.append(letter)
            atoms.append([known.get(atom, [torch.nan] * 3) for atom in ATOMS])
            chain.append(count)
    if len(letters) > MAX_POSITIONS:
        raise GlauberError(f"{file} has more than {MAX_POSITIONS} positions: choose some chains.")
    places = torch.tensor(atoms, dtype=torch.float32)
    present = places.isfinite().all(dim=2).all(dim=1)
    if int(present.sum()) < 2:
        raise GlauberError(f"{file} has fewer than two residues with N, CA, C and O.")
    number = torch.arange(len(chain)) + CHAIN_BREAK * torch.tensor(chain)
    return Backbone("".join(letters), places.nan_to_num(0.0), present, torch.tensor(chain), number)


def _read_residues(file: Path) -> dict[str, Chain]:
    """The residues of each chain.

    Of what is not part of the chain by itself (HETATM) only selenomethionine counts, as methionine.
    """
    import gemmi

    if not file.is_file():
        raise GlauberError(f"there is no structure {file} that can be read.")
    try:
        structure = gemmi.read_structure(str(file))
        if structure.input_format == gemmi.CoorFormat.Pdb:
            _check_numbers(file)
    except (OSError, RuntimeError, ValueError) as error:
        raise GlauberError(f"{file} cannot be read as a structure: {error}.") from error
    chains: dict[str, Chain] = {}
    for chain in structure[0] if len(structure) else ():
        for residue in chain:
            if residue.het_flag == "H" and residue.name != "MSE":
                continue
            info = gemmi.find_tabulated_residue("MET" if residue.name == "MSE" else residue.name)
            code = info.one_letter_code if info.is_amino_acid() else "X"
            key = int(residue.seqid.num or 0), residue.seqid.icode.strip()
            letter = code if code in AMINO_ACIDS else "X"
            places = chains.setdefault(chain.name, {}).setdefault(key, (letter, {}))[1]
            for atom in residue:
                places.setdefault(atom.name, atom.pos.tolist())
    if not chains:
        raise GlauberError(f"{file} contains no atoms of a chain in the format of PDB or mmCIF.")
    return chains


def _check_numbers(file: Path) -> None:
    """Refuses atoms of a PDB file without a number or a place, which gemmi reads as 0."""
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        if line.startswith(("ATOM", "HETATM")):
            try:
                int(line[22:26]), *(float(line[at : at + 8]) for at in (30, 38, 46))
            except ValueError as error:
                raise ValueError(f"the atom of line {number} is broken") from error


def load(name: str, options: Options) -> "InverseFolding":
    """The model of `proteinmpnn:FILE.pdb`, with ?chains=AB or ?order=3 after it."""
    if options.structure is not None:
        if ":" in name:
            raise GlauberError(
                f"{name} names a structure, and {options.structure} is another: give one."
            )
        name = f"{name}:{options.structure}"
    check_fetched(INVERSE_FOLDING)
    file, _, query = name.partition(":")[2].partition("?")
    options_given = dict(part.partition("=")[::2] for part in query.split("&") if part)
    unknown = sorted(set(options_given) - {"chains", "order"})
    if unknown or not file:
        wrong = f"it knows no {unknown[0]}" if unknown else "it needs a structure"
        raise GlauberError(f"{name}: {wrong}; ask for proteinmpnn:FILE.pdb?chains=AB&order=3.")
    order = options_given.get("order")
    if order is not None and not order.isdecimal():
        raise GlauberError(f"the order is {order!r}, but it must be a seed: a whole number.")
    if options.dtype not in InverseFolding.dtypes:
        raise GlauberError(f"ProteinMPNN computes in float32 or float64, not in {options.dtype}.")
    backbone = read_backbone(file, options_given.get("chains", ""))
    weights, neighbours = read(cached_folder(INVERSE_FOLDING))
    return InverseFolding(
        weights,
        backbone,
        name=name,
        neighbours=neighbours,
        order=None if order is None else int(order),
        device=options.device,
        dtype=choose_dtype(options.dtype),
    )


def read(folder: Path) -> tuple[Weights, int]:
    """The weights in a folder, and the number of neighbours that they know."""
    from safetensors.torch import load_file

    config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
    return load_file(folder / "model.safetensors"), int(config["num_edges"])


def about(folder: Path) -> Record:
    """What `glauber models` says of fetched weights, which are a model on any backbone."""
    return _about(read(folder)[0])


def _about(weights: Weights) -> Record:
    return {
        "name": "proteinmpnn:FILE.pdb",
        "kind": "inverse folding",
        "shape": "proteinmpnn",
        "layers": sum(CODERS.values()),
        "width": len(weights["W_e.bias"]),
        "vocabulary": len(LETTERS),
        "proposable": len(LETTERS) - 1,
        "longest": MAX_POSITIONS,
        "parameters": sum(weight.numel() for weight in weights.values()),
        "forward": "described",
    }


class InverseFolding(OnePass):
    """ProteinMPNN on one backbone: scores (rows, k, 21) of hidden residues."""

    dtypes: Sequence[str] = ("float32", "float64")

    def __init__(
        self,
        weights: Weights,
        backbone: Backbone,
        *,
        name: str = "proteinmpnn",
        neighbours: int = 48,
        order: int | None = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        target = choose_device(device)
        self._settings: dict[str, Any] = dict(name=name, neighbours=neighbours, order=order)
        self._raw, self.backbone, self.name = weights, backbone, name
        self.vocab_size, self.hidden_token = len(LETTERS), HIDDEN
        self.vocabulary = symbols(list(LETTERS), self.vocab_size)
        self.texts = [backbone.residues]  # what chains start from where nothing else is given
        self.length = self.longest = len(backbone.residues)
        self._fingerprint = self._hash
        self._weights = {key: value.to(target, dtype) for key, value in weights.items()}
        self._weight = self._weights["W_out.weight"]
        graph = backbone.atoms, backbone.present, backbone.chain, backbone.number
        with torch.no_grad():
            edges, self._near = edges_of(self._weights, *graph, neighbours)
            self._present = backbone.present.to(target, dtype)[:, None]
            self._encoded, self._edges = _encode(
                self._weights, edges, self._near, self._present[:, 0]
            )
        self._columns = backbone.present.nonzero()[:, 0].to(target)  # a position per token
        known = torch.tensor([LETTERS.index(letter) for letter in backbone.sequence])
        self._known = known.to(target)
        self._before = _before(_ranks(backbone, order)).to(target).gather(1, self._near)
        self._batched = (
            PaddedRows(self._forward, self._row_bytes, ACTIVATIONS)
            if target.type == "cuda"
            else ExactRows(self._forward, self.vocab_size)
        )

    def _hash(self) -> str:
        """SHA-256 over weights, structure and order."""
        graph = self.backbone
        digest = hashlib.sha256(f"{graph.sequence} {self._settings['order']}".encode())
        weights = [value for _, value in sorted(self._raw.items())]
        for value in (*weights, graph.atoms, graph.present, graph.chain, graph.number):
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @property
    def about(self) -> Record:
        """What `glauber models` says of it."""
        return _about(self._raw) | {"name": self.name, "longest": self.longest}

    def _copy(self, device: torch.device, dtype: str | None) -> "InverseFolding":
        """The same weights and the same neighbours."""
        return InverseFolding(
            self._raw,
            self.backbone,
            **self._settings,
            device=str(device),
            dtype=choose_dtype(dtype or self.dtype),
        )

    def _row_bytes(self, length: int, k: int) -> int:
        return 6 * self._near.numel() * self._encoded.shape[1] * self._weight.dtype.itemsize

    def _forward(self, tokens: Tensor, sites: Tensor, candidates: Tensor | None) -> Tensor:
        """One call: tokens (rows, residues), sites (rows, k)."""
        written = self._known.repeat(len(tokens), 1)
        written[:, self._columns] = hide(tokens, sites, HIDDEN).to(self.device)
        positions = self._columns[sites.clamp(min=0).to(self.device)]
        scores = self._decode(written, positions).to(tokens.device)
        return scores if candidates is None else scores.gather(-1, candidates)

    def _decode(self, written: Tensor, positions: Tensor) -> Tensor:
        """Scores (rows, k, 21) at `positions`; written (rows, positions) has HIDDEN there."""
        hidden = written == HIDDEN
        # An edge to a residue that was written before: not to hidden ones, which come last.
        seen = ~hidden[:, self._near] & (hidden[:, :, None] | self._before)
        everywhere = torch.arange(written.shape[1], device=written.device).expand_as(written)
        states = self._encoded.expand(len(written), -1, -1)
        last = CODERS["decoder"] - 1
        for number in range(last + 1):
            at = positions if number == last else everywhere
            states = self._layer(f"decoder_layers.{number}", states, written, seen, at)
        return _dense(self._weights, "W_out", states)

    def _layer(
        self, name: str, states: Tensor, written: Tensor, seen: Tensor, at: Tensor
    ) -> Tensor:
        """A layer of the decoder at positions `at` (rows, m): (rows, m, d).

        The first product, of [state, edge, residue, neighbour's state], is made in its four parts,
        of which only the states differ between rows.
        """
        w, rows = self._weights, torch.arange(len(at), device=at.device)[:, None]
        own, edge, residue, other = w[f"{name}.W1.weight"].chunk(4, dim=1)
        near = self._near[at]  # (rows, m, neighbours)
        known = linear(w["W_s.weight"], residue)
        before = known[written.clamp(max=HIDDEN - 1)] + linear(states, other)
        after = linear(self._encoded, other)
        message = torch.where(seen[rows, at][..., None], before[rows[..., None], near], after[near])
        fixed = linear(self._edges, edge, w[f"{name}.W1.bias"])
        message = gelu(message + fixed[at] + linear(states[rows, at], own)[:, :, None])
        summed = gelu(_dense(w, f"{name}.W2", message)).sum(dim=2)
        summed = linear(summed, w[f"{name}.W3.weight"], near.shape[2] * w[f"{name}.W3.bias"])
        return _feed(w, name, states[rows, at] + summed / SCALE) * self._present[at]


def _dense(w: Weights, name: str, x: Tensor) -> Tensor:
    return linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def _norm(w: Weights, name: str, x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def _feed(w: Weights, name: str, x: Tensor) -> Tensor:
    """Norm, feed-forward, norm: how every layer ends."""
    x = _norm(w, f"{name}.norm1", x)
    between = gelu(_dense(w, f"{name}.dense.W_in", x))
    return _norm(w, f"{name}.norm2", x + _dense(w, f"{name}.dense.W_out", between))


def edges_of(
    w: Weights, atoms: Tensor, present: Tensor, chain: Tensor, number: Tensor, neighbours: int
) -> tuple[Tensor, Tensor]:
    """Edges (positions, neighbours, d) to the nearest positions, and which these are.

    An edge knows the distances of all pairs of atoms, in soft bins, and how far apart its ends are
    along the chain. Who is near is decided in float32, so that float64 has the same graph.
    """
    like = next(iter(w.values()))
    both = (present[:, None] & present[None]).float()
    apart = both * _distances(atoms[:, 1], atoms[:, 1])
    farthest = apart.amax(dim=1, keepdim=True)
    near = (apart + (1 - both) * farthest).topk(min(neighbours, len(atoms)), largest=False)[1]
    nitrogen, alpha, carbon, oxygen = atoms.to(like.dtype).unbind(dim=1)
    b, c = alpha - nitrogen, carbon - alpha
    beta = -0.58273431 * torch.cross(b, c, dim=-1) + 0.56802827 * b - 0.54067466 * c + alpha
    atom = {"N": nitrogen, "A": alpha, "C": carbon, "O": oxygen, "B": beta}
    alphas = both * _distances(alpha, alpha) + (1 - both) * farthest  # absent ones are far away
    pairs = (alphas, *(_distances(atom[pair[0]], atom[pair[1]]) for pair in PAIRS))
    bins = torch.cat([_bins(distance.gather(1, near)) for distance in pairs], dim=-1)
    along = (number[:, None] - number[None]).gather(1, near).add(32).clamp(0, 64)
    same = (chain[:, None] == chain[None]).gather(1, near)
    steps = torch.where(same, along, 65).to(like.device)
    places = w["features.embeddings.linear.weight"].T[steps] + w["features.embeddings.linear.bias"]
    features = torch.cat([places, bins.to(like)], dim=-1)
    edges = _norm(w, "features.norm_edges", linear(features, w["features.edge_embedding.weight"]))
    return _dense(w, "W_e", edges), near.to(like.device)


def _distances(first: Tensor, second: Tensor) -> Tensor:
    return ((first[:, None] - second[None]).square().sum(dim=-1) + 1e-6).sqrt()


def _bins(distance: Tensor) -> Tensor:
    """Sixteen bumps between 2 and 22 Å."""
    centres = torch.linspace(2.0, 22.0, 16, dtype=distance.dtype)
    return torch.exp(-(((distance[..., None] - centres) / (20.0 / 16)) ** 2))


def _encode(w: Weights, edges: Tensor, near: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """The structure as states (positions, d) and edges (positions, neighbours, d)."""
    states = edges.new_zeros(len(edges), edges.shape[-1])
    both = (present[:, None] * present[near])[..., None]

    def message(names: tuple[str, str, str]) -> Tensor:
        ends = states[:, None].expand_as(edges)
        x = torch.cat([ends, edges, states[near]], dim=-1)
        x = gelu(_dense(w, names[1], gelu(_dense(w, names[0], x))))
        return _dense(w, names[2], x)

    for number in range(CODERS["encoder"]):
        name = f"encoder_layers.{number}"
        summed = (both * message((f"{name}.W1", f"{name}.W2", f"{name}.W3"))).sum(dim=1)
        states = _feed(w, name, states + summed / SCALE) * present[:, None]
        change = message((f"{name}.W11", f"{name}.W12", f"{name}.W13"))
        edges = _norm(w, f"{name}.norm3", edges + change)
    return states, edges


def _ranks(backbone: Backbone, order: int | None) -> Tensor:
    """When each position is written: absent ones first, then along the chain or shuffled."""
    count = len(backbone.sequence)
    ranks = torch.arange(count)
    if order is not None:
        ranks = torch.randperm(count, generator=torch.Generator().manual_seed(order))
    return torch.where(backbone.present, ranks, ranks - count)


def _before(ranks: Tensor) -> Tensor:
    """Whether the second position was written before the first, (positions, positions)."""
    return ranks[None] < ranks[:, None]
