"""Tiny translators with random weights and a toy language, made anew where they are asked for."""

import random

import torch

from glauber.translation.data import Pair, SubwordVocabulary
from glauber.translation.model import FIRST_WORD, Shape, Translator

ENGLISH = "the a cat dog bird house sees eats red blue old new and not here there".split()  # noqa: SIM905
SPANISH = "el un gato can pajaro casa ve come rojo azul viejo nuevo y no aqui lejos".split()  # noqa: SIM905


def toy_pairs(n_pairs: int, *, seed: int = 0, longest: int = 8) -> list[Pair]:
    """Sentences of the toy language and their word-for-word translations."""
    draw = random.Random(seed)
    rows = [draw.sample(range(len(ENGLISH)), draw.randint(2, longest)) for _ in range(n_pairs)]
    return [
        (" ".join(ENGLISH[i] for i in row) + ".", " ".join(SPANISH[i] for i in row) + ".")
        for row in rows
    ]


def toy_vocabulary(size: int = 60) -> SubwordVocabulary:
    return SubwordVocabulary.learn([text for pair in toy_pairs(300) for text in pair], size)


def tiny(kind: str, vocab_size: int = 60, *, scale: float = 6.0, **sizes: int) -> Translator:
    """A translator in double precision whose scores are far from ties."""
    torch.manual_seed(3)
    shape = Shape(kind, vocab_size, 32, 2, 2, 2, 48, max_length=64, dropout=0.0)
    model = Translator(shape)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(scale)
    return model.double().eval()


def sources(n_rows: int, vocab_size: int = 60, *, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [
        [draw.randrange(FIRST_WORD, vocab_size) for _ in range(draw.randint(2, 9))]
        for _ in range(n_rows)
    ]
