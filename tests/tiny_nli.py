"""A tiny entailment model with random weights, as a folder that `--scorer` accepts."""

from pathlib import Path

import torch
import transformers
from tokenizers import processors

from conftest import SIZES, make_tokenizer

CLASSES = {"contradiction": 0, "neutral": 1, "entailment": 2}


def make_nli(folder: Path, classes: dict[str, int] | None = None) -> Path:
    classes = classes or CLASSES
    torch.manual_seed(3)
    config = transformers.BertConfig(
        **SIZES,
        hidden_dropout_prob=0.0,
        label2id=classes,
        id2label={i: n for n, i in classes.items()},
    )
    model = transformers.BertForSequenceClassification(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3)
    model.save_pretrained(folder)
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save_pretrained(folder)
    return folder
