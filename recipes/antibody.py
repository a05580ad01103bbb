"""An antibody masked LM as a folder that glauber loads, from the PyPI wheel antiberty 0.1.3 (MIT).

python -m recipes.antibody --out antibody
glauber sample --model antibody --from sequences.txt

The wheel carries weights of BERT shape with heads of its own; the masked-LM head is kept, and a
tokenizer with one token per residue is written beside it. Nothing of the wheel is run.
"""

import argparse
import zipfile
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from recipes.wheels import download

WHEEL = "antiberty==0.1.3"
INSIDE = "antiberty/trained_models"


def make_tokenizer(vocabulary: list[str]) -> PreTrainedTokenizerFast:
    """One token per residue, [CLS] and [SEP] around the sequence, no spaces when decoded."""
    words = {word: token for token, word in enumerate(vocabulary)}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", words["[CLS]"]), ("[SEP]", words["[SEP]"])],
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=512, **names)


def make(out: Path, cache: Path) -> None:
    """Writes the model and tokenizer to `out`."""
    with zipfile.ZipFile(download(WHEEL, cache)) as wheel:
        wheel.extractall(cache, [n for n in wheel.namelist() if n.startswith(INSIDE)])
    home = cache / INSIDE
    weights = torch.load(
        home / "AntiBERTy_md_smooth" / "pytorch_model.bin", map_location="cpu", weights_only=True
    )
    config = BertConfig.from_pretrained(home / "AntiBERTy_md_smooth")
    model = BertForMaskedLM(config)
    # The pooler and the heads for species, chain and graft have no place in a masked LM.
    missing, _ = model.load_state_dict(weights, strict=False)
    if missing:
        raise SystemExit(f"the wheel lacks {missing}")
    model.save_pretrained(out)
    make_tokenizer((home / "vocab.txt").read_text().split()).save_pretrained(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path(".cache/antibody"))
    args = parser.parse_args()
    make(args.out, args.cache)
    print(args.out)
