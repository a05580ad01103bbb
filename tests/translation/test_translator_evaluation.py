"""Are translators judged as the paper judges them, and do the pictures say the same?"""

import json
import sys
import types

import pytest

from glauber.errors import GlauberError
from glauber.figures.translation import plot_frontier
from glauber.translation.data import Judged, by_source, write_pairs
from glauber.translation.evaluation import TEST_PAIRS, Measures, evaluate, ways
from glauber.translation.frontier import LENGTHS, STEPS, frontier
from glauber.translation.learned import learned_score
from glauber.translation.paired import bleu_difference
from glauber.translation.score import latencies, quality, repeat_rate, stutter_rate, throughput
from glauber.translation.store import VOCABULARY, load, load_vocabulary, save
from glauber.translation.translate import Way, translate
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


@pytest.fixture
def said(glauber):
    """What a command prints as JSON, or the sentence that it ends with."""

    def run(*words):
        code, out, err = glauber(*words)
        return json.loads(out) if code == 0 else err

    return run


def test_stutter_is_what_no_reference_repeats():
    judged = [Judged("", ("no no", "No, no")), Judged("", ("ya ya ya",))]
    assert stutter_rate(["no no no", "Ya ya"], judged) == pytest.approx(1 / 5)
    assert stutter_rate(["no no", "va va"], judged) == pytest.approx(1 / 4)
    assert repeat_rate(["no no", "ya va ya Ya"]) == pytest.approx(2 / 6)
    # Marks at the ends do not hide a repetition, marks between the two words end it.
    plain = [Judged("", ("a",))]
    for text, n in {"la casa casa.": 1, "¿Te te fue?": 1, "no, no": 0, "Tom. Tom": 0,
                    "va vaca": 0, "él él él": 2}.items():  # fmt: skip
        assert stutter_rate([text], plain) == pytest.approx(n / len(text.split())), text
    # The references' own rate is that of the first ones: "no no" and "ya ya ya".
    assert quality(["a", "b"], judged).reference_stutter == pytest.approx(3 / 5)


def test_throughput_is_at_the_best_batch_size():
    heard = []
    made = throughput(lambda texts, size: heard.append((len(texts), size)), list("abcdefgh"))
    assert heard == [(3, 3), (8, 1), (8, 4)]  # sizes above 8 would be 8 again
    assert made.best == made.by_size[made.batch_size] == max(made.by_size.values())
    assert throughput(lambda texts, size: None, ["a"], sizes=(4,)).by_size.keys() == {1}


def test_systems_are_timed_in_turn():
    heard = []
    made = latencies([lambda t: heard.append(t), lambda t: heard.append(t.upper())], ["a", "b"])
    assert heard == ["a", "A", "b", "B"] * 2 and [one.n_sentences for one in made] == [2, 2]


def test_differences_of_bleu_are_those_of_the_corpus_scores():
    judged = by_source(toy_pairs(40, seed=2))
    good = [one.references[0] for one in judged]
    worse = [" ".join(text.split()[:-1]) + "." for text in good]
    found = bleu_difference(worse, good, judged)
    assert found.value == pytest.approx(quality(worse, judged).bleu - quality(good, judged).bleu)
    assert found.word == "lower" and 0 < found.standard_error < -found.value
    same = bleu_difference(good, good, judged)
    assert (same.value, same.standard_error, same.word) == (0.0, 0.0, "not told from 0")
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
        found = bleu_difference(worse, good, judged, seed=part)
        errors.append(found.standard_error)
        values.append(found.value)
    mean = sum(values) / 12
    spread = (sum((value - mean) ** 2 for value in values) / 11) ** 0.5
    # A standard deviation from 12 sets has a relative error of 1 / sqrt(22) = 0.21.
    assert sum(errors) / 12 == pytest.approx(spread, rel=3 * 0.21)


def test_learned_metrics_say_what_is_missing(monkeypatch):
    judged = [Judged("one", ("uno", "un")), Judged("two", ("dos",))]
    with pytest.raises(GlauberError, match="unbabel-comet"):
        learned_score(["uno", "dos"], judged)
    with pytest.raises(GlauberError, match="BLEURT is not at hand"):
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


def test_systems_are_judged_on_the_same_sentences(folder):
    judged, heard = by_source(toy_pairs(12, seed=9)), []
    systems = ways((1, 2), 2, decoders=("refine", "sundae"), like=Way(n_hypotheses=2))
    made = evaluate(folder, judged, systems, measures=Measures(3, 5), hear=heard.append)
    assert [one.system for one in made] == heard[:-1] == list(systems)
    assert heard[-1] == "3 sentences one at a time"
    assert heard[2:4] == ["refine, 1 step", "refine, 2 steps"]
    for one in made:
        assert one.latency.n_sentences == 3 and set(one.throughput.by_size) == {1, 4}
        assert len(one.outputs) == 12 == one.quality.n_sentences
        assert one.n_passes <= one.way.n_steps or one.way.decoder == "ar"


def test_an_oracle_is_told_the_first_references_length(folder):
    judged = by_source(toy_pairs(12, seed=9))
    way = Way(n_lengths=1, length="oracle", drop_repeats=False)
    (made,) = evaluate(folder, judged, {"told": ("student", way)}, measures=Measures(0))
    assert made.latency is None and made.throughput is None
    vocabulary = load_vocabulary(folder)
    lengths = [len(vocabulary.encode(one.references[0])) for one in judged]
    told = translate(
        load(folder, "student"), vocabulary, [one.source for one in judged],
        way=way, reference_lengths=lengths,
    )  # fmt: skip
    assert [len(one.tokens) for one in told] == lengths and len(set(lengths)) > 1
    assert made.outputs == tuple(one.text for one in told)


def test_the_frontier_has_every_point_and_its_picture_shows_them(folder):
    made = frontier(folder, by_source(toy_pairs(6, seed=9)), n_timed=2)
    assert [(p.n_lengths, p.n_steps) for p in made.refined] == [
        (lengths, steps) for lengths in LENGTHS for steps in STEPS
    ]
    assert [p.system for p in made.autoregressive] == ["ar, greedy", "ar, beam 5"]
    figure = plot_frontier(made)
    assert len(figure.data) == len(LENGTHS) + 2
    for line, lengths in zip(figure.data, LENGTHS, strict=False):
        points = [p for p in made.refined if p.n_lengths == lengths]
        assert list(line.x) == [1000 * p.median for p in points]
        assert list(line.y) == [p.bleu for p in points]
    with pytest.raises(GlauberError, match="at least 1 timed"):
        frontier(folder, by_source(toy_pairs(6)), n_timed=0)


def test_the_command_evaluates(folder, said, tmp_path):
    common = ("evaluate-translator", folder / "pairs.tsv", "--models", folder, "--limit", 5)
    told = said(*common, "--steps", 2, "--timed", 2, "--throughput", "--learned", "comet",
                "--length", "oracle", "--lengths", 1, "--json")  # fmt: skip
    assert [one["system"] for one in told["systems"]] == [
        "ar, greedy", "ar, beam 5", "refine, 2 steps", "refine, 2 steps, judged by ar",
    ]  # fmt: skip
    assert told["kind"] == "estimate" and "unbabel-comet" in told["learned"]
    assert told["systems"][2]["way"]["length"] == "oracle"
    assert all(one["throughput"]["best"] > 0 for one in told["systems"])
    picture = tmp_path / "frontier.html"
    told = said(*common, "--frontier", "--timed", 1, "--out", picture, "--json")
    assert len(told["refined"]) == 12 and told["picture"] == str(picture)
    assert "plotly" in picture.read_text()[:5_000_000]
    assert "give --frontier" in said(*common, "--out", picture)
    assert "at least 1" in said(*common[:4], "--limit", 0)
    assert "comet, bleurt" in said(*common, "--learned", "taste", "--timed", 0, "--steps", 1)


def test_the_command_translates(folder, said):
    common = ("translate", "the cat sees the dog.", "--models", folder, "--json", "--lengths", 2)
    for decoder in ("refine", "mask-predict", "easy-first", "left-to-right", "sundae"):
        told = said(*common, "--decoder", decoder, "--steps", 2, "--hypotheses", 2, "--trace")
        (one,) = told["translations"]
        assert one["passes"] == len(one["trace"]) <= 2 and one["kind"] == "estimate"
    assert said(*common, "--decoder", "ar")["translations"][0]["passes"] > 1
    seeds = [said(*common, "--initial", "random", "--steps", 1, "--seed", s) for s in (1, 1, 2)]
    assert seeds[0] == seeds[1]
    assert said(*common, "--length", "ratio", "--no-remask")["translations"]
    assert said(*common, "--device", "auto")["translations"]
    assert "abacus" in said(*common, "--device", "abacus")
    assert "use evaluate-translator" in said(*common, "--length", "oracle")
    assert "fills masks" in said(*common, "--initial", "random", "--decoder", "easy-first")


def test_the_pairs_in_the_package_name_their_authors():
    import lzma

    lines = lzma.decompress(TEST_PAIRS.read_bytes()).decode().splitlines()
    assert len(lines) == 2071
    assert all("Attribution: tatoeba.org" in line.split("\t")[2] for line in lines)
