"""Which sentences of a large text are most like those of a translator's training?

    python -m recipes.similar_sentences --like TRAIN.tsv.xz --without VALID.tsv.xz TEST.tsv.xz \
        --out further.txt TEXT.xz …

Nobody has translated them, but a teacher can (`recipes.translation distil --further`), and a
student learns from its translations as from the others. A sentence is the more alike the likelier
it is under a bigram law of the training's sources. What stands in a held-out file is left out.
"""

import argparse
import itertools
import lzma
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from glauber.translation.data import read_pairs

words_of = re.compile(r"[a-z]+(?:'[a-z]+)?|[^\sa-z]").findall
sentences_of = re.compile(r'(?<=[.!?])["”]?\s+').split
CHARACTERS, WORDS = (8, 90), (4, 18)  # of a sentence, at least and at most
DOUBT = 4.0  # weight of the words' own law in that of a word after another


class Bigrams:
    """The law of a word after another, smoothed by the law of words."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self.words: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        for sentence in sentences:
            said = ["<s>", *words_of(sentence.lower()), "</s>"]
            self.words.update(said)
            self.pairs.update(itertools.pairwise(said))
        self.total = sum(self.words.values()) + 0.1 * len(self.words) + 1000

    def surprise(self, words: list[str]) -> float:
        """Mean negative log-probability of a word, in nats."""
        said = ["<s>", *words, "</s>"]
        logs = 0.0
        for before, word in itertools.pairwise(said):
            alone = (self.words[word] + 0.1) / self.total
            logs -= math.log(
                (self.pairs[before, word] + DOUBT * alone) / (self.words[before] + DOUBT)
            )
        return logs / (len(said) - 1)


def sentences(paths: Iterable[Path]) -> Iterator[str]:
    """The sentences of plain or xz texts, one passage a line."""
    for path in paths:
        with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
            for line in file:
                for sentence in sentences_of(str(line).strip()):
                    yield sentence.strip().strip('"“”').strip()


def fits(sentence: str) -> bool:
    """Whether it looks like a whole sentence of the right size."""
    if not CHARACTERS[0] <= len(sentence) <= CHARACTERS[1]:
        return False
    return sentence[-1] in ".!?" and sentence[0].isupper()


def similar(
    candidates: Iterable[str], like: Iterable[str], without: Iterable[str], count: int
) -> list[str]:
    """The `count` candidates that are most like the given sentences, in random order."""
    like = set(like)
    law = Bigrams(sorted(like))
    seen = {sentence.lower() for sentence in like}
    held = {_bare(sentence) for sentence in without}
    found = []
    for sentence in candidates:
        if not fits(sentence) or sentence.lower() in seen or _bare(sentence) in held:
            continue
        words = words_of(sentence.lower())
        if WORDS[0] <= len(words) <= WORDS[1]:
            seen.add(sentence.lower())
            found.append((law.surprise(words), sentence))
    chosen = [sentence for _, sentence in sorted(found)[:count]]
    random.Random(0).shuffle(chosen)
    return chosen


def _bare(sentence: str) -> str:
    return sentence.lower().strip('.!?" ')


def main(words: list[str] | None = None) -> None:
    """Reads the command line and writes the sentences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--like", type=Path, required=True)
    parser.add_argument("--without", type=Path, nargs="*", default=[])
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(words)
    held = [source for path in args.without for source, _ in read_pairs(path)]
    like = [source for source, _ in read_pairs(args.like)]
    chosen = similar(sentences(args.texts), like, held, args.count)
    args.out.write_text("\n".join(chosen) + "\n", encoding="utf-8")
    print(f"{len(chosen)} sentences", flush=True)


if __name__ == "__main__":
    main()
