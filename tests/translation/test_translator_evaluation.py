"""Are translators judged as the paper judges them, and do the pictures say the same?"""

import json
import sys
import types

import pytest

from glauber import evaluate_translator, translate
from glauber.foundation.errors import GlauberError
from glauber.translation.data import VOCABULARY, Example, by_source, load_vocabulary, write_pairs
from glauber.translation.decoding import ORDERS, Decoding, translate_texts
from glauber.translation.evaluation import (
    LENGTHS,
    STEPS,
    TEST_PAIRS,
    Measures,
    evaluate,
    latencies,
    summarise_times,
    systems,
    throughput,
)
from glauber.translation.model import load, save
from glauber.translation.score import (
    PREPROCESSING,
    bleu_difference,
    first_references,
    learned_score,
    preprocessed_bleus,
    preprocessing_difference,
    quality,
    repeat_rate,
    share_near,
    stutter_rate,
)
from tiny_translation import tiny, toy_pairs, toy_vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny student and teacher, and pairs to judge them by."""
    path, vocabulary = tmp_path_factory.mktemp("translators"), toy_vocabulary()
    (path / VOCABULARY).write_bytes(vocabulary.serialized)
    for name, kind in (("student", "refine"), ("teacher", "ar")):
        save(tiny(kind, vocabulary.size), path, name)
    write_pairs(path / "pairs.tsv", toy_pairs(30, seed=9))
    return path


def test_stutter_is_what_no_reference_repeats():
    judged = [Example("", ("no no", "No, no")), Example("", ("ya ya ya",))]
    assert stutter_rate(["no no no", "Ya ya"], judged) == pytest.approx(1 / 5)
    assert stutter_rate(["no no", "va va"], judged) == pytest.approx(1 / 4)
    assert repeat_rate(["no no", "ya va ya Ya"]) == pytest.approx(2 / 6)
    # Marks at the ends do not hide a repetition, marks between the two words end it.
    plain = [Example("", ("a",))]
    for text, n in {"la casa casa.": 1, "¿Te te fue?": 1, "no, no": 0, "Tom. Tom": 0,
                    "va vaca": 0, "él él él": 2}.items():  # fmt: skip
        assert stutter_rate([text], plain) == pytest.approx(n / len(text.split())), text
    # The references' own rate is that of the first ones: "no no" and "ya ya ya".
    assert quality(["a", "b"], judged).reference_stutter == pytest.approx(3 / 5)


def test_chinese_has_no_blanks():
    plain = [Example("", ("我喜欢苹果。",))]
    # Each character is a word; a repetition has one to four characters.
    for text, n, of in (
        ("好好好", 2, 3),
        ("我喜欢喜欢苹果。", 1, 7),
        ("中国人民中国人民", 1, 8),
        ("我喜欢苹果。", 0, 5),
        ("我 very very 喜欢", 1, 5),
        ("苹果。苹果", 0, 4),
    ):
        assert stutter_rate([text], plain) == pytest.approx(n / of), text
    excused = [Example("", ("妈妈好",))]
    assert stutter_rate(["妈妈好"], excused) == 0
    assert repeat_rate(["妈妈好"]) == pytest.approx(1 / 3)


def test_one_reference_has_the_papers_signature():
    judged = [Example("", ("uno dos tres cuatro", "a b c d")), Example("", ("x y z w",))]
    texts = ["a b c d", "x y z w"]
    alone = quality(texts, first_references(judged, 1))
    assert alone.bleu_signature.startswith("nrefs:1|case:mixed|")
    assert alone.bleu < quality(texts, judged).bleu == pytest.approx(100)
    assert first_references(judged, None) == judged


def test_preprocessing_by_hand():
    """What each of them hides: case, accents, and a mark that stands at a word."""
    judged = [Example("", ("El niño come aquí hoy, y yo (también) como.",))] * 2
    texts = ["el Nino come aqui hoy , y yo ( también ) como ."] * 2
    bleus = preprocessed_bleus(texts, judged)
    assert set(bleus) == set(PREPROCESSING)
    assert bleus["13a"] == pytest.approx(quality(texts, judged).bleu)
    assert bleus["intl"] == pytest.approx(quality(texts, judged, tokenizer="intl").bleu)
    lowered = [Example("", (judged[0].references[0].lower(),))] * 2
    small = [text.lower() for text in texts]
    assert bleus["lower case"] == pytest.approx(quality(small, lowered).bleu)
    assert bleus["all three"] == pytest.approx(100)
    assert bleus["no diacritics"] > bleus["13a"]
    assert bleus["marks apart"] > bleus["words as they are"]
    difference = preprocessing_difference(texts, judged, "marks apart", "words as they are")
    assert difference.value == pytest.approx(bleus["marks apart"] - bleus["words as they are"])


def test_a_share_comes_near():
    judged = [Example("", ("la casa grande",))] * 4
    texts = ["la casa grande", "la casa grands", "nada", "la casa grande"]
    others = ["la casa grande", "la casa grande", "la casa grande", "nada"]
    near = share_near(texts, others, judged, margin=20.0)
    assert near.value == 0.75 and near.n_chains == 4
    assert share_near(texts, others, judged, margin=0.0).value == 0.5


def test_a_percentile_has_its_interval():
    few, many = (summarise_times([float(x) for x in range(1, n + 1)]) for n in (100, 368))
    assert few.p99 == 99 and few.p99_interval == (97.0, None)
    assert many.p99_interval == (360.0, 368.0)
    assert summarise_times([1.0] * 99).p99_interval is None


def test_throughput_is_at_the_best_batch_size():
    asked = []
    made = throughput(lambda texts, size: asked.append((len(texts), size)), list("abcdefgh"))
    assert asked == [(3, 3), (8, 1), (8, 4)]  # sizes above 8 would be 8 again
    assert made.best == made.by_size[made.batch_size] == max(made.by_size.values())
    assert throughput(lambda texts, size: None, ["a"], sizes=(4,)).by_size.keys() == {1}


def test_systems_are_timed_in_turn():
    asked = []
    made = latencies([lambda t: asked.append(t), lambda t: asked.append(t.upper())], ["a", "b"])
    assert asked == ["a", "A", "b", "B"] * 2 and [one.n_sentences for one in made] == [2, 2]


def test_differences_of_bleu_are_those_of_the_corpus_scores():
    judged = by_source(toy_pairs(40, seed=2))
    good = [one.references[0] for one in judged]
    worse = [" ".join(text.split()[:-1]) + "." for text in good]
    found = bleu_difference(worse, good, judged)
    assert found.value == pytest.approx(quality(worse, judged).bleu - quality(good, judged).bleu)
    assert found.word == "lower" and 0 < found.standard_error < -found.value
    assert found.interval[0] < found.value < found.interval[1] < 0
    assert found.n_sentences == len(judged)
    same = bleu_difference(good, good, judged)
    assert (same.value, same.interval, same.word) == (0.0, None, "cannot tell")
    with pytest.raises(GlauberError, match="same sentences"):
        bleu_difference(good[1:], good, judged)


def test_a_paired_error_is_that_of_repeated_test_sets():
    """The bootstrap's error against the spread over disjoint sets of the same kind."""
    errors, values = [], []
    for part in range(12):
        judged = by_source(toy_pairs(60, seed=100 + part, longest=12))
        good = [one.references[0] for one in judged]
        # Every third sentence loses its last word, by its own length: a random share of words.
        worse = [t if len(t) % 3 else " ".join(t.split()[:-1]) for t in good]
        found = bleu_difference(worse, good, judged)
        errors.append(found.standard_error)
        values.append(found.value)
    mean = sum(values) / 12
    spread = (sum((value - mean) ** 2 for value in values) / 11) ** 0.5
    # A standard deviation from 12 sets has a relative error of 1 / sqrt(22) = 0.21.
    assert sum(errors) / 12 == pytest.approx(spread, rel=3 * 0.21)


def test_learned_metrics_say_what_is_missing(monkeypatch):
    judged = [Example("one", ("uno", "un")), Example("two", ("dos",))]
    with pytest.raises(GlauberError, match="unbabel-comet"):
        learned_score(["uno", "dos"], judged)
    with pytest.raises(GlauberError, match="BLEURT is not installed"):
        learned_score(["uno", "dos"], judged, metric="bleurt")
    with pytest.raises(GlauberError, match="comet, bleurt"):
        learned_score(["uno", "dos"], judged, metric="taste")
    asked = []

    class Model:
        def predict(self, rows, gpus):
            asked.extend(rows)
            return types.SimpleNamespace(scores=[0.5, 0.75])

    comet = types.ModuleType("comet")
    comet.download_model = lambda name: f"{name}/model.ckpt"
    comet.load_from_checkpoint = lambda path: Model()
    monkeypatch.setitem(sys.modules, "comet", comet)
    found = learned_score(["uno", "dos"], judged)
    assert found.score == 0.625 and found.weights == "Unbabel/wmt22-comet-da"
    assert asked[0] == {"src": "one", "mt": "uno", "ref": "uno"}
    assert found.scores == (0.5, 0.75)


def test_systems_are_judged_on_the_same_sentences(folder):
    judged = by_source(toy_pairs(12, seed=9))
    chosen = systems((1, 2), 2, decoders=("refine", "sundae"), options=Decoding(n_hypotheses=2))
    made = evaluate(folder, judged, chosen, measures=Measures(3, 5))
    assert [one.system for one in made] == list(chosen)
    assert list(chosen)[2:4] == ["refine, 1 step", "refine, 2 steps"]
    for one in made:
        assert one.latency.n_sentences == 3 and set(one.throughput.by_size) == {1, 4}
        assert len(one.outputs) == 12 == one.quality.n_sentences
        assert one.n_passes <= one.decoding.n_steps or one.decoding.decoder == "ar"


def test_an_oracle_is_told_the_first_references_length(folder):
    judged = by_source(toy_pairs(12, seed=9))
    how = Decoding(n_lengths=1, length="oracle", drop_repeats=False)
    (made,) = evaluate(folder, judged, {"oracle": ("student", how)}, measures=Measures(0))
    assert made.latency is None and made.throughput is None
    vocabulary = load_vocabulary(folder)
    lengths = [len(vocabulary.encode(one.references[0])) for one in judged]
    alone = translate_texts(
        load(folder, "student"), vocabulary, [one.source for one in judged],
        decoding=how, reference_lengths=lengths,
    )  # fmt: skip
    assert [len(one.tokens) for one in alone] == lengths and len(set(lengths)) > 1
    assert made.outputs == tuple(one.text for one in alone)


def test_the_frontier_has_every_point_and_its_picture_shows_them(folder):
    made = evaluate_translator(folder / "pairs.tsv", model=folder, limit=5, timed=1, frontier=True)
    assert [one.system for one in made.systems[:2]] == ["ar, greedy", "ar, beam 5"]
    refined = made.systems[2:]
    assert [(one.decoding.n_lengths, one.decoding.n_steps) for one in refined] == [
        (lengths, steps) for lengths in LENGTHS for steps in STEPS
    ]
    assert all(one.decoding.judge == "itself" for one in refined)
    figure = made.figure()
    assert len(figure.data) == len(LENGTHS) + 2
    for line, lengths in zip(figure.data, LENGTHS, strict=False):
        points = [one for one in refined if one.decoding.n_lengths == lengths]
        assert line.name.startswith(f"refine-remask, B = {lengths}")
        assert list(line.x) == [1000 * one.latency.median for one in points]
        assert list(line.y) == [one.quality.bleu for one in points]
    with pytest.raises(GlauberError, match="timed is 0"):
        evaluate_translator(folder / "pairs.tsv", model=folder, timed=0, frontier=True)


def test_an_evaluation_prints_tabulates_and_draws_itself(folder):
    made = evaluate_translator(
        folder / "pairs.tsv", model=folder, limit=5, steps=2, timed=2, throughput=True,
        length="oracle", lengths=1,
    )  # fmt: skip
    told = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert [one["system"] for one in told["systems"]] == [
        "ar, greedy",
        "ar, beam 5",
        "refine-remask, 2 steps",
        "refine-remask, 2 steps, judged by ar",
    ]
    assert told["kind"] == "estimate" and told["learned"] == []
    assert told["systems"][2]["decoding"]["length"] == "oracle"
    assert all(one["throughput"]["best"] > 0 for one in told["systems"])
    frame = made.frame()
    assert list(frame["system"]) == [one["system"] for one in told["systems"]]
    assert list(frame["BLEU"]) == [one.quality.bleu for one in made.systems]
    assert "refine-remask, 2 steps" in str(made) and "estimates on these 5 sentences" in str(made)
    assert list(made.figures()) == ["frontier", "quality"]
    bars = made.figures()["quality"].data[0]
    assert list(bars.x) == list(frame["BLEU"])


def test_one_reference_and_preprocessing_are_options(folder):
    asked = {"model": folder, "limit": 5, "steps": 1, "timed": 0}
    made = evaluate_translator(folder / "pairs.tsv", references=1, preprocessing=True, **asked)
    assert "nrefs:1" in str(made) and "cannot be compared" in str(made)
    assert (made.frame()["BLEU, 13a"] == made.frame()["BLEU"]).all()
    assert "BLEU, 13a" not in evaluate_translator(folder / "pairs.tsv", **asked).frame()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"judge": "x"}, "the judge is x"),
        ({"references": 0}, "references is 0"),
        ({"decoder": "ar"}, "the decoder is ar"),
        ({"decoder": ""}, "the decoder is missing"),
        ({"limit": 0}, "limit is 0"),
        ({"steps": 10**9}, "more than 10,000"),
        ({"steps": ["a"]}, "must be a whole number"),
        ({"long": 10**12}, "more than 100,000"),
        ({"learned": "taste"}, "learned is 'taste'"),
        ({"learned": "comet"}, "unbabel-comet"),
        ({"remask": 2.0}, "remask is 2"),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_anything_is_translated(
    folder, asked, said, monkeypatch
):
    monkeypatch.setattr("glauber.translation.evaluation.translate_texts", None)
    with pytest.raises(GlauberError, match=said):
        evaluate_translator(folder / "pairs.tsv", model=folder, **asked)


def test_a_missing_sacrebleu_is_said_first(folder, monkeypatch):
    monkeypatch.setattr("glauber.translation.evaluation.translate_texts", None)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(GlauberError, match=r"BLEU needs sacrebleu: pip install 'glauber"):
        evaluate_translator(folder / "pairs.tsv", model=folder)


def test_every_decoder_translates(folder):
    text = "the cat sees the dog."
    for decoder in ORDERS:
        made = translate(
            text, model=folder, lengths=2, decoder=decoder, steps=2, hypotheses=2, trace=True
        )
        (one,) = made.to_dict()["translations"]
        assert one["passes"] == len(one["trace"]) <= 2 and one["kind"] == "estimate"
        shown = made.figure().data[0]
        assert shown.z.shape == (one["passes"], len(made.translations[0].tokens[0]))
        assert ((shown.z > 0) & (shown.z <= 1)).all()
    made = translate(text, model=folder, decoder="ar")
    assert made.translations[0].passes > 1 and made.figure().data[0].z.shape[0] == 1
    # The score of a search is the mean over its tokens and END; the picture has the tokens.
    assert len(made.translations[0].log_probs[0]) == made.translations[0].passes - 1
    seeds = [translate(text, model=folder, initial="random", steps=1, seed=s) for s in (1, 1)]
    assert seeds[0].to_dict() == seeds[1].to_dict()
    assert translate(text, model=folder, length="ratio", remask_repeats=False).texts


def test_python_and_the_command_have_one_judge(folder):
    """The teacher chooses unless something else is asked for, wherever the question comes from."""
    texts = [source for source, _ in toy_pairs(20, seed=5)]
    plain, teacher, own = (
        translate(texts, model=folder, **asked)
        for asked in ({}, {"judge": "teacher"}, {"judge": "itself"})
    )
    assert plain.texts == teacher.texts != own.texts
    assert Decoding().judge == "teacher"


def test_several_drafts_of_one_length_are_judged_by_the_teacher(folder):
    made = translate("the cat.", model=folder, decoder="sundae", lengths=1, hypotheses=3)
    assert made.texts and "judge:teacher" in made.signature


def test_translations_print_as_lines_and_tabulate(folder, tmp_path):
    texts = ["the cat sees the dog.", "a bird."]
    made = translate(texts, model=folder)
    assert str(made) == "\n".join([*made.texts, made.signature])
    assert list(made.frame()["source"]) == texts and list(made.frame()["translation"]) == made.texts
    assert len(translate(texts, model=folder, trace=True).figures()) == 2
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n\n")
    assert translate(tmp_path / "texts.txt", model=folder).texts == made.texts


@pytest.mark.parametrize(
    ("texts", "asked", "said"),
    [
        (None, {}, "no text"),
        ([], {}, "no text"),
        ("", {}, "empty"),
        ("the ☃", {}, "does not know"),
        ("the \udcff", {}, "not UTF-8"),
        ("the cat " * 99, {}, "at most 63"),
        ("the cat", {"steps": 0}, "at least 1"),
        ("the cat", {"steps": 10**9}, "more than 10,000"),
        ("the cat", {"decoder": "ar", "beams": 10**9}, "more than 10,000"),
        ("the cat", {"decoder": "sundae", "hypotheses": 10**9}, "more than 10,000"),
        ("the cat", {"judge": "me"}, "judge is 'me'"),
        ("the cat", {"length": "oracle"}, "use evaluate-translator"),
        ("the cat", {"initial": "random", "decoder": "easy-first"}, "fills masks"),
        ("the cat", {"device": "abacus"}, "abacus"),
        ("the cat", {"seed": -1}, "seed is -1"),
    ],
)
def test_what_cannot_be_translated_is_one_sentence(folder, texts, asked, said):
    with pytest.raises(GlauberError, match=said) as problem:
        translate(texts, model=folder, **asked)
    assert "\n" not in str(problem.value)


def test_broken_folders_are_one_sentence(folder, tmp_path):
    with pytest.raises(GlauberError, match="no vocabulary"):
        translate("the cat", model="nowhere")
    with pytest.raises(GlauberError, match="no vocabulary"):
        translate("the cat", model="x" * 5000)
    for name in (VOCABULARY, "student.json", "teacher.json", "teacher.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "student.safetensors").write_bytes(b"no weights")
    with pytest.raises(GlauberError, match="are no translator"):
        translate("the cat", model=tmp_path)
    (tmp_path / VOCABULARY).write_bytes(b"no words")
    with pytest.raises(GlauberError, match="is no vocabulary"):
        translate("the cat", model=tmp_path)


def test_the_pairs_in_the_package_name_their_authors():
    import lzma

    lines = lzma.decompress(TEST_PAIRS.read_bytes()).decode().splitlines()
    assert len(lines) == 2071
    assert all("Attribution: tatoeba.org" in line.split("\t")[2] for line in lines)
