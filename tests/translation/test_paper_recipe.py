"""Paper B's recipe as a preset, the data sets of the hub, and what a folder contains before."""

import dataclasses
import json
import math

import pytest

from glauber import evaluate_translator, train_translator
from glauber.foundation.errors import GlauberError
from glauber.translation.data import load_vocabulary, read_pairs, read_split, write_pairs
from glauber.translation.decoding import Decoding, translate_texts
from glauber.translation.model import load
from glauber.translation.recipe import (
    PAPER,
    compare_recipe,
    plan_of,
    settings_of,
    shape_of,
    weight_shapes,
)
from tiny_translation import toy_pairs

SMALL = dict(batch=16, vocabulary=60, width=32, heads=2, layers=1, device="cpu")


@pytest.fixture
def pairs(tmp_path):
    write_pairs(tmp_path / "pairs.tsv", toy_pairs(60))
    return tmp_path / "pairs.tsv"


@pytest.fixture
def said(monkeypatch):
    """What is said while a translator is trained."""
    texts = []
    for room in ("training", "recipe", "data"):
        monkeypatch.setattr(f"glauber.translation.{room}.say", texts.append)
    return texts


def test_the_preset_has_the_papers_67_million_parameters():
    """Counted layer by layer, from the sizes in appendix L.2."""
    shape = shape_of(settings_of("paper", {}))
    width, inner, places = 512, 2048, 128
    attention, norm = 4 * (width * width + width), 2 * width
    forward = width * inner + inner + inner * width + width
    encoder = 6 * (attention + forward + 2 * norm) + norm
    decoder = 6 * (3 * attention + forward + 4 * norm) + norm
    tables = 32_000 * (width + 1) + 2 * places * width + (2 * places + 1) * (width + 1)
    count = sum(map(math.prod, weight_shapes(shape)))
    assert count == encoder + decoder + tables and round(count / 1e6, 2) == 67.13


def test_the_preset_is_the_papers_and_says_what_is_not():
    rows = {row.hyperparameter: row for row in compare_recipe(settings_of("paper", {}))}
    differs = [name for name, row in rows.items() if row.verdict == "differs"]
    assert differs == ["positional attention", "targets", "longest pair"]
    chosen = [name for name, row in rows.items() if row.verdict == "our choice"]
    assert chosen == [
        "hidden positions are attended to",
        "label smoothing",
        "weight of the length's loss",
        "draft of the next stage",
    ]
    usual = {row.hyperparameter: row.verdict for row in compare_recipe(settings_of(None, {}))}
    assert usual["optimizer"] == usual["its constants"] == usual["first weights"] == "differs"
    assert usual["dropout"] == usual["first and last rate"] == usual["stages"] == "equal"


def test_each_change_of_the_preset_is_seen():
    """Another value of any setting that the paper gives changes the list."""
    settings = settings_of("paper", {})
    listed = compare_recipe(settings)
    for name, value in PAPER.items():
        other = {"corruption": "mask", "begin": "teacher", "optimizer": "adamw"}.get(name)
        if other is None:
            other = not value if isinstance(value, bool) else value * 2 if value else 0.5
        changed = compare_recipe(settings_of("paper", {name: other}))
        assert [row.hyperparameter for row in changed] == [row.hyperparameter for row in listed]
        verdicts = [row.here for row in changed] != [row.here for row in listed]
        assert verdicts, name


def test_the_preset_trains_and_is_printed(pairs, tmp_path):
    found = train_translator(
        pairs, out=tmp_path / "new", preset="paper", steps=3, inner=64, warmup=2, **SMALL
    )
    plan = json.loads((tmp_path / "new" / "student.training.json").read_text())
    given = {"n_steps": 3, "n_pairs": 16, "warmup": 2}
    expected = dataclasses.asdict(plan_of(settings_of("paper", {}))) | given
    assert expected.items() <= plan.items() and plan["begin_from"] is None
    shape = json.loads((tmp_path / "new" / "student.json").read_text())
    assert (shape["inner"], shape["n_encoder"], shape["max_length"]) == (64, 1, 128)
    rows = {row["hyperparameter"]: row for row in found.to_dict()["recipe"]}
    assert rows["width"] == {
        "hyperparameter": "width", "here": 32, "paper": 512, "verdict": "differs", "note": ""
    }  # fmt: skip
    assert rows["its constants"]["here"] == "sides < 128 factored"
    assert rows["optimizer"]["verdict"] == rows["first weights"]["verdict"] == "equal"
    assert "of 32 hyperparameters are those of paper B" in str(found)
    assert all(name in str(found) for name in rows)
    assert [step for step, _ in found.models[1].curve] == [1, 2, 3]


def test_each_side_has_its_layers_and_a_student_its_first_weights(pairs, tmp_path):
    """A teacher with a shallow decoder; after one step at the lowest rate weights are the first."""
    one = SMALL | dict(encoder_layers=2, decoder_layers=1, inner=40, steps=1, warmup=1)
    for begin in ("teacher", "random"):
        folder = tmp_path / begin
        train_translator(pairs, out=folder, begin=begin, **one)
        teacher, student = load(folder, "teacher"), load(folder, "student")
        for model in (teacher, student):
            assert (len(model.encoder), len(model.decoder), model.shape.inner) == (2, 1, 40)
        apart = (teacher.words.weight - student.words.weight).abs().max()
        # Embeddings are drawn with a standard deviation of 0.02; a step moves them by 1e-5.
        assert (apart < 1e-3) == (begin == "teacher")


def test_a_vocabulary_of_other_texts(pairs, tmp_path):
    small = SMALL | {"vocabulary": 50}  # of so few letters
    texts = [f"{a}ж{b}" for a in "abcdefghijklmnop" for b in "rstuvw"] * 3
    (tmp_path / "texts.txt").write_text("\n".join(texts + [text for text, _ in toy_pairs(60)]))
    found = train_translator(
        pairs, out=tmp_path / "new", vocabulary_from=tmp_path / "texts.txt", steps=1, **small
    )
    vocabulary = load_vocabulary(tmp_path / "new")
    assert "ж" in "".join(vocabulary.spell(token) for token in range(vocabulary.size))
    rows = {row.hyperparameter: row for row in found.recipe}
    assert rows["vocabulary learnt from"].here == "other texts"


def test_what_a_folder_contained_before_is_said_or_refused(pairs, tmp_path, said):
    options = SMALL | dict(out=tmp_path / "new", steps=1)
    train_translator(pairs, **options)
    assert not any("before" in text for text in said)
    for name in ("student.safetensors", "student.checkpoint.pt"):
        (tmp_path / "new" / name).unlink()
    write_pairs(tmp_path / "new" / "distilled.tsv", toy_pairs(40))
    said.clear()
    found = train_translator(pairs, **options)
    assert found.models[1].n_examples == 40
    assert any(
        "distilled.tsv was in" in text and "the student learns its 40 pairs" in text
        for text in said
    )
    assert any("is resumed: its vocabulary has 60 tokens" in text for text in said)
    with pytest.raises(GlauberError, match=r"the teacher in .* has width 32 and not 64: give"):
        train_translator(pairs, **options | {"width": 64})
    write_pairs(pairs, toy_pairs(61))
    with pytest.raises(GlauberError, match="was prepared from other pairs: give a new folder"):
        train_translator(pairs, **options)


@pytest.fixture
def data_set(tmp_path, monkeypatch):
    """A folder laid out as the WMT data sets of the hub: splits, and a column `translation`."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = {"train": toy_pairs(60), "test": toy_pairs(12, seed=9)}
    rows["train"][3] = ("a cat\u2028sees\t a dog.\n", "un gato ve un can.")
    rows["train"][5] = ("", "nada")
    folder = tmp_path / "wmt"
    folder.mkdir()
    for split, listed in rows.items():
        lines = [json.dumps({"translation": {"de": de, "en": en}}) for de, en in listed]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: de-en\n  data_files:\n"
        "  - split: train\n    path: train.jsonl\n  - split: test\n    path: test.jsonl\n---\n"
    )
    return folder, rows


def test_a_data_set_is_read_in_both_directions_and_by_split(data_set, tmp_path, said):
    folder, rows = data_set
    expected = [pair for pair in rows["train"] if all(pair)]
    expected[3] = ("a cat sees a dog.", "un gato ve un can.")
    assert read_split(f"hub:{folder}:de-en", "train") == expected
    assert "1 of 60 pairs have an empty side: left out" in said
    back = [(target, source) for source, target in expected]
    assert read_split(f"hub:{folder}:de-en:en-de", "train") == back
    write_pairs(tmp_path / "written.tsv", expected)  # nothing in a text breaks the file
    assert read_pairs(tmp_path / "written.tsv") == expected
    out, name = tmp_path / "new", f"hub:{folder}:de-en:en-de"
    found = train_translator(name, out=out, steps=1, control=True, **SMALL)
    assert [model.name for model in found.models] == ["teacher", "student", "ar-distilled"]
    assert found.models[2].n_examples == found.models[1].n_examples
    assert load(out, "ar-distilled").shape.kind == "ar"
    assert read_pairs(out / "pairs.tsv") == back
    judged = evaluate_translator(name, model=out, timed=0, steps=1, tokenizer="intl")
    assert judged.systems[0].quality.n_sentences == len({en for _, en in rows["test"]})
    assert judged.file == name
    (control,) = [row for row in judged.systems if row.system == "ar on distilled pairs, beam 5"]
    model, teacher = load(out, "ar-distilled"), load(out, "teacher")
    assert not model.words.weight.equal(teacher.words.weight)
    outputs = translate_texts(
        model,
        load_vocabulary(out),
        [text for _, text in rows["test"]],
        decoding=Decoding("ar", n_beams=5),
    )
    assert [one.text for one in outputs] == list(control.outputs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hub:{}:de-en:en-fr", "has no texts in fr"),
        ("hub:{}:ro-en", "could not be read"),
        ("hub:{}/nowhere:de-en", "could not be read"),
        ("hub:nobody/nothing:de-en", "could not be read"),
        ("hub:{}:de-en:en", "write hub:NAME:CONFIG"),
        ("hub:{}:de-en:en-de:x", "write hub:NAME:CONFIG"),
    ],
)
def test_a_data_set_that_cannot_be_read_is_one_sentence(data_set, name, message):
    with pytest.raises(GlauberError, match=message) as problem:
        read_split(name.format(data_set[0]), "train")
    assert "\n" not in str(problem.value)
