"""One small call of each translation study."""

import glauber
from glauber.translation.data import VOCABULARY, write_pairs
from glauber.translation.model import save
from tiny_translation import tiny, toy_pairs, toy_vocabulary


def translator(folder):
    """A folder with a tiny student, its teacher and pairs."""
    vocabulary = toy_vocabulary()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / VOCABULARY).write_bytes(vocabulary.serialized)
    for name, kind in (("student", "refine"), ("teacher", "ar")):
        save(tiny(kind, vocabulary.size), folder, name)
    write_pairs(folder / "toy.tsv", toy_pairs(30, seed=9))
    return folder


def trained(at):
    at.folder.mkdir(parents=True, exist_ok=True)
    write_pairs(at.folder / "train.tsv", toy_pairs(60))
    return glauber.train_translator(
        at.folder / "train.tsv", out=at.folder / "trained", steps=2, batch=8, vocabulary=60,
        width=16, layers=1, device="cpu",
    )  # fmt: skip


def evaluated(at):
    folder = translator(at.folder / "judged")
    return glauber.evaluate_translator(folder / "toy.tsv", model=folder, limit=4, timed=1, steps=1)


def timed(at):
    folder = translator(at.folder / "timed")
    return glauber.time_translator(folder / "toy.tsv", model=folder, long=0, limit=4, steps=1)


EXAMPLES = {
    "translate": lambda at: glauber.translate(
        ["the cat sees the dog.", "a bird."], model=translator(at.folder / "translator"), steps=2
    ),
    "train_translator": trained,
    "evaluate_translator": evaluated,
    "time_translator": timed,
}
